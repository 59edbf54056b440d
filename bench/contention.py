# SPDX-License-Identifier: Apache-2.0
"""The cost of requests on a host whose CPUs are shared: alone, beside busy processes of the host, and
beside busy sandboxes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

from measure import BenchError, Figures, api, create, delete, figure, opened

TIMEOUT_S = 300  # of a request: a later answer counts as a failure
PAUSE_S = 2  # after load was started or stopped
HOG = "while :; do :; done"


class Runs:
    """The number of times that each operation is timed."""

    def __init__(self, quick: bool) -> None:
        self.execs = 20 if quick else 100
        self.creates = 4 if quick else 12
        self.rows = 2 if quick else 4  # rows of creates
        self.forks = {1: 3, 5: 2, 32: 1} if quick else {1: 12, 5: 8, 32: 4}
        self.resumes = 2 if quick else 8
        self.row = 4  # creates in a row: more than the pool has


@dataclass
class Samples:
    """The times of an operation's successful runs, and the number of its failures."""

    ms: list[float] = field(default_factory=list)
    failures: int = 0


def call(sandbox_id: str, code: str, language: str = "python") -> None:
    """Runs code in a sandbox; raises BenchError if it fails."""
    body = {"code": code, "language": language}
    text = api("POST", f"/v1/sandboxes/{sandbox_id}/exec", body, TIMEOUT_S)
    if '"type":"exit","data":0' not in text:
        raise BenchError(f"`{code}` ended with {text[-300:]}")


def wait_warm() -> None:
    """Waits until the pool has a warm sandbox of the default kind."""
    time.sleep(PAUSE_S)
    deadline = time.monotonic() + TIMEOUT_S
    while "\nramet_warm_default_ready 0\n" in api("GET", "/metrics"):
        if time.monotonic() > deadline:
            raise BenchError(f"the pool had no warm sandbox within {TIMEOUT_S} s")
        time.sleep(0.2)


class Operations:
    """The timed operations on one prepared sandbox. They append what they create to `made`."""

    def __init__(self, parent: str, made: list[str]) -> None:
        self.made = made
        self.parent = parent
        call(self.parent, "x = 1")

    def exec(self) -> None:
        """Makes a call in an idle sandbox."""
        call(self.parent, "x += 1")

    def create(self) -> None:
        """Creates a sandbox and makes its first call."""
        call(create(self.made), "x = 1")

    def fork(self, n: int) -> None:
        """Forks the sandbox, and makes a first call in the last child."""
        path = f"/v1/sandboxes/{self.parent}/fork"
        answer = json.loads(api("POST", path, {"n": n}, TIMEOUT_S))
        self.made.extend(f"/v1/sandboxes/{child}" for child in answer["children"])
        call(answer["children"][-1], "x += 1")

    def resume(self, space: str) -> None:
        """Resumes a Space, and makes the first call in the sandbox."""
        answer = json.loads(api("POST", f"/v1/spaces/{space}/resume", {}, TIMEOUT_S))
        self.made.append(f"/v1/sandboxes/{answer['id']}")
        call(answer["id"], "x += 1")

    def frozen(self) -> str:
        """Freezes a new sandbox; returns the id of the Space."""
        sandbox_id = create(self.made)
        call(sandbox_id, "x = 1")
        answer = json.loads(api("POST", f"/v1/sandboxes/{sandbox_id}/freeze", {}, TIMEOUT_S))
        space: str = answer["space_id"]
        self.made.append(f"/v1/spaces/{space}")
        return space

    def tidy(self) -> None:
        """Deletes what was created, and waits until the pool is filled again."""
        delete(self.made)
        wait_warm()


def sample(samples: Samples, operation: Callable[[], None]) -> None:
    """Times the operation once. A failure is counted and printed."""
    began = time.perf_counter()
    try:
        operation()
    except BenchError as failed:
        samples.failures += 1
        print(f"  failed: {failed}", file=sys.stderr)
    else:
        samples.ms.append((time.perf_counter() - began) * 1000)


def measure(runs: Runs) -> dict[str, Samples]:
    """Times every operation on a new sandbox, as often as `runs` says."""
    with opened() as parents, opened() as made:
        times = measure_on(Operations(create(parents), made), runs)
    wait_warm()
    return times


def measure_on(operations: Operations, runs: Runs) -> dict[str, Samples]:
    """Times every operation as often as `runs` says."""
    times: dict[str, Samples] = {}

    def repeat(name: str, times_each: int, operation: Callable[[], None], row: int = 1) -> None:
        """Times `row` operations, then deletes what they created; does that `times_each` times."""
        times[name] = Samples()
        for _ in range(times_each):
            for _ in range(row):
                sample(times[name], operation)
            operations.tidy()

    repeat("exec", 1, operations.exec, runs.execs)
    repeat("create", runs.creates, operations.create)
    repeat("create_row", runs.rows, operations.create, runs.row)
    for n, forks in runs.forks.items():
        repeat(f"fork{n}", forks, partial(operations.fork, n))
    times["resume"] = Samples()
    for _ in range(runs.resumes):
        space = operations.frozen()
        sample(times["resume"], partial(operations.resume, space))
        operations.tidy()
    return times


@contextmanager
def busy_processes(n: int) -> Iterator[None]:
    """Runs `n` processes that use a CPU each, on this machine."""
    hogs: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(n):
            hogs.append(subprocess.Popen(["sh", "-c", HOG]))
        time.sleep(PAUSE_S)
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


@contextmanager
def busy_sandboxes(n: int) -> Iterator[None]:
    """Runs `n` sandboxes, in each of which one process uses a CPU."""
    with opened() as paths:
        for _ in range(n):
            call(create(paths), f"({HOG}) >/dev/null 2>&1 &", "bash")
        time.sleep(PAUSE_S)
        yield
    wait_warm()


def contention(quick: bool) -> Figures:
    """Each operation alone, beside busy processes, and beside busy sandboxes.

    The figures are the times, their ratio to the times alone, and the number of failures.
    """
    runs = Runs(quick)
    loads: dict[str, AbstractContextManager[None]] = {"alone": nullcontext()}
    for n in (2,) if quick else (1, 2, 4):
        loads[f"busy{n}"] = busy_processes(n)
    for n in (16,) if quick else (2, 8, 16):
        loads[f"sandboxes{n}"] = busy_sandboxes(n)
    figures: Figures = {}
    failures: dict[str, int] = {}
    for load, context in loads.items():
        with context:
            times = measure(runs)
        for name, samples in times.items():
            failures[name] = failures.get(name, 0) + samples.failures
            if not samples.ms:
                continue
            key = f"{name}_{load}"
            figures[f"{key}_ms"] = figure(samples.ms, "ms")
            alone = figures.get(f"{name}_alone_ms")
            if alone and load != "alone":
                ratio = figures[f"{key}_ms"]["median"] / alone["median"]
                figures[f"{key}_slows"] = figure([ratio], "times")
    for name, failed in failures.items():
        figures[f"{name}_failures"] = figure([failed], "of all")
    return figures
