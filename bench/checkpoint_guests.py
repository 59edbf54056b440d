# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of Linux guests, in turns with what they are compared with: forks, and calls without
checkpoints. Starts and rollbacks are also measured with the first call after them."""

from __future__ import annotations

import json
import time

from checkpoints import KEEP, Samples
from files import call, run
from measure import Figures, api, create, opened

BLOCK = 20  # calls of a sandbox, before it is the other one's turn
PAUSE_S = 0.2  # between them: an agent that thinks
SET_UP = "held = bytearray(b'x') * (16 << 20)"
FIRST = "print(held[0])"


def level(name: str) -> float:
    """Returns a metric of the service."""
    lines = api("GET", "/metrics").splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"ramet_{name} "))


def rest(blank: float = 0) -> None:
    """Waits until all checkpoints are stored and so many blank VMs are ready."""
    while level("checkpoints_unstored") or level("blank_vms_ready") < blank:
        time.sleep(0.1)


class Timed:
    """Sends requests, and keeps the times that they took."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths  # of `opened`
        self.took = Samples()

    def post(self, path: str, name: str, box: str = "", **body: object) -> dict[str, object]:
        """Sends a POST: its time becomes a sample of `name`_ms, and with the first call in `box` (else in the
        last child of the answer) one of `name`_called_ms. Returns the answer."""
        began = time.perf_counter()
        answer = json.loads(call("POST", path, json.dumps(body).encode()))
        self.took.add(name + "_ms", (time.perf_counter() - began) * 1e3)
        for child in answer.get("children", []):
            box = f"/v1/sandboxes/{child['id'] if isinstance(child, dict) else child}"
            self.paths.append(box)
        if box:
            run(box, FIRST)
            self.took.add(name + "_called_ms", (time.perf_counter() - began) * 1e3)
        for _ in answer.get("children", []):
            call("DELETE", self.paths.pop())
        return dict(answer)

    def take(self, box: str) -> str:
        """Takes a checkpoint; returns its path."""
        path = f"/v1/checkpoints/{self.post(box + '/checkpoints', 'checkpoint')['id']}"
        self.paths.append(path)
        return path


def starts(timed: Timed, box: str, runs: int, blank: float) -> None:
    """Measures forks, and starts from a checkpoint on disk and from one in memory."""
    stored = timed.take(box)
    for n in (1, 5):
        for _ in range(runs):
            for what, name in ((box, "fork"), (stored, "start_stored")):
                rest(blank)
                timed.post(what + "/fork", f"{name}_n{n}", n=n)
            rest(blank)
            held = timed.take(box)
            timed.post(held + "/fork", f"start_memory_n{n}", n=n)


def going_back(timed: Timed, box: str, runs: int, blank: float) -> None:
    """Measures rollbacks, undo, and forks into one child."""
    stored = timed.take(box)
    undone = f"/v1/sandboxes/{create(timed.paths, {'checkpoint_each_call': {'keep': KEEP}})}"
    for _ in range(runs):
        for code in (SET_UP, "held = [0]"):
            rest(blank)
            taken = level("checkpoints_taken_total")
            run(undone, code)
            while level("checkpoints_taken_total") == taken:
                time.sleep(0.05)
        rest(blank)
        timed.post(undone + "/undo", "undo", undone)
        rest(blank)
        timed.post(box + "/rollback", "rollback", box, checkpoint=stored[-36:])
        rest(blank)
        timed.post(box + "/fork", "fork_beside", n=1)


def each_call(timed: Timed, runs: int) -> None:
    """Measures blocks of calls, without and with checkpoints after them."""
    plain, kept = (
        f"/v1/sandboxes/{create(timed.paths, {'checkpoint_each_call': {'keep': keep}})}" for keep in (0, KEEP)
    )
    for _ in range(runs):
        took = []
        for box, name in ((plain, "call_ms"), (kept, "call_each_ms")):
            rest()
            began = time.perf_counter()
            for _ in range(BLOCK):
                before = time.perf_counter()
                run(box, "print(1)")
                timed.took.add(name, (time.perf_counter() - before) * 1e3)
                time.sleep(PAUSE_S)
            took.append(time.perf_counter() - began)
        timed.took.add("each_call_ratio", took[1] / took[0])


def checkpoint_guests(quick: bool) -> Figures:
    """Checkpoints of Linux guests, forks and calls."""
    runs = 2 if quick else 10
    with opened() as paths:
        timed = Timed(paths)
        blank = level("blank_vms_ready")
        box = f"/v1/sandboxes/{create(paths)}"
        run(box, SET_UP)
        starts(timed, box, runs, blank)
        going_back(timed, box, runs, blank)
        each_call(timed, max(runs // 2, 2))
        listed = json.loads(call("GET", "/v1/checkpoints"))  # those after calls, too
        paths += ["/v1/checkpoints/" + one["id"] for one in listed if "/v1/sandboxes/" + one["sandbox"] in paths]
        return timed.took.figures()
