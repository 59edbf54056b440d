# SPDX-License-Identifier: Apache-2.0
"""The tools that agents of Anthropic expect in their environment: read, write, edit, glob, grep.

They have the names and inputs of `agent_toolset_20260401`; paths are relative to a working folder.
"""

from __future__ import annotations

import json
import posixpath
from typing import Any, Mapping, cast

from anthropic.lib.tools import BetaFunctionToolResultType, ToolError
from anthropic.types.beta import BetaToolUnionParam

from ramet import AsyncSandbox
from ramet.integrations._results import MAX_OUTPUT_BYTES, shorten
from ramet.integrations.anthropic._flow import AnySandbox, Work, content, of, text_in
from ramet.integrations.anthropic._text import (
    block_of,
    decoded,
    media_type_of,
    part_of,
    replaced,
)
from ramet.integrations.anthropic.tools import TIMEOUT_S, Bash, Fork, RunCode

_SEARCH_S = 60.0

# These run in the sandbox. Their output is bounded, and they skip what nobody looks for.
_GLOB = """
import pathlib, sys
pattern, top = sys.argv[1:3]
found = []
for path in pathlib.Path(top).glob(pattern):
    try:
        found.append((path.stat().st_mtime, str(path)))
    except OSError:
        pass
print("\\n".join(path for _, path in sorted(found, reverse=True)[:200]))
"""
_GREP = """
import os, re, sys
pattern, top = sys.argv[1:3]
try:
    wanted = re.compile(pattern.encode())
except re.error as error:
    sys.exit(f"the pattern is wrong: {error}")
left = 100_000
def search(path):
    global left
    try:
        with open(path, "rb") as file:
            if b"\\0" in file.read(512):
                return
            file.seek(0)
            for number, line in enumerate(file, 1):
                if wanted.search(line):
                    shown = b"%s:%d:%s" % (os.fsencode(path), number, line.rstrip(b"\\n")[:2000])
                    left -= len(shown) + 1
                    if left < 0:
                        print("[more lines match]")
                        sys.exit()
                    print(shown.decode(errors="replace"))
    except OSError:
        pass
if os.path.isfile(top):
    search(top)
for folder, folders, names in os.walk(top):
    folders[:] = sorted(name for name in folders if name not in (".git", "node_modules"))
    for name in sorted(names):
        path = os.path.join(folder, name)
        if os.path.isfile(path) and not os.path.islink(path):
            search(path)
"""

_TEXT = {"type": "string"}


def _schema(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


class _FileTool:
    """What the tools have in common."""

    name: str
    description: str
    schema: dict[str, Any]

    def __init__(self, sandbox: AnySandbox, cwd: str) -> None:
        self.sandbox = sandbox
        self._cwd = cwd

    def param(self) -> BetaToolUnionParam:
        return {
            "name": self.name,
            "description": self.description,
            "input_schema": self.schema,
        }

    async def close(self) -> None:
        pass

    def _path(self, input: Mapping[str, Any], name: str, default: str | None = None) -> str:
        return posixpath.normpath(posixpath.join(self._cwd, text_in(input, name, default)))

    async def _search(self, script: str, pattern: str, path: str) -> str:
        result = await of(
            self.sandbox.processes.run(
                ["python3", "-c", script, pattern, path],
                timeout_seconds=_SEARCH_S,
                max_output_bytes=MAX_OUTPUT_BYTES,
            )
        )
        if result.timed_out:
            raise ToolError(f"{self.name}: nothing was found within {_SEARCH_S:g} s: name a folder")
        if not result.ok:
            raise ToolError(f"{self.name}: {result.stderr.strip()[-2000:]}")
        return result.stdout.rstrip("\n") or "no matches"


class Read(_FileTool):
    name = "read"
    description = "Read a file. Pictures and PDF documents are shown."
    schema = _schema(
        ["file_path"],
        file_path=_TEXT,
        view_range={
            "type": "array",
            "items": {"type": "integer"},
            "description": "First and last line; -1 is the end of the file.",
        },
    )

    async def call(self, input: Mapping[str, Any]) -> BetaFunctionToolResultType:
        path = self._path(input, "file_path")
        data = await content(self.sandbox.files, path)
        media_type = media_type_of(path)
        if media_type is not None:
            return [block_of(media_type, data)]
        lines, _ = part_of(decoded(path, data), input.get("view_range") or None)
        return shorten("\n".join(lines))


class Write(_FileTool):
    name = "write"
    description = "Write a file. Missing folders are created."
    schema = _schema(["file_path", "content"], file_path=_TEXT, content=_TEXT)

    async def call(self, input: Mapping[str, Any]) -> str:
        path, data = self._path(input, "file_path"), text_in(input, "content").encode()
        await of(self.sandbox.files.upload(data, path))
        return f"{path} was written, {len(data)} bytes"


class Edit(_FileTool):
    name = "edit"
    description = "Replace a text in a file. It must occur only once, unless replace_all is set."
    schema = _schema(
        ["file_path", "old_string", "new_string"],
        file_path=_TEXT,
        old_string=_TEXT,
        new_string=_TEXT,
        replace_all={"type": "boolean"},
    )

    async def call(self, input: Mapping[str, Any]) -> str:
        path = self._path(input, "file_path")
        old, new = text_in(input, "old_string"), text_in(input, "new_string")
        before = decoded(path, await content(self.sandbox.files, path))
        after = replaced(path, before, old, new, everywhere=bool(input.get("replace_all")))
        await of(self.sandbox.files.write(path, after.encode(), in_place=True))
        return f"{path} was changed"


class Glob(_FileTool):
    name = "glob"
    description = "Find files by a pattern such as **/*.py, newest first."
    schema = _schema(["pattern"], pattern=_TEXT, path=_TEXT)

    async def call(self, input: Mapping[str, Any]) -> str:
        pattern = text_in(input, "pattern")
        if pattern.startswith("/"):
            raise ToolError("glob: the pattern is absolute; name the folder in path")
        return await self._search(_GLOB, pattern, self._path(input, "path", "."))


class Grep(_FileTool):
    name = "grep"
    description = "Find lines of files that match a regular expression."
    schema = _schema(["pattern"], pattern=_TEXT, path=_TEXT)

    async def call(self, input: Mapping[str, Any]) -> str:
        return await self._search(_GREP, text_in(input, "pattern"), self._path(input, "path", "."))


class AgentBash(Bash):
    """The bash of `agent_toolset_20260401`, which has a description and a schema."""

    def param(self) -> BetaToolUnionParam:
        return {
            "name": "bash",
            "description": "Run a command in a bash that keeps its state between calls.",
            "input_schema": _schema(
                [],
                command=_TEXT,
                restart={"type": "boolean"},
                timeout_ms={"type": "integer", "description": "Time limit of the command."},
            ),
        }


def agent_works(
    sandbox: AsyncSandbox,
    cwd: str,
    *,
    timeout_seconds: float = TIMEOUT_S,
    context_id: str | None = None,
) -> list[Work]:
    """Returns all tools of an agent: the six of the toolset, `run_code` and `fork`."""
    bash = AgentBash(sandbox, cwd=cwd, timeout_seconds=timeout_seconds, context_id=context_id)
    return [
        bash,
        Read(sandbox, cwd),
        Write(sandbox, cwd),
        Edit(sandbox, cwd),
        Glob(sandbox, cwd),
        Grep(sandbox, cwd),
        RunCode(sandbox, timeout_seconds=timeout_seconds),
        Fork(sandbox, bash=bash, timeout_seconds=timeout_seconds),
    ]


def agent_params() -> list[BetaToolUnionParam]:
    """Returns the entries of all tools in a request to the model; this needs no sandbox."""
    return [work.param() for work in agent_works(cast(AsyncSandbox, None), "/")]


def schema_of(work: Work) -> tuple[str, str, dict[str, Any]]:
    """Returns name, description and input schema of a tool that has them."""
    param: dict[str, Any] = json.loads(json.dumps(work.param()))
    return param["name"], param["description"], param["input_schema"]
