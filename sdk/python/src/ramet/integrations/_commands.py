# SPDX-License-Identifier: Apache-2.0
"""Commands of agent frameworks: of any size, with bounded output, stopped on cancellation."""

from __future__ import annotations

import uuid
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import AsyncIterator, Mapping, Sequence

import anyio

from ramet import AsyncProcess, AsyncSandbox, ProcessResult, RametError

# A request that starts a process has room for 64 KiB, environment included. Longer commands are
# passed in a file.
_INLINE_MAX = 40 << 10
_RUN_ARGV = 'mapfile -d "" -t command <"$0" && exec "${command[@]}"'
_RUN_SCRIPT = 'command=$(<"$0") && eval "$command"'

_KILL_TIMEOUT_S = 10


@dataclass(frozen=True)
class LongCommand:
    """A command that does not fit into a request.

    Attributes:
        path: The file in the sandbox that must have `content` while the command starts.
        content: The words of the command, or the script.
        argv: Runs the command from that file.
    """

    path: str
    content: bytes
    argv: Sequence[str]

    @classmethod
    def of(cls, command: str | Sequence[str]) -> "LongCommand | None":
        """Returns the command as a file, or None if it fits into a request."""
        if isinstance(command, str):
            content, loader = command.encode(), _RUN_SCRIPT
        else:
            content, loader = b"".join(word.encode() + b"\0" for word in command), _RUN_ARGV
        if len(content) <= _INLINE_MAX:
            return None
        path = f"/tmp/.ramet-command-{uuid.uuid4().hex}"
        return cls(path, content, ["/bin/bash", "-c", loader, path])


class OutputTooLong(Exception):
    """A stream of a program's output exceeded its limit; the program was killed.

    Attributes:
        limit: The limit in bytes.
        stdout: The beginning of standard output, up to the limit.
        stderr: The beginning of standard error, up to the limit.
    """

    def __init__(self, limit: int, stdout: bytes, stderr: bytes) -> None:
        super().__init__(f"the command printed more than {limit} bytes")
        self.limit = limit
        self.stdout = stdout[:limit]
        self.stderr = stderr[:limit]


async def run(
    sandbox: AsyncSandbox,
    command: str | Sequence[str],
    *,
    input: bytes | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    user: str | None = None,
    timeout_seconds: float | None = None,
    max_output_bytes: int,
) -> ProcessResult:
    """Runs a program to its end. If the caller is cancelled, the program is killed.

    Args:
        sandbox: Where it runs.
        command: A list is a program and its arguments; a string is run by bash. Of any size that
            the sandbox's kernel accepts.
        input: What it reads from standard input. None: the end of the file.
        cwd: Working directory. None: as for `AsyncProcesses.start`.
        env: Environment variables in addition to the usual ones.
        user: User to run as. None: root.
        timeout_seconds: Time limit; the result's `timed_out` says that it was reached.
        max_output_bytes: Limit of each stream.

    Raises:
        OutputTooLong: A stream exceeded the limit.
        BadRequest: The user does not exist, or the folder cannot be entered.
        NotFound, VmDied: The sandbox is gone.
    """
    async with _in_the_sandbox(sandbox, command) as short:
        # Without the shield, a cancelled start could leave a program that nobody knows.
        with anyio.CancelScope(shield=True):
            process = await sandbox.processes.start(
                short,
                cwd=cwd,
                env=env,
                user=user,
                stdin=input is not None,
                timeout_seconds=timeout_seconds,
            )
        try:
            return await _finish(process, input, max_output_bytes)
        except BaseException:
            with anyio.move_on_after(_KILL_TIMEOUT_S, shield=True), suppress(RametError):
                await process.kill()
            raise


@asynccontextmanager
async def _in_the_sandbox(
    sandbox: AsyncSandbox, command: str | Sequence[str]
) -> AsyncIterator[str | Sequence[str]]:
    """Yields the command, or one that runs it from a file, which exists meanwhile."""
    long = LongCommand.of(command)
    if long is None:
        yield command
        return
    await sandbox.files.upload(long.content, long.path, mode=0o644)
    try:
        yield long.argv
    finally:
        with anyio.move_on_after(_KILL_TIMEOUT_S, shield=True), suppress(RametError):
            await sandbox.files.remove(long.path)


async def _finish(
    process: AsyncProcess, input: bytes | None, max_output_bytes: int
) -> ProcessResult:
    if input is None:
        return await _collect(process, max_output_bytes)
    results: list[ProcessResult] = []
    errors: list[Exception] = []

    async def collect() -> None:
        try:
            results.append(await _collect(process, max_output_bytes))
        except (RametError, OutputTooLong) as failed:
            errors.append(failed)
        tasks.cancel_scope.cancel()  # nobody reads the rest of the input

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_feed, process, input, errors)
        tasks.start_soon(collect)
    if errors:
        raise errors[0]
    return results[0]


async def _feed(process: AsyncProcess, input: bytes, errors: list[Exception]) -> None:
    """Writes the input. A program may end, or close its input, before it has read everything."""
    try:
        await process.write(input)
        await process.close_stdin()
    except RametError as failed:
        if failed.code == "stdin_closed":
            return
        errors.append(failed)
        with suppress(RametError):
            await process.kill()  # it would wait for the rest forever


async def _collect(process: AsyncProcess, max_output_bytes: int) -> ProcessResult:
    output = {"stdout": bytearray(), "stderr": bytearray()}
    too_long = False
    async for event in process:
        if event.type == "exit":
            out, err = bytes(output["stdout"]), bytes(output["stderr"])
            if too_long:
                raise OutputTooLong(max_output_bytes, out, err)
            return ProcessResult(out, err, event.exit_code or 0, event.signal, event.timed_out)
        stream = output[event.type]
        stream += event.raw[: max_output_bytes + 1 - len(stream)]
        if len(stream) > max_output_bytes and not too_long:
            too_long = True
            await process.kill()  # reading the stream to its end then closes it
    raise AssertionError("a stream without an exit event raises")
