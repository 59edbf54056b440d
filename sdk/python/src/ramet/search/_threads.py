# SPDX-License-Identifier: Apache-2.0
"""Search with threads: `best_of` and `beam` for a `Sandbox`."""

from __future__ import annotations

import contextvars
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Callable, Generic, Iterable, Mapping, Protocol, Sequence, TypeVar

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
    SearchCancelled,
    Tree,
    Winner,
    Work,
    checked,
)

POLL_SECONDS = 0.1  # between looks at `cancel`
THREADS_MAX = 4096  # threads start when needed: the children alive are the real limit


class Forkable(Protocol):
    """The methods of a `Sandbox` that a search uses."""

    def fork(self: S, n: int = 1, *, reseed: bool = False) -> list[S]:
        """Returns `n` children."""
        ...

    def merge_into(self: S, winner: S) -> None:
        """Replaces the state of this sandbox by that of the winner."""

    def close(self) -> None:
        """Ends the sandbox; does nothing if it has ended."""


S = TypeVar("S", bound=Forkable)
T = TypeVar("T")
R = TypeVar("R")


def best_of(
    parent: S,
    branches: Iterable[Callable[[S], T]],
    score: Callable[[S, T], float],
    *,
    winner: Winner = "merge",
    max_alive: int = 32,
    budget: Mapping[str, float] | None = None,
    reseed: bool = False,
    progress: Callable[[Attempt[T]], object] | None = None,
    cancel: threading.Event | None = None,
) -> Found[S, T]:
    """Forks a sandbox, runs each branch on a child of its own, and keeps the best child.

    The branches run side by side, each in a thread, and so do their scores. A branch that raises
    does not disturb the others: it is in the result's `failed`. All children are closed when this
    function returns or raises, except a winner that is returned.

    Args:
        parent: The sandbox to fork. Nothing else should change it meanwhile: children that are
            forked later, because of `max_alive`, begin with its state at that time.
        branches: Functions that get a child, and whose result is scored.
        score: Called as score(child, result of the branch); the highest number wins, of equal
            ones that of the first branch. NaN counts as a failure.
        winner: "merge": the parent continues as the best child. "keep": the result's `sandbox` is
            the best child, which the caller must close. "close": only the values are kept.
        max_alive: Children that may exist at once, at least 2. Further branches wait.
        budget: "cpu_seconds" and "wall_seconds" that the search may use, both optional; CPU time is
            that of the tree the parent belongs to (docs/trees.md). Once it is used up, no further
            branch begins, and the best child so far wins. Also, children are not more than the
            tree has room for. The result's `spent` says what was used.
        reseed: Seed Python's and numpy's random numbers differently in each child.
        progress: Called in this thread with each branch that has ended. If it raises, the search
            ends with its exception.
        cancel: The search ends soon after this event is set. All children are closed, which ends
            the calls in them; a branch that does something else is waited for.

    Raises:
        ValueError: An argument is out of range, or there are no branches.
        AllFailed: Every branch failed.
        SearchCancelled: `cancel` was set.
        RametError: The fork or the merge failed. If only the fork for some branches failed, these
            count as failures.
    """
    meter = Meter(budget)
    room = _room(parent, meter, max_alive)
    tree: Tree[S, T] = Tree(parent, 1, 1, room, winner, meter)
    with _Threads(score, reseed, progress, cancel, meter, parent) as threads:
        threads.run_level(tree, [list(branches)])
        return threads.finish(tree, parent, winner)


def beam(
    parent: S,
    expand: Callable[[Node[S, T]], Iterable[Callable[[S], T]]],
    score: Callable[[S, T], float],
    *,
    width: int,
    depth: int,
    winner: Winner = "merge",
    max_alive: int = 32,
    budget: Mapping[str, float] | None = None,
    reseed: bool = False,
    progress: Callable[[Attempt[T]], object] | None = None,
    cancel: threading.Event | None = None,
) -> Found[S, T]:
    """Searches several levels deep: forks the best children of a level again for the next one.

    On each level, `expand` returns the branches of a node, each branch runs on a fork of that
    node, and the `width` best children of the level become the nodes of the next one. The winner is
    the best child of all levels, so the scores of different levels must be comparable.

    Args:
        parent: The sandbox to begin with, as for `best_of`.
        expand: Called with each node of a level, in threads: first with the parent, then with the
            kept children. Without branches, a node is not continued. If it raises, the search ends
            with its exception.
        score: As for `best_of`.
        width: Children to keep on each level.
        depth: Levels; the search ends earlier if no node has a branch, or if all branches of a
            level fail.
        winner: As for `best_of`; the parent can continue as a child of any level.
        max_alive: Children of all levels that may exist at once, at least ``2 * width + 2``, or
            ``width + 1`` with a depth of 1.
        budget, reseed, progress, cancel: As for `best_of`.

    Returns:
        The best child's value; `steps` and `path` are the way to it.

    Raises:
        ValueError: An argument is out of range, or `expand` returned no branches for the parent.
        AllFailed: Every branch of the first level failed.
        SearchCancelled: `cancel` was set.
        RametError: The fork or the merge failed, as for `best_of`.
    """
    meter = Meter(budget)
    room = _room(parent, meter, max_alive)
    tree: Tree[S, T] = Tree(parent, width, depth, room, winner, meter)
    with _Threads(score, reseed, progress, cancel, meter, parent) as threads:
        for _ in range(depth):
            branches = threads.all([partial(_list, expand, node) for node in tree.nodes])
            if not threads.run_level(tree, branches):
                break
        return threads.finish(tree, parent, winner)


def _measure(parent: Any, meter: Meter) -> None:
    if meter.measures:
        meter.note(parent.tree())


def _room(parent: Any, meter: Meter, max_alive: int) -> int:
    if not meter.measures:
        return max_alive
    found = parent.tree()
    meter.note(found)
    return meter.room(found, max_alive)


def _list(expand: Callable[[Node[S, T]], Iterable[R]], node: Node[S, T]) -> list[R]:
    return list(expand(node))


class _Threads(Generic[S, T]):
    """Performs the work of a search in threads; as a context manager, it leaves none behind.

    All decisions and all callbacks happen in the caller's thread. A KeyboardInterrupt arrives
    there too, so no answer of a fork is lost to it.
    """

    def __init__(
        self,
        score: Callable[[S, T], float],
        reseed: bool,
        progress: Callable[[Attempt[T]], object] | None,
        cancel: threading.Event | None,
        meter: Meter,
        parent: S,
    ) -> None:
        self._score = score
        self._reseed = reseed
        self._progress = progress
        self._cancel = cancel
        self._meter = meter
        self._parent = parent
        self._alive: dict[int, S] = {}  # the children, by their id()
        self._pending: set[Future[Any]] = set()
        self._pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="ramet-search")

    def run_level(self, tree: Tree[S, T], branches: Sequence[Sequence[Callable[[S], T]]]) -> bool:
        """Runs a level to its end; returns False if there is nothing to run."""
        level = tree.level(branches, len(self._alive))
        if level is None:
            return False
        self._run(level)
        self._close(tree.end_level(level))
        return bool(tree.nodes)

    def _run(self, level: Level[S, T]) -> None:
        self._start(level.next())
        while self._pending:
            for done in self._ended():
                work, ended = level.after(done.result())
                self._start(work)
                for attempt in ended:
                    if self._progress is not None:
                        self._progress(attempt)

    def all(self, calls: Sequence[Callable[[], R]]) -> list[R]:
        """Runs functions side by side and returns their results."""
        futures = [self._submit(call) for call in calls]
        while self._pending:
            for done in self._ended():
                done.result()
        return [future.result() for future in futures]

    def finish(self, tree: Tree[S, T], parent: S, winner: Winner) -> Found[S, T]:
        """Merges, keeps or closes the winner, and closes all others."""
        found = tree.found(keep=True)
        best = found.sandbox
        assert best is not None
        self._close([child for child in self._alive.values() if child is not best])
        if winner == "keep":
            del self._alive[id(best)]
            return found
        if winner == "merge":
            parent.merge_into(best)
        self._close([best])
        return tree.found(keep=False)

    def _start(self, work: Iterable[Work[S, T]]) -> None:
        for one in work:
            self._submit(partial(self._perform, one))

    def _submit(self, call: Callable[[], R]) -> Future[R]:
        future = self._pool.submit(contextvars.copy_context().run, call)
        self._pending.add(future)
        return future

    def _ended(self) -> list[Future[Any]]:
        """Waits until something has ended, and returns it."""
        while True:
            if self._cancel is not None and self._cancel.is_set():
                raise SearchCancelled("the search was cancelled")
            done, self._pending = wait(self._pending, POLL_SECONDS, FIRST_COMPLETED)
            if done:
                return list(done)

    def _perform(self, work: Work[S, T]) -> Work[S, T]:
        """Does one item of work, in a thread."""
        if isinstance(work, Fork):
            try:
                work.children = work.source.fork(len(work.jobs), reseed=self._reseed)
            except Exception as error:
                work.error = error
            self._alive.update((id(child), child) for child in work.children)
        elif isinstance(work, Run):
            work.attempt = self._attempt(work.job, work.child)
            with suppress(RametError):  # it is measured again after the next one
                _measure(self._parent, self._meter)
        else:
            self._close_one(work.child)
        return work

    def _attempt(self, job: Job[S, T], child: S) -> Attempt[T]:
        began = time.monotonic()
        try:
            value = job.branch(child)
            score = checked(self._score(child, value))
        except Exception as error:
            return Attempt(job.path, error=error, seconds=time.monotonic() - began)
        return Attempt(job.path, value, score, None, time.monotonic() - began)

    def _close(self, children: Sequence[S]) -> None:
        """Closes children side by side, and returns when all are closed."""
        wait([self._pool.submit(self._close_one, child) for child in children])

    def _close_one(self, child: S) -> None:
        with suppress(RametError):  # without a service, the child ends at its time limit
            child.close()
        self._alive.pop(id(child), None)

    def __enter__(self) -> "_Threads[S, T]":
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Closes all children, which ends the calls in them, and waits for all threads."""
        for future in self._pending:
            future.cancel()
        self._close(list(self._alive.values()))
        self._pool.shutdown(cancel_futures=True)
        for child in list(self._alive.values()):  # of forks that ended meanwhile
            self._close_one(child)
