# SPDX-License-Identifier: Apache-2.0
"""Terminals through service and agent, with the unmodified published client and by hand."""

from __future__ import annotations

import base64
import hashlib
import json
import queue
from typing import Any, Iterator

import httpx
import podflare
import pytest
from podflare.pty import PtyHandle


def events(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in answer.iter_lines() if line)


class Screen:
    """Output of a terminal."""

    def __init__(self) -> None:
        self.chunks: queue.Queue[bytes] = queue.Queue()
        self.all = b""

    def until(self, what: bytes) -> None:
        while what not in self.all:
            self.all += self.chunks.get(timeout=120)


@pytest.fixture
def box(base: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[podflare.Sandbox]:
    monkeypatch.setenv("PODFLARE_HOSTD_URL", base)
    monkeypatch.setenv("PODFLARE_HOST", base)
    with podflare.Sandbox(client=podflare.Client(timeout=120.0)) as made:
        yield made


def test_the_published_client(box: podflare.Sandbox) -> None:
    screen, codes = Screen(), queue.Queue[int]()
    pty = box.pty.create(
        cmd="stty size; read line; echo got $line in $PWD with $A; stty size; exit 7",
        cols=100,
        rows=30,
        on_data=screen.chunks.put,
        on_exit=codes.put,
        env={"A": "b c"},
        cwd="/tmp",
    )
    assert pty.id.startswith("pty_")
    screen.until(b"30 100")
    pty.resize(cols=90, rows=20)
    pty.send_input("hello\r")
    screen.until(b"20 90")
    assert b"got hello in /tmp with b c" in screen.all
    assert pty.wait(120) == 7 and codes.get(timeout=120) == 7
    (listed,) = [one for one in box.pty.list() if one.pty_id == pty.id]
    assert listed.exit_code == 7 and listed.cmd_label.startswith("stty size")
    again = Screen()
    late: PtyHandle = box.pty.attach(pty.id, on_data=again.chunks.put)
    assert late.wait(30) == 7
    again.until(screen.all)


def test_kill_and_failures_of_the_published_client(box: podflare.Sandbox) -> None:
    pty = box.pty.create(cmd=["sleep", "1000"])
    pty.kill()
    assert pty.wait(30) == 137
    with pytest.raises(RuntimeError, match="no-such-program"):
        box.pty.create(cmd=["no-such-program"])
    with pytest.raises(httpx.HTTPStatusError):
        pty.send_input(b"x")


def test_long_polls_of_the_published_client(box: podflare.Sandbox) -> None:
    pty = box.pty.create(cmd="read a; echo $((a * 2)); sleep 1000")
    client, offset, seen = box._client, 0, b""
    pty.send_input(b"21\r")
    while b"42" not in seen:
        answer = client.pty_read(box.id, pty.id, offset, timeout_ms=20_000)
        seen += base64.b64decode(answer["data_b64"])
        offset = answer["next_seq"]
    nothing = client.pty_read(box.id, pty.id, offset, timeout_ms=1)
    assert (nothing["data_b64"], nothing["next_seq"]) == ("", offset)
    pty.kill()
    assert pty.wait(30) == 137
    assert client.pty_read(box.id, pty.id, offset)["exit_code"] == 137


def test_listeners_attach_and_detach(http: httpx.Client, sandbox: str) -> None:
    with http.stream("POST", f"{sandbox}/pty", json={"argv": ["cat"]}) as answer:
        pty = f"{sandbox}/pty/" + next(events(answer))["session_id"]

    def type_in(text: bytes) -> None:
        body = {"data_b64": base64.b64encode(text).decode()}
        assert http.post(f"{pty}/input", json=body).status_code == 204

    with http.stream("GET", f"{pty}/attach") as one, http.stream("GET", f"{pty}/attach") as two:
        type_in(b"a\n")
        for stream in (events(one), events(two)):
            text = b""
            while text.count(b"a") < 2:
                text += base64.b64decode(next(stream)["data_b64"])
    type_in(b"\x04")
    with http.stream("GET", f"{pty}/attach", params={"since_seq": 3}) as late:
        *chunks, end = events(late)
    assert chunks[0]["seq"] == 3 and end == {"type": "pty_exit", "data": 0}
    answer = http.post(f"{pty}/read", json={"since_seq": 10**6})
    assert (answer.status_code, answer.json()["code"]) == (400, "out_of_range")


def test_large_output_is_complete(http: httpx.Client, sandbox: str) -> None:
    body = {"argv": ["sh", "-c", "stty raw; head -c 5000000 /dev/zero; echo end"]}
    with http.stream("POST", f"{sandbox}/pty", json=body) as answer:
        stream, offset = events(answer), 0
        pty = f"{sandbox}/pty/" + next(stream)["session_id"]
        tail = b""
        for event in stream:
            if event["type"] == "pty_exit":
                break
            assert event["seq"] >= offset
            tail = (tail + base64.b64decode(event["data_b64"]))[-100:]
            offset = event["seq"] + len(base64.b64decode(event["data_b64"]))
    assert tail.endswith(b"end\n") and offset == 5_000_004
    read = http.post(f"{pty}/read", json={"since_seq": 0, "max_bytes": 1000}).json()
    assert len(base64.b64decode(read["data_b64"])) == 1000
    assert 5_000_004 - (1 << 20) <= read["next_seq"] - 1000
    rest: dict[str, Any] = {"next_seq": 4_000_004}
    while "exit_code" not in rest:
        asked = {"since_seq": rest["next_seq"], "max_bytes": 2**20}
        rest = http.post(f"{pty}/read", json=asked).json()
    assert rest["next_seq"] == offset and rest["exit_code"] == 0


def test_input_larger_than_a_frame(http: httpx.Client, sandbox: str) -> None:
    body = {"argv": ["sh", "-c", "stty raw -echo; echo ready; head -c 300000 | sha256sum"]}
    with http.stream("POST", f"{sandbox}/pty", json=body) as answer:
        stream = events(answer)
        pty = f"{sandbox}/pty/" + next(stream)["session_id"]
        assert b"ready" in base64.b64decode(next(stream)["data_b64"])
        typed = {"data_b64": base64.b64encode(bytes(300_000)).decode()}
        assert http.post(f"{pty}/input", json=typed).status_code == 204
        said = b"".join(base64.b64decode(e.get("data_b64", "")) for e in stream)
    assert hashlib.sha256(bytes(300_000)).hexdigest().encode() in said


def test_unknown_terminal_is_refused(http: httpx.Client, sandbox: str) -> None:
    pty = f"{sandbox}/pty/pty_" + 32 * "0"
    for answer in (
        http.get(f"{pty}/attach"),
        http.post(f"{pty}/kill"),
        http.post(f"{pty}/read", json={}),
        http.post(f"{pty}/resize", json={"cols": 1, "rows": 1}),
        http.post(f"{pty}/input", json={"data_b64": "eA=="}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (404, "no_such_pty")
