"""What a user can mistype, and what is said about it."""

import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from voiceseq.errors import ConfigError
from voiceseq.training.config import check_config, compose_config, experiments
from voiceseq.training.run import resume_config


def test_every_experiment_composes_and_checks() -> None:
    assert experiments()
    for name in experiments():
        assert compose_config([f"experiment={name}"]).name == name


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["experiment=shakespear"], "did you mean 'shakespeare'"),
        (["experiment=shakespeare", "modle.size=3"], "'modle.size' is not a known key: did you mean 'model.size'"),
        (["experiment=shakespeare", "model.sise=3"], "'model.sise' is not a known key: did you mean 'model.size'"),
        (["experiment=shakespeare", "+model.sise=3"], "'model.sise' is not a setting of LanguageConfig"),
        (["experiment=shakespeare", "model.size=big"], "'model.size' is 'big'; int was wanted"),
        (["experiment=shakespeare", "schedule=cosin"], "cosin"),
        (["experiment=shakespeare", "optimiser.learning_rate=fast"], "float was wanted"),
        (["experiment=shakespeare", "model.size"], "write key=value"),
        (["model.size=3"], "which experiment"),
    ],
)
def test_a_mistake_is_named(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        compose_config(overrides)


def test_all_mistakes_come_in_one_message() -> None:
    with pytest.raises(ConfigError) as caught:
        compose_config(["experiment=shakespeare", "+model.sise=3", "model.layers=two", "+optimiser.speed=1"])
    for word in ("model.sise", "model.layers", "optimiser.speed"):
        assert word in str(caught.value)


def test_missing_values_and_targets_are_named() -> None:
    with pytest.raises(ConfigError, match=r"'data\.train' has no value"):
        check_config(OmegaConf.create({"data": {"train": "???"}}))
    with pytest.raises(ConfigError, match="cannot be imported"):
        check_config(OmegaConf.create({"data": {"_target_": "voiceseq.nowhere.Nothing"}}))


def test_a_sweep_is_checked_by_its_first_value() -> None:
    assert compose_config(["experiment=shakespeare", "model.size=16,32"]).model.size == 16


def test_resume_wants_a_run_folder_and_known_keys(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no config\.yaml"):
        resume_config(tmp_path, [])
    (tmp_path / "config.yaml").write_text("trainer: {max_epochs: 1}\n")
    assert resume_config(tmp_path, ["trainer.max_epochs=3"]).trainer.max_epochs == 3
    with pytest.raises(ConfigError, match="max_epoch"):
        resume_config(tmp_path, ["trainer.max_epoch=3"])


def test_the_command_answers_in_one_line_with_status_2() -> None:
    command = [sys.executable, "-m", "voiceseq", "train", "experiment=shakespeare", "modle=gru"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("voiceseq: error: 'modle' is not a known key: did you mean 'model'")
    assert len(done.stderr.splitlines()) == 1
