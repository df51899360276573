"""Where a head is wrong: its scores over hours of frames, and the spots at which it was surest."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from voiceseq.models.trigger import Head, PhoneHead
from voiceseq.wakeword.windows import Example, Frames, Spot, gather

PIECE, WARM = 3000, 100  # frames: streams are heard in pieces, many at once, each after a little of what came before


def listen(head: Head | PhoneHead, streams: Sequence[Frames], rows: int = 48) -> list[NDArray[np.float32]]:
    """Logits ``(time, words)`` of each stream."""
    places = [(number, first) for number, frames in enumerate(streams) for first in range(0, len(frames), PIECE)]
    places.sort(key=lambda place: min(PIECE, len(streams[place[0]]) - place[1]))  # alike lengths together
    heard = [np.zeros((len(frames), head.words), np.float32) for frames in streams]
    was_training = head.training
    head.eval()
    for start in range(0, len(places), rows):
        part = places[start : start + rows]
        batch = gather([Example(streams[n][max(0, first - WARM) : first + PIECE]) for n, first in part])
        with torch.inference_mode():
            logits = head(batch.frames, lengths=batch.lengths)[0].numpy()
        for row, (number, first) in zip(logits, part, strict=True):
            skip, target = min(first, WARM), heard[number][first : first + PIECE]
            target[:] = row[skip : skip + len(target)]
    head.train(was_training)
    return heard


def peaks(scores: NDArray[np.float32], apart: int) -> list[int]:
    """Frames of the local maxima of ``scores (time,)``, at least ``apart`` from a higher one, the highest first."""
    blocks = -(-len(scores) // apart)
    padded = np.full(blocks * apart, -np.inf, np.float32)
    padded[: len(scores)] = scores
    best = padded.reshape(blocks, apart).argmax(1) + np.arange(blocks) * apart  # no more than one of a block survives
    found: list[int] = []
    taken = np.zeros(len(scores) + 2 * apart, bool)
    for frame in best[np.argsort(-padded[best], kind="stable")].tolist():
        if not taken[frame + apart]:
            found.append(frame)
            taken[frame : frame + 2 * apart] = True
    return found


def hard_spots(scores: Sequence[NDArray[np.float32]], count: int, apart: int = 33) -> list[Spot]:
    """The ``count`` highest peaks of each word over all streams."""
    spots: list[Spot] = []
    for word in range(scores[0].shape[1]):
        found = [
            Spot(number, frame, word, float(values[frame, word]))
            for number, values in enumerate(scores)
            for frame in peaks(values[:, word], apart)[:count]
        ]
        spots += sorted(found, key=lambda spot: -spot.score)[:count]
    return spots
