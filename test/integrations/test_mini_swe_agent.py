# SPDX-License-Identifier: Apache-2.0
"""The mini-swe-agent environment: its contract, agents with a scripted model, and forks."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Iterator

import pytest
from conftest import HOST
from minisweagent import Environment
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.exceptions import Submitted
from minisweagent.models.test_models import DeterministicModel, make_output
from pydantic import ValidationError

from ramet import Client, NotFound, Sandbox, search
from ramet.integrations.mini_swe_agent import RametEnvironment

NAME = "ramet.integrations.mini_swe_agent.RametEnvironment"
AGENT: dict[str, Any] = {
    "system_template": "You work in {{cwd}} on {{system}}.",
    "instance_template": "{{task}}",
}
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


@pytest.fixture(scope="module")
def env(shared: Sandbox) -> RametEnvironment:
    made = RametEnvironment(
        sandbox=shared, cwd="/tmp/mini swe", env={"A": "a", "HOME": "/tmp"}, forward_env=["B", "A"]
    )
    checked: Environment = made  # mypy: it has what mini-swe-agent asks for
    assert checked is made
    return made


def run(env: RametEnvironment, command: str, **options: Any) -> dict[str, Any]:
    return env.execute({"command": command}, **options)


def test_output_of_both_streams_is_in_order(env: RametEnvironment) -> None:
    answer = run(env, "echo one; echo two >&2; echo three; exit 7")
    assert answer == {"output": "one\ntwo\nthree\n", "returncode": 7, "exception_info": ""}


def test_folder_and_variables(env: RametEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", "not this one")
    monkeypatch.setenv("B", "b")
    assert run(env, 'echo "$PWD $A $B"')["output"] == "/tmp/mini swe a b\n"
    assert run(env, "pwd", cwd="/usr")["output"] == "/usr\n"
    run(env, "cd /usr; X=1")
    assert run(env, 'echo "$PWD $X"')["output"] == "/tmp/mini swe \n"  # a new process each time


def test_text_that_is_not_utf8_is_replaced(env: RametEnvironment) -> None:
    assert run(env, r"printf 'a\xffb'")["output"] == "a\ufffdb"


def test_endless_output_does_not_fill_the_memory(
    env: RametEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ramet.integrations.mini_swe_agent.MAX_OUTPUT_BYTES", 1000)
    output = run(env, "yes | head -n 100000")["output"]
    assert output.startswith("y\ny\n") and len(output) < 1100
    assert output.endswith("was discarded]\n")


def test_interpreter_can_be_chosen(shared: Sandbox) -> None:
    env = RametEnvironment(sandbox=shared, cwd="/tmp", interpreter=["python3", "-c"])
    assert run(env, "print(6 * 7)")["output"] == "42\n"


def test_time_limit_ends_the_command_and_its_children(env: RametEnvironment) -> None:
    answer = run(env, "echo begun; sleep 4321 & sleep 4321", timeout=2)
    assert (answer["output"], answer["returncode"]) == ("begun\n", -1)
    assert "longer than 2 s" in answer["exception_info"]
    assert answer["extra"]["exception_type"] == "TimeoutError"
    assert run(env, "pgrep -fx 'sleep 4321'")["returncode"] == 1


def test_folder_that_is_missing_is_an_answer(env: RametEnvironment) -> None:
    answer = run(env, "true", cwd="/nowhere")
    assert answer["returncode"] == -1 and "/nowhere" in answer["exception_info"]


def test_first_line_of_a_successful_command_submits(env: RametEnvironment) -> None:
    with pytest.raises(Submitted) as end:
        run(env, SUBMIT + "; echo the patch; echo of two lines")
    extra = end.value.messages[0]["extra"]
    assert extra == {"exit_status": "Submitted", "submission": "the patch\nof two lines\n"}
    assert run(env, SUBMIT + "; exit 1")["returncode"] == 1
    assert run(env, "echo first; " + SUBMIT)["returncode"] == 0


def test_settings_and_key(shared: Sandbox) -> None:
    env = RametEnvironment(sandbox=shared, cwd="/tmp", api_key="secret", timeout=7)
    variables, saved = env.get_template_vars(task="t"), env.serialize()
    assert (variables["cwd"], variables["timeout"], variables["task"]) == ("/tmp", 7, "t")
    assert variables["system"] == "Linux" and variables["machine"] == "x86_64"
    config = saved["info"]["config"]
    assert config["environment_type"] == NAME and config["environment"]["timeout"] == 7
    assert "secret" not in f"{variables} {saved}"
    with pytest.raises(ValidationError, match="imag"):
        RametEnvironment(sandbox=shared, imag="x")


def test_agent_of_a_configuration_file_works_in_a_sandbox(client: Client, tmp_path: Path) -> None:
    env = get_environment({"environment_class": NAME, "host": HOST, "cwd": "/tmp/work"})
    assert isinstance(env, RametEnvironment)
    with env:
        script = [
            make_output("look", [{"command": "echo fix > file; cat file"}]),
            make_output("submit", [{"command": SUBMIT + "; cat file"}]),
        ]
        trajectory = tmp_path / "trajectory.json"
        model = DeterministicModel(outputs=script)
        agent = DefaultAgent(model, env, **AGENT, output_path=trajectory)
        assert agent.run("Repair it.") == {"exit_status": "Submitted", "submission": "fix\n"}
        assert "You work in /tmp/work on Linux." in str(agent.messages[0])
        assert NAME in trajectory.read_text()
    with pytest.raises(NotFound):
        client.get_sandbox(env.sandbox.id)


def test_sandbox_of_an_id_is_not_closed(shared: Sandbox) -> None:
    with RametEnvironment(sandbox_id=shared.id, host=HOST, cwd="/tmp") as env:
        assert run(env, "echo in")["output"] == "in\n"
    assert shared.info().state == "ready"


@pytest.fixture
def own() -> Iterator[RametEnvironment]:
    with RametEnvironment(host=HOST, cwd="/tmp/forked") as made:
        yield made


@pytest.mark.smoke
@pytest.mark.vm
def test_agents_continue_in_forks(own: RametEnvironment, client: Client) -> None:
    first = make_output("prepare", [{"command": "echo 1 > count"}])
    agent = DefaultAgent(DeterministicModel(outputs=[first]), own, **AGENT)
    agent.messages = [{"role": "user", "content": "Count."}]
    agent.step()
    for number, env in enumerate(own.fork(2)):
        with env:
            command = f"echo {number} >> count; cat count"
            model = DeterministicModel(outputs=[make_output("go on", [{"command": command}])])
            twin = DefaultAgent(model, env, **AGENT)
            twin.messages = list(agent.messages)
            twin.step()
            assert twin.messages[-1]["extra"]["raw_output"] == f"1\n{number}\n"
    assert run(own, "cat count")["output"] == "1\n"
    assert not client.list_children(own.sandbox.id)


@pytest.mark.vm
def test_search_over_environments(own: RametEnvironment, client: Client) -> None:
    run(own, "echo 1 > count")

    def append(env: RametEnvironment, n: int) -> dict[str, Any]:
        return run(env, f"echo {n} >> count; cat count")

    found = search.best_of(
        own,
        [partial(append, n=n) for n in (5, 9, 7)],
        lambda env, answer: int(answer["output"].split()[1]),
    )
    assert found.path == (1,) and run(own, "cat count")["output"] == "1\n9\n"
    assert not client.list_children(own.sandbox.id)
