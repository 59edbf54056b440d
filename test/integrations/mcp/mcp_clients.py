# SPDX-License-Identifier: Apache-2.0
"""The official client, over stdio and HTTP, in both eras of the protocol, and other fixtures."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from contextlib import asynccontextmanager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, AsyncIterator, Callable, Iterator

import anyio
import httpx2
import pytest
from mcp import Client as McpClient
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult

import ramet
from ramet import Client, NotFound
from ramet.mcp.state import MARK

HOST = os.environ.get("RAMET_HOST", "http://127.0.0.1:7070")
MODERN, LEGACY = "auto", "legacy"
ENVIRONMENT = {
    "RAMET_HOST": HOST,
    "PYTHONPATH": str(Path(ramet.__file__).parents[1]),
    **{name: os.environ[name] for name in ("RAMET_API_KEY", "RAMET_CA_FILE") if name in os.environ},
}
PROGRAM = [sys.executable, "-m", "ramet.mcp"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def stdio(mode: str = MODERN) -> McpClient:
    """Returns a client that starts a server of its own."""
    command, *args = PROGRAM
    parameters = StdioServerParameters(command=command, args=args, env=ENVIRONMENT)
    return McpClient(parameters, mode=mode)


@contextmanager
def http_server(*args: str, **environment: str) -> Iterator[str]:
    """Starts a server over HTTP and yields its URL."""
    process = subprocess.Popen(
        [*PROGRAM, "--http", "--port=0", *args],
        env={**os.environ, **ENVIRONMENT, **environment},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr
    lines = []
    try:
        for line in process.stderr:
            lines.append(line)
            if found := re.search(r"serving (http:\S+)", line):
                drain = threading.Thread(target=process.stderr.read, daemon=True)
                drain.start()
                yield found[1]
                break
        else:
            pytest.fail(f"the server did not start: {lines}")
    finally:
        process.terminate()
        assert process.wait(60) in (0, -15, 143)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of a server over HTTP."""
    with http_server() as started:
        yield started


@asynccontextmanager
async def over_http(
    url: str, mode: str = MODERN, key: str | None = None
) -> AsyncIterator[McpClient]:
    """Yields a client of a server over HTTP that sends an API key."""
    key = key or os.environ.get("RAMET_API_KEY")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with httpx2.AsyncClient(headers=headers, timeout=120) as transport:
        connection = streamable_http_client(url, http_client=transport)
        async with McpClient(connection, mode=mode) as client:
            yield client


@pytest.fixture(params=["stdio-modern", "stdio-legacy", "http-modern", "http-legacy"])
def connect(request: pytest.FixtureRequest, url: str) -> Callable[[], Any]:
    """Returns a function that opens a client: over each transport, in each era."""
    transport, era = request.param.split("-")
    mode = MODERN if era == "modern" else LEGACY

    def opened() -> Any:
        return stdio(mode) if transport == "stdio" else over_http(url, mode)

    return opened


def written(result: CallToolResult) -> str:
    """Returns the text of a tool's result."""
    return "\n".join(block.text for block in result.content if block.type == "text")


async def call(client: McpClient, tool: str, /, **arguments: Any) -> str:
    """Calls a tool that must succeed; returns its text."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, written(result)
    return written(result)


async def ask(client: McpClient, tool: str, /, **arguments: Any) -> Any:
    """Calls a tool that must succeed; returns its structured result."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, written(result)
    structured = result.structured_content
    assert structured is not None
    assert json.loads(written(result)).keys() <= structured.keys()  # for clients that read text
    return structured


async def refused(client: McpClient, tool: str, /, **arguments: Any) -> str:
    """Calls a tool that must fail; returns the error."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, written(result)
    return written(result)


async def until(holds: Callable[[], bool], what: str, seconds: float = 120) -> None:
    """Waits until `holds` returns true."""
    with anyio.move_on_after(seconds):
        while not holds():
            await anyio.sleep(0.05)
        return
    pytest.fail(f"{what}: not within {seconds} s")


NAME = "mcp-test"  # of sandboxes that a test makes explicitly


def _ours(service: Client) -> set[str]:
    """Returns the sandboxes that MCP servers made; others may use the service too."""
    return {
        one.id
        for one in service.list_sandboxes()
        if MARK in one.raw["metadata"] or one.raw["metadata"].get("name") == NAME
    }


@pytest.fixture
def mine(client: Client) -> Callable[[], set[str]]:
    """Returns a function that returns the sandboxes that MCP servers made in this test."""
    before = _ours(client)
    return lambda: _ours(client) - before


@pytest.fixture
def tidy() -> Iterator[None]:
    """Deletes the sandboxes that a test left on purpose, so that the next one finds room."""
    with Client(HOST) as service:
        before = _ours(service)
        yield
        for one in _ours(service) - before:
            with suppress(NotFound):
                service.delete_sandbox(one)


class Recorder:
    """A stand-in of the service that records requests. `keys`: it demands one of them."""

    def __init__(self, *keys: str) -> None:
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                recorder.requests.append((self.command, self.path, headers))
                allowed = not keys or headers.get("authorization", "")[len("Bearer ") :] in keys
                body = b"[]" if allowed else b'{"error":"no key","code":"key_missing"}'
                self.send_response(200 if allowed else 401)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.host = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
