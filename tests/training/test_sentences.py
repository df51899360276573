"""The experiments on sentences from end to end on a few lines of text, and what one hands on to another."""

from pathlib import Path

import pytest
import torch

import voiceseq
from voiceseq.bundles import load_bundle
from voiceseq.training.config import compose_config
from voiceseq.training.run import Run, train

SMALL = (
    *("progress=false", "trainer.precision=32-true", "trainer.max_epochs=1", "trainer.accelerator=cpu", "ema=null"),
    *("data.steps_per_epoch=2", "data.batch=4", "data.vectors=null", "data.minimum_count=1", "model.embedding=8"),
)


@pytest.fixture
def folder(sentences: Path, tmp_path: Path) -> Path:
    """The files of ``conftest.py``, and a place for runs."""
    for file in sentences.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def run(folder: Path, experiment: str, file: str, *more: str) -> Run:
    files = [f"data.train={folder / file}", f"data.validation={folder / file}", f"runs={folder / 'runs'}"]
    return train(compose_config([f"experiment={experiment}", *SMALL, *files, *more]))


def handed_on(old: Run, new: Run, kept: str) -> bool:
    """Whether a frozen tensor of the one is in the other, number by number."""
    one, other = (load_bundle(run.bundle).weights[kept] for run in (old, new))
    return torch.equal(one, other)


def test_masked_to_classifier_and_tagger(folder: Path) -> None:
    masked = run(folder, "masked", "w.txt", "model.size=8")
    assert {"val/loss", "val/words right", "val/pairs right"} <= set(masked.metrics)
    assert "[" not in voiceseq.load(masked.bundle).fill(["the [MASK] sat ."])[0].filled
    start = (
        f"start_from={masked.bundle}",
        f"data.vocabulary={masked.bundle}",
        "model.size=8",
        "optimiser.learning_rate=0",
    )
    still = "encoder.body.blocks.0.feed_forward.0.weight"
    classifier = run(folder, "sst2", "s.tsv", "model=classifier_transformer", "data.spelling=false", *start)
    assert handed_on(masked, classifier, still)
    assert voiceseq.load(classifier.bundle).classify(["a fine film"])[0].label in ("negative", "positive")
    tagger = run(folder, "wnut17", "n.conll", "model=tagger_transformer", *start)
    assert handed_on(masked, tagger, still)
    assert "val/f1" in tagger.metrics


def test_bidirectional_states_to_a_tagger(folder: Path) -> None:
    both = run(folder, "bidirectional", "w.txt", "model.context=8", "task.samples=8")
    start = (f"start_from={both.bundle}", f"data.vocabulary={both.bundle}", "model.context=8")
    tagger = run(folder, "wnut17", "n.conll", *start, "model.size=8", "model.spelling=4")
    assert handed_on(both, tagger, "encoder.context.states.enter.weight")  # frozen, though the tagger has learned
    assert voiceseq.load(both.bundle).vectors(["the cat"])[0].shape == (2, 2, 8)


def test_sentences_to_reviews_and_parts_of_speech(folder: Path) -> None:
    sentences = run(folder, "sst2", "s.tsv", "model.size=8", "model.spelling=4")
    start = (f"start_from={sentences.bundle}", f"data.vocabulary={sentences.bundle}", "optimiser.learning_rate=0")
    reviews = run(folder, "imdb", "s.tsv", "model.size=8", "model.spelling=4", "model.ngrams=16", *start)
    for name in ("encoder.embedding.weight", "encoder.spelling.embedding.weight", "pool.query", "output.weight"):
        assert handed_on(sentences, reviews, name)
    speech = run(folder, "ewt-pos", "p.conllu", "model.size=8", "model.spelling=4")
    assert 0 <= speech.metrics["val/accuracy"] <= 1
    assert load_bundle(speech.bundle).config["further"] == 2
    assert voiceseq.load(speech.bundle).tag(["He left"])[0].words == ["He", "left"]
