# SPDX-License-Identifier: Apache-2.0
"""Spaces in the SDK, and the choice of the service, against fake answers."""

from __future__ import annotations

import json
from typing import Any, Callable

import httpx
import pytest

import ramet
from ramet import Client, Sandbox, Space

SPC = "spc_" + "1" * 32
SPACE: dict[str, Any] = {
    "id": SPC,
    "state": "frozen",
    "created_at": "2026-11-21T22:01:07.007Z",
    "size_bytes": 4096,
    "ram_mib": 512,
    "template": "default",
    "metadata": {"who": "me"},
}


class Service:
    """A fake service with one Space; `log` has the requests, `keys` their authorization."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.keys: list[str | None] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.log.append(f"{request.method} {request.url.raw_path.decode()}")
        self.keys.append(request.headers.get("authorization"))
        if request.content:
            self.log[-1] += " " + json.dumps(json.loads(request.content), sort_keys=True)
        if request.method == "DELETE":
            return httpx.Response(204)
        if request.url.path.endswith("/v1/spaces"):
            return httpx.Response(200, json=[SPACE])
        if request.url.path.endswith("/freeze"):
            return httpx.Response(200, json={"space_id": SPC})
        if request.method == "GET":
            return httpx.Response(200, json=SPACE)
        return httpx.Response(201, json={"id": "sbx_2", "state": "ready"})


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


def test_spaces_are_listed_read_and_deleted(service: Service, client: Client) -> None:
    (space,) = Space.list(client=client)
    assert space == Space.get(SPC, client=client)
    assert (space.id, space.size_bytes, space.metadata) == (SPC, 4096, {"who": "me"})
    assert isinstance(space, ramet.SpaceInfo)
    space.delete()
    there = f"/v1/spaces/{SPC}"
    assert service.log == ["GET /v1/spaces?limit=500", f"GET {there}", f"DELETE {there}"]
    assert not client.closed


def test_calls_without_a_client_create_and_close_one(service: Service, made: list[Client]) -> None:
    (space,) = Space.list(host="http://127.0.0.1:81", api_key="secret", region="eu")
    space.delete()
    Space.delete(SPC)
    assert service.log == [
        "GET /r/eu/v1/spaces?limit=500",
        f"DELETE /r/eu/v1/spaces/{SPC}",
        f"DELETE /v1/spaces/{SPC}",
    ]
    assert service.keys == ["Bearer secret", "Bearer secret", None]
    assert [one.host for one in made[:2]] == ["http://127.0.0.1:81/r/eu"] * 2
    assert all(one.closed for one in made)
    assert "secret" not in repr(space)


def test_lifetime_has_a_former_name(service: Service, client: Client) -> None:
    Sandbox(client=client, timeout_seconds=60)
    Sandbox.resume(SPC, client=client, timeout_seconds=61)
    sbx = Sandbox(client=client, lifetime_seconds=62)
    sbx.update(timeout_seconds=63)
    assert [line.partition(" {")[2] for line in service.log] == [
        f'"lifetime_seconds": {n}}}' for n in (60, 61, 62, 63)
    ]
    with pytest.raises(ramet.BadRequest, match="not both"):
        Sandbox(client=client, lifetime_seconds=1, timeout_seconds=2)


def test_freeze_and_resume_send_their_arguments(service: Service, made: list[Client]) -> None:
    with Sandbox(persistent=True, lifetime_seconds=600, idle_timeout_seconds=60) as sbx:
        assert sbx.update(persistent=False, egress=False, metadata={"run": 2}).id == "sbx_2"
        space = sbx.freeze()
    with Sandbox.resume(space.id, region="eu", persistent=True, idle_timeout_seconds=9) as sbx:
        assert sbx.id == "sbx_2"
    space.delete()
    assert service.log == [
        'POST /v1/sandboxes {"idle_timeout_seconds": 60, "lifetime_seconds": 600,'
        ' "persistent": true}',
        'PATCH /v1/sandboxes/sbx_2 {"egress": false, "metadata": {"run": 2}, "persistent": false}',
        "POST /v1/sandboxes/sbx_2/freeze",
        f"GET /v1/spaces/{SPC}",
        "DELETE /v1/sandboxes/sbx_2",
        f'POST /r/eu/v1/spaces/{SPC}/resume {{"idle_timeout_seconds": 9, "persistent": true}}',
        "DELETE /r/eu/v1/sandboxes/sbx_2",
        f"DELETE /v1/spaces/{SPC}",
    ]


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: Sandbox(region="eu", client=client),
        lambda client: Sandbox.connect("sbx_2", api_key="secret", client=client),
        lambda client: Sandbox.resume(SPC, host="http://127.0.0.1", client=client),
        lambda client: Space.list(region="eu", client=client),
    ],
)
def test_client_and_address_together_are_refused(
    ask: Callable[[Client], Any], service: Service, client: Client
) -> None:
    with pytest.raises(ValueError, match="either `client` or"):
        ask(client)
    assert not service.log


def test_failed_resume_closes_its_client_and_keeps_the_message(
    made: list[Client], service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = {"error": "it is for a region that this host is not in", "code": "unknown_region"}
    monkeypatch.setattr(Service, "__call__", lambda *_: httpx.Response(404, json=gone))
    with pytest.raises(ramet.NotFound, match="region that this host is not in") as caught:
        Sandbox.resume(SPC, region="us")
    assert caught.value.code == "unknown_region"
    assert made[0].closed
