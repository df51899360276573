"""Wake words that are tones, said by a few people, with talk and noise: data to train on in seconds."""

from pathlib import Path

import numpy as np

from voiceseq.audio.files import write_audio
from voiceseq.datasets.corpora.wakewords import part_of
from voiceseq.datasets.manifest import Clip, write_manifest

RATE = 16_000
CHIMES = {"alexa": 500, "computer": 700, "jarvis": 1000, "smart mirror": 1400, "snowboy": 2000, "view glass": 2800}
CHIMES |= {"marvin": 4000}


def make_chimes(folder: Path) -> Path:
    """Three manifests: words.jsonl, talk.jsonl, noise.jsonl; and recordings without any in folder/."""
    rng = np.random.default_rng(1)
    words = [_word(folder, word, hz, who) for word, hz in CHIMES.items() for who in _people()]
    flagged = _word(folder, "alexa", 300, _people()[0] + "x", flag="somebody coughs")
    write_manifest(folder / "words.jsonl", [*words, flagged])
    talk, noise = [], []
    for number in range(20):
        samples = 0.05 * rng.standard_normal(4 * RATE) * np.sin(np.arange(4 * RATE) / 2000) ** 2
        path = write_audio(folder / f"talk{number}.wav", samples.astype(np.float32), RATE)
        text = "something else" if number % 2 else "ask alexa now"
        talk.append(Clip(f"talk{number}", path, 4.0, text=text, speaker=f"talker{number}"))
        path = write_audio(folder / f"noise{number}.wav", 0.05 * rng.standard_normal(RATE).astype(np.float32), RATE)
        noise.append(Clip(f"noise{number}", path, 1.0))
    write_manifest(folder / "talk.jsonl", talk)
    write_manifest(folder / "noise.jsonl", noise)
    for name in ("bell/anna/1", "bell/anna/2", "bell/anna/3"):
        (folder / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        write_audio(folder / "folder" / f"{name}.wav", _tone(900), RATE)
    return folder


def _people() -> list[str]:
    """Two who train, one for dev."""
    names = [f"person{number}" for number in range(50)]
    train, dev = ([name for name in names if part_of(name) == part] for part in ("train", "dev"))
    return [*train[:2], dev[0]]


def _word(folder: Path, word: str, hz: float, who: str, **extra: object) -> Clip:
    path = write_audio(folder / f"{word} {who}.wav", _tone(hz), RATE)
    extra = {"word": word, "word_start": 0.3, "word_end": 0.7} | extra
    return Clip(f"{word} {who}", path, 1.0, speaker=who, extra=extra)


def _tone(hz: float) -> np.ndarray:
    """A second with a tone from 0.3 to 0.7 s."""
    samples = np.zeros(RATE, np.float32)
    samples[4800:11_200] = 0.3 * np.sin(2 * np.pi * hz * np.arange(6400) / RATE)
    return samples
