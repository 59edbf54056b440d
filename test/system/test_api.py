# SPDX-License-Identifier: Apache-2.0
"""The life of a sandbox by plain requests, and the port of the real service."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import httpx
import pytest

from conftest import HOST


@pytest.mark.smoke
@pytest.mark.parametrize("http2", [False, True])
def test_sandbox_exists_from_create_to_delete(http2: bool) -> None:
    with httpx.Client(
        base_url=HOST, http1=not http2, http2=http2, timeout=300, trust_env=False
    ) as http:
        created = http.post("/v1/sandboxes", json={"metadata": {"run": 7}})
        assert created.status_code in (200, 201)
        assert created.http_version == ("HTTP/2" if http2 else "HTTP/1.1")
        sandbox_id = created.json()["id"]
        assert created.json()["state"] == "ready"
        path = f"/v1/sandboxes/{sandbox_id}"

        info = http.get(path).json()
        assert info["id"] == sandbox_id
        assert info["metadata"] == {"run": 7}
        assert info["vcpus"] == 2 and info["ram_mib"] == 1024
        assert sandbox_id in [s["id"] for s in http.get("/v1/sandboxes").json()]
        assert '"in it"' in http.post(f"{path}/exec", json={"code": "print('in it')"}).text

        assert http.delete(path).status_code == 204
        assert http.get(path).status_code == 404
        assert http.delete(path).status_code == 404
        assert sandbox_id not in [s["id"] for s in http.get("/v1/sandboxes").json()]


def connect_simultaneously(clients: int) -> list[socket.socket]:
    address = urlsplit(HOST)
    sockets = [socket.socket() for _ in range(clients)]
    for one in sockets:
        one.setblocking(False)
        one.connect_ex((address.hostname, address.port))
    return sockets


def get_livez(one: socket.socket) -> bytes:
    with one:
        one.settimeout(60)
        host = urlsplit(HOST).netloc
        one.sendall(f"GET /livez HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
        answer = b""
        while more := one.recv(4096):
            answer += more
        return answer


def test_simultaneous_connections_are_all_answered() -> None:
    for _ in range(3):
        answers = [get_livez(one) for one in connect_simultaneously(100)]
        assert [a.split()[1] for a in answers] == [b"200"] * 100
