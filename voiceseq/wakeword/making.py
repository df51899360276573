"""A wake word from a typed phrase: what is said for it, a head that learns it, a threshold, a report, a bundle."""

import dataclasses
import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from voiceseq.audio.files import Audio, read_clip
from voiceseq.audio.noises import made_noises
from voiceseq.bundles import save_bundle
from voiceseq.datasets.manifest import Clip
from voiceseq.datasets.recordings import find_utterance
from voiceseq.datasets.synthesis import SAMPLE_RATE, TriggerClip
from voiceseq.datasets.voices import Voice, find_voices
from voiceseq.errors import InputError
from voiceseq.inference.events import Decision
from voiceseq.inference.pronounce import Pronouncer, found_dictionary
from voiceseq.models.trigger import TriggerNetwork
from voiceseq.text.pronounce import Dictionary, Pronunciation, accents_of, pronounce_phrase, syllables
from voiceseq.wakeword.card import card
from voiceseq.wakeword.deciding import decide, misses
from voiceseq.wakeword.ground import Ground
from voiceseq.wakeword.learning import WITH_WORD, Classroom, Learning, Lessons, Tell, learn
from voiceseq.wakeword.material import Amounts, say_material, sounding_alike

# Of the ways of saying a phrase the phone score beside a head listens for the likeliest alone: further ones cost time
# and alarm more, and the head learns them from the voices.
OPINIONS = 1
MADE, MADE_S = 140, 30.0  # made noises to be silent about, beside those of the bank
NEAR_WORDS = 4000  # of the bank's, the most frequent, are looked through for what sounds alike


@dataclass(frozen=True)
class Recipe:
    """How a wake word is made from a phrase."""

    amounts: Amounts = field(default_factory=Amounts)
    learning: Learning = field(default_factory=Learning)
    decision: Decision = field(default_factory=lambda: Decision(smoothing=5, refractory_s=1.2))
    alarms_per_hour: float = 0.5
    workers: int = 1


@dataclass
class Own:
    """The user's own: recordings by word, false alarms, other words of the same microphones, noise, talk."""

    recordings: dict[str, list[Clip]] = field(default_factory=dict)
    negatives: list[Clip] = field(default_factory=list)
    others: list[Clip] = field(default_factory=list)
    noises: Sequence[Audio] = ()
    talk: list[Clip] = field(default_factory=list)


def make(
    words: Sequence[str],
    out: Path,
    ground: Ground,
    pronouncer: Pronouncer,
    recipe: Recipe,
    work: Path,
    own: Own | None = None,
    voices: Sequence[Voice] | None = None,
    tell: Tell = lambda text: None,
) -> dict[str, Any]:
    """Make the bundle ``out`` for one or several phrases in one network; returns its report.

    ``work`` keeps what was said, so that a second run need not say it again. Raises InputError for a phrase that cannot
    be said, and where there are neither voices nor recordings.
    """
    started, own = time.time(), own or Own()
    said = {word: ways(word, pronouncer, tell) for word in words}
    voices = find_voices() if voices is None else voices
    if not voices and not all(own.recordings.get(word) for word in words):
        raise InputError(
            "no synthesiser was found and no recordings were given: `voiceseq voices` tells what to install"
        )
    train, dev = ground.streams(words)
    lessons = gather_lessons(words, said, ground, pronouncer, recipe, work, own, voices, tell)
    tell("noise and music")
    heard = [one.frames for one in ground.hear(TriggerClip(one, ()) for one in _quiet(own, recipe.learning.seed))]
    streams = [stream.frames.astype(np.float16) for stream in train] + heard
    classroom = Classroom(ground, lessons, recipe.learning.seed)
    spellings = tuple(ground.spell(said[word][:OPINIONS]) for word in words)
    network = learn(words, spellings, classroom, streams, recipe.learning, tell)
    tell("threshold")
    decisions, alarms = decide(network.head, words, dev, recipe.alarms_per_hour, recipe.decision, network.frame_s)
    report = {
        "words": {word: [" ".join(way) for way in said[word]] for word in words},
        "false alarms on sound for the threshold": alarms,
        "missed, synthetic voices never trained on": unheard(words, network, classroom, decisions),
        "material": {"synthetic": len(lessons.spoken), "recorded": len(lessons.recorded), "voices": len(voices)},
        "minutes": round((time.time() - started) / 60, 1),
    }
    write(out, network, decisions, report, ground, lessons, recipe)
    return report


def ways(phrase: str, pronouncer: Pronouncer, tell: Tell) -> list[Pronunciation]:
    """How the phrase is said; one that is too short is told about."""
    likely = pronounce_phrase(phrase, found_dictionary(), pronouncer.letters_to_sounds, most=3)
    found = list(dict.fromkeys([*likely, *(other for way in likely[:2] for other in accents_of(way))]))[:6]
    if max(syllables(way) for way in found) < 2:
        tell(f"{phrase!r} has one syllable: it will alarm often; two to four syllables are best")
    return found


def gather_lessons(
    words: Sequence[str],
    said: dict[str, list[Pronunciation]],
    ground: Ground,
    pronouncer: Pronouncer,
    recipe: Recipe,
    work: Path,
    own: Own,
    voices: Sequence[Voice],
    tell: Tell,
) -> Lessons:
    """What synthesisers say and what people recorded, as lessons."""
    lessons = Lessons(negatives=own.negatives, noises=own.noises, talk=list(own.talk))
    dictionary = known_words(ground, pronouncer) if voices else {}
    for number, word in enumerate(words):
        lessons.recorded += [find_utterance(clip, number) for clip in own.recordings.get(word, [])]
        if voices:
            near = sounding_alike(word, said[word], dictionary)
            folder = work / re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-")
            seed = recipe.learning.seed
            material = say_material(word, number, near, folder, recipe.amounts, voices, seed, recipe.workers, tell)
            lessons.spoken += material.said
            lessons.others += material.alike
            lessons.talk += material.talk
    lessons.others += [find_utterance(clip, None) for clip in own.others]
    return lessons


def known_words(ground: Ground, pronouncer: Pronouncer) -> Dictionary:
    """Words to look through for what sounds alike: a dictionary's, else the bank's as the pronouncer says them."""
    dictionary = found_dictionary()
    if dictionary:
        return dictionary
    counts: dict[str, int] = {}
    for said in ground.bank.texts():
        for word in said.split():
            counts[word] = counts.get(word, 0) + 1
    words = sorted(counts, key=lambda word: (-counts[word], word))[:NEAR_WORDS]
    plain = [word for word in words if word.isalpha()]
    return {word: found for word, found in zip(plain, pronouncer.guesses(plain, beam=1), strict=True) if found}


def unheard(
    words: Sequence[str], network: TriggerNetwork, classroom: Classroom, decisions: dict[str, Decision]
) -> dict[str, Any]:
    """Misses of voices that were kept from training, in clips as hard as those of training."""
    _, tried = classroom.lessons.split()
    found = {}
    for number, word in enumerate(words):
        takes = [one for one in tried if one.word == number]
        if takes:
            examples = classroom.clips(takes, 200, replace(WITH_WORD, triggers=(1, 1)), 5)
            found[word] = misses(network.head, number, examples, decisions[word], network.frame_s)
    return found


def write(
    out: Path,
    network: TriggerNetwork,
    decisions: dict[str, Decision],
    report: dict[str, Any],
    ground: Ground,
    lessons: Lessons,
    recipe: Recipe,
) -> None:
    """The bundle with its card, and the report beside it."""
    data = [*ground.bundle.training.get("data", []), *ground.bank.bundle.training.get("data", [])]
    engines = sorted({one.clip.extra.get("engine", "") for one in lessons.spoken})
    data += [{"name": f"clips said by {engine}", "licence": "made for this bundle"} for engine in engines if engine]
    data += [{"name": "recordings of the user", "licence": "the user's"}] if lessons.recorded else []
    data = [one for place, one in enumerate(data) if one not in data[:place]]
    save_bundle(
        out,
        kind="trigger",
        name=out.name,
        config=network.config,
        weights=network.state_dict(),
        decoding={word: dataclasses.asdict(one) for word, one in decisions.items()},
        metrics=report["missed, synthetic voices never trained on"],
        training={"data": data, "recipe": dataclasses.asdict(recipe)},
        card=card(network.words, report, data),
        dtype=torch.float16,
        files={"report.json": json.dumps(report, indent=2).encode()},
    )


def _quiet(own: Own, seed: int) -> Iterator[Any]:
    """Samples without the words: the user's own, and noise and music of every kind that can be made."""
    for clip in own.negatives:
        yield read_clip(clip.audio, clip.offset, clip.duration, SAMPLE_RATE)
    rng = np.random.default_rng(seed)
    for noise in made_noises(MADE, seed, MADE_S, SAMPLE_RATE):
        yield noise.samples * np.float32(10 ** rng.uniform(-2.0, 0.3))
