# SPDX-License-Identifier: Apache-2.0
"""Search with asyncio tasks: `async_best_of` and `async_beam` for an `AsyncSandbox`."""

from __future__ import annotations

import asyncio
import inspect
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Awaitable, Callable, Coroutine, Generic, Iterable, Mapping, Protocol, Sequence
from typing import TypeVar

from ramet._cleanup import finish
from ramet.errors import RametError
from ramet.search._level import (
    Attempt,
    Fork,
    Found,
    Job,
    Level,
    Meter,
    Node,
    Run,
    Tree,
    Winner,
    Work,
    checked,
)


class AsyncForkable(Protocol):
    """The methods of an `AsyncSandbox` that a search uses."""

    async def fork(self: S, n: int = 1, *, reseed: bool = False) -> list[S]:
        """Returns `n` children."""
        ...

    async def merge_into(self: S, winner: S) -> None:
        """Replaces the state of this sandbox by that of the winner."""

    async def close(self) -> None:
        """Ends the sandbox; does nothing if it has ended."""


S = TypeVar("S", bound=AsyncForkable)
T = TypeVar("T")
R = TypeVar("R")


async def async_best_of(
    parent: S,
    branches: Iterable[Callable[[S], Awaitable[T]]],
    score: Callable[[S, T], float | Awaitable[float]],
    *,
    winner: Winner = "merge",
    max_alive: int = 32,
    budget: Mapping[str, float] | None = None,
    reseed: bool = False,
    progress: Callable[[Attempt[T]], object] | None = None,
) -> Found[S, T]:
    """Like `best_of`, with coroutines: each branch is a task of the running loop.

    When the caller's task is cancelled, the branches are cancelled and all children are closed
    before `asyncio.CancelledError` is raised.

    Args:
        branches: Functions that get a child and return an awaitable.
        score: Called as score(child, result of the branch); it may be a coroutine function.
        parent, winner, max_alive, budget, reseed, progress: As for `best_of`.

    Raises:
        ValueError, AllFailed, RametError: As for `best_of`.
    """
    meter = Meter(budget)
    room = await _room(parent, meter, max_alive)
    tree: Tree[S, T] = Tree(parent, 1, 1, room, winner, meter)
    async with _Tasks(score, reseed, progress, meter, parent) as tasks:
        await tasks.run_level(tree, [list(branches)])
        return await tasks.finish(tree, parent, winner)


async def async_beam(
    parent: S,
    expand: Callable[[Node[S, T]], Awaitable[Iterable[Callable[[S], Awaitable[T]]]]],
    score: Callable[[S, T], float | Awaitable[float]],
    *,
    width: int,
    depth: int,
    winner: Winner = "merge",
    max_alive: int = 32,
    budget: Mapping[str, float] | None = None,
    reseed: bool = False,
    progress: Callable[[Attempt[T]], object] | None = None,
) -> Found[S, T]:
    """Like `beam`, with coroutines: each branch is a task of the running loop.

    When the caller's task is cancelled, the branches are cancelled and all children are closed
    before `asyncio.CancelledError` is raised.

    Args:
        expand: A coroutine function that gets a node and returns its branches.
        score: Called as score(child, result of the branch); it may be a coroutine function.
        parent, width, depth, winner, max_alive, budget, reseed, progress: As for `beam`.

    Raises:
        ValueError, AllFailed, RametError: As for `beam`.
    """
    meter = Meter(budget)
    room = await _room(parent, meter, max_alive)
    tree: Tree[S, T] = Tree(parent, width, depth, room, winner, meter)
    async with _Tasks(score, reseed, progress, meter, parent) as tasks:
        for _ in range(depth):
            branches = await tasks.all([_list(expand(node)) for node in tree.nodes])
            if not await tasks.run_level(tree, branches):
                break
        return await tasks.finish(tree, parent, winner)


async def _measure(parent: Any, meter: Meter) -> None:
    if meter.measures:
        meter.note(await parent.tree())


async def _room(parent: Any, meter: Meter, max_alive: int) -> int:
    if not meter.measures:
        return max_alive
    found = await parent.tree()
    meter.note(found)
    return meter.room(found, max_alive)


async def _list(items: Awaitable[Iterable[R]]) -> list[R]:
    return list(await items)


class _Tasks(Generic[S, T]):
    """Performs the work of a search in tasks; as a context manager, it leaves none behind."""

    def __init__(
        self,
        score: Callable[[S, T], float | Awaitable[float]],
        reseed: bool,
        progress: Callable[[Attempt[T]], object] | None,
        meter: Meter,
        parent: S,
    ) -> None:
        self._score = score
        self._reseed = reseed
        self._progress = progress
        self._meter = meter
        self._parent = parent
        self._alive: dict[int, S] = {}  # the children, by their id()
        self._pending: set[asyncio.Task[Any]] = set()
        self._keep_running: set[asyncio.Task[Any]] = set()  # forks and closes of `_pending`

    async def run_level(
        self, tree: Tree[S, T], branches: Sequence[Sequence[Callable[[S], Awaitable[T]]]]
    ) -> bool:
        """Runs a level to its end; returns False if there is nothing to run."""
        level = tree.level(branches, len(self._alive))
        if level is None:
            return False
        await self._run(level)
        await self._close(tree.end_level(level))
        return bool(tree.nodes)

    async def _run(self, level: Level[S, T]) -> None:
        self._start(level.next())
        while self._pending:
            for done in await self._ended():
                work, ended = level.after(done.result())
                self._start(work)
                for attempt in ended:
                    if self._progress is not None:
                        self._progress(attempt)

    async def all(self, calls: Sequence[Coroutine[Any, Any, R]]) -> list[R]:
        """Runs coroutines side by side and returns their results."""
        tasks = [asyncio.ensure_future(call) for call in calls]
        self._pending.update(tasks)
        while self._pending:
            for done in await self._ended():
                done.result()
        return [task.result() for task in tasks]

    async def finish(self, tree: Tree[S, T], parent: S, winner: Winner) -> Found[S, T]:
        """Merges, keeps or closes the winner, and closes all others."""
        found = tree.found(keep=True)
        best = found.sandbox
        assert best is not None
        await self._close([child for child in self._alive.values() if child is not best])
        if winner == "keep":
            del self._alive[id(best)]
            return found
        if winner == "merge":
            await parent.merge_into(best)
        await self._close([best])
        return tree.found(keep=False)

    def _start(self, work: Iterable[Work[S, T]]) -> None:
        for one in work:
            task = asyncio.ensure_future(self._perform(one))
            self._pending.add(task)
            if not isinstance(one, Run):
                self._keep_running.add(task)
                task.add_done_callback(self._keep_running.discard)

    async def _ended(self) -> list[asyncio.Task[Any]]:
        """Waits until something has ended, and returns it."""
        done, self._pending = await asyncio.wait(
            self._pending, return_when=asyncio.FIRST_COMPLETED
        )
        return list(done)

    async def _perform(self, work: Work[S, T]) -> Work[S, T]:
        """Does one item of work, in a task."""
        if isinstance(work, Fork):
            try:
                work.children = await work.source.fork(len(work.jobs), reseed=self._reseed)
            except Exception as error:
                work.error = error
            self._alive.update((id(child), child) for child in work.children)
        elif isinstance(work, Run):
            work.attempt = await self._attempt(work.job, work.child)
            with suppress(RametError):  # it is measured again after the next one
                await _measure(self._parent, self._meter)
        else:
            await self._close_one(work.child)
        return work

    async def _attempt(self, job: Job[S, T], child: S) -> Attempt[T]:
        began = time.monotonic()
        try:
            value = await job.branch(child)
            score = self._score(child, value)
            number = checked(await score if inspect.isawaitable(score) else score)
        except Exception as error:
            return Attempt(job.path, error=error, seconds=time.monotonic() - began)
        return Attempt(job.path, value, number, None, time.monotonic() - began)

    async def _close(self, children: Sequence[S]) -> None:
        """Closes children side by side, and returns when all are closed.

        A close is not cancelled: a second one would do nothing.
        """
        await finish(self._close_all(children))

    async def _close_all(self, children: Sequence[S]) -> None:
        await asyncio.gather(*(self._close_one(child) for child in children))

    async def _close_one(self, child: S) -> None:
        with suppress(RametError):  # without a service, the child ends at its time limit
            await child.close()
        self._alive.pop(id(child), None)

    async def _clean(self) -> None:
        """Cancels the branches and closes all children.

        Forks are not cancelled: the children of one that has just been answered would be lost.
        """
        for task in self._pending - self._keep_running:
            task.cancel()
        if self._pending:
            await asyncio.wait(self._pending)
        await self._close_all(list(self._alive.values()))

    async def __aenter__(self) -> "_Tasks[S, T]":
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await finish(self._clean())
