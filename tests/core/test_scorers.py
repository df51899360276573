"""The scorer contract and the small scorers, against their definitions; CTC prefixes against sums over all paths."""

import itertools
import math
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from voiceseq.core.ctc_scorer import CTCPrefixScorer
from voiceseq.core.scorers import (
    CoverageScorer,
    PhraseBooster,
    StepScorer,
    TokenBonus,
    join_rows,
    length_bonus,
    select_rows,
    word_bonus,
)
from voiceseq.core.search import beam_search, score_sequence
from voiceseq.errors import InputError

BLANK = 0


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor | None


def test_select_and_join_rows_keep_the_nest():
    state = (torch.arange(6).view(3, 2), (None, Pair(torch.tensor([5.0, 6.0, 7.0]), None)))
    picked = select_rows(state, torch.tensor([2, 2, 0, 1]))
    assert picked[0].tolist() == [[4, 5], [4, 5], [0, 1], [2, 3]]
    assert isinstance(picked[1][1], Pair)
    assert picked[1][1].left.tolist() == [7, 7, 5, 6]
    assert picked[1][0] is None
    joined = join_rows([state, picked])
    assert joined[0].shape == (7, 2)
    assert joined[1][1].left.tolist() == [5, 6, 7, 7, 7, 5, 6]


def random_log_probs(batch, time, vocabulary, seed, sharpness=1.0):
    generator = torch.Generator().manual_seed(seed)
    return (sharpness * torch.randn(batch, time, vocabulary, generator=generator)).log_softmax(-1)


def string_probs(log_probs):
    """``(time, vocabulary)`` -> {string: P}, over all paths."""
    time, vocabulary = log_probs.shape
    probs, total = log_probs.double().exp().tolist(), {}
    for path in itertools.product(range(vocabulary), repeat=time):
        string = tuple(c for c, _ in itertools.groupby(path) if c != BLANK)
        total[string] = total.get(string, 0.0) + math.prod(probs[t][c] for t, c in enumerate(path))
    return total


def log(p):
    return math.log(p) if p > 0 else -math.inf


@pytest.mark.parametrize(("time", "vocabulary", "end"), [(5, 4, 3), (6, 3, 2), (4, 4, 1), (1, 3, 2)])
def test_ctc_prefix_scores_are_sums_over_all_paths(time, vocabulary, end):
    log_probs = random_log_probs(1, time, vocabulary, seed=time)
    log_probs[..., end] = -1e4  # the end is no output of CTC
    log_probs = log_probs.log_softmax(-1)
    strings = string_probs(log_probs[0])
    begins = lambda h: sum(p for s, p in strings.items() if s[: len(h)] == h)  # noqa: E731
    symbols = [c for c in range(vocabulary) if c not in (BLANK, end)]
    scorer = CTCPrefixScorer(log_probs, None, BLANK, end)
    for prefix in (p for n in range(5) for p in itertools.product(symbols, repeat=n)):
        if begins(prefix) == 0:
            continue
        state, tokens = scorer.start(1), (end, *prefix)
        for token in tokens:
            row, state = scorer.score(torch.tensor([token]), state)
        expected = {c: log(begins((*prefix, c))) - log(begins(prefix)) for c in symbols}
        expected[end] = log(strings.get(prefix, 0.0)) - log(begins(prefix))
        for c, value in expected.items():
            assert float(row[0, c]) == pytest.approx(value, abs=1e-5)
        assert row[0, BLANK] == -math.inf
        assert float(row.exp().sum()) == pytest.approx(1.0, abs=1e-5)  # one of them must come


def test_ctc_prefix_sums_are_the_ctc_loss_on_padded_batches():
    log_probs = random_log_probs(4, 60, 12, seed=3)
    lengths = torch.tensor([60, 33, 60, 7])
    strings = [[5, 5, 3, 1, 1, 1, 9], [2], list(range(1, 11)) * 2, []]
    scorer = CTCPrefixScorer(log_probs, lengths, BLANK, 11)
    found = score_sequence([(scorer, 1.0)], strings, 11, 11)
    loss = nn.functional.ctc_loss(
        log_probs.double().transpose(0, 1),
        torch.tensor([c for s in strings for c in s]),
        lengths,
        torch.tensor([len(s) for s in strings]),
        reduction="none",
    )
    assert [h.score for h in found] == pytest.approx((-loss).tolist(), abs=1e-3)
    for b, string in enumerate(strings):
        one = CTCPrefixScorer(log_probs[b : b + 1, : int(lengths[b])], None, BLANK, 11)
        assert score_sequence([(one, 1.0)], [string], 11, 11)[0].score == pytest.approx(found[b].score, abs=1e-4)
    # a string that does not fit into the frames
    assert score_sequence([(scorer, 1.0)], [[1], [1], [1], [1] * 8], 11, 11)[3].score == -math.inf


def test_ctc_prefix_scorer_over_long_sharp_frames():
    log_probs = random_log_probs(1, 1500, 20, seed=5, sharpness=30.0)
    string = [c for c, _ in itertools.groupby(log_probs[0].argmax(-1).tolist()) if c not in (BLANK, 19)]
    log_probs[..., 19] = -50.0
    (found,) = score_sequence([(CTCPrefixScorer(log_probs, None, BLANK, 19), 1.0)], [string[:200]], 19, 19)
    loss = nn.functional.ctc_loss(
        log_probs.double().transpose(0, 1), torch.tensor([string[:200]]), torch.tensor([1500]), torch.tensor([200])
    )
    assert found.score == pytest.approx(-float(loss) * 200, rel=1e-4)


def table_decoder(vocabulary, seed):
    """p(token | last token) of a table."""
    table = random_log_probs(1, vocabulary, vocabulary, seed)[0]
    return StepScorer(lambda tokens, state: (table[tokens], state)), table


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_joint_ctc_attention_decoding_is_brute_force(weight):
    end, log_probs = 3, random_log_probs(3, 5, 4, seed=7)
    log_probs[..., end] = -1e4
    log_probs, lengths = log_probs.log_softmax(-1), torch.tensor([5, 3, 4])
    decoder, table = table_decoder(4, seed=8)
    ctc = CTCPrefixScorer(log_probs, lengths, BLANK, end)
    scorers = [(ctc, weight), (decoder, 1 - weight), (TokenBonus(torch.tensor([-math.inf, 0, 0, 0])), 1.0)]
    found = beam_search(scorers, 3, end, end, beam=4**6, max_length=5, nbest=5)
    for b, hypotheses in enumerate(found):
        strings, scores = string_probs(log_probs[b, : int(lengths[b])]), {}
        for string in (s for n in range(6) for s in itertools.product((1, 2), repeat=n)):
            attention = sum(float(table[a, c]) for a, c in itertools.pairwise((end, *string, end)))
            joint = weight * log(strings.get(string, 0.0)) if weight else 0.0
            scores[string] = joint + (1 - weight) * attention
        best = sorted(scores, key=lambda s: -scores[s])[: len(hypotheses)]
        if weight < 1:
            assert [h.tokens for h in hypotheses] == best
        assert [h.score for h in hypotheses] == pytest.approx([scores[s] for s in best], abs=1e-4)


def test_joint_decoding_in_a_batch_equals_alone():
    log_probs = random_log_probs(5, 20, 8, seed=9, sharpness=2.0)
    log_probs[..., 7] = -30.0
    log_probs, lengths = log_probs.log_softmax(-1), torch.tensor([20, 5, 12, 1, 17])
    decoder, _ = table_decoder(8, seed=10)
    ctc = CTCPrefixScorer(log_probs, lengths, BLANK, 7)
    found = beam_search([(ctc, 0.5), (decoder, 0.5)], 5, 7, 7, beam=4, max_length=20, nbest=3)
    for b in range(5):
        alone = CTCPrefixScorer(log_probs[b : b + 1, : int(lengths[b])], None, BLANK, 7)
        (expected,) = beam_search([(alone, 0.5), (decoder, 0.5)], 1, 7, 7, beam=4, max_length=20, nbest=3)
        assert [h.tokens for h in found[b]] == [h.tokens for h in expected]
        assert [h.score for h in found[b]] == pytest.approx([h.score for h in expected], abs=1e-4)
        again = score_sequence([(alone, 0.5), (decoder, 0.5)], [found[b][0].tokens], 7, 7)[0]
        assert again.score == pytest.approx(found[b][0].score, abs=1e-4)


@settings(max_examples=60, deadline=None)
@given(
    phrases=st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=4), max_size=4),
    strings=st.lists(st.lists(st.integers(1, 3), max_size=9), min_size=1, max_size=4),
    separator=st.sampled_from([None, 3]),
)
def test_phrases_add_what_occurs_and_nothing_else(phrases, strings, separator):
    booster = PhraseBooster(phrases, 4, end=0, boost=0.5, separator=separator)
    found = score_sequence([(booster, 1.0)], strings, 0, 0)
    edge = [] if separator is None else [separator]
    for string, hypothesis in zip(strings, found, strict=True):
        padded, total = edge + string + edge, 0
        for phrase in {tuple(p) for p in phrases}:
            pattern = [*edge, *phrase, *edge]
            places = range(len(padded) - len(pattern) + 1)
            total += len(phrase) * sum(padded[i : i + len(pattern)] == pattern for i in places)
        assert hypothesis.score == pytest.approx(0.5 * total)


@settings(max_examples=40, deadline=None)
@given(
    phrases=st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=4), min_size=1, max_size=4),
    string=st.lists(st.integers(1, 3), max_size=9),
    separator=st.sampled_from([None, 3]),
)
def test_phrases_never_give_more_than_their_bound(phrases, string, separator):
    booster = PhraseBooster(phrases, 4, end=0, separator=separator)
    state = booster.start(1)
    for token in (0, *string):
        gain, state = booster.score(torch.tensor([token]), state)
        assert float(gain.max()) <= booster.bound + 1e-6


def test_a_phrase_gets_its_credit_token_by_token():
    booster = PhraseBooster([[1, 2, 3]], 5, end=0, boost=2.0)
    state, gains = booster.start(1), []
    for token in (0, 1, 2):
        gain, state = booster.score(torch.tensor([token]), state)
        gains.append(gain[0].tolist())
    assert gains[0] == [0, 2, 0, 0, 0]
    assert gains[1] == [-2, 0, 2, -2, -2]  # 1 again: the old credit goes, a new one comes
    assert gains[2] == [-4, -2, -4, 2, -4]


def test_length_and_word_bonus():
    assert score_sequence([(length_bonus(4, 0), 0.5)], [[1, 2, 3]], 0, 0)[0].score == 1.5
    assert score_sequence([(word_bonus(4, 0, 3), 1.0)], [[1, 3, 2]], 0, 0)[0].score == 2.0
    assert length_bonus(4, 0).bound == 1.0


def test_bad_input():
    log_probs = random_log_probs(2, 5, 4, seed=0)
    for arguments, message in [
        ((log_probs[0], None, 0, 3), "shape"),
        ((log_probs, torch.tensor([5, 6]), 0, 3), "6"),
        ((log_probs, torch.tensor([0, 5]), 0, 3), "at least 1"),
        ((log_probs * math.nan, None, 0, 3), "NaN"),
        ((log_probs, None, 3, 3), "blank 3 and end 3"),
        ((log_probs, None, 0, 4), "end 4"),
    ]:
        with pytest.raises(InputError, match=message):
            CTCPrefixScorer(*arguments)
    with pytest.raises(InputError, match="batch of 3"):
        CTCPrefixScorer(log_probs, None, 0, 3).start(3)
    with pytest.raises(InputError, match="phrase"):
        PhraseBooster([[]], 4, end=0)
    with pytest.raises(InputError, match="phrase"):
        PhraseBooster([[4]], 4, end=0)
    with pytest.raises(InputError, match="bonus of shape"):
        TokenBonus(torch.zeros(2, 2))
    with pytest.raises(InputError, match="bonus of shape"):
        TokenBonus(torch.tensor([math.nan]))
    with pytest.raises(InputError, match="beta"):
        CoverageScorer(StepScorer(lambda t, s: (t, s)), lambda s: s, torch.tensor([1]), 1, 0, beta=-1.0)
    with pytest.raises(InputError, match="dict"):
        select_rows({"a": torch.zeros(1)}, torch.tensor([0]))
