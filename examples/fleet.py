# SPDX-License-Identifier: Apache-2.0
"""Loses a host of a fleet, and goes on with the others.

Start `./dev fleet`, set the variables that it prints, and run this program with a command that kills a host:

    python examples/fleet.py ./dev fleet kill h2

Each job has numbers in the memory of its sandbox, on whichever host had room; forks have those of their parent.
The jobs on the killed host are lost: the service says so for each of them, and they begin again elsewhere.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from ramet import RametError, Sandbox

Answer = TypeVar("Answer")

JOBS = 8
FORKS = 2
LOST = ("host_unreachable", "host_lost")  # the host may come back; it will not
UNKNOWN = (0, 502)  # statuses without an answer of the host: it may have done it


def ask(request: Callable[[], Answer]) -> Answer:
    """Makes a request that may be made twice; again if nobody knows whether it was carried out."""
    try:
        return request()
    except RametError as error:
        if error.status not in UNKNOWN:
            raise
        print(f"asked again: {error}")
        return request()


def begin(job: int) -> Sandbox:
    sbx = ask(Sandbox)
    ask(lambda: sbx.run_code(f"numbers_{job} = list(range({job}, 100))"))
    return sbx


def work(sbx: Sandbox, job: int) -> str:
    return ask(lambda: sbx.run_code(f"print(sum(numbers_{job}), end='')")).stdout


def main(kill: list[str]) -> None:
    sandboxes = [(f"job {job}", job, begin(job)) for job in range(JOBS)]
    _, first, parent = sandboxes[0]
    sandboxes += [(f"fork {i} of job 0", first, child) for i, child in enumerate(parent.fork(FORKS))]
    print(f"{len(sandboxes)} sandboxes: {' '.join(work(sbx, job) for _, job, sbx in sandboxes)}")

    subprocess.run(kill, check=True)

    lost = 0
    for i, (name, job, sbx) in enumerate(sandboxes):
        try:
            print(f"{name}: {work(sbx, job)}")
        except RametError as error:
            if error.code not in LOST:
                raise
            print(f"{name}: {error.code}: {error}")
            lost += 1
            began = time.monotonic()
            sandboxes[i] = name, job, begin(job)
            print(f"{name}: again, after {time.monotonic() - began:.1f} s: {work(sandboxes[i][2], job)}")
    print(f"{lost} of {len(sandboxes)} sandboxes were lost; the others went on")
    for _, _, sbx in sandboxes:
        sbx.close()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(f"usage: {sys.argv[0]} COMMAND-THAT-KILLS-A-HOST…")
    try:
        main(sys.argv[1:])
    except RametError as error:
        raise SystemExit(f"fleet: {error}") from None
