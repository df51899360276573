"""The data of the dates task, and what its validation measures."""

from itertools import pairwise
from pathlib import Path

from voiceseq.datasets.dates import date_pair
from voiceseq.tasks.transduce import DateData
from voiceseq.training.config import compose_config
from voiceseq.training.run import train


def test_batches_are_a_function_of_the_step_alone_and_use_every_pair_once() -> None:
    data = DateData(batch=8, validation=4, seed=3)
    forwards = [data.pairs(step) for step in range(8)]
    backwards = [DateData(batch=8, validation=4, seed=3).pairs(step) for step in reversed(range(8))]
    assert forwards == backwards[::-1]
    used = [pair for batch in forwards for pair in batch]
    assert sorted(used) == sorted(date_pair(3, number) for number in range(64))


def test_a_batch_holds_texts_of_like_length() -> None:
    data = DateData(batch=64, validation=4)
    lengths = [[len(text) for text, _ in data.pairs(step)] for step in range(4)]
    assert all(max(a) <= min(b) for a, b in pairwise(lengths))


def test_validation_measures_both_kinds_of_formats(tmp_path: Path) -> None:
    small = ["data.validation=8", "model.size=8", "model.embedding=4", "data.batch=4"]
    run = train(compose_config(["experiment=dates", "debug=fast", f"runs={tmp_path}", *small]))
    assert {"val/loss", "val/exact", "val/loss held-out", "val/exact held-out"} <= set(run.metrics)


def test_no_validation_pair_is_one_of_training() -> None:
    data = DateData(batch=256, validation=200)
    trained = {text for step in range(8) for text, _ in data.pairs(step)}
    seen, new = data.validation[""], data.validation[" held-out"]
    shared = [text for text, iso in seen + new if text in trained and iso]
    assert len(shared) <= 1  # by chance: there are few ways to write a date in figures
