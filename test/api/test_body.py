# SPDX-License-Identifier: Apache-2.0
"""Bodies that are too large to be parsed on the loop."""

from __future__ import annotations

import contextlib
import json
from typing import Callable

import httpx

from conftest import Server

LARGE = 8 << 20


def test_large_bodies_are_served(http: httpx.Client, sandbox: str) -> None:
    code = "len\n" + "#" * LARGE
    events = http.post(sandbox + "/exec", json={"code": code}).text.splitlines()
    assert json.loads(events[0])["data"] == str(len(code))
    bad = http.post(sandbox + "/exec", content=json.dumps({"code": code}).encode()[:-1])
    assert bad.status_code == 400 and "ends too early" in bad.json()["error"]
    padded = http.post("/v1/sandboxes", content=b'{"vcpus": 1}' + b" " * LARGE)
    assert padded.status_code == 201


def test_clients_may_leave_while_their_body_is_parsed(start: Callable[..., Server]) -> None:
    server = start("read_here_bytes=0")
    body = b'{"template": "died"}' + b" " * LARGE
    head = b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    for _ in range(20):
        with server.connect() as s:
            s.sendall(head % len(body) + body)
    with server.client() as http:
        assert http.post("/v1/sandboxes", json={"vcpus": 1}).status_code == 201


def test_service_stops_while_a_body_is_parsed(start: Callable[..., Server]) -> None:
    server = start("stop_timeout_s=0")
    with server.connect() as s:
        body = b"{}" + b" " * LARGE
        head = b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        s.sendall(head % len(body) + body)
        server.stop()
    assert server.process.returncode == 0, server.log


def test_large_bodies_of_running_calls_leave_room_for_short_ones(
    start: Callable[..., Server],
) -> None:
    server = start(f"bodies_bytes={LARGE * 3 // 2}")
    large = {"code": "out x\nhang\n" + "#" * LARGE}
    with server.client() as http, contextlib.ExitStack() as stack:
        path = "/v1/sandboxes/" + http.post("/v1/sandboxes").json()["id"]
        stack.enter_context(http.stream("POST", path + "/exec", json=large))
        busy = http.post(path + "/exec", json=large)
        assert (busy.status_code, busy.json()["code"]) == (503, "busy")
        assert busy.headers["retry-after"] == "1"
        stack.enter_context(http.stream("POST", path + "/exec", json={"code": "out x\nhang"}))
        stack.close()
        server.wait(lambda f: f["ramet_http_requests_live"] == 1)
        http.post(path + "/interrupt")
        assert http.post(path + "/exec", json={"code": "#" * LARGE}).status_code == 200
