# SPDX-License-Identifier: Apache-2.0
# Generated from _async/checkpoint.py by make_sync.py: change that file.
"""The class `Checkpoint`: the kept state of a sandbox."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Mapping

from ramet.client import Client
from ramet.sandbox import Sandbox
from ramet.space import Place
from ramet.types import CheckpointInfo


@dataclass(frozen=True)
class Checkpoint(CheckpointInfo):
    """A checkpoint: the state of a sandbox at one moment, memory and processes included.

    `Sandbox(checkpoint=…)` and `fork` start sandboxes from it, any number of times. The
    attributes are those of `CheckpointInfo`, as they were at the time of the request.
    """

    place: Place = field(default=Place(), repr=False, compare=False)

    @classmethod
    def of(cls, info: CheckpointInfo, place: Place) -> "Checkpoint":
        """Returns the checkpoint for what the service at `place` reported."""
        return cls(**vars(info), place=place)

    @classmethod
    def list(
        cls,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        sandbox: str | None = None,
        ancestor: str | None = None,
        host: str | None = None,
        api_key: str | None = None,
        region: str | None = None,
        client: Client | None = None,
    ) -> List["Checkpoint"]:
        """Returns the checkpoints of this key, oldest first.

        Args:
            name: As for `Client.iter_checkpoints`.
            labels: Likewise.
            sandbox: Likewise.
            ancestor: Likewise.
            host: As for `Sandbox`.
            api_key: As for `Sandbox`.
            region: As for `Sandbox`.
            client: As for `Sandbox`.

        Raises:
            BadRequest: A value is wrong; the message names it.
        """
        place = Place(host, api_key, region, client)
        with place.visit() as service:
            found = service.iter_checkpoints(
                name=name, labels=labels, sandbox=sandbox, ancestor=ancestor
            )
            return [cls.of(one, place) for one in found]

    @classmethod
    def get(
        cls,
        checkpoint_id: str,
        *,
        host: str | None = None,
        api_key: str | None = None,
        region: str | None = None,
        client: Client | None = None,
    ) -> "Checkpoint":
        """Returns the checkpoint with that id. Arguments as for `Sandbox`.

        Raises:
            NotFound: There is none with this id.
        """
        place = Place(host, api_key, region, client)
        with place.visit() as service:
            return cls.of(service.get_checkpoint(checkpoint_id), place)

    def fork(
        self, n: int = 1, *, reseed: bool = False, partial: bool = False
    ) -> List[Sandbox]:
        """Starts sandboxes from the checkpoint, which stays.

        Args:
            n: Number of sandboxes: 1 to the service's limit (32 unless configured).
            reseed: Seed Python's `random` and numpy's generator differently in each.
            partial: True: if only some can be started, return those. False: all or none.

        Returns:
            The sandboxes. Each can be used at once, and the caller must close it.

        Raises: As `Client.fork_checkpoint`; ServerError if one cannot be started.
        """
        return Sandbox.of_started(
            self.place,
            lambda service: service.fork_checkpoint(self.id, n, reseed=reseed),
            partial=partial,
        )

    def update(
        self,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        ttl_seconds: int | None = None,
        pin: bool | None = None,
        score: float | None = None,
    ) -> "Checkpoint":
        """Changes name, labels, score, pin or time limit, and returns the changed checkpoint.

        Arguments and errors are those of `Client.update_checkpoint`.
        """
        with self.place.visit() as service:
            info = service.update_checkpoint(
                self.id, name=name, labels=labels, ttl_seconds=ttl_seconds, pin=pin, score=score
            )
        return self.of(info, self.place)

    def delete(self) -> None:
        """Deletes the checkpoint. Sandboxes that were started from it stay.

        Raises:
            NotFound: It has already been deleted.
            Conflict: It is pinned (code ``pinned``), or a sandbox is being started from it
                (code ``busy``).
        """
        with self.place.visit() as service:
            service.delete_checkpoint(self.id)
