# SPDX-License-Identifier: Apache-2.0
"""Branches: runs of agents, or commands, in forks of one prepared session."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass, field, replace
from typing import Any, Awaitable, Callable, Literal, Sequence, cast

from agents import RunConfig, Runner, RunResult, Tool, TResponseInputItem, function_tool
from agents.run_config import SandboxRunConfig
from agents.sandbox import SandboxAgent
from agents.sandbox.capabilities import Capability
from agents.sandbox.errors import SandboxError
from agents.sandbox.manifest import Manifest
from agents.sandbox.session import SandboxSession
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from pydantic import Field

from ramet._cleanup import finish
from ramet.errors import RametError
from ramet.integrations._results import shorten
from ramet.integrations.openai_agents.session import RametSandboxSession, close_all, inner_of

Score = Callable[["Branch"], float | Awaitable[float]]


@dataclass
class Branch:
    """One run in a fork of the session.

    Attributes:
        index: Its position in the inputs.
        input: What the agent was asked.
        session: The fork. Usable in the score function; afterwards it is closed or merged.
        result: The run's result; None if it raised.
        error: The exception that the run or the score function raised; otherwise None.
        score: What the score function returned; otherwise None.
    """

    index: int
    input: str | list[TResponseInputItem]
    session: SandboxSession = field(repr=False)
    result: RunResult | None = None
    error: Exception | None = None
    score: float | None = None


@dataclass(frozen=True)
class BranchRun:
    """The outcome of `run_branches`.

    Attributes:
        branches: All branches, in the order of the inputs.
        winner: The one with the highest score; None if none has a score.
        merged: Whether the session continues as the winner.
    """

    branches: list[Branch]
    winner: Branch | None
    merged: bool


async def fork_session(
    session: BaseSandboxSession, n: int = 1, *, reseed: bool = False
) -> list[SandboxSession]:
    """Clones the sandbox of a started session while it runs: files, memory, processes, terminals.

    Each child is a started session of its own: `SandboxRunConfig(session=child)` runs an agent in
    it. The caller closes it, with `await child.aclose()`.

    Args:
        session: The session.
        n: Number of children, all or none.
        reseed: Seed Python's generators of random numbers differently in each child.

    Raises:
        TypeError: It is a session of another provider.
        RametError: The service refuses it; there are no children then.
    """
    inner = inner_of(session)
    return [_wrapped(session, child) for child in await inner.fork(n, reseed=reseed)]


async def merge_session(session: BaseSandboxSession, winner: BaseSandboxSession) -> None:
    """Continues `session` as `winner`, a child from `fork_session`. The winner's session ends.

    Raises:
        TypeError: One is a session of another provider.
        Conflict: The winner does not descend from the session.
        NotFound: One of them is gone.
    """
    await inner_of(session).merge_into(inner_of(winner))


async def run_branches(
    agent: SandboxAgent[Any] | Sequence[SandboxAgent[Any]],
    inputs: Sequence[str | list[TResponseInputItem]],
    *,
    session: BaseSandboxSession,
    score: Score | None = None,
    keep: Literal["best"] | None = "best",
    run_config: RunConfig | None = None,
    reseed: bool = False,
    **run_options: Any,
) -> BranchRun:
    """Forks a prepared session once per input, and runs an agent in each child at the same time.

    Whatever happens, also if this call is cancelled, no child is left behind.

    Args:
        agent: The agent of all branches, or one for each input.
        inputs: What each branch's agent is asked.
        session: The prepared, started session.
        score: Returns how good a branch is, while its sandbox still exists; higher is better. It
            may be a coroutine function.
        keep: "best": the session continues as the branch with the highest score. None: the
            session stays as it was before.
        run_config: The configuration of the runs; its `sandbox.session` is set.
        reseed: Seed Python's generators of random numbers differently in each branch.
        run_options: Further arguments of `Runner.run`, such as `max_turns` and `context`.

    Raises:
        ValueError: There are no inputs, not as many agents as inputs, or no score function to
            keep the best.
        RametError: The service refuses the fork or the merge.

    A run that raises makes its branch's `error`; it does not end the others.
    """
    agents = _agents(agent, len(inputs))
    if keep == "best" and score is None:
        raise ValueError("keep='best' needs a score function; pass score=..., or keep=None")
    children = await fork_session(session, len(inputs), reseed=reseed)
    branches = [Branch(i, inputs[i], child) for i, child in enumerate(children)]
    try:
        await asyncio.gather(
            *(
                _run(branch, one, score, _config(run_config, branch.session), run_options)
                for branch, one in zip(branches, agents, strict=True)
            )
        )
        winner = _best(branches)
        kept = winner if keep == "best" else None
        if kept is not None:
            await finish(merge_session(session, kept.session))
        return BranchRun(branches, winner, merged=kept is not None)
    finally:
        await finish(close_all([inner_of(child) for child in children]))


async def _run(
    branch: Branch,
    agent: SandboxAgent[Any],
    score: Score | None,
    config: RunConfig,
    options: dict[str, Any],
) -> None:
    try:
        branch.result = await Runner.run(agent, branch.input, run_config=config, **options)
        if score is not None:
            value = score(branch)
            branch.score = float(await value if inspect.isawaitable(value) else value)
    except Exception as error:
        branch.error = error


def _agents(
    agent: SandboxAgent[Any] | Sequence[SandboxAgent[Any]], n: int
) -> list[SandboxAgent[Any]]:
    """Returns an agent for each branch. One agent cannot run twice at a time, so it is cloned."""
    if not n:
        raise ValueError("inputs is empty: pass one input for each branch")
    if isinstance(agent, SandboxAgent):
        return [cast(SandboxAgent[Any], agent.clone()) for _ in range(n)]
    if len(agent) != n:
        raise ValueError(f"there are {len(agent)} agents for {n} inputs; pass one, or {n}")
    return [cast(SandboxAgent[Any], one.clone()) for one in agent]


def _config(config: RunConfig | None, session: SandboxSession) -> RunConfig:
    config = config or RunConfig()
    sandbox = config.sandbox or SandboxRunConfig()
    sandbox = replace(sandbox, client=None, options=None, session_state=None, session=session)
    return replace(config, sandbox=sandbox)


def _best(branches: Sequence[Branch]) -> Branch | None:
    scored = [one for one in branches if one.score is not None and one.score == one.score]
    return max(scored, key=lambda one: one.score or 0.0, default=None)


def _wrapped(session: BaseSandboxSession, child: RametSandboxSession) -> SandboxSession:
    instrumentation = session._instrumentation if isinstance(session, SandboxSession) else None
    return SandboxSession(child, instrumentation=instrumentation)


class Branches(Capability):
    """Lets the model fork its own sandbox: it tries several ways at once, and keeps one.

    The tools are `try_branches`, `keep_branch` and `drop_branches`. Branches that wait for the
    decision end with the session, with the next `try_branches`, and with the decision.

    Args:
        agent: A `SandboxAgent` that runs each branch's task; the model gets to see its final
            output. None: a task is a command.
        max_branches: The most branches at a time.
        timeout_seconds: Time limit of a command.
    """

    type: Literal["ramet_branches"] = "ramet_branches"
    agent: Any = Field(default=None, exclude=True)  # pydantic has no schema for agents
    max_branches: int = 8
    timeout_seconds: float = 300

    def clone(self) -> "Branches":
        """Returns a copy for one run, which shares the agent."""
        return self.model_copy()

    def tools(self) -> list[Tool]:
        """Returns the three tools."""
        return [
            function_tool(
                self._try, name_override="try_branches", description_override=self._describe()
            ),
            function_tool(self._keep, name_override="keep_branch"),
            function_tool(self._drop, name_override="drop_branches"),
        ]

    async def instructions(self, manifest: Manifest) -> str | None:
        """Returns what the model should know."""
        return (
            "`try_branches` copies this whole sandbox, with its running processes and memory, "
            "once per task, and runs all tasks at the same time. Use it when several ways may "
            "lead to the goal. Then `keep_branch` continues in the best copy, or `drop_branches` "
            "stays where you are."
        )

    def _describe(self) -> str:
        kind = "an instruction for a helper" if self.agent else "a command"
        return (
            "Copy this sandbox once per task and run all tasks at the same time, each in its own "
            f"copy. This sandbox stays as it is. A task is {kind}. Returns each task's output "
            f"under the number of its branch. At most {self.max_branches} tasks."
        )

    async def _try(self, tasks: list[str]) -> str:
        if not 1 <= len(tasks) <= self.max_branches:
            return f"There are {len(tasks)} tasks; pass 1 to {self.max_branches}."
        inner = inner_of(self._session())
        await inner.drop_branches()
        try:
            children = await fork_session(self._session(), len(tasks))
        except RametError as error:
            return f"The sandbox was not copied: {error}"
        inner.branches = {i: inner_of(child) for i, child in enumerate(children, 1)}
        try:
            outputs = await asyncio.gather(
                *(self._work(child, task) for child, task in zip(children, tasks, strict=True))
            )
        except BaseException:
            await inner.drop_branches()
            raise
        return "\n\n".join(f"Branch {i}: {text}" for i, text in enumerate(outputs, 1))

    async def _keep(self, branch: int) -> str:
        """Continue in a branch: its files, processes and memory replace those of this sandbox.

        Args:
            branch: The number of the branch, from `try_branches`.
        """
        inner = inner_of(self._session())
        if branch not in inner.branches:
            known = ", ".join(map(str, inner.branches)) or "none"
            return f"There is no branch {branch}. Branches: {known}."
        try:
            await inner.merge_into(inner.branches[branch])
        except RametError as error:
            return f"Branch {branch} was not kept: {error}"
        await inner.drop_branches()
        return f"This sandbox continues as branch {branch}; the others are gone."

    async def _drop(self) -> str:
        """Give up all branches; this sandbox continues as it was before `try_branches`."""
        await inner_of(self._session()).drop_branches()
        return "All branches are gone."

    async def _work(self, child: SandboxSession, task: str) -> str:
        if self.agent is None:
            return await self._command(child, task)
        try:
            result = await Runner.run(
                self.agent.clone(),
                task,
                run_config=RunConfig(sandbox=SandboxRunConfig(session=child)),
            )
        except Exception as error:
            return f"failed\n{type(error).__name__}: {error}"
        return f"done\n{shorten(str(result.final_output), 8000)}"

    async def _command(self, child: SandboxSession, command: str) -> str:
        try:
            result = await child.exec(command, timeout=self.timeout_seconds, user=self.run_as)
        except SandboxError as error:
            return f"failed\n{error}"
        output = (result.stdout + result.stderr).decode(errors="replace").rstrip("\n")
        return f"exit code {result.exit_code}\n{shorten(output, 8000)}"

    def _session(self) -> BaseSandboxSession:
        if self.session is None:
            raise ValueError("the capability Branches is not bound to a session")
        return self.session
