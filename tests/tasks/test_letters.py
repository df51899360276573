"""Letters to sounds of many languages: batches of one language, in turn; it learns, and its bundle says what."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

import voiceseq
from voiceseq.bundles import save_bundle
from voiceseq.cli import main
from voiceseq.errors import BundleError, ConfigError, InputError
from voiceseq.inference.letters import LettersToSounds
from voiceseq.models.letters import LetterConfig, LetterNetwork
from voiceseq.tasks.base import OptimiserConfig
from voiceseq.tasks.letters import LetterData, LetterTask, Word, needed, read_words, turns
from voiceseq.text.pronounce import spelt

SOUNDS = {"a": "ɑ", "b": "b", "c": "t s", "d": ""}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> LetterData:
    """Two languages: in the second "a" is another sound."""
    folder = tmp_path_factory.mktemp("words")
    words = [a + b + c for a in "abcd" for b in "abcd" for c in "abc"]
    for name, vowel in (("one", "ɑ"), ("two", "o")):
        lines = [f"{w}\t" + " ".join((SOUNDS | {"a": vowel})[x] for x in w if SOUNDS[x]) for w in words]
        (folder / f"{name}.tsv").write_text("\n".join(lines[: 48 if name == "one" else 24]), encoding="utf-8")
    files = {name: [str(folder / f"{name}.tsv")] * 2 for name in ("one", "two")}
    return LetterData(files, batch=16, steps_per_epoch=10)


@pytest.fixture(scope="module")
def bundle(data: LetterData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(1)
    task = LetterTask(LetterConfig(size=32, dropout=0.0), OptimiserConfig(learning_rate=0.02), data)
    optimiser = task.configure_optimizers()
    for step in range(150):
        optimiser.zero_grad()
        task.loss(data.make(step))[0].backward()
        optimiser.step()
    parts = task.parts()
    return save_bundle(
        tmp_path_factory.mktemp("b") / "ipa",
        kind=parts.kind,
        config=parts.config,
        weights=task.network.state_dict(),
        vocabularies=parts.vocabularies,
        decoding=parts.decoding,
        files=parts.files,
    )


def test_turns_are_spread_as_the_shares_say() -> None:
    order = turns([3.0, 1.0], 40)
    assert order.count(0) == 30
    assert all(1 in order[i : i + 5] for i in range(36))


def test_batches_are_of_one_language_and_a_function_of_the_step(data: LetterData) -> None:
    seen = {0: set(), 1: set()}
    for step in range(60):
        batch = data.make(step)
        assert torch.equal(batch.letters, data.make(step).letters)
        seen[batch.language] |= {tuple(row[:n].tolist()) for row, n in zip(batch.letters, batch.lengths, strict=True)}
        assert [data.phones.symbols[i] for i in batch.phones] == list(data.heard[batch.language])
    assert [len(seen[i]) for i in (0, 1)] == [len(rows) for rows in data.rows]
    assert needed(Word("ab", ("a", "a", "b"))) == 4


def test_letters_are_small_composed_of_parts_and_visible() -> None:
    assert spelt("\ufeff É\0a ") == "e\u0301 a"
    assert len(spelt("한")) == 3


def test_unlike_sounds_of_two_languages_are_learned_and_said(bundle: Path) -> None:
    model = voiceseq.load(bundle)
    assert isinstance(model, LettersToSounds)
    assert model.pronounce(["cab", "bda"], "one") == [[("t", "s", "ɑ", "b")], [("b", "ɑ")]]
    assert model.pronounce(["cab"], "two")[0][0] == ("t", "s", "o", "b")
    two = model.pronounce(["cab"], "one", n_best=2)[0]
    scores = model.scores(["cab", "cab"], "one", two)
    assert scores[0] > scores[1]
    assert model.scores(["cab"], "one", [("o",)]) == [-torch.inf]  # no sound of that language
    assert model.pronounce(["", "?", "x" * 101, "ab"], "one")[:3] == [[], [], []]
    with pytest.raises(InputError, match="one of one, two"):
        model.pronounce(["ab"], "three")
    with pytest.raises(InputError, match="list of texts"):
        model.pronounce("ab", "one")
    for beam, n_best in ((2, 3), (4, 0), (-1, 1)):
        with pytest.raises(InputError, match="a beam as wide"):
            model.pronounce(["ab"], "one", beam, n_best)


def test_network_and_pairs_judge_the_guesses_of_both(bundle: Path) -> None:
    model = voiceseq.load(bundle)
    ways = model.pronounce(["bca"], "one", n_best=4)[0]
    scores = model.scores(["bca"] * len(ways), "one", ways)
    assert scores == sorted(scores, reverse=True)
    pairs, settings = model.pairs("one"), model.settings
    assert {guess.phones for guess in pairs.guesses(["bca"], beam=4)[0][:1]} <= set(ways)
    model.settings = dataclasses.replace(settings, pair_weight=0.0)
    alone = model.scores(["bca"] * len(ways), "one", ways)
    for score, network, way in zip(scores, alone, ways, strict=True):
        assert score == pytest.approx(network + pairs.judge("bca", way))
    with pytest.raises(ConfigError, match="pair_weight is -1"):
        dataclasses.replace(settings, pair_weight=-1)


def test_the_command_says_a_line_a_word(bundle: Path, capsys, tmp_path: Path) -> None:
    lines = ["cab", "", "\ufeffCAB", "日本", "x" * 100_000]
    assert main.main(["pronounce", *lines, "--model", str(bundle), "--language", "one"]) == 1
    captured = capsys.readouterr()
    assert captured.out == "t s ɑ b\n\nt s ɑ b\n\n\n"
    assert len(captured.err.splitlines()) == 3
    assert main.main(["pronounce", "cab", "--model", str(bundle)]) in (1, 2)
    assert "one of one, two" in capsys.readouterr().err
    assert main.main(["pronounce", "cab", "--model", "dates", "--language", "one"]) in (1, 2)
    rows = tmp_path / "rows.tsv"
    rows.write_text("cab\tt s ɑ b\nbab\tb o b\n")
    assert main.main(["evaluate", str(bundle), "--manifest", str(rows), "--language", "one", "--json"]) == 0
    capsys.readouterr()
    report = main.main(["evaluate", str(bundle), "--manifest", str(rows), "--language", "one", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert report == 0
    assert found["all"]["right"] == 0.5
    assert found["all"]["model"] == 1


def test_what_does_not_serve_is_told(tmp_path: Path, bundle: Path) -> None:
    bad = tmp_path / "bad.tsv"
    bad.write_text("word\tw o\nword without sounds\n")
    with pytest.raises(InputError, match="line 2"):
        read_words(str(bad))
    network = LetterNetwork(LetterConfig(letters=3, phones=4, languages=1, size=4))
    with pytest.raises(InputError, match="language 2"):
        network(torch.zeros(1, 2, dtype=torch.long), 2, torch.arange(4))
    opened = voiceseq.load_bundle(bundle)
    broken = save_bundle(
        tmp_path / "broken",
        kind="letters",
        config=opened.config,
        weights=opened.weights,
        vocabularies=opened.vocabularies,
        decoding={"beam": 4, "phones": {"one": ["<blank>"]}},
    )
    with pytest.raises(BundleError, match="do not belong together"):
        voiceseq.load(broken)
