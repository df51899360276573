"""``voiceseq tasks``: every command with what it does, its default bundle and an example."""

import argparse

from voiceseq.bundles import shipped_bundles
from voiceseq.cli.main import COMMANDS
from voiceseq.cli.options import add_json, print_json, print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    shipped = shipped_bundles()
    rows = [
        {
            "command": name,
            "does": command.help,
            "bundle": command.bundle,
            "ships": command.bundle in shipped if command.bundle else None,
            "example": command.example,
        }
        for name, command in COMMANDS.items()
    ]
    if args.json:
        print_json(rows)
        return 0
    table = [("command", "default bundle", "example", "what it does")]
    for row in rows:
        absent = " (train it first)" if row["ships"] is False else ""
        table.append((str(row["command"]), f"{row['bundle'] or '-'}{absent}", str(row["example"]), str(row["does"])))
    print_table(table)
    return 0
