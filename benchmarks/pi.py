"""What does a small machine need to listen: disk, time to start, memory, processor?

    python benchmarks/pi.py --install      # once: an environment with the listener alone, in runs/listener
    python benchmarks/pi.py [--json]       # writes its section of RESULTS.md

Six shipped words: from an ONNX file in an environment without torch (32 bits and int8), by the lean path of the whole
installation, and by Porcupine; openWakeWord and microWakeWord with those of the words that they have. Each is a process
of its own, started in turns, with the same minute of sound; the least of the runs counts, since others may be at work
here. "start" is from the start of the process until a second of sound has been heard. The peers are those that
``python benchmarks/wakeword.py --install`` installs; what is not there is left out.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

import numpy as np
from results import table, write_section

from voiceseq.export.onnx import export_onnx, shipped_clips

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "runs" / "listener"
TITLE = "A listener without torch"
WORDS = ["alexa", "computer", "jarvis", "smart mirror", "snowboy", "view glass"]
SOUND_S, REPEATS = 60, 7
LISTENER, PEERS = HERE / "venv" / "bin" / "python", ROOT / "runs" / "peers" / "venv" / "bin" / "python"
ENGINES = {  # its Python, its package, its model
    "onnx": (LISTENER, "voiceseq-listener", "six-words.onnx"),
    "int8": (LISTENER, "voiceseq-listener", "six-words-int8.onnx"),
    "lean": (Path(sys.executable), "voiceseq", "six-words"),
    "porcupine": (PEERS, "pvporcupine", None),
    "openwakeword": (PEERS, "openwakeword", None),
    "microwakeword": (PEERS, "pymicro-wakeword", None),
}
TARGETS = {"installed_mb": 150.0, "start_s": 1.0, "resident_mb": 80.0}
CASES = {
    "words": "words",
    "installed_mb": "installation, MB",
    "start_s": "start, s",
    "start_cpu_s": "start, CPU s",
    "resident_mb": "resident, MB",
    "cpu_s_per_hour": "CPU s per hour of sound",
}


def install() -> None:
    venv.create(HERE / "venv", with_pip=True)
    wheels = HERE / "wheels"
    make = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(wheels)]
    subprocess.run([*make, str(ROOT / "apps/listener")], check=True)
    newest = max(wheels.glob("*.whl"), key=lambda path: path.stat().st_mtime)
    pip = [str(LISTENER), "-m", "pip", "install", "-q", "--no-compile", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, "--force-reinstall", str(newest)], check=True)


def sound() -> np.ndarray:
    """The clips that ship, again and again."""
    clips = np.concatenate([samples for _, samples in shipped_clips(16_000)])
    return (np.resize(clips, 16_000 * SOUND_S) * 32767).astype("<i2")


def run(name: str, folder: Path) -> dict[str, Any]:
    python, package, model = ENGINES[name]
    if model and model.endswith(".onnx"):
        model = str(HERE / model)
    folders = [str(ROOT / one) for one in ("voiceseq", "apps", "conf", "data")] if name == "lean" else []
    job = {"words": WORDS, "sound": str(folder / "sound.pcm"), "model": model, "package": package, "folders": folders}
    (folder / "job.json").write_text(json.dumps(job | {"spawned": time.time()}))
    command = [str(python), str(ROOT / "benchmarks" / "pi_engine.py"), name, str(folder / "job.json")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return json.loads(ran.stdout)


def measure() -> dict[str, Any]:
    here = [name for name, (python, _, _) in ENGINES.items() if python.exists()]
    for name in ("onnx", "int8"):
        export_onnx(["six-words"], HERE / ENGINES[name][2], None if name == "onnx" else name)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in here}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        sound().tofile(folder / "sound.pcm")
        for _ in range(REPEATS):
            for name in here:
                found[name].append(run(name, folder))
    best = {name: {key: min(one[key] for one in runs) for key in CASES} for name, runs in found.items()}
    rows = [row(key, best) for key in CASES]
    load = f"\n\nProcesses that waited for a processor meanwhile: {os.getloadavg()[1]:.0f}, on {os.cpu_count()} cores."
    same = [[word for _, word in found[name][0]["events"]] for name in ("onnx", "int8", "lean")]
    rows.append(
        {"case": "same events as the whole installation", "onnx": same[0] == same[2], "int8": same[1] == same[2]}
    )
    return {"benchmark": "pi", "rows": rows, "notes": __doc__.split("\n\n")[2] + load}


def row(key: str, best: dict[str, dict[str, Any]]) -> dict[str, Any]:
    values = {name: round(figures[key], 2) for name, figures in best.items()}
    target = best["porcupine"][key] if key == "cpu_s_per_hour" and "porcupine" in best else TARGETS.get(key)
    met = None if target is None else best["onnx"][key] <= target
    return {"case": CASES[key], **values, "target": None if target is None else round(target, 2), "met": met}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--install", action="store_true", help="make the listener's environment and stop")
    parser.add_argument("--json", action="store_true", help="one line of JSON, and RESULTS.md stays as it is")
    args = parser.parse_args()
    if args.install:
        install()
        return 0
    if not LISTENER.exists():
        print(f"no listener in {HERE}: python benchmarks/pi.py --install", file=sys.stderr)
        return 1
    measured = measure()
    if args.json:
        print(json.dumps(measured))
    else:
        write_section(TITLE, "python benchmarks/pi.py", measured["rows"], measured["notes"])
        print(table(measured["rows"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
