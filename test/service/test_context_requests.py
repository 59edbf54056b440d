# SPDX-License-Identifier: Apache-2.0
"""Contexts: requests that are refused."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from conftest import NOBODY, refused

NEVER = "ctx_" + 32 * "e"


@pytest.mark.parametrize("context", [NEVER, "ctx_", "x", "pty_" + 32 * "0", "ctx_" + 32 * "E"])
def test_unknown_contexts(http: httpx.Client, sandbox: str, context: str) -> None:
    refused(http.post(f"{sandbox}/exec", json={"code": "", "context": context}), 404, "no_such_context")
    path = f"{sandbox}/contexts/{context}"
    refused(http.get(path), 404, "no_such_context")
    refused(http.delete(path), 404, "no_such_context")
    refused(http.post(f"{path}/restart"), 404, "no_such_context")
    refused(http.post(f"{path}/interrupt"), 404, "no_such_context")


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
def test_bad_starts(client: httpx.Client, box: str, body: dict[str, Any], word: str) -> None:
    assert word in refused(client.post(f"{box}/contexts", json=body), 400, "bad_request")


def test_bad_execs(client: httpx.Client, box: str) -> None:
    both = {"code": "", "context": NEVER, "language": "python"}
    assert "language and context" in refused(client.post(f"{box}/exec", json=both), 400, "bad_request")
    refused(client.post(f"{box}/exec", json={"code": "", "context": 5}), 400, "bad_request")


def test_unknown_sandbox(client: httpx.Client) -> None:
    path = NOBODY + "/contexts"
    refused(client.get(path), 404, "not_found")
    refused(client.post(path, json={}), 404, "not_found")
    refused(client.post(f"{path}/{NEVER}/interrupt"), 404, "not_found")


def test_start_of_a_context_that_has_ended_at_once(client: httpx.Client, box: str) -> None:
    # The service undoes the start, which the guest refuses: there is no such context any more.
    for _ in range(2):
        gone = client.post(f"{box}/contexts", json={"cwd": "/gone"})
        assert "has ended already" in refused(gone, 404, "no_such_context")
    assert client.post(f"{box}/contexts", json={}).status_code == 201
