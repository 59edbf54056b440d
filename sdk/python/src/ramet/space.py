# SPDX-License-Identifier: Apache-2.0
"""Spaces as a program holds them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import List

from ramet.client import Client
from ramet.types import SpaceInfo


@dataclass(frozen=True)
class Place:
    """Which service it is: the caller's client, or what a new one is made of."""

    host: str | None = None
    api_key: str | None = field(default=None, repr=False)
    region: str | None = None
    client: Client | None = None

    def __post_init__(self) -> None:
        if self.client and (self.host or self.api_key or self.region):
            raise ValueError("host, api_key and region are the client's, where one is given")

    def new_client(self) -> Client:
        return Client(self.host, self.api_key, region=self.region)

    def visit(self) -> AbstractContextManager[Client]:
        """A client for a `with` block: a new one ends with it, the caller's does not."""
        return nullcontext(self.client) if self.client else self.new_client()


@dataclass(frozen=True)
class Space(SpaceInfo):
    """A Space: a sandbox on disk, as it was when it was asked for. `Sandbox.resume(space.id)` goes
    on with it. Attributes as in `SpaceInfo`."""

    place: Place = field(default=Place(), repr=False, compare=False)

    @classmethod
    def of(cls, info: SpaceInfo, place: Place) -> "Space":
        """The Space that the service at `place` told of."""
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
        """Every Space of this key, oldest first. Arguments as of `Sandbox`."""
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
        """The Space with that id. Arguments as of `Sandbox`.

        Raises:
            NotFound: There is none with this id.
        """
        place = Place(host, api_key, region, client)
        with place.visit() as service:
            return cls.of(service.get_space(space_id), place)

    def delete(self: "Space | str") -> None:
        """Removes the Space. `Space.delete(space_id)` does it for an id, at the service of the
        environment.

        Raises:
            NotFound: It is gone, or was resumed.
        """
        place, space_id = (self.place, self.id) if isinstance(self, Space) else (Place(), self)
        with place.visit() as service:
            service.delete_space(space_id)
