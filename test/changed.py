# SPDX-License-Identifier: Apache-2.0
"""Finds the tests that a change can break.

changed.py TOP folders             prints the folders of test/ whose CTest tests the change can break
changed.py TOP tests BUILD         prints the names of these tests
Both read the names of the changed files, a line each.

A folder of tests is chosen if it changed itself, if one of its programs names a changed file (as tests of
the documents do), or if a room that it tests changed or uses, over any number of rooms, a room that did. The
rooms are those of rooms.py. A folder tests the rooms that its CMakeLists.txt names, and that of its own name.
What its helpers are linked with, often the whole service, counts only if that gives it no room.

Tests with the label `front` are about what lies in front of the service. They are left out if all rooms that
changed lie behind it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import rooms

TOKEN = re.compile(r"[\w-]+")
LABELS = "^(unit|fuzz)$"
ELSEWHERE = {"test/native", "test/warden", "test/h2o"}  # folders whose tests have other labels
SERVICE, FRONT = "orchestrator_service", "orchestrator_http"
EVERYTHING = {"CMakeLists.txt", "CMakePresets.json", "test/CMakeLists.txt"}


def declared_rooms(top: Path, files: set[str]) -> dict[str, rooms.Room]:
    return rooms.declared(top, {name for name in files if name.split("/")[0] in rooms.ROOTS})


def used_by(top: Path, files: set[str]) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Returns which rooms each room and each folder of tests names, and which folders of tests each such folder.

    A folder names another one by a library or program that the other one declares.
    """
    uses = {
        room.name: set(room.uses)
        for room in declared_rooms(top, files).values()
    }
    texts = {
        rooms.parent(name): rooms.COMMENT.sub("", (top / name).read_text())
        for name in files
        if name.startswith(("test/", "bench/")) and name.endswith("/CMakeLists.txt")
    }
    homes = {
        library: folder
        for folder, text in texts.items()
        for library in re.findall(r"add_(?:library|executable)\(([\w-]+)", text)
    }
    names = set(uses)
    helpers = {}
    for folder, text in texts.items():
        tokens = set(TOKEN.findall(text))
        uses[folder] = tokens & names
        helpers[folder] = {homes[word] for word in tokens & homes.keys()}
    return uses, helpers


def rooms_of(folder: str, declared: dict[str, rooms.Room]) -> set[str]:
    """Returns the rooms whose name a folder of tests has: test/unit/vmm_virtio that of vmm/virtio."""
    name = folder.rsplit("/", 1)[-1].replace("_", "/")
    places = {name, f"orchestrator/{name}"}
    return {room.name for room in declared.values() if room.folder in places}


def reaches(uses: dict[str, set[str]], start: str) -> set[str]:
    """Returns `start` and all that it uses, directly or not."""
    seen, waiting = {start}, [start]
    while waiting:
        for name in uses.get(waiting.pop(), set()) - seen:
            seen.add(name)
            waiting.append(name)
    return seen


def changed_rooms(top: Path, files: set[str], changed: set[str]) -> set[str]:
    """Returns the rooms of the changed files.

    All rooms of a folder change with its private headers, its CMakeLists.txt, and files, such as the
    Python driver, that its programs contain without declaring them.
    """
    found = set()
    declared = declared_rooms(top, files)
    owner, _ = rooms.owners(declared, files)
    for name in changed:
        if name in owner:
            found.add(owner[name])
            continue
        folder = rooms.parent(name)
        found |= {room.name for room in declared.values() if room.folder == folder}
    return found


def folders(top: Path, files: set[str], changed: set[str]) -> list[str]:
    """Returns the folders of tests that the changed files can break."""
    uses, helpers = used_by(top, files)
    tests = [name for name in helpers if name.startswith("test/") and name not in ELSEWHERE]
    if changed & EVERYTHING:
        return sorted(tests)
    touched = changed_rooms(top, files, changed)
    own = {name for name in helpers if any(file.startswith(name + "/") for file in changed)}
    declared = declared_rooms(top, files)
    chosen = set()
    for folder in tests:
        about = uses[folder] | rooms_of(folder, declared)
        linked = reaches(helpers, folder)
        if not about:
            about = {room for name in linked for room in uses[name]}
        if linked & own or any(reaches(uses, room) & touched for room in about):
            chosen.add(folder)
    named = [re.escape(name) for name in changed]
    if any(name.startswith("sdk/python/") for name in changed):
        named.append(r"^(?:import|from) ramet\b")
    names = re.compile("|".join(named), re.M)
    for folder in tests:
        programs = (top / folder).glob("*.py")
        if any(names.search(program.read_text()) for program in programs):
            chosen.add(folder)
    return sorted(chosen)


def lies_behind(top: Path, files: set[str], changed: set[str]) -> bool:
    """Returns whether all changed files are in rooms that the service uses and its HTTP server does not."""
    uses, _ = used_by(top, files)
    behind = reaches(uses, SERVICE) - reaches(uses, FRONT) - {SERVICE}
    return all(changed_rooms(top, files, {name}) & behind for name in changed)


def tests_of(build: str, chosen: set[str], front: bool, top: Path) -> list[str]:
    """Returns the unit and fuzz tests that the CMakeLists.txt of these folders declare.

    Those with the label `front` are among them only if `front` is true.
    """
    listed = json.loads(
        subprocess.run(
            ["ctest", "--test-dir", build, "-L", LABELS, "--show-only=json-v1"],
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
    )
    graph = listed["backtraceGraph"]

    def declared_in(test: dict[str, object]) -> str:
        """Returns the folder whose CMakeLists.txt declares the test, perhaps by a function."""
        node = graph["nodes"][test["backtrace"]]
        while "parent" in node and "command" in node and graph["files"][node["file"]] == str(top / "CMakeLists.txt"):
            node = graph["nodes"][node["parent"]]
        return rooms.parent(str(Path(graph["files"][node["file"]]).relative_to(top)))

    def labels(test: dict[str, Any]) -> list[str]:
        return next(p["value"] for p in test["properties"] if p["name"] == "LABELS")

    return [
        test["name"]
        for test in listed["tests"]
        if declared_in(test) in chosen and (front or "front" not in labels(test))
    ]


def main() -> None:
    top, what = Path(sys.argv[1]).resolve(), sys.argv[2]
    listed = subprocess.run(
        ["git", "-C", top, "ls-files", "-z"], check=True, stdout=subprocess.PIPE
    ).stdout
    files = {name for name in listed.decode().split("\0") if name and (top / name).is_file()}
    changed = set(sys.stdin.read().splitlines())
    files |= {name for name in changed if (top / name).is_file()}
    found = folders(top, files, changed)
    if what == "tests":
        found = tests_of(sys.argv[3], set(found), not lies_behind(top, files, changed), top)
    print(*found, sep="\n")


if __name__ == "__main__":
    main()
