# SPDX-License-Identifier: Apache-2.0
"""The agent of a sandbox is killed: every call, context and process that was lost says so."""

from __future__ import annotations

import json
from typing import Any, Iterator

import httpx
import pytest

from conftest import Service

DIED = "the sandbox's agent was killed by signal 9 (Killed)"
LOST = f"ramet: {DIED}, and the %s process with it; its state is lost"


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service(tmp_path_factory.mktemp("replaced"))
    yield service
    service.stop()


def run(http: httpx.Client, box: str, code: str, **more: Any) -> list[tuple[str, Any]]:
    answer = http.post(box + "/exec", json={"code": code, **more})
    assert answer.status_code == 200, answer.text
    events = map(json.loads, answer.text.splitlines())
    return [(event["type"], event["data"]) for event in events]


def test_the_loss_of_a_killed_agent_is_reported(service: Service) -> None:
    with httpx.Client(base_url=service.base, timeout=120, trust_env=False) as http:
        box = "/v1/sandboxes/" + http.post("/v1/sandboxes", json={}).json()["id"]
        context = http.post(box + "/contexts", json={"language": "bash", "cwd": "/tmp"}).json()
        where = {"context": context["id"]}
        assert run(http, box, "x=5", **where) == [("exit", 0)]
        assert run(http, box, "x = 1") == [("exit", 0)]
        program = http.post(box + "/processes", json={"argv": ["sleep", "1000"], "detach": True})

        service.replace_agent(DIED)
        lost = ("stderr", LOST % "Python")
        assert run(http, box, "print('x' in globals())") == [("stdout", "False"), lost, ("exit", 0)]
        assert run(http, box, "print(1)") == [("stdout", "1"), ("exit", 0)]
        assert [one["id"] for one in http.get(box + "/contexts").json()] == [context["id"]]
        lost = ("stderr", LOST % "bash")
        assert run(http, box, "echo $PWD $x", **where) == [("stdout", "/tmp"), lost, ("exit", 0)]
        gone = http.get(f"{box}/processes/{program.json()['id']}")
        assert (gone.status_code, gone.json()["code"]) == (404, "no_such_process")
        assert DIED in gone.text


@pytest.mark.parametrize("in_context", [False, True])
def test_a_running_call_ends_with_what_died(service: Service, in_context: bool) -> None:
    with httpx.Client(base_url=service.base, timeout=120, trust_env=False) as http:
        box = "/v1/sandboxes/" + http.post("/v1/sandboxes", json={}).json()["id"]
        more = {"context": http.post(box + "/contexts", json={}).json()["id"]} if in_context else {}
        code = "import time\nprint('ready', flush=True)\ntime.sleep(1000)"
        with http.stream("POST", box + "/exec", json={"code": code, **more}) as stream:
            lines = stream.iter_lines()
            assert json.loads(next(lines))["data"] == "ready"
            service.replace_agent(DIED)
            events = [json.loads(line) for line in lines]
        assert [(event["type"], event["data"]) for event in events] == [
            ("stderr", LOST % "Python"),
            ("exit", 137),
        ]
        assert run(http, box, "print(1)", **more) == [("stdout", "1"), ("exit", 0)]
