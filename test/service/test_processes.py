# SPDX-License-Identifier: Apache-2.0
"""Processes through service and agent."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from stand_in import pause


def events(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in answer.iter_lines() if line)


def bytes_of(event: dict[str, Any]) -> bytes:
    if "data_b64" in event:
        return base64.b64decode(event["data_b64"])
    return str(event["data"]).encode()


class Result:
    def __init__(self, stream: Iterator[dict[str, Any]]) -> None:
        self.out = self.err = b""
        self.exit: dict[str, Any] = {}
        self.first = None
        for event in stream:
            if event["type"] == "exit":
                self.exit = event
            elif event["type"] == "stdout":
                self.out += bytes_of(event)
            elif event["type"] == "stderr":
                self.err += bytes_of(event)

    @property
    def code(self) -> int:
        return int(self.exit["data"])


def run(http: httpx.Client, sandbox: str, **body: Any) -> Result:
    with http.stream("POST", f"{sandbox}/processes", json=body) as answer:
        assert answer.status_code == 200, answer.read()
        return Result(events(answer))


def detach(http: httpx.Client, sandbox: str, **body: Any) -> str:
    """Starts a process; returns its path."""
    answer = http.post(f"{sandbox}/processes", json={"detach": True, **body})
    assert answer.status_code == 201, answer.text
    return f"{sandbox}/processes/{answer.json()['id']}"


def output(http: httpx.Client, process: str, since: int = 0) -> Result:
    with http.stream("GET", f"{process}/output", params={"since": since}) as answer:
        return Result(events(answer))


def test_program_with_literal_arguments(http: httpx.Client, sandbox: str) -> None:
    done = run(http, sandbox, argv=["printf", "%s|", "$HOME", "*", "a b", ""])
    assert (done.out, done.err, done.code) == (b"$HOME|*|a b||", b"", 0)
    assert done.exit["seq"] == 13 and "signal" not in done.exit


def test_command_for_a_shell(http: httpx.Client, sandbox: str) -> None:
    done = run(http, sandbox, command='echo "$A $PWD"; echo err >&2; exit 7', env={"A": "b"}, cwd="/tmp")
    assert (done.out, done.err, done.code) == (b"b /tmp\n", b"err\n", 7)


def test_ends(http: httpx.Client, sandbox: str) -> None:
    missing = run(http, sandbox, argv=["no-such-program"])
    assert (missing.code, missing.err) == (127, b"no-such-program: No such file or directory\n")
    assert run(http, sandbox, argv=["/etc/passwd"]).code == 126
    killed = run(http, sandbox, command="kill -9 $$")
    assert (killed.code, killed.exit["signal"]) == (137, "SIGKILL")
    late = run(http, sandbox, command="sleep 1000", timeout_seconds=0.2)
    assert (late.code, late.exit["signal"], late.exit["timed_out"]) == (143, "SIGTERM", True)


@pytest.mark.parametrize("more", [{"user": "nobody-here"}, {"cwd": "/no/such"}, {"env": {"": "x"}}])
def test_starts_that_fail(http: httpx.Client, sandbox: str, more: dict[str, Any]) -> None:
    for way in ({}, {"detach": True}):
        answer = http.post(f"{sandbox}/processes", json={"argv": ["true"], **more, **way})
        assert answer.status_code == 400, answer.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_user(http: httpx.Client, sandbox: str) -> None:
    for user in ("daemon", 1, "1"):
        done = run(http, sandbox, command="id -un; echo $USER", user=user, cwd="/")
        assert done.out == b"daemon\ndaemon\n"


def test_bytes_are_exact(http: httpx.Client, sandbox: str) -> None:
    script = r"printf 'a\303'; sleep 0.1; printf '\251\377\000'"
    assert run(http, sandbox, command=script).out == b"a\xc3\xa9\xff\0"


def test_event_does_not_cut_a_character_after_an_invalid_one(
    http: httpx.Client, sandbox: str
) -> None:
    script = r"printf '\342'; sleep 0.3; printf '\303\251\303'; sleep 0.3; printf '\251\342\202'"
    with http.stream("POST", f"{sandbox}/processes", json={"command": script}) as answer:
        shown = [event["data"] for event in events(answer) if event["type"] == "stdout"]
    assert shown == ["\ufffd", "\u00e9", "\u00e9", "\ufffd"]


def test_large_output_is_complete(http: httpx.Client, sandbox: str) -> None:
    done = run(http, sandbox, command="seq 1 1000000; seq 1 100000 >&2")
    want = b"".join(b"%d\n" % i for i in range(1, 1_000_001))
    assert hashlib.sha256(done.out).digest() == hashlib.sha256(want).digest()
    assert len(done.err) == 588_895 and done.exit["seq"] == len(want) + 588_895


def test_reader_that_stops_holds_the_program(http: httpx.Client, sandbox: str) -> None:
    body = {"command": "yes | head -c 30000000; echo end >&2"}
    with http.stream("POST", f"{sandbox}/processes", json=body) as answer:
        stream = events(answer)
        process = f"{sandbox}/processes/{next(stream)['id']}"
        before = -1
        while before != (now := http.get(process).json()["output_bytes"]) or not now:
            before = now
            time.sleep(0.3)
        assert now < 30_000_000
        assert Result(stream).exit["seq"] == 30_000_004


def test_input_and_end_of_input(http: httpx.Client, sandbox: str) -> None:
    process = detach(http, sandbox, argv=["sha256sum"], stdin=True)
    data = os.urandom(3_000_000)
    assert http.post(f"{process}/stdin", content=data[:1000]).status_code == 204
    assert http.post(f"{process}/stdin", content=data[1000:]).status_code == 204
    assert http.get(process).json()["stdin"] is True
    assert http.delete(f"{process}/stdin").status_code == 204
    assert output(http, process).out.split()[0].decode() == hashlib.sha256(data).hexdigest()
    refused = http.post(f"{process}/stdin", content=b"x")
    assert (refused.status_code, refused.json()["code"]) == (409, "stdin_closed")
    assert run(http, sandbox, argv=["cat"]).code == 0


def test_input_that_is_not_read_is_refused_after_30_s(
    http: httpx.Client, base: str, sandbox: str
) -> None:
    size = {"cols": 80, "rows": 24}
    process = detach(http, sandbox, command="stty raw -echo; echo on; sleep 1000", tty=size)
    while not http.get(process).json()["output_bytes"]:
        time.sleep(0.1)

    def request(method: str, content: bytes) -> httpx.Response:
        with httpx.Client(base_url=base, timeout=120, trust_env=False) as client:
            return client.request(method, f"{process}/stdin", content=content)

    began = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        write = pool.submit(request, "POST", 1_000_000 * b"x")
        time.sleep(1)
        close = pool.submit(request, "DELETE", b"")
        answers = [write.result(), close.result()]
    assert [(a.status_code, a.json()["code"]) for a in answers] == 2 * [(409, "stdin_full")]
    assert 29 < time.monotonic() - began < 50


def test_twenty_at_once_beside_python(http: httpx.Client, base: str, sandbox: str) -> None:
    names = [detach(http, sandbox, argv=["cat"], stdin=True) for _ in range(20)]

    def follow(name: str) -> bytes:
        with httpx.Client(base_url=base, timeout=120, trust_env=False) as client:
            return output(client, name).out

    with ThreadPoolExecutor(20) as pool:
        readers = [pool.submit(follow, name) for name in names]
        for i, name in enumerate(names):
            http.post(f"{name}/stdin", content=b"line %d\n" % i)
        done = http.post(f"{sandbox}/exec", json={"code": "print(1)"}).text
        assert '"data":"1"' in done
        for name in names:
            http.delete(f"{name}/stdin")
        assert [r.result() for r in readers] == [b"line %d\n" % i for i in range(20)]


def test_process_outlives_its_client(http: httpx.Client, sandbox: str) -> None:
    body = {"command": "echo on; read; echo off", "stdin": True}
    with http.stream("POST", f"{sandbox}/processes", json=body) as answer:
        stream = events(answer)
        process = f"{sandbox}/processes/{next(stream)['id']}"
        assert next(stream)["data"] == "on\n"
    assert http.get(process).json()["state"] == "running"
    http.post(f"{process}/stdin", content=b"\n")
    done = output(http, process, since=3)
    assert (done.out, done.code) == (b"off\n", 0)


def test_signals(http: httpx.Client, sandbox: str) -> None:
    body = {"command": "trap 'echo got it; exit 3' USR1; echo on; while :; do sleep 0.01; done"}
    with http.stream("POST", f"{sandbox}/processes", json=body) as answer:
        stream = events(answer)
        process = f"{sandbox}/processes/{next(stream)['id']}"
        assert next(stream)["data"] == "on\n"
        assert http.post(f"{process}/signal", json={"signal": "USR1"}).status_code == 204
        done = Result(stream)
        assert done.out == b"got it\n" and done.code == 3
    refused = http.post(f"{process}/signal", json={"signal": "KILL"})
    assert (refused.status_code, refused.json()["code"]) == (409, "process_ended")


def test_signal_without_a_name_has_a_number(http: httpx.Client, sandbox: str) -> None:
    process = detach(http, sandbox, argv=["sleep", "1000"])
    for name in ("SIG65", "SIG", "SIG-1", "65"):
        assert http.post(f"{process}/signal", json={"signal": name}).status_code == 400
    assert http.post(f"{process}/signal", json={"signal": "SIG40"}).status_code == 204
    assert output(http, process).exit["signal"] == "SIG40"


def test_list_and_kill(http: httpx.Client, sandbox: str) -> None:
    process = detach(http, sandbox, argv=["sleep", "1000"])
    (entry,) = [p for p in http.get(f"{sandbox}/processes").json() if process.endswith(p["id"])]
    assert entry == http.get(process).json()
    assert (entry["command"], entry["state"]) == ("sleep 1000", "running")
    assert http.delete(process).status_code == 204
    assert output(http, process).exit["signal"] == "SIGKILL"
    assert http.get(process).json()["state"] == "ended"


def test_process_with_a_tty_is_a_terminal(http: httpx.Client, sandbox: str) -> None:
    body = {"command": "stty size; read a; stty size; exit 4", "tty": {"cols": 100, "rows": 30}}
    process = detach(http, sandbox, **body)
    name = process.rsplit("/", 1)[1]
    pty = f"{sandbox}/pty/{name}"
    assert name in [p["pty_id"] for p in http.get(f"{sandbox}/pty").json()]
    shown = b""
    while b"30 100" not in shown:
        pause()
        shown = base64.b64decode(http.post(f"{pty}/read", json={}).json()["data_b64"])
    assert http.post(f"{pty}/resize", json={"cols": 90, "rows": 20}).status_code == 204
    assert http.post(f"{process}/stdin", content=b"\r").status_code == 204
    done = output(http, process)
    assert done.out.startswith(b"30 100") and done.out.endswith(b"20 90\r\n") and done.code == 4
    read = http.post(f"{pty}/read", json={}).json()
    assert base64.b64decode(read["data_b64"]) == done.out and read["exit_code"] == 4


def test_terminal_is_a_process(http: httpx.Client, sandbox: str) -> None:
    with http.stream("POST", f"{sandbox}/pty", json={"argv": ["cat"]}) as answer:
        name = next(events(answer))["session_id"]
    process = f"{sandbox}/processes/{name}"
    assert http.get(process).json()["tty"] is True
    plain = detach(http, sandbox, argv=["sleep", "1000"]).rsplit("/", 1)[1]
    listed = [p["pty_id"] for p in http.get(f"{sandbox}/pty").json()]
    assert name in listed and plain not in listed
    assert http.post(f"{process}/stdin", content=b"a\n").status_code == 204
    assert http.delete(f"{process}/stdin").status_code == 204
    assert output(http, process).out == b"a\r\na\r\n"


def test_unknown_process_is_refused(http: httpx.Client, sandbox: str) -> None:
    process = f"{sandbox}/processes/prc_" + 32 * "0"
    for answer in (
        http.get(process),
        http.delete(process),
        http.get(f"{process}/output"),
        http.post(f"{process}/stdin", content=b"x"),
        http.delete(f"{process}/stdin"),
        http.post(f"{process}/signal", json={"signal": 15}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (404, "no_such_process")


def test_times_of_events_do_not_go_back(http: httpx.Client, sandbox: str) -> None:
    def times(answer: httpx.Response) -> list[int]:
        return [event["ts"] for event in events(answer)]

    body = {"command": "for i in 1 2 3; do echo $i; done; exit 3"}
    with http.stream("POST", f"{sandbox}/processes", json=body) as answer:
        seen = times(answer)
    assert len(seen) >= 3 and seen == sorted(seen)
    process = http.get(f"{sandbox}/processes").json()[-1]["id"]
    # Its output is read after its end.
    time.sleep(0.01)
    with http.stream("GET", f"{sandbox}/processes/{process}/output") as answer:
        seen = times(answer)
    assert len(seen) >= 3 and seen == sorted(seen)


def leave(base: str, path: str, *, http2: bool = False, **body: Any) -> dict[str, Any]:
    """Starts a stream, and disconnects after its first event, which is returned."""
    with httpx.Client(base_url=base, http1=not http2, http2=http2, trust_env=False) as client:
        with client.stream("POST" if body else "GET", path, json=body or None) as answer:
            assert answer.status_code == 200, answer.read()
            return next(events(answer))


@pytest.mark.parametrize("http2", [False, True])
def test_process_ends_when_its_client_hangs_up(
    base: str, http: httpx.Client, sandbox: str, http2: bool
) -> None:
    command = "echo up; sleep 1000 & wait"
    started = leave(base, f"{sandbox}/processes", http2=http2, command=command, hangup=True)
    done = output(http, f"{sandbox}/processes/{started['id']}")
    assert (done.code, done.exit["signal"]) == (137, "SIGKILL")


def test_process_ends_when_a_later_reader_hangs_up(
    base: str, http: httpx.Client, sandbox: str
) -> None:
    process = detach(http, sandbox, argv=["sleep", "1000"])
    leave(base, process + "/output")
    assert http.get(process).json()["state"] == "running"
    leave(base, process + "/output?hangup=1")
    assert output(http, process).code == 137


def test_process_without_hangup_outlives_its_client(
    base: str, http: httpx.Client, sandbox: str
) -> None:
    body: dict[str, Any] = {"command": "read code; exit $code", "stdin": True, "hangup": False}
    process = f"{sandbox}/processes/{leave(base, f'{sandbox}/processes', **body)['id']}"
    http.post(process + "/stdin", content=b"7\n")
    assert output(http, process).code == 7


def test_detached_process_has_no_client_to_hang_up(http: httpx.Client, sandbox: str) -> None:
    body = {"argv": ["true"], "detach": True, "hangup": True}
    answer = http.post(f"{sandbox}/processes", json=body)
    assert answer.status_code == 400 and "detach and hangup" in answer.json()["error"]


def followed(http: httpx.Client, sandbox: str) -> list[dict[str, Any]]:
    with http.stream("GET", f"{sandbox}/replay?follow=1") as answer:
        return list(events(answer))


@pytest.mark.parametrize("context", [False, True])
def test_call_is_interrupted_when_its_client_hangs_up(
    base: str, http: httpx.Client, sandbox: str, context: bool
) -> None:
    where = {}
    if context:
        made = http.post(f"{sandbox}/contexts", json={"language": "python"})
        where = {"context": made.json()["id"]}
    code = "import time\nkept = 5\nprint('up')\ntime.sleep(1000)"
    first = leave(base, f"{sandbox}/exec", code=code, hangup=True, **where)
    assert first["data"] == "up"
    assert followed(http, sandbox)[-1]["data"] == 130
    with http.stream("POST", f"{sandbox}/exec", json={"code": "print(kept)", **where}) as answer:
        assert next(events(answer))["data"] == "5"


def test_waiting_call_does_not_run_when_its_client_hangs_up(
    base: str, http: httpx.Client, sandbox: str, folder: str
) -> None:
    os.mkfifo(f"{folder}/go")
    leave(base, f"{sandbox}/exec", code=f"print('up')\nprint(open('{folder}/go').read())")
    body = json.dumps({"code": "print('never')", "hangup": True})
    address = urlsplit(base)
    with socket.create_connection((address.hostname, address.port or 0)) as gone:
        head = f"POST {sandbox}/exec HTTP/1.1\r\nHost: localhost\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        gone.sendall((head + body).encode())
        gone.shutdown(socket.SHUT_WR)
        with gone.makefile("rb") as answer:
            assert b" 499 " in answer.read()  # the service knows that the client is gone
    with open(f"{folder}/go", "w") as go:
        go.write("went")
    said = [event["data"] for event in followed(http, sandbox)]
    assert said == ["up", "went", 0]
