# SPDX-License-Identifier: Apache-2.0
"""Memory runs short in the control group of rametd: the largest VM dies, and nothing else.

The kernel may take minutes to kill a process, so this runs only with RAMET_SLOW=1.
"""

from __future__ import annotations

import os
from typing import Iterator

import pytest

from conftest import on_host
from processes import warden_and_service
from ramet import Client, Sandbox, VmDied

GROUP = "/sys/fs/cgroup/ramet"
LEFT_MIB = 128
WANTED_MIB = 320


@pytest.fixture
def short_memory() -> Iterator[None]:
    """Limits the group's memory to its unreclaimable and mapped pages plus LEFT_MIB."""
    before = on_host(f"cat {GROUP}/memory.max").strip()
    on_host(
        "awk '$1 ~ /^(anon|shmem|kernel|file_mapped)$/ {n += $2}"
        f' END {{printf "%.0f", n + {LEFT_MIB} * 1048576}}\''
        f" {GROUP}/memory.stat > {GROUP}/memory.max"
    )
    yield
    on_host(f"echo {before} > {GROUP}/memory.max")


@pytest.mark.timeout(3600)
@pytest.mark.skipif(not os.environ.get("RAMET_SLOW"), reason="takes minutes: set RAMET_SLOW=1 to run it")
def test_only_the_largest_vm_dies_when_memory_is_short(client: Client, request: pytest.FixtureRequest) -> None:
    with Sandbox(client=client) as offender, Sandbox(client=client) as other:
        other.run_code("x = 'kept'")
        offender.run_code("x = 'gone'")
        before = warden_and_service(client)
        request.getfixturevalue("short_memory")
        with pytest.raises(VmDied):
            offender.run_code(f"x = b'1' * ({WANTED_MIB} << 20)")
        assert warden_and_service(client) == before
        assert other.run_code("print(x)").stdout == "kept\n"
