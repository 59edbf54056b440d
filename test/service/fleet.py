# SPDX-License-Identifier: Apache-2.0
"""Fleets of services on this machine: certificates, the table of hosts, and hosts that lie."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import os
import secrets
import socket
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Any, Callable, Iterator

import httpx

from conftest import Service

CELL = 3
NETS = itertools.count(1)


def openssl(*args: object, text: str = "") -> None:
    subprocess.run(["openssl", *map(str, args)], input=text.encode(), check=True, capture_output=True)


class Authority:
    """Makes certificates for hosts: NAME.pem and NAME.key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.cert, self.key = folder / "ca.pem", folder / "ca.key"
        openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-keyout", self.key, "-out", self.cert, "-subj", "/CN=a fleet", "-days", "2"),
        )

    def make(self, name: str, file: str = "") -> tuple[Path, Path]:
        """Makes the certificate of the host `name`; `file`: another name for its files."""
        cert, key = self.folder / f"{file or name}.pem", self.folder / f"{file or name}.key"
        request = self.folder / "request"
        openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-keyout", key, "-out", request, "-subj", f"/CN={name}"),
        )
        openssl(
            *("x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self.key, "-days", "2"),
            *("-set_serial", secrets.randbits(64), "-out", cert),
        )
        return cert, key


class Fleet:
    """A fleet whose hosts have addresses of their own in 127.0.0.0/8, the same port, and names like h17."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.authority = Authority(home / "ca")
        self.key = secrets.token_bytes(32)
        (home / "key").write_text(self.key.hex() + "\n")
        pid, self.net = os.getpid(), next(NETS)
        self.prefix = f"127.{64 + (pid >> 8) % 128}.{pid % 256}."
        self.hosts: dict[int, dict[str, Any]] = {}
        self.services: dict[int, Service] = {}
        self.markers = 0

    def address(self, host: int) -> tuple[str, int]:
        return self.prefix + str(host), 7400 + self.net

    def add(self, host: int, **fields: Any) -> None:
        """Adds a host to the table, or changes its entry."""
        ip, port = self.address(host)
        entry = self.hosts.setdefault(host, {"host": host, "name": f"h{host}", "address": f"{ip}:{port}"})
        entry.update(fields)

    def write(self) -> None:
        """Writes the table of each service."""
        for host in self.services:
            self.write_for(host)

    def write_for(self, host: int, text: str = "") -> None:
        folder = self.home / f"table{host}"
        folder.mkdir(exist_ok=True)
        table = {"format": 1, "fleet": "test", "cell": CELL, "self": host, "hosts": list(self.hosts.values())}
        (folder / "new").write_text(text or json.dumps(table))
        (folder / "new").rename(folder / "hosts.json")

    def write_keys(self, host: int, keys: "list[dict[str, Any]] | str") -> None:
        """Gives the host the keys of its cell; text: damaged ones."""
        folder = self.home / f"table{host}"
        text = keys if isinstance(keys, str) else json.dumps({"format": 1, "keys": keys})
        (folder / "new").write_text(text)
        (folder / "new").rename(folder / "keys.json")

    def offer(self, host: int) -> Path:
        """Returns the file with the host's own keys."""
        return self.home / f"table{host}" / "out" / "keys.json"

    def offered(self, host: int) -> dict[str, dict[str, Any]]:
        """Returns the host's own keys by their ids."""
        path = self.offer(host)
        return {key["id"]: key for key in json.loads(path.read_text())["keys"]} if path.exists() else {}

    def carry(self, one: int, other: int) -> None:
        """Gives a host the keys of another one."""
        self.write_keys(other, self.offer(one).read_text())

    def settings(self, host: int) -> list[str]:
        ip, port = self.address(host)
        cert, key = self.authority.make(f"h{host}")
        return [
            f"fleet_dir={self.home}/table{host}",
            f"fleet_id_key={self.home}/key",
            f"fleet_listen={ip}:{port}",
            f"fleet_ca={self.authority.cert}",
            f"fleet_cert={cert}",
            f"fleet_key={key}",
        ]

    def start(
        self, host: int, *settings: str, agent: bool = False, others: tuple[int, ...] = (), out: bool = True
    ) -> Service:
        """Starts a host, perhaps again; `others` are in its table, too. `out`: it has a folder for its keys."""
        for one in (host, *others):
            self.add(one)
        self.write_for(host)
        home = self.home / f"h{host}"
        home.mkdir(exist_ok=True)
        if out:
            self.offer(host).parent.mkdir(exist_ok=True)
        # So that hosts do not count the memory that others use on this machine.
        own = ["max_vms=64", "memory_overcommit=1000"]
        all_settings = [*own, *self.settings(host), *settings]
        if host in self.services:
            self.services[host].start(*all_settings)
            return self.services[host]
        started = Service(home, *all_settings, agent=agent)
        self.services[host] = started
        return started

    def peer(self, host: int, of: int) -> httpx.Client:
        """Returns a client that other hosts take for the host `of`."""
        cert, key = self.authority.make(f"h{of}", f"peer{of}")
        tls = ssl.create_default_context(cafile=str(self.authority.cert))
        tls.check_hostname = False
        tls.load_cert_chain(cert, key)
        ip, port = self.address(host)
        return httpx.Client(base_url=f"https://{ip}:{port}", verify=tls, timeout=60, trust_env=False)

    def request_key(self, *homes: int) -> str:
        """Makes an Idempotency-Key whose first homes are these hosts, the one that decides first."""
        while True:
            key = secrets.token_hex(8)
            if self.homes(key)[: len(homes)] == list(homes):
                return key

    def homes(self, key: str) -> list[int]:
        """Returns the hosts by their score for the key, as a program of its own computes it."""
        hashed = 0xCBF29CE484222325
        for byte in key.encode():
            hashed = (hashed ^ byte) * 0x100000001B3 % (1 << 64)
        return sorted(self.hosts, key=lambda host: mix(hashed ^ mix(host + 1)), reverse=True)

    def stop(self) -> None:
        for service in self.services.values():
            if service.server.poll() is None:
                service.tell("go")
            service.stop()

    def place(self, one: str) -> tuple[int, int] | None:
        """Returns cell and host of an id, as a program of its own reads them."""
        raw = bytes.fromhex(one[4:])
        mac = hmac.new(self.key, raw[:11], hashlib.sha256).digest()
        clear = bytes(a ^ b for a, b in zip(raw[11:], mac))
        check = hmac.new(self.key, raw[:11] + clear[:4], hashlib.sha256).digest()[0]
        number = int.from_bytes(clear[:4], "big")
        return (number >> 20, number & 0xFFFFF) if check == clear[4] else None

    def make_id(self, host: int, prefix: str = "sbx_", cell: int = CELL) -> str:
        """Makes an id as `host` would."""
        first = secrets.token_bytes(11)
        clear = (cell << 20 | host).to_bytes(4, "big")
        clear += hmac.new(self.key, first + clear, hashlib.sha256).digest()[:1]
        mac = hmac.new(self.key, first, hashlib.sha256).digest()
        return prefix + (first + bytes(a ^ b for a, b in zip(clear, mac))).hex()

    def lie(self, host: int, serve: Callable[[ssl.SSLSocket], None], name: str = "") -> "Liar":
        """Starts a host that treats each connection as `serve` says; `name`: of its certificate."""
        self.add(host)
        self.write()
        return Liar(self, host, serve, name or f"h{host}")


def mix(x: int) -> int:
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD % (1 << 64)
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 % (1 << 64)
    return x ^ x >> 33


def pair(home: Path, near: int, far: int, *settings: str, agent: bool = False) -> Iterator[Fleet]:
    """Yields a fleet of two hosts, and ends it."""
    started = Fleet(home)
    started.start(far, *settings, agent=agent, others=(near,))
    started.start(near, *settings, agent=agent)
    yield started
    started.stop()


class Liar:
    def __init__(self, fleet: Fleet, host: int, serve: Callable[[ssl.SSLSocket], None], name: str) -> None:
        cert, key = fleet.authority.make(name, f"liar{host}")
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(cert, key)
        self.tls.load_verify_locations(fleet.authority.cert)
        self.tls.verify_mode = ssl.CERT_REQUIRED
        self.serve = serve
        self.listener = socket.create_server(fleet.address(host), backlog=64)
        self.listener.settimeout(120)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        while True:
            try:
                plain, _ = self.listener.accept()
            except OSError:
                return
            plain.settimeout(120)
            threading.Thread(target=self.one, args=(plain,), daemon=True).start()

    def one(self, plain: socket.socket) -> None:
        try:
            with self.tls.wrap_socket(plain, server_side=True) as s:
                self.serve(s)
        except OSError:
            pass

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)  # close() alone would leave the accept in progress
        self.thread.join()
        self.listener.close()


class Silent:
    """What a liar serves that reads a request, and then waits until its client leaves."""

    def __init__(self) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()

    def __call__(self, s: ssl.SSLSocket) -> None:
        read_head(s)
        self.begun.set()
        while s.recv(65536):
            pass
        self.ended.set()

    def ends_with(self, service: Service, request: bytes) -> None:
        """Checks that it is asked for the request, and left when the request's client leaves."""
        with service.connect() as s:
            s.sendall(request)
            assert self.begun.wait(60)
        assert self.ended.wait(60)
        service.until_idle()


def read_head(s: ssl.SSLSocket) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head:
        more = s.recv(65536)
        if not more:
            raise ConnectionError(head)
        head += more
    return head
