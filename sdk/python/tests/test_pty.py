# SPDX-License-Identifier: Apache-2.0
"""Terminals of the SDK against a fake service."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import pytest

import ramet
from ramet import Client, Sandbox

SBX, PTY = "sbx_" + "0" * 32, "pty_" + "1" * 32


LISTED = [
    {"pty_id": PTY, "cmd_label": "bash", "created_at_ms": 1500, "exit_code": None},
    {"pty_id": "pty_2", "cmd_label": "top", "created_at_ms": 2500, "exit_code": 0},
]


class Terminal:
    """A fake terminal. `script` has the answer to each read: output, the exit code or an error."""

    def __init__(self, script: list[bytes | int | httpx.Response], kept_from: int = 0) -> None:
        self.script = script
        self.kept_from = kept_from
        self.requests: list[tuple[str, Any]] = []
        self.start: list[dict[str, Any]] = [{"type": "pty_ready", "session_id": PTY}]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix(f"/v1/sandboxes/{SBX}")
        body: Any = json.loads(request.content) if request.content else None
        if path == "/v1/sandboxes":
            return httpx.Response(201, json={"id": SBX, "state": "ready"})
        self.requests.append((f"{request.method} {path}", body))
        if path == "/pty" and request.method == "POST":
            text = "\n".join(json.dumps(event) for event in self.start)
            return httpx.Response(200, content=f"\n{text}\n".encode())
        if path == "/pty":
            return httpx.Response(200, json=LISTED)
        if path.endswith("/read"):
            return self.read(body)
        return httpx.Response(204)

    def read(self, body: dict[str, Any]) -> httpx.Response:
        offset = max(body["since_seq"], self.kept_from)
        item = self.script[0] if self.script else b""
        if isinstance(item, int):  # the exit code remains for later reads
            answer = {"data_b64": "", "next_seq": offset, "exit_code": item}
            return httpx.Response(200, json=answer)
        self.script = self.script[1:]
        if isinstance(item, httpx.Response):
            return item
        text = base64.b64encode(item).decode()
        return httpx.Response(200, json={"data_b64": text, "next_seq": offset + len(item)})


def sandbox(terminal: Terminal) -> Sandbox:
    return Sandbox(client=Client(transport=httpx.MockTransport(terminal)))


def test_create_sends_its_arguments() -> None:
    terminal = Terminal([])
    sbx = sandbox(terminal)
    assert sbx.pty.create("top -d 1").id == PTY
    sbx.pty.create(["vi", "/x"], cols=120, rows=40, env={"A": "b"}, cwd="/tmp")
    assert terminal.requests == [
        ("POST /pty", {"shellCmd": "top -d 1", "cols": 80, "rows": 24}),
        (
            "POST /pty",
            {"argv": ["vi", "/x"], "cols": 120, "rows": 40, "env": [["A", "b"]], "cwd": "/tmp"},
        ),
    ]


def test_program_that_cannot_start_is_an_error() -> None:
    terminal = Terminal([])
    terminal.start = [{"type": "pty_error", "message": "no such program"}]
    with pytest.raises(ramet.BadRequest, match="no such program"):
        sandbox(terminal).pty.create(["nothing"])
    terminal.start = []
    with pytest.raises(ramet.ConnectionFailed, match="before the terminal was ready"):
        sandbox(terminal).pty.create(["nothing"])


def test_iteration_yields_all_output() -> None:
    pty = sandbox(Terminal([b"one ", b"", b"two", 3])).pty.create()
    assert list(pty) == [b"one ", b"two"]
    assert (pty.exit_code, pty.place, pty.lost) == (3, 7, 0)
    assert list(pty) == [] and pty.read() == b""


def test_read_after_an_error_continues_at_the_same_offset() -> None:
    broken = httpx.Response(503, json={"error": "stopping", "code": "stopping"})
    terminal = Terminal([b"one", broken, b"two", 0])
    pty = sandbox(terminal).pty.create()
    got = [pty.read()]
    with pytest.raises(ramet.Unavailable):
        pty.read()
    assert got + list(pty) == [b"one", b"two"]
    offsets = [body["since_seq"] for what, body in terminal.requests if what.endswith("/read")]
    assert offsets == [0, 3, 3, 6]


def test_dropped_output_is_counted() -> None:
    pty = sandbox(Terminal([b"late", 0], kept_from=1000)).pty.create()
    assert list(pty) == [b"late"]
    assert (pty.place, pty.lost) == (1004, 1000)


def test_read_returns_at_its_timeout() -> None:
    terminal = Terminal([])
    pty = sandbox(terminal).pty.create()
    assert pty.read(timeout_seconds=0) == b""
    assert pty.exit_code is None
    assert terminal.requests[-1][1]["timeout_ms"] == 0


def test_wait_consumes_no_output() -> None:
    pty = sandbox(Terminal([b"one", 137])).pty.create()
    assert pty.wait() == 137
    assert (pty.exit_code, pty.place) == (137, 0)
    with pytest.raises(TimeoutError, match="0.01 s"):
        sandbox(Terminal([])).pty.create().wait(timeout_seconds=0.01)


def test_input_resize_and_kill_are_sent() -> None:
    terminal = Terminal([])
    pty = sandbox(terminal).pty.create()
    pty.send_input("é\r")
    pty.send_input(b"\xff")
    pty.resize(100, 30)
    pty.kill()
    assert terminal.requests[1:] == [
        (f"POST /pty/{PTY}/input", {"data_b64": base64.b64encode("é\r".encode()).decode()}),
        (f"POST /pty/{PTY}/input", {"data_b64": "/w=="}),
        (f"POST /pty/{PTY}/resize", {"cols": 100, "rows": 30}),
        (f"POST /pty/{PTY}/kill", None),
    ]


def test_attach_checks_the_id_and_continues_at_an_offset() -> None:
    sbx = sandbox(Terminal([b"rest", 0]))
    pty = sbx.pty.attach(PTY, place=20)
    assert list(pty) == [b"rest"]
    assert pty.place == 24
    with pytest.raises(ramet.NotFound, match="no terminal 'pty_other'"):
        sbx.pty.attach("pty_other")


def test_list_returns_all_terminals() -> None:
    assert sandbox(Terminal([])).pty.list() == [
        ramet.PtyInfo(PTY, "bash", 1.5, None),
        ramet.PtyInfo("pty_2", "top", 2.5, 0),
    ]


@pytest.mark.parametrize("more", [0, 1])
def test_long_input_is_sent_in_parts(more: int) -> None:
    terminal = Terminal([])
    pty = sandbox(terminal).pty.create()
    pty.send_input("p" * ((2 << 20) + more))
    pty.send_input("")
    sent = [base64.b64decode(body["data_b64"]) for path, body in terminal.requests[1:]]
    assert [len(one) for one in sent] == [1 << 20, 1 << 20] + [1] * more
