# SPDX-License-Identifier: Apache-2.0
"""The cost of monitoring: the time of calls while /metrics is read every second, in blocks that
alternate with blocks of calls without it. Also the service's own work for metrics and timers in
each call. The audit log is not part of this: a call writes no line."""

from __future__ import annotations

import statistics
import time

from measure import BENCH_DIR, Figures, api, create, figure, host_json, opened


def block(sandbox_id: str, calls: int, watched: bool) -> list[float]:
    """Returns the times of `calls` calls in us."""
    times = []
    read = time.monotonic() - 1
    for _ in range(calls):
        if watched and time.monotonic() - read >= 1:
            read = time.monotonic()
            api("GET", "/metrics")
        began = time.monotonic()
        api("POST", f"/v1/sandboxes/{sandbox_id}/exec", {"code": "pass"})
        times.append((time.monotonic() - began) * 1e6)
    return times


def scrape(times: int) -> list[float]:
    """Returns the times of reading /metrics, `times` times, in us."""
    found = []
    for _ in range(times):
        began = time.monotonic()
        api("GET", "/metrics")
        found.append((time.monotonic() - began) * 1e6)
    return found


def watch(quick: bool) -> Figures:
    """Execs with and without monitoring, in turns, so that other load affects both."""
    plain: list[float] = []
    watched: list[float] = []
    ratios = []
    with opened() as paths:
        sandbox_id = create(paths)
        block(sandbox_id, 20, False)
        for _ in range(5 if quick else 20):
            without = block(sandbox_id, 100, False)
            under = block(sandbox_id, 100, True)
            ratios.append(statistics.median(under) / statistics.median(without))
            plain += without
            watched += under
        scrapes = scrape(20 if quick else 100)
    return {
        "exec_us": figure(plain, "us"),
        "exec_watched_us": figure(watched, "us"),
        "exec_watched_share": figure(ratios, "of one that is not watched"),
        "metrics_us": figure(scrapes, "us"),
    } | host_json(f"{BENCH_DIR}/loop-cost --runs {20 if quick else 200}")
