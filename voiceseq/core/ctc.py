"""Connectionist temporal classification: the collapse rule, the loss, greedy decoding.

A network says at each frame one of V symbols, of which one (``blank``) means "nothing new". ``collapse`` merges repeats
and drops blanks: ``ttt_h_eee___ ___q`` -> ``the q``. The probability of a target is the sum over all the strings that
collapse to it; ``ctc_forward`` adds them up as in the lecture, ``ctc_loss`` does the same on torch's kernel.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from voiceseq.core.masks import DIVERGED, check_finite, check_lengths, lengths_mask
from voiceseq.errors import InputError

Symbol = TypeVar("Symbol")
NEVER = -1e30  # log of a probability of zero that, unlike -inf, has a gradient


class TokenSpan(NamedTuple):
    """A token on the frames ``start <= frame < end``; ``confidence`` is its mean probability over these frames."""

    token: int
    start: int
    end: int
    confidence: float


class CTCLoss(NamedTuple):
    """The mean loss, and how many rows were left out of it because their target does not fit their input."""

    loss: Tensor
    skipped: int


class Greedy(NamedTuple):
    """``tokens`` after the collapse, ``score`` = log-probability of the best frame string, ``spans`` of the tokens."""

    tokens: list[int]
    score: float
    spans: list[TokenSpan]


def collapse(tokens: Sequence[Symbol], blank: Symbol) -> list[Symbol]:
    """Merge repeats, then drop the blanks."""
    return [symbol for symbol, _ in groupby(tokens) if symbol != blank]


def frames_needed(targets: Tensor, target_lengths: Tensor) -> Tensor:
    """``(batch,)``, the fewest frames that can say each target: its tokens and a blank between two equal ones."""
    repeats = (targets[:, 1:] == targets[:, :-1]) & lengths_mask(target_lengths - 1, max(targets.shape[1] - 1, 0))
    return target_lengths + repeats.sum(1)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | None = None,
    target_lengths: Tensor | None = None,
    blank: int = 0,
    impossible: Literal["error", "skip"] = "error",
) -> CTCLoss:
    """-log P(target | input) per target token (an empty target counts as one), averaged over the rows.

    ``log_probs (batch, time, symbols)`` must come from ``log_softmax``: torch's kernel returns the gradient that is
    right after it. ``targets (batch, tokens)``; what stands in the padding does not matter, lengths of 0 are legal.

    A target longer than its input permits has probability 0. By default that is an ``InputError`` that lists the
    rows; with ``impossible="skip"`` they are left out of the mean and counted in ``skipped``. Where a whole batch is
    left out, the loss is 0 with gradient 0 and ``skipped`` equals the batch: look at it before you log the loss.
    """
    if impossible not in ("error", "skip"):
        raise InputError(f"impossible={impossible!r} is unknown; give 'error' or 'skip'")
    input_lengths = check_log_probs(log_probs, input_lengths, blank)
    check_finite(log_probs, "log_probs")
    targets, target_lengths = check_targets(targets, target_lengths, log_probs, blank)
    fits = frames_needed(targets, target_lengths) <= input_lengths
    skipped = int((~fits).sum())
    if skipped and impossible == "error":
        raise InputError(_too_long(fits, targets, input_lengths, target_lengths))
    if skipped == len(fits):
        return CTCLoss(log_probs.sum() * 0.0, skipped)
    if skipped:
        log_probs, targets, input_lengths, target_lengths = (
            rows[fits] for rows in (log_probs, targets, input_lengths, target_lengths)
        )
    loss = functional.ctc_loss(
        _at_least_single(log_probs).transpose(0, 1), targets, input_lengths, target_lengths, blank, reduction="mean"
    )
    return CTCLoss(loss, skipped)


def ctc_forward(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | None = None,
    target_lengths: Tensor | None = None,
    blank: int = 0,
) -> Tensor:
    """log P(target | input) ``(batch,)`` by the forward algorithm; -inf where the target does not fit.

    ``alpha[t, s]`` is the log-probability of all the beginnings of t frames that end in state s of ``_ a _ b _``:

        alpha[t, s] = log_probs[t, label s] + logsumexp(alpha[t-1, s], alpha[t-1, s-1], alpha[t-1, s-2])

    where the last term, the jump over a blank, is open only between two different tokens.
    """
    input_lengths = check_log_probs(log_probs, input_lengths, blank)
    check_finite(log_probs, "log_probs")
    targets, target_lengths = check_targets(targets, target_lengths, log_probs, blank)
    labels = with_blanks(targets, blank)
    emit = _at_least_single(log_probs).gather(2, labels[:, None].expand(-1, log_probs.shape[1], -1))
    shut = ~jumps(labels, blank)

    started = torch.arange(labels.shape[1], device=labels.device) < 2
    alpha = emit[:, 0].masked_fill(~started, NEVER)
    for t in range(1, emit.shape[1]):
        stay, step, jump = alpha, _later(alpha, 1), _later(alpha, 2).masked_fill(shut, NEVER)
        moved = emit[:, t] + torch.stack([stay, step, jump]).logsumexp(0)
        alpha = torch.where((t < input_lengths)[:, None], moved, alpha)

    last_blank = alpha.gather(1, 2 * target_lengths[:, None])
    last_token = alpha.gather(1, (2 * target_lengths[:, None] - 1).clamp(min=0))
    last_token = last_token.masked_fill(target_lengths[:, None] == 0, NEVER)
    total = torch.logaddexp(last_blank, last_token).squeeze(1)
    return total.masked_fill(total < NEVER / 2, -torch.inf)


def with_blanks(targets: Tensor, blank: int) -> Tensor:
    """``(batch, tokens)`` -> ``(batch, 2 tokens + 1)``: a blank before, between and after the tokens."""
    labels = targets.new_full((targets.shape[0], 2 * targets.shape[1] + 1), blank)
    labels[:, 1::2] = targets
    return labels


def jumps(labels: Tensor, blank: int) -> Tensor:
    """``(batch, states)``, True where a path may come from two states before: over a blank, to a different token."""
    allowed = torch.zeros_like(labels, dtype=torch.bool)
    allowed[:, 2:] = (labels[:, 2:] != blank) & (labels[:, 2:] != labels[:, :-2])
    return allowed


def ctc_greedy(log_probs: Tensor, lengths: Tensor | None = None, blank: int = 0) -> list[Greedy]:
    """The most probable symbol of each frame, collapsed; one result for each row of ``(batch, time, symbols)``."""
    lengths = check_log_probs(log_probs, lengths, blank)
    scores, best = log_probs.detach().max(-1)
    rows = zip(best.cpu().numpy(), scores.double().cpu().numpy(), lengths.tolist(), strict=True)
    return [_greedy_row(path[:length], score[:length], blank) for path, score, length in rows]


def _greedy_row(path: np.ndarray, scores: np.ndarray, blank: int) -> Greedy:
    spans = path_spans(path, scores, blank)
    return Greedy([span.token for span in spans], float(scores.sum()), spans)


def path_spans(path: np.ndarray, scores: np.ndarray, blank: int) -> list[TokenSpan]:
    """The tokens of a frame string ``path (time,)`` with the log-probabilities ``scores (time,)`` of its symbols."""
    starts = np.flatnonzero(np.diff(path, prepend=path[0] - 1))
    ends = np.append(starts[1:], len(path))
    means = np.add.reduceat(np.exp(scores), starts) / (ends - starts)
    runs = zip(path[starts].tolist(), starts.tolist(), ends.tolist(), means.tolist(), strict=True)
    return [TokenSpan(*run) for run in runs if run[0] != blank]


def check_log_probs(log_probs: Tensor, lengths: Tensor | None, blank: int) -> Tensor:
    """Check ``log_probs (batch, time, symbols)`` and return its lengths; -inf (a probability of 0) is allowed."""
    if log_probs.dim() != 3 or not log_probs.is_floating_point() or not log_probs.numel():
        raise InputError(
            f"log_probs has shape {tuple(log_probs.shape)}, dtype {log_probs.dtype}; "
            "floating point (batch, time, symbols) was wanted, with at least one of each"
        )
    if not 0 <= blank < log_probs.shape[2]:
        raise InputError(f"blank is {blank}; 0 to {log_probs.shape[2] - 1} was wanted, as log_probs has these symbols")
    highest = float(log_probs.detach().max())
    if np.isnan(highest):
        raise InputError(f"log_probs holds NaN; {DIVERGED}")
    if highest > 1e-2:
        raise InputError(f"log_probs holds {highest:.3g}, a probability above 1; apply log_softmax to the logits first")
    return check_lengths(lengths, log_probs.shape[0], log_probs.shape[1], log_probs.device)


def check_targets(targets: Tensor, lengths: Tensor | None, log_probs: Tensor, blank: int) -> tuple[Tensor, Tensor]:
    """Check ``targets (batch, tokens)``, which may be empty; return them, padded with blanks, and their lengths."""
    batch, symbols = log_probs.shape[0], log_probs.shape[2]
    if targets.dim() != 2 or targets.shape[0] != batch or targets.is_floating_point() or targets.dtype == torch.bool:
        raise InputError(
            f"targets has shape {tuple(targets.shape)}, dtype {targets.dtype}; ({batch}, tokens) long was wanted"
        )
    lengths = _check_target_lengths(lengths, batch, targets.shape[1]).to(log_probs.device)
    targets = targets.to(log_probs.device, torch.long)
    valid = lengths_mask(lengths, targets.shape[1])
    wrong = valid & ((targets < 0) | (targets >= symbols) | (targets == blank))
    if wrong.any():
        row = int(wrong.any(1).nonzero()[0])
        raise InputError(
            f"targets row {row} holds {int(targets[wrong][0])}; 0 to {symbols - 1} was wanted, except the blank {blank}"
        )
    return targets.masked_fill(~valid, blank), lengths


def _check_target_lengths(lengths: Tensor | None, batch: int, size: int) -> Tensor:
    """As ``check_lengths``, but nothing to say is a legal target."""
    if lengths is None:
        return torch.full((batch,), size, dtype=torch.long)
    if lengths.shape != (batch,) or lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise InputError(
            f"target_lengths has shape {tuple(lengths.shape)}, dtype {lengths.dtype}; ({batch},) long was wanted"
        )
    wrong = (lengths < 0) | (lengths > size)
    if wrong.any():
        row = int(wrong.nonzero()[0])
        raise InputError(f"target_lengths[{row}] is {int(lengths[row])}; 0 to {size}, the width of targets, was wanted")
    return lengths.to(torch.long)


def _too_long(fits: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor) -> str:
    needed = frames_needed(targets, target_lengths)
    rows = (~fits).nonzero().squeeze(1).tolist()
    listed = "; ".join(
        f"row {row}: {int(target_lengths[row])} tokens need {int(needed[row])} frames, has {int(input_lengths[row])}"
        for row in rows[:10]
    )
    return (
        f"{len(rows)} of {len(fits)} targets are longer than their input permits ({listed}"
        f"{'; ...' if len(rows) > 10 else ''}): subsample less, drop these rows, or give impossible='skip'"
    )


def _later(alpha: Tensor, states: int) -> Tensor:
    """``alpha`` moved to later states; nothing comes from before the first."""
    return functional.pad(alpha, (states, 0), value=NEVER)[:, : alpha.shape[1]]


def _at_least_single(log_probs: Tensor) -> Tensor:
    """Half precision cannot add up a thousand frames (and torch's kernel does not take it)."""
    return log_probs.float() if log_probs.dtype in (torch.float16, torch.bfloat16) else log_probs
