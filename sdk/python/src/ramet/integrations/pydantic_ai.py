# SPDX-License-Identifier: Apache-2.0
"""Pydantic AI: `Agent(..., capabilities=[RametWorkspace()])`.

Each run's workspace is a sandbox, whose id is kept in the message history: a later run that gets
the history continues in it. `RametWorkspaceBackend.fork` clones it, so that each branch of a
conversation has a workspace of its own.
"""

from __future__ import annotations

import errno
import posixpath
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, AsyncIterator, Mapping, Sequence

try:
    import anyio
    from pydantic_ai import RunContext
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.tools import AgentDepsT
    from pydantic_ai.workspaces import (
        CommandResult,
        FileEntry,
        WorkspaceBackend,
        WorkspaceCommand,
        WorkspaceOutputLimitError,
        WorkspaceRef,
        WorkspaceTimeoutError,
        WorkspaceUnavailableError,
    )
except ImportError as missing:
    raise ImportError(
        "ramet.integrations.pydantic_ai needs the package pydantic-ai-slim: "
        "pip install './sdk/python[pydantic-ai]' in a checkout of Ramet"
    ) from missing

from ramet import AsyncClient, AsyncSandbox, FileInfo, NotFound, VmDied
from ramet.integrations import _commands
from ramet.integrations._files import UserFiles, enter_folder, file_error
from ramet.integrations._results import MAX_CHECK_BYTES, MAX_READ_BYTES

PROVIDER = "ramet"
"""The `provider` of a `WorkspaceRef` that names a sandbox."""


class RametWorkspaceBackend:
    """A Ramet sandbox as the workspace of a Pydantic AI agent.

    Building the object sends no request. The first operation creates a sandbox, or connects to the
    one that `ref` names. A run does not end the sandbox: `close` does, or its lifetime.

    Args:
        ref: The sandbox to continue in, such as `result.workspace_ref`. None: create one.
        user: User that commands and file operations act as. None: root.
        working_dir: Absolute path of the folder that commands start in; created when missing.
            None: the user's home.
        max_output_bytes: Limit of each stream of a command's output.
        client: The service to use. None: `host` and `api_key` of `sandbox`, or the environment.
        sandbox: For a new sandbox, arguments of `AsyncSandbox.create`, such as `template`.

    Raises:
        ValueError: `ref` is of another provider.
    """

    def __init__(
        self,
        ref: WorkspaceRef | None = None,
        *,
        user: str | None = None,
        working_dir: str | None = None,
        max_output_bytes: int = 8 << 20,
        client: AsyncClient | None = None,
        **sandbox: Any,
    ) -> None:
        if ref is not None and ref.provider != PROVIDER:
            raise ValueError(f"the workspace is of the provider {ref.provider!r}, not {PROVIDER!r}")
        self._ref = ref
        self._user = user
        self._wanted_dir = working_dir
        self._max_output_bytes = max_output_bytes
        self._client = client
        self._options = sandbox
        self._lock = anyio.Lock()
        self._sandbox: AsyncSandbox | None = None
        self._dir: str | None = None

    @property
    def ref(self) -> WorkspaceRef | None:
        """The sandbox as a ref; None until the first operation has created it."""
        return self._ref

    # --- what Ramet adds ---

    async def sandbox(self) -> AsyncSandbox:
        """Returns the sandbox itself, and creates it or connects to it before.

        Raises:
            WorkspaceUnavailableError: The sandbox that the ref names is gone.
        """
        async with self._lock:
            if self._sandbox is not None:
                return self._sandbox
            with anyio.CancelScope(shield=True):  # a sandbox that was created must have an owner
                sandbox = await self._open()
            self._sandbox = sandbox
            self._ref = WorkspaceRef(provider=PROVIDER, id=sandbox.id)
            return sandbox

    async def fork(self, n: int = 1, *, reseed: bool = False) -> "list[RametWorkspaceBackend]":
        """Clones the sandbox while it runs: files, processes, memory.

        Args:
            n: Number of children, all or none.
            reseed: Seed Python's random generators differently in each child.

        Returns:
            The children as workspaces, with the same settings. The caller closes each of them.

        Raises:
            BadRequest: `n` is out of range.
            CapReached, Unavailable: There is no room for so many.
            WorkspaceUnavailableError: This sandbox is gone.
        """
        await self.working_dir()
        async with self._use() as parent:
            return [self._child(child) for child in await parent.fork(n, reseed=reseed)]

    async def merge_into(self, winner: "RametWorkspaceBackend") -> None:
        """Continues as a fork of this sandbox, which ends; the ref stays the same.

        Raises:
            Conflict: The winner is not a fork of this sandbox.
            WorkspaceUnavailableError: One of them is gone.
        """
        other = await winner.sandbox()
        async with self._use() as sandbox:
            await sandbox.merge_into(other)

    async def close(self) -> None:
        """Ends the sandbox. Does nothing if there is none, or if it is gone already."""
        if self._ref is None:
            return
        with suppress(WorkspaceUnavailableError):
            await (await self.sandbox()).close()

    async def __aenter__(self) -> "RametWorkspaceBackend":
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.close()

    def _child(self, sandbox: AsyncSandbox) -> "RametWorkspaceBackend":
        child = RametWorkspaceBackend(
            WorkspaceRef(provider=PROVIDER, id=sandbox.id),
            user=self._user,
            working_dir=self._wanted_dir,
            max_output_bytes=self._max_output_bytes,
        )
        child._sandbox, child._dir = sandbox, self._dir
        return child

    # --- commands ---

    async def working_dir(self) -> str:
        """Returns the absolute path of the working directory, without links.

        Raises:
            OSError: It cannot be created or entered.
            WorkspaceUnavailableError: The sandbox is gone.
        """
        if self._dir is None:
            async with self._use() as sandbox:
                self._dir = await enter_folder(sandbox, self._user, self._wanted_dir)
        return self._dir

    async def run(
        self,
        command: WorkspaceCommand,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        """Runs a command to its end; see `pydantic_ai.workspaces.SupportsCommands`.

        At the time limit, and when the caller is cancelled, its processes are killed, except those
        with a session of their own.

        Raises:
            TypeError: A string without `shell`, or a list with it.
            ValueError: The time limit is not positive.
            WorkspaceTimeoutError: The time limit was reached.
            WorkspaceOutputLimitError: A stream is too long; the command was killed.
            WorkspaceUnavailableError: The sandbox is gone.
        """
        if isinstance(command, str) != shell:
            raise TypeError("a string needs shell=True, and a list of words shell=False")
        if timeout is not None and not 0 < timeout < float("inf"):
            raise ValueError(f"the time limit must be a positive number of seconds, not {timeout}")
        folder = await self.working_dir()
        try:
            async with self._use() as sandbox:
                result = await _commands.run(
                    sandbox,
                    command if isinstance(command, str) else list(command),
                    cwd=folder,
                    env=env,
                    user=self._user,
                    timeout_seconds=timeout,
                    max_output_bytes=self._max_output_bytes,
                )
        except _commands.OutputTooLong as long:
            raise WorkspaceOutputLimitError(
                str(long),
                limit=long.limit,
                stdout=long.stdout.decode(errors="replace"),
                stderr=long.stderr.decode(errors="replace"),
            ) from long
        if result.timed_out:
            raise WorkspaceTimeoutError(
                f"the command did not end within {timeout} s",
                stdout=result.stdout,
                stderr=result.stderr,
            )
        return CommandResult(
            exit_code=result.exit_code, stdout=result.stdout, stderr=result.stderr
        )

    # --- files; see pydantic_ai.workspaces.SupportsFilesystem ---

    async def read_bytes(self, path: str) -> bytes:
        """Returns the content of a file. One of more than 256 MiB is an OSError (EFBIG)."""
        async with self._use() as sandbox:
            return await UserFiles(sandbox, self._user).read(path, max_bytes=MAX_READ_BYTES)

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Writes a file, through links, and creates missing folders."""
        async with self._use() as sandbox:
            await UserFiles(sandbox, self._user).write(path, data)

    async def stat(self, path: str) -> FileEntry:
        """Describes a file or folder; links are followed."""
        async with self._use() as sandbox:
            return _entry(path, await UserFiles(sandbox, self._user).stat(path))

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        """Returns the entries of a folder; links are followed where they lead somewhere."""
        async with self._use() as sandbox:
            user_files = UserFiles(sandbox, self._user)
            entries = []
            for info in await user_files.list(path):
                full = posixpath.join(path, info.name)
                if info.type == "symlink":
                    with suppress(OSError):
                        info = await user_files.stat(full)
                entries.append(_entry(full, info))
            return entries

    async def make_dir(self, path: str) -> None:
        """Creates a folder and those above it. An existing folder is no error."""
        async with self._use() as sandbox:
            await UserFiles(sandbox, self._user).mkdir(path)

    async def remove(self, path: str) -> None:
        """Removes a file, a link, or a folder with its content.

        Raises:
            ValueError: It is the working directory, or a folder above it.
        """
        folder = posixpath.normpath(path)
        used = await self.working_dir()
        if posixpath.commonpath([folder, used]) == folder:
            raise ValueError(
                f"{path} cannot be removed, since it is or contains the working directory {used}: "
                "name what is below that"
            )
        async with self._use() as sandbox:
            await UserFiles(sandbox, self._user).remove(path)

    async def exists(self, path: str) -> bool:
        """Returns whether there is a file or folder; links are followed."""
        try:
            await self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def realpath(self, path: str) -> str:
        """Follows the links in a path, of which the end may be missing.

        Raises:
            OSError: The links form a loop.
        """
        async with self._use() as sandbox:
            result = await sandbox.processes.run(
                ["realpath", "-mz", "--", path],
                user=self._user,
                max_output_bytes=MAX_CHECK_BYTES,
            )
        if not result.ok:
            raise file_error(errno.ELOOP, path)
        return result.stdout.removesuffix("\0")

    # --- the sandbox ---

    async def _open(self) -> AsyncSandbox:
        if self._ref is None:
            return await AsyncSandbox.create(client=self._client, **self._options)
        place: dict[str, Any] = {
            name: self._options.get(name) for name in ("host", "api_key", "region")
        }
        with _unavailable():
            return await AsyncSandbox.connect(self._ref.id, client=self._client, **place)

    @asynccontextmanager
    async def _use(self) -> AsyncIterator[AsyncSandbox]:
        """Yields the sandbox; raises WorkspaceUnavailableError if it turns out to be gone."""
        sandbox = await self.sandbox()
        with _unavailable():
            yield sandbox


class _unavailable:
    """In a `with` block, the end of the sandbox is a WorkspaceUnavailableError."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, (NotFound, VmDied)):
            raise WorkspaceUnavailableError(str(error)) from error


def _entry(path: str, info: FileInfo) -> FileEntry:
    return FileEntry(
        name=posixpath.basename(path),
        path=path,
        is_dir=info.is_dir,
        size=info.size if info.type == "file" else None,
    )


@dataclass
class RametWorkspace(AbstractCapability[AgentDepsT]):
    """Gives each run of an agent a Ramet sandbox as its workspace.

    A run whose message history names a sandbox continues in it, if the key may use it. Do not let
    untrusted people supply the history: it can name any sandbox of the key.

    Args:
        options: Arguments of `RametWorkspaceBackend`, except `ref`.
    """

    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    id: str | None = "ramet_workspace"

    def get_workspace(
        self, ctx: RunContext[AgentDepsT], *, ref: WorkspaceRef | None
    ) -> WorkspaceBackend | None:
        """Returns the workspace of a run; None for the ref of another provider."""
        if ref is not None and ref.provider != PROVIDER:
            return None
        return RametWorkspaceBackend(ref, **self.options)
