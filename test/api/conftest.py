# SPDX-License-Identifier: Apache-2.0
"""A separate server for each test, over a fake core (fake_core.h explains its scripts)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Iterator

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))

SERVER = os.environ.get("API_FAKE_SERVER", "build/test/api/api_fake_server")


class Server:
    """A running server. Once stopped, `log` is everything it wrote to standard error."""

    def __init__(self, *settings: str) -> None:
        self.process = subprocess.Popen(
            [SERVER, "listen_port=0", *settings], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self.process.stdout
        self.log = ""
        self.port = int(self.process.stdout.readline() or 0)
        assert self.port, f"no server: {self.stop()}"
        made = [setting for setting in settings if setting.startswith("key=")]
        self.keys = [self.process.stdout.readline().decode().strip() for _ in made]
        self.base = f"http://127.0.0.1:{self.port}"
        self.pid = self.process.pid

    def stop(self) -> str:
        """Ends the server as an operator would, and checks that it ended cleanly."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
            self.log = self.process.communicate(timeout=60)[1].decode(errors="replace")
        return self.log

    def client(self, http2: bool = False, **more: Any) -> httpx.Client:
        return httpx.Client(**self._how(http2), **more)

    def slow_client(self) -> httpx.Client:
        """Returns a client with a small receive buffer; the usual one grows to 32 MiB."""
        small = [(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)]
        return self.client(transport=httpx.HTTPTransport(socket_options=small))

    def async_client(self, http2: bool = False) -> httpx.AsyncClient:
        return httpx.AsyncClient(**self._how(http2))

    def _how(self, http2: bool) -> dict[str, Any]:
        versions = {"http1": not http2, "http2": http2}
        no_tls = {"verify": False}  # otherwise each client reads the machine's certificates
        return {"base_url": self.base, "timeout": 30, "trust_env": False, **no_tls, **versions}

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def raw(self, request: bytes) -> bytes:
        """Sends bytes and returns all that is received until the server closes."""
        with self.connect() as s:
            s.sendall(request)
            return until_closed(s)

    def metrics(self) -> dict[str, float]:
        """Returns the values in /metrics by name."""
        with self.client() as http:
            text = http.get("/metrics").text
        pairs = (line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
        return {name: float(value) for name, value in pairs}

    def wait(self, condition: Callable[[dict[str, float]], bool]) -> dict[str, float]:
        """Polls the metrics until `condition` holds; the test's timeout ends it."""
        while True:
            metrics = self.metrics()
            if condition(metrics):
                return metrics

    def rss(self) -> int:
        """Returns the resident bytes."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


def until_closed(s: socket.socket) -> bytes:
    data = b""
    while True:
        try:
            chunk = s.recv(65536)
        except ConnectionResetError:
            return data
        if not chunk:
            return data
        data += chunk


@pytest.fixture
def start() -> Iterator[Callable[..., Server]]:
    """Starts servers with settings; all are stopped, and must end cleanly, after the test."""
    servers: list[Server] = []

    def starter(*settings: str) -> Server:
        servers.append(Server(*settings))
        return servers[-1]

    yield starter
    for server in servers:
        server.stop()
        assert server.process.returncode == 0, server.log


@pytest.fixture
def server(start: Callable[..., Server]) -> Server:
    return start()


@pytest.fixture(params=["h1", "h2"])
def http(server: Server, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    with server.client(http2=request.param == "h2") as client:
        yield client


@pytest.fixture
def sandbox(http: httpx.Client) -> str:
    """Creates a sandbox and returns its path."""
    return "/v1/sandboxes/" + str(http.post("/v1/sandboxes", json={}).json()["id"])
