"""From a file to words: nothing lost at the joins, batches of many files, bad files that take no other with them."""

import json
import subprocess
import sys
import threading

import numpy as np
import pytest
import soundfile
from places import ROOT
from spoken_tones import WORDS, LoudnessActivity, ToneRecogniser, speak, tone_bundle, use_tones

import voiceseq
from voiceseq.audio import cutting, decoding
from voiceseq.audio.files import Audio, write_audio
from voiceseq.bundles import save_bundle
from voiceseq.errors import AudioError, BundleError, InputError
from voiceseq.inference import sounds, transcriber
from voiceseq.inference.speech import SAMPLE_RATE, Decoding
from voiceseq.inference.transcriber import Failure, Settings, Transcriber, Transcript


@pytest.fixture(autouse=True)
def tones(monkeypatch):
    monkeypatch.setattr(transcriber, "RECOGNISERS", dict(transcriber.RECOGNISERS))
    monkeypatch.setattr(cutting, "SpeechActivity", LoudnessActivity)
    use_tones()


@pytest.fixture
def tool() -> Transcriber:
    return Transcriber(ToneRecogniser())


def spoken(count: int, seed: int = 0, pause: float = 0.1) -> list[str]:
    """Words with a brief rest here and there."""
    random = np.random.default_rng(seed)
    words = []
    for _ in range(count):
        words.append(str(random.choice(WORDS)))
        if random.random() < pause:
            words.append(f"{random.choice([0.1, 0.5, 0.95]):g}"[1:])
    return words


def said(words: list[str]) -> list[str]:
    return [word for word in words if not word.startswith(".")]


def test_words_with_times_and_confidence(tool):
    result = tool.transcribe(speak([".5", "one", "two", ".9", ".9", "three"]), SAMPLE_RATE)
    assert result.text == "one two three"
    assert [segment.text for segment in result.segments] == ["one two", "three"]
    assert [word.start for word in result.words] == pytest.approx([0.5, 0.8, 2.9], abs=0.03)
    assert [word.end - word.start for word in result.words] == pytest.approx([0.24] * 3, abs=0.05)
    assert result.duration == pytest.approx(3.2)
    assert result.segments[0].confidence == pytest.approx(0.9)


def test_json_is_the_contract(tool, tmp_path):
    write_audio(tmp_path / "a.wav", speak(["one", "two"]), SAMPLE_RATE)
    value = tool.transcribe(tmp_path / "a.wav").to_json()
    assert list(value) == ["file", "duration", "language", "text", "segments"]
    assert list(value["segments"][0]) == ["start", "end", "text", "confidence", "words"]
    assert list(value["segments"][0]["words"][0]) == ["word", "start", "end", "confidence"]
    assert value["file"] == str(tmp_path / "a.wav")
    json.dumps(value)


@pytest.mark.parametrize("pause", [0.0, 0.1, 0.4])
@pytest.mark.parametrize(("seed", "longest_s"), [(0, 3.0), (1, 4.1), (2, 5.7), (3, 8.0), (4, 11.9), (5, 3.3)])
def test_no_word_is_lost_or_doubled_at_the_joins(seed, longest_s, pause):
    words = spoken(90, seed, pause)
    result = Transcriber(ToneRecogniser(longest_s)).transcribe(speak(words), SAMPLE_RATE)
    assert result.text.split() == said(words)


def test_every_rate_and_channel(tool, tmp_path):
    for rate in (8000, 11025, 44100, 48000):
        samples = speak(["one", "two", "three"], rate=rate)
        write_audio(tmp_path / "a.wav", samples, rate)
        assert tool.transcribe(tmp_path / "a.wav").text == "one two three"
        assert tool.transcribe(samples, rate).text == "one two three"


def test_channels(tool, tmp_path):
    left, right, quiet = speak(["one", "two", ".9"]), speak([".9", "three", "four"]), speak([".9", ".9"])
    length = min(map(len, (left, right, quiet)))
    three = np.stack([left[:length], right[:length], quiet[:length]])
    write_audio(tmp_path / "a.wav", three, SAMPLE_RATE)
    for source in ((tmp_path / "a.wav",), (three, SAMPLE_RATE)):
        apart = tool.transcribe(*source, channels="separate")
        assert [(one.channel, one.text) for one in apart.segments] == [(0, "one two"), (1, "three four")]
        assert apart.to_json()["segments"][1]["channel"] == 1
        assert tool.transcribe(*source, channels=1).text == "three four"
        assert tool.transcribe(*source, channels=2).text == ""
        assert "channel" not in tool.transcribe(*source, channels=0).to_json()["segments"][0]
        assert tool.transcribe(3 * three, SAMPLE_RATE).text == "one two three four"  # mixed
        with pytest.raises((AudioError, InputError), match=r"3 was wanted|0 to 2"):
            tool.transcribe(*source, channels=3)


def test_n_best(tool):
    result = tool.transcribe(speak(["one"]), SAMPLE_RATE, nbest=3)
    assert result.to_json()["segments"][0]["alternatives"] == [
        {"text": "one or 1", "score": -2.0},
        {"text": "one or 2", "score": -3.0},
    ]


def test_settings_that_are_not_known(tool):
    with pytest.raises(InputError, match=r"no setting 'beem'; there are channels, batch_s, decoder, beam"):
        tool.transcribe(speak(["one"]), SAMPLE_RATE, beem=3)
    with pytest.raises(InputError, match="no decoder 'magic'"):
        tool.transcribe(speak(["one"]), SAMPLE_RATE, decoder="magic")
    with pytest.raises(InputError, match="sample_rate"):
        tool.transcribe(speak(["one"]))
    with pytest.raises(InputError, match="batch_s"):
        Settings(batch_s=-1)


# --- many files ------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    texts = {}
    for number in range(7):
        words = spoken(5 + 9 * number, number)
        write_audio(tmp_path / f"{number}.wav", speak(words), SAMPLE_RATE)
        texts[str(tmp_path / f"{number}.wav")] = " ".join(said(words))
    return texts


@pytest.mark.parametrize("batch_s", [0, 5, 20, 1000])
def test_many_files_come_in_order_and_in_full(folder, batch_s):
    recogniser = ToneRecogniser()
    found = list(Transcriber(recogniser).transcribe_files(folder, Settings(batch_s=batch_s)))
    assert {one.file: one.text for one in found} == folder
    assert [one.file for one in found] == list(folder)
    for batch in recogniser.batches:
        assert len(batch) == 1 or len(batch) * max(batch) <= batch_s * SAMPLE_RATE
    most = max(map(len, recogniser.batches))
    assert most == 1 if batch_s <= 5 else most > 1


def test_pieces_of_one_length_go_together(folder):
    recogniser = ToneRecogniser()
    list(Transcriber(recogniser).transcribe_files(folder, Settings(batch_s=1000)))
    lengths = [length for batch in recogniser.batches for length in batch]
    assert lengths == sorted(lengths)


def test_progress_only_goes_on(folder):
    told = []
    list(Transcriber(ToneRecogniser()).transcribe_files(folder, Settings(batch_s=5), told.append))
    assert [one.file for one in told] == sorted(one.file for one in told)
    assert told[-1].file == len(folder) - 1
    assert told[-1].waiting_s == pytest.approx(0)
    assert [one.recognised_s for one in told] == sorted(one.recognised_s for one in told)
    assert all(one.whole_s for one in told)


def test_a_bad_file_takes_no_other_with_it(folder, tmp_path, tool):
    names = list(folder)
    (tmp_path / "bad.wav").write_text("this is no sound")
    (tmp_path / "empty.wav").write_bytes(b"")
    bad = [tmp_path / "bad.wav", tmp_path / "gone.wav", tmp_path / "empty.wav", tmp_path]
    files = [names[0], bad[0], names[1], bad[1], names[2], bad[2], bad[3]]
    found = list(tool.transcribe_files(files))
    assert [type(one).__name__ for one in found] == ["Transcript", "Failure"] * 3 + ["Failure"]
    assert [one.text for one in found if isinstance(one, Transcript)] == [folder[name] for name in names[:3]]
    said = [one.reason for one in found if isinstance(one, Failure)]
    assert all(str(file) in reason for file, reason in zip(bad, said, strict=True))
    assert "no such file" in said[1]
    assert "empty" in said[2]


def test_a_piece_that_breaks_the_recogniser_takes_no_other_with_it(folder):
    class Fragile(ToneRecogniser):
        def recognise(self, pieces, decoding: Decoding):
            found = super().recognise(pieces, decoding)
            if any("twelve" in one[0].text for one in found):
                raise RuntimeError("out of twelves")
            return found

    found = list(Transcriber(Fragile()).transcribe_files(folder, Settings(batch_s=50)))
    failed = {one.file for one in found if isinstance(one, Failure)}
    assert failed == {file for file, text in folder.items() if "twelve" in text}
    assert 0 < len(failed) < len(folder)
    assert {one.file: one.text for one in found if isinstance(one, Transcript)} == {
        file: text for file, text in folder.items() if file not in failed
    }
    reason = next(one for one in found if isinstance(one, Failure))
    assert "unexpected RuntimeError: out of twelves" in reason.reason
    assert "Traceback" in reason.details


# --- bad input -------------------------------------------------------------------------------------------------------


def test_a_cut_file_gives_what_is_there_and_says_so(tool, tmp_path):
    write_audio(tmp_path / "a.wav", speak(["one", "two", "three", "four"]), SAMPLE_RATE)
    data = (tmp_path / "a.wav").read_bytes()
    (tmp_path / "a.wav").write_bytes(data[: len(data) // 2 + 30])
    result = tool.transcribe(tmp_path / "a.wav")
    assert result.text == "one two"
    assert any("cut short" in warning for warning in result.warnings)


@pytest.mark.parametrize(
    ("samples", "warning"),
    [
        (np.zeros(1, np.float32), "digital silence"),
        (np.zeros(5 * SAMPLE_RATE, np.float32), "digital silence"),
        (np.full(SAMPLE_RATE, 1e-4, np.float32), "very quiet"),
        (np.full(SAMPLE_RATE, np.nan, np.float32), "NaN"),
    ],
)
def test_nothing_to_hear_is_no_text_and_says_why(tool, tmp_path, samples, warning):
    soundfile.write(tmp_path / "a.wav", samples, SAMPLE_RATE, "FLOAT")
    result = tool.transcribe(tmp_path / "a.wav")
    assert result.text == ""
    assert result.segments == ()
    assert any(warning in one for one in result.warnings)


def test_an_offset_and_clipping_are_told_and_do_no_harm(tool):
    result = tool.transcribe(np.clip(speak(["one", "two"]) + np.float32(0.3), -1, 1), SAMPLE_RATE)
    assert result.text == "one two"
    assert any("offset" in one for one in result.warnings)
    result = tool.transcribe(np.clip(9 * speak(["one", "two"]), -1, 1), SAMPLE_RATE)
    assert result.text == "one two"
    assert any("clipped" in one for one in result.warnings)


def test_some_nan_in_speech(tool):
    samples = speak(["one", "two", "three"])
    samples[5000:5003] = np.nan
    result = tool.transcribe(samples, SAMPLE_RATE)
    assert result.text.split()[0] == "one"
    assert "3 samples are NaN" in result.warnings[0]


@pytest.mark.parametrize("samples", [np.zeros(0), np.zeros((2, 0)), np.zeros((1, 2, 3)), np.float32(1)])
def test_samples_of_no_shape(tool, samples):
    with pytest.raises(InputError, match="shape"):
        tool.transcribe(samples, SAMPLE_RATE)


def test_a_decoder_that_hangs_is_given_up(tool, tmp_path, monkeypatch):
    over = threading.Event()
    write_audio(tmp_path / "a.wav", speak(["one"]), SAMPLE_RATE)
    write_audio(tmp_path / "b.wav", speak(["two"]), SAMPLE_RATE)
    read = decoding.SoundFileDecoder._read

    def hang(self, count):
        if self.name.endswith("a.wav"):
            over.wait(60)
        return read(self, count)

    monkeypatch.setattr(decoding.SoundFileDecoder, "_read", hang)
    monkeypatch.setattr(sounds, "STALL_S", 0.3)
    found = list(tool.transcribe_files([tmp_path / "a.wav", tmp_path / "b.wav"]))
    over.set()
    assert "hung" in found[0].reason
    assert found[1].text == "two"


def test_a_file_that_never_ends_is_cut(tool, monkeypatch):
    def blocks():
        while True:
            yield Audio(np.zeros(10 * SAMPLE_RATE, np.float32), SAMPLE_RATE)

    monkeypatch.setattr(sounds, "LONGEST_S", 100.0)
    (found,) = tool.transcribe_sounds([("endless", blocks())], Settings())
    assert found.duration == 100.0
    assert "longer than" in found.warnings[0]


@pytest.mark.parametrize("minutes", [60, pytest.param(600, marks=pytest.mark.slow)])
def test_hours_in_bounded_memory(minutes):
    """In a process of its own, because the peak is the process's: hours of words, of which every one is heard."""
    script = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(ROOT / "tests")!r})
import numpy as np, spoken_tones
from voiceseq.audio.files import Audio
from voiceseq.inference.transcriber import Settings, Transcriber
spoken_tones.use_tones()
minute = spoken_tones.speak(["one", "two", ".9", ".9"] * 25)
def blocks(count):
    for _ in range(count):
        yield Audio(minute, 16000)
tool = Transcriber(spoken_tones.ToneRecogniser())
peaks = []
for count in (20, {minutes}):
    (found,) = tool.transcribe_sounds([("long", blocks(count))], Settings())
    assert len(found.words) == 50 * count, len(found.words)
    status = Path('/proc/self/status').read_text()  # getrusage's peak would be that of the process before exec, too
    peaks.append(int(status.split('VmHWM:')[1].split()[0]) / 1024)
print(found.duration / 3600, *peaks)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    hours, short, long = map(float, ran.stdout.split())
    assert hours > 0.95 * minutes / 60
    assert long - short < 60  # MB: the words themselves
    assert long < 1000


# --- bundles and streams ---------------------------------------------------------------------------------------------


def test_load_gives_a_transcriber(tmp_path):
    tone_bundle(tmp_path / "tones")
    tool = voiceseq.load(tmp_path / "tones")
    assert isinstance(tool, voiceseq.Transcriber)
    assert tool.transcribe(speak(["one"]), SAMPLE_RATE).text == "one"


def test_another_kind_of_bundle_is_refused(tmp_path):
    save_bundle(tmp_path / "x", kind="trigger", config={})
    with pytest.raises(BundleError, match="recogniser or whisper"):
        Transcriber.from_bundle(voiceseq.load_bundle(tmp_path / "x"))


def test_a_live_recogniser_is_used_and_another_gets_a_stream():
    class Live(ToneRecogniser):
        def stream(self, sample_rate):
            return ("own", sample_rate)

    class Offline(ToneRecogniser):
        def stream(self, sample_rate):
            raise InputError("needs whole utterances")

    assert Transcriber(Live()).stream(48_000) == ("own", 48_000)
    assert Transcriber(Offline()).stream(48_000).feed(np.zeros(4800, np.float32)) == []
