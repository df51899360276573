"""The card of a wake word: what it hears, how well, and what it learned from."""

from collections.abc import Sequence
from typing import Any


def card(words: Sequence[str], report: dict[str, Any], data: Sequence[dict[str, Any]]) -> str:
    """Markdown for people."""
    alarms = report["false alarms on sound for the threshold"]
    lines = [f"# Wake word: {', '.join(words)}", ""]
    lines += ["Listen: `voiceseq listen --model PATH`; in Python: `voiceseq.load(PATH).stream(16_000)`.", ""]
    lines += [f"Thresholds were set on {alarms['hours']} h of {', '.join(alarms['kinds'])} that trained nothing:", ""]
    lines += [
        "| word | false alarms an hour there (95 %) | missed, synthetic voices never trained on |",
        "|---|---|---|",
    ]
    for word in words:
        rate = alarms[word]["per hour"]
        missed = report["missed, synthetic voices never trained on"].get(word)
        told = f"{missed['missed']} of {missed['of']}" if missed else "not measured"
        lines.append(f"| {word} | {rate['per_hour']:.2f} ({rate['low']:.2f} to {rate['high']:.2f}) | {told} |")
    lines += [
        "",
        "Synthetic voices say little about people: measure with `voiceseq evaluate` on recordings of yours.",
        "",
    ]
    lines += ["Learned from:", "", *[f"- {one['name']}: {one.get('licence', 'unknown')}" for one in data], ""]
    return "\n".join(lines)
