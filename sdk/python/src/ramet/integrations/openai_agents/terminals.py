# SPDX-License-Identifier: Apache-2.0
"""The interactive processes of a session: `exec_command` and `write_stdin` of the model."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Awaitable, Mapping, Sequence

from agents.sandbox.errors import PtySessionNotFoundError
from agents.sandbox.session.pty_output import collect_pty_output
from agents.sandbox.session.pty_types import (
    PTY_PROCESSES_MAX,
    PtyExecUpdate,
    allocate_pty_process_id,
    clamp_pty_yield_time_ms,
    process_id_to_prune_from_meta,
    resolve_pty_write_yield_time_ms,
)

from ramet import AsyncProcess, AsyncSandbox
from ramet._cleanup import finish
from ramet.errors import ConnectionFailed, RametError

_START_YIELD_S = 10.0  # as the SDK's own providers
_WRITE_YIELD_S = 0.25
_UNREAD_MAX = 8 << 20  # bytes of output that wait for the model
_CHUNK_BYTES = 64  # that Python needs beside the bytes of a chunk
_RECONNECTS = 5
_SIZE = (80, 24)


@dataclass(frozen=True)
class Checkpoint:
    """A process at one moment: enough to continue reading its clone in the child of a fork."""

    process_id: str
    place: int
    unread: tuple[bytes, ...]
    tty: bool


@dataclass
class Terminal:
    """One process, and its output that the model has not read yet."""

    process: AsyncProcess
    tty: bool
    place: int = 0
    chunks: deque[bytes] = field(default_factory=deque)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    last_used: float = field(default_factory=time.monotonic)
    exit_code: int | None = None
    reader: asyncio.Task[None] | None = None
    unread_bytes: int = 0  # at most: the model may have read some of them

    def begin(self) -> "Terminal":
        """Starts the task that reads the output."""
        self.reader = asyncio.create_task(self._read_all())
        return self

    def checkpoint(self) -> Checkpoint:
        """Returns what its clone in a fork's child needs."""
        return Checkpoint(self.process.id, self.place, tuple(self.chunks), self.tty)

    async def _read_all(self) -> None:
        try:
            for attempt in range(_RECONNECTS):
                try:
                    await self._read()
                    return
                except ConnectionFailed:
                    await asyncio.sleep(attempt)
            self.chunks.append(b"\n[the connection to the process broke]\n")
        except RametError as error:
            self.chunks.append(f"\n[the process is gone: {error}]\n".encode())
        finally:
            self.ended.set()
            self.changed.set()

    async def _read(self) -> None:
        async for event in self.process:
            if event.type == "exit":
                self.exit_code = event.exit_code
                return
            self._add(event.raw)
            self.place = event.place + len(event.raw)
            self.changed.set()

    def _add(self, raw: bytes) -> None:
        """Adds output. Of a program that prints much while nobody reads, the latest is kept."""
        self.chunks.append(raw)
        self.unread_bytes += len(raw) + _CHUNK_BYTES
        if self.unread_bytes <= _UNREAD_MAX:
            return
        self.unread_bytes = sum(len(one) + _CHUNK_BYTES for one in self.chunks)
        if self.unread_bytes > _UNREAD_MAX:
            while self.unread_bytes > _UNREAD_MAX // 2 and len(self.chunks) > 1:
                self.unread_bytes -= len(self.chunks.popleft()) + _CHUNK_BYTES
            self.chunks.appendleft(b"[earlier output was discarded]\n")

    async def forget(self) -> None:
        """Stops reading; the process continues."""
        if self.reader is not None:
            self.reader.cancel()
            await asyncio.gather(self.reader, return_exceptions=True)

    async def kill(self) -> None:
        """Kills the process, unless it has ended, and stops reading."""
        with suppress(RametError):
            if not self.ended.is_set():
                await self.process.kill()
        await self.forget()


class Terminals:
    """The processes of one session by the number that the model knows them by."""

    def __init__(self) -> None:
        self._open: dict[int, Terminal] = {}

    def checkpoints(self) -> dict[int, Checkpoint]:
        """Returns the running processes, for `adopt` in the child of a fork."""
        return {
            number: one.checkpoint() for number, one in self._open.items() if not one.ended.is_set()
        }

    async def adopt(self, sandbox: AsyncSandbox, checkpoints: Mapping[int, Checkpoint]) -> None:
        """Continues to read the clones of processes in another sandbox, under the same numbers."""
        for number, one in checkpoints.items():
            try:
                process = await sandbox.processes.attach(one.process_id, place=one.place)
            except RametError:
                continue  # it ended in the meantime; the number is not known any more
            terminal = Terminal(process, one.tty, one.place, deque(one.unread))
            self._open[number] = terminal.begin()

    async def start(
        self,
        sandbox: AsyncSandbox,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        user: str | None,
        tty: bool,
        timeout: float | None,
        yield_s: float | None,
        max_tokens: int | None,
    ) -> PtyExecUpdate:
        """Starts a program and returns its first output.

        Raises:
            RametError: It cannot be started.
        """
        process = await sandbox.processes.start(
            list(argv),
            cwd=cwd,
            env=env,
            user=user,
            stdin=tty,
            timeout_seconds=timeout,
            tty=_SIZE if tty else None,
        )
        number = allocate_pty_process_id(set(self._open))
        await self._make_room()
        self._open[number] = Terminal(process, tty).begin()
        wait_ms = int(1000 * (_START_YIELD_S if yield_s is None else yield_s))
        return await self._update(number, clamp_pty_yield_time_ms(wait_ms), max_tokens)

    async def write(
        self, number: int, text: str, *, yield_s: float | None, max_tokens: int | None
    ) -> PtyExecUpdate:
        """Types on a terminal, or only waits if `text` is empty; returns the output since then.

        Raises:
            PtySessionNotFoundError: There is no such process, or its end was reported already.
            RuntimeError: The process has no terminal, and so no input.
        """
        terminal = self._open.get(number)
        if terminal is None:
            raise PtySessionNotFoundError(session_id=number)
        if text:
            if not terminal.tty:
                raise RuntimeError(
                    f"process {number} has no input: start it with tty=true to write to it"
                )
            await terminal.process.write(text)
        wait_ms = int(1000 * (_WRITE_YIELD_S if yield_s is None else yield_s))
        wait_ms = resolve_pty_write_yield_time_ms(yield_time_ms=wait_ms, input_empty=not text)
        terminal.last_used = time.monotonic()
        return await self._update(number, wait_ms, max_tokens)

    async def kill_all(self) -> None:
        """Kills all processes."""
        await self._take_all("kill")

    async def forget_all(self) -> None:
        """Stops reading all processes, because their machine has ended."""
        await self._take_all("forget")

    async def _take_all(self, action: str) -> None:
        taken, self._open = list(self._open.values()), {}
        if taken:
            await finish(_all([getattr(one, action)() for one in taken]))

    async def _make_room(self) -> None:
        if len(self._open) < PTY_PROCESSES_MAX:
            return
        meta = [(number, one.last_used, one.ended.is_set()) for number, one in self._open.items()]
        oldest = process_id_to_prune_from_meta(meta)
        if oldest is not None:
            await self._open.pop(oldest).kill()

    async def _update(self, number: int, wait_ms: int, max_tokens: int | None) -> PtyExecUpdate:
        one = self._open[number]
        output, tokens, ended = await collect_pty_output(
            output_chunks=one.chunks,
            output_lock=one.lock,
            output_notify=one.changed,
            is_done=one.ended.is_set,
            yield_time_ms=wait_ms,
            max_output_tokens=max_tokens,
        )
        if ended:
            self._open.pop(number, None)
        return PtyExecUpdate(
            process_id=None if ended else number,
            output=output,
            exit_code=one.exit_code if ended else None,
            original_token_count=tokens,
        )


async def _all(work: Sequence[Awaitable[None]]) -> None:
    await asyncio.gather(*work, return_exceptions=True)
