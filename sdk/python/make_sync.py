# SPDX-License-Identifier: Apache-2.0
"""Generates the synchronous SDK from the asynchronous one: make_sync.py [--check]

Each module of `ramet/_async` becomes the module of the same name in `ramet`, and
`test/scenario_async.py` becomes `scenario_sync.py`. The conversion drops `async` and
`await`, renames what NAMES lists and what begins with `Async`, in code as in docstrings, and
replaces the PHRASES. A difference that is larger belongs in a twin: a module that is written by
hand for both, with the same interface. With --check it only reports the files that are out of date.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from pathlib import Path

SDK = Path(__file__).resolve().parent
SYNC = SDK / "src" / "ramet"
ASYNC = SYNC / "_async"
SCENARIO = SDK.parent.parent / "test" / "scenario_async.py"

# Modules that are written by hand for both.
TWINS = ("__init__.py", "_io.py", "_local.py", "_upgrade.py", "ports.py")

NAMES = {
    "AbstractAsyncContextManager": "AbstractContextManager",
    "StopAsyncIteration": "StopIteration",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "aclose": "close",
    "aclosing": "closing",
    "aiter_bytes": "iter_bytes",
    "anext": "next",
    "aread": "read",
    "asynccontextmanager": "contextmanager",
}

# Text of the asynchronous modules, and that of the synchronous ones. Each must occur.
PHRASES = {
    "client.py": [
        ("import asyncio\n", ""),
        ("import os\n", "import os\nimport socket\n"),
        ("tuple[asyncio.StreamReader, asyncio.StreamWriter]", "socket.socket"),
        ("between the tasks of one\n    event loop.", "between threads."),
        ("AsyncIterable[bytes] | Iterable[bytes]", "Iterable[bytes]"),
        (
            "The reader and the writer of a connection without a timeout; the caller closes the\n"
            "            writer. With TLS,",
            "A connected socket without a timeout, which the caller closes. With TLS,",
        ),
    ],
    "_transport.py": [
        ("for one event loop. Its tasks may share it.", "to one service. Safe for threads."),
        ("AsyncIterable[bytes] | Iterable[bytes]", "Iterable[bytes]"),
    ],
    "files.py": [("Not for several tasks.", "Not for several threads.")],
    "process.py": [
        ("while another task", "while another thread"),
        ("A task that is cancelled meanwhile kills", "KeyboardInterrupt or SystemExit kills"),
    ],
    "pty.py": [("while another task", "while another thread")],
    "sandbox.py": [
        ("`AsyncSandbox.create` creates a sandbox;", "Creating the object creates the sandbox;"),
        ("\n    The arguments of `create`:\n", ""),
        (
            "    @classmethod\n    async def create(\n        cls,",
            "    def __init__(\n        self,",
        ),
        (
            ') -> "AsyncSandbox":\n'
            '        """Creates a sandbox. The class describes the arguments and errors."""\n'
            "        sandbox = cls.__new__(cls)\n"
            "        await sandbox._start(",
            ") -> None:\n        self._start(",
        ),
        (
            "tree=tree,\n            ),\n        )\n        return sandbox\n",
            "tree=tree,\n            ),\n        )\n",
        ),
    ],
}


def to_sync(source: str, phrases: list[tuple[str, str]]) -> str:
    """Returns the synchronous form of a module."""
    for old, new in phrases:
        if old not in source:
            raise SystemExit(f"make_sync.py: this phrase does not occur: {old!r}")
        source = source.replace(old, new)
    source = source.replace("ramet._async.", "ramet.")
    source = source.replace("AsyncSandbox.create(", "AsyncSandbox(")
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    out, at = [], 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        begin = starts[token.start[0] - 1] + token.start[1]
        end = starts[token.end[0] - 1] + token.end[1]
        if begin < at or not token.string.strip():
            continue
        out.append(source[at:begin])
        at = end
        if token.type == tokenize.NAME and token.string in ("async", "await"):
            at += len(source[end:]) - len(source[end:].lstrip(" "))
        elif token.type == tokenize.NAME:
            out.append(renamed(token.string))
        elif token.type in (tokenize.STRING, tokenize.COMMENT):
            out.append(in_text(token.string))
        else:
            out.append(token.string)
    return with_tidy_types("".join(out) + source[at:])


def renamed(name: str) -> str:
    return NAMES.get(name) or re.sub(r"^Async(?=[A-Z])", "", name)


def in_text(text: str) -> str:
    """Returns a docstring, another string or a comment with the names that it has changed."""
    text = re.sub(r"\b(async|await) (?=\w)", "", text.replace("an `async ", "a `"))
    return re.sub(r"\w+", lambda found: renamed(found[0]), text)


def with_tidy_types(source: str) -> str:
    """Converts the types of generators and of awaitable results, and sorts the imports' names."""
    source = re.sub(r"\bGenerator\[(\w+), None\]", r"Iterator[\1]", source)
    source = re.sub(r"\bAwaitable\[(\w+)\]", r"\1", source)
    imports = r"^from (contextlib|typing) import (\([^)]*\)|.*)$"
    return re.sub(imports, tidy_import, source, flags=re.M)


def tidy_import(found: re.Match[str]) -> str:
    names = {"Iterator" if name == "Generator" else name for name in re.findall(r"\w+", found[2])}
    line = f"from {found[1]} import " + ", ".join(sorted(names - {"Awaitable"}))
    assert len(line) <= 100, line
    return line


def generated(path: Path) -> str:
    head = "# SPDX-License-Identifier: Apache-2.0\n"
    source = path.read_text()
    assert source.startswith(head), f"{path} must begin with its license"
    body = to_sync(source.removeprefix(head), PHRASES.get(path.name, []))
    note = f"# Generated from {path.parent.name}/{path.name} by make_sync.py: change that file.\n"
    return head + note + body


def interface(path: Path) -> list[str]:
    """Returns the names that a module defines, in synchronous form."""
    tree = ast.parse(path.read_text())
    names: list[str] = []
    for one in tree.body:
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.append(one.name)
        elif isinstance(one, ast.Assign):
            names += [target.id for target in one.targets if isinstance(target, ast.Name)]
    return sorted({renamed(name) for name in names if not name.startswith("_")})


def main() -> int:
    wrong = 0
    sources = [path for path in sorted(ASYNC.glob("*.py")) if path.name not in TWINS]
    targets = {path: SYNC / path.name for path in sources}
    targets[SCENARIO] = SCENARIO.with_name("scenario_sync.py")
    for path, target in targets.items():
        text = generated(path)
        if "--check" not in sys.argv:
            target.write_text(text)
        elif not target.exists() or target.read_text() != text:
            print(f"{target} is out of date: run make_sync.py")
            wrong += 1
    for name in TWINS[1:]:
        if interface(ASYNC / name) != interface(SYNC / name):
            print(f"{ASYNC / name} and {SYNC / name} have different functions and classes")
            wrong += 1
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
