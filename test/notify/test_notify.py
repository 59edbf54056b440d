# SPDX-License-Identifier: Apache-2.0
"""ramet-notify, with a service and a receiver that the tests provide."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Iterator

import pytest

STARTER = os.environ.get("NOTIFY_STARTER", "build/test/notify/notify_starter")
PROGRAM = os.environ.get("NOTIFY_PROGRAM", "build/orchestrator/events/ramet-notify")
SECRET = "a secret of more than 16 bytes"
TIMEOUT_S = 60


def line(n: int, event: str = "sandbox.frozen", age_s: float = 0, **more: Any) -> str:
    at = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() - age_s))
    head = {"n": n, "id": f"evt_{n:032x}", "time": at, "event": event, **more}
    return json.dumps(head, separators=(",", ":"))


class Receiver:
    """Answers with the statuses in `answers`, then with 204; `came` holds the requests."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.came: queue.Queue[tuple[dict[str, str], bytes, int]] = queue.Queue()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = receiver.answers.pop(0) if receiver.answers else 204
                receiver.came.put((dict(self.headers), body, status))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    def next(self) -> tuple[dict[str, str], bytes, int]:
        return self.came.get(timeout=TIMEOUT_S)

    def stop(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class World:
    """`service` is the service's end of ramet-notify's socket."""

    def __init__(self, url: str) -> None:
        self.service, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.service.settimeout(TIMEOUT_S)
        self.url = url
        self.process: subprocess.Popen[bytes] | None = None
        self.log = b""

    def until_done(self, n: int) -> None:
        """Waits for a request that says so. Others may come before it, as requests are repeated."""
        while int.from_bytes(self.service.recv(64), sys.byteorder) != n:
            pass

    def give(self, line: str) -> None:
        self.service.send(line.encode())

    def start(self, *settings: str) -> None:
        flags = [f"--webhook_url={self.url}", f"--webhook_secret={SECRET}", *settings]
        fd = self.theirs.fileno()
        self.process = subprocess.Popen(
            [STARTER, PROGRAM, str(fd), *flags],
            stderr=subprocess.PIPE,
            env={**os.environ, "http_proxy": "http://127.0.0.1:1"},
            pass_fds=[fd],
        )

    def kill(self) -> str:
        if self.process:
            self.process.kill()
            self.log += self.process.communicate()[1]
            self.process = None
        return self.log.decode()

    def close(self) -> None:
        self.kill()
        self.service.close()
        self.theirs.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.stop()


@pytest.fixture
def world(receiver: Receiver) -> Iterator[World]:
    world = World(receiver.url)
    yield world
    world.close()


def test_line_is_sent_unchanged_and_signed(world: World, receiver: Receiver) -> None:
    world.start()
    world.until_done(0)
    frozen = line(1, space="spc_1", text='"quoted"')
    world.give(frozen)
    headers, body, _ = receiver.next()
    assert body.decode() == frozen
    assert headers["Content-Type"] == "application/json"
    assert headers["Ramet-Event"] == "sandbox.frozen"
    assert headers["Ramet-Delivery"] == json.loads(body)["id"]
    t, v1 = (part.split("=")[1] for part in headers["Ramet-Signature"].split(","))
    assert abs(time.time() - int(t)) < 300
    signed = t.encode() + b"." + body
    assert hmac.compare_digest(hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest(), v1)
    world.until_done(1)


def test_refused_line_is_retried(world: World, receiver: Receiver) -> None:
    receiver.answers = [500, 302]
    world.start()
    world.give(line(1))
    came = [receiver.next() for _ in range(3)]
    assert [json.loads(body)["n"] for _, body, _ in came] == [1, 1, 1]
    assert len({headers["Ramet-Delivery"] for headers, _, _ in came}) == 1
    world.until_done(1)
    assert "attempt 1: the receiver answered 500" in world.kill()


def test_killed_process_asks_for_the_line_again(world: World, receiver: Receiver) -> None:
    receiver.answers = [503] * 1000
    world.start()
    world.until_done(0)
    world.give(line(1))
    receiver.next()
    world.kill()
    receiver.answers = []
    while not receiver.came.empty():
        receiver.came.get()
    world.start()
    world.until_done(0)
    world.give(line(1))
    assert json.loads(receiver.next()[1])["n"] == 1
    world.until_done(1)


def test_request_is_repeated_while_no_answer_comes(world: World) -> None:
    world.start()
    world.until_done(0)
    world.until_done(0)


def test_invalid_and_repeated_lines_are_ignored(world: World, receiver: Receiver) -> None:
    world.start()
    for text in (line(7), '{"n":8,"id', line(7), line(3), line(8)):
        world.give(text)
    assert [json.loads(receiver.next()[1])["n"] for _ in range(2)] == [7, 8]
    world.until_done(8)


def test_day_old_line_is_tried_once_and_dropped(world: World, receiver: Receiver) -> None:
    receiver.answers = [500]
    world.start()
    world.give(line(1, age_s=25 * 3600))
    world.give(line(2))
    assert [json.loads(receiver.next()[1])["n"] for _ in range(2)] == [1, 2]
    world.until_done(2)
    assert "was dropped after a day" in world.kill()


def test_unreachable_receiver_is_retried(world: World, receiver: Receiver) -> None:
    away = world.url
    world.url = away.rsplit(":", 1)[0] + ":9/hook"  # discard: nobody listens
    world.start()
    world.give(line(1))
    assert world.process and world.process.stderr
    assert b"attempt 1" in world.process.stderr.readline()
    world.kill()
    world.url = away
    world.start()
    world.give(line(1))
    assert json.loads(receiver.next()[1])["n"] == 1
