# SPDX-License-Identifier: Apache-2.0
"""Spaces: what the core is asked to do, and what is answered."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from test_routes import NOBODY, made, refused

NO_SPACE = "/v1/spaces/spc_" + "f" * 32


def frozen(http: httpx.Client, **spec: Any) -> str:
    """Freezes a new sandbox and returns the path of its Space."""
    answer = http.post("/v1/sandboxes", json=spec)
    answer = http.post(f"/v1/sandboxes/{answer.json()['id']}/freeze")
    assert answer.status_code == 200
    assert set(answer.json()) == {"space_id"}
    return "/v1/spaces/" + str(answer.json()["space_id"])


def test_freeze_list_info_resume(http: httpx.Client) -> None:
    path = frozen(http, metadata={"who": "tëst"}, egress=False)
    info = http.get(path).json()
    assert info["id"] == path[-36:]
    assert info["created_at"] == "2023-11-14T22:13:20.123Z"
    assert info["metadata"] == {"who": "tëst"}
    assert (info["state"], info["egress"], info["ram_mib"]) == ("frozen", False, 512)
    assert info["template"] == "default"
    assert "damage" not in info
    assert http.get("/v1/spaces").json() == [info]
    refused(http.get("/v1/sandboxes/" + info["sandbox"]), 404, "not_found")
    back = http.post(path + "/resume", json={"persistent": True, "timeout_seconds": 5})
    assert back.status_code == 201
    assert back.json()["state"] == "ready"
    assert back.json()["id"] != info["sandbox"]
    assert http.get("/v1/sandboxes/" + back.json()["id"]).json()["persistent"] is True
    assert http.get("/v1/spaces").json() == []
    refused(http.post(path + "/resume"), 404, "not_found")


@pytest.mark.parametrize("name", ["lifetime_seconds", "timeout_seconds"])
def test_lifetime_has_two_names(http: httpx.Client, name: str) -> None:
    info = http.get(frozen(http, **{name: 77})).json()
    assert (info["lifetime_seconds"], info["timeout_seconds"]) == (77, 77)


def test_egress_is_passed_on_only_when_given(http: httpx.Client) -> None:
    for spec, body, egress in (
        ({"egress": False}, {}, False),
        ({}, {"egress": False}, False),
        ({}, {"egress": None}, True),
        ({}, {"egress": True}, True),
    ):
        back = http.post(frozen(http, **spec) + "/resume", json=body).json()
        assert http.get("/v1/sandboxes/" + back["id"]).json()["egress"] is egress
    answer = http.post(frozen(http, egress=False) + "/resume", json={"egress": True})
    refused(answer, 409, "egress_closed")


def test_damaged_space_is_reported_and_not_resumed(http: httpx.Client) -> None:
    path = frozen(http, template="rotten")
    assert http.get(path).json()["damage"] == 'disk-1: "bad"'
    refused(http.post(path + "/resume"), 409, "space_damaged")
    assert http.delete(path).status_code == 204
    refused(http.delete(path), 404, "not_found")


def test_unknown_ids_are_not_found(http: httpx.Client) -> None:
    refused(http.post(NOBODY + "/freeze"), 404, "not_found")
    refused(http.get(NO_SPACE), 404, "not_found")
    refused(http.post(NO_SPACE + "/resume"), 404, "not_found")
    assert "spc_" in refused(http.get("/v1/spaces/spc_1"), 404, "not_found")
    assert "spc_" in refused(http.delete("/v1/spaces/" + NOBODY[-36:]), 404, "not_found")


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
def test_invalid_bodies_are_refused(http: httpx.Client, body: dict[str, Any], names: str) -> None:
    path = frozen(http)
    assert names in refused(http.post(path + "/resume", json=body), 400, "bad_request")
    assert http.get(path).status_code == 200


def test_refused_freeze_is_reported(http: httpx.Client) -> None:
    path = made(http, "crowded")
    refused(http.post(path + "/freeze"), 503, "no_capacity")
    assert http.get(path).status_code == 200
