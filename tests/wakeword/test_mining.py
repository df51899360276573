"""Pieces equal the whole; peaks against brute force."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceseq.models.trigger import Head, HeadConfig
from voiceseq.wakeword import mining
from voiceseq.wakeword.mining import hard_spots, listen, peaks


@pytest.fixture
def head() -> Head:
    torch.manual_seed(1)
    return Head(HeadConfig(size=8), inputs=4, words=2).eval()


def frames(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (count, 4)).astype(np.float32)


def whole(head: Head, stream: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        return head(torch.from_numpy(stream)[None])[0][0].numpy()


def test_listening_in_pieces_is_listening_to_the_whole(head, monkeypatch):
    monkeypatch.setattr(mining, "PIECE", 150)
    streams = [frames(count, count) for count in (700, 1, 150, 151, 49, 300)]
    heard = listen(head, streams, rows=3)
    for scores, stream in zip(heard, streams, strict=True):
        assert scores.shape == (len(stream), 2)
        np.testing.assert_allclose(scores, whole(head, stream), atol=1e-4)


def test_without_what_came_before_it_would_not_be(head, monkeypatch):
    """That the test above can fail."""
    monkeypatch.setattr(mining, "PIECE", 150)
    monkeypatch.setattr(mining, "WARM", 0)
    stream = frames(700)
    assert np.abs(listen(head, [stream])[0] - whole(head, stream)).max() > 1e-3


def test_a_head_in_training_listens_without_dropout_and_goes_on_training(head):
    head.train()
    heard = listen(head, [frames(50)])
    assert head.training
    np.testing.assert_allclose(heard[0], whole(head.eval(), frames(50)), atol=1e-5)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=120, unique=True), st.integers(1, 20))
def test_peaks(values, apart):
    scores = np.array(values, np.float32)
    found = peaks(scores, apart)
    assert found[0] == int(scores.argmax())
    assert scores[found].tolist() == sorted(scores[found].tolist(), reverse=True)
    assert all(abs(a - b) >= apart for i, a in enumerate(found) for b in found[:i])
    highest = {
        frame
        for frame in range(len(scores))
        if scores[frame] == scores[max(0, frame - apart) : frame + apart + 1].max()
    }
    assert highest <= set(found)


def test_equal_scores_are_one_peak_within_reach():
    assert peaks(np.ones(10, np.float32), 10) == [0]
    assert peaks(np.zeros(0, np.float32), 5) == []


def test_hard_spots_are_the_highest_of_all_streams_word_by_word():
    rng = np.random.default_rng(3)
    scores = [rng.normal(size=(count, 2)).astype(np.float32) for count in (200, 90, 310)]
    spots = hard_spots(scores, 4, apart=20)
    for word in range(2):
        brute = sorted((float(s[f, word]) for s in scores for f in peaks(s[:, word], 20)), reverse=True)[:4]
        mine = [spot for spot in spots if spot.word == word]
        assert [spot.score for spot in mine] == brute
        assert all(scores[spot.stream][spot.frame, word] == spot.score for spot in mine)
    assert len(spots) == 8
