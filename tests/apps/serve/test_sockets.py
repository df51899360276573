"""WebSockets: the same events as from a file, whoever else is connected and however the sound is cut."""

import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from fake_speech import open_model
from places import ROOT
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

import voiceseq


def talk(url, first, data, size=3200, more=()):
    """All answers to this sound, and the close code."""
    with connect(url, max_size=None) as socket:
        socket.send(json.dumps(first) if isinstance(first, dict) else first)
        for message in more:
            socket.send(json.dumps(message))
        try:
            for at in range(0, len(data), size):
                socket.send(data[at : at + size])
            socket.send(json.dumps({"type": "finish"}))
        except ConnectionClosed:
            pass
        answers = [json.loads(message) for message in drain(socket)]
    return answers, socket.protocol.close_code


def drain(socket):
    try:
        yield from socket
    except ConnectionClosed:
        return


def events(answers, kind="detection"):
    return [one for one in answers if one["type"] == kind]


def detections(detector, samples, rate):
    return [(one.word, round(one.time, 3), round(one.score, 4)) for one in detector.detect(samples, rate)]


def heard(answers):
    return [(one["word"], one["time"], one["score"]) for one in events(answers)]


@pytest.mark.parametrize("size", [997, 3200, 150_001])
def test_events_are_those_of_the_file(server, pcm, size):
    samples, rate = pcm
    answers, code = talk(f"{server.ws}/v1/listen", {"rate": rate, "models": ["computer"]}, samples.tobytes(), size)
    assert heard(answers) == detections(voiceseq.load("computer"), samples, rate) != []
    assert answers[0]["type"] == "ready"
    assert answers[0]["words"] == ["computer"]
    assert answers[-1] == {"type": "done", "duration": round(len(samples) / rate, 3), "replaced": 0}
    assert code == 1000


def encodings(samples):
    wide = samples.astype("<i4") << 16
    stereo = np.stack([samples, samples], 1)
    yield "s32le", 1, wide.tobytes(), samples
    yield "s24le", 1, wide.view("u1").reshape(-1, 4)[:, 1:].tobytes(), samples
    yield "f32le", 1, (samples / np.float32(32768)).astype("<f4").tobytes(), samples
    yield "s16le", 2, stereo.tobytes(), samples
    coarse = (samples >> 8).astype("i2")
    yield "u8", 1, (coarse + 128).astype("u1").tobytes(), coarse << 8


@pytest.mark.parametrize("number", range(5))
def test_every_format_and_rate(server, pcm, number):
    samples, _ = pcm
    form, channels, data, same = list(encodings(samples))[number]
    rate = 22_050 if number % 2 else 16_000  # another rate is other sound, but the same for both
    first = {"rate": rate, "format": form, "channels": channels, "models": ["computer"], "scores": True}
    answers, _ = talk(f"{server.ws}/v1/listen", first, data, 1999)
    assert heard(answers) == detections(voiceseq.load("computer"), same, rate)
    scores = np.concatenate([one["scores"] for one in events(answers, "scores") if one["scores"]])
    assert np.allclose(scores, voiceseq.load("computer").scores(same, rate)[1], atol=6e-5)


def test_clients_are_not_mixed_up(server, pcm):
    """One hears the word, one hears silence, a third hears it half as loud, a piece of each in turn."""
    samples, rate = pcm
    sounds = [samples, np.zeros_like(samples), samples // 2]
    sockets = [connect(f"{server.ws}/v1/listen") for _ in sounds]
    for socket in sockets:
        socket.send(json.dumps({"rate": rate, "models": ["computer"]}))
    for at in range(0, len(samples), 1600):
        for socket, sound in zip(sockets, sounds, strict=True):
            socket.send(sound[at : at + 1600].tobytes())
    for socket, sound in zip(sockets, sounds, strict=True):
        socket.send(json.dumps({"type": "finish"}))
        answers = [json.loads(one) for one in drain(socket)]
        assert heard(answers) == detections(voiceseq.load("computer"), sound, rate)
        socket.close()


def test_several_models_and_thresholds(server, pcm):
    samples, rate = pcm
    url, first = f"{server.ws}/v1/listen", {"rate": rate, "models": ["computer", "alexa"]}
    answers, _ = talk(url, first, samples.tobytes())
    assert [one["model"] for one in events(answers)] == ["computer"]
    deaf = {"type": "thresholds", "thresholds": {"computer": 1}}
    assert events(talk(url, first, samples.tobytes(), more=[deaf])[0]) == []
    assert events(talk(url, first | {"thresholds": {"computer": 1.0}}, samples.tobytes())[0]) == []
    answers, _ = talk(url, {"rate": rate}, samples.tobytes())  # without names: everything that is served
    assert {"alexa", "computer"} <= set(answers[0]["words"])


def test_finals_are_those_of_the_stream(server, pcm):
    samples, rate = pcm
    answers, code = talk(f"{server.ws}/v1/transcribe", {"rate": rate, "model": "fake"}, samples.tobytes(), 999)
    stream = open_model("fake").stream(rate)
    sound = samples / np.float32(32768)
    finals = [one for one in [*stream.feed(sound), *stream.finish()] if one.kind == "final"]
    assert [(one["text"], one["start"]) for one in events(answers, "final")] == [
        (one.text, round(one.start, 3)) for one in finals
    ]
    assert finals
    assert events(answers, "final")[0]["words"][0]["word"] == "one"
    assert code == 1000


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"\0" * 3200, "JSON text"),
        ("hello", "no JSON"),
        ("[" * 60_000, "no JSON"),
        ("[]", "JSON object"),
        ('{"rate": 1}', "rate"),
        ('{"rate": 1e9}', "rate"),
        ('{"format": "mp3"}', "format"),
        ('{"channels": 0}', "channels"),
        ('{"models": ["nobody"]}', "nobody"),
        ('{"models": ["computer", "six-words"]}', "two of these"),
        ('{"rat": 16000}', "rat"),
        ('{"thresholds": {"computer": NaN}}', "thresholds"),
        ('{"models": ["computer"], "thresholds": {"luna": 0.5}}', "luna"),
        ("x" * 70_000, "JSON text"),
    ],
)
def test_a_wrong_first_message_is_told(server, first, reason):
    answers, code = talk(f"{server.ws}/v1/listen", first, b"")
    assert code == 1003
    assert reason in answers[-1]["message"]


def test_wrong_messages_later(server):
    answers, code = talk(f"{server.ws}/v1/listen", {"models": ["computer"]}, b"", more=[{"type": "dance"}])
    assert (code, answers[-1]["type"]) == (1003, "error")
    answers, code = talk(
        f"{server.ws}/v1/transcribe", {}, b"\0\0", more=[{"type": "thresholds", "thresholds": {"a": 0.5}}]
    )
    assert (code, "thresholds" in answers[-1]["message"]) == (1003, True)
    answers, code = talk(f"{server.ws}/v1/listen", {"models": ["computer"]}, bytes(3 << 19), 3 << 19)
    assert code == 1009
    assert "1572864 bytes came" in answers[-1]["message"]
    _, code = talk(f"{server.ws}/v1/listen", {"models": ["computer"]}, bytes(10 << 20), 10 << 20)
    assert code in (1009, 1006)  # who still sends when the server hangs up may never read why


def test_nothing_but_nan_is_heard_as_silence(server):
    nan = np.full(16_000, np.nan, "<f4").tobytes()
    answers, code = talk(f"{server.ws}/v1/listen", {"format": "f32le", "models": ["computer"]}, nan)
    assert answers[-1]["replaced"] == 16_000
    assert code == 1000


def test_a_path_that_is_not_there(server):
    with pytest.raises(InvalidStatus):
        connect(f"{server.ws}/v1/nowhere")


def examples():
    """The clients of docs/serve.md, by language."""
    page = (ROOT / "docs" / "serve.md").read_text()
    return {name: code for name, code in re.findall(r"```(python|js)\n(.*?)```", page, re.DOTALL) if "argv" in code}


def lines_of(words, **options):
    ran = subprocess.run(words, capture_output=True, timeout=300, check=False, **options)
    assert ran.returncode == 0, ran.stderr.decode()
    return [json.loads(line) for line in ran.stdout.decode().splitlines()]


def test_the_documented_python_client_runs(server, pcm, tmp_path):
    import soundfile

    samples, rate = pcm
    (tmp_path / "client.py").write_text(examples()["python"])
    soundfile.write(tmp_path / "talk.wav", samples, rate)
    words = [sys.executable, str(tmp_path / "client.py"), f"{server.ws}/v1/listen", str(tmp_path / "talk.wav")]
    assert [one["word"] for one in events(lines_of(words))] == ["computer"]


def test_the_documented_javascript_client_runs(server, pcm, tmp_path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    probe = [node, "--experimental-websocket", "-p", "typeof WebSocket"]
    if subprocess.run(probe, capture_output=True, check=False).stdout.strip() != b"function":
        pytest.skip("this node has no WebSocket: version 20.10 or newer is wanted")
    samples, rate = pcm
    (tmp_path / "client.mjs").write_text(examples()["js"])
    words = [node, "--experimental-websocket", str(tmp_path / "client.mjs"), f"{server.ws}/v1/listen", str(rate)]
    found = lines_of(words, input=samples.tobytes(), env=os.environ | {"NODE_NO_WARNINGS": "1"})
    assert [one["word"] for one in events(found)] == ["computer"]
