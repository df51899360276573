"""Byte-level byte-pair encoding: text as pieces of one byte up to a whole word with the space before it.

The pieces stand in the order in which they were learnt, and a piece is made of two earlier ones. A word is encoded by
joining, again and again, the two neighbours whose joint is the earliest piece. All single bytes are pieces, so there is
no text that cannot be spelt; ``cut`` keeps those that matter, and what is lost is spelt with smaller ones.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from voiceseq.errors import InputError

ROLES = ("end", "start", "no_speech", "no_timestamps")
# What is encoded on its own: an English ending, a word, a number or signs with the space before them, spaces.
PARTS = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")
KNOWN_WORDS = 100_000  # words whose pieces are remembered


@dataclass(frozen=True)
class Pieces:
    """``symbols`` numbered from 0 in the order they were learnt; ``specials`` are the numbers of symbols with a role.

    ``size`` is how many numbers there are in all; those that belong to no symbol and no role mean nothing.
    Raises ``InputError`` for duplicates, a byte that is no piece, and numbers of roles that are taken or too large.
    """

    symbols: tuple[bytes, ...]
    specials: Mapping[str, int]
    size: int
    _numbers: dict[bytes, int] = field(init=False, repr=False, compare=False)
    _words: dict[str, tuple[int, ...]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        numbers = {symbol: number for number, symbol in enumerate(self.symbols)}
        if len(numbers) < len(self.symbols):
            raise InputError("two of the pieces are the same; each wants one number")
        missing = [byte for byte in range(256) if bytes([byte]) not in numbers]
        if missing:
            raise InputError(f"{len(missing)} single bytes are no pieces (the first is {missing[0]}); all were wanted")
        if unknown := [role for role in self.specials if role not in ROLES] + [
            role for role in ("end", "start") if role not in self.specials
        ]:
            raise InputError(f"the roles {unknown}: 'end' and 'start' were wanted, and no others than {list(ROLES)}")
        if not len(numbers) <= min(self.specials.values()) <= max(self.specials.values()) < self.size:
            raise InputError(
                f"special pieces have the numbers {dict(self.specials)}; {len(numbers)} to {self.size - 1} were wanted"
            )
        object.__setattr__(self, "_numbers", numbers)

    def __len__(self) -> int:
        return self.size

    @classmethod
    def from_ranks(cls, path: str | Path, specials: Mapping[str, int], size: int) -> Self:
        """Read a file of lines ``base64-of-the-piece number`` (``*.tiktoken``). Raises ``InputError``."""
        try:
            rows = [line.split() for line in Path(path).read_text("ascii").splitlines() if line.strip()]
            found = {int(number): base64.b64decode(piece, validate=True) for piece, number in rows}
        except (OSError, ValueError, binascii.Error) as error:
            raise InputError(f"{path} is no list of pieces ({error}); lines 'base64 number' were wanted") from error
        if sorted(found) != list(range(len(found))):
            raise InputError(f"{path}: the numbers of its {len(found)} pieces are not 0, 1, 2, ...")
        return cls(tuple(found[number] for number in range(len(found))), specials, size)

    def encode(self, text: str) -> list[int]:
        """The pieces of a text; never a special one."""
        numbers: list[int] = []
        for word in PARTS.findall(text):
            if word not in self._words:
                if len(self._words) >= KNOWN_WORDS:
                    self._words.clear()
                self._words[word] = tuple(self._join(word.encode("utf-8", "replace")))
            numbers += self._words[word]
        return numbers

    def _join(self, word: bytes, below: int | None = None) -> list[int]:
        """Join neighbours, the earliest joint first; only those numbered ``below`` where that is given."""
        parts = [bytes([byte]) for byte in word]
        while len(parts) > 1:
            joints = [self._numbers.get(one + other, self.size) for one, other in pairwise(parts)]
            best = min(joints)
            if best == self.size or (below is not None and best >= below):
                break
            place = joints.index(best)
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
        return [self._numbers[part] for part in parts]

    def decode(self, numbers: Iterable[int]) -> str:
        """The text of some pieces; special ones are left out, bytes that are no UTF-8 become U+FFFD."""
        return b"".join(map(self.spelt, numbers)).decode("utf-8", "replace")

    def spelt(self, number: int) -> bytes:
        """The bytes of one piece; none for a special one. Raises ``InputError`` for a number that is not there."""
        if not 0 <= number < self.size:
            raise InputError(f"{number} is the number of no piece; 0 to {self.size - 1} were wanted")
        return self.symbols[number] if number < len(self.symbols) else b""

    def begins_word(self, number: int) -> bool:
        """Whether the piece has the space before a word."""
        return self.spelt(number)[:1] == b" "

    def cut(self, wanted: Iterable[int]) -> tuple["Pieces", list[int]]:
        """The ``wanted`` pieces, what they are made of, all bytes and the special ones: and their numbers here.

        A text whose pieces are all wanted keeps them; others are spelt with smaller ones.
        """
        kept = {self._numbers[bytes([byte])] for byte in range(256)}
        waiting = [number for number in wanted if number < len(self.symbols)]
        while waiting:
            number = waiting.pop()
            if number not in kept:
                kept.add(number)
                waiting += self._join(self.symbols[number], below=number)
        old = sorted(kept) + [self.specials[role] for role in ROLES if role in self.specials]
        roles = [role for role in ROLES if role in self.specials]
        specials = {role: len(kept) + place for place, role in enumerate(roles)}
        return Pieces(tuple(self.symbols[number] for number in sorted(kept)), specials, len(old)), old

    def to_json(self) -> dict[str, Any]:
        """Plain data; each byte is written as the character of its number."""
        symbols = [symbol.decode("latin-1") for symbol in self.symbols]
        return {"level": "piece", "specials": dict(self.specials), "size": self.size, "symbols": symbols}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Read what ``to_json`` wrote; ``InputError`` for anything else."""
        try:
            if data["level"] != "piece":
                raise InputError(f"a vocabulary of level {data['level']!r} came; 'piece' was wanted")
            specials = {str(role): int(number) for role, number in data["specials"].items()}
            return cls(tuple(symbol.encode("latin-1") for symbol in data["symbols"]), specials, int(data["size"]))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"these are no pieces as voiceseq writes them ({error!r}): the file is damaged") from error
