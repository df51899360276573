"""`voiceseq dates` with the bundle that ships, as a user types it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import voiceseq
from voiceseq.cli import main
from voiceseq.inference.dates import best_date, exists, is_legible, plain_text, read_dates
from voiceseq.inference.transduce import Candidate


def dates(*words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "voiceseq", "dates", *words], input=stdin, capture_output=True)


def test_arguments(capsys) -> None:
    assert main.main(["dates", "July 20th 1969", "23 April, 1564", "the first of May, two thousand and one"]) == 0
    assert capsys.readouterr().out == "1969-07-20\n1564-04-23\n2001-05-01\n"


def test_one_line_out_for_each_line_of_stdin_whatever_it_holds() -> None:
    lines = [
        b"\xef\xbb\xbfJuly 20th 1969",  # a BOM
        b"",
        b"23 April,\x00 1564\r",
        b"x" * 100_000,
        b"July 20th 1969 " * 7000,
        "二〇二六年".encode(),
        "20 июля".encode(),
        b"\xff\xfe\x80",
        b"   ",
        "20\u201307\u20131969".encode(),  # en dashes
        b"30 February 2023",
        b"2023-13-01",
        b"not a date",
        b"Sunday, 20 July 1969",
    ]
    done = dates(stdin=b"\n".join(lines))
    assert done.returncode == 1, done.stderr
    expected = ["1969-07-20", "", "1564-04-23", *[""] * 6, "1969-07-20", "", "", "", "1969-07-20"]
    assert done.stdout.decode().split("\n") == [*expected, ""]
    assert done.stderr.decode().strip() == "voiceseq: no date was found in 10 of the lines"


def test_nothing_in_nothing_out() -> None:
    done = dates(stdin=b"")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_json(capsys) -> None:
    assert main.main(["dates", "--json", "1 Sept. 1939", ""]) == 1
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first.pop("probability") > 0.5
    assert first == {"text": "1 Sept. 1939", "date": "1939-09-01"}
    assert second == {"text": "", "date": None, "probability": 0.0}


def test_plot_shows_the_first_date_that_was_read(tmp_path: Path, capsys) -> None:
    picture = tmp_path / "attention.png"
    assert main.main(["dates", "hello", "July 20th 1969", "--beam", "2", "--plot", str(picture)]) == 1
    assert capsys.readouterr().out == "\n1969-07-20\n"
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["hello", "--plot", "none.png"], 1, "nothing to draw"),
        (["1 May 2001", "--model", "shakespeare"], 1, "a transducer was wanted"),
        (["1 May 2001", "--beam", "0"], 1, "beam"),
        (["1 May 2001", "--beam", "wide"], 2, "--beam"),
        (["1 May 2001", "--model", "nowhere"], 1, "nowhere"),
        (["1 May 2001", "--plot", "no/such/folder/a.png"], 1, "a.png"),
    ],
)
def test_mistakes_get_a_clear_line(words: list[str], code: int, said: str, capsys) -> None:
    assert main.main(["dates", *words]) == code
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_an_answer_that_the_calendar_does_not_know_gives_way_to_the_next_likely_one() -> None:
    wrong, right, unlikely = Candidate("2023-02-30", -0.7), Candidate("2023-02-20", -1.0), Candidate("2023-02-03", -5.0)
    assert best_date("x", [wrong, right, unlikely]).date == "2023-02-20"
    assert best_date("x", [wrong, unlikely]).date is None
    assert best_date("x", [Candidate("", -0.1), unlikely]).date is None
    assert best_date("x", []).date is None


@pytest.mark.parametrize(
    "text",
    ["", "2023-02-29", "2023-13-01", "2023-1-1", "20230101", "2023-W01-1", "0000-01-01", "२०२३-०१-०१", "2023-01-01\n"],
)
def test_what_is_no_iso_date(text: str) -> None:
    assert not exists(text)
    assert exists("2024-02-29")


@pytest.mark.parametrize(
    "text", ["July 1969", "07/1969", "20th July", "Sept. 20TH", "1969-07", "", "?", "1" * 7, "1 " * 60]
)
def test_half_a_date_is_not_guessed_at(text: str) -> None:
    assert not is_legible(text)
    assert all(map(is_legible, ["19690720", "20Jul69", "7thNov2046", "1.2.1999", "20_7_1969", "Sun 19690720"]))


def test_text_is_made_plain() -> None:
    assert plain_text("\ufeff ２０\u00a0July\t ’69\u200b\x00 ") == "20 July '69"


def test_the_answer_is_the_same_alone_and_among_others() -> None:
    model = voiceseq.load("dates")
    texts = ["July 20th 1969", "", "on Sunday, the twenty-first day of July in the year 1969", "1.2.34", "5/5/2005"]
    together = read_dates(model, texts)
    for text, reading in zip(texts, together, strict=True):
        (alone,) = read_dates(model, [text])
        assert alone.date == reading.date
        assert alone.probability == pytest.approx(reading.probability, abs=1e-4)
