"""Letters to sounds: the errors of a pronouncer on words that were held out of its training, and on common ones.

    python benchmarks/pronounce.py [--model BUNDLE] [--json]

A word is right when it is said in any way that the dictionary knows; the phone error is counted against the nearest of
those ways. No dictionary is asked. Wants the shared data (VOICESEQ_SHARED, else ../shared).
Writes its section of RESULTS.md (only for the shipped bundle).
"""

import argparse
import json
import sys
from typing import Any

import torch
from results import table, write_section

import voiceseq
from voiceseq.core.distance import edit_distance
from voiceseq.tasks.pronounce import PronounceData
from voiceseq.text.pronounce import Pronunciation, read_dictionary
from voiceseq.training.config import compose_config
from voiceseq.training.run import build

LISTS = {"": "held out of training", " common": "the 1,000 most frequent, learned"}


def errors(words: list[str], guessed: list[list[Pronunciation]], known: dict[str, list[Pronunciation]]) -> dict:
    """Word and phone error in percent, of the best of the answers."""
    wrong = missed = phones = 0
    for word, ways in zip(words, guessed, strict=True):
        distance, length = min((edit_distance(right, way), len(right)) for way in ways for right in known[word])
        wrong, missed, phones = wrong + (distance > 0), missed + distance, phones + length
    return {"word error %": 100 * wrong / len(words), "phone error %": 100 * missed / phones}


def measure(model: Any) -> dict:
    torch.set_num_threads(1)
    config = compose_config(["experiment=pronounce"])
    data: PronounceData = build(config, "data")
    known = read_dictionary(config.data.dictionary)
    rows = []
    for part, beam, most in (("", 4, (1, 3)), ("", 1, (1,)), (" common", 4, (1,))):
        words = sorted({word for word, _ in data.validation[part]}, key=len)
        guessed = model.guesses(words, beam, max(most))
        for count in most:
            case = {"words": LISTS[part], "count": len(words), "beam": beam, "best of": count}
            rows.append({**case, **errors(words, [ways[:count] for ways in guessed], known)})
    return {"benchmark": "pronounce", "rows": rows}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="pronounce-en")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = measure(voiceseq.load(args.model))
    if args.model == "pronounce-en":
        notes = "CMUdict without stress. No common word is held out, so what is held out is rarer than a random part."
        write_section(
            "Pronunciation: the shipped bundle `pronounce-en`", "python benchmarks/pronounce.py", found["rows"], notes
        )
    print(json.dumps(found) if args.json else table(found["rows"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
