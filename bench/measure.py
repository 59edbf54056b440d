# SPDX-License-Identifier: Apache-2.0
"""Functions that all measurements use: commands on the host of the VMs, requests, figures."""

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

BENCH_DIR = "/usr/lib/ramet/bench"  # of the installed programs, on the host of the VMs


class BenchError(Exception):
    """A measurement failed; the text says why."""


class Gone(BenchError):
    """The requested object does not exist (404)."""


def host(command: str, timeout_s: float = 600, progress: bool = False) -> str:
    """Runs a shell command on the host of the VMs; returns its standard output.

    With `progress`, its standard error is shown at once.
    """
    dev = os.environ.get("RAMET_DEV", "./dev")
    done = subprocess.run(
        [dev, "host", "sh", "-c", command], stdout=subprocess.PIPE,
        stderr=None if progress else subprocess.PIPE, text=True, timeout=timeout_s,
    )  # fmt: skip
    if done.returncode != 0:
        reason = (done.stderr or "see above").strip()[-500:]
        raise BenchError(f"`{command}` failed ({done.returncode}): {reason}")
    return done.stdout


def host_json(command: str, timeout_s: float = 600, progress: bool = False) -> Figures:
    """Runs a program, as `host` does, that prints one JSON object; returns the object."""
    text = host(command, timeout_s, progress)
    try:
        figures: Figures = json.loads(text)
    except ValueError as broken:
        raise BenchError(f"`{command}` printed no JSON: {text[:200]!r}") from broken
    return figures


def api(
    method: str, path: str, body: dict[str, Any] | None = None, timeout_s: float = 120
) -> str:
    """Sends a request to the running service; returns the body of the answer."""
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


def delete(paths: list[str]) -> None:
    """Deletes the objects at these paths of the API, and empties the list.

    It continues if one deletion fails. An object that does not exist counts as deleted.
    """
    failures = []
    while paths:
        path = paths.pop()
        for tries in range(DELETE_TRIES):
            try:
                api("DELETE", path, timeout_s=300)
                break
            except Gone:
                break
            except BenchError as failed:
                if tries + 1 == DELETE_TRIES:
                    failures.append(str(failed))
            time.sleep(0.5)
    if failures:
        raise BenchError(f"not deleted: {'; '.join(failures)}")


@contextmanager
def opened() -> Iterator[list[str]]:
    """Yields a list for the API paths of what a measurement creates, such as "/v1/sandboxes/ID".

    At the end everything on the list is deleted, also after an exception.
    """
    paths: list[str] = []
    try:
        yield paths
    finally:
        delete(paths)


def create(paths: list[str], body: dict[str, Any] | None = None, timeout_s: float = 300) -> str:
    """Creates a sandbox and appends its path to a list of `opened`; returns its id."""
    sandbox_id: str = json.loads(api("POST", "/v1/sandboxes", body or {}, timeout_s))["id"]
    paths.append(f"/v1/sandboxes/{sandbox_id}")
    return sandbox_id


def figure(samples: list[float], unit: str) -> Figure:
    """Returns the statistics of the samples; quantiles are by nearest rank."""
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
