# SPDX-License-Identifier: Apache-2.0
"""Steps of the wall clock while the service has connections must affect its Date header only."""

from __future__ import annotations

import email.utils
import json
import mmap
import struct
import time
from pathlib import Path
from typing import Callable

import pytest

from conftest import Service, until_closed

REQUEST = b"GET /v1/healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
READ_S = 120  # how long a connection may be idle, and a request may take to arrive


class Clock:
    """Offsets of a server's clocks (test/moved_clock.h)."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(16))
        with path.open("r+b") as file:
            self.offsets = mmap.mmap(file.fileno(), 16)

    def move(self, real_s: int = 0, monotonic_s: int = 0) -> None:
        real_ms, monotonic_ms = struct.unpack("qq", self.offsets[:])
        self.offsets[:] = struct.pack(
            "qq", real_ms + real_s * 1000, monotonic_ms + monotonic_s * 1000
        )


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock for the servers that are started afterwards."""
    monkeypatch.setenv("TEST_CLOCK", str(tmp_path / "clock"))
    return Clock(tmp_path / "clock")


def turns(server: Service) -> None:
    """Lets the loop turn a few times."""
    for _ in range(5):
        server.metrics()


@pytest.mark.parametrize("http2", [False, True])
@pytest.mark.parametrize("step", [200, -3600])
def test_wall_clock_step_ends_nothing(
    clock: Clock, start: Callable[..., Service], step: int, http2: bool
) -> None:
    server = start()
    with server.client(http2=http2) as http, server.connect() as idle, server.connect() as half:
        idle.sendall(REQUEST)
        idle.recv(65536)
        half.sendall(REQUEST[:20])
        sandbox = "/v1/sandboxes/" + http.post("/v1/sandboxes", json={}).json()["id"]
        code = {"code": "out first\nwait"}
        with http.stream("POST", sandbox + "/exec", json=code) as answer:
            lines = answer.iter_lines()
            assert json.loads(next(lines))["data"] == "first"
            turns(server)
            clock.move(real_s=step)
            turns(server)
            server.until_waiting(1)
            interrupted = http.post(sandbox + "/interrupt")
            assert interrupted.status_code == 204
            assert json.loads(next(lines))["data"] == 0
        date = email.utils.parsedate_to_datetime(interrupted.headers["date"]).timestamp()
        assert abs(date - time.time() - step) < 100
        half.sendall(REQUEST[20:])
        idle.sendall(REQUEST)
        for s in (half, idle):
            assert s.recv(12) == b"HTTP/1.1 200"


def test_timeouts_hold_after_the_wall_clock_was_set_back(
    clock: Clock, start: Callable[..., Service]
) -> None:
    server = start()
    with server.connect() as idle, server.connect() as half:
        idle.sendall(REQUEST)
        idle.recv(65536)
        half.sendall(REQUEST[:20])
        turns(server)
        clock.move(real_s=-3600)
        turns(server)
        clock.move(monotonic_s=READ_S + 1)
        turns(server)
        assert until_closed(idle) == b""
        assert b"200" not in until_closed(half)
