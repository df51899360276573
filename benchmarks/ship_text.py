"""What ships of the text tasks, made of finished runs: ``python benchmarks/ship_text.py NAME ... --out DIR``.

The best of a bundle's rows goes out, under the licence of all that it has learned from. SST-2 and IMDb state no
licence, so nothing that has learned from them ships.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from text_tasks import ROWS, finished, measured

from voiceseq.bundles import load_bundle, save_bundle
from voiceseq.training.checkpoints import load_checkpoint

SHARE_ALIKE, ATTRIBUTION = "CC BY-SA 4.0", "CC BY 4.0"
BITS = {torch.float16: "float16", torch.int8: "8 bits a weight"}


@dataclass(frozen=True)
class Shipped:
    """``rows``: which runs of ``runs/text`` it may be, each with its licence."""

    rows: dict[str, str]
    idea: str
    example: str
    good_for: str
    figure: str
    data: tuple[str, ...]
    dtype: torch.dtype = torch.float16


SHIPPED = {
    "ewt-pos": Shipped(
        dict.fromkeys(("ewt-pos", "ewt-longer", "ewt-elmo", "ewt-elmo-longer"), SHARE_ALIKE),
        "Parts of speech of English words: a bidirectional LSTM over words and their letters, with a CRF on top",
        'voiceseq tag --model ewt-pos "Time flies like an arrow."',
        "English of the web: letters, reviews, questions, news. Tags are the 17 of Universal Dependencies.",
        "{dev:.2f} % of the words of EWT's dev part right (words as its annotators cut them)",
        (
            "UD English EWT (Silveira et al. 2014), train",
            "GloVe 6B, 100 numbers a word (Pennington et al. 2014), PDDL 1.0",
        ),
        torch.int8,
    ),
    "wnut17": Shipped(
        {"wnut17": ATTRIBUTION, "wnut17-ewt": SHARE_ALIKE, "wnut17-elmo": SHARE_ALIKE},
        "Names in texts (person, location, corporation, product, creative-work, group): a bidirectional LSTM over "
        "words and their letters, with a CRF on top",
        'voiceseq tag "Yesterday, Harry Potter met Hermione Granger."',
        "posts and other loose writing. It misses about half of the rare names, as all models of this corpus do.",
        "F1 {dev:.2f} of exact spans on WNUT-17's dev part",
        ("WNUT-17 (Derczynski et al. 2017), train", "GloVe 6B, 100 numbers a word (Pennington et al. 2014), PDDL 1.0"),
        torch.int8,
    ),
    "masked": Shipped(
        {"masked": SHARE_ALIKE},
        "Which word stands at [MASK]: a small transformer trained BERT's way, masked words and sentence pairs",
        'voiceseq fill "let\'s make [MASK] chicken"',
        "seeing what a masked model is, and as a start for taggers and classifiers (docs/masked.md). Small letters.",
        "{dev:.2f} % of the masked words of WikiText-2's validation text right at the first guess (the chosen 15 %)",
        ("WikiText-2 (Merity et al. 2016; Wikipedia), train", "GloVe 6B (Pennington et al. 2014), PDDL 1.0"),
    ),
    "wikitext2": Shipped(
        {"wikitext2": SHARE_ALIKE},
        "A language model of words: an LSTM layer, tied vectors",
        'voiceseq generate "The city" --model wikitext2 --length 40',
        "comparing perplexities (`python benchmarks/wikitext2.py`) and writing like Wikipedia, without sense.",
        "perplexity {dev:.1f} on the first 20,000 words of the validation text; the test part is in RESULTS.md",
        ("WikiText-2 (Merity et al. 2016; Wikipedia), train",),
        torch.int8,
    ),
    "english-words": Shipped(
        {"english-words": SHARE_ALIKE},
        "A small language model of English words in small letters: one LSTM layer, tied vectors",
        'voiceseq score "the apple and pear salad" "the apple and pair salad"',
        "telling which of two short texts is likelier. Of four million words it knows phrases, not the world.",
        "perplexity {dev:.1f} on 20,000 words that were held out; words that sound alike are in RESULTS.md",
        (
            "glosses and examples of WordNet 3.1 (Copyright 2011 by Princeton University, WordNet License)",
            "WikiText-2 (Wikipedia), CC BY-SA",
            "UD English EWT, CC BY-SA 4.0",
            "English sentences of Tatoeba, CC BY 2.0 FR",
        ),
        torch.int8,
    ),
}


def figure(row: str) -> float:
    """What the best epoch got, more is better."""
    if row in ROWS:
        found = measured(row)
        assert found is not None
        return float(found["dev"])
    return -loss(row)


def loss(row: str) -> float:
    return float(load_bundle(bundle_of(row)).metrics["val/loss"])


def bundle_of(row: str) -> Path:
    path = finished(row)
    if path is None:
        raise SystemExit(f"{row} is not trained")
    return path.parent / "bundle"


def learned_before(row: str) -> list[dict[str, str]]:
    """What the networks learned from with which a row began, and those before them."""
    data: list[dict[str, str]] = []
    while row in ROWS and (start := ROWS[row].start):
        data += [one for one in load_bundle(bundle_of(start)).training["data"] if one not in data]
        row = start
    return data


def licences(row: str) -> str:
    return ", ".join(dict.fromkeys(one["licence"] for one in learned_before(row)))


def card(name: str, shipped: Shipped, row: str, bundle: Any) -> str:
    """The README of a bundle: what it is, what it learned from, what it got, by which commands."""
    dev = figure(row) if row in ROWS else float(torch.tensor(loss(row)).exp())
    numbers = sum(tensor.numel() for tensor in {id(t): t for t in bundle.weights.values()}.values())
    start = ROWS[row].start if row in ROWS else None
    command = f"python benchmarks/text_tasks.py --train {row}" if row in ROWS else f"voiceseq train experiment={row}"
    lines = [
        f"# {name}",
        "",
        f"{shipped.idea}; {numbers:,} numbers, stored as {BITS[shipped.dtype]}.",
        "",
        f"    {shipped.example}",
        "",
        "- **Learned from**: "
        + "; ".join(shipped.data)
        + (f"; begun with the network of `{start}`, which learned from {licences(row)}" if start else "")
        + ".",
        f"- **Measured**: {shipped.figure.format(dev=dev)}.",
        f"- **Made by**: `{command}`, then `python benchmarks/ship_text.py {name}`.",
        f"- **Licence of the weights**: {shipped.rows[row]}, with credit to the makers of the data.",
        f"- **Good for**: {shipped.good_for}",
        "",
    ]
    return "\n".join(lines)


def last_weights(row: str) -> dict[str, torch.Tensor]:
    """Those of the last step; of a run whose average still remembers its beginning they are the better ones."""
    states = load_checkpoint(bundle_of(row).parent / "last.ckpt")["current_model_state"]
    return {key.removeprefix("network."): value for key, value in states.items() if key.startswith("network.")}


def ship(name: str, out: Path, last: bool = False) -> None:
    shipped = SHIPPED[name]
    trained = [row for row in shipped.rows if finished(row)]
    if not trained:
        raise SystemExit(f"{name}: none of {', '.join(shipped.rows)} is trained")
    best = max(trained, key=figure)
    bundle = load_bundle(bundle_of(best))
    data = list(bundle.training["data"])
    data += [one for one in learned_before(best) if one not in data]
    save_bundle(
        out / name,
        kind=bundle.kind,
        name=name,
        config=bundle.config,
        weights=last_weights(best) if last else bundle.weights,
        vocabularies=bundle.vocabularies,
        decoding=bundle.decoding,
        metrics=bundle.metrics,
        training=dict(bundle.training) | {"data": data},
        licence=shipped.rows[best],
        card=card(name, shipped, best, bundle),
        dtype=shipped.dtype,
    )
    size = sum(entry.size for entry in load_bundle(out / name).files.values())
    print(f"{out / name}: {best}, {size / 1e6:.1f} MB, {shipped.rows[best]}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", choices=SHIPPED, metavar="NAME", help=", ".join(SHIPPED))
    parser.add_argument("--last", action="store_true", help="the last weights, not their average")
    parser.add_argument("--out", type=Path, default=Path("data/bundles"))
    args = parser.parse_args()
    for name in args.names:
        ship(name, args.out, args.last)
    return 0


if __name__ == "__main__":
    sys.exit(main())
