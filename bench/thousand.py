# SPDX-License-Identifier: Apache-2.0
"""A thousand live sandboxes on one host: the whole service natively, with the tiny guest.

The service has its default settings, with the network on; only max_vms is larger, and the pool and
fork_max for the forks. `thousand` starts this file again in namespaces of its own, as
native_service.py does.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from measure import BenchError, Figures, figure
from native_service import (
    ACCOUNT,
    BUILD,
    EXEC,
    PORT,
    Service,
    in_namespaces,
    machine,
    prepare,
    print_figures,
    private_kib,
    run,
    service,
)

CLIENTS = 16
BLANK, WARM = 6, 2  # the default pool
HEADROOM = 32  # VMs beside the sandboxes: the pool, and what ends
EDGE = 100  # creates that are compared: the first and the last
FORK_RUNS = 3
REST_S = 3  # after the last request, until the pool and the caches are as they stay
FILES = 65536  # descriptors, as the unit permits


def thousand(quick: bool, vms: int = 0, idle: int = 0) -> Figures:
    """A thousand live sandboxes on this machine itself, with a tiny guest instead of Linux."""
    vms = vms or (100 if quick else 1000)
    idle = idle or (10 if quick else 600)
    return in_namespaces(__file__, "--vms", str(vms), "--idle", str(idle))


# --- requests --------------------------------------------------------------------------------------


class Times:
    """The times of many requests: each in ms, in their order, and all of them in s."""

    def __init__(self, text: str) -> None:
        found = json.loads(text)
        self.ms: list[float] = found["ms"]
        self.took_s: float = found["took_s"]


def request(
    paths: Iterable[str], method: str, suffix: str = "", body: str = "", *, clients: int = 1,
    wait: bool = False,
) -> Times:  # fmt: skip
    """Sends a request to each path, by so many clients at once."""
    options = ["--port", str(PORT), "--clients", str(clients), *(["--wait"] if wait else [])]
    done = subprocess.run(
        [str(BUILD / "bench/many-requests"), *options, method, suffix, body],
        input="\n".join(paths),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BenchError(f"{method} …{suffix} failed; see above")
    return Times(done.stdout)


def call(paths: Iterable[str], clients: int = 1, wait: bool = False) -> Times:
    """Makes a call in each sandbox."""
    return request(paths, "POST", "/exec", EXEC.decode(), clients=clients, wait=wait)


def sandboxes(running: Service) -> list[str]:
    """Returns the paths of all sandboxes."""
    running.connection.close()  # the service has closed it if it was idle for long
    found = json.loads(running.ask("GET", "/v1/sandboxes"))
    return [f"/v1/sandboxes/{one['id']}" for one in found]


# --- what the host gives ---------------------------------------------------------------------------

MEMINFO = ("Slab", "SUnreclaim", "KernelStack", "PageTables", "Percpu", "Shmem", "MemAvailable")


def meminfo() -> dict[str, float]:
    """Returns the host's memory in MiB, by its use."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    kib = {line[0].rstrip(":"): float(line[1]) for line in lines}
    return {name: kib[name] / 1024 for name in MEMINFO}


def processes(name: str) -> list[Path]:
    """Returns the folders in /proc of the processes with this name."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "comm").read_text().strip() == name:
                found.append(process)
        except OSError:
            continue
    return found


def is_service(process: Path) -> bool:
    """Returns whether a rametd is the service."""
    return process.stat().st_uid == ACCOUNT or f"\nUid:\t{ACCOUNT}\t" in (process / "status").read_text()


def service_pid() -> int:
    """Returns the process of the service."""
    for process in processes("rametd"):
        if is_service(process):
            return int(process.name)
    raise BenchError("the service does not run")


def entries(folder: str | Path) -> int:
    """Returns how many entries a folder has."""
    return len(os.listdir(folder))


def cgroups(running: Service) -> int:
    """Returns the number of cgroups of rametd."""
    return sum(1 for _ in os.walk(running.group))


def links() -> int:
    """Returns the number of network links on the host's side."""
    return len(Path("/proc/net/dev").read_text().splitlines()) - 2


def set_elements() -> int:
    """Returns the number of elements in the sets of the host's rules."""
    if not shutil.which("nft"):
        return 0
    rules = json.loads(run("nft", "-j", "list", "ruleset"))["nftables"]
    return sum(len(rule["set"].get("elem", [])) for rule in rules if "set" in rule)


def holdings(running: Service) -> dict[str, float]:
    """Returns what rametd holds of the host: of each kind, how many."""
    warden, core = running.process.pid, service_pid()
    namespaces = {os.readlink(vm / "ns/net") for vm in processes("ramet-vmm")}
    return {
        "service_descriptors": entries(f"/proc/{core}/fd"),
        "service_threads": entries(f"/proc/{core}/task"),
        "warden_descriptors": entries(f"/proc/{warden}/fd"),
        "warden_threads": entries(f"/proc/{warden}/task"),
        "vm_descriptors": sum(entries(vm / "fd") for vm in processes("ramet-vmm")),
        "vm_threads": sum(entries(vm / "task") for vm in processes("ramet-vmm")),
        "cgroups": cgroups(running),
        "network_namespaces": len(namespaces),
        "links": links(),
        "set_elements": set_elements(),
    }


def per_vm(before: dict[str, float], after: dict[str, float], vms: int) -> Figures:
    """Returns how much each VM added."""
    return {f"{name}_per_vm": figure([(after[name] - before[name]) / vms], "") for name in after}


def memory_per_vm(before: dict[str, float], after: dict[str, float], vms: int) -> Figures:
    """Returns the host's memory of a VM, and how much of it the kernel uses for what."""
    found = {"host_mib_per_vm": figure([(before["MemAvailable"] - after["MemAvailable"]) / vms], "MiB")}
    for name in MEMINFO[:-1]:
        kib = (after[name] - before[name]) * 1024 / vms
        found[f"host_{name.lower()}_kib_per_vm"] = figure([kib], "KiB")
    return found


# --- live sandboxes --------------------------------------------------------------------------------


def create_all(running: Service, vms: int) -> Figures:
    """Creates the sandboxes one after the other, and calls each."""
    created = request(["/v1/sandboxes"] * vms, "POST", "", "{}")
    paths = sandboxes(running)
    first = call(paths)
    again = call(paths)
    return {
        "create_first100_ms": figure(created.ms[:EDGE], "ms"),
        "create_last100_ms": figure(created.ms[-EDGE:], "ms"),
        "create_all_s": figure([created.took_s], "s"),
        "first_call_ms": figure(first.ms, "ms"),
        "exec_round_robin_ms": figure(again.ms, "ms"),
    }


def cpu_s(group: Path) -> float:
    """Returns the CPU time of a cgroup."""
    return float((group / "cpu.stat").read_text().split()[1]) / 1e6


def idle_cpu(running: Service, seconds: int) -> Figures:
    """Measures the share of one CPU that all of rametd uses while nobody sends a request."""
    time.sleep(REST_S)
    groups = {
        "idle_cpu_percent": running.group,
        "idle_cpu_service_percent": running.group / "ramet/service",
        "idle_cpu_warden_percent": running.group / "ramet/warden",
    }
    began, before = time.monotonic(), {name: cpu_s(group) for name, group in groups.items()}
    time.sleep(seconds)
    took = time.monotonic() - began
    return {
        name: figure([(cpu_s(group) - before[name]) / took * 100], "%")
        for name, group in groups.items()
    }


@contextmanager
def death_of_service() -> Iterator[int]:
    """Yields the service's process, and waits until it is dead."""
    dying = service_pid()
    handle = os.pidfd_open(dying)
    yield dying
    select.select([handle], [], [])
    os.close(handle)


def kill_service(running: Service) -> None:
    """Kills the service; the warden starts it again."""
    with death_of_service() as dying:
        os.kill(dying, signal.SIGKILL)


def kill_warden(running: Service) -> None:
    """Kills the warden, with which the service ends, and starts them again at once."""
    with death_of_service():
        running.process.kill()
        running.process.wait()
    running.start()


def until_all_answer(running: Service, kill: Callable[[Service], None]) -> float:
    """Kills; returns the seconds until each sandbox has answered a call."""
    paths = sandboxes(running)
    running.connection.close()
    began = time.monotonic()
    kill(running)
    call(paths, CLIENTS, wait=True)
    return time.monotonic() - began


def delete_all(running: Service) -> float:
    """Deletes all sandboxes; returns the seconds until they and their VM processes are gone."""
    began = time.monotonic()
    request(sandboxes(running), "DELETE", clients=CLIENTS)
    while len(processes("ramet-vmm")) > BLANK + WARM and time.monotonic() < began + 60:
        time.sleep(0.02)
    return time.monotonic() - began


def left_in(running: Service) -> dict[str, int]:
    """Returns what the running service still has of the deleted sandboxes."""
    time.sleep(REST_S)
    pool = BLANK + WARM
    running.await_pool(BLANK, WARM)
    return {
        "sandboxes": len(sandboxes(running)),
        "VM processes": len(processes("ramet-vmm")) - pool,
        "folders of VMs": entries(running.folder / "run/vm") - pool,
        "links": links() - pool - LINKS_BEFORE,
    }


LINKS_BEFORE = 1  # lo


def left_after(running: Service) -> dict[str, int]:
    """Returns what is left of rametd after its end."""
    return {
        "processes": len(processes("ramet-vmm")) + len(processes("rametd")),
        "cgroups": cgroups(running) - 1,
        "links": links() - LINKS_BEFORE,
    }


def left_over(found: dict[str, int]) -> int:
    """Returns the number of things that are left, and prints them."""
    for name, n in found.items():
        if n > 0:
            print(f"left over: {n} {name}", file=sys.stderr)
    return sum(max(n, 0) for n in found.values())


def live(folder: Path, vms: int, idle: int) -> Figures:
    """Sandboxes that live at once: creates, calls, memory, idle time, kills, deletes."""
    with service(folder, blank=BLANK, warm=WARM, max_vms=vms + HEADROOM) as running:
        time.sleep(REST_S)
        memory, held = meminfo(), holdings(running)
        figures = create_all(running, vms)
        running.await_pool(BLANK, WARM)
        figures |= memory_per_vm(memory, meminfo(), vms) | per_vm(held, holdings(running), vms)
        figures["private_kib_per_vm"] = figure(private_kib(), "KiB")
        figures |= idle_cpu(running, idle)
        figures["adopt_all_s"] = figure([until_all_answer(running, kill_service)], "s")
        figures["adopt_all_new_warden_s"] = figure([until_all_answer(running, kill_warden)], "s")
        running.await_pool(BLANK, WARM)
        figures["delete_all_s"] = figure([delete_all(running)], "s")
        left = left_over(left_in(running))
    figures["left_over"] = figure([left + left_over(left_after(running))], "")
    return figures


# --- large forks -----------------------------------------------------------------------------------


def fork_once(running: Service, parent: str, n: int) -> tuple[float, Times]:
    """Forks into n children and calls each at once; returns the ms of the fork, and the calls."""
    began = time.perf_counter()
    answer = json.loads(running.ask("POST", f"{parent}/fork", json.dumps({"n": n}).encode()))
    took_ms = (time.perf_counter() - began) * 1e3
    children = [f"/v1/sandboxes/{child}" for child in answer["children"]]
    calls = call(children, CLIENTS)
    request(children, "DELETE", clients=CLIENTS)
    return took_ms, calls


def fork_into(running: Service, n: int, most: int) -> Figures:
    """Forks a few times into n children, while the pool refills."""
    parent = running.create()
    call([parent])
    answered, took, calls = [], [], []
    for _ in range(FORK_RUNS):
        running.await_pool(most, WARM, 120 + most / 10)
        ms, times = fork_once(running, parent, n)
        answered.append(ms)
        took.append(times.took_s)
        calls += times.ms
    running.ask("DELETE", parent)
    return {
        f"fork_{n}_answered_ms": figure(answered, "ms"),
        f"fork_{n}_first_calls_s": figure(took, "s"),
        f"fork_{n}_first_call_ms": figure(calls, "ms"),
    }


def forks(folder: Path, vms: int) -> Figures:
    """Forks into a hundred and a thousand children, with a blank VM ready for each."""
    most = min(vms, 1000)  # of fork_max
    with service(
        folder, blank=most, warm=WARM, fork_max=most, max_vms=3 * most + HEADROOM
    ) as running:
        figures: Figures = {}
        for n in sorted({min(100, most), most}):
            figures |= fork_into(running, n, most)
    return figures


# --- inside the namespaces -------------------------------------------------------------------------


def inside(folder: Path, vms: int, idle: int) -> Figures:
    """Measures everything, in the namespaces."""
    load = os.getloadavg()[0]
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, most), most))
    prepare(folder)
    print(f"measuring: {live.__doc__}", file=sys.stderr)
    figures = live(folder, vms, idle)
    print(f"measuring: {forks.__doc__}", file=sys.stderr)
    figures |= forks(folder, vms)
    return {**figures, **machine(folder, load)}


def main() -> int:
    """Runs in the namespaces. Prints the figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--vms", type=int, default=1000)
    parser.add_argument("--idle", type=int, default=600)
    args = parser.parse_args()
    return print_figures(lambda: inside(args.folder, args.vms, args.idle))


if __name__ == "__main__":
    sys.exit(main())
