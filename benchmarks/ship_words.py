"""Put wake words into ``data/bundles``: the network for several words, and each word's output of it as a bundle.

    python benchmarks/ship_words.py runs/words/six-words runs/heard/REPORT.json

The cards hold what ``benchmarks/heard.py`` measured of the network and wrote to the report.
"""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from voiceseq.bundles import load_bundle, save_bundle
from voiceseq.models.trigger import TriggerConfig, TriggerNetwork

SHIPPED = Path(__file__).resolve().parent.parent / "data/bundles"
# what the recipe cannot know of the recordings and voices that it was given
ALSO = (
    ("Picovoice wake-word benchmark, people outside the test part", "Apache-2.0"),
    ("Speech Commands v0.01, other words", "CC BY 4.0"),
    ("Piper voice en_US-libritts_r-medium (LibriTTS-R)", "CC BY 4.0"),
    ("Kokoro-82M voices", "Apache-2.0"),
)


def rows(word: str, report: dict[str, Any]) -> list[str]:
    """One line a condition, at the bundle's own threshold."""
    own = report["words"][word]["own_threshold"]
    rate = own["false_alarms"]["all"]
    alarms = f"{rate['per_hour']:.2f} ({rate['low']:.2f} to {rate['high']:.2f})"
    return [
        f"| {word} | {condition} | {found['utterances']} by {found['people']} people | {100 * found['miss_rate']:.1f} "
        f"({100 * found['low']:.1f} to {100 * found['high']:.1f}) | {alarms} |"
        for condition, found in own["conditions"].items()
    ]


def card(name: str, words: Sequence[str], report: dict[str, Any], data: Sequence[dict[str, str]], made: str) -> str:
    hours = ", ".join(f"{hours:.1f} h of {kind}" for kind, hours in report["hours"].items())
    lines = [f"# {name}", "", f"Listen: `voiceseq listen --model {name}`. "]
    lines += [f'In Python: `voiceseq.load("{name}").stream(16_000)`.', ""]
    lines += [
        "On people and sound that were never trained on, at the bundle's own threshold (set on other sound of the"
    ]
    lines += [
        f"bank); false alarms on {hours}; 95 % intervals, misses by bootstrap over people, alarms exact Poisson:",
        "",
    ]
    lines += ["| word | condition | said | missed % | false alarms an hour |", "|---|---|---|---|---|"]
    lines += [line for word in words for line in rows(word, report)]
    lines += [
        "",
        f"{made} Measured by `python benchmarks/heard.py` (RESULTS.md).",
        "",
        "Licence: Apache-2.0. Learned from:",
    ]
    return "\n".join([*lines, "", *[f"- {one['name']}: {one['licence']}" for one in data], ""])


def main() -> int:
    source, report = load_bundle(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    network = source.network(TriggerNetwork, TriggerConfig)
    known = [one for one in source.training["data"] if one["name"] != "recordings of the user"]
    also = [{"name": name, "licence": licence} for name, licence in ALSO]
    data = [*known, *(one for one in also if one not in known)]
    training = {**source.training, "data": data}
    whole, weights = source.path.name, network.state_dict()
    made = "Made by `python benchmarks/words.py --six --free DIR`."

    def save(name: str, config: TriggerConfig, tensors: dict[str, torch.Tensor], told: str) -> None:
        missed = {w: report["words"][w]["own_threshold"]["conditions"] for w in config.words}
        metrics = {w: {c: round(100 * one["miss_rate"], 2) for c, one in found.items()} for w, found in missed.items()}
        save_bundle(
            SHIPPED / name,
            kind="trigger",
            name=name,
            config=config,
            weights=tensors,
            decoding={word: source.decoding[word] for word in config.words},
            metrics={"missed %": metrics},
            training=training,
            card=card(name, config.words, report, data, told),
            licence="Apache-2.0",
            dtype=torch.float16,
        )

    save(whole, network.config, weights, made)
    for place, word in enumerate(network.words):
        config = dataclasses.replace(
            network.config, words=(word,), spellings=network.config.spellings[place : place + 1]
        )
        one = {key: value[place : place + 1] for key, value in weights.items() if key.startswith("head.output.")}
        told = f"The network of `{whole}` with this word's output alone. {made}"
        save(word.replace(" ", "-"), config, weights | {key: value.clone() for key, value in one.items()}, told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
