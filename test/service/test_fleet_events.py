# SPDX-License-Identifier: Apache-2.0
"""The audit log of all hosts of a fleet, in the order of time."""

from __future__ import annotations

import itertools
import json
import ssl
from typing import Any, Callable, Iterator
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from conftest import Service, made, refused
from fleet import Fleet, Liar, pair, read_head
from stand_in import pause
from test_fleet_lists import MISSING, cursor, head
from test_pages import NEXT

ONE, TWO, LIAR, OTHER = 17, 18, 19, 20
Event = dict[str, Any]


@pytest.fixture
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    yield from pair(tmp_path_factory.mktemp("fleet"), ONE, TWO)


@pytest.fixture
def clients(fleet: Fleet) -> Iterator[list[httpx.Client]]:
    """Clients of both hosts, on which sandboxes were made and deleted in turn."""
    fleet.add(ONE, region="one")  # so that creates stay on the host that gets them
    fleet.write()
    both = [fleet.services[host].client() for host in (ONE, TWO)]
    for one in both:
        while "one" not in one.get("/v1/regions").text:
            pause()
    for _ in range(3):
        for client in both:
            client.delete(made(client))
    yield both


def read(answer: httpx.Response) -> list[Event]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


def events(client: httpx.Client, **query: object) -> list[Event]:
    answer = client.get("/v1/events", params={name: str(value) for name, value in query.items()})
    assert MISSING not in answer.headers
    return read(answer)


def pages(clients: list[httpx.Client], limit: int, **query: str) -> list[Event]:
    """Returns all events, each page from another host."""
    found: list[Event] = []
    more: dict[str, str] = {}
    while True:
        clients = clients[1:] + clients[:1]
        answer = clients[0].get("/v1/events", params={"limit": str(limit), **query, **more})
        page = read(answer)
        assert MISSING not in answer.headers and len(page) <= limit
        found += page
        if NEXT not in answer.headers:
            return found
        more = {"cursor": answer.headers[NEXT]}


def test_events_of_all_hosts_are_in_the_order_of_time(clients: list[httpx.Client]) -> None:
    own = [events(client, since=0) for client in clients]
    assert [len(one) for one in own] == [6, 6]
    all = events(clients[0])
    assert all == events(clients[1])
    assert [event["time"] for event in all] == sorted(event["time"] for event in all)
    for one in own:  # each host's in their own order
        assert [event for event in all if event in one] == one
    assert len(all) == 12
    assert sorted(e["id"] for e in events(clients[0], newest_first=1)) == sorted(e["id"] for e in all)


@pytest.mark.parametrize("limit", [1, 2, 5, 12, 1000])
def test_pages_add_up(clients: list[httpx.Client], limit: int) -> None:
    all = events(clients[0])
    assert pages(clients, limit) == all
    assert pages(clients, limit, newest_first="1") == events(clients[0], newest_first=1) == all[::-1]


def test_new_events_are_in_later_pages(clients: list[httpx.Client]) -> None:
    first = clients[0].get("/v1/events?limit=12")
    assert NEXT not in first.headers
    first = clients[0].get("/v1/events?limit=11")
    boxes = [made(client)[-36:] for client in clients]
    rest = read(clients[1].get("/v1/events", params={"cursor": first.headers[NEXT]}))
    assert len(rest) == 3 and [event["sandbox"] for event in rest[1:]] == boxes


def test_followed_and_numbered_events_are_of_one_host(clients: list[httpx.Client]) -> None:
    assert [event["n"] for event in events(clients[0], since=2)] == [3, 4, 5, 6]
    with clients[0].stream("GET", "/v1/events?follow=1&since=0&limit=6") as stream:
        followed = [json.loads(line) for line in stream.iter_lines() if line]
    assert [event["n"] for event in followed] == [1, 2, 3, 4, 5, 6]
    good = clients[0].get("/v1/events?limit=1").headers[NEXT]
    for query in ("&since=1", "&follow=1"):
        assert "cursor" in refused(clients[0].get(f"/v1/events?cursor={good}{query}"), 400, "bad_request")
    assert good[0] == "V" and len(bytes.fromhex(good[1:-8])) == 32
    key = bytes.fromhex(good[1:-8])
    for bad in (cursor("v", key[16:]), cursor("V", key[16:]), cursor("V", bytes(32)), cursor("V", key[:16] + b"\xff" * 16)):
        assert "cursor" in refused(clients[0].get(f"/v1/events?cursor={bad}"), 400, "bad_request")


def test_cursor_with_another_time_is_refused_by_the_host_of_its_event(clients: list[httpx.Client]) -> None:
    key = bytes.fromhex(clients[0].get("/v1/events?limit=6").headers[NEXT][1:-8])
    forged = cursor("V", key[:16] + (1).to_bytes(8, "big") + key[24:])
    answers = [client.get(f"/v1/events?newest_first=1&cursor={forged}") for client in clients]
    assert sorted(answer.status_code for answer in answers) == [200, 400]
    assert all("cursor" in answer.text or MISSING in answer.headers for answer in answers)


def test_cursor_on_a_host_without_a_fleet(client: httpx.Client) -> None:
    refused(client.get("/v1/events?cursor=V00"), 400, "bad_request")


def test_host_that_is_away_is_named(fleet: Fleet, clients: list[httpx.Client]) -> None:
    fleet.services[TWO].kill()
    for query in ("", "?limit=5", "?newest_first=1"):
        answer = clients[0].get(f"/v1/events{query}")
        assert answer.headers[MISSING] == f"h{TWO}"
        assert {event["sandbox"] for event in read(answer)} <= {e["sandbox"] for e in events(clients[0], since=0)}


def test_tenants_see_their_own_events(tmp_path_factory: pytest.TempPathFactory) -> None:
    fleet = Fleet(tmp_path_factory.mktemp("fleet"))
    one = fleet.start(ONE, "key=admin", others=(TWO,))
    admin = one.keys[0]
    with one.client(headers={"authorization": f"Bearer {admin}"}) as http:
        tenants = [http.post("/v1/keys", json={"name": "a key", "tier": "free"}).json() for _ in range(2)]
    while len(fleet.offered(ONE)) < 3:
        pause()
    (fleet.home / f"table{TWO}").mkdir(exist_ok=True)
    fleet.carry(ONE, TWO)
    two = fleet.start(TWO)

    def by(service: Service, key: str) -> httpx.Client:
        return service.client(headers={"authorization": f"Bearer {key}"})

    boxes = [[made(by(service, tenant["key"]))[-36:] for service in (one, two)] for tenant in tenants]
    for tenant, own in zip(tenants, boxes):
        found = events(by(two, tenant["key"]))
        assert {event["tenant"] for event in found} == {tenant["tenant"]}
        assert {event.get("sandbox") for event in found} >= set(own)
    assert {event.get("sandbox") for event in events(by(one, admin))} >= {*boxes[0], *boxes[1]}
    fleet.stop()


# --- hosts that lie ---


def line(n: int, ms: int, text: str = "") -> str:
    """An event of the year 2030."""
    s, ms = divmod(ms, 1000)
    at = f"2030-01-01T{s // 3600:02}:{s // 60 % 60:02}:{s % 60:02}.{ms:03}Z"
    return f'{{"n":{n},"id":"evt_{n:032x}","time":"{at}","event":"sandbox.died","text":"{text}"}}'


BEGIN = 1893456000000  # 2030


def given(n: int, ms: int, text: str = "") -> str:
    """The event as a host gives it to another one: with the time by which events are merged."""
    return f"{BEGIN + ms} {line(n, ms, text)}"


class Log:
    """Serves events as a host would, but for their times."""

    def __init__(self, times: list[int], most: int = 1000, text: str = "") -> None:
        self.times, self.most = list(itertools.accumulate(times, max)), most
        self.lines = [
            (n, f"{BEGIN + ms} {line(n, raw, text)}")
            for n, (ms, raw) in enumerate(zip(self.times, times), 1)
        ]

    def __call__(self, s: ssl.SSLSocket) -> None:
        while True:
            path = read_head(s).split(b" ")[1].decode()
            s.sendall(self.answer(parse_qs(urlsplit(path).query)))

    def answer(self, query: dict[str, list[str]]) -> bytes:
        key = bytes.fromhex(query["cursor"][0][1:-8])
        at, n = int.from_bytes(key[:8], "big"), int.from_bytes(key[8:], "big")
        back = "newest_first" in query
        if not n:
            later = [i for i, ms in enumerate(self.times, 1) if BEGIN + ms > at - back]
            n = later[0] if later else len(self.times) + 1
            n -= not back
        left = [(i, one) for i, one in self.lines if (i < n if back else i > n)][:: -1 if back else 1]
        part = left[: min(self.most, int(query["limit"][0]))]
        body = "".join(f"{one}\n" for _, one in part).encode()
        more = part[-1][0] if len(part) < len(left) else 0
        return head(body, ramet_next_cursor=cursor("v", bytes(8) + more.to_bytes(8, "big"))) + body


@pytest.fixture
def lie(fleet: Fleet, clients: list[httpx.Client]) -> Iterator[Callable[..., None]]:
    liars: list[Liar] = []

    def start(host: int, serve: Callable[[ssl.SSLSocket], None]) -> None:
        liars.append(fleet.lie(host, serve))
        fleet.add(TWO, region=f"r{host}")
        fleet.write()
        for client in clients:
            while f"r{host}" not in client.get("/v1/regions").text:
                pause()

    yield start
    for liar in liars:
        liar.close()


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_events_of_the_same_time_are_in_pages_once(
    clients: list[httpx.Client], lie: Callable[..., None], limit: int
) -> None:
    lie(LIAR, Log([5, 5, 5, 6, 7], most=2))
    lie(OTHER, Log([5, 5, 7, 7]))
    queries: list[dict[str, str]] = [{}, {"newest_first": "1"}]
    for query in queries:
        found = [(event["n"], event["time"][-4:]) for event in pages(clients, limit, **query) if "2030" in event["time"]]
        assert sorted(found) == sorted(
            [(1, "005Z"), (2, "005Z"), (3, "005Z"), (4, "006Z"), (5, "007Z")]
            + [(1, "005Z"), (2, "005Z"), (3, "007Z"), (4, "007Z")]
        )
        times = [time for _, time in found]
        assert times == sorted(times, reverse=bool(query))


def test_clock_that_was_set_back_loses_no_event(clients: list[httpx.Client], lie: Callable[..., None]) -> None:
    lie(LIAR, Log([1000, 2000, 500, 600, 3000]))
    lie(OTHER, Log([700, 2500]))
    queries: list[dict[str, str]] = [{}, {"newest_first": "1"}]
    for query in queries:
        for limit in (1, 2, 3, 100):
            found = [event["n"] for event in pages(clients, limit, **query) if "2030" in event["time"]]
            assert found == [1, 1, 2, 3, 4, 2, 5][:: -1 if query else 1]


def test_long_log_is_sent_in_turns(clients: list[httpx.Client], lie: Callable[..., None]) -> None:
    lie(LIAR, Log(list(range(2500)), text="x" * 100))
    for query in ("", "?limit=100000"):
        answer = clients[0].get(f"/v1/events{query}")
        assert [event["n"] for event in read(answer)[12:]] == list(range(1, 2501))
        assert NEXT not in answer.headers
    assert len(read(clients[0].get("/v1/events?limit=2000"))) == 2000


def says(body: bytes, **fields: str) -> Callable[[ssl.SSLSocket], None]:
    def serve(s: ssl.SSLSocket) -> None:
        while True:
            read_head(s)
            s.sendall(head(body, **fields) + body)

    return serve


END, MORE = (cursor("v", bytes(15) + bytes([more])) for more in (0, 9))
LIES = [
    says(b""),  # of an older version, without a position
    says(b"", ramet_next_cursor=MORE),
    says(b"no\n", ramet_next_cursor=END),
    says((given(1, 5) + "\n" + given(2, 5, "x" * 200_000) + "\n").encode(), ramet_next_cursor=END),
    says(b"", ramet_next_cursor=cursor("v", b"\xff" * 16)),
]


@pytest.mark.parametrize("said", LIES, ids=range(len(LIES)))
def test_garbage_is_left_out(
    fleet: Fleet, clients: list[httpx.Client], lie: Callable[..., None], said: Callable[[ssl.SSLSocket], None]
) -> None:
    lie(LIAR, said)
    answer = clients[0].get("/v1/events")
    assert answer.headers[MISSING] == f"h{LIAR}" and len(read(answer)) == 12
    fleet.services[ONE].until_idle()
