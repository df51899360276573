"""Kneser-Ney training: the textbook formula over dictionaries, sums to 1 by brute force, kenlm on the file written."""

import math
import random
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceseq.errors import InputError
from voiceseq.text.kneser_ney import FALLBACK, discounts, train_ngram
from voiceseq.text.ngram import read_arpa, write_arpa

NEVER = -99 * math.log(10)


class Textbook:
    """p(w | h) by recursion, straight from the definition; slow."""

    def __init__(self, sequences, order, prune=(), boundaries=True):
        self.order, self.boundaries = order, boundaries
        texts = [["<s>", *words, "</s>"] if boundaries else list(words) for words in sequences]
        self.raw = {
            n: Counter(tuple(t[i : i + n]) for t in texts for i in range(len(t) - n + 1)) for n in range(1, order + 1)
        }
        self.threshold = {n: (list(prune) or [0])[min(n, max(len(prune), 1)) - 1] for n in range(1, order + 1)}
        lefts = defaultdict(set)
        for number, text in enumerate(texts):
            for n in range(1, order):
                for i in range(len(text) - n + 1):
                    # with nothing to the left, each occurrence counts: a left neighbour of its own
                    lefts[tuple(text[i : i + n])].add(text[i - 1] if i else ("start", number))
        self.count = {n: {gram: len(lefts[gram]) for gram in self.raw[n]} for n in range(1, order)}
        self.count[order] = dict(self.raw[order])
        self.count[1].pop(("<s>",), None)
        self.vocabulary = {gram[0] for gram in self.count[1]} | {"<unk>"}
        self.followers = defaultdict(dict)
        for n in range(1, order + 1):
            for gram, count in self.count[n].items():
                self.followers[gram[:-1]][gram[-1]] = count
        self.discount = {n: self.estimate(self.count[n].values()) for n in range(1, order + 1)}

    @staticmethod
    def estimate(counts):
        n = Counter(counts)
        if not (n[1] and n[2] and n[3]):
            return [0, 0.5, 1, 1.5]
        y = n[1] / (n[1] + 2 * n[2])
        found = [0] + [k - (k + 1) * y * n[k + 1] / n[k] for k in (1, 2, 3)]
        return found if min(found[1:]) > 0 else [0, 0.5, 1, 1.5]

    def probability(self, context, word):
        n = len(context) + 1
        lower = self.probability(context[1:], word) if context else 1 / len(self.vocabulary)
        follow = self.followers.get(tuple(context))
        if not follow:
            return lower
        kept = {w: c for w, c in follow.items() if n == 1 or self.raw[n][(*context, w)] > self.threshold[n]}
        total = sum(follow.values())
        own = {w: (c - self.discount[n][min(c, 3)]) / total for w, c in kept.items()}
        return own.get(word, 0.0) + (1 - sum(own.values())) * lower

    def score(self, sequence):
        text = ["<s>", *sequence, "</s>"] if self.boundaries else list(sequence)
        text = [w if w in self.vocabulary or w == "<s>" else "<unk>" for w in text]
        first = 1 if self.boundaries else 0
        contexts = [text[max(0, i - self.order + 1) : i] for i in range(first, len(text))]
        return [math.log(self.probability(c, w)) for c, w in zip(contexts, text[first:], strict=True)]


def some_text(seed, sequences=60, words=40, longest=12):
    """Words of unequal frequency that depend on the one before, so that all counts of counts occur."""
    rng = random.Random(seed)
    texts = []
    for _ in range(sequences):
        text, word = [], 0
        for _ in range(rng.randrange(longest)):
            word = min(int(rng.expovariate(0.15)) + (word % 3), words - 1)
            text.append(f"w{word}")
        texts.append(text)
    return texts


@pytest.mark.parametrize("boundaries", [True, False])
@pytest.mark.parametrize(
    ("order", "prune"), [(1, ()), (2, ()), (3, ()), (5, ()), (3, (0, 0, 1)), (4, (0, 1, 2)), (4, (0, 3))]
)
def test_the_textbook_formula(order, prune, boundaries):
    texts = some_text(order)
    texts[3:3] = [["<unk>", "w1", "<unk>"]] * (order % 2)  # <unk> as a word, and with its own mass
    model = train_ngram(iter(texts), order, prune, boundaries)
    book = Textbook(texts, order, prune, boundaries)
    assert model.order == order
    unseen = [*some_text(99, 30, words=50), ["nowhere", "w1", "w0", "nowhere"], []]
    for text in [*texts, *unseen]:
        assert model.log_probs([text], boundaries).tolist() == pytest.approx(book.score(text), abs=1e-9)
        assert model.score(text, boundaries, boundaries) == pytest.approx(book.score(text), abs=1e-9)


def test_the_textbook_has_real_discounts_here():
    """Or the test above would only see the fallback."""
    for boundaries in (True, False):
        book = Textbook(some_text(3), 3, boundaries=boundaries)
        assert sum(list(d) != list(FALLBACK) for d in book.discount.values()) >= 2


def sums(model, contexts):
    """For each context, the probabilities of all words added up, ``<s>`` and what cannot come left out."""
    words = [word for word, p in zip(model.words, model.orders[0].log_prob, strict=True) if p > NEVER + 1]
    texts = [[*context, word] for context in contexts for word in words]
    last = np.cumsum([len(text) for text in texts]) - 1
    return np.exp(model.log_probs(texts, False)[last]).reshape(len(contexts), len(words)).sum(1)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.text("abcd", max_size=9), min_size=1, max_size=12).filter(any),
    st.integers(1, 4),
    st.lists(st.integers(0, 3), max_size=3).map(sorted),
    st.booleans(),
)
def test_every_distribution_sums_to_one(texts, order, prune, boundaries):
    order = min(order, max(map(len, texts)))
    model = train_ngram(texts, order, [0, *prune][:order], boundaries)
    contexts = [
        [],
        ["<s>"],
        ["<unk>", "a"],
        *([c] for c in "abcdz"),
        *(list(t[:k]) for t in texts for k in range(len(t))),
    ]
    contexts += [["<s>", *text] for text in texts]
    np.testing.assert_allclose(sums(model, contexts), 1, atol=1e-9)
    assert all((grams.log_prob <= 0).all() and (grams.backoff <= 1e-12).all() for grams in model.orders)


def test_counts_by_hand():
    """One stream "a b a b a c": c(a) after <nothing>, b; c(b) after a; c(c) after a. Fallback discounts everywhere."""
    model = train_ngram(["ababac"], 2, boundaries=False)
    # unigrams: the start counts as a neighbour of a: c = 2, 1, 1; D = 1, .5, .5; 2/4 of the mass to a, b, c, <unk>
    unigram = {"a": 1 / 4 + 1 / 8, "b": 1 / 8 + 1 / 8, "c": 1 / 8 + 1 / 8, "<unk>": 1 / 8}
    for word, p in unigram.items():
        assert math.exp(model.score([word], False, False)[0]) == pytest.approx(p)
    # a b twice, a c once: (2 - 1)/3 + gamma p(b), gamma = (1 + .5)/3
    assert math.exp(model.score(["a", "b"], False, False)[1]) == pytest.approx(1 / 3 + 0.5 * unigram["b"])
    assert math.exp(model.score(["a", "<unk>"], False, False)[1]) == pytest.approx(0.5 / 8)
    # nothing follows c
    assert math.exp(model.score(["c", "b"], False, False)[1]) == pytest.approx(unigram["b"])
    assert model.score([], False, True)[0] == pytest.approx(NEVER)  # no </s> in a stream


def test_discounts():
    counts = np.array([0] * 5 + [1] * 8 + [2] * 4 + [3] * 2 + [4] * 2 + [5, 9, 200])
    y = 8 / 16
    assert discounts(counts).tolist() == pytest.approx([0, 1 - 2 * y * 4 / 8, 2 - 3 * y * 2 / 4, 3 - 4 * y * 2 / 2])
    for missing in (1, 2, 3):
        assert discounts(counts[counts != missing]).tolist() == list(FALLBACK)
    assert discounts(counts[counts != 4])[3] == 3  # no n-gram of count 4 is no obstacle
    many_fours = np.append(counts, [4] * 9)  # 3 - 4 Y 11/2 < 0
    assert discounts(many_fours).tolist() == list(FALLBACK)


def test_a_stream_is_not_cut():
    """Contexts run over what would be a line's end."""
    words = " ".join(["the cat sat <eos> on a mat <eos>"] * 4).split()
    model = train_ngram([words], 3, boundaries=False)
    assert ("sat", "<eos>", "on") in {tuple(model.words[i] for i in row) for row in model.orders[2].words}
    assert model.log_probs([words], False)[4] > math.log(0.5)


def test_pruning_drops_and_thresholds_extend():
    texts = some_text(1)
    book = Textbook(texts, 4)
    for prune, thresholds in (((0, 1), (0, 1, 1, 1)), ((0, 0, 2), (0, 0, 2, 2)), ((), (0, 0, 0, 0))):
        model = train_ngram(texts, 4, prune)
        for n in (2, 3, 4):
            kept = {tuple(model.words[i] for i in row) for row in model.orders[n - 1].words}
            assert kept == {gram for gram, count in book.raw[n].items() if count > thresholds[n - 1]}
        assert len(model.orders[0].words) == len(model.words)


def test_everything_pruned_leaves_the_unigrams():
    model = train_ngram(["abcab"], 3, (0, 99))
    assert [len(grams.words) for grams in model.orders] == [6, 0, 0]
    unigrams = train_ngram(["abcab"], 3).orders[0].log_prob
    assert model.score("ab", end=False) == pytest.approx([unigrams[3], unigrams[4]])


@pytest.mark.parametrize(("order", "prune"), [(2, ()), (3, ()), (5, ()), (4, (0, 0, 1))])
@pytest.mark.parametrize("name", ["m.arpa", "m.arpa.gz"])
def test_files_for_us_and_kenlm(order, prune, name, tmp_path):
    texts = some_text(order, 200)
    model = train_ngram(texts, order, prune)
    write_arpa(model, tmp_path / name)
    again = read_arpa(tmp_path / name)
    unseen = some_text(98, 50, words=50)
    np.testing.assert_allclose(again.log_probs(unseen), model.log_probs(unseen), atol=1e-5)
    kenlm = pytest.importorskip("kenlm")
    reference = kenlm.Model(str(tmp_path / name))
    assert reference.order == order
    theirs = [score for text in unseen for score, _, _ in reference.full_scores(" ".join(text))]
    np.testing.assert_allclose(model.log_probs(unseen) / math.log(10), theirs, atol=1e-5)


def test_one_kind_of_word():
    model = train_ngram([["la"] * 6], 3, boundaries=False)
    assert sums(model, [[], ["la"], ["la", "la"]]) == pytest.approx(1)
    assert model.score(["la"] * 3, False, False)[2] > math.log(0.5)
    assert train_ngram([["la"]], 3).perplexity([["la"]]) > 1


@pytest.mark.parametrize(
    ("sequences", "options", "message"),
    [
        ([], {}, "no words"),
        ([[], []], {}, "no words"),
        ([""], {"boundaries": False}, "no words"),
        ("the cat", {}, "a string came"),
        (["abc"], {"order": 0}, "order 0"),
        (["abc"], {"order": -1}, "order -1"),
        (["abc", "a"], {"order": 6}, "at most 5 symbols"),
        (["abc", "a"], {"order": 4, "boundaries": False}, "at most 3 symbols"),
        (["abc"], {"prune": (1,)}, "0 for the unigrams"),
        (["abc"], {"prune": (0, 2, 1)}, "never fall"),
        (["abc"], {"prune": (0, -1)}, "never fall"),
        (["abc"], {"prune": (0, 0, 0, 0)}, "up to 2 numbers"),
        ([["a", "<s>"]], {}, "<s> or </s>"),
        ([["a", "</s>"]], {}, "<s> or </s>"),
        ([["a", "<s>", "b"]], {"boundaries": False}, "<s> or </s>"),
        ([[1, 2, 3]], {}, "words are strings"),
    ],
)
def test_bad_input(sequences, options, message):
    with pytest.raises(InputError, match=message):
        train_ngram(sequences, **{"order": 3, **options})


def test_end_symbols_in_a_stream_are_words():
    model = train_ngram([[*"ab", "</s>", *"ac", "</s>", *"ab", "</s>"]], 2, boundaries=False)
    assert model.score(["b", "</s>"], False, False)[1] > math.log(0.4)
    assert sums(model, [[], ["a"], ["</s>"]]) == pytest.approx(1)
