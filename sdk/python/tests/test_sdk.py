# SPDX-License-Identifier: Apache-2.0
"""The SDK against answers made by hand: what it sends, what it makes of what comes."""

from __future__ import annotations

import base64
import json
from typing import Any, Callable, Iterator

import httpx
import pytest

import ramet
from ramet import Client, Sandbox

SBX = "sbx_" + "0" * 32
Handler = Callable[[httpx.Request], httpx.Response]


def client_for(handler: Handler) -> Client:
    return Client(transport=httpx.MockTransport(handler))


def ndjson(*events: dict[str, Any]) -> httpx.Response:
    return httpx.Response(200, content="".join(json.dumps(e) + "\n" for e in events).encode())


def service(exec_answer: httpx.Response) -> Handler:
    """Creates and deletes a sandbox; every exec gets the same answer."""

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/exec"):
            return exec_answer
        if request.method == "POST":
            return httpx.Response(201, json={"id": SBX, "state": "ready"})
        return httpx.Response(204)

    return handle


def test_text_is_exact() -> None:
    answer = ndjson(
        {"type": "stdout", "data": "still ", "seq": 1, "ts": 5},
        {"type": "stdout", "data": "alive\n", "seq": 2, "ts": 5},
        {"type": "stderr", "data": "warning", "seq": 3, "ts": 5},
        {"type": "exit", "data": 3, "seq": 4, "ts": 6},
    )
    with Sandbox(client=client_for(service(answer))) as sbx:
        result = sbx.run_code("whatever")
    assert result == ramet.ExecResult("still alive\n", "warning", 3)
    assert not result.ok


def test_a_character_split_over_two_chunks_is_whole_again() -> None:
    euro = "€".encode()
    chunks = [euro[:1], euro[1:]]
    answer = ndjson(
        *(
            {"type": "stdout", "data": "\ufffd", "data_b64": base64.b64encode(c).decode(),
             "seq": i, "ts": 0}
            for i, c in enumerate(chunks)
        ),
        {"type": "exit", "data": 0, "seq": 9, "ts": 0},
    )
    sbx = Sandbox(client=client_for(service(answer)))
    assert sbx.run_code("x").stdout == "€"


def test_only_newlines_split_the_stream_and_empty_lines_are_skipped() -> None:
    line = json.dumps({"type": "stdout", "data": "a\u2028b", "seq": 1, "ts": 0}, ensure_ascii=False)
    end = json.dumps({"type": "exit", "data": 0, "seq": 2, "ts": 0})

    def pieces() -> Iterator[bytes]:
        body = f"\n{line}\n\n{end}\n".encode()
        for i in range(0, len(body), 7):
            yield body[i : i + 7]

    sbx = Sandbox(client=client_for(service(httpx.Response(200, content=pieces()))))
    assert sbx.run_code("x").stdout == "a\u2028b"


def test_a_stream_without_exit_is_an_error() -> None:
    answer = ndjson({"type": "stdout", "data": "half", "seq": 1, "ts": 0})
    sbx = Sandbox(client=client_for(service(answer)))
    with pytest.raises(ramet.ConnectionFailed, match="exit event"):
        sbx.run_code("x")


def test_a_death_in_mid_stream_is_typed() -> None:
    answer = ndjson(
        {"type": "stdout", "data": "half", "seq": 1, "ts": 0},
        {"type": "error", "data": "the VM died", "code": "vm_died", "seq": 2, "ts": 0},
    )
    sbx = Sandbox(client=client_for(service(answer)))
    with pytest.raises(ramet.VmDied, match="the VM died"):
        sbx.run_code("x")


def test_what_create_sends() -> None:
    sent: list[dict[str, Any]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        return httpx.Response(200, json={"id": SBX, "state": "ready"})

    Sandbox(client=client_for(handle), ram_mib=1024, env={"A": "b"})
    assert sent == [{"ram_mib": 1024, "env": {"A": "b"}}]


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "bad_field", ramet.BadRequest),
        (401, "unauthorized", ramet.Unauthorized),
        (404, "not_found", ramet.NotFound),
        (404, "expired", ramet.Expired),
        (409, "wrong_state", ramet.Conflict),
        (410, "vm_died", ramet.VmDied),
        (413, "too_large", ramet.BadRequest),
        (429, "cap_reached", ramet.CapReached),
        (500, "internal", ramet.ServerError),
        (503, "no_capacity", ramet.Unavailable),
    ],
)
def test_errors_are_typed(status: int, code: str, kind: type[ramet.RametError]) -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        return httpx.Response(
            status, json={"error": "a sentence", "code": code}, headers={"retry-after": "7"}
        )

    with pytest.raises(kind) as caught:
        client_for(handle).get_sandbox(SBX)
    assert type(caught.value) is kind
    assert str(caught.value) == "a sentence"
    assert (caught.value.status, caught.value.code, caught.value.retry_after) == (status, code, 7)


def test_an_answer_that_is_not_ours_is_quoted() -> None:
    with pytest.raises(ramet.ServerError, match="HTTP 502: <html>"):
        client_for(lambda r: httpx.Response(502, text="<html>")).get_sandbox(SBX)


def test_no_service_names_the_address() -> None:
    client = Client("http://127.0.0.1:9")
    with pytest.raises(ramet.ConnectionFailed, match="http://127.0.0.1:9"):
        client.list_sandboxes()
    assert client.healthz() is False


def test_host_and_key_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAMET_HOST", "http://10.1.2.3:81/")
    monkeypatch.setenv("RAMET_API_KEY", "secret")
    seen: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.extend([str(request.url), request.headers["authorization"]])
        return httpx.Response(200, json=[])

    client_for(handle).list_sandboxes()
    assert seen == ["http://10.1.2.3:81/v1/sandboxes", "Bearer secret"]


def test_close_is_idempotent_and_fine_when_the_sandbox_is_gone() -> None:
    deletes: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        if request.method == "DELETE":
            deletes.append(request.url.path)
            return httpx.Response(404, json={"error": "no such sandbox", "code": "not_found"})
        return httpx.Response(200, json={"id": SBX, "state": "ready"})

    sbx = Sandbox(client=client_for(handle))
    sbx.close()
    sbx.close()
    assert deletes == [f"/v1/sandboxes/{SBX}"]


def test_an_id_cannot_change_the_path() -> None:
    paths: list[bytes] = []

    def handle(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.raw_path)
        return httpx.Response(200, json={"id": SBX, "state": "ready"})

    client_for(handle).get_sandbox("../../metrics?x")
    assert paths == [b"/v1/sandboxes/..%2F..%2Fmetrics%3Fx"]
