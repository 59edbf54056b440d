# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in the SDK, against fake answers."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

import ramet
from ramet import Checkpoint, Client, Sandbox, Space

CHK = "chk_" + "1" * 32
SPC = "spc_" + "1" * 32
CHECKPOINT: dict[str, Any] = {
    "id": CHK,
    "state": "stored",
    "name": "tests pass",
    "labels": {"step": "7"},
    "score": None,
    "root": "sbx_0",
    "depth": 0,
    "pin": False,
    "sandbox": "sbx_0",
    "parent": None,
    "created_at": "2026-11-21T22:01:07.007Z",
    "expires_at": None,
    "size_bytes": 0,
    "vcpus": 1,
    "ram_mib": 512,
    "rootfs_gb": 2,
    "egress": True,
    "template": "default",
    "bytes": 4096,
    "bytes_shared": 8192,
    "metadata": {},
    "call": None,
    "undone": False,
}
HISTORY: list[dict[str, Any]] = [
    {"n": 1, "kind": "forked", "time": "t1", "source": "sbx_9", "checkpoint": None, "undone": False},
    {
        **{"n": 2, "kind": "call", "time": "t2", "code": "x", "result": "error", "seq": 3},
        **{"seconds": 0.5, "checkpoint": CHK, "undone": True},
    },
    {
        **{"n": 3, "kind": "fork", "time": "t3", "n_children": 2, "children": ["sbx_1"]},
        **{"checkpoint": None, "undone": False, "of_a_newer_service": 1},
    },
]
SPACE: dict[str, Any] = {
    "id": SPC,
    "state": "frozen",
    "created_at": "2026-11-21T22:01:07.007Z",
    "size_bytes": 4096,
    "ram_mib": 512,
    "template": "default",
    "metadata": {},
}
FAILED = {"error": {"code": "vm_failed", "message": "no memory"}}


class Service:
    """A fake service with one checkpoint and one Space; `log` has the requests."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.children: list[Any] = [{"id": "sbx_1"}, {"id": "sbx_2"}]
        self.breaks = False  # the answer to a checkpoint breaks off

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        self.log.append(f"{request.method} {request.url.raw_path.decode()}")
        if request.content:
            self.log[-1] += " " + json.dumps(json.loads(request.content), sort_keys=True)
        if self.breaks and request.method == "POST" and path.endswith("/checkpoints"):
            if "idempotent-replay" not in request.headers:
                raise httpx.ReadError("gone", request=request)
        if request.method == "DELETE":
            return httpx.Response(204)
        if path.endswith("/fork"):
            return httpx.Response(200, json={"children": self.children, "ready_us": 1})
        if path.endswith("/history"):
            return httpx.Response(200, json=HISTORY)
        if path.endswith("/undo"):
            return httpx.Response(200, json={"id": "sbx_0", "checkpoint": CHK, "kept": None})
        if path.endswith("/rollback"):
            kept = CHK if b"keep" in request.content else None
            return httpx.Response(200, json={"id": "sbx_0", "checkpoint": CHK, "kept": kept})
        if path.endswith("/prune"):
            return httpx.Response(200, json={"checkpoints": [CHK], "bytes": 4096})
        if path == "/v1/checkpoints":
            return httpx.Response(200, json=[CHECKPOINT])
        if "checkpoint" in path:
            return httpx.Response(201, json=CHECKPOINT)
        if "space" in path:
            return httpx.Response(200, json=SPACE)
        return httpx.Response(201, json={"id": "sbx_0", "state": "ready"})


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def client(service: Service) -> Client:
    return Client(transport=httpx.MockTransport(service))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, service: Service) -> list[Client]:
    """The clients that the SDK creates by itself."""
    clients: list[Client] = []

    def make(*where: Any, **more: Any) -> Client:
        clients.append(Client(*where, transport=httpx.MockTransport(service), **more))
        return clients[-1]

    monkeypatch.setattr("ramet.space.Client", make)
    return clients


def test_a_checkpoint_is_taken_changed_and_deleted(service: Service, client: Client) -> None:
    sbx = Sandbox(client=client)
    point = sbx.checkpoint("tests pass", labels={"step": "7"}, ttl_seconds=60, pin=True)
    assert (point.id, point.name, point.labels, point.score) == (CHK, "tests pass", {"step": "7"}, None)
    assert (point.size_bytes, point.shared_bytes, point.sandbox) == (4096, 8192, "sbx_0")
    assert (point.root, point.depth) == ("sbx_0", 0)
    assert isinstance(point, ramet.CheckpointInfo)
    assert point.update(score=0.5, name="", pin=False, labels={}, ttl_seconds=1) == point
    point.delete()
    sbx.checkpoint()
    there = f"/v1/checkpoints/{CHK}"
    assert service.log[1:] == [
        "POST /v1/sandboxes/sbx_0/checkpoints"
        ' {"labels": {"step": "7"}, "name": "tests pass", "pin": true, "ttl_seconds": 60}',
        f'PATCH {there} {{"labels": {{}}, "name": "", "pin": false, "score": 0.5, "ttl_seconds": 1}}',
        f"DELETE {there}",
        "POST /v1/sandboxes/sbx_0/checkpoints {}",
    ]


def test_checkpoints_are_found_and_pruned(service: Service, client: Client) -> None:
    (point,) = client.checkpoints(name="a b", labels={"x": "y"}, sandbox="sbx_0", ancestor="sbx_0")
    assert [point] == Checkpoint.list(client=client) == client.checkpoints()
    assert point == Checkpoint.get(CHK, client=client)
    pruned = client.prune_checkpoints(keep=5, older_than_seconds=60, sandbox="sbx_0", dry_run=True)
    assert pruned == ramet.Pruned([CHK], 4096)
    client.prune_checkpoints(keep=1)
    assert service.log == [
        "GET /v1/checkpoints?limit=500&name=a%20b&labels=%7B%22x%22%3A%22y%22%7D"
        "&sandbox=sbx_0&ancestor=sbx_0",
        "GET /v1/checkpoints?limit=500",
        "GET /v1/checkpoints?limit=500",
        f"GET /v1/checkpoints/{CHK}",
        "POST /v1/checkpoints/prune"
        ' {"dry_run": true, "keep": 5, "older_than_seconds": 60, "sandbox": "sbx_0"}',
        'POST /v1/checkpoints/prune {"keep": 1}',
    ]


def test_sandboxes_start_from_checkpoints_and_spaces(service: Service, client: Client) -> None:
    point = Checkpoint.get(CHK, client=client)
    space = Space.get(SPC, client=client)
    del service.log[:]
    Sandbox(checkpoint=point, client=client)
    Sandbox(checkpoint=CHK, client=client)
    assert [one.id for one in point.fork(2, reseed=True)] == ["sbx_1", "sbx_2"]
    assert [one.id for one in space.fork()] == ["sbx_1", "sbx_2"]
    assert service.log == [
        f'POST /v1/sandboxes {{"checkpoint": "{CHK}"}}',
        f'POST /v1/sandboxes {{"checkpoint": "{CHK}"}}',
        f'POST /v1/checkpoints/{CHK}/fork {{"n": 2, "reseed": true}}',
        f'POST /v1/spaces/{SPC}/fork {{"n": 1}}',
    ]


def test_a_fork_of_a_checkpoint_is_whole_unless_partial(service: Service, client: Client) -> None:
    point = Checkpoint.get(CHK, client=client)
    service.children = [{"id": "sbx_1"}, FAILED, {"id": "sbx_2"}]
    started = client.fork_checkpoint(CHK, 3)
    assert started.children == ["sbx_1", "sbx_2"]
    assert [(type(one), one.code, str(one)) for one in started.errors] == [
        (ramet.ServerError, "vm_failed", "no memory")
    ]
    assert [one.id for one in point.fork(3, partial=True)] == ["sbx_1", "sbx_2"]
    del service.log[:]
    with pytest.raises(ramet.ServerError, match="no memory"):
        point.fork(3)
    assert service.log[1:] == ["DELETE /v1/sandboxes/sbx_1", "DELETE /v1/sandboxes/sbx_2"]
    assert not client.closed


def test_a_sandbox_is_rolled_back(service: Service, client: Client) -> None:
    sbx = Sandbox(client=client)
    point = Checkpoint.get(CHK, client=client)
    del service.log[:]
    assert sbx.rollback(point) is None
    assert sbx.rollback(CHK, keep="broken") == point
    assert service.log == [
        f'POST /v1/sandboxes/sbx_0/rollback {{"checkpoint": "{CHK}"}}',
        f'POST /v1/sandboxes/sbx_0/rollback {{"checkpoint": "{CHK}", "keep": "broken"}}',
        f"GET /v1/checkpoints/{CHK}",
    ]


def test_calls_are_undone(service: Service, client: Client) -> None:
    sbx = Sandbox(client=client, checkpoint_each_call={"keep": 20})
    sbx.update(checkpoint_each_call={"keep": 0})
    assert sbx.undo() == sbx.undo(2, keep="x") == CHK
    assert service.log == [
        'POST /v1/sandboxes {"checkpoint_each_call": {"keep": 20}}',
        'PATCH /v1/sandboxes/sbx_0 {"checkpoint_each_call": {"keep": 0}}',
        'POST /v1/sandboxes/sbx_0/undo {"n": 1}',
        'POST /v1/sandboxes/sbx_0/undo {"keep": "x", "n": 2}',
    ]


def test_history_is_typed(service: Service, client: Client) -> None:
    began, called, forked = Sandbox(client=client).history()
    assert (began.n, began.kind, began.time, began.source) == (1, "forked", "t1", "sbx_9")
    assert (began.code, began.seconds, began.n_children, began.children) == (None, None, 0, [])
    assert (called.code, called.result, called.seq, called.seconds) == ("x", "error", 3, 0.5)
    assert (called.checkpoint, called.undone, called.name) == (CHK, True, None)
    assert (forked.n_children, forked.children, forked.undone) == (2, ["sbx_1"], False)
    assert forked.raw["of_a_newer_service"] == 1
    assert service.log[-1].startswith("GET /v1/sandboxes/sbx_0/history?")


def test_the_sandboxes_of_a_fork_share_a_client(service: Service, made: list[Client]) -> None:
    first, second = Space.get(SPC).fork(2)
    first.close()
    assert not made[-1].closed
    second.close()
    assert made[-1].closed
    service.children = [FAILED]
    with pytest.raises(ramet.ServerError):
        Checkpoint.get(CHK).fork()
    assert len(made) == 4 and all(one.closed for one in made)


def test_a_checkpoint_without_an_answer_is_undone(service: Service) -> None:
    client = Client(transport=httpx.MockTransport(service), retry_seconds=0)
    sbx = Sandbox(client=client)
    service.breaks = True
    with pytest.raises(ramet.ConnectionFailed):
        sbx.checkpoint(pin=True)
    there = f"/v1/checkpoints/{CHK}"
    assert service.log[-2:] == [f'PATCH {there} {{"pin": false}}', f"DELETE {there}"]
