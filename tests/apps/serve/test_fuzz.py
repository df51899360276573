"""Whatever comes, the server answers properly and stays up for the others."""

import contextlib
import json
import socket

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

FEW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(autouse=True)
def still_up(server):
    yield
    assert httpx.get(f"{server.url}/healthz", timeout=60).json()["status"] == "ok"
    assert "Exception in ASGI" not in server.log.getvalue()


MESSAGES = st.one_of(
    st.binary(max_size=5000),
    st.text(max_size=200),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["type", "rate", "format", "models", "model", "channels", "thresholds", "scores", "x"]),
                inner,
            )
        ),
        max_leaves=10,
    ).map(json.dumps),
    st.just(json.dumps({"rate": 16_000, "models": ["computer"]})),
    st.just(json.dumps({"type": "finish"})),
)


@FEW
@given(path=st.sampled_from(["listen", "transcribe"]), messages=st.lists(MESSAGES, max_size=6))
def test_random_messages_on_a_websocket(server, path, messages):
    with connect(f"{server.ws}/v1/{path}") as client:
        try:
            for message in messages:
                client.send(message)
            client.send(json.dumps({"type": "finish"}))
            for _ in client:
                pass
        except ConnectionClosed:
            pass
    assert client.protocol.close_code in (1000, 1003, 1007, 1008)


@FEW
@given(st.binary(min_size=1, max_size=300))
def test_random_bytes_inside_a_websocket(server, data):
    """Frames that are none, after a good handshake."""
    client = connect(f"{server.ws}/v1/listen")
    with contextlib.suppress(OSError):  # it may have hung up first
        client.socket.sendall(data)
        client.socket.shutdown(socket.SHUT_RDWR)


WYOMING = json.dumps({"type": "detect", "data": {"names": ["computer"]}}).encode() + b"\n"
CHUNK = {"type": "audio-chunk", "data": {"rate": 16_000, "width": 2, "channels": 1}, "payload_length": 320}


@FEW
@given(
    cut=st.integers(0, 600),
    change=st.lists(st.tuples(st.integers(0, 599), st.integers(0, 255)), max_size=3),
    tail=st.binary(max_size=50),
)
def test_truncated_and_flipped_wyoming_traffic(server, cut, change, tail):
    data = bytearray(WYOMING + json.dumps(CHUNK).encode() + b"\n" + bytes(320))
    for place, value in change:
        data[place % len(data)] = value
    with socket.create_connection(("127.0.0.1", server.wyoming_port), 30) as client:
        client.sendall(bytes(data[:cut]) + tail)
    # gone, in the middle of whatever it was


@FEW
@given(st.binary(max_size=400))
def test_random_bytes_over_http(server, data):
    with socket.create_connection(("127.0.0.1", server.port), 30) as client:
        client.sendall(b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: localhost\r\n" + data)


def test_many_connections_at_once(server):
    sockets = [socket.create_connection(("127.0.0.1", port), 30) for port in (server.port, server.wyoming_port) * 150]
    assert httpx.get(f"{server.url}/healthz", timeout=60).status_code == 200
    for one in sockets:
        one.close()


def test_the_api_is_as_it_describes_itself(server):
    """schemathesis makes up requests from the description, good and bad, and checks every answer against it."""
    schemathesis = pytest.importorskip("schemathesis")
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    tried = set()
    for operation in schema.get_all_operations():
        operation = operation.ok()

        @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(case=operation.as_strategy())
        def ask(case):
            case.call_and_validate(timeout=60)

        ask()
        tried.add(operation.path)
    asked = {"/v1/models", "/v1/models/{name}", "/v1/audio/transcriptions", "/v1/inspect", "/v1/text"}
    assert tried == {"/healthz", "/metrics", *asked}
