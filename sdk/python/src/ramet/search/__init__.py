# SPDX-License-Identifier: Apache-2.0
"""Search with forks: try several continuations of a running sandbox and keep the best one.

`best_of` forks a sandbox once and runs each branch on a child of its own. `beam` does so for
several levels: children of children, of which only the best of each level are kept. `async_best_of`
and `async_beam` do the same with an `AsyncSandbox`.

    from ramet import Sandbox, search

    with Sandbox() as parent:
        parent.run_code("data = load()")
        found = search.best_of(
            parent,
            [lambda child, plan=plan: child.run_code(plan).text for plan in plans],
            lambda child, text: float(text or 0),
        )
        print(found.path, found.score)      # the parent has the winner's state now
"""

from ramet.search._level import (
    AllFailed,
    Attempt,
    BudgetSpent,
    Found,
    Node,
    SearchCancelled,
    Spent,
    Winner,
)
from ramet.search._tasks import AsyncForkable, async_beam, async_best_of
from ramet.search._threads import Forkable, beam, best_of

__all__ = [
    "AllFailed",
    "AsyncForkable",
    "Attempt",
    "BudgetSpent",
    "Forkable",
    "Found",
    "Node",
    "SearchCancelled",
    "Spent",
    "Winner",
    "async_beam",
    "async_best_of",
    "beam",
    "best_of",
]
