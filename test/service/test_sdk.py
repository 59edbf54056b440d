# SPDX-License-Identifier: Apache-2.0
"""Both clients of the SDK through service and agent: the scenarios that they share."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import scenario_async
import scenario_sync
from conftest import Service
from ramet import AsyncClient, Client


@pytest.mark.parametrize("scenario", scenario_sync.SCENARIOS)
def test_synchronous_client(
    service: Service, tmp_path: Path, scenario: scenario_sync.Scenario
) -> None:
    with Client(service.base) as client:
        scenario(client, f"{tmp_path}/sandbox", tmp_path)


@pytest.mark.parametrize("scenario", scenario_async.SCENARIOS)
def test_asynchronous_client(
    service: Service, tmp_path: Path, scenario: scenario_async.Scenario
) -> None:
    async def run() -> None:
        async with AsyncClient(service.base) as client:
            await scenario(client, f"{tmp_path}/sandbox", tmp_path)

    asyncio.run(run())
