# SPDX-License-Identifier: Apache-2.0
"""Uses the service for hours as many agents would, and watches the resources it holds on the host."""

from __future__ import annotations

import json
import random
import statistics
import sys
import threading
import time
from dataclasses import dataclass, field

from contention import PAUSE_S, TIMEOUT_S, call
from measure import BenchError, Figures, api, create, delete, figure, host

AGENTS = 4  # concurrent clients
SAMPLE_S = 30
IDLE_S = (0, 0, 1, 20, 180)  # pause before a call: mostly none, sometimes minutes
SLOW_S = 30  # a call that takes longer is printed

# Runs on the host of the VMs: prints a line for each resource that must not grow.
HOLDINGS = r"""
rss() { for pid in $(pidof rametd); do awk -v p=$pid '/^VmRSS/ {print p, $2}' /proc/$pid/status; done; }
rss | sort -n | awk '{print "rss_kib_of_process_" NR, $2}'
for pid in $(pidof rametd); do ls /proc/$pid/fd; done | wc -l | sed 's/^/descriptors /'
for pid in $(pidof rametd); do cat /proc/$pid/mountinfo; done | wc -l | sed 's/^/mounts /'
find /sys/fs/cgroup -type d | wc -l | sed 's/^/cgroups /'
nft list ruleset | wc -l | sed 's/^/nft_lines /'
ip -o link | wc -l | sed 's/^/links /'
cut -f1 /proc/sys/fs/file-nr | sed 's/^/open_files /'
awk '/^(Slab|SUnreclaim|KernelStack|PageTables|Percpu):/ {sub(":", "", $1); print $1 "_kib", $2}' /proc/meminfo
du -sk /run/ramet | sed 's/\s.*//; s/^/run_dir_kib /'
du -sk /var/lib/ramet/catalogue.db* | awk '{sum += $1} END {print "catalogue_kib", sum}'
pidof ramet-vmm | wc -w | sed 's/^/vm_processes /'
"""


@dataclass
class Report:
    """The operations of all agents, and the failures."""

    done: dict[str, int] = field(default_factory=dict)
    call_ms: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, name: str) -> None:
        """Counts a successful operation."""
        with self.lock:
            self.done[name] = self.done.get(name, 0) + 1

    def fail(self, what: str) -> None:
        """Records and prints a failure."""
        with self.lock:
            self.failures.append(what)
        print(f"  {time.strftime('%H:%M:%S')} failed: {what}", file=sys.stderr)


class Agent:
    """A client with one sandbox at a time, which it calls, forks, merges, freezes and deletes."""

    def __init__(self, seed: int, report: Report) -> None:
        self.random = random.Random(seed)
        self.report = report
        self.open: list[str] = []  # API paths to delete
        self.value = 0

    def call(self, sandbox_id: str) -> None:
        """Pauses, then makes a call that checks the state of the sandbox."""
        time.sleep(self.random.choice(IDLE_S))
        began = time.perf_counter()
        call(sandbox_id, f"assert x == {self.value}, x")
        took_s = time.perf_counter() - began
        self.report.count("calls")
        with self.report.lock:
            self.report.call_ms.append(took_s * 1000)
        if took_s > SLOW_S:
            print(f"  {sandbox_id}: a call took {took_s:.0f} s", file=sys.stderr)

    def fork(self, parent: str) -> None:
        """Forks the sandbox and checks the children; sometimes merges one into the parent."""
        answer = json.loads(
            api("POST", f"/v1/sandboxes/{parent}/fork", {"n": self.random.randint(1, 3)}, TIMEOUT_S)
        )
        children: list[str] = answer["children"]
        self.open.extend(f"/v1/sandboxes/{child}" for child in children)
        self.report.count("forks")
        for child in children:
            self.call(child)
        if self.random.random() < 0.5:
            api("POST", f"/v1/sandboxes/{parent}/merge_into/{children[0]}", {}, TIMEOUT_S)
            self.report.count("merges")
            self.call(parent)

    def freeze(self, sandbox_id: str) -> None:
        """Freezes the sandbox into a Space, and resumes it."""
        answer = json.loads(api("POST", f"/v1/sandboxes/{sandbox_id}/freeze", {}, TIMEOUT_S))
        space = answer["space_id"]
        self.open.append(f"/v1/spaces/{space}")
        self.report.count("freezes")
        answer = json.loads(api("POST", f"/v1/spaces/{space}/resume", {}, TIMEOUT_S))
        self.open.append(f"/v1/sandboxes/{answer['id']}")
        self.report.count("resumes")
        self.call(answer["id"])

    def round(self) -> None:
        """Uses one sandbox from its create on; close() deletes it."""
        self.value = self.random.randrange(10**6)
        vcpus = self.random.choice((1, 2))
        sandbox_id = create(self.open, {"vcpus": vcpus})
        self.report.count(f"creates_{vcpus}_vcpus")
        time.sleep(self.random.choice(IDLE_S))
        call(sandbox_id, f"x = {self.value}")
        self.call(sandbox_id)
        if self.random.random() < 0.5:
            self.fork(sandbox_id)
        if self.random.random() < 0.3:
            self.freeze(sandbox_id)

    def close(self) -> None:
        """Deletes all that still exists."""
        try:
            delete(self.open)
        except BenchError as failed:
            self.report.fail(str(failed))

    def run(self, until: float, stop: threading.Event) -> None:
        """Makes rounds until the time is over or `stop` is set."""
        while time.monotonic() < until and not stop.is_set():
            try:
                self.round()
            except BenchError as failed:
                self.report.fail(str(failed))
            finally:
                self.close()


def holdings() -> dict[str, float]:
    """Returns the resources that the service holds on the host, by name."""
    return {name: float(value) for name, value in map(str.split, host(HOLDINGS).splitlines())}


def growth(samples: list[dict[str, float]]) -> Figures:
    """Returns the samples of each resource, and the growth from the second to the last quarter.

    The first quarter does not count, since it fills caches and pools.
    """
    figures: Figures = {}
    quarter = max(len(samples) // 4, 1)
    for name in samples[0]:
        values = [sample.get(name, 0) for sample in samples]
        early, late = values[quarter : 2 * quarter] or values[:1], values[-quarter:]
        figures[name] = figure(values, "")
        ratio = statistics.median(late) / max(statistics.median(early), 1)
        figures[f"{name}_growth"] = figure([ratio], "times")
    return figures


def soak(quick: bool, hours: float = 0) -> Figures:
    """Hours of creates, calls, forks, merges, freezes and resumes by several agents.

    Meanwhile it samples the service's memory, descriptors, mounts, cgroups, rules and files.
    """
    report = Report()
    until = time.monotonic() + (hours * 3600 if hours else 120 if quick else 7200)
    stop = threading.Event()
    threads = [
        threading.Thread(target=Agent(seed, report).run, args=(until, stop))
        for seed in range(AGENTS)
    ]
    samples = []
    for thread in threads:
        thread.start()
    try:
        while any(thread.is_alive() for thread in threads):
            samples.append(holdings())
            time.sleep(SAMPLE_S)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    time.sleep(PAUSE_S)
    figures = growth(samples)
    figures["calls_ms"] = figure(report.call_ms or [0], "ms")
    for name, count in sorted(report.done.items()):
        figures[name] = figure([count], "times")
    figures["failures"] = figure([len(report.failures)], "times")
    return figures
