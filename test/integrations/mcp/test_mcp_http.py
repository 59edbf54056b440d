# SPDX-License-Identifier: Apache-2.0
"""Over HTTP: does each request act with its own key, and is nobody else let in?"""

from __future__ import annotations

import socket
import subprocess
from typing import Iterator, cast

import httpx
import pytest
from mcp import Client as McpClient
from mcp.types import RequestParamsMeta

from mcp_clients import (
    ENVIRONMENT,
    LEGACY,
    MODERN,
    PROGRAM,
    Recorder,
    anyio_backend,
    call,
    http_server,
    over_http,
    refused,
    stdio,
    url,
)

pytestmark = pytest.mark.anyio

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
HEADERS = {"accept": "application/json, text/event-stream"}
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACED = cast(RequestParamsMeta, {"traceparent": TRACE})


@pytest.fixture
def closed() -> Iterator[Recorder]:
    """A service that demands one of two keys."""
    service = Recorder("rmt_one", "rmt_two")
    yield service
    service.close()


@pytest.fixture
def opened() -> Iterator[Recorder]:
    """A service without keys."""
    service = Recorder()
    yield service
    service.close()


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
async def test_caller_acts_with_his_own_key(mode: str, closed: Recorder) -> None:
    with http_server(RAMET_HOST=closed.host, RAMET_API_KEY="rmt_of_the_server") as url:
        for key in ("rmt_one", "rmt_two", "rmt_one"):
            async with over_http(url, mode, key) as client:
                await call(client, "list")
    # The first request with a key is a check of it.
    sent = [headers.get("authorization") for _, _, headers in closed.requests]
    assert sent == [f"Bearer rmt_{name}" for name in ("one", "one", "two", "two", "one")]


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
async def test_key_is_checked_before_the_body_is_read(address: str, closed: Recorder) -> None:
    with http_server("--host", address, RAMET_HOST=closed.host) as url:
        port = int(url.rpartition(":")[2].partition("/")[0])
        for _ in range(2):
            head = b"POST /mcp HTTP/1.1\r\nHost: localhost:%d\r\n" % port
            head += b"Authorization: Bearer rmt_invented\r\nContent-Type: application/json\r\n"
            with socket.create_connection(("127.0.0.1", port), 60) as connection:
                connection.sendall(head + b"Content-Length: 60000000\r\n\r\n{")
                assert connection.recv(1000).startswith(b"HTTP/1.1 401 ")
    assert [headers.get("authorization") for _, _, headers in closed.requests[-1:]] == [
        "Bearer rmt_invented"
    ]


async def test_nobody_is_let_in_while_the_service_is_gone(closed: Recorder) -> None:
    with http_server(RAMET_HOST="http://127.0.0.1:9") as url:
        answer = httpx.post(url, json=HELLO, headers=HEADERS, trust_env=False)
        assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
        assert "did not check" in answer.json()["error"]


@pytest.mark.parametrize("mode", [MODERN, LEGACY])
async def test_trace_of_the_caller_is_passed_on(mode: str, opened: Recorder) -> None:
    with http_server(RAMET_HOST=opened.host) as url:
        async with McpClient(url, mode=mode) as client:
            await client.call_tool("list", {}, meta=TRACED)
            await client.call_tool("list", {})
    _, *listed = opened.requests  # the first one is the check of the key
    traced, untraced = (headers.get("traceparent") for _, _, headers in listed)
    assert traced == TRACE and untraced is None


async def test_trace_of_the_caller_is_passed_on_over_stdio(
    opened: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENVIRONMENT, "RAMET_HOST", opened.host)
    async with stdio() as client:
        await client.call_tool("list", {}, meta=TRACED)
    assert [headers.get("traceparent") for _, _, headers in opened.requests] == [TRACE]


async def test_sandbox_must_be_named(url: str) -> None:
    async with over_http(url) as client:
        assert "create_sandbox" in await refused(client, "run_code", code="1")
        assert "sandbox" in await refused(client, "fork", n=2)
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert "sandbox" in tools["run_code"].input_schema["required"]
        assert "keep" not in tools["create_sandbox"].input_schema["properties"]


@pytest.mark.parametrize(
    "headers, status",
    [
        ({"host": "evil.example"}, 421),
        ({"host": "evil.example:80"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),  # a page of another program of this machine
        ({"origin": "http://localhost"}, 403),
        ({"content-type": "text/plain"}, 400),
    ],
)
async def test_web_pages_are_refused(url: str, headers: dict[str, str], status: int) -> None:
    for version in ({}, {"mcp-protocol-version": "2026-07-28"}):
        sent = {**HEADERS, **version, **headers}
        answer = httpx.post(url, json=HELLO, headers=sent, trust_env=False)
        assert answer.status_code == status, answer.text


async def test_session_belongs_to_the_key_that_began_it(closed: Recorder) -> None:
    with http_server(RAMET_HOST=closed.host) as url:
        with httpx.Client(trust_env=False, headers=HEADERS) as http:
            one, two = ({"authorization": f"Bearer rmt_{name}"} for name in ("one", "two"))
            begun = http.post(url, json=HELLO, headers=one)
            session = {"mcp-session-id": begun.headers["mcp-session-id"]}
            assert http.post(url, json=LIST, headers={**two, **session}).status_code == 404
            assert http.post(url, json=LIST, headers=session).status_code == 401
            assert http.post(url, json=LIST, headers={**one, **session}).status_code == 200


async def test_other_address_needs_a_service_with_keys(opened: Recorder) -> None:
    done = _fails("--host", "0.0.0.0", RAMET_HOST=opened.host)
    assert "has no API keys" in done and "127.0.0.1" in done
    assert "cannot check" in _fails("--host", "0.0.0.0", RAMET_HOST="http://127.0.0.1:9")


async def test_other_address_needs_a_key_in_each_request(closed: Recorder) -> None:
    with http_server("--host", "0.0.0.0", RAMET_HOST=closed.host) as url:
        url = url.replace("0.0.0.0", "127.0.0.1")
        for headers in ({}, {"authorization": "Basic rmt_one"}, {"authorization": "Bearer"}):
            answer = httpx.post(url, json=HELLO, headers={**HEADERS, **headers}, trust_env=False)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "Authorization" in answer.json()["error"]
        async with over_http(url, key="rmt_two") as client:
            await call(client, "list")


async def test_port_in_use_is_named(url: str) -> None:
    port = url.rpartition(":")[2].partition("/")[0]
    assert f"port {port}: Address already in use" in _fails("--port", port)


def _fails(*args: str, **environment: str) -> str:
    """Runs a server over HTTP that must not start; returns its error."""
    done = subprocess.run(
        [*PROGRAM, "--http", *args],
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    return done.stderr
