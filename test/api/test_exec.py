# SPDX-License-Identifier: Apache-2.0
"""Streams: events, back-pressure, clients that leave, large requests, orderly stop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from typing import Any, Callable

import httpx
import pytest

from conftest import Server, until_closed


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.split("\n") if line]


def run(http: httpx.Client, sandbox: str, code: str) -> list[dict[str, Any]]:
    answer = http.post(sandbox + "/exec", json={"code": code})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return events(answer.text)


def request_bytes(path: str, body: bytes = b"", method: bytes = b"POST") -> bytes:
    head = b"%s %s HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
    return head % (method, path.encode(), len(body)) + body


def exec_bytes(sandbox: str, code: str) -> bytes:
    return request_bytes(sandbox + "/exec", json.dumps({"code": code}).encode())


def test_events_are_in_order(http: httpx.Client, sandbox: str) -> None:
    got = run(http, sandbox, "out one\nerr two\nraw ff0a\npart three\nexit 7")
    assert got == [
        {"type": "stdout", "data": "one", "seq": 1, "ts": 1700000000001},
        {"type": "stderr", "data": "two", "seq": 2, "ts": 1700000000002},
        {"type": "stdout", "data": "\ufffd\n", "data_b64": "/wo=", "seq": 3, "ts": 1700000000003},
        {"type": "stdout", "data": "three", "partial": True, "seq": 4, "ts": 1700000000004},
        {"type": "exit", "data": 7, "seq": 5, "ts": 1700000000005},
    ]
    assert run(http, sandbox, "")[0]["seq"] == 6
    assert [e["seq"] for e in events(http.get(sandbox + "/replay").text)] == [1, 2, 3, 4, 5, 6]


def test_line_separators_are_escaped(http: httpx.Client, sandbox: str) -> None:
    answer = http.post(sandbox + "/exec", json={"code": "out a\u0085b\u2028c\u2029d\x0be\rf"})
    assert len(answer.text.splitlines()) == 2
    assert events(answer.text)[0]["data"] == "a\u0085b\u2028c\u2029d\x0be\rf"


def test_output_arrives_while_the_call_runs(http: httpx.Client, sandbox: str) -> None:
    with http.stream("POST", sandbox + "/exec", json={"code": "out first\nhang"}) as answer:
        lines = answer.iter_lines()
        assert json.loads(next(lines))["data"] == "first"
        assert http.post(sandbox + "/interrupt").status_code == 204
        assert json.loads(next(lines))["data"] == 130


def test_failure_before_output_sets_the_status(http: httpx.Client, sandbox: str) -> None:
    answer = http.post(sandbox + "/exec", json={"code": "fail"})
    assert answer.status_code == 404
    assert answer.json() == {"error": "the VM died", "code": "vm_died"}


def test_failure_after_output_is_a_line_and_cuts_the_stream(http: httpx.Client, sandbox: str) -> None:
    lines = []
    with http.stream("POST", sandbox + "/exec", json={"code": "out x\nfail"}) as answer:
        with pytest.raises(httpx.RemoteProtocolError):
            for line in answer.iter_lines():
                lines.append(json.loads(line))
    assert [line["type"] for line in lines] == ["stdout", "error"]
    assert lines[1] == {
        "type": "error",
        "data": "the VM died",
        "code": "vm_died",
        "seq": lines[0]["seq"] + 1,
        "ts": lines[0]["ts"] + 1,
    }


@pytest.mark.parametrize("http2", [False, True])
def test_silent_stream_gets_empty_lines(start: Callable[..., Server], http2: bool) -> None:
    with start("silence_ms=200").client(http2=http2) as http:
        path = "/v1/sandboxes/" + http.post("/v1/sandboxes").json()["id"]
        for code in ("hang", "out x\nhang"):
            with http.stream("POST", path + "/exec", json={"code": code}) as answer:
                got = b""
                for chunk in answer.iter_raw():
                    got += chunk
                    if got.endswith(b"\n\n\n\n") or got == b"\n\n\n":
                        break
                assert got.strip() == b"" or got.count(b'"x"') == 1
            http.post(path + "/interrupt")


@pytest.mark.parametrize("version", ["h1", "h2"])
def test_stalled_reader_is_disconnected(start: Callable[..., Server], version: str) -> None:
    server = start("write_ms=300")
    with server.client() as http:
        path = "/v1/sandboxes/" + http.post("/v1/sandboxes").json()["id"]
    stalled = stalled_h1 if version == "h1" else stalled_h2
    drain = stalled(server, path)
    server.wait(lambda f: f["ramet_http_stalled_cut_total"] >= 1)
    server.wait(lambda f: f["ramet_vm_deaths_total"] == 1)
    server.wait(lambda f: f["ramet_http_connections"] == 1)
    del drain


def test_long_answers_are_refused_while_readers_are_slow(start: Callable[..., Server]) -> None:
    server = start("answers_bytes=10000000")
    with server.slow_client() as http:
        path = "/v1/sandboxes/" + http.post("/v1/sandboxes").json()["id"]
        run(http, path, "flood 1000 12000")
        with http.stream("GET", path + "/replay"):
            busy = http.get(path + "/replay")
            assert (busy.status_code, busy.json()["code"]) == (503, "busy")
            assert busy.headers["retry-after"] == "1"
            for tail in (path, "/v1/sandboxes"):
                assert http.get(tail).status_code == 200
        server.wait(lambda f: f["ramet_http_requests_live"] == 1)
        assert len(events(http.get(path + "/replay").text)) == 1000


def test_long_events_for_slow_readers_are_bounded(start: Callable[..., Server]) -> None:
    server = start("answers_bytes=3000000")
    with server.slow_client() as http, contextlib.ExitStack() as stack:
        path = "/v1/sandboxes/" + http.post("/v1/sandboxes").json()["id"]
        code = {"code": "flood 20 1000000"}
        calls = [http.stream("POST", path + "/exec", json=code) for _ in range(6)]
        streams = [stack.enter_context(call) for call in calls]
        server.wait(lambda f: f["ramet_http_stalled_cut_total"] >= 1)
        cut = 0
        for stream in streams:
            try:
                stream.read()
            except httpx.RemoteProtocolError:
                cut += 1
        assert 1 <= cut < 6
        # The calls went on.
        assert events(http.get(path + "/replay").text)[-1]["data"] == 0


def test_requests_over_the_limit_are_refused(start: Callable[..., Server]) -> None:
    server = start("requests=8")
    with server.client() as http, contextlib.ExitStack() as stack:
        path = "/v1/sandboxes/" + http.post("/v1/sandboxes").json()["id"]
        hanging = [stack.enter_context(server.connect()) for _ in range(8)]
        for s in hanging:
            s.sendall(exec_bytes(path, "out x\nhang"))
        server.wait(lambda f: f["ramet_blank_vms_ready"] == 8)
        busy = http.get(path)
        assert (busy.status_code, busy.json()["code"]) == (503, "busy")
        assert busy.headers["retry-after"] == "1"
        assert http.get("/v1/healthz").status_code == 200
        hanging[0].close()
        server.wait(lambda f: f["ramet_http_requests_live"] == 8)
        assert http.get(path).status_code == 200


def test_over_the_limit_a_connection_with_many_requests_is_closed(start: Callable[..., Server]) -> None:
    server = start("requests=8")
    path = "/v1/sandboxes/" + httpx.post(server.base + "/v1/sandboxes").json()["id"]

    async def many() -> list[Any]:
        async with server.async_client(http2=True) as http:
            calls = (http.post(path + "/exec", json={"code": "hang"}) for _ in range(12))
            return list(await asyncio.gather(*calls, return_exceptions=True))

    assert all(isinstance(result, httpx.HTTPError) for result in asyncio.run(many()))
    server.wait(lambda f: f["ramet_http_requests_live"] == 1)


def test_request_that_never_ends_is_cut(start: Callable[..., Server]) -> None:
    server = start("read_ms=300")
    for begun in (b"", b"GET /v1/hea", b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\n{"):
        assert server.raw(begun) == b""
    # HTTP/2: an idle connection gets a GOAWAY and is closed.
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"
    assert server.raw(preface)


def test_ten_megabytes_of_code_are_accepted(http: httpx.Client, sandbox: str) -> None:
    code = "len\n" + "é" * 5_000_000
    assert run(http, sandbox, code)[0]["data"] == str(len(code.encode()))


def test_large_output_is_complete(http: httpx.Client, server: Server, sandbox: str) -> None:
    got = run(http, sandbox, "flood 3000 1000")
    assert len(got) == 3001
    assert sum(len(e["data"]) for e in got[:-1]) == 3_000_000
    assert [e["seq"] for e in got] == list(range(1, 3002))


# Begins a call and returns a function that reads its output and keeps the connection open. The next
# function does the same over HTTP/2.
def stalled_h1(server: Server, sandbox: str) -> Callable[[], int]:
    s = server.connect()
    s.sendall(exec_bytes(sandbox, "flood 60000 1000"))
    s.recv(1)

    def drain() -> int:
        total = 1
        while b"0\r\n\r\n" not in (data := s.recv(1 << 20)):
            total += len(data)
        s.close()
        return total

    return drain


def stalled_h2(server: Server, sandbox: str) -> Callable[[], int]:
    http = server.client(http2=True)
    stream = http.stream("POST", sandbox + "/exec", json={"code": "flood 60000 1000"})
    answer = stream.__enter__()

    def drain() -> int:
        total = sum(len(chunk) for chunk in answer.iter_raw())
        stream.__exit__(None, None, None)
        http.close()
        return total

    return drain


@pytest.mark.parametrize("stall", [stalled_h1, stalled_h2])
def test_stalled_reader_costs_little_memory(
    server: Server, stall: Callable[[Server, str], Callable[[], int]]
) -> None:
    with server.client() as http:
        path = "/v1/sandboxes/" + http.post("/v1/sandboxes").json()["id"]
    before = server.rss()
    drain = stall(server, path)
    # The fake core counts pauses as hits and resumes as misses: the call now waits for its reader.
    paused = server.wait(lambda f: f["ramet_pool_hits_total"] > f["ramet_pool_misses_total"])
    assert paused["ramet_http_requests_live"] >= 1
    assert server.rss() - before < 16 << 20
    assert drain() > 60_000_000


@pytest.mark.parametrize("when", ["create", "hang", "output", "flood"])
@pytest.mark.parametrize("version", ["h1", "h2"])
def test_client_that_leaves_is_noticed(server: Server, when: str, version: str) -> None:
    code = {"hang": "hang", "output": "out x\nhang", "flood": "flood 60000 1000"}.get(when, "")
    with server.client() as http:
        path = "/v1/sandboxes/" + http.post("/v1/sandboxes").json()["id"]
    target, body = path + "/exec", {"code": code}
    if when == "create":
        target, body = "/v1/sandboxes", {"template": "held"}
    if version == "h1":
        s = server.connect()
        s.sendall(request_bytes(target, json.dumps(body).encode()))
        server.wait(lambda f: f["ramet_blank_vms_ready"] == 1)
        s.close()
    else:
        client = server.client(http2=True)
        leaver = threading.Thread(target=expect_break, args=(client, target, body))
        leaver.start()
        server.wait(lambda f: f["ramet_blank_vms_ready"] == 1)
        h2_socket(client).shutdown(socket.SHUT_RDWR)
        leaver.join()
    server.wait(lambda f: f["ramet_vm_deaths_total"] == 1)
    # Only the request for the metrics is left.
    server.wait(lambda f: f["ramet_http_requests_live"] == 1)


def h2_socket(client: httpx.Client) -> socket.socket:
    connection = client._transport._pool.connections[0]  # type: ignore[attr-defined]
    sock = connection._connection._network_stream.get_extra_info("socket")
    assert isinstance(sock, socket.socket)
    return sock


def expect_break(client: httpx.Client, path: str, body: dict[str, Any]) -> None:
    with pytest.raises(httpx.TransportError):
        client.post(path, json=body)


@pytest.mark.parametrize("hangup", [True, False])
@pytest.mark.parametrize("version", ["h1", "h2"])
def test_client_that_leaves_hangs_up(server: Server, version: str, hangup: bool) -> None:
    with server.client() as http:
        path = "/v1/sandboxes/" + http.post("/v1/sandboxes").json()["id"]
    body = {"code": "out x\nhang", "hangup": hangup}
    with server.client(http2=version == "h2") as client:
        with client.stream("POST", path + "/exec", json=body) as answer:
            next(answer.iter_raw())
    found = server.wait(lambda f: f["ramet_vm_deaths_total"] == 1)
    # The fake core counts hangups as merges.
    assert found["ramet_merges_total"] == (1 if hangup else 0)


def test_reader_that_is_disconnected_has_not_hung_up(start: Callable[..., Server]) -> None:
    server = start("write_ms=300")
    with server.client() as http:
        path = "/v1/sandboxes/" + http.post("/v1/sandboxes").json()["id"]
    with server.connect() as stalled:
        body = json.dumps({"code": "flood 60000 1000", "hangup": True}).encode()
        stalled.sendall(request_bytes(path + "/exec", body))
        stalled.recv(1)
        found = server.wait(lambda f: f["ramet_vm_deaths_total"] == 1)
        assert (found["ramet_http_stalled_cut_total"], found["ramet_merges_total"]) == (1, 0)


def test_call_continues_when_its_client_leaves(server: Server) -> None:
    with server.client() as http:
        path = "/v1/sandboxes/" + http.post("/v1/sandboxes").json()["id"]
        s = server.connect()
        s.sendall(exec_bytes(path, "out before\nhang\nout after"))
        assert b"before" in s.recv(4096)
        s.close()
        server.wait(lambda f: f["ramet_vm_deaths_total"] == 1)
        http.post(path + "/interrupt")
        kept = events(http.get(path + "/replay").text)
        assert [e["data"] for e in kept] == ["before", 130]


def test_replay_since_and_follow(server: Server) -> None:
    with server.client() as http, server.client() as other:
        path = "/v1/sandboxes/" + http.post("/v1/sandboxes").json()["id"]
        http.post(path + "/exec", json={"code": "out one\nout two"})
        assert [e["seq"] for e in events(http.get(path + "/replay?since=2").text)] == [3]
        # No call runs: the answer ends with the existing events.
        again = events(http.get(path + "/replay?since=1&follow=true").text)
        assert [e["data"] for e in again] == ["two", 0]
        with other.stream("POST", path + "/exec", json={"code": "out on\nhang\nout x"}) as call:
            lines = call.iter_lines()
            next(lines)
            with http.stream("GET", path + "/replay?since=3&follow=1") as follow:
                live = (x for x in follow.iter_lines() if x)
                assert json.loads(next(live))["data"] == "on"
                with server.client() as third:
                    third.post(path + "/interrupt")
                assert [json.loads(x)["data"] for x in live] == [130]


@pytest.mark.parametrize("query", ["since=-1", "since=x", "follow=perhaps", "since=1&since=2"])
def test_replay_with_an_invalid_query_is_refused(http: httpx.Client, sandbox: str, query: str) -> None:
    answer = http.get(f"{sandbox}/replay?{query}")
    assert answer.status_code == 400
    assert query.split("=")[0] in answer.json()["error"]


def test_follow_of_an_unknown_sandbox_is_not_found(http: httpx.Client) -> None:
    answer = http.get(f"/v1/sandboxes/sbx_{'0' * 32}/replay?follow=true")
    assert answer.status_code == 404


def test_delete_ends_a_running_call(http: httpx.Client, sandbox: str) -> None:
    with http.stream("POST", sandbox + "/exec", json={"code": "out x\nhang"}) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert http.delete(sandbox).status_code == 204
        assert json.loads(next(lines))["code"] == "not_found"
        with pytest.raises(httpx.RemoteProtocolError):
            next(lines)


@pytest.mark.parametrize("http2", [False, True])
def test_many_concurrent_streams_are_served(server: Server, http2: bool) -> None:
    # Only httpx's asynchronous client can share an HTTP/2 connection between calls.
    async def all_of_them() -> list[int]:
        async with server.async_client(http2=http2) as http:
            answer = await http.post("/v1/sandboxes", json={})
            path = f"/v1/sandboxes/{answer.json()['id']}/exec"

            async def one() -> int:
                answer = await http.post(path, json={"code": "flood 50 2000"})
                return len(events(answer.text))

            return list(await asyncio.gather(*(one() for _ in range(30))))

    assert asyncio.run(all_of_them()) == [51] * 30


# --- limits ---


def test_body_over_the_limit_is_refused(start: Callable[..., Server]) -> None:
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


def test_stream_with_a_body_far_over_the_limit_is_reset(start: Callable[..., Server]) -> None:
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
    server: Server, request_text: bytes
) -> None:
    assert server.raw(request_text).startswith(b"HTTP/1.1 400 ")
    with server.client() as http:
        assert http.get("/v1/healthz").text == "ok"


def test_expect_header_is_handled(server: Server) -> None:
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


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    one = b"GET /v1/healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    last = b"GET /nothing HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    answer = server.raw(one * 20 + last)
    assert answer.count(b"HTTP/1.1 200 OK") == 20
    assert answer.rfind(b"HTTP/1.1 404") > answer.rfind(b"HTTP/1.1 200 OK")


def test_http10_connection_is_closed_after_the_answer(server: Server) -> None:
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


def test_client_that_resets_many_streams_is_disconnected(server: Server) -> None:
    import h2.config
    import h2.connection
    import h2.exceptions

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
    assert server.metrics()["ramet_creates_total"] < 1000


def test_connections_wait_without_descriptors(start: Callable[..., Server]) -> None:
    server = start("nofile=30")
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


def test_port_in_use_is_reported(server: Server) -> None:
    with pytest.raises(AssertionError, match=rf"port {server.port} of 127.0.0.1 is in use"):
        Server(f"listen_port={server.port}")


def test_public_address_needs_consent(start: Callable[..., Server]) -> None:
    with pytest.raises(AssertionError, match="allow_open"):
        Server("listen_host=0.0.0.0")
    with start("listen_host=0.0.0.0", "allow_open=yes").client() as http:
        assert http.get("/v1/healthz").text == "ok"


def test_invalid_certificate_is_reported(start: Callable[..., Server]) -> None:
    with pytest.raises(AssertionError, match="tls_cert /nonexistent"):
        Server("tls_cert=/nonexistent", "tls_key=/nonexistent")


def test_stop_waits_for_running_calls(start: Callable[..., Server]) -> None:
    server = start("stop_timeout_s=60")
    with server.client() as http, server.client() as other:
        path = "/v1/sandboxes/" + http.post("/v1/sandboxes").json()["id"]
        other.get("/v1/healthz")
        # More than the sockets hold: the call cannot end before its output is read.
        code = {"code": "flood 40000 1000"}
        with http.stream("POST", path + "/exec", json=code) as answer:
            lines = answer.iter_lines()
            next(lines)
            stopper = threading.Thread(target=server.stop)
            stopper.start()
            # An existing connection gets an error, a new one is not accepted.
            while (late := other.get("/v1/sandboxes")).status_code != 503:
                pass
            assert late.json()["code"] == "stopping" and "retry-after" in late.headers
            with pytest.raises(httpx.ConnectError):
                httpx.get(server.base, trust_env=False)
            rest = list(lines)
        assert len(rest) == 40000 and json.loads(rest[-1])["type"] == "exit"
        stopper.join()


def test_idle_connections_make_room_for_requests(start: Callable[..., Server]) -> None:
    server = start("connections=8")
    with server.client() as http:
        path = "/v1/sandboxes/" + http.post("/v1/sandboxes").json()["id"]
    busy = server.connect()
    busy.sendall(exec_bytes(path, "out x\nhang"))
    assert b'"x"' in busy.recv(65536)
    idle = [server.connect() for _ in range(40)]
    for s in idle[::2]:
        s.sendall(b"GET /v1/healthz HTTP/1.1\r\n")
    # Idle connections are closed for it: otherwise it would wait for the read timeout of 2 minutes.
    asks = server.connect()
    asks.settimeout(10)
    asks.sendall(b"GET /v1/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert asks.recv(65536).startswith(b"HTTP/1.1 200")
    assert until_closed(idle[0]) == b""
    # The call continues, and when all connections are busy, the next waits until one is done.
    more = [server.connect() for _ in range(7)]
    for s in more:
        s.sendall(exec_bytes(path, "out x\nhang"))
    for s in more:
        assert b'"x"' in s.recv(65536)
    waits = server.connect()
    waits.sendall(b"GET /v1/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    more[0].close()
    assert waits.recv(65536).startswith(b"HTTP/1.1 200")
    busy.close()
    for s in more:
        s.close()


def test_stop_has_a_time_limit(start: Callable[..., Server]) -> None:
    server = start("stop_timeout_s=1")
    with server.client() as http:
        path = "/v1/sandboxes/" + http.post("/v1/sandboxes").json()["id"]
    stalled = [stalled_h1(server, path), stalled_h2(server, path)]
    silent = [server.connect() for _ in range(3)]
    for s, code in zip(silent, ("out x\nhang", "hang", "")):
        s.sendall(exec_bytes(path, code) if code else b"GET /v1/healthz HTTP/1.1\r\n")
    assert b'"x"' in silent[0].recv(4096)
    server.wait(lambda f: f["ramet_blank_vms_ready"] == 4)
    server.stop()
    assert server.process.returncode == 0
    assert b"0\r\n\r\n" not in until_closed(silent[0])
    assert b'"code":"stopping"' in until_closed(silent[1])
    assert len(stalled) == 2
