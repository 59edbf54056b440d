# SPDX-License-Identifier: Apache-2.0
"""Faults around checkpoints: kills at each step, a full disk, files of another version, and limits and
sandboxes that change while something is in progress. Each checkpoint is whole or absent afterwards."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Iterator

import httpx
import pytest

from conftest import Service, made, refused
from test_checkpoints import rolled_back, run, taken
from test_clock import Clock, clock

__all__ = ["clock"]
VMS = "max_vms=64"  # which `start` sets, and a restart does not


def spaces_of(server: Service) -> Path:
    return server.home / "service/state/spaces"


def n_files(server: Service) -> int:
    return len(list(spaces_of(server).iterdir()))


def until_stored(server: Service) -> None:
    server.wait(lambda f: f["ramet_checkpoints_unstored"] == 0)


# --- kills ---


def expect_whole_or_absent(server: Service, client: httpx.Client) -> set[str]:
    """Checks all checkpoints, and that there are no other files; returns their ids."""
    listed = client.get("/v1/checkpoints").json()
    ids = {one["id"] for one in listed}
    for one in listed:
        assert one["state"] == "stored", one
        (child,) = client.post(f"/v1/checkpoints/{one['id']}/fork", json={"n": 1}).json()["children"]
        assert run(client, child["id"], "marked") == "kept"
        client.delete("/v1/sandboxes/" + child["id"])
    server.wait(lambda _: {path.name for path in spaces_of(server).iterdir()} == ids)
    bases = server.home / "service/state/bases"
    assert [path.name for path in bases.iterdir() if path.name.endswith(".tmp")] == []
    return ids


Act = Callable[[httpx.Client, str, list[str]], Any]  # with the sandbox, and the checkpoints from before


def kill_at_each_step(start: Callable[..., Service], n_before: int, act: Act, n_left: int, durable: bool) -> None:
    """Kills the service at the first change of a file that `act` causes, then another time at the second one, and
    so on until all is done before that. `n_left` checkpoints are left then; after a kill too, if `durable` and
    `act` had returned."""
    server = start()
    for step in itertools.count(1):
        with server.client() as client:
            server.clear(client)
            sandbox = made(client)[-36:]
            run(client, sandbox, "mark kept")
            before = [taken(client, sandbox)["id"] for _ in range(n_before)]
            server.wait(lambda f: f["ramet_checkpoints_unstored"] == 0 and n_files(server) == n_before)
            server.tell(f"kill_at {step}")
            is_done = False
            try:
                act(client, sandbox, before)
                is_done = durable
                server.wait(lambda f: f["ramet_checkpoints_unstored"] == 0 and n_files(server) == n_left)
                server.tell("kill_at 0")
                break
            except (httpx.TransportError, BrokenPipeError):
                server.server.wait()
        server.start(VMS)
        with server.client() as client:
            found = expect_whole_or_absent(server, client)
            assert len(found) in ({n_left} if is_done else range(min(n_before, n_left), max(n_before, n_left) + 1))
    assert step > 5, "it was not killed at each step"


def test_a_kill_at_each_step_of_a_write(start: Callable[..., Service]) -> None:
    kill_at_each_step(start, 0, lambda client, sandbox, _: taken(client, sandbox), 1, durable=False)


def test_a_kill_at_each_step_of_a_delete(start: Callable[..., Service]) -> None:
    def delete(client: httpx.Client, _: str, before: list[str]) -> None:
        assert client.delete("/v1/checkpoints/" + before[0]).status_code == 204

    kill_at_each_step(start, 1, delete, 0, durable=True)


def test_a_kill_at_each_step_of_a_prune(start: Callable[..., Service]) -> None:
    def prune(client: httpx.Client, _: str, before: list[str]) -> None:
        pruned = client.post("/v1/checkpoints/prune", json={"keep": 1}).json()
        assert pruned["checkpoints"] == before[1::-1]

    kill_at_each_step(start, 3, prune, 1, durable=True)


# --- files ---


def test_one_of_another_version_is_kept_and_says_so(start: Callable[..., Service]) -> None:
    server = start()
    with server.client() as client:
        id = taken(client, made(client)[-36:])["id"]
        until_stored(server)
    manifest = spaces_of(server) / id / "manifest"
    ours = manifest.read_bytes()
    path = "/v1/checkpoints/" + id
    for version, other in ((99, "a newer"), (0, "an older"), (None, "")):
        server.kill()
        # After the magic.
        manifest.write_bytes(ours if version is None else ours[:8] + version.to_bytes(4, "little") + ours[12:])
        server.start(VMS)
        with server.client() as client:
            sandbox = made(client)
            starts = [client.post(path + "/fork", json={"n": 1})]
            starts.append(client.post("/v1/sandboxes", json={"checkpoint": id}))
            starts.append(client.post(sandbox + "/rollback", json={"checkpoint": id}))
            if version is None:
                assert [one.status_code for one in starts] == [200, 201, 200]
                continue
            says = f"has version {version}, of {other} Ramet; this one supports only 1"
            for one in starts:
                assert says in refused(one, 409, "checkpoint_damaged")
            assert says in client.get(path).json()["damage"]
            assert run(client, sandbox[-36:], "out lives").strip() == "lives"
    server.kill()
    manifest.write_bytes(ours[:8] + b"c" + ours[9:])
    server.start(VMS)
    with server.client() as client:
        assert client.delete(path).status_code == 204
        server.wait(lambda _: n_files(server) == 0)


@pytest.fixture
def small_state(tmp_path_factory: pytest.TempPathFactory, clock: Clock) -> Iterator[Service]:
    """A service whose state is on a file system of its own, and whose clock can be moved. With less than 2 GiB
    free, no checkpoint would be written."""
    if os.geteuid() != 0:
        pytest.skip("mounts a file system")
    home = tmp_path_factory.mktemp("small")
    disk, state = home / "disk", home / "service/state"
    state.mkdir(parents=True)
    with disk.open("wb") as file:
        file.truncate(3 << 30)  # sparse
    subprocess.run(["mkfs.ext4", "-q", "-m0", disk], check=True)
    subprocess.run(["mount", "-o", "loop", disk, state], check=True)
    (state / "lost+found").rmdir()
    server = Service(home, VMS, agent=False)
    yield server
    server.stop()
    subprocess.run(["umount", state], check=True)


def fill(file: Path) -> None:
    """Takes all that is left of the file system."""
    part = 1 << 30
    with file.open("wb") as out:
        while part >= 4096:
            try:
                os.posix_fallocate(out.fileno(), os.fstat(out.fileno()).st_size, part)
            except OSError:
                part //= 2


def test_one_waits_in_memory_while_the_disk_is_full(small_state: Service, clock: Clock) -> None:
    server = small_state
    filler = server.home / "service/state/filler"
    with server.client() as client:
        sandbox = made(client)[-36:]
        run(client, sandbox, "mark kept")
        fill(filler)
        id = taken(client, sandbox)["id"]
        server.wait(lambda _: "No space left on device" in server.log.read_text())
        assert n_files(server) == 0
        path = "/v1/checkpoints/" + id
        assert client.get(path).json()["state"] == "memory"
        rolled_back(client, sandbox, checkpoint=id)
        assert run(client, sandbox, "marked") == "kept"
        filler.unlink()
        while server.metrics()["ramet_checkpoints_unstored"]:
            clock.move(monotonic_s=11)  # the disk is looked at, and the write is tried again
        assert client.get(path).json()["state"] == "stored"
        assert client.delete(path).status_code == 204
        server.wait(lambda _: n_files(server) == 0)
