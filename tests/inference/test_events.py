import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceseq.errors import InputError
from voiceseq.inference.events import WARM_UP_S, Decider, Decision, Event

FRAME_S = 0.03
WARM = 10  # frames that cannot fire


def by_hand(scores: np.ndarray, decision: Decision, frame_s: float) -> list[tuple[int, float]]:
    """The rule of the docstring for one word, told from the whole recording, each frame by itself."""
    n = len(scores)
    means = [sum(scores[max(0, t - decision.smoothing + 1) : t + 1]) / decision.smoothing for t in range(n)]
    events: list[tuple[int, float]] = []
    ready = 0  # the first frame that counts for the next event
    for t in range(n):
        window = range(t - decision.patience + 1, t + 1)
        if window[0] < ready or any(u * frame_s < WARM_UP_S - 1e-6 or means[u] < decision.threshold for u in window):
            continue
        events.append((t, means[t]))
        over = [
            u
            for u in range(t + 1, n)
            if (u - t) * frame_s >= decision.refractory_s - 1e-6 and means[u] < decision.threshold / 2
        ]
        ready = over[0] if over else n
    return events


def run(scores: np.ndarray, decisions: list[Decision], cuts: list[int] | None = None) -> list[tuple[int, int, float]]:
    decider = Decider(decisions, FRAME_S)
    return [event for piece in np.split(scores, cuts or []) for event in decider.feed(piece)]


decisions = st.builds(
    Decision,
    threshold=st.sampled_from([0.2, 0.5, 0.75, 1.0]),
    smoothing=st.integers(1, 5),
    patience=st.integers(1, 4),
    refractory_s=st.sampled_from([0.0, 0.03, 0.3, 0.9]),
)


@settings(max_examples=150, deadline=None)
@given(
    rules=st.lists(decisions, min_size=1, max_size=3),
    seed=st.integers(0, 10_000),
    cuts=st.lists(st.integers(0, 150), max_size=8),
)
def test_it_decides_as_told_in_the_docstring_whatever_the_cut(
    rules: list[Decision], seed: int, cuts: list[int]
) -> None:
    generator = np.random.default_rng(seed)
    # eighths are exact in binary, so that a mean at the threshold is at the threshold
    steps = generator.choice([0.0, 0.125, 0.5, 0.75, 1.0], (150, len(rules)))
    scores = steps[np.sort(generator.integers(0, 150, 150))]  # with plateaus
    found = run(scores, rules, sorted(cuts))
    assert found == run(scores, rules)
    for word, rule in enumerate(rules):
        mine = [(frame, score) for frame, which, score in found if which == word]
        expected = by_hand(scores[:, word], rule, FRAME_S)
        assert [frame for frame, _ in mine] == [frame for frame, _ in expected]
        np.testing.assert_allclose([score for _, score in mine], [score for _, score in expected])
    assert [frame for frame, _, _ in found] == sorted(frame for frame, _, _ in found)


def test_the_brute_force_meets_events() -> None:
    """Otherwise the test above would prove nothing."""
    scores = np.random.default_rng(1).random(150)
    assert len(by_hand(scores, Decision(0.5, 1, 1, 0.0), FRAME_S)) > 5


def peak(*starts: int, frames: int = 200, width: int = 8) -> np.ndarray:
    scores = np.zeros((frames, 1))
    for start in starts:
        scores[start : start + width] = 0.9
    return scores


def frames_of(scores: np.ndarray, **settings: float) -> list[int]:
    return [frame for frame, _, _ in run(scores, [Decision(**settings)])]  # type: ignore[arg-type]


def test_one_utterance_is_one_event() -> None:
    assert frames_of(peak(50)) == [50]
    assert frames_of(peak(50, width=140)) == [50]  # a score that stays high for four seconds
    shaky = peak(50, 60, 70)  # falls and comes back within the refractory time
    assert frames_of(shaky, refractory_s=1.0) == [50]
    dented = peak(50, width=100)
    dented[90] = 0.4  # lower, but not over
    assert frames_of(dented, refractory_s=1.0) == [50]
    dented[90] = 0.2
    assert frames_of(dented, refractory_s=1.0) == [50, 91]


def test_a_word_said_twice() -> None:
    assert frames_of(peak(50, 80), refractory_s=0.6) == [50, 80]  # 0.9 s apart
    assert frames_of(peak(50, 80), refractory_s=1.0) == [50]  # the second within the refractory time
    assert frames_of(peak(50, 80), refractory_s=0.9) == [50]  # it was there before the word could be over
    assert frames_of(peak(50, 81), refractory_s=0.9) == [50, 81]


def test_patience_and_smoothing_wait() -> None:
    assert frames_of(peak(50), patience=4) == [53]
    assert frames_of(peak(50), smoothing=4) == [52]  # 3 of 4 at 0.9: 0.675
    assert frames_of(peak(50, width=1), smoothing=4) == []
    assert frames_of(peak(50, 54, width=3), patience=4) == []  # in a row


def test_a_cold_start_is_silent() -> None:
    assert frames_of(peak(0, width=WARM)) == []
    assert frames_of(peak(0, width=30)) == [WARM]
    assert frames_of(peak(0, width=30), patience=3) == [WARM + 2]


def test_reset_is_a_new_decider() -> None:
    decider = Decider([Decision(patience=3, smoothing=2)], FRAME_S)
    decider.feed(peak(20, frames=22))  # a word cut off
    decider.reset()
    assert decider.feed(np.zeros((100, 1))) == []
    decider.reset()
    assert decider.feed(peak(50)) == run(peak(50), [Decision(patience=3, smoothing=2)])


def test_thresholds_change_while_it_runs() -> None:
    decider = Decider([Decision(0.95)], FRAME_S)
    assert decider.feed(peak(50)) == []
    decider.thresholds[:] = 0.8
    assert [frame for frame, _, _ in decider.feed(peak(50))] == [250]


@pytest.mark.parametrize(
    "wrong",
    [
        {"threshold": 0.0},
        {"threshold": 1.5},
        {"threshold": float("nan")},
        {"smoothing": 0},
        {"patience": 0},
        {"refractory_s": -1.0},
        {"refractory_s": float("inf")},
    ],
)
def test_decisions_that_cannot_be(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        Decision(**wrong)  # type: ignore[arg-type]


def test_an_event_stays_as_it_is() -> None:
    with pytest.raises(AttributeError):
        Event("alexa", 1.0, 0.9).time = 2.0  # type: ignore[misc]
