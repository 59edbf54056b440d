# SPDX-License-Identifier: Apache-2.0
# Generated from _async/_nearest.py by make_sync.py: change that file.
"""Finds the region whose service answers first."""

from __future__ import annotations

import math
import time
from typing import Any

import httpx

_CACHE_S = 600.0
_PROBE_S = 2.0  # a region that takes longer is not near
_PROBES = 3  # the first one opens the connection

_known: dict[str, tuple[float, str]] = {}  # by host: until when it holds, and the endpoint


def nearest(http: httpx.Client, host: str) -> str:
    """Returns the endpoint of the nearest region that `host` knows; `host` itself if none answers.

    An endpoint must have the scheme of `host`, so that the key is not sent in the clear where it was
    not before.
    """
    until, endpoint = _known.get(host, (0.0, host))
    if time.monotonic() < until:
        return endpoint
    times = {
        one: _probe(http, one) for one in _endpoints(http, host) if _alike(one, host)
    }
    best = min(times, key=lambda one: times[one], default=host)
    if math.isinf(times.get(best, math.inf)):
        return host
    _known[host] = (time.monotonic() + _CACHE_S, best)
    return best


def _alike(one: str, other: str) -> bool:
    return one.split("://")[0] == other.split("://")[0]


def _endpoints(http: httpx.Client, host: str) -> list[str]:
    try:
        answer = http.get(host + "/v1/regions", timeout=_PROBE_S)
        regions: list[dict[str, Any]] = answer.json() if answer.status_code == 200 else []
    except (httpx.TransportError, ValueError):
        return []
    return [str(one["endpoint"]).rstrip("/") for one in regions if one.get("endpoint")]


def _probe(http: httpx.Client, endpoint: str) -> float:
    """Returns the seconds that an answer takes; infinity if there is none."""
    best = math.inf
    try:
        for _ in range(_PROBES):
            request = http.build_request("GET", endpoint + "/livez", timeout=_PROBE_S)
            request.headers.pop("authorization", None)
            began = time.monotonic()
            answer = http.send(request)
            if answer.status_code != 200:
                return math.inf
            best = min(best, time.monotonic() - began)
    except (httpx.TransportError, httpx.InvalidURL):
        return math.inf
    return best
