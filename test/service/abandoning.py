# SPDX-License-Identifier: Apache-2.0
"""Clients that leave before the answer, for the tests of abandoned requests."""

from __future__ import annotations

import re
import socket
import struct
import time
from typing import Callable, Iterator

import h2.config
import h2.connection
import httpx
import pytest

from conftest import Service

WAYS = ("fin", "rst", "half", "h2 reset", "h2 close")
PARTS = 5  # points in time before the request is complete
POINTS = 20


class Raw:
    """A client with one connection, which leaves in one of the WAYS."""

    def __init__(self, service: Service, way: str) -> None:
        self.way = way
        port = int(service.base.rpartition(":")[2])
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        config = h2.config.H2Configuration(client_side=True)
        self.h2 = h2.connection.H2Connection(config) if way.startswith("h2") else None

    def request(self, method: str, target: str, body: bytes, key: str) -> bytes:
        """Returns the bytes of a request."""
        if self.h2 is None:
            head = f"{method} {target} HTTP/1.1\r\nhost: localhost\r\n"
            head += f"idempotency-key: {key}\r\n" if key else ""
            return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
        self.h2.initiate_connection()
        headers = [(":method", method), (":path", target), (":scheme", "http")]
        headers += [(":authority", "localhost")] + ([("idempotency-key", key)] if key else [])
        self.h2.send_headers(1, headers)
        self.h2.send_data(1, body, end_stream=True)
        return self.h2.data_to_send()

    def leave(self, sent: bool) -> None:
        if self.way == "h2 reset" and self.h2 is not None and sent:
            self.h2.reset_stream(1)
            self.socket.sendall(self.h2.data_to_send())
            return
        if self.way == "half":
            self.socket.shutdown(socket.SHUT_WR)
            return
        if self.way == "rst":
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class Host:
    """A service with an agent, and what exists in it."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.http = httpx.Client(base_url=service.base, timeout=120, trust_env=False)
        self.sandbox = self.make()

    def make(self) -> str:
        made = self.http.post("/v1/sandboxes", json={})
        assert made.status_code == 201, made.text
        return "/v1/sandboxes/" + str(made.json()["id"])

    def freeze(self) -> str:
        frozen = self.http.post(self.make() + "/freeze")
        assert frozen.status_code == 200, frozen.text
        return "/v1/spaces/" + str(frozen.json()["space_id"])

    def metrics(self) -> dict[str, float]:
        lines = self.http.get("/metrics").text.splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and line[0] != "#")
        return {name: float(value) for name, value in pairs}

    def until(self, holds: Callable[[], bool]) -> None:
        """Polls, since the service reports no event for it; the test's time limit ends it."""
        give_up = time.monotonic() + 120
        while not holds():
            assert time.monotonic() < give_up, "the condition did not hold within 120 s"
            time.sleep(0.002)  # short, so that requests are repeated while the first goes on

    def is_idle(self) -> bool:
        """Returns whether no operation is in flight: what one made is listed until its undoing."""
        found = self.metrics()
        return found["ramet_operations"] + found["ramet_listeners"] == 0

    def connections(self) -> float:
        return self.metrics()["ramet_http_connections_total"]

    def wait_closed(self, before: float) -> None:
        """Waits until a connection that was made since was accepted and closed again."""

        def quiet() -> bool:
            found = self.metrics()
            left = [found["ramet_http_connections"], found["ramet_http_requests_live"]]
            # Only those of this request are left.
            return found["ramet_http_connections_total"] > before and left == [1, 1]

        self.until(quiet)

    def answered(self, route: str) -> int:
        """Returns how many requests of the route were answered with 2xx."""
        name = rf'ramet_http_requests_total{{method="\w+",route="{re.escape(route)}",status="2xx"}}'
        return int(sum(value for found, value in self.metrics().items() if re.fullmatch(name, found)))

    def ids(self, path: str) -> set[str]:
        return {str(one["id"]) for one in self.http.get(path).json()}

    def drop(self, path: str, ids: set[str]) -> None:
        for one in ids:
            assert self.http.delete(f"{path}/{one}").status_code == 204


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    service = Service(tmp_path_factory.mktemp("abandoned"))
    host = Host(service)
    yield host
    host.http.close()
    service.stop()


def spread(seconds: float) -> list[tuple[float, float]]:
    """Returns POINTS points in time: the part of the request that is sent, and the seconds after
    that, which cover the time that the request takes.
    """
    parts = [((i + 1) / (PARTS + 1), 0.0) for i in range(PARTS)]
    rest = POINTS - PARTS
    return parts + [(1.0, i * 1.2 * seconds / (rest - 1)) for i in range(rest)]


def abandon(
    host: Host, way: str, request: tuple[str, str, bytes], key: str, point: tuple[float, float]
) -> None:
    """Sends a part of the request, and leaves after some time."""
    before = host.connections()
    client = Raw(host.service, way)
    data = client.request(*request, key)
    part, after = point
    client.socket.sendall(data[: int(part * len(data))])
    time.sleep(after)
    client.leave(part == 1)
    if way == "half":
        while client.socket.recv(65536):
            pass
    client.socket.close()
    host.wait_closed(before)


def leave_while_it_sleeps(host: Host, way: str, request: tuple[str, str, bytes], key: str) -> None:
    """Sends a request and leaves before the service can read any of it."""
    before = host.connections()
    client = Raw(host.service, way)
    host.service.sleep()
    client.socket.sendall(client.request(*request, key))
    client.leave(True)
    host.service.wake()
    if way == "half":
        assert b" 499 " in client.socket.recv(20)
    client.socket.close()
    host.wait_closed(before)


def frozen_as(host: Host, metadata: dict[str, str]) -> str:
    made = host.http.post("/v1/sandboxes", json={"metadata": metadata}).json()["id"]
    return str(host.http.post(f"/v1/sandboxes/{made}/freeze").json()["space_id"])
