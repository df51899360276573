"""Put the bundles of ``text_more.py`` and ``letters.py`` into ``data/bundles``: the newest run of each, with its card.

    python benchmarks/ship_more.py NAME ...

In half precision. The card's figures are measured here, of what ships, on validation data.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import text_more
import torch

import voiceseq
from voiceseq.bundles import load_bundle, save_bundle

SHIPPED = Path(__file__).resolve().parent.parent / "data/bundles"
EXPERIMENTS = {"pronounce-en": "pronounce name=pronounce-en"}  # where it is not called as the bundle
DIGITS = "CC BY 4.0 (UCI, optical recognition of handwritten digits, as scikit-learn carries them)"


class Shipped(NamedTuple):
    """What a card says that the run cannot know."""

    about: str
    example: str
    licence: str
    measure: Callable[[Any, str], dict[str, Any]]
    not_for: str
    data: tuple[dict[str, str], ...] = ()


def translated(model: Any, name: str) -> dict[str, Any]:
    from voiceseq.datasets.corpora.parallel import read_parallel

    pairs = read_parallel(str(text_more.SHARED / "fra_eng" / "dev.tsv"), columns=(1, 0))
    found = text_more.scores(model.translate([source for source, _ in pairs], 5), [target for _, target in pairs])
    return {"pairs, beam 5:": len(pairs), **found}


def spoken(model: Any, name: str) -> dict[str, Any]:
    from letters import groups

    return groups(model)


def english(model: Any, name: str) -> dict[str, Any]:
    from pronounce import measure

    rows = {(row["words"], row["best of"]): row for row in measure(model)["rows"] if row["beam"] > 1}
    return {f"words wrong, %, {words}, best of {most}": row["word error %"] for (words, most), row in rows.items()}


def promoters(model: Any, name: str) -> dict[str, Any]:
    return {"leave one out": "RESULTS.md, section DNA; this network has learned from 105 of the 106"}


def vectors(model: Any, name: str) -> dict[str, Any]:
    return text_more.quality(model)


BUNDLES = {
    "fra-eng": Shipped(
        "French to English, everyday sentences: a transformer over subwords.",
        'voiceseq translate "Où est la gare ?"',
        "CC BY 2.0 (learned from Tatoeba's sentences)",
        translated,
        "long, formal or technical text: it has learned 50,000 short sentences.",
    ),
    "pronounce-ipa": Shipped(
        "Letters to sounds of 21 languages, in IPA: a bidirectional LSTM with CTC, n-grams of letters with sounds.",
        "voiceseq pronounce --language ita gatto",
        "CC BY-SA 3.0 (learned from Wiktionary, by way of WikiPron and SIGMORPHON 2021)",
        spoken,
        "other languages; those with 800 words of training err often.",
    ),
    "pronounce-en": Shipped(
        "Letters to sounds, English, CMU's 39 phones: GRUs with attention, and n-grams of letters with sounds.",
        'voiceseq pronounce "hey luna" "okay voiceseq" --n-best 3',
        "Apache-2.0; with them goes CMUdict's notice: Copyright (C) 1993-2015 Carnegie Mellon University, BSD-2-Clause",
        english,
        "other languages (`pronounce-ipa`); a word that must be said in one way wants `--dictionary FILE`.",
    ),
    "word-vectors": Shipped(
        "Word vectors: skip-gram with negative sampling, 100 numbers a word, small letters.",
        'voiceseq embed king "king queen" "man king woman"',
        "CC BY-SA 3.0 (made of Wikipedia's text, WikiText-2)",
        vectors,
        "words outside 2 million words of Wikipedia; it has learned that text's prejudices, too.",
    ),
    "digit-captions": Shipped(
        "What is on a picture of one to three digits, in words: a decoder that attends over the picture's columns.",
        "voiceseq caption picture.png",
        "Apache-2.0",
        text_more.captions_row,
        "photographs: it has seen digits of 8 x 8 pixels in a row.",
        ({"name": "scikit-learn digits", "licence": DIGITS},),
    ),
    "activity": Shipped(
        "What happens in a clip of a digit: left, right or turning. A GRU over frames.",
        "voiceseq caption --model activity clip.gif",
        "Apache-2.0",
        text_more.activity_row,
        "clips of anything else.",
        ({"name": "scikit-learn digits", "licence": DIGITS},),
    ),
    "co2": Shipped(
        "Carbon dioxide of the months to come at Mauna Loa, with intervals: a GRU with Gaussian outputs.",
        'voiceseq forecast "354 355 356 358 359 357 355 353 351 352 353 355 355 357" --steps 3',
        "Apache-2.0",
        text_more.series_row,
        "series of another kind: train on your own (data.series=FILE).",
    ),
    "sunspots": Shipped(
        "Sunspots of the years to come, with intervals: a GRU with Gaussian outputs.",
        'voiceseq forecast --model sunspots "5 11 16 23 36 58 29 20 10 8 3 0 0 2 11 27 47 63 60 39 28 26 22"',
        "Apache-2.0",
        text_more.series_row,
        "series of another kind: train on your own (data.series=FILE).",
    ),
    "chorales": Shipped(
        "Four-part chorales, quarter by quarter: a GRU with a chance for each of 88 keys.",
        "voiceseq generate --model chorales --length 64 chorale.mid",
        "Apache-2.0",
        text_more.chorales_row,
        "music that knows where it is going: it hears a chord at a time.",
    ),
    "promoters": Shipped(
        "Is a stretch of 57 bases of E. coli a promoter? A GRU both ways.",
        "voiceseq caption --model promoters tactagcaatacgcttgcgttcggtggttaagtatgtataatgcgcgggcttgtcgt",
        "Apache-2.0 (learned from UCI's promoter gene sequences; their licence, CC BY 4.0, is recalled, not verified)",
        promoters,
        "work in a laboratory: 105 examples.",
    ),
}


def card(name: str, one: Shipped, found: dict[str, Any], parameters: int, sources: list[dict[str, str]]) -> str:
    if "measure" in found:
        found = {found["measure"]: found["ours"], **{k: v for k, v in found.items() if k not in ("measure", "ours")}}
    shown = {key: f"{value:.4g}" if isinstance(value, float) else str(value) for key, value in found.items()}
    figures = "; ".join(f"{key} {value}" for key, value in shown.items())
    parts: dict[str, list[str]] = {}
    for source in sources:
        parts.setdefault(source["licence"], []).append(source["name"])
    data = "; ".join(f"{', '.join(dict.fromkeys(names))} ({licence})" for licence, names in parts.items())
    lines = [
        f"# {name}",
        "",
        f"{one.about} {parameters:,} parameters, stored as float16.",
        "",
        f"    {one.example}",
        "",
    ]
    lines += [f"- **Learned from**: {data}."]
    lines += [f"- **Measured** on validation data: {figures}. All figures: RESULTS.md."]
    made = EXPERIMENTS.get(name, name)
    lines += [f"- **Made by**: `voiceseq train experiment={made}`, `python benchmarks/ship_more.py {name}`."]
    lines += [f"- **Licence of the weights**: {one.licence}.", f"- **Not for**: {one.not_for}", ""]
    return "\n".join(lines)


def ship(name: str) -> None:
    one, path = BUNDLES[name], text_more.newest(name)
    if path is None or path.parent == SHIPPED:
        raise SystemExit(f"{name} has no finished run under runs/; voiceseq train experiment={name}")
    source = load_bundle(path)
    known = list(one.data or source.training["data"])
    shape: dict[str, Any] = {
        "kind": source.kind,
        "name": name,
        "config": source.config,
        "vocabularies": source.vocabularies,
        "decoding": source.decoding,
        "metrics": dict(source.metrics),
        "training": {**source.training, "data": known},
        "licence": one.licence,
        "dtype": torch.float16,
        "files": {file: source.read(file) for file in source.files if file.endswith(".arpa.gz")},
    }
    weights = {"inputs": source.weights["inputs"]} if source.kind == "embeddings" else source.weights
    half = save_bundle(Path("runs/ship") / name, **shape, weights=weights)
    found = one.measure(voiceseq.load(half), name)  # of what ships, not of what was trained
    parameters = sum(tensor.numel() for tensor in weights.values())
    told = card(name, one, found, parameters, known)
    save_bundle(SHIPPED / name, **shape, weights=weights, card=told)
    print(told, flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for wanted in sys.argv[1:]:
        ship(wanted)
