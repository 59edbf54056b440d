# SPDX-License-Identifier: Apache-2.0
"""How long sandboxes are out of reach when the service is killed: until the first of them answers
an exec, and until all do, one after the other."""

from __future__ import annotations

import json
import time
from typing import Any

from measure import BenchError, Figures, api, figure, host

KILL = "for p in $(pidof rametd); do grep -q '^Uid:.0' /proc/$p/status || kill -9 $p; done"


def answers(sandbox_id: str) -> bool:
    """An exec is answered with what it prints."""
    try:
        text = api("POST", f"/v1/sandboxes/{sandbox_id}/exec", {"code": "print(x)"})
    except BenchError:
        return False
    events: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines() if line]
    return bool(events) and events[0].get("data") == "kept" and events[-1]["data"] == 0


def children(first: str, wanted: int) -> list[str]:
    """Forks of a sandbox, as many as the host has room for."""
    made: list[str] = []
    while len(made) < wanted:
        n = min(8, wanted - len(made))
        try:
            made += json.loads(api("POST", f"/v1/sandboxes/{first}/fork", {"n": n}))["children"]
        except BenchError:
            break
    return made


def restart(quick: bool) -> Figures:
    """kill -9 of the service with sandboxes in it, up to 100."""
    first = json.loads(api("POST", "/v1/sandboxes", {}))["id"]
    all_of_them = [first]
    one, every = [], []
    try:
        api("POST", f"/v1/sandboxes/{first}/exec", {"code": "x = 'kept'"})
        all_of_them += children(first, 9 if quick else 99)
        for _ in range(2 if quick else 5):
            host("true")
            began = time.monotonic()
            host(KILL)
            while not answers(first):
                pass
            one.append((time.monotonic() - began) * 1000)
            for sandbox_id in all_of_them:
                while not answers(sandbox_id):
                    pass
            every.append((time.monotonic() - began) * 1000)
    finally:
        for sandbox_id in all_of_them:
            api("DELETE", f"/v1/sandboxes/{sandbox_id}")
    return {
        "restart_first_answer_ms": figure(one, "ms"),
        f"restart_all_{len(all_of_them)}_answer_ms": figure(every, "ms"),
    }
