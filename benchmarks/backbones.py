"""What teaches a phone backbone, and what its width costs: short trainings from nothing, alike but for one thing each.

    python benchmarks/backbones.py --teacher FOLDER [--said MANIFEST...] [--steps 2000] [--rows base,narrow,...]

Each row is a run of ``voiceseq train experiment=backbone`` (in runs/backbones; one that is there is not made again) of
``--steps`` batches of 60 s; its phone errors are of the development speakers. The teacher is that of docs/wakeword.md,
``--said`` are manifests of ``benchmarks/spoken_texts.py``. "CPU s an hour" is the lean path with one word's head on
that backbone, one thread, the least of three. Rows differ early more than they do at the end: figures to choose by.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from listening import RATE, STREAMED_S
from listening import row as timed
from results import write_section

from voiceseq.bundles import load_bundle
from voiceseq.datasets.corpora.wakewords import CORPORA
from voiceseq.inference.detector import Decision, Detector
from voiceseq.models.backbone import Backbone, BackboneConfig
from voiceseq.models.trigger import TriggerConfig, TriggerNetwork

RUNS = Path("runs/backbones")
FEW = 100  # steps of an epoch
COMMON = (
    "experiment=backbone threads=1 trainer.precision=bf16-mixed ema=0.99 progress=false data.batch_s=60 "
    f"data.steps_per_epoch={FEW} data.hard_from=1000 data.hard_share=0.5 trainer.check_val_every_n_epoch=5"
)
TAUGHT = "task.teaching=1.0"
ROWS = {
    "base": ("8 convolutions of 224, taught by the speech embedding, voices warped", TAUGHT),
    "untaught": ("without the teacher", "task.teaching=0"),
    "unwarped": ("voices not warped", f"{TAUGHT} task.warping=0"),
    "said": ("with what synthetic voices said beside the corpora", TAUGHT),
    "narrow": ("of 160", f"{TAUGHT} model.size=160"),
    "wide": ("of 320", f"{TAUGHT} model.size=320"),
    "gru": ("3 GRU layers of 176 for the convolutions", f"{TAUGHT} model.cell=gru model.size=176 model.layers=3"),
}


def bundle_of(name: str, steps: int, args: argparse.Namespace) -> Path:
    """The finished run of a row, trained now where there is none."""
    place = RUNS / f"{name}-{steps}"
    found = sorted(place.glob("*/bundle"))
    if found:
        return found[-1]
    shared = [f"{corpus}/manifest-{part}.jsonl" for corpus in CORPORA for part in ("train", "extra")]
    said = [str(path.resolve()) for path in args.said] if name == "said" else []
    words = [*COMMON.split(), *ROWS[name][1].split(), f"name={place.name}", f"runs={RUNS}"]
    words += [f"trainer.max_epochs={steps // FEW}", f"data.train=[{','.join(shared + said)}]"]
    if args.dictionary:
        words.append(f"data.dictionaries=[{','.join(str(path.resolve()) for path in args.dictionary)}]")
    if "teaching=1" in ROWS[name][1]:
        lessons = RUNS / ("lessons-said.npz" if said else "lessons.npz")
        words += [f"data.teacher={args.teacher}", f"data.lessons={lessons}"]
    subprocess.run([sys.executable, "-m", "voiceseq", "train", *words], check=True)
    return sorted(place.glob("*/bundle"))[-1]


def cost(network: Backbone) -> float:
    """Processor seconds for an hour of sound."""
    trigger = TriggerNetwork(TriggerConfig(words=("word",), backbone=network.config)).eval()
    trigger.load_backbone(network)
    detector = Detector.from_network(trigger, {"word": Decision(0.9, 3, 2, 1.0)})
    samples = (0.1 * np.random.default_rng(0).standard_normal(RATE * STREAMED_S)).astype(np.float32)
    detector.detect(samples)  # compiled
    return float(timed("", lambda: detector.detect(samples))["cpu_s_per_hour"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", type=Path, required=True)
    parser.add_argument("--said", type=Path, nargs="*", default=[])
    parser.add_argument("--dictionary", type=Path, nargs="*", default=[])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rows", help="some of the rows alone; they are printed and not written")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in args.rows.split(",") if args.rows else ROWS:
        bundle = load_bundle(str(bundle_of(name, args.steps, args)))
        network = bundle.network(Backbone, BackboneConfig).eval()
        found = {key.removeprefix("val/"): value for key, value in bundle.metrics.items() if key.startswith("val/")}
        row = {"backbone": ROWS[name][0], "weights": sum(parameter.numel() for parameter in network.parameters())}
        row |= {f"phone error %, {corpus}": round(float(found[corpus]), 1) for corpus in CORPORA}
        rows.append(row | {"mean": round(float(found["phone error"]), 1), "CPU s an hour": round(cost(network), 1)})
        print(json.dumps(rows[-1]), flush=True)
    if not args.rows:
        command = f"python benchmarks/backbones.py --teacher DIR --said MANIFEST --steps {args.steps}"
        notes = f"{args.steps} steps of 60 s from nothing ({args.steps / 60:.0f} hours heard), one seed."
        write_section("Phone backbones: what teaches them, what they cost", command, rows, notes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
