# SPDX-License-Identifier: Apache-2.0
"""Snippets that add this server to MCP clients."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from typing import Any, Mapping

from ramet._transport import DEFAULT_HOST

CLIENTS = ("claude", "cursor", "vscode", "zed")
_TITLES = {
    "claude": "Claude Code: run",
    "cursor": "Cursor: ~/.cursor/mcp.json",
    "vscode": "VS Code: .vscode/mcp.json",
    "zed": "Zed: settings.json",
}


def snippets(client: str | None, url: str | None) -> str:
    """Returns the snippet of a client, or those of all.

    Args:
        client: One of `CLIENTS`. None: all.
        url: URL of a server over HTTP. None: the client starts the server itself, over stdio.
    """
    if client:
        return _snippet(client, url) + "\n"
    return "\n\n".join(f"# {_TITLES[one]}\n{_snippet(one, url)}" for one in CLIENTS) + "\n"


def _snippet(client: str, url: str | None) -> str:
    if client == "claude":
        return _claude(url)
    if client == "cursor":
        return _json({"mcpServers": {"ramet": _server("${env:RAMET_API_KEY}", url)}})
    if client == "vscode":
        server = {"type": "http" if url else "stdio", **_server("${input:ramet-key}", url)}
        asked = {"type": "promptString", "id": "ramet-key", "password": True}
        return _json(
            {
                "inputs": [{**asked, "description": "API key of Ramet (may be empty)"}],
                "servers": {"ramet": server},
            }
        )
    return _json({"context_servers": {"ramet": _server("YOUR_KEY", url)}})


def _claude(url: str | None) -> str:
    # The shell replaces $RAMET_API_KEY.
    if url:
        header = '--header "Authorization: Bearer $RAMET_API_KEY"'
        return f"claude mcp add --transport http ramet {shlex.quote(url)} {header}"
    host = shlex.quote(f"RAMET_HOST={_host()}")
    environment = f'--env {host} --env "RAMET_API_KEY=$RAMET_API_KEY"'
    return f"claude mcp add --transport stdio ramet {environment} -- {shlex.join(_command())}"


def _server(key: str, url: str | None) -> dict[str, Any]:
    if url:
        return {"url": url, "headers": {"Authorization": f"Bearer {key}"}}
    command, *args = _command()
    environment: Mapping[str, str] = {"RAMET_HOST": _host(), "RAMET_API_KEY": key}
    return {"command": command, "args": args, "env": environment}


def _command() -> list[str]:
    # The program that runs, or the one installed beside it: another one may be first on PATH.
    folder = os.path.dirname(os.path.realpath(sys.argv[0]))
    installed = shutil.which(os.path.join(folder, "ramet-mcp"))
    return [installed] if installed else [sys.executable, "-m", "ramet.mcp"]


def _host() -> str:
    return os.environ.get("RAMET_HOST") or DEFAULT_HOST


def _json(value: object) -> str:
    return json.dumps(value, indent=2)
