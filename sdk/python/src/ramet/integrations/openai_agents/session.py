# SPDX-License-Identifier: Apache-2.0
"""A session of the OpenAI Agents SDK whose sandbox is a microVM."""

from __future__ import annotations

import asyncio
import io
import logging
import posixpath
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Sequence
from urllib.parse import urlsplit
from uuid import uuid4

from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    ExposedPortUnavailableError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceStartError,
    WorkspaceWriteTypeError,
)
from agents.sandbox.session import SandboxSession
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.pty_types import PtyExecUpdate
from agents.sandbox.session.runtime_helpers import (
    RESOLVE_WORKSPACE_PATH_HELPER,
    RuntimeHelperScript,
)
from agents.sandbox.session.tar_workspace import shell_tar_exclude_args
from agents.sandbox.snapshot import NoopSnapshot
from agents.sandbox.types import ExecResult, ExposedPortEndpoint, User
from agents.sandbox.util.tar_utils import UnsafeTarMemberError, validate_tar_bytes
from agents.sandbox.workspace_paths import coerce_posix_path, posix_path_as_path, sandbox_path_str

from ramet import AsyncClient, AsyncForward, AsyncSandbox
from ramet._cleanup import finish
from ramet.errors import (
    CapReached,
    ConnectionFailed,
    NoSuchFile,
    NotFound,
    RametError,
    Unavailable,
    VmDied,
)
from ramet.integrations._results import MAX_READ_BYTES
from ramet.integrations.openai_agents import snapshots
from ramet.integrations.openai_agents.options import RametSandboxSessionState
from ramet.integrations.openai_agents.terminals import Checkpoint, Terminals

log = logging.getLogger(__name__)

_TRANSIENT = (CapReached, ConnectionFailed, Unavailable)
_LEAST_TIMEOUT_S = 0.001
_ARCHIVE_MAX = 2 << 30  # bytes of a snapshot that is an archive, which is kept in memory
_OUTPUT_MAX = 64 << 20  # bytes of a command's output that are read into memory


class RametSandboxSession(BaseSandboxSession):
    """One sandbox, as the OpenAI Agents SDK uses it. `RametSandboxClient` makes them.

    Attributes:
        state: The serializable state.
        sandbox: The sandbox: for `run_code`, and all else that the agents SDK has no word for.
        branches: Children that wait for a decision, by number; see `Branches`.
    """

    state: RametSandboxSessionState

    def __init__(
        self, state: RametSandboxSessionState, sandbox: AsyncSandbox, client: AsyncClient
    ) -> None:
        self.state = state
        self.sandbox = sandbox
        self.branches: dict[int, RametSandboxSession] = {}
        self._client = client
        self._terminals = Terminals()
        self._forwards: dict[int, AsyncForward] = {}
        self._merged = False

    # Commands

    async def exec(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: str | User | None = None,
    ) -> ExecResult:
        """Runs a command to its end, see `BaseSandboxSession.exec`. `user` needs no sudo."""
        argv = self._prepare_exec_command(*command, shell=shell, user=None)
        return await self._run(argv, timeout=timeout, user=_name(user))

    async def _exec_internal(
        self, *command: str | Path, timeout: float | None = None
    ) -> ExecResult:
        return await self._run([str(word) for word in command], timeout=timeout)

    async def _run(
        self,
        argv: Sequence[str],
        *,
        timeout: float | None = None,
        user: str | None = None,
        data: bytes | None = None,
        max_output_bytes: int | None = None,
    ) -> ExecResult:
        limit = None if timeout is None else max(timeout, _LEAST_TIMEOUT_S)
        most = _OUTPUT_MAX if max_output_bytes is None else max_output_bytes
        try:
            result = await self.sandbox.processes.run(
                list(argv),
                input=data,
                cwd=self._root(),
                env=await self._env(),
                user=user,
                timeout_seconds=limit,
                max_output_bytes=most,
            )
        except RametError as error:
            raise _exec_error(argv, error) from error
        if result.timed_out:
            raise ExecTimeoutError(command=tuple(argv), timeout_s=timeout)
        note = b"\n[output beyond %d bytes was discarded]\n" % most
        return ExecResult(
            stdout=result.stdout_bytes,
            stderr=result.stderr_bytes + (note if result.truncated else b""),
            exit_code=result.exit_code,
        )

    # Interactive processes

    def supports_pty(self) -> bool:
        """True: the model gets `write_stdin`."""
        return True

    async def pty_exec_start(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: str | User | None = None,
        tty: bool = False,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        """Starts a program, on a terminal if `tty`, and returns its first output."""
        argv = self._prepare_exec_command(*command, shell=shell, user=None)
        try:
            return await self._terminals.start(
                self.sandbox,
                argv,
                cwd=self._root(),
                env=await self._env(),
                user=_name(user),
                tty=tty,
                timeout=timeout,
                yield_s=yield_time_s,
                max_tokens=max_output_tokens,
            )
        except RametError as error:
            raise _exec_error(argv, error) from error

    async def pty_write_stdin(
        self,
        *,
        session_id: int,
        chars: str,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        """Types on the terminal of a process, and returns its output since the last call."""
        try:
            return await self._terminals.write(
                session_id, chars, yield_s=yield_time_s, max_tokens=max_output_tokens
            )
        except RametError as error:
            raise _exec_error(("write_stdin", str(session_id)), error) from error

    async def pty_terminate_all(self) -> None:
        """Kills all processes that `pty_exec_start` started."""
        await self._terminals.kill_all()

    # Files

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        """Returns the content of a file of the workspace, which may have up to 256 MiB."""
        if user is not None:
            inside = await self._check_read_with_exec(path, user=user)
        else:
            inside = await self._validate_path_access(path)
        try:
            return io.BytesIO(
                await self.sandbox.files.download(
                    sandbox_path_str(inside), max_bytes=MAX_READ_BYTES
                )
            )
        except NoSuchFile as error:
            raise WorkspaceReadNotFoundError(path=_shown(path), cause=error) from error
        except RametError as error:
            raise _read_error(path, error) from error

    async def _read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        inside = sandbox_path_str(await self._validate_path_access(path))
        head = ["head", "-c", str(max_bytes), "--", inside]
        result = await self._run(head, max_output_bytes=max_bytes)
        if result.ok():
            return result.stdout
        if not (await self._run(["test", "-e", inside])).ok():
            raise WorkspaceReadNotFoundError(path=_shown(path))
        raise WorkspaceArchiveReadError(
            path=_shown(path), context={"stderr": result.stderr.decode(errors="replace")}
        )

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        """Writes a file of the workspace, as `user` if one is given."""
        inside = sandbox_path_str(await self._validate_path_access(path, for_write=True))
        payload = _payload(path, data)
        if user is not None:
            script = 'mkdir -p -- "$(dirname -- "$1")" && exec cat >"$1"'
            result = await self._run(
                ["sh", "-c", script, "sh", inside], user=_name(user), data=payload
            )
            if not result.ok():
                raise WorkspaceArchiveWriteError(
                    path=_shown(path), message=result.stderr.decode(errors="replace").strip()
                )
            return
        try:
            await self.sandbox.files.upload(payload, inside)
        except RametError as error:
            raise _write_error(path, error) from error

    async def _validate_path_access(self, path: Path | str, *, for_write: bool = False) -> Path:
        return await self._validate_remote_path_access(path, for_write=for_write)

    def _runtime_helpers(self) -> tuple[RuntimeHelperScript, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    def _current_runtime_helper_cache_key(self) -> object | None:
        return self.state.sandbox_id

    # Ports

    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        try:
            url = urlsplit(await self.sandbox.url(port, public=self.state.options.public_ports))
            if url.path in ("", "/") and url.hostname:
                secure = url.scheme == "https"
                return ExposedPortEndpoint(
                    host=url.hostname,
                    port=url.port or (443 if secure else 80),
                    tls=secure,
                    query=url.query,
                )
            # The service has no domain for sandboxes: its URLs have a path, which an endpoint
            # cannot express. A port of this machine leads to the server as well.
            if port not in self._forwards:
                self._forwards[port] = await self.sandbox.forward(port)
        except (RametError, OSError) as error:
            raise ExposedPortUnavailableError(
                port=port,
                exposed_ports=self.state.exposed_ports,
                reason="backend_unavailable",
                context={"backend": "ramet", "detail": str(error)},
                cause=error,
            ) from error
        forward = self._forwards[port]
        return ExposedPortEndpoint(host=forward.host, port=forward.port)

    # Life cycle

    async def running(self) -> bool:
        """Returns whether the sandbox exists. Other failures than its absence are raised."""
        if self.state.space_id is not None or self._merged:
            return False
        try:
            await self.sandbox.info()
        except (NotFound, VmDied):
            return False
        return True

    async def _prepare_backend_workspace(self) -> None:
        root = self._root()
        try:
            await self.sandbox.files.mkdir(root, parents=True)
        except RametError as error:
            raise WorkspaceStartError(
                path=posix_path_as_path(coerce_posix_path(root)),
                message=f"cannot create the workspace {root}: {error}",
                context={"backend": "ramet", "code": error.code},
                cause=error,
            ) from error

    async def _before_shutdown(self) -> None:
        await self.drop_branches()
        if self.state.space_id is None and not self._merged:
            await self._terminals.kill_all()

    async def _shutdown_backend(self) -> None:
        for forward in self._forwards.values():
            await forward.close()
        self._forwards.clear()
        if self._merged or self.state.space_id is not None:
            return
        if self.state.options.pause_on_exit:
            await finish(self.pause())
        else:
            await finish(self.discard())

    async def pause(self) -> None:
        """Freezes the sandbox; `RametSandboxClient.resume` with the state continues it.

        If the service refuses the freeze, the sandbox continues to run until its timeouts, and
        freezes then; a resume finds it in either case.
        """
        try:
            self.state.space_id = (await self.sandbox.freeze()).id
        except RametError as error:
            log.warning("sandbox %s was not paused: %s", self.state.sandbox_id, error)

    async def discard(self) -> None:
        """Ends the sandbox, or deletes the Space that it was frozen into."""
        try:
            if self.state.space_id is not None:
                await self._client.delete_space(self.state.space_id)
            await self.sandbox.close()
        except NotFound:
            pass
        except RametError as error:
            log.warning("sandbox %s was not ended: %s", self.state.sandbox_id, error)

    # Snapshots

    async def persist_workspace(self) -> io.IOBase:
        """Returns a snapshot: a tar archive of the workspace, or the name of a new Space.

        If the service refuses the Space, for example because its disk quota is reached, the
        snapshot is a tar archive.
        """
        if self.state.options.workspace_persistence == "space":
            try:
                return io.BytesIO(await self._freeze_copy())
            except (CapReached, Unavailable) as error:
                log.warning("no Space for the snapshot, archiving files instead: %s", error)
            except RametError as error:
                raise _read_error(self.state.manifest.root, error) from error
        return io.BytesIO(await self._archive())

    async def _freeze_copy(self) -> bytes:
        skipped = sorted(path.as_posix() for path in self._persist_workspace_skip_relpaths())
        drop = tuple(posixpath.join(self._root(), path) for path in skipped)
        reference = await snapshots.freeze_copy(
            self.sandbox, self.state.sandbox_metadata(), drop=drop
        )
        self.state.snapshot_space_id = reference.space_id
        return reference.encode()

    async def _persist_snapshot(self) -> None:
        """Stores a snapshot. Afterwards either the old Space is gone, or, on failure, the new."""
        old = self.state.snapshot_space_id
        stored = False
        try:
            await super()._persist_snapshot()
            stored = True
        finally:
            new = self.state.snapshot_space_id
            if not stored:
                self.state.snapshot_space_id = old
            unused = old if stored else new
            if unused is not None and old != new:
                await finish(self._delete_space(unused))

    async def _delete_space(self, space_id: str) -> None:
        with suppress(RametError):
            await self._client.delete_space(space_id)

    async def _archive(self) -> bytes:
        root, archive = self._root(), f"/tmp/openai-agents-{uuid4().hex}.tar"
        skipped = shell_tar_exclude_args(self._persist_workspace_skip_relpaths())
        words = ["tar", *(word for one in skipped for word in shlex.split(one))]
        try:
            result = await self._run([*words, "-C", root, "-cf", archive, "."])
            if not result.ok():
                raise WorkspaceArchiveReadError(
                    path=_shown(root), context={"stderr": result.stderr.decode(errors="replace")}
                )
            data = await self.sandbox.files.download(archive, max_bytes=_ARCHIVE_MAX)
        except RametError as error:
            raise _read_error(root, error) from error
        finally:
            await finish(self._remove(archive))
        # The sandbox's tar may be any program. Its output must not choose the Space to resume.
        if snapshots.is_reference(data):
            raise WorkspaceArchiveReadError(
                path=_shown(root), context={"reason": "tar wrote the name of a Space"}
            )
        return data

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Restores a snapshot. One that names a Space replaces the whole sandbox."""
        root = self._root()
        payload = _payload(root, data)
        try:
            reference = snapshots.decode(payload)
        except ValueError as error:
            raise WorkspaceArchiveWriteError(path=_shown(root), message=str(error)) from error
        if reference is None:
            await self._unpack(root, payload)
            return
        try:
            await self._become(reference)
        except RametError as error:
            raise _write_error(root, error) from error

    async def _become(self, reference: snapshots.Reference) -> None:
        restored = await snapshots.restore(
            self._client, reference, self.state.sandbox_metadata()
        )
        old, self.sandbox = self.sandbox, restored
        self.state.sandbox_id = restored.id
        await self._terminals.forget_all()
        await finish(snapshots.close_quietly(old))

    async def _unpack(self, root: str, payload: bytes) -> None:
        archive = f"/tmp/openai-agents-{uuid4().hex}.tar"
        try:
            validate_tar_bytes(payload, allow_external_symlink_targets=False)
            await self.sandbox.files.mkdir(root, parents=True)
            await self.sandbox.files.upload(payload, archive)
            result = await self._run(["tar", "-C", root, "-xf", archive])
            if not result.ok():
                raise WorkspaceArchiveWriteError(
                    path=_shown(root), message=result.stderr.decode(errors="replace").strip()
                )
        except UnsafeTarMemberError as error:
            raise WorkspaceArchiveWriteError(
                path=_shown(root), message=str(error), cause=error
            ) from error
        except RametError as error:
            raise _write_error(root, error) from error
        finally:
            await finish(self._remove(archive))

    async def _remove(self, path: str) -> None:
        with suppress(RametError):
            await self.sandbox.files.remove(path)

    # Forks

    async def fork(self, n: int = 1, *, reseed: bool = False) -> list["RametSandboxSession"]:
        """Clones the sandbox while it runs, with its memory, processes and open terminals.

        The children are started sessions: they can be handed to `SandboxRunConfig(session=...)`,
        and the caller must close them. They take no snapshots.

        Args:
            n: Number of children, all or none.
            reseed: Seed Python's generators of random numbers differently in each child.

        Raises:
            RametError: The service refuses it; there are no children then.
        """
        terminals = self._terminals.checkpoints()
        sandboxes = await self.sandbox.fork(n, reseed=reseed)
        children = [self._child(sandbox) for sandbox in sandboxes]
        try:
            await asyncio.gather(*(child._move_in(terminals) for child in children))
        except BaseException:
            await finish(close_all(children))
            raise
        return children

    def _child(self, sandbox: AsyncSandbox) -> "RametSandboxSession":
        session_id = uuid4()
        state = self.state.model_copy(
            deep=True,
            update={
                "session_id": session_id,
                "sandbox_id": sandbox.id,
                "snapshot": NoopSnapshot(id=str(session_id)),
                "snapshot_space_id": None,
                "workspace_root_ready": True,
            },
        )
        return RametSandboxSession(state, sandbox, self._client)

    async def _move_in(self, terminals: dict[int, Checkpoint]) -> None:
        await self.sandbox.update(metadata=self.state.sandbox_metadata())
        await self._terminals.adopt(self.sandbox, terminals)

    async def merge_into(self, winner: "RametSandboxSession") -> None:
        """Continues as `winner`, a child from `fork`, with its memory, processes and terminals.

        The winner's session ends; this one keeps its id, state and snapshot.

        Raises:
            Conflict: The winner does not descend from this session.
            NotFound: One of them is gone.
        """
        terminals = winner._terminals.checkpoints()
        await winner._terminals.forget_all()
        await self.sandbox.merge_into(winner.sandbox)
        winner._merged = True
        await self._terminals.forget_all()
        await self._terminals.adopt(self.sandbox, terminals)

    async def drop_branches(self) -> None:
        """Ends all children that wait for a decision."""
        waiting, self.branches = list(self.branches.values()), {}
        if waiting:
            await finish(close_all(waiting))

    # Small parts

    def _root(self) -> str:
        return sandbox_path_str(self.state.manifest.root)

    async def _env(self) -> dict[str, str]:
        return dict(await self.state.manifest.environment.resolve())


def inner_of(session: BaseSandboxSession) -> RametSandboxSession:
    """Returns the Ramet session inside the SDK's wrapper.

    Raises:
        TypeError: It is a session of another provider.
    """
    inner = session._inner if isinstance(session, SandboxSession) else session
    if not isinstance(inner, RametSandboxSession):
        raise TypeError(
            f"{type(inner).__name__} is not a Ramet session: create it with RametSandboxClient"
        )
    return inner


def sandbox_of(session: BaseSandboxSession) -> AsyncSandbox:
    """Returns the sandbox of a session, for all that the agents SDK has no word for.

    Raises:
        TypeError: It is a session of another provider.
    """
    return inner_of(session).sandbox


async def close_all(sessions: Sequence[RametSandboxSession]) -> None:
    """Ends sessions and their sandboxes; it does not freeze them."""
    await asyncio.gather(*(_end(one) for one in sessions), return_exceptions=True)


async def _end(session: RametSandboxSession) -> None:
    await session.drop_branches()
    await session._terminals.forget_all()
    if not session._merged:
        await session.discard()


def _name(user: str | User | None) -> str | None:
    return user.name if isinstance(user, User) else user


def _shown(path: Path | str) -> Path:
    return posix_path_as_path(coerce_posix_path(path))


def _payload(path: Path | str, data: io.IOBase) -> bytes:
    content: object = data.read()
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, (bytes, bytearray)):
        return bytes(content)
    raise WorkspaceWriteTypeError(path=_shown(path), actual_type=type(content).__name__)


def _context(error: RametError) -> dict[str, object]:
    return {"backend": "ramet", "code": error.code, "http_status": error.status}


def _exec_error(argv: Sequence[str], error: RametError) -> ExecTransportError:
    return ExecTransportError(
        command=tuple(argv),
        message=f"the command was not run: {error}",
        context=_context(error),
        cause=error,
        retryable=isinstance(error, _TRANSIENT),
    )


def _read_error(path: Path | str, error: RametError) -> WorkspaceArchiveReadError:
    return WorkspaceArchiveReadError(
        path=_shown(path),
        context={**_context(error), "reason": str(error)},
        cause=error,
        retryable=isinstance(error, _TRANSIENT),
    )


def _write_error(path: Path | str, error: RametError) -> WorkspaceArchiveWriteError:
    return WorkspaceArchiveWriteError(
        path=_shown(path),
        message=f"cannot write {path}: {error}",
        context=_context(error),
        cause=error,
        retryable=isinstance(error, _TRANSIENT),
    )
