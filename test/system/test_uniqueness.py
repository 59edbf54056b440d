# SPDX-License-Identifier: Apache-2.0
"""Sandboxes of one template share nothing that must be random or current."""

from __future__ import annotations

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


def test_the_clock_is_right(sbx: Sandbox) -> None:
    """By the clock of the host the VM runs on."""
    before = float(on_host("date +%s.%N"))
    guest = float(sbx.run_code("import time; print(time.time())").stdout)
    assert before - 0.1 <= guest <= float(on_host("date +%s.%N")) + 0.1


def test_what_one_writes_the_other_does_not_see(client: Client) -> None:
    with Sandbox(client=client) as a, Sandbox(client=client) as b:
        a.run_code("echo secret > /root/mine && sync", "bash")
        assert b.run_code("ls /root/mine", "bash").exit_code != 0
