"""What the network of the six words learns from beside people's recordings, and what its thresholds are set on.

    python benchmarks/word_sources.py FREE OUT

FREE is the folder of ``benchmarks/free_sounds.py``. OUT gets takes of the words by synthesisers and four manifests:
said.jsonl (the words, alone and inside sentences), alike.jsonl (what sounds like them), noise.jsonl (noise and music)
and dev.jsonl (hours without the words, of speakers and sounds that are in neither training nor test).
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from heard import NOISE_SHARE
from words import SIX

import voiceseq
from voiceseq.datasets.corpora.wakewords import HELD_OUT_SHARE, part_of
from voiceseq.datasets.manifest import Clip, held_out, read_manifest
from voiceseq.datasets.voices import find_voices
from voiceseq.wakeword.ground import Ground
from voiceseq.wakeword.making import known_words, ways
from voiceseq.wakeword.material import Amounts, say_material, sounding_alike

AMOUNTS = Amounts(alone=250, sentences=100, alike=100, talk=60)
DEV_SHARE = 0.25  # of the speakers, as data.dev_share in the experiment
Rows = list[dict[str, Any]]


def row(clip: Clip, **more: Any) -> dict[str, Any]:
    place = {"audio": str(Path(clip.audio).resolve()), "offset": clip.offset, "duration": clip.duration}
    return {"id": clip.id, **place, "speaker": clip.speaker, "text": clip.text, **more}


def takes(out: Path) -> tuple[Rows, Rows]:
    """The words, and what sounds like them."""
    ground, pronouncer, voices = Ground("backbone", "negatives"), voiceseq.load("pronounce-en"), find_voices()
    dictionary = known_words(ground, pronouncer)
    said: Rows = []
    alike: Rows = []
    for number, word in enumerate(SIX):
        near = sounding_alike(word, ways(word, pronouncer, print), dictionary)
        material = say_material(word, number, near, out / re.sub(" ", "-", word), AMOUNTS, voices, 11, tell=print)
        said += [
            row(one.clip, id=f"{word}-{one.clip.id}", word=word, word_start=one.start_s, word_end=one.end_s)
            for one in material.said
        ]
        alike += [row(one.clip, id=f"near-{word}-{one.clip.id}", word=one.clip.text) for one in material.alike]
    return said, alike


def noises(free: Path, shared: Path) -> Rows:
    """Of packages for training, none under the GPL alone, and of the shared noise what no test hears."""
    found = [clip for kind in ("noise", "music") for clip in read_manifest(free / kind / "manifest.jsonl")]
    found = [one for one in found if one.extra["share"] == "train" and one.extra["licence_class"] != "gpl"]
    theirs = read_manifest(shared / "wakeword/noise/manifest.jsonl")
    found += [one for one in theirs if not held_out(one.id, NOISE_SHARE)]
    return [row(one, speaker=None, kind=one.extra["kind"], licence=one.extra["licence"]) for one in found]


def dev_speech(shared: Path) -> Rows:
    names = [
        f"{corpus}/manifest-{part}.jsonl"
        for corpus in ("librispeech", "commonvoice", "speechocean762", "harpervalley")
        for part in ("train", "extra")
    ]
    clips = [clip for name in names for clip in read_manifest(shared / name)]
    return [
        row(clip, kind="speech")
        for clip in clips
        if held_out(clip.speaker, HELD_OUT_SHARE + DEV_SHARE) and not held_out(clip.speaker, HELD_OUT_SHARE)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("free", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shared", type=Path, default=Path("../shared/data/speech"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    said, alike = takes(args.out)
    noise = noises(args.free, args.shared)
    dev = dev_speech(args.shared) + [one for one in noise if part_of(one["id"]) == "dev"]
    for name, rows in {"said": said, "alike": alike, "noise": noise, "dev": dev}.items():
        whole = {one["id"]: one for one in rows}.values()
        (args.out / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in whole))
        print(f"{name}: {len(whole)} clips, {sum(one['duration'] for one in whole) / 3600:.1f} h")


if __name__ == "__main__":
    main()
