# SPDX-License-Identifier: Apache-2.0
"""The command `ramet`, run as a user runs it: as a program, and on a terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import pexpect
import pytest

import ramet
from ramet import Sandbox

SCREEN = (30, 100)  # rows and columns


class Cli:
    """The command, for the service of RAMET_HOST."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        program = self.bin / "ramet"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ramet.cli "$@"\n')
        program.chmod(0o755)
        self.env = {
            **os.environ,
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_STATE_HOME": str(folder / "state"),
            "PYTHONPATH": str(Path(ramet.__file__).parents[1]),
            "TERM": "xterm",
        }

    def run(
        self, *words: str, input: str | bytes = b"", env: dict[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Runs it to its end."""
        raw = input.encode() if isinstance(input, str) else input
        done = subprocess.run(
            ["ramet", *words], input=raw, capture_output=True, env={**self.env, **(env or {})}
        )
        out, err = done.stdout.decode(), done.stderr.decode()
        return subprocess.CompletedProcess(words, done.returncode, out, err)

    def ok(self, *words: str, input: str | bytes = b"") -> str:
        """Runs it to its end, which must be a success; returns its output."""
        done = self.run(*words, input=input)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """Starts it with pipes."""
        return subprocess.Popen(
            ["ramet", *words], env=self.env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        )

    def terminal(self, program: str, *words: str) -> Any:
        """Starts a program on a terminal."""
        return pexpect.spawn(
            program, list(words), env=self.env, encoding="utf-8", dimensions=SCREEN, timeout=120,
            preexec_fn=_accept_interrupts,
        )


def _accept_interrupts() -> None:
    """Restores the default action of Ctrl-C, which background jobs of a shell ignore."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def code_of(terminal: Any) -> int:
    """Waits for the end of a program on a terminal; returns its exit code."""
    terminal.expect(pexpect.EOF)
    terminal.close()
    return int(terminal.exitstatus)


@pytest.fixture(scope="session")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    return Cli(tmp_path_factory.mktemp("cli"))


@pytest.fixture
def folder(shared: Sandbox) -> Iterator[str]:
    """An empty folder in the shared sandbox."""
    path = f"/tmp/cli-{os.urandom(6).hex()}"
    shared.files.mkdir(path)
    yield path
    shared.files.remove(path, recursive=True)
