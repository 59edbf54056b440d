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

SERVER = os.environ.get("GUEST_API_SERVER", "build/test/guest_api/guest_api_server")
AGENT = os.environ.get("RAMET_INIT", "build/guest/ramet-init")


# The address sanitizer keeps freed memory, up to 256 MiB of it, which tests of the service's memory
# would count.
SANITIZER = ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), "quarantine_size_mb=4"]))


class Service:
    """The service, and the agent that all its sandboxes share."""

    def __init__(self, home: Path, *tiers: str) -> None:
        self.home = home
        self.log = home / "service.log"
        socket = f"{home}/agent.sock"
        # A file: what nobody reads from a pipe would fill it, and the agent would wait.
        with (home / "agent.log").open("wb") as log:
            self.agent = subprocess.Popen(
                [AGENT, "agent", "--unix", socket, "--run-dir", f"{home}/agent", "--dry-run-system"],
                stdin=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, "HOME": str(home), "LANG": "C.UTF-8"},
            )
        while b"agent ready" not in (home / "agent.log").read_bytes():
            assert self.agent.poll() is None, (home / "agent.log").read_text()
            time.sleep(0.01)
        (home / "service").mkdir()
        self.start(*tiers)
        assert self.server.stdout
        self.keys = [self.server.stdout.readline().decode().strip() for _ in tiers]

    def start(self, *tiers: str) -> None:
        """Starts the service with new keys of these tiers; older ones stay valid."""
        with self.log.open("ab") as log:
            self.server = subprocess.Popen(
                [SERVER, f"{self.home}/service", f"{self.home}/agent.sock", *tiers],
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "ASAN_OPTIONS": SANITIZER},
            )
        assert self.server.stdout
        port = int(self.server.stdout.readline() or 0)
        assert port, self.log.read_text()
        self.base = f"http://127.0.0.1:{port}"

    def kill(self) -> None:
        """Kills the service, and with it its VMs, but not the agent."""
        self.server.kill()
        self.server.wait()

    def stop(self) -> None:
        self.server.terminate()
        code = self.server.wait(60)
        self.agent.kill()
        self.agent.wait()
        assert code == 0, self.log.read_text()


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
