# SPDX-License-Identifier: Apache-2.0
"""The history of a sandbox: what it did, and which of it the present state comes from."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from conftest import NOBODY, Service, made, refused
from test_checkpoints import call, rolled_back, run, taken, undone, until_kept

KEPT = 50


def history(client: httpx.Client, sandbox: str) -> list[dict[str, Any]]:
    answer = client.get(f"/v1/sandboxes/{sandbox}/history")
    assert answer.status_code == 200, answer.text
    return list(answer.json())


def brief(client: httpx.Client, sandbox: str) -> list[str]:
    """Returns each entry as its kind and code, with a minus in front if it is undone."""
    return [
        f"{'-' if one['undone'] else ''}{one['kind']} {one.get('code') or ''}".strip()
        for one in history(client, sandbox)
    ]


@pytest.fixture
def sandbox(client: httpx.Client) -> str:
    return made(client)[-36:]


def test_calls_and_checkpoints_are_listed(client: httpx.Client, sandbox: str) -> None:
    run(client, sandbox, "\n  \r\nmark a  \nmarked")
    run(client, sandbox, "exit 3")
    id = taken(client, sandbox, name="gööd")["id"]
    began, first, second, point = history(client, sandbox)
    assert (began["n"], began["kind"], began["source"]) == (1, "created", None)
    assert began["time"] == client.get("/v1/sandboxes/" + sandbox).json()["created_at"]
    assert (first["n"], first["code"], first["result"], first["seconds"] >= 0) == (2, "mark a  ", "ok", True)
    assert (second["code"], second["result"], second["seq"]) == ("exit 3", "error", first["seq"] + 1)
    assert (point["kind"], point["name"], point["checkpoint"]) == ("checkpoint", "gööd", id)
    assert [one["undone"] for one in (began, first, second, point)] == [False] * 4
    assert began["time"] <= first["time"] <= second["time"] <= point["time"]
    client.delete("/v1/checkpoints/" + id)
    assert history(client, sandbox)[3]["checkpoint"] is None
    refused(client.get(NOBODY + "/history"), 404, "not_found")


@pytest.mark.parametrize("line, shown", [("a" * 80, "a" * 80), ("a" * 79 + "é", "a" * 79), ("é" * 41, "é" * 40)])
def test_code_is_cut_to_whole_characters(client: httpx.Client, sandbox: str, line: str, shown: str) -> None:
    run(client, sandbox, f"{line}\nout x")
    assert history(client, sandbox)[1]["code"] == shown


def test_undo_says_what_was_undone(client: httpx.Client) -> None:
    sandbox = made(client, checkpoint_each_call={"keep": 20})[-36:]
    until_kept(client, sandbox)
    ids = [call(client, sandbox, mark) for mark in "abc"]
    assert [one["checkpoint"] for one in history(client, sandbox)[1:]] == ids
    undone(client, sandbox)
    assert brief(client, sandbox) == ["created", "call mark a", "call mark b", "-call mark c", "rollback"]
    assert history(client, sandbox)[-1]["source"] == ids[1]
    call(client, sandbox, "d")
    undone(client, sandbox, n=2)
    assert brief(client, sandbox)[1:] == [
        *("call mark a", "-call mark b", "-call mark c"),
        *("-rollback", "-call mark d", "rollback"),
    ]
    undone(client, sandbox)  # the state before any call
    assert [one["undone"] for one in history(client, sandbox)] == [False] + 6 * [True] + [False]


def test_rollback_forth_brings_calls_back(client: httpx.Client, sandbox: str) -> None:
    run(client, sandbox, "mark a")
    before = taken(client, sandbox)["id"]
    (child,) = client.post(f"/v1/sandboxes/{sandbox}/fork", json={"n": 1}).json()["children"]
    run(client, sandbox, "mark b")
    after = rolled_back(client, sandbox, checkpoint=before, keep="after b")["kept"]
    common = ["created", "call mark a", "checkpoint", "fork"]
    assert brief(client, sandbox) == [*common, "-call mark b", "-checkpoint", "rollback"]
    rolled_back(client, sandbox, checkpoint=after)
    assert brief(client, sandbox) == [*common, "call mark b", "checkpoint", "-rollback", "rollback"]
    foreign = taken(client, child)["id"]
    rolled_back(client, sandbox, checkpoint=foreign)
    assert brief(client, sandbox) == [*common, "-call mark b", "-checkpoint", "-rollback", "-rollback", "rollback"]
    rolled_back(client, sandbox, checkpoint=taken(client, made(client))["id"])
    assert [one["undone"] for one in history(client, sandbox)] == [False] + 8 * [True] + [False]


def test_a_call_that_a_rollback_ends(server: Service, client: httpx.Client, sandbox: str) -> None:
    id = taken(client, sandbox)["id"]
    with client.stream("POST", f"/v1/sandboxes/{sandbox}/exec", json={"code": "wait"}) as stream:
        server.until_waiting(1)
        rolled_back(client, sandbox, checkpoint=id)
        with pytest.raises(httpx.RemoteProtocolError):
            stream.read()
    ended = history(client, sandbox)[2]
    assert (ended["code"], ended["result"], ended["undone"]) == ("wait", "rolled_back", True)


def test_children_begin_with_their_fork(client: httpx.Client, sandbox: str) -> None:
    run(client, sandbox, "mark a")
    answer = client.post(f"/v1/sandboxes/{sandbox}/fork", json={"n": 3}).json()["children"]
    fork = history(client, sandbox)[-1]
    assert (fork["kind"], fork["n_children"], sorted(fork["children"])) == ("fork", 3, sorted(answer))
    (began,) = history(client, answer[0])
    assert (began["n"], began["kind"], began["source"]) == (1, "forked", sandbox)
    client.delete("/v1/sandboxes/" + answer[0])
    fork = history(client, sandbox)[-1]
    assert (fork["n_children"], sorted(fork["children"])) == (3, sorted(answer[1:]))
    point = taken(client, sandbox)["id"]
    (started,) = client.post(f"/v1/checkpoints/{point}/fork", json={"n": 1}).json()["children"]
    assert [(one["kind"], one["source"]) for one in history(client, started["id"])] == [("forked", point)]
    other = client.post("/v1/sandboxes", json={"checkpoint": point}).json()["id"]
    assert [(one["kind"], one["source"]) for one in history(client, other)] == [("created", point)]
    space = client.post(f"/v1/sandboxes/{other}/freeze").json()["space_id"]
    again = client.post(f"/v1/spaces/{space}/resume").json()["id"]
    assert [(one["kind"], one["source"]) for one in history(client, again)] == [("resumed", space)]
    for id in (started["id"], again):
        created_at = client.get(f"/v1/sandboxes/{id}").json()["created_at"]
        assert [one["time"] for one in history(client, id)] == [created_at]


def test_a_call_during_a_fork_is_in_both(server: Service, client: httpx.Client, sandbox: str) -> None:
    with client.stream("POST", f"/v1/sandboxes/{sandbox}/exec", json={"code": "wait\nout x"}) as stream:
        server.until_waiting(1)
        (child,) = client.post(f"/v1/sandboxes/{sandbox}/fork", json={"n": 1}).json()["children"]
        server.until_waiting(2)
        server.tell("go")
        stream.read()
    server.wait(lambda _: len(history(client, child)) == 2)
    assert brief(client, sandbox) == ["created", "fork", "call wait"]
    assert brief(client, child) == ["forked", "call wait"]
    assert history(client, child)[1]["seconds"] >= history(client, sandbox)[2]["seconds"] / 2


def test_merge_takes_over_what_the_winner_did(client: httpx.Client, sandbox: str) -> None:
    run(client, sandbox, "mark a")
    (child,) = client.post(f"/v1/sandboxes/{sandbox}/fork", json={"n": 1}).json()["children"]
    run(client, sandbox, "mark parent")
    run(client, child, "mark b")
    point = taken(client, child)["id"]
    run(client, child, "mark c")
    rolled_back(client, child, checkpoint=point)
    assert client.post(f"/v1/sandboxes/{sandbox}/merge_into/{child}").status_code == 204
    assert brief(client, sandbox) == [
        *("created", "call mark a", "fork", "-call mark parent"),
        *("call mark b", "checkpoint", "-call mark c", "rollback", "merge"),
    ]
    merged = history(client, sandbox)
    assert [one["n"] for one in merged] == list(range(1, 10))
    assert merged[-1]["source"] == child
    rolled_back(client, sandbox, checkpoint=point)
    assert brief(client, sandbox)[-2:] == ["-merge", "rollback"]


def test_only_the_last_ones_are_kept(client: httpx.Client, sandbox: str) -> None:
    first = taken(client, sandbox)["id"]
    for i in range(KEPT):
        run(client, sandbox, f"out {i}")
    listed = history(client, sandbox)
    assert [one["n"] for one in listed] == [1, *range(4, KEPT + 3)]
    assert listed[0]["kind"] == "created" and listed[-1]["code"] == f"out {KEPT - 1}"
    rolled_back(client, sandbox, checkpoint=first)  # older than the list
    assert [one["undone"] for one in history(client, sandbox)] == [False] + (KEPT - 2) * [True] + [False]


def test_pages(client: httpx.Client, sandbox: str) -> None:
    for i in range(4):
        run(client, sandbox, f"out {i}")
    path = f"/v1/sandboxes/{sandbox}/history"
    page = client.get(path, params={"limit": 2})
    cursor = page.headers["ramet-next-cursor"]
    middle = client.get(path, params={"limit": 2, "cursor": cursor})
    end = client.get(path, params={"cursor": middle.headers["ramet-next-cursor"]})
    assert [one["n"] for one in page.json() + middle.json() + end.json()] == [1, 2, 3, 4, 5]
    assert "ramet-next-cursor" not in end.headers
    other = client.get("/v1/checkpoints", params={"limit": 1}).headers.get("ramet-next-cursor", "k00")
    for query in ({"limit": 0}, {"cursor": cursor[:-1]}, {"cursor": other}):
        refused(client.get(path, params=query), 400, "bad_request")
