# SPDX-License-Identifier: Apache-2.0
"""Terminals of real guests, read as a person would: through a screen."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from typing import Any, Callable, Iterator

import httpx
import pyte
import pytest

import ramet
from conftest import HOST, REPO
from ramet import Client, Pty, Sandbox

BASH = ["bash", "--norc", "-i"]
PATIENCE_S = 120.0


class AnsweringScreen(pyte.Screen):
    """A terminal that is asked where its cursor is says so: vim may wait for that with its text."""

    def __init__(self, pty: Pty, cols: int, rows: int) -> None:
        super().__init__(cols, rows)
        self._pty = pty

    def write_process_input(self, data: str) -> None:
        self._pty.send_input(data)


class Screen:
    """What a person in front of a terminal sees."""

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
        """Looks at it until it shows what is waited for."""
        give_up = time.monotonic() + PATIENCE_S
        while not holds(self.lines):
            data = self.pty.read(max(give_up - time.monotonic(), 0))
            assert data, "the terminal shows no more than this:\n" + "\n".join(self.lines)
            self._stream.feed(data)
        return self.lines

    def until_line(self, wanted: str) -> None:
        self.until(lambda lines: wanted in lines)

    def until_prompt(self, after: str) -> None:
        """Until a shell waits for the next command, below a line of the last one's."""
        self.until(lambda lines: [*filter(None, lines)][-2:] == [after, "$"])


def read_to(pty: Pty, wanted: bytes) -> bytes:
    """Output up to the piece that has `wanted` in it."""
    got = b""
    give_up = time.monotonic() + PATIENCE_S
    while wanted not in got:
        data = pty.read(max(give_up - time.monotonic(), 0))
        assert data, f"no {wanted!r} came, but {got[-500:]!r}"
        got += data
    return got


def finished(pty: Pty) -> tuple[bytes, int | None]:
    """The rest of its output, and its exit code."""
    return b"".join(pty), pty.exit_code


@pytest.fixture
def bash(sbx: Sandbox) -> Iterator[Screen]:
    pty = sbx.pty.create(BASH, env={"PS1": "$ "})
    screen = Screen(pty)
    screen.until_line("$")
    yield screen


# --- a shell ---


def test_an_interactive_shell(bash: Screen) -> None:
    bash.type("echo $((6 * 7))\r")
    bash.until(lambda lines: lines[:3] == ["$ echo $((6 * 7))", "42", "$"])
    bash.type("test -t 0 && test -t 1 && test -t 2 && tty\r")
    bash.until(lambda lines: any(line.startswith("/dev/pts/") for line in lines))
    bash.type("exit 3\r")
    assert bash.pty.wait(PATIENCE_S) == 3


def test_control_keys_are_the_terminals(bash: Screen) -> None:
    # Said by the program itself: bash loses a signal between its own echo and the start of sleep.
    bash.type("sh -c 'echo begun; exec sleep 1000'\r")
    bash.until_line("begun")
    bash.type("\x03")
    bash.type("echo it gave $?\r")
    bash.until_prompt("it gave 130")
    bash.type("echo typing; cat >/root/typed\r")
    bash.until_line("typing")  # from here on the terminal is not the shell's own
    bash.type("two words\r\x04")
    bash.type("echo end of $(cat /root/typed)\r")
    bash.until_prompt("end of two words")
    bash.type("sleep 1000 & jobs; echo listed\r")
    bash.until_prompt("listed")
    assert any("Running" in line for line in bash.lines)
    bash.type("exit\r")
    assert bash.pty.wait(PATIENCE_S) == 0


def test_its_size_is_told_and_changes(sbx: Sandbox) -> None:
    pty = sbx.pty.create(BASH, cols=91, rows=17, env={"PS1": "$ "})
    screen = Screen(pty, 91, 17)
    screen.until_line("$")
    screen.type("trap 'echo it changed' WINCH; stty size\r")
    screen.until_prompt("17 91")
    screen.resize(100, 40)
    screen.type("stty size\r")
    screen.until_line("40 100")
    screen.until(lambda lines: any(line.endswith("it changed") for line in lines))


def test_text_command_list_environment_and_folder(sbx: Sandbox) -> None:
    sbx.run_code("import os\nos.chdir('/usr')")
    text = sbx.pty.create("echo $A $(pwd) $0; exit 4", env={"A": "b"}, cwd="/tmp")
    assert finished(text) == (b"b /tmp bash\r\n", 4)
    plain = sbx.pty.create(["sh", "-c", 'echo "$1" $(pwd) $TERM', "-", "a  b"])
    output, code = finished(plain)
    assert output.startswith(b"a  b /usr xterm") and code == 0


def test_a_large_paste_arrives_whole(sbx: Sandbox) -> None:
    pasted = bytes(range(256)) * 1200
    pty = sbx.pty.create(f"stty raw -echo; echo ready; head -c {len(pasted)} >/root/pasted")
    read_to(pty, b"ready")
    pty.send_input(pasted)
    assert pty.wait(PATIENCE_S) == 0
    assert sbx.download("/root/pasted") == pasted


# --- full-screen programs ---


def test_top(sbx: Sandbox) -> None:
    screen = Screen(sbx.pty.create(["top", "-d", "1"], cols=100, rows=30), 100, 30)
    screen.until(lambda lines: "load average" in lines[0] and "PID USER" in lines[6])
    screen.until(lambda lines: any(line.endswith(" top") for line in lines[7:]))
    screen.resize(70, 12)
    screen.until(lambda lines: len(lines) == 12 and "load average" in lines[0])
    screen.type("q")
    assert screen.pty.wait(PATIENCE_S) == 0


def test_an_editor(sbx: Sandbox) -> None:
    screen = Screen(sbx.pty.create(["nano", "/root/note.txt"], env={"TERM": "linux"}))
    screen.until(lambda lines: "nano" in lines[0] and "note.txt" in lines[0])
    screen.type("first line\rsecond")
    screen.until(lambda lines: "second" in lines)
    screen.type("\x01THE ")  # Ctrl-A: to the begin of the line
    screen.until(lambda lines: "THE second" in lines)
    screen.type("\x0f\r")  # Ctrl-O, Enter: write it
    screen.until(lambda lines: any("Wrote 2 lines" in line for line in lines))
    screen.type("\x18")  # Ctrl-X
    assert screen.pty.wait(PATIENCE_S) == 0
    assert sbx.download("/root/note.txt") == b"first line\nTHE second\n"


def test_an_editor_with_modes(sbx: Sandbox) -> None:
    sbx.upload(b"one\ntwo\nthree\n", "/root/list.txt")
    started = sbx.pty.create(["vim", "/root/list.txt"], cols=60, rows=15, env={"TERM": "linux"})
    screen = Screen(started, 60, 15)
    screen.until(lambda lines: lines[:4] == ["one", "two", "three", "~"])
    screen.type("jddp")  # the second line away, and back below the third
    screen.until(lambda lines: lines[:3] == ["one", "three", "two"])
    screen.resize(70, 20)
    screen.until(lambda lines: lines[:3] == ["one", "three", "two"] and lines[18] == "~")
    screen.type("ofour\x1b:%s/t/T/\r")
    screen.until(lambda lines: lines[:4] == ["one", "Three", "Two", "four"])
    screen.type(":wq\r")
    assert screen.pty.wait(PATIENCE_S) == 0
    assert sbx.download("/root/list.txt") == b"one\nThree\nTwo\nfour\n"


def test_a_pager(sbx: Sandbox) -> None:
    sbx.upload("".join(f"line {i}\n" for i in range(1, 1001)).encode(), "/root/long")
    screen = Screen(sbx.pty.create(["less", "/root/long"], env={"TERM": "linux"}))
    screen.until(lambda lines: lines[0] == "line 1" and lines[22] == "line 23")
    screen.type("G")
    screen.until(lambda lines: lines[22] == "line 1000")
    screen.type("?line 77$\r")
    screen.until(lambda lines: lines[0] == "line 77")
    screen.type("q")
    assert screen.pty.wait(PATIENCE_S) == 0


# --- who listens, and who does not ---

COUNT = "stty -opost; read go; seq 1 100000"
COUNTED = "".join(f"{i}\n" for i in range(1, 100001)).encode()  # 588,895 bytes


def test_several_listeners_get_all_of_it(sbx: Sandbox, http: httpx.Client) -> None:
    first = sbx.pty.create(COUNT)
    second = sbx.pty.attach(first.id)
    with http.stream("GET", f"/v1/sandboxes/{sbx.id}/pty/{first.id}/attach") as third:
        first.send_input("go\r")
        wanted = b"go\r\n" + COUNTED
        assert finished(first)[0].replace(b"go\n", b"go\r\n") == wanted
        assert finished(second)[0].replace(b"go\n", b"go\r\n") == wanted
        events = [json.loads(line) for line in third.iter_lines() if line]
    assert events.pop() == {"type": "pty_exit", "data": 0}
    place = 0
    for event in events:
        assert (event["type"], event["seq"]) == ("pty_data", place)
        place += len(base64.b64decode(event["data_b64"]))
    assert place == first.place


def test_who_does_not_read_holds_up_nobody(sbx: Sandbox, http: httpx.Client) -> None:
    """3 MiB are written while a listener that is attached takes nothing; it gets the end."""
    total = 3 << 20
    pty = sbx.pty.create(f"stty raw; read go; head -c {total} /dev/zero | tr '\\0' x; echo the end")
    with http.stream("GET", f"/v1/sandboxes/{sbx.id}/pty/{pty.id}/attach") as idle:
        pty.send_input("go\n")
        assert pty.wait(3 * PATIENCE_S) == 0
        events = [json.loads(line) for line in idle.iter_lines() if line]
    assert events[-1] == {"type": "pty_exit", "data": 0}
    assert base64.b64decode(events[-2]["data_b64"]).endswith(b"the end\n")
    late = sbx.pty.attach(pty.id)
    kept, code = finished(late)
    assert kept.endswith(b"xxx" + b"the end\n") and code == 0
    assert len(kept) == 1 << 20
    assert late.lost + len(kept) == late.place > total


def test_a_reader_that_comes_back_misses_nothing(sbx: Sandbox) -> None:
    pty = sbx.pty.create("stty -echo -opost; echo ready; read go; seq 1 100000")
    got = read_to(pty, b"ready\n")
    pty.send_input("go\r")
    while len(got) < 100_000:
        got += pty.read()
    again = Sandbox.connect(sbx.id).pty.attach(pty.id, place=pty.place)
    got += b"".join(again)
    assert got == b"ready\n" + COUNTED
    assert (again.exit_code, again.lost) == (0, 0)


def test_a_stream_that_breaks_is_taken_up_at_its_place(sbx: Sandbox, http: httpx.Client) -> None:
    body = {"shellCmd": "stty -echo -opost; seq 1 50000; read go; seq 50001 100000"}
    got, place, pty_id = b"", 0, ""
    with http.stream("POST", f"/v1/sandboxes/{sbx.id}/pty", json=body) as answer:
        for line in answer.iter_lines():
            event = json.loads(line or "{}")
            if event.get("type") == "pty_ready":
                pty_id = event["session_id"]
            elif event.get("type") == "pty_data":
                got += base64.b64decode(event["data_b64"])
                place = event["seq"] + len(base64.b64decode(event["data_b64"]))
            if len(got) > 50_000:
                break
    assert place == len(got)
    url = f"/v1/sandboxes/{sbx.id}/pty/{pty_id}/attach?since_seq={place}"
    sbx.pty.attach(pty_id).send_input("go\r")
    events = [json.loads(line) for line in http.get(url).text.split("\n") if line]
    got += b"".join(base64.b64decode(event["data_b64"]) for event in events[:-1])
    assert got == COUNTED


def test_a_program_goes_on_without_anybody(sbx: Sandbox) -> None:
    pty_id = sbx.pty.create("read go; sleep 1; echo done >/root/done; echo said").id
    sbx.pty.attach(pty_id).send_input("go\r")
    late = sbx.pty.attach(pty_id)
    assert late.wait(PATIENCE_S) == 0
    assert sbx.download("/root/done") == b"done\n"
    assert late.read().endswith(b"said\r\n")


# --- the end of it ---


def test_kill_ends_all_of_it(sbx: Sandbox) -> None:
    pty = sbx.pty.create("echo before; sleep 4242 & setsid sleep 4243 & exec sleep 4244")
    read_to(pty, b"before")
    pty.kill()
    assert pty.wait(PATIENCE_S) == 137
    assert sbx.run_code("pgrep -x sleep -a | grep -v 4243", "bash").stdout == ""
    pty.kill()
    with pytest.raises(ramet.Conflict):
        pty.send_input("x")
    assert sbx.pty.attach(pty.id).read().startswith(b"before")


def test_the_list_has_them_all(sbx: Sandbox) -> None:
    assert sbx.pty.list() == []
    one = sbx.pty.create("exit 5")
    one.wait(PATIENCE_S)
    two = sbx.pty.create(["sleep", "1000"])
    listed = sbx.pty.list()
    assert [(info.id, info.exit_code) for info in listed] == [(one.id, 5), (two.id, None)]
    assert listed[0].label == "exit 5" and "sleep" in listed[1].label
    assert listed[0].created_at <= listed[1].created_at
    with pytest.raises(TimeoutError):
        two.wait(timeout_seconds=0.1)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({}, "shellCmd"),
        ({"shellCmd": "x", "argv": ["x"]}, "argv"),
        ({"argv": []}, "argv"),
        ({"argv": [1]}, "argv"),
        ({"shellCmd": 1}, "shellCmd"),
        ({"shellCmd": "x", "cols": 0}, "cols"),
        ({"shellCmd": "x", "rows": 65536}, "rows"),
        ({"shellCmd": "x", "env": [["A"]]}, "env"),
        ({"shellCmd": "x", "cwd": 1}, "cwd"),
    ],
)
def test_wrong_starts_are_told_what_is_wrong(
    shared: Sandbox, http: httpx.Client, body: dict[str, Any], names: str
) -> None:
    answer = http.post(f"/v1/sandboxes/{shared.id}/pty", json=body)
    assert answer.status_code == 400, answer.text
    assert names in answer.json()["error"]
    assert shared.pty.list() == []


def test_a_program_that_can_not_run_is_told(sbx: Sandbox) -> None:
    with pytest.raises(ramet.BadRequest, match="no-such-program"):
        sbx.pty.create(["/no-such-program"])
    with pytest.raises(ramet.BadRequest, match="/no/such/folder"):
        sbx.pty.create("true", cwd="/no/such/folder")
    missing = sbx.pty.create("no-such-command")
    assert finished(missing)[1] == 127


def test_what_is_not_there_is_not_found(shared: Sandbox, client: Client) -> None:
    nobody = "pty_" + "0" * 32
    with pytest.raises(ramet.NotFound):
        shared.pty.attach(nobody)
    calls: list[Callable[[], None]] = [
        lambda: client.pty_input(shared.id, nobody, b"x"),
        lambda: client.pty_resize(shared.id, nobody, 80, 24),
        lambda: client.pty_kill(shared.id, nobody),
    ]
    for call in calls:
        with pytest.raises(ramet.NotFound):
            call()


# --- forks ---


def test_a_fork_with_a_live_terminal(bash: Screen, sbx: Sandbox) -> None:
    """Parent and child go on apart, each from what the screen showed."""
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
        assert theirs.pty.wait(PATIENCE_S) == 7
        bash.type("stty size\r")
        bash.until_line("24 80")
        assert bash.pty.exit_code is None


def test_a_reader_goes_on_in_the_child_at_its_place(sbx: Sandbox) -> None:
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


def test_the_example_runs() -> None:
    done = subprocess.run(
        [sys.executable, str(REPO / "examples/files_and_terminal.py")],
        env={**os.environ, "RAMET_HOST": HOST, "PYTHONPATH": str(REPO / "sdk/python/src")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "the same: True" in done.stdout
    assert "this terminal is 100 columns wide" in done.stdout
    assert "found after 7 guesses; exit code 0" in done.stdout
