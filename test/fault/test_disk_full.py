# SPDX-License-Identifier: Apache-2.0
"""The state directory's disk is full: writes wait, nothing is corrupted, and all continues once
there is space."""

from __future__ import annotations

import json
import shlex
import threading
from contextlib import ExitStack
from typing import Iterator

import httpx
import pytest

from conftest import SERVICE_PID, between_services, metrics, on_host, until
from ramet import Client, ConnectionFailed, ExecResult, Sandbox, Unavailable
from rig import needs_rig

FILLER = "/var/lib/ramet/filler"
WRITE = (
    "head -c 4M /dev/urandom > /tmp/data && cp /tmp/data /root/big && sync /root/big"
    " && cmp /tmp/data /root/big && echo whole"
)


@pytest.fixture
def filler() -> Iterator[None]:
    yield
    on_host(f"rm -f {FILLER}")


@pytest.fixture
def boxes() -> Iterator[list[Sandbox]]:
    """A list of sandboxes; those that the test has not closed are closed at its end."""
    boxes: list[Sandbox] = []
    yield boxes
    with ExitStack() as closing:  # closes each, even if closing another one fails
        for sbx in boxes:
            closing.callback(sbx.close)


# Takes all free space. Other programs use the disk meanwhile, so one call for all of it could fail,
# and writing gigabytes takes minutes under emulation: the calls take halves of what is left.
ALLOCATE = f"""
import os
file = os.open({FILLER!r}, os.O_RDWR | os.O_CREAT)
end, part = os.fstat(file).st_size, 1 << 35
while part >= 4096:
    try:
        os.posix_fallocate(file, end, part)
        end += part
    except OSError:
        part //= 2
"""
FILL = f"python3 -c {shlex.quote(ALLOCATE)}; cat /dev/zero >> {FILLER} 2>/dev/null; true"


def fill_disk() -> None:
    on_host(FILL)


def audited(sbx: Sandbox) -> list[str]:
    """Returns the names of the sandbox's events in the audit log."""
    lines = on_host("rametctl audit").splitlines()
    return [str(json.loads(line)["event"]) for line in lines if sbx.id in line]


def ready_sandboxes(client: Client) -> list[str]:
    try:
        return [info.id for info in client.list_sandboxes() if info.state == "ready"]
    except ConnectionFailed:
        return []


@pytest.mark.smoke
def test_guest_write_waits_while_disk_is_full(client: Client, filler: None) -> None:
    with Sandbox(client=client) as writer, Sandbox(client=client) as other:
        fill_disk()
        results: list[ExecResult] = []
        write = threading.Thread(target=lambda: results.append(writer.run_code(WRITE, "bash")))
        write.start()
        assert other.run_code("print('runs')").stdout == "runs\n"
        assert not results, f"4 MiB were written to a full disk: {results}"
        on_host(f"rm -f {FILLER}")
        write.join()
        assert results == [ExecResult("whole\n", "", 0)]
    with Sandbox(client=client) as fresh:
        assert fresh.run_code(WRITE, "bash").stdout == "whole\n"


@pytest.mark.smoke
def test_freeze_fails_completely_when_disk_is_full(client: Client, filler: None) -> None:
    with Sandbox(client=client) as sbx:
        sbx.run_code("x = bytes(8 << 20).replace(b'\\0', b'a')")
        sbx.run_code("sync", "bash")  # a write waiting for space would fail the freeze earlier
        before = on_host("ls /var/lib/ramet/spaces")
        fill_disk()
        with pytest.raises(Unavailable, match="No space left"):
            sbx.freeze()
        until(
            lambda: on_host("ls /var/lib/ramet/spaces") == before,
            60,
            lambda: "a partial Space is left",
        )
        assert sbx.run_code("print(len(x))").stdout == f"{8 << 20}\n"
        on_host(f"rm -f {FILLER}")
        sbx.run_code("sync", "bash")  # waits until the guest's delayed writes are done
        space = sbx.freeze()
    fill_disk()
    try:
        again = Sandbox.resume(space.id, client=client)
    except Unavailable:  # there was no space for the catalogue
        on_host(f"rm -f {FILLER}")
        again = Sandbox.resume(space.id, client=client)
    with again:
        assert again.run_code("print(len(x), set(x))").stdout == f"{8 << 20} {{97}}\n"


def test_catalogue_and_audit_log_survive_full_disk(
    client: Client, http: httpx.Client, boxes: list[Sandbox], filler: None
) -> None:
    """Creates that succeeded while the disk was full survive a restart, and so do their events; the
    others were refused with a clear error."""

    def boots() -> float:
        return metrics(http)["ramet_template_boots_total"]

    before = boots()
    fill_disk()
    for _ in range(6):  # more than the pool has
        try:
            boxes.append(Sandbox(client=client))
        except Unavailable as full:
            assert "No space left" in str(full)
    assert boots() == before, "a template was discarded and booted again"
    between_services(FILL)  # fills the space that the end of the service has freed
    for sbx in boxes:  # existing sandboxes are served, although readyz may fail
        until(lambda: sbx.id in ready_sandboxes(client))
        assert sbx.run_code("print(1)").stdout == "1\n"
        sbx.close()
    on_host(f"rm -f {FILLER}")
    with Sandbox(client=client) as sbx:
        boxes.append(sbx)
    for sbx in boxes:
        assert audited(sbx) == ["sandbox.created", "sandbox.deleted"], sbx.id


@pytest.fixture
def full_run_dir() -> Iterator[None]:
    """Leaves 8 KiB free in the run directory, the tmpfs that holds the journals."""
    run = "/run/ramet"
    on_host(f"mount -o remount,size=$(($(df --output=used -k {run} | tail -1) + 8))k {run}")
    yield
    on_host(f"mount -o remount,size=4% {run}")


@needs_rig
def test_sandbox_survives_without_space_for_its_journal(
    client: Client, request: pytest.FixtureRequest
) -> None:
    with Sandbox(client=client) as sbx:
        sbx.run_code("x = 'kept'")
        request.getfixturevalue("full_run_dir")
        assert len(sbx.run_code("print('a' * 500_000)").stdout) == 500_001
        on_host("grep 'if the service ends now, events are lost' /var/log/ramet.log")
        on_host(f"kill -9 $({SERVICE_PID})")
        until(lambda: sbx.id in ready_sandboxes(client))
        assert sbx.run_code("print(x)").stdout == "kept\n"
