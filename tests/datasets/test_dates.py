import datetime
import random
import re
import string

import pytest

from voiceseq.datasets.date_formats import FAMILIES, draw_pattern, is_held_out
from voiceseq.datasets.dates import Day, date_pair, draw_day, is_clear, ordinal, write_date, wrong_day

MOON = datetime.date(1969, 7, 20)
PAIRS = [date_pair(5, number) for number in range(4000)]
HELD_OUT = [date_pair(5, number, held_out=True) for number in range(2000)]


def patterns(held_out: bool, count: int = 20_000) -> list[str]:
    rng = random.Random(3)
    return [draw_pattern(rng, held_out) for _ in range(count)]


def test_ordinals() -> None:
    assert [ordinal(day) for day in (1, 2, 3, 4, 11, 12, 13, 21, 22, 23, 30, 31)] == (
        ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "23rd", "30th", "31st"]
    )


@pytest.mark.parametrize(
    ("pattern", "written"),
    [
        ("{M} {o} {y}", "July 20th 1969"),
        ("{w}, the {O} of {M}, {Y}", "Sunday, the twentieth of July, nineteen sixty-nine"),
        ("{N}/{D}/{y}", "07/20/1969"),
        ("{x} {d}.{r}.{y}", "Sun 20.VII.1969"),
        ("{s} {c}, '{a}", "July twenty, '69"),
        ("{y}{N}{D}", "19690720"),
    ],
)
def test_dates_as_people_write_them(pattern: str, written: str) -> None:
    assert write_date(MOON, pattern) == written


def test_years_in_words() -> None:
    years = (1905, 2005, 2026, 1066, 1900)
    said = [write_date(Day(year, 9, 23), "{s} {O} {Y} | {Z}") for year in years]
    assert said == [
        "Sept twenty-third nineteen oh five | nineteen hundred and five",
        "Sept twenty-third two thousand five | two thousand and five",
        "Sept twenty-third twenty twenty-six | two thousand and twenty-six",
        "Sept twenty-third ten sixty-six | one thousand and sixty-six",
        "Sept twenty-third nineteen hundred | nineteen hundred",
    ]


def test_weekdays_are_gregorian_before_there_was_such_a_calendar() -> None:
    assert write_date(Day(1066, 10, 20), "{w}") == "Saturday"  # the 14th of the calendar of those days
    assert write_date(Day(1564, 4, 23), "{x}") == "Thu"


def test_formats_held_out_are_never_trained_on() -> None:
    seen, new = set(patterns(False)), set(patterns(True))
    assert not seen & new
    assert len(seen) > 5000
    assert len(new) > 2000
    rng = random.Random(4)
    drawn = {family(rng) for family in FAMILIES for _ in range(3000)}
    assert 0.17 < sum(map(is_held_out, drawn)) / len(drawn) < 0.23


def test_the_parts_of_the_held_out_formats_are_all_trained_on() -> None:
    def parts(held_out: bool) -> set[str]:
        return {part for pattern in patterns(held_out) for part in re.findall(r"{\w}|\w+|[^\w\s{}]", pattern)}

    assert parts(True) <= parts(False)


def test_every_pattern_holds_one_day_month_and_year() -> None:
    for pattern in patterns(False, 3000) + patterns(True, 3000):
        fields = "".join(field for _, field, _, _ in string.Formatter().parse(pattern) if field)
        assert re.fullmatch(
            r"[wxv]?([dDoOc][nNmsMr][yaYZ]|[nNmsM][dDoOc][yaYZ]|y[nNmsMr][dDo]|y[dDo][msM])[wxv]?", fields
        )


@pytest.mark.parametrize(
    ("pattern", "day", "clear"),
    [
        ("{n}/{d}/{y}", 4, False),
        ("{d}/{n}/{y}", 4, False),
        ("{d}/{n}/{y}", 7, True),
        ("{w}, {n}/{d}/{y}", 4, False),
        ("{n}/{d}/{y}", 13, True),
        ("{N}-{D}-{y}", 12, False),
        ("{D}-{N}-{y}", 4, True),
        ("{d}.{n}.{a}", 4, True),
        ("{y}/{n}/{d}", 4, True),
        ("{M} {d}, {y}", 4, True),
    ],
)
def test_what_a_reader_could_not_know_is_not_asked(pattern: str, day: int, clear: bool) -> None:
    assert is_clear(Day(1969, 7, day), pattern) == clear
    if not clear:
        drawn = [draw_day(random.Random(seed), pattern) for seed in range(200)]
        assert all(date.day > 12 or date.day == date.month for date in drawn)


def test_short_years_are_those_that_all_rules_agree_about() -> None:
    years = {draw_day(random.Random(seed), "{d} {M} '{a}").year for seed in range(600)}
    assert (min(years), max(years)) == (1969, 2029)


def test_pairs_are_true_varied_and_repeatable() -> None:
    assert PAIRS[:100] == [date_pair(5, number) for number in range(100)]
    assert PAIRS[:50] != [date_pair(6, number) for number in range(50)]
    assert len({written for written, _ in PAIRS}) > 3900
    for written, iso in PAIRS + HELD_OUT:
        assert written.strip()
        iso_written = re.fullmatch(r"(\d{4})[-/](\d\d)[-/](\d\d)", written)
        assert iso_written is None or iso == "-".join(iso_written.groups())
        american = re.fullmatch(r"(\d+)/(\d+)/(\d{4})", written)
        assert american is None or max(int(american[1]), int(american[2])) > 12 or american[1] == american[2]


def test_some_pairs_are_no_dates_and_some_days_do_not_exist() -> None:
    nothing = sum(not iso for _, iso in PAIRS) / len(PAIRS)
    assert 0.02 < nothing < 0.06
    impossible = [iso for _, iso in PAIRS if iso and not Day(*map(int, iso.split("-"))).exists()]
    assert 0.01 < len(impossible) / len(PAIRS) < 0.04
    for _, iso in HELD_OUT:
        datetime.date.fromisoformat(iso)


def test_a_wrong_day_is_in_no_calendar() -> None:
    for seed in range(300):
        wrong = wrong_day(random.Random(seed), Day(2023, 2, 5), "{y}-{N}-{D}")
        assert wrong is None or not wrong.exists()
    assert not Day(2023, 2, 29).exists()
    assert Day(2024, 2, 29).exists()
    assert str(Day(966, 2, 30)) == "0966-02-30"
