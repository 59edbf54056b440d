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

METHODS = ("get", "put", "post", "patch", "delete")
BODIES: dict[str, Any] = {
    "exec": {"code": "print(1)"},
    "fork": {"n": 1},
    "commit": {"size": 1},
    "pty": {"argv": ["true"]},
    "input": {"data_b64": ""},
    "resize": {"cols": 80, "rows": 24},
    "processes": {"argv": ["true"]},
    "signal": {"signal": "CONT"},
}
QUERY = {"path": "/tmp/x", "to": "/tmp/y", "mode": "700", "offset": "0"}
KINDS = {"upload": "upl", "pty": "pty", "process": "prc", "context": "ctx"}


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
        pass


def routes(http: httpx.Client) -> Iterator[tuple[str, str]]:
    """Yields method and path of each route about a sandbox."""
    for path, item in http.get("/v1/openapi.json").json()["paths"].items():
        if path.startswith("/v1/sandboxes/{"):
            yield from ((method, path) for method in METHODS if method in item)


def test_every_route_says_that_the_vm_died(own: tuple[Service, httpx.Client]) -> None:
    service, http = own
    dead, other = made(http), made(http)
    http.post(f"/v1/sandboxes/{dead}/ports/80")
    kill_vms(service, http, dead)
    kill_vms(service, http, other)
    asked = 0
    for method, path in routes(http):
        target = path.replace("{port}", "80").replace("{path}", "x").replace("{id}", dead)

        def fill(found: re.Match[str]) -> str:
            return f"{KINDS[found[1]]}_{1:032x}" if found[1] in KINDS else other

        target = re.sub(r"{(\w+)}", fill, target)
        body = BODIES.get(path.rpartition("/")[2], {})
        headers = {"connection": "upgrade", "upgrade": "tcp"} if "/tcp/" in path else {}
        answer = http.request(method, target, params=QUERY, json=body, headers=headers)
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
            pass
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
            pass
        assert metric("ramet_port_connects_total") == n
