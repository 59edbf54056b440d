# SPDX-License-Identifier: Apache-2.0
"""Spaces of real guests: what a freeze and a resume keep, and what they refuse."""

from __future__ import annotations

import shlex
import threading
import time
from typing import Any

import pytest

import ramet
from conftest import SERVICE_PID, between_services, on_host, output, until
from ramet import Client, Sandbox, Space
from screen import BASH, Screen
from test_uniqueness import DRAW


def run(sbx: Sandbox, code: str, language: ramet.Language = "python") -> str:
    """Runs code in a sandbox; returns what it prints, without the final newline."""
    return output(sbx, code, language).strip()


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


@pytest.mark.smoke
def test_freeze_and_resume_keep_the_whole_state() -> None:
    with Client() as client, Sandbox(client=client, metadata={"who": "me"}) as sbx:
        run(sbx, SET_UP)
        pty = sbx.pty.create(BASH, env={"PS1": "$ "})
        Screen(pty).until_line("$")
        pty.send_input("kept=41\r")
        boot_id = run(sbx, BOOT_ID)
        for turn in range(2):
            run(sbx, "time.clock_settime(time.CLOCK_REALTIME, 1e9)")
            space = sbx.freeze()
            assert space.metadata == {"who": "me"}
            assert space in Space.list(client=client)
            with pytest.raises(ramet.Frozen, match=space.id):
                client.get_sandbox(sbx.id)
            began = time.monotonic()
            sbx = Sandbox.resume(space.id, client=client)
            took = time.monotonic() - began  # the guest's clock is set within this time
            before = float(on_host("date +%s.%N"))
            there = float(run(sbx, "print(time.time())"))
            assert before - took - 0.1 <= there <= float(on_host("date +%s.%N")) + 0.1
            assert run(sbx, "print(len(numbers), os.getcwd())") == "1000 /tmp"
            assert run(sbx, "kept.seek(0); print(kept.read())") == "on disk"
            assert run(sbx, "print(open('/dev/shm/note').read())") == "in memory"
            assert run(sbx, "print(sleeper.poll())") == "None"
            assert run(sbx, "n = ticks; time.sleep(1); print(ticks > n)") == "True"
            screen = Screen(sbx.pty.attach(pty.id))
            screen.type(f"echo $((kept + {turn}))\r")
            screen.until_line(str(41 + turn))
            assert run(sbx, BOOT_ID) != boot_id
            with pytest.raises(ramet.NotFound):
                client.resume_space(space.id)
        sbx.close()


# Reads the file from the disk, not from the page cache that is part of the memory.
READ_FROM_DISK = "sync; echo 3 >/proc/sys/vm/drop_caches; cat /root/turn"


def test_each_copy_shows_the_state_of_its_own_snapshot(client: Client) -> None:
    """Memory and disk are those of the last moment, not empty and not of an earlier snapshot."""
    sbx = Sandbox(client=client)
    for turn in range(3):
        run(sbx, f"turn = {turn}; print(turn, file=open('/root/turn', 'w'))")
        (child,) = sbx.fork(1)
        run(sbx, "turn += 10; print(turn, file=open('/root/turn', 'w'))")
        space = sbx.freeze()
        sbx = Sandbox.resume(space.id, client=client)
        with child:
            for copy, wanted in ((child, turn), (sbx, turn + 10)):
                assert run(copy, "print(turn, open('/root/turn').read())") == f"{wanted} {wanted}"
                assert run(copy, READ_FROM_DISK, "bash") == str(wanted)
    sbx.close()


def test_freeze_reports_progress_and_keeps_the_size(client: Client) -> None:
    with Sandbox(client=client, vcpus=1, rootfs_gb=6) as sbx:
        run(sbx, "kept = bytearray(b'k') * (60 << 20)")
        seen: list[dict[str, Any]] = []
        spaces: list[Space] = []
        freeze = threading.Thread(target=lambda: spaces.append(sbx.freeze()))
        freeze.start()
        try:
            while True:
                seen.append(dict(sbx.info().raw))
        except ramet.Frozen:
            freeze.join()
        freezing = [one for one in seen if one["state"] == "freezing" and "freeze_bytes" in one]
        assert freezing and freezing[-1]["freeze_bytes"] > 60 << 20
        written = [one["frozen_bytes"] for one in freezing]
        assert written == sorted(written)
        assert spaces[0].size_bytes > 60 << 20
    with Sandbox.resume(spaces[0].id, client=client) as sbx:
        again = sbx.info().raw
        for what in ("vcpus", "ram_mib", "rootfs_gb"):
            assert again[what] == seen[0][what]
        assert again["vcpus"] == 1 and again["rootfs_gb"] == 6
        assert run(sbx, "import os; print(os.cpu_count(), len(kept) >> 20)") == "1 60"
        assert int(run(sbx, "df --output=size -B1M / | tail -1", "bash")) > 5 << 10


@pytest.mark.smoke
def test_idle_persistent_sandbox_is_frozen() -> None:
    with Client() as client:
        sbx = Sandbox(client=client, persistent=True, idle_timeout_seconds=2)
        run(sbx, "x = 41")
        give_up = time.monotonic() + 120
        spaces: list[ramet.SpaceInfo] = []
        while not spaces and time.monotonic() < give_up:
            spaces = [one for one in client.list_spaces() if one.raw["sandbox"] == sbx.id]
        assert spaces, "the idle sandbox was not frozen"
        with Sandbox.resume(spaces[0].id, client=client, idle_timeout_seconds=600) as again:
            assert run(again, "print(x + 1)") == "42"
            (child,) = again.fork()
            with child:
                assert run(child, "print(x)") == "41"


STATE = "/var/lib/ramet"


def back_up(space: str) -> None:
    """Copies the files of a Space, and the catalogue with its row, as a backup does."""
    on_host(
        f"cd {STATE} && rm -rf kept && mkdir kept && cp -a --sparse=always spaces/{space} kept/space"
        f" && s=$({SERVICE_PID}) && kill -STOP $s || exit;"
        " cp catalogue.db* kept; status=$?; kill -CONT $s; exit $status"
    )


def restore(space: str) -> None:
    """Restores a Space from the backup.

    The service is down meanwhile: it owns the catalogue, and it looks for Spaces when it starts.
    """
    program = (
        f"import sqlite3; db = sqlite3.connect('{STATE}/catalogue.db');"
        f" db.execute('ATTACH ? AS kept', ('{STATE}/kept/catalogue.db',));"
        f" db.execute('INSERT INTO spaces SELECT * FROM kept.spaces WHERE id = ?', ('{space}',));"
        # Disowns the live copy of the killed service, which would take precedence.
        f" db.execute('DELETE FROM live_copy');"
        f" db.commit(); db.close()"
    )
    # mv fails until the files of the resumed Space have been removed.
    on_host(
        f"cd {STATE}; until mv -T kept/space spaces/{space}; do sleep 0.1; done 2>/dev/null"
    )
    between_services(f"python3 -c {shlex.quote(program)}")
    on_host(f"rm -r {STATE}/kept")


@pytest.mark.alone
def test_two_resumes_of_the_same_memory_draw_different_numbers(client: Client) -> None:
    with Sandbox(client=client) as sbx:
        run(sbx, "import random; random.seed(7)")
        space = sbx.freeze()
    back_up(space.id)
    with Sandbox.resume(space.id, client=client) as sbx:
        draws = run(sbx, DRAW).split()
    restore(space.id)
    until(client.healthz)
    with Sandbox.resume(space.id, client=client) as sbx:
        draws += run(sbx, DRAW).split()
    assert draws[0] == draws[4], "the state of Python's own generator was kept"
    assert len(set(draws)) == 7, f"shared randomness: {sorted(draws)}"


def test_resume_cannot_add_egress_and_space_can_be_deleted() -> None:
    with Client() as client:
        space = Sandbox(client=client, egress=False).freeze()
        with pytest.raises(ramet.Conflict, match="network"):
            client.resume_space(space.id, egress=True)
        client.delete_space(space.id)
        with pytest.raises(ramet.NotFound):
            client.get_space(space.id)
