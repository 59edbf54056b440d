# SPDX-License-Identifier: Apache-2.0
"""/v1/keys: admins list, make, rotate and revoke keys, and change their tiers."""

from __future__ import annotations

import json
from typing import Any, Callable, Iterator

import httpx
import pytest

from conftest import Service, refused
from routes import routes

Key = dict[str, Any]
NOBODY = "/v1/keys/key_" + 16 * "0"


@pytest.fixture
def keyed(start: Callable[..., Service]) -> Service:
    """A service with keys of a tenant, an operator and an admin."""
    return start("key=pro", "key=operator", "key=admin")


def with_key(service: Service, key: str) -> httpx.Client:
    return service.client(headers={"authorization": f"Bearer {key}"})


@pytest.fixture
def admin(keyed: Service) -> Iterator[httpx.Client]:
    with with_key(keyed, keyed.keys[2]) as http:
        yield http


def made(admin: httpx.Client, **fields: Any) -> Key:
    answer = admin.post("/v1/keys", json={"name": "a key", "tier": "pro", **fields})
    assert answer.status_code == 201, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return dict(answer.json())


def keys(admin: httpx.Client) -> dict[str, Key]:
    return {one["id"]: one for one in admin.get("/v1/keys").json()}


def works(service: Service, key: str) -> bool:
    with with_key(service, key) as http:
        return http.get("/v1/sandboxes").status_code == 200


def test_only_admins_manage_keys(keyed: Service, admin: httpx.Client) -> None:
    all_routes = [(m, p) for m, p in routes(admin, "get", "post", "patch", "delete") if "/v1/keys" in p]
    assert len(all_routes) == 5
    for method, path in all_routes:
        path = path.replace("{key}", "key_" + 16 * "0")
        for key in keyed.keys[:2]:
            with with_key(keyed, key) as http:
                refused(http.request(method, path, json={}), 403, "admins_only")
    assert admin.get("/v1/keys").status_code == 200
    assert "ramet_sandboxes" in admin.get("/metrics").text  # an admin is an operator too


def test_no_key_can_be_made_while_there_are_none(start: Callable[..., Service]) -> None:
    with start().client() as http:
        said = refused(http.post("/v1/keys", json={"name": "mine", "tier": "admin"}), 403, "admins_only")
        assert "rametctl key create" in said
        refused(http.get("/v1/keys"), 403, "admins_only")
        assert http.get("/v1/sandboxes").status_code == 200


def test_key_is_made_listed_and_shown_once(keyed: Service, admin: httpx.Client) -> None:
    new = made(admin, name="über <b>", tier="free")
    text = new.pop("key")
    assert works(keyed, text)
    assert (new["name"], new["tier"], new["state"], new["ends_at"]) == ("über <b>", "free", "good", None)
    listed = admin.get("/v1/keys")
    assert listed.json()[-1] == new and text not in listed.text
    assert [one["current"] for one in listed.json()] == [False, False, True, False]
    assert new["tenant"] not in {one["tenant"] for one in listed.json()[:-1]}
    again = made(admin, tenant=new["tenant"])
    assert again["tenant"] == new["tenant"] and again["id"] != new["id"]
    assert made(admin, tenant="local")["tenant"] == "local"
    assert text not in keyed.whole_log()


@pytest.mark.parametrize(
    ("fields", "status", "code", "words"),
    [
        ({"tier": "gold"}, 400, "bad_request", 'tier must be "free", "pro", "scale"'),
        ({"name": ""}, 400, "bad_request", "name"),
        ({"name": "a\nb"}, 400, "bad_request", "control character"),
        ({"name": 64 * "x"}, 400, "bad_request", "name"),
        ({"name": "a\0b"}, 400, "bad_request", "NUL is not allowed"),
        ({"name": None}, 400, "bad_request", "name"),
        ({"tenant": "tnt_none"}, 404, "no_such_tenant", "there is no tenant"),
        ({"tenant": 30 * "t"}, 400, "bad_request", "tenant"),
    ],
)
def test_bad_new_key_is_refused(
    admin: httpx.Client, fields: dict[str, Any], status: int, code: str, words: str
) -> None:
    before = keys(admin)
    answer = admin.post("/v1/keys", json={"name": "a key", "tier": "pro", **fields})
    assert words in refused(answer, status, code)
    assert keys(admin) == before


def test_key_is_rotated_with_a_grace_period(keyed: Service, admin: httpx.Client) -> None:
    old = made(admin, name="job")
    answer = admin.post(f"/v1/keys/{old['id']}/rotate", json={"grace_seconds": 1000})
    assert answer.status_code == 201, answer.text
    new = answer.json()
    assert {name: new[name] for name in ("tenant", "name", "tier")} == {
        name: old[name] for name in ("tenant", "name", "tier")
    }
    assert works(keyed, old["key"]) and works(keyed, new["key"])
    assert keys(admin)[old["id"]]["state"] == "ending"
    assert keys(admin)[old["id"]]["ends_at"] > old["created_at"]
    last = admin.post(f"/v1/keys/{new['id']}/rotate", json={"grace_seconds": 0}).json()
    assert not works(keyed, new["key"]) and works(keyed, last["key"])
    assert keys(admin)[new["id"]]["state"] == "revoked"
    refused(admin.post(f"/v1/keys/{new['id']}/rotate", json={"grace_seconds": 0}), 409, "key_ended")
    refused(admin.post(f"/v1/keys/{last['id']}/rotate", json={}), 400, "bad_request")
    refused(admin.post(f"/v1/keys/{last['id']}/rotate", json={"grace_seconds": 31536001}), 400, "bad_request")


def test_key_is_revoked(keyed: Service, admin: httpx.Client) -> None:
    key = made(admin)
    with with_key(keyed, key["key"]) as http, http.stream("GET", "/v1/events?follow=1") as stream:
        assert admin.delete(f"/v1/keys/{key['id']}").status_code == 204
        with pytest.raises(httpx.RemoteProtocolError):  # cut off
            list(stream.iter_lines())
    assert not works(keyed, key["key"])
    assert keys(admin)[key["id"]]["state"] == "revoked"
    assert admin.delete(f"/v1/keys/{key['id']}").status_code == 204
    refused(admin.patch(f"/v1/keys/{key['id']}", json={"tier": "free"}), 409, "key_ended")


def test_tier_of_a_key_is_changed(keyed: Service, admin: httpx.Client) -> None:
    key = made(admin, tier="free")
    changed = admin.patch(f"/v1/keys/{key['id']}", json={"tier": "operator"})
    assert (changed.status_code, changed.json()["tier"]) == (200, "operator")
    with with_key(keyed, key["key"]) as http:
        assert http.get("/metrics").status_code == 200
        admin.patch(f"/v1/keys/{key['id']}", json={"tier": "free"})
        refused(http.get("/metrics"), 403, "operators_only")
        for _ in range(10):  # as many sandboxes as the tier allows
            assert http.post("/v1/sandboxes", json={}).status_code == 201
        refused(http.post("/v1/sandboxes", json={}), 429, "cap_reached")
        admin.patch(f"/v1/keys/{key['id']}", json={"tier": "pro"})
        assert http.post("/v1/sandboxes", json={}).status_code == 201
    refused(admin.patch(f"/v1/keys/{key['id']}", json={"tier": "gold"}), 400, "bad_request")
    events = [json.loads(line) for line in admin.get("/v1/events").text.splitlines()]
    texts = [one["text"] for one in events if one["event"] == "key.changed"]
    assert texts == ["tier operator, was free", "tier free, was operator", "tier pro, was free"]


def test_key_that_is_no_operators_any_more_loses_the_events_of_others(keyed: Service, admin: httpx.Client) -> None:
    key = made(admin, tier="operator")
    own = made(admin, tier="pro", tenant=key["tenant"])
    follow = "/v1/events?follow=1"
    with with_key(keyed, key["key"]) as http, with_key(keyed, own["key"]) as other:
        with http.stream("GET", follow) as everybody, other.stream("GET", follow) as tenant:
            all_events, events = everybody.iter_lines(), tenant.iter_lines()
            assert (next(all_events), next(events)) == ("", "")
            admin.patch(f"/v1/keys/{key['id']}", json={"tier": "admin"})
            assert "key.changed" in next(all_events)
            admin.patch(f"/v1/keys/{key['id']}", json={"tier": "free"})
            with pytest.raises(httpx.RemoteProtocolError):  # cut off
                list(all_events)
            made(admin, tenant=key["tenant"])
            while "key.created" not in next(events):  # this stream goes on: it has the tenant's own events
                pass
        assert http.get("/v1/sandboxes").status_code == 200


def test_request_cannot_end_its_own_key(keyed: Service, admin: httpx.Client) -> None:
    (own,) = (one["id"] for one in admin.get("/v1/keys").json() if one["current"])
    refused(admin.delete(f"/v1/keys/{own}"), 409, "own_key")
    refused(admin.patch(f"/v1/keys/{own}", json={"tier": "free"}), 409, "own_key")
    refused(admin.post(f"/v1/keys/{own}/rotate", json={"grace_seconds": 0}), 409, "own_key")
    new = admin.post(f"/v1/keys/{own}/rotate", json={"grace_seconds": 60}).json()
    with with_key(keyed, new["key"]) as http:
        assert http.delete(f"/v1/keys/{own}").status_code == 204
        refused(admin.get("/v1/keys"), 401, "key_revoked")


def test_unknown_keys_are_not_found(admin: httpx.Client) -> None:
    bodies: dict[str, Any] = {"patch": {"tier": "free"}, "delete": None}
    for method, body in bodies.items():
        for path in (NOBODY, "/v1/keys/key_zz", "/v1/keys/sbx_" + 32 * "0", "/v1/keys/key_" + 32 * "0"):
            refused(admin.request(method, path, json=body), 404, "no_such_key")
    refused(admin.post(NOBODY + "/rotate", json={"grace_seconds": 0}), 404, "no_such_key")


def test_keys_are_listed_in_pages(admin: httpx.Client) -> None:
    for i in range(3):
        made(admin, name=f"key {i}")
    whole = admin.get("/v1/keys").json()
    pages, cursor = [], None
    while True:
        answer = admin.get("/v1/keys", params={"limit": 4, **({"cursor": cursor} if cursor else {})})
        pages.append(answer.json())
        if not (cursor := answer.headers.get("ramet-next-cursor")):
            break
    assert [len(page) for page in pages] == [4, 2] and sum(pages, []) == whole
    refused(admin.get("/v1/keys?cursor=nonsense"), 400, "bad_request")
    refused(admin.get("/v1/keys?limit=0"), 400, "bad_request")


def test_keys_survive_a_kill(keyed: Service, admin: httpx.Client) -> None:
    kept, gone, changed = made(admin), made(admin), made(admin, tier="free")
    admin.delete(f"/v1/keys/{gone['id']}")
    admin.patch(f"/v1/keys/{changed['id']}", json={"tier": "scale"})
    before = keys(admin)
    keyed.kill()
    keyed.start()
    assert works(keyed, kept["key"]) and not works(keyed, gone["key"])
    with with_key(keyed, keyed.keys[2]) as http:
        assert keys(http) == before
