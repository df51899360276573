"""The least that a wake word can be made of: a random backbone, a bank of minutes, voices that whistle.

Every letter is a tone of its own, so that a phrase sounds like itself whoever says it.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from voiceseq.bundles import load_bundle, save_bundle
from voiceseq.datasets.bank import Stream, Utterance, weights_sha256, write_bank
from voiceseq.datasets.voices import ENGINES, Voice
from voiceseq.datasets.voices.voice import Speech
from voiceseq.errors import InputError
from voiceseq.models.backbone import Backbone, BackboneConfig
from voiceseq.models.trigger import HeadConfig
from voiceseq.text.pronounce import PHONES
from voiceseq.text.vocabulary import Vocabulary
from voiceseq.wakeword.learning import Learning
from voiceseq.wakeword.making import Recipe
from voiceseq.wakeword.material import Amounts

RATE, LETTER_S = 16_000, 0.05
SPELT = {"a": "AA", "c": "K", "e": "EH", "h": "HH", "i": "IH", "j": "JH", "o": "OW", "q": "K", "u": "UW", "x": "S"}
TINY = Recipe(
    Amounts(alone=10, sentences=4, alike=3, talk=3),
    Learning(clips=12, alike_clips=4, rounds=(4, 3), mined=10, head=HeadConfig(size=8)),
)


def whistle(text: str, speed: float = 1.0) -> np.ndarray:
    """``text`` at 16 kHz: a tone a letter, silence for all else."""
    count = round(LETTER_S * RATE / speed)
    time, fade = np.arange(count) / RATE, np.hanning(count)
    tones = [
        np.sin(2 * np.pi * (300 + 120 * (ord(letter) - 97)) * time) * fade if letter.isalpha() else 0 * time
        for letter in text.lower()
    ]
    return np.concatenate([np.zeros(0), *tones]).astype(np.float32)


class Whistlers:
    """A synthesiser; whoever is called ``hoarse`` fails. ``said`` is how often it was asked."""

    name, kind, licence, install, timed, blends = "whistle", "classic", "CC0", "", True, False
    voices = tuple(Voice("whistle", "choir", f"v{number}", licence="CC0") for number in range(24))

    def __init__(self) -> None:
        self.said = 0

    def find(self, folders):
        return list(self.voices)

    def say(self, pieces, voice, manner):
        self.said += 1
        if voice.speaker == "hoarse":
            raise InputError("a sore throat")
        parts = [whistle(piece, manner.speed) for piece in pieces]
        ends = np.cumsum([0, *map(len, parts)]) / RATE
        return Speech(np.concatenate(parts), RATE, tuple((float(a), float(b)) for a, b in pairwise(ends)))


class Speller:
    """In the pronouncer's place: a phone a letter."""

    def letters_to_sounds(self, word):
        return [tuple(SPELT.get(letter, letter.upper()) for letter in word if letter.isalpha())]

    def guesses(self, words, beam=None, n_best=1):
        return [self.letters_to_sounds(word) for word in words]


def only(monkeypatch, *engines) -> None:
    """These synthesisers and no others, whatever the machine has."""
    for name in list(ENGINES):
        monkeypatch.delitem(ENGINES, name)
    for engine in engines:
        monkeypatch.setitem(ENGINES, engine.name, engine)


def make_ground(folder: Path) -> tuple[str, str]:
    """The paths of a backbone and of its bank."""
    torch.manual_seed(0)
    config = BackboneConfig(symbols=40, channels=8, size=16, layers=1, bottleneck=8)
    network = Backbone(config).eval()
    path = save_bundle(
        folder / "backbone",
        kind="backbone",
        config=config,
        weights=network.state_dict(),
        vocabularies={"phones": Vocabulary(("<blank>", *PHONES), "word", ("blank",)).to_json()},
        training={"data": [{"name": "nothing", "licence": "CC0"}]},
    )
    bundle = load_bundle(path)
    streams = [stream(bundle.network(Backbone, BackboneConfig), number) for number in range(12)]
    bank = write_bank(
        streams, weights_sha256(bundle), folder / "bank", frame_s=network.frame_s, licences={"made": "CC0"}
    )
    return str(path), str(bank)


def stream(network: Backbone, number: int) -> Stream:
    """Twenty seconds: silence first, then noise, then somebody who says other words."""
    rng = np.random.default_rng(number)
    words = whistle("quick brown foxes jump over lazy dogs " * 4)
    samples = np.concatenate([np.zeros(5 * RATE), rng.normal(0, 0.1, 5 * RATE), words, rng.normal(0, 0.01, 3 * RATE)])
    with torch.inference_mode():
        frames = network(torch.from_numpy(samples.astype(np.float32))[None])[0].bottleneck[0].numpy()
    said = (Utterance(len(frames) // 2, len(frames) - 50, "quick brown foxes jump over lazy dogs"),)
    return Stream("speech" if number % 2 else "noise", "made", frames, said)
