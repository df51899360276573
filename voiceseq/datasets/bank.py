"""The bank of negatives: hours of speech, noise and music as a backbone's frames, so that no corpus need be at hand.

    bank = Bank.load("negatives", backbone=weights_sha256(backbone_bundle))
    for stream in bank.streams(leave_out=["hey luna"]):
        stream.kind, stream.source, stream.frames      # (time, size) in -1..1, a frame every bank.frame_s

Streams are continuous: what is in them was heard one after the other, by a backbone that had long been listening. The
frames of one backbone mean nothing to another, so a bank names its own by the sha256 of the weights. A bank is a
bundle (kind ``bank``): entropy-coded levels in files of at most 20 MB, and what is said where.
"""

import json
import lzma
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from voiceseq.bundles import Bundle, load_bundle, save_bundle
from voiceseq.bundles.stores import WEIGHTS
from voiceseq.datasets.frame_codec import Codes, FrameCoder, Frames, dequantise, quantise
from voiceseq.errors import BundleError, InputError
from voiceseq.text.normalise import normalise

KINDS = ("speech", "noise", "music")
LEVELS = (64, 48, 32, 24, 16)  # the finest that fits is taken
MAX_FILE, MAX_BANK = 20_000_000, 40_000_000  # bytes
ROOM = 0.98  # of them; the rest is for what is said where
MAX_UNPACKED = 1 << 28
SAID, TABLE = "utterances.json.xz", "frequencies.xz"
AFTER_S = 0.3  # what was said is heard in the frames a little after its end


@dataclass(frozen=True)
class Utterance:
    """What is said in the frames ``start`` to ``end`` (not in it); ``text`` is None where nobody wrote it down."""

    start: int
    end: int
    text: str | None = None

    def says(self, phrases: Iterable[Sequence[str]]) -> bool:
        """Whether one of the phrases, as words, is in the text."""
        words = (self.text or "").split()
        return any(
            list(phrase) == words[place : place + len(phrase)] for phrase in phrases for place in range(len(words))
        )


@dataclass(frozen=True)
class Stream:
    """``frames (time, size)`` of continuous sound of one kind, from one source."""

    kind: str
    source: str
    frames: Frames = field(repr=False)
    utterances: tuple[Utterance, ...] = ()

    def without(self, phrases: Sequence[Sequence[str]], after: int) -> Iterator[Self]:
        """What is left between the utterances that say one of ``phrases``, ``after`` frames more cut off them."""
        start = 0
        cuts = [(said.start, said.end + after) for said in self.utterances if said.says(phrases)]
        for first, end in [*cuts, (len(self.frames), len(self.frames))]:
            if first > start:
                inside = [said for said in self.utterances if start <= said.start and said.end <= first]
                moved = tuple(Utterance(said.start - start, said.end - start, said.text) for said in inside)
                yield replace(self, frames=self.frames[start:first], utterances=moved)
            start = max(start, end)


@dataclass(frozen=True)
class Entry:
    """Where a stream lies: ``size`` bytes of ``file`` from ``start`` on, and what it holds."""

    kind: str
    source: str
    time: int
    file: str
    start: int
    size: int


@dataclass(frozen=True)
class BankConfig:
    """``backbone``: sha256 of the weights whose frames these are; ``size`` numbers a frame, of so many ``levels``."""

    backbone: str
    frame_s: float
    size: int
    levels: int
    entries: tuple[Entry, ...]


class Bank:
    """An opened bank: streams are decoded when they are asked for."""

    def __init__(self, bundle: Bundle, config: BankConfig) -> None:
        self.bundle, self.config = bundle, config
        self._coder = FrameCoder(_read_table(bundle, config))
        self._utterances = _read_utterances(bundle, config)
        self._files: dict[str, bytes] = {}

    @classmethod
    def load(cls, name_or_path: str | Path, backbone: str | None = None) -> Self:
        """Open and check a bank; ``backbone`` is the sha256 of the weights that are to work with it.

        Raises BundleError when it is damaged, no bank, or another backbone's.
        """
        bundle = load_bundle(name_or_path)
        if bundle.kind != "bank":
            raise BundleError(f"{bundle.path} is a bundle of kind {bundle.kind!r}; a bank was wanted")
        config = bundle.config_as(BankConfig)
        if backbone is not None and backbone != config.backbone:
            raise BundleError(
                f"{bundle.path} holds frames of the backbone {config.backbone[:12]}, which the backbone "
                f"{backbone[:12]} does not understand: use its own backbone, or build a bank anew"
            )
        return cls(bundle, config)

    @property
    def frame_s(self) -> float:
        """Seconds from one frame to the next."""
        return self.config.frame_s

    @property
    def hours(self) -> dict[str, float]:
        """Hours of each kind."""
        times = {kind: sum(entry.time for entry in self.config.entries if entry.kind == kind) for kind in KINDS}
        return {kind: time * self.frame_s / 3600 for kind, time in times.items() if time}

    def __len__(self) -> int:
        return len(self.config.entries)

    def __getitem__(self, place: int) -> Stream:
        entry = self.config.entries[place]
        data = self._data(entry.file)[entry.start : entry.start + entry.size]
        frames = dequantise(self._coder.decode(data, entry.time), self.config.levels)
        return Stream(entry.kind, entry.source, frames, self._utterances[place])

    def __iter__(self) -> Iterator[Stream]:
        return (self[place] for place in range(len(self)))

    def streams(self, kinds: Sequence[str] = KINDS, leave_out: Iterable[str] = ()) -> Iterator[Stream]:
        """The streams of these kinds, cut where an utterance says one of the phrases in ``leave_out``."""
        phrases = [tuple(normalise(phrase).split()) for phrase in leave_out]
        after = round(AFTER_S / self.frame_s)
        for place, entry in enumerate(self.config.entries):
            if entry.kind in kinds:
                yield from self[place].without([phrase for phrase in phrases if phrase], after)

    def texts(self) -> Iterator[str]:
        """What is said in the bank, utterance by utterance, as far as it is known."""
        return (said.text for row in self._utterances for said in row if said.text)

    def _data(self, file: str) -> bytes:
        if file not in self._files:
            self._files[file] = self.bundle.read(file)
        return self._files[file]


def weights_sha256(bundle: Bundle) -> str:
    """By what a bank knows its backbone. Raises BundleError for a bundle without weights."""
    if WEIGHTS not in bundle.files:
        raise BundleError(f"{bundle.path} has no weights; a backbone was wanted")
    return bundle.files[WEIGHTS].sha256


# --- writing ---------------------------------------------------------------------------------------------------------


def write_bank(
    streams: Sequence[Stream],
    backbone: str,
    folder: str | Path,
    *,
    frame_s: float,
    licences: Mapping[str, str],
    name: str = "negatives",
    levels: Sequence[int] = LEVELS,
    most: int | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Path:
    """Write the streams as a bundle, with the first of ``levels`` that keeps it within ``most`` bytes, else 40 MB.

    ``backbone`` is the sha256 of the weights that made the frames; ``licences`` has that of every source.
    Raises InputError for no streams, other numbers than -1..1, a source without a licence, and what never fits.
    """
    _check(streams, licences)
    most = MAX_BANK if most is None else most
    said = _pack([[[u.start, u.end, u.text] for u in stream.utterances] for stream in streams])
    for count in levels:
        coder, coded, table = _coded(streams, count)
        total = sum(map(len, coded)) + len(table) + len(said)
        if total <= most:
            break
    else:
        hours = sum(len(stream.frames) for stream in streams) * frame_s / 3600
        raise InputError(
            f"{hours:.1f} h take {total / 1e6:.1f} MB at {count} levels; at most {most / 1e6:g} MB were wanted: "
            f"about {hours * most / total:.1f} h fit"
        )
    entries, files = _filed(streams, coded)
    config = BankConfig(backbone, frame_s, coder.size, count, entries)
    data = _sources(config, licences)
    return save_bundle(
        folder,
        kind="bank",
        name=name,
        config=asdict(config),
        files={**files, SAID: said, TABLE: table},
        card=_card(name, config, data, total),
        training={"data": data},
        licence="; ".join(sorted({row["licence"] for row in data})),
        extra=dict(extra or {}),
    )


def those_that_fit(streams: Sequence[Stream], most: int | None = None, levels: int = LEVELS[-1]) -> list[Stream]:
    """The streams less the last of each kind, where all of them would take more than ``most`` bytes (else 40 MB)."""
    _, coded, table = _coded(streams, levels)
    sizes = [len(data) for data in coded]
    room = (ROOM * (MAX_BANK if most is None else most) - len(table)) / sum(sizes)
    whole, taken, kept = Counter[str](), Counter[str](), []
    for stream, size in zip(streams, sizes, strict=True):
        whole[stream.kind] += size
    for stream, size in zip(streams, sizes, strict=True):
        taken[stream.kind] += size
        if taken[stream.kind] <= room * whole[stream.kind]:
            kept.append(stream)
    return kept


def _check(streams: Sequence[Stream], licences: Mapping[str, str]) -> None:
    if not any(len(stream.frames) for stream in streams):
        raise InputError("a bank of nothing was asked for; streams with frames were wanted")
    for stream in streams:
        if stream.kind not in KINDS:
            raise InputError(f"a stream is of kind {stream.kind!r}; one of {', '.join(KINDS)} was wanted")
        if stream.source not in licences:
            raise InputError(f"the licence of {stream.source!r} is not stated; a bank names that of every source")
        if any(not 0 <= said.start <= said.end <= len(stream.frames) for said in stream.utterances):
            raise InputError(
                f"an utterance of {stream.source!r} lies outside its stream of {len(stream.frames)} frames"
            )
    if len(sizes := {stream.frames.shape[1:] for stream in streams}) > 1:
        raise InputError(f"frames of sizes {sorted(sizes)} came; one backbone's were wanted")


def _coded(streams: Sequence[Stream], levels: int) -> tuple[FrameCoder, list[bytes], bytes]:
    """The coder, what it made of the streams, and its table."""
    codes: list[Codes] = [quantise(stream.frames, levels) for stream in streams]
    coder = FrameCoder.learn(codes, codes[0].shape[1], levels)
    table = lzma.compress(coder.frequencies.astype("<u2").tobytes())
    return coder, [coder.encode(one) for one in codes], table


def _filed(streams: Sequence[Stream], coded: Sequence[bytes]) -> tuple[tuple[Entry, ...], dict[str, bytes]]:
    """Streams laid one after the other into files, a new one where the last would grow too large."""
    parts: list[list[bytes]] = [[]]
    entries = []
    start = 0
    for stream, data in zip(streams, coded, strict=True):
        if start + len(data) > MAX_FILE:
            parts.append([])
            start = 0
        parts[-1].append(data)
        file = f"streams-{len(parts) - 1:02}.bin"
        entries.append(Entry(stream.kind, stream.source, len(stream.frames), file, start, len(data)))
        start += len(data)
    return tuple(entries), {f"streams-{number:02}.bin": b"".join(part) for number, part in enumerate(parts)}


def _sources(config: BankConfig, licences: Mapping[str, str]) -> list[dict[str, Any]]:
    """The sources with their kinds, licences and hours, as the card and the manifest list them."""
    times: dict[tuple[str, str], int] = {}
    for entry in config.entries:
        times[entry.source, entry.kind] = times.get((entry.source, entry.kind), 0) + entry.time
    return [
        {"name": name, "kind": kind, "licence": licences[name], "hours": round(time * config.frame_s / 3600, 3)}
        for (name, kind), time in times.items()
    ]


def _card(name: str, config: BankConfig, data: Sequence[Mapping[str, Any]], size: int) -> str:
    hours = sum(row["hours"] for row in data)
    rows = [f"| {row['name']} | {row['kind']} | {row['hours']:.2f} | {row['licence']} |" for row in data]
    return "\n".join(
        [
            f"# {name}",
            "",
            f"A bank of negatives for voiceseq: {hours:.1f} hours of speech, noise and music, not as sound but as the",
            f"{config.size} numbers that a backbone makes of them every {config.frame_s * 1000:g} ms, rounded to",
            f"{config.levels} levels ({size / 1e6:.1f} MB). They serve to train wake words, to mine false alarms and",
            "to set thresholds.",
            "",
            f"Backbone: sha256 of its weights `{config.backbone}`; to any other these numbers mean nothing.",
            "",
            "| source | kind | hours | licence |",
            "|---|---|---:|---|",
            *rows,
            "",
        ]
    )


def _pack(value: Any) -> bytes:
    return lzma.compress(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


# --- reading ---------------------------------------------------------------------------------------------------------


def _unpacked(bundle: Bundle, name: str) -> bytes:
    """A packed file, unless it unpacks to more than any bank has. Raises BundleError."""
    try:
        unpacker = lzma.LZMADecompressor()
        data = unpacker.decompress(bundle.read(name), MAX_UNPACKED)
    except lzma.LZMAError as error:
        raise BundleError(f"{bundle.path}: {name} cannot be unpacked ({error}): get the bank again") from error
    if not unpacker.eof:
        raise BundleError(f"{bundle.path}: {name} is cut, or unpacks to more than a bank has: get the bank again")
    return data


def _read_table(bundle: Bundle, config: BankConfig) -> np.ndarray:
    shape = (config.size, config.levels + 1, config.levels)
    data = _unpacked(bundle, TABLE)
    if not 2 <= config.levels <= 256 or config.size < 1 or len(data) != 2 * math.prod(shape):
        raise BundleError(f"{bundle.path}: {TABLE} is not of {config.size} numbers in {config.levels} levels")
    return np.frombuffer(data, "<u2").reshape(shape)


def _read_utterances(bundle: Bundle, config: BankConfig) -> list[tuple[Utterance, ...]]:
    try:
        rows = json.loads(_unpacked(bundle, SAID))
        found = [tuple(Utterance(int(start), int(end), text) for start, end, text in row) for row in rows]
    except (ValueError, TypeError) as error:
        raise BundleError(f"{bundle.path}: {SAID} is garbled ({error}): get the bank again") from error
    if len(found) != len(config.entries):
        raise BundleError(f"{bundle.path}: {SAID} is of {len(found)} streams; {len(config.entries)} were wanted")
    return found
