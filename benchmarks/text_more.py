"""Translation, word embeddings, and the small tasks from vector to sequence and back.

    python benchmarks/text_more.py [QUESTION ...]        (--help names them)

``vectors`` is the evaluator on given GloVe vectors; ``skipgram`` trains ours and gensim's in one run, an epoch in turn,
and with --ship leaves a bundle; ``debias`` shows bias before and after. ``translate``, ``beams`` and ``small`` measure
the newest runs of their experiments under runs/ (train them first) on validation data. Each writes its section of
RESULTS.md.
"""

import argparse
import dataclasses
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from results import table, write_section

import voiceseq

SHARED = Path(os.environ.get("VOICESEQ_SHARED", "../shared")) / "data" / "text"
EMBEDDINGS = SHARED / "embeddings"
Rows = list[dict[str, Any]]


def newest(name: str) -> Path | None:
    """The bundle of the newest finished run of an experiment, else what ships under its name."""
    runs = sorted(path for path in Path("runs").glob(f"{name}/*/bundle") if path.is_dir())
    shipped = Path("data/bundles") / name
    return runs[-1] if runs else shipped if shipped.is_dir() else None


# --- word vectors -----------------------------------------------------------------------------------------------------


def quality(vectors: Any) -> dict[str, Any]:
    from voiceseq.evaluation.embeddings import agreement, answer_analogies, read_questions, read_scored_pairs

    share = answer_analogies(vectors, read_questions(EMBEDDINGS / "questions-words.txt.gz")).total()
    words, lex = (agreement(vectors, read_scored_pairs(EMBEDDINGS / f"{n}.tsv")) for n in ("wordsim353", "simlex999"))
    return {
        "WordSim-353": f"{words.correlation:.4f}",
        "pairs": words.pairs,
        "SimLex-999": f"{lex.correlation:.4f}",
        "analogies %": f"{share.percent:.2f}",
        "of": share.answered,
    }


def measure_vectors(args: argparse.Namespace) -> Rows:
    from voiceseq.text.vectors import read_vectors

    found = quality(read_vectors(EMBEDDINGS / "glove6b_100d_20k.txt.gz"))
    wanted = "67.53 of 12363, .5653 of 324"
    met = (found["analogies %"], found["of"], found["WordSim-353"], found["pairs"]) == ("67.53", 12363, "0.5653", 324)
    rows = [{"vectors": "GloVe 6B, 100 d, 20,000 words"} | found | {"target": wanted, "met": met}]
    if bundle := newest("word-vectors"):
        own = quality(voiceseq.load(bundle))
        met = float(own["WordSim-353"]) >= 0.51
        rows.append({"vectors": "word-vectors, ours"} | own | {"target": "WordSim .51 (gensim .514)", "met": met})
    write_section("Word vectors: the evaluator", "python benchmarks/text_more.py vectors", rows)
    return rows


def measure_skipgram(args: argparse.Namespace) -> Rows:
    """Ours and gensim's, the same text, settings and number of epochs, an epoch in turn; CPU seconds of the process."""
    from gensim.models import Word2Vec

    from voiceseq.models.embeddings import EmbeddingConfig, EmbeddingNetwork
    from voiceseq.tasks.embeddings import EmbeddingData
    from voiceseq.text.vectors import WordVectors

    torch.set_num_threads(1)
    epochs, parts, rate = args.epochs, 100, 0.025
    data = EmbeddingData(str(SHARED / "wikitext2" / "train.txt.gz"), steps_per_epoch=parts)
    names = data.vocabulary.symbols
    sentences = [
        [names[i] for i in data.tokens[a:b]] for a, b in zip(data.starts[:-1], data.starts[1:], strict=True) if b > a
    ]
    theirs = Word2Vec(
        vector_size=100, window=5, min_count=5, sg=1, negative=5, sample=1e-3, workers=1, seed=1, max_vocab_size=None
    )
    theirs.build_vocab(sentences)
    ours = EmbeddingNetwork(EmbeddingConfig(words=len(names)), data.counts)
    ours.learn(data.make(0)[1], 0.0, 1)  # compile the loop
    seconds = {"ours": 0.0, "gensim": 0.0}
    for epoch in range(epochs):
        clock = time.process_time()
        for part in range(parts):
            step = epoch * parts + part
            ours.learn(data.make(step)[1], max(1e-4, rate * (1 - step / (epochs * parts))), step)
        seconds["ours"] += time.process_time() - clock
        clock = time.process_time()
        high, low = (max(1e-4, rate * (1 - at / epochs)) for at in (epoch, epoch + 1))
        theirs.train(sentences, total_examples=len(sentences), epochs=1, start_alpha=high, end_alpha=low)
        seconds["gensim"] += time.process_time() - clock
        print(f"epoch {epoch + 1} of {epochs}", seconds, file=sys.stderr, flush=True)
    tables = {
        "ours": WordVectors(names, ours.vectors().numpy()),
        "gensim": WordVectors(tuple(theirs.wv.index_to_key), theirs.wv.vectors),
    }
    rows: Rows = [
        {"skip-gram, WikiText-2, small letters": name, "epochs": epochs} | quality(vectors) | {"CPU s": seconds[name]}
        for name, vectors in tables.items()
    ]
    ratio = seconds["ours"] / seconds["gensim"]
    rows[0] |= {"time to gensim's": ratio}
    if epochs >= 15:
        met = ratio <= 2 and float(rows[0]["WordSim-353"]) >= 0.51
        rows[0] |= {"target": "WordSim .51, ratio 2", "met": met}
    if args.ship:
        ship_vectors(ours, data, rows[0])
    command = f"python benchmarks/text_more.py skipgram --epochs {epochs}"
    write_section(f"Word vectors: skip-gram beside gensim, {epochs} epochs", command, rows)
    return rows


METHODS = {
    "word-vectors": "skip-gram, negative sampling",
    "word-vectors-hierarchical": "skip-gram, hierarchical softmax",
    "word-vectors-cbow": "CBOW, negative sampling",
    "word-vectors-glove": "GloVe",
}
# every word of the vocabulary is asked for every word of the text, so this one is learned for fewer words
FULL_SOFTMAX = {
    "word-vectors-softmax": "skip-gram, full softmax, one pass",
    "word-vectors-fifty": "skip-gram, negative sampling, one pass",
    "word-vectors-fifty-15": "skip-gram, negative sampling, 15 passes",
}


def measure_methods(args: argparse.Namespace) -> Rows:
    """The ways to learn vectors that have been trained (docs/embeddings.md has the commands), on the same text."""
    rows = trained("WikiText-2, small letters", METHODS)
    write_section("Word vectors: ways to learn them", "python benchmarks/text_more.py methods", rows)
    return rows


def measure_softmax(args: argparse.Namespace) -> Rows:
    rows = trained("WikiText-2, small letters, words seen 50 times and more", FULL_SOFTMAX)
    write_section("Word vectors: full softmax", "python benchmarks/text_more.py softmax", rows)
    return rows


def trained(heading: str, methods: dict[str, str]) -> Rows:
    found = [(what, newest(name)) for name, what in methods.items()]
    return [{heading: what} | quality(voiceseq.load(bundle)) for what, bundle in found if bundle]


def ship_vectors(network: Any, data: Any, row: dict[str, Any]) -> None:
    """The bundle of what has just been learned, in half precision; only what is used of it."""
    from voiceseq.bundles import save_bundle

    metrics = {"WordSim-353": float(row["WordSim-353"]), "SimLex-999": float(row["SimLex-999"])}
    save_bundle(
        "runs/ship/word-vectors",
        kind="embeddings",
        name="word-vectors",
        config=dataclasses.asdict(network.config),
        weights={"inputs": network.vectors()},
        vocabularies={"words": data.vocabulary.to_json()},
        metrics=metrics,
        training={"data": data.sources},
        licence="CC BY-SA 3.0 (made of Wikipedia's text, WikiText-2)",
        dtype=torch.float16,
    )


def measure_debias(args: argparse.Namespace) -> Rows:
    from voiceseq.evaluation.embeddings import bias_along
    from voiceseq.inference.embeddings import bias_direction, debias
    from voiceseq.text.vectors import read_vectors

    vectors = read_vectors(EMBEDDINGS / "glove6b_100d_20k.txt.gz")
    lists = {
        name: json.loads((EMBEDDINGS / f"bias_{name}.json").read_text())
        for name in ("definitional_pairs", "equalize_pairs", "gender_specific_full", "professions")
    }
    pairs = [[word.lower() for word in pair] for pair in lists["definitional_pairs"]]
    equal = [[word.lower() for word in pair] for pair in lists["equalize_pairs"]]
    specific = {word.lower() for word in lists["gender_specific_full"]} | {word for pair in equal for word in pair}
    jobs = [row[0].lower() for row in lists["professions"] if row[0].lower() not in specific]
    direction = bias_direction(vectors, pairs)
    rows = []
    for name, table_ in (("before", vectors), ("after", debias(vectors, direction, specific, equal))):
        gaps = [abs(table_.similarity(job, "he") - table_.similarity(job, "she")) for job in jobs if job in table_]
        bias = {"professions: mean size of cosine with the direction": bias_along(table_, direction, jobs)}
        gap = {"professions: nearer to he or she by": float(np.mean(gaps))}
        rows.append({"debiasing, GloVe": name} | bias | gap | quality(table_))
    write_section("Word vectors: debiasing", "python benchmarks/text_more.py debias", rows)
    return rows


# --- translation ------------------------------------------------------------------------------------------------------


def scores(written: list[str], wanted: list[str]) -> dict[str, float]:
    import sacrebleu

    lowered = [[text.lower() for text in side] for side in (written, wanted)]
    return {
        "BLEU cased": sacrebleu.corpus_bleu(written, [wanted]).score,
        "BLEU uncased": sacrebleu.corpus_bleu(lowered[0], [lowered[1]]).score,
        "chrF": sacrebleu.corpus_chrf(written, [wanted]).score,
    }


BEST = ("multi30k-de-en", "fra-eng")
DIRECTIONS = ("multi30k-en-de", "multi30k-en-fr")


def translators(names: Sequence[str]) -> dict[str, tuple[Any, list[tuple[str, str]]]]:
    """Those of these translation experiments that have been trained, with the pairs of their validation part."""
    from voiceseq.datasets.corpora.parallel import read_parallel

    def photographs(source: str, target: str) -> list[str]:
        return [str(SHARED / "multi30k" / f"val.{language}") for language in (source, target)]

    sets = dict.fromkeys(("multi30k-de-en", "multi30k-rnn", "multi30k-rnn-plain"), photographs("de", "en"))
    sets["fra-eng"] = [str(SHARED / "fra_eng" / "dev.tsv")]
    sets |= {name: photographs(*name.split("-")[1:]) for name in DIRECTIONS}
    found = {}
    for name in names:
        if (bundle := newest(name)) is None:
            print(f"{name} has not been trained; leaving it out", file=sys.stderr)
        else:
            found[name] = voiceseq.load(bundle), read_parallel(*sets[name], columns=(1, 0))
    return found


def measure_translate(args: argparse.Namespace) -> Rows:
    """Beam 5 on all of the validation part: who is at fault, and BLEU by length."""
    import sacrebleu

    rows: Rows = []
    curves: dict[str, list[tuple[float, float]]] = {}
    for name, (model, pairs) in translators(BEST).items():
        pairs = pairs[: args.count]
        clock = time.process_time()
        written = model.translate([source for source, _ in pairs], 5)
        spent = time.process_time() - clock
        found = scores(written, [target for _, target in pairs])
        goal = {"target": 37.0, "met": found["BLEU cased"] >= 37} if name == "multi30k-de-en" else {}
        faults = at_fault(model, pairs, written)
        rows.append({"bundle": name, "beam": 5, "pairs": len(pairs)} | found | {"CPU s": spent} | faults | goal)
        curves[name] = by_length(pairs, written)
        print(rows[-1], curves[name], file=sys.stderr, flush=True)
    if rows:
        metric = sacrebleu.BLEU()
        metric.corpus_score(["a"], [["a"]])
        notes = (
            f"sacrebleu, signature of the cased BLEU: {metric.get_signature()}. Validation parts. `search`, `model`: "
        )
        notes += "who is at fault where the output is not the reference. BLEU by the words of the source: "
        notes += "; ".join(f"{n}: " + ", ".join(f"{x:.0f}: {y:.1f}" for x, y in points) for n, points in curves.items())
        write_section("Translation", "python benchmarks/text_more.py translate", rows, notes + ".")
    return rows


def measure_directions(args: argparse.Namespace) -> Rows:
    """Multi30k into German and into French, beam 5."""
    rows: Rows = []
    for name, (model, pairs) in translators(DIRECTIONS).items():
        written = model.translate([source for source, _ in pairs], 5)
        rows.append({"bundle": name, "pairs": len(pairs)} | scores(written, [target for _, target in pairs]))
    write_section(
        "Translation: other directions", "python benchmarks/text_more.py directions", rows, "Validation part."
    )
    return rows


def measure_attention(args: argparse.Namespace) -> Rows:
    """Two recurrent networks that differ in attention alone: BLEU by the words of the source."""
    from voiceseq.evaluation.plots import plot_curves

    curves, rows = {}, []
    cases = {"multi30k-rnn-plain": "GRU without attention", "multi30k-rnn": "GRU with attention"}
    for name, (model, pairs) in translators(list(cases)).items():
        what = cases[name]
        written = model.translate([source for source, _ in pairs], 5)
        curves[what] = by_length(pairs, written)
        lengths = {f"BLEU at {words:.0f} words": bleu for words, bleu in curves[what]}
        rows.append(
            {"Multi30k de-en": what, "pairs": len(pairs)} | scores(written, [one for _, one in pairs]) | lengths
        )
    plot_curves(curves, "words of the source", "BLEU", "docs/pictures/bleu-by-length.png")
    command = "python benchmarks/text_more.py attention"
    write_section("Translation: with and without attention", command, rows, "Beam 5, cased; fifths of equal size.")
    return rows


def measure_beams(args: argparse.Namespace) -> Rows:
    """BLEU and time against the beam, on as many sentences as a beam of 100 has time for."""
    rows: Rows = []
    for name, (model, pairs) in translators(BEST).items():
        some = pairs[:: max(1, len(pairs) // args.few)][: args.few]
        for beam in [int(one) for one in args.beams.split(",")]:
            clock = time.process_time()
            written = model.translate([source for source, _ in some], beam)
            spent = time.process_time() - clock
            found = scores(written, [target for _, target in some])
            rows.append({"bundle": name, "beam": beam, "pairs": len(some)} | found | {"CPU s": spent})
            print(rows[-1], file=sys.stderr, flush=True)
    if rows:
        command = f"python benchmarks/text_more.py beams --beams {args.beams} --few {args.few}"
        write_section("Translation: the width of the beam", command, rows, "A part of the validation sentences.")
    return rows


def by_length(pairs: list[tuple[str, str]], written: list[str]) -> list[tuple[float, float]]:
    """BLEU of sources of like length, five groups of equal size."""
    order = np.argsort([len(source.split()) for source, _ in pairs], kind="stable")
    points = []
    for part in np.array_split(order, 5):
        bleu = scores([written[i] for i in part], [pairs[i][1] for i in part])["BLEU cased"]
        points.append((float(np.mean([len(pairs[i][0].split()) for i in part])), bleu))
    return points


def at_fault(model: Any, pairs: list[tuple[str, str]], written: list[str]) -> dict[str, float]:
    """Of the outputs that are not the reference, in percent."""
    from voiceseq.evaluation.answers import searched

    few = range(0, len(pairs), max(1, len(pairs) // 200))
    found = searched([pairs[i] for i in few], [written[i] for i in few], model.scores)
    wrong = max(1, sum(one.fault is not None for one in found))
    return {f"{name} %": 100 * sum(one.fault == name for one in found) / wrong for name in ("search", "model")}


# --- small tasks ------------------------------------------------------------------------------------------------------


def measure_small(args: argparse.Namespace) -> Rows:
    rows: Rows = []
    for name, measure in (
        ("names", names_row),
        ("digit-captions", captions_row),
        ("activity", activity_row),
        ("chorales", chorales_row),
        ("sunspots", series_row),
        ("co2", series_row),
    ):
        if (bundle := newest(name)) is None:
            print(f"{name} has not been trained; leaving it out", file=sys.stderr)
            continue
        rows.append({"task": name} | measure(voiceseq.load(bundle), name))
        print(rows[-1], file=sys.stderr, flush=True)
    if rows:
        notes = "On validation data. Series: rolling forecasts over the last fifth, against the same season last time."
        notes += " The intervals' rule was changed once after a look at this same fifth (docs/experiments.md), so their"
        notes += " cover is flattered."
        write_section("Vector to sequence and back", "python benchmarks/text_more.py small", rows, notes)
    return rows


def names_row(model: Any, name: str) -> dict[str, Any]:
    from voiceseq.tasks.names import read_names

    rows = read_names(str(SHARED / "names" / "gender_dev.tsv"))
    found = model.kinds_of([one for one, _ in rows])
    right = [
        (guess["female"] > guess["male"]) == (kind == "female") for guess, (_, kind) in zip(found, rows, strict=True)
    ]
    return {"measure": "gender by Bayes, % right (logistic regression: 87.45)", "ours": 100 * float(np.mean(right))}


def captions_row(model: Any, name: str) -> dict[str, Any]:
    from voiceseq.datasets.digits import captioned

    made = [captioned(99, number, held_out=True) for number in range(500)]
    right = [one == text for one, (_, text) in zip(model.caption([image for image, _ in made]), made, strict=True)]
    return {"measure": "captions wholly right, %", "ours": 100 * float(np.mean(right))}


def activity_row(model: Any, name: str) -> dict[str, Any]:
    from voiceseq.datasets.digits import MOVES, clip

    made = [clip(99, number, held_out=True) for number in range(500)]
    found = model.classify([frames for frames, _ in made])
    return {
        "measure": "clips right, %",
        "ours": 100 * float(np.mean([one.label == MOVES[move] for one, (_, move) in zip(found, made, strict=True)])),
    }


def chorales_row(model: Any, name: str) -> dict[str, Any]:
    from voiceseq.datasets.corpora.chorales import read_chorales

    rolls = read_chorales(str(SHARED / "jsb" / "jsb_quarter_valid.json"))
    total = sum(model.loss(roll) * len(roll) for roll in rolls) / sum(map(len, rolls))
    return {"measure": "nats a step, validation (GRU, published, test: 8.54)", "ours": total}


def series_row(model: Any, name: str) -> dict[str, Any]:
    from voiceseq.datasets.corpora.series import read_series

    values, horizon, season = read_series(name), model.settings.horizon, model.settings.season
    inside: dict[float, list[Any]] = {0.5: [], 0.8: [], 0.95: []}
    own, naive = [], []
    for end in range(int(0.8 * len(values)), len(values) - horizon + 1):
        truth = values[end : end + horizon]
        for level in inside:
            found = model.forecast(values[:end], level=level)
            inside[level].append((found.low <= truth) & (truth <= found.high))
        own.append(np.abs(found.mean - truth))
        naive.append(np.abs(np.resize(values[end - season : end], horizon) - truth))
    covered = ", ".join(f"{100 * level:.0f}: {100 * np.mean(hits):.1f}" for level, hits in inside.items())
    return {
        "measure": f"mean error, {horizon} steps",
        "ours": float(np.mean(own)),
        "season before": float(np.mean(naive)),
        "intervals cover %": covered,
    }


def measure_promoters(args: argparse.Namespace) -> Rows:
    from voiceseq.models.frames import FrameConfig
    from voiceseq.tasks.promoters import leave_one_out, read_promoters

    torch.set_num_threads(1)
    rows = read_promoters(str(SHARED / "dna" / "promoters.tsv"))
    config = FrameConfig(features=228, outputs=2, size=8, dropout=0.3, bidirectional=True, pool="mean")
    right = leave_one_out(rows, config, steps=30, rate=0.02)
    found: Rows = [
        {
            "DNA promoters, leave one out": "GRU both ways, mean, each base at its place",
            "errors of 106": right.count(False),
        },
        {"DNA promoters, leave one out": "naive Bayes (measured elsewhere)", "errors of 106": 7},
    ]
    write_section("DNA: promoters", "python benchmarks/text_more.py promoters", found)
    return found


QUESTIONS = {
    "vectors": measure_vectors,
    "skipgram": measure_skipgram,
    "methods": measure_methods,
    "softmax": measure_softmax,
    "debias": measure_debias,
    "translate": measure_translate,
    "directions": measure_directions,
    "attention": measure_attention,
    "beams": measure_beams,
    "small": measure_small,
    "promoters": measure_promoters,
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("questions", nargs="*", help=", ".join(QUESTIONS))
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--ship", action="store_true", help="leave runs/ship/word-vectors")
    parser.add_argument("--beams", default="1,3,10,100")
    parser.add_argument("--few", type=int, default=100, help="sentences of the question beams")
    parser.add_argument("--count", type=int, default=2000)
    args = parser.parse_args()
    met = True
    for name in args.questions or QUESTIONS:
        rows = QUESTIONS[name](args)
        print(table(rows), flush=True)
        met &= all(row.get("met", True) is not False for row in rows)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
