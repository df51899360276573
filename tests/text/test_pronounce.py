from pathlib import Path

import pytest

from voiceseq.errors import InputError
from voiceseq.text.pronounce import PHONES, read_dictionary


def test_entries_variants_comments_and_stress(tmp_path: Path) -> None:
    path = tmp_path / "d.txt"
    path.write_text(
        ";;; a comment\nread R EH1 D\nread(2) R IY1 D\nREAD(3)  R EH0 D # same without stress\n\n'bout B AW1 T\n"
    )
    assert read_dictionary(path) == {"read": [("R", "EH", "D"), ("R", "IY", "D")], "'bout": [("B", "AW", "T")]}


@pytest.mark.parametrize("line", ["word", "word X1 Y", "word 12"])
def test_a_wrong_line_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "d.txt"
    path.write_text(f"read R EH1 D\n{line}\n")
    with pytest.raises(InputError, match="line 2"):
        read_dictionary(path)


def test_the_real_dictionary(shared: Path) -> None:
    dictionary = read_dictionary(shared / "data" / "text" / "g2p" / "cmudict.dict.gz")
    assert len(dictionary) > 120_000
    assert dictionary["computer"][0] == ("K", "AH", "M", "P", "Y", "UW", "T", "ER")
    assert {phone for variants in dictionary.values() for phones in variants for phone in phones} == set(PHONES)
