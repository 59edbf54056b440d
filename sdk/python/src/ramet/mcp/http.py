# SPDX-License-Identifier: Apache-2.0
"""Serves MCP over streamable HTTP. Each request acts with its own API key."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from ipaddress import ip_address
from typing import Any

import uvicorn
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ramet import AsyncClient
from ramet.errors import RametError
from ramet.mcp.server import make_server
from ramet.mcp.state import Clients
from ramet.mcp.tools import bearer

_BODY_MAX = 64 << 20  # bytes of a request: as of the service
_STOP_S = 5  # for calls in progress when the server ends


class OwnKey:
    """Requires an API key of each request, if asked to, and binds sessions to it.

    A session of the older handshake can only be used with the key that began it, so that nobody
    else can cancel its calls.
    """

    def __init__(self, app: ASGIApp, required: bool) -> None:
        self._app = app
        self._required = required

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            key = bearer(Headers(scope=scope).get("authorization", ""))
            if key is None and self._required:
                error = {"error": "send the header 'Authorization: Bearer KEY' with your API key"}
                challenge = {"WWW-Authenticate": "Bearer"}
                await JSONResponse(error, 401, challenge)(scope, receive, send)
                return
            owner = hashlib.sha256((key or "").encode()).hexdigest()
            token = AccessToken(token=key or "", client_id=owner, scopes=[])
            scope["user"] = AuthenticatedUser(token)
        await self._app(scope, receive, send)


def make_app(server: MCPServer[Any], host: str) -> ASGIApp:
    """Returns the ASGI application, with the endpoint /mcp.

    On a loopback address, requests for other hosts and from other origins are refused: they come
    from web pages (DNS rebinding). On other addresses, each request needs an API key, which a web
    page does not have.
    """
    local = is_loopback(host)
    app = server.streamable_http_app(
        host=host,
        max_request_body_size=_BODY_MAX,
        transport_security=_local_names() if local else TransportSecuritySettings(
            enable_dns_rebinding_protection=False
        ),
    )
    return OwnKey(app, required=not local)


def is_loopback(host: str) -> bool:
    """Returns True for an address that only this machine can reach."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _local_names() -> TransportSecuritySettings:
    names = ["127.0.0.1", "localhost", "[::1]"]
    return TransportSecuritySettings(
        allowed_hosts=[f"{name}:*" for name in names],
        allowed_origins=[f"http://{name}:*" for name in names],
    )


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
    clients = Clients(lambda key: AsyncClient(api_key=key))
    app = make_app(make_server(clients, None), host)
    config = uvicorn.Config(
        app, log_level="warning", timeout_graceful_shutdown=_STOP_S, server_header=False
    )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as failed:
        _say(f"cannot listen on {host} port {port}: {failed.strerror}")
        return 1
    shown = f"[{host}]" if ":" in host else host
    _say(f"serving http://{shown}:{listener.getsockname()[1]}/mcp")
    await uvicorn.Server(config).serve(sockets=[listener])
    return 0


def _say(line: str) -> None:
    print(f"ramet-mcp: {line}", file=sys.stderr, flush=True)
