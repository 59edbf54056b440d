# SPDX-License-Identifier: Apache-2.0
"""A terminal emulator, to read terminals of a sandbox as a person would."""

from __future__ import annotations

import time
from typing import Callable

import pyte

from ramet import Pty

BASH = ["bash", "--norc", "-i"]
TIMEOUT_S = 120.0


class AnsweringScreen(pyte.Screen):
    """Answers queries for the cursor position: vim may draw its text only after the answer."""

    def __init__(self, pty: Pty, cols: int, rows: int) -> None:
        super().__init__(cols, rows)
        self._pty = pty

    def write_process_input(self, data: str) -> None:
        self._pty.send_input(data)


class Screen:
    """The screen of a terminal, as a person sees it."""

    def __init__(self, pty: Pty, cols: int = 80, rows: int = 24) -> None:
        self.pty = pty
        self._screen = AnsweringScreen(pty, cols, rows)
        self._stream = pyte.ByteStream(self._screen)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._screen.display]

    def resize(self, cols: int, rows: int) -> None:
        self.pty.resize(cols, rows)
        self._screen.resize(rows, cols)

    def type(self, text: str) -> None:
        self.pty.send_input(text)

    def until(self, holds: Callable[[list[str]], bool]) -> list[str]:
        """Reads output until the condition holds; returns the lines of the screen."""
        give_up = time.monotonic() + TIMEOUT_S
        while not holds(self.lines):
            data = self.pty.read(max(give_up - time.monotonic(), 0))
            assert data, "no more output; the screen shows:\n" + "\n".join(self.lines)
            self._stream.feed(data)
        return self.lines

    def until_line(self, wanted: str) -> None:
        self.until(lambda lines: wanted in lines)

    def until_prompt(self, after: str) -> None:
        """Waits until the shell's prompt follows `after`, the last line of a command's output."""
        self.until(lambda lines: [*filter(None, lines)][-2:] == [after, "$"])
