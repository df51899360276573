"""Dates as people write them, with the ISO date that is meant: endless training pairs, made by rule.

Numbers alone are written only where a reader knows which is the day: ``1969/07/20``, ``20.07.1969``, ``7/20/1969``
(with a day above 12).
"""

import calendar
import datetime

import torch

from voiceseq.datasets.batching import step_generator

# d 7, D 07, o 7th, w the weekday; n 7, N 07, m Jul, M July; y 1969
PATTERNS = (
    "{d} {M} {y}", "{o} {M} {y}", "{o} of {M} {y}", "the {o} of {M} {y}", "{d} {M}, {y}", "{o} {M}, {y}",
    "{D} {M} {y}", "{d} {m} {y}", "{o} {m} {y}", "{D} {m} {y}", "{M} {d}, {y}", "{M} {o}, {y}", "{M} {d} {y}",
    "{M} {o} {y}", "{m} {d}, {y}", "{m} {o}, {y}", "{m} {d} {y}", "{m}. {d}, {y}", "{d} {m}. {y}", "{M} {D}, {y}",
    "{w}, {M} {d}, {y}", "{w}, {d} {M} {y}", "{w} {d} {M} {y}", "{w}, {o} of {M} {y}", "{w}, the {o} of {M}, {y}",
    "{w} {M} {o} {y}", "{M} the {o}, {y}", "{w} {m} {d} {y}", "{y}-{N}-{D}", "{y}/{N}/{D}", "{y}.{N}.{D}",
    "{D}.{N}.{y}", "{d}.{n}.{y}", "{n}/{d}/{y}", "{N}/{D}/{y}", "{D}-{m}-{y}", "{d}-{m}-{y}", "{m}-{D}-{y}",
    "{y} {M} {d}", "{y}, {M} {o}", "{y} {m} {D}", "{o} {M} in {y}", "{D} {M}, {y}", "{w}, {D} {m} {y}",
    "{M}, {o} {y}", "on the {o} of {M} {y}",
)  # fmt: skip
CASES = (str, str, str, str.lower, str.upper)
EARLIEST, LATEST = datetime.date(1000, 1, 1), datetime.date(2199, 12, 31)


def ordinal(day: int) -> str:
    """1st, 2nd, 3rd, 4th, ... 11th, ... 31st."""
    ending = "th" if day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{ending}"


def write_date(date: datetime.date, pattern: str) -> str:
    """The date in one of ``PATTERNS``."""
    return pattern.format(
        d=date.day,
        D=f"{date.day:02}",
        o=ordinal(date.day),
        w=calendar.day_name[date.weekday()],
        n=date.month,
        N=f"{date.month:02}",
        m=calendar.month_abbr[date.month],
        M=calendar.month_name[date.month],
        y=date.year,
    )


def date_pair(seed: int, number: int) -> tuple[str, str]:
    """Pair ``number`` of the endless list of this seed: what somebody wrote, and the ISO date."""
    generator = step_generator(seed, number)

    def choose(size: int) -> int:
        return int(torch.randint(size, (), generator=generator))

    first = EARLIEST if choose(4) == 0 else datetime.date(1900, 1, 1)
    date = first + datetime.timedelta(days=choose((LATEST - first).days + 1))
    pattern = PATTERNS[choose(len(PATTERNS))]
    if pattern.lower().startswith("{n}/") and date.day <= 12:  # 4/7/1969 may be April or July
        date = date.replace(day=13 + choose(16))
    return CASES[choose(len(CASES))](write_date(date, pattern)), date.isoformat()
