# SPDX-License-Identifier: Apache-2.0
"""Both clients of the SDK through service and agent: the scenarios that they share."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import scenario_async
import scenario_sync
from conftest import Service
from ramet import AsyncClient, Client, Conflict, Sandbox


@pytest.mark.parametrize("scenario", scenario_sync.SCENARIOS)
def test_synchronous_client(
    base: str, tmp_path: Path, scenario: scenario_sync.Scenario
) -> None:
    with Client(base) as client:
        scenario(client, f"{tmp_path}/sandbox", tmp_path)


@pytest.mark.parametrize("scenario", scenario_async.SCENARIOS)
def test_asynchronous_client(
    base: str, tmp_path: Path, scenario: scenario_async.Scenario
) -> None:
    async def run() -> None:
        async with AsyncClient(base) as client:
            await scenario(client, f"{tmp_path}/sandbox", tmp_path)

    asyncio.run(run())


def test_calls_are_undone(server: Service) -> None:
    with Client(server.base) as client:
        with Sandbox(client=client, checkpoint_each_call={"keep": 5}) as sbx:
            for n, mark in enumerate("ab", start=1):
                server.wait(lambda _: len(client.checkpoints(sandbox=sbx.id)) == n)
                sbx.run_code(f"mark {mark}")
            server.wait(lambda _: len(client.checkpoints(sandbox=sbx.id)) == 3)
            first, after_a, after_b = client.checkpoints(sandbox=sbx.id)
            assert first.call == 0 and after_a.call and after_b.call and after_a.call < after_b.call
            assert sbx.undo(keep="b") == after_a.id
            assert sbx.run_code("marked").stdout == "a\n"
            assert [one.undone for one in client.checkpoints(sandbox=sbx.id)][:3] == [False, False, True]
            (kept,) = client.checkpoints(sandbox=sbx.id, name="b")
            assert kept.call is None
            sbx.rollback(kept)
            assert sbx.run_code("marked").stdout == "b\n"
            was = [(one.kind, one.code, one.undone) for one in sbx.history()]
            assert was == [
                *[("created", None, False), ("call", "mark a", False), ("call", "mark b", False)],
                *[("checkpoint", None, False), ("rollback", None, True), ("call", "marked", True)],
                *[("rollback", None, False), ("call", "marked", False)],
            ]
            assert sbx.info().checkpoint_each_call == {"keep": 5}
            assert sbx.update(checkpoint_each_call={"keep": 0}).checkpoint_each_call is None
            with pytest.raises(Conflict) as refused:
                sbx.undo(6)
            assert refused.value.code == "no_undo"
