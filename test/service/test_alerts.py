# SPDX-License-Identifier: Apache-2.0
"""Alerts and dashboard use only metrics that the service has, and each alert says what to do.

`./dev test all` also runs docs/operating/ramet.rules.test.yml, which says what fires.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Iterator

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from conftest import NOBODY

TOP = Path(__file__).resolve().parents[2]
RULES = (TOP / "docs/operating/ramet.rules.yml").read_text()
CASES = (TOP / "docs/operating/ramet.rules.test.yml").read_text()
DASHBOARD = json.loads((TOP / "docs/operating/ramet-dashboard.json").read_text())
PAGE = (TOP / "docs/alerts.md").read_text()
CODES = set(re.findall(r"`(\w+)`", (TOP / "docs/api.md").read_text()))
PATHS = json.loads((TOP / "orchestrator/api/openapi.json").read_text())["paths"]
ALERTS = re.findall(r"- alert: (\w+)\n", RULES)

SERIES = re.compile(r"\b(ramet_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*=~?\s*"([^"]*)"')
PROMETHEUS = {"job", "instance"}  # the labels that Prometheus adds


def strings(value: Any) -> Iterator[str]:
    """Yields all strings of a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from strings(one)


TEXTS = {"rules": RULES, "cases": CASES, "dashboard": "\n".join(strings(DASHBOARD))}


@pytest.fixture(scope="module")
def labels(base: str) -> dict[str, dict[str, set[str]]]:
    """The values of each label of each metric in an answer of /metrics."""
    with httpx.Client(base_url=base, timeout=60, trust_env=False) as http:
        http.get(NOBODY)
        text = http.get("/metrics").text
    found: dict[str, dict[str, set[str]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                values.setdefault(label, set()).add(value)
    return found


@pytest.mark.parametrize("where", TEXTS)
def test_every_metric_exists(labels: dict[str, dict[str, set[str]]], where: str) -> None:
    used = {name for name, _ in SERIES.findall(TEXTS[where])}
    assert len(used) > 10 and used <= labels.keys()


@pytest.mark.parametrize("where", TEXTS)
def test_every_label_exists(labels: dict[str, dict[str, set[str]]], where: str) -> None:
    for name, matchers in SERIES.findall(TEXTS[where]):
        used = dict(MATCHER.findall(matchers))
        assert used.keys() - PROMETHEUS <= labels[name].keys(), name
        for label in used.keys() & {"state", "le"}:
            assert used[label] in labels[name][label], (name, used)
        assert set(used.get("code", "").split("|")) - {""} <= CODES, used
        assert re.fullmatch("([1-5]xx)?", used.get("status", "")), used
        if "route" in used:
            assert used["method"].lower() in PATHS[used["route"]], used


def test_every_alert_has_a_section_and_a_case() -> None:
    assert len(ALERTS) == len(set(ALERTS)) > 0
    assert sorted(re.findall(r"^### (\w+)$", PAGE, re.M)) == sorted(ALERTS)
    assert set(re.findall(r'alertname="(\w+)"', CASES)) == set(ALERTS)
    assert re.findall(r"runbook: (.*)", RULES) == [f"docs/alerts.md#{one.lower()}" for one in ALERTS]


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not cells & taken and max(cells)[0] < 24, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
