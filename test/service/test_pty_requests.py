# SPDX-License-Identifier: Apache-2.0
"""Terminals: the forms of requests, and requests that are refused."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import socket
from typing import Any, Callable, Iterator

import httpx
import pytest
from conftest import NOBODY, Service, made, refused

NEVER = "pty_" + 32 * "e"


def events(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in answer.iter_lines():
        if line:
            yield json.loads(line)


def output(event: dict[str, Any]) -> bytes:
    assert event["type"] == "pty_data"
    return base64.b64decode(event["data_b64"])


def create(http: httpx.Client, sandbox: str, **body: Any) -> str:
    """Starts a program and detaches from it."""
    with http.stream("POST", f"{sandbox}/pty", json=body) as answer:
        assert answer.status_code == 200
        ready = next(events(answer))
    assert ready["type"] == "pty_ready"
    return f"{sandbox}/pty/{ready['session_id']}"


def type_in(http: httpx.Client, pty: str, text: bytes) -> httpx.Response:
    return http.post(f"{pty}/input", json={"data_b64": base64.b64encode(text).decode()})


def read_until(http: httpx.Client, pty: str, end: bytes) -> bytes:
    """Reads output until it ends with `end`; returns all of it."""
    seen, offset = b"", 0
    while not seen.endswith(end):
        answer = http.post(f"{pty}/read", json={"since_seq": offset, "timeout_ms": 10_000}).json()
        seen += base64.b64decode(answer["data_b64"])
        offset = answer["next_seq"]
    return seen


def test_life_cycle_of_a_terminal(http: httpx.Client, sandbox: str) -> None:
    script = "stty raw -echo; echo -n $A $PWD; head -c 3 | od -An -tx1; exit 7"
    body = {"shellCmd": script, "cols": 120, "rows": 40, "env": [["A", "1"]], "cwd": "/tmp"}
    with http.stream("POST", f"{sandbox}/pty", json=body) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        stream = events(answer)
        ready = next(stream)
        assert set(ready) == {"type", "session_id"} and ready["type"] == "pty_ready"
        pty = f"{sandbox}/pty/{ready['session_id']}"
        assert output(next(stream)) == b"1 /tmp"
        assert http.post(f"{pty}/resize", json={"cols": 9, "rows": 8}).status_code == 204
        assert type_in(http, pty, b"a\xff\0").status_code == 204
        *chunks, end = stream
        assert b"".join(map(output, chunks)).split() == [b"61", b"ff", b"00"] and chunks[0]["seq"] == 6
        assert end == {"type": "pty_exit", "data": 7}
    refused(type_in(http, pty, b"x"), 409, "pty_ended")
    (listed,) = [one for one in http.get(f"{sandbox}/pty").json() if one["pty_id"] == ready["session_id"]]
    assert listed.pop("created_at_ms") > 1700000000000
    assert script.startswith(listed.pop("cmd_label").removesuffix("..."))
    assert listed == {"pty_id": ready["session_id"], "exit_code": 7}


def test_attach_is_answered_before_there_is_output(http: httpx.Client, sandbox: str) -> None:
    pty = create(http, sandbox, argv=["sleep", "1000"])
    with http.stream("GET", f"{pty}/attach") as answer:
        assert answer.status_code == 200
    with http.stream("GET", f"{pty}/attach", params={"since_seq": 1000}) as answer:
        assert answer.status_code == 200
        event = next(events(answer))
    assert (event["type"], event["code"]) == ("pty_error", "out_of_range")
    assert event["message"] == "the terminal wrote 0 bytes, not 1000"
    assert http.head(f"{pty}/attach").status_code == 200
    (listed,) = [one for one in http.get(f"{sandbox}/pty").json() if pty.endswith(one["pty_id"])]
    assert listed["exit_code"] is None
    assert http.post(f"{pty}/kill").status_code == 204


def test_read_returns_output_and_exit_code(http: httpx.Client, sandbox: str) -> None:
    pty = create(http, sandbox, shellCmd="stty -echo; echo -n hello; read; echo -n bye")
    read = f"{pty}/read"
    assert read_until(http, pty, b"hello") == b"hello"
    some = {"since_seq": 1, "max_bytes": 3, "timeout_ms": 10_000}
    assert http.post(read, json=some).json() == {"data_b64": "ZWxs", "next_seq": 4}
    none = http.post(read, json={"since_seq": 5, "timeout_ms": 0}).json()
    assert none == {"data_b64": "", "next_seq": 5}
    type_in(http, pty, b"\r")
    read_until(http, pty, b"bye")
    with http.stream("GET", f"{pty}/attach") as answer:
        assert list(events(answer))[-1] == {"type": "pty_exit", "data": 0}
    end = http.post(read, json={"since_seq": 5, "max_bytes": 2**31, "timeout_ms": 2**31}).json()
    assert base64.b64decode(end["data_b64"]).endswith(b"bye") and end["exit_code"] == 0


def test_failed_start_is_reported(http: httpx.Client, sandbox: str) -> None:
    with http.stream("POST", f"{sandbox}/pty", json={"argv": ["no-such-program"]}) as answer:
        assert answer.status_code == 200
        (event,) = events(answer)
    assert event["type"] == "pty_error" and event["code"] == "pty_failed"
    assert "no-such-program" in event["message"]


@pytest.mark.parametrize(
    "body, word",
    [
        ({}, "one of shellCmd and argv must be given"),
        ({"shellCmd": "a", "argv": ["b"]}, "not both"),
        ({"argv": []}, "begin with"),
        ({"argv": [""]}, "begin with"),
        ({"argv": "ls"}, "array of strings"),
        ({"argv": ["a"], "cols": 0}, "cols"),
        ({"argv": ["a"], "rows": 65536}, "rows"),
        ({"argv": ["a"], "rows": "1"}, "rows"),
        ({"argv": ["a"], "env": "A=1"}, "env"),
        ({"argv": ["a"], "env": [["A"]]}, "[name, value]"),
        ({"argv": ["a"], "env": [["A", "1", "2"]]}, "[name, value]"),
        ({"argv": ["a"], "env": [["A", 1]]}, "[name, value]"),
        ({"argv": ["a"], "env": ["A"]}, "[name, value]"),
        ({"argv": ["a"], "env": [["A=B", "1"]]}, "="),
        ({"argv": ["a"], "env": [["", "1"]]}, "without a name"),
        ({"argv": ["a"], "env": 1025 * [["A", "1"]]}, "1024"),
        ({"argv": ["a"], "cwd": 4097 * "/"}, "4096"),
    ],
)
def test_invalid_starts_are_refused(http: httpx.Client, sandbox: str, body: Any, word: str) -> None:
    assert word in refused(http.post(f"{sandbox}/pty", json=body), 400, "bad_request")


def test_env_is_accepted_in_both_forms(http: httpx.Client, sandbox: str) -> None:
    for env in ([["A", "1"], ["B", "x=y"]], {"A": "1", "B": "x=y"}):
        pty = create(http, sandbox, shellCmd="echo -n [$A][$B].", env=env)
        assert read_until(http, pty, b".") == b"[1][x=y]."


def test_label_is_cut_between_characters(http: httpx.Client, sandbox: str) -> None:
    pty = create(http, sandbox, argv=["echo", 300 * "\u00e9"])
    (label,) = [one["cmd_label"] for one in http.get(f"{sandbox}/pty").json() if pty.endswith(one["pty_id"])]
    assert label == "echo " + 125 * "\u00e9"


def test_invalid_input_is_refused(http: httpx.Client, sandbox: str) -> None:
    pty = create(http, sandbox, shellCmd="stty raw -echo; exec cat >/dev/null")
    for body, word in (
        ({}, "missing"),
        ({"data_b64": "abc"}, "base64"),
        ({"data_b64": "ab=c"}, "base64"),
        ({"data_b64": "a b="}, "base64"),
        ({"data_b64": 1}, "string"),
        ({"data_b64": base64.b64encode(bytes((1 << 20) + 1)).decode()}, "1048576"),
    ):
        assert word in refused(http.post(f"{pty}/input", json=body), 400, "bad_request")
    assert type_in(http, pty, bytes(1 << 20)).status_code == 204
    for resize in ({}, {"cols": 1}, {"cols": 0, "rows": 1}, {"cols": 1, "rows": 65536}):
        refused(http.post(f"{pty}/resize", json=resize), 400, "bad_request")
    refused(http.post(f"{pty}/read", json={"max_bytes": 0}), 400, "bad_request")
    refused(http.post(f"{pty}/read", json={"since_seq": -1}), 400, "bad_request")
    refused(http.get(f"{pty}/attach", params={"since_seq": "x"}), 400, "bad_request")


@pytest.mark.parametrize("name", [NEVER, "pty_1", "sbx_" + 32 * "0"])
def test_unknown_terminal_is_refused(http: httpx.Client, sandbox: str, name: str) -> None:
    pty = f"{sandbox}/pty/{name}"
    refused(http.get(f"{pty}/attach"), 404, "no_such_pty")
    refused(http.post(f"{pty}/read", json={}), 404, "no_such_pty")
    refused(http.post(f"{pty}/kill"), 404, "no_such_pty")
    refused(type_in(http, pty, b"x"), 404, "no_such_pty")
    refused(http.post(f"{pty}/resize", json={"cols": 1, "rows": 1}), 404, "no_such_pty")


def test_unknown_sandbox_is_refused(http: httpx.Client) -> None:
    refused(http.get(f"{NOBODY}/pty"), 404, "not_found")
    refused(http.post(f"{NOBODY}/pty", json={"argv": ["a"]}), 404, "not_found")
    refused(http.get(f"{NOBODY}/pty/{NEVER}/attach"), 404, "not_found")
    assert http.head(f"{NOBODY}/pty/{NEVER}/attach").status_code == 404


WAITS = "pty_0" + 31 * "0"  # writes "hello" and waits
FLOODS = "pty_1" + 31 * "0"
BURSTS = "pty_a" + 31 * "0"  # waits, then writes without end


@pytest.mark.parametrize("http2", [False, True])
def test_silent_stream_gets_empty_lines(start: Callable[..., Service], http2: bool) -> None:
    server = start("silence_ms=150")
    with server.client(http2=http2) as http:
        with http.stream("GET", f"{made(http)}/pty/{WAITS}/attach") as answer:
            lines = answer.iter_lines()
            while not next(lines):
                pass  # until "hello"
            assert [next(lines), next(lines)] == ["", ""]


def test_client_that_leaves_ends_only_its_listener(
    client: httpx.Client, server: Service, box: str
) -> None:
    with server.client() as other, other.stream("GET", f"{box}/pty/{WAITS}/attach") as answer:
        lines = events(answer)  # a reference: dropping it would close the connection
        assert output(next(lines)) == b"hello"
        assert server.metrics()["ramet_listeners"] == 1
    server.wait(lambda f: f["ramet_listeners"] == 0)
    assert type_in(client, f"{box}/pty/{WAITS}", b"on").status_code == 204


def test_slow_listener_is_paused(client: httpx.Client, server: Service, box: str) -> None:
    counted = "ramet_pty_bytes_out_total"
    before = server.rss()
    with server.slow_client() as slow, slow.stream("GET", f"{box}/pty/{FLOODS}/attach") as answer:
        assert output(next(events(answer))).strip(b"x") == b""
        server.until_same(lambda: server.metrics()[counted])
        assert server.rss() - before < 16 << 20
    server.wait(lambda f: f["ramet_listeners"] == 0)


def head_of(s: socket.socket) -> tuple[str, int]:
    """Receives the head of an answer; returns its status and the length of its body."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += s.recv(1)
    length = re.search(rb"content-length: (\d+)", head, re.I)
    assert length, head
    return head[9:12].decode(), int(length[1])


def test_reads_that_end_together_do_not_exceed_the_room_for_answers(
    start: Callable[..., Service],
) -> None:
    room, in_kernel = 300_000, 300_000  # an answer that the kernel's buffers accept takes no room
    server = start(f"answers_bytes={room}")
    with server.client() as http, contextlib.ExitStack() as stack:
        pty = f"{made(http)}/pty/{BURSTS}"
        body = json.dumps({"since_seq": 0, "max_bytes": 1 << 20, "timeout_ms": 30000})
        head = f"POST {pty}/read HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        held = [stack.enter_context(server.connect(slow=True)) for _ in range(12)]
        for s in held:
            s.sendall((head + body).encode())
        server.go(len(held))
        answers = [head_of(s) for s in held]
        assert {status for status, _ in answers} == {"200", "503"}
        waiting = [length for status, length in answers if status == "200" and length > in_kernel]
        assert sum(waiting) - max(waiting, default=0) < room
