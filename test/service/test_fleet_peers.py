# SPDX-License-Identifier: Apache-2.0
"""Hosts of a fleet that lie, stall or end, and clients that leave in the middle."""

from __future__ import annotations

import json
import ssl
import threading
from typing import Any, Callable

import httpx
import pytest

from conftest import Service, refused
from fleet import Fleet, Liar, Silent, read_head
from stand_in import pause
from test_fleet import LIAR, box, entry, far, fleet, lie, near, owner  # noqa: F401

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
Lie = Callable[..., Liar]


def saying(*parts: bytes) -> Callable[[ssl.SSLSocket], None]:
    def serve(s: ssl.SSLSocket) -> None:
        read_head(s)
        for part in parts:
            s.sendall(part)

    return serve


@pytest.fixture
def path(fleet: Fleet) -> str:  # noqa: F811
    """A sandbox of the host that lies."""
    return f"/v1/sandboxes/{fleet.make_id(LIAR)}"


@pytest.mark.parametrize(
    "said, why",
    [
        (b"", "closed the connection without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "closed the connection without an answer"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "is not HTTP/1"),
        (b"\x00" * 1000, "is not HTTP/1"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 101 + b"\r\n", "more than 100 header fields"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"a" * 70000, "has a head of more than 64 KiB"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "has an invalid Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "has an invalid Content-Length"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "Transfer-Encoding other than chunked"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", "changes the protocol unasked"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 3000, "has more than 64 KiB of heads before it"),
        (b"HTTP/1.1 999 What\r\n\r\n", "has a malformed head"),
    ],
)
def test_garbage_is_told_from_an_answer(
    entry: Service, near: httpx.Client, lie: Lie, path: str, said: bytes, why: str  # noqa: F811
) -> None:
    lie(saying(said))
    sentence = refused(near.get(path), 502, "host_failed")
    assert "host h19" in sentence and why in sentence
    entry.until_idle()


@pytest.mark.parametrize(
    "said",
    [
        OK + b"Content-Length: 100\r\n\r\nnot all",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\nxyz\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\n",
    ],
)
@pytest.mark.parametrize("http2", [False, True])
def test_answer_that_breaks_off_is_not_taken_for_whole(
    entry: Service, lie: Lie, path: str, said: bytes, http2: bool  # noqa: F811
) -> None:
    lie(saying(said))
    with entry.client(http2=http2) as http, pytest.raises(httpx.TransportError):
        http.get(path)
    entry.until_idle()


@pytest.mark.parametrize("http2", [False, True])
def test_answer_arrives_up_to_where_it_breaks_off(entry: Service, lie: Lie, path: str, http2: bool) -> None:  # noqa: F811
    lie(saying(OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\n1\r\n"))
    arrived: list[bytes] = []
    with entry.client(http2=http2) as http, http.stream("GET", path) as answer:
        with pytest.raises(httpx.TransportError):
            arrived.extend(answer.iter_bytes())
    assert b"".join(arrived) == b"begun"


def test_answer_may_come_byte_by_byte(near: httpx.Client, lie: Lie, path: str) -> None:  # noqa: F811
    answer = b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    lie(saying(*(bytes([byte]) for byte in answer)))
    assert near.get(path).text == "{}"


def test_client_that_leaves_ends_the_connection_to_a_silent_host(
    entry: Service, lie: Lie, path: str  # noqa: F811
) -> None:
    silent = Silent()
    lie(silent)
    silent.ends_with(
        entry, f"POST {path}/exec HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{{}}".encode()
    )


def test_endless_answer_waits_for_its_reader(entry: Service, lie: Lie, path: str) -> None:  # noqa: F811
    sent = [0]

    def serve(s: ssl.SSLSocket) -> None:
        read_head(s)
        s.sendall(OK + b"Content-Length: 1000000000000\r\n\r\n")
        while True:
            sent[0] += s.send(b"x" * 65536)

    lie(serve)
    before = entry.rss()
    with entry.connect(slow=True) as s:
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert s.recv(100)
        entry.until_same(lambda: sent[0])
        assert entry.rss() - before < 32 << 20
    entry.until_idle()


def test_upload_waits_for_a_host_that_reads_nothing(entry: Service, lie: Lie, path: str) -> None:  # noqa: F811
    hold = threading.Event()

    def serve(s: ssl.SSLSocket) -> None:
        read_head(s)
        hold.wait(60)

    lie(serve)
    before, sent = entry.rss(), 0
    with entry.connect() as s:
        s.sendall(f"PUT {path}/files?path=/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: {1 << 40}\r\n\r\n".encode())
        s.settimeout(2)
        with pytest.raises(TimeoutError):
            while sent < 256 << 20:
                sent += s.send(b"x" * 65536)
        assert entry.rss() - before < 32 << 20
    entry.until_idle()
    hold.set()


# --- connections that serve several requests ---


def test_connection_serves_the_next_request(
    near: httpx.Client, owner: Service, box: str  # noqa: F811
) -> None:
    def connections() -> float:
        return owner.metrics()["ramet_http_connections_total"]

    before, own = connections(), connections()
    own -= before  # the client of the metrics makes one each time
    before += own
    for _ in range(20):
        assert near.get(box).status_code == 200
        assert near.patch(box, json={"metadata": {}}).status_code == 200
    assert connections() - before - own <= 2


@pytest.mark.parametrize("method, status", [("GET", 200), ("HEAD", 200), ("DELETE", 502), ("PATCH", 502)])
def test_idle_connection_that_turns_out_to_be_closed(
    near: httpx.Client, lie: Lie, path: str, method: str, status: int  # noqa: F811
) -> None:
    """What may change something is not sent again: it may have been carried out."""
    served: list[list[bytes]] = []

    def serve(s: ssl.SSLSocket) -> None:
        served.append([])
        served[-1].append(read_head(s))
        s.sendall(OK + b"Content-Length: 0\r\n\r\n")
        if len(served) == 1:
            served[-1].append(read_head(s))

    lie(serve)
    assert near.get(path).status_code == 200
    answer = near.request(method, path)
    assert answer.status_code == status, answer.text
    assert [len(one) for one in served] == ([2, 1] if status == 200 else [2])


@pytest.mark.parametrize(
    "said",
    [
        OK + b"Content-Length: 2\r\nConnection: close\r\n\r\n{}",
        OK + b"Content-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        OK + b"\r\n{}",
    ],
)
def test_connection_whose_state_is_not_clear_is_not_used_again(
    near: httpx.Client, lie: Lie, path: str, said: bytes  # noqa: F811
) -> None:
    heads: list[bytes] = []

    def serve(s: ssl.SSLSocket) -> None:
        heads.append(read_head(s))
        s.sendall(said)
        if b"\r\n\r\n{}" in said and b"Content-Length" not in said:
            return
        while s.recv(65536):
            heads.append(b"another request")

    lie(serve)
    for _ in range(3):
        assert near.get(path).text == "{}"
    assert len(heads) == 3 and b"another request" not in heads


# --- both hosts are good, and somebody leaves ---


@pytest.mark.parametrize("http2", [False, True])
def test_client_that_leaves_a_stream_leaves_nothing(
    entry: Service, owner: Service, box: str, http2: bool  # noqa: F811
) -> None:
    with entry.client(http2=http2) as http:
        with http.stream("POST", f"{box}/exec", json={"code": "out begun\nwait", "hangup": True}) as answer:
            lines = answer.iter_lines()  # kept: httpx disconnects when it is dropped
            assert json.loads(next(lines))["data"] == "begun"
            owner.until_waiting(1)
    owner.until_waiting(0)  # `hangup` has interrupted the call
    entry.until_idle()
    owner.until_idle()


def test_streams_come_as_they_are_made(
    near: httpx.Client, owner: Service, box: str  # noqa: F811
) -> None:
    with near.stream("POST", f"{box}/exec", json={"code": "out one\nwait\nout two"}) as answer:
        lines = answer.iter_lines()
        assert json.loads(next(lines))["data"] == "one"
        owner.go()
        rest = [json.loads(line) for line in lines if line]
    assert [one["type"] for one in rest] == ["stdout", "exit"] and rest[0]["data"] == "two"


def test_streams_are_whole(near: httpx.Client, far: httpx.Client, box: str) -> None:  # noqa: F811
    def output(client: httpx.Client) -> list[Any]:
        answer = client.post(f"{box}/exec", json={"code": "lines 500 2000"})
        assert answer.status_code == 200, answer.text
        return [json.loads(line)["data"] for line in answer.text.splitlines() if line]

    direct = output(far)
    assert len(direct) == 501
    for _ in range(20):
        assert output(near) == direct


def test_owner_that_dies_in_a_stream_cuts_it_off(fleet: Fleet, entry: Service) -> None:  # noqa: F811
    owner = fleet.start(30)
    fleet.write()
    with owner.client() as http:
        path = "/v1/sandboxes/" + str(http.post("/v1/sandboxes", json={}).json()["id"])
    with entry.client() as http:
        answer = http.get(path)
        while answer.status_code == 404:  # the table is read soon
            pause()
            answer = http.get(path)
        with http.stream("POST", f"{path}/exec", json={"code": "out begun\nwait"}) as stream:
            lines = stream.iter_lines()
            next(lines)
            owner.kill()
            with pytest.raises(httpx.TransportError):
                list(lines)
        refused(http.get(path), 503, "host_unreachable")
    entry.until_idle()


def test_entry_that_dies_leaves_nothing_on_the_owner(fleet: Fleet, owner: Service, box: str) -> None:  # noqa: F811
    dying = fleet.start(31)
    fleet.write()
    with dying.client() as http:
        answer: Any = None
        while answer is None or answer.status_code == 503:  # until the owner's table has it
            pause()
            answer = http.get(box)
        with http.stream("POST", f"{box}/exec", json={"code": "out begun\nwait"}) as stream:
            lines = stream.iter_lines()
            next(lines)
            dying.kill()
    owner.until_idle()
    owner.go()
