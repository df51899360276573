"""``voiceseq doctor``: what works on this machine, and what to do about the rest."""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from voiceseq import __version__
from voiceseq.bundles import shipped_bundles
from voiceseq.cli.options import add_json, print_json, print_table

REQUIRED = ("python", "packages", "torch", "torchaudio", "codecs")

Section = tuple[dict[str, Any], list[str]]  # facts, and advice on what is wrong


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 1 when a package that voiceseq cannot do without is missing or broken."""
    facts: dict[str, Any] = {}
    advice: list[str] = []
    for name, look in CHECKS.items():
        try:
            facts[name], found = look()
        except Exception as error:  # the doctor must outlive whatever the machine has in store
            facts[name], found = {"error": f"{type(error).__name__}: {error}"}, [f"{name} does not work: {error}"]
        advice += found
    healthy = not facts["packages"].get("missing") and not any("error" in facts[name] for name in REQUIRED)
    if args.json:
        print_json({**facts, "advice": advice, "healthy": healthy})
    else:
        show(facts, advice)
    return 0 if healthy else 1


def show(facts: dict[str, Any], advice: list[str]) -> None:
    for name, section in facts.items():
        print(name)
        print_table([(f"  {key.replace('_', ' ')}", text(value)) for key, value in section.items()])
    print("\nwhat to do" if advice else "\nnothing to do: all is well")
    for line in advice:
        print(f"  - {line}")


def text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key} {text(item)}" for key, item in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(text, value)) or "none"
    return "none" if value is None else str(value)


def look_at_python() -> Section:
    facts: dict[str, Any] = {"voiceseq": __version__, "python": platform.python_version(), "at": sys.executable}
    return facts | {"system": platform.platform(), "cpus": os.cpu_count(), "bundles": list(shipped_bundles())}, []


def look_at_packages() -> Section:
    """What voiceseq asks for: the versions, what is missing, and which extras are not installed."""
    versions: dict[str, str] = {}
    absent: dict[str, list[str]] = {}
    for line in metadata.requires("voiceseq") or []:
        name = re.split(r"[^\w.-]", line)[0]
        extra = re.search(r"extra == ['\"]([\w-]+)", line)
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            absent.setdefault(extra[1] if extra else "", []).append(name)
    missing = absent.pop("", [])
    advice = [f"{', '.join(missing)} missing: pip install {' '.join(missing)}"] if missing else []
    return {"installed": versions, "missing": missing, "optional_and_absent": absent}, advice


def look_at_torch() -> Section:
    import torch

    accelerators = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    accelerators += ["Apple MPS"] if torch.backends.mps.is_available() else []
    return {"version": torch.__version__, "threads": torch.get_num_threads(), "accelerators": accelerators}, []


def look_at_torchaudio() -> Section:
    from voiceseq.audio.backend import compiled, torchaudio

    how = (
        "with its compiled part" if compiled else "over a stand-in: mel and resampling work, recursive filters are slow"
    )
    return {"version": torchaudio.__version__, "imports": how}, []


def look_at_audio() -> Section:
    """The microphones and loudspeakers that PortAudio sees."""
    try:
        import sounddevice
    except ModuleNotFoundError:
        return {"devices": None}, ["no microphone without sounddevice: pip install 'voiceseq[mic]'"]
    except OSError:  # the package is there, the library is not
        return {"devices": None}, [
            "no microphone without PortAudio: apt-get install libportaudio2 (or brew, dnf: portaudio)"
        ]
    found = sounddevice.query_devices()
    inputs = [device["name"] for device in found if device["max_input_channels"]]
    outputs = [device["name"] for device in found if device["max_output_channels"]]
    advice = [] if inputs else ["no microphone found: plug one in, or check the permissions of the sound devices"]
    return {"microphones": inputs, "loudspeakers": outputs}, advice


def look_at_codecs() -> Section:
    import soundfile

    facts: dict[str, Any] = {"soundfile_reads": sorted(name.lower() for name in soundfile.available_formats())}
    ffmpeg = shutil.which("ffmpeg")
    if ffmpeg is None:
        return facts | {"ffmpeg": None}, ["m4a, webm and video need ffmpeg: apt-get install ffmpeg"]
    said = subprocess.run([ffmpeg, "-version"], capture_output=True, text=True, timeout=10, check=False).stdout
    return facts | {"ffmpeg": said.partition(" Copyright")[0].removeprefix("ffmpeg version ")}, []


def look_at_disk() -> Section:
    folder = Path.cwd()
    free = shutil.disk_usage(folder).free
    advice = [f"only {free / 1e9:.1f} GB free in {folder}: training wants about 2 GB"] if free < 2e9 else []
    return {"folder": str(folder), "free_gb": round(free / 1e9, 1)}, advice


CHECKS: dict[str, Callable[[], Section]] = {
    "python": look_at_python,
    "packages": look_at_packages,
    "torch": look_at_torch,
    "torchaudio": look_at_torchaudio,
    "audio": look_at_audio,
    "codecs": look_at_codecs,
    "disk": look_at_disk,
}
