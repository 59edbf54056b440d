# SPDX-License-Identifier: Apache-2.0
"""No route answers for a VM that has died as if it lived, and no connection outlives its VM."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterator

import httpx
import pytest

from conftest import Service
from routes import QUERY, body_of, routes, with_ids
from stand_in import pause

METHODS = ("get", "put", "post", "patch", "delete")


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, httpx.Client]]:
    service = Service(tmp_path_factory.mktemp("dead"))
    with httpx.Client(base_url=service.base, timeout=120, trust_env=False) as http:
        yield service, http
    service.stop()


def made(http: httpx.Client) -> str:
    answer = http.post("/v1/sandboxes", json={})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def kill_vms(service: Service, http: httpx.Client, one: str) -> None:
    service.tell("kill")
    while http.get(f"/v1/sandboxes/{one}").status_code == 200:
        pause()


def test_every_route_says_that_the_vm_died(own: tuple[Service, httpx.Client]) -> None:
    service, http = own
    dead, other = made(http), made(http)
    http.post(f"/v1/sandboxes/{dead}/ports/80")
    kill_vms(service, http, dead)
    kill_vms(service, http, other)
    asked = 0
    for method, path in routes(http, *METHODS):
        if not path.startswith("/v1/sandboxes/{"):
            continue
        sandboxes = iter((dead, other))
        target = with_ids(path, lambda kind: next(sandboxes) if kind == "sbx" else f"{kind}_{1:032x}")
        headers = {"connection": "upgrade", "upgrade": "tcp"} if "/tcp/" in path else {}
        answer = http.request(method, target, params=QUERY, json=body_of(path) or {}, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (404, "vm_died"), (method, path)
        asked += 1
    assert asked > 40
    assert http.get("/v1/sandboxes").json() == []
    alive = made(http)
    assert http.get(f"/v1/sandboxes/{alive}").status_code == 200


def test_running_requests_say_that_the_vm_died(own: tuple[Service, httpx.Client]) -> None:
    service, http = own
    path = "/v1/sandboxes/" + made(http)

    def follow(target: str, body: Any) -> list[dict[str, Any]]:
        events = []
        try:
            with http.stream("POST", path + target, json=body) as answer:
                begun.append(target)
                for line in answer.iter_lines():
                    events += [json.loads(line)] if line else []
        except httpx.RemoteProtocolError:
            pass  # the stream is cut off after its last line
        return events

    begun: list[str] = []
    asked = [
        ("/exec", {"code": "import time; print(1, flush=True); time.sleep(1000)"}),
        ("/processes", {"argv": ["sleep", "1000"]}),
        ("/pty", {"argv": ["sleep", "1000"]}),
    ]
    with ThreadPoolExecutor() as pool:
        calls = [pool.submit(follow, *one) for one in asked]
        while len(begun) < len(asked):
            pause()
        kill_vms(service, http, path.rpartition("/")[2])
        for call in calls:
            last = call.result()[-1]
            assert last["code"] == "vm_died" and last["type"] in ("error", "pty_error")


def test_connections_to_a_port_are_not_kept_for_the_next_request(
    own: tuple[Service, httpx.Client],
) -> None:
    service, http = own

    def metric(name: str) -> float:
        found = re.search(rf"^{name} (\S+)$", http.get("/metrics").text, re.M)
        assert found
        return float(found[1])

    path = "/v1/sandboxes/" + made(http)
    port = int(service.base.rpartition(":")[2])  # all sandboxes share this machine's ports
    for n in range(1, 4):
        assert http.get(f"{path}/ports/{port}/livez").status_code == 200
        while metric("ramet_port_connections"):
            pause()
        assert metric("ramet_port_connects_total") == n
