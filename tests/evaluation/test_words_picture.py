from pathlib import Path

import numpy as np
import pytest

from voiceseq.errors import InputError
from voiceseq.evaluation import words_picture
from voiceseq.evaluation.words_picture import plot_words
from voiceseq.inference.speech import Word

NOISE = np.random.default_rng(0).standard_normal(8_000 * 8).astype(np.float32) * 0.1


@pytest.mark.parametrize("seconds", [0.05, 5.0, 8.0])
def test_rows_of_words(seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ROW_S", 2.0), ("ROWS", 3), ("LONGEST_S", 6.0)):
        monkeypatch.setattr(words_picture, name, value)
    written = []
    write = words_picture._write_words
    monkeypatch.setattr(words_picture, "_write_words", lambda axes, words: written.append(words) or write(axes, words))
    words = [Word(f"w{second}", second + 0.1, second + 0.9, 1.0) for second in range(int(seconds))]
    path = plot_words(NOISE[: round(seconds * 8_000)], 8_000, words, tmp_path / "x.png", "noise")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [len(row) for row in written] == {0.05: [0], 5.0: [2, 2, 1], 8.0: [2, 2, 2]}[seconds]


def test_words_close_to_each_other_stand_on_two_lines() -> None:
    class Axes:
        def __init__(self) -> None:
            self.texts: list[tuple[str, float, float]] = []

        def axvline(self, *_: float, **__: object) -> None: ...

        def annotate(self, text: str, place: tuple[float, float], **_: object) -> None:
            self.texts.append((text, *place))

    axes, times = Axes(), [0.1, 0.3, 0.5, 0.7, 1.9]
    words_picture._write_words(axes, [Word("telephone", start, start + 0.15, 1.0) for start in times])
    heights = [height for *_, height in axes.texts]
    assert heights == [1.02, 1.11, 1.02, 1.11, 1.02]
    assert [text for text, *_ in axes.texts] == ["telephone"] * 5


def test_frequencies_have_their_place() -> None:
    places = [words_picture._band(khz) for khz in words_picture.KILOHERTZ]
    assert places == sorted(places)
    assert places[-1] == pytest.approx(words_picture.CONFIG.mels)


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least a window"):
        plot_words(NOISE[:100], 8_000, [], tmp_path / "x.png")
    with pytest.raises(InputError, match="one channel"):
        plot_words(NOISE.reshape(2, -1), 8_000, [], tmp_path / "x.png")
    for name in ("none/x.png", "x.nothing"):
        with pytest.raises(InputError, match="cannot be written"):
            plot_words(NOISE[:8000], 8_000, [], tmp_path / name)
