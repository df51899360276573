"""Kaldi data folders: wav.scp and text, with utt2spk and segments where they are there.

A wav.scp may hold shell commands ("sox a.wav -t wav - |"). They are refused and never run: data is not a program.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from voiceseq.datasets.corpora.rows import Found, Layout, Skipped, keep_parts, locate, need_folder, numbered_lines, walk
from voiceseq.errors import InputError


def read_kaldi(path: Path, layout: Layout) -> Iterator[Found | Skipped]:
    """Every data folder at or below ``path``.

    A relative audio path is looked for below ``layout.root``, else in the data folder and then in the folders above it
    up to three, because recipes write paths from where they were run.
    """
    need_folder(path, "a Kaldi data folder (the one with wav.scp)")
    folders = {f.relative_to(path).as_posix(): f for f, names in walk(path) if "wav.scp" in names}
    if not folders:
        raise InputError(f"no wav.scp is in {path} or below; give a Kaldi data folder")
    for name in keep_parts(folders, layout.parts, path):
        yield from _DataFolder(folders[name], layout.root).clips()


class _DataFolder:
    """One data folder; ``notes`` gathers what was wrong with its tables."""

    def __init__(self, folder: Path, root: Path | None) -> None:
        self.folder = folder
        above = list(folder.absolute().parents)[:3]
        self.places = [root] if root is not None else [folder, *above]
        self.notes: list[Skipped] = []

    def clips(self) -> Iterator[Found | Skipped]:
        texts, speakers, sounds = (self.table(name) for name in ("text", "utt2spk", "wav.scp"))
        segments = self.table("segments") if (self.folder / "segments").exists() else None
        yield from self.notes
        heard: dict[str, Path | Skipped] = {key: self.audio(key, value) for key, value in sounds.items()}
        rows = segments if segments is not None else dict.fromkeys(sounds, "")
        for key, segment in rows.items():
            text, speaker = texts.pop(key, None), speakers.get(key)
            clip = self.segment(key, segment, heard) if segments is not None else self.whole(key, heard[key])
            yield clip if isinstance(clip, Skipped) else replace(clip, text=text, speaker=speaker)
        for key in texts:
            yield Skipped("text without audio", f"{self.folder.name}/text: {key}")

    def table(self, name: str) -> dict[str, str]:
        """Key to the rest of the line."""
        rows: dict[str, str] = {}
        if not (self.folder / name).exists():
            return rows
        for number, line in numbered_lines(self.folder / name):
            where = f"{self.folder.name}/{name}: line {number}"
            if line is None:
                self.notes.append(Skipped("unreadable text", where, "is not UTF-8"))
                continue
            key, *rest = line.split(maxsplit=1)
            if key in rows:
                self.notes.append(Skipped("duplicate id", where, key))
                continue
            rows[key] = rest[0] if rest else ""
        return rows

    def audio(self, key: str, value: str) -> Path | Skipped:
        where = f"{self.folder.name}/wav.scp: {key}"
        if value.endswith("|") or value.startswith("|") or value == "-":
            return Skipped("refused command", where, f"{value!r} is a command; make an audio file with it first")
        path = locate(value, self.places) if value else None
        if path is None:
            head, _, tail = value.rpartition(":")
            archive = " (archives cannot be read: write audio files)" if head and tail.isdigit() else ""
            return Skipped("missing audio", where, (value or "no path") + archive)
        return path

    def whole(self, key: str, sound: Path | Skipped) -> Found | Skipped:
        return sound if isinstance(sound, Skipped) else Found(key, sound)

    def segment(self, key: str, segment: str, heard: dict[str, Path | Skipped]) -> Found | Skipped:
        where = f"{self.folder.name}/segments: {key}"
        try:
            recording, start, end = segment.split()[:3]
            offset, until = float(start), float(end)
        except ValueError:
            return Skipped("broken row", where, f"{segment!r} came; RECORDING START END was wanted")
        sound = heard.get(recording)
        if sound is None:
            return Skipped("missing audio", where, f"wav.scp has no {recording}")
        if isinstance(sound, Skipped):
            return replace(sound, where=where)
        return Found(key, sound, offset=offset, duration=None if until == -1 else until - offset)
