# SPDX-License-Identifier: Apache-2.0
# Generated from test/scenario_async.py by make_sync.py: change that file.
"""What both clients of the SDK can do, as scenarios that run against any service.

This file is for the asynchronous client; sdk/python/make_sync.py generates the other one from it.
Each scenario gets a client, a folder in the sandbox that does not exist yet, and a local folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable

import httpx
import pytest

import ramet
from ramet import Client, Pty, Sandbox, SandboxInfo

Scenario = Callable[[Client, str, Path], None]

SERVER = """
import http.server, os, socketserver
class Site(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello from " + self.path.encode())
with socketserver.TCPServer(("127.0.0.1", 0), Site) as server:
    print(server.server_address[1], flush=True)
    server.serve_forever()
"""


def code(client: Client, home: str, local: Path) -> None:
    with Sandbox(client=client, metadata={"scenario": "code"}) as sbx:
        assert (sbx.run_code("total = 20 + 1")).ok
        out: list[str] = []
        shown: list[Any] = []
        answer = sbx.run_code("print(total * 2)\ntotal", on_stdout=out.append, on_result=shown.append)
        assert (answer.stdout, answer.text, out) == ("42\n", "21", ["42\n"])
        assert shown == answer.results
        failed = sbx.run_code("1 / 0", on_error=shown.append)
        assert failed.exit_code == 1 and shown[-1] == failed.error
        assert failed.error and failed.error.name == "ZeroDivisionError"
        answer = sbx.run_code("echo $A; pwd >&2; exit 3", "bash", env={"A": "b"}, cwd="/")
        assert (answer.stdout, answer.stderr, answer.exit_code) == ("b\n", "/\n", 3)

        stream = sbx.run_code_stream("import time\nprint('up', flush=True)\ntime.sleep(1000)")
        kinds = []
        for event in stream:
            kinds.append(event.type)
            if event.type == "stdout":
                assert event.data == "up\n"
                sbx.interrupt()
        assert kinds[0] == "stdout" and kinds[-1] == "exit" and event.code == 130
        assert [one for one in sbx.follow(since=event.seq - 1)] == [event]
        assert (sbx.replay())[-1] == event
        assert (sbx.run_code("while True: pass", timeout_seconds=0.5)).exit_code == 124


def leaving_a_stream_early(client: Client, home: str, local: Path) -> None:
    with Sandbox(client=client) as sbx:
        slow = "import time\nprint(1, flush=True)\ntime.sleep(0.2)"
        for event in sbx.run_code_stream(slow):
            break
        assert event.data == "1\n"
        assert (sbx.run_code("print(2)")).stdout == "2\n"


def lasting(info: SandboxInfo) -> dict[str, Any]:
    """Returns all of it but the use of memory, which changes by itself."""
    return {name: value for name, value in info.raw.items() if not name.startswith("memory_")}


def settings(client: Client, home: str, local: Path) -> None:
    assert client.healthz()
    assert "default" in [one.name for one in client.templates()]
    with Sandbox(client=client, lifetime_seconds=500) as sbx:
        changed = sbx.update(metadata={"scenario": sbx.id}, lifetime_seconds=600)
        assert changed.id == sbx.id
        assert lasting(sbx.info()) == lasting(client.get_sandbox(sbx.id))
        (found,) = client.list_sandboxes(metadata={"scenario": sbx.id})
        assert found.id == sbx.id
        assert sbx.id in [one.id for one in client.iter_sandboxes(state="ready")]
        again = Sandbox.connect(sbx.id, client=client)
        with again:
            assert (again.run_code("print(1)")).stdout == "1\n"
        assert (sbx.info()).id == sbx.id
        assert (sbx.metrics())[-1].memory_used_bytes >= 0
    with pytest.raises(ramet.NotFound):
        again.info()
    again.close()
    sbx.close()
    with pytest.raises(ramet.BadRequest, match="lifetime_seconds"):
        Sandbox(client=client, lifetime_seconds=-1)


def files(client: Client, home: str, local: Path) -> None:
    big = os.urandom(3_000_000)
    (local / "big").write_bytes(big)
    progress: list[tuple[int, int | None]] = []
    with Sandbox(client=client) as sbx:
        sbx.upload(
            local / "big", f"{home}/a/big", progress=lambda *now: progress.append(now)
        )
        assert progress[-1] == (len(big), len(big)) and len(progress) > 5
        assert sbx.download(f"{home}/a/big") == big
        progress.clear()
        sbx.download_to(
            f"{home}/a/big", local / "copy", progress=lambda *now: progress.append(now)
        )
        assert (local / "copy").read_bytes() == big and progress[-1] == (len(big), len(big))
        with open(local / "big", "rb") as file:
            file.seek(2_000_000)
            sbx.files.write(f"{home}/part", file)
        assert sbx.download(f"{home}/part") == big[2_000_000:]
        sbx.files.write(f"{home}/part", b"more", append=True)
        assert (sbx.files.stat(f"{home}/part")).size == 1_000_004

        sbx.upload(b"#!/bin/sh\n", f"{home}/run", mode=0o755)
        names = [(one.name, one.type) for one in sbx.files.list(home, depth=2)]
        expected = [("a", "directory"), ("a/big", "file"), ("part", "file"), ("run", "file")]
        assert names == expected
        assert (sbx.files.stat(f"{home}/run")).mode == 0o755
        sbx.files.chmod(f"{home}/run", 0o600)
        sbx.files.chown(f"{home}/run", 0, 0)
        sbx.files.move(f"{home}/run", f"{home}/moved")
        sbx.files.mkdir(f"{home}/new/folder", parents=True)
        with pytest.raises(ramet.FileExists):
            sbx.files.move(f"{home}/part", f"{home}/moved")
        with pytest.raises(ramet.DirectoryNotEmpty):
            sbx.files.remove(f"{home}/new")
        sbx.files.remove(f"{home}/new", recursive=True)
        with pytest.raises(ramet.NoSuchFile):
            sbx.download(f"{home}/run")
        with pytest.raises(ramet.NoSuchFile):
            sbx.download_to(f"{home}/none", local / "copy")
        assert (local / "copy").read_bytes() == big


def folders(client: Client, home: str, local: Path) -> None:
    top = local / "top"
    (top / "sub").mkdir(parents=True)
    (top / "sub" / "big").write_bytes(os.urandom(1_000_000))
    (top / "run").write_bytes(b"#!/bin/sh\n")
    (top / "run").chmod(0o755)
    (top / "link").symlink_to("sub/big")
    progress: list[tuple[int, int | None]] = []
    with Sandbox(client=client) as sbx:
        sbx.files.upload_folder(top, home, progress=lambda *now: progress.append(now))
        assert progress[-1] == (1_000_010, 1_000_010)
        progress.clear()
        left = sbx.files.download_folder(
            home, local / "back", progress=lambda *now: progress.append(now)
        )
        assert left == [] and progress[-1] == (1_000_010, None)
        assert (local / "back" / "link").read_bytes() == (top / "sub" / "big").read_bytes()
        assert (local / "back" / "run").stat().st_mode & 0o777 == 0o755
        with pytest.raises(ramet.RametError, match="more than 500000 bytes"):
            sbx.files.download_folder(home, local / "less", max_bytes=500_000)

        with sbx.files.watch(home, recursive=True) as changes:
            sbx.files.write(f"{home}/sub/new", b"x", in_place=True)
            for change in changes:
                if change.type == "create":
                    break
            assert change.path == f"{home}/sub/new"
        with pytest.raises(ramet.NoSuchFile):
            sbx.files.watch(f"{home}/none")


def processes(client: Client, home: str, local: Path) -> None:
    with Sandbox(client=client) as sbx:
        text = "".join(f"{i}\n" for i in range(400_000))  # more than pipes hold
        counted = sbx.processes.run(["sort", "-n"], input=text)
        assert counted.stdout == text and counted.ok
        unread = sbx.processes.run(["true"], input=text)
        assert unread.ok
        missing = sbx.processes.run(["/no/program"])
        assert missing.exit_code == 127
        late = sbx.processes.run("sleep 1000", timeout_seconds=0.2)
        assert late.timed_out and late.signal == "SIGTERM"

        cat = sbx.processes.start(["cat"], stdin=True)
        cat.write("one\n")
        for event in cat:
            assert event.data == "one\n"
            break
        cat.write("two\n")
        cat.close_stdin()
        rest = cat.wait()
        assert (rest.stdout, rest.exit_code, cat.exit_code) == ("two\n", 0, 0)

        shell = sbx.processes.start("echo up; exec sleep 1000", detach=True)
        again = sbx.processes.attach(shell.id)
        for part in again.text():
            assert part == "up\n"
            break
        assert (again.info()).running
        assert shell.id in [one.id for one in sbx.processes.list()]
        shell.signal("TERM")
        assert (again.wait()).signal == "SIGTERM"
        endless = sbx.processes.start("sleep 1000", detach=True)
        endless.kill()
        assert (endless.wait()).exit_code == 137
        with pytest.raises(ramet.NotFound):
            sbx.processes.attach("prc_" + "0" * 32)


def contexts(client: Client, home: str, local: Path) -> None:
    with Sandbox(client=client) as sbx:
        bash = sbx.contexts.create("bash", cwd="/tmp", env={"A": "b"})
        bash.run_code("export MODE=$A; cd /")
        assert (bash.run_code("pwd; echo $MODE")).stdout == "/\nb\n"
        assert bash.id in [one.id for one in sbx.contexts.list()]
        again = sbx.contexts.attach(bash.id)
        for event in again.run_code_stream("echo up; sleep 1000"):
            if event.type == "stdout":
                assert (event.data, event.context) == ("up\n", bash.id)
                again.interrupt()
        assert event.type == "exit" and event.code == 130
        again.restart()
        assert (bash.run_code("echo $MODE.")).stdout == ".\n"
        assert not (bash.info()).busy
        bash.delete()
        with pytest.raises(ramet.NotFound):
            bash.run_code("true")


def read_until(pty: Pty, end: bytes) -> bytes:
    output = b""
    while end not in output:
        part = pty.read(60)
        assert part, output
        output += part
    return output


def terminals(client: Client, home: str, local: Path) -> None:
    with Sandbox(client=client) as sbx:
        pty = sbx.pty.create(
            "stty size; read line; echo got $line; stty size; exit 7", cols=100, rows=30
        )
        read_until(pty, b"30 100")
        with pytest.raises(TimeoutError):
            pty.wait(0)
        pty.resize(90, 20)
        again = sbx.pty.attach(pty.id, place=pty.place)
        pty.send_input("word\r")
        read_until(again, b"20 90")
        assert pty.wait() == 7
        output = b"".join([part for part in pty])
        assert b"got word" in output and pty.exit_code == 7 and pty.lost == 0
        assert pty.id in [one.id for one in sbx.pty.list()]
        endless = sbx.pty.create(["sleep", "1000"])
        endless.kill()
        assert endless.wait() == 137
        with pytest.raises(ramet.NotFound):
            sbx.pty.attach("pty_" + "0" * 32)


def ports(client: Client, home: str, local: Path) -> None:
    with Sandbox(client=client) as sbx:
        server = sbx.processes.start(["python3", "-c", SERVER])
        for event in server:
            port = int(event.data)
            break
        assert f"{port}" in sbx.url(port)
        assert [(one.port, one.public) for one in sbx.ports()] == [(port, False)]
        sbx.unshare(port)
        assert sbx.ports() == []
        with pytest.raises(ramet.NotFound):
            sbx.unshare(port)
        with sbx.forward(port) as forward:
            address = f"http://{forward.host}:{forward.port}"
            with httpx.Client(base_url=address, trust_env=False, timeout=60) as web:
                for path in ("/one", "/two"):
                    assert (web.get(path)).text == f"hello from {path}"
        server.kill()
        server.wait()
        with pytest.raises(ramet.ServerError) as refused:
            client.connect_port(sbx.id, port)
        assert refused.value.code == "port_closed"


def forks(client: Client, home: str, local: Path) -> None:
    with Sandbox(client=client) as parent:
        first, second = parent.fork(2)
        children = client.list_children(parent.id)
        assert {one.id for one in children} == {first.id, second.id}
        first.files.write(f"{home}/winner", b"x")
        assert (first.run_code("print(1)")).stdout == "1\n"
        parent.diff(first, [os.path.dirname(home)])
        parent.merge_into(first)
        first.close()
        with pytest.raises(ramet.NotFound):
            first.info()
        assert parent.download(f"{home}/winner") == b"x"
        with pytest.raises(ramet.BadRequest):
            parent.merge_into(parent)
        second.close()
        assert client.list_children(parent.id) == []


def spaces(client: Client, home: str, local: Path) -> None:
    with Sandbox(client=client, persistent=True) as sbx:
        space = sbx.freeze()
    assert space.id in [one.id for one in ramet.Space.list(client=client)]
    assert space.id in [one.id for one in client.iter_spaces()]
    assert (ramet.Space.get(space.id, client=client)).id == space.id
    with Sandbox.resume(space.id, client=client, timeout_seconds=500) as again:
        assert again.id != sbx.id
        assert (again.run_code("print(1)")).stdout == "1\n"
        space = again.freeze()
    (copy,) = space.fork()
    copy.close()
    space.delete()
    with pytest.raises(ramet.NotFound):
        space.delete()


def checkpoints(client: Client, home: str, local: Path) -> None:
    with Sandbox(client=client) as sbx:
        point = sbx.checkpoint("before", labels={"step": "1"}, pin=True)
        second = sbx.checkpoint(ttl_seconds=600)
        assert second.parent == point.id and second.expires_at
        assert [one.id for one in client.checkpoints(sandbox=sbx.id)] == [point.id, second.id]
        assert [one.id for one in client.checkpoints(labels={"step": "1"})] == [point.id]
        assert sbx.rollback(point) is None
        kept = sbx.rollback(second.id, keep="after")
        assert kept is not None and kept.name == "after"
        assert (sbx.run_code("print(1)")).stdout == "1\n"
        kept.delete()
        would = client.prune_checkpoints(keep=1, sandbox=sbx.id, dry_run=True)
        assert would.checkpoints == []  # the older one is pinned
    for child in point.fork(2, reseed=True):
        with child:
            assert (child.run_code("print(1)")).stdout == "1\n"
    with Sandbox(checkpoint=point, client=client, egress=False) as again:
        assert (again.info()).egress is False
        with pytest.raises(ramet.BadRequest):
            Sandbox(checkpoint=point, client=client, ram_mib=4096)
    with pytest.raises(ramet.Conflict) as refused:
        point.delete()
    assert refused.value.code == "pinned"
    changed = point.update(score=0.5, name="", pin=False)
    assert (changed.score, changed.name, changed.labels) == (0.5, None, {"step": "1"})
    changed.delete()
    assert (client.prune_checkpoints(keep=1, sandbox=sbx.id)).checkpoints == []
    second.delete()
    with pytest.raises(ramet.NotFound):
        ramet.Checkpoint.get(second.id, client=client)


def audit_log(client: Client, home: str, local: Path) -> None:
    with Sandbox(client=client) as sbx:
        point = sbx.checkpoint()
        sbx.rollback(point)
        with Sandbox(checkpoint=point, client=client) as again:
            pass
    events = {one.event: one for one in client.events() if one.checkpoint == point.id}
    assert events["checkpoint.taken"].sandbox == events["sandbox.rolled_back"].sandbox == sbx.id
    assert events["sandbox.created"].sandbox == again.id
    point.delete()


SCENARIOS = (
    code,
    leaving_a_stream_early,
    settings,
    files,
    folders,
    processes,
    contexts,
    terminals,
    ports,
    forks,
    spaces,
    checkpoints,
    audit_log,
)
