# SPDX-License-Identifier: Apache-2.0
"""Connections that leave HTTP, as sockets. Twin of ramet/_async/_upgrade.py."""

from __future__ import annotations

import socket
import ssl
from typing import Mapping

import httpx

from ramet._wire import body_length, upgrade_refused, upgrade_request
from ramet.errors import ConnectionFailed

_CONNECT_S = 5.0
_HEAD_MAX = 65536  # bytes

Connection = socket.socket


def connect_upgraded(
    url: httpx.URL,
    path: str,
    protocol: str,
    headers: Mapping[str, str],
    context: ssl.SSLContext | None,
    timeout: float,
) -> Connection:
    """Opens a connection and changes its protocol."""
    address = (url.host, url.port or (443 if context else 80))
    try:
        raw = socket.create_connection(address, timeout=_CONNECT_S)
    except OSError as failed:
        raise ConnectionFailed(f"{url}: {failed}") from failed
    try:
        if context:
            raw = context.wrap_socket(raw, server_hostname=url.host)
        raw.settimeout(timeout)
        raw.sendall(upgrade_request(url, path, protocol, headers))
        _check_upgraded(raw, path)
        raw.settimeout(None)
    except OSError as failed:
        raw.close()
        raise ConnectionFailed(f"GET {path}: {failed}") from failed
    except BaseException:
        raw.close()
        raise
    return raw


def _check_upgraded(raw: socket.socket, path: str) -> None:
    """Reads the head of the answer, and raises the service's error unless it is 101."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = raw.recv(1)  # what follows the head belongs to the new protocol
        if not byte or len(head) > _HEAD_MAX:
            raise ConnectionFailed(f"GET {path}: the service closed the connection")
        head += byte
    if head.split(b" ", 2)[1] != b"101":
        raise upgrade_refused(path, head, _read_body(raw, body_length(head)))


def _read_body(raw: socket.socket, size: int) -> bytes:
    body = b""
    while len(body) < size and (more := raw.recv(size - len(body))):
        body += more
    return body
