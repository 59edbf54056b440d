# SPDX-License-Identifier: Apache-2.0
"""The state directory's disk is full: writes wait, nothing is corrupted, all goes on with room."""

from __future__ import annotations

import threading
from typing import Iterator

import pytest

from conftest import on_host
from ramet import Client, ExecResult, Sandbox

FILLER = "/var/lib/ramet/filler"
WRITE = (
    "head -c 4M /dev/urandom > /tmp/data && cp /tmp/data /root/big && sync /root/big"
    " && cmp /tmp/data /root/big && echo whole"
)


@pytest.fixture
def filler() -> Iterator[None]:
    yield
    on_host(f"rm -f {FILLER}")


def fill_disk() -> None:
    on_host(
        "free=$(df --output=avail -B1 /var/lib/ramet | tail -1);"
        f" fallocate -l $free {FILLER}; cat /dev/zero >> {FILLER} 2>/dev/null; true"
    )


def test_a_write_waits_for_room_and_nothing_is_lost(client: Client, filler: None) -> None:
    with Sandbox(client=client) as writer, Sandbox(client=client) as other:
        fill_disk()
        results: list[ExecResult] = []
        write = threading.Thread(target=lambda: results.append(writer.run_code(WRITE, "bash")))
        write.start()
        assert other.run_code("print('goes on')").stdout == "goes on\n"
        assert not results, f"4 MiB were written to a full disk: {results}"
        on_host(f"rm -f {FILLER}")
        write.join()
        assert results == [ExecResult("whole\n", "", 0)]
    with Sandbox(client=client) as fresh:
        assert fresh.run_code(WRITE, "bash").stdout == "whole\n"
