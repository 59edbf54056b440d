# SPDX-License-Identifier: Apache-2.0
"""The workspace for Pydantic AI: its published tests of backends, and what Ramet adds."""

from __future__ import annotations

from typing import AsyncIterator, Awaitable, Callable

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import RunContext
from pydantic_ai.workspaces import (
    WorkspaceBackend,
    WorkspaceOutputLimitError,
    WorkspaceRef,
    WorkspaceUnavailableError,
)
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from conftest import HOST
from ramet.integrations.pydantic_ai import RametWorkspace, RametWorkspaceBackend

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def parent(anyio_backend: str) -> AsyncIterator[RametWorkspaceBackend]:
    """One sandbox for the module. A user that is not root is refused what permissions forbid."""
    async with RametWorkspaceBackend(user="user", host=HOST) as made:
        yield made


class TestBackend(WorkspaceBackendSuite):
    """The tests of Pydantic AI."""

    @pytest.fixture
    def backend(self, parent: RametWorkspaceBackend) -> WorkspaceBackend:
        return parent

    @pytest.fixture
    async def made(self) -> AsyncIterator[list[RametWorkspaceBackend]]:
        made: list[RametWorkspaceBackend] = []
        yield made
        for workspace in made:
            await workspace.close()

    @pytest.fixture
    def fresh_backend(
        self, made: list[RametWorkspaceBackend]
    ) -> Callable[[], WorkspaceBackend]:
        def build() -> WorkspaceBackend:
            made.append(RametWorkspaceBackend(user="user", host=HOST))
            return made[-1]

        return build

    @pytest.fixture
    def attach_backend(self) -> Callable[[WorkspaceRef], WorkspaceBackend]:
        return lambda ref: RametWorkspaceBackend(ref, user="user", host=HOST)

    @pytest.fixture
    def destroy_environment(self) -> Callable[[WorkspaceBackend], Awaitable[None]]:
        async def destroy(backend: WorkspaceBackend) -> None:
            assert isinstance(backend, RametWorkspaceBackend)
            await backend.close()

        return destroy


# --- what the suite does not know ---


@pytest.mark.vm
async def test_children_continue_from_the_state_of_the_parent(
    parent: RametWorkspaceBackend,
) -> None:
    await parent.write_bytes("/tmp/counter", b"1")
    children = await parent.fork(2)
    try:
        assert len({child.ref for child in [parent, *children]}) == 3
        for child in children:
            assert await child.working_dir() == await parent.working_dir()
            assert await child.read_bytes("/tmp/counter") == b"1"
        await children[0].write_bytes("/tmp/counter", b"2")
        assert await children[1].read_bytes("/tmp/counter") == b"1"
        assert await parent.read_bytes("/tmp/counter") == b"1"
    finally:
        for child in children:
            await child.close()


async def test_missing_working_dir_is_made_for_the_user() -> None:
    wanted = "/srv/workspace-of-a-user"
    async with RametWorkspaceBackend(user="nobody", working_dir=wanted, host=HOST) as workspace:
        await workspace.write_bytes(await workspace.working_dir() + "/answer", b"42")
        files = (await workspace.sandbox()).files
        assert (await files.stat(wanted + "/answer")).uid == (await files.stat(wanted)).uid != 0
        await files.remove(wanted, recursive=True)


@pytest.mark.smoke
@pytest.mark.vm
async def test_parent_continues_as_the_winner(parent: RametWorkspaceBackend) -> None:
    async with RametWorkspaceBackend(user="user", host=HOST) as workspace:
        await workspace.working_dir()
        ref = workspace.ref
        winner, loser = await workspace.fork(2)
        await winner.write_bytes("/tmp/answer", b"42")
        await workspace.merge_into(winner)
        await loser.close()
        assert await workspace.read_bytes("/tmp/answer") == b"42"
        assert workspace.ref == ref
        with pytest.raises(WorkspaceUnavailableError):
            await winner.run(["true"])


async def test_command_with_endless_output_is_killed(parent: RametWorkspaceBackend) -> None:
    small = RametWorkspaceBackend(parent.ref, user="user", host=HOST, max_output_bytes=1000)
    with pytest.raises(WorkspaceOutputLimitError) as caught:
        await small.run("echo $$ >/tmp/endless; exec yes", shell=True)
    assert caught.value.stdout.startswith("y\n") and len(caught.value.stdout) == 1000
    pid = (await parent.read_bytes("/tmp/endless")).decode().strip()
    while (await parent.run(["kill", "-0", pid])).exit_code == 0:
        pass


async def test_ref_of_another_provider_is_refused(parent: RametWorkspaceBackend) -> None:
    with pytest.raises(ValueError, match="docker"):
        RametWorkspaceBackend(WorkspaceRef(provider="docker", id="x"))


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """A model that calls the agent's tool with the last prompt, and then answers."""
    last = messages[-1].parts[-1]
    if last.part_kind == "tool-return":
        return ModelResponse(parts=[TextPart(str(last.content))])
    assert last.part_kind == "user-prompt"
    return ModelResponse(parts=[ToolCallPart("shell", {"command": str(last.content)})])


async def shell(ctx: RunContext[None], command: str) -> str:
    """Runs a command in the workspace."""
    return (await ctx.workspace.run(command, shell=True)).stdout


@pytest.mark.vm
async def test_forked_conversations_work_in_forked_workspaces(
    parent: RametWorkspaceBackend,
) -> None:
    workspace = RametWorkspace(options={"user": "user", "host": HOST})
    agent = Agent(FunctionModel(scripted), tools=[shell], capabilities=[workspace])
    first = await agent.run("echo one >~/log; cat ~/log", workspace=parent)
    history = first.all_messages()
    assert history[-1].kind == "response" and history[-1].workspace_ref == parent.ref
    left, right = await parent.fork(2)
    try:
        for branch, word in ((left, "two"), (right, "three")):
            result = await agent.run(
                f"echo {word} >>~/log; cat ~/log", message_history=history, workspace=branch
            )
            assert result.output == f"one\n{word}\n"
        # Without a workspace, a run continues in the one that its history names.
        again = await agent.run("cat ~/log", message_history=history)
        assert again.output == "one\n"
    finally:
        await left.close()
        await right.close()
