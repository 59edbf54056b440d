# SPDX-License-Identifier: Apache-2.0
"""The service and the real agent; what is done in a "sandbox" is done on this machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Iterator

import httpx
import pytest

SERVER = os.environ.get("GUEST_API_SERVER", "build/test/guest_api/guest_api_server")
AGENT = os.environ.get("RAMET_INIT", "build/guest/ramet-init")


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("home")
    socket = f"{home}/agent.sock"
    agent = subprocess.Popen(
        [AGENT, "agent", "--unix", socket, "--run-dir", f"{home}/agent", "--dry-run-system"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "HOME": str(home), "LANG": "C.UTF-8"},
    )
    assert agent.stderr
    for line in agent.stderr:
        if b"agent ready" in line:
            break
    (home / "service").mkdir()
    with (home / "service.log").open("wb") as log:
        server = subprocess.Popen(
            [SERVER, f"{home}/service", socket], stdout=subprocess.PIPE, stderr=log
        )
    assert server.stdout
    port = int(server.stdout.readline() or 0)
    assert port, (home / "service.log").read_text()
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    code = server.wait(60)
    agent.kill()
    agent.stderr.close()
    agent.wait()
    assert code == 0, (home / "service.log").read_text()


@pytest.fixture
def http(base: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=base, timeout=60, trust_env=False) as client:
        yield client


@pytest.fixture
def sandbox(http: httpx.Client) -> Iterator[str]:
    """Path of a sandbox."""
    made = http.post("/v1/sandboxes", json={})
    assert made.status_code == 201, made.text
    path = "/v1/sandboxes/" + str(made.json()["id"])
    yield path
    http.delete(path)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Of the agent's as of the test's."""
    return str(tmp_path)
