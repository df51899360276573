"""A linear-chain conditional random field: the best *sequence* of tags, not the best tag at each place.

    score(tags) = start[y_1] + sum_t emissions[t, y_t] + sum_t transitions[y_t-1, y_t] + end[y_n]
    log P(tags) = score(tags) - log Z,    Z = the sum of exp(score) over all sequences of tags

Z is summed, and the best sequence found, in time * tags^2 steps: what lies before a place matters only through its tag.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from voiceseq.core.losses import check_same_time
from voiceseq.core.masks import DIVERGED, check_frames, check_sizes, check_tokens, lengths_mask
from voiceseq.errors import InputError

BLOCKED = -1e4  # the score of what may not be; finite, so that a wrong label in the data costs much and breaks nothing


class TagPath(NamedTuple):
    """The best tags of one row, as many as it is long, and their score (not a probability: log Z is not taken off)."""

    tags: list[int]
    score: float


class CRF(nn.Module):
    """The transitions between ``tags`` tags; the emissions come from a network, ``(batch, time, tags)``.

    ``blocked`` are pairs (before, after) of tags that may not follow one another; ``blocked_starts`` may not be first.

    Raises:
        InputError: fewer than one tag, or blocked tags that are none.
    """

    allowed: Tensor
    allowed_starts: Tensor

    def __init__(self, tags: int, blocked: Iterable[tuple[int, int]] = (), blocked_starts: Iterable[int] = ()) -> None:
        super().__init__()
        check_sizes(tags=tags)
        self.tags = tags
        self.start = nn.Parameter(torch.zeros(tags))
        self.end = nn.Parameter(torch.zeros(tags))
        self.transitions = nn.Parameter(torch.zeros(tags, tags))
        self.register_buffer("allowed", torch.ones(tags, tags, dtype=torch.bool))
        self.register_buffer("allowed_starts", torch.ones(tags, dtype=torch.bool))
        self.block(blocked, blocked_starts)

    def block(self, pairs: Iterable[tuple[int, int]], starts: Iterable[int] = ()) -> None:
        """Forbid these pairs (before, after) and these first tags from now on; kept among the weights."""
        pairs, starts = list(pairs), list(starts)
        wrong = [tag for tag in [*sum(pairs, ()), *starts] if not 0 <= tag < self.tags]
        if wrong:
            raise InputError(f"tag {wrong[0]} is to be blocked; 0 to {self.tags - 1} was wanted")
        for before, after in pairs:
            self.allowed[before, after] = False
        self.allowed_starts[starts] = False

    def forward(self, emissions: Tensor, tags: Tensor, lengths: Tensor | None = None) -> Tensor:
        """-log P(tags) of ``emissions (batch, time, tags)`` and ``tags (batch, time)``, the mean over the valid places.

        Raises:
            InputError: wrong shapes or lengths, tags out of range (what stands in the padding does not matter), NaN.
        """
        lengths = self._check(emissions, lengths)
        valid = lengths_mask(lengths, emissions.shape[1])
        check_same_time(tags, emissions, "tags")
        tags = tags.masked_fill(~valid, 0)
        check_tokens(tags, lengths, self.tags, "tags")
        emissions = emissions.float() if emissions.dtype == torch.bfloat16 else emissions
        total = self._log_partition(emissions, lengths) - self._score(emissions, tags, lengths)
        return total.sum() / lengths.sum()

    def score(self, emissions: Tensor, tags: Tensor, lengths: Tensor | None = None) -> Tensor:
        """``(batch,)``: the score of the given tags, by the equation above. Raises InputError as ``forward`` does."""
        lengths = self._check(emissions, lengths)
        tags = tags.masked_fill(~lengths_mask(lengths, emissions.shape[1]), 0)
        check_tokens(tags, lengths, self.tags, "tags")
        return self._score(emissions, tags, lengths)

    def log_partition(self, emissions: Tensor, lengths: Tensor | None = None) -> Tensor:
        """``(batch,)``: log Z, by the forward recursion. Raises InputError as ``forward`` does."""
        return self._log_partition(emissions, self._check(emissions, lengths))

    def marginals(self, emissions: Tensor, lengths: Tensor | None = None) -> Tensor:
        """``(batch, time, tags)``: how probable each tag is at each place, whatever the others; zeros in the padding.

        It is the derivative of log Z: d log Z / d emissions[t, k] = P(y_t = k). Raises InputError as ``forward`` does.
        """
        with torch.enable_grad():
            leaf = emissions.detach().requires_grad_()
            (probabilities,) = torch.autograd.grad(self.log_partition(leaf, lengths).sum(), leaf)
        return probabilities

    @torch.no_grad()
    def decode(self, emissions: Tensor, lengths: Tensor | None = None) -> list[TagPath]:
        """The best tags of each row (Viterbi). Raises InputError as ``forward`` does."""
        lengths = self._check(emissions, lengths)
        start, transitions = self._allowed_scores()
        best = start + emissions[:, 0]
        arrows = []
        for t in range(1, emissions.shape[1]):
            reached, arrow = (best[:, :, None] + transitions).max(1)
            running = (t < lengths)[:, None]
            best = torch.where(running, reached + emissions[:, t], best)
            arrows.append(torch.where(running, arrow, torch.arange(self.tags, device=arrow.device)))
        scores, tag = (best + self.end).max(1)
        path = [tag]
        for arrow in reversed(arrows):  # beyond a row's end the arrows point back to the same tag
            path.append(arrow.gather(1, path[-1][:, None])[:, 0])
        rows = torch.stack(path[::-1], 1).tolist()
        return [TagPath(r[:n], s) for r, n, s in zip(rows, lengths.tolist(), scores.tolist(), strict=True)]

    def _check(self, emissions: Tensor, lengths: Tensor | None) -> Tensor:
        return check_frames(emissions, lengths, self.tags, "emissions", advice=DIVERGED)

    def _allowed_scores(self) -> tuple[Tensor, Tensor]:
        start = self.start.masked_fill(~self.allowed_starts, BLOCKED)
        return start, self.transitions.masked_fill(~self.allowed, BLOCKED)

    def _log_partition(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        start, transitions = self._allowed_scores()
        total = start + emissions[:, 0]  # (batch, tags): log of the sum over all beginnings that end in this tag
        for t in range(1, emissions.shape[1]):
            longer = (total[:, :, None] + transitions).logsumexp(1) + emissions[:, t]
            total = torch.where((t < lengths)[:, None], longer, total)
        return (total + self.end).logsumexp(1)

    def _score(self, emissions: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        start, transitions = self._allowed_scores()
        valid = lengths_mask(lengths, tags.shape[1])
        emitted = emissions.gather(2, tags[..., None])[..., 0].masked_fill(~valid, 0.0).sum(1)
        moved = transitions[tags[:, :-1], tags[:, 1:]].masked_fill(~valid[:, 1:], 0.0).sum(1)
        last = tags.gather(1, lengths[:, None] - 1)[:, 0]
        return start[tags[:, 0]] + emitted + moved + self.end[last]
