"""The inner loops of ``voiceseq.models.embeddings``, compiled by numba: a word at a time is too little for torch.

Each changes its matrices in place by one step of gradient descent a pair of words: v += rate * (1 - s(v.u)) u for what
stands together, v -= rate * s(v.u) u for noise, s the sigmoid. ``state`` is one 64 bit number, the chance of a call.
"""

import math
from typing import Any

import numpy as np
from numba import njit

compiled: Any = njit(cache=True, nogil=True, error_model="numpy", fastmath=True)


@compiled
def draw(state):  # type: ignore[no-untyped-def]
    """The next random number in 0..1 (xorshift64*); ``state (1,)`` of uint64 moves on."""
    value = state[0]
    value ^= value >> np.uint64(12)
    value ^= value << np.uint64(25)
    value ^= value >> np.uint64(27)
    state[0] = value
    return ((value * np.uint64(2685821657736338717)) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@compiled
def noise_word(state, cut, other):  # type: ignore[no-untyped-def]
    """A word of the noise distribution by Walker's alias table: ``cut`` and ``other`` ``(vocabulary,)``."""
    place = draw(state) * len(cut)
    column = int(place)
    return column if place - column < cut[column] else other[column]


@compiled
def teach(vector, gradient, output, label, rate):  # type: ignore[no-untyped-def]
    """One sigmoid: ``output`` moves, what ``vector`` owes is added to ``gradient``; label 1 together, 0 not."""
    product = np.float32(0.0)
    for i in range(len(vector)):
        product += vector[i] * output[i]
    step = np.float32(rate * (label - 1.0 / (1.0 + math.exp(-product))))
    for i in range(len(vector)):
        gradient[i] += step * output[i]
        output[i] += step * vector[i]


@compiled
def predict(vector, gradient, word, outputs, rate, negatives, cut, other, nodes, turns, state):  # type: ignore[no-untyped-def]
    """One prediction of ``word`` from ``vector``: noise words, or without them the way down the tree."""
    gradient[:] = 0.0
    if negatives:
        teach(vector, gradient, outputs[word], 1.0, rate)
        for _ in range(negatives):
            noise = noise_word(state, cut, other)
            if noise != word:
                teach(vector, gradient, outputs[noise], 0.0, rate)
        return
    for place in range(nodes.shape[1]):
        turn = turns[word, place]
        if turn == 0:
            return
        teach(vector, gradient, outputs[nodes[word, place]], 0.5 + 0.5 * turn, rate)


@compiled
def learn_text(tokens, starts, keep, window, cbow, inputs, outputs, rate, negatives, cut, other, nodes, turns, state):  # type: ignore[no-untyped-def]
    """Go through the sentences ``tokens[starts[i]:starts[i + 1]]`` once; returns how many predictions were made.

    A word stays with probability ``keep[word]``. The window of a word is 1 to ``window`` wide, at random. Skip-gram
    predicts the word from each word of its window, CBOW from their mean.
    """
    size = inputs.shape[1]
    gradient, mean = np.zeros(size, np.float32), np.zeros(size, np.float32)
    longest = 0
    for i in range(len(starts) - 1):
        longest = max(longest, starts[i + 1] - starts[i])
    kept = np.empty(longest, np.int64)
    predictions = 0
    for i in range(len(starts) - 1):
        count = 0
        for token in tokens[starts[i] : starts[i + 1]]:
            if keep[token] >= 1.0 or draw(state) < keep[token]:
                kept[count] = token
                count += 1
        for centre in range(count):
            reach = 1 + int(draw(state) * window)
            first, last = max(0, centre - reach), min(count, centre + reach + 1)
            if last - first < 2:
                continue
            word = kept[centre]
            if not cbow:
                for place in range(first, last):
                    if place != centre:
                        vector = inputs[kept[place]]
                        predict(vector, gradient, word, outputs, rate, negatives, cut, other, nodes, turns, state)
                        for k in range(size):
                            vector[k] += gradient[k]
                        predictions += 1
                continue
            mean[:] = 0.0
            share = np.float32(1.0 / (last - first - 1))
            for place in range(first, last):
                if place != centre:
                    mean += inputs[kept[place]] * share
            predict(mean, gradient, word, outputs, rate, negatives, cut, other, nodes, turns, state)
            for place in range(first, last):
                if place != centre:
                    for k in range(size):
                        inputs[kept[place], k] += gradient[k] * share
            predictions += 1
    return predictions


@compiled
def learn_counts(rows, columns, counts, inputs, outputs, biases, squares, rate, maximum, power):  # type: ignore[no-untyped-def]
    """GloVe by AdaGrad: f(X) (w.c + b_w + b_c - log X)^2, a pair at a time; returns the sum of the losses.

    ``biases (2, vocabulary)``; ``squares`` are the sums of squared gradients, ``(2, vocabulary, dimension + 1)``.
    """
    size, total = inputs.shape[1], 0.0
    for n in range(len(rows)):
        i, j = rows[n], columns[n]
        gap = biases[0, i] + biases[1, j] - math.log(counts[n])
        for k in range(size):
            gap += inputs[i, k] * outputs[j, k]
        weight = min(1.0, (counts[n] / maximum) ** power)
        total += weight * gap * gap
        slope = np.float32(2.0 * weight * gap)
        for k in range(size):
            one, two = slope * outputs[j, k], slope * inputs[i, k]
            squares[0, i, k] += one * one
            squares[1, j, k] += two * two
            inputs[i, k] -= rate * one / math.sqrt(squares[0, i, k])
            outputs[j, k] -= rate * two / math.sqrt(squares[1, j, k])
        for side, word in ((0, i), (1, j)):
            squares[side, word, size] += slope * slope
            biases[side, word] -= rate * slope / math.sqrt(squares[side, word, size])
    return total
