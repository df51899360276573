"""Losses for large vocabularies: negative sampling, sampled softmax, hierarchical softmax.

All three are there because a softmax over V words costs V products a position. ``hidden`` is what predicts (a skip-gram
centre word's vector, a language model's state), ``weight (vocabulary, dimension)`` the output vectors of the words.
"""

import heapq
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from voiceseq.core.masks import (
    DIVERGED,
    check_dtype,
    check_finite,
    check_frames,
    check_sizes,
    check_tensor,
    check_tokens,
    lengths_mask,
    parameter_dtype,
)
from voiceseq.errors import InputError


def skipgram_pairs(tokens: Tensor, lengths: Tensor | None, vocabulary: int, window: int) -> tuple[Tensor, Tensor]:
    """All pairs (centre, context), each ``(pairs,)``, at most ``window`` apart in a row of ``tokens (batch, time)``."""
    if window < 1:
        raise InputError(f"window is {window}; at least 1 word to each side was wanted")
    lengths = check_tokens(tokens, lengths, vocabulary)
    valid = lengths_mask(lengths, tokens.shape[1])
    centres, contexts = [], []
    for distance in range(1, min(window, tokens.shape[1] - 1) + 1):
        both = valid[:, distance:]  # the later one is valid, hence the earlier one too
        earlier, later = tokens[:, :-distance][both], tokens[:, distance:][both]
        centres += [earlier, later]
        contexts += [later, earlier]
    empty = tokens.new_empty(0)
    return torch.cat([empty, *centres]), torch.cat([empty, *contexts])


def noise_distribution(counts: Tensor, power: float = 0.75) -> Tensor:
    """``(vocabulary,)`` counts -> the probabilities proportional to ``counts ** power`` from which noise is drawn."""
    if not math.isfinite(power):
        raise InputError(f"power is {power}; a finite number was wanted, e.g. 0.75")
    check_counts(counts)
    noise = counts.double().pow(power)
    return (noise / noise.sum()).float()


def sample_noise(noise: Tensor, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
    """Words drawn from ``noise (vocabulary,)``, with replacement.

    Raises ``InputError`` for what is no distribution (it need not add up to 1) and for a shape without a place.
    """
    _check_noise(noise)
    if not all(isinstance(side, int) and side > 0 for side in shape):
        raise InputError(f"shape is {tuple(shape)}; whole numbers of at least 1 were wanted")
    size = int(torch.Size(shape).numel())
    return torch.multinomial(noise, size, replacement=True, generator=generator).view(shape)


def negative_sampling_loss(hidden: Tensor, targets: Tensor, negatives: Tensor, weight: Tensor) -> Tensor:
    """``-log s(h.w_target) - sum_k log s(-h.w_k)``, s the sigmoid, the mean over the pairs.

    ``hidden (pairs, dimension)``, ``targets (pairs,)``, ``negatives (pairs, samples)`` from ``sample_noise``. A noise
    word that happens to be the target is left out, as it would pull against itself. Raises ``InputError`` for wrong
    shapes and dtypes, words outside the vocabulary and NaN.
    """
    _check_weight(weight)
    check_tensor(hidden, "hidden")
    if hidden.dim() != 2 or hidden.shape[1] != weight.shape[1] or not len(hidden):
        raise InputError(
            f"hidden has shape {tuple(hidden.shape)}; (pairs, {weight.shape[1]}) was wanted, with at least one pair"
        )
    check_dtype(hidden, weight.dtype, "hidden")
    check_finite(hidden, "hidden", DIVERGED)
    _check_words(targets, (len(hidden),), weight, "targets")
    check_tensor(negatives, "negatives")
    _check_words(negatives, (len(hidden), negatives.shape[-1] if negatives.dim() else 1), weight, "negatives")
    true = (hidden * weight[targets]).sum(-1)
    noise = torch.einsum("pd,psd->ps", hidden, weight[negatives])
    apart = functional.logsigmoid(-noise).masked_fill(negatives == targets[:, None], 0.0).sum(1)
    return -(functional.logsigmoid(true) + apart).mean()


def sampled_softmax_loss(
    hidden: Tensor,
    targets: Tensor,
    samples: Tensor,
    noise: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    lengths: Tensor | None = None,
) -> Tensor:
    """Cross entropy with a sampled normaliser, averaged over the valid positions.

    ``hidden (batch, time, dimension)``, ``targets (batch, time)``, ``samples (S,)`` drawn once for all positions from
    ``noise (vocabulary,)``. A word is drawn S Q(word) times on average, so its logit is lowered by the log of that:

        Z = exp(x_target) + sum over samples that are not the target of exp(x_s - log(S Q(s)))

    is an unbiased estimate of the full softmax's normaliser. The target is always there, once: no correction for it.
    Raises ``InputError`` for wrong shapes and dtypes, words outside the vocabulary and NaN.
    """
    _check_weight(weight)
    lengths = check_frames(hidden, lengths, weight.shape[1], "hidden", weight.dtype, DIVERGED)
    valid = lengths_mask(lengths, hidden.shape[1])
    _check_words(targets, tuple(hidden.shape[:2]), weight, "targets", valid)
    check_tensor(samples, "samples")
    _check_words(samples, (samples.numel(),), weight, "samples")
    _check_noise(noise)
    if noise.shape != weight.shape[:1] or not bool((noise[samples] > 0).all()):
        raise InputError("noise has another size than the vocabulary, or gives a sampled word probability 0")
    bias = weight.new_zeros(len(weight)) if bias is None else bias
    check_dtype(bias, weight.dtype, "bias")
    if bias.shape != weight.shape[:1]:
        raise InputError(f"bias has shape {tuple(bias.shape)}; ({len(weight)},) was wanted, one a word")
    states, words = hidden[valid], targets[valid]
    expected = len(samples) * noise[samples].to(hidden.dtype)
    true = (states * weight[words]).sum(-1) + bias[words]
    others = states @ weight[samples].T + bias[samples] - expected.log()
    others = others.masked_fill(samples == words[:, None], -torch.inf)
    return (torch.cat([true[:, None], others], 1).logsumexp(1) - true).mean()


class HierarchicalSoftmax(nn.Module):
    """A softmax as a walk down a binary Huffman tree: log2(V) products for a word instead of V.

    At each inner node n the state h goes right with probability s(v_n.h + b_n), s the sigmoid; P(word) is the product
    along the way to its leaf, so the probabilities of all words add up to 1. Frequent words have short ways.
    """

    nodes: Tensor
    turns: Tensor

    def __init__(self, dimension: int, counts: Tensor) -> None:
        """``counts (vocabulary,)`` of at least two words."""
        super().__init__()
        check_sizes(dimension=dimension)
        check_counts(counts)
        paths = huffman_paths(counts.tolist())
        depth = max(len(path) for path in paths)
        filled = torch.tensor([path + [(0, 0)] * (depth - len(path)) for path in paths])
        self.register_buffer("nodes", filled[..., 0])  # (V, depth), the inner nodes on the way
        self.register_buffer("turns", filled[..., 1])  # (V, depth), 1 right, -1 left, 0 arrived
        self.output = nn.Linear(dimension, len(paths) - 1)

    def forward(self, hidden: Tensor, targets: Tensor, lengths: Tensor | None = None) -> Tensor:
        """-log P(target), averaged over the valid positions of ``(batch, time, dimension)``, ``(batch, time)``."""
        lengths = check_frames(hidden, lengths, self.output.in_features, "hidden", parameter_dtype(self), DIVERGED)
        valid = lengths_mask(lengths, hidden.shape[1])
        _check_words(targets, tuple(hidden.shape[:2]), self.nodes, "targets", valid)
        states, words = hidden[valid], targets[valid]
        nodes = self.nodes[words]
        scores = torch.einsum("pd,pnd->pn", states, self.output.weight[nodes]) + self.output.bias[nodes]
        return -self._walk(scores, self.turns[words]).mean()

    def log_probs(self, hidden: Tensor) -> Tensor:
        """``(..., dimension)`` -> ``(..., vocabulary)``, normalised; costs as much as a plain softmax."""
        if hidden.shape[-1:] != (self.output.in_features,):
            raise InputError(f"hidden has shape {tuple(hidden.shape)}; (..., {self.output.in_features}) was wanted")
        return self._walk(self.output(hidden)[..., self.nodes], self.turns)

    @staticmethod
    def _walk(scores: Tensor, turns: Tensor) -> Tensor:
        """log P of a way from the scores at its nodes: log s(score) to the right, log s(-score) to the left."""
        return functional.logsigmoid(scores * turns).masked_fill(turns == 0, 0.0).sum(-1)


def huffman_paths(counts: list[float]) -> list[list[tuple[int, int]]]:
    """For each word the way from the root to its leaf: (inner node, 1 to the right or -1 to the left).

    The two rarest trees are joined until one is left; ties go to the tree made first, so the result is determined.
    """
    heap: list[tuple[float, int, list[int]]] = [(count, word, [word]) for word, count in enumerate(counts)]
    heapq.heapify(heap)
    upwards: list[list[tuple[int, int]]] = [[] for _ in counts]
    for node in range(len(counts) - 1):
        left, right = heapq.heappop(heap), heapq.heappop(heap)
        for turn, leaves in ((-1, left[2]), (1, right[2])):
            for word in leaves:
                upwards[word].append((node, turn))
        heapq.heappush(heap, (left[0] + right[0], len(counts) + node, left[2] + right[2]))
    return [path[::-1] for path in upwards]


def check_counts(counts: Tensor) -> None:
    """Check how often each word was seen: ``(vocabulary,)``, at least two words, none below 0, not all 0."""
    check_tensor(counts, "counts")
    if counts.dim() != 1 or len(counts) < 2:
        raise InputError(f"counts has shape {tuple(counts.shape)}; (vocabulary,) with at least 2 words was wanted")
    check_finite(counts.double(), "counts")
    if bool((counts < 0).any()) or not bool((counts > 0).any()):
        raise InputError("counts wants numbers of at least 0, not all of them 0")


def _check_noise(noise: Tensor) -> None:
    """Check a distribution ``(vocabulary,)``: finite, none below 0, not all 0."""
    check_tensor(noise, "noise")
    if noise.dim() != 1 or not len(noise):
        raise InputError(f"noise has shape {tuple(noise.shape)}; (vocabulary,) was wanted, with at least one word")
    if not noise.is_floating_point():
        raise InputError(f"noise has dtype {noise.dtype}; probabilities were wanted, e.g. of noise_distribution")
    check_finite(noise, "noise", "look at the counts that it was made of")
    if bool((noise < 0).any()) or not bool((noise > 0).any()):
        raise InputError("noise holds a number below 0, or probability 0 for all words; a distribution was wanted")


def _check_weight(weight: Tensor) -> None:
    check_tensor(weight, "weight")
    if weight.dim() != 2 or not weight.numel():
        raise InputError(f"weight has shape {tuple(weight.shape)}; (vocabulary, dimension) was wanted, both at least 1")


def _check_words(words: Tensor, shape: tuple[int, ...], weight: Tensor, name: str, valid: Tensor | None = None) -> None:
    """Check words of the vocabulary that ``weight`` has a row for, where ``valid``."""
    check_tensor(words, name)
    if tuple(words.shape) != shape:
        raise InputError(f"{name} has shape {tuple(words.shape)}; {shape} was wanted")
    counted = words if valid is None else words.masked_fill(~valid, 0)
    check_tokens(counted.reshape(1, -1), None, len(weight), name)
