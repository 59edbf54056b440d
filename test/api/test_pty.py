# SPDX-License-Identifier: Apache-2.0
"""Terminals: what the published client sends and expects, and our extensions."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
from typing import Any, Callable, Iterator

import httpx
import pytest
from conftest import Server

NOBODY = "pty_" + 32 * "e"


def events(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in answer.iter_lines():
        if line:
            yield json.loads(line)


def output(event: dict[str, Any]) -> bytes:
    assert event["type"] == "pty_data"
    return base64.b64decode(event["data_b64"])


def fails(answer: httpx.Response, status: int, code: str) -> str:
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    return str(answer.json()["error"])


def create(http: httpx.Client, box: str, **body: Any) -> str:
    """Starts a program and detaches from it."""
    with http.stream("POST", f"{box}/pty", json=body) as answer:
        assert answer.status_code == 200
        ready = next(events(answer))
    assert ready["type"] == "pty_ready"
    return f"{box}/pty/{ready['session_id']}"


def type_in(http: httpx.Client, pty: str, text: bytes) -> httpx.Response:
    return http.post(f"{pty}/input", json={"data_b64": base64.b64encode(text).decode()})


def test_life_cycle_of_a_terminal(http: httpx.Client, sandbox: str) -> None:
    body = {"shellCmd": "npm init", "cols": 120, "rows": 40, "env": [["A", "1"]], "cwd": "/tmp"}
    with http.stream("POST", f"{sandbox}/pty", json=body) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        stream = events(answer)
        ready = next(stream)
        assert set(ready) == {"type", "session_id"} and ready["type"] == "pty_ready"
        pty = f"{sandbox}/pty/{ready['session_id']}"
        assert output(next(stream)) == b"[bash][-lc][npm init] 120x40 [A=1]/tmp"
        assert http.post(f"{pty}/resize", json={"cols": 9, "rows": 8}).status_code == 204
        assert output(next(stream)) == b"9x8"
        assert type_in(http, pty, b"a\xff\0").status_code == 204
        typed = next(stream)
        assert output(typed) == b"a\xff\0" and typed["seq"] == 41
        assert type_in(http, pty, b"exit 7").status_code == 204
        assert output(next(stream)) == b"exit 7"
        assert next(stream) == {"type": "pty_exit", "data": 7}
        assert list(stream) == []
    fails(type_in(http, pty, b"x"), 409, "pty_ended")
    listed = http.get(f"{sandbox}/pty").json()
    assert listed == [
        {
            "pty_id": ready["session_id"],
            "cmd_label": "npm init",
            "created_at_ms": 1700000000123,
            "exit_code": 7,
        }
    ]


def test_attach_replays_and_continues(http: httpx.Client, sandbox: str) -> None:
    pty = create(http, sandbox, argv=["top", "-b"])
    with http.stream("GET", f"{pty}/attach") as one, http.stream("GET", f"{pty}/attach") as two:
        streams = [events(one), events(two)]
        for stream in streams:
            assert output(next(stream)) == b"[top][-b] 80x24 "
        type_in(http, pty, b"q")
        assert [output(next(stream)) for stream in streams] == [b"q", b"q"]
        assert http.post(f"{pty}/kill").status_code == 204
        assert [next(stream) for stream in streams] == 2 * [{"type": "pty_exit", "data": 137}]
    with http.stream("GET", f"{pty}/attach", params={"since_seq": 16}) as answer:
        late = list(events(answer))
    assert output(late[0]) == b"q" and late[1]["data"] == 137


def test_attach_is_answered_before_there_is_output(http: httpx.Client, sandbox: str) -> None:
    pty = create(http, sandbox, argv=["cat"])
    with http.stream("GET", f"{pty}/attach", params={"since_seq": 1000}) as answer:
        assert answer.status_code == 200
    assert http.head(f"{pty}/attach").status_code == 200


def test_empty_list(http: httpx.Client, sandbox: str) -> None:
    answer = http.get(f"{sandbox}/pty")
    assert answer.json() == [] and answer.headers["content-type"] == "application/json"
    create(http, sandbox, argv=["cat"])
    assert http.get(f"{sandbox}/pty").json()[0]["exit_code"] is None


def test_read_returns_output_and_exit_code(http: httpx.Client, sandbox: str) -> None:
    pty = create(http, sandbox, argv=["cat"])
    read = f"{pty}/read"
    first = http.post(read, json={}).json()
    assert base64.b64decode(first["data_b64"]) == b"[cat] 80x24 "
    assert first["next_seq"] == 12 and "exit_code" not in first
    some = {"since_seq": 1, "max_bytes": 3, "timeout_ms": 10_000}
    assert http.post(read, json=some).json() == {"data_b64": "Y2F0", "next_seq": 4}
    none = http.post(read, json={"since_seq": 12, "timeout_ms": 0}).json()
    assert none == {"data_b64": "", "next_seq": 12}
    type_in(http, pty, b"exit 0")
    end = http.post(read, json={"since_seq": 12, "max_bytes": 2**31, "timeout_ms": 2**31}).json()
    assert base64.b64decode(end["data_b64"]) == b"exit 0" and end["exit_code"] == 0


def test_failed_start_is_reported(http: httpx.Client, sandbox: str) -> None:
    with http.stream("POST", f"{sandbox}/pty", json={"argv": ["missing"]}) as answer:
        assert answer.status_code == 200
        (event,) = events(answer)
    assert event["type"] == "pty_error" and event["code"] == "pty_failed"
    assert "No such file" in event["message"]


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
    assert word in fails(http.post(f"{sandbox}/pty", json=body), 400, "bad_request")


def test_env_is_accepted_in_both_forms(http: httpx.Client, sandbox: str) -> None:
    for env in ([["A", "1"], ["B", "x=y"]], {"A": "1", "B": "x=y"}):
        pty = create(http, sandbox, argv=["a"], env=env)
        data = http.post(f"{pty}/read", json={}).json()["data_b64"]
        assert base64.b64decode(data) == b"[a] 80x24 [A=1][B=x=y]"


def test_label_is_cut_between_characters(http: httpx.Client, sandbox: str) -> None:
    create(http, sandbox, argv=["a", 300 * "\u00e9"])
    label = http.get(f"{sandbox}/pty").json()[0]["cmd_label"]
    assert label == "a " + 127 * "\u00e9"


def test_invalid_input_is_refused(http: httpx.Client, sandbox: str) -> None:
    pty = create(http, sandbox, argv=["cat"])
    for body, word in (
        ({}, "missing"),
        ({"data_b64": "abc"}, "base64"),
        ({"data_b64": "ab=c"}, "base64"),
        ({"data_b64": "a b="}, "base64"),
        ({"data_b64": 1}, "string"),
        ({"data_b64": base64.b64encode(bytes((1 << 20) + 1)).decode()}, "1048576"),
    ):
        assert word in fails(http.post(f"{pty}/input", json=body), 400, "bad_request")
    assert type_in(http, pty, bytes(1 << 20)).status_code == 204
    for resize in ({}, {"cols": 1}, {"cols": 0, "rows": 1}, {"cols": 1, "rows": 65536}):
        fails(http.post(f"{pty}/resize", json=resize), 400, "bad_request")
    fails(http.post(f"{pty}/read", json={"max_bytes": 0}), 400, "bad_request")
    fails(http.post(f"{pty}/read", json={"since_seq": -1}), 400, "bad_request")
    fails(http.get(f"{pty}/attach", params={"since_seq": "x"}), 400, "bad_request")


@pytest.mark.parametrize("name", [NOBODY, "pty_1", "sbx_" + 32 * "0"])
def test_unknown_terminal_is_refused(http: httpx.Client, sandbox: str, name: str) -> None:
    pty = f"{sandbox}/pty/{name}"
    fails(http.get(f"{pty}/attach"), 404, "no_such_pty")
    fails(http.post(f"{pty}/read", json={}), 404, "no_such_pty")
    fails(http.post(f"{pty}/kill"), 404, "no_such_pty")
    fails(type_in(http, pty, b"x"), 404, "no_such_pty")
    fails(http.post(f"{pty}/resize", json={"cols": 1, "rows": 1}), 404, "no_such_pty")


def test_unknown_sandbox_is_refused(http: httpx.Client) -> None:
    box = "/v1/sandboxes/sbx_" + 32 * "e"
    fails(http.get(f"{box}/pty"), 404, "not_found")
    fails(http.post(f"{box}/pty", json={"argv": ["a"]}), 404, "not_found")
    fails(http.get(f"{box}/pty/{NOBODY}/attach"), 404, "not_found")
    assert http.head(f"{box}/pty/{NOBODY}/attach").status_code == 404


def test_silent_stream_gets_empty_lines(start: Callable[..., Server]) -> None:
    server = start("silence_ms=150")
    with server.client() as http:
        box = "/v1/sandboxes/" + http.post("/v1/sandboxes", json={}).json()["id"]
        with http.stream("POST", f"{box}/pty", json={"argv": ["cat"]}) as answer:
            lines = answer.iter_lines()
            assert [bool(next(lines)) for _ in range(4)] == [True, True, False, False]


def test_client_that_leaves_ends_only_its_listener(server: Server) -> None:
    with server.client() as http:
        box = "/v1/sandboxes/" + http.post("/v1/sandboxes", json={}).json()["id"]
        with http.stream("POST", f"{box}/pty", json={"argv": ["cat"]}) as answer:
            lines = events(answer)  # a reference: dropping it would close the connection
            ready = next(lines)
            server.wait(lambda f: f["ramet_blank_vms_ready"] == 1)
        server.wait(lambda f: f["ramet_vm_deaths_total"] == 1 and f["ramet_blank_vms_ready"] == 0)
        assert type_in(http, f"{box}/pty/{ready['session_id']}", b"on").status_code == 204


def test_slow_listener_is_paused(server: Server) -> None:
    with server.client() as http:
        box = "/v1/sandboxes/" + http.post("/v1/sandboxes", json={}).json()["id"]
        pty = create(http, box, argv=["cat"])
        with http.stream("GET", f"{pty}/attach") as answer:
            stream = events(answer)
            next(stream)
            type_in(http, pty, b"flood 8000000")
            server.wait(lambda f: f["ramet_pool_hits_total"] > f["ramet_pool_misses_total"])
            type_in(http, pty, b"exit 0")
            seen = sum(len(output(e)) for e in stream if e["type"] == "pty_data")
        assert seen == 8_000_000 + len("flood 8000000exit 0")


def test_reads_that_end_together_do_not_exceed_the_room_for_answers(
    start: Callable[..., Server],
) -> None:
    server = start("answers_bytes=3000000")
    with server.client() as http, contextlib.ExitStack() as stack:
        box = "/v1/sandboxes/" + http.post("/v1/sandboxes").json()["id"]
        pty = create(http, box, argv=["top"])
        place = len("[top] 80x24 ")
        body = json.dumps({"since_seq": place, "max_bytes": 1 << 20, "timeout_ms": 30000})
        head = f"POST {pty}/read HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        held = [stack.enter_context(server.connect()) for _ in range(12)]
        for s in held:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            s.sendall((head + body).encode())
        server.wait(lambda f: f["ramet_http_requests_live"] == 1 + len(held))
        assert type_in(http, pty, b"x" * 1000000).status_code == 204
        statuses = [s.recv(12).decode()[-3:] for s in held]
        assert set(statuses) == {"200", "503"} and statuses.count("200") <= 4
