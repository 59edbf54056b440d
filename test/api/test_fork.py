# SPDX-License-Identifier: Apache-2.0
"""Fork and merge: what the core is asked to do, what is answered, and clients that leave."""

from __future__ import annotations

from typing import Any, Callable

import httpx
import pytest

from conftest import Server
from test_routes import NOBODY, made, refused


def test_children_have_their_parent(http: httpx.Client, sandbox: str) -> None:
    answer = http.post(sandbox + "/fork", json={"n": 3})
    assert answer.status_code == 200
    children = answer.json()["children"]
    metrics = {"pause_us": 800, "ready_us": 2500, "copied_bytes": 1 << 20}
    assert answer.json() == {"children": children, **metrics}
    assert len(set(children)) == 3
    assert http.get(sandbox).json()["children"] == children
    assert http.get(sandbox).json()["parent"] is None
    child = http.get("/v1/sandboxes/" + children[1]).json()
    assert child["parent"] == sandbox[-36:]
    assert child["children"] == []
    assert {one["id"] for one in http.get("/v1/sandboxes").json()} == {sandbox[-36:], *children}


def test_reseed_is_passed_on(http: httpx.Client, server: Server, sandbox: str) -> None:
    for body, asked in (({"n": 1, "reseed": True}, 1), ({"n": 1}, 0)):
        assert http.post(sandbox + "/fork", json=body).status_code == 200
        assert server.metrics()["ramet_warm_ready"] == asked


@pytest.mark.parametrize("n", [0, -1, 33, 1.5, True, False, "2", [1], 1e300])
def test_invalid_n_is_refused_with_the_limit(http: httpx.Client, sandbox: str, n: Any) -> None:
    answer = http.post(sandbox + "/fork", json={"n": n})
    assert "n must be a whole number from 1 to 32" in refused(answer, 400, "bad_request")
    assert http.get(sandbox).json()["children"] == []


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b"", "n is missing"),
        (b"{}", "n is missing"),
        (b'{"n": null}', "n is missing"),
        (b'{"n": 1, "n": 2}', "n is given twice"),
        (b'{"n": 1, "reseed": 1}', "reseed must be true or false, not 1"),
        (b"3", "object"),
    ],
)
def test_invalid_fork_is_refused(http: httpx.Client, sandbox: str, body: bytes, names: str) -> None:
    assert names in refused(http.post(sandbox + "/fork", content=body), 400, "bad_request")


def test_limit_of_children_is_a_setting(start: Callable[..., Server]) -> None:
    with start("fork_max=1000").client() as http:
        path = made(http)
        assert len(http.post(path + "/fork", json={"n": 1000}).json()["children"]) == 1000
        sentence = refused(http.post(path + "/fork", json={"n": 1001}), 400, "bad_request")
        assert "1 to 1000, not 1001" in sentence


def test_merge(http: httpx.Client, sandbox: str) -> None:
    child, other = http.post(sandbox + "/fork", json={"n": 2}).json()["children"]
    answer = http.post(f"{sandbox}/merge_into/{child}")
    assert (answer.status_code, answer.content) == (204, b"")
    assert http.get(sandbox).json()["children"] == [other]
    refused(http.get("/v1/sandboxes/" + child), 404, "not_found")
    refused(http.post(f"{sandbox}/merge_into/{child}"), 404, "not_found")


def test_invalid_merges_are_refused(http: httpx.Client, sandbox: str) -> None:
    stranger = made(http)[-36:]
    refused(http.post(f"{sandbox}/merge_into/{stranger}"), 409, "not_a_descendant")
    itself = http.post(f"{sandbox}/merge_into/{sandbox[-36:]}")
    assert "into itself" in refused(itself, 400, "bad_request")
    refused(http.post(f"{NOBODY}/merge_into/{stranger}"), 404, "not_found")
    refused(http.post(f"{sandbox}/merge_into/x"), 404, "not_found")


def test_failures_of_core_are_reported(http: httpx.Client) -> None:
    path = made(http, "crowded")
    for tail in ("/fork", "/merge_into/" + NOBODY[-36:], "/diff/" + path[-36:]):
        answer = http.post(path + tail, json={"n": 1})
        refused(answer, 503, "no_capacity")
        assert answer.headers["retry-after"] == "7"
    refused(http.post(NOBODY + "/fork", json={"n": 1}), 404, "not_found")
    refused(http.post(f"{NOBODY}/diff/{path[-36:]}"), 404, "not_found")


@pytest.mark.parametrize("tail", ["/fork", "/diff"])
def test_call_is_abandoned_when_its_client_leaves(server: Server, tail: str) -> None:
    with server.client() as http:
        path = made(http, "slow")
    tail = tail if tail == "/fork" else "/diff/" + path[-36:]
    body = b'{"n": 2}'
    head = f"POST {path}{tail} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
    with server.connect() as s:
        s.sendall(head.encode() + body)
        server.wait(lambda f: f["ramet_blank_vms_ready"] == 1)
    metrics = server.wait(lambda f: f["ramet_blank_vms_ready"] == 0)
    assert metrics["ramet_vm_deaths_total"] == 1
    assert metrics["ramet_sandboxes"] == 1
