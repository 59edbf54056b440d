# SPDX-License-Identifier: Apache-2.0
"""Deep Agents: `create_deep_agent(backend=RametBackend.create())`.

The agent's commands and file tools work in a sandbox. `RametBackend.fork` clones it, with files,
processes and memory, so that several agents can continue from one prepared state.
"""

from __future__ import annotations

import asyncio
import errno
import posixpath
import threading
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Iterator

try:
    from deepagents.backends.protocol import (
        ExecuteResponse,
        FileDownloadResponse,
        FileUploadResponse,
    )
    from deepagents.backends.sandbox import BaseSandbox
except ImportError as missing:
    raise ImportError(
        "ramet.integrations.deepagents needs the package deepagents: "
        "pip install './sdk/python[deepagents]' in a checkout of Ramet"
    ) from missing

from ramet import Process, RametError, Sandbox
from ramet.integrations._commands import LongCommand
from ramet.integrations._files import (
    Operation,
    check_of,
    file_error,
    file_errors,
    raise_for_check,
)
from ramet.integrations._results import MAX_CHECK_BYTES, MAX_READ_BYTES

_TIMED_OUT = 124  # as `timeout` exits


class RametBackend(BaseSandbox):
    """A Ramet sandbox as the backend of a deep agent.

    The async methods run the sync ones in threads; a cancelled `aexecute` kills its command.

    Args:
        sandbox: The sandbox. Whoever created it closes it, or `close` does.
        user: User that commands and file operations act as. None: root.
        cwd: Working directory of commands. None: that of the user, or of the sandbox's Python
            process.
        timeout_seconds: Time limit of a command that sets none; 0: no limit.
        max_output_bytes: Limit of a command's output. The rest is discarded, and the answer is
            marked as truncated.
    """

    # The guest's bash and coreutils are those that the capture of large output is written for.
    enable_capture_offload = True

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        user: str | None = None,
        cwd: str | None = None,
        timeout_seconds: int = 1800,
        max_output_bytes: int = 8 << 20,
    ) -> None:
        self.sandbox = sandbox
        self._user = user
        self._cwd = cwd
        self._timeout_s = timeout_seconds
        self._max_output_bytes = max_output_bytes

    @classmethod
    def create(
        cls,
        *,
        user: str | None = None,
        cwd: str | None = None,
        timeout_seconds: int = 1800,
        max_output_bytes: int = 8 << 20,
        **sandbox: Any,
    ) -> "RametBackend":
        """Creates a sandbox; close the backend, or use it in a `with` block.

        Args:
            user, cwd, timeout_seconds, max_output_bytes: As for the class.
            sandbox: Arguments of `ramet.Sandbox`, such as `template` and `ram_mib`.

        Raises:
            RametError: As `ramet.Sandbox`.
        """
        return cls(
            Sandbox(**sandbox),
            user=user,
            cwd=cwd,
            timeout_seconds=timeout_seconds,
            max_output_bytes=max_output_bytes,
        )

    @property
    def id(self) -> str:
        """The id of the sandbox."""
        return self.sandbox.id

    # --- what Ramet adds ---

    def fork(self, n: int = 1, *, reseed: bool = False) -> "list[RametBackend]":
        """Clones the sandbox while it runs; see `ramet.Sandbox.fork`.

        Returns:
            The children, with the same settings. The caller closes each of them.
        """
        return [
            RametBackend(
                child,
                user=self._user,
                cwd=self._cwd,
                timeout_seconds=self._timeout_s,
                max_output_bytes=self._max_output_bytes,
            )
            for child in self.sandbox.fork(n, reseed=reseed)
        ]

    def merge_into(self, winner: "RametBackend") -> None:
        """Continues as a fork of this sandbox, which ends; see `ramet.Sandbox.merge_into`."""
        self.sandbox.merge_into(winner.sandbox)

    def close(self) -> None:
        """Ends the sandbox."""
        self.sandbox.close()

    def __enter__(self) -> "RametBackend":
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    # --- commands ---

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a command with bash and returns its output, standard error included.

        Args:
            command: The command line, of any length.
            timeout: Time limit in seconds; 0: none. None: the backend's. At the limit the command
                is killed, and the exit code is 124.

        Raises:
            RametError: The sandbox is gone, or the service does not answer.
        """
        return _Command(self, timeout).run(command)

    async def aexecute(
        self,
        command: str,
        *,
        timeout: int | None = None,  # noqa: ASYNC109
    ) -> ExecuteResponse:
        """Like `execute`. If the caller is cancelled, the command is killed."""
        running = _Command(self, timeout)
        try:
            return await asyncio.to_thread(running.run, command)
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.to_thread(running.kill))
            raise

    # --- files ---

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Writes files, and creates missing folders; see `BaseSandbox.upload_files`."""
        return [FileUploadResponse(path, self._try_upload(path, data)) for path, data in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads files, up to 256 MiB in all; see `BaseSandbox.download_files`."""
        answers, room = [], MAX_READ_BYTES
        for path in paths:
            answers.append(self._try_download(path, room))
            room -= len(answers[-1].content or b"")
        return answers

    def _try_upload(self, path: str, data: bytes) -> str | None:
        try:
            self._check("write", path)
            with file_errors(path):
                # For another user, the check has created the file, which must stay that user's.
                self.sandbox.files.write(path, data, in_place=True)
        except OSError as failed:
            return _error_word(failed)
        return None

    def _try_download(self, path: str, max_bytes: int) -> FileDownloadResponse:
        try:
            self._check("read", path)
            with file_errors(path):
                content = self.sandbox.files.download(path, max_bytes=max_bytes)
                return FileDownloadResponse(path, content)
        except OSError as failed:
            return FileDownloadResponse(path, None, _error_word(failed))

    def _check(self, operation: Operation, path: str) -> None:
        """Raises OSError if the user may not do this, or the path is relative."""
        if not posixpath.isabs(path) or "\0" in path:
            raise file_error(errno.EINVAL, path)
        if self._user is None:
            return
        result = self.sandbox.processes.run(
            check_of(operation, path), user=self._user, max_output_bytes=MAX_CHECK_BYTES
        )
        raise_for_check(result.exit_code, path, result.stderr)


def _error_word(failed: OSError) -> str:
    """Returns the protocol's word for an error, or its message where it has none."""
    if isinstance(failed, FileNotFoundError):
        return "file_not_found"
    if isinstance(failed, IsADirectoryError):
        return "is_directory"
    if isinstance(failed, PermissionError):
        return "permission_denied"
    if failed.errno in (errno.ENOTDIR, errno.EINVAL):
        return "invalid_path"
    return str(failed)


class _Command:
    """One command, which another thread may kill."""

    def __init__(self, backend: RametBackend, timeout: int | None) -> None:
        self._backend = backend
        self._timeout_s = (backend._timeout_s if timeout is None else timeout) or None
        self._lock = threading.Lock()
        self._process: Process | None = None
        self._killed = False

    def run(self, command: str) -> ExecuteResponse:
        sandbox = self._backend.sandbox
        with _in_the_sandbox(sandbox, command) as short:
            with self._lock:
                if self._killed:
                    return ExecuteResponse("", 137)
                self._process = sandbox.processes.start(
                    short,
                    cwd=self._backend._cwd,
                    user=self._backend._user,
                    timeout_seconds=self._timeout_s,
                )
            return self._collect(self._process)

    def kill(self) -> None:
        with self._lock:
            self._killed = True
            if self._process is not None:
                with suppress(RametError):
                    self._process.kill()

    def _collect(self, process: Process) -> ExecuteResponse:
        output, room, truncated = bytearray(), self._backend._max_output_bytes, False
        for event in process:
            if event.type == "exit":
                text = output.decode(errors="replace")
                if event.timed_out:
                    text += f"\nThe command was killed: it took more than {self._timeout_s} s.\n"
                    return ExecuteResponse(text, _TIMED_OUT, truncated)
                return ExecuteResponse(text, event.exit_code, truncated)
            truncated = truncated or len(event.raw) > room - len(output)
            output += event.raw[: room - len(output)]
        raise AssertionError("a stream without an exit event raises")


@contextmanager
def _in_the_sandbox(sandbox: Sandbox, command: str) -> Iterator[str | list[str]]:
    """Yields the command, or one that runs it from a file, which exists meanwhile."""
    long = LongCommand.of(command)
    if long is None:
        yield command
        return
    sandbox.files.upload(long.content, long.path, mode=0o644)
    try:
        yield list(long.argv)
    finally:
        with suppress(RametError):
            sandbox.files.remove(long.path)
