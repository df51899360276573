"""Clips made of recordings that can be recognised sample by sample: impulses, constants, patterns."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceseq.audio.augment import AugmentConfig, Augmenter, RoomEffect, Speed
from voiceseq.audio.files import write_audio
from voiceseq.datasets.manifest import Clip
from voiceseq.datasets.recordings import SAMPLE_RATE, Recordings, Utterance, active_span, find_utterance, read_source
from voiceseq.datasets.synthesis import ClipSettings, Piece, TriggerClips, gather_clips
from voiceseq.errors import ConfigError, InputError

# nothing but the utterances, all at one level
BARE = {"silent": 1.0, "babble": 0.0, "hiss": 0.0, "level_db": (-20, -20), "vary_db": 0.0, "fade_s": 0.0}
Recorder = Callable[..., Clip]


@pytest.fixture
def record(tmp_path: Path) -> Recorder:
    def write(name: str, samples: np.ndarray, **extra: object) -> Clip:
        path = write_audio(tmp_path / f"{name}.wav", np.asarray(samples, np.float32), SAMPLE_RATE, "float")
        return Clip(name, path, len(samples) / SAMPLE_RATE, extra=extra)

    return write


def constant(seconds: float, sign: float = 1.0) -> np.ndarray:
    return np.full(round(seconds * SAMPLE_RATE), 0.25 * sign, np.float32)


def test_every_end_is_where_the_word_ends(record: Recorder) -> None:
    """The last sample of each word is an impulse, and nothing else sounds."""
    said = []
    for number, (start, end, size) in enumerate([(0.2, 0.7, 1.0), (0.0, 0.4, 0.4), (1.3, 1.8, 3.0)]):
        samples = np.zeros(round(size * SAMPLE_RATE))
        samples[round(end * SAMPLE_RATE) - 1] = 0.5
        said.append(Utterance(record(str(number), samples), number, start, end))
    clips = TriggerClips(said, [], [], [], ClipSettings(**BARE, triggers=(0, 4)), seed=3)
    counts = [0, 0, 0]
    for number in range(60):
        clip = clips.make(number)
        assert len(clip.samples) == 6 * SAMPLE_RATE
        ends = [round(end * SAMPLE_RATE) for _, end in clip.ends]
        assert np.flatnonzero(clip.samples).tolist() == [end - 1 for end in ends]
        for word, _ in clip.ends:
            counts[word] += 1
        assert all(end <= (6 - 0.35) * SAMPLE_RATE for end in ends)
    assert min(counts) > 20


def test_augmented_ends_are_where_the_word_ends(record: Recorder) -> None:
    samples = np.zeros(SAMPLE_RATE)
    samples[7999] = 0.5
    said = [Utterance(record("one", samples), 0, 0.1, 0.5)]
    hard = AugmentConfig(speed=Speed(1.0, (0.8, 1.25)), room=RoomEffect(1.0, t60_s=(0.1, 0.12), distance_m=(2.0, 4.0)))
    clips = TriggerClips(said, [], [], [], ClipSettings(**BARE, triggers=(1, 1), others=(0, 0)), Augmenter(hard))
    moved = []
    for number in range(8):
        clip = clips.make(number)
        ((_, end),) = clip.ends
        first = np.flatnonzero(np.abs(clip.samples) > 0.3 * np.abs(clip.samples).max())[0]
        assert abs(first - end * SAMPLE_RATE) < 8  # half a millisecond
        moved.append(len(clip.samples))
    assert len(set(moved)) > 4
    batch = gather_clips([clips.make(number) for number in range(8)])
    assert batch.lengths.tolist() == moved
    assert batch.samples.shape == (8, max(moved))
    assert bool((batch.samples[int(np.argmin(moved)), min(moved) :] == 0).all())


def test_nothing_overlaps(record: Recorder) -> None:
    """Every utterance is a constant of the same level: where two overlap there would be twice as much."""
    said = [Utterance(record(f"p{n}", constant(1 + n)), n, 0.2, 0.9) for n in range(3)]
    others = [Utterance(record("o", constant(2)), None, 0.5, 1.5)]
    dense = ClipSettings(**BARE, triggers=(1, 4), others=(2, 6), gap_s=(0.0, 0.3))
    clips = TriggerClips(said, others, [record("talk", constant(9))], [], dense)
    used = []
    for number in range(80):
        clip = clips.make(number)
        level = np.abs(clip.samples)
        assert level.max() == pytest.approx(0.1, rel=1e-4)  # -20 dB
        assert bool(np.all((level < 1e-6) | (level > 0.0999)))
        assert len(clip.ends) >= 1
        used.append(float((level > 0).mean()))
    assert np.mean(used) > 0.6


@given(
    lengths=st.lists(st.integers(1, 50_000), max_size=9),
    gaps=st.tuples(st.floats(0, 0.5), st.floats(0.5, 2.0)),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=150, deadline=None)
def test_pieces_lie_apart_and_inside(lengths: list[int], gaps: tuple[float, float], seed: int) -> None:
    clips = TriggerClips.__new__(TriggerClips)
    clips.settings, clips.room = ClipSettings(gap_s=gaps), 90_000
    pieces = [Piece(np.zeros(length, np.float32), number) for number, length in enumerate(lengths)]
    placed = sorted(clips._arrange(np.random.default_rng(seed), pieces), key=lambda one: one[0])
    edges = [edge for start, piece in placed for edge in (start, start + len(piece.samples))]
    assert edges == sorted(edges)
    assert not edges or (edges[0] >= 0 and edges[-1] <= 90_000)
    names = {piece.word for _, piece in placed}
    assert not lengths or 0 in names  # what comes first is never left out
    used = sum(len(piece.samples) for _, piece in placed)
    assert all(
        number in names or used + length > 90_000 - 9 * gaps[1] * 16_000 for number, length in enumerate(lengths)
    )


def test_the_same_number_is_the_same_clip_and_another_another(record: Recorder) -> None:
    noise = np.random.default_rng(1).normal(0, 0.1, 40_000)
    said = [Utterance(record("p", noise[:16_000]), 0, 0.2, 0.9)]
    sources = ([], [record("talk", noise)], [record("noise", noise[::-1].copy())])
    first, again, other = (
        TriggerClips(said, *sources, ClipSettings(), Augmenter(AugmentConfig(speed=Speed(0.5))), seed, batch=4)
        for seed in (1, 1, 2)
    )
    again.make(9)  # in any order
    for step in (2, 0):
        one, two = first(step), again(step)
        assert torch.equal(one.samples, two.samples)
        assert one.ends == two.ends
        assert not torch.equal(one.samples[0], one.samples[1])
    assert not torch.equal(first(0).samples[:, :60_000], other(0).samples[:, :60_000])
    assert np.array_equal(first.make(4 * 2 + 3).samples, first(2).samples[3][: first(2).lengths[3]].numpy())


def pattern(number: int, count: int = 32_000) -> np.ndarray:
    """A square wave with ``number`` samples a half period: what it was is seen in the distance of sign changes."""
    return np.where(np.arange(count) // number % 2, -0.2, 0.2).astype(np.float32)


def heard(samples: np.ndarray) -> int | None:
    changes = np.flatnonzero(np.diff(np.sign(samples)) * (samples[1:] != 0) * (samples[:-1] != 0))
    return int(np.median(np.diff(changes))) if len(changes) > 1 else None


def test_others_and_backgrounds_come_in_their_proportions(record: Recorder) -> None:
    said = [Utterance(record("p", pattern(5)), 0, 0.5, 1.5)]
    others = [Utterance(record("o", pattern(7)), None, 0.5, 1.5)]
    speech, noises = [record("s", pattern(11))], [record("n", pattern(13))]
    one_other = ClipSettings(**BARE, triggers=(0, 0), others=(1, 1), talk=0.4, broken_off=0.25)
    clips = TriggerClips(said, others, speech, noises, one_other)
    found = [heard(clips.make(number).samples) for number in range(300)]
    shares = {kind: found.count(kind) / 300 for kind in (5, 7, 11)}
    assert shares == pytest.approx({5: 0.25, 7: 0.35, 11: 0.4}, abs=0.08)

    quiet = ClipSettings(**BARE | {"silent": 0.2, "babble": 0.3}, triggers=(0, 0), others=(0, 0))
    clips = TriggerClips(said, others, speech, noises, quiet)
    found = [heard(clips.make(number).samples) for number in range(200)]
    shares = {kind: found.count(kind) / 200 for kind in (None, 11, 13)}
    assert shares == pytest.approx({None: 0.2, 11: 0.3, 13: 0.5}, abs=0.1)

    clips = TriggerClips(said, others, speech, noises, ClipSettings(**BARE))
    counts = [len(clips.make(number).ends) for number in range(200)]
    assert [counts.count(n) / 200 for n in range(3)] == pytest.approx([1 / 3] * 3, abs=0.1)


def test_a_trigger_that_breaks_off_is_none(record: Recorder) -> None:
    """It has the beginning of the word and at most ``broken_share`` of it; the word's last part never sounds."""
    samples = constant(2.0)
    samples[: round(0.5 * SAMPLE_RATE)] = 0.05  # before the word
    samples[round(1.2 * SAMPLE_RATE) :] = -0.25  # from 70 % on
    said = [Utterance(record("p", samples), 0, 0.5, 1.5)]
    only = ClipSettings(**BARE, triggers=(0, 0), others=(1, 1), talk=0.0, broken_off=1.0)
    clips = TriggerClips(said, [], [], [], only)
    for number in range(30):
        clip = clips.make(number)
        assert clip.ends == ()
        assert clip.samples.min() == 0
        loud = int((clip.samples > 0.5 * clip.samples.max()).sum()) / SAMPLE_RATE
        assert 0.3 <= loud <= 0.7


def test_the_cut_round_a_word_is_random_and_spares_the_word(record: Recorder) -> None:
    samples = constant(4.0, 0.5)
    samples[2 * SAMPLE_RATE : round(2.5 * SAMPLE_RATE)] = 0.25
    said = [Utterance(record("p", samples), 0, 2.0, 2.5)]
    clips = TriggerClips(said, [], [], [], ClipSettings(**BARE, triggers=(1, 1), others=(0, 0)))
    sizes = []
    for number in range(100):
        clip = clips.make(number)
        inside = clip.samples > 0.75 * clip.samples.max()
        assert int(inside.sum()) == SAMPLE_RATE // 2
        sizes.append(int((clip.samples != 0).sum()) / SAMPLE_RATE)
        assert round(clip.ends[0][1] * SAMPLE_RATE) == np.flatnonzero(inside)[-1] + 1
    whole = [size for size in sizes if size == 4.0]
    assert len(whole) / 100 == pytest.approx(0.3, abs=0.12)
    cut = np.array([size for size in sizes if size < 4.0])
    assert cut.min() >= 0.58
    assert cut.max() <= 1.5
    assert cut.std() > 0.1


def test_backgrounds_lie_under_everything_at_their_level(record: Recorder) -> None:
    said = [Utterance(record("p", constant(1)), 0, 0.0, 1.0)]
    bare = BARE | {"silent": 0.0}
    fixed = ClipSettings(**bare, triggers=(1, 1), others=(0, 0), below_db=(20, 20))
    clip = TriggerClips(said, [], [], [record("n", pattern(1, 50_000))], fixed).make(1)
    start = round(clip.ends[0][1] * SAMPLE_RATE) - SAMPLE_RATE
    word, rest = clip.samples[start : start + SAMPLE_RATE], np.delete(clip.samples, range(start, start + SAMPLE_RATE))
    assert np.abs(word - 0.1) == pytest.approx(0.01, rel=1e-3)
    assert np.abs(rest) == pytest.approx(0.01, rel=1e-3)
    alone = ClipSettings(**bare, triggers=(0, 0), others=(0, 0))
    clip = TriggerClips(said, [], [], [record("m", pattern(1, 50_000))], alone).make(1)
    assert np.abs(clip.samples) == pytest.approx(0.1, rel=1e-3)  # noise by itself is as loud as words are


def test_edges_fade_and_hiss_fills_silence(record: Recorder) -> None:
    said = [Utterance(record("p", constant(1)), 0, 0.0, 1.0)]
    faded = ClipSettings(**BARE | {"fade_s": 0.02}, triggers=(1, 1), others=(0, 0))
    samples = TriggerClips(said, [], [], [], faded).make(1).samples
    assert np.abs(np.diff(samples)).max() < 0.1 / 300
    hissing = ClipSettings(**BARE | {"hiss": 1.0}, hiss_db=(-60, -60), triggers=(0, 0), others=(0, 0))
    samples = TriggerClips(said, [], [], [], hissing).make(1).samples
    assert samples.std() == pytest.approx(1e-3, rel=0.02)


def test_every_second_of_a_source_is_as_likely(record: Recorder) -> None:
    source = Recordings([record("a", constant(1)), record("b", constant(3))], keep=False)
    rng = np.random.default_rng(1)
    found = [source.anywhere(rng) for _ in range(2000)]
    assert np.mean([number for number, _ in found]) == pytest.approx(0.75, abs=0.04)
    assert all(0 <= first < source.clips[number].duration * SAMPLE_RATE for number, first in found)
    assert np.mean([first for number, first in found if number == 1]) == pytest.approx(24_000, rel=0.05)


def test_parts_are_the_same_kept_or_read_anew(record: Recorder) -> None:
    wave = np.round(np.random.default_rng(1).normal(0, 0.1, 16_000) * 32768) / 32768
    clip = record("w", wave)
    for keep in (True, False):
        source = Recordings([clip], keep)
        assert np.allclose(source.part(0, 3000, 500), wave[3000:3500])
        assert len(source.part(0, 15_900, 500)) == 100
        assert np.allclose(source[0].samples, wave)


def test_a_word_without_times_is_where_sound_is(record: Recorder) -> None:
    samples = 1e-4 * np.random.default_rng(1).standard_normal(32_000)
    samples[8000:16_000] += constant(0.5)
    said = find_utterance(record("quiet", samples), 0)
    assert (said.start_s, said.end_s) == (0.5, 1.0)
    assert find_utterance(record("told", samples, word_start=0.1, word_end=0.3), None).end_s == 0.3
    assert active_span(np.zeros(3)) == (0.0, 3 / SAMPLE_RATE)
    with pytest.raises(InputError, match=r"from 0\.1 to 9"):
        find_utterance(record("wrong", samples, word_start=0.1, word_end=9), 0)


def test_a_silent_recording_stays_silent(record: Recorder) -> None:
    said = [Utterance(record("p", np.zeros(16_000)), 0, 0.0, 1.0)]
    clip = TriggerClips(said, said, [], [record("n", np.zeros(8000))], ClipSettings(hiss=0.0)).make(2)
    assert bool((clip.samples == 0).all())


def test_mistakes_are_named(record: Recorder) -> None:
    with pytest.raises(ConfigError, match=r"gap_s is \(1, 0\).*talk_s"):
        ClipSettings(gap_s=[1, 0], talk_s=3.0)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"whole is 2.*talk \+ broken_off is 1\.1.*more than tail_s"):
        ClipSettings(whole=2.0, talk=0.6, broken_off=0.5, seconds=0.2)
    with pytest.raises(ConfigError, match="triggers is"):
        ClipSettings(triggers=(-1, 2))
    clip = record("p", constant(3))
    with pytest.raises(InputError, match="give positives"):
        TriggerClips([], [], [], [], ClipSettings())
    with pytest.raises(InputError, match="each with its word"):
        TriggerClips([Utterance(clip, None, 0, 1)], [], [], [], ClipSettings())
    with pytest.raises(InputError, match=r"2\.90 s does not fit"):
        TriggerClips([Utterance(clip, 0, 0, 2.9)], [], [], [], ClipSettings(seconds=3))


def test_a_folder_is_a_source_too(record: Recorder, tmp_path: Path) -> None:
    (tmp_path / "hey luna" / "anna").mkdir(parents=True)
    for name in ("hey luna/anna/1", "hey luna/2", "3"):
        record(name, constant(0.5))
    (tmp_path / "notes.txt").write_text("no audio")
    clips = {clip.id: clip for clip in read_source(tmp_path, "computer")}
    assert {key: (clip.extra["word"], clip.speaker) for key, clip in clips.items()} == {
        "hey luna/anna/1.wav": ("hey luna", "anna"),
        "hey luna/2.wav": ("hey luna", None),
        "3.wav": ("computer", None),
    }
    assert clips["3.wav"].duration == 0.5
    assert read_source(tmp_path)[0].extra == {}
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no audio"):
        read_source(tmp_path / "empty")


def test_processes_share_a_batch(record: Recorder) -> None:
    said = [Utterance(record("p", constant(1)), 0, 0.0, 1.0)]
    clips = TriggerClips(said, [], [], [], ClipSettings(), batch=4)
    whole, parts = clips(3), [clips(3, rank, 2) for rank in range(2)]
    assert torch.equal(torch.stack([part.samples for part in parts], 1).flatten(0, 1), whole.samples)


def test_a_recording_that_gives_a_sample_more_is_cut(record: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """As telephone talk does that is brought to 16 kHz."""
    word = Utterance(record("word", constant(0.5)), 0, 0.0, 0.5)
    settings = ClipSettings(seconds=2.0, babble=1.0, silent=0.0, hiss=1.0, triggers=(1, 1), others=(0, 0))
    clips = TriggerClips([word], [], [record("talk", constant(9.0))], [], settings, seed=3)
    longer = lambda self, rng, source, count: constant((count + 1) / SAMPLE_RATE)  # noqa: E731
    monkeypatch.setattr(TriggerClips, "_from_anywhere", longer)
    assert len(clips.make(0).samples) == 32_000
