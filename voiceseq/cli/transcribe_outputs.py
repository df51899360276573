"""What ``voiceseq transcribe`` reads, and where it writes: names, files, and what is done already."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote

from voiceseq.audio.files import Audio, stream_audio
from voiceseq.audio.reading_ahead import read_ahead
from voiceseq.audio.resample import StreamResampler
from voiceseq.cli.transcribe_places import open_place
from voiceseq.datasets.corpora.rows import AUDIO_SUFFIXES
from voiceseq.datasets.manifest import iterate_manifest
from voiceseq.errors import AudioError, InputError
from voiceseq.inference.formats import FORMATS
from voiceseq.inference.pooling import Failure
from voiceseq.inference.sounds import BLOCK_S, STALL_S, Sound
from voiceseq.inference.speech import SAMPLE_RATE
from voiceseq.inference.transcriber import Settings
from voiceseq.inference.transcripts import Transcript
from voiceseq.remote import files_below, local_path, url_of, version

STDIN = "-"
SUFFIXES = (*AUDIO_SUFFIXES, ".3gp", ".amr", ".au", ".avi", ".caf", ".flv", ".m4b", ".m4v", ".mkv", ".mov", ".mpeg",
            ".mpg", ".oga", ".w64", ".wma", ".wv")  # fmt: skip
INDEX = ".voiceseq-transcribe.jsonl"  # in the folder of the outputs: what is done, and what was meant to be
MANIFESTS = (".jsonl", ".jsonl.gz")
PART_FILES, PART_BYTES = 64, 8 << 20


@dataclass(frozen=True)
class Item:
    """A sound to transcribe: ``name`` as it was given, ``output`` the path of its outputs without their suffix.

    ``path`` may be a URL. ``clip`` is the part of it, ``(offset, duration)`` in seconds, that a manifest names.
    """

    name: str
    path: Path
    output: Path = Path()
    clip: tuple[float, float] | None = None

    @property
    def identity(self) -> object:
        if self.name == STDIN:
            return STDIN
        return url_of(self.path) or self.path.resolve(), self.clip

    @cached_property
    def state(self) -> list[str | int | float] | None:
        """Where it is and what tells it from another of the same name; None where it is not."""
        clip = [] if self.clip is None else list(self.clip)
        if url := url_of(self.path):
            found = None
            with contextlib.suppress(InputError):  # who reads it will tell
                found = version(url)
            return None if found is None else [url, *found, *clip]
        try:
            state = self.path.stat()
        except OSError:
            return None
        return [str(self.path.resolve()), state.st_size, state.st_mtime_ns, *clip]

    @property
    def size(self) -> int:
        """In bytes, or in seconds as 16-bit sound for a clip and about as much for a URL; 0 where that is not known."""
        if self.clip is not None:
            return round(self.clip[1] * 2 * SAMPLE_RATE)
        if self.name == STDIN or self.state is None:
            return 0
        return max(0, int(self.state[1]))


def find_items(names: Sequence[str]) -> tuple[list[Item], list[Failure]]:
    """Files as they are, folders as the sounds in them, manifests as their clips; and folders without any.

    Raises InputError for a manifest that is wrong, with all that is.
    """
    items: list[Item] = []
    failed: list[Failure] = []
    for name in names:
        if name == STDIN:
            items.append(Item(name, Path(name), Path("stdin")))
        elif name.endswith(MANIFESTS):
            items += _clips(name)
        elif (inside := _inside(name)) is not None:
            items += inside
            if not inside:
                failed.append(Failure(name, f"{name} is a folder without sound files"))
        else:
            path = local_path(name)
            items.append(Item(name, path, Path(path.name)))
    return items, failed


def _inside(name: str) -> list[Item] | None:
    """The sounds of a folder in order of their names; None for what is no folder."""
    if url := url_of(name):
        found = files_below(url)
        top = url.rstrip("/") + "/"
        some = [(one, Path(unquote(one.removeprefix(top)))) for one in found]
        sounds = [Item(one, Path(one), inside) for one, inside in some if _is_sound(inside)]
        return sounds if found or name.endswith("/") else None
    path = local_path(name)
    if not path.is_dir():
        return None
    files = sorted(one for one in path.rglob("*") if _is_sound(one) and one.is_file())
    return [Item(str(one), one, one.relative_to(path)) for one in files]


def _is_sound(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and ".." not in path.parts and not path.name.startswith(".")


def _clips(name: str) -> list[Item]:
    """Of a manifest; outputs are called by the ids, which may have strokes but lead nowhere else."""
    return [
        Item(clip.id, clip.audio, Path(*_steps(clip.id)), (clip.offset, clip.duration))
        for clip in iterate_manifest(name, check_files=False)
    ]


def _steps(key: str) -> list[str]:
    steps = [re.sub(r'[\x00-\x1f<>:"\\|?*]', "_", step) for step in key.split("/")]
    return ["_" * len(step) if set(step) <= {"."} else step for step in steps if step] or ["_"]


def look_up(items: Sequence[Item]) -> None:
    """Sizes and versions of what is behind URLs, many at once: each takes a moment."""
    far = [item for item in items if url_of(item.path)]
    if far:
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda item: item.state, far))


def stdin_sound(channels: str | int) -> Sound:
    """A sound file on stdin: decoders must seek in it, so it goes to the disk first."""
    return STDIN, read_ahead(_spooled(channels), "stdin", STALL_S)


def _spooled(channels: str | int) -> Iterator[Audio]:
    with tempfile.NamedTemporaryFile(prefix="voiceseq-stdin-") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.flush()
        try:
            for audio in stream_audio(file.name, BLOCK_S, sample_rate=SAMPLE_RATE, channels=channels):
                yield replace(audio, warnings=tuple(one.replace(file.name, "stdin") for one in audio.warnings))
        except AudioError as error:
            raise AudioError(str(error).replace(file.name, "stdin")) from error


def pcm_sound(rate: int) -> Sound:
    """Raw 16-bit mono PCM on stdin."""
    from voiceseq.cli.listen import pcm_blocks

    def blocks() -> Iterator[Audio]:
        resampler = StreamResampler(rate, SAMPLE_RATE)
        for block in pcm_blocks(rate):
            yield Audio(resampler.feed(block.samples), SAMPLE_RATE)
        yield Audio(resampler.finish(), SAMPLE_RATE)

    return STDIN, blocks()


class Outputs:
    """The folder of the outputs. A file is done when it, the bundle and the settings are as they were.

    The journal has a row for every file that is done, and one for the parts that a run means to do at once: pieces of
    sound that are recognised together may differ in the last digit from those that are not, so a run that goes on after
    another does the same parts. Raises InputError where the folder cannot be made or written to, BundleError where
    there is no such bundle.
    """

    def __init__(self, folder: Path, formats: Sequence[str], model: str, settings: Settings) -> None:
        self.folder, self.formats = folder, formats
        self._settings = _fingerprint(model, settings)
        self._place = open_place(folder, INDEX)
        self._rows, self._plan = self._read_index()

    def name(self, items: Sequence[Item]) -> tuple[list[Item], list[Failure]]:
        """Items with their outputs' names, and those whose names another one has.

        ``a.wav`` gives ``a.json``; beside ``a.mp3`` both keep their suffix. A file that is named twice is done once.
        """
        unique = list({item.identity: item for item in items}.values())
        plain = Counter(item.output.with_suffix("") for item in unique)
        named: dict[Path, Item] = {}
        failed = []
        for item in unique:
            short = item.output.with_suffix("")
            output = item.output if item.clip is not None or plain[short] > 1 else short
            if output in named:
                other = named[output].name
                reason = (
                    f"{item.name}: its output {self.folder / output}.* is that of {other} too: give them an --out each"
                )
                failed.append(Failure(item.name, reason))
            else:
                named[output] = replace(item, output=output)
        return list(named.values()), failed

    def done(self, item: Item) -> bool:
        row = self._rows.get(str(item.output))
        return row is not None and row == self._row(item) and all(map(self._place.exists, self._names(item)))

    @property
    def cut_off(self) -> bool:
        """Whether the run before did not come to its end, though perhaps to its last file."""
        return bool(self._plan)

    def parts(self, items: Sequence[Item], left: Sequence[Item]) -> list[list[Item]]:
        """What is to be done: the parts of a run that did not come to its end, as they were, then the others."""
        known, wanted = {str(item.output): item for item in items}, {str(item.output) for item in left}
        again = [[known[name] for name in part if name in known] for part in self._plan if wanted.intersection(part)]
        planned = {str(item.output) for part in again for item in part}
        parts = again + make_parts([item for item in left if str(item.output) not in planned])
        self._place.note({"plan": [[str(one.output) for one in part] for part in parts], "settings": self._settings})
        return parts

    def write(self, item: Item, transcript: Transcript) -> None:
        """Each file appears whole or not at all. Raises InputError where one cannot be written."""
        for kind, name in zip(self.formats, self._names(item), strict=True):
            self._place.write(name, FORMATS[kind](transcript))
        self._rows[str(item.output)] = self._row(item)
        self._place.note({"output": str(item.output), "source": self._row(item)})

    def finish(self) -> None:
        """All parts were done: the journal keeps what is done, in one order whoever did it."""
        self._place.settle({"output": name, "source": row} for name, row in sorted(self._rows.items()))

    def close(self) -> None:
        self._place.close()

    def _names(self, item: Item) -> list[str]:
        return [f"{item.output.as_posix()}.{kind}" for kind in self.formats]

    def _row(self, item: Item) -> list[str | int | float]:
        return [] if (state := item.state) is None else [*state, self._settings]

    def _read_index(self) -> tuple[dict[str, list[str | int | float]], list[list[str]]]:
        rows: dict[str, list[str | int | float]] = {}
        plan: list[list[str]] = []
        for row in self._place.rows():
            with contextlib.suppress(KeyError, TypeError):
                if "plan" in row:
                    plan = row["plan"] if row["plan"] and row["settings"] == self._settings else []
                else:
                    rows[row["output"]] = row["source"]
        return rows, plan


def make_parts(items: Sequence[Item]) -> list[list[Item]]:
    """Neighbours that are recognised together, and by one worker: some short files, or one that is long."""
    parts: list[list[Item]] = []
    size = 0
    for item in items:
        size += item.size
        if not parts or len(parts[-1]) == PART_FILES or size > PART_BYTES:
            parts.append([])
            size = item.size
        parts[-1].append(item)
    return parts


def _fingerprint(model: str, settings: Settings) -> str:
    """Of all that the text depends on: the bundle's files, the search, the language model."""
    from voiceseq.bundles import load_bundle

    bundle = load_bundle(model)
    facts = {name: entry.sha256 for name, entry in sorted(bundle.files.items())} | {"config": bundle.config}
    lm = settings.decoding.lm
    lm_state = (os.path.getsize(lm), os.path.getmtime(lm)) if lm else None
    told = [facts, asdict(settings.decoding), settings.channels, lm_state]
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:16]
