# SPDX-License-Identifier: Apache-2.0
"""The rig's power is cut at random moments: a freeze that was answered holds, a resume is no second
time, and nothing half is left; a revoked key stays revoked. RAMET_POWER_CUTS=50 for many, RAMET_POWER_SEED to draw them again."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter

import pytest

from conftest import on_host
from ramet import Client
from rig import cut_power, needs_rig, start_again
from test_keys import RAMET, RAMETD, RUN, STATE, Key
from test_kill import wait_until_ready
from worker import Ledger, Worker

CUTS = int(os.environ.get("RAMET_POWER_CUTS", "1"))
SEED = int(os.environ.get("RAMET_POWER_SEED", "0")) or random.randrange(2**32)
WORKERS = 3


def spaces_on_disk() -> list[str]:
    """Without lost ones: of a freeze that the cut kept from being answered."""
    names = on_host("ls /var/lib/ramet/spaces").split()
    return sorted(name for name in names if not name.endswith(".lost"))


def one_cut(rng: random.Random, client: Client, during: Counter[str]) -> Counter[str]:
    ledger, over = Ledger(), threading.Event()
    kinds = ("exec", "file", "freeze", "freeze")  # and each freeze is followed by a resume
    workers = [Worker(rng.randrange(2**32), ledger, over, kinds) for _ in range(WORKERS)]
    for worker in workers:
        worker.power_is_cut = True
        worker.start()
    steps, within_s = rng.randrange(2, 16), rng.random() * 2
    while sum(ledger.done.values()) < steps and not any(w.failed for w in workers):
        time.sleep(0.01)
    time.sleep(within_s)
    cut_power()
    during.update(w.doing for w in workers)
    over.set()
    start_again()
    wait_until_ready(client)
    for worker in workers:
        worker.join()
    assert spaces_on_disk() == sorted(one.id for one in client.list_spaces())
    for worker in workers:
        worker.finish()
    return ledger.done


@needs_rig
@pytest.mark.timeout(600 + 120 * CUTS)
def test_what_was_frozen_outlives_power_cuts(client: Client) -> None:
    print(f"seed {SEED}, {CUTS} cuts")
    rng = random.Random(SEED)
    there = spaces_on_disk()
    during: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    for _ in range(CUTS):
        answered += one_cut(rng, client, during)
        print(f"cut during {dict(during)}; answered {dict(answered)}", flush=True)
    give_up = time.monotonic() + 60  # those of sandboxes that were closed take a moment to go
    while spaces_on_disk() != there:
        assert time.monotonic() < give_up, f"left over: {spaces_on_disk()}; there were {there}"
    assert not client.list_sandboxes()


def states_of_keys() -> dict[str, str]:
    """By id: "good", "ending" or "revoked". Waits for a service that starts."""
    give_up = time.monotonic() + 60
    while not (listed := on_host(f"{RAMET} key list 2>/dev/null || true").splitlines()[1:]):
        assert time.monotonic() < give_up, on_host(f"tail -n 20 {STATE}.log")
        time.sleep(0.2)
    return {line.split()[0]: line.split()[3] for line in listed}


@needs_rig
@pytest.mark.timeout(600)
def test_a_revocation_outlives_a_power_cut(client: Client) -> None:
    on_host(f"rm -rf {STATE} {RUN}; install -d -m 700 -o ramet -g ramet {STATE}")
    first = Key("key create --tier pro --name first")
    on_host(f"setsid {RAMETD} </dev/null >{STATE}.log 2>&1 &")
    assert states_of_keys() == {first.id: "good"}
    old, gone = (Key(f"key create --tier pro --name {name}") for name in ("old", "gone"))
    on_host("sync")
    new = Key(f"key rotate {old.id} --grace 0")
    on_host(f"{RAMET} key revoke {gone.id}")
    cut_power()
    start_again()
    wait_until_ready(client)
    expected = {first.id: "good", new.id: "good", old.id: "revoked", gone.id: "revoked"}
    assert states_of_keys() == expected
    on_host(f"{RAMET} key revoke {first.id}")  # no service runs there any more
    cut_power()
    start_again()
    wait_until_ready(client)
    assert states_of_keys() == {**expected, first.id: "revoked"}
    on_host(f"rm -rf {STATE} {STATE}.log {RUN}")
