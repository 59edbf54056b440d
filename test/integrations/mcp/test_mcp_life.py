# SPDX-License-Identifier: Apache-2.0
"""Do calls run in parallel, end when they are cancelled, and leave nothing behind?"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import anyio
import pytest
from mcp import Client as McpClient

from mcp_clients import (
    ENVIRONMENT,
    NAME,
    PROGRAM,
    anyio_backend,
    ask,
    call,
    connect,
    mine,
    stdio,
    tidy,
    until,
    url,
)
from ramet import Client

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("tidy")]

# A client that another test kills: it makes a sandbox and a fork, and then waits.
DYING_CLIENT = """
import asyncio, sys
from mcp_clients import ask, call, stdio

async def run():
    async with stdio() as client:
        await call(client, "run_code", code="1")
        await ask(client, "fork")
        print("made", flush=True)
        await call(client, "run_command", command="sleep 1000", timeout_seconds=2000)

asyncio.run(run())
"""


async def _squares(client: McpClient, sandbox: str, number: int) -> None:
    if number % 2:
        shown = await call(client, "run_code", code=f"{number} ** 2", sandbox=sandbox)
        assert shown == f"[result]\n{number**2}"
    else:
        command = f"echo $(({number} * {number}))"
        shown = await call(client, "run_command", command=command, sandbox=sandbox)
        assert shown == str(number**2)


async def test_200_parallel_calls_all_get_their_own_answer(connect: Callable[[], Any]) -> None:
    async with connect() as client:
        sandbox = (await ask(client, "create_sandbox", name=NAME))["sandbox"]
        async with anyio.create_task_group() as group:
            for number in range(200):
                group.start_soon(_squares, client, sandbox, number)


async def test_cancelled_code_is_interrupted(connect: Callable[[], Any], client: Client) -> None:
    code = """
import time
try:
    open('/tmp/ramet-mcp-begun', 'w').close()
    time.sleep(1000)
except KeyboardInterrupt:
    open('/tmp/ramet-mcp-ended', 'w').close()
"""
    async with connect() as agent:
        sandbox = (await ask(agent, "create_sandbox", name=NAME))["sandbox"]
        await call(agent, "run_command", command="rm -f /tmp/ramet-mcp-*", sandbox=sandbox)
        await _cancel_when(
            lambda: _exists(client, sandbox, "/tmp/ramet-mcp-begun"),
            lambda: call(agent, "run_code", code=code, sandbox=sandbox, timeout_seconds=2000),
        )
        await until(
            lambda: _exists(client, sandbox, "/tmp/ramet-mcp-ended"), "the code was interrupted"
        )
        assert await call(agent, "run_code", code="1 + 1", sandbox=sandbox) == "[result]\n2"


async def test_cancelled_command_is_killed(connect: Callable[[], Any], client: Client) -> None:
    async with connect() as agent:
        sandbox = (await ask(agent, "create_sandbox", name=NAME))["sandbox"]

        # Stand-ins share one guest, which may have processes of other tests.
        command = "sleep 1004"

        def running() -> bool:
            return any(one.running and command in one.command for one in client.list_processes(sandbox))

        await _cancel_when(
            running,
            lambda: call(agent, "run_command", command=command, sandbox=sandbox),
        )
        await until(lambda: not running(), "the command was killed")


async def test_cancelled_call_that_waits_leaves_the_running_one_alone(client: Client) -> None:
    async with stdio() as agent:
        sandbox = (await ask(agent, "create_sandbox", name=NAME))["sandbox"]
        await call(agent, "run_command", command="rm -f /tmp/ramet-mcp-*", sandbox=sandbox)
        code = """
import os, time
open('/tmp/ramet-mcp-begun', 'w').close()
while not os.path.exists('/tmp/ramet-mcp-go'): time.sleep(0.05)
print('undisturbed')
"""
        async with anyio.create_task_group() as group:
            answers: list[str] = []

            async def first() -> None:
                answers.append(await call(agent, "run_code", code=code, sandbox=sandbox))

            group.start_soon(first)
            await until(lambda: _exists(client, sandbox, "/tmp/ramet-mcp-begun"), "it began")
            with anyio.move_on_after(1):
                await call(agent, "run_code", code="print('second')", sandbox=sandbox)
            client.write_file(sandbox, "/tmp/ramet-mcp-go", b"")
        assert answers == ["undisturbed"]


async def _cancel_when(holds: Callable[[], bool], work: Callable[[], Any]) -> None:
    """Starts a call, and cancels it when the condition holds."""
    task = asyncio.create_task(work())
    await until(lambda: holds() or task.done(), "the call began")
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def _exists(client: Client, sandbox: str, path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return name in [one.name for one in client.list_files(sandbox, folder)]


async def test_end_of_the_session_deletes_its_sandboxes_but_not_kept_ones(
    mine: Callable[[], set[str]],
) -> None:
    async with stdio() as client:
        await call(client, "run_code", code="1")
        await ask(client, "fork")
        await ask(client, "create_sandbox", name=NAME)
        kept = (await ask(client, "create_sandbox", name=NAME, keep=True))["sandbox"]
        child = (await ask(client, "fork", sandbox=kept))["children"]
        assert len(mine()) == 5
    assert mine() == {kept, *child}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_deletes_the_sessions_sandboxes(
    number: signal.Signals, mine: Callable[[], set[str]]
) -> None:
    with subprocess.Popen(
        PROGRAM, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin and server.stdout
        hello = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{},'
        hello += '"protocolVersion":"2025-11-25","clientInfo":{"name":"t","version":"1"}}}\n'
        code = '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_code",'
        code += '"arguments":{"code":"1"}}}\n'
        server.stdin.write(hello)
        server.stdin.flush()
        server.stdout.readline()
        server.stdin.write('{"jsonrpc":"2.0","method":"notifications/initialized"}\n' + code)
        server.stdin.flush()
        server.stdout.readline()
        assert len(mine()) == 1
        server.send_signal(number)
        assert server.wait(60) == 128 + number
    assert not mine()


async def test_nothing_is_left_when_the_client_is_killed(mine: Callable[[], set[str]]) -> None:
    here = str(Path(__file__).parent)
    environment = {**os.environ, **ENVIRONMENT}
    environment["PYTHONPATH"] = os.pathsep.join([here, ENVIRONMENT["PYTHONPATH"]])
    with subprocess.Popen(
        [sys.executable, "-c", DYING_CLIENT], env=environment, stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout and client.stdout.readline() == "made\n"
        assert len(mine()) == 2
        client.kill()
        client.wait()
        await until(lambda: not mine(), "the sandboxes are deleted")
