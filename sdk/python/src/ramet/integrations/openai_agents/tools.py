# SPDX-License-Identifier: Apache-2.0
"""Tools for agents: Python code with pictures, commands, patches."""

from __future__ import annotations

import asyncio
import base64
import posixpath
from contextlib import suppress
from typing import Callable, Literal

from agents import (
    ApplyPatchTool,
    FunctionTool,
    ShellCallOutcome,
    ShellCommandOutput,
    ShellCommandRequest,
    ShellResult,
    ShellTool,
    Tool,
    ToolOutputImage,
    ToolOutputText,
    apply_diff,
    function_tool,
)
from agents.editor import ApplyPatchOperation, ApplyPatchResult
from agents.sandbox.capabilities import Capability
from agents.sandbox.manifest import Manifest

from ramet import AsyncSandbox
from ramet._cleanup import finish
from ramet.errors import RametError
from ramet.integrations._results import (
    MAX_FILE_BYTES,
    MAX_OUTPUT_BYTES,
    pictures_of,
    shorten,
    text_of,
)
from ramet.integrations.openai_agents.session import sandbox_of
from ramet.types import ExecResult

Output = str | list[ToolOutputText | ToolOutputImage]


def run_code_tool(
    sandbox: AsyncSandbox | Callable[[], AsyncSandbox],
    *,
    timeout_seconds: float | None = 120,
    name: str = "run_code",
) -> FunctionTool:
    """Returns a tool that runs Python or bash in a sandbox; figures come back as pictures.

    Python keeps its variables from call to call, and a fork's children have them too.

    Args:
        sandbox: The sandbox, or a function that returns it at each call. The caller closes it.
        timeout_seconds: Time limit of a call. None: no limit.
        name: The tool's name.
    """
    current = sandbox if callable(sandbox) else lambda: sandbox

    async def run_code(code: str, language: Literal["python", "bash"] = "python") -> Output:
        """Run code in a Linux sandbox and return its output.

        Python is one long-lived process: variables and imports stay from call to call, the value
        of the last expression is returned, and figures are shown. Bash starts anew each time.

        Args:
            code: The source text.
            language: "python" or "bash".
        """
        return output_of(await _run_code(current(), code, language, timeout_seconds))

    return function_tool(run_code, name_override=name)


class PythonCode(Capability):
    """Gives a `SandboxAgent` the tool `run_code`, in the session's own sandbox.

    Args:
        timeout_seconds: Time limit of a call. None: no limit.
    """

    type: Literal["ramet_python"] = "ramet_python"
    timeout_seconds: float | None = 120

    def tools(self) -> list[Tool]:
        """Returns the tool."""
        session = self.session
        if session is None:
            raise ValueError("the capability PythonCode is not bound to a session")
        return [run_code_tool(lambda: sandbox_of(session), timeout_seconds=self.timeout_seconds)]

    async def instructions(self, manifest: Manifest) -> str | None:
        """Returns what the model should know."""
        return (
            "`run_code` runs Python in a process that keeps its variables from call to call. "
            f"Your files are in {manifest.root}."
        )


def output_of(result: ExecResult) -> Output:
    """Returns what the model gets to see of a call: text, and pictures if there are any."""
    text = text_of(result)
    pictures = [
        ToolOutputImage(
            image_url=f"data:{one.media_type};base64,{base64.b64encode(one.data).decode()}"
        )
        for one in pictures_of(result)
    ]
    return [ToolOutputText(text=text), *pictures] if pictures else text


async def _run_code(
    sandbox: AsyncSandbox,
    code: str,
    language: Literal["python", "bash"],
    timeout_seconds: float | None,
) -> ExecResult:
    try:
        return await sandbox.run_code(
            code, language, timeout_seconds=timeout_seconds, max_output_bytes=MAX_OUTPUT_BYTES
        )
    except asyncio.CancelledError:
        await finish(_interrupt(sandbox))  # a call outlives its client
        raise


async def _interrupt(sandbox: AsyncSandbox) -> None:
    with suppress(RametError):
        await sandbox.interrupt()


def shell_tool(
    sandbox: AsyncSandbox, *, cwd: str | None = None, timeout_seconds: float = 120
) -> ShellTool:
    """Returns the SDK's tool for commands, which run in a sandbox.

    Args:
        sandbox: The sandbox. The caller closes it.
        cwd: Working directory. None: that of the sandbox's Python process.
        timeout_seconds: Time limit of a command for which the model sets none.
    """

    async def run(command: str, limit: float) -> ShellCommandOutput:
        result = await sandbox.processes.run(
            command, cwd=cwd, timeout_seconds=limit, max_output_bytes=MAX_OUTPUT_BYTES
        )
        timed_out = result.timed_out
        return ShellCommandOutput(
            stdout=result.stdout,
            stderr=result.stderr,
            outcome=ShellCallOutcome(
                type="timeout" if timed_out else "exit",
                exit_code=None if timed_out else result.exit_code,
            ),
            command=command,
        )

    async def execute(request: ShellCommandRequest) -> ShellResult:
        action = request.data.action
        limit = action.timeout_ms / 1000 if action.timeout_ms else timeout_seconds
        outputs: list[ShellCommandOutput] = []
        for command in action.commands:
            output = await run(command, limit)
            output.stdout = shorten(output.stdout, action.max_output_length)
            output.stderr = shorten(output.stderr, action.max_output_length)
            outputs.append(output)
            if output.outcome.type == "timeout":
                break
        return ShellResult(output=outputs, max_output_length=action.max_output_length)

    return ShellTool(executor=execute)


def apply_patch_tool(sandbox: AsyncSandbox, *, root: str = "/root") -> ApplyPatchTool:
    """Returns the SDK's tool for patches, which change files of a sandbox.

    Args:
        sandbox: The sandbox. The caller closes it.
        root: Folder that relative paths of patches are in.
    """
    return ApplyPatchTool(editor=_Editor(sandbox, root))


class _Editor:
    """Applies the operations of a patch. Failures are for the model to read."""

    def __init__(self, sandbox: AsyncSandbox, root: str) -> None:
        self._files = sandbox.files
        self._root = root

    async def create_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        path = self._path(operation.path)
        try:
            text = apply_diff("", operation.diff or "", mode="create")
            await self._files.upload(text.encode(), path)
        except (RametError, ValueError) as error:
            return _failed(path, error)
        return ApplyPatchResult(status="completed", output=f"created {path}")

    async def update_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        path = self._path(operation.path)
        target = self._path(operation.move_to) if operation.move_to else path
        try:
            before = (await self._files.download(path, max_bytes=MAX_FILE_BYTES)).decode()
            await self._files.upload(apply_diff(before, operation.diff or "").encode(), target)
            if target != path:
                await self._files.remove(path)
        except (RametError, ValueError) as error:
            return _failed(path, error)
        return ApplyPatchResult(status="completed", output=f"updated {target}")

    async def delete_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        path = self._path(operation.path)
        try:
            await self._files.remove(path)
        except RametError as error:
            return _failed(path, error)
        return ApplyPatchResult(status="completed", output=f"deleted {path}")

    def _path(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self._root, path))


def _failed(path: str, error: Exception) -> ApplyPatchResult:
    return ApplyPatchResult(status="failed", output=f"{path}: {error}")
