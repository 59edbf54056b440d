# SPDX-License-Identifier: Apache-2.0
"""GET /v1/events: the audit log, for its tenant and for operators."""

from __future__ import annotations

import contextlib
import json
from typing import Any, Callable, Iterator

import httpx
import pytest

from conftest import Service, refused
from ramet import AuditEvent, BadRequest, Client

Event = dict[str, Any]


def events(http: httpx.Client, query: str = "") -> list[Event]:
    answer = http.get("/v1/events" + query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines() if line]


def followed(stream: httpx.Response) -> Iterator[Event]:
    """Yields the events of a stream, without the empty lines that keep the connection alive."""
    return (json.loads(line) for line in stream.iter_lines() if line)


def make(http: httpx.Client) -> str:
    return str(http.post("/v1/sandboxes", json={}).json()["id"])


@pytest.fixture
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service(tmp_path_factory.mktemp("tenants"), "pro", "pro", "operator")
    yield service
    service.stop()


def test_events_tell_what_happened(start: Callable[..., Service]) -> None:
    with start().client() as http:
        sandbox = make(http)
        http.delete(f"/v1/sandboxes/{sandbox}")
        created, deleted = events(http)
        assert (created["n"], deleted["n"]) == (1, 2)
        assert (created["event"], deleted["event"]) == ("sandbox.created", "sandbox.deleted")
        assert created["sandbox"] == deleted["sandbox"] == sandbox
        assert (created["tenant"], deleted["text"]) == ("local", "it was deleted")
        assert events(http, "?since=1") == [deleted]
        assert events(http, "?since=2") == []
        assert http.head("/v1/events?follow=1").status_code == 200


def test_newest_events_come_first_if_asked_for(start: Callable[..., Service]) -> None:
    server = start()
    with server.client() as http, server.client() as other:
        for _ in range(50):  # more than are read in one turn of the loop
            http.delete(f"/v1/sandboxes/{make(http)}")

        def numbers(query: str) -> list[int]:
            return [event["n"] for event in events(http, query)]

        assert numbers("?newest_first=1") == list(range(100, 0, -1))
        assert numbers("?newest_first=1&limit=65") == list(range(100, 35, -1))
        assert numbers("?newest_first=1&since=90&limit=1000") == list(range(100, 90, -1))
        assert numbers("?limit=64") == list(range(1, 65))
        assert numbers("?since=64&limit=1") == [65]
        with other.stream("GET", "/v1/events?follow=1&since=0&limit=101") as stream:
            make(http)
            assert [event["n"] for event in followed(stream)] == list(range(1, 102))  # and ends
        refused(http.get("/v1/events?newest_first=1&follow=1"), 400, "bad_request")
        refused(http.get("/v1/events?limit=0"), 400, "bad_request")


def test_newest_events_of_a_tenant_are_its_own(keyed: Service) -> None:
    headers = [{"authorization": f"Bearer {key}"} for key in keyed.keys]
    with keyed.client(headers=headers[0]) as first, keyed.client(headers=headers[1]) as second:
        mine = make(first)
        for _ in range(70):
            second.delete(f"/v1/sandboxes/{make(second)}")
        (newest,) = events(first, "?newest_first=1&limit=1")
        assert newest["sandbox"] == mine
        assert [event["event"] for event in events(first, "?newest_first=1")] == [
            "sandbox.created",
            "key.created",
        ]


def test_tenants_see_their_own_events_and_operators_all(keyed: Service) -> None:
    first, second, operator = (
        httpx.Client(
            base_url=keyed.base, headers={"authorization": f"Bearer {key}"}, timeout=120, trust_env=False
        )
        for key in keyed.keys
    )
    ids = [make(first), make(second)]
    seen = [
        [event["sandbox"] for event in events(http) if event["event"] == "sandbox.created"]
        for http in (first, second, operator)
    ]
    assert seen == [[ids[0]], [ids[1]], ids]
    keys = [event["key"] for event in events(operator) if event["event"] == "key.created"]
    assert len(keys) == 3
    assert [event["key"] for event in events(second) if "key" in event] == [keys[1]]
    assert len({event["tenant"] for event in events(first)}) == 1
    for sandbox, http in zip(ids, (first, second)):
        http.delete(f"/v1/sandboxes/{sandbox}")
    for http in (first, second, operator):
        http.close()


def test_followed_stream_goes_on_after_a_pause(start: Callable[..., Service]) -> None:
    server = start("silence_ms=200")
    with server.client() as http, server.client() as other:
        before = make(http)
        with other.stream("GET", "/v1/events?follow=1&since=0") as stream:
            lines = stream.iter_lines()
            assert next(lines) == ""  # comes at once
            assert json.loads(next(lines))["sandbox"] == before
            assert next(lines) == ""  # says that the service is still there
            second = make(http)
            while not (line := next(lines)):
                pass
            assert json.loads(line)["sandbox"] == second
        with other.stream("GET", "/v1/events?follow=1") as stream:
            third = make(http)
            assert next(followed(stream))["sandbox"] == third


def test_slow_reader_gets_every_event(start: Callable[..., Service]) -> None:
    server = start()
    with server.client() as http, server.client() as other:
        with other.stream("GET", "/v1/events?follow=1&since=0") as stream:
            for _ in range(200):
                http.delete(f"/v1/sandboxes/{make(http)}")
            came = followed(stream)
            assert [next(came)["n"] for _ in range(400)] == list(range(1, 401))
    assert len(events(server.client())) == 400


def test_end_of_the_service_ends_the_stream(start: Callable[..., Service]) -> None:
    server = start()
    with server.client() as http, server.client() as other:
        with other.stream("GET", "/v1/events?follow=1&since=0") as stream:
            make(http)
            came = followed(stream)
            assert next(came)["event"] == "sandbox.created"
            server.stop()
            assert list(came) == []


def test_one_tenant_leaves_others_room_to_follow(keyed: Service) -> None:
    first, second = (
        httpx.Client(
            base_url=keyed.base, headers={"authorization": f"Bearer {key}"}, timeout=120, trust_env=False
        )
        for key in keyed.keys[:2]
    )
    with contextlib.ExitStack() as streams:

        def follow(http: httpx.Client) -> httpx.Response:
            return streams.enter_context(http.stream("GET", "/v1/events?follow=1"))

        assert [follow(first).status_code for _ in range(32)] == [200] * 32
        refused(first.get("/v1/events?follow=1"), 429, "too_many")
        refused(first.get("/v1/events"), 429, "too_many")
        assert follow(second).status_code == 200
    first.close()
    second.close()


@pytest.mark.parametrize("since", ["-1", "1.5", "now", "", "99999999999999999999"])
def test_bad_since_is_refused(client: httpx.Client, since: str) -> None:
    said = refused(client.get(f"/v1/events?since={since}"), 400, "bad_request")
    assert said.startswith("since must be a whole number")


def test_sdk_yields_events(start: Callable[..., Service]) -> None:
    server = start()
    with server.client() as http, Client(server.base) as client:
        sandbox = make(http)
        (event,) = client.events()
        assert isinstance(event, AuditEvent)
        assert (event.n, event.event, event.sandbox) == (1, "sandbox.created", sandbox)
        assert (event.tenant, event.key, event.id[:4]) == ("local", None, "evt_")
        follow = client.events(since=0, follow=True)
        assert next(follow) == event
        http.delete(f"/v1/sandboxes/{sandbox}")
        assert next(follow).event == "sandbox.deleted"
        del follow  # closes its connection
        (newest,) = client.events(newest_first=True, limit=1)
        assert (newest.n, newest.event) == (2, "sandbox.deleted")
        with pytest.raises(BadRequest):
            list(client.events(since=-1))
