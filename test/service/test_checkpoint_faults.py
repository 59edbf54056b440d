# SPDX-License-Identifier: Apache-2.0
"""Faults around checkpoints: kills at each step, a full disk, files of another version, and limits and
sandboxes that change while something is in progress. Each checkpoint is whole or absent afterwards."""

from __future__ import annotations

import itertools
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


def kill_at_each_step(
    start: Callable[..., Service], n_before: int, act: Act, n_left: int, durable: bool, stride: int = 1
) -> None:
    """Kills the service at the first change of a file that `act` causes, then another time `stride` changes later,
    and so on until all is done before that. `n_left` checkpoints are left then; after a kill too, if `durable` and
    `act` had returned."""
    server = start()
    for step in itertools.count(1, stride):
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
                if server.tell("kill_at 0"):
                    break
            except (httpx.TransportError, BrokenPipeError):
                pass
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

    kill_at_each_step(start, 3, prune, 1, durable=True, stride=3)  # each removal is that of a delete


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


# --- while something is in progress ---


@pytest.fixture
def beside() -> Iterator[ThreadPoolExecutor]:
    """Sends requests while others wait."""
    with ThreadPoolExecutor() as pool:
        yield pool


def test_a_rollback_ends_an_upload(server: Service, client: httpx.Client, beside: ThreadPoolExecutor) -> None:
    sandbox = made(client)[-36:]
    id = taken(client, sandbox)["id"]
    server.tell("fault stall 1")
    upload = beside.submit(client.put, f"/v1/sandboxes/{sandbox}/files?path=/x", content=b"x" * 1000)
    server.until_waiting(1)
    rolled_back(client, sandbox, checkpoint=id)
    assert id in refused(upload.result(), 409, "rolled_back")
    server.tell("go")
    assert run(client, sandbox, "out lives").strip() == "lives"


Waiting = tuple[str, str, "Future[httpx.Response]"]


@pytest.fixture
def rollback(server: Service, client: httpx.Client, beside: ThreadPoolExecutor) -> Waiting:
    """A sandbox with the mark `bad`, the id of a child with the mark `child`, and a rollback to the state with the
    mark `good`, whose VM waits for `go`."""
    sandbox = made(client)[-36:]
    run(client, sandbox, "mark good")
    id = taken(client, sandbox)["id"]
    run(client, sandbox, "mark bad")
    (child,) = client.post(f"/v1/sandboxes/{sandbox}/fork", json={"n": 1}).json()["children"]
    run(client, child, "mark child")
    server.tell("fault seed_wait 1")
    answer = beside.submit(client.post, f"/v1/sandboxes/{sandbox}/rollback", json={"checkpoint": id})
    server.until_waiting(1)
    return sandbox, child, answer


def test_a_merge_during_a_rollback(server: Service, client: httpx.Client, rollback: Waiting) -> None:
    sandbox, child, answer = rollback
    assert client.post(f"/v1/sandboxes/{sandbox}/merge_into/{child}").status_code == 204
    assert run(client, sandbox, "marked") == "child"
    server.go()
    assert answer.result().status_code == 200
    assert run(client, sandbox, "marked") == "good"
    assert [one["id"] for one in client.get("/v1/sandboxes").json()] == [sandbox]


def test_a_merge_into_its_parent_during_a_rollback(
    server: Service, client: httpx.Client, beside: ThreadPoolExecutor
) -> None:
    parent = made(client)[-36:]
    (child,) = client.post(f"/v1/sandboxes/{parent}/fork", json={"n": 1}).json()["children"]
    id = taken(client, child)["id"]
    run(client, child, "mark child")
    server.tell("fault seed_wait 1")
    answer = beside.submit(client.post, f"/v1/sandboxes/{child}/rollback", json={"checkpoint": id})
    server.until_waiting(1)
    assert client.post(f"/v1/sandboxes/{parent}/merge_into/{child}").status_code == 204
    server.go()
    refused(answer.result(), 404, "merged")
    assert run(client, parent, "marked") == "child"
    assert len(client.get("/v1/sandboxes").json()) == 1


def test_a_freeze_during_a_rollback(server: Service, client: httpx.Client, rollback: Waiting) -> None:
    sandbox, child, answer = rollback
    frozen = client.post(f"/v1/sandboxes/{sandbox}/freeze").json()
    server.go()
    assert frozen["space_id"] in refused(answer.result(), 404, "frozen")
    back = client.post(f"/v1/spaces/{frozen['space_id']}/resume").json()
    assert run(client, back["id"], "marked") == "bad"
    assert len(client.get("/v1/sandboxes").json()) == 2


def test_a_fork_and_a_delete_during_a_rollback(server: Service, client: httpx.Client, rollback: Waiting) -> None:
    sandbox, _, answer = rollback
    (other,) = client.post(f"/v1/sandboxes/{sandbox}/fork", json={"n": 1}).json()["children"]
    assert run(client, other, "marked") == "bad"
    assert client.delete("/v1/sandboxes/" + sandbox).status_code == 204
    server.go()
    refused(answer.result(), 404, "not_found")
    assert len(client.get("/v1/sandboxes").json()) == 2


# --- limits that change ---


def lowered(start: Callable[..., Service]) -> tuple[Service, httpx.Client, Callable[[], None]]:
    """Starts a service; returns it, a client, and what lowers the tier of its key."""
    tier = "ram_mib=1024 rootfs_gb=4 idle_s=300 lifetime_s=1800 concurrent=1 persistent=no disks_gb=4 spaces_gb=0"
    server = start("admin", "pro", f"tier_free={tier} checkpoints=0 private_memory=no")
    admin, client = (server.client(headers={"authorization": f"Bearer {key}"}) for key in server.keys)
    (key,) = (one["id"] for one in admin.get("/v1/keys").json() if one["tier"] == "pro")

    def lower() -> None:
        assert admin.patch(f"/v1/keys/{key}", json={"tier": "free"}).status_code == 200
        admin.close()

    return server, client, lower


def test_a_tier_is_lowered_during_a_start(start: Callable[..., Service], beside: ThreadPoolExecutor) -> None:
    server, client, lower = lowered(start)
    with client:
        sandbox = made(client)
        run(client, sandbox[-36:], "mark kept")
        id = taken(client, sandbox[-36:])["id"]
        path = f"/v1/checkpoints/{id}"
        server.tell("fault seed_wait 1")
        answer = beside.submit(client.post, path + "/fork", json={"n": 3})
        server.until_waiting(1)
        lower()
        server.go()
        children = [one["id"] for one in answer.result().json()["children"]]
        assert [run(client, child, "marked") for child in children] == ["kept"] * 3
        refused(client.post(path + "/fork", json={"n": 1}), 429, "cap_reached")
        refused(client.post(sandbox + "/checkpoints"), 429, "cap_reached")
        for gone in ("/v1/sandboxes/" + child for child in children):
            client.delete(gone)
        rolled_back(client, sandbox[-36:], checkpoint=id)  # what is there can be used, and deleted
        assert client.delete(path).status_code == 204


def test_a_tier_is_lowered_while_one_is_taken(start: Callable[..., Service], beside: ThreadPoolExecutor) -> None:
    server, client, lower = lowered(start)
    with client:
        sandbox = made(client)
        server.tell("fault fork_wait 1")
        answer = beside.submit(client.post, sandbox + "/checkpoints")
        server.until_waiting(1)
        lower()
        server.go()
        assert "limit is 0 MiB" in refused(answer.result(), 429, "quota_reached")
        assert client.get("/v1/checkpoints").json() == []
        assert run(client, sandbox[-36:], "out lives").strip() == "lives"


@pytest.fixture
def started(server: Service, client: httpx.Client, beside: ThreadPoolExecutor) -> Waiting:
    """The root of a tree, a checkpoint of it, and a start of three from that, one of which waits for `go`."""
    root = made(client, tree={"live": 5})[-36:]
    id = taken(client, root)["id"]
    server.tell("fault seed_wait 1")
    answer = beside.submit(client.post, f"/v1/checkpoints/{id}/fork", json={"n": 3})
    server.until_waiting(1)
    return root, id, answer


def test_a_tree_is_full_in_the_middle_of_a_start(server: Service, client: httpx.Client, started: Waiting) -> None:
    root, id, answer = started
    path = f"/v1/checkpoints/{id}/fork"
    assert "limit live" in refused(client.post(path, json={"n": 2}), 429, "tree_limit")  # the three count
    assert client.patch(f"/v1/trees/{root}", json={"live": 2}).status_code == 200
    server.go()
    assert len([one for one in answer.result().json()["children"] if "id" in one]) == 3  # what was granted stays
    assert client.get(f"/v1/trees/{root}").json()["live"] == 4
    assert "limit live" in refused(client.post(path, json={"n": 1}), 429, "tree_limit")


def test_the_time_of_a_tree_is_over_in_the_middle_of_a_start(
    server: Service, client: httpx.Client, started: Waiting
) -> None:
    root, id, answer = started
    assert client.patch(f"/v1/trees/{root}", json={"wall_seconds": 1}).status_code == 200
    server.wait(lambda f: f["ramet_sandboxes"] == 0)
    server.go()
    assert answer.result().status_code == 200  # they end at once
    server.wait(lambda f: f["ramet_sandboxes"] == 0 and f["ramet_operations"] == 0)
    assert "wall_seconds" in refused(client.post(f"/v1/checkpoints/{id}/fork", json={"n": 1}), 429, "tree_limit")
    assert client.get("/v1/checkpoints/" + id).status_code == 200
