# SPDX-License-Identifier: Apache-2.0
"""Search with forks of real guests: children have the parent's memory, the best is kept."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from conftest import output, run_example
from ramet import Client, Sandbox, search


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


@pytest.mark.smoke
def test_beam_finds_a_path_through_memory(sbx: Sandbox, client: Client) -> None:
    output(sbx, "word = ''")
    found = search.beam(
        sbx, lambda node: extend("a", "b", "c"), likeness, width=1, depth=3, max_alive=4
    )
    assert (found.value, found.path, found.score) == ("cab", (2, 0, 1), 3.0)
    assert output(sbx, "print(word, end='')") == "cab"
    assert not children_of(client, sbx)


def test_example_beam_finds_the_same_plan_as_the_parent_has_done() -> None:
    lines = run_example("beam.py").splitlines()
    (best,) = [line[len("best: ") :] for line in lines if line.startswith("best: ")]
    assert best == "hours of the week, then trend, then days of the week"
    assert f"the parent has done: {best!r}" in lines
