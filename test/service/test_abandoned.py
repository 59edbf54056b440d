# SPDX-License-Identifier: Apache-2.0
"""Clients that leave before the answer leave nothing behind and lose nothing.

Each route that makes something is abandoned in five ways at twenty points in time. What is left
afterwards is exactly what was answered with 2xx: a client that leaves later than that has an answer
that it could have read.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import struct
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any, Awaitable, Callable, Iterator

import h2.config
import h2.connection
import httpx
import pytest

from conftest import Service
from ramet import AsyncClient, Client

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
            time.sleep(0.002)

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


def spread(seconds: float) -> list[tuple[float, float]]:
    """Returns POINTS points in time: the part of the request that is sent, and the seconds after
    that, which cover the time that the request takes.
    """
    parts = [((i + 1) / (PARTS + 1), 0.0) for i in range(PARTS)]
    rest = POINTS - PARTS
    return parts + [(1.0, i * 1.2 * seconds / (rest - 1)) for i in range(rest)]


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


def leave_while_it_sleeps(host: Host, way: str, request: tuple[str, str, bytes], key: str) -> None:
    """Sends a request and leaves before the service can read any of it."""
    before = host.connections()
    client = Raw(host.service, way)
    host.service.server.send_signal(signal.SIGSTOP)
    client.socket.sendall(client.request(*request, key))
    client.leave(True)
    host.service.server.send_signal(signal.SIGCONT)
    if way == "half":
        assert b" 499 " in client.socket.recv(20)
    client.socket.close()
    host.wait_closed(before)


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


# --- Spaces ---------------------------------------------------------------------------------


def frozen_as(host: Host, metadata: dict[str, str]) -> str:
    made = host.http.post("/v1/sandboxes", json={"metadata": metadata}).json()["id"]
    return str(host.http.post(f"/v1/sandboxes/{made}/freeze").json()["space_id"])


@pytest.mark.parametrize("key", ["", "key"])
@pytest.mark.parametrize("way", WAYS)
def test_resume_that_was_not_answered_leaves_the_space(host: Host, way: str, key: str) -> None:
    route = "/v1/spaces/{space}/resume"
    sandboxes, spaces = host.ids("/v1/sandboxes"), host.ids("/v1/spaces")
    space = frozen_as(host, {"way": way})
    described = host.http.get(f"/v1/spaces/{space}").json()
    began = time.monotonic()
    resumed = host.http.post(f"/v1/spaces/{space}/resume").json()["id"]
    took = time.monotonic() - began
    space = str(host.http.post(f"/v1/sandboxes/{resumed}/freeze").json()["space_id"])
    for i, point in enumerate(spread(took)):
        described = host.http.get(f"/v1/spaces/{space}").json()
        answered = host.answered(route)
        own_key = f"resume-{way}-{i}".replace(" ", "-") if key else ""
        abandon(host, way, ("POST", f"/v1/spaces/{space}/resume", b"{}"), own_key, point)
        if host.answered(route) == answered:
            assert host.http.get(f"/v1/spaces/{space}").json() == described
            assert host.ids("/v1/sandboxes") == sandboxes
            continue
        (resumed,) = host.ids("/v1/sandboxes") - sandboxes
        assert host.http.get(f"/v1/sandboxes/{resumed}").json()["metadata"] == {"way": way}
        if key:
            again = host.http.post(
                f"/v1/spaces/{space}/resume", content=b"{}", headers={"idempotency-key": own_key}
            )
            assert (again.status_code, again.json()["id"]) == (201, resumed)
        space = str(host.http.post(f"/v1/sandboxes/{resumed}/freeze").json()["space_id"])
    resumed = host.http.post(f"/v1/spaces/{space}/resume").json()["id"]
    assert host.http.get(f"/v1/sandboxes/{resumed}").json()["metadata"] == {"way": way}
    assert host.http.delete(f"/v1/sandboxes/{resumed}").status_code == 204
    assert (host.ids("/v1/sandboxes"), host.ids("/v1/spaces")) == (sandboxes, spaces)


@pytest.mark.parametrize("way", WAYS)
def test_resume_whose_client_left_before_it_was_read_leaves_the_space(
    host: Host, way: str
) -> None:
    sandboxes = host.ids("/v1/sandboxes")
    space = frozen_as(host, {"way": way})
    described = host.http.get(f"/v1/spaces/{space}").json()
    for i in range(POINTS):
        request = ("POST", f"/v1/spaces/{space}/resume", b"{}")
        leave_while_it_sleeps(host, way, request, f"asleep-resume-{way[-1]}-{i}" if i % 2 else "")
        assert host.http.get(f"/v1/spaces/{space}").json() == described
        assert host.ids("/v1/sandboxes") == sandboxes
    assert host.http.delete(f"/v1/spaces/{space}").status_code == 204


@pytest.mark.parametrize("way", WAYS)
def test_freeze_whose_client_left_happens_and_is_found_by_its_key(host: Host, way: str) -> None:
    for i in range(POINTS):
        part = (i + 1) / PARTS if i < PARTS - 1 else 1
        sandbox = host.make()
        key = f"freeze-{way}-{i}".replace(" ", "-")
        path = f"{sandbox}/freeze"
        abandon(host, way, ("POST", path, b""), key, (part, i * 0.001 if part == 1 else 0))
        again = host.http.post(path, headers={"idempotency-key": key})
        while again.status_code == 409:  # it continues
            again = host.http.post(path, headers={"idempotency-key": key})
        assert again.status_code == 200, again.text
        if part == 1 and not way.startswith("h2 reset"):
            assert again.headers["idempotent-replayed"] == "true"
        space = again.json()["space_id"]
        assert space in host.ids("/v1/spaces")
        assert sandbox.rpartition("/")[2] not in host.ids("/v1/sandboxes")
        assert host.http.delete(f"/v1/spaces/{space}").status_code == 204


# --- files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_file_whose_client_left_leaves_no_part(
    host: Host, way: str, tmp_path: Path
) -> None:
    body = b"x" * 16_000
    for i in range(POINTS):
        part = (i + 1) / POINTS
        target = f"{host.sandbox}/files?path={tmp_path}/file"
        abandon(host, way, ("PUT", target, body), "", (part, 0))

        def clean() -> bool:
            return all(p.name == "file" and p.read_bytes() == body for p in tmp_path.iterdir())

        host.until(clean)


@pytest.mark.parametrize("way", WAYS)
def test_changes_of_a_sandbox_take_place_or_do_not(host: Host, way: str) -> None:
    """A merge, a change and a delete are not undone: what they did is seen in the lists."""
    before = host.ids("/v1/sandboxes")
    for i in range(POINTS):
        parent = host.make()
        child = host.http.post(f"{parent}/fork", json={"n": 1}).json()["children"][0]
        part = (i + 1) / PARTS if i < PARTS - 1 else 1
        point = (part, i * 0.0002 if part == 1 else 0)
        abandon(host, way, ("PATCH", parent, b'{"metadata":{"a":1}}'), "", point)
        info = host.http.get(parent).json()
        assert info["state"] == "ready" and info["metadata"] in ({}, {"a": 1})
        abandon(host, way, ("POST", f"{parent}/merge_into/{child}", b""), "", point)
        assert host.http.get(parent).json()["state"] == "ready"
        merged = host.http.get(f"/v1/sandboxes/{child}")
        assert merged.status_code == 200 or merged.json()["code"] == "merged"
        abandon(host, way, ("DELETE", parent, b""), "", point)
        host.drop("/v1/sandboxes", host.ids("/v1/sandboxes") - before)
    assert host.ids("/v1/sandboxes") == before


# --- the SDK --------------------------------------------------------------------------------

Asking = Callable[[AsyncClient, str], Awaitable[Any]]
ASKING: dict[str, Asking] = {
    "create": lambda client, _: client.create_sandbox(metadata={"sdk": "1"}),
    "fork": lambda client, sandbox: client.fork_sandbox(sandbox, 2),
    "freeze": lambda client, sandbox: client.freeze_sandbox(sandbox),
    "resume": lambda client, space: client.resume_space(space),
}


class Own:
    """What a cancelled request of the SDK is about, and what may be left of it."""

    def __init__(self, host: Host, name: str) -> None:
        self.host, self.name = host, name
        self.before = host.ids("/v1/sandboxes"), host.ids("/v1/spaces")
        self.subject = ""
        if name in ("fork", "freeze"):
            self.subject = host.make().rpartition("/")[2]
        elif name == "resume":
            self.subject = frozen_as(host, {"sdk": "1"})

    def new(self) -> tuple[set[str], set[str]]:
        now = self.host.ids("/v1/sandboxes"), self.host.ids("/v1/spaces")
        return now[0] - self.before[0], now[1] - self.before[1]

    def is_right(self, answered: bool) -> bool:
        """Returns whether exactly what must exist does."""
        sandboxes, spaces = self.new()
        if self.name == "create":
            return len(sandboxes) == answered and not spaces
        if self.name == "fork":
            return len(sandboxes) == 1 + 2 * answered and not spaces
        if self.name == "resume" and answered:
            return len(sandboxes) == 1 and not spaces
        if self.name == "freeze":
            # Joins the freeze that continues, if it was sent.
            again = self.host.http.post(f"/v1/sandboxes/{self.subject}/freeze")
            assert again.status_code == 200 or again.json()["code"] == "frozen"
            sandboxes, spaces = self.new()
        return len(spaces) == 1 and not sandboxes

    def clear(self) -> None:
        sandboxes, spaces = self.new()
        self.host.drop("/v1/sandboxes", sandboxes)
        self.host.drop("/v1/spaces", spaces)


async def cancel_after(client: AsyncClient, own: Own, seconds: float) -> bool:
    """Returns whether the request was answered before it was cancelled."""
    task = asyncio.ensure_future(ASKING[own.name](client, own.subject))
    await asyncio.sleep(seconds)
    task.cancel()
    try:
        await task
        return True
    except asyncio.CancelledError:
        return False


@pytest.mark.parametrize("name", ASKING)
def test_cancelled_task_leaves_nothing_and_loses_nothing(host: Host, name: str) -> None:
    async def seconds_of_one(client: AsyncClient) -> float:
        own = Own(host, name)
        began = time.monotonic()
        await ASKING[name](client, own.subject)
        took = time.monotonic() - began
        own.clear()
        return took

    async def test() -> None:
        async with AsyncClient(host.service.base) as client:
            took = await seconds_of_one(client)
            for i in range(POINTS):
                own = Own(host, name)
                answered = await cancel_after(client, own, i * 1.2 * took / (POINTS - 1))
                # A resume that was answered is frozen again.
                host.until(lambda: own.is_right(answered))
                own.clear()

    asyncio.run(test())


def waits_for_the_service(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_name != "_send_once":
        frame = frame.f_back
    return frame is not None


@pytest.mark.parametrize("name", ["create", "resume"])
def test_interrupted_program_leaves_nothing_and_loses_nothing(host: Host, name: str) -> None:
    def on_signal(_: int, frame: FrameType | None) -> None:
        if waits_for_the_service(frame):
            raise KeyboardInterrupt

    def ask(client: Client, own: Own) -> bool:
        try:
            if name == "create":
                client.create_sandbox(metadata={"sdk": "1"})
            else:
                client.resume_space(own.subject)
            return True
        except KeyboardInterrupt:
            return False

    former = signal.signal(signal.SIGUSR1, on_signal)
    with Client(host.service.base) as client:
        began = time.monotonic()
        one = Own(host, name)
        assert ask(client, one)
        took = time.monotonic() - began
        one.clear()
        for i in range(POINTS):
            own = Own(host, name)
            main = threading.get_ident()
            seconds = i * took / (POINTS - 1)
            timer = threading.Timer(seconds, signal.pthread_kill, (main, signal.SIGUSR1))
            timer.start()
            answered = ask(client, own)
            timer.join()
            host.until(lambda: own.is_right(answered))
            own.clear()
    signal.signal(signal.SIGUSR1, former)
