import math
import random
from functools import cache

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceseq.core.distance import align, edit_distance
from voiceseq.errors import InputError
from voiceseq.evaluation.metrics import (
    Errors,
    bleu,
    bootstrap,
    character_errors,
    clipped_precision,
    count_errors,
    perplexity,
    word_errors,
)

# --- edit distance ---------------------------------------------------------------------------------------------------

strings = st.text("abc", max_size=8)


def recursive_distance(one, other):
    """The textbook recursion, nothing clever."""

    @cache
    def distance(i, j):
        if not i or not j:
            return i + j
        return min(
            distance(i - 1, j) + 1, distance(i, j - 1) + 1, distance(i - 1, j - 1) + (one[i - 1] != other[j - 1])
        )

    return distance(len(one), len(other))


@settings(deadline=None, max_examples=200)
@given(strings, strings)
def test_distance_is_the_textbooks(one, other):
    assert edit_distance(one, other) == recursive_distance(one, other)


@settings(deadline=None, max_examples=200)
@given(strings, strings)
def test_the_edits_lead_from_one_to_the_other_on_a_shortest_way(one, other):
    edits = align(one, other)
    assert "".join(edit.reference for edit in edits if edit.operation != "insert") == one
    assert "".join(edit.hypothesis for edit in edits if edit.operation != "delete") == other
    assert all((edit.reference == edit.hypothesis) == (edit.operation == "equal") for edit in edits)
    errors = count_errors(one, other)
    assert errors.total == edit_distance(one, other)
    assert errors.insertions - errors.deletions == len(other) - len(one)
    assert errors.reference == len(one)


def test_edits_of_an_example():
    assert count_errors("abcdefgh", "axcefghi") == Errors(substitutions=1, insertions=1, deletions=1, reference=8)
    edits = align(["a", "b", "c"], ["a", "x", "c", "d"])
    assert [edit.operation for edit in edits] == ["equal", "substitute", "equal", "insert"]
    assert edit_distance("kitten", "sitting") == 3
    assert edit_distance([("tuple", 1), None], [None]) == 1


def test_error_rates_are_of_the_corpus_and_not_a_mean_of_rates():
    errors = word_errors(["a b c d e f g h i", "x"], ["a b c d e f g h i", "y z"])
    assert errors == Errors(1, 1, 0, 10)
    assert errors.rate == pytest.approx(0.2)
    assert word_errors(["a  b\n"], [["a", "b"]]).rate == 0
    assert word_errors(["a"], ["b c d"]).rate == 3  # more errors than words
    assert word_errors(["", "a b"], ["c", "a b"]) == Errors(0, 1, 0, 2)
    assert character_errors(["ab cd"], ["abcd"]) == Errors(0, 0, 1, 5)
    assert character_errors(["naïve 👍"], ["naive 👍"]).rate == pytest.approx(1 / 7)


# --- BLEU ------------------------------------------------------------------------------------------------------------

CAT = ["the cat is on the mat", "there is a cat on the mat"]


def test_the_lectures_clipped_precisions():
    assert clipped_precision("the the the the the the the", CAT, 1) == (2, 7)
    assert clipped_precision("the cat the cat on the mat", CAT, 2) == (4, 6)
    assert clipped_precision("the", CAT, 2) == (0, 0)


SENTENCES = [
    "a man in a blue shirt is standing on a ladder cleaning a window .",
    "two young , white males are outside near many bushes .",
    "several men in hard hats are operating a giant pulley system .",
    "a little girl climbing into a wooden playhouse .",
    "the dog runs through the wet grass and the dog barks , and the dog sleeps .",
    "zwei Hunde laufen über den nassen Rasen .",
    "yes",
    "",
]


def perturbed(sentence, generator, strength):
    """Words dropped, doubled, swapped and replaced."""
    words = []
    for word in sentence.split():
        chance = generator.random()
        if chance < strength / 3:
            continue
        words.append("something" if chance < 2 * strength / 3 else word)
        if generator.random() < strength / 3:
            words.append(word)
    if len(words) > 2 and generator.random() < strength:
        i = generator.randrange(len(words) - 1)
        words[i], words[i + 1] = words[i + 1], words[i]
    return " ".join(words)


def agrees_with_sacrebleu(hypotheses, references, order=4):
    """``references``: a list for each hypothesis; sacrebleu wants a list for each reference number."""
    for smoothing in ("exp", "none"):
        metric = sacrebleu.BLEU(tokenize="none", smooth_method=smoothing, max_ngram_order=order, force=True)
        theirs = metric.corpus_score(hypotheses, [list(column) for column in zip(*references, strict=True)])
        ours = bleu(hypotheses, references, order, smoothing)
        assert ours.score == pytest.approx(theirs.score, abs=1e-9)
        assert (ours.hypothesis_length, ours.reference_length) == (theirs.sys_len, theirs.ref_len)
        assert ours.brevity == pytest.approx(theirs.bp)
        if theirs.score:
            assert ours.precisions == pytest.approx(theirs.precisions)
        for n in range(1, order + 1):
            counts = [clipped_precision(h, r, n) for h, r in zip(hypotheses, references, strict=True)]
            assert np.sum(counts, 0).tolist() == [theirs.counts[n - 1], theirs.totals[n - 1]]


@pytest.mark.parametrize("strength", [0.0, 0.2, 0.6, 1.5])
@pytest.mark.parametrize("several", [1, 3])
def test_sacrebleu_agrees_on_own_sentences(strength, several):
    generator = random.Random(0)
    references = [[perturbed(s, generator, 0.3 * i) for i in range(several)] for s in SENTENCES]
    agrees_with_sacrebleu([perturbed(s, generator, strength) for s in SENTENCES], references)


@pytest.mark.parametrize("strength", [0.1, 0.5, 1.2])
def test_sacrebleu_agrees_on_multi30k(shared, strength):
    path = shared / "data" / "text" / "multi30k" / "val.en"
    if not path.is_file():
        pytest.skip(f"no {path}")
    sentences = path.read_text(encoding="utf-8").splitlines()[:400]
    generator = random.Random(0)
    hypotheses = [perturbed(sentence, generator, strength) for sentence in sentences]
    agrees_with_sacrebleu(hypotheses, [[sentence] for sentence in sentences])
    agrees_with_sacrebleu(hypotheses, [[s, perturbed(s, generator, 0.4)] for s in sentences], order=2)


texts = st.lists(st.sampled_from("abcd"), max_size=7).map(" ".join)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(texts, texts, texts), min_size=1, max_size=4))
def test_sacrebleu_agrees_on_anything(rows):
    agrees_with_sacrebleu([row[0] for row in rows], [list(row[1:]) for row in rows])


def test_bleu_by_hand():
    result = bleu(["the cat sat"], [["the cat sat down"]], order=2)
    assert result.precisions == (100, 100)
    assert result.score == pytest.approx(100 * math.exp(1 - 4 / 3))
    assert bleu([CAT[0].split()], [[CAT[1].split(), CAT[0].split()]]).score == pytest.approx(100)
    assert bleu(["a b c d"], [["e f g h"]]).score == 0
    assert bleu([""], [["a"]]).score == 0


def test_nearest_reference_length_and_of_two_the_shorter():
    assert bleu(["a b c d"], [["a b", "a b c d e f"]]).reference_length == 2
    assert bleu(["a b c d"], [["a", "a b c d e f"]]).reference_length == 6


# --- perplexity, bootstrap -------------------------------------------------------------------------------------------


def test_perplexity():
    assert perplexity([math.log(1 / 8)] * 5) == pytest.approx(8)
    assert perplexity(iter([math.log(0.5), math.log(0.125)])) == pytest.approx(4)
    assert perplexity([-1e5]) == math.inf


GROUPS = {f"speaker {i}": list(np.random.default_rng(i).normal(i % 5, 1, size=3 + i % 4)) for i in range(20)}


def test_bootstrap_is_determined_by_its_seed():
    first = bootstrap(GROUPS, np.mean, seed=1)
    assert bootstrap(dict(reversed(GROUPS.items())), np.mean, seed=1) == first
    assert bootstrap(GROUPS, np.mean, seed=2) != first
    assert first.low < first.estimate < first.high
    assert first.estimate == pytest.approx(np.mean([value for group in GROUPS.values() for value in group]))


def test_bootstrap_draws_groups_and_not_values():
    """With two groups of equal values a mean can only be 0, 1/2 or 1: one draw in two has both."""
    groups = {"low": [0.0] * 50, "high": [1.0] * 50}
    seen = set()
    bootstrap(groups, lambda values: seen.add(np.mean(values)) or np.mean(values), resamples=200)
    assert seen == {0.0, 0.5, 1.0}
    assert bootstrap({"one": [1.0, 5.0]}, np.mean) == (3.0, 3.0, 3.0)


def test_bootstrap_interval_covers_the_truth_as_often_as_it_says():
    covered = 0
    for trial in range(200):
        generator = np.random.default_rng(trial)
        centres = generator.normal(0, 1, size=30)
        groups = {str(i): list(generator.normal(centre, 1, size=5)) for i, centre in enumerate(centres)}
        interval = bootstrap(groups, np.mean, resamples=200, confidence=0.9, seed=trial)
        covered += interval.low <= 0 <= interval.high
    assert 0.82 <= covered / 200 <= 0.96


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: word_errors(["a"], ["a", "b"]), "1 references, 2 hypotheses"),
        (lambda: word_errors([], []), "at least one"),
        (lambda: word_errors("a b", "a b"), "put it in a list"),
        (lambda: character_errors(["a"], "a"), "put it in a list"),
        (lambda: word_errors(["", " "], ["a", ""]).rate, "references are empty"),
        (lambda: clipped_precision("a", ["a"], 0), "n >= 1"),
        (lambda: clipped_precision("a", "a", 1), "list of references"),
        (lambda: bleu(["a"], [[]]), "at least one"),
        (lambda: bleu(["a"], ["a"]), "list of references"),
        (lambda: bleu(["a"], [["a"], ["b"]]), "2 references, 1 hypotheses"),
        (lambda: bleu(["a"], [["a"]], smoothing="floor"), "'none', 'exp'"),
        (lambda: bleu(["a"], [["a"]], order=0), "order 0"),
        (lambda: perplexity([]), "at least one"),
        (lambda: perplexity([math.nan]), "NaN"),
        (lambda: bootstrap({}, np.mean), "0 groups"),
        (lambda: bootstrap({"a": [1.0], "b": []}, np.mean), "1 of them empty"),
        (lambda: bootstrap(GROUPS, np.mean, confidence=1.0), "confidence 1.0"),
        (lambda: bootstrap(GROUPS, np.mean, resamples=0), "resamples 0"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(InputError, match=message):
        make()
