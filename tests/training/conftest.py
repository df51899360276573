"""A small text of our own and settings that train on it in a second."""

import random
from pathlib import Path

import pytest

SMALL = (
    *("experiment=text", "progress=false", "trainer.precision=32-true", "trainer.max_epochs=3"),
    *("trainer.accelerator=cpu", "trainer.log_every_n_steps=1", "data.steps_per_epoch=8", "data.window=32"),
    *("data.batch=8", "model.size=24", "model.dropout=0.0", "schedule.warmup=2", "optimiser.learning_rate=0.02"),
)


@pytest.fixture(scope="session")
def sea(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text about the sea."""
    words = random.Random(1).choices(["the", "sea", "is", "blue", "and", "wide", "we", "sail", "home."], k=3000)
    path = tmp_path_factory.mktemp("text") / "sea.txt"
    path.write_text(" ".join(words))
    return path


@pytest.fixture(scope="session")
def small(sea: Path) -> list[str]:
    return [*SMALL, f"data.train={sea}"]
