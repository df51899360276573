"""The whole path, as a user walks it: `voiceseq train` to a bundle that inference opens."""

import csv
import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import voiceseq
from voiceseq.cli.main import main
from voiceseq.datasets.windows import stream_pieces
from voiceseq.training.config import compose_config, experiments
from voiceseq.training.run import new_run_folder, train

SMALL = [
    "experiment=shakespeare",
    "progress=false",
    "trainer.precision=32-true",
    "trainer.max_epochs=3",
    "trainer.accelerator=cpu",
    "trainer.log_every_n_steps=1",
    "data.steps_per_epoch=8",
    "data.window=32",
    "data.batch=8",
    "data.validation=null",
    "model.size=24",
    "model.dropout=0.0",
    "schedule.warmup=2",
    "optimiser.learning_rate=0.02",
]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    words = random.Random(1).choices(["the", "sea", "is", "blue", "and", "wide", "we", "sail", "home."], k=3000)
    path = tmp_path_factory.mktemp("text") / "sea.txt"
    path.write_text(" ".join(words))
    return [*SMALL, f"data.train={path}"]


def losses(run: Path, column: str = "train/loss") -> list[float]:
    (log,) = run.glob("logs/version_*/metrics.csv")
    with open(log) as file:
        return [float(row[column]) for row in csv.DictReader(file) if row.get(column)]


@pytest.mark.parametrize("name", experiments())
def test_every_experiment_runs_through(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    config = compose_config([f"experiment={name}", "debug=fast", f"runs={tmp_path}"])
    if "shared" in str(config.data):
        config.data.train = str(request.getfixturevalue("shared") / "data" / config.data.train.partition("/data/")[2])
        config.data.validation = str(Path(config.data.train).parent / Path(config.data.validation).name)
    run = train(config, new_run_folder(config))
    assert math.isfinite(run.metrics["val/loss"])
    assert voiceseq.load(run.bundle)


def test_the_bundle_says_what_training_measured(small: list[str], tmp_path: Path) -> None:
    config = compose_config([*small, f"runs={tmp_path}"])
    run = train(config, new_run_folder(config))
    model = voiceseq.load(run.bundle)
    text = Path(config.data.train).read_text()
    held_out = torch.tensor(model.vocabulary.encode(text[int(0.9 * len(text)) :]))
    total, state = 0.0, None
    pieces = stream_pieces(held_out, 32, 32)
    with torch.no_grad():
        for inputs, targets in pieces:
            logits, state = model.network(inputs, state if len(inputs) == 32 else None)
            total += float(torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets, reduction="sum"))
    assert total / (len(held_out) - 1) == pytest.approx(run.metrics["val/loss"], rel=1e-5)
    assert losses(run.folder)[0] > run.metrics["val/loss"]
    assert {"config.yaml", "last.ckpt", "best.ckpt", "bundle", "result.json", "tensorboard"} <= {
        path.name for path in run.folder.iterdir()
    }


def test_a_bundle_opens_without_lightning_or_hydra(small: list[str], tmp_path: Path) -> None:
    assert main(["train", *small, f"runs={tmp_path}", "trainer.max_epochs=1"]) == 0
    (bundle,) = tmp_path.glob("shakespeare/*/bundle")
    code = (
        "import sys, voiceseq; print(voiceseq.load(sys.argv[1]).generate(['we '], 10, seed=1));"
        "print([m for m in sys.modules if m.split('.')[0] in ('pytorch_lightning', 'lightning', 'hydra', 'omegaconf')])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(bundle)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1] == "[]"


def test_one_batch_is_learned_by_heart(small: list[str], tmp_path: Path) -> None:
    config = compose_config([*small, "debug=overfit", "trainer.max_epochs=12", f"runs={tmp_path}", "model.size=64"])
    found = losses(train(config, new_run_folder(config)).folder)
    assert found[-1] < 0.35 * found[0]


def test_same_seed_same_run_other_seed_another(small: list[str], tmp_path: Path) -> None:
    first, again, other = (
        losses(train(config, new_run_folder(config)).folder)
        for config in (compose_config([*small, f"seed={seed}", f"runs={tmp_path}"]) for seed in (1, 1, 2))
    )
    assert first == again != other


def test_accumulated_gradients_equal_a_larger_batch(small: list[str], tmp_path: Path) -> None:
    """One pass over one long batch, or over its halves with accumulation: the same weights come out."""
    small = [*small, "schedule=constant", "optimiser=sgd", "optimiser.learning_rate=0.5", "trainer.max_epochs=1"]
    whole = compose_config([*small, "data.batch=16", "data.steps_per_epoch=4", f"runs={tmp_path}"])
    halves = compose_config([*small, "data.steps_per_epoch=8", "trainer.accumulate_grad_batches=2", f"runs={tmp_path}"])
    bundles = [voiceseq.load(train(config, new_run_folder(config)).bundle).network for config in (whole, halves)]
    for (name, one), other in zip(bundles[0].state_dict().items(), bundles[1].state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, atol=2e-6, rtol=1e-4, msg=name)


def test_a_sweep_leaves_a_run_for_each_value(small: list[str], tmp_path: Path) -> None:
    words = ["-m", *small, f"runs={tmp_path}", "trainer.max_epochs=1", "model.size=8,16"]
    done = subprocess.run([sys.executable, "-m", "voiceseq", "train", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    sizes = [voiceseq.load(path).network.config.size for path in sorted(tmp_path.glob("shakespeare/*/bundle"))]
    assert sorted(sizes) == [8, 16]


def test_two_processes_learn_what_one_does(small: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "voiceseq", "train", *small, "threads=1"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for name, more in {"one": [], "two": ["trainer.devices=2", "trainer.strategy=ddp"]}.items():
        words = [*command, f"runs={tmp_path / name}", *more]
        done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]
    (one,), (two,) = (list((tmp_path / name / "shakespeare").iterdir()) for name in ("one", "two"))
    assert losses(two) == pytest.approx(losses(one), rel=1e-4)
    assert len(losses(two)) == 24
    assert losses(two, "val/loss") == pytest.approx(losses(one, "val/loss"), rel=1e-4)
    assert json.loads((two / "result.json").read_text())["steps"] == 24


@pytest.mark.parametrize(
    ("settings", "said"),
    [(["data.train=/nowhere/a.txt"], "cannot be read"), (["data.window=999999"], "longer text")],
)
def test_bad_data_is_one_line_and_leaves_no_bundle(
    small: list[str], settings: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *small, f"runs={tmp_path}", *settings]) == 1
    captured = capsys.readouterr()
    assert said in captured.err
    assert not list(tmp_path.rglob("bundle"))
