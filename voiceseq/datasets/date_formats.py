"""How people write a date, as patterns put together from parts: thousands of them, in training or held out.

A pattern is a format string over these fields, here for Sunday 5 July 1969 (in brackets: September, Tuesday, 2005):

    d 5   D 05   o 5th   O fifth   c five     n 7   N 07   m Jul   s July (Sept)   M July   r VII
    w Sunday   x Sun   v Sun (Tues)     y 1969   a 69   Y nineteen sixty-nine (two thousand five)
    Z as Y, the other way where there is one (two thousand and five)

``draw_pattern`` chooses a part for each place. A fifth of the patterns, told by a hash of the pattern alone, is never
trained on: ``held_out`` says which, so a held-out format is a combination that no training pair has.
"""

import random
import zlib
from collections.abc import Callable

WEEKDAYS = ("{w}, ", "{w} ", "{x} ", "{x}, ", "{x}. ", "{v}, ", "{v}. ", "on {w}, ", "on {w} ")
WEEKDAYS_AFTER = (", {w}", " ({w})", " {w}", ", {x}", " ({x})", ", a {w}")
MONTHS = ("{M}", "{M}", "{M}", "{m}", "{m}", "{m}.", "{s}", "{s}.")
ERAS = ("{y} AD", "AD {y}", "{y} A.D.", "A.D. {y}", "{y} CE", "{y}AD", "the year {y}", "the year of our Lord {y}")


def is_held_out(pattern: str) -> bool:
    """Whether no training pair is written so: one pattern in five, by its CRC-32 (the same on every machine)."""
    return zlib.crc32(pattern.encode()) % 5 == 0


def draw_pattern(rng: random.Random, held_out: bool) -> str:
    """A pattern of the training part, or of the part that is held out."""
    while True:
        (family,) = rng.choices(FAMILIES, WEIGHTS)
        pattern = family(rng)
        if is_held_out(pattern) == held_out:
            return pattern


def day_first(rng: random.Random) -> str:
    """20 July 1969, the twentieth of July, 1969, on Sunday the 20th day of July in the year 1969."""
    day = rng.choice(("{d}", "{d}", "{D}", "{o}", "{o}", "{o}", "{O}", "{c}"))
    if day in ("{o}", "{O}"):
        lead = rng.choice(("", "", "the ", "the ", "on the "))
        joint = rng.choice((" ", " ", " of ", " of ", " day of ", ", ", "-"))
    else:
        lead, joint = rng.choice(("", "", "", "on ")), rng.choice((" ", " ", " ", " of ", ". ", ", "))
    joint_year = rng.choice((" ", " ", " ", ", ", ", ", ",", " of ", " in ", ", in "))
    return weekday(rng, lead + day + joint + rng.choice(MONTHS) + joint_year + year(rng))


def month_first(rng: random.Random) -> str:
    """July 20, 1969, Jul. the 20th 1969, Sun. July twentieth, 1969."""
    day = rng.choice(("{d}", "{d}", "{D}", "{o}", "{o}", "{O}", "the {o}", "the {O}", "{c}"))
    joint = rng.choice((" ", " ", " ", " ", ", "))
    joint_year = rng.choice((" ", " ", ", ", ", ", ", ", ",", ". ", " of ", " in ", ", in "))
    lead = rng.choice(("", "", "", "", "on "))
    return weekday(rng, lead + rng.choice(MONTHS) + joint + day + joint_year + year(rng))


def year_first(rng: random.Random) -> str:
    """1969 July 20, 1969, the 20th of July, AD 1969 Jul. 20th."""
    day = rng.choice(("{d}", "{d}", "{D}", "{o}", "{o}", "the {o}"))
    month, joint = rng.choice(MONTHS), rng.choice((" ", " ", ", ", ": ", ". ", " - "))
    inner = rng.choice((month + " " + day, month + " " + day, month + ", " + day, day + " " + month, "{o} of " + month))
    return weekday(rng, rng.choice(("{y}", "{y}", "{y}", "in {y}", "AD {y}")) + joint + inner)


def tight(rng: random.Random) -> str:
    """20-Jul-1969, Jul/20/69, 1969.July.20, 20Jul69."""
    mark = rng.choice(("-", "-", "/", ".", "_", "", " ", " - ", " / ", ",", ", "))
    day, month = rng.choice(("{d}", "{D}", "{D}", "{o}")), rng.choice(("{m}", "{m}", "{m}", "{M}", "{s}"))
    some_year = "{y}" if "," in mark else rng.choice(("{y}", "{y}", "{y}", "{a}"))
    joint = mark or rng.choice(("-", " ", ", "))  # July201969 would hide where the day ends
    orders = (day + mark + month + mark + some_year, month + mark + day + joint + some_year)
    return weekday(rng, rng.choice((*orders, orders[0], "{y}" + mark + month + mark + day)))


def numbers(rng: random.Random) -> str:
    """1969-07-20, 20.7.1969, 07/20/1969, 20/7/69, 19690720."""
    mark = rng.choice(("-", "-", "/", "/", "/", ".", ".", " ", "_", " - ", " / ", ". "))
    day, month = rng.choice((("{d}", "{n}"), ("{D}", "{N}"), ("{D}", "{N}")))
    year = rng.choice(("{y}", "{y}", "{y}", "{a}")) if mark in "./" else "{y}"
    written = rng.choice(
        (
            "{y}" + mark + month + mark + day,
            "{y}" + mark + month + mark + day,
            day + mark + month + mark + year,
            day + mark + month + mark + year,
            month + mark + day + mark + year,
            "{y}{N}{D}",
        )
    )
    return weekday(rng, written)


def roman(rng: random.Random) -> str:
    """20.VII.1969, 20 VII 1969."""
    mark = rng.choice((" ", ".", "-", "/", ". ", " / "))
    written = (rng.choice(("{d}", "{D}")) + mark + "{r}" + mark + "{y}", "{y}" + mark + "{r}" + mark + "{d}")
    return weekday(rng, rng.choice((written[0], *written)))


def year(rng: random.Random) -> str:
    return rng.choice(("{y}",) * 14 + ("'{a}", "'{a}", "{Y}", "{Y}", "{Z}", rng.choice(ERAS), rng.choice(ERAS)))


def weekday(rng: random.Random, written: str) -> str:
    """With the day of the week before it, after it or, three times in five, without."""
    place = rng.randrange(10)
    if place < 3 and not written.startswith(("on", "in")):
        return rng.choice(WEEKDAYS) + written
    return written + rng.choice(WEEKDAYS_AFTER) if place == 3 else written


FAMILIES: tuple[Callable[[random.Random], str], ...] = (day_first, month_first, year_first, tight, numbers, roman)
WEIGHTS = (8, 8, 3, 4, 6, 1)
