# SPDX-License-Identifier: Apache-2.0
"""What a fleet needs beside its hosts: an etcd of three members with TLS and client certificates, and HAProxy.

The tests in test/etcd run them on the loopback address; run_fleet.py gives each a machine of its own.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Callable

BUILD = Path(os.environ.get("RAMET_BUILD", "build/asan"))
RAMETCTL = os.environ.get("RAMETCTL", f"{BUILD}/orchestrator/operator/rametctl")
ETCD = os.environ.get("RAMET_ETCD", "etcd")
HAPROXY = Path(os.environ.get("RAMET_HAPROXY", "/"))
LIBRARIES = {"LD_LIBRARY_PATH": f"{HAPROXY}/usr/lib/x86_64-linux-gnu"} if HAPROXY != Path("/") else {}
TIMEOUT_S = 180  # for what takes seconds on an idle machine
SETTLE_MS = 3000  # without a heartbeat for so long, members elect a leader


def until(what: str, condition: Callable[[], Any], timeout_s: float = TIMEOUT_S) -> Any:
    """Waits until the condition holds, and returns its value."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {timeout_s} s")


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


def write_secret(path: Path, text: str) -> None:
    path.touch(0o600)
    path.write_text(text)


def text_of(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


class Member:
    def __init__(self, etcd: Etcd, name: str, address: str, client: int, peer: int) -> None:
        self.etcd, self.name, self.address = etcd, name, address
        self.url, self.peer = f"https://{address}:{client}", f"https://{address}:{peer}"
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        ca, folder = self.etcd.ca, self.etcd.folder
        flags = {
            "name": self.name,
            "data-dir": folder / self.name,
            "listen-client-urls": self.url,
            "advertise-client-urls": self.url,
            "listen-peer-urls": self.peer,
            "initial-advertise-peer-urls": self.peer,
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
        return [ETCD, *(f"--{name}={value}" for name, value in flags.items())]

    def start(self) -> None:
        with open(self.etcd.folder / f"{self.name}.log", "ab") as log:
            self.process = subprocess.Popen(self.etcd.on(self, self.command()), stdout=log, stderr=log)

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
    """`places`: address, client port and peer port of each member; they are named m0, m1 and so on.

    `on` makes the command that runs a member's command where it belongs.
    """

    def __init__(
        self,
        folder: Path,
        places: list[tuple[str, int, int]],
        on: Callable[[Member, list[str]], list[str]] = lambda _, command: command,
    ) -> None:
        self.folder, self.ca, self.on = folder, folder / "ca", on
        self.members = [Member(self, f"m{i}", *place) for i, place in enumerate(places)]
        rametctl("fleet", "init", self.ca, 0, *(m.url for m in self.members))
        for m in self.members:
            rametctl("fleet", "ca", self.ca, "etcd", m.name, m.address)
        self.context = ssl.create_default_context(cafile=str(self.ca / "etcd-ca.pem"))
        self.context.load_cert_chain(self.ca / "etcd-m0.pem", self.ca / "etcd-m0-key.pem")

    def cluster(self) -> str:
        return ",".join(f"{m.name}={m.peer}" for m in self.members)

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


class Authority:
    """Certificates of a front, signed by an authority of their own, which clients have to trust: `pem`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.pem = folder, folder / "etcd-ca.pem"
        rametctl("fleet", "init", folder, 0, "https://127.0.0.1:1")

    def certify(self, name: str) -> str:
        """Returns a certificate for 127.0.0.1 with its key."""
        rametctl("fleet", "ca", self.folder, "etcd", name, "127.0.0.1")
        return "".join((self.folder / f"etcd-{name}{part}.pem").read_text() for part in ("", "-key"))


class Front:
    """HAProxy on `port` of 127.0.0.1 with the configuration that `rametctl fleet haproxy` printed.

    Only paths, its user and its port differ, and what `changes` (patterns of re.sub) says.
    """

    def __init__(self, folder: Path, text: str, port: int, pem: str, *changes: tuple[str, Any]) -> None:
        self.port, self.config = port, folder / "haproxy.cfg"
        self.admin, own_pem = folder / "admin.sock", folder / "front.pem"
        write_secret(own_pem, pem)
        for old, new in (
            (r"    (user|group) haproxy\n", ""),
            (r"/run/haproxy/admin.sock", f"{self.admin}"),
            (r"bind :443", f"bind 127.0.0.1:{port}"),
            (r"/etc/haproxy/ramet.pem", f"{own_pem}"),
            *changes,
        ):
            text, n = re.subn(old, new, text)
            assert n, old
        self.config.write_text(text)
        self.start()

    def start(self) -> None:
        command = ["setpriv", "--pdeathsig=KILL", f"{HAPROXY}/usr/sbin/haproxy"]
        log = self.config.with_name("log")
        with log.open("ab") as file:
            self.master = subprocess.Popen(
                [*command, "-W", "-f", self.config], env={**os.environ, **LIBRARIES}, stderr=file
            )
        until("HAProxy", lambda: self.master.poll() is not None or self.worker())
        assert self.master.poll() is None, log.read_text()

    def reload(self) -> None:
        """Reloads as `systemctl reload haproxy`, and returns when the next process serves."""
        worker = self.worker()
        self.master.send_signal(signal.SIGUSR2)
        until("the next worker", lambda: self.worker() not in (worker, ""))

    def ask(self, command: str) -> str:
        """Returns what HAProxy answers; nothing while it changes its process."""
        text = b""
        with socket.socket(socket.AF_UNIX) as s:
            try:
                s.connect(str(self.admin))
                s.sendall(command.encode() + b"\n")
                while part := s.recv(65536):
                    text += part
            except OSError:
                return ""
        return text.decode()

    def up(self, backend: str = "ramet_ready") -> set[str]:
        """Returns the hosts that get new requests."""
        rows = [row.split(",") for row in self.ask("show stat").splitlines()]
        return {row[1] for row in rows if len(row) > 17 and row[0] == backend and row[17] == "UP"} - {"BACKEND"}

    def worker(self) -> str:
        found = re.search(r"Pid: (\d+)", self.ask("show info"))
        return found[1] if found else ""

    def stop(self) -> None:
        self.master.terminate()
        self.master.wait()
