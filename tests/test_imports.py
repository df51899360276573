"""Who may import whom, and what must not be imported at all until it is needed."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import voiceseq

ROOT = Path(__file__).resolve().parent.parent
HEAVY = (
    "torch",
    "numpy",
    "numba",
    "torchaudio",
    "librosa",
    "hydra",
    "omegaconf",
    "pytorch_lightning",
    "rich",
    "matplotlib",
)

LINT = """
import sys
from importlinter.cli import lint_imports
sys.exit(lint_imports(config_filename=sys.argv[1], no_cache=True))
"""


@pytest.fixture
def house(tmp_path) -> Path:
    """The package as it is installed: apps, conf and data inside it (an editable install keeps them beside it)."""
    mapping = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]
    for package, source in mapping.items():
        shutil.copytree(
            ROOT / source, tmp_path / package.replace(".", "/"), ignore=lambda folder, names: not_python(folder, names)
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def not_python(folder: str, names: list[str]) -> list[str]:
    return [n for n in names if n == "__pycache__" or not (n.endswith(".py") or (Path(folder) / n).is_dir())]


def lint(house: Path) -> subprocess.CompletedProcess:
    words = [sys.executable, "-c", LINT, str(house / "pyproject.toml")]
    return subprocess.run(words, cwd=house, env={"PYTHONPATH": str(house)}, capture_output=True, text=True, check=False)


def test_nothing_imports_to_its_left(house):
    ran = lint(house)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("core", "from voiceseq.audio import backend"),
        ("apps", "import hydra"),
        ("inference", "import pytorch_lightning"),
        ("bundles", "import voiceseq.models"),
        ("core", "import soundfile"),
    ],
)
def test_the_contracts_notice(house, room, line):
    (house / "voiceseq" / room / "wrong.py").write_text(line + "\n")
    ran = lint(house)
    assert ran.returncode == 1
    assert f"voiceseq.{room}.wrong" in ran.stdout


def imported(code: str) -> set[str]:
    """The top-level modules that ``code`` brings in, in a Python of its own."""
    code += "\nimport sys; print('\\n' + ' '.join({name.partition('.')[0] for name in sys.modules}))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(ran.stdout.splitlines()[-1].split())


SAVE = """
import tempfile
from pathlib import Path
from voiceseq.bundles import save_bundle, load_bundle
path = save_bundle(Path(tempfile.mkdtemp()) / "model.zip", kind="test", config={}, vocabularies={"a": [1]})
load_bundle(path).vocabularies
"""


@pytest.mark.parametrize(
    "code",
    [
        "import voiceseq",
        "import voiceseq; dir(voiceseq); voiceseq.BundleError",
        "import voiceseq; voiceseq.load_bundle; voiceseq.save_bundle; voiceseq.Bundle",
        "import voiceseq.bundles",
        "from voiceseq.cli.main import main; main(['--help'])",
        "from voiceseq.cli.main import main; main(['tasks'])",
        "from voiceseq.cli.main import main; main(['bundle', '--help'])",
        "from voiceseq.cli.main import main; main(['generate', '--help'])",
        SAVE + "from voiceseq.cli.main import main; main(['bundle', 'show', str(path)])",
        SAVE + "from voiceseq.cli.main import main; main(['bundle', 'verify', str(path)])",
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(code):
    assert not imported(code) & set(HEAVY)


def test_the_check_itself_sees_heavy_imports():
    assert {"torch", "numpy"} <= imported("import torch, numpy")


def test_bundle_show_of_real_weights_needs_no_torch(tmp_path):
    import torch

    voiceseq.save_bundle(tmp_path / "model", kind="test", config={}, weights={"w": torch.zeros(3, 4)})
    code = "import sys; sys.modules['torch'] = sys.modules['numpy'] = None\nfrom voiceseq.cli.main import main\n"
    code += f"sys.exit(main(['bundle', 'show', {str(tmp_path / 'model')!r}]))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "12" in ran.stdout


def test_inference_needs_neither_lightning_nor_hydra():
    assert not imported("import voiceseq.inference.language") & {"pytorch_lightning", "lightning", "hydra", "omegaconf"}


def test_every_public_name_is_there():
    for name in voiceseq.__all__:
        assert getattr(voiceseq, name) is not None
    assert set(voiceseq.__all__) <= set(dir(voiceseq))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = voiceseq.nonsense


def test_every_kind_names_a_class_that_opens_a_bundle():
    import importlib

    for target in voiceseq.KINDS.values():
        module, _, name = target.partition(":")
        assert callable(getattr(importlib.import_module(module), name).from_bundle)
