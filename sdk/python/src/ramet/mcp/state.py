# SPDX-License-Identifier: Apache-2.0
"""The state of the server: connections to the service, the session's sandbox, running calls."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, AsyncIterator, Callable, Mapping

import anyio

from ramet import AsyncClient
from ramet.errors import RametError

MARK = "ramet_mcp"
"""Member of the metadata of a sandbox: the id of the session that it ends with."""

_CLIENTS_MAX = 64  # connection pools that are kept, one for each key
_CLOSE_S = 3.0  # for the end of a session; clients kill the server after 4 s


@dataclass
class _Pool:
    client: AsyncClient
    users: int = 0


class Clients:
    """Connections to the service, one pool for each API key, the last ones used.

    `connect` makes a client for a key; None is the key of the environment.
    """

    def __init__(self, connect: Callable[[str | None], AsyncClient]) -> None:
        self._connect = connect
        self._pools: OrderedDict[str | None, _Pool] = OrderedDict()

    @asynccontextmanager
    async def use(self, key: str | None) -> AsyncIterator[AsyncClient]:
        """Yields the client of a key."""
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = _Pool(self._connect(key))
        self._pools.move_to_end(key)
        pool.users += 1
        try:
            yield pool.client
        finally:
            pool.users -= 1
            await self._close_unused(_CLIENTS_MAX)

    async def close(self) -> None:
        """Closes all connections that no call uses."""
        await self._close_unused(0)

    async def _close_unused(self, keep: int) -> None:
        surplus = len(self._pools) - keep
        unused = [key for key, pool in self._pools.items() if not pool.users][: max(surplus, 0)]
        closed = [self._pools.pop(key) for key in unused]
        with anyio.CancelScope(shield=True):
            for pool in closed:
                await pool.client.close()


class Lanes:
    """Makes calls wait for each other here, and not in the service.

    An interrupt reaches the running call of an interpreter. It is therefore sent only by the call
    that runs; a call that still waits just leaves. And the service refuses more than 32 operations
    in a sandbox at one time, while a client may send any number of calls.
    """

    def __init__(self) -> None:
        self._lanes: dict[object, tuple[anyio.Semaphore, list[None]]] = {}

    @asynccontextmanager
    async def hold(self, lane: object, width: int = 1) -> AsyncIterator[None]:
        """Waits until fewer than `width` calls hold the lane, and holds it."""
        room, users = self._lanes.setdefault(lane, (anyio.Semaphore(width), []))
        users.append(None)
        try:
            async with room:
                yield
        finally:
            users.pop()
            if not users:
                del self._lanes[lane]


@dataclass
class Session:
    """The session of one client over stdio: it has a sandbox of its own, made on first use.

    Sandboxes that the session makes carry its id in their metadata, which their forks inherit, and
    end with it. So none is left behind, whatever was in progress when the client went away.
    """

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    sandbox: str | None = None
    space: str | None = None  # that the sandbox was frozen into
    informed: bool = False  # the client knows that a call without a sandbox will make a new one
    made: bool = False  # a sandbox may exist that ends with the session
    _lock: anyio.Lock = field(default_factory=anyio.Lock)

    def mark(self) -> dict[str, str]:
        """Returns the metadata of a sandbox that ends with the session."""
        self.made = True
        return {MARK: self.id}

    async def default(self, client: AsyncClient) -> str:
        """Returns the id of the session's own sandbox, and creates it on first use."""
        async with self._lock:  # parallel first calls share one sandbox
            if self.sandbox is None:
                made = await client.create_sandbox(metadata={"name": "default", **self.mark()})
                self.sandbox = made.id
            return self.sandbox

    def forget(self, sandbox: str) -> None:
        """Makes the next call without a sandbox create another one, if this one was the default."""
        if self.sandbox == sandbox:
            self.sandbox = None

    def freeze(self, sandbox: str, space: str) -> None:
        """Notes that a sandbox is a Space now."""
        if self.sandbox == sandbox:
            self.sandbox, self.space, self.informed = None, space, False

    def resume(self, space: str, sandbox: str) -> None:
        """Makes the sandbox of a Space the default, if the default one was frozen into it."""
        if self.space == space and self.sandbox is None:
            self.sandbox, self.space = sandbox, None

    def uninformed_of(self) -> str | None:
        """Returns, once, the Space that the default sandbox was frozen into."""
        if self.sandbox is not None or self.space is None or self.informed:
            return None
        self.informed = True
        return self.space

    def owns(self, metadata: Mapping[str, Any]) -> bool:
        """Returns True if a sandbox with this metadata ends with the session."""
        return metadata.get(MARK) == self.id

    async def close(self, client: AsyncClient) -> None:
        """Deletes all sandboxes that end with the session, within 3 seconds, and raises nothing.

        Several callers at once are possible; each returns when the sandboxes are gone.
        """
        with anyio.move_on_after(_CLOSE_S, shield=True), suppress(RametError):
            mine = await client.list_sandboxes(metadata={MARK: self.id})
            async with anyio.create_task_group() as group:
                for one in mine:
                    group.start_soon(_delete, client, one.id)


async def _delete(client: AsyncClient, sandbox: str) -> None:
    with suppress(RametError):
        await client.delete_sandbox(sandbox)
