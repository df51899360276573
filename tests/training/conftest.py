"""A small text of our own and settings that train on it in a second."""

import random
from pathlib import Path

import numpy as np
import pytest
from chimes import make_chimes

from voiceseq.audio.files import write_audio
from voiceseq.datasets.manifest import Clip, write_manifest

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
def talk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recordings (of noise), a manifest of what is "said" in them, and a dictionary."""
    folder = tmp_path_factory.mktemp("talk")
    noise = np.random.default_rng(1)
    clips = []
    for number, text in enumerate(["hello", "hello moon", "moon", "moon hello moon", "strange moon"]):
        path = write_audio(folder / f"{number}.wav", 0.1 * noise.standard_normal(16_000 + 800 * number), 16_000)
        clips.append(Clip(f"c{number}", path, 1.0 + 0.05 * number, text=text))
    write_manifest(folder / "m.jsonl", clips)
    (folder / "words.dict").write_text("hello HH AH0 L OW1\nmoon M UW1 N\n")
    return folder


@pytest.fixture(scope="session")
def chimes(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Settings of a wake-word experiment on tones, without a trained backbone."""
    folder = make_chimes(tmp_path_factory.mktemp("chimes"))
    return [
        *(f"data.folder={folder}", "data.positives=[words.jsonl]", "data.speech=[talk.jsonl]"),
        *("data.noises=[noise.jsonl]", "data.batch=4", "data.validation=8", "data.workers=0", "data.clips.seconds=3"),
        *("task.backbone=null", "task.freeze=false"),
    ]


@pytest.fixture(scope="session")
def small(sea: Path) -> list[str]:
    return [*SMALL, f"data.train={sea}"]


@pytest.fixture(scope="session")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a few labelled, tagged and plain sentences."""
    folder = tmp_path_factory.mktemp("sentences")
    (folder / "s.tsv").write_text("1\ta fine film .\n0\ta dull film .\n1\tfine !\n0\tdull !\n")
    (folder / "n.conll").write_text("Ann\tB-person\nsaw\tO\nit\tO\n\nBo\tB-person\nleft\tO\n")
    row = "{0}\t{1}\t{1}\t{2}\t{3}\t_\t0\t{4}\t_\t_"
    rows = [row.format(1, "He", "PRON", "PRP", "nsubj"), row.format(2, "left", "VERB", "VBD", "root")]
    (folder / "p.conllu").write_text("\n".join(rows) + "\n\n" + rows[0] + "\n")
    (folder / "w.txt").write_text(" the cat sat . it slept . \n a dog ran . it barked . \n a fine film was dull . \n")
    return folder
