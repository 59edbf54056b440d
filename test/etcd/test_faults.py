# SPDX-License-Identifier: Apache-2.0
"""Parts of a whole fleet fail while clients use it: nothing is lost that is not on the part, nothing runs twice.

The fleet is that of `./dev fleet --stand-ins`. Clients come through HAProxy and repeat what may be repeated.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Iterator

import httpx
import pytest
from cell import free_ports, until
from run_fleet import API_PORT, Fleet, Host

CLIENTS = 8
ROUNDS = 8  # of all clients, before a fault, during it and after it
REQUESTS = 60
SEED = int(os.environ.get("RAMET_SEED", random.randrange(1 << 32)))
choice = random.Random()
GOOD = (200, 201, 204)
WITHOUT_QUORUM_S = 600
BUSY = "host_unreachable"  # also of a host that took 250 ms, twice, to accept a connection, on a busy machine


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    if os.geteuid() != 0:
        pytest.skip("makes network namespaces")
    fleet = Fleet(tmp_path_factory.mktemp("fleet"), 3, free_ports(2))
    try:
        fleet.start()
        fleet.start_fronts()
        yield fleet
    finally:
        fleet.stop()


class Load:
    """Clients that create, exec, fork and close; they count each refusal with what it says.

    `pause_s`: between two rounds of a client.
    """

    def __init__(self, fleet: Fleet, ledger: Path, pause_s: float = 0) -> None:
        self.fleet, self.ledger, self.pause_s = fleet, ledger, pause_s
        ledger.touch()
        self.asked: Counter[str] = Counter()
        self.refused: Counter[tuple[str, str]] = Counter()  # operation and reason
        self.sentences: set[str] = set()
        self.ran: set[str] = set()  # calls that were answered
        self.dead = ""  # a host: what it has is not asked for again
        self.rounds = 0
        self.stopped = threading.Event()
        self.threads = ThreadPoolExecutor(CLIENTS)

    def __enter__(self) -> Load:
        print(f"RAMET_SEED={SEED}")
        choice.seed(SEED)  # a test that is run alone makes the same choices
        self.clients = [self.threads.submit(self.run) for _ in range(CLIENTS)]
        self.some()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        for client in self.clients:
            client.result()
        print(dict(self.asked), "refused:", dict(self.refused), *self.sentences, sep="\n")

    def some(self) -> None:
        """Waits until the clients have done some rounds from now on."""
        end = self.rounds + ROUNDS
        until("rounds", lambda: self.rounds >= end or any(client.done() for client in self.clients))

    def reasons(self) -> set[str]:
        return {reason for _, reason in self.refused}

    def more(self) -> None:
        """Waits until the clients have made some requests, whatever the answers are."""
        end = self.asked.total() + REQUESTS
        until("requests", lambda: self.asked.total() >= end)

    def run(self) -> None:
        headers = {"authorization": f"Bearer {self.fleet.key}"}
        base = self.fleet.endpoints["fsn"]
        with httpx.Client(base_url=base, verify=False, timeout=60, trust_env=False, headers=headers) as http:
            while not self.stopped.is_set():
                self.round(http)
                self.rounds += 1
                self.stopped.wait(self.pause_s)

    def round(self, http: httpx.Client) -> None:
        made = self.ask(http, "create", "/v1/sandboxes", {}, again=True)
        path = f"/v1/sandboxes/{made['id']}"
        token = uuid.uuid4().hex
        line = f"with open('{self.ledger}', 'a') as f: f.write('{token}\\n')"
        if self.ask(http, "exec", f"{path}/exec?output=chunks", {"code": line}, again=False):
            self.ran.add(token)
        forked = self.ask(http, "fork", f"{path}/fork", {"n": 1}, again=True)
        for one in [*(forked["children"] if forked else []), made["id"]]:
            self.close(http, one)

    def close(self, http: httpx.Client, one: str) -> None:
        while True:
            answer = self.once(http, "close", "DELETE", f"/v1/sandboxes/{one}")
            if answer is not None and (answer.status_code in (204, 404) or self.is_lost(answer)):
                return

    def ask(self, http: httpx.Client, what: str, path: str, body: dict[str, Any], again: bool) -> Any:
        """Returns the answer, or None. `again`: repeats the request with its key until there is one."""
        key = {"idempotency-key": uuid.uuid4().hex, "idempotency-attempt": "first"} if again else {}
        while True:
            answer = self.once(http, what, "POST", path, json=body, headers=key)
            if answer is None or answer.status_code != 503:  # it may have had an effect
                key.pop("idempotency-attempt", None)
            if answer is not None and answer.status_code in GOOD:
                return answer.json() if again else answer
            if not again or (what == "fork" and answer is not None and self.is_lost(answer)):
                return None

    def is_lost(self, answer: httpx.Response) -> bool:
        """Whether it refuses a sandbox of the dead host: that host is down, or up again without the sandbox."""
        down = str(answer.json()["error"]).startswith(f"host {self.dead}, ")
        return bool(self.dead) and (down or answer.status_code == 404)

    def once(self, http: httpx.Client, what: str, method: str, path: str, **more: Any) -> httpx.Response | None:
        self.asked[what] += 1
        try:
            answer = http.request(method, path, **more)
        except httpx.TransportError as error:
            self.refused[what, type(error).__name__] += 1
            return None
        if answer.status_code not in GOOD:
            self.refused[what, str(answer.json()["code"])] += 1
            self.sentences.add(str(answer.json()["error"]))
        return answer


def check(fleet: Fleet, load: Load) -> None:
    """Nothing that was acknowledged is missing, and nothing exists or ran that should not."""
    lines = load.ledger.read_text().split()
    assert len(lines) == len(set(lines)), "a call ran twice"
    assert load.ran <= set(lines), "a call that was answered did not run"
    for host in fleet.hosts:
        assert not sandboxes(fleet, host), f"{host.name} has a sandbox that nobody got, or that was closed"


def sandboxes(fleet: Fleet, host: Host) -> list[str]:
    url = f"http://{host.address}:{API_PORT}/v1/sandboxes"
    answer = httpx.get(url, headers={"authorization": f"Bearer {fleet.key}"}, trust_env=False, timeout=60)
    return [str(one["id"]) for one in answer.json()]


def without_quorum(fleet: Fleet) -> Callable[[], None]:
    for member in choice.sample(fleet.etcd.members, 2):
        member.kill()
    return fleet.etcd.start


def without_leader(fleet: Fleet) -> Callable[[], None]:
    fleet.etcd.leader().kill()
    return fleet.etcd.start


def without_ramet_fleet(fleet: Fleet) -> Callable[[], None]:
    for host in fleet.hosts:
        for pid in host.pids("ramet-fleet"):
            os.kill(pid, signal.SIGKILL)
    return lambda: until("ramet-fleet", lambda: all(host.pids("ramet-fleet") for host in fleet.hosts))


@pytest.mark.smoke
@pytest.mark.parametrize("fault", [without_quorum, without_leader, without_ramet_fleet])
def test_no_request_waits_for_etcd(fleet: Fleet, tmp_path: Path, fault: Callable[..., Callable[[], None]]) -> None:
    with Load(fleet, tmp_path / "ledger") as load:
        heal = fault(fleet)
        load.some()
        heal()
        load.some()
    assert load.reasons() <= {BUSY}
    check(fleet, load)


@pytest.mark.timeout(WITHOUT_QUORUM_S + 600)
def test_ten_minutes_without_quorum(fleet: Fleet, tmp_path: Path) -> None:
    """All leases end meanwhile, and each ramet-fleet starts anew."""
    with Load(fleet, tmp_path / "ledger", pause_s=1) as load:
        heal = without_quorum(fleet)
        time.sleep(WITHOUT_QUORUM_S / 2)
        without_ramet_fleet(fleet)()
        time.sleep(WITHOUT_QUORUM_S / 2)
        load.some()
        heal()
        load.some()
    assert load.reasons() <= {BUSY}
    check(fleet, load)


@pytest.mark.smoke
def test_reload_of_haproxy_refuses_nothing(fleet: Fleet, tmp_path: Path) -> None:
    with Load(fleet, tmp_path / "ledger") as load:
        for _ in range(3):
            fleet.fronts[0].reload()
            load.some()
    assert load.reasons() <= {BUSY}
    check(fleet, load)


@pytest.mark.smoke
def test_partition_loses_nothing(fleet: Fleet, tmp_path: Path) -> None:
    """Between the two hosts of a region; HAProxy reaches both."""
    one, other, _ = fleet.hosts
    nowhere = ["to", other.address, "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent"]
    with Load(fleet, tmp_path / "ledger") as load:
        one.run("ip", "neigh", "replace", *nowhere)
        try:
            load.more()
        finally:
            one.run("ip", "neigh", "del", *nowhere[:2], "dev", "eth0")
        load.some()
    assert load.reasons() <= {"host_unreachable", "host_failed", "not_found"}  # the last of a repeated close
    check(fleet, load)


@pytest.mark.smoke
def test_killed_host_loses_only_what_it_has(fleet: Fleet, tmp_path: Path) -> None:
    with Load(fleet, tmp_path / "ledger") as load:
        victim = choice.choice(fleet.hosts[:2])
        load.dead = victim.name
        victim.kill()
        load.some()
        victim.start()
        until("host", victim.ready)
        load.some()
    check(fleet, load)
