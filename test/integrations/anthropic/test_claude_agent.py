# SPDX-License-Identifier: Apache-2.0
"""The server for the Claude Agent SDK, called as that SDK calls it: over streams in memory."""

from __future__ import annotations

import base64
from contextlib import asynccontextmanager
from typing import Any, AsyncIterator

import pytest
from anthropic_fixtures import anyio_backend, async_sandbox
from mcp import Client

from ramet import AsyncSandbox
from ramet.integrations.anthropic import claude_agent_options, claude_mcp_server

__all__ = ["anyio_backend", "async_sandbox"]
pytestmark = pytest.mark.anyio
PICTURE = b"\x89PNG\r\n\x1a\n picture"


def text_of(result: Any) -> str:
    return str(result.content[0].text)


@asynccontextmanager
async def connected(config: dict[str, Any]) -> AsyncIterator[Client]:
    assert config["type"] == "sdk" and config["name"] == "ramet"
    async with Client(config["instance"]) as client:
        yield client


async def test_options_replace_the_built_in_tools(async_sandbox: AsyncSandbox) -> None:
    options = claude_agent_options(async_sandbox, cwd="/tmp")
    assert options["tools"] == []
    async with connected(options["mcp_servers"]["ramet"]) as client:
        tools = (await client.list_tools()).tools
        assert [f"mcp__ramet__{tool.name}" for tool in tools] == options["allowed_tools"]
        assert all(tool.description and tool.input_schema["type"] == "object" for tool in tools)
        result = await client.call_tool("bash", {"command": "pwd"})
        assert text_of(result) == "/tmp" and not result.is_error


async def test_pictures_documents_and_errors_reach_the_agent(async_sandbox: AsyncSandbox) -> None:
    folder = f"/tmp/agent-{async_sandbox.id}"
    await async_sandbox.upload(PICTURE, f"{folder}/p.png")
    await async_sandbox.upload(b"%PDF-1.7", f"{folder}/d.pdf")
    async with connected(claude_mcp_server(async_sandbox, cwd=folder)) as client:
        [image] = (await client.call_tool("read", {"file_path": "p.png"})).content
        assert image.type == "image" and base64.b64decode(image.data) == PICTURE
        [document] = (await client.call_tool("read", {"file_path": "d.pdf"})).content
        assert document.type == "resource"
        assert document.resource.mime_type == "application/pdf"
        missing = await client.call_tool("read", {"file_path": "nothing"})
        assert missing.is_error and "No such file" in text_of(missing)
        unknown = await client.call_tool("fly", {})
        assert unknown.is_error and "no tool fly" in text_of(unknown)
