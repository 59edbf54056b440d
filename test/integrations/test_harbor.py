# SPDX-License-Identifier: Apache-2.0
"""The Harbor environment: its contract, forks, and whole trials run by Harbor's own program.

Harbor needs Python 3.12, which Debian 12 does not have: elsewhere, install `harbor` beside the
packages of requirements.txt and run this file.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any, Awaitable, Callable

import pytest

pytest.importorskip("harbor", reason="harbor needs Python 3.12")

from conftest import HOST
from harbor.environments.base import OutputStream
from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
from harbor.models.trial.paths import TrialPaths

import ramet
from ramet import Client, Sandbox
from ramet.integrations.harbor import RametEnvironment

ENVIRONMENT = "ramet.integrations.harbor:RametEnvironment"


@pytest.fixture(scope="module")
def template(client: Client) -> str:
    return client.templates()[0].name


@pytest.fixture
def new(tmp_path: Path, template: str) -> Callable[..., RametEnvironment]:
    """Returns environments that are not started."""

    def make(config: dict[str, Any] | None = None, **options: Any) -> RametEnvironment:
        folder = tmp_path / "environment"
        folder.mkdir(exist_ok=True)
        (folder / "Dockerfile").write_text("FROM debian:13\n")
        if not {"template", "fork_of"} & set(options):
            options["template"] = template
        paths = TrialPaths(trial_dir=tmp_path / "trial")
        paths.mkdir()
        environment = EnvironmentConfig(**(config or {}))
        return RametEnvironment(
            folder, "task", f"task__{uuid.uuid4()}", paths, environment, host=HOST, **options
        )

    return make


def in_environment(
    environment: RametEnvironment, work: Callable[[RametEnvironment], Awaitable[None]]
) -> str:
    """Runs work in a started environment and ends it; returns the id of its sandbox."""

    async def main() -> str:
        await environment.start(force_build=False)
        try:
            await work(environment)
            return environment.sandbox.id
        finally:
            await environment.stop(delete=True)

    return asyncio.run(main())


def test_commands_files_and_folders(
    new: Callable[..., RametEnvironment], tmp_path: Path, client: Client
) -> None:
    async def work(environment: RametEnvironment) -> None:
        answer = await environment.exec("echo out; echo err >&2; exit 3")
        assert (answer.stdout, answer.stderr, answer.return_code) == ("out\n", "err\n", 3)
        answer = await environment.exec('echo "$PWD $A $B"', env={"B": "b"})
        assert answer.stdout == "/work a b\n"
        assert (await environment.exec("pwd", cwd="/usr")).stdout == "/usr\n"
        assert (await environment.exec("id -un", user="nobody")).stdout == "nobody\n"
        with environment.with_default_user("nobody"):
            assert (await environment.exec("id -un")).stdout == "nobody\n"
            assert (await environment.exec("id -u", user=0)).stdout == "0\n"

        source = tmp_path / "up"
        (source / "deep").mkdir(parents=True)
        (source / "deep/script").write_text("#!/bin/sh\necho run\n")
        (source / "deep/script").chmod(0o755)
        await environment.upload_dir(source, "/work/up")
        assert (await environment.exec("./up/deep/script")).stdout == "run\n"
        await environment.upload_file(source / "deep/script", "/work/new/one")
        assert (await environment.exec("./new/one")).stdout == "run\n"
        assert await environment.is_dir("/work/up") and await environment.is_file("/work/new/one")
        await environment.exec("mkfifo up/fifo; echo '*.log' >up/x.log")
        await environment.download_dir("/work/up", tmp_path / "down")
        await environment.download_file("/work/new/one", tmp_path / "into/one")
        assert (tmp_path / "down/deep/script").stat().st_mode & 0o777 == 0o755
        assert (tmp_path / "into/one").read_text() == "#!/bin/sh\necho run\n"
        assert not (tmp_path / "down/fifo").exists()
        await environment.download_dir_with_exclusions(
            source_dir="/work/up", target_dir=tmp_path / "some", exclude=["*.log"]
        )
        assert sorted(p.name for p in (tmp_path / "some").iterdir()) == ["deep"]

    environment = new({"workdir": "/work", "env": {"A": "a"}})
    gone = in_environment(environment, work)
    with pytest.raises(ramet.NotFound):
        client.get_sandbox(gone)
    with pytest.raises(RuntimeError, match="call start"):
        environment.sandbox


def test_output_arrives_while_the_command_runs(new: Callable[..., RametEnvironment]) -> None:
    async def work(environment: RametEnvironment) -> None:
        seen: list[tuple[str, str]] = []

        async def on_output(text: str, stream: OutputStream) -> None:
            seen.append((text, stream))
            if text == "first\n":  # the command waits for this file
                await environment.sandbox.files.write("/tmp/go", b"")

        with environment.scoped_output_callback(on_output):
            answer = await environment.exec(
                "echo first; until [ -e /tmp/go ]; do sleep 0.1; done; echo last >&2"
            )
        assert seen == [("first\n", "stdout"), ("last\n", "stderr")] and answer.return_code == 0

    in_environment(new(), work)


def test_time_limit_and_cancellation_end_the_command(
    new: Callable[..., RametEnvironment],
) -> None:
    async def work(environment: RametEnvironment) -> None:
        with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
            await environment.exec("sleep 4321", timeout_sec=1)
        task = asyncio.ensure_future(environment.exec("echo >/tmp/began; sleep 4321"))
        while (await environment.exec("test -e /tmp/began")).return_code:
            await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await environment.exec("pgrep -fx 'sleep 4321'")).return_code == 1

    in_environment(new(), work)


@pytest.mark.vm
def test_size_and_network_are_those_of_the_task(new: Callable[..., RametEnvironment]) -> None:
    async def work(environment: RametEnvironment) -> None:
        info = await environment.sandbox.info()
        assert (info.vcpus, info.ram_mib, info.raw["egress"]) == (1, 1024, False)
        assert info.raw["metadata"] == {"harbor": environment.session_id}

    policy = NetworkPolicy(network_mode=NetworkMode.NO_NETWORK)
    in_environment(new({"cpus": 1, "memory_mb": 1024}, network_policy=policy), work)


def test_what_is_not_supported_is_refused(new: Callable[..., RametEnvironment]) -> None:
    with pytest.raises(ValueError, match="--ek template=NAME"):
        new(template=None)
    with pytest.raises(RuntimeError, match="GPU"):
        new({"gpus": 1})
    with pytest.raises(ValueError, match="allowlist"):
        new(
            network_policy=NetworkPolicy(
                network_mode=NetworkMode.ALLOWLIST, allowed_hosts=["example.com"]
            )
        )
    with pytest.raises(ValueError, match="Unknown option 'imag'"):
        new(imag="x")


def test_preflight_names_what_is_wrong() -> None:
    RametEnvironment.preflight({"host": HOST})
    with pytest.raises(SystemExit, match="Set RAMET_HOST"):
        RametEnvironment.preflight({"host": "http://127.0.0.1:1"})


def test_failed_start_leaves_nothing(
    new: Callable[..., RametEnvironment], client: Client
) -> None:
    environment = new({"workdir": "/proc/version/x"})
    with pytest.raises(ramet.RametError):
        asyncio.run(environment.start(force_build=False))
    assert not client.list_sandboxes(metadata={"harbor": environment.session_id})


@pytest.mark.vm
def test_environment_that_is_not_deleted_becomes_a_space(
    new: Callable[..., RametEnvironment], client: Client
) -> None:
    async def main() -> None:
        environment = new()
        await environment.start(force_build=False)
        await environment.exec("echo kept >/root/kept")
        await environment.stop(delete=False)

    before = {space.id for space in client.list_spaces()}
    asyncio.run(main())
    (space,) = [space.id for space in client.list_spaces() if space.id not in before]
    with Sandbox.resume(space, client=client) as sandbox:
        assert sandbox.download("/root/kept") == b"kept\n"


@pytest.mark.vm
def test_forks_of_an_environment_are_separate(new: Callable[..., RametEnvironment]) -> None:
    async def work(environment: RametEnvironment) -> None:
        await environment.exec("echo 1 >/root/n; nohup sleep 5432 >/dev/null 2>&1 &")
        twins = await environment.fork(2)
        await environment.exec("echo changed >/root/n")
        for number, twin in enumerate(twins):
            try:
                assert twin.session_id == f"{environment.session_id}-{number}"
                answer = await twin.exec(f"echo {number} >>/root/n; cat /root/n; pgrep -x sleep")
                assert answer.stdout and answer.stdout.startswith(f"1\n{number}\n")
                assert answer.return_code == 0
            finally:
                await twin.stop(delete=True)
        assert (await environment.exec("cat /root/n")).stdout == "changed\n"

    in_environment(new(), work)


# --- whole trials ---

TASK = """
version = "1.0"
[agent]
timeout_sec = 300
[verifier]
timeout_sec = 300
[environment]
workdir = "/srv/task"
cpus = 1
memory_mb = 1024
"""
SOLVE = "#!/bin/bash\necho solved >answer\n"
TEST = """#!/bin/bash
if grep -q solved /srv/task/answer && ! [ -e /srv/task/no ]; then echo 1; else echo 0; fi \
>/logs/verifier/reward.txt
"""


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """A task of Harbor, whose solution is known."""
    folder = tmp_path / "write-answer"
    for name, text in {
        "task.toml": TASK,
        "instruction.md": "Write the word solved to the file answer.",
        "environment/Dockerfile": "FROM debian:13\nWORKDIR /srv/task\n",
        "solution/solve.sh": SOLVE,
        "tests/test.sh": TEST,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def rewards(task: Path, *options: str) -> list[float]:
    """Runs trials of a task with Harbor's program and its oracle agent; returns their rewards."""
    jobs = task.parent / "jobs"
    command = [str(Path(sys.executable).with_name("harbor")), "run", "--path", str(task)]
    command += ["--agent", "oracle", "--env", ENVIRONMENT, "--jobs-dir", str(jobs), *options]
    source = str(Path(ramet.__file__).parents[1])
    done = subprocess.run(
        command,
        env={**os.environ, "RAMET_HOST": HOST, "PYTHONPATH": source, "HARBOR_TELEMETRY": "off"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = [json.loads(file.read_text()) for file in jobs.glob("*/*/result.json")]
    assert all(one["exception_info"] is None for one in results), results
    return [one["verifier_result"]["rewards"]["reward"] for one in results]


@pytest.mark.vm
def test_trials_of_a_template(task: Path, template: str, client: Client) -> None:
    assert rewards(task, "--ek", f"template={template}", "--n-attempts", "2") == [1.0, 1.0]
    left = [one.raw["metadata"].get("harbor", "") for one in client.list_sandboxes()]
    assert not [session for session in left if session.startswith("write-answer")]


@pytest.mark.vm
def test_trials_in_forks_of_a_prepared_sandbox(task: Path, client: Client) -> None:
    with Sandbox(client=client) as prepared:
        prepared.files.write("/srv/task/no", b"")  # so that the solution fails in a fork
        options = ["--ek", f"fork_of={prepared.id}", "--n-attempts", "2"]
        assert rewards(task, *options) == [0.0, 0.0]
        assert [file.name for file in prepared.files.list("/srv/task")] == ["no"]
        assert not client.list_children(prepared.id)


def test_a_checkpoint_is_forked_also_without_its_sandbox(
    new: Callable[..., RametEnvironment], client: Client
) -> None:
    with Sandbox(client=client) as prepared:
        point = prepared.checkpoint()

    async def work(environment: RametEnvironment) -> None:
        info = await environment.sandbox.info()
        assert info.metadata == {"harbor": environment.session_id}
        assert (await environment.exec("echo out")).stdout == "out\n"

    try:
        in_environment(new(fork_of=point.id), work)
    finally:
        point.delete()
