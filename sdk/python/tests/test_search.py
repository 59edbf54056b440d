# SPDX-License-Identifier: Apache-2.0
"""Search with forks, against fake sandboxes: which child wins, and that no other one is left.

Every test with `kind` runs twice: with threads and with asyncio tasks.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from typing import Any, Awaitable, Callable, Iterator

import pytest

from ramet import NotFound, RametError, TreeInfo, Unavailable, search
from ramet.search import Attempt, Found, Node

Branch = Callable[["Box"], Any]
WAIT_S = 60


class World:
    """All fake sandboxes, and what has happened to them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.alive: set[Box] = set()
        self.most = 0
        self.forks: list[tuple[Box, int, bool]] = []
        self.cpu_seconds = 7.0  # of the tree, before the search
        self.live: int | None = None
        self.on_fork: Callable[[Box, int], None] = lambda box, n: None
        self.parent = Box(self, [])

    @property
    def children(self) -> int:
        return len(self.alive - {self.parent})


class Box:
    """A fake sandbox whose state is a list."""

    def __init__(self, world: World, state: list[Any]) -> None:
        self.world, self.state, self.ended = world, list(state), threading.Event()
        self.merges: list[Box] = []
        with world.lock:
            world.alive.add(self)
            world.most = max(world.most, len(world.alive))

    def fork(self, n: int = 1, *, reseed: bool = False) -> list[Box]:
        self.world.on_fork(self, n)
        self.check()
        self.world.forks.append((self, n, reseed))
        return [Box(self.world, self.state) for _ in range(n)]

    def merge_into(self, winner: Box) -> None:
        self.check()
        winner.check()
        self.state = winner.state
        self.merges.append(winner)
        winner.close()

    def tree(self) -> TreeInfo:
        self.check()
        live = len(self.world.alive)
        budget = None if self.world.live is None else {"live": self.world.live}
        return TreeInfo("", budget, live, 0, 0, self.world.cpu_seconds, 0.0, [], [], {})

    def close(self) -> None:
        self.ended.set()
        with self.world.lock:
            self.world.alive.discard(self)

    def check(self) -> None:
        if self.ended.is_set():
            raise NotFound("the sandbox is gone", status=404, code="deleted")

    def hang(self) -> None:
        """Runs a call that ends with the sandbox only."""
        assert self.ended.wait(WAIT_S)
        self.check()


class AsyncBox:
    """The same with coroutines."""

    def __init__(self, box: Box) -> None:
        self.box, self.closes = box, False

    async def fork(self, n: int = 1, *, reseed: bool = False) -> list[AsyncBox]:
        children = self.box.fork(n, reseed=reseed)
        for _ in range(9):
            await asyncio.sleep(0)
        return [AsyncBox(child) for child in children]

    async def merge_into(self, winner: AsyncBox) -> None:
        await asyncio.sleep(0)
        self.box.merge_into(winner.box)

    async def tree(self) -> TreeInfo:
        return self.box.tree()

    async def close(self) -> None:
        """As in the SDK, a second call does nothing, even if the first one was cancelled."""
        if not self.closes:
            self.closes = True
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            self.box.close()


def in_task(branch: Branch) -> Callable[[AsyncBox], Awaitable[Any]]:
    async def run(child: AsyncBox) -> Any:
        await asyncio.sleep(0)
        if branch is Box.hang:
            while True:
                await asyncio.sleep(WAIT_S)
        return branch(child.box)

    return run


def sync_found(found: Found[AsyncBox, Any]) -> Found[Box, Any]:
    box = found.sandbox.box if found.sandbox else None
    return Found(found.value, found.score, found.steps, found.attempts, box, found.spent)


class Kind:
    """The functions of one kind, called alike."""

    def __init__(self, name: str) -> None:
        self.tasks = name == "tasks"

    def best_of(
        self, parent: Box, branches: list[Branch], score: Callable[[Box, Any], Any], **options: Any
    ) -> Found[Box, Any]:
        if not self.tasks:
            return search.best_of(parent, branches, score, **options)
        return sync_found(
            asyncio.run(
                search.async_best_of(
                    AsyncBox(parent),
                    [in_task(branch) for branch in branches],
                    lambda child, value: score(child.box, value),
                    **options,
                )
            )
        )

    def beam(
        self,
        parent: Box,
        expand: Callable[[Node[Box, Any]], list[Branch]],
        score: Callable[[Box, Any], Any],
        **options: Any,
    ) -> Found[Box, Any]:
        if not self.tasks:
            return search.beam(parent, expand, score, **options)

        async def expand_async(node: Node[AsyncBox, Any]) -> list[Any]:
            return [in_task(branch) for branch in expand(Node(node.sandbox.box, node.steps))]

        async def score_async(child: AsyncBox, value: Any) -> Any:
            return score(child.box, value)

        return sync_found(
            asyncio.run(
                search.async_beam(AsyncBox(parent), expand_async, score_async, **options)
            )
        )


@pytest.fixture(params=["threads", "tasks"])
def kind(request: pytest.FixtureRequest) -> Kind:
    return Kind(request.param)


@pytest.fixture
def world() -> Iterator[World]:
    before = set(threading.enumerate())
    world = World()
    yield world
    assert world.parent in world.alive and not world.children
    # They have ended, but for their last steps. A thread whose start was interrupted cannot be joined.
    deadline = time.monotonic() + 60
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not set(threading.enumerate()) - before


def add(value: Any) -> Branch:
    """A branch that changes the state of its child and returns the value."""

    def branch(child: Box) -> Any:
        child.state.append(value)
        return value

    return branch


def fail(child: Box) -> Any:
    raise KeyError("no")


def value_of(child: Box, value: Any) -> Any:
    return value


# --- best_of ---


def test_parent_continues_as_the_best_child(world: World, kind: Kind) -> None:
    world.parent.state = ["loaded"]
    found = kind.best_of(world.parent, [add(3), add(9), add(5)], value_of)
    assert (found.value, found.score, found.path, found.sandbox) == (9, 9.0, (1,), None)
    assert world.parent.state == ["loaded", 9]
    assert world.forks == [(world.parent, 3, False)]
    assert [(a.path, a.value, a.score, a.ok) for a in found.attempts] == [
        ((0,), 3, 3.0, True),
        ((1,), 9, 9.0, True),
        ((2,), 5, 5.0, True),
    ]


def test_winner_can_be_kept_or_closed(world: World, kind: Kind) -> None:
    found = kind.best_of(world.parent, [add(1), add(2)], value_of, winner="keep")
    assert found.sandbox and world.alive == {world.parent, found.sandbox}
    assert found.sandbox.state == [2] and world.parent.state == []
    found.sandbox.close()
    found = kind.best_of(world.parent, [add(1), add(2)], value_of, winner="close")
    assert found.value == 2 and found.sandbox is None and not world.children
    assert world.parent.state == [] and not world.parent.merges


def test_failed_branches_are_reported_and_the_best_other_wins(world: World, kind: Kind) -> None:
    seen: list[Attempt[Any]] = []
    branches = [fail, add(1), add("text"), add(float("nan")), add(0)]
    found = kind.best_of(world.parent, branches, value_of, progress=seen.append)
    assert found.path == (1,) and world.parent.state == [1]
    errors = {a.path: type(a.error) for a in found.failed}
    assert errors == {(0,): KeyError, (2,): ValueError, (3,): ValueError}
    assert all(a.score is None and not a.ok for a in found.failed)
    assert sorted(seen, key=lambda a: a.path) == found.attempts


def test_search_in_which_all_fail_raises_and_merges_nothing(world: World, kind: Kind) -> None:
    with pytest.raises(search.AllFailed, match="all 2 branches failed.*KeyError") as failed:
        kind.best_of(world.parent, [fail, fail], value_of)
    assert isinstance(failed.value.__cause__, KeyError) and len(failed.value.attempts) == 2
    assert world.parent.state == [] and not world.parent.merges


def burn(world: World, seconds: float, value: int) -> Branch:
    def branch(child: Box) -> int:
        world.cpu_seconds += seconds
        return value

    return branch


def test_no_branch_begins_once_the_budget_is_used_up(world: World, kind: Kind) -> None:
    branches = [burn(world, 1.0, value) for value in (1, 3, 2, 9)]
    found = kind.best_of(
        world.parent, branches, value_of, max_alive=2, budget={"cpu_seconds": 2}
    )
    assert found.spent and 2.0 <= found.spent.cpu_seconds <= 3.0
    assert found.spent.children == len(found.attempts) - len(found.failed) < 4
    assert found.score == 3.0
    assert {type(attempt.error) for attempt in found.failed} == {search.BudgetSpent}


def test_no_level_begins_once_the_budget_is_used_up(world: World, kind: Kind) -> None:
    found = kind.beam(
        world.parent,
        lambda node: [burn(world, 1.0, node.depth)],
        value_of,
        width=1,
        depth=9,
        budget={"cpu_seconds": 3, "wall_seconds": 1000},
    )
    assert found.spent and (found.spent.cpu_seconds, found.spent.children) == (3.0, 3)
    assert found.score == 2.0 and found.spent.wall_seconds > 0 and not found.failed


def test_search_has_no_more_children_than_its_tree_has_room_for(world: World, kind: Kind) -> None:
    world.live = 4
    found = kind.best_of(world.parent, [add(n) for n in range(9)], value_of, budget={})
    assert found.score == 8.0 and world.most == 4 and not found.failed
    with pytest.raises(ValueError, match="max_alive must be at least 10, not 3"):
        kind.beam(world.parent, lambda node: [], value_of, width=4, depth=2, budget={})


def test_budget_has_known_limits_only(world: World, kind: Kind) -> None:
    with pytest.raises(ValueError, match="budget has 'ram'"):
        kind.best_of(world.parent, [add(1)], value_of, budget={"ram": 1})
    assert kind.best_of(world.parent, [add(1)], value_of).spent is None


@pytest.mark.parametrize("last", [0, 1])
def test_of_equal_scores_the_first_branch_wins(world: World, kind: Kind, last: int) -> None:
    other_ended = threading.Event()

    def branch(child: Box) -> int:
        return 1

    def ends_last(child: Box) -> int:
        assert kind.tasks or other_ended.wait(WAIT_S)
        return 1

    def progress(attempt: Attempt[Any]) -> None:
        other_ended.set()

    branches: list[Branch] = [ends_last, branch] if last == 0 else [branch, ends_last]
    found = kind.best_of(world.parent, branches, value_of, progress=progress)
    assert found.path == (0,)


@pytest.mark.parametrize("most", [2, 3, 7])
def test_limit_of_children_is_kept(world: World, kind: Kind, most: int) -> None:
    found = kind.best_of(world.parent, [add(i) for i in range(7)], value_of, max_alive=most)
    assert found.value == 6 and world.most == most + 1
    assert world.forks[0] == (world.parent, most, False)
    assert sum(n for _, n, _ in world.forks) == 7


def test_one_fork_makes_no_more_children_than_a_service_allows(world: World, kind: Kind) -> None:
    kind.best_of(world.parent, [add(i) for i in range(50)], value_of, max_alive=100)
    assert [n for _, n, _ in world.forks] == [32, 18] and world.parent.state == [49]


def test_reseed_is_passed_to_the_fork(world: World, kind: Kind) -> None:
    kind.best_of(world.parent, [add(1)], value_of, reseed=True)
    assert world.forks == [(world.parent, 1, True)]


def test_error_of_the_only_fork_is_raised(world: World, kind: Kind) -> None:
    def refuse(box: Box, n: int) -> None:
        raise Unavailable("no room", status=503)

    world.on_fork = refuse
    with pytest.raises(Unavailable, match="no room"):
        kind.best_of(world.parent, [add(1), add(2)], value_of)


def test_branches_whose_fork_fails_later_are_failures(world: World, kind: Kind) -> None:
    def refuse_later(box: Box, n: int) -> None:
        if world.forks:
            raise Unavailable("no room", status=503)

    world.on_fork = refuse_later
    found = kind.best_of(world.parent, [add(i) for i in range(4)], value_of, max_alive=2)
    assert found.value == 1
    assert [(a.path, type(a.error)) for a in found.failed] == [
        ((2,), Unavailable),
        ((3,), Unavailable),
    ]


def test_error_of_the_merge_is_raised(world: World, kind: Kind) -> None:
    def branch(child: Box) -> int:
        world.parent.ended.set()
        return 1

    with pytest.raises(NotFound):
        kind.best_of(world.parent, [branch], value_of)
    world.parent.ended.clear()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_alive": 1}, "max_alive must be at least 2, not 1"),
        ({"winner": "none"}, "winner must be 'merge', 'keep' or 'close', not 'none'"),
        ({}, "no branch"),
    ],
)
def test_wrong_arguments_are_refused(
    world: World, kind: Kind, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        kind.best_of(world.parent, [add(1)] if options else [], value_of, **options)
    assert not world.forks


# --- the search is left early ---


class Boom(Exception):
    pass


def test_exception_of_progress_ends_the_search(world: World, kind: Kind) -> None:
    def progress(attempt: Attempt[Any]) -> None:
        raise Boom

    with pytest.raises(Boom):
        kind.best_of(world.parent, [add(1), Box.hang, Box.hang], value_of, progress=progress)
    assert not world.parent.merges


def test_keyboard_interrupt_ends_the_search(world: World, kind: Kind) -> None:
    def press(child: Box) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        kind.best_of(world.parent, [press, Box.hang, Box.hang], value_of)
    assert not world.parent.merges


def test_system_exit_in_a_branch_ends_the_search(world: World) -> None:
    def leave(child: Box) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        search.best_of(world.parent, [leave, Box.hang], value_of)


def test_event_cancels_the_search(world: World) -> None:
    cancel = threading.Event()

    def branch(child: Box) -> None:
        cancel.set()
        child.hang()

    with pytest.raises(search.SearchCancelled):
        search.best_of(world.parent, [branch, Box.hang], value_of, cancel=cancel)


def test_children_of_a_fork_that_is_answered_after_the_cancellation_are_closed(
    world: World,
) -> None:
    cancel = threading.Event()

    def set_first(box: Box, n: int) -> None:
        cancel.set()
        time.sleep(0.3)  # the search looks at `cancel` meanwhile, and begins to clean up

    world.on_fork = set_first
    with pytest.raises(search.SearchCancelled):
        search.best_of(world.parent, [add(1)], value_of, cancel=cancel)
    assert len(world.forks) == 1


@pytest.mark.parametrize("times", [1, 5])
def test_cancelled_task_closes_all_children(world: World, times: int) -> None:
    async def main() -> None:
        started = asyncio.Event()

        async def hang(child: AsyncBox) -> None:
            started.set()
            await asyncio.sleep(WAIT_S)

        task = asyncio.ensure_future(
            search.async_best_of(AsyncBox(world.parent), [hang, hang], lambda child, value: 0)
        )
        await started.wait()
        for _ in range(times):  # also while it closes the children
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not world.children

    asyncio.run(main())


def test_task_that_is_cancelled_during_a_fork_closes_its_children(world: World) -> None:
    async def main() -> None:
        task = asyncio.ensure_future(
            search.async_best_of(AsyncBox(world.parent), [in_task(add(1))], lambda child, value: 0)
        )
        def cancel(box: Box, n: int) -> None:
            task.cancel()

        world.on_fork = cancel
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(world.forks) == 1 and not world.children

    asyncio.run(main())


def test_task_that_is_cancelled_at_any_time_leaves_no_child(world: World) -> None:
    async def run(steps: int) -> bool:
        """Cancels a search after some steps of the loop; returns True if it had ended."""
        branches = [in_task(add(i)) for i in range(3)]
        task = asyncio.ensure_future(
            search.async_best_of(
                AsyncBox(world.parent),
                branches,
                lambda child, value: value,
                max_alive=2,
                winner="close",
            )
        )
        for _ in range(steps):
            await asyncio.sleep(0)
        ended = task.done()
        task.cancel()
        await asyncio.wait([task])
        assert not world.children, f"after {steps} steps"
        return ended

    steps = 0
    while not asyncio.run(run(steps)):
        steps += 1
    assert steps > 30


# --- beam ---


def digits(node: Node[Box, Any]) -> list[Branch]:
    return [add(digit) for digit in (1, 3, 2)]


def state_sum(child: Box, value: Any) -> Any:
    return sum(child.state)


def test_beam_returns_the_path_to_the_best_and_merges_it(world: World, kind: Kind) -> None:
    found = kind.beam(world.parent, digits, state_sum, width=2, depth=3)
    assert world.parent.state == [3, 3, 3]
    assert (found.score, found.path) == (9.0, (1, 1, 1))
    assert [step.path for step in found.steps] == [(1,), (1, 1), (1, 1, 1)]
    assert [step.score for step in found.steps] == [3.0, 6.0, 9.0]
    assert len(found.attempts) == 3 + 2 * 3 + 2 * 3  # two nodes were kept on each level
    assert {a.path[:1] for a in found.attempts if len(a.path) > 1} == {(1,), (2,)}


def test_expand_gets_depth_value_and_sandbox_of_each_node(world: World, kind: Kind) -> None:
    seen: set[tuple[Any, ...]] = set()

    def expand(node: Node[Box, Any]) -> list[Branch]:
        seen.add((node.depth, node.path, node.value, node.score, tuple(node.sandbox.state)))
        return [add(1), add(2)]

    kind.beam(world.parent, expand, state_sum, width=1, depth=2, winner="close")
    assert seen == {
        (0, (), None, float("-inf"), ()),
        (1, (1,), 2, 2.0, (2,)),
    }


def test_best_child_of_an_earlier_level_can_win(world: World, kind: Kind) -> None:
    def expand(node: Node[Box, Any]) -> list[Branch]:
        return [add(-1), add(-2)] if node.depth else [add(5), add(4)]

    found = kind.beam(world.parent, expand, state_sum, width=2, depth=3)
    assert found.path == (0,) and world.parent.state == [5]


def test_beam_ends_when_no_node_has_branches(world: World, kind: Kind) -> None:
    def expand(node: Node[Box, Any]) -> list[Branch]:
        return [] if node.depth == 2 else [add(1)]

    found = kind.beam(world.parent, expand, state_sum, width=3, depth=100)
    assert found.path == (0, 0)


def test_beam_ends_with_the_best_when_a_level_fails(world: World, kind: Kind) -> None:
    def expand(node: Node[Box, Any]) -> list[Branch]:
        return [fail] if node.depth == 2 else [add(1), fail]

    found = kind.beam(world.parent, expand, state_sum, width=3, depth=9)
    assert found.path == (0, 0) and world.parent.state == [1, 1]
    assert [a.path for a in found.failed] == [(0, 0, 0), (0, 1), (1,)]


def test_beam_without_branches_is_refused(world: World, kind: Kind) -> None:
    with pytest.raises(ValueError, match="no branch"):
        kind.beam(world.parent, lambda node: [], state_sum, width=2, depth=2)


def test_exception_of_expand_ends_the_search(world: World, kind: Kind) -> None:
    def expand(node: Node[Box, Any]) -> list[Branch]:
        if node.path == (1,):
            raise Boom
        return [add(1), add(2)]

    with pytest.raises(Boom):
        kind.beam(world.parent, expand, state_sum, width=2, depth=2)


def test_kept_winner_of_a_deep_level_is_the_only_child_left(world: World, kind: Kind) -> None:
    found = kind.beam(world.parent, digits, state_sum, width=2, depth=2, winner="keep")
    assert found.sandbox and world.alive == {world.parent, found.sandbox}
    assert found.sandbox.state == [3, 3]
    found.sandbox.close()


def test_beam_keeps_the_limit_of_children(world: World, kind: Kind) -> None:
    def expand(node: Node[Box, Any]) -> list[Branch]:
        return [add(i) for i in range(-3, 9)]

    found = kind.beam(world.parent, expand, state_sum, width=2, depth=3, max_alive=6)
    assert found.score == 24 and world.most <= 7


@pytest.mark.parametrize(
    ("width", "depth", "most", "message"),
    [
        (0, 1, 9, "width and depth must be at least 1, not 0 and 1"),
        (1, 0, 9, "width and depth must be at least 1, not 1 and 0"),
        (2, 2, 5, "max_alive must be at least 6, not 5"),
        (2, 1, 2, "max_alive must be at least 3, not 2"),
    ],
)
def test_wrong_sizes_are_refused(
    world: World, kind: Kind, width: int, depth: int, most: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        kind.beam(world.parent, digits, state_sum, width=width, depth=depth, max_alive=most)


def test_errors_are_errors_of_the_sdk() -> None:
    assert issubclass(search.AllFailed, RametError)
    assert issubclass(search.SearchCancelled, RametError)
