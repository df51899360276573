"""Phrases in a stream of phones: how well a spelling that ends at this frame explains what was heard.

The network says at each frame one of V symbols, of which one (``blank``) means "nothing new". The score of a spelling
at frame t adds up all the CTC paths that begin with its first phone at any frame and end with its last phone at t, with
repeats and blanks between; divided by the number of phones, spellings of every length can be compared:

    alpha[t, s] = log_probs[t, label s] + logsumexp(alpha[t-1, s], alpha[t-1, s-1], alpha[t-1, s-2])
    score[t] = alpha[t, last] / phones

over the states ``a _ b _ c``, where the jump over a blank is open between two different phones, and state ``a`` may
be entered at any frame for nothing: whatever was said before is no concern of the phrase.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from voiceseq.core.ctc import NEVER, check_log_probs, jumps
from voiceseq.core.masks import check_state, lengths_mask, tracing
from voiceseq.errors import InputError

State = tuple[Tensor]
"""``(alpha (batch, spellings, states),)``."""


class PhraseSpotter(nn.Module):
    """``(batch, time, symbols)`` log-probabilities -> ``(batch, time, phrases)`` scores, whole or in chunks.

    Args:
        phrases: each with one or several spellings, each of them a sequence of symbols; the best one counts.
        blank: the symbol that means nothing new.

    Raises:
        InputError: no phrase, an empty spelling, or the blank in one.
    """

    labels: Tensor
    shut: Tensor
    last: Tensor
    phones: Tensor

    def __init__(self, phrases: Sequence[Sequence[Sequence[int]]], blank: int = 0) -> None:
        super().__init__()
        spellings = [list(spelling) for phrase in phrases for spelling in phrase]
        self.counts = [len(phrase) for phrase in phrases]
        self.blank, self.least = blank, max((symbol for one in spellings for symbol in one), default=0) + 1
        _check(self.counts, spellings, blank)
        phones = torch.tensor([len(spelling) for spelling in spellings])
        states = 2 * max(map(len, spellings)) - 1
        rows = [[symbol for phone in spelling for symbol in (phone, blank)][:-1] for spelling in spellings]
        labels = torch.tensor([row + [blank] * (states - len(row)) for row in rows])
        for name, values in (
            ("labels", labels),
            ("shut", ~jumps(labels, blank)),
            ("last", 2 * phones - 2),
            ("phones", phones),
        ):
            self.register_buffer(name, values, persistent=False)

    def forward(
        self, log_probs: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Whole recordings, or the next chunk of a stream.

        Args:
            log_probs: ``(batch, time, symbols)``, from ``log_softmax``.
            state: what the call on the previous chunk returned; None at the start.
            lengths: ``(batch,)``, for rows that end before the others.

        Returns:
            Scores ``(batch, time, phrases)``, about ``NEVER / phones`` where a phrase cannot have been said yet and
            zero in the padding, and each row's state at its own last frame.

        Raises:
            InputError: a wrong shape or dtype, NaN, fewer symbols than the phrases use, lengths longer than the data.
        """
        valid = check_log_probs(log_probs, lengths, self.blank)
        if log_probs.shape[2] < self.least:
            raise InputError(
                f"log_probs has {log_probs.shape[2]} symbols; the phrases use {self.least}: whose are they?"
            )
        batch, time, _ = log_probs.shape
        alpha = log_probs.new_full((batch, *self.labels.shape), NEVER) if state is None else state[0]
        if state is not None:
            check_state(state, ((batch, *self.labels.shape),), log_probs.dtype)
        scores, alpha = self.advance(log_probs, alpha, valid)
        return (scores if lengths is None else scores * lengths_mask(valid, time)[..., None]), (alpha,)

    def advance(self, log_probs: Tensor, alpha: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The same unchecked; ``alpha`` in and out. Plain tensor operations where it is exported or learned from."""
        plain = tracing() or log_probs.device.type != "cpu" or (torch.is_grad_enabled() and log_probs.requires_grad)
        if plain or log_probs.dtype not in (torch.float32, torch.float64):
            ends, alpha = self._by_equations(log_probs, alpha, lengths)
        else:
            ends, alpha = self._by_loops(log_probs, alpha, lengths)
        ends = ends / self.phones
        best = [one.amax(-1) for one in ends.split(self.counts, -1)]
        return torch.stack(best, -1), alpha

    def _by_equations(self, log_probs: Tensor, alpha: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        ends = []
        spellings, states = self.labels.shape
        last = self.last[:, None]
        for t in range(log_probs.shape[1]):
            emit = log_probs[:, t, self.labels.flatten()].unflatten(1, (spellings, states))
            step = functional.pad(alpha, (1, 0))[..., :-1]  # before the first state stands log 1: enter here
            jump = functional.pad(alpha, (2, 0), value=NEVER)[..., :-2].masked_fill(self.shut, NEVER)
            moved = (emit + torch.stack([alpha, step, jump]).logsumexp(0)).clamp(min=NEVER)
            alpha = torch.where((t < lengths)[:, None, None], moved, alpha)
            ends.append(alpha.gather(2, last.expand(len(alpha), -1, -1)).squeeze(2))
        return torch.stack(ends, 1), alpha

    def _by_loops(self, log_probs: Tensor, alpha: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        from voiceseq.core import spotting_loops as loops

        batch, time, _ = log_probs.shape
        ends, alpha = log_probs.new_empty(batch, time, len(self.labels)), alpha.clone()
        tables = (self.labels.numpy(), self.shut.numpy(), self.last.numpy())
        loops.advance(log_probs.detach().contiguous().numpy(), lengths.numpy(), *tables, alpha.numpy(), ends.numpy())
        return ends, alpha


def _check(counts: list[int], spellings: list[list[int]], blank: int) -> None:
    if not counts or not all(counts):
        raise InputError(
            f"phrases with {counts or 'no'} spellings came; at least one phrase of one spelling was wanted"
        )
    for spelling in spellings:
        if not spelling or blank in spelling or min(spelling) < 0:
            raise InputError(f"the spelling {spelling} came; phones other than the blank ({blank}) were wanted")
