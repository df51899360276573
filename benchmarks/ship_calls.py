"""Make ``harper-valley`` of a run of experiment=harper-valley-whisper: 8 bits a weight, its language model, its search.

    python benchmarks/ship_calls.py runs/harper-valley-whisper/TIME [--out DIR]

Four-grams of the training texts order the n best; their weight, and that of CTC's opinion, are chosen on the
development speakers. What that choice is worth is measured by choosing on one half of the speakers and counting on the
other.
"""

import argparse
import dataclasses
import itertools
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from recognition import SPEECH, Outputs, clips_of, percent
from ship_english import found as parts_of

from voiceseq.bundles import load_bundle, save_bundle
from voiceseq.core.distance import edit_distance
from voiceseq.datasets.manifest import read_manifest
from voiceseq.inference.language_models import text_log_prob
from voiceseq.inference.speech import Decoding
from voiceseq.inference.whisper import WhisperRecogniser, WhisperSettings
from voiceseq.models.acoustic import LM_FILE
from voiceseq.models.whisper import WhisperConfig
from voiceseq.text.kneser_ney import train_ngram
from voiceseq.text.ngram import NgramModel, arpa, packed
from voiceseq.text.normalise import normalise
from voiceseq.text.pieces import Pieces

ROOT = Path(__file__).resolve().parent.parent
LM_WEIGHTS, CTC_WEIGHTS, BEAM = (0.0, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3), (0.0, 0.05, 0.1, 0.2, 0.3), 5
OFTEN = 4  # uses of a piece
DATA = (
    ("OpenAI Whisper tiny.en (start)", "MIT"),
    ("Gridspace-Stanford Harper Valley, 44 speakers", "CC BY 4.0"),
    ("its texts, read by 904 voices of Piper's en_US-libritts_r-medium (LibriTTS-R)", "CC BY 4.0"),
    ("LibriSpeech, Common Voice, speechocean762 (experiment=english-small)", "CC BY 4.0; CC0 1.0; CC BY 4.0"),
    ("noise: ESC-50, Speech Commands, Mycroft", "CC0 or CC BY by clip; CC BY 4.0; public domain"),
    ("music: singularity-music, aftermath_soundtrack", "CC BY-SA 3.0"),
)


def without_rare_pieces(parts: dict[str, Any]) -> dict[str, Any]:
    """Pieces of words that calls do not use, and the other corpora hardly, are left out; letters spell such words."""
    pieces = Pieces.from_json(parts["vocabularies"]["pieces"])
    used = Counter[int]()
    for corpus, weight in (("harpervalley", OFTEN), ("librispeech", 1), ("commonvoice", 1), ("speechocean762", 1)):
        for name in ("train", "extra"):
            for clip in read_manifest(SPEECH / corpus / f"manifest-{name}.jsonl"):
                used.update(pieces.encode(f" {normalise(clip.text or '')}") * weight)
    smaller, kept = pieces.cut(number for number, count in used.items() if count >= OFTEN)
    weights = parts["weights"] | {"embedding.weight": parts["weights"]["embedding.weight"][kept]}
    config = dataclasses.replace(WhisperConfig(**config_of(parts["config"])), symbols=len(smaller))
    vocabularies = parts["vocabularies"] | {"pieces": smaller.to_json()}
    return parts | {"weights": weights, "config": config, "vocabularies": vocabularies}


def config_of(config: Any) -> dict[str, Any]:
    return dataclasses.asdict(config) if dataclasses.is_dataclass(config) else config  # type: ignore[arg-type]


class Reading(NamedTuple):
    """A hypothesis: its word errors, and what decoder, CTC and language model think of it."""

    errors: int
    written: float
    heard: float
    likely: float


class Utterance(NamedTuple):
    speaker: str
    words: int
    readings: list[Reading]


def language_model() -> NgramModel:
    return train_ngram([normalise(clip.text or "").split() for clip in clips_of("train")], 4, (0, 0, 0, 1))


def readings(recogniser: WhisperRecogniser, outputs: Outputs, lm: NgramModel) -> list[Utterance]:
    """The n best of every clip with all their scores: searched once, weighed many times."""
    clips, found = iter(outputs.clips), []
    for heard in outputs.heard:
        for row, some in enumerate(recogniser.search(heard, Decoding(), BEAM, BEAM)):
            clip = next(clips)
            wanted = normalise(clip.text or "").split()
            texts = [recogniser._text(one) for one in some]
            scores = zip(texts, some, recogniser._ctc_scores(heard, row, some), strict=True)
            own = [
                Reading(
                    edit_distance(text.split(), wanted),
                    one.score,
                    heard_as,
                    text_log_prob(lm, text) / max(1, len(text.split())),
                )
                for text, one, heard_as in scores
            ]
            found.append(Utterance(clip.speaker or clip.id, len(wanted), own))
    return found


def errors(utterances: Sequence[Utterance], lm_weight: float, ctc_weight: float) -> Counter[str]:
    """Of each speaker."""
    wrong = Counter[str]()
    for one in utterances:
        scores = [(1 - ctc_weight) * reading.written + lm_weight * reading.likely for reading in one.readings]
        if ctc_weight:  # CTC may find a text impossible
            scores = [score + ctc_weight * reading.heard for score, reading in zip(scores, one.readings, strict=True)]
        wrong[one.speaker] += one.readings[scores.index(max(scores))].errors
    return wrong


def choose(utterances: Sequence[Utterance]) -> tuple[tuple[float, float], float]:
    """Weights of language model and CTC with the fewest errors, and the rate on speakers who did not choose them."""
    tried = {pair: errors(utterances, *pair) for pair in itertools.product(LM_WEIGHTS, CTC_WEIGHTS)}
    words = sum(one.words for one in utterances)
    for pair, wrong in sorted(tried.items(), key=lambda item: item[1].total())[:6]:
        print(f"lm {pair[0]}, ctc {pair[1]}: {100 * wrong.total() / words:.2f} %", file=sys.stderr)
    print(f"the decoder alone: {100 * tried[0.0, 0.0].total() / words:.2f} %", file=sys.stderr)

    def best(speakers: Sequence[str]) -> tuple[float, float]:
        return min(tried, key=lambda pair: sum(tried[pair][speaker] for speaker in speakers))

    speakers = sorted({one.speaker for one in utterances})
    halves = speakers[::2], speakers[1::2]
    crossed = sum(tried[best(other)][one] for half, other in (halves, halves[::-1]) for one in half)
    return best(speakers), crossed / words


def card(recogniser: WhisperRecogniser, outputs: Outputs, size: int, crossed: float) -> str:
    shown = dict.fromkeys(("greedy", recogniser.decoders[0]))
    rows = [f"| {decoder} | {percent(outputs.decode(Decoding(decoder))[0])} |" for decoder in shown]
    lines = [
        "# harper-valley",
        "",
        "Bank calls in English: `voiceseq transcribe call.wav --model harper-valley`.",
        "OpenAI's Whisper `tiny.en`, taught short windows and small letters, then calls;",
        f"{size:,} parameters in 8 bits.",
        "It knows the some 600 words of simulated calls to a bank, over the telephone; for other English take",
        "`english-small`. Four-grams of the training texts (`lm.arpa.gz`) and CTC can order its n best anew:",
        f"`--decoder rescore --lm-weight 0.15`; by itself it gives them a weight of {recogniser.settings.lm_weight:g}.",
        "",
        f"Word errors on the {len(outputs.clips)} utterances of the 7 development speakers (95 %, bootstrap over",
        "speakers):",
        "",
        "| decoder | WER % |",
        "|---|---|",
        *rows,
        "",
        f"The default search has weights chosen on these speakers; chosen on others of them: {100 * crossed:.1f} %.",
        "By `python benchmarks/recognition.py` (RESULTS.md), also for the sentences that training did not hold.",
        "Made by `voiceseq train experiment=harper-valley-whisper` and `benchmarks/ship_calls.py`",
        "(docs/recognition.md).",
        "",
        "Licence: Apache-2.0 for what we added, MIT for Whisper's weights. Learned from:",
        "",
        *(f"- {name}: {licence}" for name, licence in DATA),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the folder of a run, finished or not")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "ship" / "harper-valley")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lm = language_model()
    parts = without_rare_pieces(parts_of(arguments.run)) | {
        "kind": "whisper",
        "name": "harper-valley",
        "dtype": torch.int8,
    }
    parts |= {"licence": "Apache-2.0; weights start from OpenAI Whisper (MIT)", "files": {LM_FILE: packed(arpa(lm))}}
    parts |= {"training": {"data": [{"name": name, "licence": licence} for name, licence in DATA]}}
    save_bundle(arguments.out, **parts | {"decoding": dataclasses.asdict(WhisperSettings())})
    recogniser = WhisperRecogniser.from_bundle(load_bundle(arguments.out))
    outputs = Outputs(recogniser, clips_of("dev"))
    (lm_weight, ctc_weight), crossed = choose(readings(recogniser, outputs, lm))
    decoder = "rescore" if ctc_weight else "beam"
    own = WhisperSettings(decoder, BEAM, lm_weight, ctc_weight=ctc_weight or CTC_WEIGHTS[1])
    recogniser.settings = own
    recogniser.decoders = (decoder, *(one for one in recogniser.decoders if one != decoder))
    size = sum(tensor.numel() for tensor in parts["weights"].values())
    metrics = {"wer, chosen on other speakers": 100 * crossed}
    text = card(recogniser, outputs, size, crossed)
    parts |= {"decoding": dataclasses.asdict(own), "metrics": metrics, "card": text}
    save_bundle(arguments.out, **parts)
    print(text)
    print(arguments.out, sum(file.stat().st_size for file in arguments.out.rglob("*") if file.is_file()), "bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
