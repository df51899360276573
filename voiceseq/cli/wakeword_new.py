"""``voiceseq wakeword new PHRASE``: a bundle that listens for the phrase."""

import argparse
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voiceseq.cli.options import add_json, print_json
from voiceseq.errors import InputError

if TYPE_CHECKING:
    from voiceseq.datasets.manifest import Clip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("phrase", help="what people will say: two to four syllables or more are best")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the bundle goes (default: the phrase's name)")
    parser.add_argument("--instant", action="store_true", help="at once, by the phones of the phrase, with no training")
    parser.add_argument("--recordings", type=Path, metavar="DIR", help="recordings of people who say the phrase")
    parser.add_argument("--negatives", type=Path, metavar="DIR", help="recordings of what must not wake it")
    add_making(parser)


def add_making(parser: argparse.ArgumentParser, alarms: float | None = 0.5, seed: int | None = 1) -> None:
    """What ``new`` and ``retrain`` share; None: the old bundle's."""
    parser.add_argument(
        "--alarms-per-hour", type=float, default=alarms, metavar="X",
        help=f"false alarms to allow (default: {alarms or 'as before'})",
    )  # fmt: skip
    parser.add_argument("--voices", type=Path, metavar="DIR", help="where synthesiser voices lie (see voiceseq voices)")
    parser.add_argument("--work", type=Path, default=Path("runs/wakeword"), metavar="DIR", help="keeps what was said")
    parser.add_argument("--backbone", default="backbone", help=argparse.SUPPRESS)
    parser.add_argument("--bank", default="negatives", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=seed, help=f"of all chance (default: {seed or 'as before'})")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="synthesisers at work at once")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    out = args.out or Path(slug(args.phrase))
    if args.instant:
        import voiceseq
        from voiceseq.wakeword.ground import Ground
        from voiceseq.wakeword.instant import make_instant

        ground, pronouncer = Ground(args.backbone, args.bank), voiceseq.load("pronounce-en")
        report = make_instant(args.phrase, out, ground, pronouncer, args.alarms_per_hour, teller(args.phrase))
    else:
        recordings = recordings_of(args.recordings, [args.phrase])[args.phrase]
        report = make_trained(args, args.phrase, out, recordings, clips_of(args.negatives))
    if args.json:
        print_json({"bundle": str(out), "report": report})
    else:
        for line in summary(report):
            print(line)
        print(f"bundle        {out}")
        print(f"listen        voiceseq listen --model {out}")
    return 0


def summary(report: dict[str, Any]) -> list[str]:
    """What to expect of a wake word, in a few lines."""
    alarms, lines = report["false alarms on sound for the threshold"], []
    for word, said in report["words"].items():
        rate = alarms[word]["per hour"]
        lines.append(f"{word}  {'; '.join(said[:3])}")
        lines.append(
            f"false alarms  {rate['per_hour']:.2f} an hour on {alarms['hours']:.1f} h of {', '.join(alarms['kinds'])} "
            f"that it did not learn from (95 %: {rate['low']:.2f} to {rate['high']:.2f})"
        )
        missed = report["missed, synthetic voices never trained on"].get(word)
        if missed:
            lines.append(f"missed        {missed['missed']} of {missed['of']}, said by synthetic voices new to it")
    lines += [f"expect        {report['expect']}"] if "expect" in report else []
    return lines


def make_trained(
    args: argparse.Namespace, phrase: str, out: Path, recordings: "list[Clip]", negatives: "list[Clip]"
) -> dict[str, Any]:
    """Imports what training needs, and trains."""
    import voiceseq
    from voiceseq.datasets.voices import find_voices
    from voiceseq.wakeword.ground import Ground
    from voiceseq.wakeword.learning import Learning
    from voiceseq.wakeword.making import Own, Recipe, make

    recipe = Recipe(alarms_per_hour=args.alarms_per_hour, workers=args.workers, learning=Learning(seed=args.seed))
    ground, pronouncer = Ground(args.backbone, args.bank), voiceseq.load("pronounce-en")
    own = Own({phrase: recordings}, negatives)
    voices = find_voices(args.voices)
    return make([phrase], out, ground, pronouncer, recipe, args.work, own, voices, teller(phrase))


def spelt(phrase: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", phrase.lower()).strip("-")


def slug(phrase: str) -> str:
    """A phrase as a name of a folder."""
    name = spelt(phrase)
    if not name:
        raise InputError(f"{phrase[:60]!r} has nothing that can be said; give words in English letters")
    return name


def clips_of(folder: Path | None) -> "list[Clip]":
    """What is in a folder, by its manifest where it has one (``voiceseq wakeword record`` writes one)."""
    from voiceseq.datasets.recordings import read_source

    if folder is None:
        return []
    listed = folder / "manifest.jsonl"
    return list(read_source(listed if listed.is_file() else folder))


def recordings_of(folder: Path | None, words: Sequence[str]) -> "dict[str, list[Clip]]":
    """The recordings of each word: a row's ``word``, else the name of a folder, else the only word there is.

    Raises InputError where a folder has none of any.
    """
    clips = clips_of(folder)
    named = {slug(word): word for word in words}
    told = folder is not None and (folder.is_file() or (folder / "manifest.jsonl").is_file())
    found: dict[str, list[Clip]] = {word: [] for word in words}
    for clip in clips:
        # a folder of one word may have a folder for each speaker
        word = clip.extra.get("word") if told or len(words) > 1 else None
        word = words[0] if word is None and len(words) == 1 else named.get(spelt(str(word)))
        if word is not None:
            found[word].append(clip)
    if clips and not any(found.values()):
        raise InputError(f"{folder} holds {len(clips)} recordings, none of {', '.join(words)}: is it the right folder?")
    return found


def teller(phrase: str) -> Any:
    """Tells on stderr what is being done, with the time since the start."""
    started = time.monotonic()

    def tell(text: str) -> None:
        passed = round(time.monotonic() - started)
        print(f"{passed // 60:3}:{passed % 60:02}  {phrase}: {text}", file=sys.stderr, flush=True)

    return tell
