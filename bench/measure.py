# SPDX-License-Identifier: Apache-2.0
"""What all measurements use: a command where the VMs run, a call of the service, a figure."""

from __future__ import annotations

import json
import math
import os
import subprocess
import urllib.request
from typing import Any

Figure = dict[str, Any]
Figures = dict[str, Figure]

BENCH_DIR = "/usr/lib/ramet/bench"  # of the programs, where the VMs run


class BenchError(Exception):
    """A measurement that could not be taken; the text says why."""


def host(command: str, timeout_s: float = 600) -> str:
    """Runs a shell command where the VMs run and returns its standard output."""
    dev = os.environ.get("RAMET_DEV", "./dev")
    done = subprocess.run(
        [dev, "host", "sh", "-c", command], capture_output=True, text=True, timeout=timeout_s
    )
    if done.returncode != 0:
        raise BenchError(f"`{command}` failed ({done.returncode}): {done.stderr.strip()[-500:]}")
    return done.stdout


def host_json(command: str, timeout_s: float = 600) -> Figures:
    """As `host`, for a program that prints one JSON object."""
    text = host(command, timeout_s)
    try:
        figures: Figures = json.loads(text)
    except ValueError as broken:
        raise BenchError(f"`{command}` printed no JSON: {text[:200]!r}") from broken
    return figures


def api(
    method: str, path: str, body: dict[str, Any] | None = None, timeout_s: float = 120
) -> str:
    """One call of the running service."""
    url = os.environ.get("RAMET_HOST", "http://127.0.0.1:7070") + path
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data=data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            text: str = answer.read().decode()
    except OSError as failed:
        raise BenchError(f"{method} {url}: {failed}") from failed
    return text


def figure(samples: list[float], unit: str) -> Figure:
    """The numbers a figure is told by; quantiles by nearest rank."""
    ordered = sorted(samples)

    def quantile(share: float) -> float:
        return ordered[max(math.ceil(share * len(ordered)), 1) - 1]

    return {
        "median": quantile(0.5),
        "p90": quantile(0.9),
        "p99": quantile(0.99),
        "p99.9": quantile(0.999),
        "min": ordered[0],
        "max": ordered[-1],
        "n": len(ordered),
        "unit": unit,
    }
