"""The loops of word embeddings are gradient descent on the core's losses, and they learn who keeps whose company."""

import numpy as np
import pytest
import torch

from voiceseq.core.losses import glove_loss
from voiceseq.core.softmax import HierarchicalSoftmax, negative_sampling_loss
from voiceseq.errors import ConfigError
from voiceseq.models.embeddings import (
    Cooccurrence,
    EmbeddingConfig,
    EmbeddingNetwork,
    Passage,
    alias_table,
    cooccurrence,
)

COUNTS = torch.tensor([7, 5, 3, 2, 1])
PAIR = Passage(np.array([0, 3]), np.array([0, 2]))
RATE = 0.3


def network(**settings: object) -> EmbeddingNetwork:
    made = EmbeddingNetwork(EmbeddingConfig(dimension=6, window=1, sample=0.0, **settings), COUNTS)  # type: ignore[arg-type]
    with torch.no_grad():
        made.inputs.mul_(6)
        made.outputs.copy_(torch.randn(made.outputs.shape, generator=torch.Generator().manual_seed(5)))
    return made


def descend(inputs: torch.Tensor, outputs: torch.Tensor, losses: list) -> None:
    """One step of plain gradient descent for each loss, one after the other."""
    for loss in losses:
        grads = torch.autograd.grad(loss(inputs, outputs), (inputs, outputs))
        with torch.no_grad():
            inputs -= RATE * grads[0]
            outputs -= RATE * grads[1]


@pytest.mark.parametrize("method", ["skipgram", "cbow"])
def test_negative_sampling_is_descent_on_its_loss(method: str) -> None:
    made = network(method=method, negatives=1)
    made.alias = np.zeros(5), np.full(5, 2)  # the noise is always word 2
    inputs, outputs = (side.detach().clone().requires_grad_() for side in (made.inputs, made.outputs))

    def loss(word: int, given: int):
        return lambda i, o: negative_sampling_loss(i[[given]], torch.tensor([word]), torch.tensor([[2]]), o)

    assert made.learn(PAIR, RATE, seed=1) == 2
    descend(inputs, outputs, [loss(0, 3), loss(3, 0)])
    torch.testing.assert_close(made.inputs, inputs, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(made.outputs, outputs, atol=1e-5, rtol=1e-5)


def test_hierarchical_softmax_is_descent_on_its_loss() -> None:
    made = network(output="hierarchical")
    tree = HierarchicalSoftmax(6, COUNTS)
    inputs, outputs = (side.detach().clone().requires_grad_() for side in (made.inputs, made.outputs))

    def loss(word: int, given: int):
        def value(i: torch.Tensor, o: torch.Tensor) -> torch.Tensor:
            weights = {"output.weight": o[:4], "output.bias": torch.zeros(4)}
            return torch.func.functional_call(tree, weights, (i[[given]][None], torch.tensor([[word]])))

        return value

    made.learn(PAIR, RATE, seed=1)
    descend(inputs, outputs, [loss(0, 3), loss(3, 0)])
    torch.testing.assert_close(made.inputs, inputs, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(made.outputs, outputs, atol=1e-5, rtol=1e-5)


def test_cbow_predicts_from_the_mean_of_the_window() -> None:
    made = EmbeddingNetwork(EmbeddingConfig(dimension=6, window=1, sample=0.0, method="cbow", negatives=1), COUNTS)
    with torch.no_grad():
        made.outputs.normal_(generator=torch.Generator().manual_seed(5))
    made.alias = np.zeros(5), np.full(5, 4)
    inputs, outputs = (side.detach().clone().requires_grad_() for side in (made.inputs, made.outputs))

    def loss(word: int, given: list[int]):
        mean = lambda i: i[given].mean(0)[None]  # noqa: E731
        return lambda i, o: negative_sampling_loss(mean(i), torch.tensor([word]), torch.tensor([[4]]), o)

    made.learn(Passage(np.array([0, 1, 2]), np.array([0, 3])), RATE, seed=1)
    descend(inputs, outputs, [loss(0, [1]), loss(1, [0, 2]), loss(2, [1])])
    torch.testing.assert_close(made.inputs, inputs, atol=1e-5, rtol=1e-5)


def test_glove_is_adagrad_on_its_loss() -> None:
    made = network(method="glove")
    part = Cooccurrence(np.array([1, 1]), np.array([2, 4]), np.array([3.0, 40.0]))
    sides = [made.inputs, made.outputs, *made.biases]
    leaves = [side.detach().clone().requires_grad_() for side in sides]
    optimiser = torch.optim.Adagrad(leaves, lr=RATE, initial_accumulator_value=1.0, eps=0.0)
    total = 0.0
    for row, column, count in zip(*part, strict=True):
        optimiser.zero_grad()
        words, contexts, one, two = leaves
        loss = glove_loss(
            words[[row]], contexts[[column]], one[[row]], two[[column]], torch.tensor([count]).float(), 10
        )
        loss.backward()
        total += float(loss.detach())
        optimiser.step()
    assert made.learn(part, RATE, seed=1) == pytest.approx(total, rel=1e-4)
    for side, leaf in zip([made.inputs, made.outputs, *made.biases], leaves, strict=True):
        torch.testing.assert_close(side.detach(), leaf.detach(), atol=1e-4, rtol=1e-4)


def test_neighbours_are_counted_within_their_sentence() -> None:
    tokens, starts = np.array([0, 1, 0, 2, 2]), np.array([0, 3, 5])
    found = cooccurrence(Passage(tokens, starts), 2, 3)
    wanted = np.zeros((3, 3))
    for a, b in ((0, 3), (3, 5)):
        for i in range(a, b):
            for j in range(a, b):
                if i != j and abs(i - j) <= 2:
                    wanted[tokens[i], tokens[j]] += 1 / abs(i - j)
    counted = np.zeros((3, 3))
    counted[found.rows, found.columns] = found.counts
    np.testing.assert_allclose(counted, wanted)
    assert len(found.rows) == (wanted > 0).sum()


def test_the_alias_table_holds_the_distribution() -> None:
    wanted = np.array([0.5, 0.05, 0.2, 0.0, 0.25])
    cut, other = alias_table(wanted)
    found = cut / 5
    for column in range(5):
        found[other[column]] += (1 - cut[column]) / 5
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def company(words: int = 12, sentences: int = 400) -> Passage:
    """Two circles of words that never meet: the even and the odd."""
    chance = np.random.default_rng(1)
    rows = [2 * chance.integers(0, words // 2, 8) + chance.integers(2) for _ in range(sentences)]
    return Passage(np.concatenate(rows), np.arange(0, 8 * sentences + 1, 8))


@pytest.mark.parametrize(
    ("method", "output"),
    [("skipgram", "negative"), ("skipgram", "hierarchical"), ("cbow", "negative"), ("glove", "negative")],
)
def test_words_that_keep_the_same_company_grow_alike(method: str, output: str) -> None:
    part = company()
    config = EmbeddingConfig(dimension=8, window=3, sample=0.0, method=method, output=output)  # type: ignore[arg-type]
    made = EmbeddingNetwork(config, torch.from_numpy(np.bincount(part.tokens)))
    lesson = cooccurrence(part, 3, 12) if method == "glove" else part
    for step in range(60 if method == "glove" else 10):
        made.learn(lesson, 0.1, step)
    assert alike(made.vectors())


def test_a_full_softmax_learns_the_same() -> None:
    part = company(sentences=100)
    config = EmbeddingConfig(dimension=8, window=3, output="softmax")
    made = EmbeddingNetwork(config, torch.from_numpy(np.bincount(part.tokens)))
    optimiser = torch.optim.Adam(made.parameters(), 0.05)
    for _ in range(30):
        optimiser.zero_grad()
        made.softmax_loss(part).backward()
        optimiser.step()
    assert alike(made.vectors())


def alike(vectors: torch.Tensor) -> bool:
    unit = torch.nn.functional.normalize(vectors - vectors.mean(0), dim=1)
    cosines = unit @ unit.T
    same = (torch.arange(12)[:, None] + torch.arange(12)) % 2 == 0
    return float(cosines[same].mean()) > float(cosines[~same].mean()) + 0.5


def test_the_same_seed_learns_the_same_and_another_something_else() -> None:
    results = []
    for seed in (1, 1, 2):
        made = EmbeddingNetwork(
            EmbeddingConfig(dimension=8, sample=1e-2), torch.from_numpy(np.bincount(company().tokens))
        )
        made.learn(company(), 0.05, seed)
        results.append(made.vectors())
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)
    assert not torch.equal(results[0], results[2])


def test_frequent_words_are_thinned_out() -> None:
    part = Passage(np.repeat([0, 1], [9900, 100]), np.array([0, 10_000]))
    made = EmbeddingNetwork(EmbeddingConfig(dimension=4, window=1, sample=1e-3), torch.tensor([9900, 100]))
    wanted = sum(n * min(1, (1e-3 / f) ** 0.5 + 1e-3 / f) for n, f in ((9900, 0.99), (100, 0.01)))
    assert made.learn(part, 0.01, 1) == pytest.approx(2 * wanted, rel=0.25)  # two neighbours a word that stays


def test_wrong_settings_are_named_together() -> None:
    with pytest.raises(ConfigError, match=r"method is 'x'.*output is 'y'"):
        EmbeddingConfig(method="x", output="y")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="CBOW with a full softmax"):
        EmbeddingConfig(method="cbow", output="softmax")
