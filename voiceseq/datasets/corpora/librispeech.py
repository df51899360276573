"""LibriSpeech as it is unpacked: PART/SPEAKER/CHAPTER/SPEAKER-CHAPTER-NUMBER.flac with SPEAKER-CHAPTER.trans.txt."""

from collections.abc import Iterator
from pathlib import Path

from voiceseq.datasets.corpora.rows import Found, Layout, Skipped, keep_parts, need_folder, numbered_lines, walk
from voiceseq.errors import InputError


def read_librispeech(path: Path, layout: Layout) -> Iterator[Found | Skipped]:
    """All transcripts below ``path`` (the whole corpus, or one part of it, or an unpacked LibriSpeech inside)."""
    need_folder(path, "the folder of LibriSpeech or of one of its parts")
    chapters = [(folder, names) for folder, names in walk(path) if any(name.endswith(".trans.txt") for name in names)]
    if not chapters:
        raise InputError(f"no .trans.txt is below {path}; give the folder that LibriSpeech was unpacked to")
    parts = {_part(folder) for folder, _ in chapters}
    wanted = set(keep_parts(sorted(parts), layout.parts, path))
    genders = _genders(path)
    for folder, names in chapters:
        if _part(folder) in wanted:
            yield from _chapter(folder, names, genders)


def _part(chapter: Path) -> str:
    return chapter.absolute().parents[1].name


def _chapter(folder: Path, names: list[str], genders: dict[str, str]) -> Iterator[Found | Skipped]:
    sounds = {Path(name).stem: name for name in names if name.endswith((".flac", ".wav", ".opus", ".mp3"))}
    for transcript in (name for name in names if name.endswith(".trans.txt")):
        for number, line in numbered_lines(folder / transcript):
            if line is None:
                yield Skipped("unreadable text", f"{transcript}: line {number}", "is not UTF-8")
                continue
            key, _, text = line.partition(" ")
            name = sounds.pop(key, None)
            if name is None:
                yield Skipped("missing audio", f"{transcript}: line {number}", f"{key}.flac")
            else:
                yield _clip(folder, key, name, text, genders)
    for key, name in sounds.items():
        yield _clip(folder, key, name, None, genders)


def _clip(folder: Path, key: str, name: str, text: str | None, genders: dict[str, str]) -> Found:
    speaker, _, chapter = key.rpartition("-")[0].partition("-")
    extra = {"gender": genders.get(speaker), "source_part": _part(folder), "chapter": chapter}
    kept = {field: value for field, value in extra.items() if value}
    return Found(f"ls-{key}", folder / name, text, f"librispeech-{speaker}", extra=kept)


def _genders(path: Path) -> dict[str, str]:
    """Speaker to f or m, from SPEAKERS.TXT (``ID | SEX | SUBSET | ...``) in the folder, inside it, or above it."""
    for folder in (path, path / "LibriSpeech", path.absolute().parent):
        if (table := folder / "SPEAKERS.TXT").is_file():
            lines = (line for _, line in numbered_lines(table) if line and not line.startswith(";"))
            cells = ([cell.strip() for cell in line.split("|")] for line in lines)
            return {cell[0]: cell[1].lower() for cell in cells if len(cell) > 1}
    return {}
