# SPDX-License-Identifier: Apache-2.0
"""Processes: the events and descriptions in every detail, and requests that are refused."""

from __future__ import annotations

import json
from typing import Any, Callable, Iterator

import httpx
import pytest
from conftest import NOBODY, Service, refused
from stand_in import pause

NEVER = "prc_" + 32 * "e"


def events(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in answer.iter_lines():
        if line:
            yield json.loads(line)


def run(http: httpx.Client, sandbox: str, **body: Any) -> list[dict[str, Any]]:
    """Runs a process to its end; returns its events."""
    with http.stream("POST", f"{sandbox}/processes", json=body) as answer:
        assert answer.status_code == 200, answer.read()
        return list(events(answer))


def detach(http: httpx.Client, sandbox: str, **body: Any) -> dict[str, Any]:
    answer = http.post(f"{sandbox}/processes", json={"detach": True, **body})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def first_output(http: httpx.Client, sandbox: str, **body: Any) -> str:
    with http.stream("POST", f"{sandbox}/processes", json=body) as answer:
        assert answer.status_code == 200, answer.read()
        stream = events(answer)
        next(stream)
        return str(next(stream)["data"])


def test_life_cycle_of_a_process(http: httpx.Client, sandbox: str, folder: str) -> None:
    script = "echo [$1][$A] $PWD; read line; echo $line >&2; read line || true"
    body = {"argv": ["bash", "-c", script, "-", "$x"], "stdin": True, "cwd": folder,
            "timeout_seconds": 1000.5, "env": {"A": "1"}}  # fmt: skip
    want = f"[$x][1] {folder}\n"
    with http.stream("POST", f"{sandbox}/processes", json=body) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        stream = events(answer)
        started = next(stream)
        assert set(started) == {"type", "id", "pid", "ts"}
        assert started["type"] == "started" and started["pid"] > 1
        process = f"{sandbox}/processes/{started['id']}"
        shown = next(stream)
        assert (shown["type"], shown["data"], shown["seq"]) == ("stdout", want, 0)
        assert shown["ts"] > 1700000000000
        assert http.post(f"{process}/stdin", content=b"a\n").status_code == 204
        echo = next(stream)
        assert (echo["type"], echo["data"], echo["seq"]) == ("stderr", "a\n", len(want))
        assert http.delete(f"{process}/stdin").status_code == 204
        (end,) = stream
        assert end == {"type": "exit", "data": 0, "seq": len(want) + 2, "ts": end["ts"]}
        assert started["ts"] <= shown["ts"] <= echo["ts"] <= end["ts"]
    refused(http.post(f"{process}/stdin", content=b"x"), 409, "stdin_closed")
    assert http.delete(f"{process}/stdin").status_code == 204
    entry = http.get(process).json()
    assert entry["started_at"] <= entry["ended_at"] and entry["ended_at"].endswith("Z")
    command = f"bash -c {script} - $x"
    assert command.startswith(entry["command"].removesuffix("...")) and len(entry["command"]) > 20
    assert {name: entry[name] for name in entry if name not in ("command", "started_at", "ended_at")} == {
        "id": started["id"], "pid": started["pid"], "user": None, "tty": False,
        "stdin": False, "state": "ended", "exit_code": 0, "signal": None,
        "timed_out": False, "output_bytes": len(want) + 2,
    }  # fmt: skip
    assert entry in http.get(f"{sandbox}/processes").json()


def test_detached_process_is_described(http: httpx.Client, sandbox: str) -> None:
    started = detach(http, sandbox, command="exec sleep 1000", stdin=True)
    assert started == {
        "id": started["id"], "pid": started["pid"], "command": "exec sleep 1000", "user": None, "tty": False,
        "stdin": True, "started_at": started["started_at"], "state": "running",
        "ended_at": None, "exit_code": None, "signal": None, "timed_out": False, "output_bytes": 0,
    }  # fmt: skip
    process = f"{sandbox}/processes/{started['id']}"
    with http.stream("GET", f"{process}/output") as answer:
        assert http.delete(process).status_code == 204
        *_, end = events(answer)
    assert (end["data"], end["signal"]) == (137, "SIGKILL") and "timed_out" not in end
    ended = http.get(process).json()
    assert (ended["state"], ended["exit_code"], ended["signal"]) == ("ended", 137, "SIGKILL")
    assert http.delete(process).status_code == 204


def test_command_and_argv(http: httpx.Client, sandbox: str) -> None:
    assert first_output(http, sandbox, command="echo $0 a") == "/bin/bash a\n"
    assert first_output(http, sandbox, argv=["printf", "[%s]", "a $b", ""]) == "[a $b][]"
    assert first_output(http, sandbox, argv=["echo", "x"], cwd="", user="") == "x\n"


@pytest.mark.parametrize(
    "body, says",
    [
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
    ],
)
def test_invalid_start_is_refused(http: httpx.Client, sandbox: str, body: Any, says: str) -> None:
    assert says in refused(http.post(f"{sandbox}/processes", json=body), 400, "bad_request")


def test_process_with_a_tty_has_a_default_size(http: httpx.Client, sandbox: str) -> None:
    assert first_output(http, sandbox, argv=["stty", "size"], tty={}) == "24 80\r\n"
    started = detach(http, sandbox, argv=["sleep", "1000"], tty={"cols": 100, "rows": 50})
    assert started["id"].startswith("pty_") and started["tty"] and started["stdin"]
    assert http.get(f"{sandbox}/processes/{started['id']}").json() == started
    http.delete(f"{sandbox}/processes/{started['id']}")


def test_time_limit_is_in_the_exit_event(http: httpx.Client, sandbox: str) -> None:
    late = run(http, sandbox, argv=["sleep", "1000"], timeout_seconds=0.1)[-1]
    assert (late["data"], late["signal"], late["timed_out"]) == (143, "SIGTERM", True)


def test_process_that_cannot_be_started(http: httpx.Client, sandbox: str) -> None:
    for more in ({}, {"detach": True}):
        answer = http.post(f"{sandbox}/processes", json={"argv": ["true"], "user": "no-such-user", **more})
        assert "no-such-user" in refused(answer, 400, "process_failed")


def test_output_is_replayed_and_followed(http: httpx.Client, sandbox: str) -> None:
    started = detach(http, sandbox, command="echo 0123456789; cat", stdin=True)
    process = f"{sandbox}/processes/{started['id']}"
    while http.get(process).json()["output_bytes"] < 11:
        pause()
    with http.stream("GET", f"{process}/output") as one, http.stream(
        "GET", f"{process}/output", params={"since": 8}
    ) as two:
        streams = [events(one), events(two)]
        assert [next(s)["id"] for s in streams] == [started["id"]] * 2
        assert next(streams[0])["seq"] == 0
        assert next(streams[1]) | {"ts": 0} == {"type": "stdout", "data": "89\n", "seq": 8, "ts": 0}
        http.post(f"{process}/stdin", content=b"new")
        assert [next(s)["data"] for s in streams] == ["new"] * 2
        http.post(f"{process}/signal", json={"signal": "TERM"})
        assert [next(s)["signal"] for s in streams] == ["SIGTERM"] * 2
    refused(http.get(f"{process}/output", params={"since": 1000}), 400, "out_of_range")
    refused(http.get(f"{process}/output", params={"since": "x"}), 400, "bad_request")
    head = http.head(f"{process}/output")
    assert (head.status_code, head.headers["content-type"]) == (200, "application/x-ndjson")


@pytest.mark.parametrize("http2", [False, True])
def test_sandbox_that_ends_cuts_the_stream_off(server: Service, box: str, http2: bool) -> None:
    seen = []
    with server.client(http2=http2) as http, pytest.raises(httpx.RemoteProtocolError):
        with http.stream("POST", f"{box}/processes", json={"argv": ["/slow"]}) as answer:
            for event in events(answer):
                seen.append(event)
                if event["type"] == "stdout":
                    with server.client() as other:
                        other.delete(box)
    assert (seen[-1]["type"], seen[-1]["code"]) == ("error", "deleted")


@pytest.mark.parametrize("signal", ["USR1", "SIGUSR1", "usr1", 10, "10"])
def test_signals(http: httpx.Client, sandbox: str, signal: Any) -> None:
    process = f"{sandbox}/processes/{detach(http, sandbox, argv=['sleep', '1000'])['id']}"
    with http.stream("GET", f"{process}/output") as answer:
        assert http.post(f"{process}/signal", json={"signal": signal}).status_code == 204
        *_, end = events(answer)
    assert end["signal"] == http.get(process).json()["signal"] == "SIGUSR1"
    refused(http.post(f"{process}/signal", json={"signal": signal}), 409, "process_ended")


@pytest.mark.parametrize("signal", ["", "SIG", "NOSUCH", 0, 65, "15x", 1e9])
def test_unknown_signals_are_refused(client: httpx.Client, box: str, signal: Any) -> None:
    process = f"{box}/processes/prc_{32 * '0'}"
    answer = client.post(f"{process}/signal", json={"signal": signal})
    assert "a name like \"TERM\" or a number from 1 to 64" in refused(answer, 400, "bad_request")
    refused(client.post(f"{process}/signal", json={}), 400, "bad_request")


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
    for name in (NEVER, "pty_" + 32 * "e", "prc_x", "upl_" + 32 * "e"):
        refused(ask(http, f"{sandbox}/processes/{name}"), 404, "no_such_process")
    refused(ask(http, f"{NOBODY}/processes/{NEVER}"), 404, "not_found")


def test_processes_of_unknown_sandboxes(client: httpx.Client) -> None:
    path = f"{NOBODY}/processes"
    refused(client.get(path), 404, "not_found")
    refused(client.post(path, json={"argv": ["a"]}), 404, "not_found")
    refused(client.post(path, json={"argv": ["a"], "detach": True}), 404, "not_found")


def test_head_of_the_list(client: httpx.Client, box: str) -> None:
    assert client.head(f"{box}/processes").status_code == 200
