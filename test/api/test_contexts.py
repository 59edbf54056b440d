# SPDX-License-Identifier: Apache-2.0
"""Contexts at the HTTP level."""

from __future__ import annotations

import json
from typing import Any, Iterator

import httpx
import pytest

def fails(answer: httpx.Response, status: int, code: str) -> str:
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    return str(answer.json()["error"])

NOBODY = "ctx_" + 32 * "e"


@pytest.fixture
def box(http: httpx.Client, sandbox: str) -> Iterator[str]:
    """A sandbox; its contexts, which all sandboxes of the fake share, are deleted at the end."""
    yield sandbox
    for one in http.get(f"{sandbox}/contexts").json():
        http.delete(f"{sandbox}/contexts/{one['id']}")


def create(http: httpx.Client, box: str, **fields: Any) -> dict[str, Any]:
    answer = http.post(f"{box}/contexts", json=fields)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def test_start_list_get_restart_delete(http: httpx.Client, box: str) -> None:
    assert http.get(f"{box}/contexts").json() == []
    made = create(http, box, language="bash", cwd="/tmp/\u00e4")
    assert set(made) == {"id", "language", "cwd", "busy", "started_at"}
    assert (made["language"], made["cwd"], made["busy"]) == ("bash", "/tmp/\u00e4", False)
    other = create(http, box)
    assert (other["language"], other["cwd"]) == ("python", None)
    listed = http.get(f"{box}/contexts").json()
    assert [one["id"] for one in listed] == [made["id"], other["id"]]
    assert listed[0]["started_at"] == "2023-11-14T22:13:20.123Z"
    path = f"{box}/contexts/{made['id']}"
    assert http.get(path).json() == listed[0]
    assert http.post(f"{path}/restart").status_code == 204
    assert http.post(f"{path}/interrupt").status_code == 204
    assert http.delete(path).status_code == 204
    fails(http.get(path), 404, "no_such_context")
    assert http.get(f"{box}/contexts").json() == [listed[1]]


def test_exec_in_a_context(http: httpx.Client, box: str) -> None:
    one = create(http, box, language="bash")["id"]
    answer = http.post(f"{box}/exec", json={"code": "out hello", "context": one})
    events = [json.loads(line) for line in answer.text.splitlines() if line]
    assert [event["data"] for event in events] == ["hello", 0]
    assert [event["context"] for event in events] == [one, one]
    answer = http.post(f"{box}/exec", json={"code": "out hello"})
    assert "context" not in answer.text


@pytest.mark.parametrize("context", [NOBODY, "ctx_", "x", "pty_" + 32 * "0", "ctx_" + 32 * "E"])
def test_unknown_contexts(http: httpx.Client, box: str, context: str) -> None:
    fails(http.post(f"{box}/exec", json={"code": "", "context": context}), 404, "no_such_context")
    path = f"{box}/contexts/{context}"
    fails(http.get(path), 404, "no_such_context")
    fails(http.delete(path), 404, "no_such_context")
    fails(http.post(f"{path}/restart"), 404, "no_such_context")
    fails(http.post(f"{path}/interrupt"), 404, "no_such_context")


@pytest.mark.parametrize(
    "body, word",
    [
        ({"language": "ruby"}, "ruby"),
        ({"language": 5}, "language"),
        ({"language": ""}, "language"),
        ({"cwd": 1}, "cwd"),
        ({"cwd": "/" + 5000 * "x"}, "cwd"),
        ({"env": {"A=B": "c"}}, "env"),
        ({"env": ["A"]}, "env"),
    ],
)
def test_bad_starts(http: httpx.Client, box: str, body: dict[str, Any], word: str) -> None:
    assert word in fails(http.post(f"{box}/contexts", json=body), 400, "bad_request")


def test_bad_execs(http: httpx.Client, box: str) -> None:
    both = {"code": "", "context": NOBODY, "language": "python"}
    assert "language and context" in fails(http.post(f"{box}/exec", json=both), 400, "bad_request")
    fails(http.post(f"{box}/exec", json={"code": "", "context": 5}), 400, "bad_request")


def test_failures_of_a_start(http: httpx.Client, box: str) -> None:
    path = f"{box}/contexts"
    fails(http.post(path, json={"language": "javascript"}), 409, "not_installed")
    assert "/nosuch" in fails(http.post(path, json={"cwd": "/nosuch"}), 400, "bad_path")
    for _ in range(3):
        create(http, box)
    fails(http.post(path, json={}), 429, "too_many")


def test_unknown_sandbox(http: httpx.Client) -> None:
    path = "/v1/sandboxes/sbx_" + 32 * "0" + "/contexts"
    fails(http.get(path), 404, "not_found")
    fails(http.post(path, json={}), 404, "not_found")
    fails(http.post(f"{path}/{NOBODY}/interrupt"), 404, "not_found")
