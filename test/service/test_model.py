# SPDX-License-Identifier: Apache-2.0
"""Random steps against a model: creates, calls, checkpoints, starts, forks, rollbacks, merges, freezes,
resumes, undo, deletions, failures, restarts and kills. After each step, all lists and the state of some
sandboxes must be those of the model, and nothing is left at the end.

The fake guests have a mark, as if in memory, and files. Both travel in the files of a snapshot
(test/unit/service/fakes.h), also through the disk and the end of the service. What only real guests have is
not tested here: pages, disk blocks, running programs; test/system does that.

RAMET_MODEL_SECONDS sets how long it runs (default: a fixed number of steps), RAMET_TEST_SEED repeats a run.
"""

from __future__ import annotations

import json
import os
import random
import time
from dataclasses import dataclass, field
from typing import Any, Callable

import pytest

from conftest import Service, refused
from stand_in import pause

SECONDS = float(os.environ.get("RAMET_MODEL_SECONDS", "0"))
SEED = int(os.environ.get("RAMET_TEST_SEED", "0")) or random.randrange(1, 2**32)
STEPS = 60
BOXES, POINTS, SPACES = 10, 14, 4  # more of them are not made
KEEP = 3  # of checkpoint_each_call

State = tuple[str, tuple[str, ...]]  # the mark, and the names of files


@dataclass
class Common:
    """What sandboxes, checkpoints and Spaces have."""

    id: str
    state: State
    root: str
    depth: int
    labels: dict[str, str]
    metadata: dict[str, Any]
    egress: bool
    score: float | None

    def view(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "root": self.root,
            "depth": self.depth,
            "labels": self.labels,
            "metadata": self.metadata,
            "egress": self.egress,
            "score": self.score,
        }


@dataclass
class Box(Common):
    ancestors: list[str] = field(default_factory=list)  # oldest first
    last: str | None = None  # the last checkpoint that its state comes from
    n: int = 0  # names the state that the last event led to
    undoes: bool = False  # it has checkpoint_each_call
    due: bool = False  # so that the service takes a checkpoint


@dataclass
class Point(Common):
    sandbox: str
    ancestors: list[str]  # of what is started from it
    parent: str | None
    n: int
    name: str | None
    pin: bool
    of_call: bool = False
    undone: bool = False

    def view(self) -> dict[str, Any]:
        more = {"sandbox": self.sandbox, "name": self.name, "pin": self.pin, "undone": self.undone}
        return super().view() | more | {"parent": self.parent}


@dataclass
class Space(Common):
    sandbox: str

    def view(self) -> dict[str, Any]:
        return super().view() | {"sandbox": self.sandbox, "state": "frozen"}


class Model:
    def __init__(self, server: Service, rng: random.Random) -> None:
        self.server = server
        self.rng = rng
        self.boxes: dict[str, Box] = {}
        self.points: dict[str, Point] = {}
        self.spaces: dict[str, Space] = {}
        self.limits: dict[str, int] = {}  # `live` of trees that have a budget
        self.n = 0
        self.connect()

    def connect(self) -> None:
        self.http = self.server.client()

    # --- requests

    def ask(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = self.http.request(method, "/v1" + path, json=body)
        assert answer.status_code == status, f"{method} {path} {body}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def refuse(self, path: str, body: Any, status: int, *codes: str) -> None:
        answer = self.http.post("/v1" + path, json=body)
        assert answer.status_code == status and answer.json()["code"] in codes, f"{path} {body}: {answer.text}"

    def run(self, id: str, script: str) -> str:
        answer = self.http.post(f"/v1/sandboxes/{id}/exec", json={"code": script})
        events = [json.loads(line) for line in answer.text.splitlines()]
        assert events and events[-1]["type"] == "exit", f"{id} {script}: {answer.text}"
        return "".join(event["data"] for event in events if event["type"] == "stdout")

    def number(self) -> int:
        self.n += 1
        return self.n

    def new(self, prefix: str) -> str:
        return f"{prefix}{self.number()}"

    # --- what the model knows

    def any(self, of: dict[str, Any]) -> Any:
        return self.rng.choice(list(of.values())) if of else None

    def chance(self, percent: int) -> bool:
        return self.rng.randrange(100) < percent

    def lives(self, id: str) -> bool:
        return id in self.boxes

    def below(self, box: Box) -> list[str]:
        """Returns the ancestors of a child of the sandbox."""
        return [one for one in box.ancestors if self.lives(one)] + [box.id]

    def parent(self, box: Box) -> str | None:
        living = [one for one in box.ancestors if self.lives(one)]
        return living[-1] if living else None

    def live(self, root: str) -> int:
        return sum(one.root == root for one in self.boxes.values())

    def fits(self, root: str, n: int) -> bool:
        return root not in self.limits or self.live(root) + n <= self.limits[root]

    def add(self, id: str, source: Common, **more: Any) -> Box:
        known: dict[str, Any] = {"state": source.state, "root": source.root, "depth": source.depth, "score": None}
        own = known | {"labels": {}, "metadata": source.metadata, "egress": source.egress} | more
        self.boxes[id] = Box(id=id, **own)
        return self.boxes[id]

    def note_point(self, id: str, box: Box, name: str | None, **more: Any) -> Point:
        own: dict[str, Any] = {"labels": {}, "score": None, "pin": False} | more
        self.points[id] = Point(
            id=id, state=box.state, root=box.root, depth=box.depth, metadata=box.metadata, egress=box.egress,
            sandbox=box.id, ancestors=self.below(box), parent=box.last, n=box.n, name=name, **own,
        )  # fmt: skip
        box.last = id
        return self.points[id]

    def drop_point(self, id: str) -> None:
        """What came from the checkpoint comes from the one before it."""
        point = self.points.pop(id)
        for one in self.points.values():
            one.parent = point.parent if one.parent == id else one.parent
        for box in self.boxes.values():
            box.last = point.parent if box.last == id else box.last

    def comes_from(self, box: Box) -> set[str]:
        """Returns all checkpoints that the state of the sandbox comes from."""
        found: set[str] = set()
        at = box.last
        while at:
            found.add(at)
            at = self.points[at].parent
        return found

    def moved(self, box: Box, n: int, last: str | None) -> None:
        """The sandbox got another state."""
        box.n, box.last, box.due = n, last, box.undoes
        line = self.comes_from(box)
        for one in self.points.values():
            if one.of_call and one.sandbox == box.id:
                one.undone = one.id not in line

    # --- steps: each returns what it has done, or "" if it can't be done now

    def create(self) -> str:
        if len(self.boxes) >= BOXES:
            return ""
        body: dict[str, Any] = {"metadata": {"n": self.n}, "egress": self.chance(80)}
        if self.chance(40):
            body["labels"] = {"made": self.new("l")}
        if self.chance(50):
            body["tree"] = {"live": self.rng.randrange(1, 6)}
        if self.chance(30):
            body["checkpoint_each_call"] = {"keep": KEEP}
        id = self.ask("POST", "/sandboxes", body, 201)["id"]
        if "tree" in body:
            self.limits[id] = body["tree"]["live"]
        self.boxes[id] = Box(
            id=id, state=("", ()), root=id, depth=0, labels=body.get("labels", {}), metadata=body["metadata"],
            egress=body["egress"], score=None, n=self.number(),
        )  # fmt: skip
        self.boxes[id].undoes = self.boxes[id].due = "checkpoint_each_call" in body
        return f"create {id} {body}"

    def call(self) -> str:
        box = self.any(self.boxes)
        if not box:
            return ""
        mark, files = box.state
        if self.chance(30) and len(files) < 50:
            self.n += 1
            name = f"/root/f{self.n:06}"  # a guest lists them in order
            box.state = (mark, (*files, name))
            script = f"tree {name} 100644 x"
        else:
            box.state = (self.new("m"), files)
            script = f"mark {box.state[0]}"
        self.run(box.id, script)
        box.n, box.due = self.number(), box.undoes
        return f"call {box.id}: {script}"

    def take(self) -> str:
        box = self.any(self.boxes)
        if not box or len(self.points) >= POINTS:
            return ""
        body: dict[str, Any] = {"labels": {"l": self.new("l")}, "pin": self.chance(20)}
        if self.chance(50):
            body["name"] = self.new("n")
        found = self.ask("POST", f"/sandboxes/{box.id}/checkpoints", body, 201)
        self.note_point(found["id"], box, body.get("name"), labels=body["labels"], pin=body["pin"])
        return f"take {found['id']} of {box.id} {body}"

    def change_point(self) -> str:
        point = self.any(self.points)
        if not point:
            return ""
        body: dict[str, Any] = {"score": self.rng.randrange(9), "pin": self.chance(30)}
        if self.chance(50):
            body["labels"] = {"changed": self.new("l")}
        self.ask("PATCH", "/checkpoints/" + point.id, body)
        for name, value in body.items():
            setattr(point, name, value)
        return f"change {point.id} {body}"

    def change_box(self) -> str:
        box = self.any(self.boxes)
        if not box:
            return ""
        box.score, box.labels = float(self.rng.randrange(9)), {"changed": self.new("l")}
        self.ask("PATCH", "/sandboxes/" + box.id, {"score": box.score, "labels": box.labels})
        return f"change {box.id}"

    def is_needed(self, point: Point) -> bool:
        """The service does not take another checkpoint of a state after one of a call was deleted."""
        return point.of_call and self.lives(point.sandbox)

    def delete_point(self) -> str:
        point = self.any({id: one for id, one in self.points.items() if not self.is_needed(one)})
        if not point:
            return ""
        if point.pin:
            refused(self.http.delete("/v1/checkpoints/" + point.id), 409, "pinned")
            return f"delete {point.id}: pinned"
        self.ask("DELETE", "/checkpoints/" + point.id, None, 204)
        self.drop_point(point.id)
        return f"delete {point.id}"

    def prune(self) -> str:
        keep = self.rng.randrange(2, POINTS)
        order = [one["id"] for one in self.ask("GET", "/checkpoints")]
        surplus = [id for id in reversed(order[: max(len(order) - keep, 0)]) if not self.points[id].pin]
        needed = any(self.is_needed(self.points[id]) for id in surplus)
        body = {"keep": keep, "dry_run": needed or self.chance(30)}
        assert self.ask("POST", "/checkpoints/prune", body)["checkpoints"] == surplus
        for id in surplus if not body["dry_run"] else []:
            self.drop_point(id)
        return f"prune {body}: {surplus}"

    def fork(self) -> str:
        box, n = self.any(self.boxes), self.rng.randrange(1, 4)
        if not box or len(self.boxes) + n > BOXES:
            return ""
        body = {"n": n, "labels": {"forked": self.new("l")}}
        path = f"/sandboxes/{box.id}/fork"
        if not self.fits(box.root, n):
            self.refuse(path, body, 429, "tree_limit")
            return f"fork {box.id} into {n}: tree_limit"
        if self.chance(15):
            self.server.tell(f"fault {self.rng.choice(['fork', 'reseed'])} 1")
            self.refuse(path, body, 503, "fork_failed", "vm_failed")
            return f"fork {box.id} into {n}: failed"
        children = self.ask("POST", path, body)["children"]
        for id in children:
            child = self.add(id, box, ancestors=self.below(box), depth=box.depth + 1, labels=body["labels"])
            child.last, child.n = box.last, box.n
        return f"fork {box.id} into {children}"

    def start(self) -> str:
        """Starts sandboxes from a checkpoint or a Space."""
        source, n = self.any(self.points if self.chance(70) else self.spaces), self.rng.randrange(1, 4)
        if not source or len(self.boxes) + n > BOXES:
            return ""
        is_point = isinstance(source, Point)
        body = {"n": n, "labels": {"started": self.new("l")}}
        path = f"/{'checkpoints' if is_point else 'spaces'}/{source.id}/fork"
        if not self.fits(source.root, n):
            self.refuse(path, body, 429, "tree_limit")
            return f"start {n} from {source.id}: tree_limit"
        failing = self.rng.randrange(n + 1) if self.chance(15) else 0
        if failing:
            self.server.tell(f"fault reseed {failing}")
        if failing == n:
            self.refuse(path, body, 503, "vm_failed")
            return f"start {n} from {source.id}: failed"
        children = self.ask("POST", path, body)["children"]
        made = [one["id"] for one in children if "id" in one]
        assert len(made) == n - failing, children
        for id in made:
            self.started(id, source, labels=body["labels"])
        return f"start {made} from {source.id}, {failing} fail"

    def started(self, id: str, source: Any, **more: Any) -> Box:
        if not isinstance(source, Point):
            return self.add(id, source, n=self.number(), **more)
        place: dict[str, Any] = {"ancestors": source.ancestors, "depth": source.depth + 1}
        place |= {"last": source.id, "n": source.n}
        return self.add(id, source, **place, **more)

    def create_from(self) -> str:
        point = self.any(self.points)
        if not point or len(self.boxes) >= BOXES:
            return ""
        body: dict[str, Any] = {"checkpoint": point.id}
        if self.chance(50):
            body["metadata"] = {"n": self.n}
        if self.chance(30):
            body["egress"] = False
        if not self.fits(point.root, 1):
            self.refuse("/sandboxes", body, 429, "tree_limit")
            return f"create from {point.id}: tree_limit"
        id = self.ask("POST", "/sandboxes", body, 201)["id"]
        more = {name: value for name, value in body.items() if name != "checkpoint"}
        self.started(id, point, **more)
        return f"create {id} from {point.id} {more}"

    def rollback(self) -> str:
        box, point = self.any(self.boxes), self.any(self.points)
        if not box or not point:
            return ""
        if self.chance(70):  # usually to one of its own
            point = self.any({id: one for id, one in self.points.items() if one.sandbox == box.id}) or point
        body: dict[str, Any] = {"checkpoint": point.id}
        if self.chance(30) and len(self.points) < POINTS:
            body["keep"] = self.new("k")
        path = f"/sandboxes/{box.id}/rollback"
        if self.chance(15) and "keep" not in body:
            self.server.tell("fault reseed 1")
            self.refuse(path, body, 503, "vm_failed")
            return f"rollback {box.id} to {point.id}: failed"
        found = self.ask("POST", path, body)
        assert (found["id"], found["checkpoint"]) == (box.id, point.id)
        assert (found["kept"] is None) == ("keep" not in body)
        if found["kept"]:
            self.note_point(found["kept"], box, body["keep"])
        self.went_back(box, point)
        return f"rollback {box.id} to {point.id} {found['kept']}"

    def went_back(self, box: Box, point: Point) -> None:
        self.moved(box, point.n, point.id)
        box.due = box.undoes and not (point.of_call and point.sandbox == box.id)
        box.state, box.egress = point.state, box.egress and point.egress

    def undo(self) -> str:
        box = self.any({id: one for id, one in self.boxes.items() if one.undoes})
        if not box:
            return ""
        n = self.rng.randrange(1, 4)
        line = self.line(box)
        path = f"/sandboxes/{box.id}/undo"
        if len(line) <= n:
            self.refuse(path, {"n": n}, 409, "no_undo")
            return f"undo {n} of {box.id}: no_undo"
        found = self.ask("POST", path, {"n": n})
        assert found["checkpoint"] == line[-1 - n].id, f"{found}, not {line[-1 - n]}"
        self.went_back(box, line[-1 - n])
        return f"undo {n} of {box.id}: {found['checkpoint']}"

    def line(self, box: Box) -> list[Point]:
        """Returns the states to which the sandbox can be undone, oldest first, the newest checkpoint of each."""
        order = [self.points[one["id"]] for one in self.ask("GET", "/checkpoints") if one["id"] in self.points]
        own = [one for one in order if one.sandbox == box.id and one.of_call and not one.undone]
        return [one for one, later in zip(own, [*own[1:], None]) if not later or later.n != one.n]

    def merge(self) -> str:
        parent, winner = self.any(self.boxes), self.any(self.boxes)
        if not parent or parent is winner:
            return ""
        own = {id: one for id, one in self.boxes.items() if parent.id in one.ancestors}
        winner = self.any(own) if self.chance(80) and own else winner
        path = f"/sandboxes/{parent.id}/merge_into/{winner.id}"
        if parent.id not in winner.ancestors:
            self.refuse(path, None, 409, "not_a_descendant")
            return f"merge {parent.id} into {winner.id}: refused"
        self.ask("POST", path, None, 204)
        del self.boxes[winner.id]
        for one in self.boxes.values():
            if winner.id in one.ancestors:
                line = [id for id in one.ancestors if id != parent.id]
                one.ancestors = [parent.id if id == winner.id else id for id in line]
        parent.state, parent.egress = winner.state, parent.egress and winner.egress
        self.moved(parent, self.number() if parent.undoes else winner.n, winner.last)
        return f"merge {parent.id} into {winner.id}"

    def freeze(self) -> str:
        box = self.any(self.boxes)
        if not box or len(self.spaces) >= SPACES:
            return ""
        path = f"/sandboxes/{box.id}/freeze"
        if self.chance(15):
            self.server.tell("fault fork 1")
            self.refuse(path, None, 503, "freeze_failed")
            return f"freeze {box.id}: failed"
        id = self.ask("POST", path)["space_id"]
        of = (box.state, box.root, box.depth, box.labels, box.metadata, box.egress, box.score)
        self.spaces[id] = Space(id, *of, sandbox=box.id)
        del self.boxes[box.id]
        return f"freeze {box.id} to {id}"

    def resume(self) -> str:
        space = self.any(self.spaces)
        if not space or len(self.boxes) >= BOXES:
            return ""
        path = f"/spaces/{space.id}/resume"
        if not self.fits(space.root, 1):
            self.refuse(path, None, 429, "tree_limit")
            return f"resume {space.id}: tree_limit"
        if self.chance(15):
            self.server.tell("fault reseed 1")
            self.refuse(path, None, 503, "vm_failed")
            return f"resume {space.id}: failed"
        id = self.ask("POST", path, None, 201)["id"]
        self.add(id, space, labels=space.labels, score=space.score, n=self.number())
        del self.spaces[space.id]
        return f"resume {space.id} as {id}"

    def delete_space(self) -> str:
        space = self.any(self.spaces)
        if not space:
            return ""
        self.ask("DELETE", "/spaces/" + space.id, None, 204)
        del self.spaces[space.id]
        return f"delete {space.id}"

    def delete(self) -> str:
        box = self.any(self.boxes)
        if not box:
            return ""
        self.ask("DELETE", "/sandboxes/" + box.id, None, 204)
        del self.boxes[box.id]
        return f"delete {box.id}"

    def delete_tree(self) -> str:
        """Ends a sandbox with its descendants, or a whole tree whose root is given."""
        box = self.any(self.boxes)
        if not box:
            return ""
        self.ask("DELETE", "/trees/" + box.id, None, 204)
        is_root = box.id == box.root
        for one in list(self.boxes.values()):
            if (is_root and one.root == box.root) or one is box or box.id in one.ancestors:
                del self.boxes[one.id]
        return f"delete {box.id} and all below"

    def abandon(self) -> str:
        """The client leaves in the middle of a request whose result nobody wants then."""
        box, point = self.any(self.boxes), self.any(self.points)
        paths = [f"/sandboxes/{box.id}/{what}" for what in ("fork", "checkpoints")] if box else []
        paths += [f"/checkpoints/{point.id}/fork"] if point else []
        if not paths:
            return ""
        path = self.rng.choice(paths)
        body = b'{"n": 1}' if path.endswith("fork") else b"{}"
        root = point.root if path.startswith("/check") else box.root
        if path.endswith("fork") and not self.fits(root, 1):
            return ""
        fault = "seed_wait" if path.startswith("/check") else "fork_wait"
        self.server.tell(f"fault {fault} 1")
        head = f"POST /v1{path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        with self.server.connect() as s:
            s.sendall(head.encode() + body)
            self.server.until_waiting(1)
        self.server.until_idle()
        self.server.tell("go")
        return f"abandon {path}"

    # --- the service ends

    def until_stored(self) -> None:
        self.server.wait(lambda now: now["ramet_checkpoints_unstored"] == 0)

    def restarted(self, stored: set[str]) -> None:
        """Those that were in memory only may be lost."""
        self.connect()
        found = {one["id"] for one in self.ask("GET", "/checkpoints")}
        assert stored <= found, stored - found
        for id in set(self.points) - found:
            self.drop_point(id)

    def stored(self) -> set[str]:
        if self.chance(50):
            self.until_stored()
        return {one["id"] for one in self.ask("GET", "/checkpoints") if one["state"] == "stored"}

    def restart(self) -> str:
        stored = self.stored()
        self.http.close()
        self.server.restart()
        self.restarted(stored)
        for box in self.boxes.values():
            line = self.line(box)
            box.due = box.undoes and (not line or line[-1].n != box.n)
            path = f"/v1/sandboxes/{box.id}/diff/{box.id}"
            while self.http.post(path, json={"paths": ["/root"]}).status_code == 503:
                pause()  # it is being reconnected
        return "restart"

    def kill(self) -> str:
        """Kills the service and all VMs."""
        stored = self.stored()
        self.http.close()
        self.server.kill()
        self.server.start("max_vms=64")
        self.restarted(stored)
        self.boxes.clear()
        return "kill"

    # --- checks

    def settle(self) -> None:
        """Waits until the state of each sandbox with checkpoint_each_call is kept, and notes how."""
        for box in [one for one in self.boxes.values() if one.due]:
            while all(one["id"] in self.points for one in self.of_calls(box)):
                pause()  # the test's timeout ends it
            self.note_kept(box)
            box.due = False

    def of_calls(self, box: Box) -> list[dict[str, Any]]:
        listed = self.ask("GET", "/checkpoints?sandbox=" + box.id)
        return [one for one in listed if one["call"] is not None]

    def note_kept(self, box: Box) -> None:
        found = self.of_calls(box)
        (new,) = [one["id"] for one in found if one["id"] not in self.points]
        self.note_point(new, box, None, of_call=True)
        order = [one["id"] for one in found]
        for undone in (False, True):
            own = [one for one in self.points.values() if one.of_call and one.sandbox == box.id and one.undone == undone]
            gone = [one for one in own if one.id not in order]
            assert len(own) - len(gone) <= KEEP + sum(one.pin for one in own), own
            for one in gone:
                assert not one.pin and len(own) > KEEP, one
                self.drop_point(one.id)

    def compare(self, path: str, known: dict[str, Any], view: Callable[[Any], dict[str, Any]]) -> None:
        found = {one["id"]: one for one in self.ask("GET", path)}
        assert set(found) == set(known), f"{path}: {set(found) ^ set(known)}"
        for id, one in known.items():
            expected = view(one)
            assert {name: found[id][name] for name in expected if name in found[id]} == expected, path

    def view_of_box(self, box: Box) -> dict[str, Any]:
        return box.view() | {"parent": self.parent(box), "state": "ready"}

    def check_state(self, box: Box) -> None:
        if not box.undoes:  # a call would be one more to undo
            assert self.run(box.id, "marked").strip() == box.state[0], box
            box.n = self.number()
        other = self.any(self.boxes)
        found = self.ask("POST", f"/sandboxes/{box.id}/diff/{other.id}", {"paths": ["/root"]})
        ours, theirs = set(box.state[1]), set(other.state[1])
        assert (set(found["added"]), set(found["removed"])) == (theirs - ours, ours - theirs), (box, other)
        line = self.comes_from(box)
        for one in self.ask("GET", f"/sandboxes/{box.id}/history"):
            assert not (one["undone"] and one.get("checkpoint") in line), (box, one)

    def check_tree(self, root: str) -> None:
        tree = self.ask("GET", "/trees/" + root)
        nodes = {one.id for one in self.boxes.values() if one.root == root}
        assert {one["id"] for one in tree["nodes"]} == nodes and tree["live"] == len(nodes)
        assert tree["ram_mib"] == 128 * len(nodes)
        assert {one["id"] for one in tree["spaces"]} == {o.id for o in self.spaces.values() if o.root == root}
        assert tree["tree"] == ({"live": self.limits[root], "at_limit": "refuse"} if root in self.limits else None)

    def check(self) -> None:
        self.settle()
        self.compare("/sandboxes", self.boxes, self.view_of_box)
        self.compare("/checkpoints", self.points, Point.view)
        self.compare("/spaces", self.spaces, Space.view)
        for _ in range(min(2, len(self.boxes))):
            self.check_state(self.any(self.boxes))
        source = self.any({**self.boxes, **self.points, **self.spaces})
        if source and (isinstance(source, Box) or source.root in {one.root for one in self.boxes.values()}):
            self.check_tree(source.root)

    STEPS = (
        [create, rollback, take, call] * 4 + [fork, start, undo, merge] * 3 + [freeze, resume, create_from] * 2
        + [change_point, change_box, delete_point, delete_space, prune, delete, delete_tree, abandon]
        + [restart, kill]
    )  # fmt: skip

    def step(self) -> None:
        done = self.rng.choice(self.STEPS)(self)
        if not done:
            return
        print(done)
        self.check()

    def end(self) -> None:
        """Checks the state of each checkpoint and Space, deletes all, and checks that nothing is left."""
        for box in list(self.boxes):
            self.ask("DELETE", "/sandboxes/" + box, None, 204)
        self.boxes.clear()
        for source in [*self.points.values(), *self.spaces.values()]:
            kind = "checkpoints" if isinstance(source, Point) else "spaces"
            (child,) = self.ask("POST", f"/{kind}/{source.id}/fork", {"n": 1})["children"]
            self.check_state(self.started(child["id"], source))
            self.ask("DELETE", "/sandboxes/" + child["id"], None, 204)
            self.boxes.clear()
        self.server.clear(self.http)
        zero = ("sandboxes", "operations", "checkpoints", "checkpoints_bytes", "checkpoints_unstored", "spaces",
                "spaces_bytes", "trees", "memory_private_bytes", "memory_shared_bytes", "output_held_bytes")  # fmt: skip
        self.server.wait(lambda now: not any(now["ramet_" + name] for name in zero))
        folder = self.server.home / "service/state/spaces"
        while list(folder.iterdir()):  # removed in the background; the test's timeout ends it
            pause()
        self.http.close()


@pytest.mark.timeout(600 + 2 * SECONDS)
def test_random_steps(start: Callable[..., Service]) -> None:
    print(f"RAMET_TEST_SEED={SEED}")
    server = start()
    end, steps = time.monotonic() + SECONDS, 0
    model = Model(server, random.Random(SEED))
    while steps < STEPS or time.monotonic() < end:
        model.step()
        steps += 1
    model.end()
