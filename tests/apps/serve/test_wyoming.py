"""Wyoming, asked by the wyoming package's own client."""

import asyncio
import json
import os
import socket

import numpy as np
import pytest
from serving import catalogue, serving
from wyoming.asr import Transcribe, Transcript
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncClient
from wyoming.event import Event
from wyoming.info import Describe, Info
from wyoming.ping import Ping
from wyoming.wake import Detect, Detection

import voiceseq

LAST = ("not-detected", "transcript-stop", "error", "pong", "info")


def talk(server, *said):
    """Everything that is answered, up to what ends an answer."""

    async def run():
        async with AsyncClient.from_uri(server.wyoming) as client:
            for one in said:
                await client.write_event(one if isinstance(one, Event) else one.event())
            answers = []
            while event := await asyncio.wait_for(client.read_event(), 60):
                answers.append(event)
                if event.type in LAST:
                    break
            return answers

    return asyncio.run(run())


def chunks(pcm, start=True, stop=True, first_ms=0, size=1024):
    samples, rate = pcm
    if start:
        yield AudioStart(rate, 2, 1)
    for at in range(0, len(samples), size):
        stamp = None if first_ms is None else first_ms + 1000 * at // rate
        yield AudioChunk(rate, 2, 1, samples[at : at + size].tobytes(), timestamp=stamp)
    if stop:
        yield AudioStop()
        yield Ping("after").event()


def names(answers):
    return [
        (Detection.from_event(one).name, Detection.from_event(one).timestamp)
        for one in answers
        if one.type == "detection"
    ]


@pytest.fixture(scope="module")
def fired_ms(pcm):
    (event,) = voiceseq.load("computer").detect(*pcm)
    return 1000 * event.time


def test_every_bundle_is_described(server):
    (answer,) = talk(server, Describe())
    info = Info.from_event(answer)
    wake = {one.name: one for one in info.wake[0].models}
    assert wake["computer"].phrase == "computer"
    assert wake["computer"].languages == ["en"]
    assert wake["computer"].version
    assert wake["six-words.smart mirror"].phrase == "smart mirror"
    (speech,) = info.asr[0].models
    assert (speech.name, speech.languages) == ("fake", ["en"])
    assert info.asr[0].supports_transcript_streaming
    assert info.wake[0].installed
    assert info.wake[0].version == voiceseq.__version__


@pytest.mark.parametrize("first_ms", [0, 1_000_000, None])
def test_a_detection_has_the_audios_own_time(server, pcm, fired_ms, first_ms):
    answers = talk(server, Detect(["computer"]), *chunks(pcm, first_ms=first_ms))
    ((name, stamp),) = names(answers)
    assert name == "computer"
    assert stamp == pytest.approx((first_ms or 0) + fired_ms, abs=1.5)


def test_a_gap_in_the_timestamps_is_followed(server, pcm, fired_ms):
    """A client that lost a minute after its first second says so, and the detection comes a minute later."""
    said = list(chunks(pcm, stop=False))
    for one in said[1:]:
        one.timestamp += 60_000 if one.timestamp > 1000 else 0
    ((_, stamp),) = names(talk(server, Detect(["computer"]), *said, AudioStop(), Ping()))
    assert stamp == pytest.approx(60_000 + fired_ms, abs=1.5)


def test_without_audio_start_as_satellites_do(server, pcm):
    """A satellite sends chunks alone, and goes on after a detection."""
    pause = (np.zeros(3 * pcm[1], pcm[0].dtype), pcm[1])
    parts = ((pcm, 0), (pause, 7_000), (pcm, 10_000))
    twice = [chunk for sound, at in parts for chunk in chunks(sound, start=False, stop=False, first_ms=at)]
    answers = talk(server, Detect(["computer"]), *twice, AudioStop(), Ping())
    assert [name for name, _ in names(answers)] == ["computer", "computer"]


def test_the_same_question_in_the_middle_of_the_sound_changes_nothing(server, pcm, fired_ms):
    said = list(chunks(pcm))
    answers = talk(server, Detect(["computer"]), *said[:40], Detect(["computer"]), *said[40:])
    ((_, stamp),) = names(answers)
    assert stamp == pytest.approx(fired_ms, abs=1.5)


def test_not_detected(server, pcm):
    samples, rate = pcm
    silence = (samples * 0, rate)
    assert [one.type for one in talk(server, Detect(["computer"]), *chunks(silence))] == ["not-detected"]
    assert talk(server, Detect(["alexa"]), *chunks(pcm))[-1].type == "not-detected"


def test_one_word_of_several(server, pcm):
    assert [name for name, _ in names(talk(server, Detect(["six-words.computer"]), *chunks(pcm)))] == [
        "six-words.computer"
    ]
    assert talk(server, Detect(["six-words.alexa"]), *chunks(pcm))[-1].type == "not-detected"
    assert names(talk(server, Detect(["six-words"]), *chunks(pcm)))[0][0] == "six-words.computer"
    assert names(talk(server, Detect(), *chunks(pcm)))[0][0] == "computer"


def test_a_transcript_is_streamed(server, pcm):
    answers = talk(server, Transcribe(name="fake", language="en"), *chunks(pcm))
    kinds = [one.type for one in answers]
    pieces = [one.data["text"] for one in answers if one.type == "transcript-chunk"]
    assert kinds == ["transcript-start", *["transcript-chunk"] * len(pieces), "transcript", "transcript-stop"]
    (whole,) = [Transcript.from_event(one).text for one in answers if one.type == "transcript"]
    assert whole == "".join(pieces)
    assert whole.startswith("one")


def test_silence_has_an_empty_transcript(server, pcm):
    samples, rate = pcm
    answers = talk(server, Transcribe(), *chunks((samples * 0, rate)))
    assert [one.type for one in answers] == ["transcript-start", "transcript", "transcript-stop"]
    assert answers[1].data["text"] == ""


def test_hints_become_hotwords(server, pcm):
    answers = talk(server, Transcribe(transcript_names=["Luna"]), *chunks(pcm))
    assert next(one for one in answers if one.type == "transcript").data["text"].startswith("Luna")


def test_one_connection_after_another_purpose(server, pcm):
    answers = talk(server, Detect(["computer"]), *list(chunks(pcm))[:-1], Transcribe(), *chunks(pcm))
    assert [one.type for one in answers if one.type in ("detection", "transcript")] == ["detection", "transcript"]


@pytest.mark.parametrize(
    "said",
    [
        [Detect(["nobody"]), AudioStart(16_000, 2, 1)],
        [Transcribe(name="nobody"), AudioStart(16_000, 2, 1)],
        [Detect(["computer"]), AudioStart(1, 2, 1)],
        [Detect(["computer"]), AudioStart(16_000, 9, 1)],
        [Detect(["computer"]), AudioStart(16_000, 2, 0)],
        [Event("audio-chunk", {"rate": 16_000}, b"\0\0")],
        [Event("audio-start", {"rate": [], "width": {}, "channels": "x"})],
        [Event("detect", {"names": 5}), AudioStart(16_000, 2, 1)],
        [Detect(["computer"]), AudioChunk(16_000, 2, 1, b"\0\0", timestamp="soon")],
    ],
)
def test_what_is_wrong_is_told(server, said):
    (answer,) = talk(server, *said)
    assert answer.type == "error"
    assert answer.data["text"]


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"{}\n",
        b"[1]\n",
        b"\xff\xfe\n",
        b"[" * 20_000 + b"\n",
        b"x" * 200_000,
        json.dumps({"type": "audio-chunk", "payload_length": 10**12}).encode() + b"\n",
        json.dumps({"type": "audio-chunk", "data_length": -5}).encode() + b"\n",
        json.dumps({"type": "ping", "data": 3}).encode() + b"\n",
        json.dumps({"type": "ping", "data_length": 2}).encode() + b"\n[]",
        json.dumps({"type": "audio-chunk", "payload_length": 1000}).encode() + b"\ncut",
    ],
)
def test_garbage_ends_only_its_own_connection(server, data):
    with socket.create_connection(("127.0.0.1", server.wyoming_port), 30) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        client.settimeout(30)
        received = b""
        try:
            while piece := client.recv(65536):
                received += piece
        except ConnectionResetError:  # it closed while we were still sending
            pass
    assert b'"error"' in received or b"cut" in data or b"x" * 100 in data
    assert talk(server, Ping("still"))[0].data["text"] == "still"


def test_it_is_announced_when_asked_for():
    """An mDNS client of another make finds it; so does Home Assistant."""
    zeroconf = pytest.importorskip("zeroconf")
    name = f"voiceseq-test-{os.getpid()}"
    try:
        browser = zeroconf.Zeroconf()
    except OSError as error:
        pytest.skip(f"no multicast on this machine: {error}")
    try:
        with serving(catalogue(words=("dates",)), zeroconf=name) as server:
            found = browser.get_service_info("_wyoming._tcp.local.", f"{name}._wyoming._tcp.local.", 10_000)
            assert found is not None
            assert (found.port, found.parsed_addresses()) == (server.wyoming_port, ["127.0.0.1"])
    finally:
        browser.close()


def test_what_cannot_be_announced_is_told(monkeypatch, tmp_path):
    pytest.importorskip("zeroconf")
    with (
        pytest.raises(AssertionError, match="tcp://host:port"),
        serving(catalogue(words=("dates",)), zeroconf="voiceseq", wyoming=f"unix://{tmp_path}/wyoming"),
    ):
        pass
    monkeypatch.setattr("socket.gethostbyname", lambda name: (_ for _ in ()).throw(OSError("Network is unreachable")))
    with (
        pytest.raises(AssertionError, match="leave --zeroconf out"),
        serving(catalogue(words=("dates",)), zeroconf="voiceseq"),
    ):
        pass
