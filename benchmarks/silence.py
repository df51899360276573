"""How sure must a decoder be of a text where CTC hears no character? Chosen on noises and speech of the training.

    python benchmarks/silence.py --model harper-valley [--write]

``least_log_prob`` is set just above the surest text that the decoder makes of a training noise, whole or in files of
2.5 s, in which CTC hears nothing. What that costs is counted on the shortest utterances of the training speakers:
where such words are short, CTC hears nothing of some of them either. ``--write`` puts it into the bundle.
"""

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import torch

from voiceseq.audio.files import read_clip
from voiceseq.bundles import change_decoding, load_bundle
from voiceseq.core.search import Hypothesis
from voiceseq.datasets.manifest import Clip, held_out, read_manifest
from voiceseq.inference.speech import SAMPLE_RATE, Decoding, Samples
from voiceseq.inference.transcriber import Transcriber
from voiceseq.inference.whisper import WhisperRecogniser
from voiceseq.text.normalise import normalise

SPEECH = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "speech"
HELD_OUT_NOISE = 0.4  # the share of noises that conf/data keeps for tests
EXCERPT_S = 2.5  # short enough to be given to the recogniser at a lower probability of speech
STEP = 0.05


class Doubtful(WhisperRecogniser):
    """Notes each text that the decoder writes where CTC hears no character, and how sure it is, in nats a piece."""

    doubts: set[tuple[float, str]]  # a reading may be judged twice: as found, and as ordered anew

    def _believable(self, found: Hypothesis, no_speech: float) -> bool:
        if found.tokens and no_speech >= self.settings.no_speech:
            self.doubts.add((found.log_probs[0] / (len(found.tokens) + 1), self._text(found)))
        return super()._believable(found, no_speech)


def open_doubtful(model: str) -> Doubtful:
    recogniser = Doubtful.from_bundle(load_bundle(model))
    recogniser.doubts = set()
    recogniser.settings = replace(recogniser.settings, least_log_prob=-math.inf)
    return recogniser


def noises() -> Iterator[Samples]:
    """Those that training has heard, whole and in short files."""
    for clip in read_manifest(SPEECH / "wakeword" / "noise" / "manifest.jsonl"):
        if not held_out(clip.id, HELD_OUT_NOISE):
            samples = sound(clip)
            yield samples
            size = round(EXCERPT_S * SAMPLE_RATE)
            yield from (samples[begin : begin + size] for begin in range(0, len(samples) - SAMPLE_RATE, size))


def sound(clip: Clip) -> Samples:
    return read_clip(clip.audio, clip.offset, clip.duration, SAMPLE_RATE)


def short_utterances(count: int) -> list[Clip]:
    clips = [
        clip
        for part in ("train", "extra")
        for clip in read_manifest(SPEECH / "harpervalley" / f"manifest-{part}.jsonl")
    ]
    return sorted(clips, key=lambda clip: clip.duration or 0.0)[:count]


def right_words(recogniser: Doubtful, clips: list[Clip]) -> list[float]:
    """How sure the decoder is of each utterance that it alone hears, and hears rightly."""
    sure = []
    for clip in clips:
        recogniser.doubts.clear()
        recogniser.recognise([sound(clip)], Decoding())
        sure += [mean for mean, text in recogniser.doubts if text == normalise(clip.text or "")]
    return sure


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="harper-valley")
    parser.add_argument("--utterances", type=int, default=400, help="the shortest ones of the training speakers")
    parser.add_argument("--write", action="store_true", help="put the choice into the bundle")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    recogniser = open_doubtful(arguments.model)
    transcriber = Transcriber(recogniser)
    for samples in noises():
        transcriber.transcribe(samples, SAMPLE_RATE)
    made_up = sorted(recogniser.doubts, reverse=True)
    print("made up of training noises:", *(f"{mean:.2f} {text!r}" for mean, text in made_up[:10]), sep="\n  ")
    least = math.ceil(made_up[0][0] / STEP) * STEP
    sure = right_words(recogniser, short_utterances(arguments.utterances))
    lost = sum(mean < least for mean in sure)
    print(f"least_log_prob {least:.2f}: {lost} of the {arguments.utterances} shortest utterances lose a right text")
    if arguments.write:
        bundle = load_bundle(arguments.model)
        settings = replace(WhisperRecogniser.from_bundle(bundle).settings, least_log_prob=round(least, 2))
        print(change_decoding(arguments.model, asdict(settings)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
