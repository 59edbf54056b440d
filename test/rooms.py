# SPDX-License-Identifier: Apache-2.0
"""Checks the includes of every room against what CMake declares: rooms.py [TOP]

A room is a library or a program of a CMakeLists.txt below base, proto, vmm, orchestrator or guest.
SRCS names its files, HEADERS the headers that other rooms may include, USES the rooms whose headers
it includes. The check reports

- an #include of another room's header that USES does not name;
- an #include of a header that is in no HEADERS, from another folder than the header's own;
- a file that no room, or more than one, declares;
- a cycle of rooms, or of folders, that use each other;
- a cycle of files of one folder that include each other's headers. A source and the header of the
  same name count as one file. A header without a source, such as internal.h, counts as none: it
  holds what the files of the folder share.

Headers that are in no HEADERS are private: any room of their folder may include them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

ROOTS = ("base", "proto", "vmm", "orchestrator", "guest")
DECLARING = {"ramet_room", "ramet_headers", "add_library", "add_executable", "target_link_libraries"}
COMMAND = re.compile(r"^[ \t]*(\w+)[ \t]*\(([^()]*)\)", re.M)
COMMENT = re.compile(r"#.*")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)
KEYWORDS = {"SRCS", "HEADERS", "USES"}
IGNORED = {"STATIC", "INTERFACE", "PUBLIC", "PRIVATE"}


@dataclass
class Room:
    """A library or a program, as one folder's CMakeLists.txt declares it."""

    name: str
    folder: str
    sources: list[str] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    uses: set[str] = field(default_factory=set)


def add(rooms: dict[str, Room], folder: str, command: str, words: list[str]) -> None:
    """Adds the declarations of one command of a folder's CMakeLists.txt to `rooms`."""
    name, rest = words[0], words[1:]
    room = rooms.setdefault(name, Room(name, folder))
    kind = "USES" if command == "target_link_libraries" else "SRCS"
    for word in rest:
        if word in KEYWORDS:
            kind = word
        elif kind == "USES":
            room.uses.add(word)
        elif word not in IGNORED and not word.startswith("$"):
            (room.headers if kind == "HEADERS" else room.sources).append(f"{folder}/{word}")


def declared(top: Path, files: set[str]) -> dict[str, Room]:
    """Returns the rooms that the CMakeLists.txt files below ROOTS declare."""
    rooms: dict[str, Room] = {}
    for name in sorted(files):
        if PurePosixPath(name).name != "CMakeLists.txt":
            continue
        text = COMMENT.sub("", (top / name).read_text())
        for command, arguments in COMMAND.findall(text):
            words = arguments.split()
            if command in DECLARING and words:
                add(rooms, str(PurePosixPath(name).parent), command, words)
    return {name: room for name, room in rooms.items() if room.sources or room.headers}


def owners(rooms: dict[str, Room], files: set[str]) -> tuple[dict[str, str], list[str]]:
    """Returns the room of each declared file, and a sentence for each file declared wrongly."""
    owner: dict[str, str] = {}
    wrong = []
    for room in rooms.values():
        for name in room.sources + room.headers:
            if name in owner:
                wrong.append(f"{name}: declared by {owner[name]} and by {room.name}")
            elif name not in files:
                wrong.append(f"{name}: declared by {room.name}, but not in the tree")
            owner[name] = room.name
    for name in sorted(files):
        if name.endswith(".c") and name not in owner:
            wrong.append(f"{name}: no room declares it")
    return owner, wrong


def parent(name: str) -> str:
    """Returns the folder of a file."""
    return str(PurePosixPath(name).parent)


def arrows(
    top: Path, room: Room, owner: dict[str, str], files: set[str]
) -> tuple[dict[str, str], list[str]]:
    """Returns the rooms whose headers `room` includes, each with one include as an example, and a
    sentence for each include of another folder's private header.

    Private headers of the room's own folder are read as part of the room.
    """
    found: dict[str, str] = {}
    wrong = []
    waiting = room.sources + room.headers
    seen = set(waiting)
    while waiting:
        name = waiting.pop()
        if name not in files:
            continue
        for header in INCLUDE.findall((top / name).read_text()):
            if header in owner:
                if owner[header] != room.name:
                    found.setdefault(owner[header], f'{name}: "{header}"')
            elif parent(header) != parent(name):
                what = "is private to its folder" if header in files else "is not in the tree"
                wrong.append(f'{name}: "{header}" {what}')
            elif header not in seen:
                seen.add(header)
                waiting.append(header)
    return found, wrong


def cycle(uses: dict[str, set[str]]) -> list[str]:
    """Returns the names along one cycle of uses, which begins and ends with the same name; or []."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return path[path.index(name) :] + [name]
        if name in done:
            return []
        for other in sorted(uses.get(name, ())):
            if found := visit(other, path + [name]):
                return found
        done.add(name)
        return []

    for name in sorted(uses):
        if found := visit(name, []):
            return found
    return []


def modules(top: Path, files: set[str]) -> dict[str, set[str]]:
    """Returns which sources, named without .c, include the headers of which others of their folder."""
    sources = {name.removesuffix(".c") for name in files if name.endswith(".c")}
    uses: dict[str, set[str]] = {source: set() for source in sources}
    for source in sources:
        for name in {f"{source}.c", f"{source}.h"} & files:
            for header in INCLUDE.findall((top / name).read_text()):
                other = header.removesuffix(".h")
                if other in sources and other != source and parent(other) == parent(source):
                    uses[source].add(other)
    return uses


def check(top: Path, files: set[str]) -> list[str]:
    """Returns a sentence for each include, file and use that breaks a rule."""
    files = {name for name in files if name.split("/")[0] in ROOTS}
    rooms = declared(top, files)
    owner, wrong = owners(rooms, files)
    folders: dict[str, set[str]] = {}
    for room in rooms.values():
        found, private = arrows(top, room, owner, files)
        wrong += private
        for other, line in found.items():
            if other not in room.uses:
                wrong.append(f"{line} belongs to {other}, which USES of {room.name} does not name")
        for other in room.uses & rooms.keys():
            if rooms[other].folder != room.folder:
                folders.setdefault(room.folder, set()).add(rooms[other].folder)
    for what, uses in (
        ("rooms", {room.name: room.uses & rooms.keys() for room in rooms.values()}),
        ("folders", folders),
        ("files", modules(top, files)),
    ):
        if path := cycle(uses):
            wrong.append(f"{what} use each other: {' -> '.join(path)}")
    return sorted(set(wrong))


def main() -> None:
    top = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    listed = subprocess.run(
        ["git", "-C", top, "ls-files", "-z"], check=True, stdout=subprocess.PIPE
    ).stdout
    files = {name for name in listed.decode().split("\0") if name and (top / name).is_file()}
    wrong = check(top, files)
    for sentence in wrong:
        print(sentence)
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
