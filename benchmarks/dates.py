"""The shipped date reader: wholly right answers, in formats of training and in formats held out of it.

    python benchmarks/dates.py [--model BUNDLE] [--count 5000]

Writes its section of RESULTS.md (only for the shipped bundle). The strings are new ones: nothing of their seed was
trained or validated on. The interval is Wilson's, at 95 %.
"""

import argparse
import math
import sys

from results import table, write_section

import voiceseq
from voiceseq.datasets.dates import date_pair
from voiceseq.inference.dates import exists, read_dates
from voiceseq.inference.transduce import Transducer

SEED, TARGET = 77_000_000, 99.5


def wilson(right: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """The interval of a share, in percent."""
    share, spread = right / count, z * math.sqrt(right / count * (1 - right / count) / count + (z / count / 2) ** 2)
    middle, scale = share + z * z / (2 * count), 1 + z * z / count
    return 100 * (middle - spread) / scale, 100 * (middle + spread) / scale


def measured(model: Transducer, held_out: bool, count: int, beam: int) -> dict:
    pairs = [date_pair(SEED, number, held_out) for number in range(count)]
    read: list[str | None] = []
    for part in (pairs[i : i + 100] for i in range(0, count, 100)):
        read += [reading.date for reading in read_dates(model, [text for text, _ in part], beam)]
    # among the formats of training are texts that are no date, or no date of any calendar: nothing is the right answer
    wanted = [meant if exists(meant) else None for _, meant in pairs]
    wrong = [(text, want, date) for (text, _), want, date in zip(pairs, wanted, read, strict=True) if date != want]
    for row in wrong[:40]:
        print("  ", *map(repr, row), file=sys.stderr)
    low, high = wilson(count - len(wrong), count)
    share = 100 * (1 - len(wrong) / count)
    target = TARGET if held_out else None
    return {
        "formats": "held out of training" if held_out else "of training",
        "beam": beam,
        "strings": count,
        "no dates among them": wanted.count(None),
        "exact %": share,
        "95 % interval": f"{low:.2f} to {high:.2f}",
        "target": target,
        "met": target is None or share >= target,
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="dates")
    parser.add_argument("--count", type=int, default=5000)
    args = parser.parse_args()
    model = voiceseq.load(args.model)
    rows = [measured(model, held_out, args.count, beam) for held_out, beam in ((True, 4), (True, 1), (False, 4))]
    if args.model == "dates":
        notes = "What is no date, or a day that no calendar has, is right when it is refused."
        write_section("Dates: the shipped bundle `dates`", "python benchmarks/dates.py", rows, notes)
    print(table(rows))
    return 0 if all(row["met"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
