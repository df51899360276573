"""The whole path, as a user walks it: `voiceseq train` to a bundle that inference opens."""

import csv
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from places import ROOT
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import voiceseq
from voiceseq.cli.main import main
from voiceseq.datasets.windows import stream_pieces
from voiceseq.errors import ConfigError
from voiceseq.training.checkpoints import BEST, LAST, load_checkpoint
from voiceseq.training.config import compose_config, experiments
from voiceseq.training.run import build, build_trainer, resume_config, train

VOICESEQ = [sys.executable, "-m", "voiceseq"]
EXAMPLE = ROOT / "docs" / "example"
SENTENCES = {"sst2": "s.tsv", "imdb": "s.tsv", "wnut17": "n.conll", "ewt-pos": "p.conllu"}
SENTENCES |= dict.fromkeys(("masked", "bidirectional"), "w.txt")
# these read corpora of other shapes, or start from another network: their own tests train them
ELSEWHERE = (
    *("activity", "chorales", "co2", "digit-captions", "english-small", "fra-eng", "multi30k-de-en"),
    "harper-valley-whisper",
    *("names", "promoters", "pronounce-ipa", "sunspots", "word-vectors"),
)
WAKE_WORDS = ("alexa", "computer", "jarvis", "marvin", "six-words", "smart-mirror", "snowboy", "view-glass")


def losses(run: Path, column: str = "train/loss") -> list[float]:
    (log,) = run.glob("logs/version_*/metrics.csv")
    with open(log) as file:
        return [float(row[column]) for row in csv.DictReader(file) if row.get(column)]


@pytest.mark.parametrize("name", [name for name in experiments() if name not in ELSEWHERE])
def test_every_experiment_runs_through(
    name: str, tmp_path: Path, sea: Path, talk: Path, chimes: list[str], sentences: Path
) -> None:
    """On a text or recordings of our own where they are wanted, so that it is proven on every machine."""
    text = [f"data.train={sea}", "data.validation=null", "data.batch=4"]
    calls = [f"data.folder={talk}", "data.train=[m.jsonl]", "data.validation=[m.jsonl]", "data.batch_s=5"]
    calls += ["augment.noise.probability=0", "data.noises=[]"]
    speech = [*calls, f"data.dictionaries=[{talk / 'words.dict'}]"]
    words = [f"data.dictionary={talk / 'words.dict'}", "data.common=null", "data.held_out=0.2", "data.batch=4"]
    own = {"dates": [], "backbone": speech, **dict.fromkeys(WAKE_WORDS, chimes), "pronounce": words}.get(name, text)
    own = [*calls, "data.silences=[]"] if name.startswith(("harper-valley", "english-scratch")) else own
    if name in SENTENCES:
        files = [f"data.{part}={sentences / SENTENCES[name]}" for part in ("train", "validation")]
        own = [*files, "data.vectors=null", "data.batch=4", "data.minimum_count=1"]
    run = train(compose_config([f"experiment={name}", "debug=fast", f"runs={tmp_path}", *own]))
    assert math.isfinite(run.metrics["val/loss"])
    assert voiceseq.load(run.bundle)


@pytest.mark.parametrize("model", ["trigger_plain", "trigger_convolution", "trigger_transformer"])
def test_every_detector_trains_and_listens(model: str, tmp_path: Path, chimes: list[str]) -> None:
    """Six words in one network, and what comes out of training listens."""
    settings = ["experiment=six-words", f"model={model}", "task.loss.kind=maxpool", "debug=fast", f"runs={tmp_path}"]
    run = train(compose_config([*settings, *chimes]))
    assert 0 <= run.metrics["val/misses"] <= 100
    detector = voiceseq.load(run.bundle)
    assert detector.words == ("alexa", "computer", "jarvis", "smart mirror", "snowboy", "view glass")
    times, scores = detector.scores(np.zeros(16_000, np.float32), 16_000)
    assert scores.shape == (len(times), 6)


def test_the_bundle_says_what_training_measured(small: list[str], tmp_path: Path) -> None:
    config = compose_config([*small, f"runs={tmp_path}"])
    run = train(config)
    model = voiceseq.load(run.bundle)
    text = Path(config.data.train).read_text()
    held_out = torch.tensor(model.vocabulary.encode(text[int(0.9 * len(text)) :]))
    total, state = 0.0, None
    with torch.no_grad():
        for inputs, targets in stream_pieces(held_out, 32, 32):
            logits, state = model.network(inputs, state if len(inputs) == 32 else None)
            total += float(torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets, reduction="sum"))
    assert total / (len(held_out) - 1) == pytest.approx(run.metrics["val/loss"], rel=1e-5)
    assert losses(run.folder)[0] > run.metrics["val/loss"]
    assert {path.name for path in run.folder.iterdir()} == {
        *("config.yaml", "last.ckpt", "previous.ckpt", "best.ckpt", "bundle", "result.json", "logs", "tensorboard"),
    }


def test_metrics_are_those_of_the_best_epoch(small: list[str], tmp_path: Path) -> None:
    """One batch learned by heart: other text grows ever stranger, and the bundle keeps what was best on it."""
    run = train(compose_config([*small, "debug=overfit", "trainer.max_epochs=12", "model.size=64", f"runs={tmp_path}"]))
    learned, epochs = losses(run.folder), losses(run.folder, "val/loss")
    assert learned[-1] < 0.35 * learned[0]
    assert epochs[-1] > min(epochs)
    assert run.metrics == {"val/loss": pytest.approx(min(epochs))}
    assert json.loads((run.folder / "result.json").read_text())["metrics"] == run.metrics
    assert voiceseq.load_bundle(run.bundle).metrics == run.metrics


def test_a_bundle_opens_without_lightning_or_hydra(
    small: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *small, f"runs={tmp_path}", "trainer.max_epochs=1", "--json"]) == 0
    said = capsys.readouterr()
    result = json.loads(said.out)
    assert said.err.startswith(f"run {result['run']}")  # known before the end, for resume=
    code = (
        "import sys, voiceseq; print(voiceseq.load(sys.argv[1]).generate(['we '], 10, seed=1));"
        "print([m for m in sys.modules if m.split('.')[0] in ('pytorch_lightning', 'lightning', 'hydra', 'omegaconf')])"
    )
    done = subprocess.run([sys.executable, "-c", code, result["bundle"]], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_same_seed_same_run_other_seed_another(small: list[str], tmp_path: Path) -> None:
    configs = [compose_config([*small, f"seed={seed}", f"runs={tmp_path}"]) for seed in (1, 1, 2)]
    first, again, other = (losses(train(config).folder) for config in configs)
    assert first == again != other


def test_accumulated_gradients_equal_a_larger_batch(small: list[str], tmp_path: Path) -> None:
    """One pass over one long batch, or over its halves with accumulation: the same weights come out."""
    small = [*small, "schedule=constant", "optimiser=sgd", "optimiser.learning_rate=0.5", "trainer.max_epochs=1"]
    whole = compose_config([*small, "data.batch=16", "data.steps_per_epoch=4", f"runs={tmp_path}"])
    halves = compose_config([*small, "data.steps_per_epoch=8", "trainer.accumulate_grad_batches=2", f"runs={tmp_path}"])
    bundles = [voiceseq.load(train(config).bundle).network for config in (whole, halves)]
    for (name, one), other in zip(bundles[0].state_dict().items(), bundles[1].state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, atol=2e-6, rtol=1e-4, msg=name)


class Recorder(pl.Callback):
    """The weights after each optimiser step."""

    def __init__(self) -> None:
        self.steps: list[dict[str, torch.Tensor]] = []

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: object) -> None:
        self.steps.append({name: value.clone() for name, value in pl_module.network.state_dict().items()})


def test_averaged_weights_are_the_average(small: list[str], tmp_path: Path) -> None:
    config = compose_config([*small, "ema=0.7", "trainer.max_epochs=1", f"runs={tmp_path}"])
    data = build(config, "data")
    task = build(config, "task", data=data)
    trainer, recorder = build_trainer(config, task, build(config, "schedule"), tmp_path), Recorder()
    trainer.callbacks.insert(0, recorder)  # type: ignore[attr-defined]
    trainer.fit(task, datamodule=data)
    average = recorder.steps[0]
    for steps, weights in enumerate(recorder.steps[1:], 1):
        decay = min(0.7, (1 + steps) / (10 + steps))  # the beginning is soon forgotten
        average = {name: decay * average[name] + (1 - decay) * weights[name] for name in weights}
    saved = load_checkpoint(tmp_path / BEST)["state_dict"]
    for name, value in average.items():
        torch.testing.assert_close(saved[f"network.{name}"], value)
    assert not all(torch.allclose(average[name], recorder.steps[-1][name], atol=1e-4) for name in average)


def test_gradients_are_clipped(small: list[str], tmp_path: Path) -> None:
    settings = [*small, "optimiser=sgd", "optimiser.momentum=0", "schedule=constant", "trainer.max_epochs=1"]
    config = compose_config(
        [*settings, "optimiser.learning_rate=1", "trainer.gradient_clip_val=1e-3", f"runs={tmp_path}"]
    )
    data = build(config, "data")
    task = build(config, "task", data=data)
    start = [parameter.clone() for parameter in task.parameters()]
    trainer = build_trainer(config, task, build(config, "schedule"), tmp_path)
    trainer.fit(task, datamodule=data)
    moved = math.sqrt(sum(float((a - b).square().sum()) for a, b in zip(start, task.parameters(), strict=True)))
    assert 0 < moved <= 8 * 1e-3 * 1.001


def test_bf16_learns_nearly_the_same(small: list[str], tmp_path: Path) -> None:
    small = [word for word in small if "precision" not in word]
    whole, half = (
        train(compose_config([*small, f"trainer.precision={precision}", f"runs={tmp_path}"]))
        for precision in ("32-true", "bf16-mixed")
    )
    assert half.metrics["val/loss"] == pytest.approx(whole.metrics["val/loss"], rel=0.05)
    assert losses(half.folder) != losses(whole.folder)


def test_a_run_that_learns_nothing_stops_early_and_stays_stopped(small: list[str], tmp_path: Path) -> None:
    settings = ["optimiser.learning_rate=0", "early_stopping=2", "trainer.max_epochs=9"]
    run = train(compose_config([*small, *settings, f"runs={tmp_path}"]))
    steps = json.loads((run.folder / "result.json").read_text())["steps"]
    assert steps == 3 * 8  # the first epoch is the best one, then two without a better
    (run.folder / "result.json").unlink()
    again = train(resume_config(run.folder, []), run.folder)
    assert json.loads((run.folder / "result.json").read_text()) == {"metrics": again.metrics, "steps": steps}
    assert again.metrics == run.metrics


def test_a_finished_run_can_be_moved_and_trained_on(small: list[str], tmp_path: Path) -> None:
    run = train(compose_config([*small, "schedule=constant", f"runs={tmp_path / 'here'}"]))
    moved = tmp_path / "there"
    run.folder.rename(moved)
    again = train(resume_config(moved, []), moved)
    assert again.metrics == run.metrics
    more = train(resume_config(moved, ["trainer.max_epochs=5"]), moved)
    assert more.metrics["val/loss"] <= run.metrics["val/loss"]
    assert load_checkpoint(moved / LAST)["global_step"] == 5 * 8


def test_a_run_begins_with_the_weights_of_another(small: list[str], tmp_path: Path) -> None:
    first = train(compose_config([*small, f"runs={tmp_path / 'first'}"]))
    still = ["optimiser.learning_rate=1e-9", "trainer.max_epochs=1"]
    for source in (first.folder, first.folder / BEST, first.bundle):
        run = train(compose_config([*small, *still, f"runs={tmp_path / 'next'}", f"start_from={source}"]))
        assert run.metrics["val/loss"] == pytest.approx(first.metrics["val/loss"], abs=1e-4)
    wider = train(compose_config([*small, *still, "model.layers=3", f"runs={tmp_path}", f"start_from={first.bundle}"]))
    assert wider.metrics["val/loss"] > first.metrics["val/loss"] + 1e-3
    with pytest.raises(ConfigError, match="none of its"):
        train(compose_config([*small, f"runs={tmp_path / 'none'}", f"start_from={ROOT / 'data/bundles/backbone'}"]))
    with pytest.raises(ConfigError, match="no run with a"):
        train(compose_config([*small, f"runs={tmp_path / 'none'}", f"start_from={tmp_path / 'nowhere'}"]))
    assert not (tmp_path / "none").exists()


def test_curves_are_in_tensorboard(small: list[str], tmp_path: Path) -> None:
    run = train(compose_config([*small, f"runs={tmp_path}"]))
    events = EventAccumulator(str(next(run.folder.glob("tensorboard/version_*"))))
    events.Reload()
    assert [event.value for event in events.Scalars("val/loss")] == pytest.approx(losses(run.folder, "val/loss"))
    assert len(events.Scalars("train/loss")) == 24


def test_a_sweep_leaves_a_run_for_each_value(small: list[str], tmp_path: Path) -> None:
    words = ["-m", *small, f"runs={tmp_path}", "trainer.max_epochs=1", "model.size=8,16"]
    done = subprocess.run([*VOICESEQ, "train", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    sizes = [voiceseq.load(path).network.config.size for path in sorted(tmp_path.glob("text/*/bundle"))]
    assert sorted(sizes) == [8, 16]


@pytest.mark.parametrize("launcher", ["lightning", pytest.param("torchrun", marks=pytest.mark.slow)])
def test_two_processes_learn_what_one_does(launcher: str, tmp_path: Path) -> None:
    """Words of uneven length, so that each process has its own number of letters in a batch."""
    settings = ["--config-dir", str(EXAMPLE / "conf"), "experiment=reverse", "threads=1", "progress=false"]
    settings += ["data.batch=6", "data.steps_per_epoch=6", "trainer.max_epochs=2", "trainer.log_every_n_steps=1"]
    settings += ["trainer.accelerator=cpu", "model.size=16"]
    two = [*settings, f"runs={tmp_path / 'two'}", "trainer.devices=2", "trainer.strategy=ddp"]
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "voiceseq",
    ]
    commands = [
        [*VOICESEQ, "train", *settings, f"runs={tmp_path / 'one'}"],
        [*(torchrun if launcher == "torchrun" else VOICESEQ), "train", *two],
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(EXAMPLE)}
    outputs = []
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]
        outputs.append(done.stdout)
    assert outputs[1].count("bundle ") == 1  # one process speaks
    (one,), (both,) = (list((tmp_path / name / "reverse").iterdir()) for name in ("one", "two"))
    assert losses(both) == pytest.approx(losses(one), rel=1e-4)
    assert len(losses(both)) == 12
    assert losses(both, "val/loss") == pytest.approx(losses(one, "val/loss"), rel=1e-4)


def test_ctrl_c_says_how_to_go_on(small: list[str], tmp_path: Path) -> None:
    words = [*small, f"runs={tmp_path}", "trainer.max_epochs=10000"]
    process = subprocess.Popen([*VOICESEQ, "train", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not list(tmp_path.glob("text/*/last.ckpt")):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    (run,) = tmp_path.glob("text/*")
    assert process.returncode == 130, err
    assert out == ""
    assert f"go on with: voiceseq train resume={run}" in err
    assert "Traceback" not in err
    assert load_checkpoint(run / LAST)["global_step"] > 0


@pytest.mark.parametrize(
    ("settings", "said", "code"),
    [
        (["data.train=/nowhere/a.txt"], "cannot be read", 1),
        (["data.window=999999"], "longer text", 1),
        (["data.steps_per_epoch=0"], "1 or more", 1),
        (["model.cell=foo"], "foo", 2),
        (["model.layers=0"], "layers", 2),
        (["model.dropout=2"], "dropout", 2),
        (["schedule.kind=foo"], "constant, cosine, plateau", 2),
    ],
)
def test_bad_settings_are_one_line_and_leave_nothing(
    small: list[str], settings: list[str], said: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = main(["train", *small, f"runs={tmp_path}", *settings])
    error = capsys.readouterr().err.splitlines()[-1]
    assert said in error
    assert "unexpected" not in error
    assert "Instantiation" not in error
    assert found == code
    assert not list(tmp_path.rglob("bundle"))
