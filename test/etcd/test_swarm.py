# SPDX-License-Identifier: Apache-2.0
"""The hosts of bench/swarm.py: a few of them, and a short time."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Iterator

import pytest
from cell import Etcd, until

sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "bench"))
from swarm import Swarm  # noqa: E402

HOSTS = 20


@pytest.fixture
def swarm(etcd: Etcd, tmp_path: Path) -> Iterator[Swarm]:
    swarm = Swarm(etcd, tmp_path, HOSTS)
    yield swarm
    swarm.stop()


def test_no_lease_is_lost_with_the_leader(swarm: Swarm, etcd: Etcd) -> None:
    until("all tables", swarm.complete)
    leases = swarm.leases()
    assert len(leases) == HOSTS
    etcd.leader().kill()
    swarm.order("drain")
    etcd.start()
    swarm.order("serve")
    swarm.calls()
    kept = 0

    def keep() -> bool:
        """Whether each host has kept its lease alive for longer than that lives by itself."""
        nonlocal kept
        calls = swarm.calls()["keepalive"]
        kept += len(calls["ms"]) - calls["failed"]
        return bool(kept >= 4 * HOSTS)

    until("keepalives", keep)
    assert swarm.leases() == leases
    assert swarm.complete()


def test_keepalive_gives_the_time_that_was_asked_for(swarm: Swarm, etcd: Etcd) -> None:
    """Versions of etcd have had faults there."""
    until("all hosts", swarm.joined)
    for lease, _ in swarm.leases().values():
        assert etcd.post("/v3/lease/keepalive", {"ID": lease})["result"]["TTL"] == "30"
