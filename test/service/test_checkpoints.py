# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: taken, listed, changed, deleted, pruned, and sandboxes started from them."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

import httpx
import pytest

from conftest import NOBODY, Service, made, refused
from ramet import Checkpoint, Client
from stand_in import pause

NONE = "/v1/checkpoints/chk_" + "f" * 32


def taken(client: httpx.Client, sandbox: str, **spec: Any) -> dict[str, Any]:
    answer = client.post(f"/v1/sandboxes/{sandbox.rpartition('/')[2]}/checkpoints", json=spec)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def run(client: httpx.Client, sandbox: str, script: str) -> str:
    answer = client.post(f"/v1/sandboxes/{sandbox}/exec", json={"code": script})
    events = [json.loads(line) for line in answer.text.splitlines()]
    return "".join(event["data"] for event in events if event["type"] == "stdout")


@pytest.fixture
def sandbox(client: httpx.Client) -> str:
    return made(client, metadata={"who": "tëst"}, env={"A": "b"}).rpartition("/")[2]


def test_take_list_info_change_delete(client: httpx.Client, sandbox: str) -> None:
    first = taken(client, sandbox, name="tests päss", labels={"step": "1", "x": "y"}, pin=True)
    second = taken(client, sandbox, ttl_seconds=100)
    assert (first["name"], first["labels"], first["pin"]) == ("tests päss", {"step": "1", "x": "y"}, True)
    assert (first["score"], first["parent"], first["expires_at"]) == (None, None, None)
    assert (first["sandbox"], first["metadata"], first["ram_mib"]) == (sandbox, {"who": "tëst"}, 128)
    assert (second["name"], second["labels"], second["parent"]) == (None, {}, first["id"])
    assert second["expires_at"] > second["created_at"]
    path = "/v1/checkpoints/" + first["id"]
    listed = client.get("/v1/checkpoints").json()
    assert [one["id"] for one in listed] == [first["id"], second["id"]]
    changed = client.patch(path, json={"score": 0.5, "name": "", "labels": {"a": "b"}}).json()
    assert (changed["score"], changed["name"], changed["labels"]) == (0.5, None, {"a": "b"})
    assert client.get(path).json()["score"] == 0.5
    assert "unpin it" in refused(client.delete(path), 409, "pinned")
    assert client.patch(path, json={"pin": False}).json()["pin"] is False
    assert client.delete(path).status_code == 204
    refused(client.get(path), 404, "not_found")
    refused(client.delete(path), 404, "not_found")
    assert [one["id"] for one in client.get("/v1/checkpoints").json()] == [second["id"]]


def test_prune_is_a_word_and_no_id(client: httpx.Client) -> None:
    answer = client.delete("/v1/checkpoints/prune")
    refused(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"


def test_lists_are_filtered_and_paged(client: httpx.Client, sandbox: str) -> None:
    (child,) = client.post(f"/v1/sandboxes/{sandbox}/fork", json={"n": 1}).json()["children"]
    ids = [
        taken(client, sandbox, name="a", labels={"n": "1"})["id"],
        taken(client, sandbox, name="b", labels={"n": "2"})["id"],
        taken(client, child, name="a", labels={"n": "2"})["id"],
    ]
    for query, found in (
        ({"name": "a"}, [0, 2]),
        ({"name": "c"}, []),
        ({"labels": '{"n": "2"}'}, [1, 2]),
        ({"labels": '{"n": 2}'}, []),
        ({"sandbox": sandbox}, [0, 1]),
        ({"sandbox": child}, [2]),
        ({"ancestor": sandbox}, [0, 1, 2]),
        ({"ancestor": child, "name": "a"}, [2]),
    ):
        listed = client.get("/v1/checkpoints", params=query).json()
        assert [one["id"] for one in listed] == [ids[i] for i in found], query
    page = client.get("/v1/checkpoints", params={"limit": 2})
    rest = client.get("/v1/checkpoints", params={"cursor": page.headers["ramet-next-cursor"]})
    assert [one["id"] for one in page.json() + rest.json()] == ids
    for query in ({"labels": "[]"}, {"sandbox": "x"}, {"ancestor": "spc_" + "0" * 32}):
        refused(client.get("/v1/checkpoints", params=query), 400, "bad_request")


def test_start_from_one(client: httpx.Client, sandbox: str) -> None:
    run(client, sandbox, "mark before")
    id = taken(client, sandbox)["id"]
    run(client, sandbox, "mark after")
    assert client.delete("/v1/sandboxes/" + sandbox).status_code == 204
    answer = client.post(f"/v1/checkpoints/{id}/fork", json={"n": 3}).json()
    children = [child["id"] for child in answer["children"]]
    assert len(set(children)) == 3 and answer["ready_us"] > 0
    for child in children:
        assert run(client, child, "marked") == "before"
        assert run(client, child, "env").strip() == "A=b"
        info = client.get("/v1/sandboxes/" + child).json()
        assert (info["metadata"], info["parent"]) == ({"who": "tëst"}, None)


def test_children_descend_from_the_sandbox(client: httpx.Client, sandbox: str) -> None:
    id = taken(client, sandbox)["id"]
    (child,) = client.post(f"/v1/checkpoints/{id}/fork", json={"n": 1}).json()["children"]
    assert client.get("/v1/sandboxes/" + child["id"]).json()["parent"] == sandbox
    run(client, child["id"], "mark child")
    assert client.post(f"/v1/sandboxes/{sandbox}/merge_into/{child['id']}").status_code == 204
    assert run(client, sandbox, "marked") == "child"
    assert taken(client, sandbox)["parent"] == id


def test_create_from_one(client: httpx.Client, sandbox: str) -> None:
    run(client, sandbox, "mark here")
    id = taken(client, sandbox)["id"]
    asked = {"checkpoint": id, "lifetime_seconds": 60, "metadata": {"new": 1}, "env": {"C": "d"}, "egress": False}
    answer = client.post("/v1/sandboxes", json=asked)
    assert answer.status_code == 201 and answer.json()["state"] == "ready"
    info = client.get("/v1/sandboxes/" + answer.json()["id"]).json()
    assert (info["metadata"], info["egress"], info["ram_mib"]) == ({"new": 1}, False, 128)
    assert run(client, info["id"], "marked") == "here"
    assert run(client, info["id"], "env").strip() == "C=d"
    closed = taken(client, info["id"])["id"]
    back = client.post("/v1/sandboxes", json={"checkpoint": closed, "egress": True}).json()
    assert client.get("/v1/sandboxes/" + back["id"]).json()["egress"] is False
    for wrong in ({"ram_mib": 256}, {"vcpus": 2}, {"template": "other"}):
        text = refused(client.post("/v1/sandboxes", json={"checkpoint": id, **wrong}), 400, "out_of_range")
        assert id in text and "can't be changed" in text
    refused(client.post("/v1/sandboxes", json={"checkpoint": "x"}), 400, "bad_request")
    gone = client.post("/v1/sandboxes", json={"checkpoint": NONE[-36:]})
    assert "no checkpoint" in refused(gone, 404, "not_found")


def test_fork_of_a_space_keeps_it(client: httpx.Client, sandbox: str) -> None:
    run(client, sandbox, "mark frozen")
    space = client.post(f"/v1/sandboxes/{sandbox}/freeze").json()["space_id"]
    for _ in range(2):
        answer = client.post(f"/v1/spaces/{space}/fork", json={"n": 2}).json()
        assert [run(client, child["id"], "marked") for child in answer["children"]] == ["frozen"] * 2
    assert client.get("/v1/spaces/" + space).json()["state"] == "frozen"
    assert client.post(f"/v1/spaces/{space}/resume").status_code == 201
    refused(client.post(f"/v1/spaces/{space}/fork", json={"n": 1}), 404, "not_found")


def test_a_child_that_fails_is_an_item(server: Service, client: httpx.Client, sandbox: str) -> None:
    id = taken(client, sandbox)["id"]
    server.tell("fault reseed 1")
    children = client.post(f"/v1/checkpoints/{id}/fork", json={"n": 3}).json()["children"]
    failed = [child["error"] for child in children if "error" in child]
    assert [error["code"] for error in failed] == ["vm_failed"] and failed[0]["message"]
    assert len([child for child in children if "id" in child]) == 2
    server.tell("fault reseed 3")
    text = refused(client.post(f"/v1/checkpoints/{id}/fork", json={"n": 3}), 503, "vm_failed")
    assert id in text


def test_a_stored_one_survives_the_service(start: Callable[..., Service]) -> None:
    server = start()
    with server.client() as client:
        sandbox = made(client)[-36:]
        asked = taken(client, sandbox, name="n", labels={"a": "b"}, pin=True)
        path = "/v1/checkpoints/" + asked["id"]
        client.patch(path, json={"score": 2})
        server.wait(lambda f: f["ramet_checkpoints_unstored"] == 0)
        stored = client.get(path).json()
        freed = {"bytes_freed": stored.pop("bytes_freed")}
        assert stored == {**asked, "score": 2, "state": "stored", "bytes": stored["bytes"]} | {
            "bytes_shared": stored["bytes_shared"]
        }
        assert stored["bytes"] > 0
    for _ in range(2):
        server.kill()
        server.start("max_vms=64")
        with server.client() as client:
            assert client.get(path).json() == stored | freed
            assert client.get("/v1/checkpoints").json() == [stored]
            children = client.post(path + "/fork", json={"n": 2}).json()["children"]
            assert len([child for child in children if run(client, child["id"], "out x").strip() == "x"]) == 2
    with server.client() as client:
        client.patch(path, json={"pin": False})
        assert client.delete(path).status_code == 204
    server.stop()
    assert [one.name for one in (server.home / "service/state/spaces").iterdir()] == []


def test_a_deletion_frees_what_no_other_one_has(server: Service, client: httpx.Client, sandbox: str) -> None:
    asked = taken(client, sandbox)
    assert asked["bytes"] > 0 and "bytes_freed" not in asked
    server.wait(lambda f: f["ramet_checkpoints_unstored"] == 0)
    path = "/v1/checkpoints/" + asked["id"]
    files = list((server.home / "service/state/spaces" / asked["id"]).iterdir())
    own = sum(file.stat().st_blocks * 512 for file in files if file.stat().st_nlink == 1)
    assert client.get(path).json()["bytes_freed"] == own > 0
    (state,) = (file for file in files if file.name == "state")
    shared = server.home / "service/state/shared"
    shared.hardlink_to(state)
    left = own - state.stat().st_blocks * 512
    assert client.get(path).json()["bytes_freed"] == left < own
    with Client(server.base) as sdk:
        assert Checkpoint.get(asked["id"], client=sdk).freed_bytes == left
        assert sdk.checkpoints()[0].freed_bytes is None
    shared.unlink()


def test_nothing_starts_from_a_damaged_one(server: Service, client: httpx.Client, sandbox: str) -> None:
    id = taken(client, sandbox)["id"]
    server.wait(lambda f: f["ramet_checkpoints_unstored"] == 0)
    (state,) = (server.home / "service/state/spaces" / id).glob("state*")
    state.write_bytes(state.read_bytes() + b"!")
    path = "/v1/checkpoints/" + id
    refused(client.post(path + "/fork", json={"n": 1}), 409, "checkpoint_damaged")
    refused(client.post("/v1/sandboxes", json={"checkpoint": id}), 409, "checkpoint_damaged")
    rollback = client.post(f"/v1/sandboxes/{sandbox}/rollback", json={"checkpoint": id})
    refused(rollback, 409, "checkpoint_damaged")
    found = client.get(path).json()
    assert found["state"] == "damaged" and state.name in found["damage"]
    assert client.delete(path).status_code == 204


def test_prune(server: Service, client: httpx.Client, sandbox: str) -> None:
    ids = [taken(client, sandbox, pin=i == 0)["id"] for i in range(5)]
    other = taken(client, made(client))["id"]
    server.wait(lambda f: f["ramet_checkpoints_unstored"] == 0)
    asked: dict[str, Any] = {"keep": 2, "sandbox": sandbox, "dry_run": True}
    would = client.post("/v1/checkpoints/prune", json=asked).json()
    assert would["checkpoints"] == [ids[2], ids[1]]
    assert len(client.get("/v1/checkpoints").json()) == 6
    asked["dry_run"] = False
    assert client.post("/v1/checkpoints/prune", json=asked).json() == would
    left = [one["id"] for one in client.get("/v1/checkpoints").json()]
    assert left == [ids[0], ids[3], ids[4], other]
    assert client.post("/v1/checkpoints/prune", json={"older_than_seconds": 1000}).json()["checkpoints"] == []
    refused(client.post("/v1/checkpoints/prune", json={"dry_run": True}), 400, "bad_request")
    assert "nope" in refused(client.post("/v1/checkpoints/prune", json={"keep": 1, "sandbox": "nope"}), 400, "bad_request")


def test_wrong_requests(client: httpx.Client, sandbox: str) -> None:
    path = f"/v1/sandboxes/{sandbox}/checkpoints"
    specs: tuple[dict[str, Any], ...] = (
        {"name": "x" * 129},
        {"labels": {"a": 1}},
        {"labels": []},
        {"labels": {str(i): "" for i in range(65)}},
        {"labels": {"a": "x" * 5000}},
        {"ttl_seconds": 0},
        {"pin": 1},
    )
    for wrong in specs:
        assert client.post(path, json=wrong).status_code == 400, wrong
    refused(client.post(f"/v1/sandboxes/{NOBODY[-36:]}/checkpoints"), 404, "not_found")
    refused(client.get(NONE), 404, "not_found")
    refused(client.patch(NONE, json={}), 404, "not_found")
    refused(client.post(NONE + "/fork", json={"n": 1}), 404, "not_found")
    assert "chk_" in refused(client.get("/v1/checkpoints/chk_1"), 404, "not_found")
    id = taken(client, sandbox)["id"]
    refused(client.post(f"/v1/checkpoints/{id}/fork", json={"n": 0}), 400, "bad_request")
    refused(client.patch("/v1/checkpoints/" + id, json={"score": "x"}), 400, "bad_request")


def test_same_key_same_checkpoint(client: httpx.Client, sandbox: str) -> None:
    key = {"idempotency-key": "k1"}
    one, two = (client.post(f"/v1/sandboxes/{sandbox}/checkpoints", headers=key) for _ in range(2))
    assert one.json() == two.json() and two.headers["idempotent-replayed"] == "true"
    path = f"/v1/checkpoints/{one.json()['id']}/fork"
    key = {"idempotency-key": "k2"}
    one, two = (client.post(path, json={"n": 2}, headers=key) for _ in range(2))
    assert one.json() == two.json()
    assert len(client.get("/v1/sandboxes").json()) == 3


def test_checkpoints_of_another_key(start: Callable[..., Service]) -> None:
    service = start("pro", "pro", "free")
    heads = [{"authorization": f"Bearer {key}"} for key in service.keys]
    ours, theirs, free = (service.client(headers=head) for head in heads)
    with ours, theirs, free:
        id = taken(ours, made(ours))["id"]
        path = "/v1/checkpoints/" + id
        for answer in (theirs.get(path), theirs.delete(path), theirs.post(path + "/fork", json={"n": 1})):
            refused(answer, 404, "not_found")
        refused(theirs.post("/v1/sandboxes", json={"checkpoint": id}), 404, "not_found")
        rollback = made(theirs) + "/rollback"
        refused(theirs.post(rollback, json={"checkpoint": id}), 404, "not_found")
        assert theirs.get("/v1/checkpoints").json() == []
        text = refused(free.post(made(free) + "/checkpoints"), 429, "cap_reached")
        assert "limit is 0: its tier permits none" in text


def test_a_rollback_works_at_the_limits_of_the_tier(start: Callable[..., Service]) -> None:
    tier = "ram_mib=1024 rootfs_gb=4 idle_s=300 lifetime_s=1800 concurrent=1 persistent=no disks_gb=4 spaces_gb=1"
    service = start("free", f"tier_free={tier} checkpoints=9 private_memory=no")
    with service.client(headers={"authorization": f"Bearer {service.keys[0]}"}) as client:
        sandbox = made(client)
        refused(client.post("/v1/sandboxes", json={}), 429, "cap_reached")
        run(client, sandbox[-36:], "mark good")
        id = taken(client, sandbox)["id"]
        run(client, sandbox[-36:], "mark bad")
        assert client.post(sandbox + "/rollback", json={"checkpoint": id}).status_code == 200
        assert run(client, sandbox[-36:], "marked") == "good"
        refused(client.post("/v1/sandboxes", json={"checkpoint": id}), 429, "cap_reached")


def test_metrics_and_events(start: Callable[..., Service]) -> None:
    server = start()
    with server.client() as client:
        sandbox = made(client)[-36:]
        id = taken(client, sandbox)["id"]
        client.post(f"/v1/checkpoints/{id}/fork", json={"n": 2})
        found = server.wait(lambda f: f["ramet_checkpoints_unstored"] == 0)
        client.delete("/v1/checkpoints/" + id)
        events = client.get("/v1/events").text.splitlines()
    assert (found["ramet_checkpoints_taken_total"], found["ramet_checkpoint_starts_total"]) == (1, 2)
    assert found["ramet_checkpoints"] == 1 and found["ramet_checkpoints_bytes"] > 0
    named = [(e["event"], e.get("sandbox")) for e in map(json.loads, events) if e.get("checkpoint") == id]
    assert named[0] == ("checkpoint.taken", sandbox)
    assert [name for name, _ in named] == ["checkpoint.taken"] + ["sandbox.forked"] * 2 + ["checkpoint.deleted"]


def test_what_is_started_belongs_to_the_tree(client: httpx.Client) -> None:
    root = made(client, tree={"live": 2, "depth": 1}).rpartition("/")[2]
    point = taken(client, root)
    assert (point["root"], point["depth"]) == (root, 0)
    path = f"/v1/checkpoints/{point['id']}/fork"
    assert "limit live" in refused(client.post(path, json={"n": 2}), 429, "tree_limit")
    started = client.post(path, json={"n": 1, "labels": {"try": "1"}}).json()["children"][0]["id"]
    info = client.get("/v1/sandboxes/" + started).json()
    assert (info["root"], info["depth"], info["labels"]) == (root, 1, {"try": "1"})
    assert "limit live" in refused(client.post("/v1/sandboxes", json={"checkpoint": point["id"]}), 429, "tree_limit")
    assert client.delete("/v1/sandboxes/" + root).status_code == 204
    deeper = taken(client, started)
    assert "depth" in refused(client.post(f"/v1/checkpoints/{deeper['id']}/fork", json={"n": 1}), 429, "tree_limit")
    wrong = {"checkpoint": point["id"], "tree": {"live": 9}}
    assert root in refused(client.post("/v1/sandboxes", json=wrong), 400, "out_of_range")
    assert client.get(f"/v1/trees/{root}").status_code == 200


# --- rollback ---


def rolled_back(client: httpx.Client, sandbox: str, **body: Any) -> dict[str, Any]:
    answer = client.post(f"/v1/sandboxes/{sandbox}/rollback", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_rollback_keeps_the_id_and_what_belongs_to_it(client: httpx.Client, sandbox: str) -> None:
    run(client, sandbox, "mark good")
    id = taken(client, sandbox)["id"]
    run(client, sandbox, "mark broken")
    client.patch("/v1/sandboxes/" + sandbox, json={"metadata": {"new": 1}})
    before = client.get("/v1/sandboxes/" + sandbox).json()
    assert rolled_back(client, sandbox, checkpoint=id) == {"id": sandbox, "checkpoint": id, "kept": None}
    assert run(client, sandbox, "marked") == "good"
    after = client.get("/v1/sandboxes/" + sandbox).json()
    for name in ("metadata", "created_at", "expires_at", "children", "egress"):
        assert after[name] == before[name]
    assert [one["id"] for one in client.get("/v1/sandboxes").json()] == [sandbox]
    kept = rolled_back(client, sandbox, checkpoint=id, keep="before")["kept"]
    assert client.get("/v1/checkpoints/" + kept).json()["name"] == "before"
    run(client, sandbox, "mark other")
    rolled_back(client, sandbox, checkpoint=kept)
    assert run(client, sandbox, "marked") == "good"
    assert run(client, sandbox, "env").strip() == "A=b"


def test_rollback_ends_what_runs(server: Service, client: httpx.Client, sandbox: str) -> None:
    id = taken(client, sandbox)["id"]
    with client.stream("POST", f"/v1/sandboxes/{sandbox}/exec", json={"code": "out x\nwait"}) as stream:
        server.until_waiting(1)
        rolled_back(client, sandbox, checkpoint=id)
        lines: list[dict[str, Any]] = []
        with pytest.raises(httpx.RemoteProtocolError):  # the stream is cut off after the last line
            for line in stream.iter_lines():
                lines.append(json.loads(line))
    assert [line["type"] for line in lines] == ["stdout", "error"]
    assert lines[-1]["code"] == "rolled_back"
    assert run(client, sandbox, "out again").strip() == "again"


def test_a_call_at_the_checkpoint_runs_again(server: Service, client: httpx.Client, sandbox: str) -> None:
    with client.stream("POST", f"/v1/sandboxes/{sandbox}/exec", json={"code": "out x\nwait\nout y"}) as stream:
        server.until_waiting(1)
        id = taken(client, sandbox)["id"]
        server.tell("go")
        stream.read()
    rolled_back(client, sandbox, checkpoint=id)
    assert run(client, sandbox, "out z").strip() == "z"
    replay = client.get(f"/v1/sandboxes/{sandbox}/replay").text
    data = [json.loads(line)["data"] for line in replay.splitlines()]
    assert data == ["y", 0, "z", 0], replay


def test_rollbacks_that_are_refused_change_nothing(client: httpx.Client, sandbox: str) -> None:
    run(client, sandbox, "mark here")
    other = taken(client, made(client, ram_mib=256))["id"]
    path = f"/v1/sandboxes/{sandbox}/rollback"
    assert other in refused(client.post(path, json={"checkpoint": other, "keep": "k"}), 400, "out_of_range")
    gone = client.post(path, json={"checkpoint": NONE[-36:], "keep": "k"})
    refused(gone, 404, "not_found")
    refused(client.post(NOBODY + "/rollback", json={"checkpoint": other}), 404, "not_found")
    refused(client.post(path, json={}), 400, "bad_request")
    refused(client.post(path, json={"checkpoint": "spc_" + "f" * 32}), 400, "bad_request")
    assert run(client, sandbox, "marked") == "here"
    assert [one["id"] for one in client.get("/v1/checkpoints").json()] == [other]


def test_a_rollback_survives_the_service(start: Callable[..., Service]) -> None:
    server = start()
    with server.client() as client:
        sandbox = made(client)[-36:]
        id = taken(client, sandbox)["id"]
        server.tell("fault reseed 1")
        answer = client.post(f"/v1/sandboxes/{sandbox}/rollback", json={"checkpoint": id})
        refused(answer, 503, "vm_failed")
        rolled_back(client, sandbox, checkpoint=id)
        events = [json.loads(line) for line in client.get("/v1/events").text.splitlines()]
        assert [e["sandbox"] for e in events if e["event"] == "sandbox.rolled_back"] == [sandbox]
        assert server.metrics()["ramet_rollbacks_total"] == 1
        assert client.delete("/v1/sandboxes/" + sandbox).status_code == 204
        assert client.get("/v1/sandboxes").json() == []
    server.stop()


# --- after each call ---


def of_calls(client: httpx.Client, sandbox: str) -> list[dict[str, Any]]:
    """Returns the checkpoints that were taken after calls, oldest first."""
    listed = client.get("/v1/checkpoints", params={"sandbox": sandbox}).json()
    return [one for one in listed if one["call"] is not None]


def until_kept(client: httpx.Client, sandbox: str) -> list[dict[str, Any]]:
    """Waits until the service has kept the present state, and returns the checkpoints of calls."""
    replay = client.get(f"/v1/sandboxes/{sandbox}/replay").text.splitlines()
    last = json.loads(replay[-1])["seq"] if replay else 0
    while True:
        found = of_calls(client, sandbox)
        if found and found[-1]["call"] >= last:
            return found
        pause()


def until_taken_up(client: httpx.Client, sandbox: str) -> dict[str, Any]:
    """Waits for the checkpoint of the state that the sandbox got from elsewhere."""
    while of_calls(client, sandbox)[-1]["undone"]:
        pause()
    return of_calls(client, sandbox)[-1]


def undone(client: httpx.Client, sandbox: str, **body: Any) -> dict[str, Any]:
    answer = client.post(f"/v1/sandboxes/{sandbox}/undo", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def history_of(client: httpx.Client, sandbox: str) -> list[dict[str, Any]]:
    return list(client.get(f"/v1/sandboxes/{sandbox}/history").json())


def known(sandbox: dict[str, Any]) -> list[Any]:
    return [sandbox[name] for name in ("id", "parent", "root", "depth")]


def call(client: httpx.Client, sandbox: str, mark: str) -> str:
    """Runs a call, and returns the checkpoint that is taken after it."""
    run(client, sandbox, "mark " + mark)
    return str(until_kept(client, sandbox)[-1]["id"])


def test_calls_are_undone(client: httpx.Client) -> None:
    sandbox = made(client, checkpoint_each_call={"keep": 20})[-36:]
    assert client.get("/v1/sandboxes/" + sandbox).json()["checkpoint_each_call"] == {"keep": 20}
    (first,) = until_kept(client, sandbox)
    assert (first["call"], first["undone"], first["name"]) == (0, False, None)
    ids = [first["id"]] + [call(client, sandbox, mark) for mark in "abcd"]
    assert undone(client, sandbox) == {"id": sandbox, "checkpoint": ids[3], "kept": None}
    assert run(client, sandbox, "marked") == "c"
    until_kept(client, sandbox)
    assert undone(client, sandbox, n=2)["checkpoint"] == ids[2]  # "marked" was a call, too
    assert undone(client, sandbox)["checkpoint"] == ids[1]
    assert [one["id"] for one in of_calls(client, sandbox) if one["undone"]][:2] == [ids[2], ids[3]]
    call(client, sandbox, "e")
    assert undone(client, sandbox)["checkpoint"] == ids[1]  # not the state after "c", which is newer
    kept = undone(client, sandbox, keep="before")["kept"]
    assert client.get("/v1/checkpoints/" + kept).json()["call"] is None
    assert run(client, sandbox, "marked") == ""


def test_undo_ends_a_call_that_runs(server: Service, client: httpx.Client) -> None:
    sandbox = made(client, checkpoint_each_call={"keep": 20})[-36:]
    kept = call(client, sandbox, "a")
    with client.stream("POST", f"/v1/sandboxes/{sandbox}/exec", json={"code": "mark b\nwait"}) as stream:
        server.until_waiting(1)
        assert undone(client, sandbox)["checkpoint"] == kept
        with pytest.raises(httpx.RemoteProtocolError):
            stream.read()
    assert run(client, sandbox, "marked") == "a"


def test_the_ring_keeps_the_newest(server: Service, client: httpx.Client) -> None:
    sandbox = made(client, checkpoint_each_call={"keep": 2})[-36:]
    until_kept(client, sandbox)
    ids = [call(client, sandbox, "a")]
    client.patch("/v1/checkpoints/" + ids[0], json={"pin": True})
    ids.append(call(client, sandbox, "b"))
    client.patch("/v1/checkpoints/" + ids[1], json={"name": "mine"})
    ids += [call(client, sandbox, mark) for mark in "cde"]
    server.wait(lambda _: len(of_calls(client, sandbox)) == 4)
    assert [one["id"] for one in of_calls(client, sandbox)] == [ids[0], ids[1], ids[3], ids[4]]
    assert undone(client, sandbox, n=2)["checkpoint"] == ids[1]


def test_undo_says_what_helps(client: httpx.Client, sandbox: str) -> None:
    path = f"/v1/sandboxes/{sandbox}/undo"
    assert "set its checkpoint_each_call" in refused(client.post(path, json={}), 409, "no_undo")
    changed = client.patch("/v1/sandboxes/" + sandbox, json={"checkpoint_each_call": {"keep": 1}})
    assert changed.json()["checkpoint_each_call"] == {"keep": 1}
    until_kept(client, sandbox)
    assert "keeps fewer" in refused(client.post(path, json={"n": 1}), 409, "no_undo")
    changed = client.patch("/v1/sandboxes/" + sandbox, json={"checkpoint_each_call": {"keep": 0}})
    assert changed.json()["checkpoint_each_call"] is None
    run(client, sandbox, "mark later")
    assert undone(client, sandbox)["checkpoint"] == of_calls(client, sandbox)[0]["id"]
    for body in ({"n": 0}, {"n": 1001}, {"n": "1"}):
        refused(client.post(path, json=body), 400, "bad_request")
    for wrong in ({"keep": 1001}, {"keep": -1}, {}, {"keep": "1"}, 20):
        setting = {"checkpoint_each_call": wrong}
        assert "checkpoint_each_call" in refused(client.post("/v1/sandboxes", json=setting), 400, "bad_request")
        refused(client.patch("/v1/sandboxes/" + sandbox, json=setting), 400, "bad_request")
    refused(client.post(NOBODY + "/undo", json={}), 404, "not_found")


def test_the_first_call_after_a_rollback_is_undone(client: httpx.Client, sandbox: str) -> None:
    run(client, sandbox, "mark asked")
    asked = taken(client, sandbox)["id"]
    run(client, sandbox, "mark other")
    client.patch("/v1/sandboxes/" + sandbox, json={"checkpoint_each_call": {"keep": 20}})
    call(client, sandbox, "a")
    rolled_back(client, sandbox, checkpoint=asked)
    until_taken_up(client, sandbox)
    call(client, sandbox, "b")
    undone(client, sandbox)
    assert run(client, sandbox, "marked") == "asked"


def marks_undone(client: httpx.Client, sandbox: str) -> list[str]:
    """Undoes calls one after the other as long as that works. Returns the mark of each state."""
    marks = []
    while client.post(f"/v1/sandboxes/{sandbox}/undo", json={}).status_code == 200:
        id = history_of(client, sandbox)[-1]["source"]
        (copy,) = client.post(f"/v1/checkpoints/{id}/fork", json={"n": 1}).json()["children"]
        marks.append(run(client, copy["id"], "marked"))
        client.delete("/v1/sandboxes/" + copy["id"])
        until_kept(client, sandbox)
    refused(client.post(f"/v1/sandboxes/{sandbox}/undo", json={}), 409, "no_undo")
    return marks


def test_undo_after_a_rollback_does_not_stay_in_its_state(client: httpx.Client) -> None:
    sandbox = made(client, checkpoint_each_call={"keep": 20})[-36:]
    until_kept(client, sandbox)
    for mark in "ab":
        call(client, sandbox, mark)
    good = taken(client, sandbox, name="good")["id"]
    for mark in "cd":
        call(client, sandbox, mark)
    for _ in range(2):  # the second time, its state has also the checkpoint after the first rollback
        rolled_back(client, sandbox, checkpoint=good)
        until_taken_up(client, sandbox)
        call(client, sandbox, "e")
    rolled_back(client, sandbox, checkpoint=good)
    rolled_back(client, sandbox, checkpoint=until_taken_up(client, sandbox)["id"])
    assert marks_undone(client, sandbox) == ["a", ""]


def test_a_rollback_forth_brings_states_back(client: httpx.Client) -> None:
    sandbox = made(client, checkpoint_each_call={"keep": 20})[-36:]
    until_kept(client, sandbox)
    ids = [call(client, sandbox, mark) for mark in "abc"]
    undone(client, sandbox, n=3)
    call(client, sandbox, "d")
    middle = client.get("/v1/checkpoints/" + ids[1]).json()
    assert (middle["undone"], middle["parent"]) == (True, ids[0])
    client.delete("/v1/checkpoints/" + ids[1])
    assert client.get("/v1/checkpoints/" + ids[2]).json()["parent"] == ids[0]
    rolled_back(client, sandbox, checkpoint=ids[2])
    assert [one["undone"] for one in of_calls(client, sandbox)] == [False, False, False, True]
    assert marks_undone(client, sandbox) == ["a", ""]


def test_undo_goes_only_to_states_that_led_here(client: httpx.Client, sandbox: str) -> None:
    own = made(client, checkpoint_each_call={"keep": 20})[-36:]
    until_kept(client, own)
    call(client, own, "a")
    children = client.post(f"/v1/sandboxes/{own}/fork", json={"n": 2}).json()["children"]
    call(client, own, "b")
    run(client, children[0], "mark child")
    rolled_back(client, own, checkpoint=taken(client, children[0])["id"])
    until_taken_up(client, own)
    assert [one["undone"] for one in of_calls(client, own)] == [False, False, True, False]
    assert [one["undone"] for one in history_of(client, own)] == [False, False, False, True, False]
    call(client, own, "c")
    run(client, children[1], "mark winner")
    assert client.post(f"/v1/sandboxes/{own}/merge_into/{children[1]}").status_code == 204
    until_taken_up(client, own)
    assert [one["undone"] for one in of_calls(client, own)] == [False, False, True, True, True, False]
    assert marks_undone(client, own) == ["a", ""]
    rolled_back(client, own, checkpoint=taken(client, sandbox)["id"])
    until_taken_up(client, own)
    assert [one["undone"] for one in of_calls(client, own)] == [True] * 6 + [False]
    assert marks_undone(client, own) == []


def test_the_ring_gives_up_its_oldest_at_the_limit_of_the_tier(start: Callable[..., Service]) -> None:
    tier = "ram_mib=1024 rootfs_gb=4 idle_s=300 lifetime_s=1800 concurrent=2 persistent=no disks_gb=8 spaces_gb=1"
    service = start("free", f"tier_free={tier} checkpoints=3 private_memory=no")
    with service.client(headers={"authorization": f"Bearer {service.keys[0]}"}) as client:
        sandbox = made(client, checkpoint_each_call={"keep": 20})[-36:]
        ids = [one["id"] for one in until_kept(client, sandbox)]
        ids += [call(client, sandbox, mark) for mark in "abc"]
        assert [one["id"] for one in of_calls(client, sandbox)] == ids[1:]
        refused(client.post(f"/v1/sandboxes/{sandbox}/checkpoints"), 429, "cap_reached")
        assert undone(client, sandbox)["checkpoint"] == ids[2]
        ids.append(call(client, sandbox, "d"))
        assert [one["id"] for one in of_calls(client, sandbox)] == [ids[1], ids[2], ids[4]]


def test_what_a_state_comes_from_survives_the_service(start: Callable[..., Service]) -> None:
    server = start()
    with server.client() as client:
        sandbox = made(client, checkpoint_each_call={"keep": 20})[-36:]
        (first,) = until_kept(client, sandbox)
        good = taken(client, sandbox)["id"]
        call(client, sandbox, "a")
        server.tell("fault seed_wait 1")  # the child is not ready when the next checkpoint is taken
        with ThreadPoolExecutor() as threads:
            fork = threads.submit(client.post, f"/v1/sandboxes/{sandbox}/fork", json={"n": 1})
            server.until_waiting(1)
            last = taken(client, sandbox)
            server.tell("go")
            (child,) = fork.result().json()["children"]
        (started,) = client.post(f"/v1/checkpoints/{good}/fork", json={"n": 1}).json()["children"]
        rolled_back(client, sandbox, checkpoint=good)
        last_own = until_taken_up(client, sandbox)["id"]
        deleted = taken(client, sandbox)["id"]
        client.delete("/v1/checkpoints/" + deleted)
        server.wait(lambda f: f["ramet_checkpoints_unstored"] == 0)
        before = client.get("/v1/checkpoints").json()
        boxes = client.get("/v1/sandboxes").json()
    server.restart()
    with server.client() as client:
        assert client.get("/v1/checkpoints").json() == before
        assert [known(one) for one in client.get("/v1/sandboxes").json()] == [known(one) for one in boxes]
        parents = [taken(client, id)["parent"] for id in (sandbox, child, started["id"])]
        assert parents == [last_own, last["parent"], good]
        assert first["id"] == client.get("/v1/checkpoints/" + good).json()["parent"]
        assert marks_undone(client, sandbox) == []


def test_copies_do_not_inherit_it(client: httpx.Client) -> None:
    sandbox = made(client, checkpoint_each_call={"keep": 3})[-36:]
    (first,) = until_kept(client, sandbox)
    (child,) = client.post(f"/v1/sandboxes/{sandbox}/fork", json={"n": 1}).json()["children"]
    started = client.post("/v1/sandboxes", json={"checkpoint": first["id"]}).json()["id"]
    for id in (child, started):
        assert client.get("/v1/sandboxes/" + id).json()["checkpoint_each_call"] is None
        assert of_calls(client, id) == []
    asked = {"checkpoint": first["id"], "checkpoint_each_call": {"keep": 4}}
    other = client.post("/v1/sandboxes", json=asked).json()["id"]
    until_kept(client, other)
