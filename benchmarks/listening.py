"""What does listening cost, and does a live stream cost more than a whole recording?

    python benchmarks/listening.py [--json]

CPU seconds for an hour of 16 kHz sound on one thread, the least of a few runs since others may be at work here: the
network on torch (whole, and as a stream of chunks), the lean network that ``Detector.stream`` uses (whole, and in
chunks of several sizes, with one word and with six words on one backbone), and the phone score of six phrases. The
weights are random, which costs the same. Target: 13 s for six words in chunks of 80 and 100 ms.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from voiceseq.core.spotting import PhraseSpotter
from voiceseq.inference.detector import Decision, Detector
from voiceseq.models.trigger import TriggerConfig, TriggerNetwork

RATE, STREAMED_S, REPEATS, TARGET = 16_000, 20, 3, 13.0
WORDS = ("alexa", "computer", "jarvis", "smart mirror", "snowboy", "view glass")


def row(case: str, run: Callable[[], object], target: float | None = None) -> dict[str, Any]:
    spent = []
    for _ in range(REPEATS):
        start = time.process_time()
        run()
        spent.append(time.process_time() - start)
    per_hour = min(spent) * 3600 / STREAMED_S
    return {
        "case": case,
        "cpu_s_per_hour": round(per_hour, 2),
        "target": target,
        "met": target is None or per_hour <= target,
    }


def networks() -> list[TriggerNetwork]:
    """One a word, all on the same backbone."""
    torch.manual_seed(0)
    made = [TriggerNetwork(TriggerConfig(words=(word,))).eval() for word in WORDS]
    for other in made[1:]:
        other.front.load_state_dict(made[0].front.state_dict())
    return made


def torch_rows(network: TriggerNetwork, samples: torch.Tensor) -> list[dict[str, Any]]:
    def stream(chunk: int) -> None:
        state = None
        for piece in samples.split(chunk, 1):
            _, state = network(piece, state)

    def whole() -> None:
        network(samples)

    with torch.inference_mode():
        rows = [row("torch, one word, whole", whole)]
        return rows + [row(f"torch, one word, {ms} ms", lambda c=ms * 16: stream(c)) for ms in (80, 100)]


def lean_rows(detector: Detector, samples: np.ndarray, words: str, target: float | None) -> list[dict[str, Any]]:
    def stream(chunk: int) -> None:
        listener = detector.stream(RATE)
        for first in range(0, len(samples), chunk):
            listener.feed(samples[first : first + chunk])

    stream(RATE)  # compiled
    rows = [row(f"lean, {words}, whole", lambda: detector.detect(samples))]
    for ms in (10, 30, 80, 100):
        rows.append(row(f"lean, {words}, {ms} ms", lambda c=ms * 16: stream(c), target if ms >= 80 else None))
    return rows


def spotting_row() -> dict[str, Any]:
    """Six phrases of eight phones with three spellings each, on the backbone's 33 frames a second, 100 ms at a time."""
    generator = np.random.default_rng(0)
    spotter = PhraseSpotter(generator.integers(1, 40, (6, 3, 8)).tolist())
    log_probs = torch.randn(1, round(STREAMED_S / 0.03), 40).log_softmax(-1)

    def run() -> None:
        state = None
        for piece in log_probs.split(3, 1):
            _, state = spotter(piece, state)

    with torch.inference_mode():
        run()
        return row("phone score of six phrases, three spellings each, 90 ms", run)


def measure() -> dict[str, Any]:
    torch.set_num_threads(1)
    samples = (0.1 * np.random.default_rng(0).standard_normal(RATE * STREAMED_S)).astype(np.float32)
    made = networks()
    alone = [Detector.from_network(one, dict.fromkeys(one.words, Decision(0.9, 3, 2, 1.0))) for one in made]
    rows = torch_rows(made[0], torch.from_numpy(samples)[None])
    rows += lean_rows(alone[0], samples, "one word", None)
    rows += lean_rows(Detector.of(alone), samples, "six words", TARGET)
    return {"benchmark": "listening", "rows": [*rows, spotting_row()]}


def main() -> None:
    result = measure()
    if "--json" in sys.argv[1:]:
        print(json.dumps(result))
        return
    print(f"{'case':58} {'CPU s/h':>8} {'target':>6}")
    for r in result["rows"]:
        print(f"{r['case']:58} {r['cpu_s_per_hour']:8.2f} {r['target'] or '':>6} {'' if r['met'] else 'MISSED'}")


if __name__ == "__main__":
    main()
