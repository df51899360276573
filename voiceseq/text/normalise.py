"""English text as recognisers spell it: small letters a-z, the apostrophe inside a word, single spaces.

Accents are dropped, hyphens and punctuation become spaces, and numbers become the words that a reader would say:
"$5.50 at 3:45 in 1999" is "five dollars and fifty cents at three forty five in nineteen ninety nine". What cannot be
spelt with a-z (another script) is refused, never silently lost. The result is a fixed point: normalising it again
changes nothing.
"""

import re
import unicodedata
from typing import Literal, get_args

from voiceseq.errors import InputError

Digits = Literal["words", "refuse"]

UNITS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
TENS = ["_", "_", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
SCALES = ("", "thousand", "million", "billion", "trillion")
ORDINALS = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
    "twelve": "twelfth",
}  # fmt: skip
MONEY = {"$": ("dollar", "cent"), "£": ("pound", "penny"), "€": ("euro", "cent"), "¥": ("yen", "sen")}
PLURALS = {"penny": "pence", "yen": "yen", "sen": "sen"}
SHORT_SCALES = {"k": "thousand", "m": "million", "bn": "billion"}

# letters that Unicode does not take apart into a letter and an accent
LETTERS = str.maketrans({"æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "ł": "l", "ħ": "h", "ı": "i"})
APOSTROPHES = str.maketrans(dict.fromkeys("’‘ʼʹ′`´＇‛", "'"))
MARKS = str.maketrans(dict.fromkeys("™®©ªº", " "))
SYMBOLS = {"&": " and ", "%": " percent ", "@": " at ", "+": " plus "}

NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)"
SAYABLE = r"(?:\d{1,3}(?:,\d{3}){1,4}(?![\d,])|\d{1,15}(?!\d))"  # short enough to have a name
MONEY_RULE = re.compile(rf"([$£€¥])\s?({SAYABLE})(\.\d+)?(?:\s?(k|m|bn|thousand|million|billion|trillion)\b)?")
TIME_RULE = re.compile(r"(?<![\d:.])([01]?\d|2[0-3]):([0-5]\d)(?![\d:])(\s?[ap]\.?m\b)?")
DECADE_RULE = re.compile(r"(?<![\d,.])(\d{3}0|\d0)'?s\b")
ORDINAL_RULE = re.compile(rf"(?<![\d,])({SAYABLE})(?:st|nd|rd|th)\b")
FRACTION_RULE = re.compile(
    r"(?:(?<![\d/.,])(\d+) +)?(?<![\d/.,])(?:(\d{1,15})⁄(\d{1,15})|([12])/([234])|(3)/(4))(?![\d/])"
)
MINUS_RULE = re.compile(r"(?<!\S)[-−](?=[\d$£€¥.])")
NUMBER_RULE = re.compile(rf"({NUMBER})((?:\.\d+)*)")


def normalise(text: str, digits: Digits = "words") -> str:
    """The text in a-z, apostrophe and space; ``""`` where nothing but punctuation was there.

    ``digits="words"`` spells numbers out, ``"refuse"`` does not guess how they were read. Raises ``InputError`` for
    digits that are refused and for letters of another script, and names them.
    """
    if digits not in get_args(Digits):
        raise InputError(f"digits={digits!r} is not known; choose one of {', '.join(get_args(Digits))}")
    plain = _latin(text)
    if any(character.isdigit() for character in plain):
        if digits == "refuse":
            found = ", ".join(re.findall(r"\d+", plain)[:3])
            raise InputError(f"the text {_short(text)} has the digits {found}; spell them as they were spoken")
        plain = spell_numbers(plain)
    for symbol, word in SYMBOLS.items():
        plain = plain.replace(symbol, word)
    foreign = sorted({character for character in plain if character.isalpha() and not character.isascii()})
    if foreign:
        shown = " ".join(foreign[:5])
        raise InputError(f"the text {_short(text)} has {shown}, which a-z cannot spell; write it in English letters")
    kept = re.sub(r"[^a-z']", " ", plain)
    return " ".join(re.sub(r"(?<![a-z])'|'(?![a-z])", " ", kept).split())


def spell_numbers(text: str) -> str:
    """Every number of a lower-case text in words: money, times, decades, ordinals, fractions, years, cardinals."""
    text = MINUS_RULE.sub(" minus ", text)
    text = MONEY_RULE.sub(_money, text)
    text = TIME_RULE.sub(_time, text)
    text = DECADE_RULE.sub(lambda found: f" {_plural(_count(found[1]))} ", text)
    text = ORDINAL_RULE.sub(lambda found: f" {ordinal(int(found[1].replace(',', '')))} ", text)
    text = FRACTION_RULE.sub(_fraction, text)
    return NUMBER_RULE.sub(_number, text)


def cardinal(number: int) -> str:
    """1234 -> one thousand two hundred thirty four; digit by digit from a thousand trillion on."""
    if number >= 1000 ** len(SCALES):
        return _digit_by_digit(str(number))
    if number < 1000:
        return _below_thousand(number)
    groups = []
    for scale in SCALES:
        number, group = divmod(number, 1000)
        if group:
            groups.append(f"{_below_thousand(group)} {scale}".strip())
    return " ".join(reversed(groups))


def ordinal(number: int) -> str:
    """21 -> twenty first, 1000 -> one thousandth."""
    *head, last = cardinal(number).split()
    ending = f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th"
    return " ".join([*head, ORDINALS.get(last, ending)])


def year(number: int) -> str:
    """1999 -> nineteen ninety nine, 1905 -> nineteen oh five, 1900 -> nineteen hundred, 2005 -> two thousand five."""
    century, rest = divmod(number, 100)
    if century % 10 == 0 and rest < 10:
        return cardinal(number)
    return f"{cardinal(century)} {'hundred' if rest == 0 else _two_digits(rest)}"


# --- letters ---------------------------------------------------------------------------------------------------------


def _latin(text: str) -> str:
    """Lower case without accents; digits of any script as 0-9; invisible characters gone, control characters spaces."""
    text = re.sub(r"[¼-¾⅐-⅞]", r" \g<0>", text.translate(APOSTROPHES).translate(MARKS))  # 2½ is not 21/2
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold()).translate(APOSTROPHES)
    return "".join(map(_plain_character, folded.translate(LETTERS)))


def _plain_character(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Nd":
        return str(unicodedata.decimal(character))
    if category in ("Mn", "Me", "Cf"):
        return ""
    return " " if category in ("Cc", "Cs", "Co", "Cn") else character


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


# --- numbers ---------------------------------------------------------------------------------------------------------


def _below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    words = [UNITS[hundreds], "hundred"] if hundreds else []
    if rest >= 20:
        words.append(TENS[rest // 10])
        rest %= 10
    if rest or not words:
        words.append(UNITS[rest])
    return " ".join(words)


def _two_digits(number: int) -> str:
    return f"oh {UNITS[number]}" if number < 10 else cardinal(number)


def _digit_by_digit(digits: str) -> str:
    return " ".join(UNITS[int(digit)] for digit in digits)


def _count(digits: str) -> str:
    """A run of digits, perhaps with commas: a year where it looks like one, else a cardinal."""
    bare = digits.replace(",", "")
    if len(bare) > 15 or (len(bare) > 1 and bare.startswith("0")):
        return _digit_by_digit(bare)
    if len(digits) == 4 and 1100 <= int(digits) <= 2099:
        return year(int(digits))
    return cardinal(int(bare))


def _plural(words: str) -> str:
    return f"{words[:-1]}ies" if words.endswith("y") else f"{words}s"


def _number(found: re.Match[str]) -> str:
    whole, *parts = found[0].split(".")
    if not parts:
        return f" {_count(whole)} "
    if len(parts) == 1:
        whole = whole.replace(",", "")
        spoken = cardinal(int(whole)) if len(whole) <= 15 else _digit_by_digit(whole)
        return f" {spoken} point {_digit_by_digit(parts[0])} "
    return f" {' point '.join(_count(part) for part in (whole, *parts))} "


def _money(found: re.Match[str]) -> str:
    coin, small = MONEY[found[1]]
    whole, part, scale = int(found[2].replace(",", "")), (found[3] or "")[1:], found[4]
    if scale or len(part) not in (0, 2):
        amount = cardinal(whole) + (f" point {_digit_by_digit(part)}" if part else "")
        scale = SHORT_SCALES.get(scale, scale) or ""
        return f" {amount} {scale} {_coins(2, coin)} "
    said = [f"{cardinal(whole)} {_coins(whole, coin)}"] if whole or not int(part or 0) else []
    said += [f"{cardinal(int(part))} {_coins(int(part), small)}"] if int(part or 0) else []
    return f" {' and '.join(said)} "


def _coins(count: int, coin: str) -> str:
    return coin if count == 1 else PLURALS.get(coin, f"{coin}s")


def _time(found: re.Match[str]) -> str:
    hour, minute, half = int(found[1]), int(found[2]), found[3] or ""
    even = "" if half else "o'clock" if 1 <= hour <= 12 else "hundred"
    spoken = _two_digits(minute) if minute else even
    return f" {cardinal(hour)} {spoken} {half.replace('.', '')} "


def _fraction(found: re.Match[str]) -> str:
    whole = f" {_count(found[1])} and" if found[1] else ""
    top, bottom = (int(digits) for digits in found.groups()[1:] if digits is not None)
    if bottom < 2:
        return f"{whole} {cardinal(top)} over {cardinal(bottom)} "
    name = {2: "half", 4: "quarter"}.get(bottom) or ordinal(bottom)
    if top != 1:
        name = "halves" if bottom == 2 else f"{name}s"
    return f"{whole} {cardinal(top)} {name} "
