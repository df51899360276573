"""Settings of the encoder-decoder that cannot be built are refused by name."""

from typing import Any

import pytest

from voiceseq.errors import ConfigError
from voiceseq.models.seq2seq import Seq2SeqConfig, seq2seq


@pytest.mark.parametrize("cell", ["gru", "transformer"])
@pytest.mark.parametrize(("side", "sizes"), [("source", (0, 5)), ("target", (5, 0)), ("source", (-3, 5))])
def test_a_network_without_symbols_is_refused(cell: str, side: str, sizes: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match=rf"{side}.*{min(sizes)}.*data"):
        seq2seq(Seq2SeqConfig(*sizes, cell=cell, size=8))


@pytest.mark.parametrize(
    "wrong", [{"dropout": 5.0}, {"layers": 0}, {"layers": 10**9}, {"size": 0}, {"embedding": 0}, {"size": 7}]
)
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Seq2SeqConfig(5, 5, **wrong)
