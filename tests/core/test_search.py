"""Beam search, greedy and sampling against brute force over all strings, on random tables and a tiny GRU."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from voiceseq.core.scorers import CoverageScorer, Scorer, StepScorer, TokenBonus, length_bonus
from voiceseq.core.search import beam_search, greedy, sample, score_sequence
from voiceseq.errors import InputError

END = 0


class Table(Scorer):
    """p(token | utterance, position, last two tokens): any table of log-probabilities, nothing to approximate."""

    def __init__(self, batch, vocabulary, length, seed, sharpness=2.0):
        generator = torch.Generator().manual_seed(seed)
        shape = (batch, length, vocabulary, vocabulary, vocabulary)
        self.table = (sharpness * torch.randn(shape, generator=generator)).log_softmax(-1)

    def start(self, batch):
        zeros = torch.zeros(batch, dtype=torch.long)
        return torch.arange(batch), zeros, zeros

    def score(self, tokens, state):
        utterance, position, last = state
        log_probs = self.table[utterance, position.clamp(max=self.table.shape[1] - 1), last, tokens]
        return log_probs, (utterance, position + 1, tokens)

    def of(self, utterance):
        alone = Table(1, 2, 1, 0)
        alone.table = self.table[utterance : utterance + 1]
        return alone


class TinyGRU(nn.Module):
    """A decoder whose state carries its attention weights over a few source frames."""

    def __init__(self, vocabulary, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.embed, self.cell = nn.Embedding(vocabulary, 8), nn.GRUCell(8, 8)
        self.out = nn.Linear(16, vocabulary)
        with torch.no_grad():
            self.out.weight.mul_(4)

    def step(self, tokens, state):
        hidden, memory, mask, _ = state
        hidden = self.cell(self.embed(tokens), hidden)
        weights = (memory @ hidden[:, :, None])[..., 0].masked_fill(~mask, -1e9).softmax(1)
        read = (weights[:, None] @ memory)[:, 0]
        return self.out(torch.cat([hidden, read], 1)).log_softmax(1), (hidden, memory, mask, weights)

    def scorer(self, memory, lengths):
        mask = torch.arange(memory.shape[1]) < lengths[:, None]
        hidden = torch.zeros(len(memory), 8)
        return StepScorer(self.step, (hidden, memory, mask, torch.zeros(mask.shape)))


def all_strings(vocabulary, max_length, min_length=0):
    symbols = [token for token in range(vocabulary) if token != END]
    return [s for n in range(min_length, max_length + 1) for s in itertools.product(symbols, repeat=n)]


def naive_score(scorers, tokens, start=0, alpha=0.0):
    """One utterance, one string, one token after the other."""
    states, total, last = [scorer.start(1) for scorer, _ in scorers], 0.0, start
    for token in (*tokens, END):
        for k, (scorer, weight) in enumerate(scorers):
            log_probs, states[k] = scorer.score(torch.tensor([last]), states[k])
            total += weight * float(log_probs[0, token])
        last = token
    return total / (len(tokens) + 1) ** alpha


def brute_force(scorers, vocabulary, max_length, alpha=0.0, min_length=0, nbest=1):
    scored = [(naive_score(scorers, s, alpha=alpha), s) for s in all_strings(vocabulary, max_length, min_length)]
    return sorted(scored, reverse=True)[:nbest]


@pytest.mark.parametrize(("alpha", "patience"), [(0.0, 1), (0.0, None), (0.7, None), (1.0, None)])
def test_full_width_beam_is_brute_force(alpha, patience):
    table = Table(2, 3, 4, seed=1)
    found = beam_search([(table, 1.0)], 2, 0, END, beam=3**5, max_length=4, alpha=alpha, nbest=6, patience=patience)
    for utterance, hypotheses in enumerate(found):
        expected = brute_force([(table.of(utterance), 1.0)], 3, 4, alpha, nbest=6)
        assert [h.tokens for h in hypotheses] == [tokens for _, tokens in expected]
        assert [h.score for h in hypotheses] == pytest.approx([score for score, _ in expected], abs=1e-5)


def test_length_normalisation_changes_the_winner():
    # the lecture's point: every further factor below 1 makes a long string less probable; alpha mends it
    table = Table(1, 2, 3, seed=0)
    table.table[...] = torch.tensor([0.3, 0.7]).log()  # end 0.3, go on 0.7
    short, _, long = (
        beam_search([(table, 1.0)], 1, 0, END, beam=16, max_length=3, alpha=a, patience=None)[0][0]
        for a in (0.0, 0.7, 1.0)
    )
    assert short.tokens == ()
    assert short.score == pytest.approx(math.log(0.3), abs=1e-6)
    assert long.tokens == (1, 1, 1)
    assert long.score == pytest.approx((3 * math.log(0.7) + math.log(0.3)) / 4, abs=1e-6)


def test_weighted_scorers_with_a_reward_are_searched_to_the_end():
    table, other = Table(1, 3, 4, seed=3), Table(1, 3, 4, seed=4)
    scorers = [(table, 0.6), (other, 0.4), (length_bonus(3, END), 1.5)]
    found = beam_search(scorers, 1, 0, END, beam=3**5, max_length=4, nbest=4, patience=None)[0]
    expected = brute_force(scorers, 3, 4, nbest=4)
    assert [h.tokens for h in found] == [tokens for _, tokens in expected]
    assert [h.score for h in found] == pytest.approx([score for score, _ in expected], abs=1e-5)
    for hypothesis in found:
        assert len(hypothesis.log_probs) == 3
        assert hypothesis.log_probs[2] == len(hypothesis.tokens)
        total = sum(w * p for (_, w), p in zip(scorers, hypothesis.log_probs, strict=True))
        assert total == pytest.approx(hypothesis.score, abs=1e-5)


def naive_greedy(scorer, max_length):
    state, last, tokens, total = scorer.start(1), 0, [], 0.0
    while True:
        log_probs, state = scorer.score(torch.tensor([last]), state)
        last = END if len(tokens) == max_length else int(log_probs[0].argmax())
        total += float(log_probs[0, last])
        if last == END:
            return tuple(tokens), total
        tokens.append(last)


@pytest.mark.parametrize("seed", range(5))
def test_beam_of_one_is_greedy(seed):
    table = Table(4, 5, 8, seed)
    found = greedy([(table, 1.0)], 4, 0, END, max_length=8)
    beams = beam_search([(table, 1.0)], 4, 0, END, beam=1, max_length=8, alpha=0.7)
    for utterance in range(4):
        tokens, score = naive_greedy(table.of(utterance), 8)
        assert found[utterance].tokens == tokens == beams[utterance][0].tokens
        assert found[utterance].score == pytest.approx(score, abs=1e-5)
        assert found[utterance].finished == (len(tokens) < 8)


def naive_beam(scorer, vocabulary, beam, max_length, alpha):
    """The textbook's loop over lists."""
    live, kept = [((), 0.0)], []
    for length in range(1, max_length + 2):
        candidates = []
        for tokens, _ in live:
            for token in [END] if length == max_length + 1 else range(vocabulary):
                state, last, total = scorer.start(1), 0, 0.0
                for t in (*tokens, token):
                    log_probs, state = scorer.score(torch.tensor([last]), state)
                    total, last = total + float(log_probs[0, t]), t
                candidates.append(((*tokens, token), total))
        best = sorted(candidates, key=lambda c: -c[1])[:beam]
        kept += [(tokens[:-1], total / length**alpha) for tokens, total in best if tokens[-1] == END]
        live = [(tokens, total) for tokens, total in best if tokens[-1] != END]
    return sorted(kept, key=lambda c: -c[1])


@pytest.mark.parametrize("alpha", [0.0, 0.7])
def test_narrow_beams_equal_the_textbook_loop(alpha):
    table = Table(3, 4, 6, seed=7)
    for beam in (2, 3, 5):
        found = beam_search([(table, 1.0)], 3, 0, END, beam=beam, max_length=6, alpha=alpha, nbest=4, patience=None)
        for utterance, hypotheses in enumerate(found):
            expected = naive_beam(table.of(utterance), 4, beam, 6, alpha)[:4]
            assert [h.tokens for h in hypotheses] == [tokens for tokens, _ in expected]
            assert [h.score for h in hypotheses] == pytest.approx([s for _, s in expected], abs=1e-5)


@torch.no_grad()
def gru_batch(batch=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 8, (batch,), generator=generator)
    return TinyGRU(9), torch.randn(batch, 7, 8, generator=generator), lengths


@pytest.mark.parametrize("beam", [1, 3, 20])
def test_batch_equals_alone(beam):
    model, memory, lengths = gru_batch()
    settings = {"beam": beam, "alpha": 0.5, "nbest": 3}
    limits = torch.tensor([3, 12, 7, 12, 1, 9])
    together = beam_search([(model.scorer(memory, lengths), 1.0)], 6, 1, END, max_length=limits, **settings)
    for b in range(6):
        one = model.scorer(memory[b : b + 1, : int(lengths[b])], lengths[b : b + 1])
        (alone,) = beam_search([(one, 1.0)], 1, 1, END, max_length=int(limits[b]), **settings)
        assert [h.tokens for h in alone] == [h.tokens for h in together[b]]
        assert [h.score for h in alone] == pytest.approx([h.score for h in together[b]], abs=1e-4)
        assert [h.finished for h in alone] == [h.finished for h in together[b]]
        for h in alone:  # what each token adds, and the end, make the whole
            scored = score_sequence([(one, 1.0)], [h.tokens], 1, None)[0].log_probs[0] if h.tokens else 0.0
            assert len(h.each) == len(h.tokens)
            assert sum(h.each) == pytest.approx(scored, abs=1e-4)


@torch.no_grad()
def test_memory_of_an_utterance_is_shared_by_its_hypotheses():
    # one row an utterance, never copied for the beam, dropped with its utterance: the same answers as in the state
    model, memory, lengths = gru_batch(5, seed=6)
    mask = torch.arange(7) < lengths[:, None]
    sizes = set()

    def step(tokens, hidden, shared):
        frames, valid = shared
        sizes.add((len(tokens) // len(frames), len(frames)))
        repeat = torch.arange(len(frames)).repeat_interleave(len(tokens) // len(frames))
        log_probs, state = model.step(tokens, (hidden, frames[repeat], valid[repeat], None))
        return log_probs, state[0]

    scorer = StepScorer(step, torch.zeros(5, 8), (memory, mask))
    limits = torch.tensor([2, 9, 5, 9, 1])
    options = {"beam": 4, "max_length": limits, "min_length": 1, "nbest": 2}
    found = beam_search([(scorer, 1.0)], 5, 1, END, **options)
    expected = beam_search([(model.scorer(memory, lengths), 1.0)], 5, 1, END, **options)
    assert [[h.tokens for h in b] for b in found] == [[h.tokens for h in b] for b in expected]
    assert [b[0].score for b in found] == pytest.approx([b[0].score for b in expected], abs=1e-5)
    assert {(1, 5), (4, 5)} < sizes
    assert any(utterances < 5 for _, utterances in sizes)
    again = score_sequence([(scorer, 1.0)], [b[0].tokens for b in found], 1, END)
    assert [h.score for h in again] == pytest.approx([b[0].score for b in found], abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    vocabulary=st.integers(1, 6),
    beam=st.integers(1, 40),
    batch=st.integers(1, 4),
    max_length=st.integers(0, 6),
    min_length=st.integers(0, 3),
    alpha=st.sampled_from([0.0, 0.7, 1.0]),
    nbest=st.integers(1, 5),
)
def test_properties(seed, vocabulary, beam, batch, max_length, min_length, alpha, nbest):
    min_length = min(min_length, max_length) if vocabulary > 1 else 0
    scorers = [(Table(batch, vocabulary, 7, seed), 0.7), (Table(batch, vocabulary, 7, seed + 1), 0.3)]
    found = beam_search(
        scorers, batch, 0, END, beam=beam, max_length=max_length, min_length=min_length, alpha=alpha, nbest=nbest
    )
    assert len(found) == batch
    for rank in range(nbest):
        rows = [hypotheses[min(rank, len(hypotheses) - 1)] for hypotheses in found]
        again = score_sequence(scorers, [h.tokens for h in rows], 0, END, alpha=alpha)
        assert [h.score for h in again] == pytest.approx([h.score for h in rows], abs=1e-5)
        for one, two in zip(again, rows, strict=True):
            assert one.log_probs == pytest.approx(two.log_probs, abs=1e-5)
    for hypotheses in found:
        scores = [h.score for h in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert 1 <= len(hypotheses) <= nbest
        assert len({h.tokens for h in hypotheses}) == len(hypotheses)
        assert all(min_length <= len(h.tokens) <= max_length and END not in h.tokens for h in hypotheses)


def test_min_length_and_limits_per_utterance():
    table = Table(2, 3, 6, seed=5)
    found = beam_search(
        [(table, 1.0)], 2, 0, END, beam=3**7, max_length=torch.tensor([3, 5]), min_length=2, nbest=3, patience=None
    )
    for utterance, limit in enumerate((3, 5)):
        expected = brute_force([(table.of(utterance), 1.0)], 3, limit, min_length=2, nbest=3)
        assert [h.tokens for h in found[utterance]] == [tokens for _, tokens in expected]


def test_a_finished_hypothesis_is_never_lost():
    # the short string leaves the beam at once; three steps of better-looking others must not push it out
    table = Table(1, 4, 6, seed=0)
    table.table[...] = torch.tensor([1e-6, 0.4, 0.35, 0.25]).log()
    table.table[:, 0] = torch.tensor([0.3, 0.4, 0.2, 0.1]).log()
    found = beam_search([(table, 1.0)], 1, 0, END, beam=2, max_length=5)[0][0]
    assert found.tokens == ()
    assert found.finished


def test_one_stop_symbol_per_start_and_start_per_utterance():
    table = Table(1, 4, 5, seed=2)
    table.table = table.table.expand(3, -1, -1, -1, -1)
    found = beam_search([(table, 1.0)], 3, torch.tensor([1, 2, 3]), END, beam=3, max_length=5)
    for start, (best,) in zip((1, 2, 3), found, strict=True):
        assert best.score == pytest.approx(naive_score([(table, 1.0)], best.tokens, start), abs=1e-5)


@torch.no_grad()
def test_coverage_penalty_by_hand():
    model, memory, lengths = gru_batch(3, seed=4)
    scorer = CoverageScorer(model.scorer(memory, lengths), lambda state: state[3], lengths, 7, END, beta=0.8)
    found = beam_search([(scorer, 1.0)], 3, 1, END, beam=4, max_length=6, patience=None)
    for b, (best,) in enumerate(found):
        state, total, coverage, last = model.scorer(memory, lengths).start(3), 0.0, 0.0, 1
        for token in (*best.tokens, END):
            log_probs, state = model.step(torch.full((3,), last), state)
            coverage = coverage + state[3][b, : int(lengths[b])]
            total, last = total + float(log_probs[b, token]), token
        penalty = sum(math.log(min(float(p), 1.0)) for p in coverage)
        assert best.score == pytest.approx(total + 0.8 * penalty, abs=1e-4)


def test_stopping_early_costs_nothing_at_alpha_zero():
    steps = []

    class Counting(Table):
        def score(self, tokens, state):
            steps.append(len(tokens))
            return super().score(tokens, state)

    for seed in range(10):
        table = Counting(1, 4, 12, seed)
        steps.clear()
        early = beam_search([(table, 1.0)], 1, 0, END, beam=4, max_length=50, nbest=2)
        used = len(steps)
        late = beam_search([(table, 1.0)], 1, 0, END, beam=4, max_length=50, nbest=2, patience=None)
        assert early == late
        assert used < 50


# sampling


def exact_draws(logits, temperature=1.0, top_k=None, top_p=None):
    """The distribution that sampling should follow, in plain Python."""
    weights = {v: math.exp(x / temperature) for v, x in enumerate(logits)}
    ranked = sorted(weights, key=lambda v: -weights[v])[: top_k or len(weights)]
    total, kept, mass = sum(weights[v] for v in ranked), [], 0.0
    for v in ranked:
        if top_p is not None and mass >= top_p:
            break
        kept.append(v)
        mass += weights[v] / total
    total = sum(weights[v] for v in kept)
    return {v: weights[v] / total for v in kept}


@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 0.5}, {"temperature": 2.0}, {"top_k": 3}, {"top_p": 0.8}, {"top_k": 4, "top_p": 0.6}],
)
def test_sampling_follows_the_distribution(options):
    logits = torch.tensor([0.1, 0.3, 0.05, 0.25, 0.2, 0.1]).log()
    logits[5] += 0.01  # no ties
    scorer = StepScorer(lambda tokens, state: (logits.log_softmax(0).expand(len(tokens), -1), state))
    count = 20_000
    drawn = sample([(scorer, 1.0)], count, 0, None, max_length=1, generator=torch.Generator().manual_seed(5), **options)
    observed = torch.tensor([h.tokens[0] for h in drawn]).bincount(minlength=6).tolist()
    expected = exact_draws(logits.tolist(), **options)
    assert {v for v, n in enumerate(observed) if n} == set(expected)
    chi_square = sum((observed[v] - count * p) ** 2 / (count * p) for v, p in expected.items())
    assert chi_square < 20.5  # 0.1 % of the chi-square distribution with 5 degrees of freedom


def test_sampling_is_deterministic_and_scored():
    table = Table(5, 6, 8, seed=3)
    scorers = [(table, 1.0)]
    one, two = (
        sample(scorers, 5, 0, END, max_length=8, temperature=1.3, generator=torch.Generator().manual_seed(1))
        for _ in range(2)
    )
    assert one == two
    again = score_sequence(scorers, [h.tokens for h in one], 0, END)
    assert [h.score for h in again] == pytest.approx([h.score for h in one], abs=1e-5)
    assert all(len(h.tokens) <= 8 and h.finished == (len(h.tokens) < 8) for h in one)
    assert sample(scorers, 5, 0, END, max_length=8, top_k=1) == greedy(scorers, 5, 0, END, max_length=8)
    assert sample(scorers, 5, 0, END, max_length=8, temperature=5e-324) == greedy(scorers, 5, 0, END, max_length=8)
    open_ended = sample(scorers, 5, 0, None, max_length=4)
    assert [len(h.tokens) for h in open_ended] == [4] * 5
    again = score_sequence(scorers, [h.tokens for h in open_ended], 0, None)
    assert [h.score for h in again] == pytest.approx([h.score for h in open_ended], abs=1e-5)
    assert [h.tokens for h in sample(scorers, 5, 0, None, max_length=0)] == [()] * 5


def test_sampling_at_the_limit_is_the_joint_distribution():
    # ancestral: the frequency of whole strings, not of single tokens
    table = Table(1, 3, 2, seed=9, sharpness=0.7)
    table.table = table.table.expand(8000, -1, -1, -1, -1)
    drawn = sample([(table, 1.0)], 8000, 0, END, max_length=1, generator=torch.Generator().manual_seed(2))
    first = table.table[0, 0, 0, 0].exp()
    for token in (1, 2):
        share = sum(h.tokens == (token,) for h in drawn) / 8000
        assert share == pytest.approx(float(first[token]), abs=0.02)


# bad input


def fixed(log_probs):
    return [(StepScorer(lambda tokens, state: (log_probs.expand(len(tokens), -1), state)), 1.0)]


@pytest.mark.parametrize(
    ("scorers", "options", "message"),
    [
        (fixed(torch.zeros(3)), {"beam": 0}, "beam 0"),
        (fixed(torch.zeros(3)), {"nbest": 0}, "nbest 0"),
        (fixed(torch.zeros(3)), {"max_length": -1}, "max_length -1"),
        (fixed(torch.zeros(3)), {"max_length": 2, "min_length": 3}, "min_length 3"),
        (fixed(torch.zeros(3)), {"max_length": torch.tensor([1, 2, 3])}, "max_length of shape"),
        (fixed(torch.zeros(3)), {"alpha": -1.0}, "alpha -1"),
        (fixed(torch.zeros(3)), {"alpha": math.nan}, "alpha nan"),
        (fixed(torch.zeros(3)), {"patience": -1}, "patience is -1"),
        (fixed(torch.zeros(0)), {}, "vocabulary of 1 or more"),
        (fixed(torch.tensor([0.0, math.nan, 0.0])), {}, "NaN"),
        (fixed(torch.tensor([0.0, math.inf, 0.0])), {}, "NaN or"),
        ([], {}, "no scorers"),
        ([(fixed(torch.zeros(3))[0][0], math.nan)], {}, "weights"),
        (fixed(torch.zeros(3)) + fixed(torch.zeros(4)), {}, "one and the same"),
    ],
)
def test_bad_input_of_beam_search(scorers, options, message):
    options = {"beam": 2, "max_length": 4, **options}
    with pytest.raises(InputError, match=message):
        beam_search(scorers, 2, 0, END, **options)


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.5}])
def test_bad_input_of_sampling(options):
    with pytest.raises(InputError, match=next(iter(options))):
        sample(fixed(torch.zeros(3)), 2, 0, END, max_length=3, **options)


def test_other_bad_input():
    zeros = fixed(torch.zeros(3))
    with pytest.raises(InputError, match="end symbol 7"):
        beam_search(zeros, 1, 0, 7, beam=2, max_length=3)
    with pytest.raises(InputError, match="batch of 0"):
        beam_search(zeros, 0, 0, END, beam=2, max_length=3)
    with pytest.raises(InputError, match="start of shape"):
        beam_search(zeros, 2, torch.tensor([1, 1, 1]), END, beam=2, max_length=3)
    with pytest.raises(InputError, match="NaN"):
        sample(fixed(torch.tensor([0.0, math.nan])), 1, 0, END, max_length=3)
    with pytest.raises(InputError, match="NaN"):
        score_sequence(fixed(torch.tensor([0.0, math.nan])), [[1]], 0, END)
    with pytest.raises(InputError, match=r"outside 0\.\.2"):
        score_sequence(zeros, [[5]], 0, END)
    with pytest.raises(InputError, match="batch of 2"):
        beam_search([(StepScorer(lambda t, s: (t, s), torch.zeros(3, 1)), 1.0)], 2, 0, END, beam=2, max_length=3)
    listed = StepScorer(lambda t, s: (torch.tensor([-1.0, 0, 0]).expand(len(t), 3), [t]))
    with pytest.raises(InputError, match="list"):
        beam_search([(listed, 1.0)], 2, 0, END, beam=2, max_length=3)


def test_impossible_and_forbidden():
    ban = TokenBonus(torch.tensor([-math.inf, 0.0, 0.0]))  # never ends
    (best,) = beam_search([*fixed(torch.zeros(3)), (ban, 1.0)], 1, 0, END, beam=4, max_length=3)[0]
    assert best.tokens == ()
    assert best.score == -math.inf
    assert not best.finished
    # a scorer of weight 0 is heard and has no say, even where it says -inf
    (best,) = beam_search([*fixed(torch.tensor([0.0, -1.0, -1.0])), (ban, 0.0)], 1, 0, END, beam=4, max_length=3)[0]
    assert best.score == 0.0
    assert best.log_probs == (0.0, -math.inf)

    # a NaN in a row that is dead harms nobody: the table after `end` is never read
    def step(tokens, state):
        log_probs = torch.tensor([0.5, 0.3, 0.2]).log().repeat(len(tokens), 1)
        log_probs[tokens == END] = math.nan
        return log_probs, state

    found = beam_search([(StepScorer(step), 1.0)], 2, 1, END, beam=3, max_length=3, nbest=3, patience=None)
    assert [h.tokens for h in found[0]] == [(), (1,), (2,)]


def embedding_scorer(vocabulary):
    table = torch.zeros(vocabulary, vocabulary).log_softmax(1)
    return [(StepScorer(lambda tokens, state: (table[tokens], state)), 1.0)]


@pytest.mark.parametrize("scorers", [fixed(torch.zeros(3)), embedding_scorer(3)])  # one does not read its tokens
@pytest.mark.parametrize("start", [3, -1, 99, torch.tensor([0, 3]), torch.tensor([-1, 0])])
def test_a_start_symbol_outside_the_vocabulary(scorers, start):
    searches = [
        lambda: beam_search(scorers, 2, start, END, beam=2, max_length=3),
        lambda: greedy(scorers, 2, start, END, max_length=3),
        lambda: sample(scorers, 2, start, END, max_length=3),
        lambda: sample(scorers, 2, start, None, max_length=3),
        lambda: score_sequence(scorers, [[1], [2]], start, END),
    ]
    for search in searches:
        with pytest.raises(InputError, match=r"the start symbol -?\d+ came|cannot read the tokens .* the start symbol"):
            search()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 2.0}, "beam 2.0"),
        ({"beam": 2.5}, "beam 2.5"),
        ({"nbest": 1.5}, "nbest 1.5"),
        ({"min_length": 0.5}, "min_length is 0.5"),
        ({"min_length": -1}, "min_length is -1"),
        ({"patience": 1.5}, "patience is 1.5"),
        ({"max_length": 2.5}, "max_length"),
        ({"max_length": None}, "max_length"),
        ({"start": None}, "start"),
        ({"start": "a"}, "start"),
    ],
)
def test_settings_of_a_search_are_whole_numbers(options, message):
    options = {"beam": 2, "max_length": 4, "start": 0, **options}
    with pytest.raises(InputError, match=message):
        beam_search(fixed(torch.zeros(3)), 2, end=END, **options)


def test_top_k_is_a_whole_number():
    with pytest.raises(InputError, match=r"top_k is 1.5"):
        sample(fixed(torch.zeros(3)), 2, 0, END, max_length=3, top_k=1.5)


def test_a_beam_wider_than_the_vocabulary_is_the_proof():
    """Nothing is ever dropped, so the best of all strings is found; a wider beam changes nothing."""
    table = Table(2, 3, 4, seed=0)
    wide = beam_search([(table, 1.0)], 2, 0, END, beam=3**5, max_length=4, nbest=5, patience=None)
    wider = beam_search([(table, 1.0)], 2, 0, END, beam=10 * 3**5, max_length=4, nbest=5, patience=None)
    assert wide == wider
    for utterance, found in enumerate(wide):
        expected = brute_force([(table.of(utterance), 1.0)], 3, 4, nbest=5)
        assert [h.tokens for h in found] == [tokens for _, tokens in expected]
