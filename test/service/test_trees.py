# SPDX-License-Identifier: Apache-2.0
"""Trees over HTTP: budgets, scores, labels, and what a tree reports."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

import httpx
import pytest
import ramet

from conftest import NOBODY, Service, made, refused


def forked(http: httpx.Client, path: str, n: int = 1, **body: Any) -> list[str]:
    answer = http.post(path + "/fork", json={"n": n, **body})
    assert answer.status_code == 200, answer.text
    return ["/v1/sandboxes/" + child for child in answer.json()["children"]]


def tree(http: httpx.Client, path: str) -> Any:
    answer = http.get("/v1/trees/" + path[-36:])
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_each_sandbox_has_its_place_in_a_tree(client: httpx.Client) -> None:
    root = made(client, labels={"a": "b", 'q"': "é\n"})
    info = client.get(root).json()
    assert (info["root"], info["depth"], info["score"]) == (root[-36:], 0, None)
    assert info["labels"] == {"a": "b", 'q"': "é\n"}
    (child,) = forked(client, root, labels={"step": "1"})
    (grandchild,) = forked(client, child)
    for path, depth, labels in ((child, 1, {"step": "1"}), (grandchild, 2, {})):
        info = client.get(path).json()
        assert (info["root"], info["depth"], info["labels"]) == (root[-36:], depth, labels)


@pytest.mark.parametrize("score", [0, -1.5, 0.1, 1e15, 123456789.125])
def test_score_and_labels_are_changed(client: httpx.Client, box: str, score: float) -> None:
    changed = client.patch(box, json={"score": score, "labels": {"k": "v"}}).json()
    assert (changed["score"], changed["labels"]) == (score, {"k": "v"})
    kept = client.patch(box, json={"metadata": {"m": 1}, "score": None, "labels": None}).json()
    assert (kept["score"], kept["labels"]) == (score, {"k": "v"})
    assert client.patch(box, json={"labels": {}}).json()["labels"] == {}


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"score": "1"}, "score must be a number"),
        ({"score": 1e16}, "score must be a number from -1e+15 to 1e+15"),
        ({"labels": {"a": 1}}, "labels must be an object of strings"),
        ({"labels": {"": "x"}}, "without a name"),
        ({"labels": {"a=b": "x"}}, "contains a ="),
        ({"labels": [1]}, "labels must be an object of strings, not"),
        ({"labels": {str(n): "" for n in range(65)}}, "at most 64 with 4096 bytes"),
        ({"labels": {"x": "y" * 4096}}, "not 1 with 4097 bytes"),
    ],
)
def test_invalid_score_or_labels_are_refused(
    client: httpx.Client, box: str, body: Any, names: str
) -> None:
    assert names in refused(client.patch(box, json=body), 400, "bad_request")


def test_largest_labels_are_returned(client: httpx.Client, box: str) -> None:
    labels = {"x": "\u0001" * 4095}
    assert client.patch(box, json={"labels": labels}).json()["labels"] == labels


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (3, "tree must be an object"),
        ({"live": 0}, "tree.live must be a whole number"),
        ({"cpu_seconds": 1.5}, "tree.cpu_seconds"),
        ({"ram_mib": 1}, "tree.ram_mib"),
        ({"at_limit": "maybe"}, 'tree.at_limit must be "refuse", "wait", "freeze_oldest_leaf" or "end_lowest_score", not "maybe"'),
    ],
)
def test_invalid_budget_is_refused(client: httpx.Client, body: Any, names: str) -> None:
    assert names in refused(client.post("/v1/sandboxes", json={"tree": body}), 400, "bad_request")


def test_budget_smaller_than_its_root_is_refused(client: httpx.Client) -> None:
    answer = client.post("/v1/sandboxes", json={"ram_mib": 256, "tree": {"ram_mib": 128}})
    assert "the root alone has 256 MiB" in refused(answer, 400, "out_of_range")


def test_list_is_filtered_by_root_and_labels(client: httpx.Client) -> None:
    root, other = made(client), made(client, labels={"run": "7"})
    first, second = forked(client, root, 2, labels={"run": "7"})
    assert {one["id"] for one in client.get("/v1/sandboxes", params={"root": root[-36:]}).json()} == {
        path[-36:] for path in (root, first, second)
    }
    found = client.get("/v1/sandboxes", params={"labels": json.dumps({"run": "7"})}).json()
    assert {one["id"] for one in found} >= {path[-36:] for path in (other, first, second)}
    assert root[-36:] not in {one["id"] for one in found}
    both = {"labels": json.dumps({"run": "7"}), "root": root[-36:]}
    assert len(client.get("/v1/sandboxes", params=both).json()) == 2
    refused(client.get("/v1/sandboxes", params={"labels": "[]"}), 400, "bad_request")
    for wrong in ("", "sbx_1"):
        answer = client.get("/v1/sandboxes", params={"root": wrong})
        assert "root must be the id" in refused(answer, 400, "bad_request")


def millis(seconds: float) -> int:
    """Returns what the service wrote, exactly: sums of seconds would be rounded."""
    return round(seconds * 1000)


def test_tree_reports_its_budget_and_the_cost_of_each_sandbox(client: httpx.Client) -> None:
    budget = {"live": 4, "cpu_seconds": 1000000, "depth": 3, "at_limit": "wait"}
    root = made(client, tree=budget)
    (child,) = forked(client, root)
    client.patch(child, json={"score": 2.5})
    space = client.post(forked(client, root)[0] + "/freeze").json()["space_id"]
    for path in (root, child):
        found = tree(client, path)
        assert (found["root"], found["tree"]) == (root[-36:], budget)
        assert (found["live"], found["waiting"]) == (2, 0)
        first, second = found["nodes"]
        assert (first["id"], first["parent"], first["depth"]) == (root[-36:], None, 0)
        assert (second["id"], second["parent"], second["score"]) == (child[-36:], root[-36:], 2.5)
        assert found["ram_mib"] == first["ram_mib"] + second["ram_mib"]
        each = [millis(node["cpu_seconds"]) for node in (first, second)]
        assert millis(found["cpu_seconds"]) >= sum(each) > 0
        assert first["wall_seconds"] >= second["wall_seconds"] >= 0 <= found["wall_seconds"]
        assert [one["id"] for one in found["spaces"]] == [space]
        assert found["spaces"][0]["root"] == root[-36:]


def test_tree_without_a_budget_and_of_nobody(client: httpx.Client, box: str) -> None:
    assert tree(client, box)["tree"] is None
    nobody = NOBODY[-36:]
    refused(client.get("/v1/trees/" + nobody), 404, "not_found")
    refused(client.delete("/v1/trees/" + nobody), 404, "not_found")
    refused(client.get("/v1/trees/x"), 404, "not_found")


def test_fork_beyond_the_budget_is_refused_whole(client: httpx.Client) -> None:
    root = made(client, tree={"live": 2})
    (child,) = forked(client, root)
    sentence = refused(client.post(root + "/fork", json={"n": 1}), 429, "tree_limit")
    assert "has 2 sandboxes, and 1 more would exceed its limit live (2)" in sentence
    assert tree(client, root)["live"] == 2
    client.delete(child)
    assert len(forked(client, root)) == 1


def test_lowest_score_makes_room(client: httpx.Client) -> None:
    root = made(client, tree={"live": 3, "at_limit": "end_lowest_score"})
    low, high = forked(client, root, 2)
    client.patch(low, json={"score": -1})
    client.patch(high, json={"score": 1})
    forked(client, root)
    assert "its tree needed room" in refused(client.get(low), 404, "tree_limit")
    assert client.get(high).status_code == 200


def test_delete_ends_a_subtree_then_all(client: httpx.Client) -> None:
    root = made(client)
    first, second = forked(client, root, 2)
    below = forked(client, first, 2)
    assert client.delete("/v1/trees/" + first[-36:]).status_code == 204
    for path in (first, *below):
        refused(client.get(path), 404, "not_found")
    client.delete(root)
    assert client.delete("/v1/trees/" + root[-36:]).status_code == 204
    refused(client.get(second), 404, "not_found")


@pytest.mark.parametrize("route", ["create", "fork", "fork_space", "resume"])
def test_delete_ends_what_is_being_started(server: Service, client: httpx.Client, route: str) -> None:
    root = made(client)
    checkpoint = client.post(root + "/checkpoints", json={}).json()["id"]
    space = client.post(root + "/freeze", json={}).json()["space_id"]
    path, body = {
        "create": ("/v1/sandboxes", {"checkpoint": checkpoint}),
        "fork": (f"/v1/checkpoints/{checkpoint}/fork", {"n": 2}),
        "fork_space": (f"/v1/spaces/{space}/fork", {"n": 1}),
        "resume": (f"/v1/spaces/{space}/resume", {}),
    }[route]
    server.tell("fault seed_wait 1")
    with ThreadPoolExecutor(1) as beside:
        start = beside.submit(client.post, path, json=body)
        server.until_waiting(1)
        assert client.delete("/v1/trees/" + root[-36:]).status_code == 204
        server.go()
        assert root[-36:] in refused(start.result(), 404, "deleted")
    assert client.get("/v1/sandboxes").json() == []
    assert client.post(path, json=body).status_code in (200, 201)  # Spaces and checkpoints stay


@pytest.mark.parametrize("route", ["create", "fork"])
def test_delete_of_a_part_ends_what_is_being_started_in_it(
    server: Service, client: httpx.Client, route: str
) -> None:
    root = made(client)
    part, other = ("/v1/sandboxes/" + id for id in client.post(root + "/fork", json={"n": 2}).json()["children"])
    leaf = "/v1/sandboxes/" + client.post(part + "/fork", json={"n": 1}).json()["children"][0]
    for owner, ends in ((leaf, True), (other, False)):
        checkpoint = client.post(owner + "/checkpoints", json={}).json()["id"]
        path, body = {
            "create": ("/v1/sandboxes", {"checkpoint": checkpoint}),
            "fork": (f"/v1/checkpoints/{checkpoint}/fork", {"n": 1}),
        }[route]
        server.tell("fault seed_wait 1")
        with ThreadPoolExecutor(1) as beside:
            start = beside.submit(client.post, path, json=body)
            server.until_waiting(1)
            if ends:
                assert client.delete("/v1/trees/" + part[-36:]).status_code == 204
            else:
                assert client.delete("/v1/trees/" + leaf[-36:]).status_code == 404
            server.go()
            if ends:
                assert "part" in refused(start.result(), 404, "deleted")
            else:
                assert start.result().status_code in (200, 201)
        if ends:
            assert {one["id"] for one in client.get("/v1/sandboxes").json()} == {root[-36:], other[-36:]}
            assert client.post(path, json=body).status_code in (200, 201)  # the checkpoint stays


def test_freezing_needs_a_tier_that_permits_it(start: Callable[..., Service]) -> None:
    service = start("free")
    body = {"tree": {"live": 2, "at_limit": "freeze_oldest_leaf"}}
    with service.client() as http:
        http.headers["authorization"] = f"Bearer {service.keys[0]}"
        answer = http.post("/v1/sandboxes", json=body)
        assert "needs a key whose tier allows" in refused(answer, 400, "out_of_range")


def test_metrics_and_events_name_trees(client: httpx.Client) -> None:
    root = made(client, tree={"live": 2, "at_limit": "end_lowest_score"})
    (low,) = forked(client, root)
    forked(client, root)
    metrics = client.get("/metrics").text
    for name in ("ramet_trees", "ramet_tree_waits", "ramet_tree_refusals_total", "ramet_tree_ends_total"):
        assert f"\n{name} " in metrics
    events = [json.loads(line) for line in client.get("/v1/events").text.splitlines()]
    ends = [one for one in events if one.get("sandbox") == low[-36:] and one["event"] == "sandbox.tree_limit"]
    assert len(ends) == 1 and "its tree needed room" in ends[0]["text"]


def test_sdk_sets_and_reads_trees(base: str) -> None:
    with ramet.Sandbox(host=base, tree={"live": 2}, labels={"run": "7"}) as root:
        (child,) = root.fork(labels={"step": "1"})
        assert child.update(score=0.5).score == 0.5
        assert (child.info().root, child.info().depth) == (root.id, 1)
        found = child.tree()
        assert (found.root, found.budget) == (root.id, {"live": 2, "at_limit": "refuse"})
        assert [(node.id, node.score, node.labels) for node in found.nodes] == [
            (root.id, None, {"run": "7"}),
            (child.id, 0.5, {"step": "1"}),
        ]
        assert millis(found.cpu_seconds) >= sum(millis(one.cpu_seconds) for one in found.nodes) > 0
        client = root._live()
        assert [one.id for one in client.list_sandboxes(root=root.id, labels={"step": "1"})] == [child.id]
        with pytest.raises(ramet.CapReached) as refusal:
            root.fork()
        assert refusal.value.code == "tree_limit"
        client.delete_tree(root.id)
        with pytest.raises(ramet.NotFound):
            client.get_tree(root.id)


def test_budget_of_a_tree_is_changed(client: httpx.Client) -> None:
    root = made(client, tree={"live": 2, "at_limit": "wait"})
    (child,) = forked(client, root)
    changed = client.patch("/v1/trees/" + child[-36:], json={"live": 3, "depth": 1})
    assert changed.status_code == 200, changed.text
    assert changed.json()["tree"] == {"live": 3, "depth": 1, "at_limit": "wait"}
    refused(client.post(child + "/fork", json={"n": 1}), 429, "tree_limit")
    forked(client, root)
    path = "/v1/trees/" + root[-36:]
    assert client.patch(path, json={"at_limit": "refuse"}).json()["tree"]["at_limit"] == "refuse"
    refused(client.post(root + "/fork", json={"n": 1}), 429, "tree_limit")
    said = refused(client.patch(path, json={"at_limit": "maybe"}), 400, "bad_request")
    assert said.startswith('at_limit must be "refuse"')
    refused(client.patch(path, json={"live": 0}), 400, "bad_request")
    refused(client.patch("/v1/trees/" + NOBODY[-36:], json={"live": 1}), 404, "not_found")
