# SPDX-License-Identifier: Apache-2.0
"""The rig's power is cut at random moments: a freeze that was answered holds, a resume is no second
time, and nothing half is left. RAMET_POWER_CUTS=50 for many, RAMET_POWER_SEED to draw them again."""

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
from test_kill import wait_until_ready
from worker import Ledger, Worker

CUTS = int(os.environ.get("RAMET_POWER_CUTS", "1"))
SEED = int(os.environ.get("RAMET_POWER_SEED", "0")) or random.randrange(2**32)
WORKERS = 3


def spaces_on_disk() -> list[str]:
    return sorted(on_host("ls /var/lib/ramet/spaces").split())


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
