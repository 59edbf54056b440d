# SPDX-License-Identifier: Apache-2.0
"""Service, warden and VM processes are killed with SIGKILL; guarantees hold."""

from __future__ import annotations

import os
import secrets

import httpx
import pytest

import ramet
from conftest import on_host
from leftover import assert_nothing_left, held_beyond_pool
from processes import kill_service, process_of
from ramet import Client, Sandbox


@pytest.mark.smoke
def test_sandbox_and_its_work_survive_a_killed_service(client: Client) -> None:
    wait = "import os, time\nprint('on')\nwhile not os.path.exists('/tmp/go'): time.sleep(.05)\ny = 5"
    in_shell = "x=5; echo on; until [ -e /tmp/go ]; do sleep .05; done; echo off"
    data = os.urandom(2 << 20)
    with Sandbox(client=client, metadata={"kept": True}) as sbx:
        stream = sbx.run_code_stream(wait)
        shells = [sbx.contexts.create("bash") for _ in range(2)]
        streams = [shell.run_code_stream(in_shell) for shell in shells]
        seqs = [next(one).seq for one in (stream, *streams)]
        pty = sbx.pty.create("stty -echo -opost; seq 1 1000; read go; seq 1001 2000")
        got = b""
        while not got.endswith(b"\n1000\n"):
            got += pty.read()
        process = sbx.processes.start(["cat"], stdin=True)
        process.write("before ")
        sbx.upload(data[: 1 << 20], "/root/file")

        kill_service(client)
        with pytest.raises(ramet.ConnectionFailed):
            list(stream)
        assert sbx.info().raw["metadata"] == {"kept": True}
        sbx.files.write("/root/file", data[1 << 20 :], offset=1 << 20)
        assert sbx.download("/root/file") == data
        pty.send_input("go\r")
        assert got + b"".join(pty) == "".join(f"{i}\n" for i in range(1, 2001)).encode()
        process = sbx.processes.attach(process.id)
        process.write("after")
        process.close_stdin()
        assert process.wait().stdout == "before after"

        client.write_file(sbx.id, "/tmp/go", b"")
        events = list(sbx.follow(since=max(seqs)))
        for shell in shells:
            own = [event.data for event in events if event.context == shell.id]
            assert own == ["off\n", 0]
            assert shell.run_code("echo $x").stdout == "5\n"
        assert sbx.run_code("print(y)").stdout == "5\n"


def test_repeated_requests_after_a_killed_service_have_no_effect(client: Client) -> None:
    key = secrets.token_hex(8)
    parent = client.create_sandbox(idempotency_key=key).id
    children = client.fork_sandbox(parent, 2, idempotency_key=key + "-fork")
    space = client.freeze_sandbox(children[1], idempotency_key=key + "-freeze").id
    kill_service(client)
    try:
        before = len(client.list_sandboxes())
        assert client.create_sandbox(idempotency_key=key).id == parent
        assert client.fork_sandbox(parent, 2, idempotency_key=key + "-fork") == children
        again = client.freeze_sandbox(children[1], idempotency_key=key + "-freeze")
        assert again.id == space
        assert len(client.list_sandboxes()) == before
        assert {parent, children[0]} <= {one.id for one in client.list_sandboxes()}
    finally:
        client.delete_space(space)
        client.delete_sandbox(parent)
        client.delete_sandbox(children[0])


@pytest.mark.smoke
def test_killed_vm_is_reported_and_others_are_unaffected(client: Client) -> None:
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


def test_guest_reboot_is_reported_as_vm_died(client: Client) -> None:
    with Sandbox(client=client) as sbx:
        with pytest.raises(ramet.VmDied):
            sbx.run_code("import ctypes\nctypes.CDLL(None).reboot(0x01234567)")


@pytest.mark.smoke
@pytest.mark.timeout(1800)
def test_deleted_sandboxes_leave_nothing(client: Client, http: httpx.Client) -> None:
    before = held_beyond_pool(http)
    assert (before["groups"], before["folders"]) == (0, 0)
    boxes = [Sandbox(client=client) for _ in range(3)]
    for sbx in boxes:
        sbx.close()
    assert_nothing_left(before, http)
