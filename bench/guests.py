# SPDX-License-Identifier: Apache-2.0
"""Many Linux guests at once: what they cost while idle, and what comes back of memory that they free.

The client runs on the host of the VMs, as for `files`. This program is called there as
`guests.py VMS IDLE_SECONDS`. It reads the kernel's counters of KVM in debugfs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from files import call, run
from measure import BENCH_DIR, BenchError, Figures, figure, host_json, opened

KVM = Path("/sys/kernel/debug/kvm")
KINDS = 8  # of exits, that are printed
POOL_S = 15  # until the pool has new VMs
HOGS = 8  # guests that use memory and free it
HOG_MIB = 400
HOG = f"hog = bytearray(b'x') * ({HOG_MIB} << 20)"
FREE = "del hog"
POLL_S = 0.5
BACK_S = 120  # until memory that does not come back is given up
BACK = 0.9  # of the freed memory
LOG_STEP = 8


def guests(quick: bool, vms: int = 0, idle: int = 0) -> Figures:
    """Many Linux guests at once: exits and CPU time while idle, memory, calls, and freed memory."""
    vms, idle = vms or (12 if quick else 240), idle or (20 if quick else 60)
    command = f"python3 {BENCH_DIR}/guests.py {vms} {idle}"
    return host_json(command, timeout_s=7200, progress=True)


def progress(text: str) -> None:
    """Prints a line, as each step takes minutes in the rig."""
    print(f"  {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


# --- the host --------------------------------------------------------------------------------------


def available_mib() -> float:
    """Returns the host's available memory."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return float(line.split()[1]) / 1024
    raise BenchError("/proc/meminfo has no MemAvailable")


def of_vms(measure: Callable[[Path], int]) -> dict[str, int]:
    """Measures each VM process, by its folder in /proc."""
    found: dict[str, int] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "comm").read_text().strip() == "ramet-vmm":
                found[process.name] = measure(process)
        except OSError:  # it has ended
            continue
    return found


def cpu_ns(process: Path) -> int:
    """Returns the CPU time of a process."""
    tasks = (process / "task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks)


def private_kib(process: Path) -> int:
    """Returns the private memory of a VM process, most of which is its guest's."""
    lines = (process / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def private_mib() -> float:
    """Returns the private memory of all VM processes."""
    return sum(of_vms(private_kib).values()) / 1024


def number_in(file: Path) -> int:
    """Returns the number in a file; 0 if it has none that can be read."""
    try:
        text = file.read_text().strip()
    except OSError:
        return 0
    return int(text) if text.isdigit() else 0


def counters() -> dict[str, int]:
    """Returns KVM's counters of all VMs together."""
    return {file.name: number_in(file) for file in KVM.iterdir() if file.is_file()}


def exits() -> dict[str, int]:
    """Returns the exits of each VM."""
    return {vm.name: number_in(vm / "exits") for vm in KVM.glob("*-*")}


def mount_debugfs() -> None:
    """Makes KVM's counters visible."""
    if not KVM.is_dir():
        subprocess.run(["mount", "-t", "debugfs", "debugfs", str(KVM.parent)], check=False)
    if not KVM.is_dir():
        raise BenchError(f"the kernel has no {KVM}: it needs CONFIG_DEBUG_FS")


# --- idle guests -----------------------------------------------------------------------------------


def create_many(paths: list[str], most: int) -> list[float]:
    """Creates sandboxes while the host has room; returns the milliseconds of each create."""
    took: list[float] = []
    while len(took) < most:
        began = time.perf_counter()
        try:
            answer = call("POST", "/v1/sandboxes", b"{}")
        except BenchError as refused:
            if "no_capacity" not in str(refused):
                raise
            progress(f"no room for more: {refused}")
            break
        took.append((time.perf_counter() - began) * 1e3)
        paths.append(f"/v1/sandboxes/{json.loads(answer)['id']}")
        if len(took) % LOG_STEP == 0:
            progress(f"{len(took)} of {most} created, {available_mib():.0f} MiB available")
    if not took:
        raise BenchError("the host has no room for a sandbox")
    return took


def call_each(paths: list[str]) -> list[float]:
    """Makes a call in each sandbox in turn; returns the milliseconds of each."""
    took = []
    for path in paths:
        began = time.perf_counter()
        run(path, "print(1)")
        took.append((time.perf_counter() - began) * 1e3)
    progress(f"{len(paths)} calls made")
    return took


def most_of(before: dict[str, int], after: dict[str, int], n: int, scale: float) -> list[float]:
    """Returns how much the n VMs that did most have grown. The others are blank VMs of the pool."""
    grown = sorted((after[vm] - before[vm]) * scale for vm in before if vm in after)
    return grown[-n:]


def print_kinds(before: dict[str, int], after: dict[str, int], scale: float) -> None:
    """Prints which of KVM's counters have grown most."""
    grown = {name: (after[name] - before[name]) * scale for name in before if name in after}
    for name in sorted(grown, key=lambda name: -grown[name])[:KINDS]:
        if grown[name] > 0:
            progress(f"  {name}: {grown[name]:.2f} per guest and second")


def idle_cost(n: int, seconds: int) -> Figures:
    """Measures what each of n guests costs while nobody calls it."""
    progress(f"leaving {n} guests idle for {seconds} s")
    all_before, vms_before, cpu_before = counters(), exits(), of_vms(cpu_ns)
    began = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    cpu, vms, all_after = of_vms(cpu_ns), exits(), counters()
    print_kinds(all_before, all_after, 1 / took / n)
    return {
        "idle_exits_per_s": figure(most_of(vms_before, vms, n, 1 / took), "1/s"),
        "idle_cpu_percent_per_guest": figure(most_of(cpu_before, cpu, n, 1e-7 / took), "%"),
    }


def many(most: int, idle: int) -> Figures:
    """Measures as many guests as the host has room for."""
    with opened() as paths:
        before = available_mib()
        created = create_many(paths, most)
        n = len(paths)
        first, again = call_each(paths), call_each(paths)
        figures = {
            "guests": figure([n], ""),
            "create_ms": figure(created, "ms"),
            "first_call_ms": figure(first, "ms"),
            "call_in_turn_ms": figure(again, "ms"),
            "host_mib_per_guest": figure([(before - available_mib()) / n], "MiB"),
            "private_mib_per_guest": figure(
                [kib / 1024 for kib in sorted(of_vms(private_kib).values())[-n:]], "MiB"
            ),
        }
        figures |= idle_cost(n, idle)
        progress(f"deleting {n} sandboxes")
    return figures


# --- freed memory ----------------------------------------------------------------------------------


def seconds_until_back(most_mib: float) -> float:
    """Waits until the VM processes have no more private memory than this."""
    began = time.monotonic()
    while private_mib() > most_mib and time.monotonic() < began + BACK_S:
        time.sleep(POLL_S)
    return time.monotonic() - began


def memory_back(n: int) -> Figures:
    """Lets some guests use memory and free it; measures when the host has it back."""
    with opened() as paths:
        create_many(paths, n)
        n = len(paths)
        call_each(paths)
        time.sleep(POOL_S)
        before = private_mib()
        for path in paths:
            run(path, HOG)
            progress(f"a guest uses {HOG_MIB} MiB, {available_mib():.0f} MiB available")
        used, cpu = private_mib() - before, of_vms(cpu_ns)
        for path in paths:
            run(path, FREE)
        progress(f"all have freed it, {available_mib():.0f} MiB available")
        took = seconds_until_back(before + used * (1 - BACK))
        time.sleep(POOL_S)
        kept, cpu_after = private_mib() - before, of_vms(cpu_ns)
        progress(f"{(used - kept) / n:.0f} of {used / n:.0f} MiB of each guest came back")
    return {
        "used_mib_per_guest": figure([used / n], "MiB"),
        "kept_mib_per_guest": figure([kept / n], "MiB"),
        "back_90_percent_s": figure([took], "s"),
        "back_cpu_ms_per_guest": figure(most_of(cpu, cpu_after, n, 1e-6), "ms"),
    }


def hogs(most: int) -> int:
    """Returns how many guests can use so much memory at once, with as much left for the host."""
    return max(1, min(HOGS, most, int(available_mib() / 2 / HOG_MIB)))


def measure_guests(most: int, idle: int) -> Figures:
    """Measures everything, on the host of the VMs."""
    mount_debugfs()
    return memory_back(hogs(most)) | many(most, idle)


if __name__ == "__main__":
    print(json.dumps(measure_guests(int(sys.argv[1]), int(sys.argv[2]))))
