"""The inner loop of `voiceseq.core.spotting`, compiled by numba; imported there at its first use."""

import math
from typing import Any

from numba import njit

NEVER = -1e30  # as in `voiceseq.core.ctc`
compiled: Any = njit(cache=True, nogil=True, error_model="numpy")


@compiled
def advance(log_probs, lengths, labels, shut, last, alpha, ends):  # type: ignore[no-untyped-def]
    """``alpha (batch, spellings, states)`` moves on in place, ``ends (batch, time, spellings)`` is filled.

    A frame goes from the last state to the first, so that each finds the values of the frame before.
    """
    batch, time, _ = log_probs.shape
    for row in range(batch):
        for t in range(time):
            for one in range(len(labels)):
                if t < lengths[row]:
                    move(log_probs[row, t], labels[one], shut[one], last[one], alpha[row, one])
                ends[row, t, one] = alpha[row, one, last[one]]


@compiled
def move(log_probs, labels, shut, last, alpha):  # type: ignore[no-untyped-def]
    """One spelling at one frame; the states after its last are left alone."""
    for s in range(last, -1, -1):
        stay = alpha[s]
        step = alpha[s - 1] if s > 0 else 0.0
        jump = NEVER if shut[s] else alpha[s - 2]
        highest = max(stay, step, jump)
        if highest < -1e29:
            alpha[s] = NEVER
            continue
        total = math.exp(stay - highest) + math.exp(step - highest) + math.exp(jump - highest)
        alpha[s] = max(NEVER, log_probs[labels[s]] + highest + math.log(total))
