# SPDX-License-Identifier: Apache-2.0
"""The nearest region, against fake answers."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import httpx
import pytest

import ramet
from ramet import AsyncClient, Client, Region

HOSTS = itertools.count()  # what was found for a host is kept

FAR, NEAR, DOWN = "https://far.example", "https://near.example", "https://down.example"


def region(name: str, endpoint: str | None, here: bool = False) -> dict[str, Any]:
    return {"name": name, "endpoint": endpoint, "here": here}


class Service:
    """A fake service of several regions. Time passes only in its answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.host = f"https://host{next(HOSTS)}.example"
        self.regions: Any = [
            region("far", FAR, True),
            region("near", NEAR + "/"),
            region("down", DOWN),
            region("unknown", None),
            region("plain", "http://plain.example"),
            region("broken", "nonsense"),
        ]
        self.now = 100.0
        self.log: list[str] = []
        self.keys: list[str | None] = []
        for module in ("ramet._nearest", "ramet._async._nearest"):
            monkeypatch.setattr(f"{module}.time.monotonic", lambda: self.now)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        self.log.append(str(url))
        self.keys.append(request.headers.get("authorization"))
        if url.path == "/livez":
            self.now += {"far.example": 0.2, "near.example": 0.1}.get(url.host, 0.0)
            return httpx.Response(503 if url.host == "down.example" else 200)
        if url.path == "/v1/regions":
            if isinstance(self.regions, Exception):
                raise self.regions
            return httpx.Response(200 if isinstance(self.regions, list) else 404, json=self.regions)
        return httpx.Response(200, json=[])

    def client(self, **more: Any) -> Client:
        return Client(self.host, "a-key", region="nearest", transport=httpx.MockTransport(self), **more)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    return Service(monkeypatch)


def test_nearest_region_is_used(service: Service) -> None:
    client = service.client()
    assert client.host == service.host and not service.log  # only a request finds it
    client.list_sandboxes()
    assert client.host == NEAR
    assert service.log[0] == service.host + "/v1/regions"
    assert service.log[-1].startswith(NEAR + "/v1/sandboxes")
    probes = [(one, key) for one, key in zip(service.log, service.keys) if "livez" in one]
    assert {one for one, _ in probes} == {f"{one}/livez" for one in (FAR, NEAR, DOWN)}
    assert {key for _, key in probes} == {None}
    assert service.keys[-1] == "Bearer a-key"


def test_nearest_region_is_kept_for_a_while(service: Service) -> None:
    service.client().list_sandboxes()
    service.log.clear()
    service.client().list_sandboxes()
    assert [one.split("?")[0] for one in service.log] == [NEAR + "/v1/sandboxes"]
    service.now += 601
    service.regions = [region("far", FAR)]
    client = service.client()
    client.list_sandboxes()
    assert client.host == FAR


@pytest.mark.parametrize(
    "regions", [[], {"code": "no_such_route"}, [region("down", DOWN)], httpx.ConnectError("")]
)
def test_without_regions_the_host_stays(service: Service, regions: Any) -> None:
    service.regions = regions
    client = service.client(retry_seconds=0)
    client.list_sandboxes()
    assert client.host == service.host
    assert service.log[-1].startswith(service.host + "/v1/sandboxes")


def test_nearest_region_is_found_without_waiting_threads(service: Service) -> None:
    async def run() -> str:
        transport = httpx.MockTransport(service)
        async with AsyncClient(service.host, region="nearest", transport=transport) as client:
            await client.list_sandboxes()
            return client.host

    assert asyncio.run(run()) == NEAR


def test_regions_are_listed(service: Service) -> None:
    service.regions = [region("fsn", None, True), region("hel", NEAR)]
    client = Client(service.host, transport=httpx.MockTransport(service))
    first, second = client.regions()
    assert first == Region("fsn", None, True, raw=service.regions[0])
    assert (second.name, second.endpoint, second.here) == ("hel", NEAR, False)
    assert not ramet.Region.from_json(region("hel", None)).endpoint
