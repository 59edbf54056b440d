# SPDX-License-Identifier: Apache-2.0
"""Freeze and resume, by RAM and by how much of it the sandbox has written, beside a fork of one
that has written as much."""

from __future__ import annotations

import json
import time

from files import call, run
from measure import BenchError, Figures, figure, opened

# What is asked for, by the RAM in MiB that it gets: 256 would be rounded up to 512, which is
# prepared; 255 is served in steps of 64.
ASK = {256: 255, 512: 512, 1024: 1024, 4096: 4096}
# Python code that fills so many MiB with bytes that are not zero.
FILL = "held = bytearray(b'x') * ({mib} << 20)"
RUNS = 3  # of each case: the largest takes minutes
STILL_THERE = "print(len(held) >> 20, held[0] == held[-1] == 120)"


def timed(path: str, body: bytes = b"") -> tuple[str, float]:
    """The answer to a POST, and the milliseconds that it took."""
    began = time.perf_counter()
    answer = call("POST", path, body)
    return answer.decode(), (time.perf_counter() - began) * 1e3


def create(places: list[str], ram_mib: int) -> str:
    """The place in the API of a new sandbox with just so much RAM, which is put on the list."""
    body = json.dumps({"ram_mib": ASK[ram_mib]}).encode()
    there = "/v1/sandboxes/" + str(json.loads(call("POST", "/v1/sandboxes", body))["id"])
    places.append(there)
    got = json.loads(call("GET", there))["ram_mib"]
    if got != ram_mib:
        raise BenchError(f"a sandbox of {ram_mib} MiB RAM was asked for and has {got}")
    return there


def fork_one(ram_mib: int, dirty_mib: int) -> float:
    """Milliseconds of a fork with one child."""
    with opened() as places:
        parent = create(places, ram_mib)
        run(parent, FILL.format(mib=dirty_mib))
        answer, took = timed(f"{parent}/fork", b'{"n":1}')
        places += [f"/v1/sandboxes/{child}" for child in json.loads(answer)["children"]]
    return took


def freeze_one(ram_mib: int, dirty_mib: int) -> dict[str, float]:
    """One freeze and its resume: milliseconds, and bytes on disk."""
    with opened() as places:
        there = create(places, ram_mib)
        run(there, FILL.format(mib=dirty_mib))
        answer, freeze_ms = timed(f"{there}/freeze")
        there = f"/v1/spaces/{json.loads(answer)['space_id']}"
        places.append(there)
        size = json.loads(call("GET", there))["size_bytes"]
        answer, resume_ms = timed(f"{there}/resume", b"{}")
        there = f"/v1/sandboxes/{json.loads(answer)['id']}"
        places.append(there)
        if run(there, STILL_THERE).split() != [str(dirty_mib), "True"]:
            raise BenchError("what was resumed is not what was frozen")
    return {"freeze_ms": freeze_ms, "resume_ms": resume_ms, "space_bytes": size}


def one_case(ram_mib: int, percent: int) -> Figures:
    """Figures of one size with so many percent of its RAM written, fork and freeze in turns."""
    dirty_mib = ram_mib * percent // 100
    seen: dict[str, list[float]] = {}
    for _ in range(RUNS):
        once = freeze_one(ram_mib, dirty_mib)
        once["fork_ms"] = fork_one(ram_mib, dirty_mib)
        for name, value in once.items():
            seen.setdefault(name, []).append(value)
    figures = {}
    for name, values in seen.items():
        what, unit = name.split("_")
        figures[f"{what}_{ram_mib}_{percent}_{unit}"] = figure(values, unit)
    return figures


def spaces(quick: bool) -> Figures:
    """Freezes and resumes, and forks beside them."""
    sizes, percents = ([512], [10]) if quick else ([256, 1024, 4096], [10, 50])
    figures: Figures = {}
    for ram_mib in sizes:
        with opened() as places:
            create(places, ram_mib)  # the first one of a size waits for its image
        for percent in percents:
            figures |= one_case(ram_mib, percent)
    return figures
