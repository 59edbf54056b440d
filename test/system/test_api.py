# SPDX-License-Identifier: Apache-2.0
"""The HTTP contract against the real service: lifecycle of a sandbox, and invalid input."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

import ramet
from conftest import HOST, metrics, output
from ramet import Client, Sandbox

NOBODY = "sbx_" + "0" * 32


def test_sandbox_exists_from_create_to_delete(http: httpx.Client) -> None:
    created = http.post("/v1/sandboxes", json={"metadata": {"run": 7}})
    assert created.status_code in (200, 201)
    sandbox_id = created.json()["id"]
    assert created.json()["state"] == "ready"
    path = f"/v1/sandboxes/{sandbox_id}"

    info = http.get(path).json()
    assert info["id"] == sandbox_id
    assert info["metadata"] == {"run": 7}
    assert info["vcpus"] == 2 and info["ram_mib"] == 1024
    assert sandbox_id in [s["id"] for s in http.get("/v1/sandboxes").json()]

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


def test_sandbox_has_the_requested_size(client: Client) -> None:
    with Sandbox(client=client, vcpus=1, ram_mib=250, rootfs_gb=5) as sbx:
        seen = sbx.run_code("nproc; awk '/MemTotal/ {print $2}' /proc/meminfo", "bash").stdout
        nproc, kib = map(int, seen.split())
        assert nproc == 1
        assert 180 << 10 < kib <= 256 << 10
        info = sbx.info().raw
        assert (info["ram_mib"], info["vcpus"], info["rootfs_gb"]) == (256, 1, 5)


def test_values_above_a_limit_are_clamped(client: Client) -> None:
    with Sandbox(client=client, ram_mib=999999, rootfs_gb=99999, timeout_seconds=99999999) as sbx:
        assert sbx.run_code("print(1)").stdout == "1\n"
        info = sbx.info().raw
        assert 512 <= info["ram_mib"] <= 65536
        assert info["rootfs_gb"] == 1024


@pytest.mark.parametrize(
    ("body", "status", "names"),
    [
        (b"{", 400, "JSON"),
        (b"[]", 400, "object"),
        (b'{"ram_mib": "much"}', 400, "ram_mib"),
        (b'{"ram_mib": -1}', 400, "ram_mib"),
        (b'{"ram_mib": 1.5}', 400, "ram_mib"),
        (b'{"vcpus": 0}', 400, "vcpus"),
        (b'{"timeout_seconds": 0}', 400, "timeout_seconds"),
        (b'{"template": 5}', 400, "template"),
        (b'{"template": "no-such-template"}', 400, "no-such-template"),
        (b'{"template": "../../etc"}', 400, "template"),
        (b'{"metadata": "text"}', 400, "metadata"),
        (b'{"env": {"A": 1}}', 400, "env"),
        (b'{"env": {"A=B": "c"}}', 400, "env"),
        (b'\xff{"template": "x"}', 400, "JSON"),
        (b"{}" + b"x", 400, "JSON"),
    ],
)
def test_invalid_create_names_the_field(
    http: httpx.Client, body: bytes, status: int, names: str
) -> None:
    answer = http.post("/v1/sandboxes", content=body)
    assert answer.status_code == status, answer.text
    assert names in answer.json()["error"]
    assert answer.json()["code"]


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({}, "code"),
        ({"code": 1}, "code"),
        ({"code": "1", "language": "perl"}, "language"),
        ({"code": "1", "output": "words"}, "output"),
        ({"code": "1", "timeout_seconds": -1}, "timeout_seconds"),
        ({"code": "1", "cwd": 1}, "cwd"),
        ({"code": "1", "env": []}, "env"),
    ],
)
def test_invalid_exec_names_the_field(
    shared: Sandbox, http: httpx.Client, body: dict[str, Any], names: str
) -> None:
    answer = http.post(f"/v1/sandboxes/{shared.id}/exec", json=body)
    assert answer.status_code == 400, answer.text
    assert names in answer.json()["error"]


@pytest.mark.parametrize("sandbox_id", [NOBODY, "sbx_", "sbx_XYZ", "..", "sbx_" + "0" * 31 + "/"])
def test_unknown_sandbox_is_404(http: httpx.Client, sandbox_id: str) -> None:
    for method, tail in [("GET", ""), ("DELETE", ""), ("POST", "/exec"), ("GET", "/replay")]:
        answer = http.request(method, f"/v1/sandboxes/{sandbox_id}{tail}", json={"code": "1"})
        assert answer.status_code in (404, 405), f"{method} {tail}: {answer.text}"
        assert answer.json()["error"]


def test_wrong_method_lists_allowed_methods(http: httpx.Client) -> None:
    answer = http.put("/v1/sandboxes", content=b"{}")
    assert answer.status_code == 405
    assert set(answer.headers["allow"].replace(" ", "").split(",")) >= {"GET", "POST"}


def test_healthz_and_openapi(http: httpx.Client) -> None:
    health = http.get("/v1/healthz")
    assert (health.status_code, health.text) == (200, "ok")
    assert health.headers["content-type"].startswith("text/plain")
    paths = http.get("/v1/openapi.json").json()["paths"]
    assert "/v1/sandboxes/{id}/exec" in paths


@pytest.mark.alone
def test_metrics_count_creates(http: httpx.Client, client: Client) -> None:
    def creates() -> float:
        now = metrics(http)
        return sum(now[series] for series in now if series.startswith("ramet_creates_total"))

    before = creates()
    Sandbox(client=client).close()
    assert creates() == before + 1


def test_http2_works_with_prior_knowledge() -> None:
    with httpx.Client(base_url=HOST, http1=False, http2=True, timeout=120, trust_env=False) as h2:
        answer = h2.get("/v1/healthz")
        assert answer.http_version == "HTTP/2"
        sandbox_id = h2.post("/v1/sandboxes", json={}).json()["id"]
        run = h2.post(f"/v1/sandboxes/{sandbox_id}/exec", json={"code": "print('over h2')"})
        assert '"over h2"' in run.text
        assert h2.delete(f"/v1/sandboxes/{sandbox_id}").status_code == 204


def test_sandbox_expires_after_its_lifetime(client: Client) -> None:
    sbx = Sandbox(client=client, timeout_seconds=1)
    with pytest.raises(ramet.Expired):
        while True:
            sbx.info()
    sbx.close()


def test_changed_lifetime_counts(client: Client) -> None:
    with Sandbox(client=client, timeout_seconds=600) as longer, Sandbox(client=client) as shorter:
        before = longer.info()
        after = longer.update(timeout_seconds=7200, metadata={"run": 8})
        assert before.expires_at is not None and after.expires_at is not None
        assert before.expires_at < after.expires_at
        assert after.raw["metadata"] == {"run": 8}
        shorter.update(timeout_seconds=1)
        with pytest.raises(ramet.Expired):
            while True:
                shorter.info()
        assert output(longer, "print('alive')") == "alive\n"


@pytest.mark.alone
def test_idle_sandbox_expires_and_busy_one_does_not(client: Client) -> None:
    sbx = Sandbox(client=client, idle_timeout_seconds=2)
    busy = sbx.run_code("import time\ntime.sleep(3)\nprint('done')")
    assert busy.stdout == "done\n"
    with pytest.raises(ramet.Expired):
        while True:
            sbx.info()
