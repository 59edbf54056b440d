# SPDX-License-Identifier: Apache-2.0
# Generated from _async/pty.py by make_sync.py: change that file.
"""Terminals: run interactive programs."""

from __future__ import annotations

import time
from typing import Callable, Iterator, List, Mapping, Sequence

from ramet.client import Client
from ramet._wire import utf8
from ramet.errors import NotFound
from ramet.types import PtyInfo

_POLL_MS = 20_000  # below the service's limit of 30 s
_READ_MAX = 1 << 20
_WRITE_MAX = 1 << 20  # bytes of input in one request


class Pty:
    """A program on a terminal in a sandbox.

    The terminal belongs to the sandbox and not to this object: its program continues when yours
    ends, and every child of a fork has its own copy. The last 1 MiB of its output is kept for later
    readers. Slow readers do not delay the program.

    Iterate over it to get the program's output as it arrives, up to its end. Each object has its
    own read offset, and several objects, in one program or in many, may read the same terminal. Any
    method may be called while another thread iterates.

    Attributes:
        id: For `Ptys.attach`.
        place: Offset in the output of the next byte to read, in bytes.
        lost: Number of bytes that were dropped before this object read them.
        exit_code: Exit code of the program, 128 + signal if it was killed; None until `read` or
            `wait` has reached the end of its output.
    """

    def __init__(
        self, sandbox_id: str, pty_id: str, client: Callable[[], Client], place: int = 0
    ) -> None:
        self.id = pty_id
        self.place = place
        self.lost = 0
        self.exit_code: int | None = None
        self._sandbox = sandbox_id
        self._client = client

    def read(self, timeout_seconds: float | None = None) -> bytes:
        """Returns the output since the last read, as soon as there is any.

        Args:
            timeout_seconds: Seconds to wait for output. None: without limit; 0: do not wait.

        Returns:
            Up to 1 MiB; empty after the end of the program and its output, or at the timeout.

        Raises:
            NotFound: The terminal or its sandbox is gone.
            ConnectionFailed: The service did not answer. The next read begins at the same offset.
        """
        data, self.place, skipped = self._next(self.place, timeout_seconds)
        self.lost += skipped
        return data

    def __iter__(self) -> Iterator[bytes]:
        """Yields output as it arrives, until the program has ended and all of it was read."""
        while data := self.read():
            yield data

    def wait(self, timeout_seconds: float | None = None) -> int:
        """Waits for the end of the program and returns its exit code.

        It consumes no output, so `read` returns all of it afterwards.

        Args:
            timeout_seconds: Seconds to wait. None: without limit.

        Raises:
            TimeoutError: The program still runs after `timeout_seconds`.
            NotFound: The terminal or its sandbox is gone.
        """
        until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        place = self.place
        while self.exit_code is None:
            left = None if until is None else max(until - time.monotonic(), 0)
            _, place, _ = self._next(place, left)
            if left == 0 and self.exit_code is None:
                raise TimeoutError(f"{self.id} still runs after {timeout_seconds:g} s")
        return self.exit_code

    def send_input(self, data: bytes | str) -> None:
        """Sends input, such as `"ls\\r"`, or `"\\x03"` for Ctrl-C. Text is sent as UTF-8.

        It returns once the terminal has accepted all of the input.

        Raises:
            Conflict: The program has ended, or has read no input for 30 s; part of the input may
                have arrived.
            BadRequest: The text has no UTF-8 form.
            NotFound: The terminal or its sandbox is gone.
        """
        raw = utf8(data, "the input") if isinstance(data, str) else bytes(data)
        for at in range(0, len(raw), _WRITE_MAX):
            self._client().pty_input(self._sandbox, self.id, raw[at : at + _WRITE_MAX])

    def resize(self, cols: int, rows: int) -> None:
        """Resizes the terminal to columns and rows of characters; the program gets SIGWINCH.

        Raises:
            BadRequest: A size is not 1 to 65535.
        """
        self._client().pty_resize(self._sandbox, self.id, cols, rows)

    def kill(self) -> None:
        """Sends SIGKILL to all processes of the terminal. Its output can still be read.

        Raises:
            NotFound: The terminal or its sandbox is gone.
        """
        self._client().pty_kill(self._sandbox, self.id)

    def _next(self, place: int, timeout_seconds: float | None) -> tuple[bytes, int, int]:
        """Returns output from `place` on, the offset after it, and the number of bytes skipped."""
        until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while True:
            wait_ms = _POLL_MS
            if until is not None:
                wait_ms = min(wait_ms, max(round((until - time.monotonic()) * 1000), 0))
            data, after, exit_code = self._client().pty_read(
                self._sandbox, self.id, place, max_bytes=_READ_MAX, timeout_ms=wait_ms
            )
            if exit_code is not None and not data:
                self.exit_code = exit_code
            if data or exit_code is not None or (until is not None and time.monotonic() >= until):
                return data, after, after - place - len(data)

    def __repr__(self) -> str:
        return f"<Pty {self.id} of {self._sandbox}>"


class Ptys:
    """The terminals of one sandbox, as returned by `Sandbox.pty`."""

    def __init__(self, sandbox_id: str, client: Callable[[], Client]) -> None:
        self._id = sandbox_id
        self._client = client

    def create(
        self,
        cmd: str | Sequence[str] = "bash",
        *,
        cols: int = 80,
        rows: int = 24,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Pty:
        """Starts a program on a new terminal.

        Args:
            cmd: A string is run by `bash -lc`; a list is the program and its arguments.
            cols: Width in characters, 1 to 65535.
            rows: Height in lines, 1 to 65535.
            env: Environment variables in addition to the usual ones.
            cwd: Working directory. None: that of the sandbox's Python process.

        Raises:
            BadRequest: A value is wrong, or the program cannot be started; the message says why.
            NotFound: The sandbox is gone.
        """
        pty_id = self._client().pty_create(
            self._id, cmd if isinstance(cmd, str) else list(cmd), cols, rows, env=env, cwd=cwd
        )
        return Pty(self._id, pty_id, self._client)

    def attach(self, pty_id: str, *, place: int = 0) -> Pty:
        """Returns an object for an existing terminal.

        A terminal whose program has ended can be read until newer terminals replace it.

        Args:
            pty_id: `Pty.id`.
            place: Offset in bytes to read from, such as `Pty.place` of a previous reader. 0: the
                oldest output that is kept.

        Raises:
            NotFound: There is none with this id.
        """
        if pty_id not in [info.id for info in self.list()]:
            raise NotFound(f"no terminal {pty_id!r} is in sandbox {self._id}", status=404)
        return Pty(self._id, pty_id, self._client, place)

    def list(self) -> List[PtyInfo]:
        """Returns all terminals, ended ones included, oldest first.

        Raises:
            NotFound: The sandbox is gone.
        """
        return self._client().pty_list(self._id)
