"""Word embeddings at work: bundles and files opened alike, bias taken out as its equations say, pictures."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

import voiceseq
from voiceseq.bundles import save_bundle
from voiceseq.cli import main
from voiceseq.errors import BundleError, InputError
from voiceseq.inference.embeddings import WordEmbeddings, bias_direction, debias, flatten, open_vectors
from voiceseq.models.embeddings import EmbeddingConfig
from voiceseq.text.vectors import WordVectors, write_vectors
from voiceseq.text.vocabulary import Vocabulary

WORDS = ("he", "she", "man", "woman", "nurse", "doctor", "king", "queen")


@pytest.fixture(scope="module")
def vectors() -> WordVectors:
    return WordVectors(WORDS, np.random.default_rng(4).standard_normal((len(WORDS), 6)))


@pytest.fixture(scope="module")
def bundle(vectors: WordVectors, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_bundle(
        tmp_path_factory.mktemp("b") / "words",
        kind="embeddings",
        config=dataclasses.asdict(EmbeddingConfig(words=len(WORDS), dimension=6)),
        weights={"inputs": torch.tensor(vectors.matrix)},
        vocabularies={"words": Vocabulary(WORDS, "word").to_json()},
    )


def test_a_bundle_and_a_file_open_alike(vectors: WordVectors, bundle: Path, tmp_path: Path) -> None:
    file = write_vectors(vectors, tmp_path / "v.txt", digits=9)
    loaded = voiceseq.load(bundle)
    assert isinstance(loaded, WordEmbeddings)
    for opened in (loaded, open_vectors(str(bundle)), open_vectors(str(file))):
        assert opened.words == WORDS
        np.testing.assert_allclose(opened.matrix, vectors.matrix, rtol=1e-6)


def test_a_bundle_without_vectors_is_refused(tmp_path: Path) -> None:
    vocabulary = {"words": Vocabulary(WORDS, "word").to_json()}
    path = save_bundle(tmp_path / "b", kind="embeddings", config={"method": "glove"}, vocabularies=vocabulary)
    with pytest.raises(BundleError, match="inputs"):
        voiceseq.load(path)
    weights = {"inputs": torch.ones(3, 2)}
    path = save_bundle(tmp_path / "c", kind="embeddings", config={}, weights=weights, vocabularies=vocabulary)
    with pytest.raises(BundleError, match="8 symbols"):
        voiceseq.load(path)


def test_debiasing_does_what_its_equations_say(vectors: WordVectors) -> None:
    direction = bias_direction(vectors, [("she", "he"), ("woman", "man"), ("nowhere", "he")])
    assert np.linalg.norm(direction) == pytest.approx(1.0, abs=1e-5)
    assert float((vectors.unit[1] - vectors.unit[0] + vectors.unit[3] - vectors.unit[2]) @ direction) > 0
    pair = [("queen", "king"), ("nobody", "king")]
    fair = debias(vectors, direction, ["he", "she", "man", "woman", "king", "queen"], pair)
    for word in ("nurse", "doctor"):  # neutral: nothing along the direction, and as near to queen as to king
        assert abs(float(fair[word] @ direction)) < 1e-5
        assert fair.similarity(word, "queen") == pytest.approx(fair.similarity(word, "king"), abs=1e-5)
    assert (
        float((fair["queen"] - fair["king"]) @ direction) * float((vectors.unit[7] - vectors.unit[6]) @ direction) > 0
    )
    np.testing.assert_allclose(np.linalg.norm(fair.matrix, axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(fair["he"], vectors.unit[0], atol=1e-6)
    with pytest.raises(InputError, match="no pair"):
        bias_direction(vectors, [("x", "y")])


def test_words_on_a_plane(vectors: WordVectors) -> None:
    points = flatten(vectors, WORDS, "pca")
    centred = vectors.unit - vectors.unit.mean(0)
    values = np.sort(np.linalg.eigvalsh(centred.T @ centred))[::-1]
    np.testing.assert_allclose((points**2).sum(0), values[:2], rtol=1e-4)
    with pytest.raises(InputError, match="at least 3"):
        flatten(vectors, WORDS[:2])
    with pytest.raises(InputError, match="pca or tsne"):
        flatten(vectors, WORDS, "x")


def test_the_command_answers_line_by_line(bundle: Path, vectors: WordVectors, capsys, tmp_path: Path) -> None:
    lines = ["king", "king queen", "man king woman", "", "\ufeffKing\x00", "nowhere", "a b c d", "王" * 50_000]
    assert main.main(["embed", *lines, "--model", str(bundle), "--count", "2"]) == 1
    captured = capsys.readouterr()
    found = captured.out.split("\n")
    assert len(found) == len(lines) + 1
    assert found[0].split() == [one.word for one in vectors.neighbours("king", 2)] == found[4].split()
    assert float(found[1]) == pytest.approx(vectors.similarity("king", "queen"), abs=1e-4)
    assert found[2] == vectors.analogy("man", "king", "woman")[0].word
    assert found[3] == found[5] == found[6] == found[7] == ""
    assert len(captured.err.splitlines()) == 4


def test_the_command_measures_writes_and_draws(bundle: Path, capsys, tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text("he she 9\nman nurse 1\nking queen 8\n")
    (tmp_path / "q.txt").write_text(": x\nman king woman queen\n")
    out, words = tmp_path / "v.txt", ["he", "she", "king"]
    asked = ["--similarity", str(tmp_path / "s.txt"), "--analogies", str(tmp_path / "q.txt"), "--out", str(out)]
    assert main.main(["embed", "--model", str(bundle), *asked]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert "of 1 analogies (1 asked)" in first
    assert "of 3 pairs" in second
    assert open_vectors(str(out)).words == WORDS
    picture = tmp_path / "p.png"
    assert main.main(["embed", *words, "--model", str(out), "--plot", str(picture), "--method", "pca"]) == 0
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert main.main(["embed", "he", "--model", str(out), "--vector"]) == 0
