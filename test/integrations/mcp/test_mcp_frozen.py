# SPDX-License-Identifier: Apache-2.0
"""Does an agent learn that its sandbox is a Space?"""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from mcp import Client as McpClient

from mcp_clients import anyio_backend, ask, refused
from ramet import AsyncClient
from ramet.mcp.server import make_server
from ramet.mcp.state import Clients, Session

pytestmark = pytest.mark.anyio


class Service:
    """A service with sandboxes that can be frozen and resumed."""

    def __init__(self) -> None:
        self.made = 0
        self.frozen = ""  # the sandbox that something else has frozen

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if self.frozen and self.frozen in path:
            error = f"there is no sandbox {self.frozen}: it was frozen as space {SPACE['id']}"
            return httpx.Response(404, json={"error": error, "code": "frozen"})
        if path.endswith("/freeze"):
            return httpx.Response(200, json={"space_id": SPACE["id"]})
        if request.method == "GET" and path == f"/v1/spaces/{SPACE['id']}":
            return httpx.Response(200, json=SPACE)
        if request.method == "POST" and (path.endswith("/resume") or path == "/v1/sandboxes"):
            self.made += 1
            return httpx.Response(201, json=sandbox(self.made))
        if path.endswith("/files/stat"):
            return httpx.Response(404, json={"error": path, "code": "no_such_file"})
        if request.method == "GET" and path.startswith("/v1/sandboxes/"):
            return httpx.Response(200, json=sandbox(int(path[-1])))
        return httpx.Response(200, json=[])


SPACE = {
    "id": "spc_" + "5" * 32,
    "state": "frozen",
    "created_at": "2026-01-02T03:04:05.000Z",
    "size_bytes": 7,
    "ram_mib": 1,
    "template": "t",
    "metadata": {},
}


def sandbox(number: int) -> dict[str, Any]:
    return {
        "id": "sbx_" + str(number) * 32,
        "state": "ready",
        "template": "t",
        "vcpus": 1,
        "ram_mib": 1,
        "rootfs_gb": 1,
        "expires_at": None,
        "metadata": {},
    }


async def used(client: McpClient) -> str:
    """Returns the sandbox that a call without one uses."""
    return (await refused(client, "read_file", path="/x")).partition("sandboxes/")[2][:36]


async def test_frozen_sandbox_is_not_replaced_silently() -> None:
    service = Service()
    clients = Clients(lambda _: AsyncClient(transport=httpx.MockTransport(service)))
    async with McpClient(make_server(clients, Session())) as client:
        assert await used(client) == "sbx_" + "1" * 32
        frozen = await ask(client, "freeze")
        assert frozen["space"] == SPACE["id"]
        assert f"call resume with space={SPACE['id']}" in frozen["note"]
        said = await refused(client, "read_file", path="/x")
        assert f"is the Space {SPACE['id']} now" in said and "makes another one" in said
        assert service.made == 1
        await ask(client, "resume", space=SPACE["id"])
        assert await used(client) == "sbx_" + "2" * 32  # it is the session's own again
        await ask(client, "freeze")
        await refused(client, "read_file", path="/x")
        assert await used(client) == "sbx_" + "3" * 32  # as was announced


async def test_freeze_by_somebody_else_is_no_loss() -> None:
    service = Service()
    clients = Clients(lambda _: AsyncClient(transport=httpx.MockTransport(service)))
    async with McpClient(make_server(clients, Session())) as client:
        service.frozen = await used(client)
        said = await refused(client, "read_file", path="/x")
        assert f"frozen as space {SPACE['id']}. Call resume" in said and "lost" not in said
        assert "makes another one" in said and service.made == 1
        assert await used(client) == "sbx_" + "2" * 32
