"""RESULTS.md: one section a benchmark, each with its command, date and conditions; written by the benchmarks alone."""

import os
import platform
import re
from datetime import date
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).resolve().parent.parent / "RESULTS.md"
HEAD = """# Results

Every figure here was printed by the command above it, on the machine and day that it names. A ratio was measured side
by side in one run. Sections are rewritten by their commands; nothing is typed in by hand.
"""


def conditions() -> str:
    """The machine in a line."""
    model = (
        re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
        if os.path.exists("/proc/cpuinfo")
        else None
    )
    processor = model[1] if model else platform.processor() or platform.machine()
    return f"{os.cpu_count()} cores of {processor}, Python {platform.python_version()}, torch {torch.__version__}"


def shown(value: Any) -> str:
    """A cell: no more digits than the measurement has, and never rounded in our favour at a target's edge."""
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 0.01 else f"{value:.3f}"
    return "" if value is None else str(value)


def table(rows: list[dict[str, Any]]) -> str:
    """Rows of equal or different keys as a Markdown table; a row without a target has nothing to meet."""
    rows = [{key: value for key, value in row.items() if key != "met" or row.get("target") is not None} for row in rows]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [columns, ["---"] * len(columns), *([shown(row.get(column)) for column in columns] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_section(title: str, command: str, rows: list[dict[str, Any]], notes: str = "") -> None:
    """Replace (or add) one section of RESULTS.md."""
    text = RESULTS.read_text() if RESULTS.exists() else HEAD
    body = f"## {title}\n\n`{command}` · {date.today()} · {conditions()}\n\n{table(rows)}\n"
    body += f"\n{notes.strip()}\n" if notes else ""
    section = re.compile(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    text = section.sub(lambda _: body + "\n", text) if section.search(text) else f"{text.rstrip()}\n\n{body}"
    RESULTS.write_text(text.rstrip() + "\n")
