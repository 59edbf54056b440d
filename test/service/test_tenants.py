# SPDX-License-Identifier: Apache-2.0
"""A tenant learns nothing about another: every route of the spec answers another tenant's ids like
ids that never existed.
"""

from __future__ import annotations

import itertools
import json
import re
import secrets
from typing import Any, Iterator

import httpx
import pytest

from conftest import Service
from routes import QUERY, body_of, kinds_of, routes, with_ids

ID = re.compile(r"(sbx|spc|pty|prc|ctx|upl|chk)_[0-9a-f]{32}")
METHODS = ("get", "head", "put", "post", "patch", "delete")


class Tenant:
    """A tenant with a key and its resources."""

    def __init__(self, base: str, key: str) -> None:
        self.http = httpx.Client(
            base_url=base,
            headers={"authorization": f"Bearer {key}"},
            timeout=120,
            trust_env=False,
        )
        self.ids: dict[str, str] = {}

    def create_resources(self) -> None:
        """Creates one resource of each kind, for the whole test."""
        self.ids["sbx"] = self.http.post("/v1/sandboxes", json={}).json()["id"]
        path = f"/v1/sandboxes/{self.ids['sbx']}"
        start = self.http.stream("POST", f"{path}/pty", json={"argv": ["sleep", "1000"]})
        with start as stream:
            ready = json.loads(next(stream.iter_lines()))
            self.ids["pty"] = ready["session_id"]
        sleep = {"argv": ["sleep", "1000"], "detach": True}
        bash = {"language": "bash"}
        self.ids["ctx"] = self.http.post(f"{path}/contexts", json=bash).json()["id"]
        self.ids["prc"] = self.http.post(f"{path}/processes", json=sleep).json()["id"]
        self.ids["chk"] = self.http.post(f"{path}/checkpoints").json()["id"]
        frozen = self.http.post("/v1/sandboxes", json={}).json()["id"]
        self.ids["spc"] = self.http.post(f"/v1/sandboxes/{frozen}/freeze").json()["space_id"]


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Tenant, Tenant]]:
    service = Service(tmp_path_factory.mktemp("tenants"), "pro", "pro")
    first, second = (Tenant(service.base, key) for key in service.keys)
    first.create_resources()
    second.create_resources()
    yield first, second
    first.http.delete(f"/v1/sandboxes/{first.ids['sbx']}")
    service.stop()


def never() -> dict[str, str]:
    kinds = ("sbx", "pty", "prc", "ctx", "spc", "chk")
    return {kind: f"{kind}_{secrets.token_hex(16)}" for kind in kinds}


def fill(path: str, choice: list[dict[str, str]]) -> str:
    """Returns the path with each of its ids replaced as `choice` says."""
    ids = iter(choice)
    return with_ids(path, lambda kind: next(ids)[kind])


def ask(tenant: Tenant, method: str, path: str, body: Any) -> tuple[int, str, dict[str, str]]:
    """Returns status, body and headers, with ids made equal."""
    answer = tenant.http.request(method, path, params=QUERY, json=body)
    headers = {k: v for k, v in answer.headers.items() if k not in ("date",)}
    return answer.status_code, ID.sub(r"\1_ID", answer.text), headers


def test_ids_of_others_are_answered_like_unknown_ids(tenants: tuple[Tenant, Tenant]) -> None:
    first, second = tenants
    asked = 0
    for method, path in routes(second.http, *METHODS):
        body = body_of(path)
        kinds = kinds_of(path)
        # Another tenant's id in each position, and own ids in the others, as a guesser would have
        # them.
        for choice in itertools.product((first.ids, second.ids), repeat=len(kinds)):
            inner = not {"pty", "prc", "ctx"}.isdisjoint(kinds)
            # Processes, terminals and contexts belong to a guest. All sandboxes share one agent here, so it
            # cannot be tested that another guest does not have them.
            if all(ids is second.ids for ids in (choice[:1] if inner else choice)):
                continue
            stranger = never()
            strangers = [stranger if ids is first.ids else ids for ids in choice]
            real = ask(second, method, fill(path, list(choice)), body)
            none = ask(second, method, fill(path, strangers), body)
            assert real == none, f"{method} {path}"
            # Merging into itself is refused for any id.
            itself = "merge_into" in path and choice[0] is choice[1]
            assert real[0] == (400 if itself else 404), f"{method} {path}: {real}"
            asked += 1
    assert asked >= 30


def test_lists_contain_own_entries_only(tenants: tuple[Tenant, Tenant]) -> None:
    first, second = tenants
    for own, other in ((first, second), (second, first)):
        listed = own.http.get("/v1/sandboxes").text
        assert own.ids["sbx"] in listed and other.ids["sbx"] not in listed


def test_requests_do_not_affect_the_other_tenant(tenants: tuple[Tenant, Tenant]) -> None:
    first, _ = tenants
    path = f"/v1/sandboxes/{first.ids['sbx']}"
    assert first.http.get(path).json()["state"] == "ready"
    ptys = first.http.get(f"{path}/pty").json()
    assert [p["exit_code"] for p in ptys if p["pty_id"] == first.ids["pty"]] == [None]


def test_ended_resources_of_others_are_unknown(tenants: tuple[Tenant, Tenant]) -> None:
    first, second = tenants
    gone = first.http.post("/v1/sandboxes", json={}).json()["id"]
    first.http.delete(f"/v1/sandboxes/{gone}")
    path = f"/v1/sandboxes/{gone}"
    assert first.http.get(path).status_code == 404
    for method in ("get", "delete"):
        none = ask(second, method, "/v1/sandboxes/" + never()["sbx"], None)
        assert ask(second, method, path, None) == none
