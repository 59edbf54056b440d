# SPDX-License-Identifier: Apache-2.0
"""Both clients of the SDK with real guests: the scenarios that need VMs.

test/service has the others.
"""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest

import scenario_async
import scenario_sync
from conftest import HOST
from ramet import AsyncClient, Client

NAMES = ("forks", "spaces")


@pytest.mark.smoke
@pytest.mark.parametrize("name", NAMES)
def test_synchronous_client(client: Client, tmp_path: Path, name: str) -> None:
    scenario: scenario_sync.Scenario = getattr(scenario_sync, name)
    scenario(client, f"/root/{uuid.uuid4()}/sandbox", tmp_path)


@pytest.mark.smoke
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("client")
def test_asynchronous_client(tmp_path: Path, name: str) -> None:
    scenario: scenario_async.Scenario = getattr(scenario_async, name)

    async def run() -> None:
        async with AsyncClient(HOST, timeout=300) as client:
            await scenario(client, f"/root/{uuid.uuid4()}/sandbox", tmp_path)

    asyncio.run(run())
