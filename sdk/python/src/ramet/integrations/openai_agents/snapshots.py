# SPDX-License-Identifier: Apache-2.0
"""Snapshots that are Spaces: their bytes name a Space of the service.

A resume consumes a Space. So that one snapshot can be restored many times, a restore puts a fork of
the resumed sandbox back on disk under the same snapshot key, by which later restores find it.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Mapping
from uuid import uuid4

from ramet import AsyncClient, AsyncSandbox
from ramet._cleanup import finish
from ramet.errors import Conflict, NotFound, RametError
from ramet.integrations._results import MAX_CHECK_BYTES
from ramet.integrations.openai_agents.options import SNAPSHOT_KEY
from ramet.types import SpaceInfo

MAGIC = b"RAMET_SPACE_V1\n"
_TRIES = 10  # another restore may have resumed the Space, and is about to put it back
_PAUSE_S = 0.5


@dataclass(frozen=True)
class Reference:
    """The content of a snapshot: the Space it was, and the key that its successors have too."""

    space_id: str
    key: str

    def encode(self) -> bytes:
        """Returns the bytes of the snapshot."""
        body = {"space_id": self.space_id, "snapshot": self.key}
        return MAGIC + json.dumps(body, sort_keys=True).encode()


def is_reference(data: bytes) -> bool:
    """Returns whether a snapshot names a Space, well or badly."""
    return data.startswith(MAGIC)


def decode(data: bytes) -> Reference | None:
    """Returns what a snapshot refers to; None if it is something else, such as a tar archive.

    Raises:
        ValueError: It begins like a reference, but is damaged.
    """
    if not is_reference(data):
        return None
    try:
        body = json.loads(data[len(MAGIC) :])
        return Reference(str(body["space_id"]), str(body["snapshot"]))
    except (ValueError, KeyError, TypeError):
        raise ValueError("the snapshot names no Space: its bytes are damaged") from None


async def freeze_copy(
    sandbox: AsyncSandbox,
    metadata: Mapping[str, Any],
    key: str | None = None,
    drop: tuple[str, ...] = (),
) -> Reference:
    """Forks a sandbox and freezes the child; the sandbox itself continues.

    Args:
        sandbox: The sandbox.
        metadata: Metadata of the Space, beside the snapshot key.
        key: The snapshot key. None: a new one.
        drop: Absolute paths that the snapshot must not contain.

    Raises:
        RametError: The service refuses it; nothing is left behind.
    """
    key = key or uuid4().hex
    [child] = await sandbox.fork(1)
    try:
        await child.update(metadata={**metadata, SNAPSHOT_KEY: key})
        if drop:
            await child.processes.run(
                ["rm", "-rf", "--", *drop], max_output_bytes=MAX_CHECK_BYTES
            )
        return Reference((await child.freeze()).id, key)
    finally:
        await finish(close_quietly(child))


async def restore(
    client: AsyncClient, reference: Reference, metadata: Mapping[str, Any]
) -> AsyncSandbox:
    """Resumes the Space of a snapshot, and puts a copy back, so that it can be restored again.

    Raises:
        NotFound: The Space does not exist any more.
        RametError: The service refuses it.
    """
    for attempt in range(_TRIES):
        if attempt:
            await asyncio.sleep(_PAUSE_S)
        space = await _find(client, reference)
        if space is None:
            continue
        try:
            sandbox = await AsyncSandbox.resume(space.id, client=client)
        except (NotFound, Conflict):
            continue
        try:
            await freeze_copy(sandbox, metadata, reference.key)
            await sandbox.update(metadata=dict(metadata))
        except BaseException:
            await finish(_refreeze(sandbox))
            raise
        return sandbox
    raise NotFound(
        f"the Space {reference.space_id} of this snapshot is gone: it was deleted, or resumed by "
        "another program; start a new session",
        status=404,
    )


async def _find(client: AsyncClient, reference: Reference) -> SpaceInfo | None:
    """Returns the Space of a snapshot, or its newest successor."""
    with suppress(NotFound):
        space = await client.get_space(reference.space_id)
        # A Space that is no snapshot must not be consumed, whatever the bytes say.
        if space.metadata.get(SNAPSHOT_KEY) == reference.key:
            return space
    found = None
    async for space in client.iter_spaces():
        if space.metadata.get(SNAPSHOT_KEY) == reference.key:
            found = space
    return found


async def _refreeze(sandbox: AsyncSandbox) -> None:
    """Keeps the snapshot after a failed restore: the sandbox still has its key."""
    with suppress(RametError):
        await sandbox.freeze()
    await close_quietly(sandbox)


async def close_quietly(sandbox: AsyncSandbox) -> None:
    """Ends a sandbox if it still exists and the service answers."""
    with suppress(RametError):
        await sandbox.close()
