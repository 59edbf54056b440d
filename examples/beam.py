# SPDX-License-Identifier: Apache-2.0
"""Beam search: builds a forecast step by step, and follows the two best states of each level.

The data are three months of hourly power demand, generated in the sandbox. A step finds one pattern
in what the steps before it left unexplained, such as a trend. Each step runs in a fork, which has
the data and all earlier steps in memory, so no step is run again for another order.
"""

from __future__ import annotations

from typing import Callable

from ramet import RametError, Sandbox, search

LOAD = """
import math, random

random.seed(7)
demand = []
for hour in range(24 * 91):
    day = math.sin((hour % 24 - 7) / 24 * 2 * math.pi)
    week = 0.8 if hour // 24 % 7 > 4 else 1.0
    demand.append((50 + 12 * day) * week + hour / 200 + random.gauss(0, 1.5))
known = len(demand) - 24 * 14            # the last two weeks are to be predicted
rest = list(demand)                      # what no step has explained yet
steps = []

def explain(name, predict):
    steps.append(name)
    for hour in range(len(rest)):
        rest[hour] -= predict(hour)

def mean_by(key):
    groups = {}
    for hour in range(known):
        groups.setdefault(key(hour), []).append(rest[hour])
    means = {k: sum(v) / len(v) for k, v in groups.items()}
    return lambda hour: means[key(hour)]
"""

STEPS = {
    "level": "explain('level', mean_by(lambda hour: 0))",
    "hours of the day": "explain('hours of the day', mean_by(lambda hour: hour % 24))",
    "days of the week": "explain('days of the week', mean_by(lambda hour: hour // 24 % 7))",
    "hours of the week": "explain('hours of the week', mean_by(lambda hour: hour % 168))",
    "trend": """
middle, mean = known / 2, sum(rest[:known]) / known
slope = sum((h - middle) * (rest[h] - mean) for h in range(known)) / (known ** 3 / 12)
explain('trend', lambda hour: slope * (hour - middle))
""",
}

ERROR = "sum(map(abs, rest[known:])) / (len(rest) - known)"


def step(name: str) -> Callable[[Sandbox], str]:
    """Returns the branch that runs one step in a child."""

    def run(child: Sandbox) -> str:
        result = child.run_code(STEPS[name])
        if result.error:
            raise RuntimeError(result.error.traceback)
        return name

    return run


def score(child: Sandbox, name: str) -> float:
    """Returns the mean error on the last two weeks, negated: the highest score wins."""
    return -float(child.run_code(ERROR).text or "inf")


def expand(node: search.Node[Sandbox, str]) -> list[Callable[[Sandbox], str]]:
    """Returns the steps that this node has not done yet."""
    done = {attempt.value for attempt in node.steps}
    return [step(name) for name in STEPS if name not in done]


def show(attempt: search.Attempt[str]) -> None:
    indent = "  " * len(attempt.path)
    if attempt.score is None:
        print(f"{indent}failed: {attempt.error}")
    else:
        print(f"{indent}mean error {-attempt.score:6.2f}  {attempt.value}")


def main() -> None:
    with Sandbox() as parent:
        parent.run_code(LOAD)
        print(f"mean error {float(parent.run_code(ERROR).text or 0):6.2f}  without any step")
        found = search.beam(parent, expand, score, width=2, depth=3, progress=show)
        print("best:", ", then ".join(attempt.value or "" for attempt in found.steps))
        print("the parent has done:", parent.run_code("', then '.join(steps)").text)
    print("done: all sandboxes are closed")


if __name__ == "__main__":
    try:
        main()
    except RametError as error:
        raise SystemExit(f"beam: {error}") from None
