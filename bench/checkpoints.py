# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of the whole service natively, with the tiny guest, in turns with what they are
compared with: forks, and calls without checkpoints.

`checkpoints` starts this file again in namespaces of its own, as native_service.py does.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from measure import Figures, figure
from native_service import (
    BUILD,
    Service,
    in_namespaces,
    machine,
    prepare,
    print_figures,
    private_kib,
    run_json,
    service,
)
from thousand import entries, meminfo, service_pid

RAM_MIB = 1024
WRITTEN_MIB = 16  # since the checkpoint before
MOST = 32  # children
KEEP = 20
EDGE = 100  # checkpoints that are compared: around the tenth, and the last
BLOCK = 50  # calls of a sandbox, before it is the other one's turn
PAUSE_S = 0.005  # between calls of an agent that thinks
ECHO = "echo 1"


def checkpoints(quick: bool) -> Figures:
    """Checkpoints on this machine itself, with a tiny guest instead of Linux."""
    return in_namespaces(__file__, *(["--quick"] if quick else []))


class Samples(dict[str, list[float]]):
    """The samples of each figure."""

    def add(self, name: str, value: float) -> None:
        """Adds a sample to a figure."""
        self.setdefault(name, []).append(value)

    def figures(self) -> Figures:
        """Returns the figures; the end of a name is its unit."""
        return {name: figure(values, name.rpartition("_")[2]) for name, values in self.items()}


class Client:
    """Sends requests, and keeps the times that they took."""

    def __init__(self, running: Service) -> None:
        self.running = running
        self.took = Samples()

    def ask(self, method: str, path: str, name: str = "", **body: Any) -> str:
        """Sends a request, whose time becomes a sample of the figure `name`; returns the answer."""
        data = json.dumps(body).encode()
        began = time.perf_counter()
        text = self.running.ask(method, path, data)
        if name:
            self.took.add(name, (time.perf_counter() - began) * 1e3)
        return text

    def call(self, sandbox: str, code: str = ECHO, name: str = "") -> None:
        """Makes a call in a sandbox."""
        self.ask("POST", sandbox + "/exec", name, code=code, language="bash", output="chunks")

    def create(self, **body: Any) -> str:
        """Creates a sandbox, which has run a call; returns its path."""
        made = json.loads(self.ask("POST", "/v1/sandboxes", **body))
        sandbox = f"/v1/sandboxes/{made['id']}"
        self.call(sandbox)
        return sandbox

    def take(self, sandbox: str, name: str = "") -> str:
        """Takes a checkpoint; returns its path."""
        taken = json.loads(self.ask("POST", sandbox + "/checkpoints", name))
        return f"/v1/checkpoints/{taken['id']}"

    def fork(self, what: str, n: int, name: str = "") -> dict[str, Any]:
        """Starts sandboxes from a sandbox or a checkpoint, and deletes them; returns the answer."""
        answer: dict[str, Any] = json.loads(self.ask("POST", what + "/fork", name, n=n))
        for child in answer["children"]:
            self.ask("DELETE", f"/v1/sandboxes/{child['id'] if isinstance(child, dict) else child}")
        return answer

    def rest(self, blank: int = 0) -> None:
        """Waits until all checkpoints are stored and the pool is full."""
        self.running.await_pool(blank, 1)
        while self.running.level("ramet_checkpoints_unstored"):
            time.sleep(0.005)


def pauses_ms(running: Service) -> list[float]:
    """Returns the pause of each checkpoint so far, which the log says."""
    found = re.findall(r"taken, its VM was paused for (\d+) us", running.log.read_text())
    return [int(us) / 1e3 for us in found]


def taking(folder: Path, runs: int) -> Figures:
    """Checkpoints and forks of 1 GiB, half of it written, 16 MiB since the last one; their pauses.

    The first checkpoint copies that half, and the second one compares it.
    """
    with service(folder, blank=2, warm=1, ram_mib=RAM_MIB) as running:
        client = Client(running)
        sandbox = client.create()
        client.call(sandbox, "touch half")
        client.take(sandbox, "checkpoint_first_ms")
        for what in ("checkpoint_second_ms", *("checkpoint_16m_ms", "fork_16m_ms") * runs):
            client.rest(2)
            client.call(sandbox, f"touch {WRITTEN_MIB}")
            if what == "fork_16m_ms":
                answer = client.fork(sandbox, 1, what)
                client.took.add("fork_pause_16m_ms", answer["pause_us"] / 1e3)
                continue
            client.take(sandbox, what)
            if what == "checkpoint_16m_ms":
                client.took.add("checkpoint_pause_16m_ms", pauses_ms(running)[-1])
        return client.took.figures()


def starts(folder: Path, runs: int) -> Figures:
    """Sandboxes started from checkpoints in memory and on disk, and forks, a blank VM for each."""
    with service(folder, blank=MOST, warm=1, max_vms=3 * MOST + 20) as running:
        client = Client(running)
        sandbox = client.create()
        client.call(sandbox, f"touch {WRITTEN_MIB}")
        stored = client.take(sandbox)
        for n, share in ((1, 1), (5, 2), (MOST, 4)):
            for _ in range(max(runs // share, 3)):
                client.rest(MOST)
                client.fork(sandbox, n, f"fork_n{n}_ms")
                client.rest(MOST)
                client.fork(stored, n, f"start_stored_n{n}_ms")
                client.rest(MOST)
                held = client.take(sandbox)
                client.fork(held, n, f"start_memory_n{n}_ms")
                client.ask("DELETE", held)
        return client.took.figures()


def going_back(folder: Path, runs: int) -> Figures:
    """Rollbacks and undo with a blank VM ready, and forks into one child."""
    with service(folder, blank=2, warm=1) as running:
        client = Client(running)
        sandbox, undone = client.create(), client.create(checkpoint_each_call={"keep": KEEP})
        stored = client.take(sandbox)
        for _ in range(runs):
            client.rest(2)
            client.ask("POST", sandbox + "/rollback", "rollback_ms", checkpoint=stored[-36:])
            client.call(undone)
            time.sleep(2 * PAUSE_S)  # until the checkpoint after it is taken
            client.rest(2)
            client.ask("POST", undone + "/undo", "undo_ms", n=1)
            client.rest(2)
            client.fork(sandbox, 1, "fork_beside_ms")
        return client.took.figures()


def held(running: Service) -> dict[str, float]:
    """Returns what the service, its VMs and the snapshots in memory take of the host."""
    rollup = Path(f"/proc/{service_pid()}/smaps_rollup").read_text().splitlines()
    private = sum(float(line.split()[1]) for line in rollup if line.startswith("Private_"))
    return {
        "service_private_MiB": private / 1024,
        "vms_private_MiB": sum(private_kib()) / 1024,
        "host_shmem_MiB": meminfo()["Shmem"],
        "service_fds": entries(f"/proc/{service_pid()}/fd"),
    }


def many(folder: Path, n: int) -> Figures:
    """Many checkpoints of a sandbox, and the memory that is left once they are stored."""
    with service(folder, blank=1, warm=1) as running:
        client = Client(running)
        sandbox = client.create()
        for _ in range(n):
            client.call(sandbox, "touch 1")
            client.take(sandbox, "taken_ms")
            if len(client.took["taken_ms"]) == EDGE // 10:
                client.rest(1)
                before = held(running)
        client.rest(1)
        after = held(running)
        took = client.took["taken_ms"]
    edge = min(EDGE, n // 2)
    return {
        f"first_{edge}_ms": figure(took[:edge], "ms"),
        f"last_{edge}_ms": figure(took[-edge:], "ms"),
        **{f"{name}_grown": figure([after[name] - before[name]], name[-3:]) for name in after},
    }


def stream(client: Client, sandbox: str, name: str, pause_s: float) -> float:
    """Makes a block of calls: how long each takes, with and without its pause, and how many
    checkpoints were taken after them. Returns the ms of one with its pause."""
    client.rest(1)
    taken = client.running.level("ramet_checkpoints_taken_total")
    began = time.perf_counter()
    for _ in range(BLOCK):
        client.call(sandbox, ECHO, f"call_{name}_ms")
        time.sleep(pause_s)
    took = (time.perf_counter() - began) / BLOCK * 1e3
    client.took.add(f"stream_{name}_ms", took)
    taken = client.running.level("ramet_checkpoints_taken_total") - taken
    client.took.add(f"taken_{name}_share", taken / BLOCK)
    return took


def each_call(folder: Path, runs: int) -> Figures:
    """Calls back to back, and with a pause after each, without and with checkpoint_each_call."""
    with service(folder, blank=1, warm=1) as running:
        client = Client(running)
        plain, kept = client.create(), client.create(checkpoint_each_call={"keep": KEEP})
        for _ in range(runs):
            for name, pause_s in (("back_to_back", 0.0), ("thinking", PAUSE_S)):
                without = stream(client, plain, name, pause_s)
                each = stream(client, kept, name + "_each", pause_s)
                client.took.add(f"each_{name}_ratio", each / without)
        return client.took.figures()


def firecracker(_: Path, runs: int) -> Figures:
    """Firecracker's snapshots and loads of the tiny guest, if FIRECRACKER names its binary."""
    binary = os.environ.get("FIRECRACKER")
    if not binary:
        return {}
    program = [sys.executable, str(Path(__file__).with_name("firecracker.py")), binary]
    guest = ["--tiny", "--kernel", str(BUILD / "test/native/tiny-guest"), "--vcpus", "1"]
    what = ["--ram-mib", str(RAM_MIB), "--children", f"1,5,{MOST}", "--runs", str(runs)]
    return run_json(*program, *guest, *what)


def inside(folder: Path, quick: bool) -> Figures:
    """Measures everything, in the namespaces."""
    load = os.getloadavg()[0]
    prepare(folder)
    figures: Figures = {}
    for measure, runs in (
        (taking, 40),
        (starts, 40),
        (going_back, 60),
        (many, 1000),
        (each_call, 40),
        (firecracker, 40),
    ):
        print(f"measuring: {(measure.__doc__ or '').splitlines()[0]}", file=sys.stderr)
        figures |= measure(folder, runs // 10 if quick else runs)
    return {**figures, **machine(folder, load)}


def main() -> int:
    """Runs in the namespaces. Prints the figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    return print_figures(lambda: inside(args.folder, args.quick))


if __name__ == "__main__":
    sys.exit(main())
