"""``voiceseq evaluate`` for text: one error analysis for every task, by length, by rarity, search or model at fault."""

import argparse
import json
from pathlib import Path
from typing import Any

from voiceseq.errors import ConfigError, InputError

Table = list[tuple[str, ...]]
LABEL_FIRST = ("classifier",)  # kinds whose tables have what is wanted in the first column
ALONE = ("language-model", "masked-lm")  # kinds that want text alone


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("text: rows are text<TAB>wanted, JSON lines with both, or two files; see docs")
    group.add_argument("--target", type=Path, metavar="FILE", help="what is wanted, line by line, in a file of its own")
    group.add_argument("--columns", metavar="T,W", help="which columns of a table are text and wanted (default: 0,1)")
    group.add_argument("--language", metavar="CODE", help="of the words, for pronunciation in many languages")


def evaluate_text(args: argparse.Namespace, model: Any) -> tuple[dict[str, Any], Table, list[str]]:
    """A report, the table of it, and lines below it. Raises InputError for rows that cannot be read."""
    from voiceseq.bundles import load_bundle
    from voiceseq.evaluation.answers import KINDS
    from voiceseq.evaluation.text import text_report
    from voiceseq.text.files import read_text

    kind = load_bundle(args.bundle).kind
    asking = KINDS[kind]
    rows = read_rows(kind, args.manifest, args.target, args.columns)
    answers = asking.ask(model, rows, args.beam, args.language)
    if not answers:
        raise InputError(f"{args.manifest}: the model can read none of its {len(rows)} rows; give others")
    lines = [line for path in args.seen for line in read_text(path).splitlines()]
    seen = [cell for line in lines for cell in line.split("\t")] if args.seen else None  # a spelling has its ends there
    report = text_report(answers, asking.units, seen) | {"search": asking.search, "left_out": len(rows) - len(answers)}
    if kind == "forecaster":
        report["left_out"] = 0  # an answer is a step of a row there
    report |= measures(kind, answers)
    if args.out is not None:
        report["plots"] = draw(report, args.out)
    return report, table(report), notes(report)


def read_rows(kind: str, path: Path, target: Path | None, columns: str | None) -> list[tuple[str, str]]:
    """``(text, wanted)`` of each row, in whichever of the forms of its task the file is."""
    from voiceseq.datasets.corpora.parallel import read_parallel
    from voiceseq.text.files import read_text

    if path.suffix == ".jsonl":
        return [json_row(path, number, line) for number, line in enumerate(read_text(path).splitlines(), 1) if line]
    if kind in ALONE and target is None and columns is None:
        return [(" ".join(line.split()), "") for line in read_text(path).splitlines() if line.strip()]
    if kind == "tagger":
        from voiceseq.datasets.corpora.sentences import read_tagged

        return [(" ".join(row.words), " ".join(row.tags)) for row in read_tagged(str(path))]
    if kind == "composer":
        from voiceseq.datasets.corpora.chorales import read_chorales
        from voiceseq.inference.composer import chords

        return [(chords(roll), "") for roll in read_chorales(str(path))]
    if kind == "embeddings":
        from voiceseq.evaluation.embeddings import read_questions

        return [(" ".join(words[:3]), words[3]) for some in read_questions(path).values() for words in some]
    places = (1, 0) if kind in LABEL_FIRST else (0, 1)
    if columns is not None:
        try:
            one, two = (int(cell) for cell in columns.split(","))
        except ValueError as error:
            raise ConfigError(f"--columns {columns}; two numbers with a comma were wanted, e.g. 1,0") from error
        places = (one, two)
    return read_parallel(str(path), None if target is None else str(target), columns=places)


def json_row(path: Path, number: int, line: str) -> tuple[str, str]:
    try:
        row = json.loads(line)
        return str(row["text"]), str(row.get("target", ""))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f'{path}, line {number}: {line[:40]!r}; {{"text": ..., "target": ...}} was wanted') from error


def measures(kind: str, answers: Any) -> dict[str, Any]:
    """What is usual for the task beside the share that is wholly right."""
    if kind == "translator":
        try:
            import sacrebleu
        except ImportError:
            return {}
        bleu, chrf = sacrebleu.BLEU(), sacrebleu.CHRF()
        sides = [answer.given for answer in answers], [[answer.wanted for answer in answers]]
        return {
            "bleu": bleu.corpus_score(*sides).score,
            "chrf": chrf.corpus_score(*sides).score,
            "signatures": [str(bleu.get_signature()), str(chrf.get_signature())],
        }
    if kind in ("pronouncer", "letters"):
        from voiceseq.core.distance import edit_distance

        wanted = [answer.wanted.split() for answer in answers]
        wrong = sum(edit_distance(one, a.given.split()) for one, a in zip(wanted, answers, strict=True))
        return {"phone_error": wrong / max(1, sum(map(len, wanted)))}
    return {}


def table(report: dict[str, Any]) -> Table:
    rows: Table = [("part", "items", "right", "loss", "search at fault", "model at fault")]
    rows.append(line("all", report["all"]))
    rows += [line(f"length {span(row)}", row) for row in report["by_length"]]
    rows += [line(f"rarest part seen {span(row)} times", row) for row in report["by_rarity"]]
    return rows


def span(row: dict[str, Any]) -> str:
    if row["to"] is None:
        return f"{row['from']} or more"
    return str(row["from"]) if row["from"] == row["to"] else f"{row['from']} to {row['to']}"


def line(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    right = "-" if row["right"] is None else f"{row['right']:.1%}"
    loss = "-" if row["loss"] is None else f"{row['loss']:.4g}"
    return (name, str(row["items"]), right, loss, str(row["search"]), str(row["model"]))


def notes(report: dict[str, Any]) -> list[str]:
    found = [f"rarity is counted in {report['rarity_counted_in']}"]
    if report["search"] == "exact":
        found.append("the search is exact here: whatever is wrong is the model's fault")
    if "bleu" in report:
        found.append(f"BLEU {report['bleu']:.2f} (cased), chrF {report['chrf']:.2f} ({report['signatures'][0]})")
    if "phone_error" in report:
        found.append(f"phone error {report['phone_error']:.1%}")
    if report["left_out"]:
        found.append(f"{report['left_out']} rows that the model cannot read were left out")
    return found


def draw(report: dict[str, Any], folder: Path) -> list[str]:
    """The share of right answers (else the loss) by length and by rarity."""
    from voiceseq.evaluation.plots import plot_curves

    up = "right" if report["all"]["right"] is not None else "loss"
    plots = []
    for name, across in (("by_length", "length"), ("by_rarity", "times the rarest part was seen, at least")):
        points = [(float(row["from"]), row[up]) for row in report[name] if row[up] is not None]
        if points:
            plots.append(plot_curves({up: points}, across, up, folder / f"{name}.png").name)
    return plots
