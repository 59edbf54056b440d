# SPDX-License-Identifier: Apache-2.0
"""A real HAProxy, configured by `rametctl fleet haproxy`, in front of three services."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Iterator

import httpx
import pytest
from cell import Authority, Front, free_ports, rametctl, until
from conftest import PROGRAM, Fleet, Host
from stand_in import Service
from test_keys import PORTS, settings

TESTS = Path(__file__).resolve().parents[1]
NUMBERS = (17, 18, 19)
# Waits until a server sends something.
CODE = """import socket
print("begun", flush=True)
print(socket.create_connection(("127.0.0.1", {})).recv(8))"""
FULL = 19  # this host has room for four sandboxes


@pytest.fixture
def hosts(fleet: Fleet) -> list[Host]:
    prefix, port = f"127.{64 + (os.getpid() >> 8) % 128}.{os.getpid() % 256}", next(PORTS)
    for n in NUMBERS:
        token = rametctl("fleet", "ca", fleet.ca, "host", n, f"h{n}", f"{prefix}.{n}:{port}", "fsn")
        fleet.host(n, token).start()
    for host in fleet.hosts:
        host.sees(*(set(NUMBERS) - {host.number}))
    return fleet.hosts


@pytest.fixture
def rootfs() -> str:
    """The root file system that the sandboxes see; "": that of this machine."""
    return ""


@pytest.fixture
def services(
    hosts: list[Host], rootfs: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Service]]:
    made = {}
    for host in hosts:
        room = "max_vms=4" if host.number == FULL else "max_vms=64"
        made[host.name] = Service(tmp_path_factory.mktemp("s"), *settings(host), room, rootfs=rootfs)
    yield made
    for one in made.values():
        one.stop()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("front"))


@pytest.fixture
def front(
    authority: Authority, hosts: list[Host], services: dict[str, Service], tmp_path: Path
) -> Iterator[Front]:
    """With the ports of the services here, and less time between checks."""
    text = rametctl("fleet", "haproxy", hosts[0].tables)
    changes = [
        (r"inter 2s", "inter 100ms"),
        (r"    server (\S+) \S+", lambda m: f"    server {m[1]} 127.0.0.1:{services[m[1]].port}"),
    ]
    front = Front(tmp_path, text, free_ports(1)[0], authority.certify("front"), *changes)
    until("all hosts", lambda: len(front.up()) == len(NUMBERS))
    yield front
    front.stop()


def client(front: Front, http2: bool = True) -> httpx.Client:
    base = f"https://127.0.0.1:{front.port}"
    return httpx.Client(base_url=base, http2=http2, verify=False, timeout=120, trust_env=False)


def drain(by: Host, name: str) -> None:
    subprocess.run([PROGRAM, f"--drain={name}", by.settings, by.tables], check=True)


def made(http: httpx.Client) -> str:
    answer = http.post("/v1/sandboxes", json={})
    assert answer.status_code == 201, answer.text
    return f"/v1/sandboxes/{answer.json()['id']}"


def held(service: Service) -> int:
    """Returns how many sandboxes a host has."""
    return int(service.metrics()["ramet_sandboxes"])


def serve(what: Callable[[socket.socket], None]) -> int:
    """Starts a server for one connection, and returns its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(120)

    def run() -> None:
        with listener, listener.accept()[0] as s:
            what(s)

    threading.Thread(target=run, daemon=True).start()
    return int(listener.getsockname()[1])


def websocket(s: socket.socket) -> None:
    """Echoes what follows the handshake."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += s.recv(65536)
    key = re.search(rb"(?i)sec-websocket-key: (\S+)", head)
    assert key
    proof = base64.b64encode(hashlib.sha1(key[1] + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    s.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
              b"Sec-WebSocket-Accept: " + proof + b"\r\n\r\n")  # fmt: skip
    while part := s.recv(65536):
        s.sendall(part)


def upgraded(front: Front, pem: Path, path: str) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(pem))
    s = context.wrap_socket(
        socket.create_connection(("127.0.0.1", front.port), timeout=120), server_hostname="127.0.0.1"
    )
    s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
              "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())  # fmt: skip
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += s.recv(1)
    assert head.startswith(b"HTTP/1.1 101 "), head
    return s


def echoed(s: ssl.SSLSocket, data: bytes) -> bytes:
    s.sendall(data)
    got = b""
    while len(got) < len(data):
        got += s.recv(65536)
    return got


def test_any_host_is_used_and_a_full_one_costs_no_create(front: Front, services: dict[str, Service]) -> None:
    with client(front) as http:
        paths = [made(http) for _ in range(24)]
        assert http.get(paths[0]).http_version == "HTTP/2"
        assert all(http.get(path).status_code == 200 for path in paths)
        # The full host is up, and its 503 went to no client.
        assert front.up() == {"h17", "h18", "h19"}
        counts = {name: held(one) for name, one in services.items()}
        assert sum(counts.values()) == 24 and 0 < counts["h19"] <= 4
        assert counts["h17"] and counts["h18"]
        for path in paths:
            assert http.delete(path).status_code == 204


def passes(front: Front, authority: Authority, python: str, *args: object) -> None:
    """Runs tests that were written for one running host, against the hosts behind HAProxy."""
    base, ca = f"https://127.0.0.1:{front.port}", str(authority.pem)
    place = {"RAMET_TESTED_HOST": base, "RAMET_HOST": base, "RAMET_CA_FILE": ca, "SSL_CERT_FILE": ca}
    subprocess.run([python, "-m", "pytest", "-q", *map(str, args)], env={**os.environ, **place}, check=True)


@pytest.mark.parametrize("file", ["test_podflare.py", "test_sdk.py", "test_command_line.py"])
def test_clients_pass_their_tests_of_one_host(front: Front, authority: Authority, file: str) -> None:
    """The published client, both clients of the SDK, the command line. Each host has its own audit log."""
    passes(front, authority, sys.executable, "-k", "not audit_log", TESTS / "service" / file)


@pytest.mark.parametrize("rootfs", [os.environ.get("GUEST_ROOTFS")])
def test_mcp_passes_its_tests_of_one_host(front: Front, authority: Authority, rootfs: str) -> None:
    python = os.environ["INTEGRATIONS_PYTHON"]
    passes(front, authority, python, "-m", "not vm", TESTS / "integrations/mcp/test_mcp_tools.py")


def test_a_killed_host_costs_no_create(front: Front, services: dict[str, Service]) -> None:
    with client(front) as http:
        made(http)
        services["h18"].kill()
        for _ in range(8):
            made(http)
        until("host is down", lambda: front.up() == {"h17", "h19"})


def test_a_call_says_why_its_sandbox_ended(front: Front, tmp_path: Path) -> None:
    """The last line and the end of the stream come together, and both must arrive."""
    with client(front, http2=False) as http, client(front) as other:
        for n in range(12):
            box, end = made(http), tmp_path / f"end {n}"
            code = f"import os, time\nprint(1)\nwhile not os.path.exists({str(end)!r}): time.sleep(0.01)"
            rest: list[str] = []
            with http.stream("POST", f"{box}/exec", json={"code": code}) as answer:
                lines = answer.iter_lines()
                next(lines)
                assert other.delete(box).status_code == 204
                with pytest.raises(httpx.TransportError):
                    rest.extend(lines)
            assert '"type":"error"' in rest[-1] and "it was deleted" in rest[-1]
            end.touch()  # all sandboxes of a host share an agent


def test_a_drained_host_leaves_and_its_streams_stay(
    front: Front, authority: Authority, hosts: list[Host], services: dict[str, Service]
) -> None:
    released = threading.Event()

    def wait(s: socket.socket) -> None:
        released.wait(120)
        s.sendall(b"released")

    with services["h18"].client() as direct, client(front) as http:
        path = made(direct)
        code = CODE.format(serve(wait))
        socket_ = upgraded(front, authority.pem, f"{path}/ports/{serve(websocket)}/ws")
        with http.stream("POST", f"{path}/exec", json={"code": code}) as answer:
            lines = answer.iter_lines()
            assert any("begun" in line for line in lines)
            drain(hosts[0], "h18")
            until("host is out", lambda: front.up() == {"h17", "h19"})
            assert "h18" in front.up("ramet_alive")
            for _ in range(6):
                made(http)
            assert held(services["h18"]) == 1
            assert http.get(path).status_code == 200
            assert echoed(socket_, b"still here") == b"still here"
            # While all are drained, what there is can still be used.
            for name in ("h17", "h19"):
                drain(hosts[0], name)
            until("all are out", lambda: not front.up())
            assert http.get(path).status_code == 200
            refused: Any = http.post("/v1/sandboxes", json={})
            assert (refused.status_code, refused.json()["code"]) == (503, "draining")
            released.set()
            assert any("released" in line for line in lines)
        socket_.close()


def test_a_reload_cuts_no_stream(front: Front, authority: Authority) -> None:
    """Over HTTP/1.1: HTTP/2 tells clients that the connection ends, and httpx gives its streams up then."""
    released = threading.Event()

    def wait(s: socket.socket) -> None:
        released.wait(120)
        s.sendall(b"released")

    with client(front, http2=False) as http:
        path = made(http)
        code = CODE.format(serve(wait))
        socket_ = upgraded(front, authority.pem, f"{path}/ports/{serve(websocket)}/ws")
        with http.stream("POST", f"{path}/exec", json={"code": code}) as answer:
            lines = answer.iter_lines()
            assert any("begun" in line for line in lines)
            worker = front.worker()
            front.reload()
            until("all hosts", lambda: len(front.up()) == len(NUMBERS))
            assert Path(f"/proc/{worker}").exists()
            with client(front) as other:
                assert other.get(path).status_code == 200
            assert echoed(socket_, b"still here") == b"still here"
            released.set()
            assert any("released" in line for line in lines)
        socket_.close()


def test_without_a_host_the_answer_is_an_error_of_the_api(front: Front, services: dict[str, Service]) -> None:
    for service in services.values():
        service.kill()
    with client(front) as http:
        answer = http.get("/v1/sandboxes")
        assert (answer.status_code, answer.json()["code"]) == (503, "host_unreachable")
        assert answer.headers["retry-after"] == "1"
