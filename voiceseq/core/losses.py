"""Losses on padded sequences: each is a mean over the valid positions, so padding never changes it.

Cross entropy, joint CTC/attention, frame-wise trigger, masked language model, GloVe. CTC itself is in ``ctc.py``,
the losses for large vocabularies in ``softmax.py``.
"""

import math
from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from voiceseq.core.ctc import check_targets as check_ctc_targets
from voiceseq.core.ctc import ctc_loss
from voiceseq.core.masks import (
    DIVERGED,
    check_dtype,
    check_finite,
    check_frames,
    check_tensor,
    check_tokens,
    lengths_mask,
)
from voiceseq.errors import InputError

IGNORE = -100


def cross_entropy(
    logits: Tensor, targets: Tensor, lengths: Tensor | None = None, label_smoothing: float = 0.0
) -> Tensor:
    """-log P(target), averaged over the valid tokens of ``logits (batch, time, symbols)``, ``targets (batch, time)``.

    With smoothing e the wanted distribution is (1 - e) on the target plus e/V on each of the V symbols. What stands
    in the padding of ``targets`` does not matter. Raises ``InputError`` for wrong shapes, lengths, tokens and NaN.
    """
    if not 0.0 <= label_smoothing < 1.0:
        raise InputError(f"label_smoothing is {label_smoothing}; 0 <= label_smoothing < 1 was wanted")
    lengths = check_frames(logits, lengths, name="logits", advice=DIVERGED)
    valid = lengths_mask(lengths, logits.shape[1])
    check_same_time(targets, logits, "targets")
    check_tokens(targets.masked_fill(~valid, 0), lengths, logits.shape[2], "targets")
    return functional.cross_entropy(
        logits.flatten(0, 1),
        targets.long().masked_fill(~valid, IGNORE).flatten(),
        ignore_index=IGNORE,
        label_smoothing=label_smoothing,
    )


class JointLoss(NamedTuple):
    """``loss = weight * ctc + (1 - weight) * attention``; ``skipped`` rows are missing from ``ctc`` alone."""

    loss: Tensor
    ctc: Tensor
    attention: Tensor
    skipped: int


def joint_ctc_attention(
    log_probs: Tensor,
    logits: Tensor,
    targets: Tensor,
    input_lengths: Tensor | None = None,
    target_lengths: Tensor | None = None,
    *,
    eos: int,
    weight: float = 0.3,
    blank: int = 0,
    label_smoothing: float = 0.0,
    impossible: Literal["error", "skip"] = "error",
) -> JointLoss:
    """CTC on the encoder's ``log_probs (batch, time, symbols)``, cross entropy on the decoder's ``logits (batch,
    tokens + 1, symbols)``, both for the same ``targets (batch, tokens)``; the decoder must say ``eos`` after them."""
    if not 0.0 <= weight <= 1.0:
        raise InputError(f"weight is {weight}; 0 (attention alone) to 1 (CTC alone) was wanted")
    ctc, skipped = ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, impossible)
    targets, target_lengths = check_ctc_targets(targets, target_lengths, log_probs, blank)
    attention = cross_entropy(logits, append_token(targets, target_lengths, eos), target_lengths + 1, label_smoothing)
    return JointLoss(weight * ctc + (1 - weight) * attention, ctc, attention, skipped)


def append_token(tokens: Tensor, lengths: Tensor, token: int) -> Tensor:
    """``(batch, time)`` -> ``(batch, time + 1)`` with ``token`` after the last valid one of each row."""
    longer = functional.pad(tokens, (0, 1))
    return longer.scatter(1, lengths[:, None], token)


class TriggerTargets(NamedTuple):
    """What a trigger network should say (0 to 1) and how much each frame counts, both ``(batch, time, words)``."""

    targets: Tensor
    weights: Tensor


def trigger_targets(
    ends: Sequence[Sequence[tuple[int, int]]], words: int, size: int, spread: int, edge: int = 0, ignore: int = 0
) -> TriggerTargets:
    """Targets that are 1 on the ``spread`` frames after the end of each trigger word, 0 elsewhere.

    ``ends`` has for each row the pairs (end, word): ``end`` is the first frame after the word, 0 to ``size``, ``word``
    its number. The first and last ``edge`` of these frames are a ramp, 1/(edge+1), 2/(edge+1), ...; two that overlap
    give the larger value. The ``ignore`` frames before the end and after the spread, where the word is neither surely
    there nor surely not, get weight 0, for this word alone. Raises ``InputError`` for ends outside the clip.
    """
    if min(words, size, spread) < 1 or min(edge, ignore) < 0 or 2 * edge >= spread:
        raise InputError(
            f"words {words}, size {size}, spread {spread}, edge {edge}, ignore {ignore}: the first three want at least "
            "1, the others at least 0, and two edges must leave a frame of the spread between them"
        )
    targets = torch.zeros(len(ends), size, words)
    near = torch.zeros(len(ends), size, words, dtype=torch.bool)
    position = torch.arange(spread)
    ramp = ((torch.minimum(position, spread - 1 - position) + 1) / (edge + 1)).clamp(max=1.0)
    for row, said in enumerate(ends):
        for end, word in said:
            if not (0 <= end <= size and 0 <= word < words):
                raise InputError(
                    f"row {row}: word {word} ends at frame {end}; a word of 0 to {words - 1} and a frame of 0 to "
                    f"{size} were wanted: cut the clip and its labels together"
                )
            after = targets[row, end : end + spread, word]
            after.copy_(torch.maximum(after, ramp[: len(after)]))
            near[row, max(end - ignore, 0) : end + spread + ignore, word] = True
    return TriggerTargets(targets, (~near | (targets > 0)).float())


def trigger_loss(
    logits: Tensor,
    targets: Tensor,
    weights: Tensor | None = None,
    lengths: Tensor | None = None,
    positive_weight: float | Tensor = 1.0,
) -> Tensor:
    """Frame-wise cross entropy of ``logits (batch, time, words)`` against ``targets`` in 0..1 (``trigger_targets``).

        loss = -(positive_weight y log s(x) + (1 - y) log(1 - s(x))),  s the sigmoid

    averaged with ``weights`` over the valid frames and all words. ``positive_weight`` (a number, or ``(words,)``) makes
    up for the few positive frames. Raises ``InputError`` when no valid frame has a weight: that loss would be 0/0.
    """
    lengths = check_frames(logits, lengths, name="logits", advice=DIVERGED)
    weights = torch.ones_like(logits) if weights is None else weights
    _check_like(logits, targets, "targets", highest=1.0)
    _check_like(logits, weights, "weights", highest=torch.inf)
    positive = torch.as_tensor(positive_weight, dtype=logits.dtype, device=logits.device)
    if positive.shape not in ((), logits.shape[2:]) or not bool((positive > 0).all()):
        raise InputError(f"positive_weight is {positive_weight}; a number above 0, or one for each word, was wanted")
    loss = functional.binary_cross_entropy_with_logits(
        logits, targets.to(logits), pos_weight=positive, reduction="none"
    )
    counted = weights.to(logits) * lengths_mask(lengths, logits.shape[1])[..., None]
    total = counted.sum()
    if not bool(total > 0):
        raise InputError("no valid frame has a weight above 0; leave such a batch out or lower trigger_targets' ignore")
    return (loss * counted).sum() / total


class MaskedTokens(NamedTuple):
    """What the network reads, and where (True) it has to say what stood there before; both ``(batch, time)``."""

    tokens: Tensor
    chosen: Tensor


def mask_tokens(
    tokens: Tensor,
    lengths: Tensor | None,
    vocabulary: int,
    mask: int,
    specials: Collection[int] = (),
    rate: float = 0.15,
    generator: torch.Generator | None = None,
) -> MaskedTokens:
    """Choose ``rate`` of the valid tokens; 80% of them become ``mask``, 10% a random token, 10% stay as they are.

    Special tokens (``mask`` is one) are never chosen and never the random token. A row where chance chose nothing has
    one token chosen, if it has any that is not special: every row teaches something. Positions are drawn for the
    whole ``(batch, time)``, so a generator's result belongs to this padding.
    """
    lengths = check_tokens(tokens, lengths, vocabulary)
    special = torch.tensor(sorted({mask, *specials}), device=tokens.device)
    ordinary = torch.tensor(sorted(set(range(vocabulary)) - {mask, *specials}), device=tokens.device)
    if not 0.0 < rate <= 1.0 or not len(ordinary) or not 0 <= mask < vocabulary:
        raise InputError(
            f"rate {rate}, mask {mask}, {len(ordinary)} of {vocabulary} tokens not special: 0 < rate <= 1, a mask of "
            "the vocabulary, and at least one token that is not special were wanted"
        )
    choosable = lengths_mask(lengths, tokens.shape[1]) & ~torch.isin(tokens, special)
    chance = _uniform(tokens, generator).masked_fill(~choosable, 2.0)
    chosen = choosable & ((chance < rate) | (chance == chance.amin(1, keepdim=True)))

    fate = _uniform(tokens, generator)
    stranger = ordinary[(_uniform(tokens, generator) * len(ordinary)).long()]
    masked = torch.where(chosen & (fate < 0.8), mask, tokens)
    return MaskedTokens(torch.where(chosen & (fate >= 0.9), stranger, masked), chosen)


def masked_lm_loss(logits: Tensor, tokens: Tensor, chosen: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Cross entropy of ``logits (batch, time, symbols)`` for the unmasked ``tokens (batch, time)`` where ``chosen``.

    ``chosen`` from ``mask_tokens`` is False on padding, so no lengths are needed. Raises ``InputError`` if it is empty.
    """
    check_frames(logits, name="logits", advice=DIVERGED)
    check_same_time(tokens, logits, "tokens")
    check_same_time(chosen, logits, "chosen")
    if chosen.dtype != torch.bool or not chosen.any():
        raise InputError(
            f"chosen has dtype {chosen.dtype}, {int(chosen.sum())} positions; a bool mask was wanted, not empty"
        )
    return cross_entropy(logits[chosen][None], tokens[chosen][None], label_smoothing=label_smoothing)


def glove_loss(
    words: Tensor,
    contexts: Tensor,
    word_biases: Tensor,
    context_biases: Tensor,
    counts: Tensor,
    maximum: float = 100.0,
    power: float = 0.75,
) -> Tensor:
    """``f(X) (w.c + b_w + b_c - log X)^2``, the mean over pairs seen X times, ``f(X) = min(1, (X / maximum)^power)``.

    ``words``, ``contexts (pairs, dimension)``; biases and ``counts (pairs,)``. Raises ``InputError`` for wrong shapes
    and dtypes, NaN, X <= 0, ``maximum`` <= 0 and ``power`` < 0.
    """
    if not 0 < maximum < math.inf:
        raise InputError(f"maximum is {maximum}; more than 0 was wanted")
    if not 0 <= power < math.inf:
        raise InputError(f"power is {power}; 0 or more was wanted")
    check_tensor(words, "words")
    check_tensor(contexts, "contexts")
    if words.dim() != 2 or words.shape != contexts.shape or not words.numel():
        raise InputError(
            f"words has shape {tuple(words.shape)}, contexts {tuple(contexts.shape)}; (pairs, dimension) was wanted"
        )
    if not words.is_floating_point():
        raise InputError(f"words has dtype {words.dtype}; floating point vectors were wanted")
    for name, values in (("word_biases", word_biases), ("context_biases", context_biases), ("counts", counts)):
        check_tensor(values, name)
        if values.shape != words.shape[:1]:
            raise InputError(f"{name} has shape {tuple(values.shape)}; ({len(words)},) was wanted, one a pair")
    learned = {"words": words, "contexts": contexts, "word_biases": word_biases, "context_biases": context_biases}
    for name, values in learned.items():
        check_dtype(values, words.dtype, name)
        check_finite(values, name, DIVERGED)
    check_finite(counts, "counts")
    if not bool((counts > 0).all()):
        raise InputError(f"counts holds {float(counts.min())}; leave out pairs that were never seen, as log 0 is none")
    counts = counts.to(words.dtype)
    weight = (counts / maximum).pow(power).clamp(max=1.0)
    error = (words * contexts).sum(1) + word_biases + context_biases - counts.log()
    return (weight * error.square()).mean()


def check_same_time(values: Tensor, frames: Tensor, name: str) -> None:
    """Check that ``values (batch, time)`` goes with ``frames (batch, time, ...)``."""
    check_tensor(values, name)
    if values.shape != frames.shape[:2]:
        raise InputError(f"{name} has shape {tuple(values.shape)}; {tuple(frames.shape[:2])} was wanted, as logits has")


def _check_like(logits: Tensor, values: Tensor, name: str, highest: float) -> None:
    """Check that ``values`` has the shape of the logits and is in 0..highest."""
    check_tensor(values, name)
    if values.shape != logits.shape:
        raise InputError(f"{name} has shape {tuple(values.shape)}; {tuple(logits.shape)} was wanted, as logits has")
    check_finite(values.float(), name)
    if bool((values < 0).any()) or bool((values > highest).any()):
        raise InputError(f"{name} holds {float(values.min())} to {float(values.max())}; 0 to {highest} was wanted")


def _uniform(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Drawn where the generator lives (by default on the CPU, so that a seed means the same on every device)."""
    device = generator.device if generator is not None else torch.device("cpu")
    return torch.rand(like.shape, generator=generator, device=device).to(like.device)
