# SPDX-License-Identifier: Apache-2.0
"""Access control once there are keys."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from pathlib import Path
from typing import Any, Callable, Iterator

import httpx
import pytest

from conftest import Service
from routes import with_ids
from test_tls import certificate as certificate


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A server with the keys of two tenants and of an operator."""
    started = Service(tmp_path_factory.mktemp("keyed"), "pro", "free", "operator", agent=False)
    yield started
    started.stop()


@pytest.fixture
def client(keyed: Service) -> Iterator[httpx.Client]:
    with keyed.client() as http:
        yield http


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def refused(answer: httpx.Response, code: str) -> str:
    assert (answer.status_code, answer.json()["code"]) == (401, code), answer.text
    assert answer.headers["www-authenticate"] == "Bearer"
    return str(answer.json()["error"])


def test_key_is_required(keyed: Service, client: httpx.Client) -> None:
    assert "send Authorization: Bearer KEY" in refused(client.get("/v1/sandboxes"), "key_missing")
    for value in ("", "Bearer", "Basic dTpw", keyed.keys[0], f"Bear {keyed.keys[0]}"):
        answer = client.get("/v1/sandboxes", headers={"authorization": value})
        sentence = refused(answer, "key_missing")
        assert "must have the form Bearer KEY" in sentence
        assert keyed.keys[0] not in sentence
    assert client.get("/v1/healthz").text == "ok"


def test_valid_key_is_served(keyed: Service, client: httpx.Client) -> None:
    for scheme in ("Bearer ", "bearer ", "BEARER   "):
        headers = {"authorization": scheme + keyed.keys[0]}
        assert client.get("/v1/sandboxes", headers=headers).status_code == 200


def test_mistyped_key_differs_from_an_unknown_one(keyed: Service, client: httpx.Client) -> None:
    key = keyed.keys[0]
    typos = [key[:-1], key + "0", key[1:], key.swapcase(), "rmt_" + "0" * 38, "x" * 5000]
    typos += [key[:i] + ("0" if key[i] != "0" else "1") + key[i + 1 :] for i in range(len(key))]
    for typo in typos:
        refused(client.get("/v1/sandboxes", headers=bearer(typo)), "key_malformed")


def test_key_of_another_host_is_unknown(
    keyed: Service, client: httpx.Client, start: Callable[..., Service]
) -> None:
    other = start("key=pro").keys[0]
    refused(client.get("/v1/sandboxes", headers=bearer(other)), "key_unknown")


def test_every_route_except_health_needs_a_key(keyed: Service, client: httpx.Client) -> None:
    spec = client.get("/v1/openapi.json", headers=bearer(keyed.keys[0])).json()
    asked = 0
    for path, methods in spec["paths"].items():
        path = with_ids(path, lambda kind: f"{kind}_" + "0" * 32)
        for method in methods.keys() & {"get", "put", "post", "patch", "delete"}:
            answer = client.request(method, path, content=b"{}")
            if path in ("/v1/healthz", "/livez", "/readyz"):
                assert answer.status_code == 200
            else:
                refused(answer, "key_missing")
                asked += 1
    assert asked > 20


def test_metrics_are_for_operators_only(keyed: Service, client: httpx.Client) -> None:
    for key in keyed.keys[:2]:
        answer = client.get("/metrics", headers=bearer(key))
        assert (answer.status_code, answer.json()["code"]) == (403, "operators_only")
    assert "ramet_sandboxes" in client.get("/metrics", headers=bearer(keyed.keys[2])).text


@pytest.fixture
def revoked(start: Callable[..., Service]) -> Service:
    """A server with the keys of two tenants, of which a test revokes the first."""
    return start("key=pro", "key=free")


def test_revoked_key_is_refused(revoked: Service) -> None:
    first, second = map(bearer, revoked.keys)
    with revoked.client() as http:
        assert http.get("/v1/sandboxes", headers=first).status_code == 200
        revoked.tell("revoke")
        refused(http.get("/v1/sandboxes", headers=first), "key_revoked")
        assert http.get("/v1/sandboxes", headers=second).status_code == 200


def of_tenant(http: httpx.Client, key: str) -> str:
    """Creates a sandbox of the tenant; returns its path."""
    made = http.post("/v1/sandboxes", headers=bearer(key))
    assert made.status_code == 201, made.text
    return "/v1/sandboxes/" + str(made.json()["id"])


@pytest.mark.parametrize("http2", [False, True])
def test_streams_of_a_revoked_key_are_cut(revoked: Service, http2: bool) -> None:
    script: Any = {"code": "out here\nwait"}
    with revoked.client(http2=http2) as http, revoked.client(http2=http2) as other:
        mine, theirs = (of_tenant(http, key) + "/exec" for key in revoked.keys)
        first, second = map(bearer, revoked.keys)
        with other.stream("POST", theirs, json=script, headers=second) as others:
            lines = others.iter_lines()
            assert "here" in next(lines)
            with pytest.raises(httpx.RemoteProtocolError):
                with http.stream("POST", mine, json=script, headers=first) as own:
                    for line in own.iter_lines():
                        if "here" in line:
                            revoked.tell("revoke")
            revoked.go(2)
            assert "exit" in list(lines)[-1]


def test_waiting_call_is_answered_when_its_key_is_revoked(revoked: Service) -> None:
    def revoke() -> None:
        revoked.until_waiting(1)
        revoked.tell("revoke")

    revoked.tell("fault seed_wait 1")
    revoker = threading.Thread(target=revoke)
    revoker.start()
    with revoked.client() as http:
        answer = http.post("/v1/sandboxes", json={}, headers=bearer(revoked.keys[0]))
        refused(answer, "key_revoked")
    revoker.join()


def test_web_pages_are_refused_only_without_keys(keyed: Service, client: httpx.Client) -> None:
    headers = bearer(keyed.keys[0]) | {"origin": "https://example.org", "host": "example.org"}
    assert client.get("/v1/sandboxes", headers=headers).status_code == 200


# --- listeners reachable from other machines ---


def test_public_listener_needs_keys_and_tls(
    start: Callable[..., Service], certificate: tuple[Path, Path]
) -> None:
    tls = [f"tls_cert={certificate[0]}", f"tls_key={certificate[1]}"]
    with pytest.raises(AssertionError, match="there is no key"):
        start("listen_host=0.0.0.0", *tls)
    with pytest.raises(AssertionError, match="set tls_cert and tls_key"):
        start("listen_host=0.0.0.0", "key=pro")
    server = start("listen_host=0.0.0.0", "key=pro", *tls)
    answer = httpx.get(
        f"https://127.0.0.1:{server.port}/v1/sandboxes",
        headers=bearer(server.keys[0]),
        verify=ssl.create_default_context(cafile=str(certificate[0])),
        trust_env=False,
    )
    assert answer.json() == []


def test_proxy_may_terminate_tls(start: Callable[..., Service]) -> None:
    server = start("listen_host=0.0.0.0", "key=pro", "allow_open=yes")
    with server.client() as http:
        refused(http.get("/v1/sandboxes"), "key_missing")
        assert http.get("/v1/sandboxes", headers=bearer(server.keys[0])).json() == []


# --- shared resources ---


@contextlib.contextmanager
def held_calls(server: Service, n: int, code: str) -> Iterator[str]:
    """Calls of the first tenant that wait for `go`; yields the path of one more sandbox."""
    with server.client() as http, contextlib.ExitStack() as stack:
        one_more = of_tenant(http, server.keys[0])
        body = json.dumps({"code": code})
        for _ in range(n):
            head = f"POST {of_tenant(http, server.keys[0])}/exec HTTP/1.1\r\nhost: localhost\r\n"
            head += f"authorization: Bearer {server.keys[0]}\r\ncontent-length: {len(body)}\r\n\r\n"
            held = stack.enter_context(server.connect())
            held.sendall((head + body).encode())
            assert held.recv(4096).startswith(b"HTTP/1.1 200")
        yield one_more


def test_requests_of_one_tenant_leave_room_for_others(start: Callable[..., Service]) -> None:
    server = start("key=pro", "key=pro", "requests=16")
    first, second = map(bearer, server.keys)
    with server.client() as http, held_calls(server, 8, "out on\nwait"):
        answer = http.get("/v1/sandboxes", headers=first)
        assert (answer.status_code, answer.json()["code"]) == (429, "too_many")
        assert int(answer.headers["retry-after"]) >= 1
        assert http.get("/v1/sandboxes", headers=second).status_code == 200


def test_bodies_of_one_tenant_leave_room_for_others(start: Callable[..., Service]) -> None:
    server = start("key=pro", "key=pro", "bodies_bytes=800000")
    first, second = map(bearer, server.keys)
    held = held_calls(server, 3, "out on\nwait\n" + "x" * 120_000)
    with server.client() as http, held as path:
        theirs = of_tenant(http, server.keys[1])
        large = {"code": "x" * 60_000 + "\nexit 0"}
        answer = http.post(path + "/exec", json=large, headers=first)
        assert (answer.status_code, answer.json()["code"]) == (429, "too_many")
        assert http.post(theirs + "/exec", json=large, headers=second).status_code == 200


def test_answers_to_slow_readers_leave_room_for_others(start: Callable[..., Service]) -> None:
    server = start("key=pro", "key=pro", "answers_bytes=9000000")
    with server.slow_client() as http:
        paths = [of_tenant(http, key) for key in server.keys]
        first, second = map(bearer, server.keys)
        http.post(paths[0] + "/exec", json={"code": "lines 700 12000"}, headers=first)
        with http.stream("GET", paths[0] + "/replay", headers=first):
            answer = http.get(paths[0] + "/replay", headers=first)
            assert (answer.status_code, answer.json()["code"]) == (429, "too_many")
            assert int(answer.headers["retry-after"]) >= 1
            assert http.get(paths[1] + "/replay", headers=second).status_code == 200
