# SPDX-License-Identifier: Apache-2.0
"""The rig's QEMU process, for faults that no test may cause on the machine that it runs on."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from conftest import REPO


def qemu() -> int | None:
    """Returns the pid of the rig's QEMU process, if it runs."""
    try:
        pid = int((REPO / "build/rig/qemu.pid").read_text())
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return None
    # The pid may have been reused by another process.
    return pid if f"{REPO}/build/rig/".encode() in line else None


needs_rig = pytest.mark.skipif(
    not qemu(), reason="VMs run on this machine itself, which the test would harm"
)


def cut_power() -> None:
    pid = qemu()
    assert pid
    os.kill(pid, signal.SIGKILL)
    while qemu():
        time.sleep(0.01)


def start_again() -> None:
    settings = os.environ.get("RAMET_TEST_SETTINGS", "").split()
    subprocess.run([REPO / "dev", "up", *settings], check=True, stdout=subprocess.DEVNULL)
