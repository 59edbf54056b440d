# SPDX-License-Identifier: Apache-2.0
"""The service, with fake VMs in its process, and one of two kinds of agents.

`service` and what builds on it (`base`, `http`, `sandbox`): all sandboxes share the real agent, so
what happens "in a sandbox" happens on this machine.

`server` and what builds on it (`client`, `box`): each sandbox has an agent that runs the scripts of
test/unit/service/fakes.h, for answers that a real guest gives rarely, and for tests that count. `start`
starts such a server for one test.
"""

from __future__ import annotations

import os
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import httpx
import pytest

from stand_in import Service, until_closed

__all__ = ["NOBODY", "Service", "made", "refused", "until_closed"]


def refused(answer: httpx.Response, status: int, code: str) -> str:
    """Checks a refusal; returns its sentence."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"error", "code"} and body["code"] == code, answer.text
    assert answer.headers["content-type"] == "application/json"
    return str(body["error"])


NOBODY = "/v1/sandboxes/sbx_" + "f" * 32


def made(http: httpx.Client, **spec: Any) -> str:
    """Creates a sandbox and returns its path."""
    answer = http.post("/v1/sandboxes", json=spec)
    assert answer.status_code == 201, answer.text
    return "/v1/sandboxes/" + str(answer.json()["id"])


# --- the real agent ---


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    started = Service(tmp_path_factory.mktemp("home"))
    yield started
    started.stop()


@pytest.fixture(scope="session")
def base(request: pytest.FixtureRequest) -> str:
    """The service's URL. RAMET_TESTED_HOST: one that runs already, such as a fleet behind HAProxy."""
    if tested := os.environ.get("RAMET_TESTED_HOST"):
        return tested
    started: Service = request.getfixturevalue("service")
    return started.base


@pytest.fixture
def http(base: str) -> Iterator[httpx.Client]:
    ca = os.environ.get("RAMET_CA_FILE")
    trusted = ssl.create_default_context(cafile=ca) if ca else True
    with httpx.Client(base_url=base, timeout=120, trust_env=False, verify=trusted) as client:
        yield client


@pytest.fixture
def sandbox(http: httpx.Client) -> Iterator[str]:
    """Creates a sandbox and returns its path."""
    path = made(http)
    yield path
    http.delete(path)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Returns a folder that agent and test share."""
    return str(tmp_path)


@pytest.fixture
def small_disk(folder: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A folder on a file system of its own, as many MiB large as the test's parameter says."""
    if os.geteuid() != 0:
        pytest.skip("mounts a file system")
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={request.param}M", "none", folder], check=True
    )
    yield folder
    # The agent closes a file only after it has sent the last byte, so it may still be open here.
    end = time.monotonic() + 60
    while subprocess.run(["umount", folder], check=time.monotonic() > end).returncode != 0:
        time.sleep(0.1)


# --- agents that run scripts ---


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Service]]:
    """Starts servers with settings; all that still run must end cleanly after the test."""
    servers: list[Service] = []

    def starter(*settings: str) -> Service:
        servers.append(Service(tmp_path_factory.mktemp("server"), "max_vms=64", *settings, agent=False))
        return servers[-1]

    yield starter
    for server in servers:
        if server.server.poll() is None:
            server.tell("go")
            server.stop()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    started = Service(tmp_path_factory.mktemp("server"), "max_vms=64", agent=False)
    yield started
    started.stop()


@pytest.fixture
def client(server: Service) -> Iterator[httpx.Client]:
    """A client of `server`, which has no sandboxes and no Spaces when a test begins."""
    with server.client() as http:
        yield http
        server.clear(http)
    server.until_waiting(0)


@pytest.fixture
def box(client: httpx.Client) -> str:
    """Creates a sandbox with an agent that runs scripts, and returns its path."""
    return made(client)
