# SPDX-License-Identifier: Apache-2.0
"""What is held on the host beyond the pool, to be compared before and after."""

from __future__ import annotations

import time

import httpx

from conftest import on_host

# Jails, memory of layers, descriptors of the service, files.
HELD = r"""
echo groups $(find /sys/fs/cgroup -type d -name 'vm-*' | wc -l)
echo namespaces $(readlink /proc/[0-9]*/ns/net /proc/[0-9]*/ns/mnt | sort -u | wc -l)
echo links $(ip -o link | wc -l)
echo mounts $(wc -l < /proc/mounts)
echo folders $(ls /run/ramet/vm | wc -l)
echo diaries $(ls /run/ramet/journals | wc -l)
# Without lost ones, which a kill in the moment between a freeze's files and its commit leaves.
echo spaces $(ls /var/lib/ramet/spaces | grep -vc '[.]lost$')
echo shared_kib $(awk '$1 == "Shmem:" {print $2}' /proc/meminfo)
for p in $(pidof rametd); do
  grep -q '^Uid:.0' /proc/$p/status && continue
  links=$(for f in /proc/$p/fd/*; do readlink $f; done)
  # SQLite keeps a descriptor of its file until all locks of the process on it are gone; the audit
  # log is opened with its first line.
  echo files $(echo "$links" | grep -vc '^socket:\|catalogue\|audit.jsonl')
  ours=0 # sockets to VMs and guests; those of clients come and go
  for inode in $(echo "$links" | sed -n 's/^socket:.\([0-9]*\).$/\1/p'); do
    grep -q " $inode\( \|$\)" /proc/net/unix && ours=$((ours + 1))
  done
  echo sockets $ours
done
"""


def vm_pids() -> set[str]:
    return set(on_host("pidof ramet-vmm || true").split())


def held_beyond_pool(http: httpx.Client) -> dict[str, int]:
    """Counted once no sandbox is left and no VM is on its way into the pool."""

    def pool() -> tuple[int, int] | None:
        """Returns the numbers of warm sandboxes and blank VMs, when there is nothing else."""
        pairs = (x.split() for x in http.get("/metrics").text.splitlines())
        level = {x[0]: int(float(x[1])) for x in pairs if len(x) == 2}
        warm, blank = level["ramet_warm_ready"], level["ramet_blank_vms_ready"]
        quiet = not level["ramet_sandboxes"] and len(vm_pids()) == warm + blank
        return (warm, blank) if quiet else None

    give_up = time.monotonic() + 300
    tries = 0
    while True:
        assert time.monotonic() < give_up, "sandboxes, or VMs of none, are left"
        ready = pool()
        if not ready:
            continue
        tries += 1
        held = {name: int(n) for name, n in (x.split() for x in on_host(HELD).splitlines())}
        # The jail of a VM that is being made is there before its process; a forgotten one stays.
        being_made = held["groups"] != sum(ready) and tries < 10
        if pool() == ready and not being_made:
            break
    warm, vms = ready[0], sum(ready)
    for name in ("groups", "links", "folders"):
        held[name] -= vms
    held["namespaces"] -= 2 * vms  # of network and of mounts
    held["sockets"] -= vms + warm  # a warm one's agent is connected
    return held


def assert_nothing_left(before: dict[str, int], http: httpx.Client) -> None:
    """What takes a moment to go is waited for."""
    give_up = time.monotonic() + 60
    while True:
        after = held_beyond_pool(http)
        other = {name: after[name] - before[name] for name in after if after[name] != before[name]}
        # Less than what one forgotten layer of a child would hold.
        if other.get("shared_kib", 0) < 2048:
            other.pop("shared_kib", None)
        if not other:
            return
        assert time.monotonic() < give_up, f"left over: {other}; there were {before}"
