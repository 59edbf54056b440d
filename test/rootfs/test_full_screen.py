# SPDX-License-Identifier: Apache-2.0
"""Full-screen programs of the root file system, read through a terminal emulator as a person would."""

from __future__ import annotations

from conftest import run_example
from ramet import Sandbox
from screen import TIMEOUT_S, Screen


def test_top_redraws_the_screen(shared: Sandbox) -> None:
    screen = Screen(shared.pty.create(["top", "-d", "1"], cols=100, rows=30), 100, 30)
    screen.until(lambda lines: "load average" in lines[0] and "PID USER" in lines[6])
    screen.until(lambda lines: any(line.endswith(" top") for line in lines[7:]))
    screen.resize(70, 12)
    screen.until(lambda lines: len(lines) == 12 and "load average" in lines[0])
    screen.type("q")
    assert screen.pty.wait(TIMEOUT_S) == 0


def test_nano_edits_a_file(shared: Sandbox) -> None:
    screen = Screen(shared.pty.create(["nano", "/root/note.txt"], env={"TERM": "linux"}))
    screen.until(lambda lines: "nano" in lines[0] and "note.txt" in lines[0])
    screen.type("first line\rsecond")
    screen.until(lambda lines: "second" in lines)
    screen.type("\x01THE ")  # Ctrl-A: to the begin of the line
    screen.until(lambda lines: "THE second" in lines)
    screen.type("\x0f\r")  # Ctrl-O, Enter: write it
    screen.until(lambda lines: any("Wrote 2 lines" in line for line in lines))
    screen.type("\x18")  # Ctrl-X
    assert screen.pty.wait(TIMEOUT_S) == 0
    assert shared.download("/root/note.txt") == b"first line\nTHE second\n"


def test_vim_edits_a_file(shared: Sandbox) -> None:
    shared.upload(b"one\ntwo\nthree\n", "/root/list.txt")
    started = shared.pty.create(["vim", "/root/list.txt"], cols=60, rows=15, env={"TERM": "linux"})
    screen = Screen(started, 60, 15)
    screen.until(lambda lines: lines[:4] == ["one", "two", "three", "~"])
    screen.type("jddp")  # the second line away, and back below the third
    screen.until(lambda lines: lines[:3] == ["one", "three", "two"])
    screen.resize(70, 20)
    screen.until(lambda lines: lines[:3] == ["one", "three", "two"] and lines[18] == "~")
    screen.type("ofour\x1b:%s/t/T/\r")
    screen.until(lambda lines: lines[:4] == ["one", "Three", "Two", "four"])
    screen.type(":wq\r")
    assert screen.pty.wait(TIMEOUT_S) == 0
    assert shared.download("/root/list.txt") == b"one\nThree\nTwo\nfour\n"


def test_less_pages_and_searches(shared: Sandbox) -> None:
    shared.upload("".join(f"line {i}\n" for i in range(1, 1001)).encode(), "/root/long")
    screen = Screen(shared.pty.create(["less", "/root/long"], env={"TERM": "linux"}))
    screen.until(lambda lines: lines[0] == "line 1" and lines[22] == "line 23")
    screen.type("G")
    screen.until(lambda lines: lines[22] == "line 1000")
    screen.type("?line 77$\r")
    screen.until(lambda lines: lines[0] == "line 77")
    screen.type("q")
    assert screen.pty.wait(TIMEOUT_S) == 0


def test_example_runs() -> None:
    text = run_example("files_and_terminal.py")
    assert "same bytes: True" in text
    assert "this terminal is 100 columns wide" in text
    assert "found after 7 guesses; exit code 0" in text
