# SPDX-License-Identifier: Apache-2.0
"""Access control once there are keys."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import ssl
from pathlib import Path
from typing import Any, Callable, Iterator

import httpx
import pytest

from conftest import Server
from test_tls import certificate as certificate


@pytest.fixture
def keyed(start: Callable[..., Server]) -> Server:
    """Starts a server with the keys of two tenants and of an operator."""
    return start("key=pro", "key=free", "key=operator")


@pytest.fixture(params=["h1", "h2"])
def http(keyed: Server, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    with keyed.client(http2=request.param == "h2") as client:
        yield client


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def refused(answer: httpx.Response, code: str) -> str:
    assert (answer.status_code, answer.json()["code"]) == (401, code), answer.text
    assert answer.headers["www-authenticate"] == "Bearer"
    return str(answer.json()["error"])


def test_key_is_required(keyed: Server, http: httpx.Client) -> None:
    assert "send Authorization: Bearer KEY" in refused(http.get("/v1/sandboxes"), "key_missing")
    for value in ("", "Bearer", "Basic dTpw", keyed.keys[0], f"Bear {keyed.keys[0]}"):
        answer = http.get("/v1/sandboxes", headers={"authorization": value})
        sentence = refused(answer, "key_missing")
        assert "must have the form Bearer KEY" in sentence
        assert keyed.keys[0] not in sentence
    assert http.get("/v1/healthz").text == "ok"


def test_valid_key_is_served(keyed: Server, http: httpx.Client) -> None:
    for scheme in ("Bearer ", "bearer ", "BEARER   "):
        headers = {"authorization": scheme + keyed.keys[0]}
        assert http.get("/v1/sandboxes", headers=headers).status_code == 200


def test_mistyped_key_differs_from_an_unknown_one(keyed: Server, http: httpx.Client) -> None:
    key = keyed.keys[0]
    typos = [key[:-1], key + "0", key[1:], key.swapcase(), "rmt_" + "0" * 38, "x" * 5000]
    typos += [key[:i] + ("0" if key[i] != "0" else "1") + key[i + 1 :] for i in range(len(key))]
    for typo in typos:
        refused(http.get("/v1/sandboxes", headers=bearer(typo)), "key_malformed")


def test_key_of_another_host_is_unknown(
    keyed: Server, http: httpx.Client, start: Callable[..., Server]
) -> None:
    other = start("key=pro").keys[0]
    refused(http.get("/v1/sandboxes", headers=bearer(other)), "key_unknown")


def test_every_route_except_health_needs_a_key(keyed: Server, http: httpx.Client) -> None:
    spec = http.get("/v1/openapi.json", headers=bearer(keyed.keys[0])).json()
    asked = 0
    for path, methods in spec["paths"].items():
        for name in ("sandbox_id", "id", "winner", "other"):
            path = path.replace("{" + name + "}", "sbx_" + "0" * 32)
        path = path.replace("{upload}", "upl_" + "0" * 32).replace("{pty}", "pty_" + "0" * 32)
        path = path.replace("{process}", "prc_" + "0" * 32)
        path = path.replace("{context}", "ctx_" + "0" * 32)
        path = path.replace("{space}", "spc_" + "0" * 32)
        path = path.replace("{port}", "8000").replace("{path}", "")
        for method in methods.keys() & {"get", "put", "post", "delete"}:
            answer = http.request(method, path, content=b"{}")
            if path in ("/v1/healthz", "/livez", "/readyz"):
                assert answer.status_code == 200
            else:
                refused(answer, "key_missing")
                asked += 1
    assert asked > 20


def test_metrics_are_for_operators_only(keyed: Server, http: httpx.Client) -> None:
    for key in keyed.keys[:2]:
        answer = http.get("/metrics", headers=bearer(key))
        assert (answer.status_code, answer.json()["code"]) == (403, "operators_only")
    assert "ramet_sandboxes" in http.get("/metrics", headers=bearer(keyed.keys[2])).text


def revoke(server: Server) -> None:
    os.kill(server.pid, signal.SIGUSR2)


def test_revoked_key_is_refused(keyed: Server, http: httpx.Client) -> None:
    assert http.get("/v1/sandboxes", headers=bearer(keyed.keys[0])).status_code == 200
    revoke(keyed)
    while http.get("/v1/sandboxes", headers=bearer(keyed.keys[0])).status_code == 200:
        pass
    refused(http.get("/v1/sandboxes", headers=bearer(keyed.keys[0])), "key_revoked")
    assert http.get("/v1/sandboxes", headers=bearer(keyed.keys[1])).status_code == 200


def test_streams_of_a_revoked_key_are_cut(keyed: Server, http: httpx.Client) -> None:
    first, second = (bearer(key) for key in keyed.keys[:2])
    path = "/v1/sandboxes/" + http.post("/v1/sandboxes", headers=first).json()["id"]
    script: Any = {"code": "out here\nhang"}
    with keyed.client() as other:
        with other.stream("POST", path + "/exec", json=script, headers=second) as others:
            lines = others.iter_lines()
            assert "here" in next(lines)
            with pytest.raises(httpx.RemoteProtocolError):
                with http.stream("POST", path + "/exec", json=script, headers=first) as own:
                    for line in own.iter_lines():
                        if "here" in line:
                            revoke(keyed)
            with keyed.client() as third:
                assert third.get("/v1/sandboxes", headers=second).status_code == 200
                third.post(path + "/interrupt", headers=second)
            assert "exit" in list(lines)[-1]


def test_waiting_call_is_answered_when_its_key_is_revoked(
    keyed: Server, http: httpx.Client
) -> None:
    path = "/v1/sandboxes/" + http.post("/v1/sandboxes", headers=bearer(keyed.keys[0])).json()["id"]
    held = {"template": "held"}
    with keyed.client() as other, other.stream(
        "POST", path + "/exec", json={"code": "out x\nhang"}, headers=bearer(keyed.keys[1])
    ) as stream:
        assert next(stream.iter_lines())
        revoke(keyed)
        answer = http.post("/v1/sandboxes", json=held, headers=bearer(keyed.keys[0]))
        refused(answer, "key_revoked")


def test_web_pages_are_refused_only_without_keys(keyed: Server, http: httpx.Client) -> None:
    headers = bearer(keyed.keys[0]) | {"origin": "https://example.org", "host": "example.org"}
    assert http.get("/v1/sandboxes", headers=headers).status_code == 200


# --- listeners reachable from other machines ---


def test_public_listener_needs_keys_and_tls(
    start: Callable[..., Server], certificate: tuple[Path, Path]
) -> None:
    tls = [f"tls_cert={certificate[0]}", f"tls_key={certificate[1]}"]
    with pytest.raises(AssertionError, match="there is no key"):
        Server("listen_host=0.0.0.0", *tls)
    with pytest.raises(AssertionError, match="set tls_cert and tls_key"):
        Server("listen_host=0.0.0.0", "key=pro")
    server = start("listen_host=0.0.0.0", "key=pro", *tls)
    answer = httpx.get(
        f"https://127.0.0.1:{server.port}/v1/sandboxes",
        headers=bearer(server.keys[0]),
        verify=ssl.create_default_context(cafile=str(certificate[0])),
        trust_env=False,
    )
    assert answer.json() == []


def test_proxy_may_terminate_tls(start: Callable[..., Server]) -> None:
    server = start("listen_host=0.0.0.0", "key=pro", "allow_open=yes")
    with server.client() as http:
        refused(http.get("/v1/sandboxes"), "key_missing")
        assert http.get("/v1/sandboxes", headers=bearer(server.keys[0])).json() == []


# --- shared resources ---


def test_requests_of_one_tenant_leave_room_for_others(start: Callable[..., Server]) -> None:
    server = start("key=pro", "key=pro", "requests=16")
    first, second = (bearer(key) for key in server.keys)
    with server.client() as http, contextlib.ExitStack() as stack:
        path = "/v1/sandboxes/" + http.post("/v1/sandboxes", headers=first).json()["id"]
        body = json.dumps({"code": "out on\nhang"})
        head = f"POST {path}/exec HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer "
        head += f"{server.keys[0]}\r\ncontent-length: {len(body)}\r\n\r\n"
        for _ in range(8):
            held = stack.enter_context(server.connect())
            held.sendall((head + body).encode())
            assert held.recv(4096).startswith(b"HTTP/1.1 200")
        answer = http.get("/v1/sandboxes", headers=first)
        assert (answer.status_code, answer.json()["code"]) == (429, "too_many")
        assert int(answer.headers["retry-after"]) >= 1
        assert http.get("/v1/sandboxes", headers=second).status_code == 200


def test_bodies_of_one_tenant_leave_room_for_others(start: Callable[..., Server]) -> None:
    server = start("key=pro", "key=pro", "bodies_bytes=800000")
    first, second = (bearer(key) for key in server.keys)
    with server.client() as http, contextlib.ExitStack() as stack:
        path = "/v1/sandboxes/" + http.post("/v1/sandboxes", headers=first).json()["id"]
        body = json.dumps({"code": "out on\nhang\n" + "x" * 120_000})
        head = f"POST {path}/exec HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer "
        head += f"{server.keys[0]}\r\ncontent-length: {len(body)}\r\n\r\n"
        for _ in range(3):
            held = stack.enter_context(server.connect())
            held.sendall((head + body).encode())
            assert held.recv(4096).startswith(b"HTTP/1.1 200")
        large = {"code": "x" * 60_000 + "\nexit 0"}
        answer = http.post(path + "/exec", json=large, headers=first)
        assert (answer.status_code, answer.json()["code"]) == (429, "too_many")
        assert http.post(path + "/exec", json=large, headers=second).status_code == 200


def test_answers_to_slow_readers_leave_room_for_others(start: Callable[..., Server]) -> None:
    server = start("key=pro", "key=pro", "answers_bytes=20000000")
    first, second = (bearer(key) for key in server.keys)
    with server.slow_client() as http:
        path = "/v1/sandboxes/" + http.post("/v1/sandboxes", headers=first).json()["id"]
        http.post(path + "/exec", json={"code": "flood 1000 12000\nexit 0"}, headers=first)
        with http.stream("GET", path + "/replay", headers=first):
            answer = http.get(path + "/replay", headers=first)
            assert (answer.status_code, answer.json()["code"]) == (429, "too_many")
            assert int(answer.headers["retry-after"]) >= 1
            assert http.get(path + "/replay", headers=second).status_code == 200
