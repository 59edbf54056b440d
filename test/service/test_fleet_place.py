# SPDX-License-Identifier: Apache-2.0
"""On which host of a fleet a create makes its sandbox."""

from __future__ import annotations

import json
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterator

import httpx
import pytest

from conftest import made, refused
from fleet import CELL, Fleet, Liar, read_head
from stand_in import pause
from test_clock import Clock, clock, turns  # noqa: F401

ONE, TWO, THREE, LIAR = 17, 18, 19, 20
WARM = "0 0 9 9 9 9 9 9 9 9"  # of a host that is empty and has all that anybody may want
ASKED = b"GET /livez HTTP/1.1"


@pytest.fixture
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    started = Fleet(tmp_path_factory.mktemp("fleet"))
    yield started
    started.stop()


def pair(fleet: Fleet, *settings: str, **first: Any) -> tuple[httpx.Client, httpx.Client]:
    """Starts two hosts without warm sandboxes; `first`: fields of the first one in the table."""
    fleet.add(ONE, **first)
    fleet.start(TWO, *settings, others=(ONE,))
    fleet.start(ONE, *settings)
    return fleet.services[ONE].client(), fleet.services[TWO].client()


def host_of(fleet: Fleet, path: str) -> int:
    place = fleet.place(path[-36:])
    assert place and place[0] == CELL
    return place[1]


FIRST = {"idempotency-attempt": "first"}


def create(http: httpx.Client, key: str, **more: str) -> httpx.Response:
    return http.post("/v1/sandboxes", json={}, headers={"idempotency-key": key, **more})


# --- which host ---


def test_warm_sandbox_of_another_host_is_taken(fleet: Fleet) -> None:
    other = fleet.start(TWO, "pool_warm=2", others=(ONE,))
    with fleet.start(ONE).client() as http:
        for _ in range(3):
            other.wait(lambda numbers: numbers["ramet_warm_ready"] == 2)
            path = made(http)
            assert host_of(fleet, path) == TWO
            assert http.get(path).status_code == 200
    assert other.metrics()["ramet_pool_misses_total"] == 0


def test_own_host_is_preferred(fleet: Fleet) -> None:
    one, two = pair(fleet, "pool_warm=2")
    for client, host in ((one, ONE), (two, TWO)) * 3:
        fleet.services[host].wait(lambda numbers: numbers["ramet_warm_ready"] == 2)
        assert host_of(fleet, made(client)) == host


def test_full_host_sends_creates_away_and_forks_its_own(fleet: Fleet) -> None:
    fleet.start(TWO, others=(ONE,))
    with fleet.start(ONE, "max_vms=8").client() as http:
        paths = [made(http) for _ in range(9)]
        assert [host_of(fleet, path) for path in paths] == [ONE] * 7 + [TWO] * 2
        forked = http.post(f"{paths[0]}/fork", json={"n": 1})
        assert forked.status_code in (200, 201), forked.text
        refused(http.post(f"{paths[0]}/fork", json={"n": 1}), 503, "no_capacity")


def test_full_fleet_refuses(fleet: Fleet) -> None:
    one, two = pair(fleet, "max_vms=8")
    for _ in range(14):
        made(one)
    for client in (one, two):
        answer = client.post("/v1/sandboxes", json={})
        assert "no host of the fleet" in refused(answer, 503, "no_capacity")
        assert answer.headers["retry-after"] == "5"
    for client in (one, two):
        assert len(client.get("/v1/sandboxes").json()) == 14


@pytest.mark.parametrize("first", [{"state": "draining"}, {"region": "elsewhere"}])
def test_create_goes_past_a_host_that_gets_none(fleet: Fleet, first: dict[str, str]) -> None:
    one, two = pair(fleet, **first)
    assert host_of(fleet, made(two)) == TWO
    assert host_of(fleet, made(one)) == (TWO if "state" in first else ONE)


def test_create_that_needs_a_checkpoint_goes_nowhere_else(fleet: Fleet) -> None:
    fleet.add(ONE)
    one, two = pair(fleet)
    path = made(one)
    id = one.post(f"{path}/checkpoints", json={}).json()["id"]
    for client in (one, two):
        assert host_of(fleet, made(client, checkpoint=id)) == ONE
    fleet.add(ONE, state="draining")
    fleet.write()
    while host_of(fleet, made(one)) == ONE:
        pause()  # the table is read soon
    for client in (one, two):
        refused(client.post("/v1/sandboxes", json={"checkpoint": id}), 503, "draining")


def test_long_bodies_stay_here(fleet: Fleet) -> None:
    one, two = pair(fleet)
    answer = one.post("/v1/sandboxes", content=b"{" + b" " * (1 << 20) + b"}")
    assert answer.status_code == 201 and host_of(fleet, answer.json()["id"]) == ONE


# --- what hosts say to each other ---


def test_chosen_host_says_no_at_once(fleet: Fleet) -> None:
    fleet.start(TWO, others=(ONE,))
    full = fleet.start(THREE, "max_vms=1", others=(ONE,))
    with full.client() as http:
        made(http)
    before = full.metrics()
    only, any = {"ramet-warm": "only"}, {"ramet-warm": "any"}
    with fleet.peer(TWO, of=ONE) as two, fleet.peer(THREE, of=ONE) as three:
        answer = two.post("/v1/sandboxes", json={}, headers=only)
        refused(answer, 503, "no_warm")
        assert "retry-after" not in answer.headers
        assert " 0 0 0 0 0 0 0 0 0 0 " in answer.headers["ramet-load"]  # neither closed nor warm nor used
        refused(three.post("/v1/sandboxes", json={}, headers=any), 503, "no_capacity")
        assert three.get("/livez").headers["ramet-load"].startswith("1000 0 ")
        answer = two.post("/v1/sandboxes", json={}, headers=any)
        assert answer.status_code == 201 and host_of(fleet, answer.json()["id"]) == TWO
    after = full.metrics()
    for name in ("ramet_pool_misses_total", "ramet_create_failures_total"):
        assert after[name] == before[name]


def test_draining_host_refuses_what_is_sent_to_it(fleet: Fleet) -> None:
    pair(fleet, state="draining")
    with fleet.peer(ONE, of=TWO) as http:
        refused(http.post("/v1/sandboxes", json={}, headers={"ramet-warm": "any"}), 503, "host_closed")
        assert http.get("/livez").headers["ramet-load"].split()[1] == "1"


def test_clients_see_no_loads_and_choose_no_host(fleet: Fleet) -> None:
    one, two = pair(fleet, state="draining")
    path = made(two)
    for answer in (
        one.get("/livez"),
        one.get(path),
        one.post("/v1/sandboxes", json={}, headers={"ramet-warm": "only"}),
        create(one, fleet.request_key(ONE), **{"ramet-warm": "only"}),
        create(one, fleet.request_key(TWO), **{"ramet-warm": "only"}),
    ):
        assert answer.status_code < 300 and "ramet-load" not in answer.headers, answer.text
    assert len(two.get("/v1/sandboxes").json()) == 4


# --- hosts that fail ---


def test_host_whose_creates_fail_closes_itself(clock: Clock, fleet: Fleet) -> None:  # noqa: F811
    failing = fleet.start(ONE)
    with failing.client() as http:
        failing.tell("fault fill 9")
        for _ in range(3):
            assert http.get("/readyz").status_code == 200
            refused(http.post("/v1/sandboxes", json={}), 503, "vm_failed")
        checks = http.get("/readyz")
        assert checks.status_code == 503
        assert checks.json()["checks"]["creates"] == (
            "3 sandboxes in a row could not be made: the next one is tried in 30 s"
        )
        refused(http.post("/v1/sandboxes", json={}), 503, "no_capacity")
        clock.move(monotonic_s=31)
        made(http)
        assert http.get("/readyz").json()["checks"]["creates"] == "ok"


def test_creates_pass_by_a_closed_host(fleet: Fleet) -> None:
    one, _ = pair(fleet)
    fleet.services[ONE].tell("fault fill 9")
    answers = [one.post("/v1/sandboxes", json={}) for _ in range(5)]
    assert [answer.status_code for answer in answers] == [503, 503, 503, 201, 201]
    assert host_of(fleet, answers[4].json()["id"]) == TWO


def saying(status: str, body: str, load: str = WARM) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nRamet-Load: {load}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


class Said:
    """What a host that lies was sent, without the questions for its load."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.heads: list[bytes] = []
        self.changed = threading.Condition()

    def serve(self, s: ssl.SSLSocket) -> None:
        while True:
            head = read_head(s)
            if head.startswith(ASKED):
                s.sendall(saying("200 OK", "ok"))
                continue
            with self.changed:
                self.heads.append(head)
                self.changed.notify_all()
            if not self.answers:
                while s.recv(65536):
                    pass
                with self.changed:
                    self.heads.append(b"closed")
                    self.changed.notify_all()
                return
            s.sendall(self.answers.pop(0))

    def until(self, n: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.heads) == n, 60)


@pytest.fixture
def lied(fleet: Fleet) -> Iterator[Callable[..., Said]]:
    """Starts a host that lies, and then the first host, which has no warm sandbox."""
    liars: list[Liar] = []

    def start(*answers: bytes) -> Said:
        said = Said(*answers)
        liars.append(fleet.lie(LIAR, said.serve))
        fleet.start(ONE)
        return said

    yield start
    for liar in liars:
        liar.close()


NO = [
    saying("503 No", '{"error":"x","code":"no_warm"}'),
    saying("503 No", '{"error":"x","code":"no_capacity"}'),
    saying("503 No", '{"error":"x","code":"host_closed"}'),
    saying("503 No", "", load="x" * 2000),
    saying("401 Who", '{"error":"x","code":"key_unknown"}'),
    saying("400 No", '{"error":"x","code":"unknown_template"}'),
    saying("429 Wait", '{"error":"x","code":"rate_limited"}'),
]


@pytest.mark.parametrize("answer", NO, ids=range(len(NO)))
def test_host_that_says_no_is_tried_once(fleet: Fleet, lied: Callable[..., Said], answer: bytes) -> None:
    said = lied(answer)
    with fleet.services[ONE].client() as http:
        assert host_of(fleet, made(http)) == ONE
    assert [b"\r\nramet-warm: only\r\n" in head for head in said.heads] == [True]


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 201 Created\r\nContent-Length: 9\r\n\r\n{"])
def test_create_whose_fate_is_not_known_is_not_repeated(
    fleet: Fleet, lied: Callable[..., Said], answer: bytes
) -> None:
    said = Said()

    def serve(s: ssl.SSLSocket) -> None:
        head = read_head(s)
        while head.startswith(ASKED):
            s.sendall(saying("200 OK", "ok"))
            head = read_head(s)
        said.heads.append(head)
        s.sendall(answer)

    liar = fleet.lie(LIAR, serve)
    with fleet.start(ONE).client() as http:
        assert "host h20" in refused(http.post("/v1/sandboxes", json={}), 502, "host_failed")
        assert fleet.services[ONE].metrics()["ramet_sandboxes"] == 0
    assert len(said.heads) == 1
    liar.close()


def test_answers_of_the_chosen_host_are_the_clients(fleet: Fleet, lied: Callable[..., Said]) -> None:
    said = saying("429 Wait", '{"error":"many","code":"cap_reached"}')
    lied(said.replace(b"Ramet-Load", b"Retry-After: 7\r\nRamet-Load"))
    with fleet.services[ONE].client() as http:
        answer = http.post("/v1/sandboxes", json={})
    refused(answer, 429, "cap_reached")
    assert answer.headers["retry-after"] == "7" and "ramet-load" not in answer.headers


def test_host_that_is_away_is_passed_by(fleet: Fleet) -> None:
    with fleet.start(ONE, others=(LIAR,)).client() as http:
        assert [host_of(fleet, made(http)) for _ in range(3)] == [ONE] * 3


# --- clients that leave ---


def test_client_that_leaves_closes_the_connection(fleet: Fleet, lied: Callable[..., Said]) -> None:
    said = lied()
    service = fleet.services[ONE]
    with service.connect() as s:
        s.sendall(b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
        said.until(1)
    said.until(2)
    assert said.heads[1] == b"closed"
    service.until_idle()


@pytest.mark.parametrize("decides", [0, ONE, TWO])
def test_client_that_leaves_leaves_nothing(fleet: Fleet, decides: int) -> None:
    one, two = pair(fleet, state="draining")
    owner = fleet.services[TWO]
    key = f"Idempotency-Key: {fleet.request_key(decides)}\r\n" if decides else ""
    owner.tell("fault seed_wait 1")
    with fleet.services[ONE].connect() as s:
        s.sendall(f"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\n{key}Content-Length: 2\r\n\r\n{{}}".encode())
        owner.until_waiting(1)
    owner.until_waiting(0)  # the VM was ended
    owner.until_idle()
    owner.wait(lambda numbers: numbers["ramet_sandboxes"] == 0)
    assert two.get("/v1/sandboxes").json() == []
    fleet.services[ONE].until_idle()


# --- Idempotency-Key ---


@pytest.mark.parametrize("decides", [ONE, TWO])
@pytest.mark.parametrize("first", [{}, {"state": "draining"}])
def test_key_has_one_sandbox_whichever_host_is_asked(fleet: Fleet, decides: int, first: dict[str, str]) -> None:
    one, two = pair(fleet, **first)
    key = fleet.request_key(decides)
    answers = [create(client, key) for client in (one, two, one, two)]
    assert {(answer.status_code, answer.text) for answer in answers} == {(201, answers[0].text)}
    assert [answer.headers.get("idempotent-replayed") for answer in answers] == [None] + ["true"] * 3
    assert [len(client.get("/v1/sandboxes").json()) for client in (one, two)] == [1, 1]
    for client in (one, two):
        other = client.post("/v1/sandboxes", json={"egress": False}, headers={"idempotency-key": key})
        refused(other, 422, "idempotency_key_reused")
        assert create(client, key, **{"idempotent-replay": "only"}).text == answers[0].text
        refused(create(client, fleet.request_key(decides), **{"idempotent-replay": "only"}), 404, "no_such_answer")


def test_key_stays_in_its_region(fleet: Fleet) -> None:
    one, two = pair(fleet, region="elsewhere")
    for decides in (ONE, TWO):
        key = fleet.request_key(decides)
        assert host_of(fleet, create(one, key).json()["id"]) == ONE
        assert host_of(fleet, create(two, key).json()["id"]) == TWO


def test_key_in_use_is_so_on_all_hosts(fleet: Fleet) -> None:
    one, two = pair(fleet)
    owner, key = fleet.services[ONE], fleet.request_key(ONE)
    owner.tell("fault seed_wait 1")
    with ThreadPoolExecutor(1) as first:
        answer = first.submit(create, two, key)
        owner.until_waiting(1)
        for client in (one, fleet.services[TWO].client()):
            refused(create(client, key), 409, "idempotency_key_in_use")
        owner.go()
        made = answer.result()
    assert made.status_code == 201
    assert create(one, key).text == create(two, key).text == made.text


@pytest.mark.parametrize("restarted", [ONE, TWO])
def test_key_is_known_after_a_restart(fleet: Fleet, restarted: int) -> None:
    """Of the host that decided, or of the one that made the sandbox, which is another one."""
    one, two = pair(fleet, state="draining")
    keys = [fleet.request_key(ONE) for _ in range(3)]
    answers = [create(one, key).json() for key in keys]
    assert [host_of(fleet, answer["id"]) for answer in answers] == [TWO] * 3
    fleet.services[restarted].restart()
    one, two = (fleet.services[host].client() for host in (ONE, TWO))
    for key, answer in zip(keys, answers):
        assert create(two, key, **{"idempotent-replay": "only"}).json()["id"] == answer["id"]
        assert create(one, key).json()["id"] == create(two, key).json()["id"] == answer["id"]
    assert len(two.get("/v1/sandboxes").json()) == 3


def test_first_attempt_waits_for_no_host_that_is_away(fleet: Fleet) -> None:
    with fleet.start(ONE, others=(LIAR,)).client() as http:
        for key in (fleet.request_key(ONE), fleet.request_key(LIAR)):
            made = create(http, key, **FIRST)
            assert made.status_code == 201, made.text
            assert create(http, key, **FIRST).text == made.text
        refused(create(http, key), 503, "host_unreachable")
        assert len(http.get("/v1/sandboxes").json()) == 2


@pytest.mark.parametrize("decides", [ONE, TWO])
def test_repetition_finds_what_the_first_attempt_made(clock: Clock, fleet: Fleet, decides: int) -> None:  # noqa: F811
    """However long the hosts know each other."""
    one, two = pair(fleet)
    clock.move(monotonic_s=3700)
    for host in (ONE, TWO):
        turns(fleet.services[host])
    key = fleet.request_key(decides)
    answers = [create(one, key, **FIRST), create(two, key), create(one, key)]
    assert {(answer.status_code, answer.text) for answer in answers} == {(201, answers[0].text)}
    assert len(two.get("/v1/sandboxes").json()) == 1


def test_first_attempt_stays_with_hosts_that_a_repetition_asks(fleet: Fleet) -> None:
    with fleet.start(ONE, others=tuple(range(30, 50))).client() as http:
        key = next(key for key in iter(fleet.request_key, "") if ONE not in fleet.homes(key)[:8])
        refused(create(http, key, **FIRST), 503, "no_capacity")
        assert fleet.services[ONE].metrics()["ramet_sandboxes"] == 0


def test_key_is_not_used_while_its_answer_may_be_out_of_reach(fleet: Fleet) -> None:
    with fleet.start(ONE, others=(LIAR,)).client() as http:
        for key in (fleet.request_key(ONE), fleet.request_key(LIAR)):
            assert "host h20" in refused(create(http, key), 503, "host_unreachable")
        assert http.get("/v1/sandboxes").json() == []
        fleet.add(LIAR, gone=1)
        fleet.write()
        while create(http, key).status_code != 201:  # until the table is read
            pause()
        assert len(http.get("/v1/sandboxes").json()) == 1


def error(status: str, code: str, after: str = "") -> bytes:
    body = f'{{"error":"x","code":"{code}"}}'
    head = f"HTTP/1.1 {status}\r\n{after}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()


@pytest.mark.parametrize(
    "answer, seconds, reason",
    [
        (error("429 Wait", "rate_limited", "Retry-After: 7\r\n"), "7", "429 rate_limited"),
        (error("503 No", "stopping", "Retry-After: 5\r\n"), "5", "503 stopping"),
        (error("503 No", "stopping", "Retry-After: 99999999999\r\n"), "1", "503 stopping"),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 1\r\n\r\n{", "1", "500 "),
    ],
)
def test_host_that_refuses_to_say_is_asked_again(
    fleet: Fleet, lied: Callable[..., Said], answer: bytes, seconds: str, reason: str
) -> None:
    """The refusal is not about this client, but the host may have made the sandbox."""
    said = lied(answer, answer)
    with fleet.services[ONE].client() as http:
        key = fleet.request_key(ONE)
        refusal = create(http, key)
        sentence = refused(refusal, 503, "host_unreachable")
        assert "host h20" in sentence and f"({reason})" in sentence
        assert refusal.headers["retry-after"] == seconds
        refused(create(http, key), 503, "host_unreachable")  # the key can be used again
        assert fleet.services[ONE].metrics()["ramet_sandboxes"] == 0
    assert [b"idempotent-replay: only" in head for head in said.heads] == [True, True]


def test_host_that_does_not_know_the_key_has_no_answer(fleet: Fleet, lied: Callable[..., Said]) -> None:
    said = lied(error("401 Who", "key_unknown"), error("503 No", "no_warm"))
    with fleet.services[ONE].client() as http:
        assert host_of(fleet, create(http, fleet.request_key(ONE)).json()["id"]) == ONE
    assert b"idempotent-replay: only" in said.heads[0]


@pytest.mark.parametrize(
    "status, code", [(401, "key_revoked"), (409, "idempotency_key_in_use"), (422, "idempotency_key_reused")]
)
def test_answer_about_the_key_is_the_clients(fleet: Fleet, lied: Callable[..., Said], status: int, code: str) -> None:
    lied(error(f"{status} No", code))
    with fleet.services[ONE].client() as http:
        refused(create(http, fleet.request_key(ONE)), status, code)
        assert fleet.services[ONE].metrics()["ramet_sandboxes"] == 0


def test_client_that_repeats_over_all_hosts_has_one_sandbox(fleet: Fleet) -> None:
    fleet.start(THREE, "pool_warm=1", others=(ONE, TWO))
    one, two = pair(fleet)
    three = fleet.services[THREE].client()
    keys = [fleet.request_key() for _ in range(6)]

    def repeat(client: httpx.Client, key: str) -> str:
        answer = create(client, key)
        while answer.status_code == 409:
            pause()
            answer = create(client, key)
        assert answer.status_code == 201, answer.text
        return str(json.loads(answer.text)["id"])

    with ThreadPoolExecutor(3) as all:
        for key in keys:
            ids = [each.result() for each in [all.submit(repeat, client, key) for client in (one, two, three)]]
            assert len(set(ids)) == 1
    assert [len(client.get("/v1/sandboxes").json()) for client in (one, two, three)] == [len(keys)] * 3
