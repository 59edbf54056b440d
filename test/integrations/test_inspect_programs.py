# SPDX-License-Identifier: Apache-2.0
"""Inspect AI's command line and the example, which start event loops of their own."""

from __future__ import annotations

import runpy

import anyio
import pytest
from click.testing import CliRunner
from inspect_ai._cli.sandbox import sandbox_command

from conftest import HOST, REPO
from ramet import Client
from ramet.integrations.inspect_ai import RametSandboxConfig, RametSandboxEnvironment


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAMET_HOST", HOST)


def of_evals(client: Client) -> set[str]:
    return {one.id for one in client.list_sandboxes(metadata={"created_by": "inspect_ai"})}


def test_cleanup_from_the_command_line_ends_what_evals_left(client: Client) -> None:
    async def leave() -> str:
        config = RametSandboxConfig()
        await RametSandboxEnvironment.task_init("startup", config)
        environments = await RametSandboxEnvironment.sample_init("test", config, {})
        await RametSandboxEnvironment.task_cleanup("shutdown", config, cleanup=False)
        return environments["default"].as_type(RametSandboxEnvironment).sandbox.id

    def cleanup(*ids: str) -> None:
        done = CliRunner().invoke(sandbox_command, ["cleanup", "ramet", *ids])
        assert done.exit_code == 0, done.output

    other = client.create_sandbox()
    try:
        left = anyio.run(leave)
        assert len(of_evals(client)) >= 2
        cleanup(left)
        assert left not in of_evals(client) and of_evals(client)
        cleanup()
        assert of_evals(client) == set()
        assert client.get_sandbox(other.id).id == other.id
    finally:
        client.delete_sandbox(other.id)


@pytest.mark.vm
def test_example_forks_one_preparation_for_every_sample(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runpy.run_path(str(REPO / "examples/inspect_fork_eval.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "accuracy 1.00"
    assert len([line for line in lines if "prepared 1 time, request 3 to this server" in line]) == 4
