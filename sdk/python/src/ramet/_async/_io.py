# SPDX-License-Identifier: Apache-2.0
"""Waiting and concurrency, with asyncio's tasks. Twin of ramet/_io.py."""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import Awaitable, Callable, ParamSpec, TypeVar

import anyio

_P = ParamSpec("_P")
_T = TypeVar("_T")

_GRACE_S = 10.0  # time that a cancelled task gives `finish`

Cancelled = (asyncio.CancelledError,)  # raised when the caller shall not wait any longer


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def blocking(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Calls a function that may wait for a local disk, in another thread."""
    return await asyncio.to_thread(functools.partial(function, *args, **kwargs))


async def notify(callback: Callable[[_T], object] | None, value: _T) -> None:
    """Calls a callback, and awaits what a coroutine function returns."""
    if callback is not None:
        answer = callback(value)
        if inspect.isawaitable(answer):
            await answer


async def beside(work: Callable[[], Awaitable[_T]], side: Callable[[], Awaitable[object]]) -> _T:
    """Does `work` while `side` is done in another task, which must not raise.

    Returns when both are done. If `work` fails or is cancelled, `side` is cancelled.
    """
    task = asyncio.ensure_future(side())
    try:
        result = await work()
        await task
        return result
    except BaseException:
        task.cancel()
        with anyio.CancelScope(shield=True):  # from the cancelled scope of a task group
            await asyncio.wait([task])
        raise


async def finish(
    work: Callable[[], Awaitable[_T]], on_cancel: Callable[[], None] | None = None
) -> _T:
    """Does `work`, also when the calling task is cancelled: it then ends up to 10 s later.

    `on_cancel` is called then, and may make the work shorter.
    """
    task = asyncio.ensure_future(work())
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        if on_cancel:
            on_cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task], timeout=_GRACE_S)
        task.cancel()  # asyncio does not log the error of a failed one then
        raise
    return task.result()
