# SPDX-License-Identifier: Apache-2.0
"""An MCP server that gives agents sandboxes as tools (docs/mcp.md); needs `ramet[mcp]`."""

from ramet.mcp.command import main

__all__ = ["main"]
