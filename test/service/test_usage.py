# SPDX-License-Identifier: Apache-2.0
"""Metrics of a sandbox, which are sampled every 10 s of a clock that the tests move."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterator

import httpx
import pytest

from conftest import NOBODY, Service, made, refused
from stand_in import pause
from test_clock import Clock

SAMPLES = 6


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, str, list[dict[str, Any]]]]:
    """A client, the path of a sandbox's metrics, and its samples."""
    home: Path = tmp_path_factory.mktemp("server")
    clock = Clock(home / "clock")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEST_CLOCK", str(home / "clock"))
        server = Service(home, agent=False)
    with server.client() as http:
        path = made(http) + "/metrics"
        samples: list[dict[str, Any]] = []
        while len(samples) < SAMPLES:
            clock.move(real_s=10, monotonic_s=10)
            before = len(samples)
            while len(samples) == before:
                pause()
                samples = http.get(path).json()["samples"]
        yield http, path, samples
    server.stop()


Sampled = tuple[httpx.Client, str, list[dict[str, Any]]]


def test_metrics_are_now_and_the_samples(sampled: Sampled) -> None:
    http, path, samples = sampled
    body = http.get(path).json()
    now = body.pop("now")
    assert body.pop("samples") == samples
    assert body == {
        "vcpus": 1,
        "memory_limit_bytes": 128 << 20,
        "disk_size_bytes": 1 << 30,
        "step_seconds": 10,
    }
    for one in (now, *samples):
        assert set(one) == {
            "at", "cpu_percent", "cpu_seconds", "memory_used_bytes", "disk_layer_bytes",
            "network_received_bytes", "network_sent_bytes",
        }  # fmt: skip
        assert (one["disk_layer_bytes"], one["network_received_bytes"]) == (1000, 2000)
        assert one["network_sent_bytes"] == 3000 and one["memory_used_bytes"] > 1 << 20
    assert samples[0]["cpu_percent"] is None and samples[1]["cpu_percent"] >= 0
    times = [one["at"] for one in (*samples, now)]
    assert times == sorted(times) and len(set(times[:-1])) == SAMPLES
    seconds = [one["cpu_seconds"] for one in (*samples, now)]
    assert seconds == sorted(seconds) and 0 < seconds[0] < 1000


@pytest.mark.parametrize(
    ("since", "until", "limit", "numbers"),
    [
        (3, None, None, [3, 4, 5]),
        (None, 1, None, [0, 1]),
        (1, 3, None, [1, 2, 3]),
        (None, None, 2, [4, 5]),
        (None, 4, 1, [4]),
        (5, None, 1000, [5]),
    ],
)
def test_query_selects_samples(
    sampled: Sampled, since: int | None, until: int | None, limit: int | None, numbers: list[int]
) -> None:
    http, path, samples = sampled
    query: dict[str, Any] = {"limit": limit} if limit else {}
    query |= {"since": samples[since]["at"]} if since is not None else {}
    query |= {"until": samples[until]["at"]} if until is not None else {}
    answer = http.get(path, params=query).json()
    assert answer["samples"] == [samples[n] for n in numbers]
    assert answer["now"]["at"] >= samples[-1]["at"]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"since": "yesterday"}, "since must be a UTC time"),
        ({"until": "2023-13-01T00:00:00Z"}, "until must be a UTC time"),
        ({"since": "2024-01-01T00:00:00Z", "until": "2023-01-01T00:00:00Z"}, "not be later"),
        ({"limit": "0"}, "limit must be a whole number from 1"),
        ({"limit": "many"}, "limit must be a whole number"),
        ("since=2024-01-01T00:00:00Z&since=2024-01-01T00:00:00Z", "since"),
    ],
)
def test_invalid_queries_are_refused(
    client: httpx.Client, box: str, query: dict[str, str] | str, says: str
) -> None:
    answer = client.get(box + "/metrics", params=query)
    assert says in refused(answer, 400, "bad_request")


def test_unknown_sandbox_has_no_metrics(client: httpx.Client) -> None:
    refused(client.get(NOBODY + "/metrics"), 404, "not_found")
