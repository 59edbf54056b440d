# SPDX-License-Identifier: Apache-2.0
"""The program `ramet-mcp`, which is also `ramet mcp`."""

from __future__ import annotations

import argparse
import sys
from typing import Sequence

from ramet.mcp.config import CLIENTS, snippets

DEFAULT_PORT = 7072


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program with the given arguments, or those of the command line.

    Returns:
        The exit code: 0, or 1 if the server could not be started.

    Raises:
        SystemExit: The arguments are wrong (code 2), or help was requested.
    """
    options = _parser().parse_args(argv)
    if options.word == "config":
        print(snippets(options.client, options.url), end="")
        return 0
    try:
        from ramet.mcp import http, stdio
    except ImportError as missing:
        if (missing.name or "").partition(".")[0] == "ramet":
            raise
        print(
            f"ramet-mcp: the package {missing.name} is missing: "
            "pip install './sdk/python[mcp]' in a checkout of Ramet",
            file=sys.stderr,
        )
        return 1
    import anyio

    if options.http:
        return anyio.run(http.serve, options.host, options.port)
    if sys.stdin.isatty():
        print(
            "ramet-mcp: waiting for an MCP client on standard input; `ramet-mcp config` shows how "
            "a client starts this program. Ctrl-C ends it",
            file=sys.stderr,
        )
    return anyio.run(stdio.serve)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ramet-mcp",
        description="Gives an agent sandboxes of a Ramet service, as tools of an MCP server. "
        "RAMET_HOST is the service's address; over stdio, RAMET_API_KEY is the API key.",
    )
    parser.add_argument("--http", action="store_true", help="serve HTTP instead of stdio")
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="address for --http (%(default)s)"
    )
    parser.add_argument(
        "--port", default=DEFAULT_PORT, type=int, help="port for --http (%(default)s); 0: any"
    )
    words = parser.add_subparsers(dest="word", metavar="config")
    config = words.add_parser("config", help="print snippets that add the server to MCP clients")
    config.add_argument("client", nargs="?", choices=CLIENTS, help="only for this client")
    config.add_argument("--url", help="for a server over HTTP at this URL, such as .../mcp")
    return parser
