# SPDX-License-Identifier: Apache-2.0
"""Terminals of real guests, read through a terminal emulator as a person would.

Listeners, input, sizes and ends are tested with the agent itself in test/guest, and with the service
in test/service.
"""

from __future__ import annotations

import time

import pytest

from ramet import Pty, Sandbox
from screen import BASH, TIMEOUT_S, Screen


def read_to(pty: Pty, wanted: bytes) -> bytes:
    """Reads until the output contains `wanted`; returns the output."""
    got = b""
    give_up = time.monotonic() + TIMEOUT_S
    while wanted not in got:
        data = pty.read(max(give_up - time.monotonic(), 0))
        assert data, f"the output has no {wanted!r}; it ends with {got[-500:]!r}"
        got += data
    return got


@pytest.mark.smoke
def test_interactive_bash_works(shared: Sandbox) -> None:
    screen = Screen(shared.pty.create(BASH, cols=91, rows=17, env={"PS1": "$ "}), 91, 17)
    screen.until_line("$")
    screen.type("test -t 0 && test -t 1 && test -t 2 && tty\r")
    screen.until(lambda lines: any(line.startswith("/dev/pts/") for line in lines))
    screen.type("trap 'echo it changed' WINCH; stty size\r")
    screen.until_prompt("17 91")
    screen.resize(100, 40)
    screen.type("stty size\r")
    screen.until_line("40 100")
    screen.until(lambda lines: any(line.endswith("it changed") for line in lines))
    # The program prints "begun": bash can lose a signal between its own echo and starting sleep.
    screen.type("sh -c 'echo begun; exec sleep 1000'\r")
    screen.until_line("begun")
    screen.type("\x03")
    screen.type("echo exited with $?\r")
    screen.until_prompt("exited with 130")
    screen.type("echo typing; cat >/root/typed\r")
    screen.until_line("typing")  # from here on, input goes to cat
    screen.type("two words\r\x04")
    screen.type("echo end of $(cat /root/typed)\r")
    screen.until_prompt("end of two words")
    screen.type("exit 3\r")
    assert screen.pty.wait(TIMEOUT_S) == 3


@pytest.mark.smoke
def test_terminal_continues_separately_in_parent_and_child(sbx: Sandbox) -> None:
    """Parent and child continue separately from the same screen."""
    bash = Screen(sbx.pty.create(BASH, env={"PS1": "$ "}))
    bash.until_line("$")
    bash.type("X=common; echo set\r")
    bash.until_line("set")
    with sbx.fork()[0] as child:
        theirs = Screen(child.pty.attach(bash.pty.id))
        theirs.until_line("set")
        bash.type("X=parent\r")
        theirs.type("X=child; stty cols 50\r")
        bash.type("echo I am $X\r")
        theirs.type("echo I am $X on $(stty size)\r")
        bash.until_line("I am parent")
        theirs.until_line("I am child on 24 50")
        assert not any("child" in line for line in bash.lines)
        theirs.type("exit 7\r")
        assert theirs.pty.wait(TIMEOUT_S) == 7
        bash.type("stty size\r")
        bash.until_line("24 80")
        assert bash.pty.exit_code is None


def test_attach_in_the_child_continues_at_the_offset(sbx: Sandbox) -> None:
    pty = sbx.pty.create("stty -echo -opost; seq 1 100; read go; echo $go; seq 101 200")
    got = read_to(pty, b"\n100\n")
    with sbx.fork()[0] as child:
        theirs = child.pty.attach(pty.id, place=pty.place)
        theirs.send_input("child\r")
        pty.send_input("parent\r")
        rest = "".join(f"{i}\n" for i in range(101, 201)).encode()
        assert b"".join(theirs) == b"child\n" + rest
        assert b"".join(pty) == b"parent\n" + rest
        assert theirs.exit_code == pty.exit_code == 0
    assert got == "".join(f"{i}\n" for i in range(1, 101)).encode()
