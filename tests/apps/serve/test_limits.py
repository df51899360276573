"""Who is let in, how much of everything, and what happens to those inside when the server stops."""

import asyncio
import json
import socket
import threading
import time

import httpx
import openai
import pytest
from serving import FAKE, SLOW, catalogue, serving
from voiceseq.apps.serve.limits import Limits
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

TOKEN = "0123456789abcdef"
SMALL = Limits(
    listeners=1,
    speakers=1,
    files=1,
    upload_bytes=200_000,
    duration_s=5.0,
    idle_s=2.0,
    header_s=5.0,
    stop_s=20.0,
    late_s=300.0,
)


@pytest.fixture(scope="module")
def strict():
    """A server with little room, that wants a token."""
    with serving(
        catalogue(FAKE, SLOW, words=("computer",)), SMALL, token=TOKEN, origins=("https://friend.example",)
    ) as one:
        yield one


@pytest.fixture
def headers():
    return {"Authorization": f"Bearer {TOKEN}"}


def wait_until(true, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def inside(server, kind):
    return server.service.gate.inside[kind]


def rest_of(client):
    """What is still told, and the close code."""
    told = []
    try:
        while True:
            told.append(json.loads(client.recv(60)))
    except ConnectionClosed as closed:
        return told, closed.rcvd.code


def upload(server, path, model=FAKE, **options):
    with path.open("rb") as file:
        files = {"file": (path.name, file)}
        return httpx.post(
            f"{server.url}/v1/audio/transcriptions", data={"model": model}, files=files, timeout=120, **options
        )


def test_other_names_of_this_machine_are_refused(server):
    """A page whose name leads to 127.0.0.1 must not get in (DNS rebinding)."""
    assert httpx.get(f"{server.url}/v1/models", headers={"Host": "evil.example"}).status_code == 421
    assert httpx.get(f"{server.url}/v1/models", headers={"Host": f"localhost:{server.port}"}).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "http://["])
def test_pages_from_elsewhere_are_refused(server, origin):
    assert httpx.get(f"{server.url}/v1/models", headers={"Origin": origin}).status_code == 403
    with pytest.raises(InvalidStatus) as caught:
        connect(f"{server.ws}/v1/listen", origin=origin)
    assert caught.value.response.status_code == 403


def test_its_own_page_and_named_ones_are_let_in(server, strict, headers):
    assert httpx.get(f"{server.url}/v1/models", headers={"Origin": server.url}).status_code == 200
    reply = httpx.get(f"{strict.url}/v1/models", headers=headers | {"Origin": "https://friend.example"})
    assert reply.headers["access-control-allow-origin"] == "https://friend.example"


def test_the_token_is_wanted(strict, headers, clip):
    for wrong in ({}, {"Authorization": "Bearer nonsense"}, {"Authorization": TOKEN[:-1]}):
        reply = httpx.get(f"{strict.url}/v1/models", headers=wrong)
        assert reply.status_code == 401
        assert "token" in reply.json()["error"]["message"]
        assert httpx.get(f"{strict.url}/metrics", headers=wrong).status_code == 401
        assert upload(strict, clip, headers=wrong).status_code == 401
    assert httpx.get(f"{strict.url}/v1/models", headers=headers).status_code == 200
    assert httpx.get(f"{strict.url}/healthz").status_code == 200
    assert httpx.get(f"{strict.url}/").status_code == 200
    with openai.OpenAI(base_url=f"{strict.url}/v1", api_key=TOKEN, max_retries=0) as client:
        assert client.models.list().data
    with pytest.raises(InvalidStatus) as caught:
        connect(f"{strict.ws}/v1/listen")
    assert caught.value.response.status_code == 401
    connect(f"{strict.ws}/v1/listen?token={TOKEN}").close()
    connect(f"{strict.ws}/v1/listen", additional_headers=headers).close()


def test_a_full_house_is_told_at_once_and_places_come_free(strict):
    wait_until(lambda: not inside(strict, "listeners"))
    first = connect(f"{strict.ws}/v1/listen?token={TOKEN}")
    with pytest.raises(InvalidStatus) as caught:
        connect(f"{strict.ws}/v1/listen?token={TOKEN}")
    assert caught.value.response.status_code == 503
    assert caught.value.response.headers["retry-after"]
    first.socket.shutdown(socket.SHUT_RDWR)  # vanished, without a word
    wait_until(lambda: not inside(strict, "listeners"))
    connect(f"{strict.ws}/v1/listen?token={TOKEN}").close()


def test_a_thousand_connections_are_not_too_many_to_refuse():
    """Beyond the limit there is 503; when they are gone, everything is as before."""
    with serving(catalogue(words=("dates",)), Limits(connections=50, stop_s=5.0)) as server:
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        crowd = [socket.create_connection(("127.0.0.1", server.port), 30) for _ in range(1000)]
        assert httpx.get(f"{server.url}/healthz", timeout=60).status_code == 503
        for one in crowd:
            one.close()
        wait_until(lambda: httpx.get(f"{server.url}/healthz", timeout=60).status_code == 200)


def test_a_silent_client_is_sent_away(strict):
    wait_until(lambda: not inside(strict, "listeners"))
    with connect(f"{strict.ws}/v1/listen?token={TOKEN}") as client:
        told, code = rest_of(client)
        assert (told[-1]["type"], code) == ("error", 1008)
    wait_until(lambda: not inside(strict, "listeners"))
    with connect(f"{strict.ws}/v1/listen?token={TOKEN}") as client:
        client.send("{}")
        assert json.loads(client.recv(30))["type"] == "ready"
        assert "nothing came" in json.loads(client.recv(30))["message"]


def test_a_connection_that_says_nothing_is_closed(strict):
    with socket.create_connection(("127.0.0.1", strict.port)) as client:
        client.settimeout(30)
        client.sendall(b"GET / HT")
        assert client.recv(10) == b""


def test_too_large_an_upload(strict, headers, tmp_path):
    big = tmp_path / "big.wav"
    big.write_bytes(bytes(300_000))
    assert upload(strict, big, headers=headers).status_code == 413

    def drops():
        yield from (bytes(50_000) for _ in range(10))

    kind = headers | {"Content-Type": "multipart/form-data; boundary=x"}
    reply = httpx.post(f"{strict.url}/v1/audio/transcriptions", content=drops(), headers=kind)
    assert reply.status_code in (400, 413)
    wait_until(lambda: not inside(strict, "files"))


def test_too_slow_an_upload(strict, headers):
    lines = [f"{name}: {value}" for name, value in headers.items()]
    lines += ["Host: localhost", "Content-Length: 1000", "Content-Type: multipart/form-data; boundary=x"]
    with socket.create_connection(("127.0.0.1", strict.port)) as client:
        client.settimeout(30)
        client.sendall(("POST /v1/audio/transcriptions HTTP/1.1\r\n" + "\r\n".join(lines) + "\r\n\r\n--x").encode())
        assert b" 408 " in client.recv(65536)
    wait_until(lambda: not inside(strict, "files"))


def test_too_long_a_file(strict, headers, clip):
    reply = upload(strict, clip, headers=headers)
    assert reply.status_code == 400
    assert "longer than 5 s" in reply.json()["error"]["message"]


def test_a_second_file_is_refused_while_one_is_at_work(strict, headers, quiet_clip):
    replies = []
    thread = threading.Thread(target=lambda: replies.append(upload(strict, quiet_clip, SLOW, headers=headers)))
    thread.start()
    wait_until(lambda: inside(strict, "files"))
    refused = upload(strict, quiet_clip, headers=headers)
    assert refused.status_code == 503
    assert refused.headers["retry-after"]
    thread.join(120)
    assert replies[0].status_code == 200


def test_whoever_hangs_up_frees_the_place(strict, headers, quiet_clip):
    with pytest.raises(httpx.ReadTimeout), quiet_clip.open("rb") as file:
        httpx.post(
            f"{strict.url}/v1/audio/transcriptions",
            data={"model": SLOW},
            files={"file": file},
            headers=headers,
            timeout=httpx.Timeout(60, read=0.1),
        )
    wait_until(lambda: not inside(strict, "files"))
    assert upload(strict, quiet_clip, headers=headers).status_code == 200


def test_a_client_that_does_not_read_is_dropped():
    from starlette.websockets import WebSocketDisconnect
    from voiceseq.apps.serve.sockets import Conversation

    class Stuck:
        async def send_text(self, text):
            await asyncio.sleep(1000)

    class Service:
        limits = Limits(send_s=0.05)

    with pytest.raises(WebSocketDisconnect, match="does not read"):
        asyncio.run(Conversation(Stuck(), Service(), "listeners").say({}))


def test_no_stream_is_for_ever():
    from voiceseq.apps.serve.limits import Gate
    from voiceseq.apps.serve.metrics import Metrics
    from voiceseq.apps.serve.sockets import Conversation

    class Quiet:
        def __init__(self):
            self.told = []

        async def receive(self):
            await asyncio.sleep(1000)

        async def send_text(self, text):
            self.told.append(json.loads(text)["message"])

        async def close(self, code, reason):
            self.told.append(code)

    class Service:
        limits = Limits(total_s=0.05)
        metrics, gate = Metrics(), Gate(limits, lambda kind: 0.0)

    client = Quiet()
    asyncio.run(Conversation(client, Service(), "listeners").run())
    assert client.told == ["a stream may last 0.05 s", 1008]


def test_health_metrics_and_logs(server, clip):
    upload(server, clip)
    health = httpx.get(f"{server.url}/healthz")
    assert (health.status_code, health.json()["status"]) == (200, "ok")
    lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    assert any(
        line.startswith('voiceseq_requests_total{route="/v1/audio/transcriptions",status="200"}') for line in lines
    )
    for line in lines:
        assert line.startswith("# ") or float(line.rpartition(" ")[2]) >= 0
    rows = [json.loads(line) for line in server.log.getvalue().splitlines()]
    assert {"serving", "request", "transcribed"} <= {row["event"] for row in rows}
    assert "one two" not in server.log.getvalue()  # what was said is nobody's business


def test_stopping_finishes_what_is_inside(pcm, quiet_clip):
    samples, rate = pcm
    with serving(catalogue(FAKE, SLOW, words=("computer",)), Limits(stop_s=60.0, late_s=300.0)) as server:
        replies = []
        thread = threading.Thread(target=lambda: replies.append(upload(server, quiet_clip, SLOW)))
        thread.start()
        listener = connect(f"{server.ws}/v1/listen")
        listener.send(json.dumps({"rate": rate}))
        assert json.loads(listener.recv(60))["type"] == "ready"
        listener.send(samples.tobytes())
        wait_until(lambda: inside(server, "files"))
        server.ask_to_stop()
        told, code = rest_of(listener)
        assert ([one["type"] for one in told], code) == (["detection", "done"], 1012)
        thread.join(120)
        assert replies[0].status_code == 200
        server.stop()
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", server.port))
    assert not server.service.folder.exists()
