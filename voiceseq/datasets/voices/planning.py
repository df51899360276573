"""Which voices say a phrase and how: many speakers, blends, accents, tempos, engines, in stated proportions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from voiceseq.datasets.voices.phonemes import ACCENTS
from voiceseq.datasets.voices.speaking import ENGINES, find_voices
from voiceseq.datasets.voices.voice import Manner, Sentence, Voice
from voiceseq.errors import InputError

# Shares of the engines where all are there; what is missing goes to the others. Neural voices are most like people and
# have the most speakers; Kokoro costs ten times Piper's time, and the classic ones are few voices each.
SHARES = {"piper": 0.70, "kokoro": 0.12, "espeak": 0.10, "pico": 0.03, "flite": 0.02, "hibari": 0.02, "festival": 0.01}
SPEEDS = {  # slowest, most usual, fastest: synthetic words are faster than people's
    "piper": (0.45, 0.80, 1.25),
    "kokoro": (0.55, 0.80, 1.25),
    "hibari": (0.60, 0.80, 1.25),
    "espeak": (0.60, 0.85, 1.25),
    "pico": (0.60, 0.85, 1.25),
    "flite": (0.60, 0.85, 1.25),
    "festival": (0.60, 0.85, 1.25),
}
OWN_ACCENT = 0.6  # the voice's own pronunciation, else one of the others
BLENDS = 0.5
RULE_CHANCES = {
    "unflapped": 0.45,
    "r-less": 0.15,
    "full-vowels": 0.12,
    "open-vowels": 0.08,
    "round-vowels": 0.08,
    "tense": 0.15,
    "stops-for-th": 0.06,
    "sibilants-for-th": 0.03,
    "v-for-w": 0.05,
    "near-e": 0.06,
    "voiceless-end": 0.04,
    "even-stress": 0.05,
    "no-stress": 0.03,
}
ENDINGS = ("", ".", ".", ",", "!", "?")


@dataclass(frozen=True)
class Take:
    """One thing to be said: what, by whom, how."""

    sentence: Sentence
    voice: Voice
    manner: Manner


def plan(
    phrase: str | Sequence[Sentence],
    count: int,
    seed: int = 0,
    voices: Sequence[Voice] | None = None,
    *,
    ships: bool = False,
    shares: dict[str, float] | None = None,
) -> list[Take]:
    """``count`` varied takes of a phrase alone, or of sentences in turn (by engines that tell when the phrase is said).

    ``voices``: all that are found, by default; ``ships``: only those whose licence lets a trained model be given away.
    The first takes are as varied as all of them. Raises ``InputError`` when no voice is left.
    """
    alone = isinstance(phrase, str)
    usable = [voice for voice in (find_voices() if voices is None else voices) if voice.ships or not ships]
    usable = [voice for voice in usable if alone or ENGINES[voice.engine].timed]
    if not usable:
        raise InputError("no voice to speak with: `voiceseq voices` tells what to install")
    rng = np.random.default_rng(seed)
    order = engine_order({voice.engine for voice in usable}, count, shares or SHARES)
    decks = {engine: Deck([voice for voice in usable if voice.engine == engine], rng) for engine in sorted(set(order))}
    takes = []
    for place, engine in enumerate(order):
        sentence = (
            Sentence(phrase, after=str(rng.choice(ENDINGS))) if isinstance(phrase, str) else phrase[place % len(phrase)]
        )
        voice = decks[engine].deal()
        takes.append(Take(sentence, voice, manner_of(voice, decks[engine], alone, rng)))
    return takes


class Deck:
    """Voices dealt like cards: each once before any comes again."""

    def __init__(self, voices: Sequence[Voice], rng: np.random.Generator) -> None:
        self.voices, self.rng, self.left = list(voices), rng, list[int]()

    def deal(self) -> Voice:
        if not self.left:
            self.left = [int(i) for i in self.rng.permutation(len(self.voices))]
        return self.voices[self.left.pop()]


def engine_order(engines: set[str], count: int, shares: dict[str, float]) -> list[str]:
    """``count`` engines, each as often as its share says (to one), evenly mixed."""
    names = sorted(engines)
    weights = np.array([shares.get(name, 0.0) for name in names])
    weights = weights / weights.sum() if weights.sum() > 0 else np.full(len(names), 1 / len(names))
    given, order = np.zeros(len(names)), []
    for place in range(count):
        behind = int(np.argmax(weights * (place + 1) - given))
        given[behind] += 1
        order.append(names[behind])
    return order


def manner_of(voice: Voice, deck: Deck, alone: bool, rng: np.random.Generator) -> Manner:
    slow, usual, fast = np.log(SPEEDS.get(voice.engine, (0.6, 0.85, 1.25)))
    if not alone:  # people say a word slowly, but not whole sentences
        slow, usual = slow / 2, usual / 2
    other = deck.voices[int(rng.integers(len(deck.voices)))]
    blended = ENGINES[voice.engine].blends and other.path == voice.path and other != voice and rng.random() < BLENDS
    return Manner(
        speed=float(np.round(np.exp(rng.triangular(slow, usual, fast)), 3)),
        pitch=float(np.round(np.exp(rng.uniform(np.log(0.75), np.log(1.35))), 3)),
        noise=float(np.round(rng.uniform(0.4, 0.9), 3)),
        rhythm=float(np.round(rng.uniform(0.4, 1.0), 3)),
        other=other if blended else None,
        share=float(np.round(rng.uniform(0.2, 0.8), 3)) if blended else 0.0,
        accent=accent_for(voice, rng),
        rules=tuple(name for name, chance in RULE_CHANCES.items() if rng.random() < chance),
        seed=int(rng.integers(2**31)),
    )


def accent_for(voice: Voice, rng: np.random.Generator) -> str:
    """Empty (the voice's own) most of the time, else another English."""
    return "" if rng.random() < OWN_ACCENT else str(rng.choice(ACCENTS))
