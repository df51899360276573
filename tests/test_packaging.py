"""The wheel holds the whole house, and what is installed from it runs away from the source tree."""

import importlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import voiceseq

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETTINGS = PROJECT["tool"]["setuptools"]
GENERATED = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.pyc")


def pip(*words: str) -> None:
    offline = {**os.environ, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    ran = subprocess.run(
        [sys.executable, "-m", "pip", *words], capture_output=True, text=True, env=offline, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy, so that no build folder of the real tree can lend a file that is no longer there."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for folder in SETTINGS["package-dir"].values():
        shutil.copytree(ROOT / folder, source / folder, ignore=GENERATED)
    for name in ("pyproject.toml", PROJECT["project"]["readme"], *PROJECT["project"]["license-files"]):
        shutil.copy(ROOT / name, source)
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(out), str(source))
    return next(out.glob("voiceseq-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    pip("install", "--no-deps", "--no-compile", "--target", str(target), str(wheel))
    return target


def test_every_package_folder_is_listed():
    """The list in pyproject.toml is explicit; a folder left out of it would be missing for users only."""
    found = {"voiceseq"}
    for package, folder in SETTINGS["package-dir"].items():
        inner = [p.parent.relative_to(ROOT / folder) for p in (ROOT / folder).rglob("__init__.py")]
        found |= {".".join([package, *path.parts]) for path in inner}
    assert found == set(SETTINGS["packages"])


def test_every_python_folder_is_a_package():
    for folder in SETTINGS["package-dir"].values():
        for path in (ROOT / folder).rglob("*.py"):
            assert (path.parent / "__init__.py").exists(), f"{path.parent} has modules but no __init__.py"


def test_the_wheel_holds_every_file(wheel):
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    wanted = set()
    for package, folder in SETTINGS["package-dir"].items():
        for path in (p for p in (ROOT / folder).rglob("*") if p.is_file() and "__pycache__" not in p.parts):
            if path.parent.name == "listener":  # the recipe of another package
                continue
            wanted.add(f"{package.replace('.', '/')}/{path.relative_to(ROOT / folder).as_posix()}")
    assert "voiceseq/conf/train.yaml" in wanted
    assert wanted - packed == set()
    assert not [name for name in packed if name.startswith(("tests/", "benchmarks/", "conf/", "apps/", "data/"))]


def test_what_is_installed_from_the_wheel_runs_elsewhere(installed, tmp_path):
    """-S leaves out site-packages and so the editable install: only the wheel and the standard library are left."""

    def run(*words: str) -> str:
        environment = {"PYTHONPATH": str(installed), "PATH": os.environ["PATH"]}
        words = (sys.executable, "-S", *words)
        ran = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert "commands:" in run("-m", "voiceseq.cli.main", "--help")
    assert "example" in run("-m", "voiceseq", "tasks")
    where = "import voiceseq.conf, json; print(json.dumps([voiceseq.__file__, *voiceseq.conf.__path__]))"
    assert json.loads(run("-c", where)) == [str(installed / "voiceseq/__init__.py"), str(installed / "voiceseq/conf")]


def test_the_editable_install_reads_the_top_level_folders():
    if not Path(voiceseq.__file__).is_relative_to(ROOT):
        pytest.skip("voiceseq is not installed from this tree")
    for name in ("apps", "conf", "data"):
        assert list(importlib.import_module(f"voiceseq.{name}").__path__) == [str(ROOT / name)]


def test_there_is_one_version(wheel):
    assert metadata.version("voiceseq") == voiceseq.__version__
    assert wheel.name.split("-")[1] == voiceseq.__version__


def test_the_script_is_the_command():
    (script,) = metadata.entry_points(group="console_scripts", name="voiceseq")
    assert script.load() is importlib.import_module("voiceseq.cli.main").main
