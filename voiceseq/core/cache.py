"""What was said lately will be said again: a continuous cache beside a language model (Grave et al., 2017).

    p(w | past) = sum over i < t with x_{i+1} = w of exp(s h_t . h_i)  /  sum over i < t of exp(s h_t . h_i)

h_t is the model's state after x_t, which predicts x_{t+1}; the pairs (h_i, x_{i+1}) of the last ``window`` places
before t have all been seen by then, so nothing is known of the future. It is mixed with the model's own distribution.
"""

import torch
from torch import Tensor

from voiceseq.core.masks import check_finite, check_sizes, check_tensor
from voiceseq.errors import InputError

PIECE = 512  # places at once


@torch.no_grad()
def cache_probs(states: Tensor, targets: Tensor, window: int, sharpness: float) -> Tensor:
    """``states (rows, time, size)``, ``targets (rows, time)``: what each state predicts -> the cache's probability of
    each target, ``(rows, time)``; 0 at the first place of a row, where the cache is empty.

    Raises InputError for shapes that do not fit, a window below 1, states that are not finite.
    """
    check_sizes(window=window)
    check_tensor(states, "states")
    check_finite(states, "states")
    if states.dim() != 3 or targets.shape != states.shape[:2]:
        raise InputError(
            f"states {tuple(states.shape)} and targets {tuple(targets.shape)} came; (rows, time, size) and "
            "(rows, time) were wanted"
        )
    return torch.stack([_row(*row, window, sharpness) for row in zip(states, targets, strict=True)])


def _row(states: Tensor, targets: Tensor, window: int, sharpness: float) -> Tensor:
    found = states.new_zeros(len(targets))
    for start in range(0, len(targets), PIECE):
        stop, first = min(start + PIECE, len(targets)), max(0, start - window)
        distance = torch.arange(start, stop)[:, None] - torch.arange(first, stop)
        seen = ((distance > 0) & (distance <= window)).to(states.device)
        likeness = (sharpness * states[start:stop] @ states[first:stop].T).masked_fill(~seen, -torch.inf)
        share = likeness.softmax(1).nan_to_num(0.0)  # nothing is seen at the very first place
        found[start:stop] = (share * (targets[start:stop, None] == targets[first:stop])).sum(1)
    return found


def mixture_weights(log_probs: Tensor, rounds: int = 50) -> Tensor:
    """``(models, events)`` -> ``(models,)``: the shares that make the events likeliest together, by EM.

    Raises InputError for less than one model or event, or an event that no model thinks possible.
    """
    check_tensor(log_probs, "log_probs")
    if log_probs.dim() != 2 or not log_probs.numel():
        raise InputError(f"log_probs has shape {tuple(log_probs.shape)}; (models, events) was wanted")
    if bool(log_probs.isnan().any()) or not bool(log_probs.amax(0).isfinite().all()):
        raise InputError("log_probs holds NaN, or an event that every model finds impossible")
    weights = torch.full((len(log_probs),), 1 / len(log_probs), dtype=torch.float64)
    for _ in range(rounds):
        weights = (log_probs.double() + weights.log()[:, None]).softmax(0).mean(1)
    return weights


def mix(log_probs: Tensor, weights: Tensor) -> Tensor:
    """``(models, events)``, ``(models,)`` -> ``(events,)``: log of the weighted mean of the probabilities."""
    return (log_probs.double() + weights.log()[:, None]).logsumexp(0)
