# SPDX-License-Identifier: Apache-2.0
"""Plain tools, for agents without a sandbox provider."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, AsyncIterator

import pytest
from agents import (
    Agent,
    Runner,
    ShellActionRequest,
    ShellCallData,
    ShellCommandRequest,
    ShellResult,
)
from agents.editor import ApplyPatchOperation, ApplyPatchResult
from agents.run_context import RunContextWrapper
from agents.testing import ScriptedModel, assistant_message, function_call
from openai_fixtures import anyio_backend

from ramet import AsyncSandbox
from ramet.integrations.openai_agents import apply_patch_tool, run_code_tool, shell_tool

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

PICTURE = b"\x89PNG\r\n\x1a\n picture"
SHOW = f"""
class Picture:
    def _repr_png_(self):
        return {PICTURE!r}
print('shown')
Picture()
"""


@pytest.fixture
async def sandbox() -> AsyncIterator[AsyncSandbox]:
    async with await AsyncSandbox.create() as made:
        yield made


async def run(tool: Any, *inputs: dict[str, Any]) -> list[Any]:
    """Runs an agent that calls the tool with each input; returns the outputs."""
    calls = [[function_call(tool.name, one, call_id=str(i))] for i, one in enumerate(inputs)]
    model = ScriptedModel([*calls, [assistant_message("done")]])
    result = await Runner.run(Agent(name="coder", model=model, tools=[tool]), "go")
    model.assert_complete()
    items: list[Any] = result.to_input_list()
    return [one["output"] for one in items if one.get("type") == "function_call_output"]


async def test_code_keeps_its_state_and_reports_errors(sandbox: AsyncSandbox) -> None:
    outputs = await run(
        run_code_tool(sandbox),
        {"code": "x = 20"},
        {"code": "print('x'); x + 1"},
        {"code": "1 / 0"},
        {"code": "echo $((3 * 4)); exit 5", "language": "bash"},
    )
    assert outputs[:2] == ["(no output)", "x\n21"]
    assert "ZeroDivisionError" in outputs[2] and outputs[2].endswith("[exit code 1]")
    assert outputs[3] == "12\n[exit code 5]"


async def test_picture_is_an_image(sandbox: AsyncSandbox) -> None:
    [[text, image]] = await run(run_code_tool(sandbox), {"code": SHOW})
    assert text["text"] == "shown"
    kind, _, data = image["image_url"].partition(",")
    assert kind == "data:image/png;base64" and base64.b64decode(data) == PICTURE


async def test_endless_output_does_not_fill_the_memory(
    sandbox: AsyncSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ramet.integrations.openai_agents.tools.MAX_OUTPUT_BYTES", 1000)
    endless = {"code": "yes | head -n 100000", "language": "bash"}
    (shown,) = await run(run_code_tool(sandbox), endless)
    assert len(shown) < 1100 and shown.startswith("y\ny\n") and shown.endswith("was discarded]")


async def test_long_output_loses_its_middle(sandbox: AsyncSandbox) -> None:
    [output] = await run(run_code_tool(sandbox), {"code": "print('a' * 40000 + 'end')"})
    assert len(output) < 31_000 and "10003 characters left out" in output
    assert output.startswith("aaa") and output.endswith("end")


async def test_code_is_stopped_at_its_time_limit(sandbox: AsyncSandbox) -> None:
    [output] = await run(
        run_code_tool(sandbox, timeout_seconds=1), {"code": "import time; time.sleep(1000)"}
    )
    assert output.endswith("[exit code 124]")


async def test_cancelled_run_interrupts_the_code(sandbox: AsyncSandbox) -> None:
    code = "import time\nprint('started', flush=True)\ntime.sleep(1000)"
    task = asyncio.create_task(run(run_code_tool(sandbox), {"code": code}))
    while not [one for one in await sandbox.replay() if one.data == "started\n"]:
        await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    while True:  # until the interrupt has arrived
        last = (await sandbox.replay())[-1]
        if last.code is not None:
            break
        await asyncio.sleep(0.05)
    assert last.code == 130


def request(*commands: str, **limits: int) -> ShellCommandRequest:
    action = ShellActionRequest(commands=list(commands), **limits)
    return ShellCommandRequest(
        ctx_wrapper=RunContextWrapper(context=None), data=ShellCallData(call_id="1", action=action)
    )


async def test_commands_run_with_limits(sandbox: AsyncSandbox) -> None:
    execute: Any = shell_tool(sandbox, cwd="/tmp").executor
    result: ShellResult = await execute(request("pwd; echo no >&2", "exit 3"))
    first, second = result.output
    assert (first.stdout, first.stderr, first.exit_code) == ("/tmp\n", "no\n", 0)
    assert (second.command, second.exit_code) == ("exit 3", 3)
    result = await execute(request("echo begun; sleep 1000", "echo never", timeout_ms=1000))
    [stopped] = result.output
    assert (stopped.stdout, stopped.status, stopped.exit_code) == ("begun\n", "timeout", None)
    result = await execute(request("seq 1000", max_output_length=100))
    assert result.max_output_length == 100 and "left out" in result.output[0].stdout


async def test_patches_change_files(sandbox: AsyncSandbox) -> None:
    folder = f"/tmp/patches-{sandbox.id}"
    editor: Any = apply_patch_tool(sandbox, root=folder).editor

    async def apply(kind: Any, path: str, diff: str | None = None, to: str | None = None) -> str:
        result = await getattr(editor, kind)(ApplyPatchOperation(kind, path, diff, move_to=to))
        assert isinstance(result, ApplyPatchResult)
        return f"{result.status}: {result.output}"

    assert await apply("create_file", "a.txt", "+one\n+two\n") == (
        f"completed: created {folder}/a.txt"
    )
    assert await apply("update_file", "a.txt", "@@\n one\n-two\n+three\n", "b.txt") == (
        f"completed: updated {folder}/b.txt"
    )
    assert (await sandbox.files.download(f"{folder}/b.txt")).decode().rstrip() == "one\nthree"
    failed = await apply("update_file", "b.txt", "@@\n-nothing\n+x\n")
    assert failed.startswith(f"failed: {folder}/b.txt: ")
    assert (await apply("update_file", "a.txt", "@@\n-x\n+y\n")).startswith("failed: ")
    assert await apply("delete_file", "b.txt") == f"completed: deleted {folder}/b.txt"
    assert [one.name for one in await sandbox.files.list(folder)] == []
