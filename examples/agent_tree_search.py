# SPDX-License-Identifier: Apache-2.0
"""A tree of agents: each level forks a sandbox, runs an agent in each branch, and keeps the best.

The sandbox holds two years of daily sales in the memory of its Python process. Each agent adds one
idea to the model that predicts the last month, and is scored by the error. The next level begins in
the winner's sandbox, with its files, variables and processes. Nothing is loaded twice.

The agents run on the scripted model of the OpenAI Agents SDK, so neither a key nor a network is
needed: `pip install './sdk/python[openai]'`. With a real model, an agent would write its idea itself.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from agents import set_tracing_disabled
from agents.sandbox import SandboxAgent
from agents.sandbox.session import SandboxSession
from agents.testing import ScriptedModel, assistant_message, function_call

from ramet import RametError
from ramet.integrations.openai_agents import (
    Branch,
    PythonCode,
    RametSandboxClient,
    run_branches,
    sandbox_of,
)

PREPARE = """
import math, random
random.seed(11)
sales = [
    round((40 + day / 20) * (1.5 if day % 7 > 4 else 1) * (1 + 0.2 * math.sin(day / 58.1))
          + random.gauss(0, 2), 1)
    for day in range(730)
]
known, hidden = sales[:-30], sales[-30:]
steps = []          # each takes a day and the prediction so far, and returns a better one

def predict(day):
    value = 0.0
    for step in steps:
        value = step(day, value)
    return value

def error():
    return sum(abs(predict(700 + i) - value) for i, value in enumerate(hidden)) / len(hidden)

print(len(sales), 'days of sales are loaded')
"""

RATIO = "ratio = [known[d] / max(predict(d), 1) for d in range(350, 700)]\n"

# What the scripted agents of each level try. Every idea builds on the state that it finds.
LEVELS = [
    {
        "the mean": "level = sum(known) / len(known)\nsteps.append(lambda day, value: level)",
        "the last day": "steps.append(lambda day, value: known[-1])",
        "a trend": (
            "n, mean = len(known), sum(known) / len(known)\n"
            "slope = sum((d - n / 2) * v for d, v in enumerate(known)) / (n * (n * n - 1) / 12)\n"
            "steps.append(lambda day, value: mean + slope * (day - n / 2))"
        ),
    },
    {
        "weekdays": (
            RATIO + "week = [sum(ratio[w::7]) / len(ratio[w::7]) for w in range(7)]\n"
            "steps.append(lambda day, value: value * week[(day - 350) % 7])"
        ),
        "months": (
            RATIO + "month = [sum(ratio[m * 30:m * 30 + 30]) / 30 for m in range(11)]\n"
            "steps.append(lambda day, value: value * month[(day - 350) // 30 % 11])"
        ),
    },
    {
        "the last four weeks": (
            "recent = sum(known[-28:]) / sum(predict(d) for d in range(672, 700))\n"
            "steps.append(lambda day, value: value * recent)"
        ),
        "the same days of last year": (
            "year = [known[d] / predict(d) for d in range(335, 365)]\n"
            "steps.append(lambda day, value: value * (1 + sum(year) / len(year)) / 2)"
        ),
        "a smaller error of the trend": (
            "missed = sum(v - predict(d) for d, v in enumerate(known[350:], 350)) / 350\n"
            "steps.append(lambda day, value: value + missed)"
        ),
    },
]


@dataclass
class Node:
    """A state of the sandbox in the tree of what was tried."""

    name: str
    score: float | None = None
    kept: bool = False
    children: list["Node"] = field(default_factory=list)

    def show(self, indent: str = "") -> None:
        """Prints the node, and what was tried in it."""
        score = "" if self.score is None else f"error {-self.score:5.2f}"
        print(f"{indent + self.name:42} {score}{'   kept' if self.kept else ''}".rstrip())
        for child in self.children:
            child.show(indent + "    ")


def agent(idea: str, code: str) -> SandboxAgent[Any]:
    """Returns an agent whose model tries one idea and reports."""
    model = ScriptedModel(
        [
            [function_call("run_code", {"code": f"{code}\nerror()"}, call_id="1")],
            [assistant_message(f"I tried {idea}.")],
        ]
    )
    return SandboxAgent(
        name=idea,
        model=model,
        instructions="Improve the prediction with one idea.",
        capabilities=[PythonCode()],
    )


async def score(branch: Branch) -> float:
    """Returns how good the prediction in a branch's sandbox is: the negative error."""
    result = await sandbox_of(branch.session).run_code("print(error())")
    return -float(result.stdout)


async def grow(session: SandboxSession, parent: Node, ideas: dict[str, str]) -> Node:
    """Forks the session once per idea, keeps the best, and returns its node."""
    run = await run_branches(
        [agent(idea, code) for idea, code in ideas.items()],
        [f"Try {idea}." for idea in ideas],
        session=session,
        score=score,
    )
    for branch, idea in zip(run.branches, ideas):
        if branch.error is not None:
            raise SystemExit(f"the branch {idea!r} failed: {branch.error}")
        parent.children.append(Node(idea, branch.score, branch is run.winner))
    return next(child for child in parent.children if child.kept)


async def main() -> None:
    set_tracing_disabled(True)
    async with RametSandboxClient() as client, await client.create() as session:
        print((await sandbox_of(session).run_code(PREPARE)).stdout, end="")
        root = node = Node("the prepared sandbox")
        for ideas in LEVELS:
            node = await grow(session, node, ideas)
        root.show()
        report = "print(len(steps), 'ideas are in memory; the error is', round(error(), 2))"
        print((await sandbox_of(session).run_code(report)).stdout, end="")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except RametError as error:
        raise SystemExit(f"agent_tree_search: {error}") from None
