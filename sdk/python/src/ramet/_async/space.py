# SPDX-License-Identifier: Apache-2.0
"""The class `AsyncSpace`: a sandbox on disk."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, List

from ramet._async.client import AsyncClient
from ramet.types import SpaceInfo

if TYPE_CHECKING:
    from ramet._async.sandbox import AsyncSandbox


@dataclass(frozen=True)
class Place:
    """Which service to use: the caller's client, or parameters of a new one."""

    host: str | None = None
    api_key: str | None = field(default=None, repr=False)
    region: str | None = None
    client: AsyncClient | None = None

    def __post_init__(self) -> None:
        if self.client and (self.host or self.api_key or self.region):
            raise ValueError("pass either `client` or `host`, `api_key` and `region`, not both")

    def new_client(self) -> AsyncClient:
        return AsyncClient(self.host, self.api_key, region=self.region)

    def visit(self) -> AbstractAsyncContextManager[AsyncClient]:
        """Returns a client for an `async with` block, which closes a new one but not the caller's."""
        return nullcontext(self.client) if self.client else self.new_client()


@dataclass(frozen=True)
class AsyncSpace(SpaceInfo):
    """A Space: a sandbox on disk. `AsyncSandbox.resume(space.id)` continues the sandbox.

    The attributes are those of `SpaceInfo`, as they were at the time of the request.
    """

    place: Place = field(default=Place(), repr=False, compare=False)

    @classmethod
    def of(cls, info: SpaceInfo, place: Place) -> "AsyncSpace":
        """Returns the Space for what the service at `place` reported."""
        return cls(**vars(info), place=place)

    @classmethod
    async def list(
        cls,
        *,
        host: str | None = None,
        api_key: str | None = None,
        region: str | None = None,
        client: AsyncClient | None = None,
    ) -> List["AsyncSpace"]:
        """Returns all Spaces of this key, oldest first. Arguments as for `AsyncSandbox`."""
        place = Place(host, api_key, region, client)
        async with place.visit() as service:
            return [cls.of(one, place) for one in await service.list_spaces()]

    @classmethod
    async def get(
        cls,
        space_id: str,
        *,
        host: str | None = None,
        api_key: str | None = None,
        region: str | None = None,
        client: AsyncClient | None = None,
    ) -> "AsyncSpace":
        """Returns the Space with that id. Arguments as for `AsyncSandbox`.

        Raises:
            NotFound: There is none with this id.
        """
        place = Place(host, api_key, region, client)
        async with place.visit() as service:
            return cls.of(await service.get_space(space_id), place)

    async def fork(
        self, n: int = 1, *, reseed: bool = False, partial: bool = False
    ) -> List["AsyncSandbox"]:
        """Starts sandboxes from the Space, which stays.

        Arguments and result are those of `AsyncCheckpoint.fork`.

        Raises: As `AsyncClient.fork_space`; ServerError if one cannot be started.
        """
        from ramet._async.sandbox import AsyncSandbox

        return await AsyncSandbox.of_started(
            self.place,
            lambda service: service.fork_space(self.id, n, reseed=reseed),
            partial=partial,
        )

    async def delete(self: "AsyncSpace | str") -> None:
        """Deletes the Space.

        `AsyncSpace.delete(space_id)` deletes a Space by its id, at the service that the environment
        names.

        Raises:
            NotFound: It has already been deleted or resumed.
        """
        place, space_id = (self.place, self.id) if isinstance(self, AsyncSpace) else (Place(), self)
        async with place.visit() as service:
            await service.delete_space(space_id)
