"""Sound files: every format comes back as it went in, damage is said in plain words, names and limits are safe."""

import os
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

from voiceseq.audio import decoding
from voiceseq.audio.decoding import open_decoder
from voiceseq.audio.files import audio_info, level_report, read_audio, read_clip, stream_audio, write_audio
from voiceseq.audio.resample import resample
from voiceseq.errors import AudioError, InputError

RATE = 16000
needs_ffmpeg = pytest.mark.skipif(decoding.shutil.which("ffmpeg") is None, reason="ffmpeg is not installed")


def tone(seconds: float = 1.0, rate: int = RATE, hz: float = 440.0) -> np.ndarray:
    return (0.4 * np.sin(2 * np.pi * hz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def noise(frames: int = RATE, channels: int | None = None) -> np.ndarray:
    shape = frames if channels is None else (channels, frames)
    return np.random.default_rng(0).uniform(-0.5, 0.5, shape).astype(np.float32)


def wave_file(path: Path, data: bytes = b"\1\0" * RATE, promised: int | None = None, **header: int) -> Path:
    """A wav file with any lie in its header."""
    fields = {"format": 1, "channels": 1, "rate": RATE, "bits": 16} | header
    align = fields["channels"] * fields["bits"] // 8 % 65536
    size = len(data) if promised is None else promised
    numbers = (fields["format"], fields["channels"], fields["rate"], fields["rate"] * align % 2**32, align)
    form = struct.pack("<HHIIHH", *numbers, fields["bits"])
    head = b"WAVEfmt " + struct.pack("<I", 16) + form + b"data" + struct.pack("<I", size)
    path.write_bytes(b"RIFF" + struct.pack("<I", min(size + 36, 2**32 - 1)) + head + data)
    return path


def ffmpeg(*words: str | Path) -> None:
    subprocess.run(["ffmpeg", "-nostdin", "-v", "error", "-y", *map(str, words)], check=True, timeout=60)


# --- what is whole comes back whole ---


@pytest.mark.parametrize(
    ("subtype", "tolerance"),
    [
        ("PCM_U8", 8e-3),
        ("PCM_16", 4e-5),
        ("PCM_24", 2e-7),
        ("PCM_32", 1e-7),
        ("FLOAT", 0),
        ("DOUBLE", 0),
        ("ULAW", 3e-2),
    ],
)
def test_every_kind_of_wav(tmp_path, subtype, tolerance):
    soundfile.write(tmp_path / "x.wav", noise(), RATE, subtype=subtype)
    audio = read_audio(tmp_path / "x.wav")
    assert (audio.samples.dtype, audio.sample_rate, audio.warnings) == (np.float32, RATE, ())
    np.testing.assert_allclose(audio.samples, noise(), atol=tolerance)


@pytest.mark.parametrize("suffix", ["flac", "ogg", "opus", "mp3"])
def test_other_formats_without_ffmpeg(tmp_path, monkeypatch, suffix):
    monkeypatch.setenv("PATH", "")
    path = tmp_path / f"x.{suffix}"
    kind = {"opus": {"format": "OGG", "subtype": "OPUS"}}.get(suffix, {})
    soundfile.write(path, tone(), RATE, **kind)
    audio = read_audio(path)
    assert (len(audio.samples), audio.sample_rate, audio.warnings) == (RATE, RATE, ())
    assert np.corrcoef(audio.samples, tone())[0, 1] > 0.99
    assert audio_info(path).frames == RATE


@pytest.mark.parametrize("channels", [1, 2, 3, 6])
def test_channels_mixed_apart_or_one(tmp_path, channels):
    samples = noise(500, channels)
    soundfile.write(tmp_path / "x.wav", samples.T, RATE, subtype="FLOAT")
    assert audio_info(tmp_path / "x.wav").channels == channels
    np.testing.assert_array_equal(read_audio(tmp_path / "x.wav", channels="separate").samples, samples)
    np.testing.assert_allclose(read_audio(tmp_path / "x.wav").samples, samples.mean(0), atol=1e-7)
    last = read_audio(tmp_path / "x.wav", channels=channels - 1)
    np.testing.assert_array_equal(last.samples, samples[-1])
    with pytest.raises(AudioError, match=f"{channels} was wanted"):
        read_audio(tmp_path / "x.wav", channels=channels)


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000, 96000])
def test_any_rate_becomes_the_one_that_is_wanted(tmp_path, rate):
    samples = tone(rate=rate)
    soundfile.write(tmp_path / "x.wav", samples, rate, subtype="FLOAT")
    assert read_audio(tmp_path / "x.wav").sample_rate == rate
    audio = read_audio(tmp_path / "x.wav", sample_rate=RATE)
    assert audio.sample_rate == RATE
    np.testing.assert_array_equal(audio.samples, resample(samples, rate, RATE))


@pytest.mark.parametrize("channels", ["mix", "separate", 1])
@pytest.mark.parametrize(("block_s", "rate"), [(0.1, None), (0.0333, 8000), (0.25, 44100), (100, RATE), (0.1, 16001)])
def test_a_stream_is_the_whole_file_in_even_blocks(tmp_path, channels, block_s, rate):
    samples = noise(RATE, 2)
    soundfile.write(tmp_path / "x.wav", samples.T, RATE, subtype="FLOAT")
    how = {"sample_rate": rate, "channels": channels, "offset_s": 0.1, "duration_s": 0.8}
    whole = read_audio(tmp_path / "x.wav", **how)
    blocks = list(stream_audio(tmp_path / "x.wav", block_s, **how))
    np.testing.assert_array_equal(np.concatenate([b.samples for b in blocks], -1), whole.samples)
    assert whole.samples.shape[-1] == round(0.8 * (rate or RATE))
    sizes = [b.samples.shape[-1] for b in blocks]
    assert set(sizes[:-1]) <= {round(block_s * (rate or RATE))}
    assert 0 < sizes[-1] <= round(block_s * (rate or RATE))


def test_mono_apart_keeps_its_channel_axis(tmp_path):
    write_audio(tmp_path / "x.wav", noise(), RATE)
    assert read_audio(tmp_path / "x.wav", channels="separate", sample_rate=8000).samples.shape == (1, 8000)


def test_parts_are_exact_to_the_sample(tmp_path):
    ramp = np.arange(RATE, dtype=np.float32) / 32768
    write_audio(tmp_path / "x.flac", ramp, RATE)
    part = read_audio(tmp_path / "x.flac", offset_s=0.5, duration_s=0.25)
    np.testing.assert_array_equal(part.samples, ramp[8000:12000])
    late = read_audio(tmp_path / "x.flac", offset_s=0.9, duration_s=5)
    np.testing.assert_array_equal(late.samples, ramp[14400:])
    with pytest.raises(AudioError, match=r"has 1.00 s; a part from 1 s on"):
        read_audio(tmp_path / "x.flac", offset_s=1.0)


def test_one_sample_is_a_file(tmp_path):
    write_audio(tmp_path / "x.wav", np.array([0.5], np.float32), RATE)
    assert read_audio(tmp_path / "x.wav").samples.tolist() == [0.5]
    assert len(read_audio(tmp_path / "x.wav", sample_rate=48000).samples) == 3
    assert len(read_audio(tmp_path / "x.wav", sample_rate=1000).samples) == 0


def test_clips_of_a_long_opus_file(shared):
    path = shared / "data/speech/librispeech/dev-00.opus"
    whole = read_audio(path, duration_s=60)
    assert whole.sample_rate == RATE
    for offset in (0.0, 7.345, 41.0):
        clip = read_clip(path, offset, 3.0)
        assert len(clip) == 3 * RATE
        # An Opus decoder needs some frames to settle after a seek; a shift by one sample would be far off.
        start = round(offset * RATE)
        np.testing.assert_allclose(clip[1600:], whole.samples[start + 1600 : start + 3 * RATE], atol=5e-3)
    assert len(read_clip(path, 5.0, 2.0, sample_rate=8000)) == 16000
    with pytest.raises(AudioError, match="before the clip of 3 s"):
        read_clip(path, audio_info(path).duration_s - 1, 3.0)


def test_opus_streams_as_it_is_read(shared):
    path = shared / "data/speech/harpervalley/dev-00.opus"
    whole = read_audio(path, duration_s=20, sample_rate=RATE).samples
    blocks = [b.samples for b in stream_audio(path, 0.7, duration_s=20, sample_rate=RATE)]
    np.testing.assert_array_equal(np.concatenate(blocks), whole)


# --- damage ---


@pytest.mark.parametrize("with_ffmpeg", [False, pytest.param(True, marks=needs_ffmpeg)])
@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "0 bytes"), (b"hello, this is text\n" * 50, "x.wav"), (b"\x89PNG\r\n\x1a\n" + bytes(500), "x.wav")],
)
def test_files_that_are_no_sound(tmp_path, monkeypatch, content, said, with_ffmpeg):
    if not with_ffmpeg:
        monkeypatch.setenv("PATH", "")
    (tmp_path / "x.wav").write_bytes(content)
    with pytest.raises(AudioError, match=said) as caught:
        read_audio(tmp_path / "x.wav")
    assert "\n" not in str(caught.value)
    if content and not with_ffmpeg:
        assert "install ffmpeg" in str(caught.value)


def test_no_file_a_folder_a_pipe(tmp_path):
    with pytest.raises(AudioError, match="no such file"):
        read_audio(tmp_path / "none.wav")
    with pytest.raises(AudioError, match="is a folder"):
        read_audio(tmp_path)
    os.mkfifo(tmp_path / "pipe.wav")
    with pytest.raises(AudioError, match="not a plain file"):
        read_audio(tmp_path / "pipe.wav")


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ({"rate": 0}, "0 samples a second"),
        ({"rate": 4_000_000_000}, "4,000,000,000 samples a second"),
        ({"rate": 2_000_000}, "2,000,000 samples a second"),
        ({"rate": 5}, "5 samples a second"),
        ({"channels": 0}, "0 channels"),
        ({"channels": 65535}, "65535 channels"),
        ({"bits": 0}, "0 bits"),
        ({"data": b""}, "holds no audio"),
        ({"data": b"", "promised": 32000}, "holds no audio"),
    ],
)
def test_headers_that_cannot_be(tmp_path, header, said):
    path = wave_file(tmp_path / "x.wav", **header)
    for read in (read_audio, lambda p: list(stream_audio(p))):
        with pytest.raises(AudioError, match=f"x.wav.*{said}"):
            read(path)


def test_a_cut_wav_gives_what_is_there_and_says_so(tmp_path):
    path = wave_file(tmp_path / "x.wav", data=b"\1\0" * 4500, promised=32000)
    audio = read_audio(path)
    assert len(audio.samples) == 4500
    assert "1.00 s were promised, 0.28 s are there" in audio.warnings[0]
    assert not read_audio(path, duration_s=0.1).warnings  # nothing of that part is missing
    *early, last = stream_audio(path, 0.1)
    assert [b.warnings for b in early] == [()] * len(early)
    assert last.warnings == audio.warnings


@pytest.mark.parametrize("promised", [0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFF000])
def test_a_streamed_wav_is_whole(tmp_path, promised):
    audio = read_audio(wave_file(tmp_path / "x.wav", promised=promised))
    assert (len(audio.samples), audio.warnings) == (RATE, ())


@pytest.mark.parametrize("suffix", ["flac", "ogg", "opus", "mp3"])
def test_cut_files_of_other_formats(tmp_path, suffix):
    path = tmp_path / f"x.{suffix}"
    kind = {"opus": {"format": "OGG", "subtype": "OPUS"}}.get(suffix, {})
    soundfile.write(path, noise(5 * RATE), RATE, **kind)
    whole = read_audio(path).samples
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    audio = read_audio(path)
    assert RATE < len(audio.samples) < 3 * RATE
    np.testing.assert_allclose(audio.samples[:RATE], whole[:RATE], atol=1e-6)
    assert "is cut short" in audio.warnings[0]
    blocks = list(stream_audio(path, 0.3))
    np.testing.assert_array_equal(np.concatenate([b.samples for b in blocks]), audio.samples)
    assert blocks[-1].warnings == audio.warnings


def test_an_ogg_file_cut_between_two_pages(tmp_path):
    path = tmp_path / "x.opus"
    soundfile.write(path, noise(5 * RATE), RATE, format="OGG", subtype="OPUS")
    data = path.read_bytes()
    path.write_bytes(data[: data.rfind(b"OggS")])
    assert "its last page is missing" in read_audio(path).warnings[0]


def test_nan_and_infinity_become_silence_and_are_counted(tmp_path):
    samples = noise(RATE, 2)
    samples[0, 10:20], samples[1, 15], samples[1, 9000] = np.nan, np.inf, -np.inf
    soundfile.write(tmp_path / "x.wav", samples.T, RATE, subtype="FLOAT")
    audio = read_audio(tmp_path / "x.wav", channels="separate")
    np.testing.assert_array_equal(audio.samples, np.where(np.isfinite(samples), samples, 0))
    assert "12 samples that are NaN or infinite" in audio.warnings[0]
    assert list(stream_audio(tmp_path / "x.wav", 0.1))[-1].warnings == audio.warnings
    assert np.isfinite(read_audio(tmp_path / "x.wav", sample_rate=8000).samples).all()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("block_s", 0),
        ("offset_s", -1),
        ("offset_s", float("nan")),
        ("duration_s", 0),
        ("sample_rate", 0),
        ("channels", "left"),
        ("channels", -1),
    ],
)
def test_wrong_settings_are_refused(tmp_path, name, value):
    write_audio(tmp_path / "x.wav", noise(), RATE)
    with pytest.raises(InputError, match=f"{name} is .* wanted"):
        next(stream_audio(tmp_path / "x.wav", **{name: value}))


# --- ffmpeg ---


@needs_ffmpeg
@pytest.mark.parametrize("name", ["x.m4a", "with space.mp4", "-i.webm", 'it\'s "q".mkv', "ünï%20😀.m4a", "http:a.m4a"])
def test_what_soundfile_cannot_read_goes_through_ffmpeg(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    soundfile.write("source.wav", np.stack((tone(2.0, 48000), tone(2.0, 48000, 880)), 1), 48000)
    ffmpeg("-i", "source.wav", f"file:{tmp_path / name}")
    audio = read_audio(name, sample_rate=RATE, channels="separate")
    assert audio.samples.shape[0] == 2
    assert abs(audio.duration_s - 2.0) < 0.1
    spectrum = np.abs(np.fft.rfft(audio.samples[:, :RATE]))
    assert abs(spectrum.argmax(1) - [440, 880]).max() <= 1
    info = audio_info(name)
    assert (info.sample_rate, info.channels) == (48000, 2)
    assert abs(info.duration_s - 2.0) < 0.1
    part = read_audio(name, offset_s=0.5, duration_s=0.5)
    np.testing.assert_array_equal(part.samples, read_audio(name).samples[24000:48000])
    blocks = [b.samples for b in stream_audio(name, 0.3, sample_rate=RATE, channels="separate")]
    np.testing.assert_array_equal(np.concatenate(blocks, -1), audio.samples)
    with pytest.raises(AudioError, match="holds no audio after 60 s"):
        read_audio(name, offset_s=60)


@needs_ffmpeg
def test_what_ffmpeg_says_may_be_read_late(tmp_path, monkeypatch):
    write_audio(tmp_path / "s.wav", noise(10 * RATE), RATE)
    ffmpeg("-i", tmp_path / "s.wav", tmp_path / "x.m4a")
    listen = decoding.FfmpegDecoder._listen
    monkeypatch.setattr(decoding.FfmpegDecoder, "_listen", lambda self: (time.sleep(0.3), listen(self)))
    with decoding.open_decoder(tmp_path / "x.m4a") as decoder:
        assert decoder.frames == pytest.approx(10 * RATE, rel=0.02)


@needs_ffmpeg
def test_pictures_without_sound_are_called_so(tmp_path):
    ffmpeg("-f", "lavfi", "-i", "color=s=16x16:d=0.2", tmp_path / "x.mp4")
    with pytest.raises(AudioError, match=r"x\.mp4 has no sound track"):
        read_audio(tmp_path / "x.mp4")


@needs_ffmpeg
def test_a_cut_m4a_is_recovered(tmp_path):
    write_audio(tmp_path / "s.wav", noise(10 * RATE), RATE)
    path = tmp_path / "x.m4a"
    ffmpeg("-i", tmp_path / "s.wav", "-movflags", "faststart", path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    audio = read_audio(path)
    assert 2 < audio.duration_s < 8
    assert "is cut short: 10.0" in audio.warnings[0]


@needs_ffmpeg
def test_playlists_are_not_followed(tmp_path):
    """A text file must not make ffmpeg open other files, let alone the net."""
    write_audio(tmp_path / "secret.wav", noise(), RATE)
    (tmp_path / "a.m4a").write_text("ffconcat version 1.0\nfile secret.wav\n")
    (tmp_path / "b.m4a").write_text(f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{tmp_path}/secret.wav\n")
    for name in "ab":
        with pytest.raises(AudioError, match="holds no sound"):
            read_audio(tmp_path / f"{name}.m4a")


@pytest.fixture
def fake_ffmpeg(tmp_path, monkeypatch):
    """An ``ffmpeg`` that does what it is told, and a file that only it reads."""

    def make(code: str) -> Path:
        program = tmp_path / "bin" / "ffmpeg"
        program.parent.mkdir()
        program.write_text(f"#!{sys.executable}\nimport os, sys, time\nout = sys.stdout.buffer\n{code}")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent))
        (tmp_path / "x.m4a").write_bytes(b"anything")
        return tmp_path / "x.m4a"

    return make


HEADER = """
import struct
out.write(b"RIFF\\xff\\xff\\xff\\xffWAVEfmt " + struct.pack("<IHHIIHH", 16, 3, 1, 16000, 64000, 4, 32))
out.write(b"LIST" + struct.pack("<I", 3) + b"odd\\0" + b"data\\xff\\xff\\xff\\xff")
"""


def processes() -> int:
    """Children of ours that run or wait to be reaped."""
    return sum(" (ffmpeg) " in p.read_text() for p in Path("/proc").glob("[0-9]*/stat") if is_ours(p))


def is_ours(stat: Path) -> bool:
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid()
    except (OSError, IndexError):
        return False


@pytest.mark.parametrize("before", ["", HEADER, HEADER + "out.write(bytes(4000)); out.flush()"])
def test_a_decoder_that_hangs_is_stopped_and_reaped(fake_ffmpeg, monkeypatch, before):
    path = fake_ffmpeg(before + "\nout.flush(); time.sleep(60)")
    monkeypatch.setattr(decoding, "STALL_S", 0.5)
    began, threads = time.monotonic(), threading.active_count()
    with pytest.raises(AudioError, match=r"ffmpeg hung for 0.5 s"):
        read_audio(path)
    assert time.monotonic() - began < 30
    assert processes() == 0
    assert threading.active_count() == threads


def test_a_stream_that_is_left_early_leaves_no_process(fake_ffmpeg):
    path = fake_ffmpeg(HEADER + "while True: out.write(bytes(64000))")
    stream = stream_audio(path, 0.5)
    assert len(next(stream).samples) == 8000
    assert processes() == 1
    stream.close()
    assert processes() == 0


def test_a_file_that_never_ends_is_cut(fake_ffmpeg, monkeypatch):
    monkeypatch.setattr(decoding, "LONGEST_S", 20.0)
    path = fake_ffmpeg(HEADER + "out.write(bytes(64000 * int(sys.argv[sys.argv.index('-t') + 1])))")
    audio = read_audio(path)
    assert audio.duration_s == 20
    assert "longer than" in audio.warnings[0]


def test_what_ffmpeg_says_is_passed_on(fake_ffmpeg):
    path = fake_ffmpeg("print('noise\\n' * 100000, file=sys.stderr); print('moov atom not found', file=sys.stderr)")
    with pytest.raises(AudioError, match="ffmpeg says: moov atom not found"):
        read_audio(path)


def test_without_ffmpeg_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    (tmp_path / "x.m4a").write_bytes(b"\0\0\0\x1cftypM4A " + bytes(100))
    with pytest.raises(AudioError, match=r"x\.m4a cannot be read: .*install ffmpeg \(apt install"):
        read_audio(tmp_path / "x.m4a")


# --- writing ---


@pytest.mark.parametrize("name", ["x.wav", "x.flac", "X.WAV", "-ünï 'q'.flac"])
@pytest.mark.parametrize("encoding", ["pcm16", "pcm24", "float"])
def test_what_is_written_is_read_back(tmp_path, monkeypatch, name, encoding):
    monkeypatch.chdir(tmp_path)
    samples = noise(1000, 2)
    if encoding == "float" and name.lower().endswith("flac"):
        with pytest.raises(InputError, match="pcm16, pcm24"):
            write_audio(name, samples, 22050, encoding)
        return
    write_audio(name, samples, 22050, encoding)
    audio = read_audio(name, channels="separate")
    assert audio.sample_rate == 22050
    np.testing.assert_allclose(audio.samples, samples, atol={"pcm16": 4e-5, "pcm24": 2e-7, "float": 0}[encoding])
    assert os.listdir() == [name]


def test_too_loud_is_clipped_not_wrapped(tmp_path):
    write_audio(tmp_path / "x.wav", np.array([3.0, -3.0], np.float32), RATE)
    np.testing.assert_allclose(read_audio(tmp_path / "x.wav").samples, [1, -1], atol=1e-4)


def test_unwritable_places(tmp_path):
    with pytest.raises(AudioError, match=r"no folder .*make it first"):
        write_audio(tmp_path / "none" / "x.wav", noise(), RATE)
    (tmp_path / "x.wav").mkdir()
    with pytest.raises(AudioError, match="cannot be written"):
        write_audio(tmp_path / "x.wav", noise(), RATE)
    assert os.listdir(tmp_path) == ["x.wav"]


FULL = """
import resource, signal, sys
import numpy as np
from voiceseq.audio.files import write_audio
from voiceseq.errors import AudioError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
try: write_audio(sys.argv[1], np.zeros(16000, np.float32), 16000)
except AudioError as error: print(error)
"""


def test_a_full_disk_leaves_the_old_file(tmp_path):
    old = write_audio(tmp_path / "x.wav", noise(100), RATE)
    before = old.read_bytes()
    said = subprocess.run([sys.executable, "-c", FULL, str(old)], capture_output=True, text=True, check=True).stdout
    assert "cannot be written: File too large" in said
    assert "MB are free" in said
    assert old.read_bytes() == before
    assert os.listdir(tmp_path) == ["x.wav"]


@pytest.mark.parametrize(
    ("samples", "rate", "name"),
    [
        (np.array([np.nan], np.float32), RATE, "x.wav"),
        (np.zeros(10, np.int16), RATE, "x.wav"),
        (np.zeros((2, 3, 4), np.float32), RATE, "x.wav"),
        (np.zeros(10, np.float32), 0, "x.wav"),
        (np.zeros(10, np.float32), RATE, "x.mp3"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path, samples, rate, name):
    with pytest.raises(InputError):
        write_audio(tmp_path / name, samples, rate)
    assert not os.listdir(tmp_path)


# --- levels ---


def test_levels():
    levels = level_report(tone() / 0.4)
    assert levels.peak_db == pytest.approx(0, abs=0.01)
    assert levels.rms_db == pytest.approx(-3.01, abs=0.01)
    assert levels.offset == pytest.approx(0, abs=1e-3)
    assert level_report(tone()).warnings == ()
    assert "clipped" in level_report(np.clip(5 * tone(), -1, 32767 / 32768)).warnings[0]
    assert level_report(np.clip(5 * tone(), -1, 1)).clipped == pytest.approx(2 / 3, abs=0.01)
    assert "offset of 0.20" in level_report(tone() + 0.2).warnings[0]
    assert "silence" in level_report(np.zeros(10, np.float32)).warnings[0]
    assert "very quiet" in level_report(tone() / 1000).warnings[0]
    assert level_report(np.zeros(0, np.float32)).peak_db == -np.inf
    assert np.isfinite(level_report(np.array([[1, np.nan], [0.5, np.inf]], np.float32)).rms_db)


# --- manners ---


def test_torch_is_not_needed(tmp_path):
    write_audio(tmp_path / "x.wav", noise(), RATE)
    code = "import sys; sys.modules['torch'] = sys.modules['librosa'] = None\n"
    code += f"from voiceseq.audio.files import read_audio\nprint(len(read_audio({str(tmp_path / 'x.wav')!r}).samples))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "16000\n"


@needs_ffmpeg
def test_without_soundfile_ffmpeg_reads_all(tmp_path, monkeypatch):
    path = write_audio(tmp_path / "x.flac", noise(), RATE)
    monkeypatch.setitem(sys.modules, "soundfile", None)
    np.testing.assert_allclose(read_audio(path).samples, noise(), atol=4e-5)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(AudioError, match="pip install soundfile"):
        read_audio(path)


def test_hours_are_streamed_in_bounded_memory(tmp_path):
    """20 minutes out of a sparse file of five hours: 77 MB of samples pass, a few MB are held."""
    import tracemalloc

    path = wave_file(tmp_path / "long.wav", data=b"")
    size = 5 * 3600 * RATE * 2
    with path.open("r+b") as file:
        file.seek(40)
        file.write(struct.pack("<I", size))
        file.truncate(44 + size)
    frames = 0
    tracemalloc.start()
    for block in stream_audio(path, 30.0, duration_s=1200, offset_s=4 * 3600):
        frames += len(block.samples)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert frames == 1200 * RATE
    assert peak < 20e6
    with open_decoder(path) as file:
        assert file.frames == 5 * 3600 * RATE
