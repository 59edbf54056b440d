# SPDX-License-Identifier: Apache-2.0
"""Clients that leave before the answer lose nothing: Spaces, files, and changes of a sandbox."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from abandoning import (
    PARTS,
    POINTS,
    WAYS,
    Host,
    abandon,
    frozen_as,
    host,
    leave_while_it_sleeps,
    spread,
)
from stand_in import pause

@pytest.mark.parametrize("key", ["", "key"])
@pytest.mark.parametrize("way", WAYS)
def test_resume_that_was_not_answered_leaves_the_space(host: Host, way: str, key: str) -> None:
    route = "/v1/spaces/{space}/resume"
    sandboxes, spaces = host.ids("/v1/sandboxes"), host.ids("/v1/spaces")
    space = frozen_as(host, {"way": way})
    described = host.http.get(f"/v1/spaces/{space}").json()
    began = time.monotonic()
    resumed = host.http.post(f"/v1/spaces/{space}/resume").json()["id"]
    took = time.monotonic() - began
    space = str(host.http.post(f"/v1/sandboxes/{resumed}/freeze").json()["space_id"])
    for i, point in enumerate(spread(took)):
        described = host.http.get(f"/v1/spaces/{space}").json()
        answered = host.answered(route)
        own_key = f"resume-{way}-{i}".replace(" ", "-") if key else ""
        abandon(host, way, ("POST", f"/v1/spaces/{space}/resume", b"{}"), own_key, point)
        if host.answered(route) == answered:
            assert host.http.get(f"/v1/spaces/{space}").json() == described
            assert host.ids("/v1/sandboxes") == sandboxes
            continue
        (resumed,) = host.ids("/v1/sandboxes") - sandboxes
        assert host.http.get(f"/v1/sandboxes/{resumed}").json()["metadata"] == {"way": way}
        if key:
            again = host.http.post(
                f"/v1/spaces/{space}/resume", content=b"{}", headers={"idempotency-key": own_key}
            )
            assert (again.status_code, again.json()["id"]) == (201, resumed)
        space = str(host.http.post(f"/v1/sandboxes/{resumed}/freeze").json()["space_id"])
    resumed = host.http.post(f"/v1/spaces/{space}/resume").json()["id"]
    assert host.http.get(f"/v1/sandboxes/{resumed}").json()["metadata"] == {"way": way}
    assert host.http.delete(f"/v1/sandboxes/{resumed}").status_code == 204
    assert (host.ids("/v1/sandboxes"), host.ids("/v1/spaces")) == (sandboxes, spaces)


@pytest.mark.parametrize("way", WAYS)
def test_resume_whose_client_left_before_it_was_read_leaves_the_space(
    host: Host, way: str
) -> None:
    sandboxes = host.ids("/v1/sandboxes")
    space = frozen_as(host, {"way": way})
    described = host.http.get(f"/v1/spaces/{space}").json()
    for i in range(POINTS):
        request = ("POST", f"/v1/spaces/{space}/resume", b"{}")
        leave_while_it_sleeps(host, way, request, f"asleep-resume-{way[-1]}-{i}" if i % 2 else "")
        assert host.http.get(f"/v1/spaces/{space}").json() == described
        assert host.ids("/v1/sandboxes") == sandboxes
    assert host.http.delete(f"/v1/spaces/{space}").status_code == 204


@pytest.mark.parametrize("way", WAYS)
def test_freeze_whose_client_left_happens_and_is_found_by_its_key(host: Host, way: str) -> None:
    for i in range(POINTS):
        part = (i + 1) / PARTS if i < PARTS - 1 else 1
        sandbox = host.make()
        key = f"freeze-{way}-{i}".replace(" ", "-")
        path = f"{sandbox}/freeze"
        abandon(host, way, ("POST", path, b""), key, (part, i * 0.001 if part == 1 else 0))
        again = host.http.post(path, headers={"idempotency-key": key})
        while again.status_code == 409:  # it continues
            pause()
            again = host.http.post(path, headers={"idempotency-key": key})
        assert again.status_code == 200, again.text
        if part == 1 and not way.startswith("h2 reset"):
            assert again.headers["idempotent-replayed"] == "true"
        space = again.json()["space_id"]
        assert space in host.ids("/v1/spaces")
        assert sandbox.rpartition("/")[2] not in host.ids("/v1/sandboxes")
        assert host.http.delete(f"/v1/spaces/{space}").status_code == 204


# --- files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_file_whose_client_left_leaves_no_part(
    host: Host, way: str, tmp_path: Path
) -> None:
    body = b"x" * 16_000
    for i in range(POINTS):
        part = (i + 1) / POINTS
        target = f"{host.sandbox}/files?path={tmp_path}/file"
        abandon(host, way, ("PUT", target, body), "", (part, 0))

        def clean() -> bool:
            return all(p.name == "file" and p.read_bytes() == body for p in tmp_path.iterdir())

        host.until(clean)


@pytest.mark.parametrize("way", WAYS)
def test_changes_of_a_sandbox_take_place_or_do_not(host: Host, way: str) -> None:
    """A merge, a change and a delete are not undone: what they did is seen in the lists."""
    before = host.ids("/v1/sandboxes")
    for i in range(POINTS):
        parent = host.make()
        child = host.http.post(f"{parent}/fork", json={"n": 1}).json()["children"][0]
        part = (i + 1) / PARTS if i < PARTS - 1 else 1
        point = (part, i * 0.0002 if part == 1 else 0)
        abandon(host, way, ("PATCH", parent, b'{"metadata":{"a":1}}'), "", point)
        info = host.http.get(parent).json()
        assert info["state"] == "ready" and info["metadata"] in ({}, {"a": 1})
        abandon(host, way, ("POST", f"{parent}/merge_into/{child}", b""), "", point)
        assert host.http.get(parent).json()["state"] == "ready"
        merged = host.http.get(f"/v1/sandboxes/{child}")
        assert merged.status_code == 200 or merged.json()["code"] == "merged"
        abandon(host, way, ("DELETE", parent, b""), "", point)
        host.drop("/v1/sandboxes", host.ids("/v1/sandboxes") - before)
    assert host.ids("/v1/sandboxes") == before
