# SPDX-License-Identifier: Apache-2.0
"""A real etcd of three members, with TLS and client certificates, and hosts that use it."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

BUILD = Path(os.environ.get("RAMET_BUILD", "build/asan"))
RAMETCTL = BUILD / "orchestrator/operator/rametctl"
PROGRAM = BUILD / "orchestrator/etcd/ramet-fleet"
ETCD = os.environ.get("RAMET_ETCD", "etcd")
TIMEOUT_S = 180  # for what takes seconds on an idle machine
SETTLE_MS = 3000  # without a heartbeat for so long, members elect a leader

cells = itertools.count(1)


def until(what: str, condition: Callable[[], Any]) -> Any:
    """Waits until the condition holds, and returns its value."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {TIMEOUT_S} s")


def rametctl(*args: object) -> str:
    done = subprocess.run([RAMETCTL, *map(str, args)], capture_output=True, text=True, check=True)
    return done.stdout


def free_ports(n: int) -> list[int]:
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports: list[int] = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def text_of(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


class Member:
    def __init__(self, etcd: Etcd, i: int) -> None:
        self.etcd, self.name = etcd, f"m{i}"
        self.client, self.peer = etcd.ports[2 * i], etcd.ports[2 * i + 1]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.client}"

    def start(self) -> None:
        ca, folder = self.etcd.ca, self.etcd.folder
        flags = {
            "name": self.name,
            "data-dir": folder / self.name,
            "listen-client-urls": self.url,
            "advertise-client-urls": self.url,
            "listen-peer-urls": f"https://127.0.0.1:{self.peer}",
            "initial-advertise-peer-urls": f"https://127.0.0.1:{self.peer}",
            "initial-cluster": self.etcd.cluster(),
            "heartbeat-interval": SETTLE_MS // 10,
            "election-timeout": SETTLE_MS,
            "log-level": "error",
        }
        for kind in ("", "peer-"):
            flags |= {
                f"{kind}trusted-ca-file": ca / "etcd-ca.pem",
                f"{kind}cert-file": ca / f"etcd-{self.name}.pem",
                f"{kind}key-file": ca / f"etcd-{self.name}-key.pem",
                f"{kind}client-cert-auth": "true",
            }
        with open(folder / f"{self.name}.log", "ab") as log:
            self.process = subprocess.Popen(
                [ETCD, *(f"--{name}={value}" for name, value in flags.items())],
                stdout=log,
                stderr=log,
            )

    def signal(self, number: signal.Signals) -> None:
        assert self.process
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(self.url + path, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=10, context=self.etcd.context) as answer:
            value: dict[str, Any] = json.load(answer)
            return value

    def leads(self) -> bool:
        try:
            status = self.post("/v3/maintenance/status", {})
        except OSError:
            return False
        return bool(status.get("leader") == status["header"]["member_id"])


class Etcd:
    def __init__(self, folder: Path) -> None:
        self.folder, self.ca = folder, folder / "ca"
        self.ports = free_ports(6)
        self.members = [Member(self, i) for i in range(3)]
        rametctl("fleet", "init", self.ca, 0, *(m.url for m in self.members))
        for m in self.members:
            rametctl("fleet", "ca", self.ca, "etcd", m.name, "127.0.0.1")
        self.context = ssl.create_default_context(cafile=str(self.ca / "etcd-ca.pem"))
        self.context.load_cert_chain(self.ca / "etcd-m0.pem", self.ca / "etcd-m0-key.pem")

    def cluster(self) -> str:
        return ",".join(f"{m.name}=https://127.0.0.1:{m.peer}" for m in self.members)

    def start(self) -> None:
        for m in self.members:
            if not m.process:
                m.start()
        self.leader()

    def leader(self) -> Member:
        leader: Member = until(
            "a leader", lambda: next((m for m in self.members if m.process and m.leads()), None)
        )
        return leader

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Asks the members in turn until one answers."""

        def ask() -> dict[str, Any] | None:
            for m in self.members:
                try:
                    return m.post(path, body)
                except OSError:
                    continue
            return None

        answer: dict[str, Any] = until(f"an answer to {path}", ask)
        return answer

    def put(self, key: str, value: str) -> None:
        self.post("/v3/kv/put", {"key": text_of(key), "value": text_of(value)})

    def get(self, key: str) -> dict[str, Any] | None:
        kvs = self.post("/v3/kv/range", {"key": text_of(key)}).get("kvs", [])
        return kvs[0] if kvs else None

    def stop(self) -> None:
        for m in self.members:
            m.kill()


class Host:
    """A machine of the fleet: its settings, its tables, and its ramet-fleet."""

    def __init__(self, fleet: Fleet, number: int, folder: Path, token: str) -> None:
        self.fleet, self.number, self.name = fleet, number, f"h{number}"
        self.settings, self.tables = folder / "settings", folder / "tables"
        self.log_path = folder / "log"
        (self.tables / "out").mkdir(parents=True)
        (folder / "token").write_text(token)
        rametctl("fleet", "join", folder / "token", self.settings)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def key(self) -> str:
        return f"/ramet/{self.fleet.cell}/hosts/{self.number}"

    def start(self) -> Host:
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [PROGRAM, self.settings, self.tables], stdin=subprocess.DEVNULL, stderr=log
            )
        return self

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def log(self) -> str:
        return self.log_path.read_text()

    def says(self, *parts: str) -> None:
        until(f"{self.name} says {parts}", lambda: all(part in self.log() for part in parts))

    def table(self) -> dict[int, dict[str, Any]]:
        """Returns the hosts of its table by number; none if there is no table yet."""
        path = self.tables / "hosts.json"
        if not path.exists():
            return {}
        table = json.loads(path.read_text())
        assert (table["cell"], table["self"]) == (self.fleet.cell, self.number)
        return {host["host"]: host for host in table["hosts"]}

    def offer(self, *keys: dict[str, Any]) -> None:
        """Writes the keys of its catalogue, as the service does."""
        new = self.tables / "out/.keys.json"
        new.write_text(json.dumps({"format": 1, "keys": keys}))
        new.rename(self.tables / "out/keys.json")

    def keys(self) -> dict[str, dict[str, Any]]:
        """Returns the keys of the cell by name, as its service reads them."""
        path = self.tables / "keys.json"
        return {k["name"]: k for k in json.loads(path.read_text())["keys"]} if path.exists() else {}

    def sees(self, *others: int, gone: tuple[int, ...] = ()) -> None:
        """Waits until its table has exactly these hosts."""

        def seen() -> bool:
            table = self.table()
            return {n for n, h in table.items() if not h["gone"]} == {self.number, *others} and {
                n for n, h in table.items() if h["gone"]
            } == set(gone)

        try:
            until("table", seen)
        except AssertionError:
            raise AssertionError(f"{self.name} sees {self.table()}; its log: {self.log()}") from None


class Fleet:
    """A cell of its own in the etcd that all tests share."""

    def __init__(self, etcd: Etcd, folder: Path) -> None:
        self.etcd, self.folder, self.cell = etcd, folder, next(cells)
        self.ca = folder / "ca"
        shutil.copytree(etcd.ca, self.ca)
        self.set(cell=self.cell)
        self.hosts: list[Host] = []

    def set(self, **values: Any) -> None:
        path = self.ca / "fleet.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    def token(self, number: int, name: str = "") -> str:
        address = f"10.0.0.{number}:7443"
        return rametctl("fleet", "ca", self.ca, "host", number, name or f"h{number}", address, "fsn")

    def host(self, number: int, token: str = "") -> Host:
        """Returns a machine that has joined; its ramet-fleet does not run yet."""
        folder = self.folder / f"machine{len(self.hosts)}"
        host = Host(self, number, folder, token or self.token(number))
        self.hosts.append(host)
        return host

    def card(self, number: int) -> dict[str, Any]:
        return {
            "format": 1,
            "fleet": json.loads((self.ca / "fleet.json").read_text())["fleet"],
            "instance": f"{number:032x}",
            "host": number,
            "name": f"h{number}",
            "address": f"10.0.0.{number}:7443",
            "seen": int(time.time()),
        }

    def put_card(self, number: int, **changes: Any) -> None:
        card = {**self.card(number), **changes}
        self.etcd.put(f"/ramet/{self.cell}/hosts/{number}", json.dumps(card))


@pytest.fixture(scope="session")
def own_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    etcd = Etcd(tmp_path_factory.mktemp("etcd"))
    etcd.start()
    yield etcd
    etcd.stop()


@pytest.fixture
def etcd(own_etcd: Etcd) -> Iterator[Etcd]:
    """The etcd with all of its members, whatever the test before did to them."""
    own_etcd.start()
    yield own_etcd
    for m in own_etcd.members:
        if m.process:
            m.signal(signal.SIGCONT)


@pytest.fixture
def fleet(etcd: Etcd, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(etcd, tmp_path)
    yield fleet
    for host in fleet.hosts:
        host.kill()
