"""CTC forced alignment: on which frames was each token, each word, of a known text said?

The best path through the states ``_ a _ b _`` (Viterbi): the recursion of ``ctc_forward`` with the maximum in the
place of the sum. Scores are kept for one frame only and moves in one byte: ``time * (2 tokens + 1)`` bytes in all.
Where these are too many (an hour of audio), the path is found by halves: the best state in the middle from both ends,
then each half by itself, in twice the time.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from voiceseq.core.ctc import TokenSpan, check_log_probs, check_targets, frames_needed, jumps, path_spans, with_blanks
from voiceseq.errors import InputError

MOST_MOVES = 50_000_000  # kept at once, a byte each


class WordSpan(NamedTuple):
    """The tokens of a word from the first one's start to the last one's end.

    ``confidence`` is the mean probability of the word's tokens over the frames on which they are said (the blanks
    between them do not count).
    """

    tokens: tuple[int, ...]
    start: int
    end: int
    confidence: float


def forced_align(log_probs: Tensor, targets: Tensor | Sequence[int], blank: int = 0) -> list[TokenSpan]:
    """``log_probs (time, symbols)`` and a target ``(tokens,)`` -> one span for each token.

    Frames that belong to no span are blanks. ``InputError`` when the target does not fit the frames or when every
    path has probability 0.
    """
    tokens = torch.as_tensor(targets)
    if log_probs.dim() != 2 or tokens.dim() != 1:
        raise InputError(
            f"log_probs has shape {tuple(log_probs.shape)} and targets {tuple(tokens.shape)}; (time, symbols) and "
            "(tokens,) were wanted: for a batch call forced_align_batch"
        )
    tokens = tokens if tokens.numel() else tokens.long()
    return forced_align_batch(log_probs[None], tokens[None], blank=blank)[0]


def forced_align_batch(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | None = None,
    target_lengths: Tensor | None = None,
    blank: int = 0,
) -> list[list[TokenSpan]]:
    """``log_probs (batch, time, symbols)``, ``targets (batch, tokens)`` -> for each row one span for each token."""
    input_lengths = check_log_probs(log_probs, input_lengths, blank)
    targets, target_lengths = check_targets(targets, target_lengths, log_probs, blank)
    needed = frames_needed(targets, target_lengths)
    frames = log_probs.detach().double().cpu().numpy()
    spans = []
    for row, (length, size) in enumerate(zip(input_lengths.tolist(), target_lengths.tolist(), strict=True)):
        if needed[row] > length:
            raise InputError(
                f"row {row}: {size} tokens need {int(needed[row])} frames, has {length}: is it the right text?"
            )
        labels = with_blanks(targets[row : row + 1, :size].cpu(), blank)
        spans.append(_align_row(frames[row, :length], labels, blank, row))
    return spans


def _align_row(frames: np.ndarray, labels: Tensor, blank: int, row: int) -> list[TokenSpan]:
    states = labels[0].numpy()
    # it may begin and end on a blank or on a token
    path = _best_path(frames, states, jumps(labels, blank)[0].numpy(), 2, 2)
    if path is None:
        raise InputError(f"row {row}: every path through this target has probability 0: is it the right text?")
    said = states[path]
    return path_spans(said, frames[np.arange(len(said)), said], blank)


def _best_path(
    frames: np.ndarray, states: np.ndarray, jump_open: np.ndarray, starts: int, ends: int
) -> np.ndarray | None:
    """The state at each frame of the best path from one of the first ``starts`` states to one of the last ``ends``.

    None where every such path has probability 0.
    """
    if len(frames) * len(states) > MOST_MOVES and len(frames) > 2:
        return _path_by_halves(frames, states, jump_open, starts, ends)
    moves = np.zeros((len(frames), len(states)), dtype=np.int8)
    scores = _viterbi(frames, states, jump_open, starts, moves)
    last = max(range(len(states))[-ends:], key=lambda state: (scores[state], state))
    return None if scores[last] == -np.inf else _trace(moves, last)


def _path_by_halves(
    frames: np.ndarray, states: np.ndarray, jump_open: np.ndarray, starts: int, ends: int
) -> np.ndarray | None:
    """``_best_path`` in memory for one row of scores: the frame in the middle belongs to both halves."""
    middle = len(frames) // 2
    before = _viterbi(frames[: middle + 1], states, jump_open, starts)
    backwards = np.append([False, False], jump_open[2:][::-1])[: len(states)]
    after = _viterbi(frames[middle:][::-1], states[::-1], backwards, ends)[::-1]
    possible = np.isfinite(before)
    both = np.full(len(states), -np.inf)
    both[possible] = (before + after)[possible] - frames[middle].take(states)[possible]
    state = int(both.argmax())
    if both[state] == -np.inf:
        return None
    first = _best_path(frames[: middle + 1], states[: state + 1], jump_open[: state + 1], starts, 1)
    second = _best_path(frames[middle:], states[state:], jump_open[state:], 1, ends)
    return None if first is None or second is None else np.append(first, state + second[1:])


def _viterbi(
    frames: np.ndarray, states: np.ndarray, jump_open: np.ndarray, starts: int, moves: np.ndarray | None = None
) -> np.ndarray:
    """The last frame's scores ``(states,)``; ``moves (time, states)`` is told by how many states (0, 1, 2) the best
    path to each place just moved."""
    padded = np.full(len(states) + 2, -np.inf)  # two states before the first, from which nothing comes
    stay, step, jump = padded[2:], padded[1:-1], padded[:-2]
    stay[:starts] = frames[0, states[:starts]]
    shut = np.where(jump_open, 0.0, -np.inf)
    jumped, best = np.empty_like(shut), np.empty_like(shut)
    for t in range(1, len(frames)):
        np.add(jump, shut, out=jumped)
        np.maximum(step, stay, out=best)
        if moves is not None:
            np.greater(step, stay, out=moves[t], casting="unsafe")
            np.putmask(moves[t], jumped > best, 2)
        np.maximum(best, jumped, out=best)
        np.add(best, frames[t].take(states), out=stay)
    return stay


def _trace(moves: np.ndarray, state: int) -> np.ndarray:
    """The state at each frame of the best path that ends in ``state``."""
    path = np.empty(len(moves), dtype=np.int64)
    for t in range(len(moves) - 1, -1, -1):
        path[t] = state
        state -= int(moves[t, state])
    return path


def word_spans(
    spans: Sequence[TokenSpan], *, word_lengths: Sequence[int] | None = None, separator: int | None = None
) -> list[WordSpan]:
    """Group token spans into words: ``word_lengths`` tokens each, or cut at every ``separator`` (in no word)."""
    if (word_lengths is None) == (separator is None):
        raise InputError("word_spans wants either word_lengths or a separator token, and not both")
    if word_lengths is None:
        cut = [list(word) for apart, word in groupby(spans, lambda span: span.token == separator) if not apart]
        return [_joined(word) for word in cut]
    if sum(word_lengths) != len(spans) or any(length < 1 for length in word_lengths):
        raise InputError(
            f"word_lengths {list(word_lengths)[:20]} adds up to {sum(word_lengths)} tokens; {len(spans)} were aligned, "
            "and each word wants at least one"
        )
    ends = np.cumsum(word_lengths).tolist()
    return [_joined(spans[end - length : end]) for end, length in zip(ends, word_lengths, strict=True)]


def _joined(spans: Sequence[TokenSpan]) -> WordSpan:
    frames = [span.end - span.start for span in spans]
    confidence = float(np.average([span.confidence for span in spans], weights=frames))
    return WordSpan(tuple(span.token for span in spans), spans[0].start, spans[-1].end, confidence)
