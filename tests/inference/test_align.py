"""Words of a text in recordings where it is known when they are said."""

import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from echo import FRAME, VOCABULARY, Echo, say
from hypothesis import given, settings
from hypothesis import strategies as st
from places import ROOT

import voiceseq
from voiceseq.audio.files import read_audio, write_audio
from voiceseq.core import alignment
from voiceseq.errors import AudioError, BundleError, InputError
from voiceseq.inference import align
from voiceseq.inference.align import Aligner, Alignment, RecogniserEar, levels, surrounded, widened
from voiceseq.inference.recogniser import AcousticRecogniser
from voiceseq.inference.speech import Word
from voiceseq.inference.transcriber import Transcriber

RATE, FRAME_S = 16_000, FRAME / 16_000
CLIPS = ROOT / "data" / "clips"


@pytest.fixture(scope="module")
def echo() -> Aligner:
    return Aligner.of(Transcriber(AcousticRecogniser(Echo(), VOCABULARY)))


@pytest.fixture(scope="module")
def phones() -> Aligner:
    return Aligner.of(voiceseq.load("backbone"), voiceseq.load("pronounce-en"), {})


def silence(seconds: float) -> np.ndarray:
    return np.zeros(round(seconds * RATE), np.float32)


# --- an ear that is exact --------------------------------------------------------------------------------------------


def test_words_with_pauses_between_them_are_found_where_they_are(echo: Aligner, tmp_path: Path) -> None:
    """Pauses are quiet, so a word ends where the sound does; in this language a space after it is a sound, too."""
    samples = np.concatenate([silence(0.6), say("cab "), silence(0.9), say("hello"), silence(0.3)])
    path = write_audio(tmp_path / "x.wav", samples, RATE)
    for source, rate in ((samples, RATE), (path, None), (str(path), None)):
        found = echo.align(source, "Cab, HELLO!", rate)
        assert [word.word for word in found.words] == ["cab", "hello"]
        assert (found.duration, found.phones) == (pytest.approx(len(samples) / RATE), ())
        (first, second) = found.words
        assert (first.start, second.end) == (
            pytest.approx(0.6, abs=0.011),
            pytest.approx(found.duration - 0.33, abs=0.011),
        )
        assert first.end == pytest.approx(0.6 + 11 * FRAME_S, abs=0.011)
        assert second.start == pytest.approx(0.6 + 12 * FRAME_S + 0.9, abs=0.011)
        assert all(word.confidence > 0.99 for word in found.words)
        assert found.confidence > 0.99
    assert found.file == str(path)


def test_a_recording_in_pieces_is_the_same_as_whole(echo: Aligner, monkeypatch: pytest.MonkeyPatch) -> None:
    text = " ".join(["the cab", "hello sea", "a cat"] * 6)
    samples = np.concatenate([say(text), silence(0.1)])
    whole = echo.align(samples, text, RATE)
    monkeypatch.setattr(align, "AROUND_S", 7 * FRAME_S)
    monkeypatch.setattr(alignment, "MOST_MOVES", 500)
    for block in (20, 21, 100):
        monkeypatch.setattr(align, "BLOCK_S", block * FRAME_S)
        assert echo.align(samples, text, RATE) == whole


def test_blocks_are_heard_with_what_is_around_them() -> None:
    blocks = [np.arange(start, start + 5, dtype=np.float32) for start in (0, 5, 10)]
    blocks.append(np.array([15], np.float32))
    found = [[part.tolist() for part in parts] for parts in surrounded(iter(blocks), 2 / RATE)]
    assert [before for before, _, _ in found] == [[], [3, 4], [8, 9], [13, 14]]
    assert [after for _, _, after in found] == [[5, 6], [10, 11], [15], []]
    assert [block for _, block, _ in found] == [block.tolist() for block in blocks]


def test_spaces_are_spelt_between_words_and_belong_to_none(echo: Aligner) -> None:
    assert isinstance(echo.ear, RecogniserEar)
    spelt, between = echo.ear.spell(["ab", "b", "ab"])
    assert between == [VOCABULARY.index(" ")]
    assert spelt == [VOCABULARY.encode("ab"), VOCABULARY.encode("b"), VOCABULARY.encode("ab")]


# --- from symbols to words -------------------------------------------------------------------------------------------


def test_words_grow_to_a_pause_or_meet_half_way() -> None:
    loudness = np.full(200, -20.0)
    loudness[60:80] = -70  # a pause of 0.2 s
    loudness[100:103] = -70  # a stop consonant
    loudness[:10] = loudness[190:] = -70
    found = widened([(0.2, 0.5), (0.9, 0.95), (1.05, 1.75)], loudness, 2.0)
    assert np.allclose(found, [(0.1, 0.6), (0.8, 1.0), (1.0, 1.9)])


def test_words_do_not_grow_for_ever_in_noise() -> None:
    found = widened([(1.0, 1.1), (3.0, 3.1)], np.full(500, -20.0), 5.0)
    assert np.allclose(found, [(0.875, 1.35), (2.75, 3.225)])


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0.01, 0.6), min_size=2, max_size=20).filter(lambda steps: len(steps) % 2 == 0), st.data())
def test_words_stay_in_order_and_hold_their_symbols(steps: list[float], data: st.DataObject) -> None:
    times = np.cumsum(steps)
    spans = list(zip(times[::2].tolist(), times[1::2].tolist(), strict=True))
    duration = float(times[-1]) + data.draw(st.floats(0, 1))
    seed = data.draw(st.integers(0, 99))
    loudness = np.random.default_rng(seed).choice([-70.0, -20.0], int(np.ceil(duration * 100)))
    found = widened(spans, loudness, duration)
    for (start, end), (first, last) in zip(found, spans, strict=True):
        assert 0 <= start <= first + 0.011
        assert last - 0.011 <= end <= duration + 1e-9
    assert all(one[1] <= other[0] + 1e-9 for one, other in pairwise(found))


def test_levels_are_of_every_hundredth_of_a_second() -> None:
    samples = np.concatenate([np.ones(160), np.full(160, 0.1), np.zeros(160), np.full(80, 0.01)]).astype(np.float32)
    assert np.allclose(levels(samples), [0, -20, -90, -40], atol=1e-4)


# --- files -----------------------------------------------------------------------------------------------------------


def read_textgrid(text: str) -> dict[str, list[tuple[float, float, str]]]:
    """Tiers by name, as plainly as possible."""
    tiers = {}
    for part in re.split(r"item \[\d+\]:", text)[1:]:
        found = re.findall(r'xmin = (\S+)\s+xmax = (\S+)\s+text = "((?:[^"]|"")*)"', part)
        assert int(re.search(r"intervals: size = (\d+)", part)[1]) == len(found)
        tiers[re.search(r'name = "(\w+)"', part)[1]] = [(float(a), float(b), c.replace('""', '"')) for a, b, c in found]
    return tiers


def test_textgrids_cover_the_whole_time() -> None:
    words = (Word("a", 0.0, 0.5, 1), Word('b"c', 0.5, 1.0, 1), Word("d", 1.25, 2.0, 1))
    found = Alignment("x", 2.0, words, (Word("AH", 0.5, 1.0, 0.5),))
    tiers = read_textgrid(found.to_textgrid())
    assert tiers["words"] == [(0, 0.5, "a"), (0.5, 1, 'b"c'), (1, 1.25, ""), (1.25, 2, "d")]
    assert tiers["phones"] == [(0, 0.5, ""), (0.5, 1, "AH"), (1, 2, "")]
    assert list(read_textgrid(Alignment("x", 2.0, words).to_textgrid())) == ["words"]
    assert json.loads(json.dumps(found.to_json())) == {
        "file": "x",
        "duration": 2.0,
        "text": 'a b"c d',
        "words": [{"word": w.word, "start": w.start, "end": w.end, "confidence": 1} for w in words],
        "phones": [{"phone": "AH", "start": 0.5, "end": 1.0, "confidence": 0.5}],
    }


# --- the ear that ships ----------------------------------------------------------------------------------------------


def test_words_said_with_silence_between_them(phones: Aligner) -> None:
    """Words cut out of the clips, one after the other: each is found within an eighth of a second, most much nearer."""
    rows = [json.loads(line) for line in (CLIPS / "manifest.jsonl").read_text().splitlines()]
    parts, truth, at = [silence(0.5)], [], 0.5
    for row in rows * 2:
        sound = read_audio(CLIPS / row["audio"], sample_rate=RATE).samples
        for word, start, end in row["words"]:
            part = sound[round(start * RATE) : round(end * RATE)]
            truth.append((word, at, at + len(part) / RATE))
            parts += [part, silence(0.7)]
            at += len(part) / RATE + 0.7
    found = phones.align(np.concatenate(parts), " ".join(word for word, _, _ in truth), RATE)
    errors = [
        abs(mine - real)
        for one, (word, *times) in zip(found.words, truth, strict=True)
        for mine, real in zip((one.start, one.end), times, strict=True)
        if one.word == word
    ]
    assert len(errors) == 2 * len(truth) == 12
    assert max(errors) < 0.125
    assert np.mean(errors) < 0.05


def test_a_word_in_running_speech_and_its_phones(phones: Aligner) -> None:
    row = json.loads((CLIPS / "manifest.jsonl").read_text().splitlines()[0])
    found = phones.align(CLIPS / row["audio"], row["text"])
    ((_, start, end),) = row["words"]
    (computer,) = [word for word in found.words if word.word == "computer"]
    assert (computer.start, computer.end) == (pytest.approx(start, abs=0.1), pytest.approx(end, abs=0.1))
    assert len(found.words) == 18
    assert all(one.end <= other.start + 1e-9 for one, other in pairwise(found.words))
    inside = [phone.word for phone in found.phones if computer.start <= phone.start and phone.end <= computer.end]
    assert inside[0] == "K"
    assert inside[-1] == "ER"
    other = phones.align(CLIPS / row["audio"], "seven purple elephants are dancing through my quiet garden")
    assert other.confidence < found.confidence / 2


# --- what cannot be --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "nothing that can be said"), (" ...! ", "nothing that can be said"), ("привет", "a-z cannot spell"),
     ("a" * 41, "41 letters"), ("the cab " * 50, r"\(100 words\) does not fit into 1.00 s of sound.*right text")],
)  # fmt: skip
def test_texts_that_cannot_be_said(echo: Aligner, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        echo.align(silence(1), text, RATE)


def test_sounds_that_cannot_be_heard(echo: Aligner, tmp_path: Path) -> None:
    with pytest.raises(AudioError, match="gone"):
        echo.align(tmp_path / "gone.wav", "the cab")
    for samples, rate in ((silence(1), None), (silence(1).reshape(2, -1), RATE), (silence(0), RATE)):
        with pytest.raises(InputError, match="a rate were wanted"):
            echo.align(samples, "the cab", rate)
    with pytest.raises(InputError, match="does not fit"):
        echo.align(np.zeros(1, np.float32), "the cab", RATE)


def test_less_than_a_frame_is_said_in_plain_words(phones: Aligner) -> None:
    with pytest.raises(InputError, match=r"\(2 words\) does not fit into 0.01 s of sound, which is less than a frame"):
        phones.align(silence(0.01), "the cab", RATE)


def test_what_is_wrong_with_a_recording_is_told(echo: Aligner, tmp_path: Path) -> None:
    path = write_audio(tmp_path / "x.wav", np.concatenate([silence(0.2), say("cab"), silence(2)]), RATE)
    assert echo.align(path, "cab").warnings == ()
    path.write_bytes(path.read_bytes()[:-RATE])
    (warning,) = echo.align(path, "cab").warnings
    assert "is cut short" in warning


@pytest.mark.parametrize("name", ["harper-valley", "english-small"])
def test_recognisers_that_ship_find_words_where_the_phones_do(phones: Aligner, name: str) -> None:
    """Two ears that share nothing agree on where the words of a real call are, but for what lies between two words."""
    path, text = CLIPS / "speech" / "bank-call.flac", "hello this is harper valley national bank my name is linda"
    sound = read_audio(path, sample_rate=RATE, duration_s=4.3).samples
    found = Aligner.of(voiceseq.load(name)).align(sound, text, RATE)
    assert found.text == text
    assert found.phones == ()
    assert found.confidence > 0.5
    for one, other in zip(found.words, phones.align(sound, text, RATE).words, strict=True):
        assert (one.start, one.end) == (pytest.approx(other.start, abs=0.15), pytest.approx(other.end, abs=0.15))


def test_models_that_cannot_align() -> None:
    with pytest.raises(InputError, match="pronouncer"):
        Aligner.of(voiceseq.load("backbone"))
    with pytest.raises(BundleError, match="a Pronouncer came"):
        Aligner.of(voiceseq.load("pronounce-en"))
