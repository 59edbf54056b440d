# SPDX-License-Identifier: Apache-2.0
"""The agent of a sandbox is killed: every call, context and process that was lost says so."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterator

import httpx
import pytest

from conftest import Service, made

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


def beside(service: Service, http: httpx.Client, request: str, **body: Any) -> Any:
    """Makes the request; the agent is killed while its VM takes the snapshot."""
    service.tell("fault fork_wait 1")
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(http.post, request, json=body)
        service.until_waiting(1)
        service.replace_agent(DIED)
        service.tell("go")
        assert answer.result().is_success, answer.result().text
        return answer.result().json()


def copied(service: Service, http: httpx.Client, box: str, how: str) -> str:
    """Resumes or forks the sandbox, whose agent is killed meanwhile, and returns the new one."""
    if how == "fork":
        children = beside(service, http, box + "/fork", n=1)["children"]
        return "/v1/sandboxes/" + str(children[0])
    space = beside(service, http, box + "/freeze")["space_id"]
    answer = http.post(f"/v1/spaces/{space}/resume", json={})
    assert answer.status_code == 201, answer.text
    return "/v1/sandboxes/" + str(answer.json()["id"])


@pytest.mark.parametrize("how", ["freeze", "fork"])
def test_a_loss_beside_a_freeze_or_fork_is_reported(service: Service, how: str) -> None:
    with httpx.Client(base_url=service.base, timeout=120, trust_env=False) as http:
        box = made(http)
        assert run(http, box, "x = 1") == [("exit", 0)]
        box = copied(service, http, box, how)
        lost = ("stderr", LOST % "Python")
        assert run(http, box, "print('x' in globals())") == [("stdout", "False"), lost, ("exit", 0)]


@pytest.mark.parametrize("how", ["freeze", "fork"])
@pytest.mark.parametrize("in_context", [False, True])
def test_a_call_lost_beside_a_freeze_or_fork_says_so(
    service: Service, how: str, in_context: bool
) -> None:
    with httpx.Client(base_url=service.base, timeout=120, trust_env=False) as http:
        box = made(http)
        more = {"context": http.post(box + "/contexts", json={}).json()["id"]} if in_context else {}
        code = "import time\nprint('ready', flush=True)\ntime.sleep(1000)"
        with http.stream("POST", box + "/exec", json={"code": code, **more}) as stream:
            lines = stream.iter_lines()
            assert json.loads(next(lines))["data"] == "ready"
            box = copied(service, http, box, how)
        with http.stream("GET", box + "/replay", params={"follow": 1}) as stream:
            events = map(json.loads, stream.iter_lines())
            seen = [(event["type"], event["data"]) for event in events]
        assert seen[-2:] == [("stderr", LOST % "Python"), ("exit", 137)]
