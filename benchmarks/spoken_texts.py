"""The texts of a manifest, said by many synthetic voices: speech of people that a small corpus does not have.

    python benchmarks/spoken_texts.py MANIFEST ... OUT --hours 4

OUT gets the recordings and their manifest, manifest-1.jsonl, a line as each is said: it may be stopped at any time.
With --part 2/2 beside --part 1/2 two processes share the hours, each with a manifest of its own number. With --phrases
it is not whole texts that are said, but one to four of their words: as short as what wakes a machine.
"""

import argparse
import json
import random
import time
from pathlib import Path

from voiceseq.audio.files import write_audio
from voiceseq.datasets.manifest import read_manifest
from voiceseq.datasets.voices import Manner, Sentence, find_voices, utter
from voiceseq.errors import VoiceseqError

RATE = 16_000
ENGINE = "piper"  # the others have a handful of voices each
WORDS = (0.45, 0.3, 0.15, 0.1)  # share of the phrases with one word, two, three, four


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest", type=Path, nargs="+")
    parser.add_argument("out", type=Path)
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--part", default="1/1", help="which of how many processes this is")
    parser.add_argument("--phrases", action="store_true", help="one to four words of the texts, not whole texts")
    parser.add_argument("--without", nargs="*", default=[], help="words that are kept for tests: no phrase has them")
    args = parser.parse_args()
    part, parts = map(int, args.part.split("/"))
    texts = sorted({clip.text for name in args.manifest for clip in read_manifest(name) if clip.text})
    voices = [voice for voice in find_voices() if voice.engine == ENGINE]
    if not texts or not voices:
        raise SystemExit(
            f"{len(texts)} texts, {len(voices)} voices of {ENGINE}; `voiceseq voices` tells what to install"
        )
    chance = random.Random(1000 + part)
    if args.phrases:
        texts = short_phrases(texts, set(args.without), chance)
    args.out.mkdir(parents=True, exist_ok=True)
    seconds, number, started = 0.0, 0, time.monotonic()
    with (args.out / f"manifest-{part}.jsonl").open("w") as manifest:
        while seconds < args.hours * 3600 / parts:
            number += 1
            text, voice = chance.choice(texts), chance.choice(voices)
            other, seed = chance.choice(voices), chance.randrange(10**6)
            slowest = 0.5 if args.phrases else 0.85  # people say a word slowly, but not whole sentences
            speed, blend = chance.uniform(slowest, 1.35), chance.uniform(0.2, 0.8)
            manner = Manner(speed=speed, seed=seed)
            if other.path == voice.path and chance.random() < 0.5:
                manner = Manner(speed=speed, seed=seed, other=other, share=blend)
            path = args.out / f"{part}-{number:05d}.flac"
            try:
                said = utter(Sentence(text), voice, manner, RATE)
            except VoiceseqError as error:
                print(f"left out: {error}")
                continue
            write_audio(path, said.samples, RATE)
            duration = len(said.samples) / RATE
            row = {"id": f"{args.out.name}-{path.stem}", "audio": path.name, "offset": 0.0, "duration": duration}
            manifest.write(json.dumps(row | {"text": text, "speaker": voice.label}) + "\n")
            manifest.flush()
            seconds += duration
            if number % 100 == 0:
                print(f"{number} utterances, {seconds / 3600:.2f} h, {time.monotonic() - started:.0f} s", flush=True)


def short_phrases(texts: list[str], without: set[str], chance: random.Random, count: int = 20_000) -> list[str]:
    """Words as often as the texts have them, and as many that come once, however rare they are."""
    often = [word for text in texts for word in text.split() if word not in without]
    rare = sorted(set(often))
    return [
        " ".join(chance.choice(often if chance.random() < 0.5 else rare) for _ in range(number))
        for number in chance.choices(range(1, len(WORDS) + 1), WORDS, k=count)
    ]


if __name__ == "__main__":
    main()
