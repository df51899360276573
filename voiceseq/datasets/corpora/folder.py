"""A folder of recordings, each with its words in a ``.txt`` of the same name beside it."""

from collections.abc import Iterator
from pathlib import Path

from voiceseq.datasets.corpora.rows import Found, Layout, Skipped, is_audio, need_folder, walk


def read_folder(path: Path, layout: Layout) -> Iterator[Found | Skipped]:
    """Every audio file below ``path``; its id is the path without the suffix.

    The speaker is what ``layout.speaker_pattern`` finds in the path, else the first folder below ``path``, else None.
    """
    need_folder(path, "a folder of audio files with .txt files beside them")
    for folder, names in walk(path):
        texts = {name.removesuffix(".txt"): name for name in names if name.endswith(".txt")}
        for name in filter(is_audio, names):
            yield _clip(path, folder / name, texts.get(Path(name).stem) or texts.get(name), layout)
        heard = {stem for name in names if is_audio(name) for stem in (name, Path(name).stem)}
        for stem, name in texts.items():
            if stem not in heard:
                yield Skipped("text without audio", (folder / name).relative_to(path).as_posix())


def _clip(root: Path, audio: Path, text_name: str | None, layout: Layout) -> Found | Skipped:
    inner = audio.relative_to(root)
    key = inner.with_suffix("").as_posix()
    if text_name is None:
        return Found(key, audio, None, _speaker(inner, layout))
    try:
        text = audio.with_name(text_name).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        return Skipped("unreadable text", inner.with_name(text_name).as_posix(), str(error))
    return Found(key, audio, " ".join(text.split()), _speaker(inner, layout))


def _speaker(inner: Path, layout: Layout) -> str | None:
    if layout.speaker_pattern is not None:
        found = layout.speaker_pattern.search(inner.as_posix())
        return found[1] if found else None
    return inner.parts[0] if len(inner.parts) > 1 else None
