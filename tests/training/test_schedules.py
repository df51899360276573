import math

import pytest

from voiceseq.errors import ConfigError
from voiceseq.training.schedules import Schedule


def test_warm_up_rises_to_the_base_rate() -> None:
    schedule = Schedule("constant", warmup=4)
    assert [schedule.factor(step, 100) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_cosine_falls_from_one_to_the_floor() -> None:
    schedule = Schedule("cosine", warmup=10, floor=0.1)
    assert schedule.factor(10, 110) == 1.0
    assert schedule.factor(60, 110) == pytest.approx(0.55)  # half way: the middle of 1 and 0.1
    assert schedule.factor(110, 110) == pytest.approx(0.1)
    assert schedule.factor(500, 110) == pytest.approx(0.1)
    falling = [schedule.factor(step, 110) for step in range(10, 111)]
    assert falling == sorted(falling, reverse=True)


def test_plateau_goes_down_after_patience_without_a_best() -> None:
    schedule = Schedule("plateau", patience=2, decay=0.5, floor=0.2)
    factors = []
    for metric in [3.0, 2.0, 2.5, 2.5, 1.9, 2.0, 2.0, 2.0, 2.0]:
        schedule.observe(metric)
        factors.append(schedule.factor(0, 1))
    assert factors == [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25, 0.2]


def test_a_new_best_starts_the_waiting_anew() -> None:
    schedule = Schedule("plateau", patience=2, decay=0.5)
    for metric in [3.0, 4.0, 2.0, 4.0]:
        schedule.observe(metric)
    assert schedule.factor(0, 1) == 1.0


def test_plateau_of_a_score_that_should_rise_remembers_itself() -> None:
    schedule = Schedule("plateau", patience=1, mode="max", floor=0.0)
    schedule.observe(0.5)
    schedule.observe(0.4)
    twin = Schedule("plateau", patience=1, mode="max", floor=0.0)
    assert twin.best == math.inf
    twin.load_state_dict(schedule.state_dict())
    assert (twin.best, twin.reduction) == (-0.5, 0.5)


def test_unknown_kind_lists_the_known() -> None:
    with pytest.raises(ConfigError, match="constant, cosine, plateau"):
        Schedule("cosinus")


@pytest.mark.parametrize("wrong", [{"warmup": -5}, {"mode": "minn"}, {"patience": 0}, {"decay": 1.0}, {"floor": -0.1}])
def test_settings_out_of_range_are_named(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=f"schedule.{next(iter(wrong))}"):
        Schedule("plateau", **wrong)  # type: ignore[arg-type]
