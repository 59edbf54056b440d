# SPDX-License-Identifier: Apache-2.0
"""Spaces of real guests: what a freeze and a resume keep, and what is not run."""

from __future__ import annotations

import time

import pytest

import ramet
from ramet import Client, Sandbox


def do(sbx: Sandbox, code: str, language: ramet.Language = "python") -> str:
    result = sbx.run_code(code, language)
    assert result.exit_code == 0, result.stderr
    return result.stdout.strip()


SET_UP = """
import os, random, subprocess, threading, time
numbers = list(range(1000))
kept = open('/root/kept', 'w+'); kept.write('on disk'); kept.flush()
open('/dev/shm/note', 'w').write('in memory')
sleeper = subprocess.Popen(['sleep', '1000'])
ticks = 0
def tick():
    global ticks
    while True:
        ticks += 1
        time.sleep(.01)
threading.Thread(target=tick, daemon=True).start()
os.chdir('/tmp')
random.seed(7)
"""
BOOT_ID = "print(open('/proc/sys/kernel/random/boot_id').read())"


def test_all_of_it_is_there_again_and_again() -> None:
    with Client() as client, Sandbox(client=client, metadata={"who": "me"}) as sbx:
        do(sbx, SET_UP)
        boot_id = do(sbx, BOOT_ID)
        for _ in range(2):
            space = sbx.freeze()
            assert space.metadata == {"who": "me"}
            assert space.id in [one.id for one in client.list_spaces()]
            with pytest.raises(ramet.Frozen, match=space.id):
                client.get_sandbox(sbx.id)
            sbx = Sandbox.resume(space.id, client=client)
            assert do(sbx, "print(len(numbers), os.getcwd())") == "1000 /tmp"
            assert do(sbx, "kept.seek(0); print(kept.read())") == "on disk"
            assert do(sbx, "print(open('/dev/shm/note').read())") == "in memory"
            assert do(sbx, "print(sleeper.poll())") == "None"
            assert do(sbx, "n = ticks; time.sleep(1); print(ticks > n)") == "True"
            assert abs(float(do(sbx, "print(time.time())")) - time.time()) < 60
            assert do(sbx, BOOT_ID) != boot_id
            with pytest.raises(ramet.NotFound):
                client.resume_space(space.id)
        sbx.close()


def test_an_idle_persistent_one_freezes() -> None:
    with Client() as client:
        sbx = Sandbox(client=client, persistent=True, idle_timeout_seconds=2)
        do(sbx, "x = 41")
        until = time.monotonic() + 120
        spaces: list[ramet.SpaceInfo] = []
        while not spaces and time.monotonic() < until:
            spaces = [one for one in client.list_spaces() if one.raw["sandbox"] == sbx.id]
        assert spaces, "it did not freeze"
        with Sandbox.resume(spaces[0].id, client=client, idle_timeout_seconds=600) as again:
            assert do(again, "print(x + 1)") == "42"
            (child,) = again.fork()
            with child:
                assert do(child, "print(x)") == "41"


def test_what_was_closed_stays_closed_and_a_space_can_be_deleted() -> None:
    with Client() as client:
        space = Sandbox(client=client, egress=False).freeze()
        with pytest.raises(ramet.Conflict, match="network"):
            client.resume_space(space.id, egress=True)
        client.delete_space(space.id)
        with pytest.raises(ramet.NotFound):
            client.get_space(space.id)
