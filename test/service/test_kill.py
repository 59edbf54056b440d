# SPDX-License-Identifier: Apache-2.0
"""Requests with an Idempotency-Key are repeated after the service was killed. The fake VMs die with
the service, so the sandboxes have ended then; the answers are the same.
"""

from __future__ import annotations

from typing import Any, Iterator

import httpx
import pytest

from conftest import Service


class Client:
    """A client that repeats what it did."""

    def __init__(self, service: Service, api_key: str) -> None:
        self.service = service
        self.headers = {"authorization": f"Bearer {api_key}"}
        self.sent: list[tuple[str, str, Any, httpx.Response]] = []

    def ask(self, method: str, path: str, key: str = "", body: Any = None) -> httpx.Response:
        with httpx.Client(base_url=self.service.base, timeout=120, trust_env=False) as http:
            headers = self.headers | ({"idempotency-key": key} if key else {})
            return http.request(method, path, json=body, headers=headers)

    def post(self, path: str, key: str, body: Any) -> Any:
        answer = self.ask("POST", path, key, body)
        assert answer.is_success, answer.text
        assert "idempotent-replayed" not in answer.headers
        self.sent.append((path, key, body, answer))
        return answer.json()

    def counts(self) -> tuple[int, int]:
        return tuple(len(self.ask("GET", f"/v1/{what}").json()) for what in ("sandboxes", "spaces"))  # type: ignore[return-value]

    def repeat(self) -> None:
        before = self.counts()
        for path, key, body, first in self.sent:
            again = self.ask("POST", path, key, body)
            assert (again.status_code, again.content) == (first.status_code, first.content)
            assert again.headers["idempotent-replayed"] == "true"
            other = self.ask("POST", path, key, {"timeout_seconds": 77})
            assert other.json()["code"] == "idempotency_key_reused"
        assert self.counts() == before


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service(tmp_path_factory.mktemp("kill"), "pro", "pro")
    yield service
    service.stop()


def test_repeats_after_a_kill_have_no_effect(service: Service) -> None:
    one, two = (Client(service, key) for key in service.keys)
    made = one.post("/v1/sandboxes", "create", {"metadata": {"a": 1}})
    frozen = one.post("/v1/sandboxes", "create-2", {})
    forked = one.post(f"/v1/sandboxes/{made['id']}/fork", "fork", {"n": 2})
    assert len(forked["children"]) == 2 and forked["ready_us"] > 0
    space = one.post(f"/v1/sandboxes/{frozen['id']}/freeze", "freeze", None)["space_id"]
    one.post(f"/v1/spaces/{space}/resume", "resume", {"timeout_seconds": 100})
    kept = one.post("/v1/sandboxes", "create-3", {})
    one.post(f"/v1/sandboxes/{kept['id']}/freeze", "freeze-2", None)
    two.post("/v1/sandboxes", "create", {"metadata": {"a": 1}})
    one.repeat()
    for _ in range(2):
        service.kill()
        service.start()
        one.repeat()
        two.repeat()
    assert one.counts() == (0, 1)


def test_failed_request_can_be_repeated_after_a_kill(service: Service) -> None:
    client = Client(service, service.keys[0])
    path = "/v1/sandboxes/sbx_00000000000000000000000000000000/freeze"
    assert client.ask("POST", path, "k").status_code == 404
    service.kill()
    service.start()
    client.post("/v1/sandboxes", "k", {})
    client.repeat()
