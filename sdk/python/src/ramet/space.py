# SPDX-License-Identifier: Apache-2.0
# Generated from _async/space.py by make_sync.py: change that file.
"""The class `Space`: a sandbox on disk."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import List, TYPE_CHECKING

from ramet.client import Client
from ramet.types import SpaceInfo

if TYPE_CHECKING:
    from ramet.sandbox import Sandbox


@dataclass(frozen=True)
class Place:
    """Which service to use: the caller's client, or parameters of a new one."""

    host: str | None = None
    api_key: str | None = field(default=None, repr=False)
    region: str | None = None
    client: Client | None = None

    def __post_init__(self) -> None:
        if self.client and (self.host or self.api_key or self.region):
            raise ValueError("pass either `client` or `host`, `api_key` and `region`, not both")

    def new_client(self) -> Client:
        return Client(self.host, self.api_key, region=self.region)

    def visit(self) -> AbstractContextManager[Client]:
        """Returns a client for a `with` block, which closes a new one but not the caller's."""
        return nullcontext(self.client) if self.client else self.new_client()


@dataclass(frozen=True)
class Space(SpaceInfo):
    """A Space: a sandbox on disk. `Sandbox.resume(space.id)` continues the sandbox.

    The attributes are those of `SpaceInfo`, as they were at the time of the request.
    """

    place: Place = field(default=Place(), repr=False, compare=False)

    @classmethod
    def of(cls, info: SpaceInfo, place: Place) -> "Space":
        """Returns the Space for what the service at `place` reported."""
        return cls(**vars(info), place=place)

    @classmethod
    def list(
        cls,
        *,
        host: str | None = None,
        api_key: str | None = None,
        region: str | None = None,
        client: Client | None = None,
    ) -> List["Space"]:
        """Returns all Spaces of this key, oldest first. Arguments as for `Sandbox`."""
        place = Place(host, api_key, region, client)
        with place.visit() as service:
            return [cls.of(one, place) for one in service.list_spaces()]

    @classmethod
    def get(
        cls,
        space_id: str,
        *,
        host: str | None = None,
        api_key: str | None = None,
        region: str | None = None,
        client: Client | None = None,
    ) -> "Space":
        """Returns the Space with that id. Arguments as for `Sandbox`.

        Raises:
            NotFound: There is none with this id.
        """
        place = Place(host, api_key, region, client)
        with place.visit() as service:
            return cls.of(service.get_space(space_id), place)

    def fork(
        self, n: int = 1, *, reseed: bool = False, partial: bool = False
    ) -> List["Sandbox"]:
        """Starts sandboxes from the Space, which stays.

        Arguments and result are those of `Checkpoint.fork`.

        Raises: As `Client.fork_space`; ServerError if one cannot be started.
        """
        from ramet.sandbox import Sandbox

        return Sandbox.of_started(
            self.place,
            lambda service: service.fork_space(self.id, n, reseed=reseed),
            partial=partial,
        )

    def delete(self: "Space | str") -> None:
        """Deletes the Space.

        `Space.delete(space_id)` deletes a Space by its id, at the service that the environment
        names.

        Raises:
            NotFound: It has already been deleted or resumed.
        """
        place, space_id = (self.place, self.id) if isinstance(self, Space) else (Place(), self)
        with place.visit() as service:
            service.delete_space(space_id)
