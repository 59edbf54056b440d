# SPDX-License-Identifier: Apache-2.0
"""The class `AsyncCheckpoint`: the kept state of a sandbox."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Mapping

from ramet._async.client import AsyncClient
from ramet._async.sandbox import AsyncSandbox
from ramet._async.space import Place
from ramet.types import CheckpointInfo


@dataclass(frozen=True)
class AsyncCheckpoint(CheckpointInfo):
    """A checkpoint: the state of a sandbox at one moment, memory and processes included.

    `AsyncSandbox.create(checkpoint=…)` and `fork` start sandboxes from it, any number of times. The
    attributes are those of `CheckpointInfo`, as they were at the time of the request.
    """

    place: Place = field(default=Place(), repr=False, compare=False)

    @classmethod
    def of(cls, info: CheckpointInfo, place: Place) -> "AsyncCheckpoint":
        """Returns the checkpoint for what the service at `place` reported."""
        return cls(**vars(info), place=place)

    @classmethod
    async def list(
        cls,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        sandbox: str | None = None,
        ancestor: str | None = None,
        host: str | None = None,
        api_key: str | None = None,
        region: str | None = None,
        client: AsyncClient | None = None,
    ) -> List["AsyncCheckpoint"]:
        """Returns the checkpoints of this key, oldest first.

        Args:
            name: As for `AsyncClient.iter_checkpoints`.
            labels: Likewise.
            sandbox: Likewise.
            ancestor: Likewise.
            host: As for `AsyncSandbox`.
            api_key: As for `AsyncSandbox`.
            region: As for `AsyncSandbox`.
            client: As for `AsyncSandbox`.

        Raises:
            BadRequest: A value is wrong; the message names it.
        """
        place = Place(host, api_key, region, client)
        async with place.visit() as service:
            found = service.iter_checkpoints(
                name=name, labels=labels, sandbox=sandbox, ancestor=ancestor
            )
            return [cls.of(one, place) async for one in found]

    @classmethod
    async def get(
        cls,
        checkpoint_id: str,
        *,
        host: str | None = None,
        api_key: str | None = None,
        region: str | None = None,
        client: AsyncClient | None = None,
    ) -> "AsyncCheckpoint":
        """Returns the checkpoint with that id. Arguments as for `AsyncSandbox`.

        Raises:
            NotFound: There is none with this id.
        """
        place = Place(host, api_key, region, client)
        async with place.visit() as service:
            return cls.of(await service.get_checkpoint(checkpoint_id), place)

    async def fork(
        self, n: int = 1, *, reseed: bool = False, partial: bool = False
    ) -> List[AsyncSandbox]:
        """Starts sandboxes from the checkpoint, which stays.

        Args:
            n: Number of sandboxes: 1 to the service's limit (32 unless configured).
            reseed: Seed Python's `random` and numpy's generator differently in each.
            partial: True: if only some can be started, return those. False: all or none.

        Returns:
            The sandboxes. Each can be used at once, and the caller must close it.

        Raises: As `AsyncClient.fork_checkpoint`; ServerError if one cannot be started.
        """
        return await AsyncSandbox.of_started(
            self.place,
            lambda service: service.fork_checkpoint(self.id, n, reseed=reseed),
            partial=partial,
        )

    async def update(
        self,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        ttl_seconds: int | None = None,
        pin: bool | None = None,
        score: float | None = None,
    ) -> "AsyncCheckpoint":
        """Changes name, labels, score, pin or time limit, and returns the changed checkpoint.

        Arguments and errors are those of `AsyncClient.update_checkpoint`.
        """
        async with self.place.visit() as service:
            info = await service.update_checkpoint(
                self.id, name=name, labels=labels, ttl_seconds=ttl_seconds, pin=pin, score=score
            )
        return self.of(info, self.place)

    async def delete(self) -> None:
        """Deletes the checkpoint. Sandboxes that were started from it stay.

        Raises:
            NotFound: It has already been deleted.
            Conflict: It is pinned (code ``pinned``), or a sandbox is being started from it
                (code ``busy``).
        """
        async with self.place.visit() as service:
            await service.delete_checkpoint(self.id)
