# SPDX-License-Identifier: Apache-2.0
"""Processes in real guests: side by side, in forks and in Spaces."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Iterator

import pytest

import ramet
from ramet import Process, Sandbox

# Counts the lines that it reads; prints "ready" first.
COUNTER = "echo ready; n=0; while read -r line; do n=$((n + 1)); echo $n $line; done; echo end >&2; exit 5"


def lines(process: Process) -> Iterator[str]:
    """Yields the lines that a process prints: an event may hold several, or a part of one."""
    held = ""
    for text in process.text():
        *whole, held = (held + text).split("\n")
        yield from whole


def test_output_ends_and_users(sbx: Sandbox) -> None:
    run = sbx.processes.run
    done = run(["printf", "%s|", "$HOME", "a b", "*"])
    assert (done.stdout, done.stderr, done.exit_code) == ("$HOME|a b|*|", "", 0)
    assert run(["printf", r"\377\000"]).stdout_bytes == b"\xff\0"
    failed = run("echo out; echo err >&2; exit 7")
    assert (failed.stdout, failed.stderr, failed.exit_code) == ("out\n", "err\n", 7)
    assert run(["no-such-program"]).exit_code == 127
    assert run(["/etc/passwd"]).exit_code == 126
    killed = run("kill -9 $$")
    assert (killed.exit_code, killed.signal) == (137, "SIGKILL")
    late = run("trap 'echo bye; exit 1' TERM; sleep 1000 & wait", timeout_seconds=1)
    assert (late.stdout, late.timed_out) == ("bye\n", True)
    assert run("id -un; echo $HOME $USER", user="nobody", cwd="/").stdout.split()[0] == "nobody"
    with pytest.raises(ramet.BadRequest, match='no user "nobody-here"'):
        run(["true"], user="nobody-here")
    data = bytes(range(256)) * 20_000
    assert run(["cat"], input=data).stdout_bytes == data
    assert run("seq 1 500000 | tail -1; cat", input="x").stdout == "500000\nx"


def test_twenty_at_once_beside_python(sbx: Sandbox) -> None:
    def count(number: int) -> str:
        process = sbx.processes.start(COUNTER, stdin=True)
        printed = lines(process)
        assert next(printed) == "ready"
        for i in range(3):
            process.write(f"{number}\n")
            assert next(printed) == f"{i + 1} {number}"
        process.close_stdin()
        result = process.wait()
        assert (result.stdout, result.exit_code) == ("", 5)
        return result.stderr

    with ThreadPoolExecutor(20) as pool:
        results = list(pool.map(count, range(20)))
    assert results == ["end\n"] * 20
    assert sbx.run_code("print('python too')").stdout == "python too\n"
    assert len(sbx.processes.list()) >= 20


def test_running_process_goes_on_in_parent_and_children(sbx: Sandbox) -> None:
    process = sbx.processes.start(COUNTER, stdin=True)
    process.write("before\n")
    assert list(islice(lines(process), 2)) == ["ready", "1 before"]
    children = sbx.fork(2)
    try:
        copies = [child.processes.attach(process.id) for child in children]
        for name, one in zip(("a", "b", "parent"), [*copies, process]):
            one.write(f"{name}\n")
            one.close_stdin()
        results = [one.wait() for one in [*copies, process]]
    finally:
        for child in children:
            child.close()
    for name, result in zip("ab", results):
        assert result.stdout == f"ready\n1 before\n2 {name}\n"
        assert (result.stderr, result.exit_code) == ("end\n", 5)
    assert results[2].stdout == "2 parent\n"


def test_process_goes_on_after_freeze_and_resume() -> None:
    with Sandbox() as sbx:
        process = sbx.processes.start(COUNTER, stdin=True, detach=True)
        process.write("before\n")
        assert list(islice(lines(process), 2)) == ["ready", "1 before"]
        space = sbx.freeze()
    with Sandbox.resume(space.id) as resumed:
        again = resumed.processes.attach(process.id)
        again.write("after\n")
        again.close_stdin()
        result = again.wait()
        assert (result.stdout, result.exit_code) == ("ready\n1 before\n2 after\n", 5)
