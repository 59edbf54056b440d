# SPDX-License-Identifier: Apache-2.0
"""Diff: what the core is asked to do, and how names that are not UTF-8 are returned."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
from typing import Any, Callable

import httpx
import pytest
from conftest import Server

from test_routes import made, refused


def test_diff_returns_exact_names(http: httpx.Client, sandbox: str) -> None:
    other = made(http)[-36:]
    answer = http.post(f"{sandbox}/diff/{other}", json={"paths": ["/srv", "/tmp/é", "/a..b/.../..c"]})
    assert answer.status_code == 200
    assert answer.json() == {
        "added": ["/a..b/.../..c", "/srv", "/tmp/é"],
        "removed": [],
        "modified": ["/a\ufffd", "/b\n\ufffd"],
        "modified_b64": [base64.b64encode(b"/a\xff").decode(), None],
    }
    for body in ({}, {"paths": None}, None):
        defaults = http.post(f"{sandbox}/diff/{other}", json=body).json()
        assert defaults["added"] == ["/root", "/tmp"]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        ([], "paths must have 1 to 64 strings, not 0"),
        (["/x"] * 65, "paths must have at most 64 strings"),
        (["/x", "tmp"], 'each path must be absolute, "tmp" is not'),
        ([""], 'each path must be absolute, "" is not'),
        (["/x", "/a/../b"], 'each path must be without .., "/a/../b" is not'),
        (["/.."], 'each path must be without .., "/.." is not'),
        (["/" * 4097], "each path must be at most 4096 bytes long, not 4097"),
        ("/tmp", "paths must be an array of strings, not a string"),
        (["/tmp", 1], "paths must be an array of strings; one item is a number"),
    ],
)
def test_invalid_paths_are_refused(http: httpx.Client, sandbox: str, paths: Any, names: str) -> None:
    answer = http.post(f"{sandbox}/diff/{sandbox[-36:]}", json={"paths": paths})
    assert names in refused(answer, 400, "bad_request")


def test_nul_in_a_path_is_refused(http: httpx.Client, sandbox: str) -> None:
    body = json.dumps({"paths": ["/a\0b"]})
    answer = http.post(f"{sandbox}/diff/{sandbox[-36:]}", content=body)
    assert "NUL" in refused(answer, 400, "bad_request")


MANY = {"paths": ["/many"]}


def test_many_paths_are_sorted_away_from_the_loop(http: httpx.Client, sandbox: str) -> None:
    # The fake server aborts if its loop sorts them.
    answer = http.post(f"{sandbox}/diff/{sandbox[-36:]}", json=MANY)
    assert answer.status_code == 200
    assert answer.json()["removed"] == [f"/{n:0999}" for n in range(5000)]
    assert answer.json()["modified"] == ["/a\ufffd", "/b\n\ufffd"]


def test_clients_may_leave_while_a_diff_is_written(start: Callable[..., Server]) -> None:
    server = start()
    with server.client() as http:
        box = "/v1/sandboxes/" + http.post("/v1/sandboxes").json()["id"]
        head = f"POST {box}/diff/{box[-36:]} HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
        body = json.dumps(MANY)
        for _ in range(20):
            with server.connect() as s:
                s.sendall(f"{head}{len(body)}\r\n\r\n{body}".encode())
        server.wait(lambda f: f["ramet_http_requests_live"] == 1)
        assert http.post(f"{box}/diff/{box[-36:]}", json=MANY).status_code == 200


def test_diffs_find_the_room_taken_that_there_was_at_their_start(
    start: Callable[..., Server],
) -> None:
    server = start("answers_bytes=10000000")
    with server.client() as http, contextlib.ExitStack() as stack:
        box = "/v1/sandboxes/" + http.post("/v1/sandboxes").json()["id"]
        head = f"POST {box}/diff/{box[-36:]} HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
        body = json.dumps(MANY)
        request = f"{head}{len(body)}\r\n\r\n{body}".encode()
        held = [stack.enter_context(server.connect()) for _ in range(8)]
        for s in held:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        for s in held:
            s.sendall(request)
        statuses = sorted(s.recv(12).decode()[-3:] for s in held)
        assert set(statuses) == {"200", "503"} and statuses.count("200") <= 2
