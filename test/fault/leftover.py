# SPDX-License-Identifier: Apache-2.0
"""Counts resources on the host, without those of the pool, to compare them before and after."""

from __future__ import annotations

import time

import httpx
import pytest

from conftest import metrics, on_host
from processes import vm_pids

# Prints counts of jails, memory of layers, and files and descriptors of the service. Network
# namespaces that the warden keeps for later VMs, and their links, are not counted:
# test_links_without_a_vm_are_bounded limits them.
HELD = r"""
echo groups $(find /sys/fs/cgroup -type d -name 'vm-*' | wc -l)
echo namespaces $(readlink /proc/[0-9]*/ns/net /proc/[0-9]*/ns/mnt | sort -u | wc -l)
echo mounts $(wc -l < /proc/mounts)
echo folders $(ls /run/ramet/vm | wc -l)
echo journals $(ls /run/ramet/journals | wc -l)
# Without *.lost: a kill between the writing of a freeze's files and its commit leaves them.
echo spaces $(ls /var/lib/ramet/spaces | grep -vc '[.]lost$')
echo shared_kib $(awk '$1 == "Shmem:" {print $2}' /proc/meminfo)
for p in $(pidof rametd); do
  grep -q '^Uid:.0' /proc/$p/status && continue
  links=$(for f in /proc/$p/fd/*; do readlink $f; done)
  # Not counted: the catalogue, as SQLite keeps descriptors until the process holds no lock on the
  # file.
  echo files $(echo "$links" | grep -vc '^socket:\|catalogue')
  ours=0 # sockets to VMs and guests, which are Unix sockets; those of clients come and go
  for inode in $(echo "$links" | sed -n 's/^socket:.\([0-9]*\).$/\1/p'); do
    grep -q " $inode\( \|$\)" /proc/net/unix && ours=$((ours + 1))
  done
  echo sockets $ours
done
"""


def held_beyond_pool(http: httpx.Client) -> dict[str, int]:
    """Waits until no sandbox is left and the pool is quiet; returns the count of each resource."""

    seen = ""

    def pool() -> tuple[int, int] | None:
        """Returns the numbers of warm sandboxes and blank VMs, if there are no other VMs."""
        nonlocal seen
        now, vms = metrics(http), len(vm_pids())
        sandboxes, building = int(now["ramet_sandboxes"]), int(now["ramet_templates_building"])
        warm, blank = int(now["ramet_warm_ready"]), int(now["ramet_blank_vms_ready"])
        seen = (
            f"{sandboxes} sandboxes, {vms} VM processes, pool: {warm} warm and {blank} blank VMs, "
            f"{building} images being built"
        )
        return (warm, blank) if not sandboxes and vms == warm + blank else None

    # The service gives up a warm sandbox that makes no progress after 5 minutes.
    give_up = time.monotonic() + 600
    tries = 0
    while True:
        if time.monotonic() > give_up:
            left = http.get("/v1/sandboxes").json()
            pytest.fail(f"sandboxes, or VMs without a sandbox, are left: {seen}; {left}")
        ready = pool()
        if not ready:
            time.sleep(0.2)
            continue
        tries += 1
        held = {name: int(n) for name, n in (x.split() for x in on_host(HELD).splitlines())}
        # A jail exists before its VM's process does, so the count is repeated. A leaked jail stays.
        unequal = held["groups"] != sum(ready) and tries < 10
        if pool() == ready and not unequal:
            break
    warm, vms = ready[0], sum(ready)
    for name in ("groups", "folders"):
        held[name] -= vms
    held["namespaces"] -= 2 * vms  # of network and of mounts
    held["sockets"] -= vms + warm  # the agent of a warm sandbox is connected
    return held


def assert_nothing_left(before: dict[str, int], http: httpx.Client) -> None:
    """Compares with `before`; waits up to a minute for what is removed in the background."""
    give_up = time.monotonic() + 60
    while True:
        after = held_beyond_pool(http)
        other = {name: after[name] - before[name] for name in after if after[name] != before[name]}
        # One leaked layer of a child would hold more than 2 MiB.
        if other.get("shared_kib", 0) < 2048:
            other.pop("shared_kib", None)
        # A restarted service opens the images of templates only when they are used again.
        if other.get("files", 0) < 0:
            other.pop("files")
        if not other:
            return
        assert time.monotonic() < give_up, f"left over: {other}; there were {before}"
