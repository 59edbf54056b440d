# SPDX-License-Identifier: Apache-2.0
"""Spaces: the answers and the refusals."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from conftest import NOBODY, Service, refused

NO_SPACE = "/v1/spaces/spc_" + "f" * 32


def frozen(client: httpx.Client, **spec: Any) -> str:
    """Freezes a new sandbox and returns the path of its Space."""
    answer = client.post("/v1/sandboxes", json=spec)
    answer = client.post(f"/v1/sandboxes/{answer.json()['id']}/freeze")
    assert answer.status_code == 200
    assert set(answer.json()) == {"space_id"}
    return "/v1/spaces/" + str(answer.json()["space_id"])


def test_freeze_list_info_resume(client: httpx.Client) -> None:
    path = frozen(client, metadata={"who": "tëst"}, egress=False)
    info = client.get(path).json()
    assert info["id"] == path[-36:]
    assert info["metadata"] == {"who": "tëst"}
    assert (info["state"], info["egress"], info["ram_mib"]) == ("frozen", False, 128)
    assert info["template"] == "default"
    assert "damage" not in info
    assert client.get("/v1/spaces").json() == [info]
    refused(client.get("/v1/sandboxes/" + info["sandbox"]), 404, "frozen")
    back = client.post(path + "/resume", json={"persistent": True, "timeout_seconds": 5})
    assert back.status_code == 201
    assert back.json()["state"] == "ready"
    assert back.json()["id"] != info["sandbox"]
    assert client.get("/v1/sandboxes/" + back.json()["id"]).json()["persistent"] is True
    assert client.get("/v1/spaces").json() == []
    refused(client.post(path + "/resume"), 404, "not_found")


@pytest.mark.parametrize("name", ["lifetime_seconds", "timeout_seconds"])
def test_lifetime_has_two_names(client: httpx.Client, name: str) -> None:
    info = client.get(frozen(client, **{name: 77})).json()
    assert (info["lifetime_seconds"], info["timeout_seconds"]) == (77, 77)


def test_egress_is_passed_on_only_when_given(client: httpx.Client) -> None:
    for spec, body, egress in (
        ({"egress": False}, {}, False),
        ({}, {"egress": False}, False),
        ({}, {"egress": None}, True),
        ({}, {"egress": True}, True),
    ):
        back = client.post(frozen(client, **spec) + "/resume", json=body).json()
        assert client.get("/v1/sandboxes/" + back["id"]).json()["egress"] is egress
    answer = client.post(frozen(client, egress=False) + "/resume", json={"egress": True})
    refused(answer, 409, "egress_closed")


def test_damaged_space_is_reported_and_not_resumed(client: httpx.Client, server: Service) -> None:
    path = frozen(client)
    (state,) = (server.home / "service/state/spaces" / path[-36:]).glob("state*")
    state.write_bytes(state.read_bytes() + b"!")
    refused(client.post(path + "/resume"), 409, "space_damaged")
    assert state.name in client.get(path).json()["damage"]
    assert client.delete(path).status_code == 204
    refused(client.delete(path), 404, "not_found")


def test_unknown_ids_are_not_found(client: httpx.Client) -> None:
    refused(client.post(NOBODY + "/freeze"), 404, "not_found")
    refused(client.get(NO_SPACE), 404, "not_found")
    refused(client.post(NO_SPACE + "/resume"), 404, "not_found")
    assert "spc_" in refused(client.get("/v1/spaces/spc_1"), 404, "not_found")
    assert "spc_" in refused(client.delete("/v1/spaces/" + NOBODY[-36:]), 404, "not_found")


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"lifetime_seconds": 0}, "lifetime_seconds"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"idle_timeout_seconds": "1"}, "idle_timeout_seconds"),
        ({"persistent": 1}, "persistent"),
        ({"egress": "yes"}, "egress"),
    ],
)
def test_invalid_bodies_are_refused(client: httpx.Client, body: dict[str, Any], names: str) -> None:
    path = frozen(client)
    assert names in refused(client.post(path + "/resume", json=body), 400, "bad_request")
    assert client.get(path).status_code == 200


def test_failed_freeze_is_reported(client: httpx.Client, server: Service, box: str) -> None:
    server.tell("fault fork 1")
    refused(client.post(box + "/freeze"), 503, "freeze_failed")
    assert client.get(box).json()["state"] == "ready"
