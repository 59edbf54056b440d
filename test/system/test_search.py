# SPDX-License-Identifier: Apache-2.0
"""Search with forks of real guests: children have the parent's memory, the best is kept."""

from __future__ import annotations

import asyncio
from typing import Any, Callable

import pytest

from conftest import HOST, output, run_example
from ramet import AsyncSandbox, Client, Sandbox, search


def extend(*letters: str) -> list[Callable[[Sandbox], str]]:
    def branch(letter: str) -> Callable[[Sandbox], str]:
        return lambda child: output(child, f"word += {letter!r}; print(word, end='')")

    return [branch(letter) for letter in letters]


def likeness(child: Sandbox, word: str) -> float:
    """Scores by what the child has in memory, not by what the branch returned."""
    assert output(child, "print(word, end='')") == word
    return float(sum(one == other for one, other in zip(word, "cab")))


def children_of(client: Client, sbx: Sandbox) -> list[Any]:
    return client.list_children(sbx.id)


def test_beam_finds_a_path_through_memory(sbx: Sandbox, client: Client) -> None:
    output(sbx, "word = ''")
    found = search.beam(
        sbx, lambda node: extend("a", "b", "c"), likeness, width=1, depth=3, max_alive=4
    )
    assert (found.value, found.path, found.score) == ("cab", (2, 0, 1), 3.0)
    assert output(sbx, "print(word, end='')") == "cab"
    assert not children_of(client, sbx)


def test_failed_branches_leave_the_parent_as_it_was(sbx: Sandbox, client: Client) -> None:
    output(sbx, "word = 'c'")

    def fail(child: Sandbox) -> str:
        output(child, "word = 'broken'")
        raise KeyError("no")

    with pytest.raises(search.AllFailed):
        search.best_of(sbx, [fail, fail], likeness)
    found = search.best_of(sbx, [fail, *extend("a")], likeness)
    assert found.path == (1,) and [one.path for one in found.failed] == [(0,)]
    assert output(sbx, "print(word, end='')") == "ca"
    assert not children_of(client, sbx)


def test_cancelled_async_search_leaves_nothing(sbx: Sandbox, client: Client) -> None:
    async def main() -> None:
        parent = await AsyncSandbox.connect(sbx.id, host=HOST)
        began = asyncio.Event()

        async def hang(child: AsyncSandbox) -> None:
            async for event in child.run_code_stream("print(1)\nimport time; time.sleep(100000)"):
                began.set()

        task = asyncio.ensure_future(
            search.async_best_of(parent, [hang, hang], lambda child, value: 0)
        )
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert not children_of(client, sbx)
    assert output(sbx, "print(2)") == "2\n"


def test_example_beam_finds_the_same_plan_as_the_parent_has_done() -> None:
    lines = run_example("beam.py").splitlines()
    (best,) = [line[len("best: ") :] for line in lines if line.startswith("best: ")]
    assert best == "hours of the week, then trend, then days of the week"
    assert f"the parent has done: {best!r}" in lines
