# SPDX-License-Identifier: Apache-2.0
"""What both clients of the SDK can do, as scenarios that run against any service.

This file is for the asynchronous client; sdk/python/make_sync.py generates the other one from it.
Each scenario gets a client, a folder in the sandbox that does not exist yet, and a local folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Awaitable, Callable

import httpx
import pytest

import ramet
from ramet import AsyncClient, AsyncPty, AsyncSandbox, SandboxInfo

Scenario = Callable[[AsyncClient, str, Path], Awaitable[None]]

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


async def code(client: AsyncClient, home: str, local: Path) -> None:
    async with await AsyncSandbox.create(client=client, metadata={"scenario": "code"}) as sbx:
        assert (await sbx.run_code("total = 20 + 1")).ok
        out: list[str] = []
        shown: list[Any] = []
        answer = await sbx.run_code("print(total * 2)\ntotal", on_stdout=out.append, on_result=shown.append)
        assert (answer.stdout, answer.text, out) == ("42\n", "21", ["42\n"])
        assert shown == answer.results
        failed = await sbx.run_code("1 / 0", on_error=shown.append)
        assert failed.exit_code == 1 and shown[-1] == failed.error
        assert failed.error and failed.error.name == "ZeroDivisionError"
        answer = await sbx.run_code("echo $A; pwd >&2; exit 3", "bash", env={"A": "b"}, cwd="/")
        assert (answer.stdout, answer.stderr, answer.exit_code) == ("b\n", "/\n", 3)

        stream = sbx.run_code_stream("import time\nprint('up', flush=True)\ntime.sleep(1000)")
        kinds = []
        async for event in stream:
            kinds.append(event.type)
            if event.type == "stdout":
                assert event.data == "up\n"
                await sbx.interrupt()
        assert kinds[0] == "stdout" and kinds[-1] == "exit" and event.code == 130
        assert [one async for one in sbx.follow(since=event.seq - 1)] == [event]
        assert (await sbx.replay())[-1] == event
        assert (await sbx.run_code("while True: pass", timeout_seconds=0.5)).exit_code == 124


async def leaving_a_stream_early(client: AsyncClient, home: str, local: Path) -> None:
    async with await AsyncSandbox.create(client=client) as sbx:
        slow = "import time\nprint(1, flush=True)\ntime.sleep(0.2)"
        async for event in sbx.run_code_stream(slow):
            break
        assert event.data == "1\n"
        assert (await sbx.run_code("print(2)")).stdout == "2\n"


def lasting(info: SandboxInfo) -> dict[str, Any]:
    """Returns all of it but the use of memory, which changes by itself."""
    return {name: value for name, value in info.raw.items() if not name.startswith("memory_")}


async def settings(client: AsyncClient, home: str, local: Path) -> None:
    assert await client.healthz()
    assert "default" in [one.name for one in await client.templates()]
    async with await AsyncSandbox.create(client=client, lifetime_seconds=500) as sbx:
        changed = await sbx.update(metadata={"scenario": sbx.id}, lifetime_seconds=600)
        assert changed.id == sbx.id
        assert lasting(await sbx.info()) == lasting(await client.get_sandbox(sbx.id))
        (found,) = await client.list_sandboxes(metadata={"scenario": sbx.id})
        assert found.id == sbx.id
        assert sbx.id in [one.id async for one in client.iter_sandboxes(state="ready")]
        again = await AsyncSandbox.connect(sbx.id, client=client)
        async with again:
            assert (await again.run_code("print(1)")).stdout == "1\n"
        assert (await sbx.info()).id == sbx.id
        assert (await sbx.metrics())[-1].memory_used_bytes >= 0
    with pytest.raises(ramet.NotFound):
        await again.info()
    await again.close()
    await sbx.close()
    with pytest.raises(ramet.BadRequest, match="lifetime_seconds"):
        await AsyncSandbox.create(client=client, lifetime_seconds=-1)


async def files(client: AsyncClient, home: str, local: Path) -> None:
    big = os.urandom(3_000_000)
    (local / "big").write_bytes(big)
    progress: list[tuple[int, int | None]] = []
    async with await AsyncSandbox.create(client=client) as sbx:
        await sbx.upload(
            local / "big", f"{home}/a/big", progress=lambda *now: progress.append(now)
        )
        assert progress[-1] == (len(big), len(big)) and len(progress) > 5
        assert await sbx.download(f"{home}/a/big") == big
        progress.clear()
        await sbx.download_to(
            f"{home}/a/big", local / "copy", progress=lambda *now: progress.append(now)
        )
        assert (local / "copy").read_bytes() == big and progress[-1] == (len(big), len(big))
        with open(local / "big", "rb") as file:
            file.seek(2_000_000)
            await sbx.files.write(f"{home}/part", file)
        assert await sbx.download(f"{home}/part") == big[2_000_000:]
        await sbx.files.write(f"{home}/part", b"more", append=True)
        assert (await sbx.files.stat(f"{home}/part")).size == 1_000_004

        await sbx.upload(b"#!/bin/sh\n", f"{home}/run", mode=0o755)
        names = [(one.name, one.type) for one in await sbx.files.list(home, depth=2)]
        expected = [("a", "directory"), ("a/big", "file"), ("part", "file"), ("run", "file")]
        assert names == expected
        assert (await sbx.files.stat(f"{home}/run")).mode == 0o755
        await sbx.files.chmod(f"{home}/run", 0o600)
        await sbx.files.chown(f"{home}/run", 0, 0)
        await sbx.files.move(f"{home}/run", f"{home}/moved")
        await sbx.files.mkdir(f"{home}/new/folder", parents=True)
        with pytest.raises(ramet.FileExists):
            await sbx.files.move(f"{home}/part", f"{home}/moved")
        with pytest.raises(ramet.DirectoryNotEmpty):
            await sbx.files.remove(f"{home}/new")
        await sbx.files.remove(f"{home}/new", recursive=True)
        with pytest.raises(ramet.NoSuchFile):
            await sbx.download(f"{home}/run")
        with pytest.raises(ramet.NoSuchFile):
            await sbx.download_to(f"{home}/none", local / "copy")
        assert (local / "copy").read_bytes() == big


async def folders(client: AsyncClient, home: str, local: Path) -> None:
    top = local / "top"
    (top / "sub").mkdir(parents=True)
    (top / "sub" / "big").write_bytes(os.urandom(1_000_000))
    (top / "run").write_bytes(b"#!/bin/sh\n")
    (top / "run").chmod(0o755)
    (top / "link").symlink_to("sub/big")
    progress: list[tuple[int, int | None]] = []
    async with await AsyncSandbox.create(client=client) as sbx:
        await sbx.files.upload_folder(top, home, progress=lambda *now: progress.append(now))
        assert progress[-1] == (1_000_010, 1_000_010)
        progress.clear()
        left = await sbx.files.download_folder(
            home, local / "back", progress=lambda *now: progress.append(now)
        )
        assert left == [] and progress[-1] == (1_000_010, None)
        assert (local / "back" / "link").read_bytes() == (top / "sub" / "big").read_bytes()
        assert (local / "back" / "run").stat().st_mode & 0o777 == 0o755
        with pytest.raises(ramet.RametError, match="more than 500000 bytes"):
            await sbx.files.download_folder(home, local / "less", max_bytes=500_000)

        async with await sbx.files.watch(home, recursive=True) as changes:
            await sbx.files.write(f"{home}/sub/new", b"x", in_place=True)
            async for change in changes:
                if change.type == "create":
                    break
            assert change.path == f"{home}/sub/new"
        with pytest.raises(ramet.NoSuchFile):
            await sbx.files.watch(f"{home}/none")


async def processes(client: AsyncClient, home: str, local: Path) -> None:
    async with await AsyncSandbox.create(client=client) as sbx:
        text = "".join(f"{i}\n" for i in range(400_000))  # more than pipes hold
        counted = await sbx.processes.run(["sort", "-n"], input=text)
        assert counted.stdout == text and counted.ok
        unread = await sbx.processes.run(["true"], input=text)
        assert unread.ok
        missing = await sbx.processes.run(["/no/program"])
        assert missing.exit_code == 127
        late = await sbx.processes.run("sleep 1000", timeout_seconds=0.2)
        assert late.timed_out and late.signal == "SIGTERM"

        cat = await sbx.processes.start(["cat"], stdin=True)
        await cat.write("one\n")
        async for event in cat:
            assert event.data == "one\n"
            break
        await cat.write("two\n")
        await cat.close_stdin()
        rest = await cat.wait()
        assert (rest.stdout, rest.exit_code, cat.exit_code) == ("two\n", 0, 0)

        shell = await sbx.processes.start("echo up; exec sleep 1000", detach=True)
        again = await sbx.processes.attach(shell.id)
        async for part in again.text():
            assert part == "up\n"
            break
        assert (await again.info()).running
        assert shell.id in [one.id for one in await sbx.processes.list()]
        await shell.signal("TERM")
        assert (await again.wait()).signal == "SIGTERM"
        endless = await sbx.processes.start("sleep 1000", detach=True)
        await endless.kill()
        assert (await endless.wait()).exit_code == 137
        with pytest.raises(ramet.NotFound):
            await sbx.processes.attach("prc_" + "0" * 32)


async def contexts(client: AsyncClient, home: str, local: Path) -> None:
    async with await AsyncSandbox.create(client=client) as sbx:
        bash = await sbx.contexts.create("bash", cwd="/tmp", env={"A": "b"})
        await bash.run_code("export MODE=$A; cd /")
        assert (await bash.run_code("pwd; echo $MODE")).stdout == "/\nb\n"
        assert bash.id in [one.id for one in await sbx.contexts.list()]
        again = await sbx.contexts.attach(bash.id)
        async for event in again.run_code_stream("echo up; sleep 1000"):
            if event.type == "stdout":
                assert (event.data, event.context) == ("up\n", bash.id)
                await again.interrupt()
        assert event.type == "exit" and event.code == 130
        await again.restart()
        assert (await bash.run_code("echo $MODE.")).stdout == ".\n"
        assert not (await bash.info()).busy
        await bash.delete()
        with pytest.raises(ramet.NotFound):
            await bash.run_code("true")


async def read_until(pty: AsyncPty, end: bytes) -> bytes:
    output = b""
    while end not in output:
        part = await pty.read(60)
        assert part, output
        output += part
    return output


async def terminals(client: AsyncClient, home: str, local: Path) -> None:
    async with await AsyncSandbox.create(client=client) as sbx:
        pty = await sbx.pty.create(
            "stty size; read line; echo got $line; stty size; exit 7", cols=100, rows=30
        )
        await read_until(pty, b"30 100")
        with pytest.raises(TimeoutError):
            await pty.wait(0)
        await pty.resize(90, 20)
        again = await sbx.pty.attach(pty.id, place=pty.place)
        await pty.send_input("word\r")
        await read_until(again, b"20 90")
        assert await pty.wait() == 7
        output = b"".join([part async for part in pty])
        assert b"got word" in output and pty.exit_code == 7 and pty.lost == 0
        assert pty.id in [one.id for one in await sbx.pty.list()]
        endless = await sbx.pty.create(["sleep", "1000"])
        await endless.kill()
        assert await endless.wait() == 137
        with pytest.raises(ramet.NotFound):
            await sbx.pty.attach("pty_" + "0" * 32)


async def ports(client: AsyncClient, home: str, local: Path) -> None:
    async with await AsyncSandbox.create(client=client) as sbx:
        server = await sbx.processes.start(["python3", "-c", SERVER])
        async for event in server:
            port = int(event.data)
            break
        assert f"{port}" in await sbx.url(port)
        assert [(one.port, one.public) for one in await sbx.ports()] == [(port, False)]
        await sbx.unshare(port)
        assert await sbx.ports() == []
        with pytest.raises(ramet.NotFound):
            await sbx.unshare(port)
        async with await sbx.forward(port) as forward:
            address = f"http://{forward.host}:{forward.port}"
            async with httpx.AsyncClient(base_url=address, trust_env=False, timeout=60) as web:
                for path in ("/one", "/two"):
                    assert (await web.get(path)).text == f"hello from {path}"
        await server.kill()
        await server.wait()
        with pytest.raises(ramet.ServerError) as refused:
            await client.connect_port(sbx.id, port)
        assert refused.value.code == "port_closed"


async def forks(client: AsyncClient, home: str, local: Path) -> None:
    async with await AsyncSandbox.create(client=client) as parent:
        first, second = await parent.fork(2)
        children = await client.list_children(parent.id)
        assert {one.id for one in children} == {first.id, second.id}
        await first.files.write(f"{home}/winner", b"x")
        assert (await first.run_code("print(1)")).stdout == "1\n"
        await parent.diff(first, [os.path.dirname(home)])
        await parent.merge_into(first)
        await first.close()
        with pytest.raises(ramet.NotFound):
            await first.info()
        assert await parent.download(f"{home}/winner") == b"x"
        with pytest.raises(ramet.BadRequest):
            await parent.merge_into(parent)
        await second.close()
        assert await client.list_children(parent.id) == []


async def spaces(client: AsyncClient, home: str, local: Path) -> None:
    async with await AsyncSandbox.create(client=client, persistent=True) as sbx:
        space = await sbx.freeze()
    assert space.id in [one.id for one in await ramet.AsyncSpace.list(client=client)]
    assert space.id in [one.id async for one in client.iter_spaces()]
    assert (await ramet.AsyncSpace.get(space.id, client=client)).id == space.id
    async with await AsyncSandbox.resume(space.id, client=client, timeout_seconds=500) as again:
        assert again.id != sbx.id
        assert (await again.run_code("print(1)")).stdout == "1\n"
        space = await again.freeze()
    (copy,) = await space.fork()
    await copy.close()
    await space.delete()
    with pytest.raises(ramet.NotFound):
        await space.delete()


async def checkpoints(client: AsyncClient, home: str, local: Path) -> None:
    async with await AsyncSandbox.create(client=client) as sbx:
        point = await sbx.checkpoint("before", labels={"step": "1"}, pin=True)
        second = await sbx.checkpoint(ttl_seconds=600)
        assert second.parent == point.id and second.expires_at
        assert [one.id for one in await client.checkpoints(sandbox=sbx.id)] == [point.id, second.id]
        assert [one.id for one in await client.checkpoints(labels={"step": "1"})] == [point.id]
        assert await sbx.rollback(point) is None
        kept = await sbx.rollback(second.id, keep="after")
        assert kept is not None and kept.name == "after"
        assert (await sbx.run_code("print(1)")).stdout == "1\n"
        await kept.delete()
        would = await client.prune_checkpoints(keep=1, sandbox=sbx.id, dry_run=True)
        assert would.checkpoints == []  # the older one is pinned
    for child in await point.fork(2, reseed=True):
        async with child:
            assert (await child.run_code("print(1)")).stdout == "1\n"
    async with await AsyncSandbox.create(checkpoint=point, client=client, egress=False) as again:
        assert (await again.info()).egress is False
        with pytest.raises(ramet.BadRequest):
            await AsyncSandbox.create(checkpoint=point, client=client, ram_mib=4096)
    with pytest.raises(ramet.Conflict) as refused:
        await point.delete()
    assert refused.value.code == "pinned"
    changed = await point.update(score=0.5, name="", pin=False)
    assert (changed.score, changed.name, changed.labels) == (0.5, None, {"step": "1"})
    await changed.delete()
    assert (await client.prune_checkpoints(keep=1, sandbox=sbx.id)).checkpoints == []
    await second.delete()
    with pytest.raises(ramet.NotFound):
        await ramet.AsyncCheckpoint.get(second.id, client=client)


async def audit_log(client: AsyncClient, home: str, local: Path) -> None:
    async with await AsyncSandbox.create(client=client) as sbx:
        point = await sbx.checkpoint()
        await sbx.rollback(point)
        async with await AsyncSandbox.create(checkpoint=point, client=client) as again:
            pass
    events = {one.event: one async for one in client.events() if one.checkpoint == point.id}
    assert events["checkpoint.taken"].sandbox == events["sandbox.rolled_back"].sandbox == sbx.id
    assert events["sandbox.created"].sandbox == again.id
    await point.delete()


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
