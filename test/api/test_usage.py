# SPDX-License-Identifier: Apache-2.0
"""Metrics of a sandbox. The fake core has a sample every 10 s in the hour before NOW."""

from __future__ import annotations

import httpx
import pytest

from test_routes import NOBODY, refused

NOW = "2023-11-14T23:13:20.000Z"


def test_metrics_are_now_and_the_last_hour(http: httpx.Client, sandbox: str) -> None:
    answer = http.get(sandbox + "/metrics")
    assert answer.status_code == 200
    body = answer.json()
    now, samples = body.pop("now"), body.pop("samples")
    assert body == {
        "vcpus": 2,
        "memory_limit_bytes": 512 << 20,
        "disk_size_bytes": 4 << 30,
        "step_seconds": 10,
    }
    assert now == {
        "at": NOW,
        "cpu_percent": 123.45,
        "cpu_seconds": 360.001,
        "memory_used_bytes": 1 << 20,
        "disk_layer_bytes": 4096,
        "network_received_bytes": 7,
        "network_sent_bytes": 1 << 53,
    }
    assert len(samples) == 360
    assert samples[0]["cpu_percent"] is None and samples[1]["cpu_percent"] == 0.01
    assert [s["cpu_seconds"] for s in samples] == list(range(360))
    assert samples[0]["at"] == "2023-11-14T22:13:20.000Z"
    assert set(samples[5]) == set(now)


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ({"since": "2023-11-14T23:12:50Z"}, [357, 358, 359]),
        ({"until": "2023-11-14T22:13:30Z"}, [0, 1]),
        ({"since": "2023-11-14T22:13:30Z", "until": "2023-11-14T22:13:50.000Z"}, [1, 2, 3]),
        ({"limit": 2}, [358, 359]),
        ({"limit": 1, "until": "2023-11-14T22:14:00Z"}, [4]),
        ({"since": NOW}, []),
        ({"limit": 1000, "since": "2023-11-14T23:13:10Z"}, [359]),
    ],
)
def test_query_selects_samples(
    http: httpx.Client, sandbox: str, query: dict[str, str], numbers: list[int]
) -> None:
    answer = http.get(sandbox + "/metrics", params=query)
    assert [s["cpu_seconds"] for s in answer.json()["samples"]] == numbers
    assert answer.json()["now"]["at"] == NOW


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
    http: httpx.Client, sandbox: str, query: dict[str, str] | str, says: str
) -> None:
    answer = http.get(sandbox + "/metrics", params=query)
    assert says in refused(answer, 400, "bad_request")


def test_unknown_sandbox_has_no_metrics(http: httpx.Client) -> None:
    refused(http.get(NOBODY + "/metrics"), 404, "not_found")
