"""OpenAI's transcription API, asked by OpenAI's own unmodified package."""

import dataclasses
import io
import math
import shutil
import subprocess

import httpx
import numpy as np
import openai
import pytest
import soundfile
from fake_speech import open_model

from voiceseq.inference.formats import FORMATS


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def expected(clip):
    """What the same recogniser says without a server."""
    return open_model("fake").transcribe(clip)


def test_models_are_listed(client):
    names = [one.id for one in client.models.list()]
    assert {"computer", "six-words", "fake"} <= set(names)
    assert client.models.retrieve("computer").words == ["computer"]
    with pytest.raises(openai.NotFoundError, match="served are"):
        client.models.retrieve("nobody")


def test_json_has_the_text(client, clip, expected):
    reply = client.audio.transcriptions.create(model="fake", file=clip)
    assert reply.text == expected.text != ""
    assert reply.usage.seconds == math.ceil(expected.duration)


@pytest.mark.parametrize("form", ["text", "srt", "vtt"])
def test_other_formats_are_those_of_the_command(client, clip, expected, form):
    reply = client.audio.transcriptions.create(model="whisper-1", file=clip, response_format=form)
    assert reply == (expected.text + "\n" if form == "text" else FORMATS[form](expected))


def test_verbose_json_has_what_was_asked_for(client, clip, expected):
    create = client.audio.transcriptions.create
    both = create(model="fake", file=clip, response_format="verbose_json", timestamp_granularities=["word", "segment"])
    assert [one.text for one in both.segments] == [one.text for one in expected.segments]
    assert [(one.word, one.start) for one in both.words] == [(w.word, round(w.start, 3)) for w in expected.words]
    assert both.duration == pytest.approx(expected.duration, abs=1e-3)
    assert both.language == "english"
    words = create(model="fake", file=clip, response_format="verbose_json", timestamp_granularities=["word"])
    assert words.segments is None
    assert create(model="fake", file=clip, response_format="verbose_json").words is None


def test_a_stream_gives_the_same_text_piece_by_piece(client, pcm, tmp_path):
    samples, rate = pcm
    path = tmp_path / "twice.wav"
    soundfile.write(path, np.concatenate((samples, np.zeros(2 * rate, np.int16), samples)), rate)
    expected = open_model("fake").transcribe(path)
    assert len(expected.segments) == 2
    events = list(client.audio.transcriptions.create(model="fake", file=path, stream=True))
    deltas = [one.delta for one in events if one.type == "transcript.text.delta"]
    assert len(deltas) == len(expected.segments)
    assert "".join(deltas) == expected.text
    assert events[-1].type == "transcript.text.done"
    assert events[-1].text == expected.text


def test_hotwords_reach_the_recogniser(client, clip):
    reply = client.audio.transcriptions.create(model="fake", file=clip, extra_body={"hotwords": "luna, harper"})
    assert reply.text.startswith("luna harper one")


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "empty"), (b"this is no sound at all", "talk.wav"), (b"RIFF\0\0\0\0WAVEfmt ", "talk.wav")],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_file_that_is_no_sound_is_told(server, client, content, reason, stream):
    file = ("talk.wav", io.BytesIO(content))
    with pytest.raises(openai.BadRequestError, match=reason) as caught:
        client.audio.transcriptions.create(model="fake", file=file, stream=stream)
    assert str(server.service.folder) not in str(caught.value)


def test_what_is_wrong_with_a_request_is_told(server, client, clip):
    create = client.audio.transcriptions.create
    with pytest.raises(openai.NotFoundError, match="nobody"):
        create(model="nobody", file=clip)
    with pytest.raises(openai.BadRequestError, match="response_format"):
        create(model="fake", file=clip, response_format="pdf")
    with pytest.raises(openai.BadRequestError, match="language"):
        create(model="fake", file=clip, language="fr")
    reply = httpx.post(f"{server.url}/v1/audio/transcriptions", data={"model": "fake"})
    assert reply.status_code == 400
    assert "file" in reply.json()["error"]["message"]


def test_no_upload_is_left_behind(server, client, clip):
    client.audio.transcriptions.create(model="fake", file=clip)
    assert list(server.service.folder.iterdir()) == []


@pytest.mark.parametrize("suffix", ["wav", "ogg", "mp3", "flac"])
def test_other_kinds_of_files(client, pcm, suffix):
    samples, rate = pcm
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=suffix.upper())
    file.seek(0)
    reply = client.audio.transcriptions.create(model="fake", file=(f"talk.{suffix}", file))
    assert reply.text.startswith("one")


@pytest.mark.parametrize("suffix", ["m4a", "webm", "mp4", "opus", "amr"])
def test_kinds_that_ffmpeg_reads(client, clip, tmp_path, suffix):
    ffmpeg = shutil.which("ffmpeg")
    if ffmpeg is None:
        pytest.skip("ffmpeg is not installed")
    path = tmp_path / f"talk.{suffix}"
    made = ["-ar", "8000"] if suffix == "amr" else []
    ran = subprocess.run([ffmpeg, "-v", "error", "-i", str(clip), *made, str(path)], check=False, capture_output=True)
    if ran.returncode:
        pytest.skip(f"this ffmpeg cannot write {suffix}")
    reply = client.audio.transcriptions.create(model="fake", file=path, response_format="verbose_json")
    assert reply.text.startswith("one two")
    assert reply.duration == pytest.approx(6.13, abs=0.2)


def test_a_second(client, pcm, tmp_path):
    samples, rate = pcm
    soundfile.write(tmp_path / "second.wav", samples[rate : 2 * rate], rate)
    reply = client.audio.transcriptions.create(
        model="fake", file=tmp_path / "second.wav", response_format="verbose_json"
    )
    assert (reply.duration, reply.text) == (1.0, "one")


def test_the_files_of_the_command_beside_the_answer(client, clip, expected):
    """`files[]` is ours: what the page offers for download."""
    wanted = {"files": ["srt", "tsv", "json"]}  # the package writes lists as files[]
    reply = client.audio.transcriptions.create(model="fake", file=clip, extra_body=wanted)
    named = dataclasses.replace(expected, file=clip.name)
    assert reply.files == {name: FORMATS[name](named) for name in ("srt", "tsv", "json")}


@pytest.mark.slow
def test_an_hour(client, pcm, tmp_path):
    samples, rate = pcm
    path = tmp_path / "hour.flac"
    soundfile.write(path, np.tile(samples, math.ceil(3600 * rate / len(samples)))[: 3600 * rate], rate)
    reply = client.audio.transcriptions.create(model="fake", file=path, response_format="verbose_json")
    assert reply.duration == pytest.approx(3600)
    assert reply.segments[-1].end > 3590
