# SPDX-License-Identifier: Apache-2.0
"""Anthropic SDK: tools that act in a sandbox, for `client.beta.messages.tool_runner`.

`SandboxTools` and `AsyncSandboxTools` are the tools of one conversation, and fork with their
sandbox. `SessionSandboxes` serves sessions of Claude Managed Agents, `claude_agent_options` is for
the Claude Agent SDK.
"""

try:
    import anthropic as _anthropic
except ImportError as error:
    raise ImportError(
        "ramet.integrations.anthropic needs the package anthropic: "
        "pip install './sdk/python[anthropic]' in a checkout of Ramet"
    ) from error

from ramet.integrations.anthropic.claude_agent import claude_agent_options, claude_mcp_server
from ramet.integrations.anthropic.memory import AsyncMemoryTool, MemoryTool
from ramet.integrations.anthropic.sessions import SessionSandboxes
from ramet.integrations.anthropic.tools import (
    AsyncSandboxTools,
    AsyncTool,
    SandboxTools,
    Tool,
    bash_tool,
    fork_tool,
    run_code_tool,
    text_editor_tool,
)

__all__ = [
    "AsyncMemoryTool",
    "AsyncSandboxTools",
    "AsyncTool",
    "MemoryTool",
    "SandboxTools",
    "SessionSandboxes",
    "Tool",
    "bash_tool",
    "claude_agent_options",
    "claude_mcp_server",
    "fork_tool",
    "run_code_tool",
    "text_editor_tool",
]
