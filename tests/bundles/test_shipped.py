"""What ships: whole, small, with its licence, and at work."""

import re

import numpy as np
import pytest

import voiceseq
from voiceseq.bundles import load_bundle, shipped_bundles, verify_bundle
from voiceseq.datasets.dates import date_pair
from voiceseq.datasets.digits import MOVES, captioned, clip
from voiceseq.inference.dates import read_dates

NAMES = sorted(shipped_bundles())


def test_something_ships() -> None:
    assert {"dates", "pronounce-en", "shakespeare"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_bundle_is_whole_small_and_licensed(name: str) -> None:
    report = verify_bundle(name)
    assert report.ok, report.problems
    assert not report.unlisted
    bundle = load_bundle(name)
    assert max(entry.size for entry in bundle.files.values()) <= 20e6
    assert sum(entry.size for entry in bundle.files.values()) <= 40e6
    assert bundle.licence
    assert all(source["licence"] for source in bundle.training["data"])
    assert "licence" in bundle.card.lower()
    assert not re.search(r"\.\./|['\"\s]/\w+/", str(bundle.training) + bundle.card)  # no paths of a machine


def test_shakespeare_prefers_shakespeare() -> None:
    model = voiceseq.load("shakespeare")
    verse, noise, typo = model.score(["What say you, my lord?", "Wsa thyau yo, ?mdorl", "What say yuo, my lord?"])
    assert verse.log_prob > typo.log_prob > noise.log_prob
    text = model.generate(["ROMEO:"], 200, temperature=0.5, seed=1)[0]
    assert len(text) == 200
    assert text == model.generate(["ROMEO:"], 200, temperature=0.5, seed=1)[0]
    assert sum(text.count(word) for word in (" the ", " and ", " to ", " of ", " I ", " my ")) >= 3


def test_dates_are_read_in_formats_that_were_held_out_of_training() -> None:
    pairs = [date_pair(78_000_000, number, held_out=True) for number in range(400)]
    read = read_dates(voiceseq.load("dates"), [text for text, _ in pairs])
    assert sum(reading.date == meant for reading, (_, meant) in zip(read, pairs, strict=True)) >= 396


@pytest.mark.parametrize(
    ("meant", "written"),
    [
        (
            "1969-07-20",
            "July 20th 1969|Sunday, July 20, 1969|20-Jul-1969|Jul 20, '69|20/7/1969|7/20/1969|19690720|20.VII.1969|"
            "SUNDAY 20TH JULY 1969|the 20th day of July in the year 1969|July twentieth, nineteen sixty-nine",
        ),
        ("1564-04-23", "23 April, 1564|the twenty-third of April 1564|1564, April 23rd|Thu 23 Apr. 1564|23.4.1564"),
        (
            "1999-12-31",
            "31st December '99|Dec-31-1999|1999 Dec 31, Fri|31 of December of 1999|In 1999, on December 31st",
        ),
        (
            "2001-05-01",
            "the first of May, two thousand and one|May 1 2001|1st may, 2001|on Tuesday the 1st of May 2001",
        ),
        (
            None,
            "30 February 2023|2023-02-30|32 January 2020|31 April 1999|hello|not a date|20 July|1969|12345|日本",
        ),
    ],
)
def test_dates_are_read_as_somebody_wrote_them_by_hand(meant: str | None, written: str) -> None:
    for reading in read_dates(voiceseq.load("dates"), written.split("|")):
        assert reading.date == meant, reading


def test_wake_words_are_said_right_without_a_dictionary() -> None:
    said = {
        "computer": "K AH M P Y UW T ER",
        "Alexa": "AH L EH K S AH",
        "snowboy": "S N OW B OY",
        "smart mirror": "S M AA R T M IH R ER",
        "view glass": "V Y UW G L AE S",
        "marvin": "M AA R V IH N",
    }
    ways = voiceseq.load("pronounce-en").pronounce(list(said), n_best=3, dictionary={})
    assert [" ".join(first) for first, *_ in ways] == list(said.values())


def test_small_bundles_do_what_their_cards_say() -> None:
    made = [captioned(98, number, held_out=True) for number in range(60)]
    written = voiceseq.load("digit-captions").caption([image for image, _ in made])
    assert sum(one == text for one, (_, text) in zip(written, made, strict=True)) >= 48
    clips = [clip(98, number, held_out=True) for number in range(60)]
    moves = voiceseq.load("activity").classify([frames for frames, _ in clips])
    assert sum(one.label == MOVES[move] for one, (_, move) in zip(moves, clips, strict=True)) >= 57
    season = 3 * np.sin(np.arange(120) * np.pi / 6)
    forecast = voiceseq.load("co2").forecast(340 + 0.12 * np.arange(120) + season, steps=12)
    truth = 340 + 0.12 * np.arange(120, 132) + 3 * np.sin(np.arange(120, 132) * np.pi / 6)
    assert np.abs(forecast.mean - truth).max() < 1.5  # the season goes on, and so does the rise
    roll = voiceseq.load("chorales").compose(steps=32, seed=1)
    assert 2.5 <= roll.sum(1).mean() <= 5.5  # four voices, more or less
