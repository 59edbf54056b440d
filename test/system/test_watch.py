# SPDX-License-Identifier: Apache-2.0
"""The operator's view of real sandboxes: audit log, metrics, health, `rametctl ls` and `rametctl top`."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from conftest import metrics, on_host
from ramet import Client, Sandbox

# The audit log covers all sandboxes: these read it while no other test adds lines.
pytestmark = pytest.mark.alone

Line = dict[str, Any]


def lines() -> list[Line]:
    return [json.loads(each) for each in on_host("rametctl audit").splitlines()]


def events_of(*ids: str) -> list[Line]:
    return [line for line in lines() if line.get("sandbox") in ids]


@pytest.mark.smoke
def test_audit_log_has_each_lifecycle_event(client: Client) -> None:
    parent = Sandbox(client=client)
    first, second = parent.fork(2)
    parent.merge_into(first)
    second.close()
    parent.close()
    found = events_of(parent.id, first.id, second.id)
    assert [line["event"] for line in found] == [
        "sandbox.created",
        "sandbox.forked",
        "sandbox.forked",
        "sandbox.merged",
        "sandbox.deleted",
        "sandbox.deleted",
    ]
    assert [line["sandbox"] for line in found[1:3]] == [first.id, second.id]
    assert [line["parent"] for line in found[1:3]] == [parent.id, parent.id]
    assert (found[3]["sandbox"], found[3]["winner"]) == (parent.id, first.id)
    assert len({line["id"] for line in found}) == 6
    assert {line["tenant"] for line in found} == {"local"}


def test_audit_lines_are_numbered_without_gaps(sbx: Sandbox) -> None:
    assert [line["event"] for line in events_of(sbx.id)] == ["sandbox.created"]
    numbers = [line["n"] for line in lines()]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


@pytest.mark.smoke
def test_health_and_metrics(http: httpx.Client, sbx: Sandbox) -> None:
    sbx.run_code("print(1)")
    assert http.get("/livez").text == "ok"
    ready = http.get("/readyz")
    assert ready.status_code == 200 and ready.json()["checks"]["disk"] == "ok"
    while True:  # the service updates it every few seconds
        (mine,) = (one for one in http.get("/v1/sandboxes").json() if one["id"] == sbx.id)
        if mine["memory_private_bytes"] > 0:
            break
    now = metrics(http)
    assert now["ramet_memory_private_bytes"] > 0
    assert now["ramet_create_seconds_count"] >= 1
    assert now["ramet_exec_seconds_count"] >= 1
    assert now["ramet_audit_lines_total"] >= 1
    assert now["ramet_disk_free_bytes"] > 0


def test_checks_are_shown_to_operators() -> None:
    checks = dict(line.split(None, 1) for line in on_host("rametctl checks").splitlines())
    assert checks["template"] == checks["disk"] == "ok"


@pytest.mark.smoke
def test_ls_and_top_show_the_sandbox(sbx: Sandbox) -> None:
    rows = [row.split() for row in on_host("rametctl ls").splitlines()]
    assert rows[0][:3] == ["ID", "STATE", "TENANT"]
    (mine,) = (row for row in rows if row[0] == sbx.id)
    assert mine[1:4] == ["ready", "local", "default"]
    (top,) = (row for row in on_host("rametctl top --once").splitlines() if row.startswith(sbx.id))
    assert float(top.split()[5]) > 0  # MiB of private memory
