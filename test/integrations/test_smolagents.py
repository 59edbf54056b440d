# SPDX-License-Identifier: Apache-2.0
"""The smolagents executor: state, final answers, variables and tools, and forks of agents."""

from __future__ import annotations

import base64
import datetime
from functools import partial
from typing import Any, Iterator

import pytest
from conftest import HOST
from smolagents import ActionStep, ChatMessage, CodeAgent, MessageRole, Model, Tool, tool
from smolagents.local_python_executor import CodeOutput
from smolagents.utils import AgentExecutionError

from ramet import Client, NotFound, Sandbox, search
from ramet.integrations.smolagents import RametExecutor, fork_agent

PNG = (
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x04\0\0\0\xb5\x1c\x0c\x02\0\0\0\x0bID"
    b"ATx\xdacd`\0\0\0\x06\0\x020\x81\xd0/\0\0\0\0IEND\xaeB`\x82"
)


class Script(Model):  # type: ignore[misc]
    """A model that answers with the given code."""

    def __init__(self, *code: str) -> None:
        super().__init__(model_id="script")
        self.code = list(code)
        self.seen: list[str] = []

    def generate(self, messages: Any, **options: Any) -> ChatMessage:
        self.seen.append(str(messages))
        text = f"Thought: so.\n<code>\n{self.code.pop(0)}\n</code>"
        return ChatMessage(role=MessageRole.ASSISTANT, content=text)


@tool
def double(number: int) -> int:
    """Doubles a number.

    Args:
        number: The number.
    """
    return number * 2


def agent_of(model: Model, executor: RametExecutor, tools: list[Tool] | None = None) -> CodeAgent:
    return CodeAgent(tools=tools or [], model=model, executor=executor, verbosity_level=0)


@pytest.fixture(scope="module")
def executor(shared: Sandbox) -> RametExecutor:
    return RametExecutor(shared)


def test_variables_stay_and_the_last_value_is_the_output(executor: RametExecutor) -> None:
    assert executor("x = 41\nprint('log')") == CodeOutput(None, "log\n", False)
    assert executor("x + 1").output == "42"
    assert executor("[x, {'k': None}]").output == [41, {"k": None}]


def test_picture_is_an_image(executor: RametExecutor) -> None:
    shown = executor(f"class P:\n    def _repr_png_(self): return {PNG!r}\nP()").output
    assert shown.size == (1, 1) and shown.format == "PNG"


def test_bytes_that_are_no_picture_are_not_opened(executor: RametExecutor) -> None:
    code = """
class P:
    def __repr__(self): return 'a P'
    def _repr_png_(self): return %r
P()"""
    assert executor(code % b"%!PS-Adobe-3.0 EPSF-3.0\n").output == "a P"
    assert executor(code % PNG[:20]).output == "a P"


@pytest.mark.parametrize("raw", [b"%!PS-Adobe-3.0 EPSF-3.0\n", PNG[:20], b""])
def test_final_answer_with_a_picture_of_another_kind_is_refused(
    executor: RametExecutor, raw: bytes
) -> None:
    answer = {"__type__": "PIL.Image", "data": base64.b64encode(raw).decode()}
    with pytest.raises(AgentExecutionError, match="damaged: not a picture"):
        executor(forged(answer))
    with pytest.raises(AgentExecutionError, match="damaged"):
        executor(forged({"__type__": "tuple", "data": [answer]}))


def test_final_answer_may_have_pictures(executor: RametExecutor) -> None:
    answer = {"__type__": "PIL.Image", "data": base64.b64encode(PNG).decode()}
    shown = executor(forged({"a": [answer], "b": {"__type__": "set", "data": [1]}})).output
    assert shown["a"][0].size == (1, 1) and shown["b"] == {1}


def forged(answer: object) -> str:
    """Returns code that ends like the tool final_answer, with an answer of its own."""
    return f"""
import json
open("/tmp/.ramet-final-answer", "w").write("safe:" + json.dumps({answer!r}))
class {RametExecutor.FINAL_ANSWER_EXCEPTION}(Exception): pass
raise {RametExecutor.FINAL_ANSWER_EXCEPTION}("")
"""


def test_exceptions_are_one_class_with_output_and_traceback(executor: RametExecutor) -> None:
    with pytest.raises(AgentExecutionError, match="(?s)before.*Traceback.*ZeroDivisionError"):
        executor("print('before')\n1 / 0")
    with pytest.raises(AgentExecutionError, match="exit code 3"):
        executor("import os; os._exit(3)")
    assert executor("1").output == "1"


def test_time_limit_is_an_exception(shared: Sandbox) -> None:
    limited = RametExecutor(shared, timeout_seconds=1)
    with pytest.raises(AgentExecutionError, match="longer than 1 s"):
        limited("while True: pass")


def test_final_answer_of_any_size_and_type_ends_the_run(executor: RametExecutor) -> None:
    agent = agent_of(Script("answer = 6 * 7", "final_answer(answer)"), executor)
    assert agent.run("Compute.") == 42
    agent = agent_of(Script("final_answer('é' * 300_000)"), executor)
    assert agent.run("Compute.") == "é" * 300_000
    code = "import datetime\nfinal_answer({'day': datetime.date(2026, 1, 2), 't': (1, b'x')})"
    agent = agent_of(Script(code), executor)
    assert agent.run("Compute.") == {"day": datetime.date(2026, 1, 2), "t": (1, b"x")}


def test_answer_that_is_no_json_is_refused_unless_pickled(shared: Sandbox) -> None:
    code = "import collections\nfinal_answer(collections.OrderedDict)"
    with pytest.raises(AgentExecutionError, match="Cannot safely serialize"):
        executor = RametExecutor(shared)
        agent = agent_of(Script(), executor)
        executor.send_tools(agent.tools)
        executor(code)
    assert executor("'still there'").output == "'still there'"


def test_an_agent_can_run_twice(executor: RametExecutor) -> None:
    agent = agent_of(Script("y = 1\nfinal_answer(y)", "final_answer(y + 1)"), executor)
    assert agent.run("One.") == 1
    assert agent.run("Two.", reset=False) == 2


def test_tools_and_variables_are_sent(executor: RametExecutor) -> None:
    model = Script("final_answer(double(given['n']) + len(label))")
    agent = agent_of(model, executor, [double])
    assert agent.run("Go.", additional_args={"given": {"n": 4}, "label": "ab"}) == 10


def test_error_of_code_is_shown_to_the_model(executor: RametExecutor) -> None:
    model = Script("undefined_name", "final_answer('mended')")
    agent = agent_of(model, executor)
    assert agent.run("Try.") == "mended"
    assert "NameError" in model.seen[1]
    assert [bool(step.error) for step in agent.memory.steps if isinstance(step, ActionStep)] == [
        True,
        False,
    ]


def test_package_that_cannot_be_installed_is_named(executor: RametExecutor) -> None:
    with pytest.raises(AgentExecutionError, match="cannot install no such-package"):
        executor.install_packages(["no such-package"])


def test_sandbox_is_closed_by_the_agent(client: Client) -> None:
    executor = RametExecutor(host=HOST)
    with agent_of(Script("final_answer(1)"), executor) as agent:
        agent.run("Go.")
    with pytest.raises(NotFound):
        client.get_sandbox(executor.sandbox.id)


def test_wrong_arguments_are_refused(shared: Sandbox) -> None:
    with pytest.raises(ValueError, match="template"):
        RametExecutor(shared, template="x")
    local = CodeAgent(tools=[], model=Script(), verbosity_level=0)
    with pytest.raises(TypeError, match="LocalPythonExecutor"):
        fork_agent(local)


@pytest.fixture
def own() -> Iterator[RametExecutor]:
    executor = RametExecutor(host=HOST)
    yield executor
    executor.cleanup()


@pytest.mark.vm
def test_forked_agents_continue_with_memory_and_variables(
    own: RametExecutor, client: Client
) -> None:
    steps: list[Any] = []
    model = Script("n = 10\nfinal_answer(n)")
    agent = CodeAgent(
        tools=[], model=model, executor=own, verbosity_level=0, step_callbacks=[steps.append]
    )
    agent.run("Start.")
    before, counted = len(agent.memory.steps), len(steps)
    for number, twin in enumerate(fork_agent(agent, 2)):
        with twin:
            model.code.append(f"n += {number}\nfinal_answer(n)")
            assert twin.run("Go on.", reset=False) == 10 + number
            assert "Start." in model.seen[-1] and len(twin.memory.steps) > before
    assert len(agent.memory.steps) == before and len(steps) == counted + 2 * counted
    assert own("n").output == "10" and not client.list_children(own.sandbox.id)


@pytest.mark.vm
def test_search_continues_as_the_best_agent(own: RametExecutor) -> None:
    own("n = 10")

    def attempt(child: Sandbox, add: int) -> int:
        model = Script(f"n += {add}\nfinal_answer(n)")
        return int(agent_of(model, RametExecutor(child)).run("Add."))

    found = search.best_of(
        own.sandbox,
        [partial(attempt, add=add) for add in (1, 5, 3)],
        lambda child, value: value,
    )
    assert found.value == 15 and own("n").output == "15"
