# SPDX-License-Identifier: Apache-2.0
"""Memory is short for all that rametd runs: one VM dies, the largest, and nothing else.

Minutes may pass before the kernel ends one: RAMET_SLOW=1 runs it."""

from __future__ import annotations

import os
from typing import Iterator

import pytest

from conftest import on_host
from ramet import Client, Sandbox, VmDied
from test_kill import settled

GROUP = "/sys/fs/cgroup/ramet"
LEFT_MIB = 128
WANTED_MIB = 320


@pytest.fixture
def short_memory() -> Iterator[None]:
    """There is room for what can't be given back, what is mapped, and LEFT_MIB."""
    before = on_host(f"cat {GROUP}/memory.max").strip()
    on_host(
        "awk '$1 ~ /^(anon|shmem|kernel|file_mapped)$/ {n += $2}"
        f' END {{printf "%.0f", n + {LEFT_MIB} * 1048576}}\''
        f" {GROUP}/memory.stat > {GROUP}/memory.max"
    )
    yield
    on_host(f"echo {before} > {GROUP}/memory.max")


@pytest.mark.timeout(3600)
@pytest.mark.skipif(not os.environ.get("RAMET_SLOW"), reason="memory runs short: set RAMET_SLOW")
def test_the_largest_vm_dies(client: Client, request: pytest.FixtureRequest) -> None:
    with Sandbox(client=client) as offender, Sandbox(client=client) as other:
        other.run_code("x = 'kept'")
        offender.run_code("x = 'gone'")
        before = settled(client)
        request.getfixturevalue("short_memory")
        with pytest.raises(VmDied):
            offender.run_code(f"x = b'1' * ({WANTED_MIB} << 20)")
        assert settled(client) == before
        assert other.run_code("print(x)").stdout == "kept\n"
