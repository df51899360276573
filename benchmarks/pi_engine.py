"""One listener at work, run by ``benchmarks/pi.py`` inside that listener's own environment.

    python pi_engine.py ENGINE JOB.json          # prints {"words": ..., "start_s": ..., "resident_mb": ..., ...}

JOB.json: {"words": [...], "sound": FILE.pcm, "model": ..., "spawned": time.time() of the parent, "package": ...,
"folders": [...]}. Every engine gets the sound in its own usual blocks; ours in those of the microphone, 90 ms.
"""

import json
import os
import re
import sys
import time
from collections.abc import Iterator

import numpy as np

RATE = 16_000


class Voiceseq:
    """What ``voiceseq listen`` imports and does, but for the sound card."""

    block = 1440

    def __init__(self, model: str) -> None:
        import voiceseq.apps.listen.app

        import voiceseq
        import voiceseq.cli.listen

        self.detector = voiceseq.load(model)
        self.words = self.detector.words

    def listen(self, samples: np.ndarray) -> Iterator[tuple[int, str]]:
        stream = self.detector.stream(RATE)
        for first in range(0, len(samples), self.block):
            for event in stream.feed(samples[first : first + self.block]):
                yield round(event.time * RATE), event.word


def engine_of(name: str, job: dict) -> object:
    if name in ("onnx", "int8", "lean"):
        return Voiceseq(job["model"])
    from wakeword_peers import PEERS

    return PEERS[name](job["words"])


def resident_mb() -> float:
    with open("/proc/self/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+) kB", status.read())[1]) * 1024 / 1e6


def installed_mb(package: str, folders: list[str]) -> float:
    """A package and all that it asks for, as far as it is here; ``folders``: of one that runs from its source tree."""
    from importlib import metadata  # late: it would count as the engine's memory

    wanted, seen, total = [package], set(), 0
    while wanted:
        name = wanted.pop()
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        if distribution.metadata["Name"] in seen:
            continue
        seen.add(distribution.metadata["Name"])
        total += sum(f.locate().stat().st_size for f in distribution.files or () if f.locate().is_file())
        asked = [one for one in distribution.requires or () if "extra ==" not in one]
        wanted += [re.split(r"[^A-Za-z0-9._-]", one)[0] for one in asked]
    for folder in folders:
        for root, _, files in os.walk(folder):
            total += sum(os.path.getsize(os.path.join(root, one)) for one in files if "__pycache__" not in root)
    return total / 1e6


def main() -> None:
    with open(sys.argv[2]) as file:
        job = json.load(file)
    engine = engine_of(sys.argv[1], job)
    list(engine.listen(np.zeros(RATE, np.int16)))  # whatever is made at the first sound is part of the start
    found = {"words": len(engine.words), "start_s": time.time() - job["spawned"], "start_cpu_s": time.process_time()}
    samples = np.fromfile(job["sound"], "<i2")
    began = time.process_time()
    events = list(engine.listen(samples))
    found["cpu_s_per_hour"] = (time.process_time() - began) * 3600 * RATE / len(samples)
    found |= {"resident_mb": resident_mb(), "events": [[sample / RATE, word] for sample, word in events]}
    print(json.dumps(found | {"installed_mb": installed_mb(job["package"], job["folders"])}))


if __name__ == "__main__":
    main()
