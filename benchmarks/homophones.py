"""Which of two words that sound alike: ``python benchmarks/homophones.py [BUNDLE ...]`` writes RESULTS.md.

Each line below holds a right sentence and the word that a listener might write instead, ``right=wrong``. Written before
the models were trained, and nothing was chosen by it. A pair is right where the right sentence has the larger
log-probability.
"""

import re
import sys

from results import table, write_section

import voiceseq

PAIRS = """
the apple and pear=pair salad
i want to=two go home
they lost their=there keys
the knight=night drew his sword
a piece=peace of cake
we bought flour=flower and sugar
she wore a blue=blew dress
he read the whole=hole book
see you next week=weak
it is too=to late
the sun=son and the moon
he can hear=here you
i know=no the answer
buy=by some bread and meat
the king sat on his throne=thrown
the plane=plain landed at the airport
turn right=write at the corner
the wind blew=blue all night
the sea=see was calm
he ate eight=ate apples
the weather=whether was bad
a pair=pear of shoes
he won=one the race
we waited for an hour=our
the bear=bare lives in the forest
she has long hair=hare
the mail=male came in the morning
he broke=brake his arm
a tale=tail of two cities
the road=rode to the village
they sail=sale across the ocean
a loaf of bread=bred
the deer=dear ran into the woods
he was the sole=soul survivor
the prince and the heir=air to the throne
the war and the peace=piece treaty
she sent=cent him a letter
the cell=sell of a plant
a bottle of red=read wine
the brakes=breaks of the car
"""


def sentences() -> list[tuple[str, str]]:
    """(right, wrong) each."""
    lines = PAIRS.strip().splitlines()
    return [tuple(re.sub(r"(\S+)=(\S+)", side, line) for side in (r"\1", r"\2")) for line in lines]  # type: ignore[misc]


def measure(name: str) -> dict:
    model, pairs = voiceseq.load(name), sentences()
    right = []
    for pair in pairs:
        good, bad = model.score(pair)
        right.append(good.log_prob > bad.log_prob)
    missed = [good for (good, _), one in zip(pairs, right, strict=True) if not one]
    return {
        "model": name,
        "right": sum(right),
        "of": len(pairs),
        "pear, not pair": right[0],
        "missed": "; ".join(missed),
    }


def main() -> int:
    names = sys.argv[1:] or ["wikitext2"]
    rows = [measure(name) for name in names]
    note = "By chance half of them are right."
    write_section("Homophones", " ".join(["python benchmarks/homophones.py", *sys.argv[1:]]), rows, note)
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
