"""What letters to sounds is trained on: every variant of every word but those held out, the common ones more often."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from voiceseq.errors import InputError
from voiceseq.tasks.pronounce import TOGETHER, PronounceData, stem
from voiceseq.text.pronounce import read_dictionary

LETTERS = "abcdefgh"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A dictionary of 512 words, each with its possessive, and a list of common ones with numbers after them."""
    folder = tmp_path_factory.mktemp("words")
    words = [a + b + c for a in LETTERS for b in LETTERS for c in LETTERS]
    lines = [f"{word} P AH0\n{word}(2) P AH1 T\n{word}'s P AH0 Z" for word in words]
    (folder / "d.dict").write_text("\n".join(["a.m. EY1 EH1 M", "'bout B AW1 T", *lines]))
    (folder / "common.txt").write_text("\n".join(f"{word.upper()} 0.1 0.2" for word in ["zzz", *words[:100]]))
    return str(folder / "d.dict"), str(folder / "common.txt")


def make(files: tuple[str, str], **more: object) -> PronounceData:
    return PronounceData(*files, often=11, held_out=0.2, batch=4, **more)  # type: ignore[arg-type]


def test_every_word_is_learned_or_held_out_and_common_ones_are_learned_more(files: tuple[str, str]) -> None:
    data = make(files)
    words = {word: ways for word, ways in read_dictionary(files[0]).items() if word not in ("a.m.", "'bout")}
    apart = {word for word, _ in data.validation[""]}
    rows = Counter(data.rows)
    assert 0.1 < len(apart) / len(words) < 0.25
    assert {word for word, _ in rows} == set(words) - apart
    common = [word for word in words if "'" not in word][:100]
    for (word, said), count in rows.items():
        assert tuple(said.split()) in words[word]
        assert count == (4 if word in common[:10] else 2 if word in common else 1)
    assert len(rows) == sum(len(ways) for word, ways in words.items() if word not in apart)
    assert not apart & {word + end for word in common for end in ("", "'s")}
    assert [word for word, _ in data.validation[" common"]] == common
    assert dict(data.validation[""]) == {word: " ".join(words[word][0]) for word in apart}


def test_a_word_is_held_out_with_its_possessive_in_every_run(files: tuple[str, str]) -> None:
    apart = {word for word, _ in make(files).validation[""]}
    assert {word for word in apart if "'" in word} == {f"{word}'s" for word in apart if "'" not in word}
    assert apart == {word for word, _ in make(files, seed=7).validation[""]}
    assert [stem(word) for word in ("cats", "cat's", "cats'", "cat", "is", "as")] == ["cat"] * 4 + ["is", "as"]


def test_batches_are_a_function_of_the_step_alone_and_pass_over_all_rows(files: tuple[str, str]) -> None:
    data = make(files)
    group = TOGETHER * 4
    steps = (len(data.rows) // group) * TOGETHER
    forwards = [data.pairs(step) for step in range(steps)]
    again = make(files)
    assert forwards == [again.pairs(step) for step in reversed(range(steps))][::-1]
    seen, rows = Counter(pair for batch in forwards for pair in batch), Counter(data.rows)
    assert sum(seen.values()) == steps * 4
    assert not seen - rows
    for start in range(0, steps, TOGETHER):
        lengths = [[len(word) for word, _ in batch] for batch in forwards[start : start + TOGETHER]]
        assert all(max(one) <= min(other) for one, other in pairwise(lengths))
    assert data.pairs(0) != make(files, seed=2).pairs(0)


def test_a_dictionary_too_small_to_hold_words_out_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d.dict").write_text("hello HH AH0 L OW1\n")
    with pytest.raises(InputError, match="1 words, 0 of them held out"):
        PronounceData(str(tmp_path / "d.dict"))
