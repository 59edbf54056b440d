# SPDX-License-Identifier: Apache-2.0
"""Two installed machines, one of each Debian, become a fleet by the commands of docs/fleet.md.

etcd (RAMET_ETCD), the units and the service are real; the guest is that of test_service.py.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Iterator

import pytest

from debs import RELEASES, install
from machine import Machine
from test_service import call, create, machine_of, pytestmark, wait_until_ready

__all__ = ["pytestmark"]
ETCD = """systemd-run --unit=etcd /usr/local/bin/etcd --name=m1 --data-dir=/var/lib/etcd
  --listen-client-urls=https://10.0.0.1:2379 --advertise-client-urls=https://10.0.0.1:2379
  --listen-peer-urls=https://10.0.0.1:2380 --initial-advertise-peer-urls=https://10.0.0.1:2380
  --initial-cluster=m1=https://10.0.0.1:2380
  --client-cert-auth --trusted-ca-file=$F/etcd-ca.pem --cert-file=$F/etcd-m1.pem --key-file=$F/etcd-m1-key.pem
  --peer-client-cert-auth --peer-trusted-ca-file=$F/etcd-ca.pem --peer-cert-file=$F/etcd-m1.pem
  --peer-key-file=$F/etcd-m1-key.pem"""


def connect(machines: list[Machine]) -> None:
    """Lays a cable between two machines; their addresses there are 10.0.0.1 and 10.0.0.2."""
    first, second = (str(machine.pid) for machine in machines)
    ends = ["eth0", "netns", first, "type", "veth", "peer", "name", "eth0", "netns", second]
    subprocess.run(["ip", "link", "add", *ends], check=True)
    for n, pid in enumerate((first, second), start=1):
        for words in (["addr", "add", f"10.0.0.{n}/24", "dev", "eth0"], ["link", "set", "eth0", "up"]):
            subprocess.run(["nsenter", "-t", pid, "-n", "ip", *words], check=True)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[list[Machine]]:
    old, new = RELEASES
    with machine_of(old, tmp_path) as first, machine_of(new, tmp_path) as second:
        connect([first, second])
        for machine in (first, second):
            install(machine, "ramet", "ramet-guest")
        yield [first, second]


def join(machines: list[Machine]) -> None:
    first = machines[0]
    shutil.copy(os.environ["RAMET_ETCD"], first.root / "usr/local/bin/etcd")
    first.run("rametctl fleet init /root/fleet 3 https://10.0.0.1:2379")
    first.run("rametctl fleet ca /root/fleet etcd m1 10.0.0.1")
    first.run("F=/root/fleet; " + ETCD.replace("\n", " "))
    for n, machine in enumerate(machines, start=1):
        token = first.run(f"rametctl fleet ca /root/fleet host {n} h{n} 10.0.0.{n}:7443 fsn a").stdout
        (machine.root / "root/token").write_text(token)
        machine.run("rametctl fleet join /root/token >>/etc/ramet/ramet.conf")
        machine.run("systemctl enable --now ramet-fleet && systemctl restart ramet")
    for machine in machines:
        wait_until_ready(machine)
        machine.until("rametctl host list | grep h1 && rametctl host list | grep h2")


def test_two_machines_become_a_fleet(machines: list[Machine]) -> None:
    first, second = machines
    join(machines)
    assert "etcd has a quorum" in second.run("rametctl fleet check").stdout
    sandbox = create(first)
    assert call(second, sandbox, "sum 1") == "256"
    assert [one["id"] for one in second.ask("GET", "/v1/sandboxes")] == [sandbox.rpartition("/")[2]]
    for machine in machines:
        found = re.search(
            r"Overall exposure level for ramet-fleet.service: ([0-9.]+)",
            machine.run("systemd-analyze --no-pager security ramet-fleet.service").stdout,
        )
        assert found and float(found[1]) <= 2.5

    # The table outlives ramet-fleet, and the order to drain goes through the one that systemd starts again.
    second.run("systemctl kill -s KILL ramet-fleet")
    assert call(second, sandbox, "sum 1") == "256"
    second.until("systemctl is-active ramet-fleet")
    first.run("rametctl host drain h2")
    second.until("rametctl host list | grep h2.*draining")
    assert not second.answers("/readyz")
    assert call(second, create(second), "sum 1") == "256"  # it is made on the first machine
