# SPDX-License-Identifier: Apache-2.0
"""Sandboxes of one template share no random numbers, and have the current time."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from conftest import on_host
from ramet import Client, Sandbox

DRAW = (
    "import os, random, uuid\n"
    "print(random.random(), os.urandom(16).hex(), uuid.uuid4(),"
    " open('/proc/sys/kernel/random/uuid').read().strip())"
)


def test_sandboxes_draw_different_random_numbers(client: Client) -> None:
    draws: list[str] = []
    for _ in range(4):
        with Sandbox(client=client) as sbx:
            draws += sbx.run_code(DRAW).stdout.split()
    assert len(draws) == 16
    assert len(set(draws)) == 16, f"shared randomness: {sorted(draws)}"


# Writes a line for each draw: the monotonic time before it, and the value.
DRAW_ON = """
import os, time
with open("/dev/shm/draws", "w") as out:
    while True:
        print(time.monotonic_ns(), os.urandom(16).hex(), file=out, flush=True)
"""


START = (
    "setsid python3 /root/draw.py >/dev/null 2>&1 & echo $! >/dev/shm/pid; "
    "until [ -s /dev/shm/draws ]; do sleep 0.1; done"
)


def draws_of(sbx: Sandbox) -> list[str]:
    sbx.run_code("sleep 1; kill $(cat /dev/shm/pid)", "bash")
    lines = sbx.download("/dev/shm/draws").decode().splitlines()
    return lines[:-1]  # the last may be cut off


def after_the_fork(a: list[str], b: list[str]) -> tuple[set[str], set[str]]:
    """Returns the values that each drew from the first line on in which the two differ."""
    same = 0
    while same < min(len(a), len(b)) and a[same] == b[same]:
        same += 1
    return {line.split()[1] for line in a[same:]}, {line.split()[1] for line in b[same:]}


@pytest.mark.smoke
def test_running_program_draws_different_numbers_after_fork(sbx: Sandbox) -> None:
    """The program never stops drawing, so it also draws before the child's agent can act."""
    sbx.upload(DRAW_ON.encode(), "/root/draw.py")
    sbx.run_code(START, "bash")
    with ExitStack() as stack:
        children = [stack.enter_context(child) for child in sbx.fork(2)]
        drawn = [draws_of(s) for s in (sbx, *children)]
    for i, a in enumerate(drawn):
        for b in drawn[i + 1 :]:
            ours, theirs = after_the_fork(a, b)
            assert ours and theirs
            assert not ours & theirs, f"{len(ours & theirs)} draws are the same in both"


def test_guest_clock_is_correct(sbx: Sandbox) -> None:
    """Compares with the clock of the host on which the VM runs."""
    before = float(on_host("date +%s.%N"))
    guest = float(sbx.run_code("import time; print(time.time())").stdout)
    assert before - 0.1 <= guest <= float(on_host("date +%s.%N")) + 0.1
