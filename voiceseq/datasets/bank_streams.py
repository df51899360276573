"""From manifests to what a listener would hear for hours: clips joined to streams, part of them made harder.

A *scene* is half a minute of clips of one corpus with short gaps, over the faint noise that every room has; chance
decides whether it is augmented, as a whole, so that its noise and its room go on through the gaps. Scenes follow one
another to a stream.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from voiceseq.audio.augment import AugmentConfig, Augmenter, Codec, Equaliser, Gain, Noise, RoomEffect, Speed
from voiceseq.audio.files import read_clip
from voiceseq.datasets.bank import KINDS, Stream, Utterance, those_that_fit, write_bank
from voiceseq.datasets.manifest import Clip, held_out, read_manifest
from voiceseq.datasets.recordings import Recordings
from voiceseq.errors import ConfigError, InputError

Samples = NDArray[np.float32]
Listen = Callable[[Samples], NDArray[np.float32]]

SAMPLE_RATE = 16_000
SCENE_S, STREAM_S = 30.0, 600.0
GAP_S = (0.1, 0.5)
FLOOR_DB = (-75.0, -50.0)  # the noise of an empty room, below full scale
FADE = 80  # samples: a clip that begins at full level clicks
PASSES = 3  # so often the same noise and music are heard at most, slower or faster each time but the first

# ESC-50 as a whole forbids commercial use; these ten classes of it are given away apart, under CC BY
ESC_10 = {"dog", "rooster", "rain", "sea_waves", "crackling_fire", "crying_baby", "sneezing"}
ESC_10 |= {"clock_tick", "helicopter", "chainsaw"}

# What makes other noise of the same noise, other music of the same music
CHANGED = AugmentConfig(
    speed=Speed(1.0, (0.7, 1.4)),
    room=RoomEffect(0.3),
    noise=Noise(0.0),
    equaliser=Equaliser(0.7, (-12.0, 12.0)),
    gain=Gain(0.7),
    codec=Codec(0.1),
)


@dataclass(frozen=True)
class Source:
    """The clips of one corpus, all of one kind and licence."""

    name: str
    kind: str
    licence: str
    clips: tuple[Clip, ...]

    @property
    def hours(self) -> float:
        return sum(clip.duration for clip in self.clips) / 3600


class Piece(NamedTuple):
    """Samples, and what is said in them: ``(first sample, end sample, text)``."""

    samples: Samples
    said: list[tuple[float, float, str | None]]


# --- what goes in ----------------------------------------------------------------------------------------------------


def gather(
    manifests: Mapping[str, Sequence[str | Path]],
    licences: Mapping[str, str],
    held_out_share: float = 0.22,
    classes: Sequence[str] = (),
) -> list[Source]:
    """The corpora in ``manifests`` (kind -> manifests), less what is kept for tests or may not be given away.

    A source is named by its rows' ``package``, else by their ``source`` up to a colon, else by the manifest's folder;
    its licence is its rows', else that of ``licences``. Left out are rows that say another kind or a ``share`` other
    than train, speakers that are ``held_out``, and, where ``classes`` are given, rows of another ``licence_class``.
    Raises InputError where a manifest cannot be read, a licence is nowhere stated, or nothing is left.
    """
    found: dict[tuple[str, str, str], list[Clip]] = defaultdict(list)
    for kind, paths in manifests.items():
        if kind not in KINDS:
            raise InputError(f"a manifest of kind {kind!r} came; {', '.join(KINDS)} were wanted")
        for path in paths:
            for clip in read_manifest(path):
                if _ships(clip, kind, held_out_share, classes):
                    name, licence = _origin(clip, Path(path), licences)
                    found[kind, name, licence].append(clip)
    if not found:
        raise InputError("nothing of these manifests may go into a bank: all of it is kept for tests or refused")
    return [Source(name, kind, licence, tuple(clips)) for (kind, name, licence), clips in found.items()]


def _origin(clip: Clip, path: Path, licences: Mapping[str, str]) -> tuple[str, str]:
    """The name of the source of a clip, and its licence."""
    row = clip.extra
    name = row.get("package") or str(row.get("source") or "").partition(":")[0] or path.resolve().parent.name
    licence = row.get("licence") or licences.get(str(name))
    if not licence:
        raise InputError(f"{path} states no licence for {name!r}; give it: --licence {name}=LICENCE")
    return str(name), str(licence)


def _ships(clip: Clip, kind: str, held_out_share: float, classes: Sequence[str]) -> bool:
    said = clip.extra
    if (said.get("kind") in KINDS and said["kind"] != kind) or said.get("share", "train") != "train":
        return False
    if clip.id.startswith("esc-") and said.get("label") not in ESC_10:
        return False
    if classes and said.get("licence_class", classes[0]) not in classes:
        return False
    return clip.speaker is None or not held_out(clip.speaker, held_out_share)


def share_out(sources: Sequence[Source], hours: Mapping[str, float], rng: np.random.Generator) -> list[Source]:
    """As many hours of each kind as are wanted, alike from every source; small sources are taken whole."""
    chosen = []
    for kind, wanted in hours.items():
        left, waiting = wanted, sorted((s for s in sources if s.kind == kind), key=lambda source: source.hours)
        for number, source in enumerate(waiting):
            clips = _some(source.clips, left / (len(waiting) - number), rng)
            chosen.append(replace(source, clips=clips))
            left -= chosen[-1].hours
    return [source for source in chosen if source.clips]


def further_passes(chosen: Sequence[Source], hours: Mapping[str, float]) -> list[Source]:
    """Noise and music once more, and again, as often as it takes to fill their hours."""
    again = []
    for kind in hours.keys() - {"speech"}:
        mine = [source for source in chosen if source.kind == kind]
        once = sum(source.hours for source in mine)
        times = min(PASSES, round(hours[kind] / once)) if once else 0
        again += (times - 1) * mine
    return sorted(again, key=lambda source: (source.kind, source.name))


def _some(clips: Sequence[Clip], hours: float, rng: np.random.Generator) -> tuple[Clip, ...]:
    order = rng.permutation(len(clips))
    ends = np.cumsum([clips[place].duration for place in order]) / 3600
    return tuple(clips[place] for place in order[: int(np.searchsorted(ends, hours * (1 + 1e-9), side="right"))])


# --- how it sounds ---------------------------------------------------------------------------------------------------


def scenes(clips: Iterable[Clip], rng: np.random.Generator) -> Iterator[Piece]:
    """Clips in their order, joined with gaps to pieces of about ``SCENE_S``."""
    parts: list[Samples] = []
    said: list[tuple[float, float, str | None]] = []
    length = 0
    for clip in clips:
        samples = faded(read_clip(clip.audio, clip.offset, clip.duration, SAMPLE_RATE))
        gap = np.zeros(round(rng.uniform(*GAP_S) * SAMPLE_RATE), np.float32)
        said.append((length, length + len(samples), clip.text))
        parts += [samples, gap]
        length += len(samples) + len(gap)
        if length >= SCENE_S * SAMPLE_RATE:
            yield Piece(with_floor(np.concatenate(parts), rng), said)
            parts, said, length = [], [], 0
    if parts:
        yield Piece(with_floor(np.concatenate(parts), rng), said)


def faded(samples: Samples) -> Samples:
    """Without a click at either end."""
    size = min(FADE, len(samples) // 2)
    ramp = np.linspace(0, 1, size, dtype=np.float32)
    return np.concatenate([samples[:size] * ramp, samples[size : len(samples) - size], samples[-size:] * ramp[::-1]])


def with_floor(samples: Samples, rng: np.random.Generator) -> Samples:
    """Over the noise of a room that is never digitally silent: more of it in the lows, as air and mains have."""
    from scipy.signal import lfilter

    noise = lfilter([1.0], [1.0, -0.9], rng.standard_normal(len(samples))) * math.sqrt(1 - 0.9**2)
    return samples + (10 ** (rng.uniform(*FLOOR_DB) / 20) * noise).astype(np.float32)


def hardened(piece: Piece, augmenter: Augmenter, rng: np.random.Generator) -> Piece:
    """The piece through the augmenter; what is said moves with it."""
    chance = torch.Generator().manual_seed(int(rng.integers(2**62)))
    hard = augmenter(piece.samples, SAMPLE_RATE, chance)
    samples = np.clip(hard.samples, -1, 1)
    return Piece(samples, [(hard.moved(start), hard.moved(end), text) for start, end, text in piece.said])


def long_streams(
    source: Source, rng: np.random.Generator, augmenter: Augmenter | None = None, share: float = 0.0
) -> Iterator[Piece]:
    """The clips of a source as streams of about ``STREAM_S``; ``share`` of the scenes augmented."""
    parts: list[Piece] = []
    length = 0
    for piece in scenes(by_speaker(source.clips, rng), rng):
        if augmenter is not None and rng.random() < share:
            piece = hardened(piece, augmenter, rng)
        parts.append(piece)
        length += len(piece.samples)
        if length >= STREAM_S * SAMPLE_RATE:
            yield joined(parts)
            parts, length = [], 0
    if parts:
        yield joined(parts)


def by_speaker(clips: Sequence[Clip], rng: np.random.Generator) -> list[Clip]:
    """Speakers in a random order, and so the clips of each: a voice is in few streams, which can be kept apart.

    Clips of nobody are each a voice of their own.
    """
    voices = [clip.speaker or f"nobody:{number}" for number, clip in enumerate(clips)]
    turns = dict(zip(dict.fromkeys(voices), rng.permutation(len(set(voices))), strict=True))
    order = sorted(rng.permutation(len(clips)), key=lambda place: turns[voices[place]])
    return [clips[place] for place in order]


def joined(pieces: Sequence[Piece]) -> Piece:
    starts = np.cumsum([0, *(len(piece.samples) for piece in pieces)])
    said = [
        (start + at, start + to, text)
        for start, piece in zip(starts, pieces, strict=False)
        for at, to, text in piece.said
    ]
    return Piece(np.concatenate([piece.samples for piece in pieces]), said)


# --- the bank --------------------------------------------------------------------------------------------------------


def build_bank(
    sources: Sequence[Source],
    listen: Listen,
    backbone: str,
    folder: str | Path,
    *,
    frame_s: float,
    hours: Mapping[str, float],
    augment: AugmentConfig,
    share: float = 0.5,
    seed: int = 1,
    most: int | None = None,
    told: Callable[[str], None] = lambda text: None,
) -> Path:
    """Join, make harder, listen, write. The same sources, settings and seed give the same bank.

    Args:
        listen: a whole stream ``(n,)`` at 16 kHz -> frames ``(time, size)``, one every ``frame_s``.
        backbone: sha256 of the weights that listen.
        hours: of each kind at most; sources of a kind get alike, as far as they reach.
        share: of the scenes of speech that are augmented. Noise and music are left as they are; where there are too
            few hours of them they are heard again, changed. The noises mixed in are the bank's own.
        most: bytes of the bank, else 40 MB.
            What does not fit is left out, of every kind the same share.
        told: hears how far it is, and what was left out.

    Raises InputError where nothing is left.
    """
    if not 0 <= share <= 1:
        raise ConfigError(f"{share} of the speech was to be augmented; a share from 0 to 1 was wanted")
    rng = np.random.default_rng(seed)
    noises = Recordings([clip for source in sources if source.kind != "speech" for clip in source.clips], keep=False)
    if not noises:
        augment = replace(augment, noise=replace(augment.noise, probability=0.0))
    augmenter, changed = Augmenter(augment, noises), Augmenter(CHANGED)
    streams, heard_s = [], 0.0
    chosen = share_out(sources, hours, rng)
    again = further_passes(chosen, hours)
    for place, source in enumerate([*chosen, *again]):
        if source.kind == "speech":
            pieces = long_streams(source, rng, augmenter, share)
        else:
            pieces = long_streams(source, rng, changed, float(place >= len(chosen)))
        for piece in pieces:
            streams.append(heard(piece, source, listen, frame_s))
            heard_s += len(piece.samples) / SAMPLE_RATE
            told(f"{heard_s / 3600:.2f} h: {source.kind}, {source.name}")
    fitting = those_that_fit(streams, most)
    if lost := sum(len(stream.frames) for stream in streams) - sum(len(stream.frames) for stream in fitting):
        told(f"{lost * frame_s / 3600:.2f} h were left out: they do not fit")
    stated: dict[str, dict[str, None]] = {}  # each licence of a source once, in their order
    for source in sources:
        stated.setdefault(source.name, {}).update(dict.fromkeys(source.licence.split(", ")))
    licences = {name: ", ".join(names) for name, names in stated.items()}
    settings = {"augment": asdict(augment), "augmented share": share, "seed": seed}
    return write_bank(fitting, backbone, folder, frame_s=frame_s, licences=licences, most=most, extra=settings)


def heard(piece: Piece, source: Source, listen: Listen, frame_s: float) -> Stream:
    """What the backbone makes of a stream, with the utterances at their frames."""
    frames = listen(piece.samples)
    step = frame_s * SAMPLE_RATE
    placed = [
        (max(0, int(start // step)), min(math.ceil(end / step), len(frames)), text) for start, end, text in piece.said
    ]
    said = tuple(Utterance(*one) for one in placed if source.kind == "speech" and one[0] < one[1])
    return Stream(source.kind, source.name, frames, said)
