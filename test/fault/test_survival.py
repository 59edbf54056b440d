# SPDX-License-Identifier: Apache-2.0
"""Kills at random moments under load: acknowledged operations survive, and nothing is left over.

RAMET_FAULT_POINTS sets the number of kills (200 for a full run), RAMET_FAULT_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections import Counter

import httpx
import pytest

from conftest import SERVICE_PID, on_host
from leftover import assert_nothing_left, held_beyond_pool
from processes import WARDEN_PID, kill_service, kill_warden, vm_pids, warden_and_service
from ramet import Client, Sandbox, SpaceDamaged
from worker import Ledger, Worker

POINTS = int(os.environ.get("RAMET_FAULT_POINTS", "4"))
SEED = int(os.environ.get("RAMET_FAULT_SEED", "0")) or random.randrange(2**32)
WORKERS = int(os.environ.get("RAMET_FAULT_WORKERS", "3"))


def kill_one(what: str, rng: random.Random, client: Client) -> str:
    """Kills a process; returns its pid, or "" if there was none."""
    if what == "service":
        return kill_service(client)
    if what == "warden":
        return kill_warden(client)
    pids = sorted(vm_pids())
    victim = rng.choice(pids) if pids else ""
    if victim:
        on_host(f"kill -9 {victim} || true")
    return victim


def whose_vms(pids: list[str]) -> set[str]:
    """Returns the ids of the sandboxes that these processes ran, and of Spaces they resumed.

    This reads the log: the operator's tool shows only sandboxes that exist, and these have died.
    """
    log = on_host("grep -E 'VM in slot|resumed as sandbox' /var/log/ramet.log || true")
    vms = re.findall(r"sandbox (sbx_\w+): VM in slot \d+, process (\d+)", log)
    ids = {sandbox for sandbox, pid in vms if pid in pids}
    resumes = re.findall(r"space (spc_\w+): resumed as sandbox (sbx_\w+)", log)
    return ids | {space for space, sandbox in resumes if sandbox in ids}


@pytest.mark.timeout(1800 + 60 * POINTS)
def test_acknowledged_operations_survive_kills(client: Client, http: httpx.Client) -> None:
    print(f"seed {SEED}, {POINTS} points, {WORKERS} workers")
    rng = random.Random(SEED)
    before = held_beyond_pool(http)
    ledger, over = Ledger(), threading.Event()
    workers = [Worker(rng.randrange(2**32), ledger, over) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    kills: Counter[str] = Counter()
    killed: list[str] = []
    while sum(kills.values()) < POINTS and not any(w.failed for w in workers):
        done = sum(ledger.done.values())
        until = done + rng.randrange(1, 6)  # counted in operations, not in seconds
        give_up = time.monotonic() + 120
        while sum(ledger.done.values()) < until and time.monotonic() < give_up:
            time.sleep(rng.random() * 0.2)
        what = rng.choices(["service", "warden", "vm"], [5, 2, 3])[0]
        victim = kill_one(what, rng, client)
        if victim:
            kills[what] += 1
            killed.append(victim)
    over.set()
    for worker in workers:
        worker.join()
    for worker in workers:
        worker.finish()
    print(f"killed {dict(kills)}; answered {dict(ledger.done)}")
    victims = whose_vms(killed)
    for worker in workers:
        for vms in worker.lost:
            assert victims & set(vms), f"a VM of {vms} died, but the test did not kill it"
    assert_nothing_left(before, http)


def test_stream_resumes_at_its_sequence_number(client: Client) -> None:
    code = (
        "import os, time\nfor i in range(40):\n    print(i, flush=True)\n"
        "    while i % 10 == 9 and not os.path.exists(f'/tmp/go{i}'):\n        time.sleep(0.05)"
    )
    with Sandbox(client=client) as sbx:
        stream = sbx.run_code_stream(code)
        got = [next(stream)]
        for i, kill in enumerate(("service", "warden", "service")):
            kill_one(kill, random.Random(), client)
            assert sbx.info().state == "running"
            client.write_file(sbx.id, f"/tmp/go{10 * i + 9}", b"")
            for event in sbx.follow(since=got[-1].seq):
                got.append(event)
                if f"{10 * i + 19}\n" in str(event.data):
                    break
        client.write_file(sbx.id, "/tmp/go39", b"")
        got += list(sbx.follow(since=got[-1].seq))
        assert [e.seq for e in got] == list(range(1, len(got) + 1))
        text = "".join(str(e.data) for e in got if e.type == "stdout").split()
        assert [int(x) for x in text] == list(range(40))
        assert got[-1].type == "exit" and got[-1].data == 0
        assert [e.seq for e in sbx.replay()] == [e.seq for e in got]


@pytest.mark.smoke
def test_killed_warden_is_replaced_and_takes_over(client: Client) -> None:
    with Sandbox(client=client) as sbx:
        sbx.run_code("x = 'kept'")
        vms = vm_pids()
        kill_warden(client)
        assert sbx.run_code("print(x)").stdout == "kept\n"
        assert vms & vm_pids()
        # The new warden removes jails of VMs that the old one started.
        with sbx.fork(1)[0] as child:
            assert child.run_code("print(x)").stdout == "kept\n"


def test_upgrade_keeps_sandboxes(client: Client) -> None:
    with Sandbox(client=client) as sbx:
        sbx.run_code("x = 'kept'")
        warden, _ = warden_and_service(client)
        first = on_host("cat /run/ramet/dev.pid").strip()
        on_host("cp /usr/lib/ramet/rametd /usr/lib/ramet/rametd.new")
        on_host("mv /usr/lib/ramet/rametd.new /usr/lib/ramet/rametd")
        on_host(f"kill -HUP {first}")
        while warden_and_service(client)[0] == warden:
            time.sleep(0.1)
        assert on_host(f"readlink /proc/{first}/exe").strip() == "/usr/lib/ramet/rametd"
        assert sbx.run_code("print(x)").stdout == "kept\n"


@pytest.mark.parametrize("who", ["supervisor", "warden", "service", "vm"])
def test_oom_killer_prefers_vms(client: Client, who: str) -> None:
    with Sandbox(client=client):
        pids = {
            "supervisor": "cat /run/ramet/dev.pid",
            "warden": WARDEN_PID,
            "service": SERVICE_PID,
            "vm": "pidof -s ramet-vmm",
        }
        score = int(on_host(f"cat /proc/$({pids[who]})/oom_score_adj"))
        assert (score > 0) == (who == "vm") and score != 0


def test_damaged_space_is_reported_and_never_resumed(client: Client) -> None:
    space = Sandbox(client=client).freeze()
    folder = f"/var/lib/ramet/spaces/{space.id}"
    # Overwrites 16 bytes of the largest file that is not shared with the template.
    on_host(
        f"f=$(find {folder} -type f -links 1 ! -name manifest -printf '%s %p\\n' | sort -n | tail -1"
        " | cut -d' ' -f2-) && head -c 16 /dev/urandom |"
        " dd of=$f bs=16 seek=$(($(stat -c %s $f) / 32)) conv=notrunc 2>/dev/null"
    )
    with pytest.raises(SpaceDamaged, match=space.id):
        client.resume_space(space.id)
    assert client.get_space(space.id).raw["state"] == "damaged"
    kill_service(client)
    with pytest.raises(SpaceDamaged, match=space.id):
        client.resume_space(space.id)
    client.delete_space(space.id)


def test_results_survive_kills(client: Client) -> None:
    code = (
        "import os, time\nclass Big:\n  __repr__ = lambda self: 'big'\n"
        "  def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n' + b'x' * 3_000_000\n"
        "display('first')\nwhile not os.path.exists('/tmp/go'): time.sleep(0.05)\nBig()"
    )
    with Sandbox(client=client) as sbx:
        first = next(sbx.run_code_stream(code))
        assert first.result and first.result.text == "'first'"
        kill_one("service", random.Random(), client)
        client.write_file(sbx.id, "/tmp/go", b"")
        kill_one("service", random.Random(), client)  # perhaps in the middle of the result
        assert list(sbx.follow())[-1].code == 0
        kill_one("service", random.Random(), client)
        results = [event.result for event in sbx.replay() if event.result]
        assert [result.text for result in results] == ["'first'", "big"]
        assert results[1].png == b"\x89PNG\r\n\x1a\n" + b"x" * 3_000_000 and results[1].main
