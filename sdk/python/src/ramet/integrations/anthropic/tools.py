# SPDX-License-Identifier: Apache-2.0
"""Tools of one conversation: bash, text editor, code, forks."""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import Any, Iterator, Mapping, Sequence, cast, overload

from anthropic.lib.tools import (
    BetaAsyncBuiltinFunctionTool,
    BetaBuiltinFunctionTool,
    BetaFunctionToolResultType,
    ToolError,
)
from anthropic.types.beta import BetaToolUnionParam
from anthropic.types.beta.beta_tool_result_block_param import Content

from ramet import AsyncContext, AsyncSandbox, Context, Sandbox
from ramet._cleanup import finish
from ramet.errors import NotFound
from ramet.integrations._results import (
    MAX_ENTRIES,
    MAX_OUTPUT_BYTES,
    pictures_of,
    shorten,
    text_of,
)
from ramet.integrations.anthropic._flow import (
    AnySandbox,
    Work,
    answer,
    completed,
    content,
    interruptible,
    number_in,
    of,
    quietly,
    run_now,
    side_by_side,
    text_in,
)
from ramet.integrations.anthropic._text import (
    around,
    block_of,
    decoded,
    inserted,
    media_type_of,
    numbered,
    part_of,
    replaced,
)
from ramet.types import ExecResult

TIMEOUT_S = 120.0
BRANCH_KEY = "ramet_branch_of"
"""Member of the metadata of a copy that waits for the model's decision."""

_TIMED_OUT = 124  # exit code of a call at its time limit


class Tool(BetaBuiltinFunctionTool):
    """A tool for the synchronous tool runner.

    Attributes:
        work: What it does.

    Raises:
        TypeError: The work's sandbox is asynchronous.
    """

    def __init__(self, work: Work) -> None:
        if not isinstance(work.sandbox, Sandbox):
            raise TypeError(f"a synchronous tool needs a Sandbox, not {work.sandbox!r}")
        self.work = work

    def to_dict(self) -> BetaToolUnionParam:
        """Returns the tool's entry in the request to the model."""
        return self.work.param()

    def call(self, input: object) -> BetaFunctionToolResultType:
        """Runs the tool.

        Raises:
            ToolError: With the text for the model.
        """
        return run_now(answer(self.work, input))

    def close(self) -> None:
        """Frees what the tool has in the sandbox. The sandbox stays."""
        run_now(self.work.close())


class AsyncTool(BetaAsyncBuiltinFunctionTool):
    """A tool for the asynchronous tool runners; see `Tool`."""

    def __init__(self, work: Work) -> None:
        if isinstance(work.sandbox, Sandbox):
            raise TypeError(f"an asynchronous tool needs an AsyncSandbox, not {work.sandbox!r}")
        self.work = work

    def to_dict(self) -> BetaToolUnionParam:
        """Returns the tool's entry in the request to the model."""
        return self.work.param()

    async def call(self, input: object) -> BetaFunctionToolResultType:
        """Runs the tool.

        Raises:
            ToolError: With the text for the model.
        """
        return await answer(self.work, input)

    async def close(self) -> None:
        """Frees what the tool has in the sandbox. The sandbox stays."""
        await finish(self.work.close())


@overload
def tool_for(sandbox: Sandbox, work: Work) -> Tool: ...
@overload
def tool_for(sandbox: AsyncSandbox, work: Work) -> AsyncTool: ...
def tool_for(sandbox: AnySandbox, work: Work) -> Tool | AsyncTool:
    """Returns the tool of the kind that the sandbox is of."""
    return Tool(work) if isinstance(sandbox, Sandbox) else AsyncTool(work)


def content_of(result: ExecResult) -> BetaFunctionToolResultType:
    """Returns what the model gets to see of a call: text, and blocks of pictures."""
    text = text_of(result)
    blocks = [block_of(*one) for one in pictures_of(result)]
    return [cast(Content, {"type": "text", "text": text}), *blocks] if blocks else text


class Bash:
    """A bash that keeps its variables, functions and working directory: a context of the sandbox.

    Args:
        sandbox: The sandbox.
        cwd: The working directory that it begins in. None: the home directory.
        timeout_seconds: Time limit of a command.
        context_id: The context to use, such as that of a fork's parent. None: a new one, at the
            first command.
    """

    def __init__(
        self,
        sandbox: AnySandbox,
        *,
        cwd: str | None = None,
        timeout_seconds: float = TIMEOUT_S,
        context_id: str | None = None,
    ) -> None:
        self.context_id = context_id
        self.sandbox = sandbox
        self._cwd = cwd
        self._timeout_s = timeout_seconds
        self._context: Context | AsyncContext | None = None

    def param(self) -> BetaToolUnionParam:
        return {"type": "bash_20250124", "name": "bash"}

    async def call(self, input: Mapping[str, Any]) -> str:
        if input.get("restart"):
            await self._restart()
            return "bash was restarted"
        command = text_in(input, "command")
        limit_ms = number_in(input, "timeout_ms")
        limit = limit_ms / 1000 if limit_ms else self._timeout_s
        context = await self._opened()
        result = await interruptible(
            context.run_code(
                command, timeout_seconds=limit, max_output_bytes=MAX_OUTPUT_BYTES
            ),
            context.interrupt,
        )
        if result.exit_code == _TIMED_OUT:
            raise ToolError(
                f"{text_of(result)}\nThe command was stopped after {limit:g} s. "
                "bash keeps its variables and its working directory."
            )
        return text_of(result)

    async def close(self) -> None:
        context, self._context, self.context_id = self._context, None, None
        if context is not None:
            await quietly(context.delete)

    async def _opened(self) -> Context | AsyncContext:
        if self._context is not None:
            return self._context
        context: Context | AsyncContext
        if self.context_id is not None:
            context = await of(self.sandbox.contexts.attach(self.context_id))
        else:
            context = await of(self.sandbox.contexts.create("bash", cwd=self._cwd))
        self._context, self.context_id = context, context.id
        return context

    async def _restart(self) -> None:
        try:
            context = await self._opened()
            await of(context.restart())
        except NotFound:  # somebody deleted it
            self._context = self.context_id = None
            await self._opened()


class TextEditor:
    """Shows and changes files of the sandbox.

    Args:
        sandbox: The sandbox.
        max_characters: The most characters of a file that are shown. None: a whole file.
    """

    def __init__(self, sandbox: AnySandbox, *, max_characters: int | None = None) -> None:
        self.sandbox = sandbox
        self._max = max_characters

    def param(self) -> BetaToolUnionParam:
        if self._max is None:
            return {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}
        return {
            "type": "text_editor_20250728",
            "name": "str_replace_based_edit_tool",
            "max_characters": self._max,
        }

    async def call(self, input: Mapping[str, Any]) -> BetaFunctionToolResultType:
        command, path = text_in(input, "command"), text_in(input, "path")
        if command == "view":
            return await self._view(path, input.get("view_range"))
        if command == "create":
            await of(self.sandbox.files.upload(text_in(input, "file_text", "").encode(), path))
            return f"{path} was written"
        before = decoded(path, await content(self.sandbox.files, path))
        if command == "str_replace":
            old, new = text_in(input, "old_str"), text_in(input, "new_str", "")
            after = replaced(path, before, old, new)
        elif command == "insert":
            line = number_in(input, "insert_line")
            text = input.get("insert_text", input.get("new_str"))
            after = inserted(path, before, line or 0, text_in({"insert_text": text}, "insert_text"))
        else:
            raise ToolError(
                f"there is no command {command!r}: use view, create, str_replace or insert"
            )
        await of(self.sandbox.files.write(path, after.encode(), in_place=True))
        return f"{path} was changed:\n{around(before, after)}"

    async def close(self) -> None:
        pass

    async def _view(self, path: str, view_range: Any) -> BetaFunctionToolResultType:
        if (await of(self.sandbox.files.stat(path))).is_dir:
            entries = await of(self.sandbox.files.list(path, depth=2, limit=MAX_ENTRIES))
            names = [f"{one.name}/" if one.is_dir else one.name for one in entries]
            shown = [name for name in names if not any(p.startswith(".") for p in name.split("/"))]
            return shorten("\n".join([f"{path}, two levels deep:", *shown]))
        data = await content(self.sandbox.files, path)
        media_type = media_type_of(path)
        if media_type is not None:
            return [block_of(media_type, data)]
        lines, first = part_of(decoded(path, data), view_range)
        return shorten(numbered(lines, first), self._max)


class RunCode:
    """Runs code in the sandbox's Python process, which keeps its state.

    Args:
        sandbox: The sandbox.
        timeout_seconds: Time limit of a call.
    """

    def __init__(self, sandbox: AnySandbox, *, timeout_seconds: float = TIMEOUT_S) -> None:
        self.sandbox = sandbox
        self._timeout_s = timeout_seconds

    def param(self) -> BetaToolUnionParam:
        return {
            "name": "run_code",
            "description": (
                "Run Python in a Linux sandbox. It is one long-lived process: variables and "
                "imports stay from call to call. Returns what it prints, the value of the last "
                "expression, and figures as pictures."
            ),
            "input_schema": {
                "type": "object",
                "properties": {"code": {"type": "string", "description": "Python source text."}},
                "required": ["code"],
            },
        }

    async def call(self, input: Mapping[str, Any]) -> BetaFunctionToolResultType:
        code = text_in(input, "code")
        result = await interruptible(
            self.sandbox.run_code(
                code, timeout_seconds=self._timeout_s, max_output_bytes=MAX_OUTPUT_BYTES
            ),
            self.sandbox.interrupt,
        )
        return content_of(result)

    async def close(self) -> None:
        pass


class Fork:
    """Lets the model try several commands in copies of the sandbox, and keep one of the copies.

    Args:
        sandbox: The sandbox.
        bash: Its bash: commands then run in a copy of it, with its variables and its folder.
        max_branches: The most copies at a time.
        timeout_seconds: Time limit of a command.
    """

    def __init__(
        self,
        sandbox: AnySandbox,
        *,
        bash: Bash | None = None,
        max_branches: int = 8,
        timeout_seconds: float = TIMEOUT_S,
    ) -> None:
        self.sandbox = sandbox
        self._bash = bash
        self._max = max_branches
        self._timeout_s = timeout_seconds
        self._branches: dict[int, AnySandbox] = {}

    def param(self) -> BetaToolUnionParam:
        return {
            "name": "fork",
            "description": (
                "Try several ways at once. `try` copies the whole sandbox, with its running "
                "processes and memory, once per command and runs each command in its own copy at "
                "the same time; the sandbox itself stays as it is. Then `keep` continues in the "
                "copy with that number, and `discard` gives all copies up."
            ),
            "input_schema": {
                "type": "object",
                "properties": {
                    "action": {"type": "string", "enum": ["try", "keep", "discard"]},
                    "commands": {
                        "type": "array",
                        "items": {"type": "string"},
                        "maxItems": self._max,
                        "description": "For try: bash commands, one for each copy.",
                    },
                    "branch": {
                        "type": "integer",
                        "description": "For keep: the number of the copy, from 1.",
                    },
                },
                "required": ["action"],
            },
        }

    async def call(self, input: Mapping[str, Any]) -> str:
        action = text_in(input, "action")
        if action == "try":
            return await self._try(input.get("commands"))
        if action == "keep":
            return await self._keep(number_in(input, "branch"))
        if action == "discard":
            await self.close()
            return "all copies are gone; the sandbox is as it was before"
        raise ToolError(f"there is no action {action!r}: use try, keep or discard")

    async def close(self) -> None:
        branches, self._branches = self._branches, {}
        for branch in branches.values():
            await quietly(branch.close)

    async def _try(self, commands: Any) -> str:
        if (
            not isinstance(commands, list)
            or not all(isinstance(one, str) for one in commands)
            or not 1 <= len(commands) <= self._max
        ):
            raise ToolError(f"commands must be a list of 1 to {self._max} texts, not {commands!r:.100}")
        await self.close()
        children: Sequence[AnySandbox] = await of(self.sandbox.fork(len(commands)))
        self._branches = dict(enumerate(children, 1))
        try:
            outputs = await side_by_side(
                self.sandbox,
                [
                    partial(self._run, child, command)
                    for child, command in zip(children, commands, strict=True)
                ],
            )
        except BaseException:
            await completed(self.sandbox, self.close())
            raise
        return "\n\n".join(f"branch {i}:\n{text}" for i, text in enumerate(outputs, 1))

    async def _run(self, child: AnySandbox, command: str) -> str:
        context_id = self._bash.context_id if self._bash else None
        bash = Bash(child, timeout_seconds=self._timeout_s, context_id=context_id)
        # A copy is not what its sandbox is to others, and must not become a Space.
        await of(child.update(persistent=False, metadata={BRANCH_KEY: self.sandbox.id}))
        try:
            return str(await answer(bash, {"command": command}))
        except ToolError as error:
            return str(error)

    async def _keep(self, branch: int | None) -> str:
        winner = self._branches.get(branch or 0)
        if winner is None:
            known = ", ".join(map(str, self._branches)) or "none"
            raise ToolError(f"there is no branch {branch}; branches: {known}")
        await of(cast(Any, self.sandbox).merge_into(winner))
        await self.close()
        return f"the sandbox continues as branch {branch}; the other copies are gone"


@overload
def bash_tool(
    sandbox: Sandbox, *, cwd: str | None = None, timeout_seconds: float = TIMEOUT_S
) -> Tool: ...
@overload
def bash_tool(
    sandbox: AsyncSandbox, *, cwd: str | None = None, timeout_seconds: float = TIMEOUT_S
) -> AsyncTool: ...
def bash_tool(
    sandbox: AnySandbox, *, cwd: str | None = None, timeout_seconds: float = TIMEOUT_S
) -> Tool | AsyncTool:
    """Returns the tool `bash_20250124`: a bash that keeps its state during the conversation.

    A command at its time limit is stopped, and the bash keeps its state.

    Args:
        sandbox: The sandbox. With an `AsyncSandbox`, the tool is asynchronous.
        cwd: The working directory that it begins in. None: the home directory.
        timeout_seconds: Time limit of a command.
    """
    return tool_for(sandbox, Bash(sandbox, cwd=cwd, timeout_seconds=timeout_seconds))


@overload
def text_editor_tool(sandbox: Sandbox, *, max_characters: int | None = None) -> Tool: ...
@overload
def text_editor_tool(sandbox: AsyncSandbox, *, max_characters: int | None = None) -> AsyncTool: ...
def text_editor_tool(
    sandbox: AnySandbox, *, max_characters: int | None = None
) -> Tool | AsyncTool:
    """Returns the tool `text_editor_20250728`; it also shows pictures and PDF documents.

    Args:
        sandbox: The sandbox. With an `AsyncSandbox`, the tool is asynchronous.
        max_characters: The most characters of a file that are shown. None: a whole file.
    """
    return tool_for(sandbox, TextEditor(sandbox, max_characters=max_characters))


@overload
def run_code_tool(sandbox: Sandbox, *, timeout_seconds: float = TIMEOUT_S) -> Tool: ...
@overload
def run_code_tool(sandbox: AsyncSandbox, *, timeout_seconds: float = TIMEOUT_S) -> AsyncTool: ...
def run_code_tool(
    sandbox: AnySandbox, *, timeout_seconds: float = TIMEOUT_S
) -> Tool | AsyncTool:
    """Returns the tool `run_code`: Python with state, figures as pictures.

    Args:
        sandbox: The sandbox. With an `AsyncSandbox`, the tool is asynchronous.
        timeout_seconds: Time limit of a call.
    """
    return tool_for(sandbox, RunCode(sandbox, timeout_seconds=timeout_seconds))


@overload
def fork_tool(sandbox: Sandbox, *, max_branches: int = 8) -> Tool: ...
@overload
def fork_tool(sandbox: AsyncSandbox, *, max_branches: int = 8) -> AsyncTool: ...
def fork_tool(sandbox: AnySandbox, *, max_branches: int = 8) -> Tool | AsyncTool:
    """Returns the tool `fork`: the model tries commands in copies of the sandbox, and keeps one.

    Close the tool, or the sandbox's `SandboxTools`, to end copies that were not decided on.

    Args:
        sandbox: The sandbox. With an `AsyncSandbox`, the tool is asynchronous.
        max_branches: The most copies at a time.
    """
    return tool_for(sandbox, Fork(sandbox, max_branches=max_branches))


def _works(sandbox: AnySandbox, timeout_seconds: float, context_id: str | None) -> list[Work]:
    bash = Bash(sandbox, timeout_seconds=timeout_seconds, context_id=context_id)
    fork = Fork(sandbox, bash=bash, timeout_seconds=timeout_seconds)
    code = RunCode(sandbox, timeout_seconds=timeout_seconds)
    return [bash, TextEditor(sandbox), code, fork]


class SandboxTools:
    """The tools of one conversation: bash, text editor, `run_code` and `fork`.

    Iterate over it: `client.beta.messages.tool_runner(tools=[*tools], ...)`. Use it in a `with`
    block, or close it; that ends copies that the model made, but not the sandbox.

    Attributes:
        sandbox: The sandbox that they act in.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        timeout_seconds: float = TIMEOUT_S,
        context_id: str | None = None,
    ) -> None:
        """
        Args:
            sandbox: The sandbox.
            timeout_seconds: Time limit of a command or call.
            context_id: The bash to use, for example in the child of a fork. None: a new one.
        """
        self.sandbox = sandbox
        self._timeout_s = timeout_seconds
        self._tools = [Tool(one) for one in _works(sandbox, timeout_seconds, context_id)]

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools)

    @property
    def context_id(self) -> str | None:
        """The id of the context that bash runs in; None before its first command."""
        return cast(Bash, self._tools[0].work).context_id

    def fork(self, n: int = 1) -> list["SandboxTools"]:
        """Clones the sandbox while it runs, and returns the tools of each child.

        The conversation can continue with each of them, with a copy of its messages: files,
        variables of Python and bash, and running processes are where they were. Close each
        child's `sandbox`.

        Raises:
            RametError: The service refuses it; there are no children then.
        """
        return [
            SandboxTools(child, timeout_seconds=self._timeout_s, context_id=self.context_id)
            for child in self.sandbox.fork(n)
        ]

    def merge_into(self, winner: "SandboxTools") -> None:
        """Continues as `winner`, from `fork`; the winner's sandbox ends.

        Raises:
            Conflict: The winner does not descend from this sandbox.
        """
        self.sandbox.merge_into(winner.sandbox)

    def close(self) -> None:
        """Frees what the tools have in the sandbox, and copies that the model made."""
        for tool in self._tools:
            tool.close()

    def __enter__(self) -> "SandboxTools":
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()


class AsyncSandboxTools:
    """The tools of one conversation, asynchronous; see `SandboxTools`.

    Attributes:
        sandbox: The sandbox that they act in.
    """

    def __init__(
        self,
        sandbox: AsyncSandbox,
        *,
        timeout_seconds: float = TIMEOUT_S,
        context_id: str | None = None,
    ) -> None:
        """Arguments as for `SandboxTools`."""
        self.sandbox = sandbox
        self._timeout_s = timeout_seconds
        self._tools = [AsyncTool(one) for one in _works(sandbox, timeout_seconds, context_id)]

    def __iter__(self) -> Iterator[AsyncTool]:
        return iter(self._tools)

    @property
    def context_id(self) -> str | None:
        """The id of the context that bash runs in; None before its first command."""
        return cast(Bash, self._tools[0].work).context_id

    async def fork(self, n: int = 1) -> list["AsyncSandboxTools"]:
        """Clones the sandbox while it runs; see `SandboxTools.fork`."""
        return [
            AsyncSandboxTools(child, timeout_seconds=self._timeout_s, context_id=self.context_id)
            for child in await self.sandbox.fork(n)
        ]

    async def merge_into(self, winner: "AsyncSandboxTools") -> None:
        """Continues as `winner`, from `fork`; see `SandboxTools.merge_into`."""
        await self.sandbox.merge_into(winner.sandbox)

    async def close(self) -> None:
        """Frees what the tools have in the sandbox, and copies that the model made."""
        for tool in self._tools:
            await tool.close()

    async def __aenter__(self) -> "AsyncSandboxTools":
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.close()
