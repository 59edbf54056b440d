# SPDX-License-Identifier: Apache-2.0
"""The memory tool: files below /memories that the model keeps, in a folder of a sandbox."""

from __future__ import annotations

import posixpath
from typing import Awaitable, Callable, TypeVar

from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError
from anthropic.types.beta import (
    BetaMemoryTool20250818CreateCommand,
    BetaMemoryTool20250818DeleteCommand,
    BetaMemoryTool20250818InsertCommand,
    BetaMemoryTool20250818RenameCommand,
    BetaMemoryTool20250818StrReplaceCommand,
    BetaMemoryTool20250818ViewCommand,
)

from ramet import AsyncSandbox, Sandbox
from ramet.errors import FileExists, NoSuchFile, RametError
from ramet.integrations._results import MAX_ENTRIES, shorten
from ramet.integrations.anthropic._flow import AnySandbox, content, of, run_now
from ramet.integrations.anthropic._text import (
    around,
    decoded,
    inserted,
    numbered,
    part_of,
    replaced,
)

_TOP = "/memories"
FOLDER = "/root/memories"
T = TypeVar("T")


class Memories:
    """The six commands of the tool. Paths of the model begin with /memories."""

    def __init__(self, sandbox: AnySandbox, folder: str) -> None:
        self._files = sandbox.files
        self._folder = folder.rstrip("/")

    async def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        path = self._inside(command.path)
        if path == self._folder:
            await of(self._files.mkdir(path, parents=True))
        if (await of(self._files.stat(path))).is_dir:
            return await self._listing(command.path, path)
        text = decoded(command.path, await content(self._files, path))
        lines, first = part_of(text, command.view_range)
        return shorten(f"{command.path}, with line numbers:\n{numbered(lines, first)}")

    async def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        path = self._below(command.path)
        if await self._exists(path):
            raise ToolError(f"{command.path} exists already: use str_replace, or delete it first")
        await of(self._files.upload(command.file_text.encode(), path))
        return f"{command.path} was written"

    async def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        return await self._change(
            command.path,
            lambda text: replaced(command.path, text, command.old_str, command.new_str),
        )

    async def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        return await self._change(
            command.path,
            lambda text: inserted(command.path, text, command.insert_line, command.insert_text),
        )

    async def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        await of(self._files.remove(self._below(command.path), recursive=True))
        return f"{command.path} was deleted"

    async def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        old, new = self._below(command.old_path), self._below(command.new_path)
        try:
            await of(self._files.move(old, new))
        except FileExists:
            raise ToolError(f"{command.new_path} exists already") from None
        return f"{command.old_path} is {command.new_path} now"

    async def clear(self) -> str:
        if await self._exists(self._folder):
            await of(self._files.remove(self._folder, recursive=True))
        await of(self._files.mkdir(self._folder, parents=True))
        return "all memories were deleted"

    async def _listing(self, shown: str, path: str) -> str:
        entries = await of(self._files.list(path, depth=2, limit=MAX_ENTRIES))
        names = [f"{shown.rstrip('/')}/{one.name}{'/' if one.is_dir else ''}" for one in entries]
        return "\n".join([f"{shown}, two levels deep:", *names])

    async def _change(self, shown: str, edit: Callable[[str], str]) -> str:
        path = self._below(shown)
        before = decoded(shown, await content(self._files, path))
        after = edit(before)
        await of(self._files.upload(after.encode(), path))
        return f"{shown} was changed:\n{around(before, after)}"

    async def _exists(self, path: str) -> bool:
        try:
            await of(self._files.stat(path, follow=False))
        except NoSuchFile:
            return False
        return True

    def _inside(self, path: str) -> str:
        """Returns the path in the sandbox."""
        clean = posixpath.normpath(path)
        if clean != _TOP and not clean.startswith(_TOP + "/"):
            raise ToolError(f"{path} is not below {_TOP}")
        return self._folder + clean[len(_TOP) :]

    def _below(self, path: str) -> str:
        inside = self._inside(path)
        if inside == self._folder:
            raise ToolError(f"{_TOP} itself cannot be changed; name a file or folder in it")
        return inside


async def _readable(step: Awaitable[T]) -> T:
    """Makes failures of the sandbox errors for the model."""
    try:
        return await step
    except RametError as error:
        raise ToolError(str(error)) from error


class MemoryTool(BetaAbstractMemoryTool):
    """The tool `memory_20250818`, whose files are in a sandbox: they fork and freeze with it.

    Args:
        sandbox: The sandbox.
        folder: The folder for /memories; it is created when it is needed.
    """

    def __init__(self, sandbox: Sandbox, *, folder: str = FOLDER) -> None:
        super().__init__()
        self._memories = Memories(sandbox, folder)

    def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """Shows a file or a folder."""
        return run_now(_readable(self._memories.view(command)))

    def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """Writes a new file."""
        return run_now(_readable(self._memories.create(command)))

    def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replaces a text that occurs once in a file."""
        return run_now(_readable(self._memories.str_replace(command)))

    def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """Inserts lines into a file."""
        return run_now(_readable(self._memories.insert(command)))

    def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """Deletes a file, or a folder with all that is in it."""
        return run_now(_readable(self._memories.delete(command)))

    def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Moves a file or folder; it does not replace another one."""
        return run_now(_readable(self._memories.rename(command)))

    def clear_all_memory(self) -> str:
        """Deletes all memories."""
        return run_now(_readable(self._memories.clear()))


class AsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """The asynchronous `MemoryTool`; arguments as there."""

    def __init__(self, sandbox: AsyncSandbox, *, folder: str = FOLDER) -> None:
        super().__init__()
        self._memories = Memories(sandbox, folder)

    async def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """Shows a file or a folder."""
        return await _readable(self._memories.view(command))

    async def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """Writes a new file."""
        return await _readable(self._memories.create(command))

    async def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replaces a text that occurs once in a file."""
        return await _readable(self._memories.str_replace(command))

    async def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """Inserts lines into a file."""
        return await _readable(self._memories.insert(command))

    async def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """Deletes a file, or a folder with all that is in it."""
        return await _readable(self._memories.delete(command))

    async def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Moves a file or folder; it does not replace another one."""
        return await _readable(self._memories.rename(command))

    async def clear_all_memory(self) -> str:
        """Deletes all memories."""
        return await _readable(self._memories.clear())
