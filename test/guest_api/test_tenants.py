# SPDX-License-Identifier: Apache-2.0
"""A tenant learns nothing of another's: by each route of the spec, another's ids are answered as
ids that never were."""

from __future__ import annotations

import itertools
import json
import re
import secrets
from typing import Any, Iterator

import httpx
import pytest

from conftest import Service

ID = re.compile(r"(sbx|spc|pty|upl)_[0-9a-f]{32}")
METHODS = ("get", "head", "put", "post", "delete")
# What each route takes, so that it is refused for the id and for nothing else.
BODIES: dict[str, Any] = {
    "exec": {"code": "print(1)"},
    "fork": {"n": 1},
    "diff": {"paths": ["/tmp"]},
    "commit": {"size": 1, "sha256": "0" * 64},
    "pty": {"argv": ["true"]},
    "read": {"since_seq": 0, "max_bytes": 1, "timeout_ms": 1},
    "input": {"data_b64": ""},
    "resize": {"cols": 80, "rows": 24},
}
QUERY = {"path": "/tmp/x", "offset": "0"}


class Tenant:
    """Somebody with a key, and what is theirs."""

    def __init__(self, base: str, key: str) -> None:
        self.http = httpx.Client(
            base_url=base,
            headers={"authorization": f"Bearer {key}"},
            timeout=120,
            trust_env=False,
        )
        self.ids: dict[str, str] = {}

    def settle(self) -> None:
        """Something of each kind, living all through the test."""
        self.ids["sbx"] = self.http.post("/v1/sandboxes", json={}).json()["id"]
        path = f"/v1/sandboxes/{self.ids['sbx']}"
        upload = self.http.post(f"{path}/uploads", params={"path": "/tmp/ramet-tenants"}).json()
        self.ids["upl"] = ID.search(json.dumps(upload))[0]  # type: ignore[index]
        start = self.http.stream("POST", f"{path}/pty", json={"argv": ["sleep", "1000"]})
        with start as stream:
            ready = json.loads(next(stream.iter_lines()))
            self.ids["pty"] = ready["session_id"]
        frozen = self.http.post("/v1/sandboxes", json={}).json()["id"]
        self.ids["spc"] = self.http.post(f"/v1/sandboxes/{frozen}/freeze").json()["space_id"]


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Tenant, Tenant]]:
    service = Service(tmp_path_factory.mktemp("tenants"), "pro", "pro")
    first, second = (Tenant(service.base, key) for key in service.keys)
    first.settle()
    second.settle()
    yield first, second
    first.http.delete(f"/v1/sandboxes/{first.ids['sbx']}")
    service.stop()


def never() -> dict[str, str]:
    return {kind: f"{kind}_{secrets.token_hex(16)}" for kind in ("sbx", "upl", "pty", "spc")}


def kind_of(name: str) -> str:
    """Of which kind the id called `name` in a path is."""
    return {"upload": "upl", "pty": "pty", "space": "spc"}.get(name, "sbx")


def fill(path: str, choice: list[dict[str, str]]) -> str:
    """The path with each of its ids from the one that `choice` says."""
    ids = iter(choice)
    return re.sub(
        r"{(\w+)}", lambda m: next(ids)[kind_of(m[1])], path
    )


def ask(tenant: Tenant, method: str, path: str, body: Any) -> tuple[int, str, dict[str, str]]:
    """Status, body and headers, with ids made alike."""
    answer = tenant.http.request(method, path, params=QUERY, json=body)
    headers = {k: v for k, v in answer.headers.items() if k not in ("date",)}
    return answer.status_code, ID.sub(r"\1_ID", answer.text), headers


def routes(tenant: Tenant) -> list[tuple[str, str]]:
    paths = tenant.http.get("/v1/openapi.json").json()["paths"]
    return [(m, path) for path, item in paths.items() for m in METHODS if m in item and "{" in path]


def test_no_route_tells_another_s_from_what_never_was(tenants: tuple[Tenant, Tenant]) -> None:
    first, second = tenants
    asked = 0
    for method, path in routes(second):
        body = next((b for word, b in BODIES.items() if path.endswith(word)), None)
        if "/diff/" in path:
            body = BODIES["diff"]
        n = path.count("{")
        # Another's in each place; own ones in the others, as whoever guesses would have them.
        for choice in itertools.product((first.ids, second.ids), repeat=n):
            inner = "{upload}" in path or "{pty}" in path
            # Uploads and terminals are the guest's: that another guest has none of them can't be
            # seen here, where all have one agent.
            if all(ids is second.ids for ids in (choice[:1] if inner else choice)):
                continue
            stranger = never()
            strangers = [stranger if ids is first.ids else ids for ids in choice]
            real = ask(second, method, fill(path, list(choice)), body)
            none = ask(second, method, fill(path, strangers), body)
            assert real == none, f"{method} {path}"
            # Merging into itself is refused, whatever it is.
            itself = "merge_into" in path and choice[0] is choice[1]
            assert real[0] == (400 if itself else 404), f"{method} {path}: {real}"
            asked += 1
    assert asked >= 30


def test_lists_have_only_one_s_own(tenants: tuple[Tenant, Tenant]) -> None:
    first, second = tenants
    for own, other in ((first, second), (second, first)):
        listed = own.http.get("/v1/sandboxes").text
        assert own.ids["sbx"] in listed and other.ids["sbx"] not in listed


def test_what_was_asked_for_left_the_other_alone(tenants: tuple[Tenant, Tenant]) -> None:
    first, _ = tenants
    path = f"/v1/sandboxes/{first.ids['sbx']}"
    assert first.http.get(path).json()["state"] == "ready"
    ptys = first.http.get(f"{path}/pty").json()
    assert [p["exit_code"] for p in ptys if p["pty_id"] == first.ids["pty"]] == [None]
    assert first.http.delete(f"{path}/uploads/{first.ids['upl']}").status_code == 204


def test_a_gone_one_of_another_s_is_as_if_it_never_was(tenants: tuple[Tenant, Tenant]) -> None:
    first, second = tenants
    gone = first.http.post("/v1/sandboxes", json={}).json()["id"]
    first.http.delete(f"/v1/sandboxes/{gone}")
    path = f"/v1/sandboxes/{gone}"
    assert first.http.get(path).status_code == 404
    for method in ("get", "delete"):
        none = ask(second, method, "/v1/sandboxes/" + never()["sbx"], None)
        assert ask(second, method, path, None) == none
