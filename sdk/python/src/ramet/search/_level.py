# SPDX-License-Identifier: Apache-2.0
"""The part of a search that does no I/O: which child to fork, run or close next.

A `Level` turns what has ended into what is to be done. `_threads` performs it with threads,
`_tasks` with asyncio tasks, so that both decide alike.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Generic, Iterable, Literal, Mapping, Sequence, TypeVar, Union

from ramet.errors import RametError
from ramet.types import TreeInfo

S = TypeVar("S")  # the type of the sandboxes
T = TypeVar("T")  # the type that a branch returns

Winner = Literal["merge", "keep", "close"]
"""What happens to the best child: it replaces the parent's state, it is returned, or it ends."""

FORK_MAX = 32  # children of one fork that a service allows unless configured otherwise


@dataclass(frozen=True)
class Attempt(Generic[T]):
    """A branch that has ended.

    Attributes:
        path: Index of the branch in each level from the first one on: (2,) is the third branch of
            the parent, (2, 0) the first branch of that one's child.
        value: What the branch returned; None if it failed.
        score: Its score; None if it failed.
        error: The exception that the fork, the branch or its scoring raised; otherwise None.
        seconds: Time that the branch and its scoring took.
    """

    path: tuple[int, ...]
    value: T | None = None
    score: float | None = None
    error: Exception | None = None
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """True if the branch has a score."""
        return self.error is None


@dataclass(frozen=True)
class Node(Generic[S, T]):
    """A sandbox of the search, as `expand` gets it.

    Attributes:
        sandbox: The parent of the search, or a child at the end of its branch. The search closes
            it; `expand` may look at it.
        steps: The attempts that led to it, one for each level; empty for the parent.
    """

    sandbox: S
    steps: tuple[Attempt[T], ...] = ()

    @property
    def depth(self) -> int:
        """Levels above it: 0 for the parent."""
        return len(self.steps)

    @property
    def path(self) -> tuple[int, ...]:
        """Path of its attempt; empty for the parent."""
        return self.steps[-1].path if self.steps else ()

    @property
    def value(self) -> T | None:
        """What its branch returned; None for the parent."""
        return self.steps[-1].value if self.steps else None

    @property
    def score(self) -> float:
        """Its score; minus infinity for the parent."""
        score = self.steps[-1].score if self.steps else None
        return -math.inf if score is None else score


@dataclass(frozen=True)
class Spent:
    """What a search has used, measured in the tree that its parent belongs to.

    Attributes:
        cpu_seconds: CPU time of all sandboxes of the tree during the search.
        wall_seconds: Time.
        children: Sandboxes that were forked.
    """

    cpu_seconds: float
    wall_seconds: float
    children: int


@dataclass(frozen=True)
class Found(Generic[S, T]):
    """The result of a search.

    Attributes:
        value: What the best branch returned.
        score: Its score.
        steps: The attempts that led to it, one for each level; the last one is the best.
        attempts: All attempts, failed ones too, in the order of their paths.
        sandbox: With ``winner="keep"`` the best child, which the caller must close; otherwise
            None.
        spent: With a budget, what the search has used; otherwise None.
    """

    value: T
    score: float
    steps: tuple[Attempt[T], ...]
    attempts: list[Attempt[T]] = field(repr=False)
    sandbox: S | None = None
    spent: Spent | None = None

    @property
    def path(self) -> tuple[int, ...]:
        """Path of the best attempt: the index of a branch for each level."""
        return self.steps[-1].path

    @property
    def failed(self) -> list[Attempt[T]]:
        """The attempts that failed, each with its `error`."""
        return [attempt for attempt in self.attempts if not attempt.ok]


class AllFailed(RametError):
    """Every branch of the first level failed; nothing was merged, and all children are closed.

    The first error is the `__cause__`.

    Attributes:
        attempts: All of them, in the order of their paths.
    """

    def __init__(self, attempts: Sequence[Attempt[Any]]) -> None:
        first = attempts[0].error
        super().__init__(
            f"all {len(attempts)} branches failed; the first one with"
            f" {type(first).__name__}: {first}"
        )
        self.attempts = list(attempts)
        self.__cause__ = first


class SearchCancelled(RametError):
    """`cancel` was set during a search; nothing was merged, and all children are closed."""


class BudgetSpent(RametError):
    """The budget of the search was used up before this branch could begin."""


class Meter:
    """Compares what a search uses with its budget. Its methods may be called in any thread.

    Args:
        budget: "cpu_seconds" and "wall_seconds"; None: nothing is measured.

    Attributes:
        children: Sandboxes that were forked.
    """

    def __init__(self, budget: Mapping[str, float] | None) -> None:
        unknown = set(budget or ()) - {"cpu_seconds", "wall_seconds"}
        if unknown:
            raise ValueError(
                f"budget has {min(unknown)!r}: it may have 'cpu_seconds' and 'wall_seconds'"
            )
        self.children = 0
        self._budget = budget
        self._began = time.monotonic()
        self._first_cpu_s: float | None = None
        self._cpu_s = 0.0
        self._lock = threading.Lock()

    @property
    def measures(self) -> bool:
        """True if there is a budget: `note` must then be called."""
        return self._budget is not None

    def note(self, tree: TreeInfo) -> None:
        """Takes note of what the tree has used; the first time, before the search uses any."""
        with self._lock:
            if self._first_cpu_s is None:
                self._first_cpu_s = tree.cpu_seconds
            self._cpu_s = max(self._cpu_s, tree.cpu_seconds - self._first_cpu_s)

    def room(self, tree: TreeInfo, max_alive: int) -> int:
        """Returns how many children may exist at once, given what the tree has room for."""
        live = (tree.budget or {}).get("live")
        return max_alive if live is None else min(max_alive, int(live) - tree.live)

    @property
    def is_over(self) -> bool:
        """True if no further branch may begin."""
        if self._budget is None:
            return False
        used = self.spent
        return (
            used.cpu_seconds >= self._budget.get("cpu_seconds", math.inf)
            or used.wall_seconds >= self._budget.get("wall_seconds", math.inf)
        )

    @property
    def spent(self) -> Spent:
        """What was used so far."""
        return Spent(self._cpu_s, time.monotonic() - self._began, self.children)


@dataclass
class Job(Generic[S, T]):
    """A branch that is to run on a child of `node`. Its type depends on the driver."""

    node: Node[S, T]
    branch: Any
    index: int

    @property
    def path(self) -> tuple[int, ...]:
        return (*self.node.path, self.index)


@dataclass
class Fork(Generic[S, T]):
    """To do: fork the sandbox of the jobs' node into a child for each job."""

    jobs: list[Job[S, T]]
    children: list[S] = field(default_factory=list)
    error: Exception | None = None

    @property
    def source(self) -> S:
        return self.jobs[0].node.sandbox


@dataclass
class Run(Generic[S, T]):
    """To do: run the job's branch on its child and score it."""

    job: Job[S, T]
    child: S
    attempt: Attempt[T] | None = None


@dataclass
class Close(Generic[S, T]):
    """To do: close a child that is not among the best."""

    child: S


Work = Union[Fork[S, T], Run[S, T], Close[S, T]]


def better(one: Node[S, T], other: Node[S, T]) -> bool:
    """True if the first node ranks higher. Equal scores rank by path, so that a search whose
    branches end in another order finds the same."""
    return (-one.score, one.path) < (-other.score, other.path)


class Level(Generic[S, T]):
    """One level of a search: forks nodes, runs all jobs, and keeps the `width` best children.

    Args:
        jobs: The jobs of each node.
        width: Children to keep.
        room: Children that may be alive at once, at least `width + 1` unless there are fewer jobs.
        meter: Once it is over, jobs that wait fail.

    Attributes:
        best: The best children so far, best first.
        attempts: The attempts that have ended.
        fork_error: The first error of a fork; None again once a branch has run.
    """

    def __init__(
        self, jobs: Iterable[Sequence[Job[S, T]]], width: int, room: int, meter: Meter
    ) -> None:
        self.best: list[Node[S, T]] = []
        self.attempts: list[Attempt[T]] = []
        self.fork_error: Exception | None = None
        self._ran_any = False
        self._waiting = deque(deque(of_node) for of_node in jobs if of_node)
        self._width = width
        self._room = room
        self._meter = meter

    def next(self) -> list[Work[S, T]]:
        """Returns the forks for which there is room now."""
        forks: list[Work[S, T]] = []
        if self._waiting and self._meter.is_over:
            self._drop_waiting()
        while self._room and self._waiting:
            jobs = self._waiting[0]
            count = min(self._room, len(jobs), FORK_MAX)
            forks.append(Fork([jobs.popleft() for _ in range(count)]))
            self._room -= count
            if not jobs:
                self._waiting.popleft()
        return forks

    def after(self, done: Work[S, T]) -> tuple[list[Work[S, T]], list[Attempt[T]]]:
        """Returns what is to be done, and the attempts that ended, after `done` was done."""
        before = len(self.attempts)
        if isinstance(done, Fork):
            work = self._forked(done)
        elif isinstance(done, Run):
            work = self._ran(done)
        else:
            self._room += 1
            work = []
        return work + self.next(), self.attempts[before:]

    def _drop_waiting(self) -> None:
        error = BudgetSpent("the budget of the search is used up")
        self.attempts += [Attempt(job.path, error=error) for jobs in self._waiting for job in jobs]
        self._waiting.clear()

    def _forked(self, done: Fork[S, T]) -> list[Work[S, T]]:
        if done.error is None:
            self._meter.children += len(done.jobs)
            return [Run(job, child) for job, child in zip(done.jobs, done.children, strict=True)]
        self._room += len(done.jobs)
        if not self._ran_any and self.fork_error is None:
            self.fork_error = done.error
        self.attempts += [Attempt(job.path, error=done.error) for job in done.jobs]
        return []

    def _ran(self, done: Run[S, T]) -> list[Work[S, T]]:
        assert done.attempt
        self._ran_any, self.fork_error = True, None
        self.attempts.append(done.attempt)
        if not done.attempt.ok:
            return [Close(done.child)]
        node = Node(done.child, (*done.job.node.steps, done.attempt))
        rank = sum(better(other, node) for other in self.best)
        self.best.insert(rank, node)
        return [Close(self.best.pop().sandbox)] if len(self.best) > self._width else []


class Tree(Generic[S, T]):
    """The state of a search between its levels.

    Attributes:
        nodes: The nodes to expand next.
        best: The best child of all levels so far.
        attempts: The attempts of all levels so far.
    """

    def __init__(
        self,
        parent: S,
        width: int,
        depth: int,
        max_alive: int,
        winner: Winner,
        meter: Meter | None = None,
    ) -> None:
        if width < 1 or depth < 1:
            raise ValueError(f"width and depth must be at least 1, not {width} and {depth}")
        least = width + 1 if depth == 1 else 2 * width + 2
        if max_alive < least:
            raise ValueError(
                f"max_alive must be at least {least}, not {max_alive}: children that are kept need"
                " room, and one more that runs"
            )
        if winner not in ("merge", "keep", "close"):
            raise ValueError(f"winner must be 'merge', 'keep' or 'close', not {winner!r}")
        self.nodes: list[Node[S, T]] = [Node(parent)]
        self.best: Node[S, T] | None = None
        self.attempts: list[Attempt[T]] = []
        self._parent = parent
        self._width = width
        self._max_alive = max_alive
        self._meter = meter or Meter(None)

    def level(self, branches: Sequence[Sequence[Any]], kept: int) -> Level[S, T] | None:
        """Returns the next level; None if there is no branch, or the budget is used up.

        Args:
            branches: The branches of each node.
            kept: Children of earlier levels that are alive.
        """
        jobs = [
            [Job(node, branch, index) for index, branch in enumerate(of_node)]
            for node, of_node in zip(self.nodes, branches, strict=True)
        ]
        count = sum(map(len, jobs))
        if not count and self.best is None:
            raise ValueError("there is no branch to run on a child of the parent")
        if not count or (self.best is not None and self._meter.is_over):
            return None
        return Level(jobs, self._width, self._max_alive - kept, self._meter)

    def end_level(self, level: Level[S, T]) -> list[S]:
        """Continues with the best children of a level; returns those to be closed."""
        self.attempts = sorted(self.attempts + level.attempts, key=lambda attempt: attempt.path)
        if not level.best and self.best is None:
            if level.fork_error is not None:
                raise level.fork_error
            raise AllFailed(self.attempts)
        old = [*self.nodes, *([self.best] if self.best else [])]
        self.nodes = level.best
        if self.best is None or (level.best and better(level.best[0], self.best)):
            self.best = level.best[0]
        kept = {id(node.sandbox) for node in (*self.nodes, self.best)} | {id(self._parent)}
        return list({id(n.sandbox): n.sandbox for n in old if id(n.sandbox) not in kept}.values())

    def found(self, keep: bool) -> Found[S, T]:
        """Returns the result."""
        assert self.best
        last = self.best.steps[-1]
        value: Any = last.value  # of type T: the attempt did not fail
        return Found(
            value=value,
            score=self.best.score,
            steps=self.best.steps,
            attempts=self.attempts,
            sandbox=self.best.sandbox if keep else None,
            spent=self._meter.spent if self._meter.measures else None,
        )


def checked(score: Any) -> float:
    """Returns a score as a float.

    Raises:
        ValueError: It is not a number that can be compared.
    """
    number = float(score)
    if math.isnan(number):
        raise ValueError("the score is NaN: it cannot be compared")
    return number
