# SPDX-License-Identifier: Apache-2.0
"""Local ports that lead to servers in sandboxes. Twin of ramet/ports.py."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import TracebackType
from typing import AsyncIterator, Awaitable, Callable

from ramet._async._upgrade import Connection

_PART = 65536  # bytes copied at a time


class AsyncForward:
    """A port of this machine whose connections lead to a port in a sandbox.

    Returned by `AsyncSandbox.forward`. Use it in an `async with` block, or call `close`.

    Attributes:
        host: The local address, 127.0.0.1.
        port: The local port.
    """

    def __init__(self, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._connect = connect
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self.host: str = "127.0.0.1"
        self.port: int = 0

    async def _listen(self, local_port: int) -> None:
        self._server = await asyncio.start_server(self._accept, self.host, local_port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Closes the local port and its connections. It is idempotent."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for one in self._open:
            one.cancel()
        if self._open:
            await asyncio.wait(self._open)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes on a connection, in a task of its own, which `close` cancels."""
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        try:
            await self._serve(reader, writer)
        except asyncio.CancelledError:
            pass  # asyncio would log it

    async def _serve(
        self, local_reader: asyncio.StreamReader, local_writer: asyncio.StreamWriter
    ) -> None:
        """Connects to the sandbox and copies both directions. A local connection that cannot be
        passed on is closed, as by a machine on which nothing listens."""
        async with _ended(local_writer):
            try:
                reader, writer = await self._connect()
            except Exception:  # whatever the reason is, the local program sees the end
                return
            async with _ended(writer):
                await asyncio.gather(_copy(local_reader, writer), _copy(reader, local_writer))

    async def __aenter__(self) -> "AsyncForward":
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncForward {self.host}:{self.port}>"


async def open_forward(
    connect: Callable[[], Awaitable[Connection]], local_port: int
) -> AsyncForward:
    forward = AsyncForward(connect)
    await forward._listen(local_port)
    return forward


async def reach(connect: Callable[[], Awaitable[Connection]]) -> None:
    """Opens a connection and closes it."""
    _, writer = await connect()
    writer.transport.abort()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copies until the source's end, and passes on the end."""
    while part := await source.read(_PART):
        target.write(part)
        await target.drain()
    if target.can_write_eof():
        target.write_eof()
    else:  # with TLS, ending one direction ends both
        target.close()


@asynccontextmanager
async def _ended(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Closes a connection; at once if it broke, or if the task is cancelled."""
    try:
        yield
        writer.close()
    except OSError:
        writer.transport.abort()
    except BaseException:
        writer.transport.abort()
        raise
