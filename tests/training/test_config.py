"""What a user can mistype, and what is said about it."""

import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from voiceseq.cli.main import main
from voiceseq.errors import ConfigError
from voiceseq.training.config import check_config, compose_config, experiments
from voiceseq.training.run import resume_config


def test_every_experiment_composes_and_checks() -> None:
    assert experiments()
    for name in experiments():
        text = {"text": ["data.train=some.txt"], "english-small": ["start_from=some-bundle"]}.get(name, [])
        assert compose_config([f"experiment={name}", *text]).name == name


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
        (["experiment=text"], r"'data\.train' has no value: add data\.train="),
        (["experiment=dates", "seed=abc"], "'seed' is 'abc'; int was wanted"),
        (["experiment=dates", "threads=-1"], "'threads' is -1"),
        (["experiment=dates", "ema=2"], "'ema' is 2"),
        (["experiment=dates", "early_stopping=soon"], "'early_stopping' is 'soon'"),
        (["experiment=dates", "trainer.max_epochs=abc"], r"'trainer\.max_epochs' is 'abc'; int was wanted"),
        (["experiment=dates", "trainer.max_epochs=0"], r"'trainer\.max_epochs' is 0; 1 or more"),
        (["experiment=dates", "+trainer.max_epoch=1"], "did you mean 'max_epochs'"),
        (["experiment=dates", "trainer.precision=foo"], "32-true, 64-true"),
        (["experiment=dates", "data.batch=abc"], r"'data\.batch' is 'abc'; int was wanted"),
        (["experiment=dates", "model.attention=luong"], "additive, dot, scaled_dot, none"),
        (["experiment=dates", "model.attention=dot,luong"], "additive, dot, scaled_dot, none"),
        (["experiment=dates", "model.size=8,x"], r"'model\.size' is 'x'"),
    ],
)
def test_a_mistake_is_named(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        compose_config(overrides)


def test_all_mistakes_come_in_one_message() -> None:
    with pytest.raises(ConfigError) as caught:
        compose_config(["experiment=shakespeare", "+model.sise=3", "model.layers=two", "+optimiser.speed=1"])
    for word in ("model.sise", "model.layers", "optimiser.speed"):
        assert str(caught.value).count(f"'{word}'") == 1


def test_missing_values_and_targets_are_named() -> None:
    with pytest.raises(ConfigError, match=r"'data\.train' has no value"):
        check_config(OmegaConf.create({"data": {"train": "???"}}))
    with pytest.raises(ConfigError, match="cannot be imported"):
        check_config(OmegaConf.create({"name": "n", "data": {"_target_": "voiceseq.nowhere.Nothing"}}))
    with pytest.raises(ConfigError, match="'name' is not there"):
        check_config(OmegaConf.create({}))


def test_a_sweep_is_checked_by_its_first_value() -> None:
    assert compose_config(["experiment=shakespeare", "model.size=16,32"]).model.size == 16


def test_resume_wants_a_run_folder_and_known_keys(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no config\.yaml"):
        resume_config(tmp_path, [])
    (tmp_path / "config.yaml").write_text("model: {size: 8}\ntrainer: {max_epochs: 1}\n")
    assert resume_config(tmp_path, ["trainer.max_epochs=3"]).trainer.max_epochs == 3
    with pytest.raises(ConfigError, match=r"did you mean 'trainer\.max_epochs'"):
        resume_config(tmp_path, ["trainer.max_epoch=3"])
    with pytest.raises(ConfigError, match=r"'model\.size' cannot change when a run goes on"):
        resume_config(tmp_path, ["model.size=3"])


def test_the_command_answers_in_one_line_with_status_2() -> None:
    command = [sys.executable, "-m", "voiceseq", "train", "experiment=shakespeare", "modle=gru"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("voiceseq: error: 'modle' is not a known key: did you mean 'model'")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", [["experiment=dates", "--cfg", "job"], ["--cfg=job", "experiment=dates"]])
def test_the_configuration_can_be_shown(words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "voiceseq", "train", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "_target_: voiceseq.tasks.transduce.DateData" in done.stdout


@pytest.mark.parametrize("words", [["--help"], ["experiment=dates", "--help"], []])
def test_help_names_the_experiments(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *words]) == 0
    said = capsys.readouterr().out
    assert "resume=RUN_FOLDER" in said
    assert all(name in said for name in experiments())


def test_a_config_folder_must_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "experiment=dates", "--config-dir"]) == 2
    assert main(["train", "experiment=dates", "--config-dir", str(tmp_path / "no")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert "without a folder" in said[0]
    assert "is not a folder" in said[1]
