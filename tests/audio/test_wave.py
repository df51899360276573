"""wav files without soundfile, against soundfile."""

import sys

import numpy as np
import pytest
import soundfile

from voiceseq.audio.decoding import open_decoder
from voiceseq.audio.files import read_audio
from voiceseq.errors import AudioError

CODINGS = ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")


@pytest.fixture
def alone(monkeypatch) -> None:
    """No soundfile, no ffmpeg."""
    monkeypatch.setitem(sys.modules, "soundfile", None)
    monkeypatch.setattr("shutil.which", lambda name: None)


def sound(channels: int = 1) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (999, channels))


@pytest.mark.parametrize("kind", ["WAV", "WAVEX"])
@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("channels", [1, 3])
def test_samples_are_soundfiles(tmp_path, alone, coding: str, kind: str, channels: int) -> None:
    path = tmp_path / "x.wav"
    soundfile.write(path, sound(channels), 22_050, subtype=coding, format=kind)
    wanted, rate = soundfile.read(path, dtype="float32", always_2d=True)
    with open_decoder(path) as decoder:
        assert type(decoder).__name__ == "WaveDecoder"
        assert (decoder.sample_rate, decoder.channels, decoder.frames) == (rate, channels, 999)
        np.testing.assert_allclose(np.concatenate(list(decoder.blocks(0, None, 100))), wanted, atol=1e-7)
        np.testing.assert_allclose(np.concatenate(list(decoder.blocks(50, 210, 100))), wanted[50:260], atol=1e-7)
        assert list(decoder.blocks(999, None, 100)) == []


def test_a_file_that_is_cut_short_is_told(tmp_path, alone) -> None:
    path = tmp_path / "x.wav"
    soundfile.write(path, sound(), 16_000, subtype="PCM_16")
    path.write_bytes(path.read_bytes()[:-1001])
    audio = read_audio(path)
    assert len(audio.samples) == 999 - 501
    assert "cut short" in audio.warnings[0]


def test_what_is_no_plain_wav_asks_for_more(tmp_path, alone) -> None:
    for name, subtype in (("x.flac", "PCM_16"), ("x.wav", "ULAW")):
        soundfile.write(tmp_path / name, sound(), 16_000, subtype=subtype)
        with pytest.raises(AudioError, match="pip install soundfile"):
            read_audio(tmp_path / name)
