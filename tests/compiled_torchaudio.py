"""torchaudio's compiled operators on a machine without CUDA, to prove our own code against them.

The wheel's libraries are linked to CUDA's. Stand-ins with those names, loaded first, let the linker find every symbol;
the CPU operators never call one of them. Needs a C compiler and nm; without them the proofs that need it are skipped.
"""

import ctypes
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def load(folder: Path) -> ModuleType:
    """torchaudio with ``forced_align`` and its like; skips where that cannot be had."""
    spec = importlib.util.find_spec("torchaudio")
    if spec is None or spec.origin is None:
        pytest.skip("torchaudio is not installed")
    needed = [tool for tool in ("cc", "nm", "readelf") if shutil.which(tool) is None]
    if needed:
        pytest.skip(f"torchaudio's compiled part needs {', '.join(needed)} on this machine")
    _preload(sorted(Path(spec.origin).parent.glob("lib/*.so")), folder)
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchaudio"]:
        del sys.modules[name]  # somebody may have imported it without its compiled part
    import torchaudio

    return torchaudio


def _preload(libraries: list[Path], folder: Path) -> None:
    import torch

    torch_cpu: Any = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    symbols: dict[str, set[str]] = {}
    for library in libraries:
        for name in re.findall(r"NEEDED.*\[(lib\w*cuda\w*\.so[.\d]*)\]", _output("readelf", "-d", str(library))):
            symbols.setdefault(name, set())
        for symbol, version in re.findall(r" U (\w*cuda\w*)(?:@(\S+))?", _output("nm", "-D", "-u", str(library))):
            if version:
                symbols[version].add(symbol)
            elif not hasattr(torch_cpu, symbol):
                symbols["libtorch_cuda.so"].add(symbol)
    for name, wanted in symbols.items():
        ctypes.CDLL(str(_compile(name, wanted, folder)), mode=ctypes.RTLD_GLOBAL)


def _compile(name: str, symbols: set[str], folder: Path) -> Path:
    """A library called ``name`` in which every symbol is a function that says "no device" (CUDA's error 100)."""
    source, versions, target = folder / f"{name}.c", folder / f"{name}.map", folder / name
    source.write_text("".join(f"long {symbol}(void) {{ return 100; }}\n" for symbol in sorted(symbols)) + "\n")
    versions.write_text(f"{name} {{ global: *; }};\n")
    command = ["cc", "-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{name}", "-o", str(target), str(source)]
    if re.search(r"\.so\.\d", name):
        command.append(f"-Wl,--version-script={versions}")
    subprocess.run(command, check=True)
    return target


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
