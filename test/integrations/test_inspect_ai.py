# SPDX-License-Identifier: Apache-2.0
"""The sandbox of Inspect AI beyond its own checks: evals, forks, limits, clean-up."""

from __future__ import annotations

from pathlib import Path
from typing import AsyncIterator, Iterator

import pytest
from inspect_ai import Task, eval_async
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog
from inspect_ai.scorer import Score, Scorer, Target, accuracy, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import (
    OutputLimitExceededError,
    SandboxEnvironmentSpec,
    SandboxUnavailableError,
    sandbox,
)
from inspect_ai.util._sandbox.limits import override_max_exec_output_size

from conftest import HOST
from ramet import Client, FileInfo
from ramet.integrations.inspect_ai import RametSandboxConfig, RametSandboxEnvironment

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAMET_HOST", HOST)


@pytest.fixture(scope="module")
async def env(anyio_backend: str) -> AsyncIterator[RametSandboxEnvironment]:
    """A sandbox for the module, whose commands run as root."""
    config = RametSandboxConfig(fork=False, working_dir="/srv/work", env={"FROM": "config"})
    environments = await RametSandboxEnvironment.sample_init("test", config, {})
    yield environments["default"].as_type(RametSandboxEnvironment)
    await RametSandboxEnvironment.sample_cleanup("test", config, environments, False)


def of_evals(client: Client) -> set[str]:
    return {one.id for one in client.list_sandboxes(metadata={"created_by": "inspect_ai"})}


@pytest.fixture
def left(client: Client) -> Iterator[set[str]]:
    """The sandboxes of evals; fails the test if it leaves more of them than there were."""
    before = of_evals(client)
    yield before
    assert of_evals(client) == before


@solver
def forking(n: int) -> Solver:
    """Lets `n` forks of the sample's sandbox append to a file, and keeps the last."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        own = sandbox().as_type(RametSandboxEnvironment)
        branches = await own.fork(n)
        for i, branch in enumerate(branches):
            with branch.as_default():
                await sandbox().exec(["sh", "-c", f"echo branch {i} >>log"])
        await own.merge_into(branches[-1])
        return state

    return solve


@scorer(metrics=[accuracy()])
def log_file() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        return Score(value=1, answer=await sandbox().read_file("log"))

    return score


async def run_eval(task: Task, tmp_path: Path) -> EvalLog:
    (log,) = await eval_async(task, model="mockllm/model", log_dir=str(tmp_path))
    return log


@pytest.mark.vm
async def test_each_epoch_continues_from_one_preparation(left: set[str], tmp_path: Path) -> None:
    config = RametSandboxConfig(setup="echo prepared >>log", working_dir="/srv/eval")
    task = Task(
        dataset=[Sample(input="a", setup="echo sample >>log"), Sample(input="b")],
        solver=forking(2),
        scorer=log_file(),
        sandbox=SandboxEnvironmentSpec("ramet", config),
        epochs=2,
    )
    log = await run_eval(task, tmp_path)
    assert log.status == "success", log.error
    answers = {
        (sample.input, score.answer)
        for sample in log.samples or []
        for score in (sample.scores or {}).values()
    }
    assert len(log.samples or []) == 4
    assert answers == {
        ("a", "prepared\nsample\nbranch 1\n"),
        ("b", "prepared\nbranch 1\n"),
    }


async def test_failed_preparation_ends_the_eval_with_its_output(
    left: set[str], tmp_path: Path
) -> None:
    config = RametSandboxConfig(setup="echo no such thing >&2; exit 3")
    task = Task(dataset=[Sample(input="a")], sandbox=SandboxEnvironmentSpec("ramet", config))
    with pytest.raises(RuntimeError, match="exit code 3: no such thing"):
        await run_eval(task, tmp_path)


async def test_failing_solver_leaves_no_sandbox(left: set[str], tmp_path: Path) -> None:
    @solver
    def failing() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            await sandbox().as_type(RametSandboxEnvironment).fork(2)
            raise ValueError("out of ideas")

        return solve

    log = await run_eval(
        Task(dataset=[Sample(input="a")], solver=failing(), sandbox="ramet"), tmp_path
    )
    assert log.status == "error" and log.error and "out of ideas" in log.error.message


async def test_config_is_read_from_a_file_beside_the_task(tmp_path: Path) -> None:
    file = tmp_path / "ramet.yaml"
    file.write_text("ram_mib: 512\nuser: user\nenv: {A: b}\nfork: false\n")
    config = RametSandboxConfig.of(str(file))
    assert config == RametSandboxConfig(ram_mib=512, user="user", env={"A": "b"}, fork=False)
    assert RametSandboxEnvironment.config_deserialize(config.model_dump()) == config
    assert file.name in RametSandboxEnvironment.config_files()
    file.write_text("ram: 512\n")
    with pytest.raises(ValueError, match="ram\n.*not permitted"):
        RametSandboxConfig.of(str(file))


async def test_commands_run_in_the_working_dir_with_the_environment(
    env: RametSandboxEnvironment,
) -> None:
    result = await env.exec(["sh", "-c", "pwd; echo $FROM $MORE"], env={"MORE": "call"})
    assert result.stdout == "/srv/work\nconfig call\n"
    missing = await env.exec(["true"], cwd="nowhere")
    assert missing.returncode == 126 and "/srv/work/nowhere" in missing.stderr


async def test_existing_working_dir_keeps_its_owner() -> None:
    config = RametSandboxConfig(fork=False, user="nobody", working_dir="/srv")
    environments = await RametSandboxEnvironment.sample_init("test", config, {})
    try:
        own = environments["default"].as_type(RametSandboxEnvironment)
        assert own.working_dir == "/srv" and (await own.sandbox.files.stat("/srv")).uid == 0
    finally:
        await RametSandboxEnvironment.sample_cleanup("test", config, environments, False)


async def test_endless_output_is_cut_off_and_the_command_killed(
    env: RametSandboxEnvironment,
) -> None:
    with override_max_exec_output_size(1024), pytest.raises(OutputLimitExceededError) as caught:
        await env.exec(["sh", "-c", "echo $$ >/tmp/pid; exec yes"])
    assert caught.value.truncated_output == "y\n" * 512
    pid = await env.read_file("/tmp/pid")
    while (await env.exec(["kill", "-0", pid.strip()])).success:
        pass


async def test_file_that_grows_after_a_look_at_it_is_not_read(
    env: RametSandboxEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    await env.write_file("/tmp/ramet-small", "1234")
    small = await env.sandbox.files.stat("/tmp/ramet-small")
    await env.exec(["truncate", "-s", "1T", "/tmp/ramet-holes"])

    async def false(*_: object, **__: object) -> FileInfo:
        return small

    monkeypatch.setattr("ramet.AsyncFiles.stat", false)
    with pytest.raises(OutputLimitExceededError):
        await env.read_file("/tmp/ramet-holes")
    await env.exec(["rm", "/tmp/ramet-holes", "/tmp/ramet-small"])


async def test_connection_opens_a_shell(env: RametSandboxEnvironment) -> None:
    connection = await env.connection(user="user")
    assert connection.command.endswith(f"ramet shell --user user {env.sandbox.id}")
    assert HOST in connection.command and connection.container == env.sandbox.id


async def test_end_of_the_sandbox_is_reported_as_such(env: RametSandboxEnvironment) -> None:
    (child,) = await env.fork()
    await child.close()
    with pytest.raises(SandboxUnavailableError):
        await child.exec(["true"])
    with pytest.raises(ConnectionError):
        await child.connection()
