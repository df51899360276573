"""Options that every command shares, and how results are printed."""

import argparse
import json
from collections.abc import Sequence
from typing import Any


def add_verbose(parser: argparse.ArgumentParser) -> None:
    # SUPPRESS: a sub-command's default must not undo the -v given before it
    parser.add_argument(
        "-v", "--verbose", action="store_true", default=argparse.SUPPRESS, help="show tracebacks of errors"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON for machines")


def print_json(value: Any) -> None:
    """One line of JSON on stdout; names of files that are not UTF-8 come out as JSON escapes."""
    print(json.dumps(value, ensure_ascii=False))


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Columns as wide as their widest cell, two spaces apart."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
