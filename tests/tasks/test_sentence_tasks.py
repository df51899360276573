"""Tagging, classification, masked and bidirectional language models: what their batches hold, and that they learn."""

from pathlib import Path

import pytest
import torch

from voiceseq.bundles import save_bundle
from voiceseq.errors import ConfigError, InputError
from voiceseq.models.classifier import ClassifierConfig
from voiceseq.models.sentence import SentenceConfig
from voiceseq.models.tagger import TaggerConfig
from voiceseq.tasks.base import OptimiserConfig, SequenceTask
from voiceseq.tasks.bidirectional import BidirectionalTask, PlainData
from voiceseq.tasks.classify import ClassifyData, ClassifyTask
from voiceseq.tasks.masked import MaskedData, MaskedTask
from voiceseq.tasks.sentences import SentenceData
from voiceseq.tasks.tagging import TaggingData, TaggingTask

SMALL = {"embedding": 8, "size": 16, "heads": 2, "dropout": 0.0}
FAST = OptimiserConfig(learning_rate=0.02)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    posts = [
        [("Ann", "B-p"), ("Lee", "I-p"), (verb, "O"), (town, "B-l")]
        for verb in ("saw", "left")
        for town in ("Rome", "Oslo")
    ]
    (folder / "n.conll").write_text("\n\n".join("\n".join("\t".join(row) for row in post) for post in posts))
    lines = [
        f"{int(good)}\tthe {noun} is {'fine' if good else 'dull'} ." for noun in ("film", "plot") for good in (0, 1)
    ]
    (folder / "s.tsv").write_text("\n".join(lines))
    stories = ["the cat sat . it slept .", "a dog ran . it barked . he left .", "one ."]
    (folder / "w.txt").write_text(" \n = A heading = \n" + "\n".join(f" {line} " for line in stories))
    (folder / "v.txt").write_text(
        "\n".join(f"{word} " + " ".join([str(n)] * 8) for n, word in enumerate(("Cat", "zebra"), 1))
    )
    return folder


def tagging(files: Path, **more: object) -> TaggingData:
    path = str(files / "n.conll")
    return TaggingData(path, path, minimum_count=1, batch=4, **more)  # type: ignore[arg-type]


def plain(cls: type, files: Path, **more: object) -> PlainData:
    path = str(files / "w.txt")
    return cls(path, path, minimum_count=1, batch=4, **more)  # type: ignore[no-any-return]


def learn(task: SequenceTask, data: SentenceData, steps: int, fixed: bool = False) -> list[float]:
    torch.manual_seed(1)
    optimiser = task.configure_optimizers()
    losses = []
    for step in range(steps):
        task.train()
        loss, _, _ = task.loss(data.make(0 if fixed else step))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    task.eval()
    return losses


def test_a_tagger_learns_names_and_counts_as_conlleval(files: Path) -> None:
    data = tagging(files)
    task = TaggingTask(TaggerConfig(**SMALL, spelling=4), FAST, data)
    assert task.monitor == "val/f1"
    assert data.tags.symbols == ("B-l", "B-p", "I-p", "O")
    assert task.network.crf is not None
    assert not task.network.crf.allowed[3, 2]  # O, then I-p
    losses = learn(task, data, 40)
    assert losses[-1] < 0.1 < losses[0]
    batch = data.batch([0, 1], True, 0)
    task.on_validation_epoch_start()
    task.count(batch, task.network(*batch.inputs))
    assert task.counts.tolist() == [8, 8, 4, 4, 4]
    task.on_validation_epoch_start()
    wrong = batch._replace(labels=batch.labels.clone())  # type: ignore[union-attr]
    wrong.labels[0] = torch.tensor([1, 3, 3, 0])  # type: ignore[index]
    task.count(wrong, task.network(*batch.inputs))
    assert task.counts.tolist() == [8, 7, 4, 4, 3]  # one tag, hence one span of the four
    parts = task.parts()
    assert (parts.kind, set(parts.vocabularies)) == ("tagger", {"words", "letters", "tags"})


def test_a_classifier_learns_and_its_classes_have_names(files: Path) -> None:
    path = str(files / "s.tsv")
    data = ClassifyData(path, path, ["bad", "good"], longest=4, minimum_count=1, batch=4)
    assert {len(words) for words, _ in data.train_rows} == {4}
    task = ClassifyTask(ClassifierConfig(**SMALL), FAST, data, label_smoothing=0.1)
    learn(task, data, 40)
    loss, count, metrics = task.loss(data.batch([0, 1, 2, 3], True, 0))
    assert (count, metrics["accuracy"]) == (4, 1.0)
    assert float(loss) < 0.3
    assert task.parts().vocabularies["classes"]["symbols"] == ["bad", "good"]
    assert task.parts().decoding == {"longest": 4}
    with pytest.raises(InputError, match="labels 0, 1; as many names"):
        ClassifyData(path, path, ["one"])


def test_vectors_are_known_words_and_fill_the_table(files: Path) -> None:
    data = plain(PlainData, files, vectors=str(files / "v.txt"))
    task = BidirectionalTask(SentenceConfig(**SMALL, context=8), FAST, data, samples=8)
    table = task.network.context.embedding.weight
    for word, value in (("cat", 1.0), ("zebra", 2.0)):
        assert table[data.coder.words.index(word)].tolist() == [value] * 8
    assert "glove" in str(data.sources).lower()
    with pytest.raises(ConfigError, match=r"8 numbers, model\.embedding is 6"):
        BidirectionalTask(SentenceConfig(embedding=6, context=8), FAST, data)


def test_words_of_a_bundle_are_used(files: Path, tmp_path: Path) -> None:
    first = tagging(files)
    save_bundle(tmp_path / "b", kind="tagger", config={}, vocabularies=first.vocabularies())
    second = plain(PlainData, files, vocabulary=str(tmp_path / "b"))
    assert second.coder.words == first.coder.words


def test_sentences_know_what_follows_them(files: Path) -> None:
    data = plain(PlainData, files)
    told = {
        " ".join(words): " ".join(data.train_rows[number][0]) if number >= 0 else None
        for words, number in data.train_rows
    }
    assert told == {
        "the cat sat .": "it slept .",
        "it slept .": None,
        "a dog ran .": "it barked .",
        "it barked .": "he left .",
        "he left .": None,
        "one .": None,
    }


def test_masked_pairs(files: Path) -> None:
    data = plain(MaskedData, files)
    words = data.coder.words
    true = {(0, 1), (2, 3), (3, 4)}
    number = {tuple(words.encode(" ".join(row))): n for n, (row, _) in enumerate(data.train_rows)}
    seen = set()
    for step in range(40):
        batch = data.make(step)
        for row, length in enumerate(batch.lengths.tolist()):
            tokens = batch.targets[row, :length].tolist()
            assert tokens[0] == words.special("bos")
            cut = tokens.index(words.special("eos"))
            first, second = number[tuple(tokens[1:cut])], number[tuple(tokens[cut + 1 : -1])]
            assert batch.segments[row, :length].tolist() == [0] * (cut + 1) + [1] * (length - cut - 1)
            if batch.follows[row]:
                assert (first, second) in true
                seen.add((first, second))
            chosen = batch.chosen[row]
            assert 1 <= int(chosen.sum()) < length
            assert torch.equal(batch.words[row][~chosen], batch.targets[row][~chosen])
            assert not set(batch.targets[row][chosen].tolist()) & words.special_ids
    assert seen == true
    again = [data.make(7), plain(MaskedData, files).make(7)]
    assert all(torch.equal(one, other) for one, other in zip(*again, strict=True))
    fixed = [data.batch([0, 1], True, 3), data.batch([0, 1], True, 3)]
    assert all(torch.equal(one, other) for one, other in zip(*fixed, strict=True))


def test_plain_text_teaches(files: Path) -> None:
    masked = plain(MaskedData, files)
    task: SequenceTask = MaskedTask(SentenceConfig(**SMALL, cell="transformer"), FAST, masked)
    losses = learn(task, masked, 60, fixed=True)
    assert losses[-1] < 0.3 * losses[0]
    assert set(task.loss(masked.make(0))[2]) == {"masked", "words right", "pairs right"}
    both = plain(PlainData, files)
    task = BidirectionalTask(SentenceConfig(**SMALL, context=16), FAST, both, samples=12)
    losses = learn(task, both, 60)
    loss, count, _ = task.loss(both.batch([0, 2], True, 0))
    assert count == 6
    assert float(loss) < 1.5 < losses[0]
