from pathlib import Path

import pytest
import torch

from voiceseq.errors import InputError
from voiceseq.evaluation.plots import plot_attention


def test_an_attention_map_is_a_png(tmp_path: Path) -> None:
    path = plot_attention(torch.eye(3), "a c", ["x", "y", "end"], tmp_path / "map.png")
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    width, height = (int.from_bytes(data[16 + 4 * i : 20 + 4 * i], "big") for i in range(2))
    assert min(width, height) > 100


def test_labels_must_fit_the_map(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\(2, 3\) was wanted"):
        plot_attention(torch.eye(3), "abc", "xy", tmp_path / "map.png")
    assert not list(tmp_path.iterdir())
