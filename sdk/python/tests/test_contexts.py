# SPDX-License-Identifier: Apache-2.0
"""Contexts of the SDK against a fake service."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

import ramet
from ramet import Client, Sandbox

SBX, CTX = "sbx_" + "0" * 32, "ctx_" + "1" * 32
INFO = {
    "id": CTX, "language": "bash", "cwd": "/tmp", "busy": True,
    "started_at": "2026-01-31T23:59:59.123Z",
}  # fmt: skip


class Service:
    """A fake service that notes the requests."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, Any]] = []
        self.refusal: httpx.Response | None = None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix(f"/v1/sandboxes/{SBX}")
        if path == "/v1/sandboxes":
            return httpx.Response(201, json={"id": SBX, "state": "ready"})
        body = json.loads(request.content) if request.content else None
        self.requests.append((f"{request.method} {path}", body))
        if self.refusal:
            return self.refusal
        if path == "/exec":
            events = [
                {"type": "stdout", "data": "a\n", "seq": 1, "ts": 1, "context": CTX},
                {"type": "stderr", "data": "b", "seq": 2, "ts": 1, "context": CTX},
                {"type": "exit", "data": 3, "seq": 3, "ts": 1, "context": CTX},
            ]
            return httpx.Response(200, content="\n".join(map(json.dumps, events)))
        if path == "/contexts" and request.method == "GET":
            return httpx.Response(200, json=[INFO])
        if path.endswith(("/restart", "/interrupt")) or request.method == "DELETE":
            return httpx.Response(204)
        return httpx.Response(201 if request.method == "POST" else 200, json=INFO)


def sandbox(service: Service) -> Sandbox:
    return Sandbox(client=Client(transport=httpx.MockTransport(service)))


def test_create_run_restart_delete() -> None:
    service = Service()
    sbx = sandbox(service)
    shell = sbx.contexts.create("bash", cwd="/tmp", env={"A": "b"})
    assert (shell.id, shell.language, shell.cwd) == (CTX, "bash", "/tmp")
    result = shell.run_code("echo a", timeout_seconds=2.5, env={"C": "d"}, cwd="/")
    assert (result.stdout, result.stderr, result.exit_code) == ("a\n", "b", 3)
    assert [event.type for event in shell.run_code_stream("x")] == ["stdout", "stderr", "exit"]
    assert shell.info().busy
    shell.interrupt()
    shell.restart()
    shell.delete()
    assert service.requests == [
        ("POST /contexts", {"language": "bash", "cwd": "/tmp", "env": {"A": "b"}}),
        (
            "POST /exec",
            {
                "code": "echo a", "context": CTX, "output": "chunks", "timeout_seconds": 2.5,
                "env": {"C": "d"}, "cwd": "/",
            },
        ),
        ("POST /exec", {"code": "x", "context": CTX, "output": "chunks"}),
        (f"GET /contexts/{CTX}", None),
        (f"POST /contexts/{CTX}/interrupt", None),
        (f"POST /contexts/{CTX}/restart", None),
        (f"DELETE /contexts/{CTX}", None),
    ]  # fmt: skip


def test_list_and_attach() -> None:
    service = Service()
    contexts = sandbox(service).contexts
    (one,) = contexts.list()
    assert (one.id, one.language) == (CTX, "bash")
    assert contexts.attach(CTX).cwd == "/tmp"
    assert contexts.create().id == CTX
    assert service.requests[-1] == ("POST /contexts", {"language": "python"})


@pytest.mark.parametrize(
    "status, code, error",
    [
        (404, "no_such_context", ramet.NotFound),
        (409, "not_installed", ramet.Conflict),
        (400, "bad_path", ramet.BadRequest),
    ],
)
def test_refusals(status: int, code: str, error: type[Exception]) -> None:
    service = Service()
    contexts = sandbox(service).contexts
    service.refusal = httpx.Response(status, json={"error": "a sentence", "code": code})
    with pytest.raises(error, match="a sentence"):
        contexts.create("javascript")


def test_calls_without_a_context_name_their_language() -> None:
    service = Service()
    sandbox(service).run_code("x")
    assert service.requests[0][1] == {
        "code": "x", "language": "python", "output": "chunks", "results": True,
    }  # fmt: skip
