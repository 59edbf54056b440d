# SPDX-License-Identifier: Apache-2.0
"""Endpoints for operators and monitoring: metrics and health."""

from __future__ import annotations

import signal
from typing import Callable

import httpx
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from conftest import Server


def families(http: httpx.Client) -> dict[str, Metric]:
    answer = http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = list(text_string_to_metric_families(answer.text))
    types = [line.split()[2] for line in answer.text.splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types)), "a family is listed twice"
    assert len(types) == len(found), "a sample has no type"
    return {family.name: family for family in found}


def samples(family: Metric) -> dict[tuple[str, str], float]:
    return {(s.name, ",".join(s.labels.values())): s.value for s in family.samples}


def test_every_family_is_well_formed(http: httpx.Client) -> None:
    made = http.post("/v1/sandboxes", json={}).json()["id"]
    http.post(f"/v1/sandboxes/{made}/exec", json={"code": "out x"})
    http.get("/v1/sandboxes/sbx_" + "f" * 32)
    found = families(http)
    for family in found.values():
        assert family.name.startswith("ramet_"), family.name
        assert family.documentation.endswith("."), family.name
        assert family.type in ("counter", "gauge", "histogram"), family.name
        for sample in family.samples:
            assert (sample.name.endswith("_total")) == (family.type == "counter"), sample.name
    assert samples(found["ramet_ends_unrecorded"]) == {("ramet_ends_unrecorded", ""): 3}
    assert samples(found["ramet_build_info"]).popitem()[1] == 1
    assert samples(found["ramet_errors"])[("ramet_errors_total", "not_found")] == 1


def test_histograms_add_up(http: httpx.Client) -> None:
    for _ in range(3):
        made = http.post("/v1/sandboxes", json={}).json()["id"]
        http.post(f"/v1/sandboxes/{made}/exec", json={"code": "out x"})
    assert http.post("/v1/sandboxes", json={"vcpus": -1}).status_code == 400
    assert http.post(f"/v1/sandboxes/{made}/fork", json={"n": 2}).status_code == 200
    found = families(http)
    for name, count in (("create", 3), ("exec", 3), ("fork", 1), ("resume", 0)):
        family = found[f"ramet_{name}_seconds"]
        buckets = [s for s in family.samples if s.name.endswith("_bucket")]
        values = [s.value for s in buckets]
        bounds = [float(s.labels["le"]) for s in buckets]
        assert bounds == sorted(set(bounds)) and bounds[-1] == float("inf")
        assert values == sorted(values) and values[-1] == count, name
        assert samples(family)[(f"ramet_{name}_seconds_count", "")] == count
        assert (samples(family)[(f"ramet_{name}_seconds_sum", "")] > 0) == (count > 0)


def test_livez_succeeds_before_ready(start: Callable[..., Server]) -> None:
    server = start("ready=no")
    with server.client() as http:
        assert http.get("/livez").text == "ok"
        answer = http.get("/readyz")
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        checks = {"warden": "ok", "template": 'it is being "prepared"'}
        assert answer.json() == {"ready": False, "checks": checks}
        server.process.send_signal(signal.SIGUSR1)
        while http.get("/readyz").status_code != 200:
            pass
        assert http.get("/readyz").json() == {
            "ready": True,
            "checks": {"warden": "ok", "template": "ok"},
        }
        assert http.head("/readyz").status_code == 200
