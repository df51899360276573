"""Does a detector that listens for a day stay the same?

    python benchmarks/soak.py [--hours 24] [--model NAME ...] [--json]

Ten minutes of noise, speech-like sound, music-like chords, silence and bad samples, over and over, in uneven chunks
from one sample to half a second. Memory must stay flat (5 MB), the events must be those of the same sound given in
pieces of ten minutes, as a whole file is heard, and each round must fire at the same places as the one before: times do
not drift. Without ``--model`` it is a network of random weights whose thresholds let it fire now and then.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import voiceseq
from voiceseq.inference.detector import Decision, Detector, Event
from voiceseq.models.trigger import TriggerConfig, TriggerNetwork

RATE, ROUND_S, FLAT_MB = 16_000, 600, 5.0
WORDS = ("alexa", "computer", "jarvis", "smart mirror", "snowboy", "view glass")


def sounds(seconds: int = ROUND_S, seed: int = 0) -> np.ndarray:
    """Another kind of sound every second: a whole number of frames, with two bad samples a minute."""
    generator = np.random.default_rng(seed)
    samples = np.concatenate([second(generator) for _ in range(seconds)]).astype(np.float32)
    samples[:: 30 * RATE] = np.nan
    return samples[: len(samples) // 480 * 480]


def second(generator: np.random.Generator) -> np.ndarray:
    t = np.arange(RATE) / RATE
    kind = generator.integers(4)
    if kind == 0:
        return np.zeros(RATE)
    if kind == 1:
        return generator.standard_normal(RATE) * 10 ** generator.uniform(-4, -0.5)
    pitches = generator.uniform(80, 250, 1) * np.arange(1, 20) if kind == 2 else generator.uniform(100, 2000, 4)
    syllables = 0.5 + 0.5 * np.sin(2 * np.pi * generator.uniform(2, 6) * t)
    return (
        0.1 * syllables * np.sin(2 * np.pi * pitches[:, None] * t + generator.uniform(0, 6, (len(pitches), 1))).sum(0)
    )


def random_detector() -> Detector:
    torch.manual_seed(0)
    network = TriggerNetwork(TriggerConfig(words=WORDS)).eval()
    torch.nn.init.normal_(network.head.output.weight)
    decisions = dict.fromkeys(WORDS, Decision(0.5, smoothing=3, patience=2, refractory_s=1.0))
    detector = Detector.from_network(network, decisions)
    scores = detector.scores(sounds(60))[1]
    return detector.with_thresholds(dict(zip(WORDS, np.quantile(scores, 0.95, axis=0).tolist(), strict=True)))


def chunks(samples: np.ndarray, generator: np.random.Generator) -> Iterator[np.ndarray]:
    first = 0
    while first < len(samples):
        size = int(
            generator.choice([1, 160, 1280, 1600, int(generator.integers(1, 8000))], p=[0.02, 0.03, 0.4, 0.4, 0.15])
        )
        yield samples[first : first + size]
        first += size


def memory_mb() -> float:
    """Resident memory of this process; not a number where /proc is not there to tell."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * 4096 / 1e6 if status.exists() else float("nan")


def soak(detector: Detector, hours: float) -> dict[str, Any]:
    """Listen twice to the same hours, in uneven chunks and in rounds, and compare."""
    samples, generator = sounds(), np.random.default_rng(1)
    rounds = max(3, round(hours * 3600 / ROUND_S))
    uneven, whole = detector.stream(RATE), detector.stream(RATE)
    second: list[Event] = []  # of one round: a list of all events would grow by itself
    memory, count, differ, unlike, start = [], 0, 0, 0, time.process_time()
    for number in range(rounds):
        events = [event for chunk in chunks(samples, generator) for event in uneven.feed(chunk)]
        differ += events != whole.feed(samples)
        offset = number * len(samples) / RATE
        found = [Event(event.word, round(event.time - offset, 6), round(event.score, 4)) for event in events]
        second = found if number == 1 else second
        count, unlike = count + len(found), unlike + (number > 1 and found != second)
        memory.append(memory_mb())
    settled = memory[max(1, len(memory) // 4) :]  # the first round fills the allocator's pools
    return {
        "case": f"{rounds * ROUND_S / 3600:g} hours",
        "events": count,
        "rounds_that_differ_from_the_whole": differ,
        "rounds_unlike_the_second": unlike,
        "memory_grew_mb": round(max(settled) - settled[0], 2),
        "replaced": uneven.replaced,
        "cpu_s_per_hour_of_both": round((time.process_time() - start) / (rounds * ROUND_S / 3600), 1),
    }


def measure(hours: float = 24, models: list[str] | None = None) -> dict[str, Any]:
    torch.set_num_threads(1)
    row = soak(voiceseq.load(models) if models else random_detector(), hours)
    wrong = row["rounds_that_differ_from_the_whole"] + row["rounds_unlike_the_second"]
    row |= {"target": FLAT_MB, "met": not wrong and not row["memory_grew_mb"] > FLAT_MB and row["events"] > 0}
    return {"benchmark": "soak", "rows": [row]}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--model", action="append", help="a bundle; may be given several times")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = measure(args.hours, args.model)
    if args.json:
        print(json.dumps(result))
    else:
        for name, value in result["rows"][0].items():
            print(f"{name.replace('_', ' '):38} {value}")
    return 0 if result["rows"][0]["met"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
