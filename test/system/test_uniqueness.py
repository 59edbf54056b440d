# SPDX-License-Identifier: Apache-2.0
"""Sandboxes of one template share nothing that must be random or current."""

from __future__ import annotations

from contextlib import ExitStack

from conftest import on_host
from ramet import Client, Sandbox

DRAW = (
    "import os, random, uuid\n"
    "print(random.random(), os.urandom(16).hex(), uuid.uuid4(),"
    " open('/proc/sys/kernel/random/uuid').read().strip())"
)


def test_no_two_sandboxes_draw_the_same(client: Client) -> None:
    draws: list[str] = []
    for _ in range(4):
        with Sandbox(client=client) as sbx:
            draws += sbx.run_code(DRAW).stdout.split()
    assert len(draws) == 16
    assert len(set(draws)) == 16, f"shared randomness: {sorted(draws)}"


# A line for each draw: when it began, and what it gave.
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
    """What was drawn once the clocks of the two went apart."""
    same = 0
    while same < min(len(a), len(b)) and a[same] == b[same]:
        same += 1
    return {line.split()[1] for line in a[same:]}, {line.split()[1] for line in b[same:]}


def test_a_program_that_draws_goes_on_with_other_numbers(sbx: Sandbox) -> None:
    """It never stops, so it draws before the child's agent could do anything about it."""
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


def test_the_clock_is_right(sbx: Sandbox) -> None:
    """By the clock of the host the VM runs on."""
    before = float(on_host("date +%s.%N"))
    guest = float(sbx.run_code("import time; print(time.time())").stdout)
    assert before - 0.1 <= guest <= float(on_host("date +%s.%N")) + 0.1


def test_what_one_writes_the_other_does_not_see(client: Client) -> None:
    with Sandbox(client=client) as a, Sandbox(client=client) as b:
        a.run_code("echo secret > /root/mine && sync", "bash")
        assert b.run_code("ls /root/mine", "bash").exit_code != 0
