# SPDX-License-Identifier: Apache-2.0
"""One source for synchronous and asynchronous tools.

The work of a tool is written once, as a coroutine function over either kind of sandbox. With a
`Sandbox` every step has its result at once, so the coroutine never waits, and `run_now` runs it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Awaitable, Callable, Coroutine, Mapping, Protocol, TypeVar, cast

from anthropic.lib.tools import BetaFunctionToolResultType, ToolError
from anthropic.types.beta import BetaToolUnionParam

from ramet import AsyncFiles, AsyncSandbox, Files, Sandbox
from ramet._cleanup import finish
from ramet.errors import NotFound, RametError
from ramet.integrations._results import MAX_FILE_BYTES

log = logging.getLogger(__name__)
AnySandbox = Sandbox | AsyncSandbox
T = TypeVar("T")


class Work(Protocol):
    """What a tool does in a sandbox, and how the model is informed of it."""

    sandbox: AnySandbox

    def param(self) -> BetaToolUnionParam:
        """Returns the tool's entry in the request to the model."""
        ...

    async def call(self, input: Mapping[str, Any]) -> BetaFunctionToolResultType:
        """Returns the tool's result. Raises `ToolError` for the model, or `RametError`."""
        ...

    async def close(self) -> None:
        """Frees what the tool has in the sandbox. The sandbox stays."""


async def of(value: T | Awaitable[T]) -> T:
    """Returns the result of a sandbox's method, and waits for it with an `AsyncSandbox`."""
    return cast(T, await value if inspect.isawaitable(value) else value)


async def content(files: Files | AsyncFiles, path: str) -> bytes:
    """Returns the content of a file that a tool shows or edits.

    Raises:
        ToolError: It is too large for that.
    """
    try:
        return await of(files.download(path, max_bytes=MAX_FILE_BYTES))
    except RametError as error:
        if error.code != "too_large":
            raise
        raise ToolError(
            f"{path} has more than {MAX_FILE_BYTES} bytes: read a part of it with a command"
        ) from error


def run_now(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never waits, and returns its result."""
    try:
        work.send(None)
    except StopIteration as done:
        return cast(T, done.value)
    work.close()
    raise RuntimeError("a step of a synchronous tool waits")


async def interruptible(call: T | Awaitable[T], interrupt: Callable[[], Any]) -> T:
    """Waits for a call; if the tool is cancelled, interrupts the call, which would continue."""
    try:
        return await of(call)
    except asyncio.CancelledError:
        await finish(quietly(interrupt))
        raise


async def completed(sandbox: AnySandbox, work: Coroutine[Any, Any, T]) -> T:
    """Does a clean-up to its end, even if the tool is cancelled."""
    return await work if isinstance(sandbox, Sandbox) else await finish(work)


async def quietly(step: Callable[[], Any]) -> None:
    """Takes a step of a clean-up; a failure is logged, unless nothing was left to clean up."""
    try:
        await of(step())
    except NotFound:
        pass
    except RametError as error:
        log.warning("a clean-up failed: %s", error)


async def side_by_side(
    sandbox: AnySandbox, jobs: list[Callable[[], Coroutine[Any, Any, T]]]
) -> list[T]:
    """Runs jobs at the same time: in threads if the sandbox is a `Sandbox`."""
    if isinstance(sandbox, Sandbox):
        with ThreadPoolExecutor(max(len(jobs), 1)) as threads:
            return list(threads.map(lambda job: run_now(job()), jobs))
    return list(await asyncio.gather(*(job() for job in jobs)))


async def answer(work: Work, input: object) -> BetaFunctionToolResultType:
    """Calls a tool; failures of the sandbox become errors that the model can read."""
    if not isinstance(input, Mapping):
        raise ToolError(f"the input must be an object, not {type(input).__name__}")
    try:
        return await work.call(input)
    except RametError as error:
        raise ToolError(str(error)) from error


def text_in(input: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """Returns a text of the input.

    Raises:
        ToolError: It is missing, or not a text.
    """
    value = input.get(name, default)
    if not isinstance(value, str):
        wrong = "is missing" if value is None else f"must be a text, not {type(value).__name__}"
        raise ToolError(f"{name} {wrong}")
    return value


def number_in(input: Mapping[str, Any], name: str) -> int | None:
    """Returns a whole number of the input; None if it is missing.

    Raises:
        ToolError: It is something else.
    """
    value = input.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ToolError(f"{name} must be a whole number, not {value!r}")
