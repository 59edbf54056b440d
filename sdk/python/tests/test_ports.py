# SPDX-License-Identifier: Apache-2.0
"""Ports of the SDK: shares against a fake service, local ports against a small server."""

from __future__ import annotations

import json
import socket
import threading
from typing import Iterator

import httpx
import pytest

import ramet
from ramet import Client, Sandbox

SBX = "sbx_" + "0" * 32


def answer(request: httpx.Request) -> httpx.Response:
    path = request.url.path.removeprefix(f"/v1/sandboxes/{SBX}")
    if path == "/v1/sandboxes":
        return httpx.Response(201, json={"id": SBX, "state": "ready"})
    share = {"port": 8000, "public": False, "url": "http://x/?ramet_token=t", "token": "t"}
    if (request.method, path) == ("POST", "/ports/8000"):
        share["public"] = json.loads(request.read() or b"{}").get("public", False)
        return httpx.Response(200, json=share)
    if (request.method, path) == ("GET", "/ports"):
        return httpx.Response(200, json=[share])
    if (request.method, path) == ("DELETE", "/ports/8000"):
        return httpx.Response(204)
    return httpx.Response(404, json={"error": "no such share", "code": "not_shared"})


@pytest.fixture
def box() -> Sandbox:
    return Sandbox(client=Client("http://x", transport=httpx.MockTransport(answer)))


def test_shares(box: Sandbox) -> None:
    assert box.url(8000) == "http://x/?ramet_token=t"
    assert box._client.share_port(SBX, 8000).public is False
    assert box._client.share_port(SBX, 8000, public=True).public is True
    assert box.ports() == [ramet.PortShare(8000, False, "http://x/?ramet_token=t", "t")]
    box.unshare(8000)
    with pytest.raises(ramet.NotFound):
        box.unshare(8001)


class Service:
    """Answers upgrades: of port 8000 with an echo, of others with 502."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.host = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.heads: list[bytes] = []
        self.refusals = 0  # of port 8000, before something listens there
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                one, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(one,), daemon=True).start()

    def serve(self, one: socket.socket) -> None:
        with one:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += one.recv(1)
            self.heads.append(head)
            if b"/tcp/8000 " not in head or len(self.heads) <= self.refusals:
                body = b'{"error":"nothing listens","code":"port_closed"}'
                one.sendall(b"HTTP/1.1 502 No\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
                return
            one.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: tcp\r\n\r\n")
            while part := one.recv(65536):
                one.sendall(part)


@pytest.fixture
def service() -> Iterator[Service]:
    started = Service()
    yield started
    started.listener.close()


def test_connections_to_ports(service: Service) -> None:
    client = Client(service.host, "rmt_key", allow_plain_http=True)
    with client, client.connect_port(SBX, 8000) as raw:
        raw.sendall(b"hello")
        assert raw.recv(5, socket.MSG_WAITALL) == b"hello"
        assert b"\r\nAuthorization: Bearer rmt_key\r\n" in service.heads[0]
        assert f"GET /v1/sandboxes/{SBX}/tcp/8000 HTTP/1.1".encode() in service.heads[0]
        with pytest.raises(ramet.ServerError, match="nothing listens") as refused:
            client.connect_port(SBX, 8001)
    assert refused.value.code == "port_closed"


def test_a_server_that_begins_to_listen_is_waited_for(service: Service) -> None:
    service.refusals = 3
    sbx = Sandbox(client=Client("http://x", transport=httpx.MockTransport(answer)))
    with Client(service.host) as client:
        sbx._client.connect_port = client.connect_port  # type: ignore[method-assign]
        assert sbx.url(8000, wait=60) == "http://x/?ramet_token=t"
        assert len(service.heads) == 4
        with pytest.raises(ramet.ServerError, match="nothing listens") as refused:
            sbx.wait_for_port(8001, 0)
    assert refused.value.code == "port_closed"


def test_a_service_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}") as client, pytest.raises(ramet.ConnectionFailed):
        client.connect_port(SBX, 8000)


def test_a_local_port_leads_to_the_sandbox(service: Service) -> None:
    client = Client(service.host)
    with ramet.Forward(lambda: client.connect_port(SBX, 8000), 0) as local:
        for _ in range(3):
            with socket.create_connection((local.host, local.port)) as raw:
                raw.sendall(b"a" * 1_000_000)
                raw.shutdown(socket.SHUT_WR)
                back = b""
                while part := raw.recv(65536):
                    back += part
                assert back == b"a" * 1_000_000
        left = socket.create_connection((local.host, local.port))
        left.sendall(b"x")
        assert left.recv(1) == b"x"
    assert left.recv(1) == b""  # closed with the local port
    left.close()
    with pytest.raises(OSError):
        socket.create_connection((local.host, local.port))


def test_a_local_connection_ends_when_nothing_listens(service: Service) -> None:
    client = Client(service.host)
    with ramet.Forward(lambda: client.connect_port(SBX, 1), 0) as local:
        with socket.create_connection((local.host, local.port)) as raw:
            assert raw.recv(1) == b""
