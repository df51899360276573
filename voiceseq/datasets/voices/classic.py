"""Classic synthesisers: formants, diphones and the small ones; programs or packages that need no model file."""

import functools
import importlib
import importlib.util
import math
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from voiceseq.audio.files import read_audio
from voiceseq.datasets.voices.phonemes import ACCENTS
from voiceseq.datasets.voices.voice import Manner, Speech, Voice, sentence_of
from voiceseq.errors import AudioError, InputError

TIME_LIMIT_S = 60
# espeak's variants that sound like people; robots, demons and sound effects are left out
# fmt: off
ESPEAK_VARIANTS = (
    "Alex", "Alicia", "Andrea", "Andy", "Annie", "Denis", "Diogo", "Gene", "Gene2", "Henrique", "Hugo", "Jacky",
    "Lee", "Marco", "Mario", "Michael", "Mike", "Nguyen", "adam", "anika", "announcer", "antonio", "aunty",
    "belinda", "benjamin", "boris", "caleb", "david", "ed", "edward", "edward2", "f1", "f2", "f3", "f4", "f5",
    "grandma", "grandpa", "gustave", "iven", "iven2", "john", "kaukovalta", "klatt", "klatt2", "klatt3", "klatt4",
    "linda", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "marcelo", "max", "michel", "miguel", "norbert",
    "pablo", "paul", "pedro", "quincy", "rob", "robert", "sandro", "shelby", "steph", "steph2", "steph3",
    "travis", "victor", "whisper", "whisperf", "zac",
)
# fmt: on
FLITE_VOICES = ("slt", "rms", "awb")  # kal is not understood
FESTIVAL_VOICES = {"ked_diphone": "english"}  # kal is not understood, the HTS voice knows no tempo and is flite's slt
FESTIVAL_FOLDERS = (Path("/usr/share/festival/voices"), Path("/usr/lib/festival/voices"))


def recorded(command: list[str], text: str | None = None) -> Speech:
    """Run a program that writes a sound file; ``{out}`` in the command is its name."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "said.wav"
        words = [word.replace("{out}", str(out)) for word in command]
        try:
            ran = subprocess.run(
                words,
                input=text,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=TIME_LIMIT_S,
                check=False,
            )
            audio = read_audio(out)
        except (OSError, subprocess.TimeoutExpired, AudioError) as error:
            raise InputError(f"{command[0]} did not speak: {error}") from error
        if ran.returncode:
            raise InputError(f"{command[0]} failed: {ran.stderr.strip()[:200]}")
    return Speech(audio.samples, audio.sample_rate)


class Espeak:
    name, kind, timed, blends = "espeak", "formant", False, False
    licence = "GPL-3 (the program; what it says is free)"
    install = "apt install espeak-ng"

    def find(self, folders: Sequence[Path]) -> list[Voice]:
        if shutil.which("espeak-ng") is None:
            return []
        return [
            Voice(self.name, accent, variant, accent, self.licence) for accent in ACCENTS for variant in ESPEAK_VARIANTS
        ]

    def say(self, pieces: Sequence[str], voice: Voice, manner: Manner) -> Speech:
        pace = str(round(min(max(175 * manner.speed, 80), 450)))
        height = str(round(min(max(50 + 50 * math.log2(manner.pitch), 0), 99)))
        voiced = f"{voice.name}+{voice.speaker}" if voice.speaker else voice.name
        return recorded(
            ["espeak-ng", "-v", voiced, "-s", pace, "-p", height, "-w", "{out}", "--stdin"], sentence_of(pieces)
        )


class Flite:
    name, kind, timed, blends = "flite", "diphone and statistical", False, False
    licence = "BSD-like"
    install = "apt install flite"

    def find(self, folders: Sequence[Path]) -> list[Voice]:
        if shutil.which("flite") is None:
            return []
        return [Voice(self.name, name, licence=self.licence) for name in FLITE_VOICES]

    def say(self, pieces: Sequence[str], voice: Voice, manner: Manner) -> Speech:
        stretch = f"duration_stretch={1 / manner.speed:.3f}"
        return recorded(["flite", "-voice", voice.name, "--setf", stretch, "-o", "{out}", "-t", sentence_of(pieces)])


class Festival:
    name, kind, timed, blends = "festival", "diphone", False, False
    licence = "BSD-like"
    install = "apt install festival festvox-kdlpc16k"

    def find(self, folders: Sequence[Path]) -> list[Voice]:
        if shutil.which("text2wave") is None:
            return []
        there = [
            name
            for name, group in FESTIVAL_VOICES.items()
            if any((base / group / name).is_dir() for base in FESTIVAL_FOLDERS)
        ]
        return [Voice(self.name, name, licence=self.licence) for name in there]

    def say(self, pieces: Sequence[str], voice: Voice, manner: Manner) -> Speech:
        settings = f"(voice_{voice.name})", f"(Parameter.set 'Duration_Stretch {1 / manner.speed:.3f})"
        evaluated = [word for setting in settings for word in ("-eval", setting)]
        return recorded(["text2wave", *evaluated, "-o", "{out}"], sentence_of(pieces))


class Pico:
    name, kind, timed, blends = "pico", "statistical", False, False
    licence = "Apache-2.0"
    install = "pip install py-nanotts"

    def find(self, folders: Sequence[Path]) -> list[Voice]:
        if importlib.util.find_spec("py_nanotts") is None:
            return []
        return [Voice(self.name, name, "", name.lower(), self.licence) for name in ("en-US", "en-GB")]

    def say(self, pieces: Sequence[str], voice: Voice, manner: Manner) -> Speech:
        speaker = importlib.import_module("py_nanotts").NanoTTS()
        said = speaker.speak(sentence_of(pieces), voice=voice.name, speed=manner.speed, pitch=manner.pitch)
        return Speech((np.frombuffer(said, dtype=np.int16) / np.float32(32768)).astype(np.float32), 16_000)


class Hibari:
    name, kind, timed, blends = "hibari", "neural", False, False
    licence = "Apache-2.0"
    install = "pip install hibari-tts"

    def find(self, folders: Sequence[Path]) -> list[Voice]:
        if importlib.util.find_spec("hibari") is None:
            return []
        return [
            Voice(self.name, "heart", licence=self.licence)
        ]  # the one inside the package; others would be downloaded

    def say(self, pieces: Sequence[str], voice: Voice, manner: Manner) -> Speech:
        model = hibari_model(voice.name)
        samples = model(sentence_of(pieces), speed=manner.speed, seed=manner.seed)
        return Speech(np.asarray(samples, dtype=np.float32), int(model.sample_rate))


@functools.cache
def hibari_model(name: str) -> Any:
    return importlib.import_module("hibari").Hibari(voice=name)
