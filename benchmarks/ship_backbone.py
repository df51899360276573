"""Put the phone backbone of a run into ``data/bundles``, in half precision and with its card.

    python benchmarks/ship_backbone.py runs/backbone/TIME --steps N [--instant runs/heard/REPORT.json]

``--steps``: of all runs that led to it (``start_from``). ``--instant``: what ``benchmarks/heard.py`` measured of words
that stand on it with no training; ``voiceseq wakeword new --instant`` tells people what to expect from that.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from voiceseq.bundles import load_bundle, save_bundle
from voiceseq.models.backbone import Backbone, BackboneConfig

SHIPPED = Path(__file__).resolve().parent.parent / "data/bundles"
RATE = 1.0  # false alarms an hour at which instant words are told of
BATCH_S = 120
SETS = {"librispeech": "LibriSpeech", "commonvoice": "Common Voice"}
SETS |= {"speechocean762": "speechocean762", "harpervalley": "Harper Valley"}
DATA = (
    ("LibriSpeech dev-clean and test-clean, 78 % of the speakers", "CC BY 4.0"),
    ("Common Voice, English, 78 % of the speakers", "CC0 1.0"),
    ("speechocean762, 78 % of the speakers", "CC BY 4.0"),
    ("Harper Valley, 78 % of the speakers", "CC BY 4.0"),
    ("904 synthetic voices reading texts of these corpora, Piper en_US-libritts_r-medium (LibriTTS-R)", "CC BY 4.0"),
    ("Google's speech embedding (teacher of the bottleneck)", "Apache-2.0"),
    ("noise mixed in: ESC-10, Speech Commands, Mycroft household noise", "CC BY 3.0; CC BY 4.0; public domain"),
    (
        "noise and music mixed in: sounds of Debian packages, benchmarks/free_sounds.tsv",
        "CC0, CC BY, CC BY-SA, MIT, GPL",
    ),
)


def instant(report: dict[str, Any]) -> dict[str, float]:
    """The mean share of words missed over all words of the report, at ``RATE``."""
    curves = [word["operating_curve"]["points"] for word in report["words"].values()]
    missed = [
        p["conditions"]["clean"]["miss_rate"] for points in curves for p in points if p["wanted_per_hour"] == RATE
    ]
    return {"per hour": RATE, "missed %": round(100 * sum(missed) / len(missed), 1), "words": len(missed)}


def card(network: Backbone, metrics: dict[str, Any], steps: int) -> str:
    errors = ", ".join(f"{name} {metrics[f'val/{key}']} %" for key, name in SETS.items())
    size = sum(parameter.numel() for parameter in network.parameters())
    config = network.config
    lines = [
        "# Phone backbone",
        "",
        f"Streaming: {config.features.mels} log-mel bands -> two causal convolutions -> {config.layers} residual ones "
        f"of {config.size} -> a bottleneck of {config.bottleneck} numbers every 30 ms -> 39 phones. A frame depends on "
        f"the {network.reach_s:.1f} s before it and on nothing earlier.",
        f'{size:,} parameters, stored as float16. What wake words stand on: `voiceseq wakeword new "hey luna"`.',
        "",
        f"Phone error of greedy decoding on development speakers (validation of the run): {errors}.",
        "",
        "Made by `voiceseq train experiment=backbone` with a teacher (`data.teacher`, `task.teaching=1`) and averaged",
        f"weights (`ema=0.999`): {steps:,} steps of {BATCH_S} s, {steps * BATCH_S / 3600:.0f} hours heard, most",
        "of it many times. 22 % of the speakers of each corpus were left to tests (`data.held_out_share`).",
        "",
        "Licence: Apache-2.0. Learned from:",
        "",
        *(f"- {name}: {licence}" for name, licence in DATA),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--instant", type=Path)
    parser.add_argument("--out", type=Path, default=SHIPPED / "backbone")
    args = parser.parse_args()
    source = load_bundle(args.run / "bundle")
    network = source.network(Backbone, BackboneConfig)
    metrics: dict[str, Any] = {key: round(float(value), 2) for key, value in source.metrics.items()}
    if args.instant:
        metrics["instant"] = instant(json.loads(args.instant.read_text()))
    save_bundle(
        args.out,
        kind="backbone",
        name="backbone",
        config=network.config,
        weights=network.state_dict(),
        vocabularies=source.vocabularies,
        metrics=metrics,
        training={"data": [{"name": name, "licence": licence} for name, licence in DATA], "steps": args.steps},
        card=card(network, metrics, args.steps),
        licence="Apache-2.0",
        dtype=torch.float16,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
