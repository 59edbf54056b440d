# SPDX-License-Identifier: Apache-2.0
"""Bodies that are too large to be parsed on the loop."""

from __future__ import annotations

import contextlib
import json
from typing import Callable

import pytest

from conftest import Service, made, refused

LARGE = 3 << 20


@pytest.mark.parametrize("http2", [False, True])
def test_large_bodies_are_served(service: Service, sandbox: str, http2: bool) -> None:
    code = f"print(len('{'#' * LARGE}'))"
    with service.client(http2=http2) as http:
        events = http.post(sandbox + "/exec", json={"code": code}).text.splitlines()
        assert json.loads(events[0])["data"] == str(LARGE)
        bad = http.post(sandbox + "/exec", content=json.dumps({"code": code}).encode()[:-1])
        assert "ends too early" in refused(bad, 400, "bad_request")
        padded = http.post("/v1/sandboxes", content=b'{"vcpus": 1}' + b" " * LARGE)
        assert padded.status_code == 201
        http.delete("/v1/sandboxes/" + padded.json()["id"])


def test_clients_may_leave_while_their_body_is_parsed(start: Callable[..., Service]) -> None:
    server = start("read_here_bytes=0")
    body = b'{"template": "died"}' + b" " * LARGE
    head = b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    for _ in range(20):
        with server.connect() as s:
            s.sendall(head % len(body) + body)
    with server.client() as http:
        assert http.post("/v1/sandboxes", json={"vcpus": 1}).status_code == 201


def test_service_stops_while_a_body_is_parsed(start: Callable[..., Service]) -> None:
    server = start("stop_timeout_s=0")
    with server.connect() as s:
        body = b"{}" + b" " * LARGE
        head = b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        s.sendall(head % len(body) + body)
        server.stop()


def test_large_bodies_of_running_calls_leave_room_for_short_ones(
    start: Callable[..., Service],
) -> None:
    server = start(f"bodies_bytes={LARGE * 3 // 2}")
    large = {"code": "out x\nwait\n" + "#" * LARGE}
    with server.client() as http, contextlib.ExitStack() as stack:
        path = made(http)
        first = stack.enter_context(http.stream("POST", path + "/exec", json=large))
        busy = http.post(path + "/exec", json=large)
        refused(busy, 503, "busy")
        assert busy.headers["retry-after"] == "1"
        short = {"code": "out x\nwait"}
        stack.enter_context(http.stream("POST", path + "/exec", json=short))
        assert first.status_code == 200
        stack.close()
        server.until_idle()
        server.go()
        server.go()
        assert http.post(path + "/exec", json={"code": "#" * LARGE}).status_code == 200
