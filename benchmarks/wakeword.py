"""Wake words beside other engines: the same audio through voiceseq and every peer that is there, one thread each.

    python benchmarks/wakeword.py --install                  # once: the peers, into runs/peers/venv
    python benchmarks/wakeword.py [--model BUNDLE]... [--part test] [--hours 8] [--fresh]

Peers (all run offline, weights in their packages): Porcupine 1.9.5 at the sensitivities 0.5 and 0.8, openWakeWord
0.5.1, microWakeWord (pymicro-wakeword 2.5.0), PocketSphinx 5.1.1. Without a --model the peers are measured alone.

Positives are clips with ``word`` or ``label``; negatives speech, noise and music. The defaults are the shared data's
test people and speech that no training heard. Every word is heard with 1.5 s of silence before and 1 s after it; it
counts as found where the engine names it between its start and 1 s after its end. A peer's answers are kept in
runs/peers and used again unless --fresh is given; RESULTS.md is written with --fresh only.
"""

import argparse
import hashlib
import json
import os
import shlex
import subprocess
import sys
import time
import venv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from results import table, write_section

import voiceseq
from voiceseq.datasets.corpora.wakewords import part_of, person, spoken_word, unheard_speech, without_phrases
from voiceseq.datasets.manifest import Clip, read_manifest
from voiceseq.evaluation.conditions import RATE, Hardener
from voiceseq.evaluation.operating import Alarms, alarm_rate, firings, miss_interval, operating_points, trace
from voiceseq.evaluation.streams import kind_of, streams

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "runs" / "peers"
PYTHON = HERE / "venv" / "bin" / "python"
PEERS = ("porcupine", "porcupine-0.8", "openwakeword", "microwakeword", "pocketsphinx")
PACKAGES = ("numpy", "onnxruntime", "scipy", "scikit-learn", "tqdm", "requests", "pymicro-wakeword==2.5.0")
ALONE = ("pvporcupine==1.9.5", "openwakeword==0.5.1")  # what they ask for beside it is not needed
LATE_S = 1.0
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Spoken(NamedTuple):
    """A word inside a stream, in seconds."""

    word: str
    person: str
    start_s: float
    end_s: float


class Test(NamedTuple):
    """Streams of one sort as files of 16-bit samples; ``spoken[i]`` are the words in stream i."""

    paths: list[Path]
    spoken: list[list[Spoken]]
    hours: float


def install() -> None:
    venv.create(HERE / "venv", with_pip=True)
    pip = [str(PYTHON), "-m", "pip", "install", "-q"]
    subprocess.run([*pip, *PACKAGES, "pocketsphinx==5.1.1"], check=True)
    subprocess.run([*pip, "--no-deps", *ALONE], check=True)


# --- the audio -------------------------------------------------------------------------------------------------------


def store(samples: np.ndarray) -> Path:
    """A file of 16-bit samples named by its content; what is over full scale is made softer as a whole."""
    whole = np.round(samples / max(1.0, float(np.abs(samples).max())) * 32767).astype("<i2")
    path = HERE / "audio" / f"{hashlib.sha256(whole.tobytes()).hexdigest()[:24]}.pcm"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        whole.tofile(part)
        part.rename(path)
    return path


def words_test(clips: Sequence[Clip], condition: str, hardener: Hardener) -> Test:
    """One stream a word and condition: its clips one after the other, each with its silence."""
    paths, spoken, seconds = [], [], 0.0
    for word in sorted({spoken_word(clip) or "" for clip in clips}):
        parts, said, at = [], [], 0
        for clip in (clip for clip in clips if spoken_word(clip) == word):
            sound = hardener(condition, clip)
            sound_samples = sound.samples / max(1.0, float(np.abs(sound.samples).max()))
            said.append(Spoken(word, person(clip), (at + sound.start) / RATE, (at + sound.end) / RATE))
            parts.append(sound_samples)
            at += len(sound_samples)
        paths.append(store(np.concatenate(parts)))
        spoken.append(said)
        seconds += at / RATE
    return Test(paths, spoken, seconds / 3600)


def quiet_test(clips: Iterable[Clip]) -> Test:
    by_kind: dict[str, list[Clip]] = {}
    for clip in clips:
        by_kind.setdefault(kind_of(clip), []).append(clip)
    joined = [stream for kind in sorted(by_kind) for stream in streams(kind, by_kind[kind])]
    return Test([store(stream.read()) for stream in joined], [[] for _ in joined], sum(one.hours for one in joined))


def chosen(clips: Iterable[Clip], hours: float) -> list[Clip]:
    """So many hours of the clips, in an order that has nothing to do with corpus or speaker."""
    taken: list[Clip] = []
    seconds = 0.0
    for clip in sorted(clips, key=lambda clip: hashlib.sha256(clip.id.encode()).digest()):
        if seconds >= hours * 3600:
            break
        taken.append(clip)
        seconds += clip.duration
    return taken


# --- who hears it ----------------------------------------------------------------------------------------------------


def ask(peer: str, words: Sequence[str], test: Test, fresh: bool) -> dict[str, Any]:
    """What a peer says to the streams of a test; from the last time where nothing has changed."""
    said = [spoken[0].word if spoken else None for spoken in test.spoken]
    job = json.dumps({"words": list(words), "streams": list(zip(map(str, test.paths), said, strict=True))})
    script = Path(__file__).with_name("wakeword_peers.py")
    key = hashlib.sha256(f"{peer}\n{job}\n{script.read_text()}".encode()).hexdigest()[:24]
    answer = HERE / "answers" / f"{key}.json"
    if fresh or not answer.exists():
        answer.parent.mkdir(parents=True, exist_ok=True)
        task = answer.with_suffix(".job")
        task.write_text(job)
        done = subprocess.run(
            [str(PYTHON), str(script), peer, str(task)],
            capture_output=True, text=True, check=False, env={**os.environ, **ONE_THREAD},
        )  # fmt: skip
        if done.returncode:
            return {"words": [], "events": [], "cpu_s": 0.0, "seconds": 0.0, "failed": done.stderr.strip()[-300:]}
        answer.write_text(done.stdout.strip().splitlines()[-1])
    return json.loads(answer.read_text())


def missed(test: Test, events: Sequence[tuple[str, float, str]], word: str) -> dict[str, list[bool]]:
    """Person to whether each of their utterances of a word was missed."""
    times: dict[str, np.ndarray] = {
        str(path): np.array([at for stream, at, heard in events if stream == str(path) and heard == word])
        for path in test.paths
    }
    found: dict[str, list[bool]] = {}
    for path, spoken in zip(test.paths, test.spoken, strict=True):
        for one in (one for one in spoken if one.word == word):
            at = times[str(path)]
            heard = bool(((at >= one.start_s) & (at <= one.end_s + LATE_S)).any())
            found.setdefault(one.person, []).append(not heard)
    return found


def percent(interval: Any) -> str:
    return f"{100 * interval.estimate:.1f} ({100 * interval.low:.1f} to {100 * interval.high:.1f})"


def peer_rows(peer: str, words: Sequence[str], tests: dict[str, Test], quiet: Test, fresh: bool) -> list[dict]:
    """A row a word that the peer knows, and one for all of them together."""
    heard = {name: ask(peer, words, test, fresh) for name, test in (*tests.items(), ("quiet", quiet))}
    if failed := [answer["failed"] for answer in heard.values() if "failed" in answer]:
        print(f"{peer} does not run: {failed[0]}", file=sys.stderr)
        return []
    silent, known, rows = heard["quiet"], heard["quiet"]["words"], []
    for word in known:
        alarms = sum(found == word for _, _, found in silent["events"])
        rate = alarm_rate(alarms, quiet.hours)
        row = {"engine": peer, "word": word, "alarms": alarms, "FA/h": rate.per_hour}
        row["95 %"] = f"{rate.low:.2f} to {rate.high:.2f}"
        for name, test in tests.items():
            row[f"missed %, {name}"] = percent(miss_interval(missed(test, heard[name]["events"], word)))
        rows.append(row)
    if known:
        rows.append(together(peer, known, tests, quiet, heard))
    return rows


def together(peer: str, known: Sequence[str], tests: dict[str, Test], quiet: Test, heard: dict[str, Any]) -> dict:
    silent = heard["quiet"]
    rate = alarm_rate(len(silent["events"]), quiet.hours)
    row = {"engine": peer, "word": f"all {len(known)}", "alarms": rate.alarms, "FA/h": rate.per_hour}
    row["95 %"] = f"{rate.low:.2f} to {rate.high:.2f}"
    for name, test in tests.items():
        joined: dict[str, list[bool]] = {}
        for word in known:
            for who, misses in missed(test, heard[name]["events"], word).items():
                joined.setdefault(who, []).extend(misses)
        row[f"missed %, {name}"] = percent(miss_interval(joined))
    row["CPU s/h"] = silent["cpu_s"] / silent["seconds"] * 3600
    return row


# --- voiceseq --------------------------------------------------------------------------------------------------------


def our_rows(model: str, tests: dict[str, Test], quiet: Test, theirs: Sequence[dict]) -> list[dict]:
    """The bundle at its own threshold, and on its curve at each peer's number of false alarms."""
    detector = voiceseq.load(model)
    scores = {path: detector.scores(heard(path), RATE) for test in (*tests.values(), quiet) for path in test.paths}
    rows = []
    for place, word in enumerate(detector.words):
        decision = detector.decisions[word]
        traces = {path: trace(found[:, place], decision, detector.frame_s) for path, (_, found) in scores.items()}
        alarms = Alarms([traces[path] for path in quiet.paths])
        points = [("its own threshold", decision.threshold)]
        for row in theirs:
            if row["word"] == word:
                (point,) = operating_points(alarms, quiet.hours, [row["FA/h"]])
                points.append((f"curve, as many FA/h as {row['engine']}", point.threshold))
        for name, threshold in points:
            rate = alarm_rate(alarms.count(threshold), quiet.hours)
            row = {"engine": f"voiceseq {model}: {name}", "word": word, "alarms": rate.alarms, "FA/h": rate.per_hour}
            row["95 %"] = f"{rate.low:.2f} to {rate.high:.2f}"
            for case, test in tests.items():
                events = [
                    (str(path), float(scores[path][0][frame]), word)
                    for path in test.paths
                    for frame in firings(traces[path], threshold)
                ]
                if misses := missed(test, events, word):
                    row[f"missed %, {case}"] = percent(miss_interval(misses))
            rows.append(row)
    rows[-1]["CPU s/h"] = stream_cost(detector, quiet)
    return rows


def heard(path: Path) -> np.ndarray:
    return np.fromfile(path, "<i2").astype(np.float32) / 32768


def stream_cost(detector: Any, quiet: Test) -> float:
    """CPU seconds an hour of the live path, in blocks of 80 ms, as an application feeds it."""
    stream = detector.stream(sample_rate=RATE)
    spent, seconds = 0.0, 0.0
    for path in quiet.paths:
        samples = heard(path)
        began = time.process_time()
        for start in range(0, len(samples), 1280):
            stream.feed(samples[start : start + 1280])
        spent += time.process_time() - began
        seconds += len(samples) / RATE
    return spent / seconds * 3600


# --- the command -----------------------------------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    shared = Path(os.environ.get("VOICESEQ_SHARED") or ROOT.parent / "shared") / "data" / "speech"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true", help="install the peers and stop")
    parser.add_argument("--model", action="append", default=[], help="a bundle to measure beside them")
    parser.add_argument("--positives", type=Path, default=shared / "wakeword" / "picovoice" / "manifest.jsonl")
    parser.add_argument("--part", default="test", choices=("train", "dev", "test", "all"), help="whose clips")
    parser.add_argument("--negatives", type=Path, action="append", default=[], help="manifests (default: speech)")
    parser.add_argument("--noise", type=Path, default=shared / "wakeword" / "noise" / "manifest.jsonl")
    parser.add_argument("--conditions", default="clean,10db")
    parser.add_argument("--hours", type=float, default=1000.0, help="at most so many hours of negatives")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--fresh", action="store_true", help="ask every peer anew, and write RESULTS.md")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.speech = shared
    return args


def measure(args: argparse.Namespace) -> dict[str, Any]:
    positives = [clip for clip in read_manifest(args.positives) if spoken_word(clip)]
    positives = [clip for clip in positives if args.part in ("all", part_of(person(clip)))]
    words = sorted({spoken_word(clip) or "" for clip in positives})
    rows = [clip for path in args.negatives for clip in read_manifest(path)] or unheard_speech(args.speech)
    quiet = quiet_test(chosen(without_phrases(rows, words), args.hours))
    noises = [clip for clip in read_manifest(args.noise) if kind_of(clip) == "noise"]
    hardener = Hardener(noises=noises, speech=[clip for clip in rows if kind_of(clip) == "speech"])
    tests = {name: words_test(positives, name, hardener) for name in args.conditions.split(",")}
    found: list[dict] = []
    for peer in args.peers.split(",") if PYTHON.exists() else []:
        found += peer_rows(peer, words, tests, quiet, args.fresh)
        print(f"{peer} done", file=sys.stderr, flush=True)
    theirs = list(found)
    for model in args.model:
        found += our_rows(model, tests, quiet, theirs)
    notes = (
        f"{len(positives)} clips of {len({person(clip) for clip in positives})} voices ({args.part} people), "
        f"{quiet.hours:.2f} hours without the words. Misses with 95 % intervals drawn over voices, false alarms with "
        'exact Poisson intervals. "Its own threshold" was set on development data; "curve" rows take the threshold '
        "from these same negatives, which is the optimistic reading."
    )
    return {"benchmark": "wakeword", "rows": found, "notes": notes}


def main() -> int:
    args = arguments()
    if args.install:
        install()
        return 0
    if not PYTHON.exists():
        print(f"no peers in {PYTHON.parent}: python benchmarks/wakeword.py --install", file=sys.stderr)
    measured = measure(args)
    if args.fresh and args.model:
        command = shlex.join(["python", "benchmarks/wakeword.py", *sys.argv[1:]])
        write_section("Wake words beside other engines", command, measured["rows"], measured["notes"])
    print(json.dumps(measured) if args.json else f"{table(measured['rows'])}\n\n{measured['notes']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
