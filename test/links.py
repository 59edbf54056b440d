# SPDX-License-Identifier: Apache-2.0
"""Checks the links between documents: links.py [TOP]

Every relative link in a tracked *.md file must name a tracked file or folder, and its fragment a
heading of that file. A path of a source file, or below test/, in code quotes must exist as well; it
may be relative to any folder of the tree. Every docs/….md that another tracked file names must exist.
"""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
from pathlib import Path, PurePosixPath

LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.*?)\s*#*$")
CITED = re.compile(rb"(?<![\w/.-])docs/[\w/-]+\.(?:md|svg)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.M | re.S)
CODE = re.compile(r"`([^`\n]*)`")
SOURCE = re.compile(r"(?=[\w*./-]*/)(?:test/[\w*./-]+|[\w*-][\w*./-]*\.(?:c|h|py|sh|config))")


def slug(heading: str) -> str:
    """Returns the anchor that GitHub gives a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """Returns all anchors of a document; a repeated heading gets a number."""
    found: set[str] = set()
    for line in FENCE.sub("", text).splitlines():
        if match := HEADING.match(line):
            base = name = slug(match[1])
            count = 0
            while name in found:
                count += 1
                name = f"{base}-{count}"
            found.add(name)
    return found


def resolve(folder: PurePosixPath, target: str) -> str:
    """Returns the path from the top of the tree that a relative link names."""
    parts: list[str] = []
    for part in (folder / target).parts:
        if part != "..":
            parts.append(part)
        elif parts:
            parts.pop()
    return "/".join(parts)


def broken_links(top: Path, name: str, files: set[str]) -> list[str]:
    """Returns a sentence for each link of the document `name` whose target does not exist."""
    text = (top / name).read_text()
    broken = []
    for target in LINK.findall(CODE.sub("", FENCE.sub("", text))):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, fragment = target.partition("#")
        where = resolve(PurePosixPath(name).parent, path) if path else name
        if where not in files and not any(file.startswith(where + "/") for file in files):
            broken.append(f"{name}: {target}: {where} does not exist")
        elif fragment and fragment not in anchors((top / where).read_text()):
            broken.append(f"{name}: {target}: {where} has no such heading")
    return broken


def lost_sources(top: Path, name: str, files: set[str]) -> list[str]:
    """Returns a sentence for each path in code quotes of the document `name` that does not exist."""
    lost = []
    for quoted in CODE.findall(FENCE.sub("", (top / name).read_text())):
        path = quoted.partition("::")[0].rstrip("/")
        # Names in capitals are placeholders.
        if not SOURCE.fullmatch(path) or re.search(r"(?:^|/)[A-Z_]+(?:/|\.)", path):
            continue
        known = re.compile("(?:.*/)?" + fnmatch.translate(path).removesuffix("\\Z") + "(?:/.*)?")
        if not any(known.fullmatch(file) for file in files):
            lost.append(f"{name}: {path} does not exist")
    return lost


def main() -> None:
    top = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    listed = subprocess.run(
        ["git", "-C", top, "ls-files", "-z"], check=True, stdout=subprocess.PIPE
    ).stdout
    files = set(listed.decode().split("\0")) - {""}
    broken = []
    for name in sorted(files):
        if name.endswith(".md"):
            broken += broken_links(top, name, files) + lost_sources(top, name, files)
        elif not name.startswith("test/fuzz/corpus/") and (top / name).is_file():
            for cited in sorted(set(CITED.findall((top / name).read_bytes()))):
                if cited.decode() not in files:
                    broken.append(f"{name}: {cited.decode()} does not exist")
    for sentence in broken:
        print(sentence)
    if broken:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
