# SPDX-License-Identifier: Apache-2.0
"""Processes in forks and Spaces of real guests."""

from __future__ import annotations

from itertools import islice
from typing import Iterator

import pytest

from ramet import Process, Sandbox

# Counts the lines that it reads; prints "ready" first.
COUNTER = "echo ready; n=0; while read -r line; do n=$((n + 1)); echo $n $line; done; echo end >&2; exit 5"


def lines(process: Process) -> Iterator[str]:
    """Yields the lines that a process prints: an event may hold several, or a part of one."""
    held = ""
    for text in process.text():
        *whole, held = (held + text).split("\n")
        yield from whole


@pytest.mark.smoke
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


@pytest.mark.smoke
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
