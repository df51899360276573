"""Text to the phonemes (IPA) that neural voices read, and rules that turn them into other people's English.

espeak-ng does the reading: the one inside the piper-tts package, else the ``espeak-ng`` program. Its American English
taps every t ("compuder") and is one accent; the rules and the other accents say the same word as others would.
"""

import functools
import importlib
import re
import shutil
import subprocess
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from voiceseq.errors import InputError, MissingDependencyError

ACCENTS = ("en-us", "en-gb", "en-gb-x-rp", "en-gb-scotland", "en-gb-x-gbclan", "en-gb-x-gbcwmd", "en-029", "en-us-nyc")
VOWELS = "aeiouæɐɑɒɔəɚɛɜɪʊʌᵻ"
SIGNS = " ,.;:?!"
CLAUSE = re.compile(r"\s*([,.;:?!]+)\s*")
MARKED = re.compile(r"\([^)]*\)")  # espeak's "(fr)...(en)" around foreign words


def _rule(*pairs: tuple[str, str]) -> Callable[[str], str]:
    compiled = [(re.compile(pattern), into) for pattern, into in pairs]

    def apply(phonemes: str) -> str:
        for pattern, into in compiled:
            phonemes = pattern.sub(into, phonemes)
        return phonemes

    return apply


RULES: dict[str, Callable[[str], str]] = {
    "unflapped": _rule((r"ɾ", "t")),
    "r-less": _rule((r"ɚ", "ə"), (rf"([{VOWELS}])ː?ɹ(?![ˈˌ{VOWELS}])", r"\1ː")),
    "full-vowels": _rule((r"[əɐ](?!ʊ|l\b)", "ʌ"), (r"ᵻ", "ɪ")),
    "open-vowels": _rule((r"[əɐ](?!ʊ)", "ɑ"), (r"ᵻ", "i")),
    "round-vowels": _rule((r"^(\W*[kptbdɡfsmnlh]?)[əɐ](?=[mn])", r"\1ɔ"), (r"ɑ(?!ː?ɹ)", "ɔ")),
    "tense": _rule((r"(?<![aeɔ])ɪ", "i"), (r"(?<![aoəɑ])ʊ", "u"), (r"ᵻ", "i")),
    "stops-for-th": _rule((r"θ", "t"), (r"ð", "d")),
    "sibilants-for-th": _rule((r"θ", "s"), (r"ð", "z")),
    "v-for-w": _rule((r"w", "v")),
    "near-e": _rule((r"æ", "ɛ")),
    "voiceless-end": _rule((r"z(?=$|[ ,.?!])", "s"), (r"d(?=$|[ ,.?!])", "t"), (r"v(?=$|[ ,.?!])", "f")),
    "no-h": _rule((r"h", "")),
    "no-stress": _rule((r"[ˈˌ]", "")),
    "even-stress": _rule((r"ˌ", "ˈ")),
}


def pronounce(pieces: Sequence[str], accent: str = "en-us", rules: tuple[str, ...] = ()) -> list[str]:
    """IPA of each piece of a sentence, punctuation kept, decomposed (NFD), after the rules.

    Raises ``InputError`` for an unknown rule or a sentence with nothing to say.
    """
    unknown = [name for name in rules if name not in RULES]
    if unknown:
        raise InputError(f"no pronunciation rule {unknown[0]!r}: the rules are {', '.join(RULES)}")
    said = [ipa(piece, accent) for piece in pieces]
    for name in rules:
        said = [RULES[name](phonemes) for phonemes in said]
    if not any(letter.isalpha() for phonemes in said for letter in phonemes):
        raise InputError(f"nothing to say in {' '.join(pieces)[:60]!r}: give words, not only signs")
    return said


def spell(pieces: Sequence[str], symbols: Mapping[str, Sequence[int]]) -> tuple[list[int], list[tuple[int, int]]]:
    """Ids of all pieces' phonemes, a space between two; and where each piece's first sound begins and its last ends.

    A symbol that the voice does not know is left out.
    """
    ids, places = list[int](), list[tuple[int, int]]()
    for piece in pieces:
        if ids and piece and piece[0] not in SIGNS:
            ids += symbols.get(" ", ())
        start = end = len(ids)
        for symbol in piece:
            ids += symbols.get(symbol, ())
            if symbol not in SIGNS:
                end = len(ids)
            elif end == start:
                start = end = len(ids)
        places.append((start, end))
    return ids, places


@functools.lru_cache(maxsize=20_000)
def ipa(text: str, accent: str) -> str:
    """What espeak-ng reads: clause by clause, so that every source of it gives the same punctuation."""
    parts = CLAUSE.split(" ".join(text.split()))
    said = []
    for place, part in enumerate(parts):
        if place % 2:
            said.append(part[0] + " ")
        elif part:
            said.append(reader()(part, accent).replace(":", "ː"))  # Scots has a plain colon for a long vowel
    joined = re.sub(r"\s+", " ", "".join(said)).strip()
    return unicodedata.normalize("NFD", MARKED.sub("", joined))


@functools.cache
def reader() -> Callable[[str, str], str]:
    """A function from (clause, accent) to IPA. Raises ``MissingDependencyError`` where there is no espeak-ng."""
    try:
        bridge = importlib.import_module("piper.espeakbridge")
    except ImportError:
        return program_reader()
    bridge.initialize(str(Path(str(bridge.__file__)).parent / "espeak-ng-data"))

    def read(clause: str, accent: str) -> str:
        bridge.set_voice("en" if accent == "en-gb" else accent)  # it knows British English by its short name only
        return " ".join(phonemes for phonemes, _, _ in bridge.get_phonemes(clause))

    return read


def program_reader() -> Callable[[str, str], str]:
    program = shutil.which("espeak-ng")
    if program is None:
        raise MissingDependencyError(
            "neural voices need espeak-ng to read text: apt install espeak-ng, or pip install piper-tts"
        )

    def read(clause: str, accent: str) -> str:
        command = [program, "-q", "--ipa", "-v", accent, "--", clause]
        ran = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False, timeout=60)
        if ran.returncode:
            raise InputError(f"espeak-ng cannot read {clause[:60]!r} as {accent}: {ran.stderr.strip()[:200]}")
        return " ".join(ran.stdout.split())

    return read
