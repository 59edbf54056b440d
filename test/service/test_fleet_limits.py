# SPDX-License-Identifier: Apache-2.0
"""The limits of a tenant hold for all hosts of a fleet together: each host has an allowance."""

from __future__ import annotations

import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterator

import httpx
import pytest

from conftest import refused
from fleet import Fleet, Liar, read_head
from stand_in import pause
from test_checkpoints import call, of_calls, until_kept
from test_clock import Clock, clock  # noqa: F401

ONE, TWO, THREE, LIAR = 17, 18, 19, 20
CAP = 10
KEPT = 8  # checkpoints
SIZES = "disks_gb=40 rootfs_gb=16 ram_mib=16384 spaces_gb=1"
TIER = f"tier_free=concurrent={CAP} checkpoints={KEPT} persistent=yes {SIZES}"
LEASE_S = 90


@pytest.fixture
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    started = Fleet(tmp_path_factory.mktemp("fleet"))
    yield started
    started.stop()


class Tenant:
    """A tenant of hosts that each serve it by themselves, without placement."""

    def __init__(self, fleet: Fleet, hosts: list[int], keeper: int = 0, others: tuple[int, ...] = ()) -> None:
        """`keeper`: which host it has to be."""
        self.fleet, self.hosts = fleet, hosts
        for host in hosts:  # of other regions: placement would choose among all of them
            fleet.add(host, region=f"r{host}")
        self.start(hosts[0], "key=admin", others=(*hosts, *others))
        self.admin = fleet.services[hosts[0]].keys[0]
        self.key = self.name = ""
        while not self.name or keeper not in (0, self.by_score()[0]):
            self.make_key()
        while self.name not in [key["tenant"] for key in fleet.offered(hosts[0]).values()]:
            pause()
        for host in hosts[1:]:
            (fleet.home / f"table{host}").mkdir()
            fleet.carry(hosts[0], host)
            self.start(host)

    def start(self, host: int, *more: str, others: tuple[int, ...] = ()) -> None:
        self.fleet.start(host, TIER, *more, others=others)

    def as_admin(self, host: int) -> httpx.Client:
        return self.fleet.services[host].client(headers={"authorization": f"Bearer {self.admin}"})

    def make_key(self) -> None:
        with self.as_admin(self.hosts[0]) as http:
            made = http.post("/v1/keys", json={"name": "a key", "tier": "free"}).json()
        self.key, self.name = made["key"], made["tenant"]

    def by_score(self) -> list[int]:
        """The hosts in the order in which they are the tenant's homes: the first one is its keeper."""
        return self.fleet.homes(self.name)

    def at(self, host: int) -> httpx.Client:
        return self.fleet.services[host].client(headers={"authorization": f"Bearer {self.key}"})

    def create(self, host: int, **spec: Any) -> httpx.Response:
        with self.at(host) as http:
            return http.post("/v1/sandboxes", json=spec)

    def make(self, host: int, **spec: Any) -> str:
        answer = self.create(host, **spec)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def delete(self, host: int, id: str) -> None:
        with self.at(host) as http:
            assert http.delete(f"/v1/sandboxes/{id}").status_code == 204

    def fork(self, host: int, id: str, n: int) -> httpx.Response:
        with self.at(host) as http:
            return http.post(f"/v1/sandboxes/{id}/fork", json={"n": n})

    def take(self, host: int, id: str) -> httpx.Response:
        """Takes a checkpoint of the sandbox."""
        with self.at(host) as http:
            return http.post(f"/v1/sandboxes/{id}/checkpoints")

    def keep(self, host: int, id: str) -> str:
        answer = self.take(host, id)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def forget(self, host: int, checkpoint: str) -> None:
        with self.at(host) as http:
            assert http.delete(f"/v1/checkpoints/{checkpoint}").status_code == 204

    def checkpoints(self) -> list[dict[str, Any]]:
        """Returns the checkpoints on all hosts that run."""
        with self.at(self.hosts[0]) as http:
            return list(http.get("/v1/checkpoints").json())

    def freeze(self, host: int) -> httpx.Response:
        """Makes a sandbox and freezes it."""
        with self.at(host) as http:
            return http.post(f"/v1/sandboxes/{self.make(host)}/freeze")

    def have(self, host: int, mib: int) -> None:
        """Has the host count so much more for the tenant's Spaces."""
        self.fleet.services[host].tell(f"spaces {self.name} {mib}")

    def running(self, *hosts: int) -> int:
        """Returns how many sandboxes these hosts have; without any named, all hosts."""
        hosts = hosts or tuple(self.hosts)
        with self.at(hosts[0]) as http:
            places = [self.fleet.place(one["id"]) for one in http.get("/v1/sandboxes").json()]
        return sum(place is not None and place[1] in hosts for place in places)

    def is_sure(self, host: int) -> bool:
        with self.as_admin(host) as http:
            return "\nramet_limits_away 0\n" in http.get("/metrics").text

    def until_sure(self) -> None:
        """Waits until the keeper has heard of all others."""
        for host in self.hosts:
            id = self.make(host)
            while not self.is_sure(host):
                pause()
            self.delete(host, id)


@pytest.fixture
def three(fleet: Fleet) -> Tenant:
    tenant = Tenant(fleet, [ONE, TWO, THREE])
    tenant.until_sure()
    return tenant


def capped(answer: httpx.Response, limit: str = f"limit of {CAP}") -> str:
    sentence = refused(answer, 429, "cap_reached")
    assert limit in sentence and "fleet" in sentence
    assert answer.headers["retry-after"] == "10"
    return sentence


def no_more_checkpoints(answer: httpx.Response) -> str:
    sentence = refused(answer, 429, "cap_reached")
    assert f"limit is {KEPT} in the whole fleet" in sentence
    return sentence


# --- all hosts together ---


def test_limit_holds_under_concurrent_creates(three: Tenant) -> None:
    hosts = [ONE, TWO, THREE] * 8
    with ThreadPoolExecutor(len(hosts)) as all:
        for _ in range(3):
            answers = list(all.map(three.create, hosts))
            made = [answer for answer in answers if answer.status_code == 201]
            for answer in answers:
                if answer.status_code != 201:
                    capped(answer)
            # Each of the other hosts may have been granted a slot that it has no use for.
            assert CAP - 2 <= len(made) == three.running() <= CAP
            for host, answer in zip(hosts, answers):
                if answer.status_code == 201:
                    three.delete(host, answer.json()["id"])


@pytest.mark.parametrize("host", [ONE, TWO, THREE])
def test_one_host_can_use_all_of_it(three: Tenant, host: int) -> None:
    ids = [three.make(host) for _ in range(CAP)]
    for other in three.hosts:
        capped(three.create(other))
    for id, other in zip(ids, [ONE, TWO, THREE]):  # what ends on one host may begin on another, at once
        three.delete(host, id)
        three.make(other)
        capped(three.create(host))
    assert three.running() == CAP


def test_forks_count(three: Tenant) -> None:
    one, two = three.make(ONE), three.make(TWO)
    assert len(three.fork(ONE, one, 5).json()["children"]) == 5
    capped(three.fork(TWO, two, 4))
    assert len(three.fork(TWO, two, 3).json()["children"]) == 3
    assert three.running() == CAP
    capped(three.create(THREE))


def test_resumes_count(three: Tenant) -> None:
    ids = [three.make(ONE) for _ in range(CAP)]
    with three.at(ONE) as http:
        space = http.post(f"/v1/sandboxes/{ids[0]}/freeze").json()["space_id"]
        three.make(TWO)
        capped(http.post(f"/v1/spaces/{space}/resume", json={}))
        three.delete(ONE, ids[1])
        assert http.post(f"/v1/spaces/{space}/resume", json={}).status_code == 201


def test_disks_count(fleet: Fleet) -> None:
    tenant = Tenant(fleet, [ONE, TWO])
    tenant.until_sure()
    ids = [tenant.make(host, rootfs_gb=16) for host in (ONE, TWO)]
    capped(tenant.create(ONE, rootfs_gb=16), "limit of 40 GB")
    tenant.make(ONE, rootfs_gb=8)
    capped(tenant.create(TWO), "limit of 40 GB")
    tenant.delete(TWO, ids[1])
    tenant.make(ONE, rootfs_gb=16)


def test_checkpoints_count(three: Tenant) -> None:
    boxes = {host: three.make(host) for host in three.hosts}
    kept = {host: [three.keep(host, boxes[host]) for _ in range(2)] for host in three.hosts}
    for host in (ONE, THREE):
        three.keep(host, boxes[host])
    for one, other in ((ONE, TWO), (TWO, THREE), (THREE, ONE)):
        for host in three.hosts:
            no_more_checkpoints(three.take(host, boxes[host]))
        three.forget(one, kept[one][0])  # what is deleted on one host may be taken on another, at once
        three.keep(other, boxes[other])
    assert len(three.checkpoints()) == KEPT


def test_checkpoints_do_not_exceed_the_limit_together(three: Tenant) -> None:
    boxes = {host: three.make(host) for host in three.hosts}
    with ThreadPoolExecutor(24) as all:
        answers = list(all.map(lambda host: three.take(host, boxes[host]), three.hosts * 8))
    taken = [answer for answer in answers if answer.status_code == 201]
    for answer in answers:
        if answer.status_code != 201:
            no_more_checkpoints(answer)
    assert KEPT - 2 <= len(taken) == len(three.checkpoints()) <= KEPT


def test_calls_are_kept_up_to_the_limit(three: Tenant) -> None:
    """Their checkpoints have no request: they replace the oldest on their host, and no earlier."""
    box = three.make(ONE)
    others = [three.keep(ONE, box) for _ in range(KEPT - 3)]
    with three.at(TWO) as http:
        other = three.make(TWO, checkpoint_each_call={"keep": 20})
        ids = [one["id"] for one in until_kept(http, other)]
        ids += [call(http, other, mark) for mark in "abcd"]
        assert [one["id"] for one in of_calls(http, other)] == ids[-3:]
        no_more_checkpoints(three.take(TWO, other))
        three.forget(ONE, others[0])
        ids.append(call(http, other, "e"))
        assert [one["id"] for one in of_calls(http, other)] == ids[-4:]
    no_more_checkpoints(three.take(ONE, box))


def test_restarted_hosts_count_what_they_keep(three: Tenant) -> None:
    """Checkpoints count without a sandbox."""
    for host in three.hosts:
        box = three.make(host)
        for _ in range(2):
            three.keep(host, box)
        three.delete(host, box)
    while {one["state"] for one in three.checkpoints()} != {"stored"}:
        pause()
    for host in three.hosts:
        three.fleet.services[host].restart()
    # A host may not have answered yet whether it gives back what it had before the restart.
    boxes: dict[int, str] = {}
    while len(boxes) < len(three.hosts):
        answers = {host: three.create(host) for host in three.hosts if host not in boxes}
        boxes |= {host: answer.json()["id"] for host, answer in answers.items() if answer.status_code == 201}
        pause()
    while not all(three.is_sure(host) for host in three.hosts):  # until then, hosts may overdraw
        pause()
    while len(three.checkpoints()) < KEPT:
        for host in three.hosts:
            three.take(host, boxes[host])
        pause()
    for host in three.hosts:
        no_more_checkpoints(three.take(host, boxes[host]))
    assert len(three.checkpoints()) == KEPT


def test_spaces_count(fleet: Fleet) -> None:
    tenant = Tenant(fleet, [ONE, TWO])
    tenant.until_sure()
    tenant.have(ONE, 640)
    tenant.have(TWO, 368)
    assert tenant.freeze(ONE).status_code == 200
    sentence = refused(tenant.freeze(TWO), 429, "quota_reached")
    assert "limit of 1024 MiB in the whole fleet" in sentence
    with tenant.at(TWO) as http:
        (box,) = http.get("/v1/sandboxes").json()
        assert http.post(f"/v1/sandboxes/{box['id']}/exec", json={"code": "out x"}).status_code == 200
        refused(http.post(f"/v1/sandboxes/{box['id']}/checkpoints"), 429, "quota_reached")
        tenant.have(ONE, -640)
        assert http.post(f"/v1/sandboxes/{box['id']}/checkpoints").status_code == 201
    assert tenant.freeze(TWO).status_code == 200
    tenant.have(TWO, -368)


def test_freezes_without_a_request_count(three: Tenant) -> None:
    with three.at(ONE) as http:
        boxes = [three.make(host, persistent=True, timeout_seconds=1) for host in three.hosts]
        for box in boxes:
            while (gone := http.get(f"/v1/sandboxes/{box}")).status_code == 200:
                pause()
            refused(gone, 404, "frozen")
        three.have(ONE, 1024)
        box = three.make(ONE, persistent=True, timeout_seconds=1)
        while (gone := http.get(f"/v1/sandboxes/{box}")).status_code == 200:
            pause()
        assert "could not be frozen" in refused(gone, 404, "expired")
        three.have(ONE, -1024)


def test_restarted_hosts_count_what_runs(three: Tenant) -> None:
    for host in three.hosts:
        three.make(host)
        three.make(host)
    for host in three.hosts:
        three.fleet.services[host].restart()
    while three.create(THREE).status_code == 201:
        pass
    while three.running() < CAP:
        for host in three.hosts:
            three.create(host)
        pause()
    for host in three.hosts:
        capped(three.create(host))
    assert three.running() == CAP


def test_repeated_create_is_one(three: Tenant) -> None:
    """Also if its first attempt waits for the keeper."""
    for host in three.hosts:
        with three.at(host) as http:
            answers = [http.post("/v1/sandboxes", json={}, headers={"idempotency-key": f"key{host}"}) for _ in "ab"]
        assert {(answer.status_code, answer.text) for answer in answers} == {(201, answers[0].text)}
    assert three.running() == 3


def test_host_alone_has_all_of_it(fleet: Fleet) -> None:
    tenant = Tenant(fleet, [ONE])
    for _ in range(CAP):
        tenant.make(ONE)
    capped(tenant.create(ONE))


def test_operators_have_no_limit(fleet: Fleet) -> None:
    fleet.start(ONE, TIER, "key=operator", others=(TWO,))
    with fleet.services[ONE].client(headers={"authorization": f"Bearer {fleet.services[ONE].keys[0]}"}) as http:
        for _ in range(CAP + 2):
            assert http.post("/v1/sandboxes", json={}).status_code == 201


# --- hosts that are lost ---


def overdraft(homes: int, cap: int = CAP) -> int:
    return -(-cap // (5 * homes))


def test_allowance_of_a_lost_host_returns(fleet: Fleet, clock: Clock) -> None:  # noqa: F811
    tenant = Tenant(fleet, [ONE, TWO, THREE])
    tenant.until_sure()
    keeper, other, lost = tenant.by_score()
    for _ in range(6):
        tenant.make(lost)
    for _ in range(4):
        tenant.make(other)
    fleet.services[lost].kill()
    for _ in range(6):
        for host in (keeper, other):
            capped(tenant.create(host))
        clock.move(monotonic_s=10)
    while tenant.running(keeper, other) < CAP:
        for host in (keeper, other):  # also the other one's: they agree on the keepers
            if tenant.create(host).status_code == 201:
                break
        else:
            clock.move(monotonic_s=10)
            pause()
    for host in (keeper, other):
        capped(tenant.create(host))


def test_lost_keeper_costs_no_more_than_the_overdraft(fleet: Fleet, clock: Clock) -> None:  # noqa: F811
    tenant = Tenant(fleet, [ONE, TWO, THREE])
    tenant.until_sure()
    keeper, *others = tenant.by_score()
    for host in others:
        tenant.make(host)
    fleet.services[keeper].kill()
    for host in others:
        while (answer := tenant.create(host)).status_code == 201:
            pass
        assert f"host h{keeper}" in capped(answer)
    made = tenant.running(*others)
    assert made <= CAP + 2 * overdraft(3)
    fleet.add(keeper, gone=1)
    fleet.write()
    while tenant.running(*others) < CAP:
        for host in others:
            tenant.create(host)
        clock.move(monotonic_s=1)
        pause()
    for host in others:
        sentence = capped(tenant.create(host))
        assert "does not answer" not in sentence
    assert tenant.running(*others) == max(made, CAP)


def test_checkpoints_without_a_keeper_are_within_the_overdraft(three: Tenant) -> None:
    keeper, *others = three.by_score()
    boxes = {host: three.make(host) for host in others}
    for host in others:
        three.keep(host, boxes[host])
    three.fleet.services[keeper].kill()
    n = len(others)
    for host in others:
        while (answer := three.take(host, boxes[host])).status_code == 201:
            n += 1
        sentence = refused(answer, 429, "cap_reached")
        assert f"host h{keeper}" in sentence and "delete" not in sentence
        assert int(answer.headers["retry-after"]) >= 5
    assert n <= KEPT + 2 * overdraft(3, KEPT)


def test_keeper_that_is_forgotten_while_it_is_asked(fleet: Fleet) -> None:
    """The table has it no more when its answer is due."""
    asked, over = threading.Event(), threading.Event()

    def serve(s: ssl.SSLSocket) -> None:
        if b"/report " not in read_head(s):
            asked.set()
            over.wait(60)

    tenant = Tenant(fleet, [ONE], keeper=LIAR, others=(LIAR,))
    liar = fleet.lie(LIAR, serve)
    with ThreadPoolExecutor(3) as all, fleet.services[ONE].client() as http:
        creates = [all.submit(tenant.create, ONE) for _ in range(3)]
        assert asked.wait(60)
        del fleet.hosts[LIAR]
        fleet.add(ONE, region="read")
        fleet.write()
        while "read" not in http.get("/v1/regions", headers={"authorization": f"Bearer {tenant.key}"}).text:
            pause()
        over.set()
        for answer in creates:
            assert answer.result().status_code in (201, 429)
    liar.close()
    tenant.make_key()


# --- peers that lie ---


def answering(text: str, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


def serve_all(reports: str, grants: str, status: str = "200 OK") -> Callable[[ssl.SSLSocket], None]:
    def serve(s: ssl.SSLSocket) -> None:
        while True:
            head = read_head(s)
            s.sendall(answering(reports if b"/report " in head else grants, status))

    return serve


LIES = [
    serve_all("end\n", ""),
    serve_all("end\n", "\x00" * 100),
    serve_all("end\n", "1 4 2 16 3 0 0 0 0\n", "500 No"),
    serve_all("end\n", "1 99999999999 0 0 0 0 0 0 0\n"),
    serve_all("x" * 60000, "x" * 60000),
    serve_all("end\n", "0 0 0 0 0 0 0 0 0\n"),
]


@pytest.mark.parametrize("lie", LIES, ids=range(len(LIES)))
def test_keeper_that_lies_gives_nothing(fleet: Fleet, lie: Callable[[ssl.SSLSocket], None]) -> None:
    run_beside(fleet, lie, overdraft(2))


@pytest.mark.parametrize("record", [1000000, CAP, 5])
def test_keeper_that_gives_more_gives_no_more_than_the_limit(fleet: Fleet, record: int) -> None:
    run_beside(fleet, serve_all("end\n", f"1 {record} 5 1000000 5 0 0 0 0\n"), CAP)


def run_beside(fleet: Fleet, lie: Callable[[ssl.SSLSocket], None], most: int) -> None:
    """Checks that a host beside a keeper that lies makes at most so many sandboxes."""
    liar: Liar | None = None
    tenant = Tenant(fleet, [ONE], keeper=LIAR, others=(LIAR,))
    try:
        liar = fleet.lie(LIAR, lie)
        n = 0
        while (answer := tenant.create(ONE)).status_code == 201:
            n += 1
        capped(answer)
        assert n <= most
    finally:
        if liar:
            liar.close()


GARBAGE = ["", "\n", "x" * 5000, "0" * 16, "0123456789abcdef 0123456789abcdef 18 tnt_a 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"]


@pytest.mark.parametrize("path", ["", "/yield", "/report"])
def test_garbage_is_refused(fleet: Fleet, path: str) -> None:
    tenant = Tenant(fleet, [ONE])
    with fleet.peer(ONE, of=ONE) as peer:
        for text in GARBAGE:
            assert peer.post(f"/fleet/slots{path}", content=text.encode()).status_code in (400, 409)
    with tenant.at(ONE) as http:  # not for clients
        refused(http.post(f"/fleet/slots{path}", content=b""), 404, "no_such_route")
    tenant.make(ONE)


# --- hosts with many tenants ---


def keepers_of(*numbers: int) -> int:
    """Identifies the keepers, as a program of its own computes it."""
    hashed = 0xCBF29CE484222325
    for number in numbers:
        hashed = (hashed ^ number) * 0x100000001B3 % (1 << 64)
    return hashed


def line(keepers: int, host: int, tenant: str, used: int = 0) -> str:
    """A host's line on a tenant, with as many limits as any version has."""
    return f"{keepers:016x} {1:016x} {host} {tenant} {used} {used} 0 0{' 0' * 28}\n"


def test_all_of_many_tenants_are_reported(fleet: Fleet) -> None:
    tenant = Tenant(fleet, [ONE])
    fleet.services[ONE].stop()
    tenant.start(ONE, "max_vms=140")
    names = set()
    for _ in range(102):
        tenant.make_key()
        tenant.make(ONE)
        names.add(tenant.name)
    reported: list[str] = []
    last, end = "-", False
    with fleet.peer(ONE, of=ONE) as peer:
        while not end:
            answer = peer.post("/fleet/slots/report", content=line(keepers_of(ONE), ONE, last).encode())
            assert answer.status_code == 200 and len(answer.content) < 128 << 10
            *lines, end_line = answer.text.splitlines()
            end = end_line == "end"
            reported += [one.split()[3] for one in (lines if end else [*lines, end_line])]
            last = reported[-1]
    assert len(reported) == len(set(reported)) and set(reported) >= names


def test_keeper_asks_for_all_parts_of_a_report(fleet: Fleet) -> None:
    tenant = Tenant(fleet, [ONE], keeper=ONE, others=(LIAR,))
    asked: list[str] = []

    def serve(s: ssl.SSLSocket) -> None:
        while True:
            request = read_head(s)
            while not request.endswith(b"\n") or request.endswith(b"\r\n"):
                request += s.recv(65536)
            keepers, _, _, after, *_ = request.decode().splitlines()[-1].split()
            said = line(int(keepers, 16), LIAR, tenant.name, used=4)
            if b"/report " in request:
                asked.append(after)
                said = line(int(keepers, 16), LIAR, "tnt_") if after == "-" else said + "end\n"
            s.sendall(answering(said))

    liar = fleet.lie(LIAR, serve)
    tenant.make(ONE)
    while not tenant.is_sure(ONE):
        pause()
    while (answer := tenant.create(ONE)).status_code == 201:
        pass
    assert "does not answer" not in capped(answer)
    assert tenant.running(ONE) == CAP - 4 and asked[:2] == ["-", "tnt_"]
    liar.close()


# --- lists over all hosts ---


def test_lists_of_one_tenant_leave_room_for_others(fleet: Fleet) -> None:
    tenant = Tenant(fleet, [ONE])
    for _ in range(CAP):
        tenant.make(ONE, metadata={"note": "x" * 16000})
    readers = [fleet.services[ONE].connect(slow=True) for _ in range(64)]
    for s in readers:  # each list waits for its reader
        s.sendall(f"GET /v1/sandboxes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {tenant.key}\r\n\r\n".encode())
    for s in readers:
        assert s.recv(12) == b"HTTP/1.1 200"
    with tenant.at(ONE) as http:
        assert "64 of them" in refused(http.get("/v1/sandboxes"), 429, "too_many")
        tenant.make_key()
        with tenant.at(ONE) as another:
            assert another.get("/v1/sandboxes").json() == []
        for s in readers:
            s.close()
        while http.get("/v1/sandboxes").status_code == 429:
            pause()
