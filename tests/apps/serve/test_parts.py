"""The parts of the server by themselves."""

import asyncio
import io
import json
import socket
import time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.websockets import WebSocketState
from voiceseq.apps.serve import link
from voiceseq.apps.serve.catalogue import Catalogue, Model, open_catalogue
from voiceseq.apps.serve.feeding import REST_S, Feeder
from voiceseq.apps.serve.limits import Busy, Gate, Limits
from voiceseq.apps.serve.logs import Log
from voiceseq.apps.serve.metrics import Metrics
from voiceseq.apps.serve.orders import FORMATS, Order, Pcm
from voiceseq.apps.serve.service import Service
from voiceseq.apps.serve.sockets import serve

from voiceseq.cli.main import main
from voiceseq.errors import BundleError, ConfigError, InputError


@given(st.binary(max_size=200), st.sampled_from(sorted(FORMATS)), st.integers(1, 3), st.integers(1, 50))
def test_any_cut_of_the_bytes_gives_the_same_samples(data, form, channels, size):
    order = Order(format=form, channels=channels)
    pcm = Pcm(order)
    pieces = [pcm.feed(data[at : at + size]) for at in range(0, len(data), size)]
    whole = Pcm(order).feed(data)
    joined = np.concatenate([np.zeros((*whole.shape[:-1], 0), whole.dtype), *pieces], -1)
    assert joined.tobytes() == whole.tobytes()
    assert whole.shape[-1] == len(data) // order.frame_bytes


def test_24_bits_are_the_upper_ones():
    assert Pcm(Order(format="s24le")).feed(b"\x00\x00\x80\xff\xff\x7f").tolist() == [-(2**31), 2**31 - 256]


def test_limits_are_checked_and_named():
    assert Limits.parse({"listeners": "5", "idle_s": "2.5"}) == Limits(listeners=5, idle_s=2.5)
    with pytest.raises(ConfigError, match="did you mean 'listeners'"):
        Limits.parse({"listener": "5"})
    with pytest.raises(ConfigError, match="is no int"):
        Limits.parse({"listeners": "many"})
    with pytest.raises(ConfigError, match="more than 0"):
        Limits.parse({"listeners": "0"})


def test_the_gate_counts_and_notices_who_is_late():
    late = {"listeners": 0.0}
    gate = Gate(Limits(listeners=2, late_s=1.0), lambda kind: late.get(kind, 0.0))
    with gate.enter("listeners"):
        late["listeners"] = 5.0
        with pytest.raises(Busy, match="behind"), gate.enter("listeners"):
            pass
        with gate.enter("speakers"):
            pass
        late["listeners"] = 0.0
        with gate.enter("listeners"), pytest.raises(Busy, match="all places"), gate.enter("listeners"):
            pass
    assert gate.inside["listeners"] == 0
    gate.stopping.set()
    with pytest.raises(Busy, match="stopping"), gate.enter("speakers"):
        pass


class Recorder:
    """A stream that takes what it is given, slowly."""

    order = Order()

    def __init__(self):
        self.turns = []

    async def feed(self, data):
        await asyncio.sleep(0)
        self.turns.append(data)
        return {"events": [], "time": sum(map(len, self.turns)) / 32_000}

    async def finish(self):
        return {"events": [], "time": sum(map(len, self.turns)) / 32_000}


def test_a_feeder_keeps_order_takes_turns_and_holds_little():
    """Ten seconds in small messages: all arrive in order, a turn is half a second at most, the queue is bounded."""
    rng = np.random.default_rng(0)
    messages = [rng.bytes(int(size)) for size in rng.integers(0, 3000, 220)]

    async def run():
        stream, most = Recorder(), 0
        feeder = Feeder(stream, Limits(queue_s=1.0), Metrics(), "listeners")

        async def deliver(answer):
            nonlocal most
            most = max(most, feeder._size)

        feeding = asyncio.create_task(feeder.run(deliver))
        for message in messages:
            await feeder.put(message)
        await feeder.end()
        await feeding
        return stream.turns, most

    turns, most = asyncio.run(run())
    assert b"".join(turns) == b"".join(messages)
    assert max(map(len, turns)) <= 16_000
    assert len(turns) < len(messages) / 2  # what waited went together
    assert most < 32_000 + 3000


def test_small_messages_go_together():
    """A browser sends 3 ms at a time; each would cost a turn."""

    async def run():
        stream = Recorder()
        feeder = Feeder(stream, Limits(), Metrics(), "listeners")

        async def deliver(answer):
            pass

        feeding = asyncio.create_task(feeder.run(deliver))
        began = time.monotonic()
        for _ in range(100):
            await feeder.put(bytes(96))
            await asyncio.sleep(0.003)
        await feeder.end()
        await feeding
        return stream.turns, time.monotonic() - began

    turns, seconds = asyncio.run(run())
    assert sum(map(len, turns)) == 9600
    assert len(turns) <= seconds / REST_S["listeners"] + 2


def test_messages_survive_the_wire():
    ours, theirs = socket.socketpair()
    wire = link.Wire(theirs)
    ours.sendall(link.pack({"id": 1, "do": "feed"}, b"\0\1"))
    assert wire.waiting()
    assert wire.receive() == ({"id": 1, "do": "feed"}, b"\0\1")
    assert not wire.waiting()

    async def read_back():
        reader, writer = await asyncio.open_connection(sock=ours)
        wire.send({"id": 1, "text": "é"})
        first = await link.read(reader)
        theirs.sendall(link.HEAD.pack(2, 0) + b"[]")
        with pytest.raises(EOFError):
            await link.read(reader)
        writer.close()
        return first

    assert asyncio.run(read_back()) == {"id": 1, "text": "é"}
    with pytest.raises(EOFError):
        wire.receive()


def test_the_catalogue():
    served = open_catalogue(["computer", "six-words"])
    assert [one.name for one in served.detectors([])] == ["computer"]  # six-words has that word, too
    assert [one.name for one in served.detectors(["six-words"])] == ["six-words"]
    with pytest.raises(InputError, match="no recogniser of speech"):
        served.recogniser(None)
    with pytest.raises(BundleError, match="wake words, speech or text"):
        open_catalogue(["backbone"])
    texts = open_catalogue(["shakespeare", "dates"])
    assert texts.for_task("dates", None).name == "dates"
    assert (texts.wake, texts.speech) == ((), ())
    with pytest.raises(InputError, match="--model"):
        texts.for_task("tag", None)
    with pytest.raises(InputError, match="served are: shakespeare"):
        texts.for_task("generate", "dates")
    with pytest.raises(InputError, match="two models"):
        open_catalogue(["computer", "computer"])
    speech = Catalogue((Model("a", "a"), Model("english-small", "b")))
    assert speech.recogniser("whisper-1").name == speech.recogniser(None).name == "english-small"
    assert {one.name for one in open_catalogue().wake} >= {"alexa", "six-words"}


def test_metrics_are_prometheus_text():
    metrics = Metrics()
    metrics.count("refused_total", reason='a "b"\n')
    metrics.observe("latency_seconds", 0.03, kind="x")
    metrics.observe("latency_seconds", 99.0, kind="x")
    text = metrics.text()
    assert r'voiceseq_refused_total{reason="a \"b\"\n"} 1' in text
    assert 'voiceseq_latency_seconds_bucket{kind="x",le="0.025"} 0' in text
    assert 'voiceseq_latency_seconds_bucket{kind="x",le="0.05"} 1' in text
    assert 'voiceseq_latency_seconds_bucket{kind="x",le="+Inf"} 2' in text
    assert 'voiceseq_latency_seconds_count{kind="x"} 2' in text


def test_logs_keep_words_only_when_asked():
    for asked in (False, True):
        out = io.StringIO()
        Log(out, asked).said("final", "my secret", at=1)
        row = json.loads(out.getvalue())
        assert (row["event"], row["at"]) == ("final", 1)
        assert ("secret" in out.getvalue()) is asked


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--host", "0.0.0.0"], "--token"),
        (["--wyoming", "tcp://0.0.0.0:10400"], "--wyoming-allow"),
        (["--wyoming", "10400"], "tcp://host:port"),
        (["--wyoming", "tcp://127.0.0.1:99999"], "tcp://host:port"),
        (["--wyoming", "tcp://127.0.0.1:0", "--wyoming-allow", "home"], "home"),
        (["--zeroconf"], "--wyoming"),
        (["--port", "70000"], "65535"),
        (["--origin", "friend.example"], "https://host"),
        (["--limit", "clients=5"], "no limit 'clients'"),
        (["--limit", "listeners"], "NAME=NUMBER"),
        (["--processes", "files=0"], "1 to 64"),
        (["--token", "naïve"], "plain characters"),
    ],
)
def test_the_command_refuses_what_cannot_be(capsys, words, reason):
    assert main(["serve", *words]) == 2
    assert reason in capsys.readouterr().err


class ClosedAlready:
    """A WebSocket that the library closed on a bad frame, after a message that the server wants to answer."""

    client_state = application_state = WebSocketState.CONNECTED

    async def accept(self):
        pass

    async def receive(self):
        return {"type": "websocket.receive", "text": "no JSON"}

    async def send_text(self, text):
        raise RuntimeError("Unexpected ASGI message 'websocket.send', after sending 'websocket.close'.")


def test_whom_nothing_can_be_told_has_vanished():
    service = SimpleNamespace(limits=Limits(), metrics=Metrics(), gate=Gate(Limits(), lambda kind: 0.0))
    asyncio.run(serve(ClosedAlready(), service, "listeners"))
    assert 'reason="vanished"} 1' in service.metrics.text()


def test_a_start_that_fails_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    service = Service(open_catalogue(["computer"]), Limits(), Log(io.StringIO()))

    async def fail():
        raise BundleError("no such model")

    async def run():
        monkeypatch.setattr(service.workers, "start", fail)
        with pytest.raises(BundleError):
            await service.start()
        await service.stop()

    (tmp_path / "mine").touch()
    asyncio.run(run())
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
