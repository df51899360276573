"""Forced alignment beside what is known of when words are said.

    python benchmarks/align.py [--model backbone] [--utterances 40]

Running speech (dev parts of LibriSpeech and Harper Valley): PocketSphinx 5's own forced alignment, which is not the
truth, but makes other mistakes. Single words (Speech Commands, Picovoice): where their energy begins and ends, as the
shared manifests tell. A row tells how far the beginnings and ends of words are from it.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from results import table, write_section
from speech import RATE, ROOT, Peer, chosen, stored

import voiceseq
from voiceseq.datasets.manifest import Clip, read_manifest
from voiceseq.inference.align import Aligner
from voiceseq.inference.phones import PhoneRecogniser

RUNNING, SINGLE = ("librispeech", "harpervalley"), ("speech_commands", "picovoice")
Times = list[tuple[float, float]]


class AlignPeer(Peer):
    """PocketSphinx, told what is said."""

    def __init__(self) -> None:
        super().__init__("pocketsphinx-align")

    def question(self, clip: Clip) -> str:
        return f"{stored(clip)}\t{clip.text}"

    def times(self, clip: Clip) -> Times:
        """None of the words where it does not know one of them."""
        answer = self.text(clip)
        return [(start, end) for _, start, end in json.loads(answer)] if answer else []


def told_times(clip: Clip) -> Times:
    return [(clip.extra["word_start"], clip.extra["word_end"])]


def row_of(case: str, aligner: Aligner, known: Sequence[tuple[Clip, str, Times]]) -> dict[str, Any]:
    errors = []
    for clip, text, times in known:
        samples = np.fromfile(stored(clip), "<i2").astype(np.float32) / 32768
        words = aligner.align(samples, text, RATE).words
        ours = [(word.start, word.end) for word in words]
        # a label of several words has one beginning and one end
        errors += np.subtract(ours if len(ours) == len(times) else [(ours[0][0], ours[-1][1])], times).tolist()
    away = np.abs(errors)
    row: dict[str, Any] = {"words": case, "count": len(errors)}
    for place, edge in enumerate(("beginnings", "ends")):
        row[f"{edge}: median ms"] = round(1000 * float(np.median(away[:, place])))
        row[f"{edge}: within 50 ms, %"] = round(100 * float((away[:, place] <= 0.05).mean()))
        row[f"{edge}: within 100 ms, %"] = round(100 * float((away[:, place] <= 0.1).mean()))
        row[f"{edge}: bias ms"] = round(1000 * float(np.mean(errors, axis=0)[place]))
    return row


def measure(model: str, shared: Path, count: int) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    loaded = voiceseq.load(model)
    phones = isinstance(loaded, PhoneRecogniser)
    aligner = Aligner.of(loaded, voiceseq.load("pronounce-en") if phones else None, {})
    rows, peer = [], AlignPeer()
    try:
        for name in RUNNING:
            clips = chosen(read_manifest(shared / "speech" / name / "manifest-dev.jsonl"), count)
            known = [(clip, clip.text or "", peer.times(clip)) for clip in clips]
            rows.append(row_of(f"{name}, against PocketSphinx", aligner, [one for one in known if one[2]]))
    finally:
        peer.close()
    for name in SINGLE:
        clips = read_manifest(shared / "speech" / "wakeword" / name / "manifest.jsonl")
        clips = chosen([clip for clip in clips if not clip.extra.get("flag")], count)
        known = [(clip, str(clip.extra["label"]).replace("_", " "), told_times(clip)) for clip in clips]
        rows.append(row_of(f"{name}, against their energy", aligner, known))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="backbone")
    parser.add_argument("--utterances", type=int, default=40, help="of each corpus")
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared" / "data")
    args = parser.parse_args()
    rows = measure(args.model, args.shared, args.utterances)
    print(table(rows))
    name = Path(args.model).name
    command = f"python benchmarks/align.py --model {name}"
    command += f" --utterances {args.utterances}" if args.utterances != parser.get_default("utterances") else ""
    notes = (
        "No dictionary: words are pronounced by pronounce-en. The aligner's four constants (delay, pauses, reach) were "
    )
    notes += "chosen on 80 recordings of these corpora and of a synthesiser, some of which are in this table, too."
    write_section(f"Forced alignment by {name}", command, rows, notes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
