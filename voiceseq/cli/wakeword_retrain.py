"""``voiceseq wakeword retrain BUNDLE``: the same wake word again, with what the listening app saved."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voiceseq.cli.options import print_json
from voiceseq.cli.wakeword_new import add_making, clips_of, recordings_of, teller
from voiceseq.errors import AudioError, BundleError, ConfigError, InputError, VoiceseqError

if TYPE_CHECKING:
    from voiceseq.bundles import Bundle
    from voiceseq.wakeword.making import Recipe
    from voiceseq.wakeword.retraining import SavedClip

ROWS = "saved.jsonl"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", help="the wake word that is to become better: a name or a path")
    parser.add_argument(
        "--saved", type=Path, default=Path("saved"), metavar="DIR",
        help="where `voiceseq listen` saved false alarms and missed words (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--recordings", type=Path, metavar="DIR", help="more recordings of people who say the phrase")
    parser.add_argument("--negatives", type=Path, metavar="DIR", help="more recordings of what must not wake it")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where the new bundle goes (default: the old name and a number)"
    )
    parser.add_argument("--replace", action="store_true", help="write over the old bundle, or what is at --out")
    add_making(parser, alarms=None, seed=None)


def run(args: argparse.Namespace) -> int:
    from voiceseq.bundles import load_bundle

    bundle = load_bundle(args.bundle)
    words = words_of(bundle)
    saved = read_saved(args.saved, words)
    out = place_for(args, bundle)
    report = make_again(args, bundle, words, saved, out)
    if args.json:
        print_json({"bundle": str(out), "report": report})
    else:
        for line in report["lines"]:
            print(line)
        print(f"bundle  {out}")
        print(f"listen  voiceseq listen --model {out}")
    return 0


def words_of(bundle: "Bundle") -> tuple[str, ...]:
    words = bundle.config.get("words")
    if not isinstance(words, list) or not words:
        raise BundleError(f"{bundle.path} is a {bundle.kind!r} and listens for nothing; a wake word was wanted")
    return tuple(map(str, words))


def place_for(args: argparse.Namespace, bundle: "Bundle") -> Path:
    """Where the new bundle goes, looked at before anything is trained. Raises ConfigError where something is there."""
    if args.out is None and not args.replace:
        stem, number = bundle.path.name.removesuffix(".zip"), 2
        while Path(f"{stem}-{number}").exists():
            number += 1
        return Path(f"{stem}-{number}")
    out: Path = args.out or bundle.path
    if out.exists() and not args.replace:
        raise ConfigError(f"{out} is there already: give another --out, or --replace to write over it")
    return out


def make_again(
    args: argparse.Namespace, bundle: "Bundle", words: Sequence[str], saved: "list[SavedClip]", out: Path
) -> dict[str, Any]:
    """Imports what training needs, trains, and listens to the saved clips before and after."""
    import voiceseq
    from voiceseq.datasets.voices import find_voices
    from voiceseq.wakeword.ground import Ground
    from voiceseq.wakeword.making import make, ways
    from voiceseq.wakeword.retraining import compared, judge, length_of, own_of

    tell = teller(", ".join(words))
    old, pronouncer = voiceseq.load(bundle.path), voiceseq.load("pronounce-en")
    lengths_s = {word: length_of(ways(word, pronouncer, lambda text: None)) for word in words}
    before = judge(old, saved)
    own = own_of(saved, old, lengths_s)
    for word, clips in recordings_of(args.recordings, words).items():
        own.recordings[word] += clips
    own.negatives += clips_of(args.negatives)
    voices = find_voices(args.voices)
    ground = Ground(args.backbone, args.bank)
    report = make(words, out, ground, pronouncer, recipe_of(args, bundle), args.work, own, voices, tell)
    after = judge(voiceseq.load(out), saved)
    lines = [*compared(before, after), "(these clips were learned from: other false alarms fall less than they do)"]
    return report | {"saved clips, before": before, "saved clips, after": after, "lines": lines}


def recipe_of(args: argparse.Namespace, bundle: "Bundle") -> "Recipe":
    """As the old bundle was made, with what was given anew."""
    from voiceseq.bundles.reading import build
    from voiceseq.wakeword.making import Recipe

    known = bundle.training.get("recipe")
    recipe = build(Recipe, known, f"{bundle.path}: training.recipe") if known else Recipe()
    if args.seed is not None:
        recipe = replace(recipe, learning=replace(recipe.learning, seed=args.seed))
    if args.alarms_per_hour is not None:
        recipe = replace(recipe, alarms_per_hour=args.alarms_per_hour)
    return replace(recipe, workers=args.workers)


# --- what was saved --------------------------------------------------------------------------------------------------


def read_saved(folder: Path, words: Sequence[str]) -> "list[SavedClip]":
    """The clips ``KIND/WORD/*.wav`` of these words; what the rows say of them is added where there are rows.

    Raises InputError where there are none, and AudioError with the names of all that cannot be read.
    """
    found: list[SavedClip] = []
    broken: list[str] = []
    for path, word, missed in clips_in(folder, words):
        try:
            found.append(saved_clip(path, word, missed))
        except VoiceseqError as error:
            broken.append(str(error))
    if broken:
        raise AudioError(f"{len(broken)} saved clips cannot be used, delete them: {'; '.join(broken[:10])}")
    if not found:
        raise InputError(
            f"{folder} has no clips of {', '.join(words)}: while `voiceseq listen` runs, f saves a false alarm and m a "
            "missed word"
        )
    pressed = times_in(folder)
    return [replace(one, at=pressed.get(one.clip.audio.resolve())) for one in found]


def clips_in(folder: Path, words: Sequence[str]) -> Iterator[tuple[Path, str, bool]]:
    from voiceseq.apps.listen.saving import FALSE_ALARM, MISSED, folder_name

    for kind in (FALSE_ALARM, MISSED):
        for word in words:
            for path in sorted((folder / kind / folder_name(word)).glob("*.wav")):
                yield path, word, kind == MISSED


def saved_clip(path: Path, word: str, missed: bool) -> "SavedClip":
    """Read once to the end: a header may promise more than there is."""
    from voiceseq.audio.files import read_audio
    from voiceseq.datasets.manifest import Clip
    from voiceseq.wakeword.retraining import SavedClip

    audio = read_audio(path)
    return SavedClip(Clip(path.stem, path, audio.duration_s, speaker="saved"), word, missed)


def times_in(folder: Path) -> dict[Path, float]:
    """``at`` of each row."""
    from voiceseq.datasets.manifest import iterate_manifest

    rows = folder / ROWS
    if not rows.is_file() or not rows.stat().st_size:
        return {}
    clips = iterate_manifest(rows, check_files=False)
    return {clip.audio.resolve(): float(at) for clip in clips if isinstance(at := clip.extra.get("at"), int | float)}
