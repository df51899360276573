"""A wake word at once: the phones of the phrase, listened for in what the shipped backbone hears. No training."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from voiceseq.inference.events import Decision
from voiceseq.inference.pronounce import Pronouncer
from voiceseq.models.trigger import HeadConfig, TriggerConfig, TriggerNetwork
from voiceseq.wakeword.deciding import decide
from voiceseq.wakeword.ground import Ground
from voiceseq.wakeword.learning import Lessons, Tell
from voiceseq.wakeword.making import OPINIONS, Recipe, ways, write

DECISION = Decision(smoothing=3, refractory_s=1.2)


def expectation(ground: Ground) -> str:
    """How many words an instant detector misses, as measured for some when the backbone was made."""
    known = ground.bundle.metrics.get("instant")
    if not known:
        return "an instant detector misses more than a trained one: leave --instant out when there is time"
    return (
        f"people's words missed at {known['per hour']:g} false alarms an hour: {known['missed %']:.0f} % in the mean "
        f"of {known['words']} words; training without --instant makes it far better"
    )


def make_instant(
    phrase: str, out: Path, ground: Ground, pronouncer: Pronouncer, alarms_per_hour: float, tell: Tell
) -> dict[str, Any]:
    """The bundle ``out``, with its threshold set on all of the bank; returns its report."""
    said = ways(phrase, pronouncer, tell)
    spellings = ground.spell(said[:OPINIONS])
    config = TriggerConfig((phrase,), ground.network.config, HeadConfig("phones"), spellings=(spellings,))
    network = TriggerNetwork(config)
    network.load_backbone(ground.network)
    network.eval()
    train, dev = ground.streams([phrase])
    streams = [dataclasses.replace(one, frames=one.frames.astype(np.float16)) for one in [*train, *dev]]
    decisions, alarms = decide(network.head, [phrase], streams, alarms_per_hour, DECISION, network.frame_s)
    report = {
        "words": {phrase: [" ".join(way) for way in said]},
        "false alarms on sound for the threshold": alarms,
        "missed, synthetic voices never trained on": {},
        "material": {"synthetic": 0, "recorded": 0, "voices": 0},
        "expect": expectation(ground),
    }
    write(out, network, decisions, report, ground, Lessons(), Recipe(alarms_per_hour=alarms_per_hour))
    return report
