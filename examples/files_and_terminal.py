# SPDX-License-Identifier: Apache-2.0
"""Moves files in and out of a sandbox, and answers a program that prompts on a terminal."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ramet import Pty, RametError, Sandbox

GUESS = """#!/usr/bin/env python3
import os
columns = os.get_terminal_size().columns
print(f'this terminal is {columns} columns wide')
while True:
    guess = int(input('a number from 1 to 100: '))
    if guess == 42:
        break
    print('more' if guess < 42 else 'less')
print('found')
"""


def read_to(pty: Pty, *ends: str) -> str:
    """Reads output until one of the texts appears in it; returns the output."""
    shown = ""
    while not any(end in shown for end in ends):
        output = pty.read(timeout_seconds=60).decode()
        if not output:
            raise SystemExit(f"no more output after {shown!r}")
        shown += output
    return shown


def play(pty: Pty) -> int:
    """Finds the number by bisection; returns the number of guesses."""
    low, high, guesses = 1, 100, 0
    print(read_to(pty, "100: ").splitlines()[0])
    while True:
        guess = (low + high) // 2
        guesses += 1
        pty.send_input(f"{guess}\r")
        answer = read_to(pty, "more", "less", "found")
        if "found" in answer:
            return guesses
        low, high = (guess + 1, high) if "more" in answer else (low, guess - 1)


def main() -> None:
    data = os.urandom(20 << 20)
    with Sandbox() as sbx, tempfile.TemporaryDirectory() as folder:
        sbx.upload(data, "/root/data/noise.bin", progress=lambda done, total: print(done, "of", total))
        print(sbx.run_code("sha256sum /root/data/noise.bin", "bash").stdout, end="")
        sbx.download_to("/root/data/noise.bin", Path(folder) / "back.bin")
        print("same bytes:", (Path(folder) / "back.bin").read_bytes() == data)

        sbx.upload(GUESS.encode(), "/root/bin/guess", mode=0o755)
        for file in sbx.files.list("/root/bin"):
            print(f"{file.mode:o} {file.size:>6} {file.name}")
        pty = sbx.pty.create(["/root/bin/guess"], cols=100, rows=30)
        print("found after", play(pty), "guesses; exit code", pty.wait())


if __name__ == "__main__":
    try:
        main()
    except RametError as error:
        raise SystemExit(f"files_and_terminal: {error}") from None
