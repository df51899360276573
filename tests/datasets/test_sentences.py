"""Readers of labelled text, and sentences as numbers."""

import gzip
from collections import Counter
from pathlib import Path

import pytest

from voiceseq.datasets.corpora.sentences import Labelled, Tagged, read_labelled, read_paragraphs, read_tagged
from voiceseq.datasets.sentences import (
    LETTERS,
    TOGETHER,
    GroupedRows,
    SentenceCoder,
    clipped,
    letter_vocabulary,
    sorted_parts,
    spelt,
    word_vocabulary,
)
from voiceseq.errors import InputError


def write(path: Path, text: str) -> str:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


def test_labelled_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv.gz", "\ufeff1\tIt's good.<br /><br />Really!\n\n0\tit 's bad .\r\n")
    assert read_labelled(path) == [
        Labelled(["It", "'s", "good", ".", "Really", "!"], "1"),
        Labelled(["it", "'s", "bad", "."], "0"),
    ]
    for wrong in ("1 no tab\n", "1\t\n", "\ttext\n", "a b\ttext\n"):
        with pytest.raises(InputError, match=r"b\.tsv, line 1: .* was wanted"):
            read_labelled(write(tmp_path / "b.tsv", wrong))
    with pytest.raises(InputError, match="holds no sentence"):
        read_labelled(write(tmp_path / "c.tsv", "\n"))


def test_tagged_words(tmp_path: Path) -> None:
    assert read_tagged(write(tmp_path / "a.conll", "Ann\tB-p\nleft\tO\n\n\nBo\tB-p\n")) == [
        Tagged(["Ann", "left"], ["B-p", "O"]),
        Tagged(["Bo"], ["B-p"]),
    ]
    rows = ["# sent_id = 1", "1-2\tcannot" + "\t_" * 6, "1\tcan\tcan\tAUX\tMD\t_\t0\taux:x\t_\t_"]
    rows += ["2\tnot\tnot\tPART\tRB\t_\t1\tadvmod\t_\t_", "2.1\tgo" + "\t_" * 6, ""]
    path = write(tmp_path / "a.conllu.gz", "\n".join(rows))
    assert read_tagged(path) == [Tagged(["can", "not"], ["AUX", "PART"])]
    assert read_tagged(path, "deprel")[0].tags == ["aux", "advmod"]
    assert read_tagged(path, "xpos+deprel")[0].tags == ["MD|aux", "RB|advmod"]
    with pytest.raises(InputError, match="one of form, lemma, upos"):
        read_tagged(path, "tag")
    with pytest.raises(InputError, match=r"line 2: 'left' came; word<TAB>tag"):
        read_tagged(write(tmp_path / "b.conll", "Ann\tO\nleft\n"))
    with pytest.raises(InputError, match="8 columns"):
        read_tagged(write(tmp_path / "b.conllu", "1\tleft\n"))


def test_paragraphs_of_sentences(tmp_path: Path) -> None:
    text = " = Heading = \n \n He had 1 @,@ 000 well @-@ known <unk> . So what ? Mr. X left . \n Two . \n"
    assert read_paragraphs(write(tmp_path / "w.txt", text)) == [
        [["He", "had", "1,000", "well", "-", "known", "<unk>", "."], ["So", "what", "?"], ["Mr.", "X", "left", "."]],
        [["Two", "."]],
    ]


def test_the_real_files_have_the_sizes_that_are_published(shared: Path) -> None:
    text = shared / "data" / "text"
    names = read_tagged(str(text / "wnut17" / "dev.conll.gz"))
    assert (len(names), sum(len(row.words) for row in names)) == (1009, 15_733)
    speech = read_tagged(str(text / "ud_ewt" / "dev.conllu.gz"))
    assert (len(speech), sum(len(row.words) for row in speech)) == (2001, 25_147)
    dev = read_labelled(str(text / "sst2" / "dev.tsv"))
    assert Counter(row.label for row in dev).total() == 872


def test_words_and_spellings_as_numbers() -> None:
    sentences = [["The", "cat"], ["the", "CAT", "x" * 99]]
    coder = SentenceCoder(word_vocabulary(sentences, 2, known=["dog", "cat"]), letter_vocabulary(sentences, 1))
    assert coder.words.symbols == ("<unk>", "<bos>", "<eos>", "<mask>", "cat", "the", "dog")
    batch = coder.batch(sentences, [[1, 2], [3, 4, 5]])
    assert batch.words.tolist() == [[5, 4, 0], [5, 4, 0]]  # padding and unknown are both 0: the lengths tell
    assert batch.lengths.tolist() == [2, 3]
    assert batch.labels is not None
    assert batch.labels.tolist() == [[1, 2, 0], [3, 4, 5]]
    assert batch.places is not None
    assert batch.spellings is not None
    assert coder.letters is not None
    for row, sentence in enumerate(sentences):
        for place, word in enumerate(sentence):
            number = batch.places[row, place]
            length = batch.spelling_lengths[number]  # type: ignore[index]
            assert batch.spellings[number, :length].tolist() == coder.letters.encode(spelt(word))
    assert len(spelt("x" * 99)) == LETTERS + 2
    assert coder.batch(sentences, [0, 1]).labels.tolist() == [0, 1]  # type: ignore[union-attr]
    assert coder.numbers(["<eos>", "<mask>", "other"]) == [0, 0, 0]  # no text is a special symbol
    with pytest.raises(InputError, match="row 1 is empty"):
        coder.batch([["a"], []])


def test_clipped() -> None:
    assert clipped(list("abcdef"), 3) == ["a", "e", "f"]
    assert clipped(list("abc"), 3) == list("abc")
    assert clipped(list("abc"), None) == list("abc")


def test_rows_are_a_function_of_the_step_and_of_like_length() -> None:
    sizes = [(7 * n) % 23 for n in range(300)]
    rows = GroupedRows(sizes, 4, 1)
    steps = 4 * TOGETHER
    forwards = [rows(step) for step in range(steps)]
    backwards = [GroupedRows(sizes, 4, 1)(step) for step in reversed(range(steps))]
    assert forwards == backwards[::-1]
    first_pass = [row for batch in forwards for row in batch][: 4 * 4 * TOGETHER]
    assert len(set(first_pass)) == len(first_pass[:256]) == 256
    group = forwards[:TOGETHER]
    assert sum(max(sizes[r] for r in batch) - min(sizes[r] for r in batch) for batch in group) / TOGETHER < 4
    assert sorted(rows(0, 0, 2) + rows(0, 1, 2)) == sorted(rows(0))


def test_sorted_parts_hold_every_row_once() -> None:
    sizes = [3, 1, 2, 9, 5]
    assert sorted_parts(sizes, 2) == [[1, 2], [0, 4], [3]]
