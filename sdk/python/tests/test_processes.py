# SPDX-License-Identifier: Apache-2.0
"""Processes of the SDK against a fake service."""

from __future__ import annotations

import base64
import json
from typing import Any, Iterator

import httpx
import pytest

import ramet
from ramet import Client, ProcessResult, Sandbox

SBX, PRC = "sbx_" + "0" * 32, "prc_" + "1" * 32
STARTED = {"type": "started", "id": PRC, "pid": 77, "ts": 1}
INFO = {
    "id": PRC, "pid": 77, "command": "ls -l", "user": "joe", "tty": False, "stdin": False,
    "started_at": "2026-01-31T23:59:59.123Z", "state": "ended",
    "ended_at": "2026-01-31T23:59:59.999Z", "exit_code": 137, "signal": "SIGKILL",
    "timed_out": True, "output_bytes": 9,
}  # fmt: skip
RUNNING = {**INFO, "state": "running", "user": None, "ended_at": None, "exit_code": None,
           "signal": None, "timed_out": False}  # fmt: skip


def output(stream: str, data: bytes, seq: int) -> dict[str, Any]:
    event = {"type": stream, "data": data.decode(errors="replace"), "seq": seq, "ts": 2}
    try:
        data.decode()
    except UnicodeDecodeError:
        event["data_b64"] = base64.b64encode(data).decode()
    return event


def exit_event(code: int, **more: Any) -> dict[str, Any]:
    return {"type": "exit", "data": code, "seq": 9, "ts": 3, **more}


class Service:
    """A fake service. `streams` has the events of each stream; without an exit it breaks off."""

    def __init__(self, *streams: list[dict[str, Any]]) -> None:
        self.streams = list(streams)
        self.requests: list[tuple[str, Any]] = []
        self.refusal: httpx.Response | None = None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix(f"/v1/sandboxes/{SBX}")
        if path == "/v1/sandboxes":
            return httpx.Response(201, json={"id": SBX, "state": "ready"})
        body: Any = request.read()
        if request.headers.get("content-type") == "application/json":
            body = json.loads(body)
        query = "?" + request.url.query.decode() if request.url.query else ""
        self.requests.append((f"{request.method} {path}{query}", body))
        if self.refusal and request.method != "GET":
            return self.refusal
        if path.endswith("/output") or (path == "/processes" and request.method == "POST"):
            if isinstance(body, dict) and body.get("detach"):
                return httpx.Response(201, json=RUNNING)
            text = "\n".join(json.dumps(event) for event in self.streams.pop(0))
            return httpx.Response(200, content=f"\n{text}\n".encode())
        if path == "/processes":
            return httpx.Response(200, json=[INFO, RUNNING])
        if path == f"/processes/{PRC}" and request.method == "GET":
            return httpx.Response(200, json=INFO)
        if request.method == "GET":
            return httpx.Response(404, json={"error": "no such", "code": "no_such_process"})
        return httpx.Response(204)


def sandbox(service: Service) -> Sandbox:
    return Sandbox(client=Client(transport=httpx.MockTransport(service), retry_seconds=0))


def test_start_sends_its_arguments() -> None:
    service = Service([STARTED, exit_event(0)], [STARTED, exit_event(0)])
    sbx = sandbox(service)
    process = sbx.processes.start("ls | wc")
    assert (process.id, process.pid, process.exit_code) == (PRC, 77, None)
    sbx.processes.start(
        ("ls", "-l"), cwd="/tmp", env={"A": "b"}, user=1000, stdin=True, timeout_seconds=1.5,
        tty=(100, 30),
    )  # fmt: skip
    sbx.processes.start(["a"], detach=True)
    assert service.requests == [
        ("POST /processes", {"command": "ls | wc", "stdin": False}),
        (
            "POST /processes",
            {
                "argv": ["ls", "-l"], "cwd": "/tmp", "env": {"A": "b"}, "user": 1000,
                "stdin": True, "timeout_seconds": 1.5, "tty": {"cols": 100, "rows": 30},
            },
        ),
        ("POST /processes", {"argv": ["a"], "stdin": False, "detach": True}),
    ]  # fmt: skip


def test_events_of_a_process() -> None:
    service = Service(
        [STARTED, output("stdout", b"a\n", 0), output("stderr", b"\xff\xc3", 2), {"type": "new"},
         exit_event(137, signal="SIGKILL", timed_out=True)]
    )  # fmt: skip
    process = sandbox(service).processes.start(["x"])
    events = list(process)
    assert [(e.type, e.data, e.raw, e.place) for e in events] == [
        ("stdout", "a\n", b"a\n", 0),
        ("stderr", "\ufffd\ufffd", b"\xff\xc3", 2),
        ("exit", "", b"", 9),
    ]
    assert (events[-1].exit_code, events[-1].signal, events[-1].timed_out) == (137, "SIGKILL", True)
    assert (process.exit_code, process.place) == (137, 4)


def test_run_returns_the_result() -> None:
    service = Service(
        [STARTED, output("stdout", b"\xc3", 0), output("stderr", b"e", 1),
         output("stdout", b"\xa9", 2), exit_event(3)]
    )  # fmt: skip
    result = sandbox(service).processes.run(["x"])
    assert service.requests[0][1]["hangup"] is True  # it may be left before the id is known
    assert result == ProcessResult(b"\xc3\xa9", b"e", 3)
    assert (result.stdout, result.stderr, result.ok, result.timed_out) == ("\u00e9", "e", False, False)


def test_run_returns_no_more_output_than_the_limit() -> None:
    events = [STARTED, *(output("stdout", b"123", i) for i in range(4)), output("stderr", b"12", 5)]
    limited = sandbox(Service([*events, exit_event(0)])).processes.run(["x"], max_output_bytes=9)
    assert limited == ProcessResult(b"1231231", b"12", 0, truncated=True)
    whole = sandbox(Service([*events, exit_event(0)])).processes.run(["x"], max_output_bytes=14)
    assert whole == ProcessResult(b"123" * 4, b"12", 0)
    with pytest.raises(ValueError, match="max_output_bytes"):
        sandbox(Service([*events, exit_event(0)])).processes.run(["x"], max_output_bytes=-1)


class Interrupted(httpx.SyncByteStream):
    """The output of a program whose user presses Ctrl-C."""

    def __iter__(self) -> Iterator[bytes]:
        yield json.dumps(STARTED).encode() + b"\n"
        raise KeyboardInterrupt


def test_interrupted_run_gives_up_its_kill_after_the_timeout_of_the_client() -> None:
    kills: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "DELETE":
            kills.append(request.extensions["timeout"])
            return httpx.Response(
                503, json={"error": "busy", "code": "busy"}, headers={"retry-after": "3"}
            )
        if request.url.path == "/v1/sandboxes":
            return httpx.Response(201, json={"id": SBX, "state": "ready"})
        return httpx.Response(200, stream=Interrupted())

    client = Client(transport=httpx.MockTransport(answer), timeout=2.5, retry_seconds=1000)
    with pytest.raises(KeyboardInterrupt):
        Sandbox(client=client).processes.run(["x"])
    assert len(kills) == 1 and max(kills[0].values()) <= 2


def test_run_feeds_input() -> None:
    service = Service([STARTED, exit_event(0)])
    data = bytes(3 << 19)
    assert sandbox(service).processes.run(["cat"], input=data).ok
    path = f"/processes/{PRC}/stdin"
    assert service.requests[0][1]["stdin"] is True
    assert [(name, len(body)) for name, body in service.requests[1:]] == [
        (f"POST {path}", 1 << 20), (f"POST {path}", 1 << 19), (f"DELETE {path}", 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "code"), [(409, "stdin_closed"), (409, "stdin_full"), (404, "deleted")]
)
def test_run_ignores_only_that_a_program_does_not_read(status: int, code: str) -> None:
    service = Service([STARTED, exit_event(0)])

    def refuse_input(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/stdin"):
            return httpx.Response(status, json={"error": "no", "code": code})
        return service(request)

    transport = httpx.MockTransport(refuse_input)
    sbx = Sandbox(client=Client(transport=transport, retry_seconds=0))
    kill = (f"DELETE /processes/{PRC}", b"")
    if code == "stdin_closed":
        assert sbx.processes.run(["true"], input="x").ok
        assert kill not in service.requests
    else:
        # The program would wait for the rest of its input forever.
        with pytest.raises(ramet.Conflict if status == 409 else ramet.NotFound):
            sbx.processes.run(["true"], input="x")
        assert service.requests[-1] == kill


def test_writer_waits_longer_for_more_input() -> None:
    timeouts = []

    def note(request: httpx.Request) -> httpx.Response:
        if request.method == "POST" and request.url.path.endswith("/stdin"):
            timeouts.append(request.extensions["timeout"]["read"])
        return service(request)

    service = Service([STARTED, exit_event(0)])
    sbx = Sandbox(client=Client(transport=httpx.MockTransport(note), retry_seconds=0))
    process = sbx.processes.start(["cat"], stdin=True)
    process.write("x")
    process.write(bytes(1 << 20))
    assert timeouts[0] >= 60 and timeouts[1] >= 17 * 30


def test_iteration_continues_after_a_broken_stream() -> None:
    service = Service(
        [STARTED, output("stdout", b"one", 0)], [STARTED, output("stdout", b"two", 3), exit_event(0)]
    )
    process = sandbox(service).processes.start(["x"])
    seen = []
    with pytest.raises(ramet.ConnectionFailed, match="before the process's exit event"):
        for event in process:
            seen.append(event.data)
    assert process.wait().stdout == "two"
    assert service.requests[-1][0] == f"GET /processes/{PRC}/output?since=3"
    assert seen == ["one"]


def test_hangup_is_asked_of_each_stream() -> None:
    service = Service([STARTED], [exit_event(0)])
    process = sandbox(service).processes.start(["x"], hangup=True)
    with pytest.raises(ramet.ConnectionFailed):
        process.wait()
    assert process.wait().ok
    assert service.requests == [
        ("POST /processes", {"argv": ["x"], "stdin": False, "hangup": True}),
        (f"GET /processes/{PRC}/output?since=0&hangup=true", b""),
    ]


def test_loop_that_is_left_early_can_be_continued() -> None:
    service = Service(
        [STARTED, output("stdout", b"one", 0), output("stdout", b"two", 3), exit_event(0)],
        [STARTED, exit_event(0)],
    )
    process = sandbox(service).processes.start(["x"])
    for event in process:
        assert event.data == "one"
        break
    assert process.wait().stdout == "two"
    assert len(service.requests) == 1
    assert process.wait() == ProcessResult(b"", b"", 0)
    assert service.requests[-1][0] == f"GET /processes/{PRC}/output?since=6"


def test_error_in_a_stream() -> None:
    error = {"type": "error", "data": "its VM died", "code": "vm_died", "ts": 1}
    process = sandbox(Service([STARTED, error])).processes.start(["x"])
    with pytest.raises(ramet.VmDied, match="its VM died"):
        process.wait()


def test_text_decodes_across_events() -> None:
    service = Service(
        [STARTED, output("stdout", b"a\xc3", 0), output("stderr", b"x", 2),
         output("stdout", b"\xa9\xe2", 3), exit_event(0)]
    )  # fmt: skip
    assert "".join(sandbox(service).processes.start(["x"]).text()) == "a\u00e9\ufffd"


def test_attach_get_and_list() -> None:
    service = Service([STARTED, output("stdout", b"late", 5), exit_event(0)])
    sbx = sandbox(service)
    process = sbx.processes.attach(PRC, place=5)
    assert (process.pid, process.place) == (77, 5)
    assert process.wait().stdout == "late"
    assert service.requests[-1][0] == f"GET /processes/{PRC}/output?since=5"
    ended, running = sbx.processes.list()
    assert ended == sbx.processes.get(PRC) == process.info()
    assert (ended.running, ended.exit_code, ended.signal, ended.timed_out) == (False, 137, "SIGKILL", True)
    assert (ended.command, ended.user, ended.output_bytes) == ("ls -l", "joe", 9)
    assert (running.running, running.exit_code, running.ended_at) == (True, None, None)
    with pytest.raises(ramet.NotFound):
        sbx.processes.attach("prc_2")


def test_input_signals_and_kill() -> None:
    service = Service([STARTED, exit_event(0)])
    process = sandbox(service).processes.start(["x"], stdin=True)
    service.requests.clear()
    process.write("\u00e9")
    process.write(b"")
    process.close_stdin()
    process.signal("TERM")
    process.signal(9)
    process.kill()
    path = f"/processes/{PRC}"
    assert service.requests == [
        (f"POST {path}/stdin", b"\xc3\xa9"),
        (f"DELETE {path}/stdin", b""),
        (f"POST {path}/signal", {"signal": "TERM"}),
        (f"POST {path}/signal", {"signal": 9}),
        (f"DELETE {path}", b""),
    ]
    service.refusal = httpx.Response(409, json={"error": "ended", "code": "process_ended"})
    with pytest.raises(ramet.Conflict):
        process.signal("TERM")


def test_start_that_is_refused() -> None:
    service = Service()
    service.refusal = httpx.Response(400, json={"error": "no user", "code": "process_failed"})
    for detach in (False, True):
        with pytest.raises(ramet.BadRequest, match="no user"):
            sandbox(service).processes.start(["x"], user="x", detach=detach)


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (exit_event(2), "grep -c x\\u001b: ended with exit code 2: a\\u001b[2J"),
        (exit_event(137, signal="SIGKILL"), "was killed by SIGKILL: a"),
        (exit_event(0, timed_out=True), "was ended at its time limit: a"),
    ],
)
def test_checked_program_that_fails_is_an_error(end: dict[str, Any], message: str) -> None:
    said = [output("stdout", b"out", 0), output("stderr", b"first\na\x1b[2J\n", 3)]
    with pytest.raises(ramet.ProcessFailed) as failed:
        sandbox(Service([STARTED, *said, end])).processes.run(["grep", "-c", "x\x1b"], check=True)
    assert message in str(failed.value)
    assert failed.value.result.stdout == "out"


def test_checked_program_that_succeeds_returns_its_result() -> None:
    streams = [[STARTED, output("stdout", b"out", 0), exit_event(0)] for _ in range(2)]
    processes = sandbox(Service(*streams)).processes
    assert processes.run("true", check=True).stdout == "out"
    assert processes.run("true", input="x", check=True).stdout == "out"


def test_state_of_a_process() -> None:
    assert [one.state for one in sandbox(Service()).processes.list()] == ["ended", "running"]
