# SPDX-License-Identifier: Apache-2.0
"""The rig's power is cut at random moments.

Acknowledged freezes hold, no Space is resumed twice, no partial Space is left, and a revoked key
stays revoked. RAMET_POWER_CUTS sets the number of cuts, RAMET_POWER_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter

import pytest

from conftest import on_host, until
from processes import wait_until_ready
from ramet import Client
from rig import cut_power, needs_rig, start_again
from test_keys import RAMET, RAMETD, RUN, STATE, Key
from worker import Ledger, Worker

CUTS = int(os.environ.get("RAMET_POWER_CUTS", "1"))
SEED = int(os.environ.get("RAMET_POWER_SEED", "0")) or random.randrange(2**32)
WORKERS = 3


def spaces_on_disk() -> list[str]:
    """Returns the ids of Spaces with files, without *.lost: a cut prevented their acknowledgement."""
    names = on_host("ls /var/lib/ramet/spaces").split()
    return sorted(name for name in names if not name.endswith(".lost"))


def one_cut(rng: random.Random, client: Client, during: Counter[str]) -> Counter[str]:
    ledger, over = Ledger(), threading.Event()
    kinds = ("exec", "file", "freeze", "freeze")  # a resume follows each freeze
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
    # More may be on the disk: a resumed Space's files stay while the sandbox lives.
    listed = {one.id for one in client.list_spaces()}
    assert listed <= set(spaces_on_disk())
    for worker in workers:
        worker.finish()
    return ledger.done


@pytest.mark.smoke
@needs_rig
@pytest.mark.timeout(600 + 120 * CUTS)
def test_frozen_spaces_survive_power_cuts(client: Client) -> None:
    print(f"seed {SEED}, {CUTS} cuts")
    rng = random.Random(SEED)
    there = spaces_on_disk()
    during: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    for _ in range(CUTS):
        answered += one_cut(rng, client, during)
        print(f"cut during {dict(during)}; answered {dict(answered)}", flush=True)
    # Files of sandboxes that were closed are removed in the background.
    until(
        lambda: spaces_on_disk() == there,
        60,
        lambda: f"Spaces before: {there}; after: {spaces_on_disk()}",
    )
    assert not client.list_sandboxes()


def states_of_keys() -> dict[str, str]:
    """Waits until the service has started; returns "good", "ending" or "revoked" by key id."""
    listed: list[str] = []

    def list_keys() -> bool:
        listed[:] = on_host(f"{RAMET} key list 2>/dev/null || true").splitlines()[1:]
        return bool(listed)

    until(list_keys, 60, lambda: on_host(f"tail -n 20 {STATE}.log"))
    return {line.split()[0]: line.split()[3] for line in listed}


@needs_rig
@pytest.mark.timeout(600)
def test_revocation_survives_a_power_cut(client: Client) -> None:
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
    on_host(f"{RAMET} key revoke {first.id}")  # now without a running service
    cut_power()
    start_again()
    wait_until_ready(client)
    assert states_of_keys() == {**expected, first.id: "revoked"}
    on_host(f"rm -rf {STATE} {STATE}.log {RUN}")
