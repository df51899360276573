"""Vocabularies: text to numbers and back.

A vocabulary is a frozen list of symbols (characters, words or subwords); a symbol's number is its place in the list.
Special symbols (padding, unknown, ...) are named by their role and written as in ``SPECIALS``. Text can never produce
one of them except ``unknown``: the word "<eos>" in a text is an unknown word and not the end of the sentence.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

from voiceseq.errors import InputError
from voiceseq.text.subwords import MARK, cut, learn_pieces, units

Level = Literal["character", "word", "subword"]
SPECIALS = {
    "pad": "<pad>",
    "unknown": "<unk>",
    "bos": "<bos>",
    "eos": "<eos>",
    "blank": "<blank>",
    "mask": "<mask>",
}


KNOWN_UNITS = 100_000  # words whose subwords are remembered


def split(text: str, level: Level) -> list[str]:
    """The symbols of a text: its code points, its words between white space, or the units that subwords are cut of."""
    if level == "subword":
        return units(text)
    return list(text) if level == "character" else text.split()


@dataclass(frozen=True)
class Vocabulary:
    """``symbols`` in the order of their numbers, the special ones among them; ``specials`` names their roles.

    Raises ``InputError`` for an empty vocabulary, duplicates, a symbol that no text of this level could contain, an
    unknown level or role, and a role whose symbol is not in the list.
    """

    symbols: tuple[str, ...]
    level: Level = "character"
    specials: tuple[str, ...] = ()
    _special: dict[str, int] = field(init=False, repr=False, compare=False)
    _ordinary: dict[str, int] = field(init=False, repr=False, compare=False)
    _cuts: dict[str, list[str]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        _check_names(self.level, self.specials)
        duplicates = [symbol for symbol, count in Counter(self.symbols).items() if count > 1]
        if duplicates:
            raise InputError(f"the vocabulary holds {_named(duplicates)} more than once; each symbol wants one number")
        missing = [SPECIALS[role] for role in self.specials if SPECIALS[role] not in self.symbols]
        if missing:
            raise InputError(f"the special symbols {missing} are not among the symbols: add them or drop their roles")
        special = {SPECIALS[role] for role in self.specials}
        numbers = {symbol: number for number, symbol in enumerate(self.symbols)}
        ordinary = {symbol: number for symbol, number in numbers.items() if symbol not in special}
        if not ordinary:
            raise InputError("the vocabulary is empty; give at least one symbol that is not a special one")
        strange = [symbol for symbol in ordinary if not _possible(symbol, self.level)]
        if strange:
            raise InputError(f"{_named(strange)} cannot be a {self.level}; give one {self.level} a symbol")
        object.__setattr__(self, "_special", {role: numbers[SPECIALS[role]] for role in self.specials})
        object.__setattr__(self, "_ordinary", ordinary)

    @classmethod
    def from_text(
        cls,
        text: str | Iterable[str],
        level: Level = "character",
        minimum_count: int = 1,
        size: int | None = None,
        specials: Sequence[str] = (),
    ) -> Self:
        """Special symbols first, then those seen at least ``minimum_count`` times, the most frequent first (ties in
        code point order), at most ``size`` symbols in all. ``text`` is one string or its lines. Subwords are learned
        from it (``subwords.learn_pieces``) and want a ``size``."""
        _check_names(level, specials)
        if size is not None and size <= len(specials):
            raise InputError(f"size {size} leaves no place beside {len(specials)} special symbols; give a larger size")
        written = [SPECIALS[role] for role in specials]
        lines = [text] if isinstance(text, str) else text
        if level == "subword":
            if size is None:
                raise InputError("subwords want a size: how many symbols in all, e.g. 8000")
            return cls((*written, *learn_pieces(lines, size - len(written))), level, tuple(specials))
        counts = Counter(symbol for line in lines for symbol in split(line, level))
        seen = [symbol for symbol, n in counts.items() if n >= minimum_count and symbol not in written]
        if not seen:
            raise InputError(f"no {level} was seen {minimum_count} times or more; give more text or a lower count")
        seen.sort(key=lambda symbol: (-counts[symbol], symbol))
        return cls(tuple([*written, *seen][:size]), level, tuple(specials))

    def __len__(self) -> int:
        return len(self.symbols)

    def __contains__(self, symbol: object) -> bool:
        return symbol in self._ordinary or symbol in [SPECIALS[role] for role in self.specials]

    def index(self, symbol: str) -> int:
        """The number of a symbol, special or not; ``InputError`` when there is none."""
        if symbol in self._ordinary:
            return self._ordinary[symbol]
        for role, number in self._special.items():
            if SPECIALS[role] == symbol:
                return number
        raise InputError(f"{_named([symbol])} is not in this vocabulary of {len(self)} symbols")

    def special(self, role: str) -> int:
        """The number of the special symbol with this role ("pad", "eos", ...); ``InputError`` when there is none."""
        if role not in self._special:
            raise InputError(f"this vocabulary has no {role!r} symbol, only {list(self.specials)}: build it with one")
        return self._special[role]

    @property
    def special_ids(self) -> frozenset[int]:
        return frozenset(self._special.values())

    def split(self, text: str) -> list[str]:
        """The symbols of a text, strange ones too."""
        found = split(text, self.level)
        return found if self.level != "subword" else [piece for unit in found for piece in self._cut(unit)]

    def _cut(self, unit: str) -> list[str]:
        if unit not in self._cuts:
            if len(self._cuts) >= KNOWN_UNITS:
                self._cuts.clear()
            self._cuts[unit] = cut(unit, self._ordinary)
        return self._cuts[unit]

    def encode(self, text: str) -> list[int]:
        """The numbers of a text's symbols; a strange one becomes ``unknown`` or, without that, an ``InputError``."""
        symbols = self.split(text)
        unknown = self._special.get("unknown")
        if unknown is None:
            strange = dict.fromkeys(symbol for symbol in symbols if symbol not in self._ordinary)
            if strange:
                raise InputError(
                    f"{_named(list(strange))} not in the vocabulary: normalise the text or build the vocabulary "
                    "with the special symbol 'unknown'"
                )
            return [self._ordinary[symbol] for symbol in symbols]
        return [self._ordinary.get(symbol, unknown) for symbol in symbols]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some numbers. Special symbols are left out, except ``unknown``, which shows as "<unk>"."""
        hidden = self.special_ids - {self._special.get("unknown")}
        numbers = [int(number) for number in ids]
        wrong = [number for number in numbers if not 0 <= number < len(self)]
        if wrong:
            raise InputError(f"{wrong[:10]} are not numbers of this vocabulary; 0 to {len(self) - 1} were wanted")
        shown = [self.symbols[number] for number in numbers if number not in hidden]
        if self.level == "subword":
            return "".join(shown).replace(MARK, " ").strip()
        return ("" if self.level == "character" else " ").join(shown)

    def to_json(self) -> dict[str, Any]:
        """Plain data for ``json.dump``; ``from_json`` gives an equal vocabulary back."""
        return {"level": self.level, "specials": list(self.specials), "symbols": list(self.symbols)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` wrote; ``InputError`` for anything else."""
        wanted = {"level", "specials", "symbols"}
        if not isinstance(data, Mapping) or set(data) != wanted:
            came = sorted(map(str, data)) if isinstance(data, Mapping) else type(data).__name__
            raise InputError(f"a vocabulary has the keys {sorted(wanted)}, but {came} came: is this a vocabulary file?")
        for key in ("specials", "symbols"):
            if not isinstance(data[key], list) or not all(isinstance(symbol, str) for symbol in data[key]):
                raise InputError(f"{key!r} in a vocabulary file is not a list of strings: the file is damaged")
        return cls(tuple(data["symbols"]), data["level"], tuple(data["specials"]))


def _check_names(level: object, specials: Sequence[str]) -> None:
    if level not in get_args(Level):
        raise InputError(f"level {level!r} is unknown; give one of {list(get_args(Level))}")
    wrong = [role for role in specials if role not in SPECIALS]
    if wrong or isinstance(specials, str):
        raise InputError(f"special symbols {wrong or specials!r}: give a list of names among {list(SPECIALS)}")
    if len(set(specials)) < len(specials):
        raise InputError(f"specials {list(specials)} names a symbol twice; name each once")


def _possible(symbol: str, level: Level) -> bool:
    """Whether a text of this level could hold the symbol."""
    if level == "subword":
        return bool(symbol) and not any(character.isspace() for character in symbol) and MARK not in symbol[1:]
    return split(symbol, level) == [symbol]


def _named(symbols: Sequence[str], most: int = 10) -> str:
    """Some symbols for an error message, single characters with their code points (they may be invisible)."""
    named = [f"{s!r} (U+{ord(s):04X})" if len(s) == 1 else repr(s) for s in symbols[:most]]
    return ", ".join(named) + (f" and {len(symbols) - most} more" if len(symbols) > most else "")
