"""What translation learns from: every pair once a pass, like lengths together, nothing of what is held out."""

from collections import Counter
from pathlib import Path

import pytest

from voiceseq.datasets.corpora.parallel import read_parallel
from voiceseq.errors import InputError
from voiceseq.models.seq2seq import Seq2SeqConfig
from voiceseq.tasks.base import OptimiserConfig
from voiceseq.tasks.translate import TOGETHER, TranslationData, TranslationTask


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[str]]:
    folder = tmp_path_factory.mktemp("pairs")
    numbers = ["ein", "zwei", "drei", "vier"]
    left = [f"{a} {b}  Hunde{'!' * (i % 3)}" for i, (a, b) in enumerate((a, b) for a in numbers for b in numbers)]
    right = [f"{line.lower()} dogs" for line in left]
    for name, lines in {"train.de": left, "train.en": right, "val.de": left[:3], "val.en": right[:3]}.items():
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [str(folder / "train.de"), str(folder / "train.en")], [str(folder / "val.de"), str(folder / "val.en")]


def make(files: tuple[list[str], list[str]], **more: object) -> TranslationData:
    return TranslationData(*files, symbols=60, batch=2, steps_per_epoch=2, **more)  # type: ignore[arg-type]


def test_every_pair_comes_once_a_pass_and_like_lengths_together(files: tuple[list[str], list[str]]) -> None:
    data = make(files)
    assert len(data.rows) == 16 == len(set(data.rows))
    two_passes = Counter(pair for step in range(TOGETHER) for pair in data.pairs(step))
    assert set(two_passes.values()) == {2}
    sizes = [data.sizes[pair] for step in range(TOGETHER) for pair in data.pairs(step)]
    assert sizes == sorted(sizes)
    assert make(files).pairs(17) == data.pairs(17) != make(files, seed=2).pairs(17)


def test_long_pairs_are_left_out_of_training_alone(files: tuple[list[str], list[str]]) -> None:
    shortest = min(max(size) for size in make(files).sizes.values())
    data = make(files, longest=shortest)
    assert 0 < len(data.rows) < 16
    assert len(data.validation[""]) == 3


def test_the_bundle_is_a_translator(files: tuple[list[str], list[str]]) -> None:
    data = make(files)
    config = Seq2SeqConfig(cell="transformer", size=8, heads=2, layers=1, feed_forward=2)
    task = TranslationTask(config, OptimiserConfig(), data)
    parts = task.parts()
    assert parts.kind == "translator"
    assert parts.decoding["alpha"] == 1.0
    loss, count, metrics = task.eval().loss(data.make(0, 0, 1))
    assert count == int(data.make(0, 0, 1).target_lengths.sum())
    assert not metrics
    loss.backward()


def test_readers_take_two_files_or_two_columns(files: tuple[list[str], list[str]], tmp_path: Path) -> None:
    assert read_parallel(*files[1])[0] == ("ein ein Hunde", "ein ein hunde dogs")
    table = tmp_path / "t.tsv"
    table.write_text("go\tva\nrun\tcours\n\n \tx\n")
    assert read_parallel(str(table), columns=(1, 0)) == [("va", "go"), ("cours", "run")]
    table.write_text("go\tva\nrun\n")
    with pytest.raises(InputError, match="row 2 has no column 1"):
        read_parallel(str(table))
    table.write_text("")
    with pytest.raises(InputError, match="no pair"):
        read_parallel(str(table))
    with pytest.raises(InputError, match="16 lines"):
        read_parallel(files[0][0], files[1][0])
