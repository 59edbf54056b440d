# SPDX-License-Identifier: Apache-2.0
"""What other sizes of sandboxes cost, and whether memory that a guest frees is the host's again."""

from __future__ import annotations

import json
import time

from measure import BENCH_DIR, BenchError, Figures, api, figure, host, host_json

BESIDE = f"{BENCH_DIR}/beside.sh"
POOL = "--pool_shells=2 --pool_warm=1"
IMAGES = "/var/lib/ramet/bench/templates"
MIB = 1 << 20
HOG_MIB = 256
HOG = f"hog = bytearray(b'x') * ({HOG_MIB} << 20)"
SETTLED_S = 60


def sized_creates(quick: bool) -> Figures:
    """Creates of other sizes beside the default, in a service of their own; preparing them."""
    what = f"sizes-latency --creates {5 if quick else 30}"
    auto, one = f"--sizes=auto {POOL}", f"--sizes=4096x2x16 --pool_others=0 {POOL}"
    figures = host_json(f"{BESIDE} '{auto}' {what}", timeout_s=7200)
    images = [float(line.split()[0]) for line in host(f"du -sm {IMAGES}/*").splitlines()]
    figures["image_on_disk_mib"] = figure(images, "MiB")
    figures |= host_json(f"{BESIDE} '{one}' {what} --shell", timeout_s=3600)
    default = figures["create_default_ms"]["median"]
    for name in [n for n in figures if n.startswith("create_") and n != "create_default_ms"]:
        ratio = figures[name]["median"] / default
        figures[name.replace("create_", "").replace("_ms", "_to_default")] = figure([ratio], "times")
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
        sandbox_id = json.loads(api("POST", "/v1/sandboxes", {}))["id"]
        try:
            before.append(private_mib(sandbox_id))
            run(sandbox_id, HOG)
            used.append(private_mib(sandbox_id))
            run(sandbox_id, "del hog")
            after.append(settled_mib(sandbox_id, used[-1] - HOG_MIB * 0.9))
        finally:
            api("DELETE", f"/v1/sandboxes/{sandbox_id}")
    return {
        "private_before_mib": figure(before, "MiB"),
        "private_with_256_mib": figure(used, "MiB"),
        "private_after_free_mib": figure(after, "MiB"),
    }
