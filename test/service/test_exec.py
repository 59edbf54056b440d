# SPDX-License-Identifier: Apache-2.0
"""Streams: events, back-pressure, clients that leave, large requests, orderly stop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import socket
import threading
from typing import Any, Callable

import httpx
import pytest

from conftest import NOBODY, Service, made, refused, until_closed
from stand_in import pause


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.split("\n") if line]


def run(client: httpx.Client, box: str, code: str) -> list[dict[str, Any]]:
    answer = client.post(box + "/exec", json={"code": code})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return events(answer.text)


def request_bytes(path: str, body: bytes = b"", method: bytes = b"POST") -> bytes:
    head = b"%s %s HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
    return head % (method, path.encode(), len(body)) + body


def exec_bytes(box: str, code: str) -> bytes:
    return request_bytes(box + "/exec", json.dumps({"code": code}).encode())


BOTH = pytest.mark.parametrize("http2", [False, True])


def test_events_are_in_order(client: httpx.Client, box: str) -> None:
    got = run(client, box, "out one\nerr two\nraw three\nexit 7")
    times = [event.pop("ts") for event in got]
    assert got == [
        {"type": "stdout", "data": "one", "seq": 1},
        {"type": "stderr", "data": "two", "seq": 2},
        {"type": "stdout", "data": "three", "seq": 3},
        {"type": "exit", "data": 7, "seq": 4},
    ]
    assert times == sorted(times) and times[0] > 1700000000000
    assert run(client, box, "")[0]["seq"] == 5
    assert [e["seq"] for e in events(client.get(box + "/replay").text)] == [1, 2, 3, 4, 5]


def test_line_over_the_limit_is_sent_in_parts(client: httpx.Client, box: str) -> None:
    *parts, end = run(client, box, "big 34000000\nraw y")
    assert "".join(part["data"] for part in parts) == "x" * 34000000 + "y" and end["data"] == 0
    assert [part.get("partial") for part in parts] == [True, True, None]


def test_bytes_that_are_not_text_are_exact(http: httpx.Client, sandbox: str) -> None:
    shown = run(http, sandbox, "import os\nos.write(1, bytes([255, 10]))\nos.write(1, b'ok')")
    assert [(e["data"], e.get("data_b64")) for e in shown] == [("\ufffd", "/w=="), ("ok", None), (0, None)]


def test_ten_megabytes_of_code_are_accepted(http: httpx.Client, sandbox: str) -> None:
    code = "print(len('" + "\u00e9" * 5_000_000 + "'))"
    assert [e["data"] for e in run(http, sandbox, code)] == ["5000000", 0]


def test_line_separators_are_escaped(client: httpx.Client, box: str) -> None:
    answer = client.post(box + "/exec", json={"code": "out a\u0085b\u2028c\u2029d\x0be\rf"})
    assert len(answer.text.splitlines()) == 2
    assert events(answer.text)[0]["data"] == "a\u0085b\u2028c\u2029d\x0be\rf"


@BOTH
def test_output_arrives_while_the_call_runs(server: Service, box: str, http2: bool) -> None:
    with server.client(http2=http2) as http:
        with http.stream("POST", box + "/exec", json={"code": "out first\nwait"}) as answer:
            lines = answer.iter_lines()
            assert json.loads(next(lines))["data"] == "first"
            server.go()
            assert json.loads(next(lines))["data"] == 0


def test_failure_before_output_sets_the_status(client: httpx.Client, box: str) -> None:
    answer = client.post(box + "/exec", json={"code": "die"})
    assert "the VM" in refused(answer, 404, "vm_died")


@BOTH
def test_failure_after_output_is_a_line_and_cuts_the_stream(server: Service, box: str, http2: bool) -> None:
    lines = []
    with server.client(http2=http2) as http:
        with http.stream("POST", box + "/exec", json={"code": "out x\nwait\ndie"}) as answer:
            with pytest.raises(httpx.RemoteProtocolError):
                for line in answer.iter_lines():
                    lines.append(json.loads(line))
                    if len(lines) == 1:
                        server.go()
    assert [line["type"] for line in lines] == ["stdout", "error"]
    assert set(lines[1]) == {"type", "data", "code", "seq", "ts"}
    assert (lines[1]["code"], lines[1]["seq"]) == ("vm_died", lines[0]["seq"] + 1)


@BOTH
def test_silent_stream_gets_empty_lines(start: Callable[..., Service], http2: bool) -> None:
    server = start("silence_ms=200")
    with server.client(http2=http2) as http:
        path = made(http)
        for code in ("wait", "out x\nwait"):
            with http.stream("POST", path + "/exec", json={"code": code}) as answer:
                got = b""
                for chunk in answer.iter_raw():
                    got += chunk
                    if got.endswith(b"\n\n\n\n") or got == b"\n\n\n":
                        break
                assert got.strip() == b"" or got.count(b'"x"') == 1
            server.go()


@BOTH
def test_stalled_reader_is_disconnected(start: Callable[..., Service], http2: bool) -> None:
    server = start("write_ms=300")
    with server.client() as http:
        path = made(http)
    drain = stalled(server, path, http2)
    server.wait(lambda f: f["ramet_http_stalled_cut_total"] >= 1)
    server.wait(lambda f: f["ramet_http_connections"] == 1)
    del drain


def test_long_answers_are_refused_while_readers_are_slow(start: Callable[..., Service]) -> None:
    server = start("answers_bytes=4000000")
    with server.slow_client() as http:
        path = made(http)
        run(http, path, "lines 700 12000")
        with http.stream("GET", path + "/replay"):
            busy = http.get(path + "/replay")
            refused(busy, 503, "busy")
            assert busy.headers["retry-after"] == "1"
            for tail in (path, "/v1/sandboxes"):
                assert http.get(tail).status_code == 200
        server.until_idle()
        assert len(events(http.get(path + "/replay").text)) == 701


def test_long_events_for_slow_readers_are_bounded(start: Callable[..., Service]) -> None:
    server = start("answers_bytes=3000000")
    with server.slow_client() as http, contextlib.ExitStack() as stack:
        paths = [made(http) for _ in range(6)]
        code = {"code": "lines 20 1000000"}
        calls = [http.stream("POST", path + "/exec", json=code) for path in paths]
        streams = [stack.enter_context(call) for call in calls]
        server.wait(lambda f: f["ramet_http_stalled_cut_total"] >= 1)
        cut = 0
        for stream in streams:
            try:
                stream.read()
            except httpx.RemoteProtocolError:
                cut += 1
        assert 1 <= cut < 6
        for path in paths:  # the calls went on
            while http.get(path).json()["state"] != "ready":
                pause()
            assert events(http.get(path + "/replay").text)[-1]["data"] == 0


def test_requests_over_the_limit_are_refused(start: Callable[..., Service]) -> None:
    server = start("requests=8")
    with server.client() as http, contextlib.ExitStack() as stack:
        path = made(http)
        hanging = [stack.enter_context(server.connect()) for _ in range(8)]
        for s in hanging:
            s.sendall(exec_bytes(path, "out x\nwait"))
        server.wait(lambda f: f["ramet_http_requests_live"] == 9)
        busy = http.get(path)
        refused(busy, 503, "busy")
        assert busy.headers["retry-after"] == "1"
        assert http.get("/v1/healthz").status_code == 200
        hanging[0].close()
        server.wait(lambda f: f["ramet_http_requests_live"] == 8)
        assert http.get(path).status_code == 200


def test_over_the_limit_a_connection_with_many_requests_is_closed(start: Callable[..., Service]) -> None:
    server = start("requests=8")
    with server.client() as http:
        path = made(http)

    async def many() -> list[Any]:
        async with server.async_client(http2=True) as http:
            calls = (http.post(path + "/exec", json={"code": "wait"}) for _ in range(12))
            return list(await asyncio.gather(*calls, return_exceptions=True))

    assert all(isinstance(result, httpx.HTTPError) for result in asyncio.run(many()))
    server.until_idle()


def test_request_that_never_ends_is_cut(start: Callable[..., Service]) -> None:
    server = start("read_ms=300")
    for begun in (b"", b"GET /v1/hea", b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\n{"):
        assert server.raw(begun) == b""
    # HTTP/2: an idle connection gets a GOAWAY and is closed.
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"
    assert server.raw(preface)


@BOTH
def test_large_output_is_complete(server: Service, box: str, http2: bool) -> None:
    with server.client(http2=http2) as http:
        got = run(http, box, "lines 3000 1000")
    assert len(got) == 3001
    assert sum(len(e["data"]) for e in got[:-1]) == 3_000_000
    assert [e["seq"] for e in got] == list(range(1, 3002))


LONG = {"code": "lines 40000 1000"}


def stalled(server: Service, sandbox: str, http2: bool) -> Callable[[], int]:
    """Begins a call; returns a function that reads its output. Until then nobody reads it."""
    http = server.client(http2=True) if http2 else server.slow_client()
    stream = http.stream("POST", sandbox + "/exec", json=LONG)
    answer = stream.__enter__()

    def drain() -> int:
        total = sum(len(chunk) for chunk in answer.iter_raw())
        stream.__exit__(None, None, None)
        http.close()
        return total

    return drain


@BOTH
def test_stalled_reader_costs_little_memory(server: Service, client: httpx.Client, box: str, http2: bool) -> None:
    before = server.rss()
    drain = stalled(server, box, http2)
    server.until_same(lambda: events(client.get(box + "/replay").text)[-1]["seq"])
    assert server.metrics()["ramet_http_requests_live"] >= 2
    # Half of it is in the fake VM, which keeps what it sent, and in the events for a replay.
    assert server.rss() - before < 24 << 20
    assert drain() > 40_000_000


@pytest.mark.parametrize("when", ["create", "silent", "output", "flood"])
@BOTH
def test_client_that_leaves_is_noticed(
    server: Service, client: httpx.Client, box: str, when: str, http2: bool
) -> None:
    code = {"silent": "wait", "output": "out x\nwait", "flood": LONG["code"]}.get(when, "")
    target, body = box + "/exec", {"code": code}
    if when == "create":
        target, body = "/v1/sandboxes", {}
        server.tell("fault seed_wait 1")

    def until_begun() -> None:
        if when == "flood":
            server.wait(lambda f: f["ramet_http_requests_live"] == 2)
        else:
            server.until_waiting(1)

    if not http2:
        s = server.connect()
        s.sendall(request_bytes(target, json.dumps(body).encode()))
        until_begun()
        s.close()
    else:
        leaver_client = server.client(http2=True)
        leaver = threading.Thread(target=expect_break, args=(leaver_client, target, body))
        leaver.start()
        until_begun()
        h2_socket(leaver_client).shutdown(socket.SHUT_RDWR)
        leaver.join()
    server.until_idle()
    if when in ("silent", "output"):
        server.go()
    if when == "create":
        assert [one["id"] for one in client.get("/v1/sandboxes").json()] == [box[-36:]]
    else:
        while client.get(box).json()["state"] != "ready":
            pause()
        assert events(client.get(box + "/replay").text)[-1]["data"] == 0  # the call went on


def h2_socket(client: httpx.Client) -> socket.socket:
    connection = client._transport._pool.connections[0]  # type: ignore[attr-defined]
    sock = connection._connection._network_stream.get_extra_info("socket")
    assert isinstance(sock, socket.socket)
    return sock


def expect_break(client: httpx.Client, path: str, body: dict[str, Any]) -> None:
    with pytest.raises(httpx.TransportError):
        client.post(path, json=body)


@pytest.mark.parametrize("hangup", [True, False])
@BOTH
def test_client_that_leaves_hangs_up(
    server: Service, client: httpx.Client, box: str, http2: bool, hangup: bool
) -> None:
    body = {"code": "out x\nwait\nout y", "hangup": hangup}
    with server.client(http2=http2) as leaver:
        with leaver.stream("POST", box + "/exec", json=body) as answer:
            next(answer.iter_raw())
    server.until_idle()
    if hangup:
        server.until_waiting(0)  # it was interrupted, which ends the wait
    else:
        server.go()
    kept = events(client.get(box + "/replay?follow=1").text)
    assert [e["data"] for e in kept] == ["x", "y", 0]


def test_reader_that_is_disconnected_has_not_hung_up(start: Callable[..., Service]) -> None:
    server = start("write_ms=300")
    with server.client() as http, server.connect() as stalled:
        path = made(http)
        body = json.dumps({**LONG, "hangup": True}).encode()
        stalled.sendall(request_bytes(path + "/exec", body))
        stalled.recv(1)
        server.wait(lambda f: f["ramet_http_stalled_cut_total"] == 1)
        kept = events(http.get(path + "/replay?follow=1").text)
        assert kept[-1]["data"] == 0


@BOTH
def test_replay_since_and_follow(server: Service, box: str, http2: bool) -> None:
    with server.client(http2=http2) as http, server.client(http2=http2) as other:
        http.post(box + "/exec", json={"code": "out one\nout two"})
        assert [e["seq"] for e in events(http.get(box + "/replay?since=2").text)] == [3]
        # No call runs: the answer ends with the existing events.
        again = events(http.get(box + "/replay?since=1&follow=true").text)
        assert [e["data"] for e in again] == ["two", 0]
        with other.stream("POST", box + "/exec", json={"code": "out on\nwait\nout x"}) as call:
            lines = call.iter_lines()
            next(lines)
            with http.stream("GET", box + "/replay?since=3&follow=1") as follow:
                live = (x for x in follow.iter_lines() if x)
                assert json.loads(next(live))["data"] == "on"
                server.go()
                assert [json.loads(x)["data"] for x in live] == ["x", 0]


@pytest.mark.parametrize("query", ["since=-1", "since=x", "follow=perhaps", "since=1&since=2"])
def test_replay_with_an_invalid_query_is_refused(client: httpx.Client, box: str, query: str) -> None:
    answer = client.get(f"{box}/replay?{query}")
    assert query.split("=")[0] in refused(answer, 400, "bad_request")


def test_follow_of_an_unknown_sandbox_is_not_found(client: httpx.Client) -> None:
    refused(client.get(f"{NOBODY}/replay?follow=true"), 404, "not_found")


def test_delete_ends_a_running_call(client: httpx.Client, box: str) -> None:
    with client.stream("POST", box + "/exec", json={"code": "out x\nwait"}) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert client.delete(box).status_code == 204
        assert json.loads(next(lines))["code"] == "deleted"
        with pytest.raises(httpx.RemoteProtocolError):
            next(lines)


@BOTH
def test_many_concurrent_streams_are_served(server: Service, client: httpx.Client, http2: bool) -> None:
    paths = [made(client) + "/exec" for _ in range(10)]

    # Only httpx's asynchronous client can share an HTTP/2 connection between calls.
    async def all_of_them() -> list[int]:
        async with server.async_client(http2=http2) as http:

            async def one(path: str) -> int:
                return len(events((await http.post(path, json={"code": "lines 50 2000"})).text))

            return list(await asyncio.gather(*(one(path) for path in 3 * paths)))

    assert asyncio.run(all_of_them()) == [51] * 30


# --- limits ---


def test_body_over_the_limit_is_refused(start: Callable[..., Service]) -> None:
    server = start("max_body_bytes=100000")
    for http2 in (False, True):
        with server.client(http2=http2) as http:
            for size in (100_001, 500_000):
                answer = http.post("/v1/sandboxes", content=b" " * size)
                assert answer.status_code == 413
                assert answer.json()["code"] == "body_too_large"
                assert "100000" in answer.json()["error"]
            assert http.post("/v1/sandboxes", content=b" " * 100_000).status_code == 201
    # Far over the limit: refused before it is read.
    answer_bytes = server.raw(
        b"POST /v1/sandboxes HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9000000000\r\n\r\n"
    )
    assert answer_bytes.startswith(b"HTTP/1.1 413 ")
    assert json.loads(answer_bytes.split(b"\r\n\r\n", 1)[1])["code"] == "body_too_large"


def test_stream_with_a_body_far_over_the_limit_is_reset(start: Callable[..., Service]) -> None:
    # Without httpx, which can miss the reset while it waits for room in the window.
    import h2.connection
    import h2.events

    server = start("max_body_bytes=100000")
    connection = h2.connection.H2Connection()
    headers = {":method": "POST", ":path": "/v1/sandboxes", ":scheme": "http", ":authority": "x"}
    resets: list[int] = []
    with server.connect() as s:
        connection.initiate_connection()
        connection.send_headers(1, list(headers.items()))
        while not resets:
            room = connection.local_flow_control_window(1)
            if room:
                connection.send_data(1, bytes(min(room, connection.max_outbound_frame_size)))
            s.sendall(connection.data_to_send())
            if not room:
                data = s.recv(65536)
                assert data, "the connection was closed"
                events = connection.receive_data(data)
                resets = [e.error_code for e in events if isinstance(e, h2.events.StreamReset)]
    assert resets[0] == 7  # REFUSED_STREAM


@pytest.mark.parametrize(
    "request_text",
    [
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /v1/healthz HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\n\r\n",
        b"POST /v1/sandboxes HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/sandboxes HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip\r\n\r\n",
        b"POST /v1/sandboxes HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"h%d: v\r\n" % i for i in range(101)) + b"\r\n",
        b"GET /" + b"x" * 500_000 + b" HTTP/1.1\r\n\r\n",
    ],
    ids=range(9),  # pytest puts the name into the environment, which has no room for these
)
def test_invalid_http_is_refused_and_the_service_continues(
    server: Service, request_text: bytes
) -> None:
    assert server.raw(request_text).startswith(b"HTTP/1.1 400 ")
    with server.client() as http:
        assert http.get("/v1/healthz").text == "ok"


def test_expect_header_is_handled(server: Service) -> None:
    with server.connect() as s:
        s.sendall(
            b"POST /v1/sandboxes HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n"
            b"connection: close\r\ncontent-length: 2\r\n\r\n"
        )
        assert s.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
        s.sendall(b"{}")
        assert until_closed(s).startswith(b"HTTP/1.1 201 ")
    other = b"POST / HTTP/1.1\r\nhost: x\r\nexpect: coffee\r\ncontent-length: 2\r\n\r\n{}"
    assert b'"code":"bad_request"' in server.raw(other)


def test_pipelined_requests_are_answered_in_order(server: Service) -> None:
    one = b"GET /v1/healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    last = b"GET /nothing HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    answer = server.raw(one * 20 + last)
    assert answer.count(b"HTTP/1.1 200 OK") == 20
    assert answer.rfind(b"HTTP/1.1 404") > answer.rfind(b"HTTP/1.1 200 OK")


def test_http10_connection_is_closed_after_the_answer(server: Service) -> None:
    assert server.raw(b"GET /v1/healthz HTTP/1.0\r\n\r\n").endswith(b"\r\n\r\nok")
    with server.client() as http:
        path = "/v1/sandboxes/" + http.post("/v1/sandboxes").json()["id"]
    body = json.dumps({"code": "out x\nexit 0"}).encode()
    answer = server.raw(
        b"POST %s/exec HTTP/1.0\r\ncontent-length: %d\r\n\r\n%s" % (path.encode(), len(body), body)
    )
    assert [e["type"] for e in events(answer.split(b"\r\n\r\n", 1)[1].decode())] == [
        "stdout",
        "exit",
    ]


def test_client_that_resets_many_streams_is_disconnected(start: Callable[..., Service]) -> None:
    import h2.config
    import h2.connection
    import h2.exceptions

    server = start()
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    with server.connect() as s:
        connection.initiate_connection()
        s.sendall(connection.data_to_send())
        headers = [(":method", "POST"), (":path", "/v1/sandboxes"), (":scheme", "http")]
        headers.append((":authority", "localhost"))
        cut = False
        try:
            for _ in range(100_000):
                stream = connection.get_next_available_stream_id()
                connection.send_headers(stream, headers, end_stream=True)
                connection.reset_stream(stream)
                s.sendall(connection.data_to_send())
        except (BrokenPipeError, ConnectionResetError):
            cut = True
        assert cut
    posts = (n for name, n in server.metrics().items() if 'method="POST",route="/v1/sandboxes"' in name)
    assert sum(posts) < 1000


def test_connections_wait_without_descriptors(start: Callable[..., Service]) -> None:
    server = start()
    used = len(os.listdir(f"/proc/{server.pid}/fd"))
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used + 20, used + 20))
    open_ones = [server.connect() for _ in range(40)]
    for s in open_ones:
        s.sendall(b"GET /v1/healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert open_ones[0].recv(4096).startswith(b"HTTP/1.1 200")
    for s in open_ones[:30]:
        s.close()
    # The connections that had to wait are served.
    assert open_ones[-1].recv(4096).startswith(b"HTTP/1.1 200")
    for s in open_ones[30:]:
        s.close()


# --- start and stop ---


def test_port_in_use_is_reported(server: Service, start: Callable[..., Service]) -> None:
    with pytest.raises(AssertionError, match=rf"port {server.port} of 127.0.0.1 is in use"):
        start(f"listen_port={server.port}")


def test_public_address_needs_consent(start: Callable[..., Service]) -> None:
    with pytest.raises(AssertionError, match="allow_open"):
        start("listen_host=0.0.0.0")
    with start("listen_host=0.0.0.0", "allow_open=yes").client() as http:
        assert http.get("/v1/healthz").text == "ok"


def test_invalid_certificate_is_reported(start: Callable[..., Service]) -> None:
    with pytest.raises(AssertionError, match="tls_cert /nonexistent: No such file"):
        start("tls_cert=/nonexistent", "tls_key=/nonexistent")


def test_stop_waits_for_running_calls(start: Callable[..., Service]) -> None:
    server = start("stop_timeout_s=60")
    with server.client() as http, server.client() as other:
        path = "/v1/sandboxes/" + http.post("/v1/sandboxes").json()["id"]
        other.get("/v1/healthz")
        # More than the sockets hold: the call cannot end before its output is read.
        with http.stream("POST", path + "/exec", json=LONG) as answer:
            lines = answer.iter_lines()
            next(lines)
            stopper = threading.Thread(target=server.stop)
            stopper.start()
            # An existing connection gets an error, a new one is not accepted.
            while (late := other.get("/v1/sandboxes")).status_code != 503:
                pause()
            assert late.json()["code"] == "stopping" and "retry-after" in late.headers
            with pytest.raises(httpx.ConnectError):
                httpx.get(server.base, trust_env=False)
            rest = list(lines)
        assert len(rest) == 40000 and json.loads(rest[-1])["type"] == "exit"
        stopper.join()


def test_idle_connections_make_room_for_requests(start: Callable[..., Service]) -> None:
    server = start("connections=8")
    with server.client() as http:
        paths = [made(http) for _ in range(8)]
    busy = server.connect()
    busy.sendall(exec_bytes(paths[0], "out x\nwait"))
    assert b'"x"' in busy.recv(65536)
    idle = [server.connect() for _ in range(40)]
    for s in idle[::2]:
        s.sendall(b"GET /v1/healthz HTTP/1.1\r\n")
    # Idle connections are closed for it: otherwise it would wait for the read timeout of 2 minutes.
    asks = server.connect()
    asks.sendall(b"GET /v1/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert asks.recv(65536).startswith(b"HTTP/1.1 200")
    assert until_closed(idle[0]) == b""
    # The call continues, and when all connections are busy, the next waits until one is done.
    more = [server.connect() for _ in range(7)]
    for s, path in zip(more, paths[1:]):
        s.sendall(exec_bytes(path, "out x\nwait"))
    for s in more:
        assert b'"x"' in s.recv(65536)
    waits = server.connect()
    waits.sendall(b"GET /v1/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    more[0].close()
    assert waits.recv(65536).startswith(b"HTTP/1.1 200")
    busy.close()
    for s in more:
        s.close()


def test_stop_has_a_time_limit(start: Callable[..., Service]) -> None:
    server = start("stop_timeout_s=1")
    with server.client() as http:
        paths = [made(http) for _ in range(5)]
    readers = [stalled(server, paths[0], http2=False), stalled(server, paths[1], http2=True)]
    silent = [server.connect() for _ in range(3)]
    for s, path, code in zip(silent, paths[2:], ("out x\nwait", "wait", "")):
        s.sendall(exec_bytes(path, code) if code else b"GET /v1/healthz HTTP/1.1\r\n")
    assert b'"x"' in silent[0].recv(4096)
    server.until_waiting(2)
    server.stop()
    assert b"0\r\n\r\n" not in until_closed(silent[0])
    assert b'"code":"stopped"' in until_closed(silent[1])
    assert len(readers) == 2
