# SPDX-License-Identifier: Apache-2.0
"""Serves MCP over streamable HTTP. Each request acts with its own API key."""

from __future__ import annotations

import os
import socket
import sys
from functools import partial
from ipaddress import ip_address
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp

from ramet import AsyncClient
from ramet._wire import checked_key
from ramet.errors import RametError
from ramet.mcp.guard import BODY_MAX, LIMITS_OF_ALL, SESSION_IDLE_S, Guard, Keys, Usage
from ramet.mcp.server import make_server
from ramet.mcp.state import Clients

_STOP_S = 5  # for calls in progress when the server ends
_CHECK_S = 10.0  # for the service's answer about a key


def make_app(server: MCPServer[Any], host: str, port: int, keys: Keys, usage: Usage) -> ASGIApp:
    """Returns the ASGI application, with the endpoint /mcp.

    On a loopback address, requests for other hosts and from other origins are refused: they come
    from web pages (DNS rebinding), which may also be those of another program's port. On other
    addresses, each request needs an API key, which a web page does not have.
    """
    local = is_loopback(host)
    app = server.streamable_http_app(
        host=host,
        max_request_body_size=BODY_MAX,
        session_idle_timeout=SESSION_IDLE_S,
        max_sessions=LIMITS_OF_ALL.sessions,
        transport_security=_local_names(port) if local else TransportSecuritySettings(
            enable_dns_rebinding_protection=False
        ),
    )
    return Guard(app, keys, usage, required=not local)


def is_loopback(host: str) -> bool:
    """Returns True for an address that only this machine can reach."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _local_names(port: int) -> TransportSecuritySettings:
    names = ["127.0.0.1", "localhost", "[::1]"]
    return TransportSecuritySettings(
        allowed_hosts=[f"{name}:*" for name in names],
        allowed_origins=[f"http://{name}:{port}" for name in names],
    )


async def check_key(client: AsyncClient, key: str | None) -> None:
    """Asks the service whether it accepts a key, over the connections of a client without one.

    Raises:
        RametError: It does not, or it cannot be reached.
    """
    headers = {} if key is None else {"authorization": f"Bearer {checked_key(key)}"}
    await client._http.request("GET", "/v1/templates?limit=1", retry=False, headers=headers)


async def check_service(host: str) -> str | None:
    """Returns why the service may not be offered at this address; None if it may.

    A service without API keys trusts everybody who reaches it, and so it listens only on loopback
    addresses. This server must not be the way around that.
    """
    if is_loopback(host):
        return None
    async with AsyncClient() as client:
        try:
            await client.templates()
        except RametError as failed:
            if failed.status == 401:
                return None
            return f"cannot check that the service requires API keys: {failed}"
        where = client.host
    return (
        f"the service at {where} has no API keys, so everybody who reaches {host} could use it: "
        "create a key on the service first, or use --host 127.0.0.1"
    )


async def serve(host: str, port: int) -> int:
    """Serves until SIGINT or SIGTERM. Returns the exit code of the program."""
    if os.environ.pop("RAMET_API_KEY", None):
        _say("RAMET_API_KEY is not used: each request acts with its own key")
    if refusal := await check_service(host):
        _say(refusal)
        return 1
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as failed:
        _say(f"cannot listen on {host} port {port}: {failed.strerror}")
        return 1
    bound = listener.getsockname()[1]
    clients = Clients(lambda key: AsyncClient(api_key=key))
    async with AsyncClient(timeout=_CHECK_S) as checks:
        keys = Keys(partial(check_key, checks))
        app = make_app(make_server(clients, None), host, bound, keys, Usage())
        config = uvicorn.Config(
            app, log_level="warning", timeout_graceful_shutdown=_STOP_S, server_header=False
        )
        shown = f"[{host}]" if ":" in host else host
        _say(f"serving http://{shown}:{bound}/mcp")
        await uvicorn.Server(config).serve(sockets=[listener])
    return 0


def _say(line: str) -> None:
    print(f"ramet-mcp: {line}", file=sys.stderr, flush=True)
