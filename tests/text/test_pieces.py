"""Pieces: any text comes back, joints are made in their order, and a cut vocabulary still spells everything."""

import base64
import os
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceseq.errors import InputError
from voiceseq.text.pieces import Pieces

BYTES = [bytes([number]) for number in range(256)]
JOINTS = [b"th", b" th", b"he", b" the", b"in", b"ing", b"er", b" then", b"ca", b" ca", b" cat", b"cat"]


def pieces(joints: list[bytes] = JOINTS) -> Pieces:
    symbols = (*BYTES, *joints)
    roles = ("end", "start", "no_speech", "no_timestamps")
    return Pieces(symbols, {role: len(symbols) + place for place, role in enumerate(roles)}, len(symbols) + 4)


def joined_by_hand(word: bytes, symbols: list[bytes]) -> list[bytes]:
    """The definition: as long as some neighbours make a piece, join the leftmost pair whose piece is the earliest."""
    parts = [word[place : place + 1] for place in range(len(word))]
    while True:
        found = [(symbols.index(a + b), place) for place, (a, b) in enumerate(pairwise(parts)) if a + b in symbols]
        if not found:
            return parts
        _, place = min(found)
        parts = [*parts[:place], parts[place] + parts[place + 1], *parts[place + 2 :]]


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40))
def test_any_text_comes_back(text: str) -> None:
    ours = pieces()
    numbers = ours.encode(text)
    assert ours.decode(numbers) == text
    assert all(number < len(ours.symbols) for number in numbers)


@settings(max_examples=100, deadline=None)
@given(st.text("theincar", min_size=1, max_size=12))
def test_joints_are_made_in_the_order_in_which_they_were_learnt(word: str) -> None:
    ours = pieces()
    expected = joined_by_hand(f" {word}".encode(), [*BYTES, *JOINTS])
    assert [ours.symbols[number] for number in ours.encode(f" {word}")] == expected


def test_words_signs_numbers_and_endings_are_encoded_apart() -> None:
    joints = [b"'s", b"t'", b" 1", b"12", b"1a", b"..", b". "]
    ours = pieces(joints)
    spelt = [ours.symbols[number] for number in ours.encode("t's 12a.. b")]
    assert spelt == [b"t", b"'s", b" 1", b"2", b"a", b"..", b" ", b"b"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(range(256, 256 + len(JOINTS))), max_size=6), st.text("thencaig ", max_size=30))
def test_a_cut_vocabulary_spells_everything_and_keeps_what_is_wanted(wanted: list[int], text: str) -> None:
    ours = pieces()
    fewer, kept = ours.cut(wanted)
    assert fewer.decode(fewer.encode(text)) == text
    assert [ours.spelt(number) for number in kept] == [fewer.spelt(number) for number in range(len(fewer))]
    assert {ours.symbols[number] for number in wanted} <= set(fewer.symbols)
    whole = ours.encode(text)
    if all(ours.symbols[number] in fewer.symbols for number in whole):
        made = {symbol for number in whole for symbol in needed(ours, number)}
        if made <= set(fewer.symbols):
            assert [fewer.symbols[n] for n in fewer.encode(text)] == [ours.symbols[n] for n in whole]


def needed(ours: Pieces, number: int) -> set[bytes]:
    """A piece and all that it is made of."""
    fewer, _ = ours.cut([number])
    return set(fewer.symbols)


def test_what_a_wanted_piece_is_made_of_is_kept() -> None:
    ours = pieces()
    fewer, kept = ours.cut([ours.symbols.index(b" then")])
    assert set(fewer.symbols) - set(BYTES) == {b" then", b" the", b" th", b"th"}
    assert [fewer.symbols[number] for number in fewer.encode(" then")] == [b" then"]
    assert [fewer.specials[role] for role in ("end", "start")] == [len(fewer.symbols), len(fewer.symbols) + 1]
    assert kept[-4:] == [ours.specials[role] for role in ("end", "start", "no_speech", "no_timestamps")]


def test_json_gives_an_equal_vocabulary() -> None:
    ours = pieces()
    assert Pieces.from_json(ours.to_json()) == ours
    for damaged in ({}, [], None, ours.to_json() | {"level": "word"}, ours.to_json() | {"symbols": ["a", 3]}):
        with pytest.raises(InputError):
            Pieces.from_json(damaged)
    with pytest.raises(InputError, match="damaged"):
        Pieces.from_json(ours.to_json() | {"symbols": ["\u4e00"]})


def test_a_list_of_ranks_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ranks.tiktoken"
    lines = [f"{base64.b64encode(symbol).decode()} {number}" for number, symbol in enumerate([*BYTES, *JOINTS])]
    path.write_text("\n".join(reversed(lines)))
    assert Pieces.from_ranks(path, pieces().specials, len(pieces())) == pieces()
    path.write_text("\n".join(lines[:5] + lines[6:]))
    with pytest.raises(InputError, match="numbers"):
        Pieces.from_ranks(path, pieces().specials, len(pieces()))
    path.write_text("?? 1")
    with pytest.raises(InputError, match="no list of pieces"):
        Pieces.from_ranks(path, pieces().specials, len(pieces()))


def test_impossible_vocabularies_are_refused() -> None:
    with pytest.raises(InputError, match="the same"):
        pieces([b"th", b"th"])
    with pytest.raises(InputError, match="single bytes"):
        Pieces(tuple(BYTES[1:]), {"end": 300, "start": 301}, 302)
    with pytest.raises(InputError, match="roles"):
        Pieces(tuple(BYTES), {"end": 256}, 257)
    with pytest.raises(InputError, match="numbers"):
        Pieces(tuple(BYTES), {"end": 256, "start": 300}, 300)
    with pytest.raises(InputError, match="no piece"):
        pieces().spelt(10_000)


def test_the_reference_encodes_alike() -> None:
    """Against tiktoken, with the list of Whisper's makers: $VOICESEQ_WHISPER is the folder that holds both."""
    folder = Path(os.environ.get("VOICESEQ_WHISPER", "/nowhere"))
    ranks = folder / "ref" / "whisper" / "assets" / "gpt2.tiktoken"
    if not ranks.exists():
        pytest.skip("set VOICESEQ_WHISPER to a folder with ref/whisper (openai-whisper) and ref/tiktoken")
    sys.path.append(str(folder / "ref"))
    reference = pytest.importorskip("whisper.tokenizer").get_tokenizer(False).encoding
    roles = {"end": 50256, "start": 50257, "no_speech": 50361, "no_timestamps": 50362}
    ours = Pieces.from_ranks(ranks, roles, 51864)
    texts = [
        "The quick brown fox, isn't it?",
        " whereupon lake laughed",
        "  two  spaces\n\nlines\t",
        "naïve café 123 a_b",
    ]
    for text in [*texts, "we'll they'RE 3.14 $5 — “quoted”", " ace of hearts"]:
        assert ours.encode(text) == reference.encode(text)
    for role, number in roles.items():
        assert (
            reference.decode([number])
            == {
                "end": "<|endoftext|>",
                "start": "<|startoftranscript|>",
                "no_speech": "<|nospeech|>",
                "no_timestamps": "<|notimestamps|>",
            }[role]
        )
