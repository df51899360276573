"""Make the wake words that ship: the recipe of ``voiceseq wakeword new`` with people's recordings, real talk and noise.

    python benchmarks/words.py alexa computer ... --out DIR      # a bundle each
    python benchmarks/words.py --six --out DIR                   # one network for all six

Of the recordings (Picovoice's wake-word benchmark, Apache-2.0) only people who are not in the test part are used
(``datasets.corpora.wakewords``), of the corpora only speakers that are not held out. ``--synthetic`` leaves the
recordings out, ``--people N --each K`` takes K recordings of N people.
"""

import argparse
import json
import random
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

import voiceseq
from voiceseq.datasets.bank_streams import ESC_10
from voiceseq.datasets.corpora.wakewords import HELD_OUT_SHARE, part_of, person, spoken_word, without_phrases
from voiceseq.datasets.manifest import Clip, held_out, read_manifest
from voiceseq.datasets.recordings import Recordings
from voiceseq.datasets.voices import find_voices
from voiceseq.models.trigger import HeadConfig
from voiceseq.wakeword.ground import Ground
from voiceseq.wakeword.learning import Learning
from voiceseq.wakeword.making import Own, Recipe, make
from voiceseq.wakeword.material import Amounts

SIX = ("alexa", "computer", "jarvis", "smart mirror", "snowboy", "view glass")
NOISE_SHARE = 0.4  # of the shared noise trains nothing
TALK = 1500  # clips of the corpora that lie around and under the words


def recordings(folder: Path, args: argparse.Namespace) -> list[Clip]:
    """Clips of words by people who are not in the test part; nothing that is flagged."""
    clips = [c for name in ("picovoice", "speech_commands") for c in read_manifest(folder / name / "manifest.jsonl")]
    return [clip for clip in clips if part_of(person(clip)) != "test" and not clip.extra.get("flag")]


def some(clips: list[Clip], count: int) -> list[Clip]:
    return random.Random(1).sample(clips, min(count, len(clips)))


def real_noises(shared: Path) -> list[Clip]:
    """Of the shared noise what may be given away and is not kept for tests (``benchmarks/heard.py``)."""
    clips = read_manifest(shared / "speech/wakeword/noise/manifest.jsonl")
    given = [c for c in clips if c.extra.get("label") in ESC_10 or c.id.startswith(("scbg", "mycroft"))]
    return [clip for clip in given if not held_out(clip.id, NOISE_SHARE)]


def some_people(clips: list[Clip], people: int | None, each: int) -> list[Clip]:
    if people is None:
        return clips
    names = sorted({person(clip) for clip in clips})
    chosen = random.Random(1).sample(names, min(people, len(names)))
    return [clip for name in chosen for clip in [c for c in clips if person(c) == name][:each]]


def own_material(words: list[str], shared: Path, free: Path | None, args: argparse.Namespace) -> Own:
    """Everything real; ``--synthetic`` keeps to what ships and what synthesisers say."""
    if args.synthetic:
        return Own()
    said = recordings(shared / "speech/wakeword", args)
    by_word = {word: some_people([c for c in said if spoken_word(c) == word], args.people, args.each) for word in words}
    if args.people is not None:
        return Own(by_word)
    speech = [
        clip
        for corpus in ("librispeech", "commonvoice", "speechocean762", "harpervalley")
        for part in ("train", "extra")
        for clip in read_manifest(shared / "speech" / corpus / f"manifest-{part}.jsonl")
        if not held_out(clip.speaker, HELD_OUT_SHARE)
    ]
    speech = without_phrases(speech, words)
    talk = random.Random(1).sample(speech, TALK)
    others = [clip for clip in said if spoken_word(clip) not in words]
    noises: Any = ()
    quiet: list[Clip] = []
    if free is not None:
        sounds, music = (
            [c for c in read_manifest(free / kind / "manifest.jsonl") if c.extra.get("share") == "train"]
            for kind in ("noise", "music")
        )
        under = [*some(sounds, 200), *some(music, 60), *real_noises(shared)]
        noises = Recordings(under, keep=True)
        quiet = sounds + music + speech
    return Own(by_word, negatives=quiet, others=others, noises=noises, talk=talk)


def tell(name: str, started: float, text: str) -> None:
    print(f"{time.time() - started:6.0f} s  {name}: {text}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--six", action="store_true", help="one network for all six")
    parser.add_argument("--synthetic", action="store_true", help="nothing but what ships and what synthesisers say")
    parser.add_argument("--people", type=int, help="recordings of so many people alone, with no corpora")
    parser.add_argument("--each", type=int, default=2, help="recordings of each of these people")
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"))
    parser.add_argument("--free", type=Path, help="folder of benchmarks/free_sounds.py")
    parser.add_argument("--backbone", default="backbone")
    parser.add_argument("--bank", default="negatives")
    parser.add_argument("--pronouncer", default="pronounce-en")
    parser.add_argument("--work", type=Path, default=Path("runs/wakeword"))
    parser.add_argument("--takes", type=int, help="takes of each phrase alone, instead of the recipe's")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    ground, pronouncer = Ground(args.backbone, args.bank), voiceseq.load(args.pronouncer)
    amounts = Amounts() if args.takes is None else Amounts(args.takes, args.takes // 2, args.takes // 3)
    for words in [list(SIX)] if args.six else [[word] for word in args.words]:
        started = time.time()
        name = "six-words" if args.six else words[0].replace(" ", "-")
        learning = Learning(seed=args.seed)
        if args.six:
            head = HeadConfig(size=128)
            learning = Learning(9000, 1400, rounds=(1500, 1200, 1200), mined=500, head=head, seed=args.seed)
        own = own_material(words, args.shared, args.free, args)
        report = make(
            words,
            args.out / name,
            ground,
            pronouncer,
            Recipe(amounts=amounts, learning=learning),
            args.work,
            own,
            find_voices(),
            partial(tell, name, started),
        )
        print(json.dumps({name: report}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
