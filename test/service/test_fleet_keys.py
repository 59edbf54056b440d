# SPDX-License-Identifier: Apache-2.0
"""Hosts of a fleet have the same API keys. The test carries the files between them, as ramet-fleet does."""

from __future__ import annotations

import hashlib
import json
import stat
import time
from typing import Any, Iterator

import httpx
import pytest

from conftest import Service
from fleet import Fleet
from stand_in import until

A, B = 17, 18
Key = dict[str, Any]


@pytest.fixture
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    started = Fleet(tmp_path_factory.mktemp("fleet"))
    yield started
    started.stop()


@pytest.fixture
def a(fleet: Fleet) -> Service:
    """A host with keys of a tenant and of an admin."""
    return fleet.start(A, "key=pro", "key=admin", others=(B,))


@pytest.fixture
def b(fleet: Fleet) -> Service:
    """A host with the key of an admin."""
    return fleet.start(B, "key=admin", others=(A,))


def with_key(service: Service, key: str) -> httpx.Client:
    return service.client(headers={"authorization": f"Bearer {key}"})


def status(service: Service, key: str) -> str:
    """Returns what the host says to a request with the key."""
    with with_key(service, key) as http:
        answer = http.get("/v1/sandboxes")
        return "" if answer.status_code == 200 else str(answer.json()["code"])


def admin(service: Service, method: str, path: str, **body: Any) -> Key:
    """Has the host's last key change keys."""
    with with_key(service, service.keys[-1]) as http:
        answer = http.request(method, f"/v1/keys{path}", json=body or None)
        assert answer.is_success, answer.text
        return dict(answer.json()) if answer.content else {}


def tiers(service: Service) -> dict[str, str]:
    """Returns the tiers of the keys by id, as the host lists them."""
    with with_key(service, service.keys[-1]) as http:
        return {key["id"]: key["tier"] for key in http.get("/v1/keys").json()}


def make(service: Service, **fields: Any) -> Key:
    return admin(service, "POST", "", **{"name": "a key", "tier": "pro", **fields})


def entry(text: str, **changes: Any) -> Key:
    """Returns the entry of a key that another host has made."""
    hash = hashlib.sha256(text.encode()).hexdigest()
    return {
        "format": 1,
        "id": f"key_{hash[:16]}",
        "tenant": f"tnt_{hash[:16]}",
        "hash": hash,
        "name": "made elsewhere",
        "tier": "pro",
        "created": 1000,
        "tier_at": 1000,
        "ends": 0,
        "revoked": False,
        **changes,
    }


def id_of(text: str) -> str:
    return str(entry(text)["id"])


def marker(fleet: Fleet, host: int, *keys: Key) -> None:
    """Gives the host these keys, and waits until it has taken them over: one more stands behind them."""
    fleet.markers += 1
    last = entry(f"marker {fleet.markers}", id=f"key_{'f' * 10}{fleet.markers:06x}")
    fleet.write_keys(host, [*keys, last])
    until(lambda: last["id"] in tiers(fleet.services[host]))


def test_keys_are_written_for_the_other_hosts(fleet: Fleet, a: Service) -> None:
    until(lambda: len(fleet.offered(A)) == 2)
    made = make(a)
    until(lambda: made["id"] in fleet.offered(A))
    one = fleet.offered(A)[made["id"]]
    assert one["hash"] == hashlib.sha256(made["key"].encode()).hexdigest()
    assert (one["tenant"], one["tier"], one["name"]) == (made["tenant"], "pro", "a key")
    assert (one["ends"], one["revoked"], one["tier_at"]) == (0, False, one["created"])
    text = fleet.offer(A).read_text()
    assert not any(key in text for key in (made["key"], *a.keys))
    assert stat.S_IMODE(fleet.offer(A).stat().st_mode) == 0o644
    admin(a, "PATCH", f"/{made['id']}", tier="free")
    until(lambda: fleet.offered(A)[made["id"]]["tier"] == "free")
    assert fleet.offered(A)[made["id"]]["tier_at"] > one["tier_at"]
    rotated = admin(a, "POST", f"/{made['id']}/rotate", grace_seconds=1000)
    until(lambda: rotated["id"] in fleet.offered(A) and fleet.offered(A)[made["id"]]["ends"])
    assert not fleet.offered(A)[made["id"]]["revoked"]
    admin(a, "DELETE", f"/{rotated['id']}")
    until(lambda: fleet.offered(A)[rotated["id"]]["revoked"])


def test_changes_are_valid_on_all_hosts(fleet: Fleet, a: Service, b: Service) -> None:
    until(lambda: len(fleet.offered(A)) == 2 and len(fleet.offered(B)) == 1)
    assert status(b, a.keys[0]) == "key_unknown"
    fleet.carry(A, B)
    until(lambda: status(b, a.keys[0]) == "")
    fleet.carry(B, A)
    until(lambda: status(a, b.keys[0]) == "")
    made = make(b, tier="free")
    until(lambda: made["id"] in fleet.offered(B))
    fleet.carry(B, A)
    until(lambda: status(a, made["key"]) == "")
    admin(a, "PATCH", f"/{made['id']}", tier="scale")
    until(lambda: fleet.offered(A)[made["id"]]["tier"] == "scale")
    fleet.carry(A, B)
    until(lambda: tiers(b)[made["id"]] == "scale")
    rotated = admin(a, "POST", f"/{made['id']}/rotate", grace_seconds=0)
    until(lambda: rotated["id"] in fleet.offered(A) and fleet.offered(A)[made["id"]]["revoked"])
    fleet.carry(A, B)
    until(lambda: status(b, rotated["key"]) == "" and status(b, made["key"]) == "key_revoked")
    assert tiers(b)[rotated["id"]] == "scale"


def test_a_revocation_elsewhere_ends_requests_here(fleet: Fleet, a: Service, b: Service) -> None:
    until(lambda: len(fleet.offered(A)) == 2)
    fleet.carry(A, B)
    until(lambda: status(b, a.keys[0]) == "")
    with with_key(b, a.keys[0]) as http:
        box = http.post("/v1/sandboxes", json={}).json()["id"]
        with pytest.raises(httpx.RemoteProtocolError):
            with http.stream("POST", f"/v1/sandboxes/{box}/exec", json={"code": "out here\nwait"}) as answer:
                for line in answer.iter_lines():
                    if "here" in line:
                        a.tell("revoke")
                        until(lambda: any(key["revoked"] for key in fleet.offered(A).values()))
                        fleet.carry(A, B)
    assert status(b, a.keys[0]) == "key_revoked"
    b.go()


def test_a_revocation_wins_over_what_is_older(fleet: Fleet, b: Service) -> None:
    """In either order, repeated, and after a restart."""
    first, second, third = "first", "second", "third"
    old = [entry(name) for name in (first, second, third)]
    marker(fleet, B, *old)
    marker(fleet, B, entry(first, revoked=True, ends=2000), entry(second, ends=2000), entry(third, ends=9**15))
    listed = {key["id"]: key["state"] for key in admin_list(b)}
    assert [listed[id_of(name)] for name in (first, second, third)] == ["revoked", "revoked", "ending"]
    marker(fleet, B, *old)
    marker(fleet, B, entry(third, ends=9**16))
    assert {key["id"]: key["state"] for key in admin_list(b)}.items() >= listed.items()
    assert fleet.offered(B)[id_of(third)]["ends"] == 9**15
    b.stop()
    fleet.write_keys(B, old)
    b = fleet.start(B)
    assert {key["id"]: key["state"] for key in admin_list(b)}.items() >= listed.items()


def admin_list(service: Service) -> list[Key]:
    with with_key(service, service.keys[-1]) as http:
        return list(http.get("/v1/keys").json())


def test_a_host_that_was_away_catches_up_before_its_first_answer(fleet: Fleet, a: Service, b: Service) -> None:
    until(lambda: len(fleet.offered(A)) == 2)
    fleet.carry(A, B)
    until(lambda: status(b, a.keys[0]) == "")
    b.stop()
    made = make(a)
    a.tell("revoke")
    until(lambda: made["id"] in fleet.offered(A) and any(key["revoked"] for key in fleet.offered(A).values()))
    fleet.carry(A, B)
    b = fleet.start(B)
    assert (status(b, a.keys[0]), status(b, made["key"])) == ("key_revoked", "")


def test_the_tier_that_was_set_last_is_in_use(fleet: Fleet, b: Service) -> None:
    here, there = "here", "there"
    marker(fleet, B, entry(here), entry(there))
    admin(b, "PATCH", f"/{id_of(here)}", tier="scale")
    marker(fleet, B, entry(here, tier="free", tier_at=2000), entry(there, tier="free", tier_at=2000))
    until(lambda: fleet.offered(B).get(id_of(there), {}).get("tier_at") == 2000)
    b.stop()
    # The times are known after a restart, too.
    fleet.write_keys(B, [entry(here), entry(there, tier="pro", tier_at=1999)])
    b = fleet.start(B)
    assert (tiers(b)[id_of(here)], tiers(b)[id_of(there)]) == ("scale", "free")
    # At one time: the greater name, on all hosts.
    marker(fleet, B, entry(there, tier="enterprise", tier_at=2000))
    assert tiers(b)[id_of(there)] == "free"
    marker(fleet, B, entry(there, tier="scale", tier_at=2000))
    assert tiers(b)[id_of(there)] == "scale"
    # A clock ahead does not keep a later change from being one.
    future = int(time.time() * 1000) + 10**9
    marker(fleet, B, entry(there, tier="pro", tier_at=future))
    admin(b, "PATCH", f"/{id_of(there)}", tier="free")
    until(lambda: fleet.offered(B)[id_of(there)]["tier_at"] == future + 1)


def test_a_tier_that_was_set_without_the_service_is_the_latest(fleet: Fleet, b: Service) -> None:
    marker(fleet, B, entry("one", tier="free", tier_at=2000))
    until(lambda: id_of("one") in fleet.offered(B))
    b.stop()
    # As if `rametctl key tier` had changed the catalogue from scale to free since it was written.
    last = fleet.offered(B)
    last[id_of("one")]["tier"] = "scale"
    fleet.offer(B).write_text(json.dumps({"format": 1, "keys": list(last.values())}))
    fleet.write_keys(B, [entry("one", tier="scale", tier_at=2000)])
    b = fleet.start(B)
    assert tiers(b)[id_of("one")] == "free"
    until(lambda: fleet.offered(B)[id_of("one")]["tier"] == "free")
    assert fleet.offered(B)[id_of("one")]["tier_at"] > 2000


def test_what_is_damaged_or_hostile_changes_nothing(fleet: Fleet, b: Service) -> None:
    marker(fleet, B, entry("good"))
    before = tiers(b)
    for text in ("", "{", "[]", '{"format": 2, "keys": []}', '{"keys": []}', "\0" * 100, " " * (33 << 20)):
        fleet.write_keys(B, text)
    fleet.write_keys(B, "no JSON")
    until(lambda: "keys.json: " in b.log.read_text())
    good = entry("good")
    marker(
        fleet,
        B,
        entry("good", hash="0" * 64, tier="free", tier_at=9000),
        entry("good", tenant="tnt_" + "0" * 16, revoked=True),
        entry("good", created=1, revoked=True),
        entry("other", hash=good["hash"], tenant="local"),
        entry("id", id="key_short"),
        entry("word", id="tnt_" + "0" * 16),
        entry("tenant", tenant="everyone"),
        entry("tier", tier="godlike"),
        entry("name", name="two\nlines"),
        {**entry("format"), "format": 2},
        {"format": 1},
    )
    after = tiers(b)
    added = after.keys() - before.keys()
    assert added == {key for key in added if key.startswith("key_ffffffffff")}
    assert after.items() >= before.items()
    assert all(key["state"] == "good" for key in admin_list(b))
    log = b.log.read_text()
    for sentence in (
        "cannot read the fleet's keys, the previous ones stay in use: ",
        "a key in keys.json is left out: ",
        "keys in keys.json are left out",
        f"keys {id_of('other')} and {good['id']} have the same hash",
        "key_short is not the id of a key",
        "everyone is not the id of a tenant",
        "godlike",
        "the name contains a control character (0x0a)",
    ):
        assert sentence in log, sentence


def test_many_keys_are_taken_over(fleet: Fleet, b: Service) -> None:
    """More than in one turn of the loop; and those of one tenant are as old as they say."""
    keys = [entry(f"k{i}", tenant="tnt_" + "0" * 16, created=1000 + i, tier_at=1000 + i) for i in range(1500)]
    marker(fleet, B, *keys)
    until(lambda: len(fleet.offered(B)) == 1502)
    with with_key(b, b.keys[-1]) as http:
        listed: list[Key] = []
        page = http.get("/v1/keys")
        listed += page.json()
        while "ramet-next-cursor" in page.headers:
            page = http.get("/v1/keys", params={"cursor": page.headers["ramet-next-cursor"]})
            listed += page.json()
    made = [key["created_at"] for key in listed]
    assert len(made) == 1502 and made == sorted(made)


def test_without_the_folder_keys_stay_here(fleet: Fleet) -> None:
    b = fleet.start(B, "key=admin", out=False)
    until(lambda: "other hosts do not learn of changes to this host's keys: open " in b.log.read_text())
    marker(fleet, B, entry("one"))
    assert id_of("one") in tiers(b)
