# SPDX-License-Identifier: Apache-2.0
"""Anthropic's tool runners call the tools, which act in a sandbox."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import anthropic
import pytest
from anthropic.lib.tools import ToolError
from anthropic_fixtures import (
    Api,
    anyio_backend,
    api,
    async_claude,
    async_sandbox,
    claude,
    said,
    sandbox,
    use,
)

from ramet import AsyncSandbox, Context, Sandbox
from ramet.errors import Conflict
from ramet.integrations.anthropic import (
    AsyncMemoryTool,
    AsyncSandboxTools,
    MemoryTool,
    SandboxTools,
    Tool,
    bash_tool,
    fork_tool,
    run_code_tool,
    text_editor_tool,
)

__all__ = ["anyio_backend", "api", "async_claude", "async_sandbox", "claude", "sandbox"]
MODEL = "claude-test"
ASK: Any = [{"role": "user", "content": "go"}]
PICTURE = b"\x89PNG\r\n\x1a\n picture"


def run(claude: anthropic.Anthropic, api: Api, tools: list[Any], *turns: Any) -> list[Any]:
    """Runs the model's turns; returns the tool results that it gets."""
    api.says(*[[turn] if isinstance(turn, dict) else turn for turn in turns], said())
    runner = claude.beta.messages.tool_runner(
        model=MODEL, max_tokens=100, messages=ASK, tools=tools
    )
    message = runner.until_done()
    assert message.content[0].type == "text" and not api.script
    return api.results()


def texts(results: list[Any]) -> list[str]:
    return [text_of(one["content"]) for one in results]


def text_of(content: Any) -> str:
    return content if isinstance(content, str) else str(content[0]["text"])


def contexts_of(sandbox: Sandbox) -> list[str]:
    """Returns the ids of contexts. Stand-ins share one agent, and so the contexts of ended sandboxes."""
    return [one.id for one in sandbox.contexts.list()]


def test_bash_keeps_its_state_and_reports_exit_codes(
    claude: anthropic.Anthropic, api: Api, sandbox: Sandbox
) -> None:
    tool = bash_tool(sandbox)
    results = run(
        claude,
        api,
        [tool],
        use("bash", 1, command="cd /tmp; word=kept"),
        use("bash", 2, command="pwd; echo $word; echo no >&2; (exit 3)"),
        use("bash", 3, restart=True),
        use("bash", 4, command="echo word=$word"),
        use("bash", 5),
    )
    assert texts(results[:4]) == [
        "(no output)",
        "/tmp\nkept\nno\n[exit code 3]",
        "bash was restarted",
        "word=",
    ]
    assert results[4]["is_error"] and texts(results)[4] == "command is missing"
    assert api.requests[0][2]["tools"] == [{"type": "bash_20250124", "name": "bash"}]
    tool.close()


def test_bash_survives_a_command_at_its_time_limit(sandbox: Sandbox) -> None:
    before = contexts_of(sandbox)
    tool = bash_tool(sandbox, timeout_seconds=1)
    tool.call({"command": "word=kept"})
    with pytest.raises(ToolError, match="(?s)begun\n.*The command was stopped after 1 s"):
        tool.call({"command": "echo begun; sleep 1000"})
    assert tool.call({"command": "echo $word"}) == "kept"
    tool.close()
    assert contexts_of(sandbox) == before


def test_bash_is_replaced_when_it_was_deleted(sandbox: Sandbox) -> None:
    tool = bash_tool(sandbox)
    tool.call({"command": "word=kept"})
    for one in sandbox.contexts.list():
        one.delete()
    with pytest.raises(ToolError, match="context"):
        tool.call({"command": "echo $word"})
    assert tool.call({"restart": True}) == "bash was restarted"
    assert tool.call({"command": "echo =$word"}) == "="
    tool.close()


def test_a_bash_that_cannot_be_deleted_is_logged(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tool = bash_tool(sandbox)
    tool.call({"command": "word=kept"})

    def refuse(context: Context) -> None:
        raise Conflict("it is frozen")

    monkeypatch.setattr(Context, "delete", refuse)
    tool.close()
    assert [one.getMessage() for one in caplog.records] == ["a clean-up failed: it is frozen"]


def test_editor_shows_and_changes_files(
    claude: anthropic.Anthropic, api: Api, sandbox: Sandbox
) -> None:
    path, name = f"/tmp/edit-{sandbox.id}/a.txt", "str_replace_based_edit_tool"
    turns: list[dict[str, Any]] = [
        {"command": "create", "path": path, "file_text": "one\ntwo\nthree\n"},
        {"command": "str_replace", "path": path, "old_str": "two", "new_str": "2"},
        {"command": "insert", "path": path, "insert_line": 0, "insert_text": "zero"},
        {"command": "view", "path": path},
        {"command": "view", "path": path, "view_range": [2, 3]},
        {"command": "view", "path": f"/tmp/edit-{sandbox.id}"},
        {"command": "str_replace", "path": path, "old_str": "e", "new_str": "E"},
        {"command": "view", "path": "/nowhere"},
        {"command": "undo_edit", "path": path},
    ]
    calls = [use(name, i, **turn) for i, turn in enumerate(turns)]
    results = run(claude, api, [text_editor_tool(sandbox, max_characters=1000)], *calls)
    shown = texts(results)
    assert shown[1].endswith("     1\tone\n     2\t2\n     3\tthree\n     4\t")
    assert shown[3] == "     1\tzero\n     2\tone\n     3\t2\n     4\tthree\n     5\t"
    assert shown[4] == "     2\tone\n     3\t2"
    assert shown[5].splitlines()[1:] == ["a.txt"]
    assert [bool(one.get("is_error")) for one in results] == [False] * 6 + [True] * 3
    assert "occurs 4 times" in shown[6] and "lines 1, 2, 4" in shown[6]
    assert "No such file" in shown[7] and "no command 'undo_edit'" in shown[8]
    assert sandbox.download(path) == b"zero\none\n2\nthree\n"
    assert api.requests[0][2]["tools"][0]["max_characters"] == 1000


def test_a_file_with_holes_does_not_fill_the_memory(sandbox: Sandbox) -> None:
    folder = f"/root/memories/{sandbox.id}"
    sandbox.files.mkdir(folder, parents=True)
    path = f"{folder}/huge"
    assert sandbox.processes.run(["truncate", "-s", "21M", path]).ok
    try:
        edit = {"command": "str_replace", "path": path, "old_str": "a", "new_str": "b"}
        memory: Any = {"command": "view", "path": f"/memories/{sandbox.id}/huge"}
        tool: Any = text_editor_tool(sandbox)
        for one, input in (
            (tool, {"command": "view", "path": path}),
            (tool, edit),
            (MemoryTool(sandbox), memory),
        ):
            with pytest.raises(ToolError, match="more than 20971520 bytes"):
                one.call(input)
    finally:
        sandbox.files.remove(folder, recursive=True)


def test_endless_output_does_not_fill_the_memory(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ramet.integrations.anthropic.tools.MAX_OUTPUT_BYTES", 1000)
    for tool, input in (
        (bash_tool(sandbox), {"command": "yes | head -n 100000"}),
        (run_code_tool(sandbox), {"code": "print('y\\n' * 100000)"}),
    ):
        shown = tool.call(input)
        assert isinstance(shown, str) and len(shown) < 1100
        assert shown.startswith("y\ny\n") and shown.endswith("was discarded]")


def test_editor_keeps_the_mode_and_shows_pictures(sandbox: Sandbox) -> None:
    folder = f"/tmp/edit-{sandbox.id}"
    sandbox.upload(b"a", f"{folder}/run", mode=0o755)
    tool = text_editor_tool(sandbox)
    tool.call({"command": "str_replace", "path": f"{folder}/run", "old_str": "a", "new_str": "b"})
    assert sandbox.files.stat(f"{folder}/run").mode == 0o755
    sandbox.upload(PICTURE, f"{folder}/p.png")
    blocks = tool.call({"command": "view", "path": f"{folder}/p.png"})
    assert not isinstance(blocks, str)
    (block,) = blocks
    source: Any = dict(block)["source"]
    assert source["media_type"] == "image/png"
    assert base64.b64decode(source["data"]) == PICTURE
    sandbox.upload(b"\xff\xfe", f"{folder}/raw")
    with pytest.raises(ToolError, match="is not a text file"):
        tool.call({"command": "view", "path": f"{folder}/raw"})


def test_code_returns_values_pictures_and_tracebacks(
    claude: anthropic.Anthropic, api: Api, sandbox: Sandbox
) -> None:
    show = f"type('P', (), {{'_repr_png_': lambda self: {PICTURE!r}}})()"
    results = run(
        claude,
        api,
        [run_code_tool(sandbox)],
        use("run_code", 1, code="x = 41"),
        use("run_code", 2, code="x + 1"),
        use("run_code", 3, code=show),
        use("run_code", 4, code="1 / 0"),
    )
    assert texts(results)[1] == "42"
    image = results[2]["content"][1]
    assert image["type"] == "image"
    assert base64.b64decode(image["source"]["data"]) == PICTURE
    assert "ZeroDivisionError" in texts(results)[3]


def test_memory_is_kept_in_files(claude: anthropic.Anthropic, api: Api, sandbox: Sandbox) -> None:
    tool = MemoryTool(sandbox, folder=f"/tmp/memories-{sandbox.id}")
    turns: list[dict[str, Any]] = [
        {"command": "view", "path": "/memories"},
        {"command": "create", "path": "/memories/a/b.md", "file_text": "one\ntwo\n"},
        {"command": "create", "path": "/memories/a/b.md", "file_text": ""},
        {"command": "insert", "path": "/memories/a/b.md", "insert_line": 1, "insert_text": "half"},
        {
            "command": "str_replace",
            "path": "/memories/a/b.md",
            "old_str": "two",
            "new_str": "2",
        },
        {"command": "view", "path": "/memories/a/b.md"},
        {"command": "view", "path": "/memories", "view_range": None},
        {"command": "rename", "old_path": "/memories/a", "new_path": "/memories/c"},
        {"command": "view", "path": "/memories/../etc/passwd"},
        {"command": "delete", "path": "/memories"},
        {"command": "delete", "path": "/memories/c"},
        {"command": "delete", "path": "/memories/c"},
    ]
    calls = [use("memory", i, **turn) for i, turn in enumerate(turns)]
    results = run(claude, api, [tool], *calls)
    shown, failed = texts(results), [bool(one.get("is_error")) for one in results]
    assert failed == [i in (2, 8, 9, 11) for i in range(12)]
    assert shown[5].endswith("     1\tone\n     2\thalf\n     3\t2\n     4\t")
    assert shown[6].splitlines()[1:] == ["/memories/a/", "/memories/a/b.md"]
    assert "not below /memories" in shown[8] and "itself cannot be changed" in shown[9]
    tool.clear_all_memory()
    assert sandbox.files.list(f"/tmp/memories-{sandbox.id}") == []


@pytest.mark.vm
def test_model_tries_commands_in_copies_and_keeps_one(
    claude: anthropic.Anthropic, api: Api
) -> None:
    write = "echo $word"
    with Sandbox() as sandbox, SandboxTools(sandbox) as tools:
        results = run(
            claude,
            api,
            [*tools],
            use("bash", 1, command="mkdir -p /tmp/forked; cd /tmp/forked; word=kept"),
            use("fork", 2, action="try", commands=[f"{write} a >f; pwd", f"{write} b >f; false"]),
            use("fork", 3, action="keep", branch=9),
            use("fork", 4, action="keep", branch=2),
            use("bash", 5, command="cat f; echo $word"),
            use("fork", 6, action="discard"),
        )
        shown = texts(results)
        assert shown[1] == "branch 1:\n/tmp/forked\n\nbranch 2:\n[exit code 1]"
        assert results[2]["is_error"] and shown[2] == "there is no branch 9; branches: 1, 2"
        assert "continues as branch 2" in shown[3]
        assert shown[4] == "kept b\nkept"
        assert not sandbox.info().children


def test_undecided_copies_end_with_the_tools() -> None:
    with Sandbox() as sandbox:
        with SandboxTools(sandbox) as tools:
            fork = [tool for tool in tools if tool.name == "fork"][0]
            fork.call({"action": "try", "commands": ["true", "true"]})
            assert len(sandbox.info().children) == 2
            fork.call({"action": "try", "commands": ["true"]})
            assert len(sandbox.info().children) == 1
        assert not sandbox.info().children


def test_wrong_input_of_fork_is_explained(sandbox: Sandbox) -> None:
    tool = fork_tool(sandbox, max_branches=2)
    for input, message in (
        ({"action": "try", "commands": ["a", "b", "c"]}, "must be a list of 1 to 2"),
        ({"action": "try", "commands": "a"}, "must be a list"),
        ({"action": "fly"}, "no action 'fly'"),
        ({"action": "keep", "branch": "1"}, "branch must be a whole number, not '1'"),
        ({}, "action is missing"),
        ("try", "must be an object, not str"),
    ):
        with pytest.raises(ToolError, match=message):
            tool.call(input)


@pytest.mark.smoke
@pytest.mark.vm
def test_conversation_continues_in_each_child() -> None:
    with Sandbox() as sandbox, SandboxTools(sandbox) as tools:
        bash, _, code, _ = tools
        bash.call({"command": "cd /tmp; word=parent"})
        code.call({"code": "word = 'parent'"})
        children = tools.fork(2)
        try:
            for i, child in enumerate(children):
                child_bash, _, child_code, _ = child
                assert child_bash.call({"command": "pwd; echo $word"}) == "/tmp\nparent"
                child_bash.call({"command": f"word=child{i}"})
                assert child_code.call({"code": f"word += str({i})\nword"}) == f"'parent{i}'"
            assert bash.call({"command": "echo $word"}) == "parent"
            tools.merge_into(children[1])
            assert bash.call({"command": "echo $word"}) == "child1"
            assert code.call({"code": "word"}) == "'parent1'"
        finally:
            for child in children:
                child.sandbox.close()


@pytest.mark.anyio
async def test_tool_of_the_wrong_kind_is_refused(async_sandbox: AsyncSandbox) -> None:
    with pytest.raises(TypeError, match="needs a Sandbox, not <AsyncSandbox"):
        Tool(run_code_tool(async_sandbox).work)


async def run_async(
    claude: anthropic.AsyncAnthropic, api: Api, tools: list[Any], *turns: Any
) -> list[Any]:
    api.says(*[[turn] for turn in turns], said())
    runner = claude.beta.messages.tool_runner(
        model=MODEL, max_tokens=100, messages=ASK, tools=tools
    )
    await runner.until_done()
    return api.results()


@pytest.mark.vm
@pytest.mark.anyio
async def test_async_tools_do_the_same(
    async_claude: anthropic.AsyncAnthropic, api: Api, async_sandbox: AsyncSandbox
) -> None:
    folder = f"/tmp/async-{async_sandbox.id}"
    memory = AsyncMemoryTool(async_sandbox, folder=f"{folder}/memories")
    edit = {"command": "create", "path": f"{folder}/f", "file_text": "text"}
    async with AsyncSandboxTools(async_sandbox) as tools:
        results = await run_async(
            async_claude,
            api,
            [*tools, memory],
            use("bash", 1, command=f"mkdir -p {folder}; cd {folder}; word=kept"),
            use("str_replace_based_edit_tool", 2, **edit),
            use("run_code", 3, code=f"open('{folder}/f').read()"),
            use("memory", 4, command="create", path="/memories/m", file_text="remembered"),
            use("fork", 5, action="try", commands=["echo $word 1", "cat memories/m"]),
            use("fork", 6, action="discard"),
        )
        assert texts(results)[2] == "'text'"
        assert texts(results)[4] == "branch 1:\nkept 1\n\nbranch 2:\nremembered"
        assert not (await async_sandbox.info()).children
        [child] = await tools.fork()
        assert await list(child)[0].call({"command": "echo $word"}) == "kept"
        await tools.merge_into(child)
    assert not await async_sandbox.contexts.list()


@pytest.mark.anyio
async def test_cancelled_call_is_interrupted(async_sandbox: AsyncSandbox) -> None:
    tool = bash_tool(async_sandbox)
    await tool.call({"command": "word=kept"})
    mark = f"/tmp/mark-{async_sandbox.id}"
    task = asyncio.create_task(tool.call({"command": f"touch {mark}; sleep 1000"}))
    while not (await async_sandbox.processes.run(["test", "-e", mark])).ok:
        await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await tool.call({"command": "echo $word"}) == "kept"
