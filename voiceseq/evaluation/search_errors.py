"""Error analysis of a search: for each wrong output, is the search at fault or the model?

Under the full score of the decoding (weights, length normalisation, fusion), compare the reference with the output:

- score(reference) > score(output): the model preferred the reference and the search did not find it; widen the beam.
- otherwise: the model prefers the wrong output; train it better, or weigh the scorers otherwise.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from voiceseq.errors import InputError

SEARCH, MODEL = "search", "model"


@dataclass(frozen=True)
class SearchRow:
    """One item: ``fault`` is "search", "model", or None where the output is right."""

    index: int
    output: Any
    reference: Any
    output_score: float
    reference_score: float
    fault: str | None


@dataclass(frozen=True)
class SearchAnalysis:
    """The rows in their order; ``print(analysis)`` shows the table of fractions."""

    rows: tuple[SearchRow, ...]

    @property
    def wrong(self) -> tuple[SearchRow, ...]:
        return tuple(row for row in self.rows if row.fault is not None)

    def fraction(self, fault: str) -> float:
        """The share of the wrong outputs with this fault, "search" or "model"; 0 where nothing is wrong."""
        if fault not in (SEARCH, MODEL):
            raise InputError(f"the fault {fault!r} was asked for; the faults are {SEARCH!r} and {MODEL!r}")
        return sum(row.fault == fault for row in self.wrong) / max(1, len(self.wrong))

    def table(self) -> list[dict[str, str | int | float]]:
        """A row a fault: how many, of the wrong ones, of all."""
        return [
            {
                "fault": fault,
                "count": sum(row.fault == fault for row in self.wrong),
                "of_wrong": self.fraction(fault),
                "of_all": sum(row.fault == fault for row in self.wrong) / max(1, len(self.rows)),
            }
            for fault in (SEARCH, MODEL)
        ]

    def __str__(self) -> str:
        lines = [f"{len(self.wrong)} of {len(self.rows)} outputs are wrong", "at fault     count  of wrong    of all"]
        for row in self.table():
            lines.append(f"{row['fault']:<10}{row['count']:>8}{row['of_wrong']:>10.1%}{row['of_all']:>10.1%}")
        return "\n".join(lines)


def analyse_search(
    outputs: Sequence[Any], references: Sequence[Any], score_function: Callable[[Sequence[Any]], Sequence[float]]
) -> SearchAnalysis:
    """Find the fault of each wrong output.

    ``score_function(sequences)`` gives the decoding's score of one sequence for each item, in order; it is called
    with all outputs and with all references. For `beam_search`:
    ``lambda sequences: [h.score for h in score_sequence(scorers, sequences, start, end, alpha=alpha)]``; for
    `prefix_beam_search` the same with `score_strings`. Equal sequences are right; equal scores are the model's fault.

    Raises InputError for unequal numbers of items or a score that is NaN.
    """
    if len(outputs) != len(references):
        raise InputError(f"{len(outputs)} outputs came with {len(references)} references; one each was wanted")
    if not len(outputs):
        return SearchAnalysis(())
    found, wanted = list(score_function(outputs)), list(score_function(references))
    if len(found) != len(outputs) or len(wanted) != len(outputs):
        raise InputError(
            f"the score function gave {len(found)} scores for {len(outputs)} sequences; one each was wanted"
        )
    if any(math.isnan(score) for score in (*found, *wanted)):
        raise InputError("the score function gave NaN; a number for each sequence was wanted (-inf is impossible)")
    rows = zip(outputs, references, found, wanted, strict=True)
    return SearchAnalysis(
        tuple(
            SearchRow(i, output, reference, float(p), float(q), _fault(output, reference, p, q))
            for i, (output, reference, p, q) in enumerate(rows)
        )
    )


def _fault(output: Any, reference: Any, output_score: float, reference_score: float) -> str | None:
    if _plain(output) == _plain(reference):
        return None
    return SEARCH if reference_score > output_score else MODEL


def _plain(sequence: Any) -> Any:
    """Tuples, lists and texts compare by content."""
    return sequence if isinstance(sequence, str) else tuple(sequence)
