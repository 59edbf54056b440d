# SPDX-License-Identifier: Apache-2.0
"""The LangChain tools: LangChain's own tests of tools, agents with a scripted model, and forks."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, Iterator

import pytest
from conftest import HOST
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool
from langchain_tests.integration_tests import ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests

import ramet
from ramet import Client, NotFound, Sandbox
from ramet.integrations.langchain import RametToolkit

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
)
SHOW = f"class P:\n    def _repr_png_(self): return {PNG!r}\nprint('drawn'); display(P())"


@pytest.fixture
def kit(shared: Sandbox) -> Iterator[RametToolkit]:
    with RametToolkit(shared) as made:
        yield made


def call(kit: RametToolkit, name: str, **arguments: Any) -> ToolMessage:
    (tool,) = [tool for tool in kit.get_tools() if tool.name == name]
    answer = tool.invoke({"type": "tool_call", "id": "c1", "name": name, "args": arguments})
    assert isinstance(answer, ToolMessage)
    return answer


def text(message: ToolMessage) -> str:
    assert isinstance(message.content, str)
    return message.content


class OfOneTool:
    """What LangChain's tests ask for."""

    @pytest.fixture(autouse=True)
    def use(self, shared: Sandbox) -> None:
        (self.made,) = RametToolkit(shared, fork_tools=False).get_tools()

    @property
    def tool_constructor(self) -> BaseTool:
        return self.made

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"code": "1 + 1"}


class TestUnits(OfOneTool, ToolsUnitTests):
    pass


@pytest.mark.asyncio
@pytest.mark.filterwarnings("ignore:.*is marked with '@pytest.mark.asyncio' but")
class TestIntegration(OfOneTool, ToolsIntegrationTests):
    pass


def test_output_and_value_are_text_and_the_result_is_the_artifact(kit: RametToolkit) -> None:
    call(kit, "run_code", code="x = 20")
    message = call(kit, "run_code", code="print('hello')\nx + 1")
    assert message.content == "hello\n21" and message.status == "success"
    assert isinstance(message.artifact, ramet.ExecResult) and message.artifact.text == "21"
    failed = call(kit, "run_code", code="exit 3", language="bash")
    assert failed.artifact.exit_code == 3 and "exit code 3" in text(failed)


def test_pictures_are_image_blocks(kit: RametToolkit) -> None:
    shown, image = call(kit, "run_code", code=SHOW).content_blocks
    assert shown["type"] == "text" and shown["text"] == "drawn"
    assert image["type"] == "image" and image["mime_type"] == "image/png"
    assert base64.b64decode(image["base64"]) == PNG


class Model(GenericFakeChatModel):
    """A model that returns the given messages."""

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        assert [tool.name for tool in tools] == ["run_code", "try_variants", "keep_variant"]
        return self


def calls_tool(number: int, code: str) -> AIMessage:
    wanted: Any = {"name": "run_code", "args": {"code": code}, "id": str(number)}
    return AIMessage("", tool_calls=[wanted])


def test_agent_uses_the_tool_and_its_state_stays(kit: RametToolkit) -> None:
    script = [calls_tool(1, "n = sum(range(10))"), calls_tool(2, "n * 2"), AIMessage("It is 90.")]
    agent: Any = create_agent(Model(messages=iter(script)), kit.get_tools())
    messages = agent.invoke({"messages": [("user", "Compute.")]})["messages"]
    assert [m.content for m in messages if isinstance(m, ToolMessage)] == ["(no output)", "90"]
    assert messages[-1].content == "It is 90."


def has(sandbox: Sandbox, path: str) -> bool:
    try:
        sandbox.files.stat(path)
    except ramet.NoSuchFile:
        return False
    return True


def test_cancelled_call_is_interrupted_in_the_sandbox(kit: RametToolkit, shared: Sandbox) -> None:
    began = "/tmp/langchain-began"

    async def main() -> None:
        tool = kit.get_tools()[0]
        assert await tool.ainvoke({"code": "6 * 7"}) == "42"
        code = f"import time\nopen({began!r}, 'w')\ntime.sleep(100000)"
        running = asyncio.ensure_future(tool.ainvoke({"code": code}))
        while not await asyncio.to_thread(has, shared, began):
            await asyncio.sleep(0.05)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    assert shared.run_code("1").ok  # would wait for the end of the other call
    shared.files.remove(began)


def test_wrong_arguments_are_refused(shared: Sandbox) -> None:
    with pytest.raises(ValueError, match="template"):
        RametToolkit(shared, template="x")
    with pytest.raises(ValueError, match="language"):
        RametToolkit(shared).get_tools()[0].invoke({"code": "1", "language": "perl"})


def test_model_sees_the_errors_that_it_can_mend(kit: RametToolkit, shared: Sandbox) -> None:
    message = call(kit, "keep_variant", number=0)
    assert message.status == "error" and "no variant 0" in text(message)
    strict = RametToolkit(shared, timeout_seconds=-1)
    message = call(strict, "run_code", code="1")
    assert message.status == "error" and "timeout" in text(message)


def test_sandbox_is_created_at_the_first_call_and_closed() -> None:
    with RametToolkit(host=HOST) as kit:
        assert call(kit, "run_code", code="40 + 2").content == "42"
        sandbox = kit.sandbox
    with pytest.raises(NotFound):
        sandbox.run_code("1")


@pytest.mark.smoke
@pytest.mark.vm
def test_variants_run_in_forks_and_one_is_kept(
    kit: RametToolkit, shared: Sandbox, client: Client
) -> None:
    call(kit, "run_code", code="base = 100")
    tried = call(kit, "try_variants", variants=["base += 1; base", "base += 2; base", "1 / 0"])
    assert "--- variant 0 ---\n101" in text(tried) and "ZeroDivisionError" in text(tried)
    assert [result.text for result in tried.artifact] == ["101", "102", None]
    assert call(kit, "run_code", code="base").content == "100"
    call(kit, "keep_variant", number=1)
    assert call(kit, "run_code", code="base").content == "102"
    assert "no variant 1" in text(call(kit, "keep_variant", number=1))
    assert not client.list_children(shared.id)


@pytest.mark.vm
def test_forks_of_a_toolkit_are_separate_and_closed(
    kit: RametToolkit, shared: Sandbox, client: Client
) -> None:
    call(kit, "run_code", code="y = 1")
    for number, twin in enumerate(kit.fork(2)):
        with twin:
            assert call(twin, "run_code", code=f"y += {number}; y").content == str(1 + number)
    assert call(kit, "run_code", code="y").content == "1"
    assert not client.list_children(shared.id)
