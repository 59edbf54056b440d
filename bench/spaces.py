# SPDX-License-Identifier: Apache-2.0
"""Freeze and resume by RAM size and by the part of it that was written, compared with a fork of a
sandbox that has written as much."""

from __future__ import annotations

import json
import time

from files import call, run
from measure import BenchError, Figures, figure, opened

# The RAM to request for a given size, in MiB. A request of 256 would get 512, since that size is
# prepared; 255 is rounded up to a multiple of 64.
ASK = {256: 255, 512: 512, 1024: 1024, 4096: 4096}
# Python code that fills `mib` MiB with bytes that are not zero.
FILL = "held = bytearray(b'x') * ({mib} << 20)"
RUNS = 3  # of each case: the largest takes minutes
CHECK = "print(len(held) >> 20, held[0] == held[-1] == 120)"


def timed(path: str, body: bytes = b"") -> tuple[str, float]:
    """Sends a POST; returns the answer and the milliseconds that it took."""
    began = time.perf_counter()
    answer = call("POST", path, body)
    return answer.decode(), (time.perf_counter() - began) * 1e3


def create(paths: list[str], ram_mib: int) -> str:
    """Creates a sandbox with exactly this RAM and appends its API path to `paths`; returns it."""
    body = json.dumps({"ram_mib": ASK[ram_mib]}).encode()
    path = "/v1/sandboxes/" + str(json.loads(call("POST", "/v1/sandboxes", body))["id"])
    paths.append(path)
    got = json.loads(call("GET", path))["ram_mib"]
    if got != ram_mib:
        raise BenchError(f"the sandbox has {got} MiB of RAM instead of {ram_mib}")
    return path


def fork_one(ram_mib: int, dirty_mib: int) -> float:
    """Returns the milliseconds of a fork with one child."""
    with opened() as paths:
        parent = create(paths, ram_mib)
        run(parent, FILL.format(mib=dirty_mib))
        answer, took = timed(f"{parent}/fork", b'{"n":1}')
        paths += [f"/v1/sandboxes/{child}" for child in json.loads(answer)["children"]]
    return took


def freeze_one(ram_mib: int, dirty_mib: int) -> dict[str, float]:
    """Freezes and resumes a sandbox; returns the milliseconds and the bytes on disk."""
    with opened() as paths:
        sandbox = create(paths, ram_mib)
        run(sandbox, FILL.format(mib=dirty_mib))
        answer, freeze_ms = timed(f"{sandbox}/freeze")
        space = f"/v1/spaces/{json.loads(answer)['space_id']}"
        paths.append(space)
        size = json.loads(call("GET", space))["size_bytes"]
        answer, resume_ms = timed(f"{space}/resume", b"{}")
        sandbox = f"/v1/sandboxes/{json.loads(answer)['id']}"
        paths.append(sandbox)
        if run(sandbox, CHECK).split() != [str(dirty_mib), "True"]:
            raise BenchError("the resumed sandbox differs from the frozen one")
    return {"freeze_ms": freeze_ms, "resume_ms": resume_ms, "space_bytes": size}


def one_case(ram_mib: int, percent: int) -> Figures:
    """Measures one size with a percentage of its RAM written; fork and freeze alternate."""
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
    """Freezes and resumes, compared with forks."""
    sizes, percents = ([512], [10]) if quick else ([256, 1024, 4096], [10, 50])
    figures: Figures = {}
    for ram_mib in sizes:
        with opened() as paths:
            create(paths, ram_mib)  # the first sandbox of a size waits for its image
        for percent in percents:
            figures |= one_case(ram_mib, percent)
    return figures
