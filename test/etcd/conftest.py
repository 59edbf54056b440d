# SPDX-License-Identifier: Apache-2.0
"""A real etcd of three members, with TLS and client certificates, and hosts that use it."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

from cell import BUILD, Etcd, free_ports, rametctl, until

PROGRAM = BUILD / "orchestrator/etcd/ramet-fleet"

cells = itertools.count(1)


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
    ports = free_ports(6)
    places = [("127.0.0.1", client, peer) for client, peer in zip(ports[::2], ports[1::2])]
    etcd = Etcd(tmp_path_factory.mktemp("etcd"), places)
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
