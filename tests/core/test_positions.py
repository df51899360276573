"""Positions: the formulas by hand, the relative property, offsets."""

import math

import pytest
import torch

from voiceseq.core.positions import (
    LearnedPositions,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
    positions_after,
)
from voiceseq.errors import ConfigError, InputError


@pytest.fixture(autouse=True, scope="module")
def _seed() -> None:
    torch.manual_seed(7)


def test_positions_go_on_from_each_rows_own_count() -> None:
    valid = torch.tensor([[True, True, True], [True, False, False], [False, False, False]])
    assert positions_after(torch.tensor([0, 5, 7]), valid).tolist() == [[0, 1, 2], [5, -1, -1], [-1, -1, -1]]


def test_sinusoidal_by_the_formula() -> None:
    frames = torch.zeros(1, 3, 6, dtype=torch.double)
    positions = torch.tensor([[0, 4, 1000]])
    added = SinusoidalPositions(6)(frames, positions)
    for column, position in enumerate((0, 4, 1000)):
        for pair in range(3):
            phase = position / 10_000 ** (2 * pair / 6)
            expected = torch.tensor([math.sin(phase), math.cos(phase)]).double()
            torch.testing.assert_close(added[0, column, 2 * pair : 2 * pair + 2], expected, atol=1e-6, rtol=0)


def test_learned_is_a_table_with_an_end() -> None:
    learned = LearnedPositions(4, max_length=5)
    frames = torch.randn(2, 2, 4)
    positions = torch.tensor([[0, 1], [3, 4]])
    torch.testing.assert_close(learned(frames, positions) - frames, learned.table[positions])
    with pytest.raises(InputError, match="position 5 was reached but only 5 are learned"):
        learned(frames, positions + 1)


def test_rotary_turns_each_pair_by_its_own_angle() -> None:
    heads = torch.randn(1, 1, 1, 4).double()
    turned = RotaryPositions(4)(heads, torch.tensor([[7]]))
    for pair, rate in enumerate((1.0, 0.01)):
        before = complex(heads[0, 0, 0, pair], heads[0, 0, 0, pair + 2])
        after = complex(turned[0, 0, 0, pair], turned[0, 0, 0, pair + 2])
        expected = before * complex(math.cos(7 * rate), math.sin(7 * rate))
        assert after == pytest.approx(expected)


@pytest.mark.parametrize("offset", [1, 50, 5_000_000])
def test_rotary_scores_depend_on_the_distance_alone(offset: int) -> None:
    rotary = RotaryPositions(8)
    query, key = torch.randn(1, 1, 1, 8).double(), torch.randn(1, 1, 1, 8).double()

    def score(query_at: int, key_at: int) -> torch.Tensor:
        return (rotary(query, torch.tensor([[query_at]])) * rotary(key, torch.tensor([[key_at]]))).sum()

    for query_at, key_at in ((0, 0), (3, 10), (9, 2)):
        torch.testing.assert_close(
            score(query_at, key_at), score(query_at + offset, key_at + offset), atol=1e-8, rtol=0
        )
    assert abs(float(score(0, 3) - score(0, 4))) > 1e-3


def test_relative_adds_the_vector_of_the_clipped_distance() -> None:
    relative = RelativePositions(3, max_distance=2).double()
    query = torch.randn(1, 2, 4, 3).double()
    queries_at, keys_at = torch.tensor([[10, 11, 12, 13]]), torch.tensor([[7, 10, 11, 12, 30]])
    bias = relative(query, queries_at, keys_at)
    for head in range(2):
        for row, query_at in enumerate(queries_at[0].tolist()):
            for column, key_at in enumerate(keys_at[0].tolist()):
                distance = max(-2, min(2, key_at - query_at))
                expected = query[0, head, row] @ relative.table[distance + 2]
                torch.testing.assert_close(bias[0, head, row, column], expected)
    torch.testing.assert_close(bias, relative(query, queries_at + 99, keys_at + 99))


def test_gradients_of_tables() -> None:
    relative = RelativePositions(3, max_distance=2).double()
    query = torch.randn(2, 1, 2, 3).double().requires_grad_()
    at = torch.tensor([[0, 1], [4, 5]])

    def run(query: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(relative, {"table": table}, (query, at, at))

    assert torch.autograd.gradcheck(run, (query, relative.table))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SinusoidalPositions(5), "even size was wanted, 5 came"),
        (lambda: RotaryPositions(3), "even size was wanted, 3 came"),
        (lambda: LearnedPositions(4, 0), "max_length is 0"),
        (lambda: RelativePositions(4, 0), "max_distance is 0"),
    ],
)
def test_settings_that_cannot_be(build: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build()
