# SPDX-License-Identifier: Apache-2.0
"""The state directory's disk is full: writes wait, nothing is corrupted, all goes on with room."""

from __future__ import annotations

import json
import re
import threading
import time
from contextlib import ExitStack
from typing import Iterator

import httpx
import pytest

from conftest import SERVICE_PID, between_services, on_host
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
    """Closed at the end, should the test not come to it."""
    boxes: list[Sandbox] = []
    yield boxes
    with ExitStack() as closing:  # each, when another can't be, too
        for sbx in boxes:
            closing.callback(sbx.close)


FILL = (
    "free=$(df --output=avail -B1 /var/lib/ramet | tail -1);"
    f" fallocate -l $free {FILLER}; cat /dev/zero >> {FILLER} 2>/dev/null; true"
)


def fill_disk() -> None:
    on_host(FILL)


def audited(sbx: Sandbox) -> list[str]:
    """What the audit log says became of it."""
    lines = on_host(f"grep -h {sbx.id} /var/lib/ramet/audit/audit.jsonl || true").splitlines()
    return [str(json.loads(line)["event"]) for line in lines]


def served(client: Client) -> list[str]:
    try:
        return [info.id for info in client.list_sandboxes() if info.state == "ready"]
    except ConnectionFailed:
        return []


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


def test_a_freeze_fails_whole_and_a_space_is_kept(client: Client, filler: None) -> None:
    with Sandbox(client=client) as sbx:
        sbx.run_code("x = bytes(30 << 20).replace(b'\\0', b'a')")
        sbx.run_code("sync", "bash")  # what the guest writes to a full disk waits, and is told instead
        there = on_host("ls /var/lib/ramet/spaces")
        fill_disk()
        with pytest.raises(Unavailable, match="No space left"):
            sbx.freeze()
        give_up = time.monotonic() + 60
        while on_host("ls /var/lib/ramet/spaces") != there:
            assert time.monotonic() < give_up, "half a Space is left"
        assert sbx.run_code("print(len(x))").stdout == f"{30 << 20}\n"
        on_host(f"rm -f {FILLER}")
        sbx.run_code("sync", "bash")  # what it wrote all the same is through
        space = sbx.freeze()
    fill_disk()
    try:
        again = Sandbox.resume(space.id, client=client)
    except Unavailable:  # the catalogue found no room
        on_host(f"rm -f {FILLER}")
        again = Sandbox.resume(space.id, client=client)
    with again:
        assert again.run_code("print(len(x), set(x))").stdout == f"{30 << 20} {{97}}\n"


def test_the_catalogue_and_the_audit_log_go_on(
    client: Client, http: httpx.Client, boxes: list[Sandbox], filler: None
) -> None:
    """What was answered while the disk was full is there after a restart, and told when there is
    room; what was refused was refused with a sentence."""

    def boots() -> list[str]:
        return re.findall(r"^ramet_template_boots_total .*", http.get("/metrics").text, re.M)

    before = boots()
    fill_disk()
    for _ in range(6):  # more than the pool has
        try:
            boxes.append(Sandbox(client=client))
        except Unavailable as full:
            assert "No space left" in str(full)
    assert boots() == before, "a template was thought bad"
    between_services(FILL)  # with what its end made free
    for sbx in boxes:  # what there is, is served; it is not ready for more
        while sbx.id not in served(client):
            time.sleep(0.1)
        assert sbx.run_code("print(1)").stdout == "1\n"
        sbx.close()
    on_host(f"rm -f {FILLER}")
    with Sandbox(client=client) as sbx:
        boxes.append(sbx)
    for sbx in boxes:
        while len(told := audited(sbx)) < 2:
            time.sleep(0.1)
        assert told == ["sandbox.created", "sandbox.deleted"], sbx.id


@pytest.fixture
def full_run_dir() -> Iterator[None]:
    """RUN_DIR, where diaries are, is in memory and of a size that can be changed."""
    run = "/run/ramet"
    on_host(f"mount -o remount,size=$(($(df --output=used -k {run} | tail -1) + 8))k {run}")
    yield
    on_host(f"mount -o remount,size=4% {run}")


@needs_rig
def test_sandboxes_go_on_without_room_for_their_diaries(
    client: Client, request: pytest.FixtureRequest
) -> None:
    with Sandbox(client=client) as sbx:
        sbx.run_code("x = 'kept'")
        request.getfixturevalue("full_run_dir")
        assert len(sbx.run_code("print('a' * 500_000)").stdout) == 500_001
        on_host("grep 'should the service end now, events are lost' /var/log/ramet.log")
        on_host(f"kill -9 $({SERVICE_PID})")
        while sbx.id not in served(client):
            time.sleep(0.1)
        assert sbx.run_code("print(x)").stdout == "kept\n"
