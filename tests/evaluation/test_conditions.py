"""Test sounds are what they say: ratios exact over the word, words whole and where they are said to be."""

from pathlib import Path

import numpy as np
import pytest

from voiceseq.audio.effects import active_level_db
from voiceseq.audio.files import write_audio
from voiceseq.datasets.manifest import Clip
from voiceseq.datasets.recordings import active_span
from voiceseq.errors import ConfigError, InputError
from voiceseq.evaluation.conditions import (
    AFTER_S,
    BEFORE_S,
    RATE,
    Hardener,
    Sound,
    crossfaded,
    quietest,
    read_word,
    spliced,
    with_noise,
)


def tone(seconds: float, hz: float = 440.0, level: float = 0.3) -> np.ndarray:
    return (level * np.sin(2 * np.pi * hz * np.arange(round(seconds * RATE)) / RATE)).astype(np.float32)


def noise(seconds: float, seed: int = 0, level: float = 0.1) -> np.ndarray:
    return (level * np.random.default_rng(seed).standard_normal(round(seconds * RATE))).astype(np.float32)


@pytest.fixture
def word(tmp_path: Path) -> Clip:
    """0.5 s of tone in the middle of a clip of 2 s."""
    samples = np.zeros(2 * RATE, np.float32)
    samples[12000:20000] = tone(0.5)
    write_audio(tmp_path / "word.wav", samples, RATE)
    return Clip("w1", tmp_path / "word.wav", 2.0, extra={"word_start": 0.75, "word_end": 1.25})


@pytest.fixture
def speech(tmp_path: Path) -> Clip:
    samples = noise(6.0)
    samples[45000:47000] = 0.001
    write_audio(tmp_path / "speech.wav", samples, RATE)
    return Clip("s1", tmp_path / "speech.wav", 6.0)


def test_a_clip_gets_silence_around_it_and_the_word_is_where_the_row_says(word: Clip) -> None:
    sound = read_word(word)
    assert len(sound.samples) == round((2 + BEFORE_S + AFTER_S) * RATE)
    assert (sound.start, sound.end) == (round((BEFORE_S + 0.75) * RATE), round((BEFORE_S + 1.25) * RATE))
    assert sound.end_s == BEFORE_S + 1.25
    assert not sound.samples[: sound.start].any()
    assert abs(sound.samples[sound.start : sound.end]).max() == pytest.approx(0.3, abs=1e-3)


def test_without_times_the_word_is_where_it_sounds(word: Clip) -> None:
    bare = Clip(word.id, word.audio, word.duration)
    first, last = read_word(bare).start - round(BEFORE_S * RATE), read_word(bare).end - round(BEFORE_S * RATE)
    assert 11680 <= first <= 12000
    assert 20000 <= last <= 20320
    assert active_span(np.zeros(100, np.float32)) == (0.0, 100 / RATE)


@pytest.mark.parametrize("times", [(-0.1, 1.0), (1.0, 1.0), (0.5, 2.5)])
def test_times_outside_the_clip_are_refused(word: Clip, times: tuple[float, float]) -> None:
    wrong = Clip(word.id, word.audio, word.duration, extra={"word_start": times[0], "word_end": times[1]})
    with pytest.raises(InputError, match="w1, clean: the word is said from"):
        Hardener()("clean", wrong)


@pytest.mark.parametrize("snr_db", [-5, 0, 10, 20])
def test_the_ratio_over_the_word_is_exact(word: Clip, snr_db: int) -> None:
    sound = read_word(word)
    hard = Hardener(noises=())(f"{snr_db}db", word)
    added = hard.samples.astype(np.float64) - sound.samples
    part = slice(sound.start, sound.end)
    ratio = 10 * np.log10(np.sum(sound.samples[part].astype(np.float64) ** 2) / np.sum(added[part] ** 2))
    assert ratio == pytest.approx(snr_db, abs=1e-4)
    assert added[: RATE // 2].any()  # under the silence, too
    assert (hard.start, hard.end) == (sound.start, sound.end)


def test_a_gap_of_the_noise_is_never_what_a_word_is_measured_against(word: Clip, tmp_path: Path) -> None:
    gappy = np.zeros(10 * RATE, np.float32)
    gappy[: 2 * RATE] = noise(2.0)
    write_audio(tmp_path / "gappy.wav", gappy, RATE)
    clips = [Clip(f"w{number}", word.audio, word.duration, extra=word.extra) for number in range(12)]
    hardener = Hardener(noises=[Clip("n", tmp_path / "gappy.wav", 10.0)])
    peaks = [np.abs(hardener("10db", clip).samples).max() for clip in clips]
    assert max(peaks) < 1.5


def test_silence_has_no_ratio(word: Clip) -> None:
    with pytest.raises(InputError, match="silent"):
        with_noise(read_word(word), np.zeros(round(4.5 * RATE), np.float32), 10)


def test_conditions_depend_on_the_clip_alone(word: Clip, speech: Clip) -> None:
    hardener, again = Hardener(speech=[speech], seed=3), Hardener(speech=[speech], seed=3)
    again("room", Clip("another", word.audio, word.duration))
    for condition in ("10db", "room", "telephone", "running"):
        assert np.array_equal(hardener(condition, word).samples, again(condition, word).samples)
    other = Hardener(speech=[speech], seed=4)
    assert not np.array_equal(hardener("0db", word).samples, other("0db", word).samples)


def test_a_room_rings_and_a_telephone_cuts_the_band(word: Clip) -> None:
    clean, room, phone = (Hardener()(name, word) for name in ("clean", "room", "telephone"))
    after = slice(clean.end + 400, clean.end + 2400)
    assert not clean.samples[after].any()
    assert np.abs(room.samples[after]).max() > 1e-3
    hiss = Sound(noise(2.0), 0, 2 * RATE)
    heard = Hardener()._find("telephone")(hiss, np.random.default_rng(0)).samples
    spectrum = np.abs(np.fft.rfft(heard)) ** 2
    hz = np.fft.rfftfreq(len(heard), 1 / RATE)
    assert spectrum[hz > 4000].sum() < 1e-3 * spectrum.sum()
    assert len(phone.samples) == len(clean.samples)


def test_given_rooms_are_used(word: Clip, tmp_path: Path) -> None:
    impulse = np.zeros(4000, np.float32)
    impulse[[100, 3100]] = 0.8, 0.4
    write_audio(tmp_path / "rir.wav", impulse, RATE, "float")
    clean = read_word(word)
    heard = Hardener(rooms=[Clip("r", tmp_path / "rir.wav", 0.25)])("room", word)
    echo = clean.samples + 0.5 * np.pad(clean.samples, (3000, 0))[: len(clean.samples)]
    assert np.abs(heard.samples - echo).max() < 0.01


def test_a_spliced_word_is_whole_as_loud_as_the_speech_and_in_its_quiet_place(word: Clip, speech: Clip) -> None:
    sound = Hardener(speech=[speech])("running", word)
    said = sound.samples[sound.start : sound.end]
    clean = read_word(word)
    original = clean.samples[clean.start : clean.end]
    gain = float(np.dot(said, original) / np.dot(original, original))
    assert np.allclose(said, gain * original, atol=1e-5)
    before = sound.samples[: sound.start - 2000]
    assert active_level_db(said, RATE) == pytest.approx(active_level_db(before, RATE), abs=1.0)
    assert before.any()
    assert sound.samples[sound.end + 2000 : sound.end + 10_000].any()
    assert 45000 - 48000 <= 46000 - sound.start - 640 <= 46000  # opened at the pause, 3 s of speech kept before it
    assert sound.start == pytest.approx(46000, abs=2500)


def test_speech_that_is_too_short_is_no_carrier(word: Clip, speech: Clip) -> None:
    with pytest.raises(InputError, match=r"speech of 1\.0 s"):
        spliced(read_word(word), noise(1.0))
    short = Clip("s2", speech.audio, 2.0)
    with pytest.raises(ConfigError, match="running needs"):
        Hardener(speech=[short]).check(["clean", "running"])
    Hardener(speech=[speech]).check(["clean", "running", "-3db"])


@pytest.mark.parametrize("name", ["loud", "10 db", "db", "10.5db", ""])
def test_unknown_conditions_are_named(name: str) -> None:
    with pytest.raises(ConfigError, match="choose from clean, room"):
        Hardener().check([name])


def test_crossfades_keep_what_is_equal() -> None:
    one, other = tone(0.1), tone(0.1)
    joined = crossfaded(one, np.concatenate((one[-320:], other)), 320)
    assert np.allclose(joined, np.concatenate((one, other)), atol=1e-6)


def test_the_quietest_place() -> None:
    samples = noise(3.0)
    samples[30_000:31_000] = 0
    assert 30_000 + 300 <= quietest(samples, 16_000, 40_000) <= 31_000 - 300
