# SPDX-License-Identifier: Apache-2.0
"""Processes: the stream of events, descriptions, input, signals, and refusals."""

from __future__ import annotations

import base64
import json
from typing import Any, Callable, Iterator

import httpx
import pytest
from conftest import Server

NOBODY = "prc_" + 32 * "e"


def events(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in answer.iter_lines():
        if line:
            yield json.loads(line)


def fails(answer: httpx.Response, status: int, code: str) -> str:
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    return str(answer.json()["error"])


def run(http: httpx.Client, box: str, **body: Any) -> list[dict[str, Any]]:
    """Runs a process to its end; returns its events."""
    with http.stream("POST", f"{box}/processes", json=body) as answer:
        assert answer.status_code == 200, answer.read()
        return list(events(answer))


def detach(http: httpx.Client, box: str, **body: Any) -> dict[str, Any]:
    answer = http.post(f"{box}/processes", json={"detach": True, **body})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def first_output(http: httpx.Client, box: str, **body: Any) -> str:
    with http.stream("POST", f"{box}/processes", json=body) as answer:
        assert answer.status_code == 200, answer.read()
        stream = events(answer)
        next(stream)
        return str(next(stream)["data"])


def test_life_cycle_of_a_process(http: httpx.Client, sandbox: str) -> None:
    body = {"argv": ["cat", "-", "$x"], "stdin": True, "cwd": "/tmp", "user": "joe",
            "timeout_seconds": 1.5, "env": {"A": "1"}}
    with http.stream("POST", f"{sandbox}/processes", json=body) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        stream = events(answer)
        started = next(stream)
        assert set(started) == {"type", "id", "pid", "ts"}
        assert (started["type"], started["pid"]) == ("started", 77)
        process = f"{sandbox}/processes/{started['id']}"
        shown = next(stream)
        want = "[cat][-][$x][A=1] /tmp joe 1500 0x0"
        assert (shown["type"], shown["data"], shown["seq"]) == ("stdout", want, 0)
        assert shown["ts"] > 1700000000000
        assert http.post(f"{process}/stdin", content=b"a\n").status_code == 204
        echo = next(stream)
        assert (echo["type"], echo["data"], echo["seq"]) == ("stderr", "a\n", len(want))
        assert http.delete(f"{process}/stdin").status_code == 204
        (end,) = stream
        assert end == {"type": "exit", "data": 0, "seq": len(want) + 2, "ts": end["ts"]}
        assert started["ts"] <= shown["ts"] <= echo["ts"] <= end["ts"]
    fails(http.post(f"{process}/stdin", content=b"x"), 409, "stdin_closed")
    assert http.delete(f"{process}/stdin").status_code == 204
    entry = {
        "id": started["id"], "pid": 77, "command": "cat - $x", "user": "joe", "tty": False,
        "stdin": False, "started_at": "2023-11-14T22:13:20.123Z", "state": "ended",
        "ended_at": "2023-11-14T22:13:21.000Z", "exit_code": 0, "signal": None,
        "timed_out": False, "output_bytes": len(want) + 2,
    }  # fmt: skip
    assert http.get(process).json() == entry
    assert http.get(f"{sandbox}/processes").json() == [entry]


def test_no_process_yet(http: httpx.Client, sandbox: str) -> None:
    answer = http.get(f"{sandbox}/processes")
    assert (answer.status_code, answer.json()) == (200, [])


def test_detached_process_is_described(http: httpx.Client, sandbox: str) -> None:
    started = detach(http, sandbox, command="sleep 1000 && $x", stdin=True)
    assert started == {
        "id": started["id"], "pid": 77, "command": "sleep 1000 && $x", "user": None, "tty": False,
        "stdin": True, "started_at": "2023-11-14T22:13:20.123Z", "state": "running",
        "ended_at": None, "exit_code": None, "signal": None, "timed_out": False,
        "output_bytes": started["output_bytes"],
    }  # fmt: skip
    process = f"{sandbox}/processes/{started['id']}"
    assert http.delete(process).status_code == 204
    ended = http.get(process).json()
    assert (ended["state"], ended["exit_code"], ended["signal"]) == ("ended", 137, "SIGKILL")
    assert http.delete(process).status_code == 204


def test_command_and_argv(http: httpx.Client, sandbox: str) -> None:
    assert first_output(http, sandbox, command="a $b").startswith("[/bin/bash][-c][a $b] - - 0 0x0")
    assert first_output(http, sandbox, argv=["a", ""]).startswith("[a][] ")
    assert first_output(http, sandbox, argv=["a"], cwd="", user="").startswith("[a] - - 0")
    assert " joe " in first_output(http, sandbox, argv=["a"], user="joe")
    assert " 1000 0 " in first_output(http, sandbox, argv=["a"], user=1000)
    for body, says in (
        ({}, "exactly one of command and argv must be given"),
        ({"command": "a", "argv": ["a"]}, "must be given, not both"),
        ({"argv": []}, "name of a program"),
        ({"argv": ["", "a"]}, "name of a program"),
        ({"argv": "ls"}, "argv must be"),
        ({"argv": ["a"], "user": "x" * 65}, "user must be at most 64 bytes"),
        ({"argv": ["a"], "user": 1.5}, "user must be a string or a whole number, not 1.5"),
        ({"argv": ["a"], "user": True}, "user must be a string or a whole number, not true"),
        ({"argv": ["a"], "user": -1}, "user must be a string or a whole number, not -1"),
        ({"argv": ["a"], "stdin": 1}, "stdin must be true or false"),
        ({"argv": ["a"], "timeout_seconds": 0}, "timeout_seconds must be"),
        ({"argv": ["a"], "detach": "yes"}, "detach must be"),
        ({"argv": ["a"], "tty": True}, "tty must be an object"),
        ({"argv": ["a"], "tty": {"cols": 0}}, "tty.cols must be a whole number from 1 to 65535"),
        ({"argv": ["a"], "tty": {"rows": "a"}}, "tty.rows must be"),
        ({"argv": ["a"], "env": {"A": 1}}, "env"),
    ):  # fmt: skip
        assert says in fails(http.post(f"{sandbox}/processes", json=body), 400, "bad_request")


def test_process_with_a_tty_is_a_terminal(http: httpx.Client, sandbox: str) -> None:
    assert "80x24" in first_output(http, sandbox, argv=["a"], tty={})
    started = detach(http, sandbox, argv=["a"], tty={"cols": 100, "rows": 50})
    assert started["id"].startswith("pty_") and started["tty"] and started["stdin"]
    assert http.get(f"{sandbox}/processes/{started['id']}").json() == started


def test_ends(http: httpx.Client, sandbox: str) -> None:
    killed = run(http, sandbox, argv=["kill"])[-1]
    assert (killed["data"], killed["signal"]) == (137, "SIGKILL")
    assert "timed_out" not in killed
    late = run(http, sandbox, argv=["late"])[-1]
    assert (late["data"], late["signal"], late["timed_out"]) == (143, "SIGTERM", True)


def test_process_that_cannot_be_started(http: httpx.Client, sandbox: str) -> None:
    for more in ({}, {"detach": True}):
        answer = http.post(f"{sandbox}/processes", json={"argv": ["missing"], **more})
        assert "no user" in fails(answer, 400, "process_failed")


def test_characters_are_whole_and_bytes_exact(http: httpx.Client, sandbox: str) -> None:
    shown = [
        (e["type"], e["data"], e.get("data_b64") and base64.b64decode(e["data_b64"]), e["seq"])
        for e in run(http, sandbox, argv=["bytes"])[1:-1]
    ]
    # Written as: a c3 | a9 | c3 on stderr | e2 | 82 | ac ff c3
    assert shown == [
        ("stdout", "a", None, 0),
        ("stdout", "\u00e9", None, 1),
        ("stderr", "\ufffd", b"\xc3", 3),
        ("stdout", "\u20ac", None, 4),
        ("stdout", "\ufffd", b"\xff", 7),
        ("stdout", "\ufffd", b"\xc3", 8),
    ]


def test_output_is_replayed_and_followed(http: httpx.Client, sandbox: str) -> None:
    started = detach(http, sandbox, argv=["cat"], stdin=True)
    process = f"{sandbox}/processes/{started['id']}"
    size = started["output_bytes"]
    with http.stream("GET", f"{process}/output") as one, http.stream(
        "GET", f"{process}/output", params={"since": size - 3}
    ) as two:
        streams = [events(one), events(two)]
        assert [next(s)["id"] for s in streams] == [started["id"]] * 2
        assert next(streams[0])["seq"] == 0
        assert next(streams[1]) | {"ts": 0} == {
            "type": "stdout", "data": "0x0", "seq": size - 3, "ts": 0,
        }  # fmt: skip
        http.post(f"{process}/stdin", content=b"new")
        assert [next(s)["data"] for s in streams] == ["new"] * 2
        http.post(f"{process}/signal", json={"signal": "TERM"})
        assert [next(s)["signal"] for s in streams] == ["SIGTERM"] * 2
    fails(http.get(f"{process}/output", params={"since": size + 100}), 400, "out_of_range")
    fails(http.get(f"{process}/output", params={"since": "x"}), 400, "bad_request")
    head = http.head(f"{process}/output")
    assert (head.status_code, head.headers["content-type"]) == (200, "application/x-ndjson")


def test_process_outlives_its_client(http: httpx.Client, sandbox: str) -> None:
    with http.stream("POST", f"{sandbox}/processes", json={"argv": ["cat"]}) as answer:
        started = next(events(answer))
    assert http.get(f"{sandbox}/processes/{started['id']}").json()["state"] == "running"


def test_sandbox_that_ends_cuts_the_stream_off(http: httpx.Client, sandbox: str) -> None:
    seen = []
    with pytest.raises(httpx.RemoteProtocolError):
        with http.stream("POST", f"{sandbox}/processes", json={"argv": ["fail"]}) as answer:
            for event in events(answer):
                seen.append(event)
    assert (seen[-1]["type"], seen[-1]["code"]) == ("error", "vm_died")


@pytest.mark.parametrize("signal", ["USR1", "SIGUSR1", "usr1", 10, "10"])
def test_signals(http: httpx.Client, sandbox: str, signal: Any) -> None:
    process = f"{sandbox}/processes/{detach(http, sandbox, argv=['a'])['id']}"
    assert http.post(f"{process}/signal", json={"signal": signal}).status_code == 204
    assert http.get(process).json()["signal"] == "SIGUSR1"
    fails(http.post(f"{process}/signal", json={"signal": signal}), 409, "process_ended")


def test_signals_without_a_name(http: httpx.Client, sandbox: str) -> None:
    process = f"{sandbox}/processes/{detach(http, sandbox, argv=['a'])['id']}"
    assert http.post(f"{process}/signal", json={"signal": 40}).status_code == 204
    assert http.get(process).json()["signal"] == "SIG40"


@pytest.mark.parametrize("signal", ["", "SIG", "NOSUCH", 0, 65, "15x", 1e9])
def test_unknown_signals_are_refused(http: httpx.Client, sandbox: str, signal: Any) -> None:
    process = f"{sandbox}/processes/{detach(http, sandbox, argv=['a'])['id']}"
    answer = http.post(f"{process}/signal", json={"signal": signal})
    assert "a name like \"TERM\" or a number from 1 to 64" in fails(answer, 400, "bad_request")
    fails(http.post(f"{process}/signal", json={}), 400, "bad_request")


REQUESTS: list[Callable[[httpx.Client, str], httpx.Response]] = [
    lambda http, process: http.get(process),
    lambda http, process: http.delete(process),
    lambda http, process: http.get(f"{process}/output"),
    lambda http, process: http.post(f"{process}/stdin", content=b"x"),
    lambda http, process: http.delete(f"{process}/stdin"),
    lambda http, process: http.post(f"{process}/signal", json={"signal": 1}),
]


@pytest.mark.parametrize("ask", REQUESTS)
def test_unknown_processes(
    http: httpx.Client, sandbox: str, ask: Callable[[httpx.Client, str], httpx.Response]
) -> None:
    for name in (NOBODY, "pty_" + 32 * "e", "prc_x", "upl_" + 32 * "e"):
        fails(ask(http, f"{sandbox}/processes/{name}"), 404, "no_such_process")
    other = f"/v1/sandboxes/sbx_{32 * 'd'}"
    fails(ask(http, f"{other}/processes/{NOBODY}"), 404, "not_found")


def test_processes_of_unknown_sandboxes(http: httpx.Client) -> None:
    path = f"/v1/sandboxes/sbx_{32 * 'd'}/processes"
    fails(http.get(path), 404, "not_found")
    fails(http.post(path, json={"argv": ["a"]}), 404, "not_found")
    fails(http.post(path, json={"argv": ["a"], "detach": True}), 404, "not_found")


def test_head_of_the_list(http: httpx.Client, sandbox: str) -> None:
    assert http.head(f"{sandbox}/processes").status_code == 200


def test_server_keeps_running(server: Server) -> None:
    assert server.process.poll() is None
