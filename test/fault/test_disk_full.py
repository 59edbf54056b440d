# SPDX-License-Identifier: Apache-2.0
"""The state directory's disk is full: clear errors, nothing corrupted, goes on with room."""

from __future__ import annotations

from typing import Iterator

import pytest

from conftest import on_host
from ramet import Client, Sandbox

FILLER = "/var/lib/ramet/filler"


@pytest.fixture
def full_disk() -> Iterator[None]:
    on_host(
        "free=$(df --output=avail -B1 /var/lib/ramet | tail -1);"
        f" fallocate -l $free {FILLER}; cat /dev/zero >> {FILLER} 2>/dev/null; true"
    )
    try:
        yield
    finally:
        on_host(f"rm -f {FILLER}")


def test_a_guest_gets_an_io_error_and_the_service_goes_on(client: Client, full_disk: None) -> None:
    with Sandbox(client=client) as sbx:
        sbx.run_code("kept = 1")
        wrote = sbx.run_code(
            "dd if=/dev/urandom of=/root/big bs=1M count=4 conv=fsync 2>&1", "bash"
        )
        assert wrote.exit_code != 0
        assert sbx.run_code("print(kept)").stdout == "1\n"
        on_host(f"rm -f {FILLER}")
    with Sandbox(client=client) as fresh:
        assert fresh.run_code("echo fine > /root/x && sync && cat /root/x", "bash").stdout == (
            "fine\n"
        )
