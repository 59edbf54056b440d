# SPDX-License-Identifier: Apache-2.0
"""What other sizes of sandboxes cost, and whether memory that a guest frees is the host's again."""

from __future__ import annotations

import json
import time

from measure import BENCH_DIR, BenchError, Figures, api, create, figure, host, host_json, opened

BESIDE = f"{BENCH_DIR}/beside.sh"
POOL = "--pool_blank_vms=2 --pool_warm=1"
STATE = "/var/lib/ramet/bench"
MIB = 1 << 20
HOG_MIB = 256
HOG = f"hog = bytearray(b'x') * ({HOG_MIB} << 20)"
SETTLED_S = 60


def beside_preparation(quick: bool) -> Figures:
    """Create, first call and fork of a service that prepares its images, and after that."""
    host(f"rm -rf {STATE}/templates {STATE}/sizes")
    what = f"sizes-latency --mode beside --runs {6 if quick else 30}"
    figures = host_json(f"{BESIDE} '--sizes=auto --pool_others=0 {POOL}' {what}", timeout_s=7200)
    images = [float(line.split()[0]) for line in host(f"du -sm {STATE}/templates/*").splitlines()]
    figures["image_on_disk_mib"] = figure(images, "MiB")
    figures["images_on_disk_mib"] = figure([sum(images)], "MiB")
    for name in [n for n in figures if n.endswith("_during_ms")]:
        after = figures[name.replace("_during_", "_after_")]["median"]
        ratio = figures[name]["median"] / after
        figures[name.replace("_during_ms", "_during_to_after")] = figure([ratio], "times")
    return figures


def sized_creates(quick: bool) -> Figures:
    """Creates of each kind of size: from the pool, from a blank VM, and for the first time."""
    runs, firsts = (5, 2) if quick else (20, 4)
    figures: Figures = {}
    for mode, sizes, others, n in [
        ("warm", "1024x2,512x1,1024x1", 2, runs),
        ("blank", "1024x2,512x1,1024x1", 0, runs),
        ("first", "", 0, firsts),
    ]:
        settings = f"--sizes={sizes} --pool_others={others} {POOL}"
        what = f"sizes-latency --mode {mode} --runs {n}"
        figures |= host_json(f"{BESIDE} '{settings}' {what}", timeout_s=3600)
    return figures


def private_mib(sandbox_id: str) -> float:
    """Memory that the sandbox's VM process has for itself."""
    info = json.loads(api("GET", f"/v1/sandboxes/{sandbox_id}"))
    return float(info["memory_private_bytes"]) / MIB


def run(sandbox_id: str, code: str) -> None:
    """Runs Python code, which must go well."""
    text = api("POST", f"/v1/sandboxes/{sandbox_id}/exec", {"code": code})
    if '"type":"exit","data":0' not in text:
        raise BenchError(f"`{code}` ended with {text[-300:]}")


def settled_mib(sandbox_id: str, below: float) -> float:
    """The private memory once it is below so much, or what it is after a while."""
    deadline = time.monotonic() + SETTLED_S
    while (now := private_mib(sandbox_id)) > below and time.monotonic() < deadline:
        time.sleep(0.2)
    return now


def freed_memory(quick: bool) -> Figures:
    """Memory of the host that a sandbox has before, while and after it uses 256 MB of its own."""
    before, used, after = [], [], []
    for _ in range(2 if quick else 8):
        with opened() as places:
            sandbox_id = create(places)
            before.append(private_mib(sandbox_id))
            run(sandbox_id, HOG)
            used.append(private_mib(sandbox_id))
            run(sandbox_id, "del hog")
            after.append(settled_mib(sandbox_id, used[-1] - HOG_MIB * 0.9))
    return {
        "private_before_mib": figure(before, "MiB"),
        "private_with_256_mib": figure(used, "MiB"),
        "private_after_free_mib": figure(after, "MiB"),
    }
