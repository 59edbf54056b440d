# SPDX-License-Identifier: Apache-2.0
"""Endpoints for operators and monitoring: metrics and health."""

from __future__ import annotations

from typing import Callable

import httpx
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from conftest import Service, refused
from stand_in import pause


def families(client: httpx.Client) -> dict[str, Metric]:
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = list(text_string_to_metric_families(answer.text))
    types = [line.split()[2] for line in answer.text.splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types)), "a family is listed twice"
    assert len(types) == len(found), "a sample has no type"
    return {family.name: family for family in found}


def samples(family: Metric) -> dict[tuple[str, str], float]:
    return {(s.name, ",".join(s.labels.values())): s.value for s in family.samples}


def test_every_family_is_well_formed(client: httpx.Client) -> None:
    made = client.post("/v1/sandboxes", json={}).json()["id"]
    client.post(f"/v1/sandboxes/{made}/exec", json={"code": "out x"})
    client.get("/v1/sandboxes/sbx_" + "f" * 32)
    found = families(client)
    for family in found.values():
        assert family.name.startswith("ramet_"), family.name
        assert family.documentation.endswith("."), family.name
        assert family.type in ("counter", "gauge", "histogram"), family.name
        for sample in family.samples:
            assert (sample.name.endswith("_total")) == (family.type == "counter"), sample.name
    assert samples(found["ramet_build_info"]).popitem()[1] == 1
    assert samples(found["ramet_errors"])[("ramet_errors_total", "not_found")] >= 1


def test_histograms_add_up(start: Callable[..., Service]) -> None:
    with start().client() as http:
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


def test_only_livez_succeeds_before_the_template_is_ready(start: Callable[..., Service]) -> None:
    server = start("fault=fork_wait")
    with server.client() as http:
        assert http.get("/livez").text == "ok"
        assert "template" in refused(health := http.get("/v1/healthz"), 503, "not_ready")
        assert health.headers["retry-after"] == "1"
        answer = http.get("/readyz")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        body = answer.json()
        assert body["ready"] is False and "template" in body["checks"]
        assert "ok" not in body["checks"]["template"] and body["checks"]["warden"] == "ok"
        server.until_waiting(1)
        server.go()
        while http.get("/readyz").status_code != 200:
            pause()
        ready = http.get("/readyz").json()
        assert ready["ready"] is True and set(ready["checks"].values()) == {"ok"}
        assert set(ready["checks"]) == set(body["checks"])
        assert http.head("/readyz").status_code == 200
        healthy = http.get("/v1/healthz")
        assert (healthy.status_code, healthy.content) == (200, b"ok")
        assert healthy.headers["content-type"].startswith("text/plain")
