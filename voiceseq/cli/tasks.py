"""``voiceseq tasks``: every task with what it does, its default bundle and an example; several may share a command."""

import argparse
from typing import NamedTuple

from voiceseq.bundles import shipped_bundles
from voiceseq.cli.main import COMMANDS
from voiceseq.cli.options import add_json, print_json, print_table


class Task(NamedTuple):
    """A task that has no command of its own: that of another, with a bundle. ``recipe`` makes what does not ship."""

    does: str
    command: str
    bundle: str
    example: str
    recipe: str


TASKS = {
    "names": Task(
        "write names of a kind: female, male, dinosaur",
        "generate",
        "names",
        "voiceseq generate --model names dinosaur",
        "voiceseq train experiment=names",
    ),
    "music": Task(
        "compose a chorale as a MIDI file",
        "generate",
        "chorales",
        "voiceseq generate --model chorales --length 64 chorale.mid",
        "voiceseq train experiment=chorales",
    ),
    "activity": Task(
        "tell what happens in a clip: a digit goes left, goes right, turns",
        "caption",
        "activity",
        "voiceseq caption --model activity clip.gif",
        "voiceseq train experiment=activity",
    ),
    "dna": Task(
        "tell whether a stretch of 57 bases is a promoter",
        "caption",
        "promoters",
        "voiceseq caption --model promoters tactagcaatacgcttgcgttcggtggttaagtatgtataatgcgcgggcttgtcgt",
        "voiceseq train experiment=promoters",
    ),
    "sunspots": Task(
        "go on with a series of yearly sunspots",
        "forecast",
        "sunspots",
        'voiceseq forecast --model sunspots "5 11 16 23 36 58 29 20 10 8 3 0 0 2 11 27 47 63 60 39 28 26 22" --steps 5',
        "voiceseq train experiment=sunspots",
    ),
    "german to english": Task(
        "translate what is said of photographs",
        "translate",
        "multi30k-de-en",
        'voiceseq translate --model multi30k-de-en "Ein Hund läuft."',
        "voiceseq train experiment=multi30k-de-en",
    ),
    "pronunciation in IPA": Task(
        "tell how words of 21 languages are said",
        "pronounce",
        "pronounce-ipa",
        "voiceseq pronounce --language ita gatto",
        "voiceseq train experiment=pronounce-ipa",
    ),
    "error analysis": Task(
        "tell where a text bundle errs: by length, by rarity, search or model",
        "evaluate",
        "dates",
        "voiceseq evaluate dates --manifest rows.tsv --out report",
        "voiceseq train experiment=dates",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    shipped = shipped_bundles()
    rows = [
        {"task": name, "command": name, "does": one.help, "bundle": one.bundle, "example": one.example}
        for name, one in COMMANDS.items()
    ]
    rows += [
        {"task": name, "command": one.command, "does": one.does, "bundle": one.bundle, "example": one.example}
        for name, one in TASKS.items()
    ]
    for row in rows:
        row["ships"] = row["bundle"] in shipped if row["bundle"] else None  # type: ignore[assignment]
    if args.json:
        print_json(rows)
        return 0
    table = [("task", "default bundle", "example", "what it does")]
    for row in rows:
        task = TASKS.get(str(row["task"]))
        absent = f" (make it: {task.recipe})" if task else " (train it first)"
        bundle = f"{row['bundle'] or '-'}{absent if row['ships'] is False else ''}"
        table.append((str(row["task"]), bundle, str(row["example"]), str(row["does"])))
    print_table(table)
    return 0
