# SPDX-License-Identifier: Apache-2.0
"""The tools. A docstring is the description that a model reads."""

from __future__ import annotations

import base64
import binascii
import codecs
import time
import uuid
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, AsyncIterator, List, Literal, Mapping, Optional

import anyio
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, ContentBlock
from pydantic import Field

from ramet import AsyncClient
from ramet._output import size_of_error, size_of_result
from ramet.errors import NotFound, RametError, VmDied
from ramet.mcp.errors import explain, explained
from ramet.mcp.models import (
    Change,
    Changes,
    Checkpointed,
    Children,
    FileEntry,
    FileList,
    Frozen,
    Item,
    Items,
    MergedPath,
    MergedPaths,
    SandboxMade,
    structured,
)
from ramet.mcp.output import (
    KEPT_MAX,
    OUTPUT_MAX,
    Shown,
    Stream,
    clean,
    clean_output,
    is_picture,
    picture,
    text,
)
from ramet.mcp.state import MARK, Clients, Lanes, Session
from ramet.types import Conflicts, Event, FileInfo, HistoryEntry, ProcessEvent, SandboxInfo

_STDOUT_CHARS = 20_000
_STDERR_CHARS = 8_000
_RESULT_CHARS = 8_000
_READ_MAX = 200_000  # bytes of a file in one answer
_UNSIZED_MAX = 4 << 20  # bytes that are read of a file of unknown size
_ENTRIES_MAX = 500  # entries of a list in one answer
_OPERATIONS_MAX = 16  # on files in a sandbox at one time; the service accepts 32 in all
_STARTS_MAX = 4  # programs that start at one time: more would only slow each other down
_PROGRESS_S = 1.0  # between two reports of progress
_STOP_S = 5.0  # to interrupt a call that was cancelled
_ANOTHER = "The next call without sandbox makes another one, without its state."
_RESUME = "To continue it, call resume with space={}, and use the sandbox that it returns."
_START = "To go back, call rollback with checkpoint={0}. To start another sandbox from it, call "
_START += "create_sandbox with checkpoint={0}."
_SAVED = "/var/tmp/ramet/"  # files with all output; `diff` does not look there by default

# Free text is never `str | None`: the library would parse text that is JSON.
Ctx = Context[Any, Any]
SandboxId = Annotated[
    str, Field(description="Id of the sandbox. Omitted: this session's own, made on first use")
]
Path = Annotated[str, Field(description="Absolute path in the sandbox, such as /root/data.csv")]
Seconds = Annotated[
    float,
    Field(description="Time limit in seconds; the code is stopped there", gt=0, le=86_400),
]
FormerLifetime = Annotated[
    Optional[int], Field(description="The former name of lifetime_seconds", ge=1)
]
Encoding = Annotated[
    Literal["text", "base64"],
    Field(description="text: UTF-8; base64: the exact bytes, for binary files"),
]
Offset = Annotated[int, Field(description="Number of entries to skip", ge=0, le=1_000_000)]
Limit = Annotated[int, Field(description="Maximum number of entries", ge=1, le=_ENTRIES_MAX)]


@dataclass(frozen=True)
class Target:
    """The sandbox that a call acts on."""

    client: AsyncClient
    id: str
    key: str | None


class Tools:
    """The tools of one server.

    Args:
        clients: Connections to the service.
        session: The session over stdio. None: over HTTP, where each call has its own key, and
            names its sandbox.
    """

    def __init__(self, clients: Clients, session: Session | None) -> None:
        self._clients = clients
        self._session = session
        self._lanes = Lanes()

    async def create_sandbox(
        self,
        ctx: Ctx,
        template: Annotated[
            str, Field(description="Template to start from. Omitted: the default one")
        ] = "",
        name: Annotated[str, Field(description="Name to recognise it by in list")] = "",
        vcpus: Annotated[Optional[int], Field(description="Virtual CPUs", ge=1, le=32)] = None,
        ram_mib: Annotated[Optional[int], Field(description="Memory in MiB", ge=128)] = None,
        rootfs_gb: Annotated[Optional[int], Field(description="Root disk in GiB", ge=1)] = None,
        lifetime_seconds: Annotated[
            Optional[int], Field(description="Lifetime in seconds", ge=1)
        ] = None,
        idle_timeout_seconds: Annotated[
            Optional[int], Field(description="Seconds without use after which it ends", ge=1)
        ] = None,
        persistent: Annotated[
            bool, Field(description="At its timeouts, freeze it to a Space; implies keep")
        ] = False,
        egress: Annotated[
            bool, Field(description="false: neither it nor its forks can reach the network")
        ] = True,
        keep: Annotated[
            bool, Field(description="true: it and its forks stay when this session ends")
        ] = False,
        undo_calls: Annotated[
            Optional[int],
            Field(description="Number of last calls that undo can go back", ge=1, le=1000),
        ] = None,
        checkpoint: Annotated[
            str, Field(description="Id of a checkpoint to start from; its sizes cannot be changed")
        ] = "",
        timeout_seconds: FormerLifetime = None,
    ) -> Annotated[CallToolResult, SandboxMade]:
        """Creates a further sandbox: a Linux virtual machine with root, a network and a persistent
        Python process. Sizes above a limit are reduced to it. A sandbox ends when its lifetime or
        idle time is over; freeze keeps it. To try several things from one state, use fork."""
        metadata: dict[str, str] = {"name": name} if name else {}
        if self._session and not keep and not persistent:
            metadata |= self._session.mark()
        async with self._service(ctx) as client:
            made = await client.create_sandbox(
                template=template or None,
                vcpus=vcpus,
                ram_mib=ram_mib,
                rootfs_gb=rootfs_gb,
                lifetime_seconds=lifetime_seconds,
                timeout_seconds=timeout_seconds,
                idle_timeout_seconds=idle_timeout_seconds,
                persistent=persistent or None,
                egress=None if egress else False,
                # That of a checkpoint may end the sandbox with a session.
                metadata=metadata if checkpoint else metadata or None,
                checkpoint=checkpoint or None,
                checkpoint_each_call={"keep": undo_calls} if undo_calls else None,
            )
            return _made(await client.get_sandbox(made.id))

    async def run_code(
        self,
        ctx: Ctx,
        code: Annotated[str, Field(description="Source text")],
        language: Annotated[
            Literal["python", "bash", "javascript"], Field(description="Language of the code")
        ] = "python",
        sandbox: SandboxId = "",
        timeout_seconds: Seconds = 120,
    ) -> CallToolResult:
        """Runs code in a persistent interpreter: variables, imports and the working directory stay
        for the next call. Calls of one language wait for each other. In Python, the value of the
        last expression, figures of matplotlib and display() are shown, as in a notebook; !command
        and %pip work. Long output is shortened, and all of it saved in a file in the sandbox."""
        async with self._sandbox(ctx, sandbox) as target:
            async with self._lanes.hold((target.key, target.id, language)):
                context = await _context(target, language)
                output, exit_code = _Output(ctx), 0
                events = target.client.exec_stream(
                    target.id,
                    code,
                    None if context else "python",
                    timeout_seconds=timeout_seconds,
                    results=language == "python",
                    context=context,
                )
                async with _interrupted(target, context), aclosing(events):
                    async for event in events:
                        if event.code is not None:
                            exit_code = event.code
                        elif not await output.add(event):
                            await target.client.interrupt(target.id, context_id=context)
            end = f"exit code {exit_code}" if exit_code else ""
            if exit_code == 124:
                end = f"stopped at the time limit of {timeout_seconds:g} s"
            return await output.result(target, end)

    async def run_command(
        self,
        ctx: Ctx,
        command: Annotated[str, Field(description="Command line for bash")],
        sandbox: SandboxId = "",
        cwd: Annotated[
            str, Field(description="Working directory. Omitted: that of the Python process")
        ] = "",
        user: Annotated[str, Field(description="User that runs it. Omitted: root")] = "",
        timeout_seconds: Seconds = 120,
    ) -> CallToolResult:
        """Runs a command line in a new bash. Commands run side by side with each other and with
        run_code. Start a server in the background as: setsid server >/tmp/server.log 2>&1 &
        Long output is shortened, and all of it saved in a file in the sandbox."""
        async with self._sandbox(ctx, sandbox) as target:
            options = {
                "command": command,
                "cwd": cwd or None,
                "user": user or None,
                "timeout_seconds": timeout_seconds,
            }
            output = _Output(ctx)
            end = ""
            async with aclosing(target.client.process_run(target.id, options)) as events:
                starts = (target.key, target.id, "starts")
                async with self._lanes.hold(starts, _STARTS_MAX):
                    with anyio.CancelScope(shield=True):  # what was started can be killed
                        started = await anext(events)
                async with _killed(target, started.id):
                    async for event in events:
                        if event.type != "exit":
                            if not await output.add(event):
                                await target.client.process_kill(target.id, started.id)
                        elif event.timed_out:
                            end = f"stopped at the time limit of {timeout_seconds:g} s"
                        elif event.exit_code:
                            end = f"exit code {event.exit_code}"
                            end += f" ({event.signal})" if event.signal else ""
            return await output.result(target, end)

    async def read_file(
        self,
        ctx: Ctx,
        path: Path,
        sandbox: SandboxId = "",
        offset: Annotated[
            int, Field(description="First byte to read; -N: the last N bytes of the file")
        ] = 0,
        limit: Annotated[
            int, Field(description="Maximum number of bytes", ge=16, le=_READ_MAX)
        ] = 30_000,
        encoding: Encoding = "text",
    ) -> CallToolResult:
        """Reads a file, or a part of it. A picture (PNG, JPEG, GIF, WebP) is shown as one. For
        lines by number use run_command with sed -n."""
        async with self._sandbox(ctx, sandbox) as target, self._operation(target):
            info = await target.client.stat_file(target.id, path)
            first = max(info.size + offset, 0) if offset < 0 else offset
            data = await _read(target, path, info.size, first, limit + 1)
            if encoding == "text" and not first and is_picture(data, info.size):
                if shown := picture(await _read(target, path, info.size, 0, info.size)):
                    return CallToolResult(content=[shown])
        return CallToolResult(content=_part(data, limit, first, info.size, encoding))

    async def write_file(
        self,
        ctx: Ctx,
        path: Path,
        content: Annotated[str, Field(description="The content, in the given encoding")],
        sandbox: SandboxId = "",
        encoding: Encoding = "text",
        append: Annotated[bool, Field(description="Add it at the end of the file")] = False,
        mode: Annotated[
            str, Field(description="Permission bits in octal, such as 755", pattern="^[0-7]{0,4}$")
        ] = "",
    ) -> CallToolResult:
        """Writes a file, and replaces an existing one. Missing folders are created."""
        try:
            data = content.encode()
            if encoding == "base64":
                data = base64.b64decode(data, validate=True)
        except (binascii.Error, UnicodeEncodeError) as wrong:
            raise ToolError(f"content is not valid {encoding}: {wrong}") from wrong
        bits = int(mode, 8) if mode else None
        async with self._sandbox(ctx, sandbox) as target, self._operation(target):
            if append:
                await target.client.write_in_place(target.id, path, data, append=True, mode=bits)
            else:
                await target.client.write_file(target.id, path, data, mode=bits)
        done = "appended to" if append else "written to"
        return CallToolResult(content=[text(f"{len(data)} bytes {done} {clean(path)}")])

    async def list_files(
        self,
        ctx: Ctx,
        path: Path = "/root",
        sandbox: SandboxId = "",
        depth: Annotated[
            int, Field(description="2: also what is in its folders, and so on", ge=1, le=64)
        ] = 1,
        after: Annotated[
            str, Field(description="Only names after this one: next_after of the previous part")
        ] = "",
        limit: Limit = 200,
    ) -> Annotated[CallToolResult, FileList]:
        """Lists a folder. Links and mounted file systems are not entered."""
        async with self._sandbox(ctx, sandbox) as target, self._operation(target):
            found = await target.client.list_files(
                target.id, path, depth=depth, limit=limit + 1, after=after or None
            )
        entries = [_entry(one) for one in found[:limit]]
        more = found[limit - 1].name if len(found) > limit else None
        return structured(FileList(entries=entries, next_after=more))

    async def fork(
        self,
        ctx: Ctx,
        n: Annotated[int, Field(description="Number of children", ge=1, le=1000)] = 1,
        sandbox: SandboxId = "",
        reseed: Annotated[
            bool, Field(description="Give the children different random numbers in Python")
        ] = False,
    ) -> Annotated[CallToolResult, Children]:
        """Clones a running sandbox in milliseconds: memory, variables, processes and files. Use it
        to try alternatives from one prepared state: fork, run a different thing in each child,
        compare with diff, keep the best one with merge, and delete the others."""
        async with self._sandbox(ctx, sandbox) as target:
            children = await target.client.fork_sandbox(target.id, n, reseed=reseed)
        return structured(Children(children=children))

    async def diff(
        self,
        ctx: Ctx,
        other: Annotated[str, Field(description="Id of what to compare with: a child, or a checkpoint")],
        sandbox: SandboxId = "",
        paths: Annotated[
            Optional[List[str]],
            Field(description="Absolute paths to compare. Omitted: /root and /tmp", max_length=64),
        ] = None,
        offset: Offset = 0,
        limit: Limit = 200,
    ) -> Annotated[CallToolResult, Changes]:
        """Compares the files of two sandboxes: which ones `other` added, removed or modified."""
        async with self._sandbox(ctx, sandbox) as target:
            found = await target.client.diff_sandboxes(target.id, other, paths)
        changes = list(
            chain(
                (("added", path) for path in found.added),
                (("removed", path) for path in found.removed),
                (("modified", path) for path in found.modified),
            )
        )
        shown = [
            Change.model_validate({"change": change, "path": clean(path)})
            for change, path in changes[offset : offset + limit]
        ]
        end = offset + len(shown)
        more = end if end < len(changes) else None
        return structured(Changes(changes=shown, total=len(changes), next_offset=more))

    async def merge(
        self,
        ctx: Ctx,
        winner: Annotated[str, Field(description="Id of the fork whose state is kept")],
        sandbox: SandboxId = "",
    ) -> CallToolResult:
        """Replaces the state of a sandbox by that of one of its forks. The sandbox keeps its id;
        its old memory and files are lost, and the fork's id ends. Other forks stay: delete them."""
        async with self._sandbox(ctx, sandbox) as target:
            await target.client.merge_sandbox(target.id, winner)
            self._forget(winner)
        return CallToolResult(content=[text(f"{target.id} continues with the state of {winner}")])

    async def merge_files(
        self,
        ctx: Ctx,
        branches: Annotated[
            List[str], Field(description="Ids of the forks", min_length=1, max_length=16)
        ],
        base: Annotated[
            str, Field(description="Id of a child of the same fork, which nobody changed")
        ],
        sandbox: SandboxId = "",
        paths: Annotated[
            Optional[List[str]],
            Field(description="Absolute paths to merge. Omitted: /root and /tmp", max_length=64),
        ] = None,
        conflicts: Annotated[
            Conflicts,
            Field(
                description="report: with a conflict, nothing is written; ours: the sandbox, or an "
                "earlier branch, wins; theirs: a later branch wins; markers: conflict markers in "
                "texts"
            ),
        ] = "report",
        offset: Offset = 0,
        limit: Limit = 200,
    ) -> Annotated[CallToolResult, MergedPaths]:
        """Brings the files that forks changed into the sandbox, which goes on with its own memory
        and processes. Texts are merged by lines. Fork one child more, and leave it alone: it is the
        base."""
        async with self._sandbox(ctx, sandbox) as target, self._operation(target):
            merged = await target.client.merge_files(
                target.id, branches, base_id=base, paths=paths, conflicts=conflicts
            )
        found = [
            *(MergedPath(path=clean(one.path), change=one.change) for one in merged.taken),
            *(
                MergedPath(path=clean(one.path), conflict=one.reason, resolution=one.resolution)
                for one in merged.conflicts
            ),
        ]
        end = min(offset + limit, len(found))
        more = end if end < len(found) else None
        return structured(
            MergedPaths(
                applied=merged.applied,
                paths=found[offset:end],
                total=len(found),
                next_offset=more,
            )
        )

    async def checkpoint(
        self,
        ctx: Ctx,
        name: Annotated[str, Field(description="Name to recognise it by in list")] = "",
        sandbox: SandboxId = "",
    ) -> Annotated[CallToolResult, Checkpointed]:
        """Keeps the present state of a sandbox, memory and running processes included, in
        milliseconds; the sandbox goes on. Use it before something that may break the sandbox. A
        checkpoint stays until it is deleted, also when this session ends."""
        async with self._sandbox(ctx, sandbox) as target:
            kept = await target.client.take_checkpoint(target.id, name=name or None)
        return structured(Checkpointed(checkpoint=kept.id, note=_START.format(kept.id)))

    async def rollback(
        self,
        ctx: Ctx,
        checkpoint: Annotated[str, Field(description="Id of a checkpoint of the sandbox")],
        sandbox: SandboxId = "",
    ) -> CallToolResult:
        """Gives a sandbox the state of a checkpoint: memory, files and processes are as they were
        then. The sandbox keeps its id; its present state is lost, and what runs in it ends."""
        async with self._sandbox(ctx, sandbox) as target:
            await target.client.rollback_sandbox(target.id, checkpoint)
        said = f"{target.id} is in the state of {clean(checkpoint)}"
        return CallToolResult(content=[text(said)])

    async def undo(
        self,
        ctx: Ctx,
        n: Annotated[int, Field(description="Number of calls to undo", ge=1, le=1000)] = 1,
        sandbox: SandboxId = "",
    ) -> CallToolResult:
        """Gives a sandbox the state before its last calls of run_code: memory, files and processes
        are as they were then. Only for sandboxes that create_sandbox made with undo_calls."""
        async with self._sandbox(ctx, sandbox) as target:
            point = await target.client.undo_calls(target.id, n)
        return CallToolResult(content=[text(f"{target.id} is in the state of {clean(point)}")])

    async def history(self, ctx: Ctx, sandbox: SandboxId = "") -> CallToolResult:
        """Lists the last calls of run_code, checkpoints, forks, merges and rollbacks of a sandbox,
        oldest first, and which of them were undone. A call has the first line of its code."""
        async with self._sandbox(ctx, sandbox) as target:
            found = await target.client.get_history(target.id)
        return CallToolResult(content=[text("\n".join(map(_happened, found)))])

    async def freeze(
        self, ctx: Ctx, sandbox: SandboxId = ""
    ) -> Annotated[CallToolResult, Frozen]:
        """Writes a sandbox to disk as a Space, memory and running processes included, and ends it.
        A Space stays until it is resumed or deleted, also when this session ends."""
        async with self._sandbox(ctx, sandbox) as target:
            async with self._kept(target):
                space = await target.client.freeze_sandbox(target.id)
            if self._session:
                self._session.freeze(target.id, space.id)
        note = f"{target.id} has ended and is the Space {space.id} now. {_RESUME.format(space.id)}"
        return structured(Frozen(space=space.id, size_bytes=space.size_bytes, note=note))

    async def resume(
        self,
        ctx: Ctx,
        space: Annotated[str, Field(description="Id of the Space")],
        lifetime_seconds: Annotated[
            Optional[int], Field(description="Lifetime from now on in seconds", ge=1)
        ] = None,
        persistent: Annotated[
            bool, Field(description="At its timeouts, freeze it again instead of ending it")
        ] = False,
        timeout_seconds: FormerLifetime = None,
    ) -> Annotated[CallToolResult, SandboxMade]:
        """Continues a Space as a sandbox with a new id; the Space is gone then. The sandbox stays
        when this session ends. If it was the session's own, calls without sandbox use it again."""
        async with self._service(ctx) as client:
            made = await client.resume_space(
                space,
                lifetime_seconds=lifetime_seconds,
                timeout_seconds=timeout_seconds,
                persistent=persistent or None,
            )
            if self._session:
                self._session.resume(space, made.id)
            return _made(await client.get_sandbox(made.id))

    async def list_(
        self,
        ctx: Ctx,
        what: Annotated[
            Literal["sandboxes", "spaces", "checkpoints", "templates"],
            Field(description="Objects to list"),
        ] = "sandboxes",
        offset: Offset = 0,
        limit: Limit = 100,
    ) -> Annotated[CallToolResult, Items]:
        """Lists the sandboxes, Spaces (frozen sandboxes), checkpoints or templates of this API
        key."""
        async with self._service(ctx) as client:
            found = await _items(client, what, offset + limit + 1)
        shown = found[offset : offset + limit]
        more = offset + limit if len(found) > offset + limit else None
        return structured(Items(items=shown, next_offset=more))

    async def delete(
        self,
        ctx: Ctx,
        id: Annotated[
            str, Field(description="Id of a sandbox (sbx_), Space (spc_) or checkpoint (chk_)")
        ],
    ) -> CallToolResult:
        """Ends a sandbox and discards its memory and files, or removes a Space or checkpoint."""
        async with self._service(ctx) as client:
            if id.startswith("spc_"):
                await client.delete_space(id)
            elif id.startswith("chk_"):
                await client.delete_checkpoint(id)
            else:
                await client.delete_sandbox(id)
                self._forget(id)
        return CallToolResult(content=[text(f"{clean(id)} is deleted")])

    @asynccontextmanager
    async def _service(self, ctx: Ctx) -> AsyncIterator[AsyncClient]:
        """Yields a client with the caller's key, and explains its errors."""
        with explained():
            async with self._clients.use(self._key(ctx)) as client:
                yield client

    @asynccontextmanager
    async def _sandbox(self, ctx: Ctx, sandbox: str) -> AsyncIterator[Target]:
        """Yields the sandbox of a call, and explains errors."""
        async with self._service(ctx) as client:
            if not sandbox and self._session is None:
                raise ToolError(
                    "sandbox is missing: over HTTP a call must name its sandbox. Call "
                    "create_sandbox, and pass the id that it returns."
                )
            id = sandbox or await self._session_sandbox(client)
            try:
                yield Target(client, id, self._key(ctx))
            except (NotFound, VmDied) as error:
                if not sandbox and error.code == "frozen":
                    self._forget(id)
                    raise ToolError(f"{explain(error)} {_ANOTHER}") from error
                if not sandbox and await _is_gone(client, id):
                    self._forget(id)
                    raise ToolError(
                        f"{error.code}: {clean_output(str(error))}. The session's sandbox is gone, "
                        f"and its memory and files. {_ANOTHER}"
                    ) from error
                raise

    def _operation(self, target: Target) -> AbstractAsyncContextManager[None]:
        """Waits until few operations on files are in progress in a sandbox."""
        return self._lanes.hold((target.key, target.id, "files"), _OPERATIONS_MAX)

    @asynccontextmanager
    async def _kept(self, target: Target) -> AsyncIterator[None]:
        """Lets a sandbox outlive the session, unless the block fails.

        A Space has the metadata of its sandbox: whoever resumes it must not lose it at the end of
        this session.
        """
        metadata = (await target.client.get_sandbox(target.id)).raw.get("metadata") or {}
        mine = self._session is not None and self._session.owns(metadata)
        if mine:
            rest = {name: value for name, value in metadata.items() if name != MARK}
            await target.client.update_sandbox(target.id, metadata=rest)
        try:
            yield
        except RametError:
            if mine:
                with suppress(RametError):
                    await target.client.update_sandbox(target.id, metadata=metadata)
            raise

    async def _session_sandbox(self, client: AsyncClient) -> str:
        assert self._session
        if space := self._session.uninformed_of():
            raise ToolError(
                f"This session's sandbox was frozen and is the Space {space} now. "
                f"{_RESUME.format(space)} {_ANOTHER}"
            )
        return await self._session.default(client)

    def _forget(self, sandbox: str) -> None:
        if self._session:
            self._session.forget(sandbox)

    def _key(self, ctx: Ctx) -> str | None:
        """Returns the API key of the caller. Over stdio None: that of the environment."""
        if self._session:
            return None
        return bearer((ctx.headers or {}).get("authorization", "")) or ""


def bearer(authorization: str) -> str | None:
    """Returns the key of an Authorization header; None if it has none."""
    scheme, _, key = authorization.partition(" ")
    valid = scheme.lower() == "bearer" and key.isascii() and key.isprintable()
    return (key.strip() or None) if valid else None


class _Output:
    """The output and results of one call, as far as they can be shown or saved, and reports of its
    progress to the client."""

    def __init__(self, ctx: Ctx) -> None:
        self._ctx = ctx
        self._stdout, self._stderr = Stream(_STDOUT_CHARS), Stream(_STDERR_CHARS)
        self._shown = Shown(_RESULT_CHARS)
        self._size = 0
        self._reported = time.monotonic()
        self._stopped = False

    async def add(self, event: Event | ProcessEvent) -> bool:
        """Adds output. Returns False once if the call has sent too much and must be stopped."""
        stream = self._stderr if event.type == "stderr" else self._stdout
        stream.add(event.raw)
        self._size += len(event.raw)
        if isinstance(event, Event):
            self._add_object(event)
        now = time.monotonic()
        if now - self._reported >= _PROGRESS_S:
            self._reported = now
            await self._ctx.report_progress(self._size, message=stream.last_line())
        if self._size <= OUTPUT_MAX or self._stopped:
            return True
        self._stopped = True
        return False

    def _add_object(self, event: Event) -> None:
        if event.result is not None:
            self._shown.add(event.result)
            self._size += size_of_result(event.result)
        elif event.error is not None:  # its traceback is in stderr too
            self._size += size_of_error(event.error)

    async def result(self, target: Target, end: str) -> CallToolResult:
        """Returns the output as content, after saving what does not fit."""
        parts = [
            self._stdout.text().rstrip("\n"),
            _labelled("stderr", self._stderr.text()),
            _labelled("result", self._shown.text()),
            f"[{end}]" if end else "",
            f"[stopped: it sent more than {OUTPUT_MAX >> 20} MiB]" if self._stopped else "",
            await _save(target, "stdout", self._stdout),
            await _save(target, "stderr", self._stderr),
        ]
        written = "\n".join(part for part in parts if part)
        if not written and not self._shown.pictures:
            written = "[no output]"
        first: List[ContentBlock] = [text(written)] if written else []
        return CallToolResult(content=first + self._shown.pictures)


def _labelled(label: str, value: str) -> str:
    value = value.rstrip("\n")
    return f"[{label}]\n{value}" if value else ""


async def _save(target: Target, name: str, stream: Stream) -> str:
    """Saves output that was shortened in a file of the sandbox. Returns a note about it."""
    if not stream.cut:
        return ""
    path = f"{_SAVED}{uuid.uuid4().hex[:12]}.{name}"
    part = f"the first {KEPT_MAX >> 20} MiB" if stream.size > KEPT_MAX else "all"
    try:
        await target.client.write_file(target.id, path, stream.kept)
    except RametError as failed:
        return f"[{name} was shortened, and could not be saved: {explain(failed)}]"
    return f"[{name} was shortened: read_file shows {part} of its {stream.size} bytes at {path}]"


@asynccontextmanager
async def _interrupted(target: Target, context: str | None) -> AsyncIterator[None]:
    """Interrupts the running call if the client cancels it, or goes away."""
    try:
        yield
    except anyio.get_cancelled_exc_class():
        with anyio.move_on_after(_STOP_S, shield=True), suppress(RametError):
            await target.client.interrupt(target.id, context_id=context)
        raise


@asynccontextmanager
async def _killed(target: Target, process: str) -> AsyncIterator[None]:
    """Kills the process if the client cancels the call, or goes away."""
    try:
        yield
    except anyio.get_cancelled_exc_class():
        with anyio.move_on_after(_STOP_S, shield=True), suppress(RametError):
            await target.client.process_kill(target.id, process)
        raise


async def _is_gone(client: AsyncClient, sandbox: str) -> bool:
    """Returns True if the sandbox has ended; an error may be about another object of the call."""
    try:
        await client.get_sandbox(sandbox)
    except (NotFound, VmDied):
        return True
    return False


async def _context(target: Target, language: str) -> str | None:
    """Returns the id of the context for a language. None: the default Python process.

    It is looked up for each call, so it is found over HTTP and in the children of a fork too.
    """
    if language == "python":
        return None
    for one in await target.client.context_list(target.id):
        if one.language == language:
            return one.id
    made = await target.client.context_create(
        target.id, "bash" if language == "bash" else "javascript"
    )
    return made.id


async def _read(target: Target, path: str, known: int, first: int, size: int) -> bytes:
    """Returns up to `size` bytes from byte `first` on of a file that has `known` bytes."""
    if known == 0:  # an empty file, or one of /proc, which have no size but content
        most = min(first + size, _UNSIZED_MAX)
        return (await _bytes(target.client.read_file(target.id, path), most))[first:]
    if first >= known:
        return b""
    part = target.client.read_file(target.id, path, offset=first, length=size)
    return await _bytes(part, size)


async def _bytes(
    opened: AbstractAsyncContextManager[tuple[int | None, AsyncIterator[bytes]]], most: int
) -> bytes:
    data = bytearray()
    async with opened as (_, chunks):
        async for chunk in chunks:
            data += chunk
            if len(data) >= most:
                break
    return bytes(data[:most])


def _part(data: bytes, limit: int, first: int, size: int, encoding: str) -> List[ContentBlock]:
    """Returns a part of a file as content, and a note if it is not the whole file as it is.

    `data` has one byte more than `limit` if the file goes on.
    """
    more, data = len(data) > limit, data[:limit]
    notes: List[str] = []
    if encoding == "base64":
        shown = base64.b64encode(data).decode()
    elif b"\0" in data:
        return [text(f"[a binary file of {size} bytes: encoding='base64' returns its bytes]")]
    else:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        exact = decoder.decode(data, final=not more)
        data = data[: len(data) - len(decoder.getstate()[0])]
        shown = clean(exact)
        if shown != exact or "\ufffd" in exact:
            notes.append(
                "bytes that are not UTF-8, control characters and hidden ones are shown as symbols: "
                "encoding='base64' returns the exact bytes"
            )
    end = first + len(data)
    if more:
        notes.append(f"bytes {first} to {end - 1} of {size}: continue with offset={end}")
    elif not data:
        notes.append(f"no bytes from {first} on: the file has {size}")
    return [text(part) for part in (shown, *(f"[{note}]" for note in notes)) if part]


def _entry(info: FileInfo) -> FileEntry:
    return FileEntry(
        name=clean(info.name),
        type=info.type,
        size=info.size,
        mode=f"{info.mode:04o}",
        modified=info.mtime,
        target=None if info.target is None else clean(info.target),
    )


def _happened(one: HistoryEntry) -> str:
    what = one.code or one.name or one.source or " ".join(one.children)
    parts = (str(one.n), one.kind, one.result, what, "(undone)" if one.undone else None)
    return clean(" ".join(part for part in parts if part))


def _made(info: SandboxInfo) -> CallToolResult:
    return structured(
        SandboxMade(
            sandbox=info.id,
            template=str(info.raw["template"]),
            vcpus=info.vcpus,
            ram_mib=info.ram_mib,
            rootfs_gb=info.rootfs_gb,
            expires_at=info.expires_at,
        )
    )


async def _items(client: AsyncClient, what: str, most: int) -> List[Item]:
    """Returns the first objects of a list, up to `most`."""
    if what == "templates":
        return [
            Item(id=one.name, state=one.state, description=clean(one.description)[:500])
            for one in await client.templates()
        ]
    found: List[Item] = []
    if what == "spaces":
        async with aclosing(client.iter_spaces()) as spaces:
            async for space in spaces:
                found.append(_item(space.raw, space.size_bytes))
                if len(found) == most:
                    break
        return found
    if what == "checkpoints":
        async with aclosing(client.iter_checkpoints()) as checkpoints:
            async for point in checkpoints:
                raw = {
                    **point.raw,
                    "metadata": {"name": point.name},
                    "parent": point.sandbox,
                }
                found.append(_item(raw, point.size_bytes))
                if len(found) == most:
                    break
        return found
    async with aclosing(client.iter_sandboxes()) as sandboxes:
        async for sandbox in sandboxes:
            found.append(_item(sandbox.raw, None))
            if len(found) == most:
                break
    return found


def _item(raw: Mapping[str, Any], size_bytes: int | None) -> Item:
    name = (raw.get("metadata") or {}).get("name")
    return Item(
        id=raw["id"],
        state=raw["state"],
        name=clean(name)[:100] if isinstance(name, str) else None,
        parent=raw.get("parent"),
        template=raw.get("template"),
        created_at=raw.get("created_at"),
        expires_at=raw.get("expires_at"),
        size_bytes=size_bytes,
    )
