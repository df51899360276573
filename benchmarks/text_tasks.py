"""Sentiment, tagging, masked and bidirectional language models: what each row of the tables was trained by, and got.

    python benchmarks/text_tasks.py --train NAME ...   train these rows (in runs/text; goes on where it was stopped)
    python benchmarks/text_tasks.py                    write the sections of RESULTS.md from the rows that are trained

``benchmarks/ship_text.py`` makes what ships of them. Figures are of the corpora's own dev parts, which also chose the
epoch; the tests are kept elsewhere.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results import table, write_section

RUNS = Path("runs/text")


@dataclass(frozen=True)
class Row:
    """``start`` is the row whose weights and words it begins with."""

    section: str
    case: str
    overrides: str
    metric: str = "val/accuracy"
    target: float | None = None
    start: str | None = None


SENTENCES = "data.train=../shared/data/text/sst2/train.tsv.gz data.steps_per_epoch=108"
BERT = f"experiment=sst2 model=classifier_transformer data.spelling=false {SENTENCES} trainer.max_epochs=5"
SHORT = "experiment=sst2 trainer.max_epochs=2"  # what differs is seen sooner than how far it goes
NER = "experiment=wnut17"
SMALL = "experiment=wnut17 model=tagger_transformer"
ONE_PASS = "experiment=shakespeare threads=1 trainer.max_epochs=1"
ROWS = {
    "ewt-pos": Row(
        "Tagging", "EWT parts of speech: BiLSTM + characters + CRF, GloVe", "experiment=ewt-pos", target=95.5
    ),
    "ewt-longer": Row(
        "Tagging",
        "EWT parts of speech: the same, 8 epochs more",
        "experiment=ewt-pos trainer.max_epochs=8 optimiser.learning_rate=0.001",
        target=95.5,
        start="ewt-pos",
    ),
    "sst2": Row("Sentiment", "SST-2: BiLSTM, attention pool, GloVe, phrases", "experiment=sst2"),
    "sst2-reviews": Row(
        "Sentiment",
        "SST-2: the same from the network of IMDb, which came from SST-2",
        "experiment=sst2 model.ngrams=262144 trainer.max_epochs=4 optimiser.learning_rate=0.0005",
        target=86.0,
        start="imdb",
    ),
    "wnut17": Row("Tagging", "WNUT-17 names: BiLSTM + characters + CRF, GloVe", NER, "val/f1"),
    "wnut17-ewt": Row("Tagging", "WNUT-17: from the network of EWT", NER, "val/f1", start="ewt-pos"),
    "masked": Row("Plain text", "masked LM, WikiText-2: masked words right", "experiment=masked", "val/words right"),
    "sst2-sentences": Row("Plain text", "SST-2 sentences: transformer from scratch", f"{BERT} data.vectors=null"),
    "sst2-vectors": Row("Plain text", "SST-2 sentences: the same with GloVe's words", BERT),
    "sst2-masked": Row("Plain text", "SST-2 sentences: the same from the masked LM", BERT, start="masked"),
    "wnut17-scratch": Row("Plain text", "WNUT-17: transformer from scratch", f"{SMALL} data.vectors=null", "val/f1"),
    "wnut17-vectors": Row("Plain text", "WNUT-17: the same with GloVe's words", SMALL, "val/f1"),
    "wnut17-masked": Row("Plain text", "WNUT-17: the same from the masked LM", SMALL, "val/f1", start="masked"),
    "bidirectional": Row(
        "Plain text", "bidirectional LM, WikiText-2: nats a word", "experiment=bidirectional", "val/loss"
    ),
    "wnut17-elmo": Row(
        "Tagging", "WNUT-17: + ELMo's features", f"{NER} model.context=256", "val/f1", start="bidirectional"
    ),
    "imdb": Row(
        "Sentiment",
        "IMDb-small: BiLSTM + votes of word pairs, from SST-2",
        "experiment=imdb",
        target=89.0,
        start="sst2",
    ),
    "imdb-bilstm": Row("Sentiment", "IMDb-small: without the votes", "experiment=imdb model.ngrams=0", start="sst2"),
    "imdb-alone": Row("Sentiment", "IMDb-small: without SST-2", "experiment=imdb"),
    "sst2-attention": Row("Sentiment", "SST-2, 2 epochs: attention pool, GloVe", SHORT),
    "sst2-mean": Row("Sentiment", "SST-2, 2 epochs: mean pool", f"{SHORT} model.pool=mean"),
    "sst2-last": Row("Sentiment", "SST-2, 2 epochs: last states", f"{SHORT} model.pool=last"),
    "sst2-scratch": Row("Sentiment", "SST-2, 2 epochs: attention, no GloVe", f"{SHORT} data.vectors=null"),
    "sst2-transformer": Row(
        "Sentiment",
        "SST-2, 2 epochs: transformer, mean pool, GloVe",
        f"{SHORT} model=classifier_transformer data.spelling=false",
    ),
    "ewt-scratch": Row("Tagging", "EWT: no GloVe", "experiment=ewt-pos data.vectors=null"),
    "ewt-alone": Row("Tagging", "EWT: nothing learned beside the tags", "experiment=ewt-pos data.further=null"),
    "ewt-softmax": Row("Tagging", "EWT: softmax at each word instead of the CRF", "experiment=ewt-pos model.crf=false"),
    "ewt-letterless": Row("Tagging", "EWT: no characters", "experiment=ewt-pos model.spelling=0"),
    "ewt-elmo": Row("Tagging", "EWT: + ELMo's features", "experiment=ewt-pos model.context=256", start="bidirectional"),
    "ewt-elmo-longer": Row(
        "Tagging",
        "EWT: the same, 6 epochs more",
        "experiment=ewt-pos model.context=256 trainer.max_epochs=6 optimiser.learning_rate=0.001",
        target=95.5,
        start="ewt-elmo",
    ),
} | {
    f"characters-{cell}": Row("Characters", f"Shakespeare: {case}", f"{ONE_PASS} {overrides}", "val/loss")
    for cell, case, overrides in (
        ("rnn", "RNN, 2 x 256", "model.cell=rnn_tanh model.size=256 optimiser.learning_rate=0.001"),
        ("gru", "GRU, 2 x 256", "model.cell=gru model.size=256"),
        ("lstm", "LSTM, 2 x 256", "model.cell=lstm model.size=256"),
        ("gpt", "decoder of GPT's kind, 4 x 256", "model=language_gpt optimiser.learning_rate=0.001"),
    )
}


def finished(name: str) -> Path | None:
    """The newest whole run of a row."""
    return max(RUNS.glob(f"{name}/*/result.json"), key=lambda path: path.stat().st_mtime, default=None)


def shipped(name: str) -> Path | None:
    folder = Path("data/bundles") / name
    return folder if folder.is_dir() else None


def train(name: str) -> None:
    """By the real command; a run that was stopped goes on, and what ships need not be trained to start from it."""
    if finished(name):
        return print(f"{name} is trained: {finished(name)}")
    row = ROWS[name]
    stopped = max(RUNS.glob(f"{name}/*/last.ckpt"), key=lambda path: path.stat().st_mtime, default=None)
    words = [f"resume={stopped.parent}"] if stopped else [*row.overrides.split(), f"name={name}", f"runs={RUNS}"]
    if row.start and not stopped:
        if not (bundle := shipped(row.start)):
            train(row.start)
            bundle = finished(row.start).parent / "bundle"  # type: ignore[union-attr]
        words += [f"start_from={bundle}", f"data.vocabulary={bundle}"]
    begin = time.process_time(), time.monotonic()
    subprocess.run([sys.executable, "-m", "voiceseq", "train", *words, "progress=false"], check=True)
    print(f"{name}: {time.monotonic() - begin[1]:.0f} s")
    return None


def measured(name: str) -> dict[str, Any] | None:
    row, result = ROWS[name], None
    if path := finished(name):
        result = json.loads(path.read_text())
    elif folder := shipped(name):  # which tells of the run that made it, if that was this one
        record = json.loads((folder / "bundle.json").read_text())
        if record["training"]["settings"]["name"] == name:
            result = {"metrics": record["metrics"], "steps": None}
    if result is None:
        return None
    value = result["metrics"][row.metric]
    value = value if row.metric == "val/loss" else 100 * value
    start = f" start_from={row.start}" if row.start else ""
    cells = {
        "row": name,
        "what": row.case,
        "figure": row.metric.removeprefix("val/"),
        "dev": value,
        "steps": result["steps"],
    }
    met = None if row.target is None else value >= row.target
    return cells | {"overrides": row.overrides + start, "target": row.target, "met": met}


def tfidf(corpus: str, ngrams: int) -> float | None:
    """TF-IDF of words and pairs of them with logistic regression: what there is to beat."""
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        return None
    from voiceseq.text.files import read_text

    folder = Path("../shared/data/text") / corpus
    parts = [next(folder.glob(f"{name}.tsv*")) for name in ("train_phrases" if corpus == "sst2" else "train", "dev")]
    rows = [[line.split("\t", 1) for line in read_text(part).split("\n") if line] for part in parts]
    words = TfidfVectorizer(ngram_range=(1, ngrams), min_df=2, sublinear_tf=True)
    model = LogisticRegression(C=10, solver="liblinear")
    model.fit(words.fit_transform([text for _, text in rows[0]]), [label for label, _ in rows[0]])
    return 100 * model.score(words.transform([text for _, text in rows[1]]), [label for label, _ in rows[1]])


def cut_words() -> float:
    """F1 of the words that EWT's raw dev sentences are cut into, against its own."""
    from voiceseq.text.files import read_text
    from voiceseq.text.words import tokens, visible

    counts = [0, 0, 0]
    for block in read_text("../shared/data/text/ud_ewt/dev.conllu.gz").split("\n\n"):
        cells = [line.split("\t") for line in block.split("\n") if line[:1].isdigit()]
        text, wanted = "", set()
        for row in (row for row in cells if row[0].isdigit()):
            wanted.add((len(text), len(text) + len(row[1])))
            text += row[1] + ("" if "SpaceAfter=No" in row[-1] else " ")
        found = {(token.start, token.end) for token in tokens(visible(text))}
        counts = [a + b for a, b in zip(counts, (len(wanted), len(found), len(wanted & found)), strict=True)]
    return 200 * counts[2] / (counts[0] + counts[1])


NOTES = {
    "Sentiment": "TF-IDF + logistic regression by scikit-learn in the same run, beside the networks.",
    "Tagging": "F1 is of exact spans, as conlleval counts; `voiceseq/evaluation/spans.py` is proven against its rules.",
    "Characters": "Nats a character of the validation text after one pass over the training text, the same windows.",
    "Plain text": "Every pair of rows is the same network, data, steps and seed; only what it begins with differs.",
}


def write(sections: list[str]) -> None:
    for section in sections:
        rows = [row for name in ROWS if ROWS[name].section == section and (row := measured(name))]
        if section == "Sentiment":
            for corpus, ngrams in (("imdb_small", 2), ("sst2", 3)):
                if (share := tfidf(corpus, ngrams)) is not None:
                    case = f"{corpus}: TF-IDF of 1 to {ngrams} words + logistic regression"
                    rows.append({"row": "(scikit-learn)", "what": case, "figure": "accuracy", "dev": share})
        if section == "Tagging":
            rows.append(
                {"row": "(no network)", "what": "EWT: raw text cut into words", "figure": "F1", "dev": cut_words()}
            )
        if rows:
            title = f"{section}: dev parts of the corpora"
            write_section(title, f"python benchmarks/text_tasks.py --section {section!r}", rows, NOTES[section])
            print(f"\n{title}\n\n{table(rows)}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--train", nargs="+", choices=ROWS, metavar="NAME", help=", ".join(ROWS))
    parser.add_argument("--section", choices=NOTES, help="write this one alone")
    args = parser.parse_args()
    for name in args.train or ():
        train(name)
    if not args.train:
        write([args.section] if args.section else list(NOTES))
    return 0


if __name__ == "__main__":
    sys.exit(main())
