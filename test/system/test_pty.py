# SPDX-License-Identifier: Apache-2.0
"""Terminals of real guests, read through a terminal emulator as a person would."""

from __future__ import annotations

import base64
import json
import time
from typing import Any, Callable, Iterator

import httpx
import pytest

import ramet
from conftest import run_example
from ramet import Client, Pty, Sandbox
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


def finished(pty: Pty) -> tuple[bytes, int | None]:
    """Reads to the end; returns the output and the exit code."""
    return b"".join(pty), pty.exit_code


@pytest.fixture
def bash(sbx: Sandbox) -> Iterator[Screen]:
    pty = sbx.pty.create(BASH, env={"PS1": "$ "})
    screen = Screen(pty)
    screen.until_line("$")
    yield screen


# --- a shell ---


def test_interactive_bash_works(bash: Screen) -> None:
    bash.type("echo $((6 * 7))\r")
    bash.until(lambda lines: lines[:3] == ["$ echo $((6 * 7))", "42", "$"])
    bash.type("test -t 0 && test -t 1 && test -t 2 && tty\r")
    bash.until(lambda lines: any(line.startswith("/dev/pts/") for line in lines))
    bash.type("exit 3\r")
    assert bash.pty.wait(TIMEOUT_S) == 3


def test_control_keys_reach_the_program(bash: Screen) -> None:
    # The program prints "begun": bash can lose a signal between its own echo and starting sleep.
    bash.type("sh -c 'echo begun; exec sleep 1000'\r")
    bash.until_line("begun")
    bash.type("\x03")
    bash.type("echo exited with $?\r")
    bash.until_prompt("exited with 130")
    bash.type("echo typing; cat >/root/typed\r")
    bash.until_line("typing")  # from here on, input goes to cat
    bash.type("two words\r\x04")
    bash.type("echo end of $(cat /root/typed)\r")
    bash.until_prompt("end of two words")
    bash.type("sleep 1000 & jobs; echo listed\r")
    bash.until_prompt("listed")
    assert any("Running" in line for line in bash.lines)
    bash.type("exit\r")
    assert bash.pty.wait(TIMEOUT_S) == 0


def test_size_can_be_read_and_changed(sbx: Sandbox) -> None:
    pty = sbx.pty.create(BASH, cols=91, rows=17, env={"PS1": "$ "})
    screen = Screen(pty, 91, 17)
    screen.until_line("$")
    screen.type("trap 'echo it changed' WINCH; stty size\r")
    screen.until_prompt("17 91")
    screen.resize(100, 40)
    screen.type("stty size\r")
    screen.until_line("40 100")
    screen.until(lambda lines: any(line.endswith("it changed") for line in lines))


def test_command_as_text_or_list_with_env_and_cwd(sbx: Sandbox) -> None:
    sbx.run_code("import os\nos.chdir('/usr')")
    text = sbx.pty.create("echo $A $(pwd) $0; exit 4", env={"A": "b"}, cwd="/tmp")
    assert finished(text) == (b"b /tmp bash\r\n", 4)
    plain = sbx.pty.create(["sh", "-c", 'echo "$1" $(pwd) $TERM', "-", "a  b"])
    output, code = finished(plain)
    assert output.startswith(b"a  b /usr xterm") and code == 0


def test_large_paste_arrives_completely(sbx: Sandbox) -> None:
    pasted = bytes(range(256)) * 1200
    pty = sbx.pty.create(f"stty raw -echo; echo ready; head -c {len(pasted)} >/root/pasted")
    read_to(pty, b"ready")
    pty.send_input(pasted)
    assert pty.wait(TIMEOUT_S) == 0
    assert sbx.download("/root/pasted") == pasted


# --- full-screen programs ---


def test_top_redraws_the_screen(sbx: Sandbox) -> None:
    screen = Screen(sbx.pty.create(["top", "-d", "1"], cols=100, rows=30), 100, 30)
    screen.until(lambda lines: "load average" in lines[0] and "PID USER" in lines[6])
    screen.until(lambda lines: any(line.endswith(" top") for line in lines[7:]))
    screen.resize(70, 12)
    screen.until(lambda lines: len(lines) == 12 and "load average" in lines[0])
    screen.type("q")
    assert screen.pty.wait(TIMEOUT_S) == 0


def test_nano_edits_a_file(sbx: Sandbox) -> None:
    screen = Screen(sbx.pty.create(["nano", "/root/note.txt"], env={"TERM": "linux"}))
    screen.until(lambda lines: "nano" in lines[0] and "note.txt" in lines[0])
    screen.type("first line\rsecond")
    screen.until(lambda lines: "second" in lines)
    screen.type("\x01THE ")  # Ctrl-A: to the begin of the line
    screen.until(lambda lines: "THE second" in lines)
    screen.type("\x0f\r")  # Ctrl-O, Enter: write it
    screen.until(lambda lines: any("Wrote 2 lines" in line for line in lines))
    screen.type("\x18")  # Ctrl-X
    assert screen.pty.wait(TIMEOUT_S) == 0
    assert sbx.download("/root/note.txt") == b"first line\nTHE second\n"


def test_vim_edits_a_file(sbx: Sandbox) -> None:
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
    assert screen.pty.wait(TIMEOUT_S) == 0
    assert sbx.download("/root/list.txt") == b"one\nThree\nTwo\nfour\n"


def test_less_pages_and_searches(sbx: Sandbox) -> None:
    sbx.upload("".join(f"line {i}\n" for i in range(1, 1001)).encode(), "/root/long")
    screen = Screen(sbx.pty.create(["less", "/root/long"], env={"TERM": "linux"}))
    screen.until(lambda lines: lines[0] == "line 1" and lines[22] == "line 23")
    screen.type("G")
    screen.until(lambda lines: lines[22] == "line 1000")
    screen.type("?line 77$\r")
    screen.until(lambda lines: lines[0] == "line 77")
    screen.type("q")
    assert screen.pty.wait(TIMEOUT_S) == 0


# --- listeners ---

COUNT = "stty -opost; read go; seq 1 100000"
COUNTED = "".join(f"{i}\n" for i in range(1, 100001)).encode()  # 588,895 bytes


def test_several_listeners_get_all_output(sbx: Sandbox, http: httpx.Client) -> None:
    first = sbx.pty.create(COUNT)
    second = sbx.pty.attach(first.id)
    with http.stream("GET", f"/v1/sandboxes/{sbx.id}/pty/{first.id}/attach") as third:
        first.send_input("go\r")
        wanted = b"go\r\n" + COUNTED
        assert finished(first)[0].replace(b"go\n", b"go\r\n") == wanted
        assert finished(second)[0].replace(b"go\n", b"go\r\n") == wanted
        events = [json.loads(line) for line in third.iter_lines() if line]
    assert events.pop() == {"type": "pty_exit", "data": 0}
    offset = 0
    for event in events:
        assert (event["type"], event["seq"]) == ("pty_data", offset)
        offset += len(base64.b64decode(event["data_b64"]))
    assert offset == first.place


def test_listener_that_does_not_read_blocks_nobody(sbx: Sandbox, http: httpx.Client) -> None:
    """Writes 3 MiB while an attached listener reads nothing; the listener gets the last part."""
    total = 3 << 20
    pty = sbx.pty.create(f"stty raw; read go; head -c {total} /dev/zero | tr '\\0' x; echo the end")
    with http.stream("GET", f"/v1/sandboxes/{sbx.id}/pty/{pty.id}/attach") as idle:
        pty.send_input("go\n")
        assert pty.wait(3 * TIMEOUT_S) == 0
        events = [json.loads(line) for line in idle.iter_lines() if line]
    assert events[-1] == {"type": "pty_exit", "data": 0}
    assert base64.b64decode(events[-2]["data_b64"]).endswith(b"the end\n")
    late = sbx.pty.attach(pty.id)
    kept, code = finished(late)
    assert kept.endswith(b"xxx" + b"the end\n") and code == 0
    assert len(kept) == 1 << 20
    assert late.lost + len(kept) == late.place > total


def test_reattached_reader_continues_at_its_offset(sbx: Sandbox) -> None:
    pty = sbx.pty.create("stty -echo -opost; echo ready; read go; seq 1 100000")
    got = read_to(pty, b"ready\n")
    pty.send_input("go\r")
    while len(got) < 100_000:
        got += pty.read()
    again = Sandbox.connect(sbx.id).pty.attach(pty.id, place=pty.place)
    got += b"".join(again)
    assert got == b"ready\n" + COUNTED
    assert (again.exit_code, again.lost) == (0, 0)


def test_broken_stream_continues_at_its_sequence_number(sbx: Sandbox, http: httpx.Client) -> None:
    body = {"shellCmd": "stty -echo -opost; seq 1 50000; read go; seq 50001 100000"}
    got, offset, pty_id = b"", 0, ""
    with http.stream("POST", f"/v1/sandboxes/{sbx.id}/pty", json=body) as answer:
        for line in answer.iter_lines():
            event = json.loads(line or "{}")
            if event.get("type") == "pty_ready":
                pty_id = event["session_id"]
            elif event.get("type") == "pty_data":
                got += base64.b64decode(event["data_b64"])
                offset = event["seq"] + len(base64.b64decode(event["data_b64"]))
            if len(got) > 50_000:
                break
    assert offset == len(got)
    url = f"/v1/sandboxes/{sbx.id}/pty/{pty_id}/attach?since_seq={offset}"
    sbx.pty.attach(pty_id).send_input("go\r")
    events = [json.loads(line) for line in http.get(url).text.split("\n") if line]
    got += b"".join(base64.b64decode(event["data_b64"]) for event in events[:-1])
    assert got == COUNTED


def test_program_continues_without_listeners(sbx: Sandbox) -> None:
    pty_id = sbx.pty.create("read go; sleep 1; echo done >/root/done; echo said").id
    sbx.pty.attach(pty_id).send_input("go\r")
    late = sbx.pty.attach(pty_id)
    assert late.wait(TIMEOUT_S) == 0
    assert sbx.download("/root/done") == b"done\n"
    assert late.read().endswith(b"said\r\n")


# --- end of a terminal ---


def test_kill_ends_all_processes_of_the_terminal(sbx: Sandbox) -> None:
    pty = sbx.pty.create("echo before; sleep 4242 & setsid sleep 4243 & exec sleep 4244")
    read_to(pty, b"before")
    pty.kill()
    assert pty.wait(TIMEOUT_S) == 137
    assert sbx.run_code("pgrep -x sleep -a | grep -v 4243", "bash").stdout == ""
    pty.kill()
    with pytest.raises(ramet.Conflict):
        pty.send_input("x")
    assert sbx.pty.attach(pty.id).read().startswith(b"before")


def test_list_has_running_and_ended_terminals(sbx: Sandbox) -> None:
    assert sbx.pty.list() == []
    one = sbx.pty.create("exit 5")
    one.wait(TIMEOUT_S)
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
def test_invalid_start_names_the_field(
    shared: Sandbox, http: httpx.Client, body: dict[str, Any], names: str
) -> None:
    answer = http.post(f"/v1/sandboxes/{shared.id}/pty", json=body)
    assert answer.status_code == 400, answer.text
    assert names in answer.json()["error"]
    assert shared.pty.list() == []


def test_program_that_cannot_start_is_an_error(sbx: Sandbox) -> None:
    with pytest.raises(ramet.BadRequest, match="no-such-program"):
        sbx.pty.create(["/no-such-program"])
    with pytest.raises(ramet.BadRequest, match="/no/such/folder"):
        sbx.pty.create("true", cwd="/no/such/folder")
    missing = sbx.pty.create("no-such-command")
    assert finished(missing)[1] == 127


def test_unknown_terminal_is_not_found(shared: Sandbox, client: Client) -> None:
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


def test_terminal_continues_separately_in_parent_and_child(bash: Screen, sbx: Sandbox) -> None:
    """Parent and child continue separately from the same screen."""
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


def test_example_runs() -> None:
    text = run_example("files_and_terminal.py")
    assert "same bytes: True" in text
    assert "this terminal is 100 columns wide" in text
    assert "found after 7 guesses; exit code 0" in text
