# SPDX-License-Identifier: Apache-2.0
"""Sessions in a running service, which `RAMET_HOST` names."""

from __future__ import annotations

import uuid
from typing import AsyncIterator, Iterator

import pytest
from agents import set_tracing_disabled
from agents.sandbox import Manifest
from agents.sandbox.session import SandboxSession

from ramet import Client
from ramet.integrations.openai_agents import RametSandboxClient
from ramet.integrations.openai_agents.options import SESSION_KEY

set_tracing_disabled(True)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def root() -> str:
    """Returns a workspace that no other test uses."""
    return f"/tmp/workspace-{uuid.uuid4().hex}"


def ours(client: Client) -> set[str]:
    """Returns the sandboxes and Spaces of sessions."""
    found = {one.id: one.raw for one in client.list_sandboxes()}
    found |= {one.id: one.raw for one in client.list_spaces()}
    return {name for name, raw in found.items() if SESSION_KEY in raw["metadata"]}


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    with Client() as client:
        before = ours(client)
        yield
        assert ours(client) <= before


@pytest.fixture
async def client() -> AsyncIterator[RametSandboxClient]:
    async with RametSandboxClient() as made:
        yield made


@pytest.fixture
async def session(client: RametSandboxClient, root: str) -> AsyncIterator[SandboxSession]:
    async with await client.create(manifest=Manifest(root=root)) as started:
        yield started
