# SPDX-License-Identifier: Apache-2.0
"""The processes of the running service: their ids, and how to kill them."""

from __future__ import annotations

import time

from conftest import SERVICE_PID, on_host, vm_of
from ramet import Client, Sandbox

# A command line that prints the pid of the warden: the child of the supervisor that runs as root.
WARDEN_PID = (
    "for p in $(pidof rametd); do"
    " ! grep -q '^Uid:.0[^0-9]' /proc/$p/status"
    " || ! grep -q \"^PPid:.$(cat /run/ramet/dev.pid)$\" /proc/$p/status || echo $p; done"
)


def wait_until_ready(client: Client) -> None:
    while not client.healthz():
        time.sleep(0.1)  # a refused connection returns at once


def warden_and_service(client: Client) -> tuple[str, str]:
    """Waits until the service is ready; returns the pids of the warden and of the service."""
    while True:
        wait_until_ready(client)
        warden, service = on_host(WARDEN_PID).strip(), on_host(SERVICE_PID).strip()
        if warden.isdigit() and service.isdigit():
            parent = on_host(f"grep '^PPid:' /proc/{service}/status || true").split()
            if parent[1:] == [warden] and client.healthz():
                return warden, service


def _kill(client: Client, which: int) -> str:
    before = warden_and_service(client)[which]
    on_host(f"kill -9 {before}")
    assert warden_and_service(client)[which] != before
    return before


def kill_warden(client: Client) -> str:
    """Kills the warden, and waits until a new one is ready; returns the old one's pid."""
    return _kill(client, 0)


def kill_service(client: Client) -> str:
    """Kills the service, and waits until a new one is ready; returns the old one's pid."""
    return _kill(client, 1)


def process_of(sbx: Sandbox) -> str:
    """Returns the pid of the sandbox's VM process."""
    return vm_of(sbx)[1]


def vm_pids() -> set[str]:
    """Returns the pids of all VM processes, those in the pool included."""
    return set(on_host("pidof ramet-vmm || true").split())
