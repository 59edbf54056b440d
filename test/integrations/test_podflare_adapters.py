# SPDX-License-Identifier: Apache-2.0
"""The adapters in the published podflare package, unmodified, against this service."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, Iterator

import httpx2
import pytest
from agents import Agent, RunConfig, Runner
from agents.testing import ScriptedModel, assistant_message, function_call
from anthropic import Anthropic
from anthropic.types import ToolUseBlock
from conftest import HOST
from google.genai import types as gemini
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage

from ramet import Client, NotFound


pytestmark = pytest.mark.usefixtures("podflare")


@pytest.fixture
def box(podflare: Any) -> Iterator[Any]:
    with podflare.Sandbox(host=HOST) as sandbox:
        yield sandbox


@pytest.fixture
def created(podflare: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the sandboxes that podflare creates during the test."""
    ids: list[str] = []
    create = podflare.Client.create_sandbox_info

    def note(self: Any, **options: Any) -> Any:
        info = create(self, **options)
        ids.append(info["id"])
        return info

    monkeypatch.setattr(podflare.Client, "create_sandbox_info", note)
    return ids


def is_gone(client: Client, sandbox_id: str) -> bool:
    try:
        client.get_sandbox(sandbox_id)
    except NotFound:
        return True
    return False


def test_openai_agents(client: Client, created: list[str]) -> None:
    from podflare.integrations.openai_agents import podflare_code_interpreter

    tool = podflare_code_interpreter(host=HOST)
    calls = [
        {"code": "x = 6 * 7"},
        {"code": "print(x)"},
        {"code": "echo $((x)); exit 3", "language": "bash"},
    ]
    steps = [[function_call("run_code", one, call_id=f"call_{i}")] for i, one in enumerate(calls)]
    model = ScriptedModel([*steps, [assistant_message("It is 42.")]])
    agent = Agent(name="assistant", model=model, tools=[tool])
    run = asyncio.run(Runner.run(agent, "Compute.", run_config=RunConfig(tracing_disabled=True)))
    outputs = [item.output for item in run.new_items if item.type == "tool_call_output_item"]
    assert outputs == [
        {"stdout": "", "stderr": "", "exit_code": 0},
        {"stdout": "42", "stderr": "", "exit_code": 0},
        {"stdout": "0", "stderr": "", "exit_code": 3},
    ]
    assert run.final_output == "It is 42."
    (sandbox_id,) = created
    assert not is_gone(client, sandbox_id)
    tool.close_podflare_sandbox()
    assert is_gone(client, sandbox_id)


def answer_of(content: list[dict[str, Any]], stop: str) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def test_anthropic_in_a_loop_of_messages(box: Any) -> None:
    from podflare.integrations.anthropic import handle_code_execution_tool_use

    def use(number: int, code: str) -> dict[str, Any]:
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "code_execution"}
        return answer_of([{**call, "input": {"code": code}}], "tool_use")

    answers = [use(1, "y = 5"), use(2, "print(y)"), use(3, "1 / 0")]
    answers.append(answer_of([{"type": "text", "text": "done"}], "end_turn"))
    sent: list[Any] = []

    def serve(request: httpx2.Request) -> httpx2.Response:
        sent.append(json.loads(request.content))
        return httpx2.Response(200, json=answers.pop(0))

    transport = httpx2.MockTransport(serve)
    client = Anthropic(api_key="none", http_client=httpx2.Client(transport=transport))
    messages: list[Any] = [{"role": "user", "content": "Compute."}]
    while True:
        answer = client.messages.create(model="m", max_tokens=99, messages=messages)
        messages.append({"role": "assistant", "content": answer.content})
        if answer.stop_reason != "tool_use":
            break
        results = [
            handle_code_execution_tool_use(block, box)
            for block in answer.content
            if isinstance(block, ToolUseBlock)
        ]
        messages.append({"role": "user", "content": results})
    results = [m["content"][0] for m in sent[-1]["messages"] if m["role"] == "user"][1:]
    texts = [one["content"][0]["text"] for one in results]
    assert texts[0] == "stdout:\n\nstderr:\n\nexit_code: 0"
    assert texts[1] == "stdout:\n5\nstderr:\n\nexit_code: 0"
    assert "ZeroDivisionError" in texts[2]
    assert [one["is_error"] for one in results] == [False, False, True]
    assert [one["tool_use_id"] for one in results] == ["toolu_1", "toolu_2", "toolu_3"]


def test_langchain_tool_in_an_agent(client: Client, created: list[str]) -> None:
    from podflare.langchain import PodflareTool

    class Model(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **options: Any) -> Any:
            return self

    def call(number: int, code: str) -> AIMessage:
        wanted: Any = {"name": "run_code", "args": {"code": code}, "id": str(number)}
        return AIMessage("", tool_calls=[wanted])

    tool = PodflareTool(host=HOST)
    script = [call(1, "z = 3"), call(2, "print(z)"), AIMessage("three")]
    agent: Any = create_agent(Model(messages=iter(script)), [tool])
    messages = agent.invoke({"messages": [("user", "Compute.")]})["messages"]
    outputs = [m.content for m in messages if isinstance(m, ToolMessage)]
    assert outputs[1] == "stdout:\n3\nstderr:\n\nexit_code: 0" and messages[-1].content == "three"
    (sandbox_id,) = created
    tool.close()
    assert is_gone(client, sandbox_id)


@pytest.mark.vm
def test_langchain_tool_with_a_sandbox_for_each_call(
    client: Client, created: list[str]
) -> None:
    from podflare.langchain import PodflareTool

    tool = PodflareTool(host=HOST, persistent_sandbox=False)
    tool.invoke({"code": "w = 1"})
    assert "NameError" in tool.invoke({"code": "print(w)"})
    assert len(created) == 2 and all(is_gone(client, one) for one in created)


def test_gemini_function_calls(box: Any) -> None:
    from podflare.gemini import podflare_function_declaration, run_function_call

    declared = gemini.Tool(function_declarations=[podflare_function_declaration()])
    (declaration,) = declared.function_declarations or []
    assert declaration.name == "run_code" and declaration.parameters
    assert set(declaration.parameters.properties or {}) == {"code", "language"}
    run_function_call(gemini.FunctionCall(name="run_code", args={"code": "v = 8"}), box)
    call = gemini.FunctionCall(name="run_code", args={"code": "print(v)", "language": "python"})
    answer = run_function_call(call, box)
    assert (answer["stdout"], answer["exit_code"]) == ("8", 0)
    part = gemini.Part.from_function_response(name="run_code", response=answer)
    assert part.function_response and part.function_response.response == answer
    failed = run_function_call(SimpleNamespace(name="run_code", args={"code": "1 / 0"}), box)
    assert failed["exit_code"] == 1 and "ZeroDivisionError" in failed["stderr"]
