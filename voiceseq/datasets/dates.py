"""Dates as people write them, with the ISO date that is meant: endless training pairs, made by rule.

Every pair is one that a reader would understand:

- day and month both as numbers: after a year, ``1969/07/04``; between dots, hyphens or spaces with the day first,
  ``4.7.1969``; otherwise (``7/20/1969``, ``20/7/1969``) only where the day is above 12 or equal to the month;
- two digits for a year, ``'69``: 69 to 99 are 1969 to 1999 and 00 to 29 are 2000 to 2029, since all common rules agree
  there; 30 to 68 are not written;
- years 100 to 2999, weekdays by the Gregorian calendar throughout.

What is no date, or half of one, means the empty text. A day that no calendar has (31 April) is copied as it stands:
whoever reads the answer asks the calendar.
"""

import calendar
import datetime
import random
import re
from typing import NamedTuple

from voiceseq.datasets.date_formats import draw_pattern
from voiceseq.text import normalise

ROMAN = ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII")
SHORT_MONTHS = ("", "Jan", "Feb", "March", "April", "May", "June", "July", "Aug", "Sept", "Oct", "Nov", "Dec")
SHORT_WEEKDAYS = ("Mon", "Tues", "Weds", "Thurs", "Fri", "Sat", "Sun")
NO_DATES = (
    "hello", "not a date", "today", "tomorrow", "n/a", "none", "unknown", "the", "in", "next week", "a", "of", "room",
    "may be", "call me", "see page", "dear sir", "total", "version", "some time ago", "spring", "market", "-", "?",
    "...",
)  # fmt: skip


class Day(NamedTuple):
    """A year, month and day that need not exist."""

    year: int
    month: int
    day: int

    def exists(self) -> bool:
        return 1 <= self.month <= 12 and 1 <= self.day <= calendar.monthrange(self.year, self.month)[1]

    def __str__(self) -> str:
        return f"{self.year:04}-{self.month:02}-{self.day:02}"


def date_pair(seed: int, number: int, held_out: bool = False) -> tuple[str, str]:
    """Pair ``number`` of the endless list of this seed: what somebody wrote, and the ISO date.

    In a format of the training part, or of the part that is held out of training.
    """
    rng = random.Random(f"{seed} {number}")
    pattern = draw_pattern(rng, held_out)
    day = draw_day(rng, pattern)
    if held_out:  # a test of formats: whole dates alone
        return untidy(rng, write_date(day, pattern)), str(day)
    kind = rng.randrange(50)
    if kind < 2:
        return untidy(rng, no_date(rng, day, pattern)), ""
    if kind < 4 and (wrong := wrong_day(rng, day, pattern)):
        return untidy(rng, write_date(wrong, pattern)), str(wrong)
    return untidy(rng, write_date(day, pattern)), str(day)


def draw_day(rng: random.Random, pattern: str) -> Day:
    """A day of the calendar that this pattern leaves no doubt about."""
    while True:
        first, last = rng.choice(((1900, 2099), (1900, 2099), (1000, 2999), (1000, 2999), (1000, 2999), (1300, 2099)))
        if "{a}" in pattern:
            first, last = 1969, 2029
        elif rng.randrange(30) == 0 and "{y}" in pattern and "{N}" not in pattern:
            first, last = 100, 999
        year, month = rng.randint(first, last), rng.randint(1, 12)
        day = Day(year, month, rng.randint(1, calendar.monthrange(year, month)[1]))
        if is_clear(day, pattern):
            return day


def is_clear(day: Day, pattern: str) -> bool:
    """False for 4/7/1969 and 04-07-1969 with the month first: it may be April or July."""
    fields = "".join(re.findall(r"{(\w)}", pattern)).lower().strip("wxv")
    by_custom = fields.startswith("y") or (fields.startswith("dn") and "/" not in pattern)
    return by_custom or "n" not in fields or day.day > 12 or day.day == day.month


def wrong_day(rng: random.Random, day: Day, pattern: str) -> Day | None:
    """A day that no calendar has, where this pattern can write one."""
    if pattern.startswith("{y}") and "{n}" in pattern.lower() and rng.random() < 0.5:
        return day._replace(month=rng.randint(13, 19))
    wrong = day._replace(day=rng.choice((29, 30, 31, rng.randint(32, 39))))
    return None if wrong.exists() else wrong


def no_date(rng: random.Random, day: Day, pattern: str) -> str:
    """Words, figures and parts of dates in which no reader would find a day."""
    kind = rng.randrange(5)
    if kind == 0:
        words = rng.sample(NO_DATES, rng.randint(1, 4))
        return " ".join([*words, str(rng.randrange(10 ** rng.randint(1, 6)))][rng.randrange(2) :])
    if kind == 1:
        return "".join(rng.sample("abcdefghijklmnopqrstuvwxyz     .,-/é日#@", rng.randint(1, 30))).strip() or "?"
    if kind == 2:
        word = "".join(rng.choices("aeioubcdfghklmnprstwy", k=rng.randint(2, 9)))
        return write_date(day, re.sub("{[mMsnNr]}", rng.choice((word, word, rng.choice(NO_DATES))), pattern))
    lost = rng.choice(("{[yaYZ]}", "{[dDoOc]}", "{[dDoOc]}", "{[mMsnNr]}", "{[yaYZdDoOc]}", "{[mMsnNrdDoOc]}"))
    return write_date(day, re.sub(lost, "", pattern)).strip() or "?"


def write_date(day: Day | datetime.date, pattern: str) -> str:
    """The day in a pattern of ``date_formats``."""
    exists = Day(day.year, day.month, day.day).exists()
    weekday = calendar.weekday(day.year, day.month, day.day) if exists else day.day % 7
    month = day.month if day.month <= 12 else 0  # only ever written as a number
    spoken = normalise.year(day.year)
    return pattern.format(
        d=day.day,
        D=f"{day.day:02}",
        o=ordinal(day.day),
        O=hyphenated(normalise.ordinal(day.day)),
        c=hyphenated(normalise.cardinal(day.day)),
        n=day.month,
        N=f"{day.month:02}",
        m=calendar.month_abbr[month],
        s=SHORT_MONTHS[month],
        M=calendar.month_name[month],
        r=ROMAN[month],
        w=calendar.day_name[weekday],
        x=calendar.day_abbr[weekday],
        v=SHORT_WEEKDAYS[weekday],
        y=day.year,
        a=f"{day.year % 100:02}",
        Y=hyphenated(spoken),
        Z=other_year(day.year, spoken),
    )


def ordinal(day: int) -> str:
    """1st, 2nd, 3rd, 4th, ... 11th, ... 31st."""
    ending = "th" if day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{ending}"


def hyphenated(words: str) -> str:
    """twenty-third, nineteen sixty-nine."""
    return re.sub(rf"\b({'|'.join(normalise.TENS[2:])}) (?=(one|two|three|four|five|six|seven|eight|nine|"
                  r"first|second|third|fourth|fifth|sixth|seventh|eighth|ninth)\b)", r"\1-", words)  # fmt: skip


def other_year(year: int, spoken: str) -> str:
    """two thousand and five, nineteen hundred and five, nineteen sixty nine."""
    if year % 1000 < 100 and year % 100:
        return f"{normalise.cardinal(year - year % 100)} and {hyphenated(normalise.cardinal(year % 100))}"
    if 0 < year % 100 < 10:
        return f"{normalise.cardinal(year // 100)} hundred and {normalise.cardinal(year % 100)}"
    return spoken


def titled(text: str) -> str:
    """The Fourth Of July."""
    return re.sub(r"\b[a-z]", lambda found: found[0].upper(), text)


def untidy(rng: random.Random, text: str) -> str:
    """As it comes from a keyboard: small letters, capitals, a space too many, a full stop."""
    (case,) = rng.choices((str, str.lower, str.upper, str.capitalize, titled), (12, 4, 3, 1, 2))
    text = case(text)
    slip = rng.randrange(40)
    if "ty-" in text.lower() and slip < 10:
        text = re.sub("(?i)(?<=ty)-", " ", text)
    elif slip == 0:
        text = text.replace(" ", "  ")
    elif slip == 1:
        text = text.replace(",", " ,")
    return text + "." if slip == 2 and text[-1:].isalnum() else text
