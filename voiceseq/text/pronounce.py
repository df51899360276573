"""How words are pronounced: a dictionary in CMU's form (``word  PH1 PH2 ...``, variants as ``word(2)``), and a typed
phrase to its phones by dictionary, else by letters to sounds."""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from voiceseq.errors import InputError
from voiceseq.text.files import read_text
from voiceseq.text.normalise import normalise

Pronunciation = tuple[str, ...]
Dictionary = Mapping[str, Sequence[Pronunciation]]
LettersToSounds = Callable[[str], Sequence[Pronunciation]]  # of one word, the likeliest first

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
VOWELS = frozenset(phone for phone in PHONES if phone[0] in "AEIOU")
LETTERS = "abcdefghijklmnopqrstuvwxyz'"  # what a normalised word is spelt with
LETTER_NAMES = {
    "a": "EY", "b": "B IY", "c": "S IY", "d": "D IY", "e": "IY", "f": "EH F",
    "g": "JH IY", "h": "EY CH", "i": "AY", "j": "JH EY", "k": "K EY", "l": "EH L",
    "m": "EH M", "n": "EH N", "o": "OW", "p": "P IY", "q": "K Y UW", "r": "AA R",
    "s": "EH S", "t": "T IY", "u": "Y UW", "v": "V IY", "w": "D AH B AH L Y UW", "x": "EH K S",
    "y": "W AY", "z": "Z IY", "'": "",
}  # fmt: skip
LONGEST = 40  # letters; a longer word is none
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


def pronounce_phrase(
    phrase: str,
    dictionary: Dictionary,
    letters_to_sounds: LettersToSounds | None = None,
    most: int = 6,
    accents: bool = False,
) -> list[Pronunciation]:
    """The ways to say a phrase, at most ``most``, the likeliest first: what is typed is made plain (``normalise``).

    A word is looked up; one that is not there is guessed by ``letters_to_sounds``, after its letters' names where it
    has no vowel ("xkcd"). ``accents`` adds how other English says it, as far as there is room. Raises InputError for
    a phrase that cannot be said (empty, nothing but signs, other scripts, a word of more than 40 letters), and for a
    word that neither knows.
    """
    if most < 1:
        raise InputError(f"most is {most}; at least one pronunciation was wanted")
    ways: list[tuple[int, Pronunciation]] = [(0, ())]
    for word in phrase_words(phrase):
        known = _word(word, dictionary, letters_to_sounds)
        # the sum of ranks orders the product, and its first few need only the first few of what came before
        joint = [(rank + place, said + more) for rank, said in ways for place, more in enumerate(known[:most])]
        ways = sorted(joint, key=lambda way: way[0])[:most]
    found = [said for _, said in ways]
    return list(dict.fromkeys([*found, *(other for said in found for other in accents_of(said) if accents)]))[:most]


def phrase_words(phrase: str) -> list[str]:
    """The words of a typed phrase in a-z and apostrophe, numbers spelt out; InputError as ``pronounce_phrase``."""
    words = normalise(phrase).split()
    if not words:
        raise InputError(f"{phrase[:60]!r} has nothing that can be said; give words in English letters")
    if long := [word for word in words if len(word) > LONGEST]:
        raise InputError(f"{long[0][:20]!r}... has {len(long[0])} letters; give words of at most {LONGEST}")
    return words


def syllables(pronunciation: Pronunciation) -> int:
    """How many vowels are said: a wake word of one syllable alarms often."""
    return sum(phone in VOWELS for phone in pronunciation)


def accents_of(pronunciation: Pronunciation) -> list[Pronunciation]:
    """How it is said where r is silent unless a vowel follows ("computah"), and where "caught" rhymes with "cot"."""
    silent: list[str] = []
    for phone, following in zip(pronunciation, (*pronunciation[1:], ""), strict=True):
        if phone == "ER":
            silent += ["AH", "R"] if following in VOWELS else ["AH"]
        elif phone != "R" or following in VOWELS:
            silent.append(phone)
    merged = tuple(
        "AA" if phone == "AO" and following != "R" else phone
        for phone, following in zip(pronunciation, (*pronunciation[1:], ""), strict=True)
    )
    return [way for way in dict.fromkeys((tuple(silent), merged)) if way != pronunciation]


def spelt(word: str) -> str:
    """The letters of a word of any language, as a network reads them: small, nothing invisible, the spaces of a phrase
    single; accents, and the parts of Korean syllables, on their own."""
    letters = "".join(" " if letter.isspace() or letter == "\0" else letter for letter in word.lower())
    letters = "".join(letter for letter in letters if unicodedata.category(letter) not in ("Cc", "Cf", "Cs"))
    return unicodedata.normalize("NFD", " ".join(letters.split()))


def spell_out(word: str) -> Pronunciation:
    """The names of its letters: "tv" is T IY V IY."""
    return tuple(phone for letter in word for phone in LETTER_NAMES[letter].split())


def _word(word: str, dictionary: Dictionary, letters_to_sounds: LettersToSounds | None) -> list[Pronunciation]:
    if word in dictionary:
        return list(dictionary[word])
    spelt = [] if re.search("[aeiouy]", word) else [spell_out(word)]
    guessed = letters_to_sounds(word) if letters_to_sounds else ()
    found = list(dict.fromkeys(tuple(said) for said in [*spelt, *guessed] if said))
    if not found:
        raise InputError(f"no way to say {word!r} is known; add it to a dictionary and give that")
    return found
