# SPDX-License-Identifier: Apache-2.0
"""Anthropic's environment worker serves sessions, each in a sandbox of its own."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any, AsyncIterator, Iterator
from uuid import uuid4

import anthropic
import pytest
from anthropic.lib.tools import ToolError
from anthropic.lib.tools.agent_toolset import AgentToolContext
from anthropic_fixtures import Api, Reply, anyio_backend, api, async_claude

from ramet import AsyncClient, AsyncSandbox, Client
from ramet.integrations.anthropic import SessionSandboxes
from ramet.integrations.anthropic.sessions import SESSION_KEY

__all__ = ["anyio_backend", "api", "async_claude"]
pytestmark = pytest.mark.anyio
ENVIRONMENT = "env_1"


@pytest.fixture
def session_id() -> Iterator[str]:
    """Returns the id of a session, of which nothing is left at the end."""
    made = f"sesn_{uuid4().hex}"
    yield made
    with Client() as service:
        for sandbox in service.list_sandboxes():
            if str(sandbox.raw["metadata"].get(SESSION_KEY, "")).startswith(made):
                service.delete_sandbox(sandbox.id)
        for space in service.list_spaces():
            if str(space.metadata.get(SESSION_KEY, "")).startswith(made):
                service.delete_space(space.id)


@pytest.fixture
async def sandboxes() -> AsyncIterator[SessionSandboxes]:
    async with SessionSandboxes() as made:
        yield made


def counts(session_id: str) -> tuple[int, int]:
    """Returns the numbers of sandboxes and Spaces of a session."""
    with Client() as service:
        running = service.list_sandboxes(metadata={SESSION_KEY: session_id})
        keys = [one.metadata.get(SESSION_KEY) for one in service.list_spaces()]
        return len(running), keys.count(session_id)


class Environment:
    """The part of Anthropic's API that the worker talks to: a queue, and one session's events."""

    def __init__(self, session_id: str, items: list[list[dict[str, Any]]]) -> None:
        self.session_id = session_id
        self.items = items  # the calls of each work item
        self.results: list[dict[str, Any]] = []
        self.stopped = 0
        self._calls: list[dict[str, Any]] = []
        self._answered = threading.Event()

    def handle(self, method: str, path: str, body: Any) -> Reply:
        if path.endswith("/work/poll"):
            return self._poll()
        if path.endswith("/ack"):
            return 200, self._work()
        if path.endswith("/heartbeat"):
            beat = {"lease_extended": True, "state": "active", "ttl_seconds": 60}
            return 200, {"type": "work_heartbeat", "last_heartbeat": "1", **beat}
        if path.endswith("/stop"):
            self.stopped += 1
            return 200, self._work()
        if path.endswith("/events/stream"):
            return 200, self._stream()
        if path.endswith("/events") and method == "GET":
            return 200, {"data": self._calls, "next_page": None}
        if path.endswith("/events"):
            self.results += body["events"]
            if len(self.results) % len(self._calls) == 0:
                self._answered.set()
            return 200, {"data": []}
        if path == f"/v1/sessions/{self.session_id}":
            return 200, {
                "id": self.session_id,
                "type": "session",
                "status": "running",
                "resources": [],
                "agent": {"id": "agent_1", "type": "agent", "skills": []},
            }
        return 404, {"type": "error", "error": {"type": "not_found_error", "message": path}}

    def _poll(self) -> Reply:
        if not self.items:
            return 200, None
        self._calls = [
            {
                "id": f"sevt_{len(self.results) + i}",
                "type": "agent.tool_use",
                "evaluated_permission": "allow",
                "processed_at": "2026-01-01T00:00:00Z",
                **call,
            }
            for i, call in enumerate(self.items.pop(0))
        ]
        self._answered.clear()
        return 200, self._work()

    def _work(self) -> dict[str, Any]:
        return {
            "id": "work_1",
            "type": "work",
            "environment_id": ENVIRONMENT,
            "data": {"type": "session", "id": self.session_id},
            "state": "active",
            "metadata": {},
        }

    def _stream(self) -> Iterator[bytes]:
        """Ends when all calls are answered, with the end of the session."""
        self._answered.wait(300)
        end = {"type": "session.status_terminated", "id": "sevt_end", "processed_at": None}
        yield f"event: {end['type']}\ndata: {json.dumps(end)}\n\n".encode()

    def texts(self) -> list[str]:
        return [one["content"][0]["text"] for one in self.results]


async def serve(
    claude: anthropic.AsyncAnthropic,
    sandboxes: SessionSandboxes,
    environment: Environment,
    items: int,
) -> None:
    """Runs a worker until it has served so many work items."""
    worker = sandboxes.worker(claude, environment_id=ENVIRONMENT, environment_key="key")
    task = asyncio.create_task(worker.run())
    try:
        while environment.stopped < items:
            await asyncio.sleep(0.1)
            if task.done():
                task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def bash(command: str) -> dict[str, Any]:
    return {"name": "bash", "input": {"command": command}}


@pytest.mark.vm
async def test_worker_freezes_the_sandbox_between_work_items(
    api: Api, async_claude: anthropic.AsyncAnthropic, sandboxes: SessionSandboxes, session_id: str
) -> None:
    first = [
        bash("pwd; word=kept"),
        {"name": "run_code", "input": {"code": "answer = 42"}},
        {"name": "write", "input": {"file_path": "f.txt", "content": "one\ntwo\n"}},
    ]
    second = [
        bash("echo $word"),
        {"name": "run_code", "input": {"code": "answer"}},
        {"name": "read", "input": {"file_path": "f.txt", "view_range": [2, 2]}},
        {"name": "read", "input": {"file_path": "nothing"}},
    ]
    environment = Environment(session_id, [first])
    api.handle = environment.handle
    await serve(async_claude, sandboxes, environment, 1)
    written = "/workspace/f.txt was written, 8 bytes"
    assert environment.texts() == ["/workspace", "(no output)", written]
    assert counts(session_id) == (0, 1)

    environment.items = [second]
    environment.results.clear()
    await serve(async_claude, sandboxes, environment, 2)
    assert environment.texts()[:3] == ["kept", "42", "two"]
    assert environment.results[3]["is_error"] and "No such file" in environment.texts()[3]
    assert counts(session_id) == (0, 1)


def context_of(session_id: str, workdir: Path) -> AgentToolContext:
    return AgentToolContext(workdir=workdir, session_id=session_id)


async def call(tools: Any, name: str, **input: Any) -> Any:
    [tool] = [one for one in tools if one.name == name]
    return await tool.call(input)


@pytest.mark.vm
async def test_twin_is_independent(
    sandboxes: SessionSandboxes, session_id: str, tmp_path: Path
) -> None:
    twin_id = f"{session_id}-twin"
    tools = sandboxes.tools(context_of(session_id, tmp_path))
    await call(tools, "bash", command="word=parent")
    await sandboxes.twin(session_id, twin_id)
    assert counts(session_id) == (1, 0) and counts(twin_id) == (0, 1)
    twin = sandboxes.tools(context_of(twin_id, tmp_path))
    assert await call(twin, "bash", command="echo $word; word=twin") == "parent"
    assert await call(tools, "bash", command="echo $word") == "parent"
    for one in [*tools, *twin]:
        await one.close()  # type: ignore[union-attr, misc]
    assert counts(session_id) == counts(twin_id) == (0, 1)
    with pytest.raises(ValueError, match="has a sandbox already"):
        await sandboxes.twin(session_id, twin_id)
    await sandboxes.delete(session_id)
    await sandboxes.delete(twin_id)
    assert counts(session_id) == counts(twin_id) == (0, 0)


async def test_twin_of_an_idle_session_leaves_it_idle(
    sandboxes: SessionSandboxes, session_id: str
) -> None:
    await sandboxes.open(session_id)
    await sandboxes.rest(session_id)
    await sandboxes.twin(session_id, f"{session_id}-twin")
    assert counts(session_id) == counts(f"{session_id}-twin") == (0, 1)


async def test_running_sandbox_of_another_worker_is_found(session_id: str) -> None:
    async with AsyncClient() as client:
        one, other = SessionSandboxes(client), SessionSandboxes(client)
        assert (await one.open(session_id)).id == (await other.open(session_id)).id


async def test_skills_are_in_the_sandbox(
    sandboxes: SessionSandboxes, session_id: str, tmp_path: Path
) -> None:
    skill = tmp_path / "skills" / "fold"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("Fold it.\n")
    tools = sandboxes.tools(context_of(session_id, tmp_path))
    assert await call(tools, "read", file_path="skills/fold/SKILL.md") == "Fold it.\n"


async def test_workers_share_no_folder(
    async_claude: anthropic.AsyncAnthropic,
    sandboxes: SessionSandboxes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workdirs: list[Path] = []
    monkeypatch.setattr(
        "ramet.integrations.anthropic.sessions.EnvironmentWorker",
        lambda client, *, workdir, **_: workdirs.append(Path(workdir)),
    )
    for _ in range(2):
        sandboxes.worker(async_claude)
    one, other = workdirs
    assert one != other and one.is_dir() and other.is_dir()
    assert one not in other.parents and other not in one.parents
    await sandboxes.close()
    assert not one.exists() and not other.exists()


async def test_files_are_edited_and_searched(
    sandboxes: SessionSandboxes, session_id: str, tmp_path: Path
) -> None:
    tools = sandboxes.tools(context_of(session_id, tmp_path))
    folder = f"/tmp/search-{session_id}"
    await call(tools, "write", file_path=f"{folder}/a/one.py", content="x = 1\ny = 1\n")
    await call(tools, "write", file_path=f"{folder}/two.txt", content="x = 2\n")
    with pytest.raises(ToolError, match="occurs 2 times"):
        await call(tools, "edit", file_path=f"{folder}/a/one.py", old_string="1", new_string="3")
    edit = {"file_path": f"{folder}/a/one.py", "old_string": "1", "new_string": "3"}
    await call(tools, "edit", **edit, replace_all=True)
    found = await call(tools, "grep", pattern="^x = [0-9]", path=folder)
    assert sorted(found.split("\n")) == [f"{folder}/a/one.py:1:x = 3", f"{folder}/two.txt:1:x = 2"]
    assert await call(tools, "glob", pattern="**/*.py", path=folder) == f"{folder}/a/one.py"
    assert await call(tools, "grep", pattern="nothing", path=folder) == "no matches"
    with pytest.raises(ToolError, match="the pattern is wrong"):
        await call(tools, "grep", pattern="(", path=folder)
    with pytest.raises(ToolError, match="the pattern is absolute"):
        await call(tools, "glob", pattern="/etc/*")


async def test_session_without_calls_needs_no_sandbox(
    sandboxes: SessionSandboxes, session_id: str, tmp_path: Path
) -> None:
    for tool in sandboxes.tools(context_of(session_id, tmp_path)):
        await tool.close()  # type: ignore[union-attr, misc]
    assert counts(session_id) == (0, 0)


async def test_refused_sandbox_is_an_error_for_the_model(session_id: str, tmp_path: Path) -> None:
    async with SessionSandboxes(sandbox={"template": "no-such-template"}) as sandboxes:
        tools = sandboxes.tools(context_of(session_id, tmp_path))
        with pytest.raises(ToolError, match="cannot be opened: .*no-such-template"):
            await call(tools, "bash", command="true")


async def test_undecided_copies_are_gone_when_the_session_rests(
    sandboxes: SessionSandboxes, session_id: str, tmp_path: Path
) -> None:
    tools = sandboxes.tools(context_of(session_id, tmp_path))
    await call(tools, "fork", action="try", commands=["true", "true"])
    sandbox: AsyncSandbox = await sandboxes.open(session_id)
    assert len((await sandbox.info()).children) == 2
    await tools[0].close()  # type: ignore[union-attr, misc]
    assert counts(session_id) == (0, 1)
