# SPDX-License-Identifier: Apache-2.0
"""Servers in sandboxes: shared ports, and local ports that lead to them.

Twin of ramet/_async/ports.py.
"""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Callable

from ramet.types import PortShare as PortShare

_PART = 65536  # bytes copied at a time


class Forward:
    """A port of this machine whose connections lead to a port in a sandbox.

    Returned by `Sandbox.forward`. Use it in a `with` block, or call `close`.

    Attributes:
        host: The local address, 127.0.0.1.
        port: The local port.
    """

    def __init__(self, connect: Callable[[], socket.socket], local_port: int) -> None:
        self._connect = connect
        self._listener = socket.create_server(("127.0.0.1", local_port))
        self.host: str = "127.0.0.1"
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._closed = False
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, name="ramet-forward", daemon=True).start()

    def close(self) -> None:
        """Closes the local port and its connections. It is idempotent."""
        with self._lock:
            closed, self._closed = self._closed, True
            open_now = list(self._open)
        if closed:
            return
        _end(self._listener)
        self._listener.close()
        for one in open_now:
            _end(one)

    def _accept(self) -> None:
        while True:
            try:
                local, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(local,), daemon=True).start()

    def _serve(self, local: socket.socket) -> None:
        """Connects to the sandbox and copies both directions. A local connection that cannot be
        passed on is closed, as by a machine on which nothing listens."""
        with local:
            try:
                remote = self._connect()
            except Exception:  # whatever the reason is, the local program sees the end
                return
            with remote:
                with self._lock:
                    self._open |= {local, remote}
                    if self._closed:
                        return
                back = threading.Thread(target=_copy, args=(remote, local), daemon=True)
                back.start()
                _copy(local, remote)
                back.join()
                with self._lock:
                    self._open -= {local, remote}

    def __enter__(self) -> "Forward":
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Forward {self.host}:{self.port}>"


def open_forward(connect: Callable[[], socket.socket], local_port: int) -> Forward:
    return Forward(connect, local_port)


def reach(connect: Callable[[], socket.socket]) -> None:
    """Opens a connection and closes it."""
    connect().close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copies until the source's end, and passes on the end."""
    try:
        while part := source.recv(_PART):
            target.sendall(part)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        _end(source)
        _end(target)


def _end(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
