# SPDX-License-Identifier: Apache-2.0
"""How long sandboxes are unreachable after the service was killed: until the first answers an exec,
and until all have, one after the other; compared with the same calls without a kill."""

from __future__ import annotations

import json
import time
from typing import Any

from measure import BenchError, Figures, api, create, figure, host, opened

KILL = "for p in $(pidof rametd); do grep -q '^Uid:.0' /proc/$p/status || kill -9 $p; done"
# The warden waits longer before each restart of a service that ends again within this time.
LIVED_WELL_S = 61


def answers(sandbox_id: str) -> bool:
    """Returns True if an exec is answered with the expected output."""
    try:
        text = api("POST", f"/v1/sandboxes/{sandbox_id}/exec", {"code": "print(x)"})
    except BenchError:
        time.sleep(0.01)  # the starting service needs the CPUs
        return False
    events: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines() if line]
    return bool(events) and events[0].get("data") == "kept" and events[-1]["data"] == 0


def until_answers(ids: list[str]) -> None:
    for sandbox_id in ids:
        while not answers(sandbox_id):
            pass


def children(paths: list[str], first: str, wanted: int) -> list[str]:
    """Forks a sandbox up to `wanted` times, as often as the host has room; returns the ids."""
    made: list[str] = []
    while len(made) < wanted:
        n = min(8, wanted - len(made))
        try:
            new = json.loads(api("POST", f"/v1/sandboxes/{first}/fork", {"n": n}))["children"]
        except BenchError:
            break
        made += new
        paths += [f"/v1/sandboxes/{child}" for child in new]
    return made


def restart(quick: bool, sandboxes: int = 100) -> Figures:
    """Restart of the service after kill -9, with sandboxes."""
    undisturbed, one, every = [], [], []
    with opened() as paths:
        ids = [create(paths)]
        api("POST", f"/v1/sandboxes/{ids[0]}/exec", {"code": "x = 'kept'"})
        ids += children(paths, ids[0], sandboxes - 1)
        until_answers(ids)  # the first call of each takes longer
        for _ in range(1 if quick else 3):
            time.sleep(LIVED_WELL_S)
            began = time.monotonic()
            until_answers(ids)
            undisturbed.append((time.monotonic() - began) * 1000)
            began = time.monotonic()
            host(KILL)
            until_answers(ids[:1])
            one.append((time.monotonic() - began) * 1000)
            until_answers(ids[1:])
            every.append((time.monotonic() - began) * 1000)
    return {
        f"undisturbed_{len(ids)}_answer_ms": figure(undisturbed, "ms"),
        "restart_first_answers_ms": figure(one, "ms"),
        f"restart_{len(ids)}_answer_ms": figure(every, "ms"),
    }
