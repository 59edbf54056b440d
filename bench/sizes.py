# SPDX-License-Identifier: Apache-2.0
"""The cost of other sizes of sandboxes, and of returning memory that a guest frees to the host."""

from __future__ import annotations

import json
import time

from measure import BENCH_DIR, BenchError, Figures, api, create, figure, host, host_json, opened

SECOND_SERVICE = f"{BENCH_DIR}/second-service.sh"
POOL = "--pool_blank_vms=2 --pool_warm=1"
STATE = "/var/lib/ramet/bench"
MIB = 1 << 20
HOG_MIB = 256
HOG = f"hog = bytearray(b'x') * ({HOG_MIB} << 20)"
FREE_TIMEOUT_S = 60


def during_preparation(quick: bool) -> Figures:
    """Create, first call and fork while the service prepares images, and after that."""
    host(f"rm -rf {STATE}/templates")
    what = f"sizes-latency --mode during --runs {6 if quick else 30}"
    figures = host_json(f"{SECOND_SERVICE} '--sizes=2048x2,4096x2 --pool_others=0 {POOL}' {what}", timeout_s=7200)
    images = [float(line.split()[0]) for line in host(f"du -sm {STATE}/templates/*").splitlines()]
    figures["image_on_disk_mib"] = figure(images, "MiB")
    figures["images_on_disk_mib"] = figure([sum(images)], "MiB")
    for name in [n for n in figures if n.endswith("_during_ms")]:
        after = figures[name.replace("_during_", "_after_")]["median"]
        ratio = figures[name]["median"] / after
        figures[name.replace("_during_ms", "_during_to_after")] = figure([ratio], "times")
    return figures


def sized_creates(quick: bool) -> Figures:
    """Creates of other sizes: from the pool, from a blank VM, and for the first time."""
    runs, firsts = (5, 2) if quick else (20, 4)
    figures: Figures = {}
    for mode, sizes, others, n in [
        ("warm", "2048x2,1024x1,2048x1", 2, runs),
        ("blank", "2048x2,1024x1,2048x1", 0, runs),
        ("first", "", 0, firsts),
    ]:
        settings = f"--sizes={sizes} --pool_others={others} {POOL}"
        what = f"sizes-latency --mode {mode} --runs {n}"
        figures |= host_json(f"{SECOND_SERVICE} '{settings}' {what}", timeout_s=3600)
    return figures


def private_mib(sandbox_id: str) -> float:
    """Returns the private memory of the sandbox's VM process in MiB."""
    info = json.loads(api("GET", f"/v1/sandboxes/{sandbox_id}"))
    return float(info["memory_private_bytes"]) / MIB


def run(sandbox_id: str, code: str) -> None:
    """Runs Python code; raises BenchError if it fails."""
    text = api("POST", f"/v1/sandboxes/{sandbox_id}/exec", {"code": code})
    if '"type":"exit","data":0' not in text:
        raise BenchError(f"`{code}` ended with {text[-300:]}")


def freed_mib(sandbox_id: str, below: float) -> float:
    """Waits until the private memory is below a limit, or for FREE_TIMEOUT_S; returns it in MiB."""
    deadline = time.monotonic() + FREE_TIMEOUT_S
    while (now := private_mib(sandbox_id)) > below and time.monotonic() < deadline:
        time.sleep(0.2)
    return now


def freed_memory(quick: bool) -> Figures:
    """Host memory of a sandbox before, while and after its guest uses 256 MiB."""
    before, used, after = [], [], []
    for _ in range(2 if quick else 8):
        with opened() as paths:
            sandbox_id = create(paths)
            before.append(private_mib(sandbox_id))
            run(sandbox_id, HOG)
            used.append(private_mib(sandbox_id))
            run(sandbox_id, "del hog")
            after.append(freed_mib(sandbox_id, used[-1] - HOG_MIB * 0.9))
    return {
        "private_before_mib": figure(before, "MiB"),
        "private_with_256_mib": figure(used, "MiB"),
        "private_after_free_mib": figure(after, "MiB"),
    }
