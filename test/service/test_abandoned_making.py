# SPDX-License-Identifier: Apache-2.0
"""Clients that leave before the answer leave nothing behind.

Each route that makes something is abandoned in five ways at twenty points in time. What is left
afterwards is exactly what was answered with 2xx: a client that leaves later than that has an answer
that it could have read.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from abandoning import POINTS, WAYS, Host, Raw, abandon, host, leave_while_it_sleeps, spread

def running(host: Host) -> set[str]:
    listed = host.http.get(host.sandbox + "/processes").json()
    return {str(one["id"]) for one in listed if one["state"] == "running"}


class Making:
    """A route that makes something of which only its client knows."""

    def __init__(self, route: str, body: Any, each: int = 1) -> None:
        self.route = route
        self.body = json.dumps(body).encode()
        self.each = each  # objects that one request makes

    def target(self, host: Host) -> str:
        return self.route.replace("/v1/sandboxes/{id}", host.sandbox)

    def made(self, host: Host) -> set[str]:
        """Returns what exists of the kind that the route makes."""
        if self.route.endswith(("/processes", "/pty")):
            return running(host)
        if self.route.endswith("/contexts"):
            return host.ids(host.sandbox + "/contexts")
        return host.ids("/v1/sandboxes")

    def drop(self, host: Host, ids: set[str]) -> None:
        where = "/v1/sandboxes"
        if self.route.endswith(("/processes", "/pty")):
            where = host.sandbox + "/processes"
        elif self.route.endswith("/contexts"):
            where = host.sandbox + "/contexts"
        host.drop(where, ids)


SLEEP = {"argv": ["sleep", "100000"]}
MAKING = {
    "create": Making("/v1/sandboxes", {}),
    "fork": Making("/v1/sandboxes/{id}/fork", {"n": 2}, 2),
    "context": Making("/v1/sandboxes/{id}/contexts", {"language": "bash"}),
    "process": Making("/v1/sandboxes/{id}/processes", SLEEP | {"detach": True}),
    "stream": Making("/v1/sandboxes/{id}/processes", SLEEP),
    "terminal": Making("/v1/sandboxes/{id}/pty", SLEEP),
}
KEYED = ("create", "fork")
CASES = [(name, "") for name in MAKING] + [(name, "key") for name in KEYED]


def seconds_of(host: Host, one: Making) -> float:
    """Performs the request once, and returns the time until the first byte of its answer."""
    before = one.made(host)
    client = Raw(host.service, "fin")
    began = time.monotonic()
    client.socket.sendall(client.request("POST", one.target(host), one.body, ""))
    assert client.socket.recv(1)
    took = time.monotonic() - began
    client.leave(True)
    host.until(lambda: len(one.made(host)) == len(before) + one.each)
    one.drop(host, one.made(host) - before)
    host.until(lambda: one.made(host) == before)
    return took


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name, key", CASES)
def test_what_was_not_answered_is_undone(host: Host, name: str, way: str, key: str) -> None:
    one = MAKING[name]
    before = one.made(host)
    for i, point in enumerate(spread(seconds_of(host, one))):
        answered = host.answered(one.route)
        own_key = f"{name}-{way}-{i}".replace(" ", "-") if key else ""
        abandon(host, way, ("POST", one.target(host), one.body), own_key, point)
        left = one.each * (host.answered(one.route) - answered)
        assert not left or point[0] == 1
        host.until(lambda: host.is_idle() and len(one.made(host)) == len(before) + left)
        one.drop(host, one.made(host) - before)
        host.until(lambda: one.made(host) == before)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MAKING)
def test_request_whose_client_left_before_it_was_read_leaves_nothing(
    host: Host, name: str, way: str
) -> None:
    one = MAKING[name]
    before = one.made(host)
    for i in range(POINTS):
        key = f"asleep-{name}-{way}-{i}".replace(" ", "-") if name in KEYED and i % 2 else ""
        leave_while_it_sleeps(host, way, ("POST", one.target(host), one.body), key)
        host.until(lambda: host.is_idle() and one.made(host) == before)
