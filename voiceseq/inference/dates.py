"""Reading dates with a transducer: the text made plain, and no answer that the calendar does not know."""

import datetime
import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from voiceseq.inference.transduce import Candidate, Transducer

LONGEST = 100  # characters; a longer text holds more than a date, and the model has seen none
LEAST = 0.3  # a date less probable than this is a guess
PART = re.compile(r"\d{8}|\d+(?:st|nd|rd|th)?|[^\W\d_]+", re.IGNORECASE)
DASHES = str.maketrans(dict.fromkeys("‐‑‒–—―−", "-") | dict.fromkeys("’‘ʼ′`´", "'"))


@dataclass(frozen=True)
class Reading:
    """``date`` as ISO writes it and how sure the model is of it, or None and 0."""

    text: str
    date: str | None
    probability: float


def read_dates(model: Transducer, texts: Sequence[str], beam: int | None = None) -> list[Reading]:
    """For each text the most probable date that exists; None where there is none worth saying.

    Raises InputError as ``Transducer.candidates`` does.
    """
    plain = [plain_text(text) for text in texts]
    legible = [number for number, text in enumerate(plain) if is_legible(text)]
    found = dict(zip(legible, model.candidates([plain[number] for number in legible], beam), strict=True))
    return [best_date(text, found.get(number, [])) for number, text in enumerate(texts)]


def best_date(text: str, candidates: Sequence[Candidate]) -> Reading:
    for candidate in candidates:
        if math.exp(candidate.score) >= LEAST and exists(candidate.text):
            return Reading(text, candidate.text, math.exp(candidate.score))
    return Reading(text, None, 0.0)


def is_legible(text: str) -> bool:
    """Whether it is short enough, and has the three parts of a date or eight figures on end: July 1969 is no date."""
    parts = PART.findall(text) if len(text) <= LONGEST else []
    return len(parts) >= 3 or any(len(part) == 8 and part.isdecimal() for part in parts)


def exists(date: str) -> bool:
    """Whether this is a day of the calendar, written ``YYYY-MM-DD``."""
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", date, re.ASCII):
        return False
    try:
        datetime.date(*map(int, date.split("-")))
    except ValueError:
        return False
    return True


def plain_text(text: str) -> str:
    """Single spaces, plain dashes and apostrophes, no invisible characters (BOM, NUL)."""
    spaced = " ".join(text.translate(DASHES).split())
    visible = "".join(character for character in spaced if unicodedata.category(character) not in ("Cc", "Cf"))
    return unicodedata.normalize("NFKC", visible).strip()
