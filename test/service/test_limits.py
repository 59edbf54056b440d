# SPDX-License-Identifier: Apache-2.0
"""Rate limits, and the clients in the access log."""

from __future__ import annotations

import re
from typing import Callable, Iterator

import httpx
import pytest

from conftest import Service
from test_clock import Clock, clock as clock
from test_keys import bearer

BURST = 10  # seconds
LIST = "/v1/sandboxes"


@pytest.fixture(params=["h1", "h2"])
def http2(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "h2")


def until_limited(client: httpx.Client, path: str, status: int, **headers: str) -> httpx.Response:
    """Sends requests, with a limit of one a second, until one is refused; earlier ones get
    `status`.
    """
    served = 0
    while (answer := client.get(path, headers=headers)).status_code == status:
        served += 1
    assert (answer.status_code, answer.json()["code"]) == (429, "rate_limited"), answer.text
    assert 1 <= int(answer.headers["retry-after"]) <= 2
    assert served >= BURST
    return answer


def test_requests_of_a_tenant_are_limited(clock: Clock, start: Callable[..., Service], http2: bool) -> None:
    server = start("key=pro", "key=free", "tenant_requests_s=1")
    with server.client(http2=http2) as http:
        mine, other = map(bearer, server.keys)
        until_limited(http, LIST, 200, **mine)
        assert http.get("/v1/healthz", headers=mine).status_code == 429
        assert http.get(LIST, headers=other).status_code == 200
        clock.move(monotonic_s=5)
        assert http.get(LIST, headers=mine).status_code == 200


def test_requests_without_a_key_are_limited(clock: Clock, start: Callable[..., Service], http2: bool) -> None:
    server = start("key=pro", "client_requests_s=1")
    with server.client(http2=http2) as http:
        until_limited(http, LIST, 401)
        for path in ("/v1/healthz", "/nowhere"):
            assert http.get(path).status_code == 429
        assert http.get(LIST, headers=bearer(server.keys[0])).status_code == 200
        clock.move(monotonic_s=5)
        assert http.get("/v1/healthz").text == "ok"


def test_invalid_keys_are_limited(start: Callable[..., Service], http2: bool) -> None:
    server = start("key=pro", "client_failures_s=1")
    with server.client(http2=http2) as http:
        until_limited(http, LIST, 401, authorization="Bearer rmt_" + "0" * 38)
        assert http.get("/v1/healthz", headers=bearer("guess")).status_code == 429
        assert http.get(LIST).status_code == 401
        assert http.get(LIST, headers=bearer(server.keys[0])).status_code == 200


def test_connections_are_limited(clock: Clock, start: Callable[..., Service]) -> None:
    server = start("key=operator", "client_connections_s=1")
    with server.client() as http:
        http.get("/livez")
        served = 0
        while is_served(server):
            served += 1
        assert served >= BURST - 1
        metrics = http.get("/metrics", headers=bearer(server.keys[0])).text
        assert 'ramet_http_limited_total{limit="client_connections_s"} 1\n' in metrics
        clock.move(monotonic_s=5)
        assert is_served(server)
    assert server.whole_log().count("opens more than 1 connections per second") == 1


def is_served(server: Service) -> bool:
    """Returns whether a new connection is served."""
    try:
        return bool(server.raw(b"GET /livez HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"))
    except (BrokenPipeError, ConnectionResetError):
        return False


LIMITS = ("client_connections_s=1", "client_requests_s=1", "client_failures_s=1")


def test_local_clients_have_no_limit_without_keys(start: Callable[..., Service]) -> None:
    server = start(*LIMITS, "tenant_requests_s=1")
    for _ in range(5 * BURST):
        with server.client() as http:
            assert http.get(LIST, headers=bearer("nonsense")).status_code == 200
            forwarded = {"x-forwarded-for": "192.0.2.1"}
            assert http.get(LIST, headers=forwarded).status_code == 200


def test_client_behind_a_trusted_proxy_is_counted(start: Callable[..., Service], http2: bool) -> None:
    server = start(*LIMITS, "trusted_proxies=192.0.2.0/24,127.0.0.0/8")
    one = {"x-forwarded-for": "127.0.0.1, 203.0.113.1, 192.0.2.9"}
    other = {"x-forwarded-for": "203.0.113.1, 203.0.113.2"}
    with server.client(http2=http2) as http:
        until_limited(http, LIST, 200, **one)
        assert http.get(LIST, headers=other).status_code == 200
    for _ in range(2 * BURST):
        assert is_served(server)
    log = server.whole_log()
    assert "from 203.0.113.1 by 127.0.0.1 tenant local" in log
    assert "from 203.0.113.2 by 127.0.0.1 tenant local" in log
    assert log.count("from 203.0.113.1: more than 1 requests without a valid API key per second") == 1
    assert " 429 " not in log  # a flood of requests does not flood the log


def test_headers_before_an_invalid_one_are_ignored(
    start: Callable[..., Service], http2: bool
) -> None:
    server = start("fault=fork_wait", "trusted_proxies=127.0.0.0/8")
    headers = [("x-forwarded-for", "203.0.113.1"), ("x-forwarded-for", "192.0.2.7:4711")]
    with server.client(http2=http2) as http:
        assert "checks" not in http.get("/readyz", headers=headers).json()
        assert http.get(LIST, headers=headers).status_code == 200
    log = server.whole_log()
    assert "203.0.113.1" not in log and "GET /v1/sandboxes 200" in log


def test_access_log_names_tenant_and_key(start: Callable[..., Service]) -> None:
    server = start("key=pro")
    key = server.keys[0]
    with server.client() as http:
        http.get(LIST + "?token=secret1", headers=bearer(key) | {"cookie": "secret2"})
        http.get(LIST, headers=bearer(key[:-1]))
    server.raw(b"GET http://me:secret3@a/nowhere HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
    server.raw(b"GET /nowhere HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n")
    log = server.whole_log()
    ours = r"GET /v1/sandboxes 200 \d+ bytes \S+ ms from 127.0.0.1 tenant tnt_\w{16} key key_\w{16}\n"
    assert re.search(ours, log)
    assert re.search(r"GET /v1/sandboxes 401 \d+ bytes \S+ ms from 127.0.0.1\n", log)
    assert re.search(r"GET /nowhere 404 \d+ bytes \S+ ms from 127.0.0.1\n", log)
    assert re.search(r"400 from 127.0.0.1 refused: Invalid Request", log)
    assert "secret" not in log and key[:-1] not in log


@pytest.fixture
def strangers(start: Callable[..., Service]) -> Iterator[tuple[Service, dict[str, str]]]:
    server = start("fault=fork_wait", "trusted_proxies=127.0.0.0/8")
    yield server, {"x-forwarded-for": "203.0.113.1"}


def test_strangers_see_no_details(
    strangers: tuple[Service, dict[str, str]], start: Callable[..., Service]
) -> None:
    here, stranger = strangers
    keyed = start("fault=fork_wait", "key=pro", "key=operator")
    tenant, operator = map(bearer, keyed.keys)
    rebound = {"host": "evil.example"}
    asked = [(here, {}, True), (here, stranger, False), (here, rebound, False)]
    asked += [(keyed, {}, False), (keyed, tenant, False), (keyed, operator, True)]
    for server, headers, all_of_it in asked:
        with server.client() as http:
            ready = http.get("/readyz", headers=headers)
            assert ready.status_code == 503 and ready.json()["ready"] is False
            assert ("checks" in ready.json()) == all_of_it
            health = http.get("/v1/healthz", headers=headers)
            assert (health.status_code, health.json()["code"]) == (503, "not_ready")
            assert ("template" in health.json()["error"]) == all_of_it
