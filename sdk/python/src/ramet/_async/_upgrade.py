# SPDX-License-Identifier: Apache-2.0
"""Connections that leave HTTP, as asyncio's streams. Twin of ramet/_upgrade.py."""

from __future__ import annotations

import asyncio
import ssl
from typing import Mapping

import httpx

from ramet._wire import body_length, upgrade_refused, upgrade_request
from ramet.errors import ConnectionFailed

_CONNECT_S = 5.0
_HEAD_MAX = 65536  # bytes; what asyncio reads at most for `readuntil`

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect_upgraded(
    url: httpx.URL,
    path: str,
    protocol: str,
    headers: Mapping[str, str],
    context: ssl.SSLContext | None,
    timeout: float,
) -> Connection:
    """Opens a connection and changes its protocol."""
    opening = asyncio.open_connection(
        url.host, url.port or (443 if context else 80), ssl=context, limit=_HEAD_MAX
    )
    try:
        reader, writer = await asyncio.wait_for(opening, _CONNECT_S)
    except (OSError, asyncio.TimeoutError) as failed:
        reason = str(failed) or "no answer"
        raise ConnectionFailed(f"{url}: {reason}") from failed
    try:
        writer.write(upgrade_request(url, path, protocol, headers))
        await asyncio.wait_for(_check_upgraded(reader, path), timeout)
    except (OSError, EOFError, asyncio.TimeoutError, asyncio.LimitOverrunError) as failed:
        writer.transport.abort()
        raise ConnectionFailed(f"GET {path}: {str(failed) or 'no answer'}") from failed
    except BaseException:
        writer.transport.abort()
        raise
    return reader, writer


async def _check_upgraded(reader: asyncio.StreamReader, path: str) -> None:
    """Reads the head of the answer, and raises the service's error unless it is 101."""
    head = await reader.readuntil(b"\r\n\r\n")
    if head.split(b" ", 2)[1] != b"101":
        raise upgrade_refused(path, head, await reader.readexactly(body_length(head)))
