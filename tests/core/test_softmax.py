import math
from itertools import combinations, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from voiceseq.core.softmax import (
    HierarchicalSoftmax,
    huffman_paths,
    negative_sampling_loss,
    noise_distribution,
    sample_noise,
    sampled_softmax_loss,
    skipgram_pairs,
)
from voiceseq.errors import InputError


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def random_tokens(high, *shape, seed=0):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


# --- skip-gram with negative sampling --------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=6), min_size=1, max_size=3), st.integers(1, 7))
def test_skipgram_pairs_of_padded_rows(rows, window):
    tokens = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    for row, words in enumerate(rows):
        tokens[row, : len(words)] = torch.tensor(words)
    expected = [
        (words[i], words[j])
        for words in rows
        for i in range(len(words))
        for j in range(len(words))
        if 0 < abs(i - j) <= window
    ]
    centres, contexts = skipgram_pairs(tokens, torch.tensor([len(words) for words in rows]), 6, window)
    assert sorted(zip(centres.tolist(), contexts.tolist(), strict=True)) == sorted(expected)


def test_noise_is_the_three_quarter_power():
    noise = noise_distribution(torch.tensor([16, 1, 81, 0]))
    torch.testing.assert_close(noise, torch.tensor([8.0, 1.0, 27.0, 0.0]) / 36)
    drawn = sample_noise(noise, (100, 200), torch.Generator().manual_seed(0))
    assert drawn.shape == (100, 200)
    torch.testing.assert_close(drawn.flatten().bincount(minlength=4) / 20_000, noise, atol=0.01, rtol=0)
    assert drawn.equal(sample_noise(noise, (100, 200), torch.Generator().manual_seed(0)))


def test_negative_sampling_is_its_equation():
    hidden, weight = random(3, 4), random(6, 4, seed=1)
    targets, negatives = torch.tensor([0, 3, 5]), torch.tensor([[1, 2], [3, 4], [5, 5]])

    def sigmoid(x):
        return 1 / (1 + math.exp(-float(x)))

    total = 0.0
    for i in range(3):
        total -= math.log(sigmoid(hidden[i] @ weight[targets[i]]))
        for word in negatives[i].tolist():
            if word != targets[i]:  # a noise word that is the target is none
                total -= math.log(sigmoid(-hidden[i] @ weight[word]))
    assert float(negative_sampling_loss(hidden, targets, negatives, weight)) == pytest.approx(total / 3)


def test_negative_sampling_gradient_by_finite_differences():
    inputs = (random(3, 4).requires_grad_(), random(6, 4, seed=1).requires_grad_())
    targets, negatives = torch.tensor([0, 3, 5]), torch.tensor([[1, 2], [3, 4], [5, 5]])
    assert torch.autograd.gradcheck(lambda h, w: negative_sampling_loss(h, targets, negatives, w), inputs)


# --- sampled softmax -------------------------------------------------------------------------------------------------

SIZE = 4
NOISE = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.double)


def test_normaliser_is_unbiased_over_all_samples():
    """exp(loss + x_target) is Z: weighted with the probability of each sample, it adds up to the full softmax's."""
    hidden, weight, bias = random(1, 1, 3), random(SIZE, 3, seed=1), random(SIZE, seed=2)
    logits = weight @ hidden[0, 0] + bias
    for target in range(SIZE):
        expected = 0.0
        for samples in product(range(SIZE), repeat=3):
            words = torch.tensor(samples)
            loss = sampled_softmax_loss(hidden, torch.tensor([[target]]), words, NOISE, weight, bias)
            expected += float(NOISE[words].prod() * (loss + logits[target]).exp())
        assert expected == pytest.approx(float(logits.exp().sum()))


def test_every_word_once_under_even_noise_is_the_full_softmax():
    hidden, targets = random(2, 5, 3).requires_grad_(), random_tokens(SIZE, 2, 5)
    weight, bias = random(SIZE, 3, seed=1), random(SIZE, seed=2)
    even = torch.full((SIZE,), 1 / SIZE, dtype=torch.double)
    sampled = sampled_softmax_loss(hidden, targets, torch.arange(SIZE), even, weight, bias)
    full = functional.cross_entropy((hidden @ weight.T + bias).flatten(0, 1), targets.flatten())
    torch.testing.assert_close(sampled, full)
    torch.testing.assert_close(torch.autograd.grad(sampled, hidden), torch.autograd.grad(full, hidden))


def test_sampled_softmax_goes_to_the_full_one():
    hidden, targets, weight = random(4, 6, 8), random_tokens(50, 4, 6), random(50, 8, seed=1) * 0.3
    noise = noise_distribution(torch.arange(1, 51)).double()
    samples = sample_noise(noise, (200_000,), torch.Generator().manual_seed(0))
    full = functional.cross_entropy((hidden @ weight.T).flatten(0, 1), targets.flatten())
    assert float(sampled_softmax_loss(hidden, targets, samples, noise, weight)) == pytest.approx(float(full), abs=0.01)


def test_sampled_softmax_padded_is_alone():
    hidden, weight, samples = random(2, 5, 3), random(SIZE, 3, seed=1), torch.tensor([1, 3, 3])
    targets = torch.tensor([[0, 1, 2, 3, 0], [2, 3, -1, -1, -1]])
    together = sampled_softmax_loss(hidden, targets, samples, NOISE, weight, lengths=torch.tensor([5, 2]))
    alone = [
        sampled_softmax_loss(hidden[i : i + 1, :n], targets[i : i + 1, :n], samples, NOISE, weight)
        for i, n in enumerate((5, 2))
    ]
    torch.testing.assert_close(together, (5 * alone[0] + 2 * alone[1]) / 7)


# --- hierarchical softmax --------------------------------------------------------------------------------------------

counts = st.lists(st.integers(1, 1000), min_size=2, max_size=12)


@given(counts)
def test_huffman_ways_lead_to_different_leaves_and_fill_the_tree(counts):
    paths = huffman_paths(counts)
    assert sum(2.0 ** -len(path) for path in paths) == 1.0  # Kraft: a full binary tree
    assert len({tuple(path) for path in paths}) == len(counts)
    assert {node for path in paths for node, _ in path} == set(range(len(counts) - 1))
    for one, other in combinations(paths, 2):
        fork = next(i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
        assert one[fork][0] == other[fork][0]
        assert one[fork][1] == -other[fork][1]


def cheapest_tree(counts):
    """The least total cost of any binary tree, by trying every way to split the words in two."""
    if len(counts) == 1:
        return 0
    rest = range(1, len(counts))
    splits = [set(chosen) | {0} for size in range(len(rest)) for chosen in combinations(rest, size)]
    return sum(counts) + min(
        cheapest_tree([counts[i] for i in left]) + cheapest_tree([c for i, c in enumerate(counts) if i not in left])
        for left in splits
    )


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(1, 50), min_size=2, max_size=6))
def test_huffman_tree_is_the_cheapest_of_all(counts):
    paths = huffman_paths(counts)
    assert sum(count * len(path) for count, path in zip(counts, paths, strict=True)) == cheapest_tree(counts)


@settings(deadline=None)
@given(counts)
def test_probabilities_add_up_to_one(counts):
    softmax = HierarchicalSoftmax(4, torch.tensor(counts)).double()
    total = softmax.log_probs(random(3, 2, 4) * 5).exp().sum(-1)
    torch.testing.assert_close(total, torch.ones(3, 2, dtype=torch.double))


def test_loss_is_minus_the_log_probability_of_the_target_and_padded_is_alone():
    softmax = HierarchicalSoftmax(4, torch.tensor([50, 3, 3, 1, 20, 7])).double()
    hidden, lengths = random(2, 5, 4), torch.tensor([5, 2])
    targets = torch.tensor([[0, 1, 2, 3, 4], [5, 0, -1, -1, -1]])
    log_probs = softmax.log_probs(hidden)
    chosen = [log_probs[row, t, targets[row, t]] for row, n in enumerate((5, 2)) for t in range(n)]
    torch.testing.assert_close(softmax(hidden, targets, lengths), -torch.stack(chosen).mean())
    alone = [softmax(hidden[i : i + 1, :n], targets[i : i + 1, :n]) for i, n in enumerate((5, 2))]
    torch.testing.assert_close(softmax(hidden, targets, lengths), (5 * alone[0] + 2 * alone[1]) / 7)


def test_probability_is_the_product_along_the_way():
    softmax = HierarchicalSoftmax(3, torch.tensor([10, 1, 2])).double()
    hidden = random(3)
    right = torch.sigmoid(softmax.output(hidden)).detach()
    for word, path in enumerate(huffman_paths([10, 1, 2])):
        expected = math.prod(float(right[node] if turn > 0 else 1 - right[node]) for node, turn in path)
        assert float(softmax.log_probs(hidden)[word].detach().exp()) == pytest.approx(expected)


def test_hierarchical_softmax_gradient_by_finite_differences():
    softmax = HierarchicalSoftmax(3, torch.tensor([10, 1, 2, 4])).double()
    targets = torch.tensor([[0, 3], [1, 0]])
    assert torch.autograd.gradcheck(
        lambda hidden, *_: softmax(hidden, targets, torch.tensor([2, 1])),
        (random(2, 2, 3).requires_grad_(), *softmax.parameters()),
    )


def test_the_tree_travels_with_the_weights():
    one = HierarchicalSoftmax(3, torch.tensor([1, 2, 3, 4]))
    other = HierarchicalSoftmax(3, torch.tensor([1, 3, 2, 4]))
    other.load_state_dict(one.state_dict())
    hidden = torch.randn(2, 3)
    assert other.log_probs(hidden).equal(one.log_probs(hidden))


HIDDEN, WORDS, WEIGHT = random(2, 3, 4), torch.zeros(2, 3, dtype=torch.long), random(SIZE, 4)
SAMPLES = torch.tensor([1, 2])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: skipgram_pairs(WORDS, None, 4, 0), "window is 0"),
        (lambda: skipgram_pairs(WORDS + 4, None, 4, 1), "tokens holds 4"),
        (lambda: skipgram_pairs(WORDS, torch.tensor([0, 1]), 4, 1), "at least 1 frame"),
        (lambda: noise_distribution(torch.tensor([1, -1])), "at least 0"),
        (lambda: noise_distribution(torch.tensor([0, 0])), "not all"),
        (lambda: noise_distribution(torch.tensor([])), "at least 2 words"),
        (lambda: noise_distribution(torch.tensor([1.0, torch.nan])), "NaN"),
        (lambda: negative_sampling_loss(HIDDEN[0], WORDS[0] + 4, WORDS[:2].T, WEIGHT), "targets holds 4"),
        (lambda: negative_sampling_loss(HIDDEN[0], WORDS[0], WORDS, WEIGHT), "negatives has shape"),
        (lambda: negative_sampling_loss(HIDDEN[0, :, :3], WORDS[0], WORDS.T, WEIGHT), "hidden has shape"),
        (lambda: negative_sampling_loss(HIDDEN[0] * torch.nan, WORDS[0], WORDS.T, WEIGHT), "NaN"),
        (lambda: sampled_softmax_loss(HIDDEN, WORDS[:, :2], SAMPLES, NOISE, WEIGHT), "targets has shape"),
        (lambda: sampled_softmax_loss(HIDDEN, WORDS, SAMPLES + 2, NOISE, WEIGHT), "samples holds 4"),
        (lambda: sampled_softmax_loss(HIDDEN, WORDS, SAMPLES, NOISE[:3], WEIGHT), "noise"),
        (lambda: sampled_softmax_loss(HIDDEN, WORDS, SAMPLES, NOISE * 0, WEIGHT), "probability 0"),
        (lambda: sampled_softmax_loss(HIDDEN / 0, WORDS, SAMPLES, NOISE, WEIGHT), "infinite"),
        (
            lambda: negative_sampling_loss(HIDDEN, WORDS[0], WORDS.T, WEIGHT),
            r"hidden has shape \(2, 3, 4\); \(pairs, 4",
        ),
        (lambda: negative_sampling_loss(HIDDEN[0, :0], WORDS[0, :0], WORDS[:0], WEIGHT), "at least one pair"),
        (lambda: negative_sampling_loss(HIDDEN[0], WORDS[0], WORDS[0, 0], WEIGHT), r"negatives has shape \(\)"),
        (lambda: negative_sampling_loss(HIDDEN[0], WORDS[0], WORDS[0], WEIGHT), r"negatives has shape \(3,\)"),
        (lambda: negative_sampling_loss(HIDDEN[0], WORDS[0], WORDS.T, WEIGHT[0]), r"weight has shape \(4,\)"),
        (lambda: negative_sampling_loss(HIDDEN[0], WORDS[0], WORDS.T, WEIGHT[:0]), r"weight has shape \(0, 4\)"),
        (
            lambda: negative_sampling_loss(HIDDEN[0], WORDS[0], WORDS.T, WEIGHT.float()),
            "hidden has dtype torch.float64",
        ),
        (lambda: negative_sampling_loss(HIDDEN[0], WORDS[0].double(), WORDS.T, WEIGHT), "dtype torch.float64"),
        (lambda: negative_sampling_loss(HIDDEN[0] * torch.nan, WORDS[0], WORDS.T, WEIGHT), "hidden .*learning rate"),
        (lambda: negative_sampling_loss(HIDDEN[0], [0, 0, 0], WORDS.T, WEIGHT), "targets is a list"),
        (lambda: negative_sampling_loss(HIDDEN[0].tolist(), WORDS[0], WORDS.T, WEIGHT), "hidden is a list"),
        (
            lambda: sampled_softmax_loss(HIDDEN, WORDS, SAMPLES, NOISE, WEIGHT, random(3)),
            r"bias has shape \(3,\); \(4,\)",
        ),
        (lambda: sampled_softmax_loss(HIDDEN, WORDS, SAMPLES, NOISE, WEIGHT, random(4, 1)), "bias has shape"),
        (lambda: sampled_softmax_loss(HIDDEN, WORDS, SAMPLES, NOISE, WEIGHT, random(4).float()), "bias has dtype"),
        (lambda: sampled_softmax_loss(HIDDEN, WORDS, SAMPLES[0], NOISE, WEIGHT), r"samples has shape \(\)"),
        (lambda: sampled_softmax_loss(HIDDEN, WORDS, SAMPLES[:0], NOISE, WEIGHT), "samples has shape"),
        (lambda: sampled_softmax_loss(HIDDEN, WORDS, SAMPLES, NOISE * torch.nan, WEIGHT), "noise"),
        (lambda: sampled_softmax_loss(HIDDEN, WORDS, SAMPLES, NOISE, WEIGHT[0]), "weight has shape"),
        (lambda: sampled_softmax_loss(HIDDEN * torch.nan, WORDS, SAMPLES, NOISE, WEIGHT), "learning rate"),
        (lambda: sample_noise(NOISE * 0, (2,)), "noise"),
        (lambda: sample_noise(-NOISE, (2,)), "noise"),
        (lambda: sample_noise(NOISE * torch.nan, (2,)), "noise"),
        (lambda: sample_noise(NOISE[:0], (2,)), r"noise has shape \(0,\)"),
        (lambda: sample_noise(NOISE[None], (2,)), r"noise has shape \(1, 4\)"),
        (lambda: sample_noise(torch.tensor([1, 2]), (2,)), "noise has dtype torch.int64"),
        (lambda: sample_noise([0.5, 0.5], (2,)), "noise is a list"),
        (lambda: sample_noise(NOISE, (2, -1)), r"shape is \(2, -1\)"),
        (lambda: sample_noise(NOISE, (2, 0)), r"shape is \(2, 0\)"),
        (lambda: noise_distribution([1, 2]), "counts is a list"),
        (lambda: noise_distribution(torch.ones(2), power=torch.nan), "power is nan"),
        (lambda: HierarchicalSoftmax(0, torch.ones(3)), "dimension is 0"),
        (lambda: HierarchicalSoftmax(4, torch.ones(3))(HIDDEN, WORDS), "hidden has dtype torch.float64; torch.float32"),
        (lambda: HierarchicalSoftmax(4, torch.ones(3)).double().log_probs(HIDDEN[..., :3]), r"\(2, 3, 3\)"),
        (lambda: HierarchicalSoftmax(4, torch.tensor([1])), "at least 2 words"),
        (lambda: HierarchicalSoftmax(4, torch.ones(3)).double()(HIDDEN, WORDS + 3), "targets holds 3"),
        (lambda: HierarchicalSoftmax(5, torch.ones(3)).double()(HIDDEN, WORDS), r"\(batch, time, 5\)"),
        (lambda: HierarchicalSoftmax(4, torch.ones(3)).double()(HIDDEN, WORDS[0]), "targets has shape"),
        (lambda: HierarchicalSoftmax(4, torch.ones(3)).double()(HIDDEN, WORDS, torch.tensor([4, 1])), "only 3 frames"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(InputError, match=message):
        make()
