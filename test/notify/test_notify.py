# SPDX-License-Identifier: Apache-2.0
"""ramet-notify, with an audit log and a receiver that the tests provide."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import queue
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
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
    def __init__(self, root: Path, url: str) -> None:
        self.audit, self.own = root / "audit", root / "own"
        self.audit.mkdir()
        self.own.mkdir()
        self.url = url
        self.process: subprocess.Popen[bytes] | None = None
        self.log = b""

    def write(self, *lines: str, end: str = "\n") -> None:
        with (self.audit / "audit.jsonl").open("a") as f:
            f.write("".join(each + end for each in lines))

    def rotate(self) -> None:
        (self.audit / "audit.jsonl").rename(self.audit / "audit.jsonl.1")

    def start(self, *settings: str) -> None:
        flags = [f"--webhook_url={self.url}", f"--webhook_secret={SECRET}", *settings]
        self.process = subprocess.Popen(
            [STARTER, PROGRAM, str(self.audit), str(self.own), *flags],
            stderr=subprocess.PIPE,
            env={**os.environ, "http_proxy": "http://127.0.0.1:1"},
        )

    def until_cursor(self, n: int) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while self.cursor() != n:
            ended = self.process is None or self.process.poll() is not None
            assert not ended and time.monotonic() < deadline, (self.cursor(), self.kill())
            time.sleep(0.01)

    def cursor(self) -> int | None:
        try:
            return int((self.own / "cursor").read_text().split()[2])
        except FileNotFoundError:
            return None

    def kill(self) -> str:
        if self.process:
            self.process.kill()
            self.log += self.process.communicate()[1]
            self.process = None
        return self.log.decode()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.stop()


@pytest.fixture
def world(receiver: Receiver, tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, receiver.url)
    yield world
    world.kill()


def test_line_is_sent_unchanged_and_signed(world: World, receiver: Receiver) -> None:
    world.start()
    world.until_cursor(0)
    frozen = line(1, space="spc_1", text='"quoted"')
    world.write(frozen)
    headers, body, _ = receiver.next()
    assert body.decode() == frozen
    assert headers["Content-Type"] == "application/json"
    assert headers["Ramet-Event"] == "sandbox.frozen"
    assert headers["Ramet-Delivery"] == json.loads(body)["id"]
    t, v1 = (part.split("=")[1] for part in headers["Ramet-Signature"].split(","))
    assert abs(time.time() - int(t)) < 300
    signed = t.encode() + b"." + body
    assert hmac.compare_digest(hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest(), v1)
    world.until_cursor(1)


def test_refused_lines_are_retried_in_order(world: World, receiver: Receiver) -> None:
    receiver.answers = [500, 302]
    world.start()
    world.until_cursor(0)
    world.write(line(1), line(2))
    came = [receiver.next() for _ in range(4)]
    ids = [json.loads(body)["n"] for _, body, _ in came]
    assert ids == [1, 1, 1, 2]
    assert len({headers["Ramet-Delivery"] for headers, _, _ in came[:3]}) == 1
    world.until_cursor(2)
    assert "attempt 1: the receiver answered 500" in world.kill()


def test_line_is_delivered_after_a_kill(world: World, receiver: Receiver) -> None:
    receiver.answers = [503] * 1000
    world.start()
    world.until_cursor(0)
    world.write(line(1))
    receiver.next()
    world.kill()
    world.write(line(2))
    receiver.answers = []
    while not receiver.came.empty():
        receiver.came.get()
    world.start()
    assert [json.loads(receiver.next()[1])["n"] for _ in range(2)] == [1, 2]


def test_only_selected_events_are_sent(world: World, receiver: Receiver) -> None:
    world.start("--webhook_events=sandbox.died,key.*")
    world.until_cursor(0)
    world.write(line(1), line(2, "key.made"), line(3), line(4, "sandbox.died"))
    assert [json.loads(receiver.next()[1])["n"] for _ in range(2)] == [2, 4]
    world.until_cursor(4)


def test_first_start_sends_no_old_lines(world: World, receiver: Receiver) -> None:
    world.write(*(line(n) for n in range(1, 101)))
    world.start()
    world.until_cursor(100)
    world.write(line(101))
    assert json.loads(receiver.next()[1])["n"] == 101


def test_day_old_line_is_tried_once_and_dropped(world: World, receiver: Receiver) -> None:
    receiver.answers = [500]
    world.start()
    world.until_cursor(0)
    world.write(line(1, age_s=25 * 3600), line(2))
    assert [json.loads(receiver.next()[1])["n"] for _ in range(2)] == [1, 2]
    world.until_cursor(2)
    assert "was dropped after a day" in world.kill()


def test_rotation_and_torn_lines_lose_nothing(world: World, receiver: Receiver) -> None:
    world.start()
    world.until_cursor(0)
    world.write(line(1))
    world.until_cursor(1)
    world.kill()
    world.write(line(2), '{"n":3,"id', line(3))
    world.rotate()
    world.write(line(4))
    world.start()
    assert [json.loads(receiver.next()[1])["n"] for _ in range(4)] == [1, 2, 3, 4]


def test_unreachable_receiver_is_retried(world: World, receiver: Receiver) -> None:
    away = world.url
    world.url = away.rsplit(":", 1)[0] + ":9/hook"  # discard: nobody listens
    world.start()
    world.until_cursor(0)
    world.write(line(1))
    assert world.process and world.process.stderr
    assert b"attempt 1" in world.process.stderr.readline()
    world.kill()
    world.url = away
    world.start()
    assert json.loads(receiver.next()[1])["n"] == 1


def test_damaged_cursor_sends_all_lines_again(world: World, receiver: Receiver) -> None:
    (world.own / "cursor").write_text("ramet-cursor 1 7 00000000\n")
    world.write(line(5), line(6))
    world.start()
    assert [json.loads(receiver.next()[1])["n"] for _ in range(2)] == [5, 6]
    world.until_cursor(6)
    assert "damaged" in world.kill()
