# SPDX-License-Identifier: Apache-2.0
"""Checks in /proc of the real processes that the isolation described in docs/threats.md holds."""

from __future__ import annotations

import contextlib
from typing import Iterator

import pytest

from conftest import SERVICE_PID, on_host
from ramet import Client, Sandbox

# These tests look at every VM process; concurrent tests would start and end many meanwhile.
pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def vms(client: Client) -> Iterator[list[str]]:
    """Process ids of all VM processes; at least two of them run a sandbox."""
    with Sandbox(client=client) as one, Sandbox(client=client) as other:
        yield on_host("pidof ramet-vmm").split()
        for sbx in (one, other):
            assert sbx.run_code("print('runs')").stdout == "runs\n"


@contextlib.contextmanager
def unless_gone(pid: str) -> Iterator[None]:
    """Ignores a failed check if the process has ended: the pool may discard a VM at any time."""
    try:
        yield
    except AssertionError:
        if on_host(f"test -d /proc/{pid} && echo exists || true"):
            raise


def status(pid: str) -> dict[str, str]:
    text = on_host(f"cat /proc/{pid}/status")
    return {k: v.strip() for k, v in (line.split(":", 1) for line in text.splitlines())}


@pytest.mark.smoke
def test_each_vm_has_its_own_uid_and_no_privileges(vms: list[str]) -> None:
    uids = []
    for pid in vms:
        with unless_gone(pid):
            facts = status(pid)
            real = facts["Uid"].split()
            assert len(set(real)) == 1 and int(real[0]) >= 300000, f"uids of {pid}: {real}"
            assert facts["Groups"] == "", f"groups of {pid}: {facts['Groups']}"
            for cap in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
                assert int(facts[cap], 16) == 0, f"{cap} of {pid}: {facts[cap]}"
            assert facts["NoNewPrivs"] == "1"
            assert facts["Seccomp"] == "2", f"seccomp mode of {pid}: {facts['Seccomp']}"
            uids.append(real[0])
    assert len(set(uids)) == len(uids), f"shared uids: {uids}"


def test_every_thread_is_under_seccomp(vms: list[str]) -> None:
    for pid in vms:
        with unless_gone(pid):
            modes = on_host(f"grep -h ^Seccomp: /proc/{pid}/task/*/status").split()[1::2]
            assert modes and set(modes) == {"2"}, f"threads of {pid}: {modes}"


@pytest.mark.smoke
def test_each_vm_has_its_own_namespaces(vms: list[str]) -> None:
    seen: dict[str, str] = {}
    for pid in ["1", *vms]:
        with unless_gone(pid):
            links = on_host(f"cd /proc/{pid}/ns && readlink mnt pid net ipc uts").split()
            assert len(links) == 5
            for link in links:
                assert link not in seen, f"{pid} shares {link} with {seen[link]}"
                seen[link] = pid


@pytest.mark.smoke
def test_root_file_system_is_empty_and_read_only(vms: list[str]) -> None:
    for pid in vms:
        with unless_gone(pid):
            files = on_host(f"ls -A /proc/{pid}/root/ && cat /proc/{pid}/mountinfo")
            mounts = files.splitlines()  # of the root only, if that is empty
            assert len(mounts) == 1, f"mounts of {pid}: {mounts}"
            assert "ro" in mounts[0].split()[5].split(",")


def test_cgroup_limits_are_set(vms: list[str]) -> None:
    for pid in vms:
        with unless_gone(pid):
            group = on_host(f"cut -d: -f3 /proc/{pid}/cgroup").strip()
            limits = on_host(f"cd /sys/fs/cgroup{group} && cat memory.max pids.max cpu.max").split()
            assert limits[0] != "max" and limits[1] != "max", f"limits of {pid}: {limits}"


def test_vms_hold_only_the_descriptors_they_need(vms: list[str]) -> None:
    rootfs = on_host("readlink -f /usr/share/ramet/rootfs.ext4").strip()
    allowed = (
        "/1/pagemap",
        "/dev/kvm",
        "/dev/null",
        "/memfd:",
        "/dev/net/tun",
        "/run/ramet/vm/",
        "/var/lib/ramet/",
        "anon_inode:",
        "pipe:",
        "socket:",
        rootfs,
    )
    for pid in vms:
        with unless_gone(pid):
            links = on_host(f"for f in /proc/{pid}/fd/*; do readlink $f; done").split("\n")
            for link in filter(None, links):
                assert link.startswith(allowed), f"{pid} has {link}"


def test_service_is_unprivileged() -> None:
    facts = status(on_host(SERVICE_PID).strip())
    assert set(facts["Uid"].split()) != {"0"}
    for cap in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(facts[cap], 16) == 0, f"{cap}: {facts[cap]}"
    assert facts["NoNewPrivs"] == "1"
    assert facts["Seccomp"] == "2"


def test_warden_has_no_network_socket() -> None:
    pid = status(on_host(SERVICE_PID).strip())["PPid"]  # the service is the child of the warden
    links = on_host(f"for f in /proc/{pid}/fd/*; do readlink $f; done").split()
    inodes = [link[8:-1] for link in links if link.startswith("socket:")]
    tables = on_host(f"cat /proc/{pid}/net/tcp /proc/{pid}/net/tcp6 /proc/{pid}/net/udp")
    in_tables = {line.split()[9] for line in tables.splitlines() if ":" in line.split()[0]}
    assert not in_tables.intersection(inodes)
