# SPDX-License-Identifier: Apache-2.0
"""The hosts of a large cell as etcd sees them: the client of ramet-fleet, many times, and a real etcd.

etcd has three members on this machine, with TLS and client certificates. The hosts share a process
(fleet-swarm.c), and their tables are in memory: on real hosts each has a disk of its own.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measure import BenchError, Figures, figure

TOP = Path(__file__).resolve().parent.parent
sys.path.append(str(TOP / "rig"))
import cell  # noqa: E402
from cell import BUILD, Etcd, Member, free_ports, rametctl, text_of  # noqa: E402
from run_fleet import API_PORT, Fleet  # noqa: E402

CELL = 1
CLOCK_S = 0.01  # the clock of files may be behind by a tick
CLIENTS = 4
ROUNDS = 2500  # each is a create, a call, a fork and two closes
REST_S = 10
DOWN_S = 20  # a member that was killed stays away for so long: keepalives of most hosts are due meanwhile
GOALS = {"join_s": 30.0, "leases_lost": 0.0, "idle_writes_per_s": 2.0, "etcd_cores": 0.5, "worked_proposals": 0.0}


def wait(what: str, done: Callable[[], bool], within_s: float, every_s: float = 0.2) -> float:
    """Waits until done() is true; returns how many s that took."""
    began = time.monotonic()
    while not done():
        if time.monotonic() - began > within_s:
            raise BenchError(f"{what}: not within {within_s:.0f} s")
        time.sleep(every_s)
    return time.monotonic() - began


class Swarm:
    """`n` hosts of the cell in one process. Their tables are in `folder`, in folders named by their numbers."""

    def __init__(self, etcd: Etcd, folder: Path, n: int) -> None:
        self.etcd, self.folder, self.n = etcd, folder, n
        self.settings, self.tables = folder / "settings", folder / "tables"
        path = etcd.ca / "fleet.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "cell": CELL}))
        (folder / "token").write_text(
            rametctl("fleet", "ca", etcd.ca, "host", 1, "h1", "10.0.0.1:7443", "fsn", "a")
        )
        rametctl("fleet", "join", folder / "token", self.settings)
        self.tables.mkdir()
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [BUILD / "bench/fleet-swarm", self.settings, self.tables, str(n)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        self.answer()  # before the hosts join

    def answer(self) -> dict[str, dict[str, Any]]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise BenchError(f"the swarm ended; its log ends with:\n{self.log.read_text()[-2000:]}")
        answer: dict[str, dict[str, Any]] = json.loads(line)
        return answer

    def calls(self) -> dict[str, dict[str, Any]]:
        """Returns the times and failures of the hosts' calls to etcd since the last time."""
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.answer()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    # --- what etcd has ---

    def keys(self, **more: Any) -> dict[str, Any]:
        prefix = f"/ramet/{CELL}/hosts/"
        query = {"key": text_of(prefix), "range_end": text_of(prefix[:-1] + "0"), **more}
        return self.etcd.post("/v3/kv/range", query)

    def joined(self) -> bool:
        return int(self.keys(count_only=True).get("count", 0)) == self.n

    def leases(self) -> dict[int, tuple[str, str]]:
        """Returns each host's lease, and since which revision its card exists."""
        found = {}
        for kv in self.keys(keys_only=True).get("kvs", []):
            number = int(base64.b64decode(kv["key"]).rpartition(b"/")[2])
            found[number] = (kv["lease"], kv["create_revision"])
        return found

    # --- what the hosts know ---

    def files(self) -> Iterator[Path]:
        return (self.tables / str(number) / "hosts.json" for number in range(1, self.n + 1))

    def complete(self) -> bool:
        """Whether the table of each host has all hosts, none of them gone."""
        for path in self.files():
            if not path.exists() or path.read_text().count('"gone":null') != self.n:
                return False
        return True

    def order(self, what: str) -> list[float]:
        """Orders something for h1. Returns after how many ms each host's table had it."""
        began = time.time()
        value = {"format": 1, "order": what, "at": int(began), "deadline": 0}
        self.etcd.put(f"/ramet/{CELL}/orders/1", json.dumps(value))
        late = list(self.files())

        def all_have() -> bool:
            late[:] = [path for path in late if path.stat().st_mtime < began - CLOCK_S]
            return not late

        wait("all tables have the order", all_have, 60)
        return [max((path.stat().st_mtime - began) * 1e3, 0) for path in self.files()]


# --- etcd ------------------------------------------------------------------------------------------


def cpu_s(pid: int) -> float:
    """Returns the CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0


def running(etcd: Etcd) -> list[int]:
    return [m.process.pid for m in etcd.members if m.process]


def proposals(etcd: Etcd) -> float:
    """Returns how many proposals were committed: of keepalives there are none."""
    most = 0.0
    for m in etcd.members:
        with urllib.request.urlopen(f"{m.url}/metrics", timeout=10, context=etcd.context) as answer:
            text = answer.read().decode()
        found = re.search(r"^etcd_server_proposals_committed_total (\S+)$", text, re.M)
        if not found:
            raise BenchError(f"{m.url}/metrics has no number of proposals")
        most = max(most, float(found[1]))
    return most


class Cpu:
    """The CPU time of all members, also of those that were killed."""

    def __init__(self, etcd: Etcd) -> None:
        self.etcd, self.before = etcd, 0.0
        self.at, self.used = time.monotonic(), self.total()

    def total(self) -> float:
        return self.before + sum(map(cpu_s, running(self.etcd)))

    def lap(self) -> float:
        """Returns how many cores were used since the last lap."""
        now, total = time.monotonic(), self.total()
        cores = (total - self.used) / (now - self.at)
        self.at, self.used = now, total
        return cores

    def kill(self, member: Member) -> None:
        assert member.process
        self.before += cpu_s(member.process.pid)
        member.kill()


@contextmanager
def etcd_running(folder: Path) -> Iterator[Etcd]:
    ports = free_ports(6)
    etcd = Etcd(folder, [("127.0.0.1", *pair) for pair in zip(ports[::2], ports[1::2])])
    etcd.start()
    try:
        yield etcd
    finally:
        etcd.stop()


def version(etcd: Etcd) -> str:
    with urllib.request.urlopen(f"{etcd.members[0].url}/version", timeout=10, context=etcd.context) as answer:
        found: str = json.load(answer)["etcdserver"]
    return found


# --- the measurement -------------------------------------------------------------------------------


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Run:
    def __init__(self, etcd: Etcd, swarm: Swarm) -> None:
        self.etcd, self.swarm, self.cpu = etcd, swarm, Cpu(etcd)
        self.figures: Figures = {}
        self.keepalives: list[float] = []
        self.failed: Counter[str] = Counter()
        self.seen: list[float] = []

    def one(self, name: str, value: float, unit: str) -> None:
        self.figures[name] = figure([value], unit)
        say(f"{name}: {value:.3f} {unit}")

    def note_calls(self) -> None:
        calls = self.swarm.calls()
        self.keepalives += calls["keepalive"]["ms"]
        self.failed.update({name: each["failed"] for name, each in calls.items()})

    def join(self) -> None:
        """All hosts join at once."""
        began, n = time.monotonic(), self.swarm.n
        own = cpu_s(self.swarm.process.pid)
        wait("all hosts have joined", self.swarm.joined, 600)
        self.one("join_s", time.monotonic() - began, "s")
        wait("all tables are complete", self.swarm.complete, 600, 1)
        took = time.monotonic() - began
        self.one("join_tables_s", took, "s")
        self.one("join_etcd_cores", self.cpu.lap(), "cores")
        self.one("join_host_cpu_ms", (cpu_s(self.swarm.process.pid) - own) / n * 1e3, "ms")
        for name, each in self.swarm.calls().items():
            self.figures[f"join_{name}_ms"] = figure(each["ms"] or [0], "ms")
            self.one(f"join_{name}_failed", each["failed"], "calls")
        self.leases = self.swarm.leases()
        self.cpu.lap()

    def idle(self, seconds: float) -> None:
        """Nothing happens but keepalives."""
        self.swarm.calls()
        before, began = proposals(self.etcd), time.monotonic()
        time.sleep(seconds)
        writes = (proposals(self.etcd) - before) / (time.monotonic() - began)
        self.one("idle_writes_per_s", writes, "1/s")
        self.one("idle_etcd_cores", self.cpu.lap(), "cores")
        self.figures["etcd_mib"] = figure([resident_mib(pid) for pid in running(self.etcd)], "MiB")
        self.one("host_mib", resident_mib(self.swarm.process.pid) / self.swarm.n, "MiB")
        self.note_calls()
        self.figures["idle_keepalive_ms"] = figure(self.keepalives, "ms")

    def lost(self) -> int:
        """Returns how many hosts have another lease, or none."""
        now = self.swarm.leases()
        return sum(now.get(number) != lease for number, lease in self.leases.items())

    def change(self) -> None:
        for what in ("drain", "serve"):
            self.seen += self.swarm.order(what)

    def kill_leader(self) -> None:
        leader = self.etcd.leader()
        self.cpu.kill(leader)
        say(f"{leader.name}, the leader, is killed")
        began = time.monotonic()
        self.swarm.leases()  # etcd answers again
        say(f"etcd answers after {time.monotonic() - began:.1f} s")
        time.sleep(DOWN_S)
        leader.start()
        self.etcd.leader()
        self.note_calls()
        say(f"leases lost so far: {self.lost()}; calls that failed: {dict(self.failed)}")

    def go_on(self, seconds: float, kills: int) -> None:
        """Kills the leader a few times, evenly spread, with changes between."""
        began = time.monotonic()
        total = self.cpu.total()
        for i in range(1, kills + 1):
            self.change()
            time.sleep(max(began + i * seconds / (kills + 1) - time.monotonic(), 0))
            self.kill_leader()
        time.sleep(max(began + seconds - time.monotonic(), 0))
        self.change()
        self.one("minutes", (time.monotonic() - began) / 60, "min")
        self.one("leader_kills", kills, "")
        self.one("etcd_cores", (self.cpu.total() - total) / (time.monotonic() - began), "cores")
        self.note_calls()
        self.one("leases_lost", self.lost(), "")
        self.one("joined_again", self.swarm.log.read_text().count("joins again"), "")
        wait("all tables are complete", self.swarm.complete, 60, 1)
        self.figures["keepalive_ms"] = figure(self.keepalives, "ms")
        self.one("keepalives_failed", self.failed["keepalive"], "calls")
        self.figures["change_seen_ms"] = figure(self.seen, "ms")


def measured(etcd: Etcd, folder: Path, hosts: int, seconds: float, kills: int) -> Figures:
    many = Swarm(etcd, folder, hosts)
    try:
        run = Run(etcd, many)
        run.one("hosts", hosts, "")
        run.join()
        idle = min(seconds / 6, 120)
        run.idle(idle)
        run.go_on(seconds - idle, kills)
    finally:
        many.stop()
    return run.figures


# --- a service that works ---------------------------------------------------------------------------


class Clients:
    """Clients of all hosts of a fleet, which create, call, fork and close."""

    def __init__(self, fleet: Fleet, rounds: int) -> None:
        self.fleet, self.rounds = fleet, rounds
        self.asked: Counter[str] = Counter()
        with ThreadPoolExecutor(CLIENTS) as threads:
            list(threads.map(self.run, range(CLIENTS)))

    def run(self, client: int) -> None:
        for i in range(client, self.rounds, CLIENTS):
            host = self.fleet.hosts[i % len(self.fleet.hosts)]
            self.round(f"http://{host.address}:{API_PORT}/v1/sandboxes")

    def round(self, url: str) -> None:
        made = self.ask("create", "POST", url, {})["id"]
        self.ask("call", "POST", f"{url}/{made}/exec", {"code": ":", "language": "bash"})
        children = self.ask("fork", "POST", f"{url}/{made}/fork", {"n": 1})["children"]
        for one in (*children, made):
            self.ask("close", "DELETE", f"{url}/{one}")

    def ask(self, what: str, method: str, url: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"authorization": f"Bearer {self.fleet.key}", "content-type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers, method=method)
        self.asked[what] += 1
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read()
        except urllib.error.HTTPError as refused:
            raise BenchError(f"{method} {url}: {refused.code} {refused.read().decode()}") from refused
        return json.loads(text) if text else None


def at_rest(etcd: Etcd) -> float:
    """Waits until nothing is written any more; returns the number of proposals."""
    now, since = proposals(etcd), time.monotonic()
    while time.monotonic() - since < REST_S:
        time.sleep(1)
        before, now = now, proposals(etcd)
        if now != before:
            since = time.monotonic()
    return now


def working(folder: Path, rounds: int) -> Figures:
    """Three hosts with the real service and stand-ins of VMs."""
    fleet = Fleet(folder, 3, free_ports(2))
    try:
        fleet.start()
        before = at_rest(fleet.etcd)
        began = time.monotonic()
        asked = Clients(fleet, rounds).asked
        took = time.monotonic() - began
        after = at_rest(fleet.etcd)
    finally:
        fleet.stop()
    figures = {f"worked_{name}": figure([n], "requests") for name, n in asked.items()}
    figures["worked_s"] = figure([took], "s")
    figures["worked_proposals"] = figure([after - before], "proposals")
    return figures


# --- both -------------------------------------------------------------------------------------------


def swarm(quick: bool, vms: int = 0, minutes: int = 0) -> Figures:
    """The client of a thousand hosts, and a service that works, with each version of etcd."""
    hosts = vms or (50 if quick else 1000)
    seconds = 60 * minutes or (60 if quick else 1800)
    figures: Figures = {}
    load = os.getloadavg()[0]
    for program in os.environ["RAMET_ETCDS"].split(":"):
        cell.ETCD = program
        with tempfile.TemporaryDirectory(prefix="ramet-swarm-", dir="/var/tmp") as disk:
            found = working(Path(disk), 20 if quick else ROUNDS)
        with (
            tempfile.TemporaryDirectory(prefix="ramet-swarm-", dir="/var/tmp") as disk,
            tempfile.TemporaryDirectory(prefix="ramet-swarm-", dir="/dev/shm") as memory,
            etcd_running(Path(disk)) as etcd,
        ):
            say(f"etcd {version(etcd)}")
            minor = ".".join(version(etcd).split(".")[:2])
            found |= measured(etcd, Path(memory), hosts, seconds, 1 if quick else 5)
        for name, goal in GOALS.items():
            if found[name]["median"] > goal:
                say(f"{name} is above its goal, {goal:g}")
        figures |= {f"{name}_{minor}": each for name, each in found.items()}
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    about = {
        "cpu": cpu[1] if cpu else "",
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": os.uname().release,
        "load": [load, os.getloadavg()[0]],  # before and after
    }
    return {**figures, "machine": about}
