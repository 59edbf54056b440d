# SPDX-License-Identifier: Apache-2.0
"""`ramet forward`: local ports that lead into a sandbox."""

from __future__ import annotations

import re
import socket
import sys
import time
from contextlib import ExitStack, suppress
from typing import Sequence

from ramet import Client, Forward, RametError, Sandbox, ServerError
from ramet.cli.failure import Failure

_LOOK_S = 5.0  # between two checks whether the sandbox exists


class _Connector:
    """Connects to a port of a sandbox; says on standard error when nothing listens there."""

    def __init__(self, client: Client, sandbox_id: str, port: int) -> None:
        self._client, self._id, self._port = client, sandbox_id, port
        self._said = False

    def __call__(self) -> socket.socket:
        try:
            connection = self._client.connect_port(self._id, self._port)
        except ServerError as failed:
            if failed.code == "port_closed" and not self._said:
                self._said = True
                print(
                    f"ramet: nothing listens on port {self._port} in the sandbox yet: connections "
                    "are closed until a server does",
                    file=sys.stderr,
                )
            raise
        self._said = False
        return connection


def run(client: Client, sandbox: Sandbox, ports: Sequence[str]) -> None:
    """Opens the ports and prints each, until Ctrl-C or the end of the sandbox.

    Args:
        client: The service.
        sandbox: The sandbox.
        ports: `PORT` or `LOCAL:PORT` each; without LOCAL, the local port has the same number.

    Raises:
        Failure: A port is not a number, or is in use here.
        NotFound: The sandbox has ended.
    """
    pairs = [_pair(text) for text in ports]
    connectors: list[_Connector] = []
    with ExitStack() as scope:
        for local, remote in pairs:
            connect = _Connector(client, sandbox.id, remote)
            try:
                opened = scope.enter_context(Forward(connect, local))
            except OSError as failed:
                raise Failure(
                    f"the local port {local} cannot be opened: {failed.strerror}",
                    f"use another one: {local + 10000 if local < 50000 else 0}:{remote}",
                ) from failed
            print(f"{opened.host}:{opened.port} -> {sandbox.id}:{remote}", flush=True)
            connectors.append(connect)
        try:
            for connect in connectors:
                with suppress(RametError):  # which connections report
                    connect().close()
            while True:
                time.sleep(_LOOK_S)
                sandbox.info()
        except KeyboardInterrupt:
            print()


def _pair(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(?:(\d{1,5}):)?(\d{1,5})", text)
    if not found or not 0 < int(found[2]) < 65536 or int(found[1] or 0) > 65535:
        raise Failure(f"{text!r} is not a port", "write PORT, or LOCAL:PORT")
    return int(found[1] or found[2]), int(found[2])
