# SPDX-License-Identifier: Apache-2.0
"""Finds the tests that a change can break.

changed.py TOP folders             prints the folders of test/ whose CTest tests the change can break
changed.py TOP tests BUILD         prints the names of these tests
Both read the names of the changed files, a line each.

A folder of tests is chosen if it changed itself, if one of its programs names a changed file (as tests of
the documents do), or if a room that it tests changed or uses, over any number of rooms, a room that did. The
rooms are those of rooms.py. A folder tests the rooms that its CMakeLists.txt names, and that of its own name.
What its helpers are linked with, often the whole service, counts only if that gives it no room.

All tests of the service link all of it. A label that is the name of a room says what such a test is about. Such
a test is left out if none of its labels is, or uses, a room that changed. But all tests run if HTTP, which all of them use, is
or uses a room that changed, or if a file changed whose room no test has as a label.
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
FRONT = "orchestrator_http"
EVERYTHING = {"CMakeLists.txt", "CMakePresets.json", "test/CMakeLists.txt"}


def reaches(uses: dict[str, set[str]], start: str) -> set[str]:
    """Returns `start` and all that it uses, directly or not."""
    seen, waiting = {start}, [start]
    while waiting:
        for name in uses.get(waiting.pop(), set()) - seen:
            seen.add(name)
            waiting.append(name)
    return seen


class Change:
    """The changed files, and what the rooms and folders of tests of the tree name."""

    def __init__(self, top: Path, files: set[str], changed: set[str]) -> None:
        self.top, self.changed = top, changed
        self.declared = rooms.declared(
            top, {name for name in files if name.split("/")[0] in rooms.ROOTS}
        )
        self.owner, _ = rooms.owners(self.declared, files)
        self._read_names(files)
        self.owners = [self.rooms_of_file(name) for name in changed]
        self.touched = set().union(*self.owners)

    def _read_names(self, files: set[str]) -> None:
        """Notes which rooms each room and folder of tests names, and which folders of tests each such folder.

        A folder names another one by a library or program that the other one declares.
        """
        texts = {
            rooms.parent(name): rooms.COMMENT.sub("", (self.top / name).read_text())
            for name in files
            if name.startswith(("test/", "bench/")) and name.endswith("/CMakeLists.txt")
        }
        homes = {
            library: folder
            for folder, text in texts.items()
            for library in re.findall(r"add_(?:library|executable)\(([\w-]+)", text)
        }
        self.uses = {room.name: set(room.uses) for room in self.declared.values()}
        self.room_names = names = set(self.uses)
        self.helpers = {}
        for folder, text in texts.items():
            tokens = set(TOKEN.findall(text))
            self.uses[folder] = tokens & names
            self.helpers[folder] = {homes[word] for word in tokens & homes.keys()}

    def rooms_in(self, *places: str) -> set[str]:
        return {room.name for room in self.declared.values() if room.folder in places}

    def rooms_of_tests(self, folder: str) -> set[str]:
        """Returns the rooms whose name a folder of tests has: test/unit/vmm_virtio that of vmm/virtio."""
        name = folder.rsplit("/", 1)[-1].replace("_", "/")
        return self.rooms_in(name, f"orchestrator/{name}")

    def rooms_of_file(self, name: str) -> set[str]:
        """Returns the rooms that change with a file.

        These are all rooms of its folder for private headers, the CMakeLists.txt, and files, such as the
        Python driver, that its programs contain without declaring them.
        """
        return {self.owner[name]} if name in self.owner else self.rooms_in(rooms.parent(name))

    def folders(self) -> list[str]:
        """Returns the folders of tests that the changed files can break."""
        tests = [
            name for name in self.helpers if name.startswith("test/") and name not in ELSEWHERE
        ]
        if self.changed & EVERYTHING:
            return sorted(tests)
        own = {folder for folder in self.helpers if any(name.startswith(folder + "/") for name in self.changed)}
        chosen = set()
        for folder in tests:
            about = self.uses[folder] | self.rooms_of_tests(folder)
            linked = reaches(self.helpers, folder)
            if not about:
                about = {room for name in linked for room in self.uses[name]}
            if linked & own or any(reaches(self.uses, room) & self.touched for room in about):
                chosen.add(folder)
        named = [re.escape(name) for name in self.changed]
        if any(name.startswith("sdk/python/") for name in self.changed):
            named.append(r"^(?:import|from) ramet\b")
        names = re.compile("|".join(named), re.M)
        for folder in tests:
            programs = (self.top / folder).glob("*.py")
            if any(names.search(program.read_text()) for program in programs):
                chosen.add(folder)
        return sorted(chosen)

    def concerned(self, labels: set[str]) -> set[str]:
        """Returns those of the labels whose tests the change can break: rooms that are, or use, what changed."""
        about = labels & self.room_names
        is_known = all(owners and owners <= about for owners in self.owners)
        if not is_known or reaches(self.uses, FRONT) & self.touched:
            return about
        return {room for room in about if reaches(self.uses, room) & self.touched}


def tests_of(build: str, change: Change) -> list[str]:
    """Returns the unit and fuzz tests that the changed files can break."""
    chosen = set(change.folders())
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
        while "parent" in node and "command" in node and graph["files"][node["file"]] == str(change.top / "CMakeLists.txt"):
            node = graph["nodes"][node["parent"]]
        return rooms.parent(str(Path(graph["files"][node["file"]]).relative_to(change.top)))

    def labels(test: dict[str, Any]) -> set[str]:
        return set(next(p["value"] for p in test["properties"] if p["name"] == "LABELS"))

    all_labels = {label for test in listed["tests"] for label in labels(test)}
    concerned = change.concerned(all_labels)
    left_out = all_labels & change.room_names - concerned
    return [
        test["name"]
        for test in listed["tests"]
        if declared_in(test) in chosen and (concerned & labels(test) or not left_out & labels(test))
    ]


def main() -> None:
    top, what = Path(sys.argv[1]).resolve(), sys.argv[2]
    listed = subprocess.run(
        ["git", "-C", top, "ls-files", "-z"], check=True, stdout=subprocess.PIPE
    ).stdout
    files = {name for name in listed.decode().split("\0") if name and (top / name).is_file()}
    changed = set(sys.stdin.read().splitlines())
    files |= {name for name in changed if (top / name).is_file()}
    change = Change(top, files, changed)
    found = change.folders() if what == "folders" else tests_of(sys.argv[3], change)
    print(*found, sep="\n")


if __name__ == "__main__":
    main()
