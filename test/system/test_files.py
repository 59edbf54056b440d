# SPDX-License-Identifier: Apache-2.0
"""File transfer with real guests: exact bytes across the VM's boundary, and forks meanwhile.

What a transfer does in the guest is tested with the agent itself in test/guest, and with the service
in test/service.
"""

from __future__ import annotations

import hashlib
import io
import os
import resource
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, cast

import pytest

import ramet
from conftest import bash, on_host
from ramet import Client, Sandbox

MIB = 1 << 20


def sha256_of(sbx: Sandbox, path: str) -> str:
    return bash(sbx, f"sha256sum <'{path}'").split()[0]


@pytest.mark.smoke
def test_downloaded_bytes_equal_uploaded_bytes(shared: Sandbox) -> None:
    data = os.urandom(9 * MIB + 3)
    progress: list[tuple[int, int | None]] = []
    shared.upload(data, "/root/large", progress=lambda *now: progress.append(now))
    assert progress[-1] == (len(data), len(data))
    assert sha256_of(shared, "/root/large") == hashlib.sha256(data).hexdigest()
    assert shared.download("/root/large") == data
    shared.files.remove("/root/large")


def test_watch_continues_in_the_parent_of_a_fork(sbx: Sandbox) -> None:
    with sbx.files.watch("/root", recursive=True) as changes:
        with sbx.fork()[0] as child:
            bash(child, "touch /root/in-the-child")
        bash(sbx, "mkdir -p /root/a/b && touch /root/in-the-parent")
        seen: list[str] = []
        while not seen or seen[-1] != "/root/in-the-parent":
            seen.append(next(changes).path)
        assert "/root/a/b" in seen and "/root/in-the-child" not in seen
        sbx.close()
        with pytest.raises(ramet.NotFound):
            list(changes)


def test_concurrent_transfers_are_not_mixed_up(client: Client) -> None:
    """Several clients use several sandboxes while one of these is forked."""

    def one(sbx: Sandbox, i: int) -> None:
        data = os.urandom(2 * MIB + i)
        sbx.upload(data, f"/root/{i}")
        assert sbx.download(f"/root/{i}") == data

    with Sandbox(client=client) as a, Sandbox(client=client) as b, ThreadPoolExecutor(4) as threads:
        work = [threads.submit(one, (a, b)[i % 2], i) for i in range(8)]
        children = a.fork(2)
        for done in work:
            done.result()
        for child in children:
            with child:
                one(child, 99)


class Noise(io.RawIOBase):
    """A stream of `size` bytes that look random and are cheap to make; `digest` hashes them."""

    def __init__(self, size: int) -> None:
        self.left = size
        self.digest = hashlib.sha256()
        self._block = os.urandom(MIB)
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        n = min(len(buffer), self.left, MIB)
        self._count += 1
        block = (self._count.to_bytes(8, "little") + self._block)[:n]
        self.digest.update(block)
        buffer[:n] = block
        self.left -= n
        return n


def service_kib() -> int:
    """Returns the anonymous memory of all rametd processes in KiB."""
    lines = on_host("for pid in $(pidof rametd); do grep ^RssAnon: /proc/$pid/status; done")
    return sum(int(line.split()[1]) for line in lines.splitlines())


@pytest.mark.timeout(3600)
@pytest.mark.skipif(not os.environ.get("RAMET_SLOW"), reason="transfers 2 GB twice: set RAMET_SLOW=1")
def test_two_gigabytes_transfer_at_constant_memory(sbx: Sandbox, client: Client) -> None:
    """The guest has 1 GiB of RAM; neither it nor the service nor the SDK may buffer the file."""
    size = 2_000_000_000
    most = before = service_kib()
    mine = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    stop = threading.Event()

    def watch() -> None:
        nonlocal most
        while not stop.wait(1):
            most = max(most, service_kib())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        noise = Noise(size)
        sbx.upload(cast(BinaryIO, io.BufferedReader(noise)), "/root/large")
        got = hashlib.sha256()
        with client.read_file(sbx.id, "/root/large") as (reported_size, chunks):
            for chunk in chunks:
                got.update(chunk)
    finally:
        stop.set()
        watcher.join()
    assert reported_size == size
    assert got.hexdigest() == noise.digest.hexdigest() == sha256_of(sbx, "/root/large")
    assert most - before < 128 << 10, f"the service took {(most - before) >> 10} MiB more"
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - mine
    assert grown < 128 << 10, f"the SDK took {grown >> 10} MiB more"
