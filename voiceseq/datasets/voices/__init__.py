"""Speech synthesisers as a source of training clips: which voices there are, and what they say."""

from voiceseq.datasets.voices.planning import Take, plan
from voiceseq.datasets.voices.speaking import ENGINES, Utterance, find_voices, speak, speech_bounds, utter
from voiceseq.datasets.voices.voice import Manner, Sentence, Voice

__all__ = [
    "ENGINES",
    "Manner",
    "Sentence",
    "Take",
    "Utterance",
    "Voice",
    "find_voices",
    "plan",
    "speak",
    "speech_bounds",
    "utter",
]
