"""Typed phrases that nobody recorded: made with some synthesisers' voices, tried with those of another one.

    python benchmarks/phrases.py "hey luna" "okay voiceseq" ... [--free DIR] [--out runs/phrases]

Each phrase is made as ``voiceseq wakeword new`` makes it, trained and instant, but without Kokoro's 54 voices, and they
say it then, twice each. Their speech is clearer than people's: misses are lower bounds. Negatives are ``heard.py``'s.
"""

import argparse
import shlex
import sys
import time
from functools import partial
from pathlib import Path

import torch
from heard import alarms_note, measured, negatives, rows_of
from results import write_section
from words import tell

import voiceseq
from voiceseq.datasets.manifest import Clip
from voiceseq.datasets.voices import find_voices, plan
from voiceseq.wakeword.ground import Ground
from voiceseq.wakeword.instant import make_instant
from voiceseq.wakeword.making import Recipe, make
from voiceseq.wakeword.speaking import say_all

TRIED = "kokoro"
TAKES = 108  # two of each voice
SEED = 77
CONDITIONS = ["clean", "10db", "running", "telephone"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phrases", nargs="+")
    parser.add_argument("--free", type=Path, help="folder of benchmarks/free_sounds.py")
    parser.add_argument("--out", type=Path, default=Path("runs/phrases"))
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    voices = find_voices()
    others, tried = ([v for v in voices if (v.engine == TRIED) == kept] for kept in (False, True))
    ground, pronouncer, recipe = Ground("backbone", "negatives"), voiceseq.load("pronounce-en"), Recipe()
    said: list[Clip] = []
    made: dict[str, list[str]] = {"trained": [], "instant": []}
    for phrase in args.phrases:
        name, report = phrase.replace(" ", "-"), partial(tell, phrase, time.time())
        trained, instant = args.out / "trained" / name, args.out / "instant" / name
        said += say_all(plan(phrase, TAKES, SEED, tried), args.out / "said" / name)
        if not trained.exists():
            make([phrase], trained, ground, pronouncer, recipe, args.out / "work", None, others, report)
        make_instant(phrase, instant, ground, pronouncer, 1.0, report)
        made["trained"].append(str(trained))
        made["instant"].append(str(instant))
    rows, quiet = [], negatives(args.shared, args.free, 1.5)
    for how, bundles in made.items():
        found = measured(bundles, said, quiet, CONDITIONS, args.shared)
        rows += [{"made": how} | row for row in rows_of(found)]
        for row in rows[-len(CONDITIONS) * len(bundles) :]:
            print("  ".join(str(value) for value in row.values()), flush=True)
    command = f"python benchmarks/phrases.py {shlex.join(args.phrases)}" + (" --free DIR" if args.free else "")
    notes = f"Said by {TRIED}'s voices; made without them. {alarms_note(found)}"
    write_section("Typed phrases that nobody recorded", command, rows, notes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
