# SPDX-License-Identifier: Apache-2.0
"""Checks that retired words do not come back: words.py [TOP]

RETIRED lists words and phrases that a newcomer cannot look up, each with what to say instead. They
are looked for in the names and in the text of all tracked files: code, comments, messages and
documents. An underscore and a change of case end a word, so that `vq_rearm` contains `rearm`. A line
break inside a comment counts as a space.

ALLOWED names the words that have another meaning in a file or folder, such as the shell that is a
command interpreter. SKIPPED files are not read.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

RETIRED = {
    r"shells?": "blank VM",
    r"shel(f|ves)": "pool bucket",
    r"rehears(e|ed|al|als)": "priming",
    r"diar(y|ies)": "journal",
    r"(earlier|later) (life|lives)": "previous instance, next instance",
    r"overlays?": "extent map",
    r"pieces?": "mapping, chunk or part",
    r"lift(s|ed|ing)?": "copy-up, copy up",
    r"starv(e|es|ed|ing)": "enospc",
    r"told": "signalled, notified, reported",
    r"rearm(s|ed|ing)?": "enable_notification",
    r"(stand|stands|standing|stood) still": "paused, parked, quiesced",
    r"settl(e|es|ed|ing)": "quiesced, completed",
    r"legacy": "i8042, cmos, or the version that is meant",
    r"patience": "timeout",
    r"troubles?": "error",
    r"spares": "idle_conns",
    r"hurry|let_go": "drop_backpressure",
    r"be (it|they) \w+": "whether ... or ...",
    r"stands? in for": "replaces",
    r"(is|are|was|were) told of": "is notified of",
    r"all the same": "anyway",
    r"by way of": "through",
    r"as (it|they) likes?": "say what happens",
    r"of no (more )?use": "unusable, useless",
    r"is no (regular|valid|known) \w+": "is not a ...",
    r"goes on with": "continues",
}

# Names that outlive their word: the former name of a setting.
NAMES = re.compile(r"(?i:pool[_-]shells)\b")

SKIPPED = (
    "LICENSE",
    "NOTICE",
    "third_party/",
    "test/fuzz/corpus/",
    "test/words.py",
    "test/unit/words/",
)

INTERPRETER = "shells?"  # here the command interpreter
OVERLAYFS = "overlays?"  # here the file system
ALLOWED: dict[str, set[str]] = {
    "CHANGELOG.md": {INTERPRETER},  # the former name of a metric
    "README.md": {INTERPRETER},
    "bench/measure.py": {INTERPRETER},
    "dev": {INTERPRETER},
    "docs/api.md": {INTERPRETER},
    "docs/cli.md": {INTERPRETER},
    "docs/integrations.md": {INTERPRETER},  # a tool of OpenAI's SDK
    "guest/init": {INTERPRETER},
    "kernel-config": {OVERLAYFS, "legacy"},  # options of the kernel
    "orchestrator/api": {INTERPRETER},
    "orchestrator/warden/account.c": {INTERPRETER},
    "rig": {INTERPRETER, OVERLAYFS},
    "rootfs": {INTERPRETER},
    "sdk": {INTERPRETER},
    "test": {INTERPRETER},
    "test/integrations/mcp": {INTERPRETER, "legacy"},  # a mode of the client in the package mcp
    "test/stand_in.py": {OVERLAYFS},
    "test/system": {INTERPRETER, OVERLAYFS},
    "test/unit": set(),
}


def compiled(words: str) -> re.Pattern[str]:
    """Returns a pattern for whole words, between which a comment may continue on the next line."""
    spaced = words.replace(" ", r"\s+(?:(?:\*|#|//)\s+)?")
    return re.compile(rf"(?<![A-Za-z])(?:{spaced})(?![A-Za-z])", re.IGNORECASE)


def prepared(text: str) -> str:
    """Removes NAMES, and separates the words of CamelCase names by underscores."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", NAMES.sub("", text))


def allowed_in(name: str) -> set[str]:
    """Returns the words that the innermost entry of ALLOWED for the file names."""
    inside = [place for place in ALLOWED if f"{name}/".startswith(place + "/")]
    return ALLOWED[max(inside, key=len)] if inside else set()


def check_file(name: str, text: str, allowed: set[str]) -> list[str]:
    """Returns a sentence for each retired word in the name or the text of a file."""
    wrong = []
    for words, instead in RETIRED.items():
        pattern = compiled(words)
        if pattern.search(prepared(name)) and words not in allowed:
            wrong.append(f'{name}: rename the file: "{instead}" replaces "{words}"')
        for found in pattern.finditer(prepared(text)):
            if words in allowed:
                break
            line = text.count("\n", 0, found.start()) + 1
            said = " ".join(found.group().split())
            wrong.append(f'{name}:{line}: "{said}": say "{instead}"')
    return wrong


def check(top: Path, files: set[str]) -> list[str]:
    """Returns a sentence for each retired word in the files, except SKIPPED ones."""
    wrong = []
    for name in sorted(files):
        if name.startswith(SKIPPED):
            continue
        try:
            text = (top / name).read_text()
        except (UnicodeDecodeError, FileNotFoundError):
            continue  # a binary file, or one that was removed and is still in the index
        wrong += check_file(name, text, allowed_in(name))
    return wrong


def tracked(top: Path) -> set[str]:
    """Returns the names of all files that git tracks."""
    command = ["git", "-C", str(top), "ls-files", "-z"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return set(filter(None, listed.split("\0")))


def main() -> int:
    """Prints what is wrong; returns 1 if anything is."""
    top = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    wrong = check(top, tracked(top))
    for sentence in wrong:
        print(sentence)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
