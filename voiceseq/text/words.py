"""Words: where they are in a text as people type it, and the form under which a table of words keeps them.

The manner is that of the Penn treebank, in which the corpora come: "didn't" is "did" and "n't", "Ann's" is "Ann" and
"'s", marks stand alone. A text that is already so comes out as it is.
"""

import re
import unicodedata
from typing import NamedTuple

# letters, figures and what is set over, under or between them in some scripts (Python counts these as no letters)
W = r"[\w\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u064b-\u065f\u0900-\u0963\u0966-\u0dff\u0e31-\u0eff\u200c\u200d]"
TOKEN = re.compile(
    rf"""
    (?:https?://|www\.)\S+                            # addresses
    | [\w.+-]{{1,64}}@[\w-]{{1,64}}(?:\.[\w-]+)+          # of mail, too
    | [@\#]\w+                                        # @somebody, #something
    | <[/\w][^<>\s]{{0,20}}\s?/?>                       # <br />, <unk>
    | [<>]?[:;=8][-o*'^]?[)\](\[dDpP/\\|}}{{@*](?!\w)   # :-)
    | \d+(?:[.,:/]\d+)*(?:st|nd|rd|th|s)?(?!\w)       # 1,000.50  12:30  20th
    | (?:[^\W\d_]\.){{2,}}                              # U.S.
    | (?:Mr|Mrs|Ms|Dr|St|Jr|Sr|vs|etc|Inc|Corp|Co|Ltd|No|Prof|Gen)\.(?=\s+\S)
    | {W}+(?:[-&'’.]{W}+)*                            # well-known, don't, gmail.com
    | '(?:s|S|m|M|d|D|ll|LL|re|RE|ve|VE)\b            # 've, on its own
    | ([^\w\s])\1*                                    # a mark, once or many times over: ?!, ..., ---
    """,
    re.VERBOSE,
)
CLITIC = re.compile(r"(?i)(?<=\w)(?:(?<![\W_])n['’]t|['’](?:s|m|d|ll|re|ve))$")
CANNOT = re.compile(r"(?i)^(can)(not)$")
ENDED = re.compile(r"\w[.,;:!?]+(?=\s|$)")  # a word with its mark
LONE = re.compile(r"(?:^|\s)(?:[.,;:!?]|n't|'s)(?=\s|$)")  # a mark on its own


JOINERS = "\u200c\u200d"  # the business of emoji and of Indic scripts


class Token(NamedTuple):
    """A word and where it is: ``text[start:end]``."""

    word: str
    start: int
    end: int


def visible(text: str) -> str:
    """The text in one line without what cannot be seen: NUL and line separators become spaces, a byte order mark or
    a soft hyphen nothing."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(letter) for letter in text)


def tokens(text: str, pretokenised: bool | None = None) -> list[Token]:
    """The words of a ``visible`` text. ``pretokenised`` says that they stand between spaces; None: as it looks."""
    if is_tokenised(text) if pretokenised is None else pretokenised:
        return [Token(match[0], match.start(), match.end()) for match in re.finditer(r"\S+", text)]
    found = []
    for match in TOKEN.finditer(text):
        cut = _cut(match[0])
        for start, end in ((0, cut), (cut, len(match[0]))):
            if end > start:
                found.append(Token(match[0][start:end], match.start() + start, match.start() + end))
    return found


def is_tokenised(text: str) -> bool:
    """Whether more marks stand on their own than hang on a word, as in ``it 's true .``"""
    return len(LONE.findall(text)) > len(ENDED.findall(text))


def split_words(text: str) -> list[str]:
    """The words alone."""
    return [token.word for token in tokens(visible(text))]


def normal_form(word: str) -> str:
    """What a table of words knows it by: small letters, every figure 0, the marks of WikiText (@-@) without their @."""
    word = word.lower()
    if not word.isascii() or not word.isalpha():
        word = re.sub(r"\d", "0", re.sub(r"^@(\W)@$", r"\1", word))
        word = re.sub(r"\s+", "_", word.replace("’", "'").replace("``", '"').replace("''", '"'))
    return word or "_"


def _shown(letter: str) -> str:
    category = unicodedata.category(letter)
    if category in ("Cc", "Cs", "Zl", "Zp"):
        return " "
    return "" if category == "Cf" and letter not in JOINERS else letter


def _cut(word: str) -> int:
    """Where the ending of a verb or a possessive begins; 0 where the word is whole."""
    if match := CANNOT.match(word):
        return match.end(1)
    match = CLITIC.search(word)
    return match.start() if match else 0
