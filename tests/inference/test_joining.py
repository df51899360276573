"""Overlapped pieces joined: no word lost, none doubled, whatever the times' jitter and the garbage at the edges."""

import numpy as np
import pytest

from voiceseq.inference.joining import align, join_words
from voiceseq.inference.speech import Word


def word(text: str, start: float, end: float) -> Word:
    return Word(text, start, end, 1.0)


def texts(words) -> list[str]:
    return [one.word for one in words]


def joined(before, after, cut) -> list[Word]:
    first, second = join_words(before, after, cut)
    return first + second


def spoken(seed: int):
    """A true sequence of words with times, the overlap's place, and what two pieces hear of it."""
    random = np.random.default_rng(seed)
    truth, at = [], 0.0
    for _ in range(random.integers(4, 15)):
        length = random.uniform(0.15, 0.6)
        truth.append(word(str(random.choice(["no", "yes", "go", "stop", "a"])), at, at + length))
        at += length + 0.03
    cut = random.uniform(0.2, 0.8) * at
    early, late = cut - 1.0, cut + 1.0

    def heard(one: Word, whole: bool) -> Word:
        moved = one.later(random.uniform(-0.06, 0.06))
        return moved if whole else Word(str(random.choice(["uh", "no", "sto"])), moved.start, moved.end, 0.2)

    before = [heard(one, one.end <= late) for one in truth if one.start < late - 0.05]
    after = [heard(one, one.start >= early) for one in truth if one.end > early + 0.05]
    return truth, before, after, cut


@pytest.mark.parametrize("seed", range(300))
def test_the_truth_comes_back(seed):
    truth, before, after, cut = spoken(seed)
    first, second = join_words(before, after, cut)
    assert texts(first + second) == texts(truth)


def test_a_word_that_straddles_the_cut_is_kept_once():
    before, after = [word("one", 0, 0.4), word("two", 0.9, 1.2)], [word("two", 0.88, 1.25), word("three", 1.5, 2)]
    for cut in (0.7, 0.95, 1.05, 1.0632, 1.3):
        assert texts(joined(before, after, cut)) == ["one", "two", "three"]


def test_a_word_heard_in_two_ways_is_kept_once():
    before, after = [word("colour", 0.9, 1.2)], [word("color", 0.95, 1.2)]
    assert texts(joined(before, after, 1.3)) == ["colour"]
    assert texts(joined(before, after, 0.8)) == ["color"]


def test_the_same_word_said_twice_stays_twice():
    before = [word("no", 0.0, 0.3), word("no", 0.4, 0.7), word("no", 0.8, 1.1)]
    after = [word("no", 0.42, 0.7), word("no", 0.8, 1.12), word("no", 1.2, 1.5)]
    assert len(joined(before, after, 0.75)) == 4


def test_what_only_one_heard_counts_on_its_own_side():
    before, after = [word("late", 1.5, 1.8)], [word("early", 0.2, 0.5)]
    assert join_words(before, after, 1.0) == ([], [])
    assert join_words(after, before, 1.0) == (after, before)


def test_nothing_beside_something():
    words = [word("one", 0, 0.5), word("two", 0.6, 1.0)]
    assert join_words(words, [], 2.0) == (words, [])
    assert join_words([], words, -1.0) == ([], words)
    assert align([], []) == []
