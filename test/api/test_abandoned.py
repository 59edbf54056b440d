# SPDX-License-Identifier: Apache-2.0
"""Clients that leave before the answer, on every route that changes something.

The core learns of it at once, and undoes what only that client would have known of:
test/guest_api/test_abandoned.py shows that nothing is left then.
"""

from __future__ import annotations

import json
import re
import socket
import struct
from typing import Any, Callable, Iterator

import h2.config
import h2.connection
import pytest

from conftest import Server, until_closed

METHODS = ("put", "post", "patch", "delete", "options")
WAYS = ("fin", "rst", "half", "h2 reset", "h2 close")

# Bodies of the routes that need one.
BODIES: dict[str, Any] = {
    "exec": {"code": "hang"},
    "fork": {"n": 2},
    "commit": {"size": 1},
    "pty": {"argv": ["true"]},
    "input": {"data_b64": ""},
    "resize": {"cols": 80, "rows": 24},
    "processes": {"argv": ["true"]},
    "signal": {"signal": "CONT"},
}
QUERY = "?path=/tmp/x&to=/tmp/y&mode=700&offset=0"

# Routes that are done as soon as the request is read, and change nothing that cannot be found
# again: sharing a port once more answers the same.
AT_ONCE = {("post", "/v1/sandboxes/{id}/ports/{port}"), ("delete", "/v1/sandboxes/{id}/ports/{port}")}

# Gives the other half of a merge and a diff another id.
IDS = {"upload": "upl", "pty": "pty", "process": "prc", "context": "ctx", "space": "spc"}


@pytest.fixture(scope="module")
def holding() -> Iterator[Server]:
    """A server whose calls all wait for their clients' end, which its timer never looks for."""
    server = Server("tick_ms=100000000")
    with server.client() as http:
        for template in ("default", "hold-all"):
            assert http.post("/v1/sandboxes", json={"template": template}).status_code == 201
    yield server
    server.stop()
    assert server.process.returncode == 0, server.log


def changing(server: Server) -> list[tuple[str, str]]:
    """Returns method and path of each route that may change something and has a call."""
    with server.client() as http:
        paths = http.get("/v1/openapi.json").json()["paths"]
    routes = [(method, path) for path, item in paths.items() for method in METHODS if method in item]
    return [route for route in routes if route not in AT_ONCE]


def target_of(path: str) -> str:
    """Returns the path with ids: the first sandbox exists, all else does not."""
    path = path.replace("{port}", "80").replace("{path}", "x")
    path = path.replace("{id}", "sbx_" + f"{1:032x}")
    ids = lambda found: f"{IDS.get(found[1], 'sbx')}_" + f"{2:032x}"  # noqa: E731
    return re.sub(r"{(\w+)}", ids, path) + QUERY


def body_of(path: str) -> bytes:
    if path.endswith(("/files", "/archive", "{upload}", "/stdin")):
        return b"data"
    return json.dumps(BODIES.get(path.rpartition("/")[2], {})).encode()


def h2_request(s: socket.socket, method: str, target: str, body: bytes) -> Any:
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    connection.initiate_connection()
    headers = [(":method", method.upper()), (":path", target), (":scheme", "http")]
    connection.send_headers(1, [*headers, (":authority", "localhost")])
    connection.send_data(1, body, end_stream=True)
    s.sendall(connection.data_to_send())
    return connection


def h1_request(method: str, target: str, body: bytes) -> bytes:
    head = f"{method.upper()} {target} HTTP/1.1\r\nhost: localhost\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def leave_after_request(
    server: Server, way: str, method: str, path: str, ready: Callable[[], None]
) -> None:
    target, body = target_of(path), body_of(path)
    s = server.connect()
    if way.startswith("h2"):
        connection = h2_request(s, method, target, body)
    else:
        s.sendall(h1_request(method, target, body))
    ready()
    if way == "h2 reset":
        connection.reset_stream(1)
        s.sendall(connection.data_to_send())
    elif way == "half":
        s.shutdown(socket.SHUT_WR)
        assert b" 499 " in until_closed(s)[:20]
    else:
        if way == "rst":
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()
        return
    # The connection stays open until the server has noticed the end of the request.
    server.wait(lambda f: f["ramet_http_requests_live"] == 1)
    s.close()


@pytest.mark.parametrize("way", WAYS)
def test_core_learns_at_once_that_the_client_left(holding: Server, way: str) -> None:
    routes = changing(holding)
    assert len(routes) > 30
    for method, path in routes:
        before = holding.metrics()
        calls, left = before["ramet_blank_vms_ready"], before["ramet_vm_deaths_total"]

        def begun() -> None:
            holding.wait(lambda f: f["ramet_blank_vms_ready"] == calls + 1)

        leave_after_request(holding, way, method, path, begun)
        holding.wait(lambda f: f["ramet_vm_deaths_total"] == left + 1)
        # Only the request for the metrics is left.
        holding.wait(lambda f: f["ramet_http_requests_live"] == 1)


@pytest.mark.parametrize("way", ["fin", "rst", "half"])
def test_client_that_left_before_its_request_was_read_changes_nothing(
    start: Callable[..., Server], way: str
) -> None:
    server = start("tick_ms=100000000")
    for _ in range(20):
        with server.connect() as s:
            s.sendall(h1_request("POST", "/v1/sandboxes", b'{"template":"held"}'))
            if way == "rst":
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif way == "half":
                s.shutdown(socket.SHUT_WR)
                assert b" 201 " not in until_closed(s)
    with server.client() as http:
        server.wait(lambda f: f["ramet_blank_vms_ready"] == 0)
        assert http.post("/v1/sandboxes", json={"template": "release"}).status_code == 201
        assert len(http.get("/v1/sandboxes").json()) == 1
