# SPDX-License-Identifier: Apache-2.0
"""Do both eras of the protocol work over both transports, and are the tools described fully?"""

from __future__ import annotations

import json
import subprocess
from typing import Any, Callable

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

import ramet
from mcp_clients import (
    ENVIRONMENT,
    LEGACY,
    NAME,
    PROGRAM,
    anyio_backend,
    call,
    connect,
    refused,
    stdio,
    url,
)

pytestmark = pytest.mark.anyio

STDIO_TOOLS = {
    "create_sandbox",
    "run_code",
    "run_command",
    "read_file",
    "write_file",
    "list_files",
    "fork",
    "diff",
    "merge",
    "merge_files",
    "checkpoint",
    "rollback",
    "undo",
    "history",
    "freeze",
    "resume",
    "list",
    "delete",
}
READ_ONLY = {"read_file", "list_files", "diff", "history", "list"}
ADDITIVE = {"create_sandbox", "fork", "checkpoint"}
OPEN_WORLD = {"run_code", "run_command"}


async def test_each_era_and_transport_runs_code(connect: Callable[[], Any]) -> None:
    async with connect() as client:
        made = await client.call_tool("create_sandbox", {"name": NAME})
        sandbox = made.structured_content["sandbox"]
        assert await call(client, "run_code", code="6 * 7", sandbox=sandbox) == "[result]\n42"
        assert await call(client, "delete", id=sandbox) == f"{sandbox} is deleted"


async def test_server_introduces_itself(connect: Callable[[], Any]) -> None:
    async with connect() as client:
        assert client.server_info.name == "ramet"
        assert client.server_info.version == ramet.__version__
        newest = "2025-11-25" if client.mode == LEGACY else "2026-07-28"
        assert client.protocol_version == newest
        assert "fork" in client.instructions


async def test_every_tool_has_valid_schemas_and_a_description_of_each_parameter(
    connect: Callable[[], Any],
) -> None:
    async with connect() as client:
        tools = (await client.list_tools()).tools
    assert {tool.name for tool in tools} == STDIO_TOOLS
    for tool in tools:
        schema = tool.input_schema
        Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object" and schema["additionalProperties"] is False
        assert set(schema.get("required", [])) <= schema["properties"].keys()
        for name, one in schema["properties"].items():
            assert len(one["description"]) > 10, f"{tool.name}.{name}"
        assert tool.title and tool.description and len(tool.description) > 40
        if tool.output_schema is not None:
            Draft202012Validator.check_schema(tool.output_schema)
            for name, one in tool.output_schema["properties"].items():
                assert one["description"], f"{tool.name}.{name}"


async def test_every_tool_has_annotations() -> None:
    async with stdio() as client:
        tools = (await client.list_tools()).tools
    for tool in tools:
        hints = tool.annotations
        assert hints is not None
        assert hints.read_only_hint is (tool.name in READ_ONLY)
        assert hints.open_world_hint is (tool.name in OPEN_WORLD)
        if not hints.read_only_hint:
            assert hints.destructive_hint is (tool.name not in ADDITIVE)
            assert hints.idempotent_hint is (tool.name == "delete")


async def test_structured_results_match_their_schema() -> None:
    async with stdio() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        for name, arguments in (
            ("list", {"what": "templates"}),
            ("list", {}),
            ("list", {"what": "spaces"}),
            ("list", {"what": "checkpoints"}),
            ("list_files", {"path": "/etc"}),
        ):
            result = await client.call_tool(name, arguments)
            schema = tools[name].output_schema
            assert schema is not None
            Draft202012Validator(schema).validate(result.structured_content)
            assert result.content[0].type == "text"
            assert json.loads(result.content[0].text)


async def test_unknown_argument_is_refused(connect: Callable[[], Any]) -> None:
    async with connect() as client:
        error = await refused(client, "run_code", code="1", sandbox="sbx_1", sandbox_id="sbx_1")
        assert "sandbox_id" in error and "not permitted" in error


async def test_arguments_out_of_range_are_refused() -> None:
    async with stdio() as client:
        assert "n\n" in await refused(client, "fork", n=0)
        assert "timeout_seconds" in await refused(client, "run_code", code="1", timeout_seconds=-1)
        assert "language" in await refused(client, "run_code", code="1", language="cobol")
        assert "mode" in await refused(client, "write_file", path="/a", content="", mode="rwx")


def test_oldest_handshake_is_answered() -> None:
    """Sends the lines that a client of 2024 sends."""

    def request(id: int, method: str, params: object) -> str:
        return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}) + "\n"

    hello = {
        "protocolVersion": "2024-11-05",
        "capabilities": {},
        "clientInfo": {"name": "old", "version": "1"},
    }
    with subprocess.Popen(
        PROGRAM, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin and server.stdout
        server.stdin.write(request(1, "initialize", hello))
        server.stdin.flush()
        answer = json.loads(server.stdout.readline())
        assert answer["result"]["protocolVersion"] == "2024-11-05"
        server.stdin.write('{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        server.stdin.write(request(2, "tools/list", {}))
        server.stdin.flush()
        tools = json.loads(server.stdout.readline())["result"]["tools"]
        assert {tool["name"] for tool in tools} == STDIO_TOOLS
        server.stdin.close()
        assert server.wait(60) == 0
