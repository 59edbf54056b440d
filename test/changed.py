# SPDX-License-Identifier: Apache-2.0
"""Finds the tests that a change can break.

changed.py TOP folders              reads names of changed files, a line each; prints the folders of
                                    test/ whose CTest tests the change can break
changed.py TOP tests BUILD FOLDER…  prints the names of the CTest tests of these folders

A folder of tests is chosen if it changed itself, if one of its programs names a changed file (as tests of
the documents do), or if its CMakeLists.txt names a room that changed or that uses, over any number of
rooms, a room that did. The rooms are those of rooms.py.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import rooms

TOKEN = re.compile(r"[\w-]+")
LABELS = "^(unit|fuzz)$"
ELSEWHERE = {"test/native", "test/warden", "test/h2o"}  # folders whose tests have other labels
EVERYTHING = {"CMakeLists.txt", "CMakePresets.json", "test/CMakeLists.txt"}


def used_by(top: Path, files: set[str]) -> dict[str, set[str]]:
    """Returns what each room, and each folder of tests, names directly.

    A library that a folder of tests declares stands for its folder.
    """
    uses = {
        room.name: set(room.uses)
        for room in rooms.declared(
            top, {name for name in files if name.split("/")[0] in rooms.ROOTS}
        ).values()
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
    for folder, text in texts.items():
        tokens = set(TOKEN.findall(text))
        uses[folder] = (tokens & uses.keys()) | {homes[word] for word in tokens & homes.keys()}
        uses[folder].discard(folder)
    return uses


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
    declared = rooms.declared(top, {name for name in files if name.split("/")[0] in rooms.ROOTS})
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
    uses = used_by(top, files)
    tests = [name for name in uses if name.startswith("test/") and name not in ELSEWHERE]
    if changed & EVERYTHING:
        return sorted(tests)
    roots = changed_rooms(top, files, changed) | {
        folder for folder in uses if any(name.startswith(folder + "/") for name in changed)
    }
    chosen = {folder for folder in tests if reaches(uses, folder) & roots}
    named = [re.escape(name) for name in changed]
    if any(name.startswith("sdk/python/") for name in changed):
        named.append(r"^(?:import|from) ramet\b")
    names = re.compile("|".join(named), re.M)
    for folder in tests:
        programs = (top / folder).glob("*.py")
        if any(names.search(program.read_text()) for program in programs):
            chosen.add(folder)
    return sorted(chosen)


def tests_of(build: str, chosen: set[str], top: Path) -> list[str]:
    """Returns the unit and fuzz tests that the CMakeLists.txt of these folders declare."""
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

    return [test["name"] for test in listed["tests"] if declared_in(test) in chosen]


def main() -> None:
    top, what = Path(sys.argv[1]).resolve(), sys.argv[2]
    if what == "tests":
        print(*tests_of(sys.argv[3], set(sys.argv[4:]), top), sep="\n")
        return
    listed = subprocess.run(
        ["git", "-C", top, "ls-files", "-z"], check=True, stdout=subprocess.PIPE
    ).stdout
    files = {name for name in listed.decode().split("\0") if name and (top / name).is_file()}
    changed = set(sys.stdin.read().splitlines())
    print(*folders(top, files | {name for name in changed if (top / name).is_file()}, changed), sep="\n")


if __name__ == "__main__":
    main()
