# SPDX-License-Identifier: Apache-2.0
"""A host that is drained gets no new sandboxes, and those that it has leave."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any, Iterator

import httpx
import pytest

from conftest import Service, made, refused
from fleet import CELL, Fleet, pair
from stand_in import pause

OTHER, HOST = 17, 18


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    yield from pair(tmp_path_factory.mktemp("fleet"), OTHER, HOST)


@pytest.fixture
def host(fleet: Fleet) -> Iterator[Service]:
    """The host that is drained in a test."""
    yield fleet.services[HOST]
    order(fleet, "ready")


@pytest.fixture
def client(fleet: Fleet, host: Service) -> Iterator[httpx.Client]:
    with host.client() as http:
        yield http
        order(fleet, "ready")
        host.clear(http)


def checks(http: httpx.Client) -> dict[str, Any]:
    return dict(http.get("/readyz").json()["checks"])


def order(fleet: Fleet, state: str, deadline: float = 0) -> None:
    """Writes the state into the tables, and waits until the host follows it."""
    fleet.add(HOST, state=state, deadline=int(deadline))
    fleet.write()
    with fleet.services[HOST].client() as http:
        while (checks(http)["drain"] == "ok") != (state == "ready"):
            pause()


def until_gone(http: httpx.Client, path: str) -> httpx.Response:
    while (answer := http.get(path)).status_code == 200:
        pause()
    return answer


def test_a_drained_host_gets_no_new_sandboxes(fleet: Fleet, client: httpx.Client) -> None:
    box = made(client)
    space = client.post(f"{made(client)}/freeze").json()["space_id"]
    order(fleet, "draining")
    made_elsewhere = client.post("/v1/sandboxes", json={}).json()["id"]
    assert fleet.place(made_elsewhere) == (CELL, OTHER)
    assert client.delete(f"/v1/sandboxes/{made_elsewhere}").status_code == 204
    answer = client.post(f"/v1/spaces/{space}/resume")
    refused(answer, 503, "draining")
    assert answer.headers["retry-after"] == "5"
    order(fleet, "ready")
    assert client.delete(made(client)).status_code == 204
    assert client.post(f"/v1/spaces/{space}/resume").status_code == 201
    assert client.get(box).status_code == 200


def test_a_drained_host_is_not_ready_but_serves(fleet: Fleet, client: httpx.Client) -> None:
    box = made(client)
    order(fleet, "draining")
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()["ready"]) == (503, False)
    assert ready.json()["checks"]["drain"].endswith("it gets no new sandboxes, and 1 are left")
    assert client.get("/livez").status_code == 200
    with fleet.services[OTHER].client() as near:
        assert "drain" in checks(near)
        for http in (client, near):
            assert http.get(box).status_code == 200
            assert http.post(f"{box}/exec", json={"code": "out x"}).status_code == 200
            # Forks are part of the work that goes on.
            assert http.post(f"{box}/fork", json={"n": 1}).is_success


def test_idle_persistent_sandboxes_are_frozen(fleet: Fleet, client: httpx.Client, host: Service) -> None:
    kept, idle, busy = made(client), made(client, persistent=True), made(client, persistent=True)
    with client.stream("POST", f"{busy}/exec", json={"code": "wait"}) as answer:
        order(fleet, "draining")
        gone = until_gone(client, idle)
        refused(gone, 404, "frozen")
        assert client.get(busy).json()["state"] == "running"
        host.go()
        answer.read()
    refused(until_gone(client, busy), 404, "frozen")
    assert client.get(kept).status_code == 200


def test_what_is_left_at_the_deadline_ends(fleet: Fleet, client: httpx.Client) -> None:
    box, kept = made(client), made(client, persistent=True)
    later = time.time() + 1000
    order(fleet, "draining", later)
    expires = datetime.fromisoformat(client.get(box).json()["expires_at"])
    assert abs(expires.timestamp() - int(later)) < 1  # the service counts by another clock
    order(fleet, "ready")
    assert client.get(box).status_code == 200
    with client.stream("POST", f"{kept}/exec", json={"code": "wait"}) as answer:
        order(fleet, "draining", time.time() - 1)
        assert "drained" in refused(until_gone(client, box), 404, "expired")
        refused(until_gone(client, kept), 404, "frozen")
        with pytest.raises(httpx.RemoteProtocolError):  # the call goes on in the Space
            answer.read()


def test_a_deadline_without_a_drain_ends_nothing(fleet: Fleet, client: httpx.Client) -> None:
    box = made(client)
    usual = client.get(box).json()["expires_at"]
    order(fleet, "draining", time.time() + 1000)
    order(fleet, "ready", time.time() - 1)
    assert client.get(box).json()["expires_at"] == usual


def test_a_restarted_host_stays_drained(fleet: Fleet, host: Service) -> None:
    order(fleet, "draining")
    host.stop()
    fleet.start(HOST)
    with host.client() as http:
        path = made(http)
        assert fleet.place(path[-36:]) == (CELL, OTHER)
        assert http.delete(path).status_code == 204
