# SPDX-License-Identifier: Apache-2.0
"""Snapshots that are Spaces: their bytes name a Space of the service.

A restore forks the Space, which stays, so one snapshot can be restored many times.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Mapping
from uuid import uuid4

from ramet import AsyncClient, AsyncSandbox, AsyncSpace
from ramet._cleanup import finish
from ramet.errors import NotFound, RametError
from ramet.integrations._results import MAX_CHECK_BYTES
from ramet.integrations.openai_agents.options import SNAPSHOT_KEY

MAGIC = b"RAMET_SPACE_V1\n"


@dataclass(frozen=True)
class Reference:
    """The content of a snapshot: its Space, and the key that this Space has in its metadata."""

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
    sandbox: AsyncSandbox, metadata: Mapping[str, Any], drop: tuple[str, ...] = ()
) -> Reference:
    """Forks a sandbox and freezes the child; the sandbox itself continues.

    Args:
        sandbox: The sandbox.
        metadata: Metadata of the Space, beside the snapshot key.
        drop: Absolute paths that the snapshot must not contain.

    Raises:
        RametError: The service refuses it; nothing is left behind.
    """
    key = uuid4().hex
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
    """Starts a sandbox from the Space of a snapshot, which stays.

    Raises:
        NotFound: The Space does not exist any more.
        RametError: The service refuses it; nothing is left behind.
    """
    space = await _find(client, reference)
    if space is None:
        raise NotFound(
            f"the Space {reference.space_id} of this snapshot is gone: it was deleted, or resumed "
            "by another program; start a new session",
            status=404,
        )
    [sandbox] = await space.fork()
    try:
        await sandbox.update(metadata=dict(metadata))
    except BaseException:
        await finish(close_quietly(sandbox))
        raise
    return sandbox


async def _find(client: AsyncClient, reference: Reference) -> AsyncSpace | None:
    """Returns the Space of a snapshot, or the one that Ramet 0.1 put into its place."""
    with suppress(NotFound):
        space = await AsyncSpace.get(reference.space_id, client=client)
        # A Space that is no snapshot must not be used, whatever the bytes say.
        if space.metadata.get(SNAPSHOT_KEY) == reference.key:
            return space
    spaces = await AsyncSpace.list(client=client)
    found = [one for one in spaces if one.metadata.get(SNAPSHOT_KEY) == reference.key]
    return found[-1] if found else None


async def close_quietly(sandbox: AsyncSandbox) -> None:
    """Ends a sandbox if it still exists and the service answers."""
    with suppress(RametError):
        await sandbox.close()
