import datetime
import re

import pytest

from voiceseq.datasets.dates import PATTERNS, date_pair, ordinal, write_date


def test_ordinals() -> None:
    assert [ordinal(day) for day in (1, 2, 3, 4, 11, 12, 13, 21, 22, 23, 30, 31)] == (
        ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "23rd", "30th", "31st"]
    )


def test_dates_as_people_write_them() -> None:
    moon = datetime.date(1969, 7, 20)
    assert write_date(moon, "{M} {o} {y}") == "July 20th 1969"
    assert write_date(moon, "{w}, the {o} of {M}, {y}") == "Sunday, the 20th of July, 1969"
    assert write_date(moon, "{N}/{D}/{y}") == "07/20/1969"


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_pattern_holds_day_month_and_year(pattern: str) -> None:
    assert re.search(r"\{[dDo]\}", pattern)
    assert re.search(r"\{[nNmM]\}", pattern)
    assert "{y}" in pattern


def test_pairs_are_true_varied_and_repeatable() -> None:
    pairs = [date_pair(5, number) for number in range(3000)]
    assert pairs == [date_pair(5, number) for number in range(3000)]
    assert pairs[:50] != [date_pair(6, number) for number in range(50)]
    assert len({written for written, _ in pairs}) > 2900
    for written, iso in pairs:
        date = datetime.date.fromisoformat(iso)
        spellings = {write_date(date, pattern).lower() for pattern in PATTERNS}
        assert written.lower() in spellings
        american = re.fullmatch(r"(\d+)/(\d+)/(\d{4})", written)
        assert american is None or int(american[2]) > 12  # else a reader could not know
