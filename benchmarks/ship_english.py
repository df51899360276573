"""Make ``english-small`` of a run: a byte a weight, packed; its settings, and its card with word errors measured here.

    python benchmarks/ship_english.py runs/english-small/TIME [--out DIR] [--utterances 40] [--beside BUNDLE]

``--beside``: another bundle (say the original, imported) on the same utterances. ``--out data/bundles/english-small``
ships it.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from speech import CORPORA, RATE, plain, test_sets

from voiceseq.audio.files import read_clip
from voiceseq.bundles import load_bundle, save_bundle
from voiceseq.core.distance import edit_distance
from voiceseq.datasets.manifest import Clip
from voiceseq.inference.speech import Decoding
from voiceseq.inference.whisper import WhisperRecogniser
from voiceseq.models.whisper import WhisperConfig
from voiceseq.tasks.whisper import LETTERS
from voiceseq.text.pieces import Pieces
from voiceseq.text.vocabulary import Vocabulary

ROOT = Path(__file__).resolve().parent.parent
NAMES = {"librispeech": "LibriSpeech", "commonvoice": "Common Voice"}
NAMES |= {"speechocean762": "speechocean762", "harpervalley": "Harper Valley"}
DATA = (
    ("OpenAI Whisper tiny.en (start)", "MIT"),
    ("LibriSpeech dev-clean and test-clean, the speakers of our train and extra parts", "CC BY 4.0"),
    ("Common Voice, English", "CC0 1.0"),
    ("speechocean762", "CC BY 4.0"),
    ("Harper Valley", "CC BY 4.0"),
    ("noise: ESC-50, Speech Commands, Mycroft", "CC0 or CC BY by clip; CC BY 4.0; public domain"),
    ("music: singularity-music, aftermath_soundtrack", "CC BY-SA 3.0"),
)


def errors(recogniser: WhisperRecogniser, clips: Sequence[Clip], decoder: str) -> tuple[float, float]:
    """Word error rate in percent, and processor seconds a second of sound."""
    sounds = [read_clip(clip.audio, clip.offset, clip.duration, RATE) for clip in clips]
    began = time.process_time()
    answers = recogniser.recognise(sounds, Decoding(decoder=decoder))
    cost = (time.process_time() - began) / sum(clip.duration for clip in clips)
    pairs = [
        (plain(clip.text or "").split(), plain(one[0].text).split()) for clip, one in zip(clips, answers, strict=True)
    ]
    wrong = sum(edit_distance(found, wanted) for wanted, found in pairs)
    return 100 * wrong / sum(len(wanted) for wanted, _ in pairs), cost


def measure(path: Path, sets: dict[str, list[Clip]], decoder: str = "greedy") -> dict[str, float]:
    recogniser = WhisperRecogniser.from_bundle(load_bundle(path))
    found = {}
    for name in CORPORA:
        rate, cost = errors(recogniser, sets[name], decoder)
        print(f"{path} {decoder} {name}: {rate:.1f} %, {cost:.3f} s/s", flush=True)
        found |= {f"{name} WER %": round(rate, 2), f"{name} CPU s/s": round(cost, 4)}
    return found


def card(metrics: dict[str, float], size: int, utterances: int) -> str:
    rates = ", ".join(f"{name} {metrics[f'{key} WER %']:.1f} %" for key, name in NAMES.items())
    lines = [
        "# english-small",
        "",
        "General English speech to text: OpenAI's Whisper `tiny.en` taught short windows, small letters, our corpora;",
        f"a CTC head gives the words their times. {size:,} parameters, in steps of a 90th of a row's largest, packed.",
        "",
        f"Word error rate, greedy, {utterances} utterances of each development set: {rates}.",
        "",
        "Made by `voiceseq train experiment=english-small` (docs/english-small.md, docs/experiments.md); the speakers",
        "of the development sets are not among those it learned from. It writes small letters, no punctuation; English",
        "only; taught on read speech and bank calls, so expect more errors on far microphones and free conversation.",
        "",
        "Licence: Apache-2.0 for what we added, MIT for Whisper's weights. Learned from:",
        "",
        *(f"- {name}: {licence}" for name, licence in DATA),
    ]
    return "\n".join(lines) + "\n"


def found(run: Path) -> dict[str, Any]:
    """What a bundle is made of: that of a finished run, or the best weights so far of one that goes on."""
    if (run / "bundle").exists():
        bundle = load_bundle(run / "bundle")
        names = ("config", "weights", "vocabularies", "decoding", "training")
        return {name: getattr(bundle, name) for name in names}
    settings = OmegaConf.load(run / "config.yaml")
    pieces = load_bundle(settings.data.vocabulary).vocabularies["pieces"]
    letters = Vocabulary.from_text(LETTERS, specials=("blank",))
    weights = torch.load(run / "best.ckpt", map_location="cpu", weights_only=True)["state_dict"]
    model = {key: value for key, value in settings.model.items() if key != "_target_"}
    return {
        "config": WhisperConfig(**model | {"symbols": len(Pieces.from_json(pieces)), "characters": len(letters)}),
        "weights": {name.removeprefix("network."): tensor for name, tensor in weights.items()},
        "vocabularies": {"pieces": pieces, "letters": letters.to_json()},
        "training": {"data": [{"name": name, "licence": licence} for name, licence in DATA]},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the folder of a run, finished or not")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "ship" / "english-small")
    parser.add_argument("--utterances", type=int, default=40)
    parser.add_argument("--beside", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    parts = found(args.run) | {"kind": "whisper", "name": "english-small", "dtype": torch.int8}
    parts |= {"licence": "Apache-2.0; weights start from OpenAI Whisper (MIT)"}
    save_bundle(args.out, **parts)
    sets = test_sets(ROOT.parent / "shared" / "data", args.utterances)
    metrics = measure(args.out, sets)
    if args.beside:
        measure(args.beside, sets)
    size = sum(tensor.numel() for tensor in parts["weights"].values())
    save_bundle(args.out, **parts, metrics=metrics, card=card(metrics, size, args.utterances))
    print(args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
