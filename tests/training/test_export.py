from pathlib import Path

from omegaconf import OmegaConf

from voiceseq.training.export import portable_settings


def test_settings_leave_the_machine_behind_and_nothing_else(tmp_path: Path) -> None:
    here = tmp_path / "a.txt"
    here.touch()
    config = OmegaConf.create(
        {
            "runs": "runs",
            "resume": None,
            "model": {"size": 3},
            "data": {"train": str(here), "other": ["../b/c.txt", 1], "licence": "MIT/X11, see a/b", "rate": 0.5},
            "task": {"_target_": "x.Y", "model": "${model}", "sampling": 0.1},
        }
    )
    assert portable_settings(config) == {
        "model": {"size": 3},
        "data": {"train": "a.txt", "other": ["c.txt", 1], "licence": "MIT/X11, see a/b", "rate": 0.5},
        "task": {"_target_": "x.Y", "sampling": 0.1},
    }
