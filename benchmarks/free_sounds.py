"""Hours of music, noise and speech that a shipped model may be trained and tested on, out of Debian packages.

    python benchmarks/free_sounds.py FOLDER [PACKAGE ...]

Games and desktops come with music and effects under free licences. This fetches the packages of free_sounds.tsv
(about 1.7 GB, by ``apt-get download`` on a Debian 12 system; nothing is installed) and writes mono flac at 16 kHz:

- music: up to three excerpts of 25 to 60 s of each track;
- noise: effects in random order, joined to streams of 30 s with random gaps and levels, in several passes, each but
  the first at other speeds; long recordings as excerpts;
- speech: spoken clips joined to streams, as recorded.

FOLDER/music/manifest.jsonl (noise, speech alike) names each clip: id, audio (below FOLDER), offset, duration, kind,
package, track, licence, licence_class and share. ``share`` is by package: what tests is never heard in training.
The licences are those of the packages' copyright files. A package that is there already is not made again.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from voiceseq.audio.files import Samples, audio_info, read_audio, write_audio
from voiceseq.errors import AudioError

RATE, STREAM_S, EXCERPT_S, EXCERPTS = 16_000, 30.0, 60.0, 3
SHORT_S = 12.0  # an effect up to this long goes into streams whole; of a longer one come excerpts
PASSES, NOISE_S = 12, 900.0  # effects are played again, at other speeds, at most this often, up to this much a package
SUFFIXES = {".ogg", ".oga", ".opus", ".wav", ".flac", ".mp3", ".wv"}


class Source(NamedTuple):
    """Sounds of one package, a line of the table: those of its files whose path has ``pattern`` in it."""

    package: str
    kind: str
    share: str
    licence: str
    licence_class: str  # permissive, share-alike or gpl
    pattern: str


def sources() -> list[Source]:
    lines = Path(__file__).with_suffix(".tsv").read_text().splitlines()
    return [Source(*line.split("\t")) for line in lines[1:]]


def unpacked(package: str, raw: Path) -> Path:
    """The files of a package, archives of games among them opened."""
    folder = raw / package
    if not folder.exists():
        raw.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", "-q", package], cwd=raw, check=True)
        (archive,) = raw.glob(f"{package}_*.deb")
        subprocess.run(["dpkg-deb", "-x", archive.name, f"{package}.part"], cwd=raw, check=True)
        (raw / f"{package}.part").rename(folder)
        archive.unlink()
    for pack in folder.rglob("*.pk3"):
        with zipfile.ZipFile(pack) as content:
            content.extractall(pack.with_suffix(""))
        pack.unlink()
    return folder


def sounds(source: Source, folder: Path) -> list[tuple[Path, float]]:
    """The sound files of a source and how long they are, in an order that is always the same."""
    found = []
    for path in sorted(folder.rglob("*")):
        inside = "/" + path.relative_to(folder).as_posix()
        if path.suffix.lower() in SUFFIXES and not path.is_symlink() and re.search(source.pattern, inside):
            try:
                found.append((path, audio_info(path).duration_s or 0.0))
            except AudioError as error:
                print(f"left out: {error}", file=sys.stderr)
    return found


def excerpts(path: Path, seconds: float, longest: float, draw: np.random.Generator) -> Iterator[Samples]:
    """Parts of a recording, no two of them overlapping, and none of them silent."""
    count = max(1, min(EXCERPTS, int(seconds // longest)))
    length, room = min(longest, seconds), seconds / count
    for number in range(count):
        start = number * room + draw.uniform(0, room - length)
        samples = read_audio(path, sample_rate=RATE, offset_s=start, duration_s=length).samples
        if np.sqrt(np.mean(samples**2)) > 1e-3:
            yield samples


def levelled(samples: Samples, decibels: float) -> Samples:
    """Samples whose loud half has this level below full scale; never clipped."""
    loud = np.sqrt(np.mean(np.sort(samples**2)[len(samples) // 2 :])) + 1e-9
    return np.float32(min(10 ** (decibels / 20) / loud, 0.98 / (np.abs(samples).max() + 1e-9))) * samples


def effects(files: list[tuple[Path, float]], draw: np.random.Generator) -> Iterator[tuple[str, Samples]]:
    """Effects one after the other, pass after pass: a pass at other speeds is another sound."""
    for turn in range(PASSES):
        for index in draw.permutation(len(files)):
            path, _ = files[index]
            speed = 1.0 if turn == 0 else float(np.exp(draw.uniform(-0.5, 0.35)))
            samples = read_audio(path, sample_rate=round(RATE / speed)).samples
            if len(samples) > RATE // 50:
                yield path.stem, levelled(samples, draw.uniform(-38, -14))


def streams(parts: Iterator[tuple[str, Samples]], pause_s: float, draw: np.random.Generator) -> Iterator[tuple]:
    """Parts joined, with pauses, to streams of at least ``STREAM_S``; with each the names of its parts."""
    names: list[str] = []
    joined: list[Samples] = []
    for name, samples in parts:
        pause = np.zeros(int(RATE * min(draw.exponential(pause_s), 4 * pause_s)), np.float32)
        names, joined = [*names, name], [*joined, samples, pause]
        if sum(map(len, joined)) >= STREAM_S * RATE:
            yield " ".join(dict.fromkeys(names)), np.concatenate(joined)
            names, joined = [], []
    if sum(map(len, joined)) >= STREAM_S / 3 * RATE:
        yield " ".join(dict.fromkeys(names)), np.concatenate(joined)


def clips(source: Source, folder: Path) -> Iterator[tuple[str, Samples]]:
    """Track and samples of every clip that a source gives."""
    draw = np.random.default_rng(zlib.crc32(f"{source.package} {source.kind}".encode()))
    files = sounds(source, folder)
    if source.kind == "speech":
        parts = ((str(f.relative_to(folder)), read_audio(f, sample_rate=RATE).samples) for f, _ in files)
        yield from streams(parts, 0.5, draw)
        return
    shortest, longest = (25.0, EXCERPT_S) if source.kind == "music" else (SHORT_S, STREAM_S)
    for path, seconds in files:
        if seconds >= shortest:
            track = f"{path.parent.name}/{path.stem}"
            yield from ((track, samples) for samples in excerpts(path, seconds, longest, draw))
    if source.kind == "noise":
        made = 0.0
        for track, samples in streams(effects([f for f in files if f[1] < shortest], draw), 0.35, draw):
            yield track, samples
            made += len(samples) / RATE
            if made > NOISE_S:
                break


def make(source: Source, root: Path) -> list[dict]:
    """Write the clips of one source, unless they are there; rows of the manifest."""
    listed = root / source.kind / f"{source.package}.jsonl"
    if not listed.exists():
        place = root / source.kind / source.package
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        rows = []
        for number, (track, samples) in enumerate(clips(source, unpacked(source.package, root / "raw"))):
            name = f"{source.kind}-{source.package}-{number:03d}"
            audio = write_audio(place / f"{number:03d}.flac", samples, RATE).relative_to(root).as_posix()
            seconds = round(len(samples) / RATE, 4)
            rows.append({"id": name, "audio": audio, "offset": 0.0, "duration": seconds, "track": track})
        listed.write_text("".join(json.dumps(row) + "\n" for row in rows))
    described = source._asdict()
    del described["pattern"]
    return [json.loads(line) | described for line in listed.read_text().splitlines()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("packages", nargs="*", help="make these alone; all of the table if none is named")
    options = parser.parse_args()
    rows: dict[str, list[dict]] = {}
    for source in sources():
        wanted = not options.packages or source.package in options.packages
        if wanted or (options.folder / source.kind / f"{source.package}.jsonl").exists():
            new = make(source, options.folder)
            rows.setdefault(source.kind, []).extend(new)
            hours = sum(row["duration"] for row in new) / 3600
            print(f"{source.kind:7} {source.share:6} {hours:6.2f} h  {source.package}, {source.licence}", flush=True)
            lines = "".join(json.dumps(row) + "\n" for row in rows[source.kind])
            (options.folder / source.kind / "manifest.jsonl").write_text(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
