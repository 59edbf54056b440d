# SPDX-License-Identifier: Apache-2.0
"""Self-hosted environments of Claude Managed Agents: a sandbox for each session.

While a session is idle its sandbox is a Space on disk; its next work item resumes it, with memory,
processes and bash as they were.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Mapping, Sequence

from anthropic import AsyncAnthropic
from anthropic.lib.environments import BetaAnyRunnableTool, EnvironmentWorker
from anthropic.lib.tools import BetaAsyncBuiltinFunctionTool, BetaFunctionToolResultType, ToolError
from anthropic.lib.tools.agent_toolset import AgentToolContext
from anthropic.types.beta import BetaToolUnionParam

from ramet import AsyncClient, AsyncSandbox
from ramet._cleanup import finish
from ramet.errors import NotFound, RametError
from ramet.integrations.anthropic._agent_tools import agent_params, agent_works
from ramet.integrations.anthropic._flow import Work, answer
from ramet.integrations.anthropic.tools import TIMEOUT_S
from ramet.types import SandboxInfo, SpaceInfo

log = logging.getLogger(__name__)

SESSION_KEY = "anthropic_session"
"""Member of a sandbox's and a Space's metadata: the id of the session."""

WORKDIR = "/workspace"


class SessionSandboxes:
    """The sandboxes of managed agents' sessions. Use it in an `async with` block.

    `worker` returns Anthropic's worker for a self-hosted environment, whose tools act in the
    session's sandbox. Sandboxes are found by their metadata, so any number of workers, also later
    ones and on other machines, can serve the sessions of one service.

    Args:
        client: The service. None: a new client, as the environment says, which is closed at the
            end.
        workdir: The folder in the sandbox that agents work in.
        timeout_seconds: Time limit of a command; Anthropic's worker gives up after 150 s.
        sandbox: Arguments of `AsyncSandbox.create` for new sandboxes, such as `template`,
            `ram_mib` and `egress`.
    """

    def __init__(
        self,
        client: AsyncClient | None = None,
        *,
        workdir: str = WORKDIR,
        timeout_seconds: float = TIMEOUT_S,
        sandbox: Mapping[str, Any] | None = None,
    ) -> None:
        self._owns_client = client is None
        self._client = client or AsyncClient()
        self._workdir = workdir
        self._timeout_s = timeout_seconds
        self._options = dict(sandbox or {})
        self._local = tempfile.TemporaryDirectory(prefix="ramet-worker-")

    def worker(self, client: AsyncAnthropic, **options: Any) -> EnvironmentWorker:
        """Returns Anthropic's worker; `await worker.run()` serves sessions until it is cancelled.

        Memory stores are not supported: the tools act in the sandbox, and the worker would mount
        the stores on this machine.

        Args:
            client: Anthropic's client.
            options: Arguments of `EnvironmentWorker`, such as `environment_id`,
                `environment_key` and `max_idle`.
        """
        return EnvironmentWorker(
            client,
            tools=self.tools,
            # Of this worker alone, since the skills of its session are in it.
            workdir=tempfile.mkdtemp(dir=self._local.name),
            memory_sync_interval=None,
            **options,
        )

    def tools(self, context: AgentToolContext) -> Sequence[BetaAnyRunnableTool]:
        """Returns the tools of a session, for `EnvironmentWorker(tools=...)`.

        The sandbox is opened by the first call, and rests when the worker closes the tools.
        """
        session_id = context.session.id if context.session else context.session_id
        if session_id is None:
            raise ValueError("the worker's context names no session")
        skills = Path(context.workdir) / "skills"
        session = _Session(self, session_id, skills if skills.is_dir() else None)
        return session.tools()

    async def open(self, session_id: str) -> AsyncSandbox:
        """Returns the session's sandbox: the running one, its Space resumed, or a new one.

        Raises:
            RametError: The service refuses it.
        """
        running = await self._running(session_id)
        if running is not None:
            with suppress(NotFound):
                return await AsyncSandbox.connect(running.id, client=self._client)
        space = await self._space(session_id)
        if space is not None:
            with suppress(NotFound):
                return await AsyncSandbox.resume(space.id, client=self._client)
        options = {"persistent": True, **self._options}
        metadata = {**options.pop("metadata", {}), SESSION_KEY: session_id}
        sandbox = await AsyncSandbox.create(client=self._client, metadata=metadata, **options)
        try:
            await sandbox.files.mkdir(self._workdir, parents=True)
        except BaseException:
            await finish(sandbox.close())
            raise
        return sandbox

    async def rest(self, session_id: str) -> None:
        """Freezes the session's sandbox. If the service refuses, it runs until its timeouts."""
        running = await self._running(session_id)
        if running is None:
            return
        try:
            await self._client.freeze_sandbox(running.id)
        except NotFound:
            pass
        except RametError as error:
            log.warning("the sandbox of session %s was not frozen: %s", session_id, error)

    async def twin(self, session_id: str, twin_id: str) -> None:
        """Gives another session a fork of a session's sandbox, with its memory and processes.

        Afterwards both continue independently. The twin rests until its first work item.

        Args:
            session_id: The session to copy. It may be idle.
            twin_id: The id of the other session, which has no sandbox yet.

        Raises:
            ValueError: The twin has a sandbox already.
            RametError: The service refuses it.
        """
        if await self._running(twin_id) or await self._space(twin_id):
            raise ValueError(f"session {twin_id} has a sandbox already")
        was_running = await self._running(session_id) is not None
        sandbox = await self.open(session_id)
        try:
            [child] = await sandbox.fork(1)
            try:
                metadata = (await sandbox.info()).raw["metadata"]
                await child.update(metadata={**metadata, SESSION_KEY: twin_id})
                await child.freeze()
            finally:
                await finish(child.close())
        finally:
            if not was_running:
                await finish(self.rest(session_id))

    async def delete(self, session_id: str) -> None:
        """Ends the session's sandbox and deletes its Space, for a session that has ended.

        Raises:
            RametError: The service refuses it.
        """
        running, space = await self._running(session_id), await self._space(session_id)
        with suppress(NotFound):
            if running is not None:
                await self._client.delete_sandbox(running.id)
            if space is not None:
                await self._client.delete_space(space.id)

    async def close(self) -> None:
        """Closes the connections, and removes what was downloaded to this machine."""
        self._local.cleanup()
        if self._owns_client:
            await self._client.close()

    async def __aenter__(self) -> "SessionSandboxes":
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.close()

    async def _running(self, session_id: str) -> SandboxInfo | None:
        found = await self._client.list_sandboxes(metadata={SESSION_KEY: session_id})
        return found[0] if found else None  # later ones are its forks

    async def _space(self, session_id: str) -> SpaceInfo | None:
        found = None
        async for space in self._client.iter_spaces():
            if space.metadata.get(SESSION_KEY) == session_id:
                found = space
        return found


class _Session:
    """A session while a worker serves it."""

    def __init__(self, pool: SessionSandboxes, session_id: str, skills: Path | None) -> None:
        self._pool = pool
        self._id = session_id
        self._skills = skills
        self._works: dict[str, Work] | None = None
        self._opening = asyncio.Lock()

    def tools(self) -> list[BetaAnyRunnableTool]:
        return [_SessionTool(self, param) for param in agent_params()]

    async def call(self, name: str, input: object) -> BetaFunctionToolResultType:
        works = await self._opened()
        return await answer(works[name], input)

    async def close(self) -> None:
        works, self._works = self._works, None
        if works is not None:
            await works["fork"].close()
            await self._pool.rest(self._id)

    async def _opened(self) -> dict[str, Work]:
        async with self._opening:
            if self._works is None:
                try:
                    self._works = await self._open()
                except RametError as error:
                    raise ToolError(f"the session's sandbox cannot be opened: {error}") from error
            return self._works

    async def _open(self) -> dict[str, Work]:
        pool = self._pool
        sandbox = await pool.open(self._id)
        if self._skills is not None:
            await sandbox.files.upload_folder(self._skills, f"{pool._workdir}/skills")
        contexts = [one for one in await sandbox.contexts.list() if one.language == "bash"]
        works = agent_works(
            sandbox,
            pool._workdir,
            timeout_seconds=pool._timeout_s,
            context_id=contexts[0].id if contexts else None,
        )
        return {_name(work.param()): work for work in works}


class _SessionTool(BetaAsyncBuiltinFunctionTool):
    """One tool of a session. The runner closes each tool; the first close lets the sandbox rest."""

    def __init__(self, session: _Session, param: BetaToolUnionParam) -> None:
        self._session = session
        self._param = param

    def to_dict(self) -> BetaToolUnionParam:
        return self._param

    async def call(self, input: object) -> BetaFunctionToolResultType:
        return await self._session.call(self.name, input)

    async def close(self) -> None:
        await self._session.close()


def _name(param: BetaToolUnionParam) -> str:
    return str(dict(param)["name"])
