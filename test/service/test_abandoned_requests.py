# SPDX-License-Identifier: Apache-2.0
"""Clients that leave while their request waits, on every route that changes something.

The service learns of it at once, not when its timer looks, and gives the request up:
test_abandoned_making.py shows that nothing is left then.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any, Callable, Iterator
from urllib.parse import urlencode

import h2.config
import h2.connection
import httpx
import pytest

from conftest import Service, made, until_closed
from routes import QUERY, body_of, routes, with_ids
from test_spaces import frozen

METHODS = ("put", "post", "patch", "delete", "options")
WAYS = ("fin", "rst", "half", "h2 reset", "h2 close")

# Routes that wait for no other process: what they change is seen in the lists
# (test_abandoned_changes.py).
AT_ONCE = {
    ("patch", "/v1/sandboxes/{id}"),
    ("delete", "/v1/sandboxes/{id}"),
    ("post", "/v1/sandboxes/{id}/merge_into/{winner}"),
    ("post", "/v1/sandboxes/{id}/undo"),  # of a sandbox without checkpoints after calls
    ("delete", "/v1/spaces/{space}"),
    ("post", "/v1/sandboxes/{id}/ports/{port}"),
    ("delete", "/v1/sandboxes/{id}/ports/{port}"),
    ("post", "/v1/checkpoints/prune"),
    ("patch", "/v1/checkpoints/{checkpoint}"),
    ("delete", "/v1/checkpoints/{checkpoint}"),
    ("patch", "/v1/trees/{id}"),
    ("delete", "/v1/trees/{id}"),
}

# It needs branches and their base (test_merge_files.py).
ELSEWHERE = {("post", "/v1/sandboxes/{id}/merge-files")}

# Starts in a guest, whose undoing needs the agent's answer.
STARTS = {("post", "/v1/sandboxes/{id}/" + what) for what in ("contexts", "processes", "pty")}

# What makes a request wait; the agent does for the others.
FAULTS = {
    "/v1/sandboxes": "seed_wait",
    "/v1/spaces/{space}/resume": "seed_wait",
    "/v1/spaces/{space}/fork": "seed_wait",
    "/v1/checkpoints/{checkpoint}/fork": "seed_wait",
    "/v1/sandboxes/{id}/rollback": "seed_wait",
    "/v1/sandboxes/{id}/checkpoints": "fork_wait",
    "/v1/sandboxes/{id}/fork": "fork_wait",
    "/v1/sandboxes/{id}/freeze": "fork_wait",
}


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A server whose timer never looks for clients that left."""
    settings = ("max_vms=64", "tick_ms=100000000")
    server = Service(tmp_path_factory.mktemp("server"), *settings, agent=False)
    yield server
    server.stop()


def waiting_routes(http: httpx.Client) -> list[tuple[str, str]]:
    """Returns method and path of each route that may change something and waits for it.

    Changes of keys only wait for the disk, after they are made.
    """
    found = routes(http, *METHODS)
    left_out = AT_ONCE | ELSEWHERE
    assert left_out < set(found)
    return [one for one in found if one not in left_out and not one[1].startswith("/v1/keys")]


def checkpoint_of(http: httpx.Client, sandbox: str) -> str:
    taken: dict[str, str] = http.post(sandbox + "/checkpoints").raise_for_status().json()
    return taken["id"]


def target_of(http: httpx.Client, path: str) -> str:
    """Returns the path with ids: sandboxes, Spaces and checkpoints exist."""
    if "{space}" in path:
        return frozen(http) + path.rpartition("{space}")[2]
    if "{checkpoint}" in path:
        return path.replace("{checkpoint}", checkpoint_of(http, made(http)))
    own = made(http)[-36:] if "{id}" in path else ""
    target = with_ids(path, lambda kind: own if kind == "sbx" else f"{kind}_{1:032x}")
    return f"{target}?{urlencode(QUERY)}"


def bytes_for(http: httpx.Client, path: str, target: str) -> bytes:
    """Returns the body of a request."""
    if path.endswith("/rollback"):
        return json.dumps({"checkpoint": checkpoint_of(http, target[: target.index("/rollback")])}).encode()
    if path.endswith(("/files", "/archive", "/stdin")):
        return b"data"
    return json.dumps(body_of(path) or {}).encode()


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


def reset(s: socket.socket) -> None:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def leave_after_request(
    server: Service, way: str, request: tuple[str, str, bytes], ready: Callable[[], None]
) -> None:
    s = server.connect()
    if way.startswith("h2"):
        connection = h2_request(s, *request)
    else:
        s.sendall(h1_request(*request))
    ready()
    if way == "h2 reset":
        connection.reset_stream(1)
        s.sendall(connection.data_to_send())
        server.until_idle()  # the connection stays open until then
    elif way == "half":
        s.shutdown(socket.SHUT_WR)
        assert b" 499 " in until_closed(s)[:20]
    elif way == "rst":
        reset(s)
    s.close()


@pytest.mark.parametrize("way", WAYS)
def test_service_learns_at_once_that_the_client_left(waiting: Service, way: str) -> None:
    with waiting.client() as http:
        routes = waiting_routes(http)
        assert len(routes) > 30
        for method, path in routes:
            target = target_of(http, path)
            request = (method, target, bytes_for(http, path, target))
            waiting.tell(f"fault {FAULTS.get(path, 'stall')} 1")
            leave_after_request(waiting, way, request, lambda: waiting.until_waiting(1))
            waiting.until_idle()
            # A start goes on, to be undone; for all else nobody waits, though the agent still does.
            if (method, path) not in STARTS:
                waiting.wait(lambda f: f["ramet_operations"] + f["ramet_listeners"] == 0)
            waiting.tell("go")
            waiting.wait(lambda f: f["ramet_operations"] + f["ramet_listeners"] == 0)
            waiting.clear(http)


@pytest.mark.parametrize("way", ["fin", "rst", "half"])
def test_client_that_left_before_its_request_was_read_changes_nothing(
    waiting: Service, way: str
) -> None:
    with waiting.client() as http:
        for _ in range(20):
            s = waiting.connect()
            waiting.sleep()
            s.sendall(h1_request("POST", "/v1/sandboxes", b"{}"))
            if way == "half":
                s.shutdown(socket.SHUT_WR)
            elif way == "rst":
                reset(s)
            else:
                s.close()
            waiting.wake()
            if way == "half":
                assert b" 499 " in until_closed(s)[:20]
            s.close()
        waiting.until_idle()
        assert http.get("/v1/sandboxes").json() == []
