"""Counts and times in Prometheus' text form, at ``/metrics``."""

import bisect
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.7, 1.5, 3.0, 10.0)
HELP = {
    "requests_total": "Requests answered, by route and status.",
    "refused_total": "Clients and requests that were refused, by reason.",
    "clients": "Who is inside, by kind.",
    "audio_seconds_total": "Seconds of sound heard, by kind.",
    "events_total": "Detections and finals given, by kind.",
    "latency_seconds": "From the arrival of sound to its answer, by kind.",
    "worker_ends_total": "Processes that ended and were started again.",
    "late_seconds": "How long the oldest unanswered question to a worker waits, by kind.",
    "peak_memory_bytes": "The most memory that the server's own process had.",
}
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """``count`` and ``observe`` as things happen; ``gauges`` are asked for when somebody reads."""

    def __init__(self) -> None:
        self._counts: defaultdict[tuple[str, Labels], float] = defaultdict(float)
        self._times: dict[tuple[str, Labels], list[float]] = {}  # counts of the buckets and of the rest, sum
        self.gauges: dict[str, Callable[[], dict[Labels, float]]] = {"peak_memory_bytes": lambda: {(): peak_memory()}}

    def count(self, name: str, value: float = 1, **labels: str) -> None:
        self._counts[name, tuple(sorted(labels.items()))] += value

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        row = self._times.setdefault((name, tuple(sorted(labels.items()))), [0.0] * (len(BUCKETS) + 2))
        row[bisect.bisect_left(BUCKETS, seconds)] += 1
        row[-1] += seconds

    def text(self) -> str:
        lines: list[str] = []
        for name, text in HELP.items():
            kind = "histogram" if name.endswith("_seconds") and name != "late_seconds" else "gauge"
            kind = "counter" if name.endswith("_total") else kind
            rows = list(self._rows(name))
            if rows:
                lines += [f"# HELP voiceseq_{name} {text}", f"# TYPE voiceseq_{name} {kind}", *rows]
        return "\n".join(lines) + "\n"

    def _rows(self, name: str) -> Iterator[str]:
        for (key, labels), value in sorted(self._counts.items()):
            if key == name:
                yield line(name, labels, value)
        for labels, value in sorted(self.gauges[name]().items()) if name in self.gauges else ():
            yield line(name, labels, value)
        for (key, labels), row in sorted(self._times.items()):
            if key == name:
                total = 0.0
                for edge, number in zip((*map(str, BUCKETS), "+Inf"), row[:-1], strict=True):
                    total += number
                    yield line(f"{name}_bucket", (*labels, ("le", edge)), total)
                yield line(f"{name}_sum", labels, row[-1])
                yield line(f"{name}_count", labels, total)


def line(name: str, labels: Labels, value: Any) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    return f"voiceseq_{name}{f'{{{inside}}}' if inside else ''} {value:g}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def peak_memory() -> float:
    """In bytes; macOS counts in bytes, Linux in KiB, Windows not at all."""
    try:
        import resource
    except ImportError:
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else peak * 1024)
