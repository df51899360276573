"""What a search did, step by step: for pictures, and for whoever wants to know why a hypothesis was lost."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from voiceseq.core.prefix import Fusion
from voiceseq.core.scorers import Scorer, State
from voiceseq.core.search import Scorers, Weighted


class Live(NamedTuple):
    """A hypothesis that a beam held: its tokens, its score so far, whether it had just ended."""

    tokens: tuple[int, ...]
    score: float
    ended: bool = False


class Watched(Scorer):
    """Scorers as one scorer, which notes what ``beam_search`` went on from: ``beam_search([(watched, 1.0)], 1, ...)``.

    ``steps[n]`` are the hypotheses of n tokens that were live, best first; one that has just ended is among them once,
    without its end. For one utterance.
    """

    def __init__(self, scorers: Scorers, end: int) -> None:
        self._model, self._end = Weighted(scorers, 1), end
        self.bound = self._model.gain
        self.steps: list[list[Live]] = []

    def start(self, batch: int) -> State:
        return self._model.start(batch), torch.zeros(batch, 0, dtype=torch.long), torch.zeros(batch), None

    def score(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        inner, history, sums, offered = state
        if offered is not None:  # what was read first is the start symbol
            history = torch.cat((history, tokens[:, None]), 1)
            sums = sums + offered.gather(1, tokens[:, None])[:, 0]
        self._note(history.tolist(), sums.tolist())
        total, _, inner = self._model.score(tokens, inner)
        return total, (inner, history, sums, total)

    def select(self, state: State, index: Tensor) -> State:
        inner, history, sums, offered = state
        return self._model.select(inner, index), history[index], sums[index], offered[index]

    def _note(self, rows: list[list[int]], sums: list[float]) -> None:
        found = []
        for row, score in zip(rows, sums, strict=True):
            ended = bool(row) and row[-1] == self._end
            if score > -np.inf and self._end not in row[:-1]:  # an ended one fills its place until somebody needs it
                found.append(Live(tuple(row[:-1] if ended else row), score, ended))
        self.steps.append(sorted(found, key=lambda one: -one.score))


def trace_prefixes(
    log_probs: Tensor, *, blank: int = 0, beam: int = 16, nbest: int = 1, fusion: Fusion | None = None
) -> list[list[Live]]:
    """What ``prefix_beam_search`` holds after each frame of one utterance ``log_probs (time, vocabulary)``, best first.

    The scores are those of the beam: CTC's mass that was not dropped, and what the fusion has added so far.
    """
    from voiceseq.core import prefix_loops as loops

    fusion = fusion or Fusion(log_probs.shape[1])
    frames = log_probs.detach().double().numpy()
    order = np.argsort(-frames, axis=1)
    tree, old, new, count = loops.plant(fusion.arrays, 1 + len(frames) * beam, beam)
    steps, none = [], np.zeros((0, 0))
    for t in range(len(frames)):
        some = frames[t : t + 1], order[t : t + 1]
        old, new = loops.advance(fusion.arrays, *some, blank, tree, old, new, count, none, fusion.bound, nbest)
        live = [Live(tuple(loops.spell_out(tree, one["node"]).tolist()), float(one["score"])) for one in
                old[: count[loops.LIVE]]]  # fmt: skip
        steps.append(sorted(live, key=lambda one: -one.score))
    return steps
