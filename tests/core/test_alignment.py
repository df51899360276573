import tracemalloc
from itertools import groupby, product

import compiled_torchaudio
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceseq.core import alignment
from voiceseq.core.alignment import WordSpan, forced_align, forced_align_batch, word_spans
from voiceseq.core.ctc import TokenSpan, collapse
from voiceseq.errors import InputError


def random_log_probs(*shape, seed=0, dtype=torch.double):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype).log_softmax(-1)


def spans_of(path, log_probs, blank):
    """The runs of a frame string, as plainly as possible."""
    spans, start = [], 0
    for token, run in groupby(path):
        end = start + len(list(run))
        if token != blank:
            spans.append(TokenSpan(token, start, end, float(log_probs[start:end, token].exp().mean())))
        start = end
    return spans


def brute_force(log_probs, target, blank):
    """The best of all V^T frame strings that collapse to the target."""
    frames, symbols = log_probs.shape
    paths = [path for path in product(range(symbols), repeat=frames) if collapse(path, blank) == target]
    best = max(paths, key=lambda path: float(log_probs[range(frames), path].sum()), default=None)
    return None if best is None else spans_of(best, log_probs, blank)


def same(ours, theirs):
    assert [span[:3] for span in ours] == [span[:3] for span in theirs]
    assert [span.confidence for span in ours] == pytest.approx([span.confidence for span in theirs], rel=1e-5)


@settings(deadline=None, max_examples=80)
@given(st.integers(1, 6), st.integers(2, 4), st.data())
def test_best_of_all_strings(frames, symbols, data):
    blank = data.draw(st.integers(0, symbols - 1))
    target = data.draw(st.lists(st.integers(0, symbols - 1).filter(lambda t: t != blank), max_size=frames + 1))
    log_probs = random_log_probs(frames, symbols, seed=data.draw(st.integers(0, 99)))
    expected = brute_force(log_probs, target, blank)
    if expected is None:
        with pytest.raises(InputError, match="frames, has"):
            forced_align(log_probs, target, blank)
    else:
        same(forced_align(log_probs, target, blank), expected)


@pytest.fixture(scope="module")
def torchaudio(tmp_path_factory):
    return compiled_torchaudio.load(tmp_path_factory.mktemp("libraries"))


@pytest.mark.parametrize(("frames", "tokens", "symbols", "blank"), [(7, 4, 3, 0), (60, 20, 5, 4), (500, 90, 40, 0)])
@pytest.mark.parametrize("seed", range(5))
def test_torchaudio_agrees(torchaudio, frames, tokens, symbols, blank, seed):
    log_probs = random_log_probs(frames, symbols, seed=seed)
    allowed = torch.tensor([symbol for symbol in range(symbols) if symbol != blank])
    generator = torch.Generator().manual_seed(seed)
    target = allowed[torch.randint(len(allowed), (tokens,), generator=generator)]
    target = target[: frames - int((target[1:] == target[:-1]).sum())]
    path, scores = torchaudio.functional.forced_align(log_probs[None], target[None], blank=blank)
    theirs = torchaudio.functional.merge_tokens(path[0], scores[0].exp(), blank=blank)
    ours = forced_align(log_probs, target, blank)
    assert len(ours) == len(target)
    same(ours, [TokenSpan(span.token, span.start, span.end, span.score) for span in theirs])


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 40), st.integers(2, 4), st.integers(1, 60), st.data())
def test_by_halves_it_is_the_same_path(frames, symbols, most, data):
    target = data.draw(st.lists(st.integers(1, symbols - 1), max_size=frames))
    log_probs = random_log_probs(frames, symbols, seed=data.draw(st.integers(0, 99)))
    never = torch.rand(frames, symbols, generator=torch.Generator().manual_seed(most)) < data.draw(st.floats(0, 0.4))
    log_probs = log_probs.masked_fill(never, -torch.inf)

    def aligned(moves):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(alignment, "MOST_MOVES", moves)
            try:
                return forced_align(log_probs, target)
            except InputError as error:
                return str(error)

    assert aligned(most) == aligned(10**9)


def test_memory_stays_small_where_the_table_of_moves_would_not():
    frames, tokens = 6000, 2000  # 24 MB of moves, 2.4 MB of scores
    log_probs = random_log_probs(frames, 50, dtype=torch.float)
    target = [1 + place % 49 for place in range(tokens)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alignment, "MOST_MOVES", 1_000_000)
        tracemalloc.start()
        spans = forced_align(log_probs, target)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert [span.token for span in spans] == target
    assert peak < 8_000_000


def test_every_token_in_order_even_when_nearly_impossible():
    target = [1, 1, 2, 2, 2, 3]  # 9 frames exactly: each token and each blank has one
    spans = forced_align(random_log_probs(9, 4), target)
    assert [span.token for span in spans] == target
    assert [span.start for span in spans] == [0, 2, 3, 5, 7, 8]
    assert all(span.end == span.start + 1 for span in spans)


def test_padded_is_alone():
    log_probs = random_log_probs(4, 12, 5, dtype=torch.float)
    targets = torch.tensor([[1, 2, 3], [4, 4, -1], [-1, -1, -1], [2, -1, -1]])
    input_lengths, target_lengths = torch.tensor([12, 5, 3, 1]), torch.tensor([3, 2, 0, 1])
    together = forced_align_batch(log_probs, targets, input_lengths, target_lengths)
    for row, spans in enumerate(together):
        alone = forced_align(log_probs[row, : input_lengths[row]], targets[row, : target_lengths[row]])
        assert alone == spans
        assert len(spans) == target_lengths[row]


def test_empty_target_has_no_spans():
    assert forced_align(random_log_probs(4, 3), []) == []


def test_words_by_lengths_and_by_separator():
    spans = [TokenSpan(1, 0, 2, 0.5), TokenSpan(2, 3, 4, 0.8), TokenSpan(9, 5, 6, 0.1), TokenSpan(3, 7, 10, 0.9)]
    words = word_spans(spans, separator=9)
    assert words == [WordSpan((1, 2), 0, 4, pytest.approx((2 * 0.5 + 0.8) / 3)), WordSpan((3,), 7, 10, 0.9)]
    assert word_spans(spans, word_lengths=[2, 1, 1]) == [words[0], WordSpan((9,), 5, 6, 0.1), words[1]]
    assert word_spans([], word_lengths=[]) == []
    assert word_spans(spans[2:3] * 2, separator=9) == []


def test_word_confidence_is_the_mean_over_its_frames():
    log_probs = random_log_probs(30, 6)
    target = [1, 2, 5, 3, 3, 5, 4]
    spans = forced_align(log_probs, target)
    for word, inside in zip(word_spans(spans, separator=5), (spans[:2], spans[3:5], spans[6:]), strict=True):
        values = torch.cat([log_probs[span.start : span.end, span.token].exp() for span in inside])
        assert word.confidence == pytest.approx(float(values.mean()))


IMPOSSIBLE = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]).log()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: forced_align(random_log_probs(3, 4), [1, 1, 1]), "3 tokens need 5 frames, has 3"),
        (lambda: forced_align(random_log_probs(1, 3, 4), [1]), "forced_align_batch"),
        (lambda: forced_align(random_log_probs(3, 4), [0]), "except the blank"),
        (lambda: forced_align(random_log_probs(3, 4), [4]), "0 to 3"),
        (lambda: forced_align(random_log_probs(0, 4), []), "at least one"),
        (lambda: forced_align(random_log_probs(3, 4) * torch.nan, [1]), "NaN"),
        (lambda: forced_align(random_log_probs(3, 4) + 5, [1]), "log_softmax"),
        (lambda: forced_align(IMPOSSIBLE, [2]), "probability 0"),
        (
            lambda: forced_align_batch(random_log_probs(2, 3, 4), torch.tensor([[1, 2], [1, 2]]), torch.tensor([3, 1])),
            "row 1: 2 tokens need 2 frames, has 1",
        ),
        (lambda: word_spans([TokenSpan(1, 0, 1, 1.0)], word_lengths=[2]), "adds up to 2"),
        (lambda: word_spans([TokenSpan(1, 0, 1, 1.0)], word_lengths=[1, 0]), "at least one"),
        (lambda: word_spans([]), "either"),
        (lambda: word_spans([], word_lengths=[], separator=1), "not both"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_probability_zero_elsewhere_is_no_obstacle():
    assert forced_align(IMPOSSIBLE, [1])[0].token == 1
