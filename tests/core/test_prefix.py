"""CTC prefix beam search against brute force over all paths and all strings, with everything that can be fused."""

import itertools
import math
import random
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from voiceseq.core.prefix import Fusion, prefix_beam_search, score_strings
from voiceseq.core.scorers import StepScorer
from voiceseq.core.search import score_sequence
from voiceseq.errors import InputError
from voiceseq.text.ngram import BEGIN, END, UNKNOWN, Grams, NgramModel

BLANK = 0


def random_log_probs(batch, time, vocabulary, seed, sharpness=1.5):
    generator = torch.Generator().manual_seed(seed)
    return (sharpness * torch.randn(batch, time, vocabulary, generator=generator)).log_softmax(-1)


def collapse(path, blank=BLANK):
    return tuple(symbol for symbol, _ in itertools.groupby(path) if symbol != blank)


def all_paths(log_probs, blank=BLANK):
    """``(time, vocabulary)`` -> {string: log P}, path by path."""
    time, vocabulary = log_probs.shape
    probs = log_probs.double().exp().tolist()
    total = {}
    for path in itertools.product(range(vocabulary), repeat=time):
        string = collapse(path, blank)
        total[string] = total.get(string, 0.0) + math.prod(probs[t][c] for t, c in enumerate(path))
    return {string: math.log(p) if p > 0 else -math.inf for string, p in total.items()}


def ranked(scores, count):
    return sorted(((score, string) for string, score in scores.items()), reverse=True)[:count]


def assert_best(found, scores):
    expected = ranked(scores, len(found))
    assert [h.tokens for h in found] == [string for _, string in expected]
    assert [h.score for h in found] == pytest.approx([score for score, _ in expected], abs=1e-9)


def random_ngram(words, order, seed, keep=0.5):
    rng = random.Random(seed)
    names = [BEGIN, END, UNKNOWN, *words]
    grams = [[(i,) for i in range(len(names))]]
    for _ in range(order - 1):
        known = set(grams[-1])
        longer = [(*g, i) for g in grams[-1] if g[-1] != 1 for i in range(1, len(names)) if rng.random() < keep]
        grams.append([g for g in longer if g[1:] in known] or longer[:1])
    orders = [
        Grams(
            np.array(level, dtype=np.int32),
            np.array([-4 * rng.random() for _ in level]),
            np.array([-rng.random() if n < order else 0.0 for _ in level]),
        )
        for n, level in enumerate(grams, start=1)
    ]
    return NgramModel(names, orders)


@pytest.mark.parametrize(("time", "vocabulary", "blank"), [(1, 2, 0), (5, 3, 0), (6, 3, 2), (5, 4, 1), (3, 1, 0)])
def test_full_beam_is_brute_force(time, vocabulary, blank):
    log_probs = random_log_probs(3, time, vocabulary, seed=time)
    found = prefix_beam_search(log_probs, blank=blank, beam=3000, nbest=8)
    for row, hypotheses in zip(log_probs, found, strict=True):
        assert_best(hypotheses, all_paths(row, blank))


def test_strings_of_all_lengths_add_up_to_one():
    log_probs = random_log_probs(1, 6, 3, seed=4)
    (found,) = prefix_beam_search(log_probs, beam=5000, nbest=5000)
    assert len(found) == len(all_paths(log_probs[0]))
    assert sum(math.exp(h.score) for h in found) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_token_ngram_and_bonus(order):
    log_probs = random_log_probs(2, 5, 4, seed=order)
    model = random_ngram(["a", "b"], order, seed=order)  # symbol 3 is unknown to it
    symbols = ["_", "a", "b", "c"]
    fusion = Fusion(4, model.table, model.spellings(symbols), weight=0.7, unknown=-0.4, bonus=0.9)
    found = prefix_beam_search(log_probs, beam=3000, nbest=10, fusion=fusion)
    for row, hypotheses in zip(log_probs, found, strict=True):
        scores = {
            s: p + 0.7 * (sum(model.score([symbols[c] for c in s])) - 0.4 * s.count(3)) + 0.9 * len(s)
            for s, p in all_paths(row).items()
        }
        assert_best(hypotheses, scores)


def word_score(model, symbols, string, separator, weight, unknown, bonus):
    words = ["".join(symbols[c] for c in g) for s, g in itertools.groupby(string, lambda c: c != separator) if s]
    strange = sum(word not in model.index for word in words)
    return weight * (sum(model.score(words)) + unknown * strange) + bonus * len(words)


@pytest.mark.parametrize("bonus", [0.0, 1.2, -0.5])
def test_word_ngram_and_bonus(bonus):
    log_probs = random_log_probs(2, 6, 4, seed=11)
    model = random_ngram(["a", "ab", "ba", "aab"], 3, seed=2)
    symbols = ["_", " ", "a", "b"]
    fusion = Fusion(4, model.table, model.spellings(symbols), separator=1, weight=0.6, unknown=-0.3, bonus=bonus)
    found = prefix_beam_search(log_probs, beam=5000, nbest=20, fusion=fusion)
    for row, hypotheses in zip(log_probs, found, strict=True):
        scores = {s: p + word_score(model, symbols, s, 1, 0.6, -0.3, bonus) for s, p in all_paths(row).items()}
        assert_best(hypotheses, scores)
        for h in hypotheses:
            ctc, ngram, words, boosted = h.log_probs
            assert h.score == pytest.approx(ctc + 0.6 * ngram + bonus * words + boosted, abs=1e-9)
            assert words == len("".join(symbols[c] for c in h.tokens).split())
            assert boosted == 0


def occurrences(string, phrases, separator=None):
    """Symbols of all the phrases in a string, one place after the other."""
    edge = () if separator is None else (separator,)
    padded, total = edge + string + edge, 0
    for phrase in {tuple(p) for p in phrases}:
        pattern = edge + phrase + edge
        total += len(phrase) * sum(
            padded[i : i + len(pattern)] == pattern for i in range(len(padded) - len(pattern) + 1)
        )
    return total


@pytest.mark.parametrize(
    "phrases", [[(2, 3)], [(2, 2, 3), (2, 3)], [(2, 3, 2), (3,), (3, 2, 3)], [(2,), (2, 3), (2, 3, 3), (2,)]]
)
@pytest.mark.parametrize("separator", [None, 1])
def test_phrases_are_boosted_and_others_not_excluded(phrases, separator):
    log_probs = random_log_probs(2, 5, 4, seed=21)
    fusion = Fusion(4, phrases=phrases, boost=1.3, separator=separator)
    plain = prefix_beam_search(log_probs, beam=5000, nbest=5000)
    found = prefix_beam_search(log_probs, beam=5000, nbest=5000, fusion=fusion)
    for row, hypotheses, before in zip(log_probs, found, plain, strict=True):
        scores = {s: p + 1.3 * occurrences(s, phrases, separator) for s, p in all_paths(row).items()}
        assert_best(hypotheses[:30], scores)
        assert {h.tokens for h in hypotheses} == {h.tokens for h in before}
        assert all(h.log_probs[3] == occurrences(h.tokens, phrases, separator) for h in hypotheses)


def test_a_boost_brings_a_phrase_through_a_narrow_beam():
    # the last symbol decides, the first two are doubtful: without credit ahead the phrase would leave a beam of 2
    probs = torch.full((5, 4), 1e-3)
    for t, (low, high) in enumerate([((2, 0.3), (1, 0.7)), ((0, 1), (0, 1)), ((2, 0.3), (1, 0.7)), ((0, 1), (0, 1))]):
        probs[t, low[0]] += low[1]
        probs[t, high[0]] += high[1]
    probs[4, 3] += 1
    log_probs = (probs / probs.sum(1, keepdim=True)).log()[None]
    ((plain,),) = prefix_beam_search(log_probs, beam=2)
    ((boosted,),) = prefix_beam_search(log_probs, beam=2, fusion=Fusion(4, phrases=[(2, 2, 3)], boost=1.0))
    assert plain.tokens == (1, 1, 3)
    assert boosted.tokens == (2, 2, 3)
    assert boosted.score == pytest.approx(boosted.log_probs[0] + 3.0)


class GrowingCache:
    """A language model that keeps its whole history, as a transformer's cache does: states grow with the prefix."""

    def __init__(self, vocabulary, seed):
        torch.manual_seed(seed)
        self.embed, self.out = nn.Embedding(vocabulary, 6), nn.Linear(6, vocabulary)

    def step(self, tokens, state):
        (history,) = state
        history = torch.cat([history, self.embed(tokens)[:, None]], 1)
        positions = torch.arange(1.0, history.shape[1] + 1)
        return 3 * self.out((history * positions[:, None].cos()).sum(1)).log_softmax(1), (history,)

    def scorer(self):
        return StepScorer(self.step, lambda batch: (torch.zeros(batch, 0, 6),))


@pytest.mark.parametrize("end", [None, 3])
def test_neural_fusion_is_brute_force(end):
    log_probs = random_log_probs(2, 5, 4, seed=31)
    log_probs[..., 3] = -math.inf  # the end symbol is no output of CTC
    log_probs = log_probs.log_softmax(-1)
    lm, other = GrowingCache(4, 0).scorer(), GrowingCache(4, 1).scorer()
    fusion = Fusion(4, bonus=0.5)
    scorers = [(lm, 0.4), (other, 0.2)]
    found = prefix_beam_search(log_probs, beam=3000, nbest=12, scorers=scorers, start=3, end=end, fusion=fusion)
    for row, hypotheses in zip(log_probs, found, strict=True):
        scores = {}
        for string, p in all_paths(row).items():
            if p > -math.inf:
                lms = [score_sequence([(s, 1.0)], [string], 3, end)[0].score for s in (lm, other)]
                scores[string] = p + 0.4 * lms[0] + 0.2 * lms[1] + 0.5 * len(string)
        assert_best(hypotheses, scores)


@pytest.mark.parametrize("fused", [False, True])
def test_scores_of_a_narrow_beam_are_those_of_the_whole_string(fused):
    model = random_ngram(["a", "b", "c"], 2, seed=5)
    fusion = Fusion(4, model.table, model.spellings("_abc"), weight=0.5, bonus=0.3) if fused else None
    log_probs = random_log_probs(8, 7, 4, seed=41)
    for beam in (1, 2, 3, 5):
        found = prefix_beam_search(log_probs, beam=beam, nbest=beam, fusion=fusion)
        for row, hypotheses in zip(log_probs, found, strict=True):
            exact = all_paths(row)
            assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
            for h in hypotheses:
                extra = 0.5 * sum(model.score(["_abc"[c] for c in h.tokens])) + 0.3 * len(h.tokens) if fused else 0.0
                assert h.score == pytest.approx(exact[h.tokens] + extra, abs=1e-9)


def naive_search(log_probs, beam):
    """The textbook's dictionaries: prefix -> (blank-ended, symbol-ended)."""
    live = {(): (1.0, 0.0)}
    for frame in log_probs.double().exp().tolist():
        grown = {}
        for prefix, (blank, symbol) in live.items():
            for c, p in enumerate(frame):
                if c == BLANK:
                    steps = [(prefix, 0, (blank + symbol) * p)]
                elif prefix and c == prefix[-1]:
                    steps = [(prefix, 1, symbol * p), ((*prefix, c), 1, blank * p)]
                else:
                    steps = [((*prefix, c), 1, (blank + symbol) * p)]
                for key, ending, mass in steps:
                    pair = list(grown.get(key, (0.0, 0.0)))
                    pair[ending] += mass
                    grown[key] = tuple(pair)
        live = dict(sorted(grown.items(), key=lambda item: -sum(item[1]))[:beam])
    return [prefix for prefix, _ in sorted(live.items(), key=lambda item: -sum(item[1]))]


@pytest.mark.parametrize("beam", [1, 2, 4, 9])
def test_narrow_beams_keep_what_the_textbook_keeps(beam):
    log_probs = random_log_probs(6, 30, 5, seed=beam)
    found = prefix_beam_search(log_probs, beam=beam, nbest=beam)
    for row, hypotheses in zip(log_probs, found, strict=True):
        assert {h.tokens for h in hypotheses} == set(naive_search(row, beam))


@pytest.mark.parametrize("level", ["symbols", "words", "phrases"])
def test_the_best_of_each_future_first_still_finds_the_best(level):
    model = random_ngram(["a", "b", "ab", "ba"], 2, seed=4)
    spelt = model.spellings("_ ab")
    fusion = {
        "symbols": Fusion(4, model.table, [s if len(s) == 1 else () for s in spelt], weight=0.8),
        "words": Fusion(4, model.table, spelt, separator=1, weight=0.8, unknown=-1.0, bonus=0.5),
        "phrases": Fusion(4, phrases=[(2, 3), (3, 3)], boost=0.7, separator=1),
    }[level]
    log_probs = random_log_probs(12, 6, 4, seed=81)
    many = prefix_beam_search(log_probs, beam=3000, nbest=3000, fusion=fusion)
    for nbest in (1, 3):
        assert prefix_beam_search(log_probs, beam=3000, nbest=nbest, fusion=fusion) == [b[:nbest] for b in many]


def test_a_short_beam_is_not_filled_with_old_differences():
    # nbest = beam asks for the plain beam: its prefixes differ long ago and share what they can become
    symbols = "_ abcdefghij"
    model = random_ngram(list(symbols[1:]), 2, seed=1)
    fusion = Fusion(12, model.table, model.spellings(symbols))
    log_probs = random_log_probs(10, 60, 12, seed=5, sharpness=2.5)
    best, plain = (
        sum(b[0].score for b in prefix_beam_search(log_probs, beam=8, nbest=nbest, fusion=fusion)) for nbest in (1, 8)
    )
    assert best > plain + 5


def test_what_the_beam_adds_up_is_the_score_of_the_whole_string():
    # rescoring would hide a beam that ranks by other numbers: what is given ahead must be taken back to the last bit
    from voiceseq.core import prefix_loops as loops

    log_probs = random_log_probs(1, 6, 4, seed=91)
    model = random_ngram(["a", "ab", "ba", "aab"], 3, seed=2)
    fusion = Fusion(
        4, model.table, model.spellings("_ ab"), separator=1, unknown=-0.3, bonus=0.4, phrases=[(2, 3), (2, 1, 3)]
    )
    frames = log_probs[0].double().numpy()
    tree, old, new, count = loops.plant(fusion.arrays, 1 + 6 * 3000, 3000)
    order = np.argsort(-frames, axis=1)
    old, _ = loops.advance(
        fusion.arrays, frames, order, BLANK, tree, old, new, count, np.zeros((0, 0)), fusion.bound, 1
    )
    old = old[: count[loops.LIVE]]
    strings = [loops.spell_out(tree, place["node"]).tolist() for place in old]
    assert len(strings) == len(all_paths(log_probs[0]))
    exact = score_strings(log_probs.expand(len(strings), -1, -1), None, strings, fusion=fusion)
    assert loops.finish(fusion.arrays, tree, old).tolist() == pytest.approx([h.score for h in exact], abs=1e-9)


def test_words_are_not_put_off_for_ever():
    # a word costs 6 nats at its end: a narrow beam must not fill with prefixes that leave the separators out
    words = ["ab", "ba", "bb", "aa"]
    names = [BEGIN, END, UNKNOWN, *words]
    grams = Grams(np.arange(7, dtype=np.int32)[:, None], np.array([-99.0, -1.0, -30.0] + [-6.0] * 4), np.zeros(7))
    model = NgramModel(names, [grams])
    text = " ".join(words[i % 4] for i in range(12))
    path = [c for symbol in text for c in (0, " ab".index(symbol) + 1)]
    generator = torch.Generator().manual_seed(3)
    logits = 0.3 * torch.randn(1, len(path), 4, generator=generator)
    logits[0, torch.arange(len(path)), path] += 4.0
    fusion = Fusion(4, model.table, model.spellings("_ ab"), separator=1, weight=1.0)
    ((best,),) = prefix_beam_search(logits.log_softmax(-1), beam=4, fusion=fusion)
    assert "".join("_ ab"[c] for c in best.tokens) == text


def test_long_strings_agree_with_torch():
    log_probs = random_log_probs(3, 300, 20, seed=51, sharpness=1.0)
    lengths = torch.tensor([300, 151, 40])
    strings = [torch.randint(1, 20, (n,), generator=torch.Generator().manual_seed(n)).tolist() for n in (120, 60, 0)]
    ours = score_strings(log_probs, lengths, strings)
    flat = torch.tensor([c for s in strings for c in s])
    loss = nn.functional.ctc_loss(
        log_probs.double().transpose(0, 1), flat, lengths, torch.tensor([120, 60, 0]), reduction="none"
    )
    assert [h.score for h in ours] == pytest.approx((-loss).tolist(), abs=1e-8)
    too_long = score_strings(log_probs[:1, :3], None, [[1, 1, 2]])[0]
    assert too_long.score == -math.inf


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    beam=st.integers(1, 12),
    nbest=st.integers(1, 6),
    vocabulary=st.integers(1, 5),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    sharpness=st.sampled_from([0.1, 1.0, 6.0]),
    bonus=st.sampled_from([0.0, 0.8]),
)
def test_properties(seed, beam, nbest, vocabulary, lengths, sharpness, bonus):
    batch, time = len(lengths), max(lengths)
    log_probs = random_log_probs(batch, time, vocabulary, seed, sharpness)
    fusion = Fusion(vocabulary, bonus=bonus, phrases=[(vocabulary - 1,) * 2], boost=0.4)
    search = partial(prefix_beam_search, beam=beam, nbest=nbest, fusion=fusion)
    found = search(log_probs, torch.tensor(lengths))
    for b, hypotheses in enumerate(found):
        (alone,) = search(log_probs[b : b + 1, : lengths[b]])
        assert alone == hypotheses
        assert 1 <= len(hypotheses) <= min(nbest, beam)
        assert len({h.tokens for h in hypotheses}) == len(hypotheses)
        assert all(BLANK not in h.tokens and len(h.tokens) <= lengths[b] for h in hypotheses)
        for h in hypotheses:
            (again,) = score_strings(log_probs[b : b + 1], torch.tensor(lengths[b : b + 1]), [h.tokens], fusion=fusion)
            assert again == h


def test_threads_change_nothing():
    log_probs = random_log_probs(6, 50, 8, seed=61)
    model = random_ngram(list("abcdefg"), 2, seed=1)
    fusion = Fusion(8, model.table, model.spellings("_abcdefg"))
    one = prefix_beam_search(log_probs, fusion=fusion, nbest=3)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert prefix_beam_search(log_probs, fusion=fusion, nbest=3) == one
    finally:
        torch.set_num_threads(threads)


def test_certain_and_impossible_outputs():
    path = [0, 1, 1, 0, 1, 2, 0]
    log_probs = torch.full((1, 7, 3), -math.inf)
    log_probs[0, torch.arange(7), path] = 0.0
    ((best,),) = prefix_beam_search(log_probs)
    assert best.tokens == (1, 1, 2)
    assert best.score == 0.0
    assert best.finished
    ((none,),) = prefix_beam_search(torch.full((1, 3, 3), -math.inf))
    assert none.tokens == ()
    assert none.score == -math.inf
    assert not none.finished


def test_long_and_sharp_frames_do_not_underflow():
    log_probs = random_log_probs(1, 3000, 30, seed=71, sharpness=40.0)
    ((best,),) = prefix_beam_search(log_probs, beam=4)
    (reference,) = score_strings(log_probs, None, [collapse(log_probs[0].argmax(-1).tolist())])
    assert math.isfinite(best.score)
    assert best.score >= reference.score - 1e-6


@pytest.mark.parametrize(
    ("log_probs", "options", "message"),
    [
        (torch.zeros(2, 3), {}, "shape"),
        (torch.zeros(0, 3, 4), {}, "at least one row"),
        (torch.zeros(2, 0, 4), {}, "one frame"),
        (torch.full((1, 2, 3), math.nan), {}, "NaN"),
        (torch.full((1, 2, 3), math.inf), {}, "NaN or infinite"),
        (torch.full((1, 2, 3), 2.0), {}, "log_softmax"),
        (torch.zeros(1, 2, 3, dtype=torch.long), {}, "dtype"),
        (torch.zeros(1, 2, 3), {"lengths": torch.tensor([3])}, "lengths"),
        (torch.zeros(1, 2, 3), {"lengths": torch.tensor([0])}, "at least 1"),
        (torch.zeros(1, 2, 3), {"beam": 0}, "beam 0"),
        (torch.zeros(1, 2, 3), {"beam": 2.5}, "beam 2.5"),
        (torch.zeros(1, 2, 3), {"nbest": 0}, "nbest 0"),
        (torch.zeros(1, 2, 3), {"blank": 3}, "blank 3"),
        (torch.zeros(1, 2, 3), {"fusion": Fusion(4)}, "fusion 4"),
        (torch.zeros(1, 2, 3), {"scorers": [(GrowingCache(5, 0).scorer(), 1.0)]}, "know 5 tokens"),
    ],
)
def test_bad_input(log_probs, options, message):
    with pytest.raises(InputError, match=message):
        prefix_beam_search(log_probs, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight": -1.0}, "weight"),
        ({"bonus": math.nan}, "bonus"),
        ({"separator": 9}, "separator 9"),
        ({"spellings": [(1,)]}, "1 spellings"),
        ({"ngram": random_ngram(["ab"], 1, 0).table, "spellings": [(), (), (), (1, 2)]}, "separates"),
        ({"ngram": random_ngram(["ab"], 1, 0).table, "spellings": [(), (), (), (7,)]}, "outside"),
    ],
)
def test_bad_fusion(options, message):
    with pytest.raises(InputError, match=message):
        Fusion(4, **options)


def test_bad_phrases_and_strings():
    with pytest.raises(InputError, match="phrase"):
        prefix_beam_search(torch.zeros(1, 2, 3), fusion=Fusion(3, phrases=[()]))
    with pytest.raises(InputError, match="phrase"):
        prefix_beam_search(torch.zeros(1, 2, 3), fusion=Fusion(3, phrases=[(5,)]))
    with pytest.raises(InputError, match="2 strings"):
        score_strings(torch.zeros(1, 2, 3), None, [[1], [1]])
    with pytest.raises(InputError, match="blank"):
        score_strings(torch.zeros(1, 2, 3), None, [[0]])


def test_importing_the_core_does_not_import_numba():
    code = "import sys, voiceseq.core.prefix, voiceseq.core.search; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
