# SPDX-License-Identifier: Apache-2.0
"""Sandboxes of other sizes than the default, in real guests."""

from __future__ import annotations

import json
import time
from typing import Iterator

import httpx
import pytest

from conftest import bash, metrics
from ramet import Client, Sandbox

# With default settings, images with this RAM are prepared ahead; the disk is grown at create.
RAM_MIB, ROOTFS_GB, VCPUS = 1024, 16, 2


def machine(sbx: Sandbox) -> tuple[int, int, int]:
    """Returns MiB of RAM, number of CPUs, and GiB of the root file system, as the guest sees them."""
    text = sbx.run_code(
        "awk '/^MemTotal/ {print int($2 / 1024)}' /proc/meminfo; nproc;"
        " df -B1G --output=size / | tail -1",
        "bash",
    ).stdout
    ram, cpus, disk = map(int, text.split())
    return ram, cpus, disk



def is_as_large(got: tuple[int, int, int], ram_mib: int, vcpus: int, rootfs_gb: int) -> bool:
    """Compares sizes with tolerance: the kernel reserves some RAM, the file system some disk."""
    ram, cpus, disk = got
    return (
        ram_mib * 0.85 < ram <= ram_mib
        and cpus == vcpus
        and rootfs_gb * 0.9 < disk <= rootfs_gb
    )


def info(http: httpx.Client, sbx: Sandbox) -> dict[str, int]:
    text = http.get(f"/v1/sandboxes/{sbx.id}").text
    got: dict[str, int] = json.loads(text)
    return got


@pytest.fixture(scope="module")
def sized(client: Client) -> Iterator[Sandbox]:
    with Sandbox(client=client, ram_mib=RAM_MIB, rootfs_gb=ROOTFS_GB) as sandbox:
        yield sandbox


@pytest.mark.smoke
def test_guest_has_the_requested_size(sized: Sandbox, http: httpx.Client) -> None:
    got = info(http, sized)
    assert (got["ram_mib"], got["vcpus"], got["rootfs_gb"]) == (RAM_MIB, VCPUS, ROOTFS_GB)
    assert is_as_large(machine(sized), RAM_MIB, VCPUS, ROOTFS_GB)


def test_memory_and_disk_can_be_used_in_full(sized: Sandbox) -> None:
    used = sized.run_code(
        "hog = bytearray(b'x') * (700 << 20)\n"
        "with open('/root/large', 'wb') as f:\n"
        "    f.truncate(12 << 30)\n"
        "    f.seek(11 << 30)\n"
        "    f.write(b'end')\n"
        "    f.flush()\n"
        "    import os\n"
        "    os.fsync(f.fileno())\n"
        "print(hog.count(b'x') >> 20)\n"
        "del hog"
    )
    assert (used.stdout, used.exit_code) == ("700\n", 0)
    # Writes beyond the end of the disk with which the image was booted.
    filled = sized.run_code(
        "fallocate -l 6G /root/filled && echo at the end | dd of=/root/filled bs=1M seek=6100"
        " conv=notrunc status=none && sync && tail -c +6396313601 /root/filled | head -1;"
        " rm /root/filled",
        "bash",
    )
    assert filled.stdout == "at the end\n"


@pytest.mark.alone
def test_known_size_needs_no_boot(
    sized: Sandbox, client: Client, http: httpx.Client
) -> None:
    boots = metrics(http)["ramet_template_boots_total"]
    with Sandbox(client=client, ram_mib=RAM_MIB, rootfs_gb=ROOTFS_GB) as again:
        assert is_as_large(machine(again), RAM_MIB, VCPUS, ROOTFS_GB)
    assert metrics(http)["ramet_template_boots_total"] == boots


@pytest.mark.alone
def test_recently_requested_size_is_kept_in_the_pool(
    sized: Sandbox, client: Client, http: httpx.Client
) -> None:
    deadline = time.monotonic() + 300
    while True:
        hits = metrics(http)["ramet_pool_hits_total"]
        with Sandbox(client=client, ram_mib=RAM_MIB, rootfs_gb=ROOTFS_GB) as again:
            hit = metrics(http)["ramet_pool_hits_total"] > hits
            assert again.run_code("print(1)").stdout == "1\n"
        if hit:
            return
        assert time.monotonic() < deadline, "the pool did not prepare the size"
        time.sleep(1)


@pytest.mark.alone
def test_disk_near_a_prepared_size_is_exact_and_needs_no_boot(
    sized: Sandbox, client: Client, http: httpx.Client
) -> None:
    boots = metrics(http)["ramet_template_boots_total"]
    with Sandbox(client=client, ram_mib=RAM_MIB - 20, rootfs_gb=ROOTFS_GB - 3) as sandbox:
        got = info(http, sandbox)
        assert (got["ram_mib"], got["rootfs_gb"]) == (RAM_MIB, ROOTFS_GB - 3)
        assert is_as_large(machine(sandbox), RAM_MIB, VCPUS, ROOTFS_GB - 3)
    assert metrics(http)["ramet_template_boots_total"] == boots


def test_minimum_ram_works(client: Client, http: httpx.Client) -> None:
    with Sandbox(client=client, ram_mib=128) as sandbox:
        assert info(http, sandbox)["ram_mib"] == 128
        assert sandbox.run_code("print(6 * 7)").stdout == "42\n"


def test_sandbox_with_a_size_forks_and_merges(client: Client, http: httpx.Client) -> None:
    with Sandbox(client=client, ram_mib=RAM_MIB, rootfs_gb=ROOTFS_GB) as parent:
        parent.run_code("kept = bytearray(b'k') * (300 << 20)\nopen('/root/a', 'w').write('a')")
        left, right = parent.fork(2)
        assert is_as_large(machine(left), RAM_MIB, VCPUS, ROOTFS_GB)
        right.run_code("open('/root/b', 'w').write('b')")
        assert right.run_code("print(len(kept) >> 20)").stdout == "300\n"
        (grandchild,) = right.fork(1)
        assert info(http, grandchild)["rootfs_gb"] == ROOTFS_GB
        parent.merge_into(right)
        listed = parent.run_code("cat /root/a /root/b", "bash").stdout
        assert listed == "ab"
        assert is_as_large(machine(parent), RAM_MIB, VCPUS, ROOTFS_GB)
        grandchild.close()
        left.close()


@pytest.mark.alone
def test_disk_without_an_image_is_grown_at_create(
    client: Client, http: httpx.Client
) -> None:
    boots = metrics(http)["ramet_template_boots_total"]
    with Sandbox(client=client, ram_mib=RAM_MIB, rootfs_gb=ROOTFS_GB + 2) as sandbox:
        assert info(http, sandbox)["rootfs_gb"] == ROOTFS_GB + 2
        assert is_as_large(machine(sandbox), RAM_MIB, VCPUS, ROOTFS_GB + 2)
    assert metrics(http)["ramet_template_boots_total"] <= boots + 1


def test_largest_disk_is_usable_at_its_end(client: Client) -> None:
    with Sandbox(client=client, ram_mib=RAM_MIB, rootfs_gb=1024) as parent:
        # With noinit_itable the kernel's ext4lazyinit thread ends soon. Without, it would zero all
        # inode tables in each sandbox.
        ended = parent.run_code(
            "for i in {1..120}; do grep -qs ext4lazyinit /proc/[0-9]*/comm || exit 0; sleep 0.5; done;"
            " exit 1",
            "bash",
        )
        assert ended.exit_code == 0
        written = parent.run_code(
            "fallocate -l 100G /root/filled && echo at the end >>/root/filled && sync &&"
            " tail -c 11 /root/filled",
            "bash",
        )
        assert (written.stdout, written.exit_code) == ("at the end\n", 0)
        (child,) = parent.fork(1)
        assert child.run_code("tail -c 11 /root/filled", "bash").stdout == "at the end\n"
        assert machine(child)[2] > 1024 * 0.9
        child.close()


def test_kernel_limits_are_those_of_a_development_machine(client: Client) -> None:
    with Sandbox(client=client, ram_mib=1024) as sbx:
        names = "fs/inotify/max_user_watches fs/inotify/max_user_instances vm/max_map_count"
        watches, *others = bash(sbx, f"cd /proc/sys; cat {names}").split()
        assert 200_000 < int(watches) <= 262_144
        assert others == ["1024", "1048576"]
        listen = "import socket; socket.create_server(('', 80))"
        for command in (["ping", "-c", "1", "127.0.0.1"], ["python3", "-c", listen]):
            done = sbx.processes.run(command, user="user")
            assert done.exit_code == 0, done.stderr
