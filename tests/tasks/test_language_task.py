"""Language models in training: the sampled softmax against the whole one, and texts of every level."""

from pathlib import Path

import pytest
import torch

from voiceseq.core.losses import cross_entropy
from voiceseq.errors import ConfigError
from voiceseq.models.language import LanguageConfig
from voiceseq.tasks.base import OptimiserConfig
from voiceseq.tasks.language import LanguageTask, TextData

WORDS = [f"w{number}" for number in range(30)]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Word n stands in every (n + 1)th line; capitals, and a rare word at the end of each line."""
    lines = [" ".join(word.upper() for n, word in enumerate(WORDS) if line % (n + 1) == 0) for line in range(200)]
    path = tmp_path / "words.txt"
    path.write_text("\n".join(f"{line} rare{n}" for n, line in enumerate(lines)) + "\n")
    return path


def make(text: Path, **settings: int) -> LanguageTask:
    torch.manual_seed(1)
    data = TextData(str(text), level="word", size=34, lower=True, window=20, batch=8)
    config = LanguageConfig(cell="gru", size=12, layers=1, embedding=8, dropout=0.0)
    task = LanguageTask(config, OptimiserConfig(), data, **settings)
    torch.nn.init.normal_(task.network.output.bias)
    return task.train()


def test_a_large_sample_gives_the_loss_of_the_whole_softmax(text: Path) -> None:
    data = TextData(str(text), level="word", size=34, lower=True, window=20, batch=8)
    inputs, targets = data.windows(0)
    task = make(text, samples=100_000, frequent=10)
    full = cross_entropy(task.network(inputs)[0], targets)
    loss, count, _ = task.loss((inputs, targets))
    assert count == targets.numel()
    assert float(loss.detach()) == pytest.approx(float(full.detach()), rel=2e-3)
    few = make(text, samples=3, frequent=10)
    losses = [float(few.sampled(inputs, targets).detach()) for _ in range(20)]
    assert max(losses) > min(losses)  # drawn anew each time
    loss.backward()
    assert task.network.embedding.weight.grad is not None


def test_few_words_are_not_sampled(text: Path) -> None:
    assert make(text, samples=5, frequent=34).samples == 0
    with pytest.raises(ConfigError, match="samples is -1"):
        make(text, samples=-1)


def test_what_the_bundle_says_of_reading(text: Path) -> None:
    task = make(text)
    assert task.parts().decoding == {"lower": True, "unknown_words": 178}
    assert "w0" in task.vocabulary
    assert "W0" not in task.vocabulary


def test_subwords_and_the_share_of_validation(text: Path) -> None:
    data = TextData(str(text), level="subword", size=40, measured=50, window=20, batch=8)
    assert data.vocabulary.level == "subword"
    assert len(data.vocabulary) <= 40
    assert len(data.held_out) == 51
    task = LanguageTask(LanguageConfig(cell="transformer", size=8, heads=2, layers=1), OptimiserConfig(), data)
    loss, _, _ = task.train().loss(data.windows(0))
    assert torch.isfinite(loss)
