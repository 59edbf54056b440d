# SPDX-License-Identifier: Apache-2.0
"""Repeated requests with the same Idempotency-Key have no further effect."""

from __future__ import annotations

import socket
from typing import Any, Callable

import httpx
import pytest

from conftest import Server
from test_routes import made, refused
from test_spaces import frozen


def key(text: str) -> dict[str, str]:
    return {"idempotency-key": text}


def count(http: httpx.Client) -> int:
    return len(http.get("/v1/sandboxes").json())


def same(first: httpx.Response, again: httpx.Response) -> None:
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["content-type"] == "application/json"


def test_repeated_create_makes_one_sandbox(http: httpx.Client) -> None:
    body = {"template": "small", "metadata": {"a": 1}}
    first = http.post("/v1/sandboxes", json=body, headers=key("k-1"))
    assert first.status_code == 201
    same(first, http.post("/v1/sandboxes", json=body, headers=key("k-1")))
    assert count(http) == 1
    assert http.post("/v1/sandboxes", json=body, headers=key("k-2")).json() != first.json()
    assert http.post("/v1/sandboxes", json=body).json() != first.json()
    assert count(http) == 3


def test_repeated_fork_makes_its_children_once(http: httpx.Client, sandbox: str) -> None:
    first = http.post(sandbox + "/fork", json={"n": 3}, headers=key("fork"))
    same(first, http.post(sandbox + "/fork", json={"n": 3}, headers=key("fork")))
    assert count(http) == 4


def test_repeated_resume_is_answered_after_the_space_is_gone(http: httpx.Client) -> None:
    path = frozen(http)
    first = http.post(path + "/resume", json={}, headers=key("resume"))
    assert first.status_code == 201
    same(first, http.post(path + "/resume", json={}, headers=key("resume")))
    refused(http.post(path + "/resume", json={}), 404, "not_found")
    assert count(http) == 1


def test_repeated_freeze_is_answered_after_the_sandbox_is_gone(
    http: httpx.Client, sandbox: str
) -> None:
    first = http.post(sandbox + "/freeze", headers=key("freeze"))
    assert first.status_code == 200
    same(first, http.post(sandbox + "/freeze", headers=key("freeze")))
    refused(http.post(sandbox + "/freeze"), 404, "not_found")
    assert len(http.get("/v1/spaces").json()) == 1


def test_key_is_for_one_request(http: httpx.Client, sandbox: str) -> None:
    other = made(http)
    assert http.post(sandbox + "/fork", json={"n": 1}, headers=key("k")).status_code == 200
    for path, body in (
        (sandbox + "/fork", {"n": 2}),
        (other + "/fork", {"n": 1}),
        ("/v1/sandboxes", {"n": 1}),
    ):
        answer = http.post(path, json=body, headers=key("k"))
        assert "another request" in refused(answer, 422, "idempotency_key_reused")
    assert count(http) == 3


def test_failures_are_not_remembered(http: httpx.Client) -> None:
    full = http.post("/v1/sandboxes", json={"template": "full"}, headers=key("k"))
    refused(full, 503, "no_capacity")
    refused(http.post("/v1/sandboxes", json={"vcpus": 0}, headers=key("k")), 400, "bad_request")
    assert http.post("/v1/sandboxes", json={}, headers=key("k")).status_code == 201
    assert count(http) == 1


@pytest.mark.parametrize("bad", ["", "two words", "x" * 256, "caf\u00e9", "a\tb"])
def test_invalid_key_is_refused(http: httpx.Client, bad: str) -> None:
    answer = http.post("/v1/sandboxes", headers={b"idempotency-key": bad.encode("latin-1")})
    assert "1 to 255 printable" in refused(answer, 400, "bad_request")
    assert count(http) == 0
    assert http.post("/v1/sandboxes", json={}, headers=key("x" * 255)).status_code == 201


def test_body_size_is_limited(start: Callable[..., Server]) -> None:
    with start("read_here_bytes=1000").client() as http:
        body = b'{"metadata": {"a": "%s"}}' % (b"x" * 1000)
        answer = http.post("/v1/sandboxes", content=body, headers=key("k"))
        assert "the maximum is 1000" in refused(answer, 413, "body_too_large")
        assert http.post("/v1/sandboxes", content=body).status_code == 201


def test_other_routes_ignore_the_key(http: httpx.Client, sandbox: str) -> None:
    for code in ("out a", "out b"):
        answer = http.post(sandbox + "/exec", json={"code": code}, headers=key("k"))
        assert code[-1] in answer.text


def test_each_tenant_has_its_own_keys(start: Callable[..., Server]) -> None:
    server = start("key=pro", "key=pro")
    made = []
    with server.client() as http:
        for api_key in server.keys * 2:
            headers = key("k") | {"authorization": f"Bearer {api_key}"}
            made.append(http.post("/v1/sandboxes", json={}, headers=headers).json()["id"])
    assert made[:2] == made[2:] and made[0] != made[1]


def send(s: socket.socket, path: str, body: bytes) -> None:
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nidempotency-key: k\r\n"
    s.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)


def ask_again(http: httpx.Client, path: str, body: Any) -> httpx.Response:
    """Repeats the request like a client that is asked to wait, without waiting."""
    while True:
        answer = http.post(path, json=body, headers=key("k"))
        if answer.status_code != 409:
            return answer
        refused(answer, 409, "idempotency_key_in_use")


def test_repeat_during_the_first_request_has_to_wait(server: Server) -> None:
    body = {"template": "held"}
    with server.client() as http, server.connect() as first:
        send(first, "/v1/sandboxes", b'{"template":"held"}')
        server.wait(lambda f: f["ramet_blank_vms_ready"] == 1)
        answer = http.post(
            "/v1/sandboxes", content=b'{"template":"held"}', headers=key("k")
        )
        assert "still running" in refused(answer, 409, "idempotency_key_in_use")
        assert answer.headers["retry-after"] == "1"
        assert http.post("/v1/sandboxes", json=body | {"vcpus": 1}, headers=key("k")).status_code == 422
        made(http, "release")
        assert b" 201 " in first.recv(1000)
        again = http.post("/v1/sandboxes", content=b'{"template":"held"}', headers=key("k"))
        assert (again.status_code, again.headers["idempotent-replayed"]) == (201, "true")
        assert count(http) == 2


def test_create_whose_client_left_frees_its_key(server: Server) -> None:
    with server.client() as http:
        with server.connect() as first:
            send(first, "/v1/sandboxes", b'{"template": "held"}')
            server.wait(lambda f: f["ramet_blank_vms_ready"] == 1)
        server.wait(lambda f: f["ramet_blank_vms_ready"] == 0)
        answer = ask_again(http, "/v1/sandboxes", {})
        assert answer.status_code == 201 and "idempotent-replayed" not in answer.headers
        assert count(http) == 1


def test_resume_whose_client_left_frees_its_key(server: Server) -> None:
    with server.client() as http:
        path = frozen(http, template="sleepy")
        with server.connect() as first:
            send(first, path + "/resume", b"{}")
            server.wait(lambda f: f["ramet_blank_vms_ready"] == 1)
        server.wait(lambda f: f["ramet_blank_vms_ready"] == 0)
        assert http.get(path).json()["state"] == "frozen"
        with server.connect() as second:
            send(second, path + "/resume", b"{}")
            server.wait(lambda f: f["ramet_blank_vms_ready"] == 1)
            made(http, "release")
            answer = second.recv(1000)
        assert b" 201 " in answer and b"idempotent-replayed" not in answer
        assert count(http) == 2


def leave_freeze(server: Server, http: httpx.Client) -> str:
    """Begins a freeze that waits, and leaves; returns its path."""
    path = made(http, "drowsy") + "/freeze"
    with server.connect() as first:
        send(first, path, b"")
        server.wait(lambda f: f["ramet_blank_vms_ready"] == 1)
    # The unread answer (499) is counted once the service has noticed that the client left.
    server.wait(lambda f: any("/freeze" in n and "4xx" in n for n in f))
    assert server.metrics()["ramet_blank_vms_ready"] == 1
    return path


def test_freeze_whose_client_left_continues(server: Server) -> None:
    with server.client() as http:
        path = leave_freeze(server, http)
        refused(http.post(path, headers=key("k")), 409, "idempotency_key_in_use")
        made(http, "release")
        answer = http.post(path, headers=key("k"))
        assert (answer.status_code, answer.headers["idempotent-replayed"]) == (200, "true")
        assert [one["id"] for one in http.get("/v1/spaces").json()] == [answer.json()["space_id"]]
        assert server.metrics()["ramet_vm_deaths_total"] == 0


def test_continuing_freeze_ends_with_the_service(server: Server) -> None:
    with server.client() as http:
        leave_freeze(server, http)


ONLY = {"idempotent-replay": "only"}


def test_answer_can_be_asked_for_without_performing_the_request(server: Server) -> None:
    with server.client() as http, server.connect() as first:
        first_create = http.post("/v1/sandboxes", json={}, headers=key("done"))
        same(first_create, http.post("/v1/sandboxes", json={}, headers=key("done") | ONLY))
        send(first, "/v1/sandboxes", b'{"template":"held"}')
        server.wait(lambda f: f["ramet_blank_vms_ready"] == 1)
        held = http.post(
            "/v1/sandboxes", content=b'{"template":"held"}', headers=key("k") | ONLY
        )
        refused(held, 409, "idempotency_key_in_use")
        for _ in range(2):
            unknown = http.post("/v1/sandboxes", json={}, headers=key("other") | ONLY)
            assert "has succeeded" in refused(unknown, 404, "no_such_answer")
        assert count(http) == 1
        assert http.post("/v1/sandboxes", json={}, headers=key("other")).status_code == 201
        answer = http.post("/v1/sandboxes", json={}, headers=ONLY)
        assert "needs the Idempotency-Key" in refused(answer, 400, "bad_request")
