# SPDX-License-Identifier: Apache-2.0
"""Repeated requests with the same Idempotency-Key have no further effect."""

from __future__ import annotations

import secrets
import socket
from typing import Any, Callable

import httpx
import pytest

from conftest import Service, made, refused
from stand_in import pause
from test_spaces import frozen


nonce = ""


@pytest.fixture(autouse=True)
def new_keys() -> None:
    """Gives each test its own keys, since the server remembers those of the tests before."""
    global nonce
    nonce = secrets.token_hex(8)


def key(text: str) -> dict[str, str]:
    return {"idempotency-key": f"{nonce}-{text}"}


def count(client: httpx.Client) -> int:
    return len(client.get("/v1/sandboxes").json())


def same(first: httpx.Response, again: httpx.Response) -> None:
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["content-type"] == "application/json"


def test_repeated_create_makes_one_sandbox(client: httpx.Client) -> None:
    body = {"vcpus": 1, "metadata": {"a": 1}}
    first = client.post("/v1/sandboxes", json=body, headers=key("k-1"))
    assert first.status_code == 201
    same(first, client.post("/v1/sandboxes", json=body, headers=key("k-1")))
    assert count(client) == 1
    assert client.post("/v1/sandboxes", json=body, headers=key("k-2")).json() != first.json()
    assert client.post("/v1/sandboxes", json=body).json() != first.json()
    assert count(client) == 3


def test_repeated_fork_makes_its_children_once(client: httpx.Client, box: str) -> None:
    first = client.post(box + "/fork", json={"n": 3}, headers=key("fork"))
    same(first, client.post(box + "/fork", json={"n": 3}, headers=key("fork")))
    assert count(client) == 4


def test_repeated_resume_is_answered_after_the_space_is_gone(client: httpx.Client) -> None:
    path = frozen(client)
    first = client.post(path + "/resume", json={}, headers=key("resume"))
    assert first.status_code == 201
    same(first, client.post(path + "/resume", json={}, headers=key("resume")))
    refused(client.post(path + "/resume", json={}), 404, "not_found")
    assert count(client) == 1


def test_repeated_freeze_is_answered_after_the_sandbox_is_gone(
    client: httpx.Client, box: str
) -> None:
    first = client.post(box + "/freeze", headers=key("freeze"))
    assert first.status_code == 200
    same(first, client.post(box + "/freeze", headers=key("freeze")))
    refused(client.post(box + "/freeze"), 404, "frozen")
    assert len(client.get("/v1/spaces").json()) == 1


def test_key_is_for_one_request(client: httpx.Client, box: str) -> None:
    other = made(client)
    assert client.post(box + "/fork", json={"n": 1}, headers=key("k")).status_code == 200
    for path, body in (
        (box + "/fork", {"n": 2}),
        (other + "/fork", {"n": 1}),
        ("/v1/sandboxes", {"n": 1}),
    ):
        answer = client.post(path, json=body, headers=key("k"))
        assert "another request" in refused(answer, 422, "idempotency_key_reused")
    assert count(client) == 3


def test_failures_are_not_remembered(client: httpx.Client, server: Service, box: str) -> None:
    server.tell("fault fork 1")
    failed = client.post(box + "/fork", json={"n": 1}, headers=key("k"))
    refused(failed, 503, "fork_failed")
    refused(client.post("/v1/sandboxes", json={"vcpus": 0}, headers=key("k")), 400, "bad_request")
    assert client.post("/v1/sandboxes", json={}, headers=key("k")).status_code == 201
    assert count(client) == 2


@pytest.mark.parametrize("bad", ["", "two words", "x" * 256, "caf\u00e9", "a\tb"])
def test_invalid_key_is_refused(client: httpx.Client, bad: str) -> None:
    answer = client.post("/v1/sandboxes", headers={b"idempotency-key": bad.encode("latin-1")})
    assert "1 to 255 printable" in refused(answer, 400, "bad_request")
    assert count(client) == 0
    assert client.post("/v1/sandboxes", json={}, headers=key("x" * (254 - len(nonce)))).status_code == 201


def test_body_size_is_limited(start: Callable[..., Service]) -> None:
    with start("read_here_bytes=1000").client() as http:
        body = b'{"metadata": {"a": "%s"}}' % (b"x" * 1000)
        answer = http.post("/v1/sandboxes", content=body, headers=key("k"))
        assert "the maximum is 1000" in refused(answer, 413, "body_too_large")
        assert http.post("/v1/sandboxes", content=body).status_code == 201


def test_other_routes_ignore_the_key(client: httpx.Client, box: str) -> None:
    for code in ("out a", "out b"):
        answer = client.post(box + "/exec", json={"code": code}, headers=key("k"))
        assert code[-1] in answer.text


def test_each_tenant_has_its_own_keys(start: Callable[..., Service]) -> None:
    server = start("key=pro", "key=pro")
    made = []
    with server.client() as http:
        for api_key in server.keys * 2:
            headers = key("k") | {"authorization": f"Bearer {api_key}"}
            made.append(http.post("/v1/sandboxes", json={}, headers=headers).json()["id"])
    assert made[:2] == made[2:] and made[0] != made[1]


def send(s: socket.socket, path: str, body: bytes) -> None:
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nidempotency-key: {key('k')['idempotency-key']}\r\n"
    s.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)


def ask_again(client: httpx.Client, path: str, body: Any) -> httpx.Response:
    """Repeats the request like a client that is asked to wait, without waiting."""
    while True:
        answer = client.post(path, json=body, headers=key("k"))
        if answer.status_code != 409:
            return answer
        refused(answer, 409, "idempotency_key_in_use")
        pause()


def test_repeat_during_the_first_request_has_to_wait(client: httpx.Client, server: Service) -> None:
    server.tell("fault seed_wait 1")
    with server.connect() as first:
        send(first, "/v1/sandboxes", b"{}")
        server.until_waiting(1)
        answer = client.post("/v1/sandboxes", content=b"{}", headers=key("k"))
        assert "still running" in refused(answer, 409, "idempotency_key_in_use")
        assert answer.headers["retry-after"] == "1"
        other = client.post("/v1/sandboxes", json={"vcpus": 1}, headers=key("k"))
        refused(other, 422, "idempotency_key_reused")
        server.go()
        assert b" 201 " in first.recv(1000)
    again = client.post("/v1/sandboxes", content=b"{}", headers=key("k"))
    assert (again.status_code, again.headers["idempotent-replayed"]) == (201, "true")
    assert count(client) == 1


def test_create_whose_client_left_frees_its_key(client: httpx.Client, server: Service) -> None:
    server.tell("fault seed_wait 1")
    with server.connect() as first:
        send(first, "/v1/sandboxes", b"{}")
        server.until_waiting(1)
    server.until_idle()
    answer = ask_again(client, "/v1/sandboxes", {})
    assert answer.status_code == 201 and "idempotent-replayed" not in answer.headers
    assert count(client) == 1


def test_resume_whose_client_left_frees_its_key(client: httpx.Client, server: Service) -> None:
    path = frozen(client)
    server.tell("fault seed_wait 1")
    with server.connect() as first:
        send(first, path + "/resume", b"{}")
        server.until_waiting(1)
    server.until_idle()
    assert client.get(path).json()["state"] == "frozen"
    answer = ask_again(client, path + "/resume", {})
    assert answer.status_code == 201 and "idempotent-replayed" not in answer.headers
    assert count(client) == 1


def leave_freeze(server: Service, http: httpx.Client) -> str:
    """Begins a freeze that waits, and leaves; returns its path."""
    path = made(http) + "/freeze"
    server.tell("fault fork_wait 1")
    with server.connect() as first:
        send(first, path, b"")
        server.until_waiting(1)
    # The unread answer (499) is counted once the service has noticed that the client left.
    server.wait(lambda f: any("/freeze" in n and "4xx" in n for n in f))
    assert server.tell("waiting") == "1"
    return path


def test_freeze_whose_client_left_continues(start: Callable[..., Service]) -> None:
    server = start()
    with server.client() as http:
        path = leave_freeze(server, http)
        refused(http.post(path, headers=key("k")), 409, "idempotency_key_in_use")
        server.go()
        answer = ask_again(http, path, None)
        assert (answer.status_code, answer.headers["idempotent-replayed"]) == (200, "true")
        assert [one["id"] for one in http.get("/v1/spaces").json()] == [answer.json()["space_id"]]
        assert count(http) == 0


def test_continuing_freeze_ends_with_the_service(start: Callable[..., Service]) -> None:
    server = start()
    with server.client() as http:
        leave_freeze(server, http)
    server.stop()


ONLY = {"idempotent-replay": "only"}


def test_answer_can_be_asked_for_without_performing_the_request(
    client: httpx.Client, server: Service
) -> None:
    first_create = client.post("/v1/sandboxes", json={}, headers=key("done"))
    same(first_create, client.post("/v1/sandboxes", json={}, headers=key("done") | ONLY))
    with server.connect() as first:
        server.tell("fault seed_wait 1")
        send(first, "/v1/sandboxes", b"{}")
        server.until_waiting(1)
        held = client.post("/v1/sandboxes", content=b"{}", headers=key("k") | ONLY)
        refused(held, 409, "idempotency_key_in_use")
        for _ in range(2):
            unknown = client.post("/v1/sandboxes", json={}, headers=key("other") | ONLY)
            assert "has succeeded" in refused(unknown, 404, "no_such_answer")
        assert count(client) == 1
        server.go()
        assert b" 201 " in first.recv(1000)
    assert client.post("/v1/sandboxes", json={}, headers=key("other")).status_code == 201
    answer = client.post("/v1/sandboxes", json={}, headers=ONLY)
    assert "needs the Idempotency-Key" in refused(answer, 400, "bad_request")
    for value in ("Only", "true", ""):
        answer = client.post("/v1/sandboxes", json={}, headers=key("new") | {"idempotent-replay": value})
        assert 'must be "only"' in refused(answer, 400, "bad_request")
        answer = client.post("/v1/sandboxes", json={}, headers=key("new") | {"idempotency-attempt": value})
        assert 'Idempotency-Attempt must be "first"' in refused(answer, 400, "bad_request")
    assert count(client) == 3
