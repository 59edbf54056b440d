# SPDX-License-Identifier: Apache-2.0
"""What all measurements use: a command where the VMs run, a call of the service, a figure."""

from __future__ import annotations

import http.client
import json
import math
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Figure = dict[str, Any]
Figures = dict[str, Figure]

BENCH_DIR = "/usr/lib/ramet/bench"  # of the programs, where the VMs run


class BenchError(Exception):
    """A measurement that could not be taken; the text says why."""


class Gone(BenchError):
    """What was asked for is not there (404)."""


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
    except (OSError, http.client.HTTPException) as failed:
        gone = isinstance(failed, urllib.error.HTTPError) and failed.code == 404
        raise (Gone if gone else BenchError)(f"{method} {url}: {failed}") from failed
    return text


DELETE_TRIES = 3


def delete(places: list[str]) -> None:
    """Deletes what is at these places in the API, and takes them off the list: all of them,
    whatever comes of one. What is gone already counts as deleted."""
    failures = []
    while places:
        place = places.pop()
        for tries in range(DELETE_TRIES):
            try:
                api("DELETE", place, timeout_s=300)
                break
            except Gone:
                break
            except BenchError as failed:
                if tries + 1 == DELETE_TRIES:
                    failures.append(str(failed))
            time.sleep(0.5)
    if failures:
        raise BenchError(f"left open: {'; '.join(failures)}")


@contextmanager
def opened() -> Iterator[list[str]]:
    """A list for the places in the API of what a measurement opens ("/v1/sandboxes/ID"): at the
    end all of it is deleted, however the end comes."""
    places: list[str] = []
    try:
        yield places
    finally:
        delete(places)


def create(places: list[str], body: dict[str, Any] | None = None, timeout_s: float = 300) -> str:
    """The id of a new sandbox, which is put on a list of `opened`."""
    sandbox_id: str = json.loads(api("POST", "/v1/sandboxes", body or {}, timeout_s))["id"]
    places.append(f"/v1/sandboxes/{sandbox_id}")
    return sandbox_id


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
