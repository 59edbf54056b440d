# SPDX-License-Identifier: Apache-2.0
"""No measurement leaves a sandbox or a Space open, whichever of its requests fails."""

from __future__ import annotations

import base64
import http.client
import io
import json
import re
import subprocess
import sys
import types
import unittest
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Callable
from unittest import mock
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))

import contention  # noqa: E402
import files  # noqa: E402
import guests  # noqa: E402
import hostile  # noqa: E402
import measure  # noqa: E402
import net  # noqa: E402
import output  # noqa: E402
import restart  # noqa: E402
import run  # noqa: E402
import sizes  # noqa: E402
import soak  # noqa: E402
import spaces  # noqa: E402
import templates  # noqa: E402
import watch  # noqa: E402

MODULES = [contention, files, guests, hostile, measure, net, output, restart, run, sizes, soak]
MODULES += [spaces, templates, watch]
MOST = 500  # requests that a measurement may make


class Clock(types.SimpleNamespace):
    """A fake clock that sleep() advances at once."""

    now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def monotonic(self) -> float:
        self.now += 0.001
        return self.now

    perf_counter = monotonic

    def strftime(self, form: str) -> str:
        return form


class Service:
    """A fake service with enough of the API for each measurement. The request with the number
    `failing` and the `failures - 1` requests after it fail."""

    def __init__(self, failing: int, failures: int = 1) -> None:
        self.failing, self.failures = failing, failures
        self.asked = self.made = 0
        self.open: set[str] = set()
        self.held_mib = 0
        self.file = b""

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        self.asked += 1
        if self.failing <= self.asked < self.failing + self.failures:
            return 500, b'{"error":"it fails","code":"internal"}'
        path, _, _ = path.partition("?")
        return self.done(method, path, json.loads(body) if body[:1] == b"{" else {}, body)

    def new(self, kind: str) -> str:
        self.made += 1
        self.open.add(f"/v1/{kind}/{self.made}")
        return str(self.made)

    def done(
        self, method: str, path: str, asks: dict[str, Any], body: bytes
    ) -> tuple[int, bytes]:
        place = "/".join(path.split("/")[:4])
        verb = path[len(place) :]
        if path in ("/metrics", "/livez"):
            return 200, b"ramet_warm_ready 1\n" if path == "/metrics" else b"ok"
        if path == "/v1/templates":
            return 200, json.dumps([{"name": templates.NAME}]).encode()
        if path == "/v1/sandboxes":
            self.ram_mib = next((k for k, v in spaces.ASK.items() if v == asks.get("ram_mib")), 0)
            return 201, json.dumps({"id": self.new("sandboxes"), "state": "ready"}).encode()
        if place not in self.open:
            return 404, b'{"error":"not there","code":"not_found"}'
        if method == "DELETE" and not verb:
            self.open.remove(place)
            return 204, b""
        if verb == "/fork":
            return 200, json.dumps(
                {"children": [self.new("sandboxes") for _ in range(asks["n"])]}
            ).encode()
        if verb.startswith("/merge_into"):
            self.open.remove("/v1/sandboxes/" + verb.rsplit("/", 1)[1])
            return 204, b""
        if verb in ("/freeze", "/resume"):
            self.open.remove(place)
            kind, name = ("spaces", "space_id") if verb == "/freeze" else ("sandboxes", "id")
            return 200, json.dumps({name: self.new(kind)}).encode()
        if verb == "/exec":
            return 200, self.exec(asks["code"])
        if verb == "/files" and method == "GET":
            return 200, self.file
        if verb == "/files":
            self.file = body
            return 204, b""
        if not verb:
            mib = 300 if self.held_mib else 1
            info = {"ram_mib": self.ram_mib, "memory_private_bytes": mib << 20, "size_bytes": 1}
            return 200, json.dumps(info).encode()
        return 204, b""

    def exec(self, code: str) -> bytes:
        if found := re.search(r"\((\d+) << 20\)", code):
            self.held_mib = int(found[1])
        elif code == "del hog":
            self.held_mib = 0
        elif found := re.search(r"b64decode\('(.*)'\)", code):
            self.file = base64.b64decode(found[1])
        text = "1"
        if code == spaces.CHECK:
            text = f"{self.held_mib} True"
        elif code == "print(x)":
            text = "kept"
        elif "b64encode" in code:
            text = base64.b64encode(self.file).decode()
        elif "import pandas" in code:
            text = "[1.0]"
        elif "def measure(trips" in code:
            text = NET
        events: list[dict[str, Any]] = [{"type": "stdout", "data": text}]
        events.append({"type": "exit", "data": 0})
        return "".join(
            json.dumps(e | {"seq": 1}, separators=(",", ":")) + "\n" for e in events
        ).encode()


NET = '{"rtt":[1.0],"upload":[1.0],"download":[1.0]}'


class Connection:
    """The part of http.client.HTTPConnection that the measurements use."""

    service: Service

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def request(self, method: str, path: str, body: str | bytes | None = None) -> None:
        data = body.encode() if isinstance(body, str) else body or b""
        status, text = self.service.answer(method, path, data)
        self.response = io.BytesIO(text)
        self.response.status = status  # type: ignore[attr-defined]

    def getresponse(self) -> io.BytesIO:
        return self.response

    def close(self) -> None:
        pass


def urlopen(request: urllib.request.Request, timeout: float) -> io.BytesIO:
    data = request.data if isinstance(request.data, bytes) else b""
    path = urlsplit(request.full_url).path
    status, text = Connection.service.answer(request.get_method(), path, data)
    if status >= 400:
        raise urllib.error.HTTPError(request.full_url, status, "refused", None, None)  # type: ignore[arg-type]
    return io.BytesIO(text)


def host(command: str, timeout_s: float = 0) -> str:
    return NET if "def measure(trips" in command else "1"


class FewRuns(contention.Runs):
    def __init__(self, quick: bool) -> None:
        self.execs = self.creates = self.rows = self.resumes = 1
        self.row, self.forks = 2, {1: 1, 2: 1}


def agent(quick: bool) -> measure.Figures:
    report = soak.Report()
    one = soak.Agent(0, report)
    one.random = mock.Mock(random=lambda: 0.0, randint=lambda *_: 2, choice=lambda c: c[0])
    one.random.randrange = lambda _: 7
    stop = mock.Mock(is_set=mock.Mock(side_effect=[False, True]))
    one.run(1e9, stop)
    return {}


MEASUREMENTS: dict[str, Callable[[bool], object]] = {
    "contention": contention.contention,
    "files": files.measure_files,
    "guests": lambda quick: guests.measure_guests(3, 1),
    "hostile": hostile.hostile,
    "memory": run.memory,
    "net": net.net,
    "output": lambda quick: output.measure(quick, 1),
    "restart": lambda quick: restart.restart(quick, 20),
    "sizes": sizes.freed_memory,
    "soak": agent,
    "spaces": spaces.spaces,
    "templates": templates.templates,
    "watch": watch.watch,
}


class Leftovers(unittest.TestCase):
    def setUp(self) -> None:
        clock = Clock()
        patches = [mock.patch.object(m, "time", clock) for m in MODULES if hasattr(m, "time")]
        patches += [mock.patch.object(m, "host", host) for m in MODULES if hasattr(m, "host")]
        patches += [
            mock.patch.object(http.client, "HTTPConnection", Connection),
            mock.patch.object(urllib.request, "urlopen", urlopen),
            mock.patch.object(watch, "host_json", lambda *_: {}),
            mock.patch.object(contention, "Runs", FewRuns),
            mock.patch.object(guests, "mount_debugfs", lambda: None),
            mock.patch.object(guests, "counters", lambda: {"exits": 1}),
            mock.patch.object(guests, "exits", lambda: {"1-1": 1}),
            mock.patch.object(guests, "of_vms", lambda measure: {"1": 1}),
            mock.patch.object(hostile, "latencies", self.few_latencies(hostile.latencies)),
            mock.patch.object(watch, "block", self.few_blocks(watch.block)),
            mock.patch.object(files.os, "urandom", lambda n: bytes(64)),
            mock.patch.object(subprocess, "Popen", mock.Mock()),
            mock.patch.object(sys, "stderr", io.StringIO()),
        ]
        for patch in patches:
            patch.start()
            self.addCleanup(patch.stop)

    @staticmethod
    def few_latencies(real: Callable[[str, int], Any]) -> Callable[[str, int], Any]:
        return lambda sandbox_id, runs: real(sandbox_id, 2)

    @staticmethod
    def few_blocks(real: Callable[[str, int, bool], Any]) -> Callable[[str, int, bool], Any]:
        return lambda sandbox_id, calls, watched: real(sandbox_id, 2, watched)

    def one(self, name: str, failing: int, failures: int) -> Service:
        """Runs a measurement in which `failures` requests fail, beginning with number `failing`."""
        Connection.service = service = Service(failing, failures)
        try:
            MEASUREMENTS[name](True)
        except (measure.BenchError, StopIteration, KeyError):
            pass
        return service

    def check(self, name: str) -> None:
        whole = self.one(name, 0, 0)
        self.assertFalse(whole.open, "open although no request failed")
        self.assertTrue(2 < whole.asked < MOST, whole.asked)
        for failing in range(1, whole.asked + 1):
            for failures in (1, 2):
                service = self.one(name, failing, failures)
                self.assertFalse(service.open, f"{failures} failed from request {failing} on")


def checker(name: str) -> Callable[[Leftovers], None]:
    return lambda self: self.check(name)


for each in MEASUREMENTS:
    setattr(Leftovers, f"test_{each}", checker(each))


class Hogs(unittest.TestCase):
    def test_failed_start_leaves_no_process(self) -> None:
        started = [mock.Mock(), mock.Mock()]
        starts = mock.Mock(side_effect=[*started, OSError("no more processes")])
        with mock.patch.object(subprocess, "Popen", starts), self.assertRaises(OSError):
            with contention.busy_processes(3):
                pass
        for hog in started:
            hog.kill.assert_called_once()


if __name__ == "__main__":
    unittest.main()
