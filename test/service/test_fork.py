# SPDX-License-Identifier: Apache-2.0
"""Forks and merges: the answers, the refusals, and clients that leave."""

from __future__ import annotations

from typing import Any, Callable

import httpx
import pytest

from conftest import NOBODY, Service, made, refused


def test_children_have_their_parent(client: httpx.Client, box: str) -> None:
    answer = client.post(box + "/fork", json={"n": 3})
    assert answer.status_code == 200
    children = answer.json()["children"]
    assert set(answer.json()) == {"children", "pause_us", "ready_us", "copied_bytes"}
    assert 0 <= answer.json()["pause_us"] <= answer.json()["ready_us"]
    assert len(set(children)) == 3
    assert set(client.get(box).json()["children"]) == set(children)
    assert client.get(box).json()["parent"] is None
    child = client.get("/v1/sandboxes/" + children[1]).json()
    assert child["parent"] == box[-36:]
    assert child["children"] == []
    assert {one["id"] for one in client.get("/v1/sandboxes").json()} == {box[-36:], *children}


def test_reseed_is_passed_on(client: httpx.Client, server: Service, box: str) -> None:
    for body, asked in (({"n": 1, "reseed": True}, 1), ({"n": 1}, 0), ({"n": 2, "reseed": False}, 0)):
        before = int(server.tell("reseeded"))
        assert client.post(box + "/fork", json=body).status_code == 200
        assert int(server.tell("reseeded")) - before == asked


@pytest.mark.parametrize("n", [0, -1, 33, 1.5, True, False, "2", [1], 1e300])
def test_invalid_n_is_refused_with_the_limit(client: httpx.Client, box: str, n: Any) -> None:
    answer = client.post(box + "/fork", json={"n": n})
    assert "n must be a whole number from 1 to 32" in refused(answer, 400, "bad_request")
    assert client.get(box).json()["children"] == []


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
def test_invalid_fork_is_refused(client: httpx.Client, box: str, body: bytes, names: str) -> None:
    assert names in refused(client.post(box + "/fork", content=body), 400, "bad_request")


def test_limit_of_children_is_a_setting(start: Callable[..., Service]) -> None:
    with start("fork_max=3").client() as http:
        path = made(http)
        assert len(http.post(path + "/fork", json={"n": 3}).json()["children"]) == 3
        sentence = refused(http.post(path + "/fork", json={"n": 4}), 400, "bad_request")
        assert "1 to 3, not 4" in sentence


def test_merge(client: httpx.Client, box: str) -> None:
    child, other = client.post(box + "/fork", json={"n": 2}).json()["children"]
    answer = client.post(f"{box}/merge_into/{child}")
    assert (answer.status_code, answer.content) == (204, b"")
    assert client.get(box).json()["children"] == [other]
    refused(client.get("/v1/sandboxes/" + child), 404, "merged")
    refused(client.post(f"{box}/merge_into/{child}"), 404, "merged")


def test_invalid_merges_are_refused(client: httpx.Client, box: str) -> None:
    stranger = made(client)[-36:]
    refused(client.post(f"{box}/merge_into/{stranger}"), 409, "not_a_descendant")
    itself = client.post(f"{box}/merge_into/{box[-36:]}")
    assert "into itself" in refused(itself, 400, "bad_request")
    refused(client.post(f"{NOBODY}/merge_into/{stranger}"), 404, "not_found")
    refused(client.post(f"{box}/merge_into/x"), 404, "not_found")


def test_failures_are_reported(client: httpx.Client, server: Service, box: str) -> None:
    refused(client.post(NOBODY + "/fork", json={"n": 1}), 404, "not_found")
    refused(client.post(f"{NOBODY}/diff/{box[-36:]}"), 404, "not_found")
    server.tell("fault fork 1")
    refused(client.post(box + "/fork", json={"n": 1}), 503, "fork_failed")
    assert client.get(box).json()["children"] == []


def test_fork_without_room_is_refused(start: Callable[..., Service]) -> None:
    with start("max_vms=3").client() as http:
        path = made(http)
        refused(http.post(path + "/fork", json={"n": 3}), 503, "no_capacity")
        assert len(http.post(path + "/fork", json={"n": 2}).json()["children"]) == 2


@pytest.mark.parametrize("tail", ["/fork", "/diff"])
def test_call_is_abandoned_when_its_client_leaves(
    client: httpx.Client, server: Service, box: str, tail: str
) -> None:
    if tail == "/fork":
        server.tell("fault fork_wait 1")
    else:
        tail = f"/diff/{client.post(box + '/fork', json={'n': 1}).json()['children'][0]}"
        client.post(box + "/exec", json={"code": "tree wait"})
    before = len(client.get("/v1/sandboxes").json())
    body = b'{"n": 2}'
    head = f"POST {box}{tail} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
    with server.connect() as s:
        s.sendall(head.encode() + body)
        server.until_waiting(1)
    server.until_idle()
    server.go()
    server.until_waiting(0)
    assert client.post(box + "/exec", json={"code": "out on"}).is_success
    assert len(client.get("/v1/sandboxes").json()) == before
