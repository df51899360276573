"""The threshold keeps the stated rate, counted by the rules that a listener uses; and the shift is only a shift."""

import copy

import numpy as np
import pytest
import torch

from voiceseq.datasets.bank import Stream
from voiceseq.inference.events import Decider, Decision
from voiceseq.models.trigger import Head, HeadConfig
from voiceseq.wakeword.deciding import decide, misses
from voiceseq.wakeword.mining import listen
from voiceseq.wakeword.windows import Example

FRAME_S = 0.03
DECISION = Decision(smoothing=2, refractory_s=0.6)


@pytest.fixture(scope="module")
def head() -> Head:
    torch.manual_seed(2)
    made = Head(HeadConfig(size=8), inputs=4, words=2).eval()
    with torch.no_grad():
        made.output.weight *= 8
        made.output.bias += torch.tensor([5.0, -9.0])  # far from one half, one on either side
    return made


def sounds(seed: int, count: int = 6) -> list[Stream]:
    rng = np.random.default_rng(seed)
    return [
        Stream("noise" if n % 2 else "speech", "x", rng.uniform(-1, 1, (2000, 4)).astype("f")) for n in range(count)
    ]


def alarms(head: Head, streams, word: int, decision: Decision) -> int:
    """As a live detector counts them."""
    total = 0
    for scores in listen(head, [stream.frames for stream in streams]):
        probabilities = 1 / (1 + np.exp(-scores[:, word : word + 1].astype(float)))
        total += len(Decider([decision], FRAME_S).feed(probabilities))
    return total


@pytest.mark.parametrize("rate", [0.0, 30.0, 120.0])
def test_the_stated_rate_is_kept_and_used(head, rate):
    head, streams = copy.deepcopy(head), sounds(1)
    hours = 6 * 2000 * FRAME_S / 3600
    decisions, report = decide(head, ["a", "b"], streams, rate, DECISION, FRAME_S)
    for number, word in enumerate("ab"):
        counted = alarms(head, streams, number, decisions[word])
        assert counted <= rate * hours
        assert counted >= int(rate * hours) - 1  # the lowest threshold that keeps it
        told = sum(report[word]["false alarms"].values())
        assert abs(told - counted) <= 1  # a score that is the threshold itself may round to either side
        assert report[word]["per hour"]["per_hour"] == pytest.approx(told / hours)
        assert report[word]["threshold"] == decisions[word].threshold
    assert report["hours"] == round(hours, 2)
    assert report["kinds"] == ["noise", "speech"]


def test_the_shift_moves_every_score_alike_and_the_threshold_near_a_half(head):
    shifted, streams = copy.deepcopy(head), sounds(1)
    decisions, _ = decide(shifted, ["a", "b"], streams, 60.0, DECISION, FRAME_S)
    before, after = (listen(one, [stream.frames for stream in sounds(2)]) for one in (head, shifted))
    for word in range(2):
        moved = np.concatenate([a[:, word] - b[:, word] for a, b in zip(after, before, strict=True)])
        assert np.ptp(moved) < 1e-4
        assert abs(moved[0]) > 1
    assert all(0.2 < decision.threshold < 0.8 for decision in decisions.values())
    assert {k: v for k, v in vars(decisions["a"]).items() if k != "threshold"} == {
        k: v for k, v in vars(DECISION).items() if k != "threshold"
    }
    for (name, old), new in zip(head.state_dict().items(), shifted.state_dict().values(), strict=True):
        assert torch.equal(old, new) is (name != "output.bias")


class Loud(torch.nn.Module):
    """A head whose logit is the first number of a frame."""

    words = 1

    def forward(self, frames, state=None, lengths=None):
        return frames[..., :1], state


def test_misses_counts_words_that_are_not_heard_in_time():
    def clip(fires_s: float | None, *ends: float) -> Example:
        frames = np.full((150, 4), -9, np.float32)
        if fires_s is not None:
            frames[round(fires_s / FRAME_S) :][:6, 0] = 9
        return Example(frames, tuple((0, end) for end in ends))

    tried = [
        clip(2.0, 1.95),  # right after
        clip(2.0, 2.2),  # a little early
        clip(2.0, 2.6),  # far too early
        clip(2.0, 1.0),  # too late
        clip(None, 2.0),
        clip(2.0, 2.0, 4.0),  # one of two
        Example(np.zeros((100, 4), np.float32), ((1, 2.0),)),  # another word's
    ]
    decision = Decision(threshold=0.7)
    assert misses(Loud(), 0, tried, decision, FRAME_S) == {"missed": 4, "of": 7}
