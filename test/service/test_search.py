# SPDX-License-Identifier: Apache-2.0
"""Search with forks through the service: which sandboxes are left, and what can be merged.

The fake VMs share one agent, so a fork copies no memory; test/system/test_search.py is about that.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
import ramet
from ramet import AsyncSandbox, Sandbox, search

Branch = Callable[[Sandbox], str]


@pytest.fixture
def parent(base: str) -> Iterator[Sandbox]:
    with Sandbox(host=base) as made:
        yield made
        assert [one.id for one in made._live().list_sandboxes()] == [made.id]


def echo(value: int) -> Branch:
    return lambda child: child.run_code(f"echo {value}", "bash").stdout


def number(child: Any, text: str) -> int:
    return int(text)


def test_best_child_is_merged_and_the_others_are_closed(parent: Sandbox) -> None:
    found = search.best_of(parent, [echo(n) for n in (3, 8, 5)], number)
    assert (found.score, found.path) == (8.0, (1,))
    assert parent.run_code("1").ok


def test_beam_merges_a_child_of_a_child_that_is_closed(parent: Sandbox) -> None:
    found = search.beam(
        parent,
        lambda node: [echo(10 * int(node.value or 0) + n) for n in (1, 2)],
        number,
        width=1,
        depth=3,
        max_alive=4,
    )
    assert (found.score, found.path) == (222.0, (1, 1, 1))
    assert parent.run_code("1").ok


def test_budget_is_measured_in_the_tree(base: str) -> None:
    with Sandbox(host=base, tree={"live": 3}) as parent:
        found = search.best_of(parent, [echo(n) for n in range(4)], number, budget={})
        assert found.score == 3.0 and not found.failed
        assert found.spent and found.spent.children == 4
        assert 0 < found.spent.cpu_seconds <= parent.tree().cpu_seconds
        with pytest.raises(search.AllFailed):
            search.best_of(parent, [echo(1)], number, budget={"wall_seconds": 0})


def test_winner_of_a_deep_level_is_kept(parent: Sandbox) -> None:
    found = search.beam(
        parent, lambda node: [echo(node.depth)], number, width=1, depth=2, winner="keep"
    )
    assert found.sandbox and found.sandbox.run_code("1").ok
    found.sandbox.close()


@pytest.fixture
def endless(folder: str) -> Iterator[str]:
    """A bash script that ends after the test: the agent does not end with its fake VM."""
    yield f"echo begun; until [ -e {folder}/end ]; do sleep 0.1; done"
    Path(folder, "end").touch()


def test_cancellation_ends_the_calls_of_the_branches(parent: Sandbox, endless: str) -> None:
    cancel = threading.Event()

    def hang(child: Sandbox) -> None:
        for event in child.run_code_stream(endless, "bash"):
            cancel.set()

    with pytest.raises(search.SearchCancelled):
        search.best_of(parent, [hang, hang], lambda child, value: 0, cancel=cancel)


def test_fork_that_is_refused_is_raised_or_a_failure(parent: Sandbox) -> None:
    with pytest.raises(ramet.RametError):  # there is room for 7 children
        search.best_of(parent, [echo(n) for n in range(20)], number, max_alive=20)
    found = search.best_of(parent, [echo(n) for n in range(20)], number, max_alive=3)
    assert found.score == 19.0


def test_async_search(parent: Sandbox, base: str, endless: str) -> None:
    def echo_async(value: int) -> Callable[[AsyncSandbox], Any]:
        async def branch(child: AsyncSandbox) -> str:
            return (await child.run_code(f"echo {value}", "bash")).stdout

        return branch

    async def hang(child: AsyncSandbox) -> str:
        return (await child.run_code(endless, "bash")).stdout

    async def main() -> None:
        async with ramet.AsyncClient(base) as client:
            sandbox = await AsyncSandbox.connect(parent.id, client=client)
            branches = [echo_async(n) for n in (3, 8, 5)]
            found = await search.async_best_of(sandbox, branches, number)
            assert (found.score, found.path) == (8.0, (1,))

            async def expand(node: search.Node[AsyncSandbox, str]) -> list[Any]:
                return [echo_async(10 * int(node.value or 0) + n) for n in (1, 2)]

            found = await search.async_beam(sandbox, expand, number, width=2, depth=2, max_alive=6)
            assert (found.score, found.path) == (22.0, (1, 1))
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(
                    search.async_best_of(sandbox, [hang, hang, echo_async(1)], number), 1
                )

    asyncio.run(main())
