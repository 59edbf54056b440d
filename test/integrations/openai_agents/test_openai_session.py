# SPDX-License-Identifier: Apache-2.0
"""A session does what the OpenAI Agents SDK asks of its provider."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest
from agents import RunConfig, Runner
from agents.run_config import SandboxRunConfig
from agents.sandbox import Manifest, SandboxAgent
from agents.sandbox.entries import File
from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    ExposedPortUnavailableError,
    InvalidManifestPathError,
    PtySessionNotFoundError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.manifest import Environment
from agents.sandbox.session import SandboxSession
from agents.sandbox.session.sandbox_client import BaseSandboxClientOptions
from agents.testing import ScriptedModel, assistant_message, function_call
from openai_fixtures import anyio_backend, client, nothing_is_left_behind, root, session

from ramet.integrations.openai_agents import (
    RametSandboxClient,
    RametSandboxClientOptions,
    sandbox_of,
)
from ramet.integrations.openai_agents.session import inner_of

__all__ = ["anyio_backend", "client", "nothing_is_left_behind", "root", "session"]
pytestmark = pytest.mark.anyio


async def text(session: SandboxSession, path: str) -> str:
    return str((await session.read(Path(path))).read().decode())


async def test_exec_runs_in_the_workspace_and_separates_output(
    session: SandboxSession, root: str
) -> None:
    result = await session.exec("pwd; echo no >&2; exit 3")
    assert (result.stdout.decode(), result.stderr, result.exit_code) == (f"{root}\n", b"no\n", 3)


async def test_exec_takes_literal_arguments(session: SandboxSession) -> None:
    result = await session.exec("printf", "%s|", "a b", "$HOME", shell=False)
    assert result.stdout == b"a b|$HOME|"


async def test_exec_runs_as_another_user(session: SandboxSession) -> None:
    assert (await session.exec("id -un", user="nobody")).stdout == b"nobody\n"


async def test_exec_has_the_environment_of_the_manifest(
    client: RametSandboxClient, root: str
) -> None:
    manifest = Manifest(root=root, environment=Environment(value={"MODE": "export me"}))
    async with await client.create(manifest=manifest) as session:
        assert (await session.exec("echo $MODE")).stdout == b"export me\n"


async def test_exec_timeout_ends_the_command(session: SandboxSession) -> None:
    with pytest.raises(ExecTimeoutError):
        await session.exec("sleep", "1000", timeout=0.2, shell=False)
    processes = await sandbox_of(session).processes.list()
    assert not [one for one in processes if one.running and one.command.startswith("sleep")]


async def test_cancelled_exec_ends_the_command(session: SandboxSession) -> None:
    task = asyncio.create_task(session.exec("sleep", "1001", shell=False))

    async def sleeping() -> bool:
        found = await sandbox_of(session).processes.list()
        return any(one.running and one.command == "sleep 1001" for one in found)

    while not await sleeping():
        await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    while await sleeping():
        await asyncio.sleep(0.05)


async def test_files_are_written_read_and_listed(session: SandboxSession, root: str) -> None:
    await session.write(Path("a/b.bin"), io.BytesIO(bytes(range(256))))
    assert (await session.read(Path("a/b.bin"))).read() == bytes(range(256))
    assert await session.read_bounded(Path("a/b.bin"), max_bytes=3) == b"\0\1\2"
    assert [entry.path for entry in await session.ls("a")] == [f"{root}/a/b.bin"]
    await session.mv("a/b.bin", "a/c")
    await session.rm("a", recursive=True)
    with pytest.raises(WorkspaceReadNotFoundError):
        await session.read(Path("a/c"))
    with pytest.raises(WorkspaceReadNotFoundError):
        await session.read_bounded(Path("a/c"), max_bytes=1)


async def test_file_written_as_a_user_belongs_to_that_user(
    session: SandboxSession, root: str
) -> None:
    await session.exec("chmod", "777", root, shell=False)
    await session.write(Path("x"), io.BytesIO(b"1"), user="nobody")
    assert (await session.exec("stat", "-c", "%U", "x", shell=False)).stdout == b"nobody\n"
    await session.exec("chmod 600 x; chown root x")
    with pytest.raises(Exception, match="[Pp]ermission denied"):
        await session.write(Path("x"), io.BytesIO(b"2"), user="nobody")


async def test_link_out_of_the_workspace_is_not_followed(session: SandboxSession) -> None:
    await session.exec("ln -s /etc out")
    with pytest.raises(InvalidManifestPathError):
        await session.read(Path("out/passwd"))
    with pytest.raises(InvalidManifestPathError):
        await session.write(Path("out/new"), io.BytesIO(b""))


async def test_manifest_is_written_at_start(client: RametSandboxClient, root: str) -> None:
    manifest = Manifest(root=root, entries={"in/task.txt": File(content=b"do it")})
    async with await client.create(manifest=manifest) as session:
        assert await text(session, "in/task.txt") == "do it"


async def test_mounts_are_refused(client: RametSandboxClient, root: str) -> None:
    from agents.extensions.sandbox.e2b import E2BCloudBucketMountStrategy
    from agents.sandbox.entries import S3Mount

    mount = S3Mount(bucket="b", mount_strategy=E2BCloudBucketMountStrategy())
    with pytest.raises(ValueError, match=f"no mounts: remove {root}/data"):
        await client.create(manifest=Manifest(root=root, entries={"data": mount}))


async def test_endless_output_does_not_fill_the_memory(
    session: SandboxSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ramet.integrations.openai_agents.session._OUTPUT_MAX", 1000)
    result = await session.exec("yes | head -n 100000; echo end >&2")
    assert len(result.stdout) in (996, 1000)  # 996 if what is written to stderr arrives first
    assert result.stderr == b"end\n\n[output beyond 1000 bytes was discarded]\n"


async def test_output_that_nobody_reads_does_not_fill_the_memory(
    session: SandboxSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ramet.integrations.openai_agents.terminals._UNREAD_MAX", 300_000)
    command = "read go; yes | head -n 1000000; echo end; sleep 1003"
    started = await session.pty_exec_start(command, tty=True, yield_time_s=0.3)
    number = started.process_id
    assert number is not None
    terminal = inner_of(session)._terminals._open[number]
    await session.pty_write_stdin(session_id=number, chars="go\n", yield_time_s=0)
    unread = b""
    while not unread.endswith(b"end\r\n"):
        await asyncio.sleep(0.05)
        unread = b"".join(terminal.chunks)
        assert len(unread) <= 300_100
    assert b"[earlier output was discarded]\n" in unread


async def test_terminal_is_typed_on_and_interrupted(session: SandboxSession) -> None:
    started = await session.pty_exec_start("cat", shell=False, tty=True, yield_time_s=0.3)
    assert started.process_id is not None and started.exit_code is None
    output = b""
    while b"hello\r\nhello\r\n" not in output:
        update = await session.pty_write_stdin(
            session_id=started.process_id, chars="" if output else "hello\n", yield_time_s=0.3
        )
        output += update.output
    ended = await session.pty_write_stdin(session_id=started.process_id, chars="\x03")
    while ended.process_id is not None:
        ended = await session.pty_write_stdin(session_id=started.process_id, chars="")
    assert ended.exit_code == 130
    with pytest.raises(PtySessionNotFoundError):
        await session.pty_write_stdin(session_id=started.process_id, chars="")


async def test_process_without_terminal_reports_its_end_and_takes_no_input(
    session: SandboxSession,
) -> None:
    done = await session.pty_exec_start("echo out; echo err >&2; exit 4")
    assert (done.process_id, done.exit_code) == (None, 4)
    assert sorted(done.output.split()) == [b"err", b"out"]
    waiting = await session.pty_exec_start("sleep", "1002", shell=False, yield_time_s=0.3)
    assert waiting.process_id is not None
    with pytest.raises(RuntimeError, match="tty=true"):
        await session.pty_write_stdin(session_id=waiting.process_id, chars="x")


async def test_terminate_all_kills_processes(session: SandboxSession) -> None:
    started = await session.pty_exec_start("sleep", "1003", shell=False, yield_time_s=0.3)
    assert started.process_id is not None
    await session.pty_terminate_all()
    processes = sandbox_of(session).processes
    while any(one.running and one.command == "sleep 1003" for one in await processes.list()):
        await asyncio.sleep(0.05)


async def test_program_that_cannot_be_started_is_an_error(
    session: SandboxSession, root: str
) -> None:
    await session.exec("rm", "-rf", root, shell=False)
    with pytest.raises(ExecTransportError, match="the command was not run: "):
        await session.exec("true")


async def test_exposed_port_leads_to_the_server(client: RametSandboxClient, root: str) -> None:
    import httpx

    options = RametSandboxClientOptions(exposed_ports=(8123,))
    async with await client.create(manifest=Manifest(root=root), options=options) as session:
        await session.write(Path("page"), io.BytesIO(b"a page"))
        server = ["python3", "-m", "http.server", "8123", "--bind", "127.0.0.1"]
        await session.pty_exec_start(*server, shell=False, yield_time_s=0.3)
        end = await session.resolve_exposed_port(8123)
        if end.host == "127.0.0.1":  # the service has no domain for sandboxes
            async with httpx.AsyncClient(base_url=end.url_for("http")) as http:
                while True:
                    try:
                        assert (await http.get("/page")).text == "a page"
                        break
                    except httpx.TransportError:
                        await asyncio.sleep(0.1)
        else:
            assert end.query.startswith("ramet_token=")
        with pytest.raises(ExposedPortUnavailableError):
            await session.resolve_exposed_port(8124)


async def test_port_of_a_service_without_domain_is_forwarded(
    client: RametSandboxClient, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = RametSandboxClientOptions(exposed_ports=(8125,))
    async with await client.create(manifest=Manifest(root=root), options=options) as session:

        async def url(port: int, *, public: bool | None = None) -> str:
            return f"http://service/v1/sandboxes/ID/ports/{port}/?ramet_token=x"

        monkeypatch.setattr(sandbox_of(session), "url", url)
        end = await session.resolve_exposed_port(8125)
        assert (end.host, end.query) == ("127.0.0.1", "")
        assert await session.resolve_exposed_port(8125) == end
        reader, writer = await asyncio.open_connection(end.host, end.port)
        assert await reader.read() == b""  # nothing listens in the sandbox
        writer.close()
    with pytest.raises(OSError):
        await asyncio.open_connection(end.host, end.port)


async def test_agent_runs_commands_in_a_sandbox_that_ends_with_the_run(
    client: RametSandboxClient, root: str
) -> None:
    model = ScriptedModel(
        [
            [function_call("exec_command", {"cmd": "echo 6 >n; expr 7 '*' $(cat n)"}, call_id="1")],
            [assistant_message("42")],
        ]
    )
    agent = SandboxAgent(name="calculator", model=model)
    config = RunConfig(
        sandbox=SandboxRunConfig(client=client, options=None, manifest=Manifest(root=root))
    )
    result = await Runner.run(agent, "What is 6 times 7?", run_config=config)
    outputs = str([one for one in result.to_input_list() if "output" in one])
    assert "exited with code 0" in outputs and "42" in outputs
    tools = {tool.name for tool in model.calls[0].tools}
    assert {"exec_command", "write_stdin", "apply_patch"} <= tools
    model.assert_complete()


async def test_options_are_used_and_survive_json(client: RametSandboxClient, root: str) -> None:
    made = RametSandboxClientOptions(
        lifetime_seconds=600, egress=False, env={"A": "b"}, metadata={"job": 7}, exposed_ports=(80,)
    )
    parsed: Any = BaseSandboxClientOptions.parse(made.model_dump(mode="json"))
    assert parsed == made
    async with await client.create(manifest=Manifest(root=root), options=parsed) as session:
        info = await sandbox_of(session).info()
        assert info.raw["metadata"]["job"] == 7 and info.raw["egress"] is False
        result = await sandbox_of(session).run_code("import os; print(os.environ['A'])")
        assert result.stdout == "b\n"
