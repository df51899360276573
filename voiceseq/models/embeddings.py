"""Word embeddings: a vector for every word, learned from the company that it keeps.

Skip-gram predicts a word w from a neighbour c, CBOW from the mean of its neighbours; u are the output vectors:

    softmax        P(w | c) = exp(u_w.v_c) / sum_x exp(u_x.v_c)
    hierarchical   the product of sigmoids along w's way down a Huffman tree (``core.softmax.HierarchicalSoftmax``)
    negative       log s(u_w.v_c) + sum_k log s(-u_k.v_c), k drawn from the counts to the power 3/4

GloVe fits v_i.u_j + b_i + b_j to the logarithm of how often i and j stand near each other.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn

from voiceseq.core.losses import cross_entropy
from voiceseq.core.softmax import check_counts, huffman_paths, noise_distribution, skipgram_pairs
from voiceseq.errors import ConfigError

Method = Literal["skipgram", "cbow", "glove"]
Output = Literal["negative", "hierarchical", "softmax"]


@dataclass(frozen=True)
class EmbeddingConfig:
    """``output`` is how skip-gram and CBOW predict; ``negatives`` and ``power`` are of negative sampling. A word of
    frequency f is kept with probability sqrt(sample / f) + sample / f. ``maximum`` is GloVe's. Raises ConfigError.

    A full softmax is for skip-gram and small vocabularies: each pair costs a product with every word."""

    words: int = 0
    method: Method = "skipgram"
    output: Output = "negative"
    dimension: int = 100
    window: int = 5
    negatives: int = 5
    power: float = 0.75
    sample: float = 1e-3
    maximum: float = 10.0

    def __post_init__(self) -> None:
        rules = [
            (self.method in get_args(Method), f"method is {self.method!r}; one of {', '.join(get_args(Method))}"),
            (self.output in get_args(Output), f"output is {self.output!r}; one of {', '.join(get_args(Output))}"),
            (min(self.dimension, self.window, self.negatives) >= 1, "dimension, window, negatives: 1 or more"),
            (self.sample >= 0 and self.maximum > 0, "sample: 0 (keep all) or more, maximum: more than 0"),
            (self.method != "cbow" or self.output != "softmax", "CBOW with a full softmax is not there; take skipgram"),
        ]
        if wrong := [message for holds, message in rules if not holds]:
            raise ConfigError("; ".join(wrong) + " was wanted")


class Passage(NamedTuple):
    """Sentences end to end: sentence i is ``tokens[starts[i]:starts[i + 1]]``."""

    tokens: np.ndarray
    starts: np.ndarray


class Cooccurrence(NamedTuple):
    """How often (``counts``, weighted by 1/distance) words ``rows`` and ``columns`` stand near each other."""

    rows: np.ndarray
    columns: np.ndarray
    counts: np.ndarray


class EmbeddingNetwork(nn.Module):
    """``counts (words,)`` says how often each word was seen. ``learn`` takes a step; ``vectors`` is the result."""

    nodes: Tensor
    turns: Tensor

    def __init__(self, config: EmbeddingConfig, counts: Tensor, seed: int = 1) -> None:
        super().__init__()
        check_counts(counts)
        self.config = config
        generator = torch.Generator().manual_seed(seed)
        size, words = config.dimension, len(counts)
        start = (torch.rand(words, size, generator=generator) - 0.5) / size
        self.inputs = nn.Parameter(start, requires_grad=config.output == "softmax")
        rows = torch.zeros(words, size)
        if config.method == "glove":
            rows = (torch.rand(words, size, generator=generator) - 0.5) / size
            self.register_buffer("biases", torch.zeros(2, words))
            self.register_buffer("squares", torch.ones(2, words, size + 1))
        self.outputs = nn.Parameter(rows, requires_grad=config.output == "softmax")
        self.keep = _keep(counts, config.sample)
        self.alias = alias_table(noise_distribution(counts, config.power).double().numpy())
        self.nodes, self.turns = _tree(counts) if config.output == "hierarchical" else (torch.zeros(1, 1).long(),) * 2

    def learn(self, part: Passage | Cooccurrence, rate: float, seed: int) -> float:
        """One pass over a part of the text, or of the counts of neighbours; the same for the same seed."""
        from voiceseq.models.embedding_loops import learn_counts, learn_text  # compiled at first use

        part = type(part)(*map(np.asarray, part))  # a loader may have made tensors of them
        inputs, outputs = self.inputs.detach().numpy(), self.outputs.detach().numpy()
        if isinstance(part, Cooccurrence):
            state = self.biases.numpy(), self.squares.numpy()  # type: ignore[operator]
            return float(learn_counts(*part, inputs, outputs, *state, rate, self.config.maximum, self.config.power))
        state = np.array([(seed * 0x9E3779B97F4A7C15 + 0x1234567) % 2**64 or 1], np.uint64)  # type: ignore[assignment]
        negatives = self.config.negatives if self.config.output == "negative" else 0
        tree = self.nodes.numpy(), self.turns.numpy()
        settings = self.keep, self.config.window, self.config.method == "cbow"
        return float(learn_text(*part, *settings, inputs, outputs, rate, negatives, *self.alias, *tree, state))

    def softmax_loss(self, part: Passage) -> Tensor:
        """The full softmax over the pairs of a part, for an optimiser of torch."""
        pairs = [
            skipgram_pairs(torch.as_tensor(part.tokens[a:b])[None], None, len(self.inputs), self.config.window)
            for a, b in zip(part.starts[:-1], part.starts[1:], strict=True)
            if b - a > 1
        ]
        centres, contexts = (torch.cat(side) for side in zip(*pairs, strict=True))
        return cross_entropy((self.inputs[centres] @ self.outputs.T)[None], contexts[None])

    def vectors(self) -> Tensor:
        """``(words, dimension)``; of GloVe the sum of both tables, as its authors do."""
        both = self.inputs + self.outputs if self.config.method == "glove" else self.inputs
        return both.detach().clone()


def cooccurrence(part: Passage, window: int, vocabulary: int) -> Cooccurrence:
    """Every pair of words within ``window`` in a sentence, both ways, each worth 1/distance; each pair once."""
    sentence = np.repeat(np.arange(len(part.starts) - 1), np.diff(part.starts))
    keys: list[np.ndarray] = []
    worth: list[np.ndarray] = []
    for distance in range(1, window + 1):
        together = sentence[distance:] == sentence[:-distance]
        one, other = part.tokens[:-distance][together], part.tokens[distance:][together]
        for left, right in ((one, other), (other, one)):
            found, times = np.unique(left.astype(np.int64) * vocabulary + right, return_counts=True)
            keys.append(found)
            worth.append(times / distance)
    found, places = np.unique(np.concatenate(keys), return_inverse=True)
    counts = np.bincount(places, np.concatenate(worth))
    return Cooccurrence(found // vocabulary, found % vocabulary, counts.astype(np.float64))


def alias_table(probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Walker's table: draw a column evenly; it stands for itself with probability ``cut``, else for ``other``."""
    scaled = probabilities / probabilities.sum() * len(probabilities)
    cut, other = np.ones(len(scaled)), np.arange(len(scaled))
    small, large = list(np.flatnonzero(scaled < 1)), list(np.flatnonzero(scaled >= 1))
    while small and large:
        less, more = small.pop(), large[-1]
        cut[less], other[less] = scaled[less], more
        scaled[more] -= 1 - scaled[less]
        if scaled[more] < 1:
            small.append(large.pop())
    return cut, other


def _keep(counts: Tensor, sample: float) -> np.ndarray:
    """With which probability each word stays: frequent ones are thinned out."""
    if not sample:
        return np.ones(len(counts))
    share = (counts.double() / counts.sum()).clamp(min=1e-30) / sample
    return (share.rsqrt() + 1 / share).clamp(max=1.0).numpy()


def _tree(counts: Tensor) -> tuple[Tensor, Tensor]:
    """The way to each word: inner nodes, and 1 right, -1 left, 0 arrived; both ``(words, depth)``."""
    paths = huffman_paths(counts.tolist())
    depth = max(map(len, paths))
    filled = torch.tensor([path + [(0, 0)] * (depth - len(path)) for path in paths])
    return filled[..., 0].contiguous(), filled[..., 1].contiguous()
