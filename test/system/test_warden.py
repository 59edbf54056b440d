# SPDX-License-Identifier: Apache-2.0
"""Runs the native tests of the jail on the host of the VMs, which has all controllers of cgroup v2."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Iterator

import pytest

from conftest import REPO, on_host, put_on_host

BUILD = REPO / "build" / "release"
CMOCKA = Path("/usr/lib/x86_64-linux-gnu/libcmocka.so.0")

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def folder() -> Iterator[str]:
    """A folder on the host with the test program, its probe and its library."""
    assert shutil.which("cmake"), "cmake is needed to build the test program"
    subprocess.run(["flock", f"{BUILD}.lock", "cmake", "--build", BUILD, "--target", "native_jail"], check=True)
    where = on_host("mktemp -d").strip()
    on_host(f"chmod 755 {where}")
    for source in (BUILD / "test/warden/native_jail", BUILD / "test/warden/warden_probe", CMOCKA):
        put_on_host(f"{where}/{source.name}", source.read_bytes(), 0o755)
    yield where
    on_host(f"rm -rf {where}")


def test_jail_tests_pass_on_the_host(folder: str) -> None:
    out = on_host(f"cd {folder} && LD_LIBRARY_PATH=. ./native_jail 2>&1 || true")
    assert "[  FAILED  ]" not in out and "[  PASSED  ]" in out, out
    assert "SKIPPED" not in out, f"the host lacks a feature that the jail needs:\n{out}"
