"""What a wake word's head gains from each part of its recipe: one word, what ships, synthesisers.

    python benchmarks/heads.py computer [--rows base,smoothed,...] [--work runs/wakeword]

Misses are of people outside the test part (nothing was trained on any of them), false alarms on the part of the bank
that is kept for thresholds: figures to choose by, not to boast with. All rows learn from the same clips, and for 60 %
as long as ``voiceseq wakeword new`` lets a head learn.
"""

import argparse
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from results import write_section

import voiceseq
from voiceseq.datasets.corpora.wakewords import part_of, person, spoken_word
from voiceseq.datasets.manifest import Clip, held_out, read_manifest
from voiceseq.datasets.synthesis import TriggerClip
from voiceseq.datasets.voices import find_voices
from voiceseq.evaluation.conditions import Hardener
from voiceseq.evaluation.operating import Alarms, firings, operating_points, trace
from voiceseq.models.trigger import HeadConfig
from voiceseq.tasks.trigger_loss import TriggerLoss
from voiceseq.training.heads import fit_head
from voiceseq.wakeword.ground import Ground
from voiceseq.wakeword.learning import Classroom, Learning, new_task
from voiceseq.wakeword.making import OPINIONS, Own, Recipe, gather_lessons, ways
from voiceseq.wakeword.mining import hard_spots, listen
from voiceseq.wakeword.windows import Example, Frames, Windows

CONDITIONS = ("clean", "10db", "running", "telephone")
EARLY_S, LATE_S = 0.3, 0.75
SAID = 150  # recordings of the word
SHORT: dict[str, Any] = {"clips": 3000, "alike_clips": 500, "rounds": (600, 500, 500)}
Scores = list[NDArray[np.float32]]


def variants(base: Learning) -> dict[str, tuple[str, Learning]]:
    steps = sum(base.rounds)
    return {
        "base": ("the recipe: GRU head, blurred frames, max-pooling, phone score, mined twice", base),
        "trusting": ("frames as they are, none blurred", replace(base, head=HeadConfig(noise=0.0, lost=0.0))),
        "smoothed": ("smoothed frames instead of max-pooling", replace(base, loss=TriggerLoss("smoothed"))),
        "alone": ("no phone score", replace(base, head=HeadConfig(opinion=0.0))),
        "unmined": ("no mining, as many steps", replace(base, rounds=(steps,))),
        "mined4": ("mined four times", replace(base, rounds=(steps // 5,) * 5)),
        "convolution": ("causal convolutions (MDTC-like)", replace(base, head=HeadConfig("convolution", layers=4))),
        "transformer": ("small streaming transformer", replace(base, head=HeadConfig("transformer", layers=2))),
        "wide": ("a head of 128", replace(base, head=HeadConfig(size=128))),
        "two": ("the mean of two heads", base),
        "phones": ("phone score alone, no training", replace(base, head=HeadConfig("phones"), rounds=())),
    }


def recordings(word: str, shared: Path) -> list[Clip]:
    folder = shared / "speech/wakeword"
    said = [c for name in ("picovoice", "speech_commands") for c in read_manifest(folder / name / "manifest.jsonl")]
    said = [c for c in said if spoken_word(c) == word and part_of(person(c)) != "test" and not c.extra.get("flag")]
    return random.Random(3).sample(said, min(SAID, len(said)))


def spoken(ground: Ground, word: str, shared: Path) -> dict[str, list[Example]]:
    """The word as people say it, in each condition, as the backbone hears it."""
    noises = [c for c in read_manifest(shared / "speech/wakeword/noise/manifest.jsonl") if not held_out(c.id, 0.4)]
    talk = read_manifest(shared / "speech/commonvoice/manifest-dev.jsonl")
    hardener, clips = Hardener(noises, (), talk, 7), recordings(word, shared)
    sounds = {condition: [hardener(condition, clip) for clip in clips] for condition in CONDITIONS}
    return {
        condition: ground.hear(TriggerClip(one.samples, ((0, one.end_s),)) for one in made)
        for condition, made in sounds.items()
    }


def train(ground: Ground, word: str, spelling: Any, windows: Windows, learning: Learning) -> Any:
    task = new_task([word], (spelling,), ground, learning)
    for number, steps in enumerate(learning.rounds):
        windows.hard = hard_spots(listen(task.network.head, windows.streams), learning.mined) if number else []
        windows.seed = 1000 * learning.seed + number
        fit_head(task, windows, steps, windows.seed)
    return task.network.eval().head


def heard_by(heads: Sequence[Any], frames: Sequence[Frames]) -> Scores:
    """The mean of the heads' logits."""
    each = [listen(head, frames) for head in heads]
    return [np.mean(scores, 0)[:, 0] for scores in zip(*each, strict=True)]


def missed(
    heads: Sequence[Any], dev: Sequence[Frames], said: dict[str, list[Example]], frame_s: float
) -> dict[str, Any]:
    decision = Recipe().decision
    quiet = heard_by(heads, dev)
    hours = sum(map(len, quiet)) * frame_s / 3600
    level = float(np.sort(np.concatenate(quiet))[-50])

    def traced(scores: NDArray[np.float32]) -> Any:
        return trace(1 / (1 + np.exp(-np.clip((scores - level).astype(np.float64), -60, 60))), decision, frame_s)

    points = operating_points(Alarms([traced(scores) for scores in quiet]), hours, [0.15, 0.5])
    row = {}
    for condition, examples in said.items():
        traces = [traced(scores) for scores in heard_by(heads, [one.frames for one in examples])]
        shares = [
            np.mean([not _hit(one, t, point.threshold, frame_s) for one, t in zip(examples, traces, strict=True)])
            for point in points
        ]
        row[f"missed %, {condition}, at 0.15 / 0.5 FA/h"] = " / ".join(f"{100 * share:.1f}" for share in shares)
    return row


def _hit(example: Example, heard: Any, threshold: float, frame_s: float) -> bool:
    end_s = example.ends[0][1]
    return any(end_s - EARLY_S <= (frame + 1) * frame_s <= end_s + LATE_S for frame in firings(heard, threshold))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("word")
    parser.add_argument("--rows", help="some of the rows alone; they are printed and not written")
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"))
    parser.add_argument("--work", type=Path, default=Path("runs/wakeword"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    ground, pronouncer, recipe = Ground("backbone", "negatives"), voiceseq.load("pronounce-en"), Recipe()
    short = replace(recipe.learning, **SHORT)
    said = {args.word: ways(args.word, pronouncer, print)}
    lessons = gather_lessons([args.word], said, ground, pronouncer, recipe, args.work, Own(), find_voices(), print)
    classroom = Classroom(ground, lessons, recipe.learning.seed)
    kept, dev = ground.streams([args.word])
    streams = [stream.frames.astype(np.float16) for stream in kept]
    windows = Windows(classroom.examples(short), streams, classroom.alike(short))
    people, spelling = spoken(ground, args.word, args.shared), ground.spell(said[args.word][:OPINIONS])
    rows: list[dict[str, Any]] = []
    known = variants(short)
    for name in args.rows.split(",") if args.rows else known:
        told, learning = known[name]
        started = time.process_time()
        heads = [train(ground, args.word, spelling, windows, learning)]
        if name == "two":
            heads.append(train(ground, args.word, spelling, windows, replace(learning, seed=learning.seed + 1)))
        took_s = time.process_time() - started
        size = sum(p.numel() for head in heads for p in head.parameters() if p.requires_grad)
        row = {"row": told, **missed(heads, [stream.frames for stream in dev], people, ground.network.frame_s)}
        rows.append(row | {"parameters": size, "CPU s of training": round(took_s)})
        print(rows[-1], flush=True)
    if not args.rows:
        notes = f"{SAID} recordings at most, of people outside the test part. One seed: a point or two is chance."
        write_section(
            f"Heads of a typed wake word, {args.word!r}", f"python benchmarks/heads.py {args.word}", rows, notes
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
