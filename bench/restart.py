# SPDX-License-Identifier: Apache-2.0
"""How long sandboxes are out of reach when the service is killed: until the first of them answers
an exec, and until all do, one after the other; beside the same calls when nothing was killed."""

from __future__ import annotations

import json
import time
from typing import Any

from measure import BenchError, Figures, api, create, figure, host, opened

KILL = "for p in $(pidof rametd); do grep -q '^Uid:.0' /proc/$p/status || kill -9 $p; done"
# A service that is killed again within this time is started again later each time.
LIVED_WELL_S = 61


def answers(sandbox_id: str) -> bool:
    """An exec is answered with what it prints."""
    try:
        text = api("POST", f"/v1/sandboxes/{sandbox_id}/exec", {"code": "print(x)"})
    except BenchError:
        time.sleep(0.01)  # whoever comes up needs the processors
        return False
    events: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines() if line]
    return bool(events) and events[0].get("data") == "kept" and events[-1]["data"] == 0


def until_answers(ids: list[str]) -> None:
    for sandbox_id in ids:
        while not answers(sandbox_id):
            pass


def children(places: list[str], first: str, wanted: int) -> list[str]:
    """Forks of a sandbox, as many as the host has room for."""
    made: list[str] = []
    while len(made) < wanted:
        n = min(8, wanted - len(made))
        try:
            new = json.loads(api("POST", f"/v1/sandboxes/{first}/fork", {"n": n}))["children"]
        except BenchError:
            break
        made += new
        places += [f"/v1/sandboxes/{child}" for child in new]
    return made


def restart(quick: bool, sandboxes: int = 100) -> Figures:
    """kill -9 of the service with sandboxes in it."""
    undisturbed, one, every = [], [], []
    with opened() as places:
        ids = [create(places)]
        api("POST", f"/v1/sandboxes/{ids[0]}/exec", {"code": "x = 'kept'"})
        ids += children(places, ids[0], sandboxes - 1)
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
