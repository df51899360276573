"""What a wake word is learned from: the phrase said alone and inside sentences, what sounds like it, and other talk."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from voiceseq.datasets.manifest import Clip
from voiceseq.datasets.recordings import Utterance
from voiceseq.datasets.voices import ENGINES, Sentence, Take, Voice, plan
from voiceseq.datasets.voices.planning import SHARES
from voiceseq.datasets.voices.sentences import carriers, talk_without
from voiceseq.text.pronounce import Dictionary, Pronunciation, phrase_words
from voiceseq.text.sounds import sounds_like
from voiceseq.wakeword.speaking import say_all

# Kokoro takes ten times Piper's time: worth it for the phrase itself, less so for long sentences.
IN_SENTENCES = SHARES | {"kokoro": 0.05}


@dataclass(frozen=True)
class Amounts:
    """How many takes are said of each; ``talk`` is said once for all phrases of a work folder."""

    alone: int = 700
    sentences: int = 400
    alike: int = 200
    talk: int = 240


@dataclass(frozen=True)
class Material:
    """``said``: the phrase; ``alike``: what sounds like it; ``talk``: sentences without it."""

    said: list[Utterance]
    alike: list[Utterance]
    talk: list[Clip]


def say_material(
    phrase: str,
    word: int,
    near: Sequence[str],
    folder: Path,
    amounts: Amounts,
    voices: Sequence[Voice],
    seed: int = 1,
    workers: int = 1,
    tell: Callable[[str], None] = lambda text: None,
) -> Material:
    """Everything that is said for one phrase, ``word`` being its number; ``near`` is what sounds alike."""

    timed = any(ENGINES[voice.engine].timed for voice in voices)

    def say(name: str, takes: list[Take], place: Path = folder) -> list[Clip]:
        tell(f"{len(takes)} x {name}")
        return say_all(takes, place / name, workers)

    def takes_of(texts: Sequence[str], count: int, number: int) -> list[Take]:
        """Other texts; what time what is said matters in none of them, so any voice may say them."""
        order = np.random.default_rng(abs(number)).permutation(len(texts))[:count]
        if timed:
            sentences = [Sentence(texts[place]) for place in order]
            return plan(sentences, count, seed + number, voices, shares=IN_SENTENCES) if sentences else []
        return [plan(texts[place], 1, seed + int(place), voices)[0] for place in order]

    alone = say("alone", plan(phrase, amounts.alone, seed, voices))
    inside: list[Clip] = []
    if timed and amounts.sentences:
        texts = carriers(phrase, amounts.sentences, seed)
        inside = say("sentences", plan(texts, amounts.sentences, seed + 1, voices, shares=IN_SENTENCES))
    elif amounts.sentences:
        tell("no neural voice was found, so the phrase is not said inside sentences: `voiceseq voices` tells more")
    alike = say("alike", takes_of(near, amounts.alike, 2)) if near else []
    talk = say("talk", takes_of(talk_without(phrase), amounts.talk, -seed), folder.parent)
    return Material([spoken(clip, word) for clip in [*alone, *inside]], [spoken(clip, None) for clip in alike], talk)


def spoken(clip: Clip, word: int | None) -> Utterance:
    return Utterance(clip, word, clip.extra["word_start"], clip.extra["word_end"])


def sounding_alike(phrase: str, said: Sequence[Pronunciation], dictionary: Dictionary, count: int = 60) -> list[str]:
    """Texts that a careless detector takes for the phrase: near words and pairs of words, and parts of the phrase."""
    words = phrase_words(phrase)
    parts = [" ".join(words[:stop]) for stop in range(1, len(words))]
    parts += [" ".join(words[start:]) for start in range(1, len(words))]
    near = [one.text for way in said[:2] for one in sounds_like(way, dictionary, count)] if dictionary else []
    swapped = [
        " ".join([*words[:place], str(other), *words[place + 1 :]])
        for place in range(len(words))
        for other in _swaps(words[place], dictionary)
        if len(words) > 1
    ]
    return list(dict.fromkeys(text for text in [*parts, *swapped, *near] if text != " ".join(words)))


def _swaps(word: str, dictionary: Dictionary) -> list[str]:
    """A phrase with one word replaced by something near is the most likely mistake of all."""
    if word not in dictionary:
        return []
    return [one.text for one in sounds_like(dictionary[word][0], dictionary, 8) if " " not in one.text][:8]
