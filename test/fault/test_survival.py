# SPDX-License-Identifier: Apache-2.0
"""Kills at random moments under load: whatever was answered is there afterwards, nothing is left.

RAMET_FAULT_POINTS=200 for the whole of it, RAMET_FAULT_SEED to draw the same points again."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from hashlib import sha256
from typing import Callable, TypeVar

import httpx
import pytest

import ramet
from conftest import HOST, on_host
from ramet import Client, Sandbox
from test_fork_waves import left_over
from test_kill import (
    SERVICE_PID,
    WARDEN_PID,
    kill_service,
    kill_warden,
    settled,
    wait_until_ready,
)

POINTS = int(os.environ.get("RAMET_FAULT_POINTS", "6"))
SEED = int(os.environ.get("RAMET_FAULT_SEED", "0")) or random.randrange(2**32)
WORKERS = int(os.environ.get("RAMET_FAULT_WORKERS", "3"))

T = TypeVar("T")


class Gone(Exception):
    """The VM was killed: its state is lost, as was told."""


class Ledger:
    """What was answered, over all workers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.done: Counter[str] = Counter()

    def add(self, what: str) -> None:
        with self._lock:
            self.done[what] += 1


class Worker:
    """One client with one sandbox at a time, and what it has been promised of it."""

    def __init__(self, seed: int, ledger: Ledger, over: threading.Event) -> None:
        self.rng = random.Random(seed)
        self.ledger = ledger
        self.over = over
        self.client = Client(HOST)
        self.sbx: Sandbox | None = None
        self.numbers: set[int] = set()
        self.files: dict[str, bytes] = {}
        self.next = 0
        self.failed: BaseException | None = None
        self.thread = threading.Thread(target=self._run)

    # --- one step, and what comes of it

    def ask(self, what: str, fn: Callable[[], T]) -> T | None:
        """None: nobody knows whether it was done. Only VMs that are killed are gone."""
        try:
            answer = fn()
        except ramet.VmDied as died:
            raise Gone from died
        except (ramet.ConnectionFailed, ramet.Unavailable, ramet.ServerError):
            self.ledger.add("not answered")
            wait_until_ready(self.client)
            return None
        self.ledger.add(what)
        return answer

    def surely(self, fn: Callable[[], T]) -> T:
        """For what can be asked any number of times."""
        while True:
            try:
                return fn()
            except ramet.VmDied as died:
                raise Gone from died
            except (ramet.ConnectionFailed, ramet.Unavailable, ramet.ServerError):
                wait_until_ready(self.client)

    def box(self) -> Sandbox:
        assert self.sbx
        return self.sbx

    def create(self) -> None:
        sbx = self.ask("create", lambda: Sandbox(client=self.client))
        if not sbx:
            return
        self.sbx = sbx
        self.numbers, self.files = set(), {}
        # A set made twice is made anew: only the first call may make it.
        self.surely(lambda: self.run(sbx, "done = globals().get('done', set())"))

    def run(self, sbx: Sandbox, code: str) -> str:
        result = sbx.run_code(code)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    def exec(self) -> None:
        n = self.next = self.next + 1
        if self.ask("exec", lambda: self.run(self.box(), f"done.add({n})")) is not None:
            self.numbers.add(n)

    def file(self) -> None:
        n = self.next = self.next + 1
        path, data = f"/root/f{n}", self.rng.randbytes(self.rng.randrange(1, 200_000))

        def write() -> bool:
            self.client.write_file(self.box().id, path, data)
            return True

        if self.ask("file", write):
            self.files[path] = data

    def upload(self) -> None:
        n = self.next = self.next + 1
        path, data = f"/root/u{n}", self.rng.randbytes(300_000)

        def whole() -> bool:
            upload = self.client.open_upload(self.box().id, path)
            self.client.write_part(self.box().id, upload, 0, data[:200_000])
            self.client.write_part(self.box().id, upload, 200_000, data[200_000:])
            self.client.commit_upload(self.box().id, upload, len(data), sha256(data).hexdigest())
            return True

        if self.ask("upload", whole):
            self.files[path] = data

    def fork(self) -> None:
        children = self.ask("fork", lambda: self.box().fork(1))
        if not children:
            return
        child = children[0]
        try:
            self.check_in(child, self.numbers, self.files)
            n = self.next = self.next + 1
            self.surely(lambda: self.run(child, f"done.add({n})"))
            if self.rng.random() < 0.5:
                self.merge(child, n)
            else:
                self.surely(child.close)
        except Gone:
            self.ledger.add("child's VM killed")

    def merge(self, child: Sandbox, n: int) -> None:
        def merged() -> bool:
            self.box().merge_into(child)
            return True

        if self.ask("merge", merged):
            self.numbers.add(n)
        elif n in self.state(self.box()):
            self.numbers.add(n)
        else:
            self.surely(child.close)

    # --- what was promised

    def state(self, sbx: Sandbox) -> set[int]:
        said = self.surely(lambda: self.run(sbx, "print(sorted(done))"))
        return set(json.loads(said))

    def check_in(self, sbx: Sandbox, numbers: set[int], files: dict[str, bytes]) -> None:
        lost = numbers - self.state(sbx)
        assert not lost, f"{sbx.id}: answered and lost: {sorted(lost)}"
        for path in self.rng.sample(sorted(files), min(3, len(files))):
            assert self.surely(lambda: sbx.download(path)) == files[path], f"{sbx.id}: {path}"

    def check_all(self) -> None:
        if self.sbx:
            self.check_in(self.sbx, self.numbers, self.files)
            for path, data in self.files.items():
                assert self.sbx.download(path) == data
            self.sbx.close()

    # --- the thread

    def _step(self) -> None:
        if not self.sbx:
            self.create()
            return
        kinds = [self.exec, self.exec, self.exec, self.file, self.upload, self.fork]
        self.rng.choice(kinds)()
        if self.rng.random() < 0.2:
            self.check_in(self.box(), self.numbers, self.files)

    def _run(self) -> None:
        try:
            while not self.over.is_set():
                try:
                    self._step()
                except Gone:
                    self.ledger.add("sandbox's VM killed")
                    self.sbx = None
        except BaseException as bad:  # told by the test's own thread
            self.failed = bad


def kill_one(what: str, rng: random.Random, client: Client) -> bool:
    if what == "service":
        kill_service(client)
    elif what == "warden":
        kill_warden(client)
    else:
        pids = on_host("pidof ramet-vmm || true").split()
        if not pids:
            return False
        on_host(f"kill -9 {rng.choice(pids)} || true")
    return True


def close_unknown(client: Client) -> int:
    """Sandboxes that were made, but whose makers were not told of them."""
    infos = client.list_sandboxes()
    for info in infos:
        client.delete_sandbox(info.id)
    return len(infos)


def test_nothing_that_was_answered_is_lost(client: Client, http: httpx.Client) -> None:
    print(f"seed {SEED}, {POINTS} points, {WORKERS} workers")
    rng = random.Random(SEED)
    kill_service(client)  # a service that starts has forgotten which sizes were asked for
    before = left_over(http)
    ledger, over = Ledger(), threading.Event()
    workers = [Worker(rng.randrange(2**32), ledger, over) for _ in range(WORKERS)]
    for worker in workers:
        worker.thread.start()
    kills: Counter[str] = Counter()
    while sum(kills.values()) < POINTS and not any(w.failed for w in workers):
        done = sum(ledger.done.values())
        until = done + rng.randrange(1, 6)  # by what was done, not by the clock
        give_up = time.monotonic() + 120
        while sum(ledger.done.values()) < until and time.monotonic() < give_up:
            time.sleep(rng.random() * 0.2)
        what = rng.choices(["service", "warden", "vm"], [5, 2, 3])[0]
        kills[what] += kill_one(what, rng, client)
    over.set()
    for worker in workers:
        worker.thread.join()
    print(f"killed {dict(kills)}; answered {dict(ledger.done)}")
    for worker in workers:
        if worker.failed:
            raise worker.failed
        try:
            worker.check_all()
        except Gone:
            ledger.add("sandbox's VM killed")
    lost_vms = ledger.done["sandbox's VM killed"] + ledger.done["child's VM killed"]
    assert lost_vms <= kills["vm"], "a VM died that nobody killed"
    print(f"made and not told of: {close_unknown(client)}")
    # Jails come and go with the pool here: what forks leave over is counted in test_fork_waves.
    print(f"held before: {before}; after: {left_over(http)}")


def test_a_stream_goes_on_where_it_was(client: Client) -> None:
    code = (
        "import os, time\nfor i in range(40):\n    print(i, flush=True)\n"
        "    while i % 10 == 9 and not os.path.exists(f'/tmp/go{i}'):\n        time.sleep(0.05)"
    )
    with Sandbox(client=client) as sbx:
        stream = sbx.run_code_stream(code)
        got = [next(stream)]
        for i, kill in enumerate(("service", "warden", "service")):
            kill_one(kill, random.Random(), client)
            assert sbx.info().state == "running"
            client.write_file(sbx.id, f"/tmp/go{10 * i + 9}", b"")
            for event in sbx.follow(since=got[-1].seq):
                got.append(event)
                if f"{10 * i + 19}\n" in str(event.data):
                    break
        client.write_file(sbx.id, "/tmp/go39", b"")
        got += list(sbx.follow(since=got[-1].seq))
        assert [e.seq for e in got] == list(range(1, len(got) + 1))
        text = "".join(str(e.data) for e in got if e.type == "stdout").split()
        assert [int(x) for x in text] == list(range(40))
        assert got[-1].type == "exit" and got[-1].data == 0
        assert [e.seq for e in sbx.replay()] == [e.seq for e in got]


def test_a_killed_warden_comes_back_and_takes_over(client: Client) -> None:
    with Sandbox(client=client) as sbx:
        sbx.run_code("x = 'kept'")
        vms = set(on_host("pidof ramet-vmm").split())
        kill_warden(client)
        assert sbx.run_code("print(x)").stdout == "kept\n"
        assert vms & set(on_host("pidof ramet-vmm").split())
        # It removes jails of VMs that it has not started itself.
        assert sbx.fork(1)[0].run_code("print(x)").stdout == "kept\n"
    close_unknown(client)


def test_an_upgrade_keeps_sandboxes(client: Client) -> None:
    with Sandbox(client=client) as sbx:
        sbx.run_code("x = 'kept'")
        warden, _ = settled(client)
        first = on_host("cat /run/ramet/dev.pid").strip()
        on_host("cp /usr/lib/ramet/rametd /usr/lib/ramet/rametd.new")
        on_host("mv /usr/lib/ramet/rametd.new /usr/lib/ramet/rametd")
        on_host(f"kill -HUP {first}")
        while settled(client)[0] == warden:
            pass
        assert on_host(f"readlink /proc/{first}/exe").strip() == "/usr/lib/ramet/rametd"
        assert sbx.run_code("print(x)").stdout == "kept\n"


@pytest.mark.parametrize("who", ["supervisor", "warden", "service", "vm"])
def test_the_kernel_ends_vms_first(client: Client, who: str) -> None:
    with Sandbox(client=client):
        pids = {
            "supervisor": "cat /run/ramet/dev.pid",
            "warden": WARDEN_PID,
            "service": SERVICE_PID,
            "vm": "pidof -s ramet-vmm",
        }
        score = int(on_host(f"cat /proc/$({pids[who]})/oom_score_adj"))
        assert (score > 0) == (who == "vm") and score != 0
