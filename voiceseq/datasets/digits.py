"""Handwritten digits as scikit-learn carries them (8 x 8, 1797 of them): rows of them, and clips of moving ones."""

import random
from functools import lru_cache

import numpy as np

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
MOVES = ("left", "right", "turning")
HEIGHT, CANVAS = 8, 16


@lru_cache(maxsize=1)
def digits() -> tuple[np.ndarray, np.ndarray]:
    """``(images (1797, 8, 8) in 0..1, numbers)``."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return found.images.astype(np.float32) / 16, found.target


def chosen(held_out: bool) -> np.ndarray:
    """The numbers of the images for training, or of the held-out fifth (the last ones: other people wrote them)."""
    count = len(digits()[0])
    return np.arange(int(0.8 * count), count) if held_out else np.arange(int(0.8 * count))


def caption(numbers: list[int]) -> str:
    """A seven and an eight, say, in small letters."""
    return " and ".join(f"{'an' if number == 8 else 'a'} {NUMBERS[number]}" for number in numbers)


def columns(image: np.ndarray) -> np.ndarray:
    """An image ``(8, width)`` as frames ``(width, 24)``: each column with the one before and the one after it."""
    padded = np.pad(image, ((0, 0), (1, 1)))
    return np.concatenate([padded[:, :-2], padded[:, 1:-1], padded[:, 2:]]).T.astype(np.float32)


def captioned(seed: int, number: int, held_out: bool = False) -> tuple[np.ndarray, str]:
    """Picture ``number`` of the endless list of this seed, ``(8, width)``, with its caption: one to three digits."""
    chance = random.Random(f"caption {seed} {number} {held_out}")
    images, labels = digits()
    picked = [int(chance.choice(chosen(held_out))) for _ in range(chance.randint(1, 3))]
    parts = [np.zeros((HEIGHT, chance.randint(0, 3)), np.float32)]
    for one in picked:
        parts += [images[one], np.zeros((HEIGHT, chance.randint(0, 3)), np.float32)]
    return np.concatenate(parts, 1), caption([int(labels[one]) for one in picked])


def clip(seed: int, number: int, held_out: bool = False) -> tuple[np.ndarray, int]:
    """Clip ``number``: frames ``(time, 16 * 16)`` of a digit that goes left, goes right or turns, and which of them."""
    from scipy.ndimage import rotate, shift

    chance = random.Random(f"clip {seed} {number} {held_out}")
    move, time = chance.randrange(len(MOVES)), chance.randint(6, 14)
    image = np.pad(digits()[0][int(chance.choice(chosen(held_out)))], (CANVAS - HEIGHT) // 2)
    speed, angle = chance.uniform(0.4, 0.9), chance.choice((-1, 1)) * chance.uniform(8, 25)
    row, start = chance.uniform(-3, 3), chance.uniform(-3, 3)
    sign = -1 if move == 0 else 1
    frames = []
    for t in range(time):
        across = start + sign * speed * (t - time / 2) if move < 2 else start
        turned = rotate(image, angle * t, reshape=False, order=1) if move == 2 else image
        frames.append(shift(turned, (row, across), order=1))
    noise = np.random.default_rng([seed, number, int(held_out)])
    still = np.stack(frames) + 0.05 * noise.standard_normal((time, CANVAS, CANVAS))
    return still.reshape(time, -1).clip(0, 1).astype(np.float32), move
