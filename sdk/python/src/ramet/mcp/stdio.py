# SPDX-License-Identifier: Apache-2.0
"""Serves MCP over stdin and stdout, for the one client that started this process."""

from __future__ import annotations

import os
import signal
import sys

import anyio
from anyio.abc import TaskStatus

from ramet import AsyncClient
from ramet.mcp.server import end_session, make_server
from ramet.mcp.state import Clients, Session


async def serve() -> int:
    """Serves until stdin ends, or SIGINT or SIGTERM arrives. Deletes the session's sandboxes then.

    Returns the exit code of the program.
    """
    clients, session = Clients(lambda _: AsyncClient()), Session()
    async with anyio.create_task_group() as group:
        if sys.platform != "win32":
            await group.start(_end_at_signal, clients, session)
        await make_server(clients, session).run_stdio_async()
        group.cancel_scope.cancel()
    return 0


async def _end_at_signal(
    clients: Clients, session: Session, *, task_status: TaskStatus[None]
) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            await end_session(clients, session)
            # A thread is waiting for stdin, and nothing can end that.
            os._exit(128 + number)
