"""The inner loops of a detector on a stream, compiled by numba: each sum is added up in one order, whatever the chunk.

That is what BLAS does not promise, and why any cut of a stream gives the same scores to the last bit. Arrays are
float32 and contiguous; nothing is checked here. ``group`` is a network among several of one shape: a backbone is one
group, the heads that listen to it are as many as there are heads.
"""

from typing import Any

import numpy as np
from numba import njit

F = np.float32
# "contract" lets a product and a sum be one instruction; sums are never reordered.
compiled: Any = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
inlined: Any = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"}, inline="always")


@inlined
def tanh(x):  # type: ignore[no-untyped-def]
    """Lambert's continued fraction at x / 4, then ``tanh 2a = 2 tanh a / (1 + tanh^2 a)`` twice; good to 2e-7."""
    x = F(0.25) * min(max(x, F(-9.0)), F(9.0))
    s = x * x
    p = x * (F(135135) + s * (F(17325) + s * (F(378) + s)))
    q = F(135135) + s * (F(62370) + s * (F(3150) + s * F(28)))
    p, q = F(2) * p * q, p * p + q * q
    return F(2) * p * q / (p * p + q * q)


@compiled
def weigh(samples, hop, window, count, padded):  # type: ignore[no-untyped-def]
    """``samples (n,)`` -> ``padded (count, fft)``: each frame's samples times the window, zeros after them."""
    for t in range(count):
        for i in range(len(window)):
            padded[t, i] = samples[t * hop + i] * window[i]
        for i in range(len(window), padded.shape[1]):
            padded[t, i] = F(0)


@compiled
def log_mel(spectrum, bands, filters, floor, level, spread, out):  # type: ignore[no-untyped-def]
    """``spectrum (time, bins)`` -> ``out (time, mels)``: band m weighs the bins ``bands[m, 0] .. bands[m, 1] - 1``."""
    time, bins = spectrum.shape
    power = np.empty(bins, F)
    for t in range(time):
        for i in range(bins):
            value = spectrum[t, i]
            power[i] = value.real * value.real + value.imag * value.imag
        for m in range(len(filters)):
            energy = F(0)
            for i in range(bands[m, 0], bands[m, 1]):
                energy += filters[m, i] * power[i]
            out[t, m] = (np.log(max(energy, floor)) - level) / spread


@compiled
def dense(x, step, weight, bias, out):  # type: ignore[no-untyped-def]
    """``out[t, group] = bias[group] + x[t * step + group * size :][:size] @ weight[group]``.

    ``x`` is flat, ``weight (groups, size, outputs)``, ``out (time, groups, outputs)``. With a ``step`` below
    ``groups * size`` the rows of x overlap: a convolution.
    """
    time, groups, outputs = out.shape
    size = weight.shape[1]
    for group in range(groups):
        for t in range(time):
            for n in range(outputs):
                out[t, group, n] = bias[group, n]
        add_frames(x[group * size :], step, weight[group], out, group)


@compiled
def residual(x, kept, dilations, weight, bias, gain, shift):  # type: ignore[no-untyped-def]
    """``x (time, size)`` through layers of ``x + relu(norm(convolution(x)))``, in place; ``kept`` moves on.

    ``weight (layers, kernel, size, size)``, the others ``(layers, size)``; ``kept`` has the rows that each layer will
    want again, ``(kernel - 1) * dilation`` of them, layer by layer.
    """
    time, size = x.shape
    y = np.empty((time, 1, size), F)
    first = 0
    for layer in range(len(dilations)):
        context = (weight.shape[1] - 1) * dilations[layer]
        held = np.empty((context + time, size), F)
        held[:context] = kept[first : first + context]
        held[context:] = x
        kept[first : first + context] = held[time:]
        first += context
        for t in range(time):
            for n in range(size):
                y[t, 0, n] = bias[layer, n]
        for tap in range(weight.shape[1]):
            add_frames(held[tap * dilations[layer] :].reshape(-1), size, weight[layer, tap], y, 0)
        normalise(y, gain[layer : layer + 1], shift[layer : layer + 1], True)
        for t in range(time):
            for n in range(size):
                x[t, n] += y[t, 0, n]


@compiled
def add_frames(x, step, rows, out, group):  # type: ignore[no-untyped-def]
    """``out[t, group] += x[t * step :][: len(rows)] @ rows``. Three frames share each look at the weights."""
    time = len(out)
    for t in range(0, time - 2, 3):
        a, b, c = x[t * step :], x[(t + 1) * step :], x[(t + 2) * step :]
        add_products(a, b, c, rows, out[t, group], out[t + 1, group], out[t + 2, group])
    for t in range(time - time % 3, time):
        add_product(x[t * step :], rows, out[t, group])


@compiled
def add_products(a, b, c, rows, u, v, w):  # type: ignore[no-untyped-def]
    """``add_product`` for three frames, which share each look at the weights."""
    for k in range(0, len(rows) - len(rows) % 4, 4):
        a0, a1, a2, a3 = a[k], a[k + 1], a[k + 2], a[k + 3]
        b0, b1, b2, b3 = b[k], b[k + 1], b[k + 2], b[k + 3]
        c0, c1, c2, c3 = c[k], c[k + 1], c[k + 2], c[k + 3]
        for n in range(len(u)):
            r0, r1, r2, r3 = rows[k, n], rows[k + 1, n], rows[k + 2, n], rows[k + 3, n]
            u[n] += a0 * r0 + a1 * r1 + a2 * r2 + a3 * r3
            v[n] += b0 * r0 + b1 * r1 + b2 * r2 + b3 * r3
            w[n] += c0 * r0 + c1 * r1 + c2 * r2 + c3 * r3
    add_rest(a, rows, u)
    add_rest(b, rows, v)
    add_rest(c, rows, w)


@compiled
def add_product(x, rows, y):  # type: ignore[no-untyped-def]
    """``y += x @ rows``, four rows at a time."""
    for k in range(0, len(rows) - len(rows) % 4, 4):
        x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
        for n in range(len(y)):
            y[n] += x0 * rows[k, n] + x1 * rows[k + 1, n] + x2 * rows[k + 2, n] + x3 * rows[k + 3, n]
    add_rest(x, rows, y)


@compiled
def add_rest(x, rows, y):  # type: ignore[no-untyped-def]
    """The last rows, where their number is no multiple of four."""
    for k in range(len(rows) - len(rows) % 4, len(rows)):
        for n in range(len(y)):
            y[n] += x[k] * rows[k, n]


@compiled
def normalise(x, gain, bias, rectify):  # type: ignore[no-untyped-def]
    """Layer norm of each row of ``x (time, groups, size)`` in place, with its ReLU if asked for."""
    time, groups, size = x.shape
    for t in range(time):
        for group in range(groups):
            row = x[t, group]
            mean = F(0)
            for n in range(size):
                mean += row[n]
            mean /= F(size)
            variance = F(0)
            for n in range(size):
                variance += (row[n] - mean) * (row[n] - mean)
            scale = F(1) / np.sqrt(variance / F(size) + F(1e-5))
            for n in range(size):
                value = (row[n] - mean) * scale * gain[group, n] + bias[group, n]
                row[n] = max(value, F(0)) if rectify else value


@compiled
def gru(projected, weight, bias, state, out):  # type: ignore[no-untyped-def]
    """``projected (time, groups, 3 * size)`` = W_ih x + b_ih -> ``out (time, groups, size)``; ``state`` moves on.

    Gate order as in torch: reset, update, candidate; ``weight (groups, size, 3 * size)``.
    """
    time, groups, size = out.shape
    recurrent = np.empty(3 * size, F)
    for group in range(groups):
        h = state[group]
        for t in range(time):
            for n in range(3 * size):
                recurrent[n] = bias[group, n]
            add_product(h, weight[group], recurrent)
            step(projected[t, group], recurrent, h)
            for n in range(size):
                out[t, group, n] = h[n]


@compiled
def step(x, r, h):  # type: ignore[no-untyped-def]
    """The gates' equations: ``h = (1 - update) * candidate + update * h``."""
    size = len(h)
    for n in range(size):
        reset = F(0.5) + F(0.5) * tanh(F(0.5) * (x[n] + r[n]))
        update = F(0.5) + F(0.5) * tanh(F(0.5) * (x[size + n] + r[size + n]))
        candidate = tanh(x[2 * size + n] + reset * r[2 * size + n])
        h[n] = candidate + update * (h[n] - candidate)


@compiled
def squash(x):  # type: ignore[no-untyped-def]
    """tanh of a flat array, in place."""
    for n in range(len(x)):
        x[n] = tanh(x[n])
