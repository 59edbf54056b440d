# SPDX-License-Identifier: Apache-2.0
"""Three-way merges of files, and diffs of a text: each sandbox has a real agent, and a folder of its own.

The agents run on this machine, each with file systems of its own mounted on one folder and on /var/tmp. A
fork copies nothing, so the tests write the files of the fork into each sandbox.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator

import httpx
import pytest

from conftest import NOBODY, Service, made, refused
from stand_in import AGENT, pause

SLOTS = 12
AS_A_GUEST = """
set -e
mount -t tmpfs none "$1"
mount -t tmpfs none /var/tmp
exec "$2" agent --unix "$3" --run-dir "$3.run" --dry-run-system
"""
LINES = "".join(f"line {i}\n" for i in range(1, 11))

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts file systems")


@pytest.fixture(scope="module")
def root() -> Iterator[str]:
    """The folder that each sandbox has for itself."""
    path = tempfile.mkdtemp(prefix="ramet-merged-")
    yield path
    os.rmdir(path)


@contextmanager
def service_with(root: str, slots: int, home: Path) -> Iterator[Service]:
    """A service whose VMs have an agent each; the block stops it."""
    sockets = Path(tempfile.mkdtemp(prefix="ramet-agents-"))  # a short path
    env = {**os.environ, "PATH": f"{root}/bin:{os.environ['PATH']}"}
    agents, logs = [], [sockets / f"{slot}.log" for slot in range(slots)]
    for slot, log_path in enumerate(logs):
        words = ["unshare", "--mount", "sh", "-c", AS_A_GUEST, "sh", root, AGENT, f"{sockets}/{slot}"]
        with log_path.open("wb") as log:
            agents.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=log, env=env))
    for agent, log_path in zip(agents, logs):
        while b"agent ready" not in log_path.read_bytes():
            assert agent.poll() is None, log_path.read_text()
            pause()
    yield Service(home, f"max_vms={slots}", f"agent={sockets}/%", agent=False)
    for agent in agents:
        agent.kill()
        agent.wait()
    shutil.rmtree(sockets)


@pytest.fixture(scope="module")
def guests(root: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_with(root, SLOTS, tmp_path_factory.mktemp("home")) as started:
        yield started
        started.stop()


@pytest.fixture
def http(guests: Service) -> Iterator[httpx.Client]:
    with guests.client() as client:
        client.timeout = httpx.Timeout(600)  # a merge runs several programs, on a machine of any speed
        yield client


class Family:
    """A parent and three children of one fork: the base and two branches."""

    def __init__(self, http: httpx.Client, root: str) -> None:
        self.http, self.top, self.root = http, root, f"{root}/work"
        self.parent = made(http)
        children = http.post(self.parent + "/fork", json={"n": 3}).json()["children"]
        self.base, self.a, self.b = ("/v1/sandboxes/" + child for child in children)
        self.all = (self.parent, self.base, self.a, self.b)
        self.ids = dict(zip(("parent", "base", "a", "b"), (one[-36:] for one in self.all)))

    def put(self, name: str, content: str | bytes, *sandboxes: str) -> None:
        """Writes a file, into all sandboxes unless some are named."""
        for sandbox in sandboxes or self.all:
            answer = self.http.put(f"{sandbox}/files", params={"path": f"{self.root}/{name}"}, content=content)
            assert answer.status_code == 204, answer.text

    def remove(self, path: str, sandbox: str) -> int:
        return self.http.delete(f"{sandbox}/files", params={"path": path, "recursive": "true"}).status_code

    def end(self, sandbox: str) -> None:
        """Deletes the sandbox and its files, which the slot's next one would see."""
        for path in [f"{self.top}/work", f"{self.top}/bin", *self.temporary(sandbox)]:
            self.remove(path, sandbox)
        self.http.delete(sandbox)

    def temporary(self, *sandboxes: str) -> list[str]:
        """Returns the temporary files of merges in the sandboxes."""
        found = []
        for sandbox in sandboxes:
            for top in (self.top, "/var/tmp"):
                params: dict[str, str | int] = {"path": top, "depth": 8}
                entries = self.http.get(f"{sandbox}/files/list", params=params).json().get("entries", [])
                found += [f"{top}/{one['name']}" for one in entries if ".ramet" in one["name"]]
        return found

    def until_nothing_is_temporary(self) -> None:
        """Waits for the end of what goes on when a merge fails; the test's timeout ends it."""
        while self.temporary(*self.all):
            pause()

    def runs(self, sandbox: str) -> bool:
        """Returns whether a program runs in the sandbox."""
        return any(one["state"] == "running" for one in self.http.get(f"{sandbox}/processes").json())

    def read(self, name: str, sandbox: str = "") -> str:
        answer = self.http.get(f"{sandbox or self.parent}/files", params={"path": f"{self.root}/{name}"})
        return answer.text if answer.status_code == 200 else f"{answer.status_code}"

    def merge(self, *branches: str, **more: Any) -> httpx.Response:
        body = {
            "branches": [one[-36:] for one in branches or (self.a, self.b)],
            "base": self.ids["base"],
            "paths": [self.root],
            **more,
        }
        return self.http.post(self.parent + "/merge-files", json=body)

    def merged(self, *branches: str, **more: Any) -> dict[str, Any]:
        answer = self.merge(*branches, **more)
        assert answer.status_code == 200, answer.text
        assert self.temporary(*self.all) == []
        got = answer.json()
        assert isinstance(got, dict)
        for one in got["taken"] + got["conflicts"]:
            one["path"] = one["path"].removeprefix(self.root + "/")
            one["branches"] = [{v: k for k, v in self.ids.items()}[id] for id in one["branches"]]
        return got


@pytest.fixture
def family(http: httpx.Client, root: str) -> Iterator[Family]:
    made_family = Family(http, root)
    yield made_family
    for sandbox in made_family.all:
        made_family.end(sandbox)


def taken(path: str, change: str, *branches: str) -> dict[str, Any]:
    return {"path": path, "branches": list(branches), "change": change}


def conflict(path: str, reason: str, resolution: str | None, *branches: str) -> dict[str, Any]:
    return {"path": path, "branches": list(branches), "reason": reason, "resolution": resolution}


def test_changes_of_branches_come_into_the_parent(family: Family) -> None:
    f = family
    for name in ("changed", "gone", "text"):
        f.put(name, LINES)
    f.put("text", LINES.replace("line 1\n", "parent\n"), f.parent)
    f.put("text", LINES.replace("line 5", "a"), f.a)
    f.put("text", LINES.replace("line 9", "b"), f.b)
    f.put("changed", "new", f.a, f.b)
    f.put("mine", "kept", f.parent)
    f.put("deep/in/added", b"\0\xff" * 300_000, f.b)
    assert f.remove(f"{f.root}/gone", f.a) == 204
    got = f.merged()
    assert got["taken"] == [
        taken("changed", "modified", "a", "b"),
        taken("deep", "added", "b"),
        taken("deep/in", "added", "b"),
        taken("deep/in/added", "added", "b"),
        taken("gone", "removed", "a"),
        taken("text", "merged", "a", "b"),
    ]
    assert (got["conflicts"], got["applied"]) == ([], True)
    assert got["branches"] == [
        {"id": f.ids["a"], "changed": 3, "conflicts": 0},
        {"id": f.ids["b"], "changed": 5, "conflicts": 0},
    ]
    text = LINES.replace("line 1\n", "parent\n").replace("line 5", "a").replace("line 9", "b")
    assert (f.read("text"), f.read("changed"), f.read("mine"), f.read("gone")) == (text, "new", "kept", "404")
    path = {"path": f"{f.root}/deep/in/added"}
    assert f.http.get(f"{f.parent}/files", params=path).content == b"\0\xff" * 300_000
    assert f.merged()["taken"] == []  # once more: nothing is left to do


def test_nothing_is_written_if_there_is_a_conflict(family: Family) -> None:
    f = family
    f.put("text", LINES)
    f.put("text", LINES.replace("line 5", "a"), f.a)
    f.put("text", LINES.replace("line 5", "b"), f.b)
    f.put("new", "x", f.a)
    got = f.merged()
    assert got["conflicts"] == [conflict("text", "content", None, "a", "b")]
    assert (got["taken"], got["applied"]) == ([taken("new", "added", "a")], False)
    assert (f.read("text"), f.read("new")) == (LINES, "404")
    got = f.merged(conflicts="markers")
    assert (got["conflicts"], got["applied"]) == ([conflict("text", "content", "markers", "a", "b")], True)
    assert "=======\nb\n>>>>>>> " + f.ids["b"] in f.read("text")
    assert f.read("new") == "x"


@pytest.mark.parametrize(("policy", "winner"), [("ours", "a"), ("theirs", "b")])
def test_policy_decides_between_branches(family: Family, policy: str, winner: str) -> None:
    f = family
    f.put("file", b"\0")
    f.put("file", b"\0a", f.a)
    f.put("file", b"\0b", f.b)
    got = f.merged(conflicts=policy)
    assert got["conflicts"] == [conflict("file", "binary", policy, "a", "b")]
    assert f.read("file") == "\0" + winner


def test_names_need_not_be_text(family: Family) -> None:
    f = family
    f.put("kept", "x")
    path = os.fsencode(f.root) + b"/\xff"
    url = f"{f.a}/files?path=" + "".join(f"%{byte:02x}" for byte in path)
    assert f.http.put(url, content="x").status_code == 204
    (one,) = f.merge(f.a).json()["taken"]
    assert one["path"].endswith("/\ufffd") and one["path_b64"]
    assert f.http.get(url.replace(f.a, f.parent)).text == "x"


def test_parent_that_changes_nothing_and_equal_branches_have_nothing_to_do(family: Family) -> None:
    assert family.merged() == {
        "taken": [], "conflicts": [], "applied": True,
        "branches": [{"id": family.ids[one], "changed": 0, "conflicts": 0} for one in ("a", "b")],
    }  # fmt: skip


def test_what_cannot_be_merged_is_refused(family: Family, http: httpx.Client) -> None:
    f = family
    other = made(http)
    (later,) = http.post(f.parent + "/fork", json={"n": 1}).json()["children"]
    cases: list[tuple[dict[str, Any], int, str, str]] = [
        ({"branches": [other[-36:]]}, 409, "not_a_descendant", "does not descend from"),
        ({"base": other[-36:]}, 409, "not_a_descendant", "does not descend from"),
        ({"base": later}, 409, "not_a_descendant", "was forked later than"),
        ({"base": f.ids["a"]}, 400, "out_of_range", "is the base and a branch"),
        ({"base": NOBODY[-36:]}, 404, "not_found", "no sandbox"),
        ({"branches": [f.ids["a"]] * 2}, 400, "bad_request", "twice"),
        ({"branches": ["a"]}, 400, "bad_request", "is not the id of a sandbox"),
        ({"branches": []}, 400, "bad_request", "1 to 16 ids"),
        ({"branches": [f.ids["a"]] * 17}, 400, "bad_request", "at most 16"),
        ({"base": "x"}, 400, "bad_request", "is not the id of a sandbox"),
        ({"base": None}, 400, "bad_request", "base"),
        ({"conflicts": "guess"}, 400, "bad_request", "markers"),
        ({"paths": ["/a/../b"]}, 400, "bad_request", "without .."),
    ]
    for body, status, code, text in cases:
        assert text in refused(f.merge(**body), status, code)
    http.delete(other)
    http.delete("/v1/sandboxes/" + later)


def test_grandchildren_are_merged_with_the_base_of_their_parents_fork(family: Family) -> None:
    f = family
    (grandchild,) = f.http.post(f.a + "/fork", json={"n": 1}).json()["children"]
    path = "/v1/sandboxes/" + grandchild
    f.put("kept", "x", *f.all, path)
    f.put("new", "x", path)
    got = f.merge(path)
    assert [one["change"] for one in got.json()["taken"]] == ["added"]
    refusal = f.http.post(
        f.parent + "/merge-files", json={"branches": [f.ids["b"]], "base": grandchild, "paths": [f.root]}
    )
    assert "is not a child of" in refused(refusal, 409, "not_a_descendant")
    f.end(path)


def test_text_diff(family: Family) -> None:
    f = family
    f.put("text", LINES)
    f.put("text", LINES.replace("line 5", "a"), f.a)
    params = {"path": f"{f.root}/text"}
    answer = f.http.get(f"{f.parent}/diff/{f.ids['a']}", params=params)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/x-diff")
    head = f"--- {f.ids['parent']}:{params['path']}\n+++ {f.ids['a']}:{params['path']}\n@@ -2,7 +2,7 @@\n"
    assert answer.text.startswith(head) and "\n-line 5\n+a\n" in answer.text
    assert f.http.get(f"{f.parent}/diff/{f.ids['b']}", params=params).text == ""
    f.put("bytes", b"\0", f.a)
    for path, status, code in ((f"{f.root}/none", 404, "no_such_file"), (f"{f.root}/bytes", 409, "not_a_file")):
        refused(f.http.get(f"{f.parent}/diff/{f.ids['a']}", params={"path": path}), status, code)
    refused(f.http.get(f"{f.parent}/diff/{f.ids['a']}"), 400, "bad_path")
    f.until_nothing_is_temporary()


# --- hostile guests ---

PROGRAM = """#!{python}
import io, os, sys, tarfile, time
command, argument = sys.argv[5:7]
def send(name, kind=tarfile.REGTYPE, data=b"", target=""):
    member = tarfile.TarInfo(name)
    member.type, member.size, member.linkname = kind, len(data), target
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
        archive.addfile(member, io.BytesIO(data))
{body}
"""


def replace_python(f: Family, sandbox: str, body: str) -> None:
    """Has the sandbox run this instead of python3: it is the first one in the agent's PATH."""
    program = PROGRAM.format(python=sys.executable, body=body)
    params = {"path": f"{f.top}/bin/python3", "mode": "0755"}
    assert f.http.put(f"{sandbox}/files", params=params, content=program).status_code == 204


PACK = "os.unlink(argument); "


@pytest.mark.parametrize(
    ("body", "status", "code", "text"),
    [
        (PACK + "os.write(1, os.urandom(100_000))", 400, "bad_archive", ""),
        (PACK + "send('../../evil', data=b'x')", 400, "bad_archive", "refused"),
        (PACK + "send('/var/tmp/evil', data=b'x')", 400, "bad_archive", "absolute"),
        (PACK + "send('0', tarfile.CHRTYPE)", 400, "bad_archive", ""),
        ("os.write(2, b'no \\x1b[31m' + b'x' * 9999); sys.exit(1)", 500, "agent_error", "xxx"),
        ("sys.exit(127)", 409, "not_installed", "python3"),
        ("sys.exit(4)", 409, "file_changed", ""),
    ],
)
def test_branch_that_sends_something_else_changes_nothing(
    family: Family, body: str, status: int, code: str, text: str
) -> None:
    f = family
    f.put("file", "old")
    f.put("file", "new", f.a)
    replace_python(f, f.a, body)
    assert text in refused(f.merge(f.a), status, code)
    assert f.read("file") == "old"
    f.until_nothing_is_temporary()
    answer = f.http.get(f"{f.parent}/files/stat", params={"path": "/var/tmp/evil"})
    refused(answer, 404, "no_such_file")


@pytest.mark.parametrize("body", ["send('7', data=b'x')", "send('0', tarfile.FIFOTYPE)"])
def test_branch_that_does_not_send_a_file_has_a_conflict(family: Family, body: str) -> None:
    f = family
    f.put("file", "old")
    f.put("file", "new", f.a)
    replace_python(f, f.a, PACK + body)
    got = f.merged(f.a, conflicts="theirs")
    assert got["conflicts"] == [conflict("file", "unreadable", None, "a")]
    assert f.read("file") == "old"


@pytest.mark.parametrize(
    ("output", "code"),
    [("", "agent_error"), ("a.a.", "too_large"), ("a", "agent_error"), ("?.", "agent_error"), ("a-", "agent_error")],
)
def test_parent_that_says_nonsense_is_refused(family: Family, output: str, code: str) -> None:
    f = family
    f.put("file", "old")
    f.put("file", "new", f.a)
    replace_python(f, f.parent, f"sys.stdout.write({output!r}); import shutil; shutil.rmtree(argument)")
    refused(f.merge(f.a), 413 if code == "too_large" else 500, code)


def test_client_that_leaves_ends_the_merge(family: Family, guests: Service) -> None:
    f = family
    f.put("file", "old")
    f.put("file", "new", f.a)
    replace_python(f, f.a, "time.sleep(1000)")
    with guests.client() as impatient, pytest.raises(httpx.ReadTimeout):
        body = {"branches": [f.ids["a"]], "base": f.ids["base"], "paths": [f.root]}
        impatient.post(f.parent + "/merge-files", json=body, timeout=2)
    while f.runs(f.a):
        pause()
    f.until_nothing_is_temporary()
    guests.until_idle()
    assert f.read("file") == "old"


def endless_merge(f: Family, pool: ThreadPoolExecutor) -> Future[httpx.Response]:
    """Begins a merge of a branch that never sends its file."""
    f.put("file", "old")
    f.put("file", "new", f.a)
    started = f"{f.top}/bin/started"
    replace_python(f, f.a, f"open({started!r}, 'w').close(); time.sleep(1000)")
    merge = pool.submit(f.merge, f.a)
    while f.http.get(f"{f.a}/files/stat", params={"path": started}).status_code != 200:
        pause()
    return merge


def test_sandbox_that_ends_during_a_merge_ends_it(family: Family) -> None:
    f = family
    with ThreadPoolExecutor() as pool:
        merge = endless_merge(f, pool)
        f.end(f.a)
        refused(merge.result(), 404, "deleted")
    assert f.read("file") == "old"


@pytest.mark.parametrize("who", ["a", "parent"])
def test_a_rollback_during_a_merge_ends_it(
    root: str, tmp_path_factory: pytest.TempPathFactory, who: str
) -> None:
    """The files of the state that is left stay with its agent, so the service is this test's own."""
    with service_with(root, 6, tmp_path_factory.mktemp("home")) as own, own.client() as http:
        http.timeout = httpx.Timeout(600)
        f = Family(http, root)
        sandbox: str = getattr(f, who)
        checkpoint = http.post(f"{sandbox}/checkpoints", json={}).json()["id"]
        with ThreadPoolExecutor() as pool:
            merge = endless_merge(f, pool)
            answer = http.post(f"{sandbox}/rollback", json={"checkpoint": checkpoint})
            assert answer.status_code == 200, answer.text
            assert checkpoint in refused(merge.result(), 409, "rolled_back")
        assert f.read("file") == {"a": "old", "parent": "404"}[who]  # a new agent has no files
        own.until_idle()
        own.stop()


def test_service_that_stops_leaves_no_merge_behind(
    root: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The server frees all that it has: the sanitizer would report what a merge still holds."""
    with service_with(root, 6, tmp_path_factory.mktemp("home")) as stopped, stopped.client() as http:
        f = Family(http, root)
        with ThreadPoolExecutor() as pool:
            merge = endless_merge(f, pool)
            stopped.stop()
            refused(merge.result(), 404, "stopped")
