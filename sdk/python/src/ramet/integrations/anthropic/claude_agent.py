# SPDX-License-Identifier: Apache-2.0
"""Claude Agent SDK: a server of tools that act in a sandbox, instead of Claude Code's own.

The package claude-agent-sdk is not imported here; it takes any server of the package mcp.
"""

from __future__ import annotations

from typing import Any, Iterable, cast

from anthropic.lib.tools import BetaFunctionToolResultType, ToolError

from ramet import AsyncSandbox
from ramet.integrations.anthropic._agent_tools import agent_params, agent_works, schema_of
from ramet.integrations.anthropic._flow import Work, answer
from ramet.integrations.anthropic.tools import TIMEOUT_S


def claude_mcp_server(
    sandbox: AsyncSandbox,
    *,
    name: str = "ramet",
    cwd: str = "/root",
    timeout_seconds: float = TIMEOUT_S,
    context_id: str | None = None,
) -> dict[str, Any]:
    """Returns a configuration like that of `create_sdk_mcp_server`, for `mcp_servers`.

    Its tools are bash, read, write, edit, glob, grep, run_code and fork. The server runs in this
    process; the caller closes the sandbox.

    Args:
        sandbox: The sandbox.
        name: The server's name.
        cwd: The folder that bash begins in, and that relative paths are in.
        timeout_seconds: Time limit of a command or call.
        context_id: The bash to use, for example in the child of a fork. None: a new one.

    Raises:
        ImportError: The package mcp is not installed.
    """
    works = agent_works(sandbox, cwd, timeout_seconds=timeout_seconds, context_id=context_id)
    return {"type": "sdk", "name": name, "instance": _server(name, works)}


def claude_agent_options(
    sandbox: AsyncSandbox, *, name: str = "ramet", cwd: str = "/root", **server: Any
) -> dict[str, Any]:
    """Returns arguments of `ClaudeAgentOptions`: the sandbox's tools instead of the built-in ones.

    `ClaudeAgentOptions(**claude_agent_options(sandbox), model=...)`. To allow built-in tools that
    do not act on this machine, set the member `tools` before, for example to `["WebSearch"]`. With
    `fork_session=True`, the SDK forks the conversation; pass the options of a child of the sandbox
    to fork both.

    Args:
        sandbox: The sandbox.
        name: The server's name; the model sees its tools as mcp__NAME__TOOL.
        cwd: The folder in the sandbox that the agent works in.
        server: Further arguments of `claude_mcp_server`.

    Raises:
        ImportError: The package mcp is not installed.
    """
    tools = [dict(param)["name"] for param in agent_params()]
    return {
        "mcp_servers": {name: claude_mcp_server(sandbox, name=name, cwd=cwd, **server)},
        "allowed_tools": [f"mcp__{name}__{tool}" for tool in tools],
        "tools": [],
    }


def _server(name: str, works: Iterable[Work]) -> Any:
    try:
        from mcp import types
        from mcp.server.lowlevel import Server
    except ImportError as error:
        raise ImportError(
            "a server for the Claude Agent SDK needs the package mcp: "
            "pip install './sdk/python[mcp]' in a checkout of Ramet"
        ) from error

    by_name = {schema_of(work)[0]: work for work in works}
    described = [schema_of(work) for work in by_name.values()]
    tools = [types.Tool(name=n, description=d, input_schema=s) for n, d, s in described]

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        work = by_name.get(params.name)
        try:
            if work is None:
                raise ToolError(f"there is no tool {params.name}")
            return types.CallToolResult(
                content=_content(await answer(work, params.arguments or {}))
            )
        except ToolError as error:
            return types.CallToolResult(content=_content(error.content), is_error=True)

    def _content(result: BetaFunctionToolResultType) -> list[types.ContentBlock]:
        if isinstance(result, str):
            return [types.TextContent(type="text", text=result)]
        blocks: list[types.ContentBlock] = []
        for one in cast(Iterable[dict[str, Any]], result):
            source = one.get("source") or {}
            if one["type"] == "text":
                blocks.append(types.TextContent(type="text", text=one["text"]))
            elif one["type"] == "image":
                blocks.append(
                    types.ImageContent(
                        type="image", data=source["data"], mime_type=source["media_type"]
                    )
                )
            else:
                blocks.append(
                    types.EmbeddedResource(
                        type="resource",
                        resource=types.BlobResourceContents(
                            uri="ramet:document",
                            mime_type=source["media_type"],
                            blob=source["data"],
                        ),
                    )
                )
        return blocks

    return Server(name, on_list_tools=list_tools, on_call_tool=call_tool)
