"""How words are pronounced: reading a dictionary in CMU's form (``word  PH1 PH2 ...``, variants as ``word(2)``)."""

import re
from pathlib import Path

from voiceseq.errors import InputError
from voiceseq.text.files import read_text

Pronunciation = tuple[str, ...]

# CMU's 39 phones, without stress
PHONES = (
    *(
        "AA",
        "AE",
        "AH",
        "AO",
        "AW",
        "AY",
        "B",
        "CH",
        "D",
        "DH",
        "EH",
        "ER",
        "EY",
        "F",
        "G",
        "HH",
        "IH",
        "IY",
        "JH",
        "K",
    ),
    *("L", "M", "N", "NG", "OW", "OY", "P", "R", "S", "SH", "T", "TH", "UH", "UW", "V", "W", "Y", "Z", "ZH"),
)
_ENTRY = re.compile(r"(?P<word>[^\s(]+)(?:\(\d+\))?\s+(?P<phones>[A-Z0-9 ]+?)\s*(?:#.*)?")


def read_dictionary(path: str | Path) -> dict[str, list[Pronunciation]]:
    """Each word (lower case) with its pronunciations, the usual one first; stress marks are dropped.

    Raises InputError with the line number for what is not an entry, a comment (``;;;``) or blank.
    """
    dictionary: dict[str, list[Pronunciation]] = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip() or line.startswith(";;;"):
            continue
        entry = _ENTRY.fullmatch(line)
        phones = tuple(phone.rstrip("012") for phone in entry["phones"].split()) if entry else ()
        if entry is None or not set(phones) <= set(PHONES):
            raise InputError(
                f"{path}, line {number}: {line[:60]!r} is no entry; 'word  PH PH ...' with CMU's phones was wanted"
            )
        known = dictionary.setdefault(entry["word"].lower(), [])
        if phones not in known:
            known.append(phones)
    return dictionary
