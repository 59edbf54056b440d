# SPDX-License-Identifier: Apache-2.0
"""API keys of two services, which ramet-fleet carries from one to the other."""

from __future__ import annotations

import os
from typing import Any, Iterator

import pytest
from cell import rametctl, until
from conftest import Fleet, Host
from stand_in import Service

PORTS = iter(range(7600, 7700))


@pytest.fixture
def hosts(fleet: Fleet) -> list[Host]:
    """Two hosts that see each other, with addresses of this machine."""
    prefix, port = f"127.{64 + (os.getpid() >> 8) % 128}.{os.getpid() % 256}", next(PORTS)
    made = []
    for n in (17, 18):
        token = rametctl("fleet", "ca", fleet.ca, "host", n, f"h{n}", f"{prefix}.{n}:{port}", "fsn")
        made.append(fleet.host(n, token).start())
    made[0].sees(18)
    made[1].sees(17)
    return made


@pytest.fixture
def services(hosts: list[Host], tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Service]]:
    """Their services, each with the key of an admin."""
    made = [Service(tmp_path_factory.mktemp("s"), *settings(host), "admin", agent=False) for host in hosts]
    yield made
    for one in made:
        if one.server.poll() is None:
            one.stop()


def settings(host: Host) -> list[str]:
    folder = host.settings
    return [
        f"fleet_dir={host.tables}",
        f"fleet_id_key={folder}/id.key",
        f"fleet_listen={host.table()[host.number]['address']}",
        f"fleet_ca={folder}/ca.pem",
        f"fleet_cert={folder}/cert.pem",
        f"fleet_key={folder}/key.pem",
    ]


def ask(service: Service, key: str, method: str, path: str, **body: Any) -> Any:
    """Returns the answer, or the code of a refusal."""
    with service.client(headers={"authorization": f"Bearer {key}"}) as http:
        answer = http.request(method, path, json=body or None)
        value: Any = answer.json() if answer.content else None
        return value if answer.is_success else value["code"]


def says(service: Service, key: str) -> str:
    answer = ask(service, key, "GET", "/v1/sandboxes")
    return answer if isinstance(answer, str) else "good"


def test_a_change_on_one_host_is_one_on_all(services: list[Service]) -> None:
    a, b = services
    (admin,) = a.keys
    for one, other in ((a, b), (b, a)):
        until("each other's keys", lambda: says(one, other.keys[0]) == "good")
    made = ask(a, admin, "POST", "/v1/keys", name="a key", tier="pro")
    until("made", lambda: says(b, made["key"]) == "good")
    ask(b, admin, "PATCH", f"/v1/keys/{made['id']}", tier="scale")
    until("tier", lambda: made["id"] in [k["id"] for k in listed(a, admin) if k["tier"] == "scale"])
    rotated = ask(a, admin, "POST", f"/v1/keys/{made['id']}/rotate", grace_seconds=0)
    until("rotated", lambda: says(b, rotated["key"]) == "good" and says(b, made["key"]) == "key_revoked")
    ask(b, admin, "DELETE", f"/v1/keys/{rotated['id']}")
    until("revoked", lambda: says(a, rotated["key"]) == "key_revoked")


def listed(service: Service, admin: str) -> list[dict[str, Any]]:
    return list(ask(service, admin, "GET", "/v1/keys"))


def test_a_host_that_was_away_catches_up(hosts: list[Host], services: list[Service]) -> None:
    a, b = services
    (admin,) = a.keys
    made = ask(a, admin, "POST", "/v1/keys", name="a key", tier="pro")
    until("made", lambda: says(b, made["key"]) == "good")
    hosts[1].kill()
    ask(a, admin, "DELETE", f"/v1/keys/{made['id']}")
    other = ask(a, admin, "POST", "/v1/keys", name="another", tier="pro")
    until("revoked at home", lambda: hosts[0].keys().get("a key", {}).get("revoked") and "another" in hosts[0].keys())
    assert says(b, made["key"]) == "good"
    hosts[1].start()
    until("revoked", lambda: says(b, made["key"]) == "key_revoked" and says(b, other["key"]) == "good")
