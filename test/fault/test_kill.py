# SPDX-License-Identifier: Apache-2.0
"""Processes die by kill -9; what was promised holds."""

from __future__ import annotations

import hashlib
import os
import time

import httpx
import pytest

import ramet
from conftest import SERVICE_PID, on_host, vm_of
from leftover import assert_nothing_left, held_beyond_pool
from ramet import Client, Sandbox


# The warden is root's too, as its parent, the supervisor, is.
WARDEN_PID = (
    "for p in $(pidof rametd); do"
    " ! grep -q '^Uid:.0[^0-9]' /proc/$p/status"
    " || ! grep -q \"^PPid:.$(cat /run/ramet/dev.pid)$\" /proc/$p/status || echo $p; done"
)


def wait_until_ready(client: Client) -> None:
    while not client.healthz():
        time.sleep(0.1)  # a refused connection takes no time


def settled(client: Client) -> tuple[str, str]:
    """Warden and service, once both are there, the one the other's parent, and it answers."""
    while True:
        wait_until_ready(client)
        warden, service = on_host(WARDEN_PID).strip(), on_host(SERVICE_PID).strip()
        if warden.isdigit() and service.isdigit():
            parent = on_host(f"grep '^PPid:' /proc/{service}/status || true").split()
            if parent[1:] == [warden] and client.healthz():
                return warden, service


def kill_one(client: Client, which: int) -> str:
    """Kills one of the two that `settled` tells, and waits until another has its place."""
    before = settled(client)[which]
    on_host(f"kill -9 {before}")
    assert settled(client)[which] != before
    return before


def kill_warden(client: Client) -> str:
    return kill_one(client, 0)


def kill_service(client: Client) -> str:
    return kill_one(client, 1)


def process_of(sbx: Sandbox) -> str:
    return vm_of(sbx)[1]


def test_a_killed_service_loses_no_sandbox(client: Client) -> None:
    with Sandbox(client=client, metadata={"kept": True}) as sbx:
        sbx.run_code("x = 'through it all'")
        kill_service(client)
        assert sbx.info().raw["metadata"] == {"kept": True}
        assert sbx.run_code("print(x)").stdout == "through it all\n"


def test_a_call_that_ran_when_the_service_died_does_not_block_the_next(client: Client) -> None:
    with Sandbox(client=client) as sbx:
        stream = sbx.run_code_stream("print('on')\nimport time\ntime.sleep(2)\ny = 5")
        assert next(stream).data == "on\n"
        kill_service(client)
        with pytest.raises(ramet.ConnectionFailed):
            list(stream)
        assert sbx.run_code("print(y)").stdout == "5\n"


def test_terminals_and_uploads_go_on_when_the_service_died(client: Client) -> None:
    data = os.urandom(2 << 20)
    with Sandbox(client=client) as sbx:
        pty = sbx.pty.create("stty -echo -opost; seq 1 1000; read go; seq 1001 2000")
        got = b""
        while not got.endswith(b"\n1000\n"):
            got += pty.read()
        upload = client.open_upload(sbx.id, "/root/file")
        client.write_part(sbx.id, upload, 0, data[: 1 << 20])
        kill_service(client)
        pty.send_input("go\r")
        assert got + b"".join(pty) == "".join(f"{i}\n" for i in range(1, 2001)).encode()
        client.write_part(sbx.id, upload, 1 << 20, data[1 << 20 :])
        client.commit_upload(sbx.id, upload, len(data), hashlib.sha256(data).hexdigest())
        assert sbx.download("/root/file") == data


def test_a_killed_vm_is_told_and_others_do_not_notice(client: Client) -> None:
    with Sandbox(client=client) as other:
        other.run_code("x = 1")
        with Sandbox(client=client) as victim:
            pid = process_of(victim)
            stream = victim.run_code_stream("print('on')\nimport time\ntime.sleep(600)")
            assert next(stream).data == "on\n"
            on_host(f"kill -9 {pid}")
            with pytest.raises(ramet.VmDied):
                list(stream)
            with pytest.raises(ramet.VmDied):
                victim.run_code("print(1)")
        assert other.run_code("print(x)").stdout == "1\n"


def test_a_guest_that_reboots_itself_is_told(client: Client) -> None:
    with Sandbox(client=client) as sbx:
        with pytest.raises(ramet.VmDied):
            sbx.run_code("import ctypes\nctypes.CDLL(None).reboot(0x01234567)")


def test_closed_sandboxes_leave_nothing(client: Client, http: httpx.Client) -> None:
    before = held_beyond_pool(http)
    assert (before["groups"], before["folders"]) == (0, 0)
    boxes = [Sandbox(client=client) for _ in range(5)]
    for sbx in boxes:
        sbx.close()
    assert_nothing_left(before, http)
