"""torchaudio is usable on every machine, whether its compiled part can be loaded or not."""

import json
import subprocess
import sys

import torch

UNLOADABLE = """
import json, sys, torch

def cannot_load(path):
    raise OSError("libcudart.so.13: cannot open shared object file: No such file or directory")

torch.ops.load_library = cannot_load
try:
    import torchaudio
except OSError:
    pass
else:
    raise SystemExit("the premise is wrong: torchaudio imported without its libraries")

from voiceseq.audio import backend
from voiceseq.errors import MissingDependencyError

wave = torch.sin(torch.arange(1600) / 5.0)[None]
mel = backend.torchaudio.transforms.MelSpectrogram(16000, n_fft=400, n_mels=8)(wave)
half = backend.torchaudio.functional.resample(wave, 16000, 8000)
try:
    backend.torchaudio.functional.forced_align(torch.zeros(1, 4, 3), torch.tensor([[1]]))
    refused = ""
except MissingDependencyError as error:
    refused = str(error)
print(json.dumps({
    "compiled": backend.compiled, "mel": mel.sum().item(), "half": half.shape[-1], "refused": refused,
    "same": sys.modules["torchaudio"] is backend.torchaudio,
}))
"""


def test_without_its_libraries_the_python_part_works():
    ran = subprocess.run([sys.executable, "-c", UNLOADABLE], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert said["compiled"] is False
    assert said["same"]
    assert said["half"] == 800
    assert "forced_align needs torchaudio's compiled part" in said["refused"]

    from voiceseq.audio.backend import torchaudio

    wave = torch.sin(torch.arange(1600) / 5.0)[None]
    mel = torchaudio.transforms.MelSpectrogram(16000, n_fft=400, n_mels=8)(wave)
    torch.testing.assert_close(said["mel"], mel.sum().item())


MISSING = """
import sys
sys.modules["torchaudio"] = None
from voiceseq.errors import MissingDependencyError
try:
    import voiceseq.audio.backend
except MissingDependencyError as error:
    print(error)
"""


def test_where_there_is_none_the_error_says_what_to_install():
    said = subprocess.run([sys.executable, "-c", MISSING], capture_output=True, text=True, check=True).stdout
    assert "pip install torchaudio" in said
