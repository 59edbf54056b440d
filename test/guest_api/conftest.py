# SPDX-License-Identifier: Apache-2.0
"""The service and the real agent; operations "in a sandbox" happen on this machine."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Iterator

import httpx
import pytest

from stand_in import Service

__all__ = ["Service"]


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    started = Service(tmp_path_factory.mktemp("home"))
    yield started
    started.stop()


@pytest.fixture(scope="session")
def base(service: Service) -> str:
    return service.base


@pytest.fixture
def http(base: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=base, timeout=120, trust_env=False) as client:
        yield client


@pytest.fixture
def sandbox(http: httpx.Client) -> Iterator[str]:
    """Creates a sandbox and returns its path."""
    made = http.post("/v1/sandboxes", json={})
    assert made.status_code == 201, made.text
    path = "/v1/sandboxes/" + str(made.json()["id"])
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
