"""Names found against names that are there: precision, recall and F1 of exact spans, as conlleval counts them.

A span is right when its first word, its last word and its type are. WNUT-17 also counts *surface forms*: each different
name once, however often it is said.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from voiceseq.errors import InputError
from voiceseq.text.tags import spans

Tags = Sequence[str]


@dataclass(frozen=True)
class SpanScore:
    """``wanted`` spans are there, ``found`` were marked, ``right`` are both."""

    wanted: int
    found: int
    right: int

    @property
    def precision(self) -> float:
        """The share of the marked ones that is right; 0 where none is marked."""
        return self.right / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        """The share of those that are there that was found; 0 where none is there."""
        return self.right / self.wanted if self.wanted else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of both."""
        return 2 * self.right / (self.wanted + self.found) if self.wanted + self.found else 0.0


def span_scores(references: Sequence[Tags], hypotheses: Sequence[Tags]) -> dict[str, SpanScore]:
    """The score of all types together under "", then of each type by its name.

    Raises InputError where there are not as many sentences, or not as many tags in one, on both sides.
    """
    _check(references, hypotheses)
    wanted = Counter(span.kind for tags in references for span in spans(tags))
    found = Counter(span.kind for tags in hypotheses for span in spans(tags))
    pairs = zip(references, hypotheses, strict=True)
    right = Counter(span.kind for one, other in pairs for span in set(spans(one)) & set(spans(other)))
    kinds = sorted(wanted | found)
    total = SpanScore(wanted.total(), found.total(), right.total())
    return {"": total} | {kind: SpanScore(wanted[kind], found[kind], right[kind]) for kind in kinds}


def surface_score(words: Sequence[Sequence[str]], references: Sequence[Tags], hypotheses: Sequence[Tags]) -> SpanScore:
    """Each different (name, type) once. Raises InputError as ``span_scores`` does."""
    _check(references, hypotheses)
    _check(words, references)
    wanted, found = _surfaces(words, references), _surfaces(words, hypotheses)
    return SpanScore(len(wanted), len(found), len(wanted & found))


def tag_accuracy(references: Sequence[Tags], hypotheses: Sequence[Tags]) -> float:
    """The share of words whose tag is right. Raises InputError as ``span_scores`` does."""
    _check(references, hypotheses)
    pairs = [(a, b) for one, other in zip(references, hypotheses, strict=True) for a, b in zip(one, other, strict=True)]
    if not pairs:
        raise InputError("there are no words, so there is no share of right ones; give at least one")
    return sum(a == b for a, b in pairs) / len(pairs)


def _surfaces(words: Sequence[Sequence[str]], tags: Iterable[Tags]) -> set[tuple[str, str]]:
    return {
        (" ".join(sentence[start:end]), kind)
        for sentence, row in zip(words, tags, strict=True)
        for start, end, kind in spans(row)
    }


def _check(references: Sequence[Sequence[str]], hypotheses: Sequence[Sequence[str]]) -> None:
    if len(references) != len(hypotheses) or not len(references):
        raise InputError(f"{len(references)} and {len(hypotheses)} sentences came; as many were wanted, at least one")
    for number, (one, other) in enumerate(zip(references, hypotheses, strict=True)):
        if len(one) != len(other):
            raise InputError(f"sentence {number} has {len(one)} and {len(other)} tags; as many were wanted")
