# SPDX-License-Identifier: Apache-2.0
"""Sessions are forked, and agents run in the forks."""

from __future__ import annotations

import asyncio
import io
import itertools
from pathlib import Path
from typing import Any

import pytest
from agents import RunConfig, Runner
from agents.run_config import SandboxRunConfig
from agents.sandbox import SandboxAgent
from agents.sandbox.capabilities import Shell
from agents.sandbox.session import SandboxSession
from agents.testing import ScriptedModel, assistant_message, function_call
from openai_fixtures import anyio_backend, client, nothing_is_left_behind, root, session

from ramet.errors import NotFound
from ramet.integrations.openai_agents import (
    Branch,
    Branches,
    PythonCode,
    fork_session,
    merge_session,
    run_branches,
    sandbox_of,
)

__all__ = ["anyio_backend", "client", "nothing_is_left_behind", "root", "session"]
pytestmark = pytest.mark.anyio
NUMBERS = itertools.count()


def worker(command: str, answer: str = "done") -> SandboxAgent[Any]:
    """Returns an agent that runs one command."""
    call = function_call("exec_command", {"cmd": command}, call_id="1")
    model = ScriptedModel([[call], [assistant_message(answer)]])
    return SandboxAgent(name="worker", model=model)


async def get(session: SandboxSession, path: str) -> str:
    content: bytes = (await session.read(Path(path))).read()
    return content.decode().strip()


async def children_of(session: SandboxSession) -> list[str]:
    return (await sandbox_of(session).info()).children


async def length(branch: Branch) -> float:
    return len(await get(branch.session, "file"))


@pytest.mark.vm
async def test_children_have_the_memory_and_are_independent(session: SandboxSession) -> None:
    await sandbox_of(session).run_code("seen = ['parent']")
    await session.write(Path("file"), io.BytesIO(b"parent"))
    children = await fork_session(session, 2)
    try:
        for i, child in enumerate(children):
            assert await child.running() and child.state.session_id != session.state.session_id
            await sandbox_of(child).run_code(f"seen.append({i})")
            await child.write(Path("file"), io.BytesIO(str(i).encode()))
        seen = [(await sandbox_of(one).run_code("print(seen)")).stdout for one in children]
        assert seen == ["['parent', 0]\n", "['parent', 1]\n"]
        assert [await get(one, "file") for one in [*children, session]] == ["0", "1", "parent"]
    finally:
        for child in children:
            await child.aclose()


@pytest.mark.vm
async def test_open_terminal_continues_in_children_and_after_a_merge(
    session: SandboxSession,
) -> None:
    started = await session.pty_exec_start("bash", "--norc", shell=False, tty=True, yield_time_s=1)
    number = started.process_id
    assert number is not None
    await session.pty_write_stdin(session_id=number, chars="word=parent\n", yield_time_s=1)
    [child] = await fork_session(session)

    async def ask(one: SandboxSession) -> bytes:
        update = await one.pty_write_stdin(session_id=number, chars="echo =$word=\n")
        output = update.output
        while b"=\r\n" not in output:
            update = await one.pty_write_stdin(session_id=number, chars="")
            output += update.output
        return output

    assert b"=parent=" in await ask(child)
    await child.pty_write_stdin(session_id=number, chars="word=child\n")
    assert b"=parent=" in await ask(session)
    await merge_session(session, child)
    assert b"=child=" in await ask(session)
    assert not await child.running()


@pytest.mark.smoke
@pytest.mark.vm
async def test_best_branch_is_kept(session: SandboxSession) -> None:
    sandbox_id = sandbox_of(session).id
    agents = [worker(f"printf {'x' * n} >file") for n in (2, 5, 3)]
    run = await run_branches(agents, ["go"] * 3, session=session, score=length)
    assert [one.score for one in run.branches] == [2, 5, 3]
    assert run.merged and run.winner is run.branches[1]
    assert [one.result.final_output for one in run.branches if one.result] == ["done"] * 3
    assert await get(session, "file") == "xxxxx"
    assert sandbox_of(session).id == sandbox_id and not await children_of(session)
    assert (await session.exec("cat", "file", shell=False)).stdout == b"xxxxx"


@pytest.mark.vm
async def test_session_is_left_as_it_was(session: SandboxSession) -> None:
    await session.write(Path("file"), io.BytesIO(b"parent"))
    agents = [worker("printf xx >file"), worker("printf y >file")]
    run = await run_branches(agents, ["a", "b"], session=session, score=length, keep=None)
    assert run.winner is run.branches[0] and not run.merged
    assert await get(session, "file") == "parent" and not await children_of(session)


@pytest.mark.vm
async def test_branch_that_raises_does_not_end_the_others(session: SandboxSession) -> None:
    broken = SandboxAgent(name="broken", model=ScriptedModel([RuntimeError("no model")]))
    agents = [broken, worker("printf x >file"), worker("printf yy >file")]

    def score(branch: Branch) -> float:
        if branch.index == 2:
            raise ValueError("no score")
        return 1

    run = await run_branches(agents, ["go"] * 3, session=session, score=score)
    assert [str(one.error) for one in run.branches] == ["no model", "None", "no score"]
    assert run.winner is run.branches[1] and await get(session, "file") == "x"


async def test_without_a_score_nothing_is_merged(session: SandboxSession) -> None:
    await session.write(Path("file"), io.BytesIO(b"parent"))
    broken = SandboxAgent(name="broken", model=ScriptedModel([RuntimeError("no model")]))
    run = await run_branches([broken], ["go"], session=session, score=length)
    assert run.winner is None and not run.merged and await get(session, "file") == "parent"
    assert not await children_of(session)


async def test_wrong_arguments_are_refused_before_the_fork(session: SandboxSession) -> None:
    with pytest.raises(ValueError, match="inputs is empty"):
        await run_branches(worker("true"), [], session=session, keep=None)
    with pytest.raises(ValueError, match="1 agents for 2 inputs"):
        await run_branches([worker("true")], ["a", "b"], session=session, keep=None)
    with pytest.raises(ValueError, match="needs a score function"):
        await run_branches(worker("true"), ["a"], session=session)
    assert not await children_of(session)


async def test_cancelled_branches_leave_no_child(session: SandboxSession) -> None:
    running = asyncio.Event()

    async def score(branch: Branch) -> float:
        running.set()
        await asyncio.Event().wait()
        return 1

    task = asyncio.create_task(
        run_branches([worker("true"), worker("true")], ["a", "b"], session=session, score=score)
    )
    await running.wait()
    assert len(await children_of(session)) == 2
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not await children_of(session)


async def run_model(session: SandboxSession, *steps: Any, **branches: Any) -> list[str]:
    """Runs an agent with the capability; returns what its tools returned."""
    model = ScriptedModel([[step] for step in steps] + [[assistant_message("done")]])
    agent: SandboxAgent[Any] = SandboxAgent(
        name="explorer", model=model, capabilities=[Shell(), PythonCode(), Branches(**branches)]
    )
    config = RunConfig(sandbox=SandboxRunConfig(session=session))
    result = await Runner.run(agent, "go", run_config=config)
    model.assert_complete()
    items: list[Any] = result.to_input_list()
    return [one["output"] for one in items if one.get("type") == "function_call_output"]


def call(name: str, **arguments: Any) -> Any:
    return function_call(name, arguments, call_id=f"call-{next(NUMBERS)}")


@pytest.mark.vm
async def test_model_tries_commands_and_keeps_one(session: SandboxSession) -> None:
    tried, kept, shown = await run_model(
        session,
        call("try_branches", tasks=["echo a | tee file", "echo b | tee file; exit 3"]),
        call("keep_branch", branch=2),
        call("exec_command", cmd="cat file"),
    )
    assert tried == "Branch 1: exit code 0\na\n\nBranch 2: exit code 3\nb"
    assert "continues as branch 2" in kept and shown.endswith("\nb\n")
    assert not await children_of(session)


@pytest.mark.vm
async def test_model_gives_branches_up(session: SandboxSession) -> None:
    tried, none, dropped, gone, shown = await run_model(
        session,
        call("try_branches", tasks=["echo a >file"]),
        call("keep_branch", branch=7),
        call("drop_branches"),
        call("keep_branch", branch=1),
        call("exec_command", cmd="cat file"),
    )
    assert tried.startswith("Branch 1: exit code 0")
    assert none == "There is no branch 7. Branches: 1."
    assert gone == "There is no branch 1. Branches: none."
    assert "No such file" in shown and not await children_of(session)


async def test_model_sends_helpers_into_branches(session: SandboxSession) -> None:
    helper = worker("echo helped >file", answer="I wrote the file")
    tried, _, shown = await run_model(
        session,
        call("try_branches", tasks=["write the file"]),
        call("keep_branch", branch=1),
        call("exec_command", cmd="cat file"),
        agent=helper,
    )
    assert tried == "Branch 1: done\nI wrote the file" and shown.endswith("\nhelped\n")


async def test_too_many_branches_are_refused(session: SandboxSession) -> None:
    [refused] = await run_model(session, call("try_branches", tasks=["a", "b"]), max_branches=1)
    assert refused == "There are 2 tasks; pass 1 to 1."


async def test_undecided_branches_end_with_the_session(session: SandboxSession) -> None:
    await run_model(session, call("try_branches", tasks=["true", "true"]))
    sandbox = sandbox_of(session)
    waiting = await children_of(session)
    assert len(waiting) == 2
    await session.shutdown()
    for child in waiting:
        with pytest.raises(NotFound):
            await sandbox.connect(child)


async def test_python_code_keeps_its_variables_in_a_branch(session: SandboxSession) -> None:
    outputs = await run_model(
        session,
        call("run_code", code="x = 20"),
        call("try_branches", tasks=["true"]),
        call("keep_branch", branch=1),
        call("run_code", code="x + 1"),
    )
    assert outputs[-1] == "21"
