"""A finished run of experiment=harper-valley* as the bundle that ships: 16 or 8 bits a weight, its searches chosen.

    python benchmarks/ship_recogniser.py RUN OUT [--name harper-valley] [--bits 16]

The weights of language model, word bonus and attention are chosen on the development speakers. What that is worth is
measured by choosing on one half of the speakers and counting on the other, both ways (``wer, chosen on other ...``).
"""

import argparse
import dataclasses
import itertools
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from recognition import Outputs, clips_of, percent

from voiceseq.bundles import load_bundle, save_bundle
from voiceseq.inference.recogniser import AcousticRecogniser, SearchSettings
from voiceseq.inference.speech import Decoding
from voiceseq.models.acoustic import LM_FILE
from voiceseq.text.kneser_ney import train_ngram
from voiceseq.text.ngram import NgramModel, write_arpa
from voiceseq.text.normalise import normalise

LM_WEIGHTS, BONUSES, UNKNOWNS = (0.4, 0.7, 1.0), (0.5, 1.5), (-5.0, -10.0)
SHARES = (0.3, 0.5, 0.7, 0.9)
BITS = {16: torch.float16, 8: torch.int8}


def language_model(recogniser: AcousticRecogniser) -> NgramModel:
    """Four-grams of the training texts, in the units that the searches want."""
    texts = [normalise(clip.text or "") for clip in clips_of("train")]
    letters = recogniser.vocabulary.level == "character"
    return train_ngram(
        [text.split() if letters else recogniser.vocabulary.split(text) for text in texts], 4, (0, 0, 0, 1)
    )


class Tried:
    """Word errors of each speaker under each of the settings."""

    def __init__(self, recogniser: AcousticRecogniser, outputs: Outputs) -> None:
        self.recogniser, self.outputs = recogniser, outputs
        self.errors: dict[SearchSettings, Counter[str]] = {}
        self.words: Counter[str] = Counter()

    def run(self, tried: Iterable[SearchSettings]) -> None:
        for settings in tried:
            self.recogniser.settings = settings
            self.recogniser._fusion.cache_clear()
            errors, words = Counter[str](), Counter[str]()
            for one in self.outputs.decode(Decoding(settings.decoder))[0]:
                errors[one.speaker] += one.words.total
                words[one.speaker] += one.words.reference
            self.errors[settings], self.words = errors, words
            print(dataclasses.asdict(settings), errors.total() / words.total(), file=sys.stderr)

    def best(self, speakers: Sequence[str]) -> SearchSettings:
        return min(self.errors, key=lambda settings: sum(self.errors[settings][one] for one in speakers))

    def crossed(self) -> float:
        """The rate when each half of the speakers is counted with the settings that are best for the other."""
        speakers = sorted(self.words)
        halves = speakers[::2], speakers[1::2]
        wrong = [self.errors[self.best(other)][one] for half, other in (halves, halves[::-1]) for one in half]
        return sum(wrong) / self.words.total()


def choose(recogniser: AcousticRecogniser, outputs: Outputs) -> tuple[SearchSettings, float]:
    """The settings with the fewest word errors, and their rate on speakers who did not choose them."""
    tried = Tried(recogniser, outputs)
    grid = itertools.product(LM_WEIGHTS, BONUSES, UNKNOWNS)
    tried.run(SearchSettings("beam", 16, weight, bonus, unknown) for weight, bonus, unknown in grid)
    best = tried.best(list(tried.words))
    if recogniser.network.decoder is not None:
        tried.run(dataclasses.replace(best, decoder="rescore", ctc_weight=share) for share in SHARES)
    return tried.best(list(tried.words)), tried.crossed()


def card(
    name: str, recogniser: AcousticRecogniser, outputs: Outputs, size: int, crossed: float, data: Sequence[dict]
) -> str:
    rows = [f"| {decoder} | {percent(outputs.decode(Decoding(decoder))[0])} |" for decoder in recogniser.decoders]
    config = recogniser.network.config
    whisper = config.encoder == "whisper"
    return "\n".join(
        [
            f"# {name}",
            "",
            f"Bank calls in English: `voiceseq transcribe call.wav --model {name}`.",
            f"Encoder: {config.encoder}; decoder: {config.decoder}; {size:,} weights; {recogniser.vocabulary.level}s.",
            *(["The encoder is that of OpenAI's Whisper tiny.en, taught our corpora first."] if whisper else []),
            "It knows the some 600 words of simulated calls to a bank, over the telephone, and little else: for other",
            "English take `english-small`.",
            "",
            "Word errors on the 649 utterances of the 7 development speakers (95 %, bootstrap over speakers):",
            "",
            "| decoder | WER % |",
            "|---|---|",
            *rows,
            "",
            f"The default search has weights chosen on these speakers; chosen on others: {100 * crossed:.1f} %.",
            "By `python benchmarks/recognition.py` (RESULTS.md), also for the sentences that training did not hold.",
            "",
            "Licence: Apache-2.0" + (" for what we added, MIT for Whisper's weights." if whisper else "."),
            "Learned from: " + ", ".join(f"{one['name']} ({one['licence']})" for one in data) + ".",
            "Harper Valley is the Gridspace-Stanford corpus (Wu, Nafziger, Scodary, Maas 2020); 44 of its speakers.",
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--name", default="harper-valley")
    parser.add_argument("--bits", type=int, default=16, choices=BITS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    bundle = load_bundle(arguments.run / "bundle" if (arguments.run / "bundle").exists() else arguments.run)
    recogniser = AcousticRecogniser.from_bundle(bundle)
    recogniser.lm = language_model(recogniser)
    settings, crossed = choose(recogniser, Outputs(recogniser, clips_of("dev")))
    with tempfile.TemporaryDirectory() as folder:
        write_arpa(recogniser.lm, Path(folder) / LM_FILE)
        lm = (Path(folder) / LM_FILE).read_bytes()
    parts = {
        "kind": bundle.kind,
        "name": arguments.name,
        "config": bundle.config,
        "weights": recogniser.network.state_dict(),
        "vocabularies": bundle.vocabularies,
        "files": {LM_FILE: lm},
        "decoding": dataclasses.asdict(settings),
        "metrics": bundle.metrics | {"wer, chosen on other speakers": 100 * crossed},
        "training": bundle.training,
        "licence": "Apache-2.0",
        "dtype": BITS[arguments.bits],
    }
    save_bundle(arguments.out, **parts)
    shipped = AcousticRecogniser.from_bundle(load_bundle(arguments.out))
    size = sum(parameter.numel() for parameter in shipped.network.parameters())
    outputs = Outputs(shipped, clips_of("dev"))
    save_bundle(
        arguments.out, **parts, card=card(arguments.name, shipped, outputs, size, crossed, bundle.training["data"])
    )
    print(arguments.out, sum(file.stat().st_size for file in arguments.out.rglob("*") if file.is_file()), "bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
