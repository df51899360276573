"""CTC as a scorer: the probability of each prefix, for joint decoding with an attention decoder or a language model."""

import torch
from torch import Tensor

from voiceseq.core.masks import DIVERGED, check_frames, lengths_mask
from voiceseq.core.scorers import Scorer, State, check_rows
from voiceseq.errors import InputError


class CTCPrefixScorer(Scorer):
    """The CTC probability of each prefix (Watanabe et al. 2017), for joint CTC/attention decoding in one pass.

    With ``psi(h)`` = P(the output begins with h): ``log_probs[c] = log psi(h c) - log psi(h)``, and for the end symbol
    ``log P(the output is h) - log psi(h)``; so the sum over a whole hypothesis is its CTC log-likelihood.
    CTC and decoder share one vocabulary; the ``blank`` (as a token) scores -inf. Inside, in double precision: a
    continuation less likely than e^-700 of its prefix counts as impossible.

    ``log_probs (batch, time, vocabulary)``, normalised and finite; raises InputError otherwise.
    """

    def __init__(self, log_probs: Tensor, lengths: Tensor | None, blank: int, end: int) -> None:
        lengths = check_frames(log_probs, lengths, name="log_probs", advice=DIVERGED)
        if blank == end or not (0 <= blank < log_probs.shape[2] and 0 <= end < log_probs.shape[2]):
            raise InputError(f"blank {blank} and end {end} came; two of the {log_probs.shape[2]} symbols were wanted")
        self.blank, self.end = blank, end
        self.valid = lengths_mask(lengths, log_probs.shape[1])
        # past its last frame an utterance's forward variables stand still (log p = 0) and no prefix grows (p = 0)
        self.frames = log_probs.double().masked_fill(~self.valid[..., None], 0.0)
        self.probs = self.frames.exp().masked_fill(~self.valid[..., None], 0.0)

    def start(self, batch: int) -> State:
        """State: symbol-ended and blank-ended forward variables (rows, time), last token, log psi, utterance."""
        check_rows(self.frames, batch)
        blank_ended = self.frames[:, :, self.blank].cumsum(1)
        symbol_ended = torch.full_like(blank_ended, -torch.inf)
        return symbol_ended, blank_ended, None, blank_ended.new_zeros(batch), torch.arange(batch)

    def score(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        if state[2] is None:  # the start symbol is not emitted: -1 repeats nothing
            state = (*state[:2], torch.full_like(tokens, -1), *state[3:])
        else:
            state = self._append(tokens, state)
        symbol_ended, blank_ended, last, psi, utterance = state
        grown = self._extensions(_before(state, None), utterance)
        known = last.clamp(min=0)
        again = torch.logsumexp(self._emit(_before(state, known), known, utterance), 1)
        grown = grown.scatter(1, known[:, None], again[:, None])
        grown[:, self.end] = torch.logaddexp(symbol_ended[:, -1], blank_ended[:, -1])
        grown[:, self.blank] = -torch.inf
        # of an impossible prefix every continuation is impossible, and not NaN
        return (grown - psi[:, None]).masked_fill((psi == -torch.inf)[:, None], -torch.inf).float(), state

    def _emit(self, before: Tensor, tokens: Tensor, utterance: Tensor) -> Tensor:
        """``before(t) + log p_t(token)`` of each row, -inf past its last frame."""
        return (before + self.frames[utterance, :, tokens]).masked_fill(~self.valid[utterance], -torch.inf)

    def _append(self, tokens: Tensor, state: State) -> State:
        """The forward variables of h c from those of h = ``state``."""
        utterance = state[4]
        emit, past = self.frames[utterance, :, tokens], ~self.valid[utterance]
        before = _before(state, tokens).masked_fill(past, -torch.inf)
        symbol_ended = _accumulate(before, emit)
        closing = _shift(symbol_ended, -torch.inf).masked_fill(past, -torch.inf)
        blank_ended = _accumulate(closing, self.frames[utterance, :, self.blank])
        return symbol_ended, blank_ended, tokens, torch.logsumexp(before + emit, 1), utterance

    def _extensions(self, before: Tensor, utterance: Tensor) -> Tensor:
        """``log sum_t exp(before(t)) p_t(c)`` for all c at once: a product of matrices around the largest term."""
        peak = before.amax(1, keepdim=True).clamp(min=-1e300)
        weight = (before - peak).exp()
        grown = weight.new_empty(len(weight), self.probs.shape[2])
        for index in utterance.unique():  # by utterance, so that no copy of the frames is made for each hypothesis
            rows = utterance == index
            grown[rows] = weight[rows] @ self.probs[index]
        return grown.log() + peak


def _before(state: State, tokens: Tensor | None) -> Tensor:
    """``(rows, time)``: log P(h is out before frame t), in the way that ``tokens`` may follow (None: another symbol).

    The same token again needs a blank between the two; the empty prefix is out before the first frame.
    """
    symbol_ended, blank_ended, last = state[:3]
    total = torch.logaddexp(symbol_ended, blank_ended)
    if tokens is not None:
        total = torch.where((last == tokens)[:, None], blank_ended, total)
    before = _shift(total, -torch.inf)
    before[last < 0, 0] = 0.0
    return before


def _shift(values: Tensor, first: float) -> Tensor:
    """``(rows, time)`` one frame later, with ``first`` before the first frame."""
    return torch.cat([torch.full_like(values[:, :1], first), values[:, :-1]], dim=1)


def _accumulate(incoming: Tensor, emit: Tensor) -> Tensor:
    """``a(t) = logaddexp(a(t-1), incoming(t)) + emit(t)`` for ``(rows, time)`` without a loop over time."""
    path = emit.cumsum(1)
    return path + torch.logcumsumexp(incoming - _shift(path, 0.0), 1)
