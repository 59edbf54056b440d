# SPDX-License-Identifier: Apache-2.0
"""Harbor: an environment whose trials run in sandboxes, or in forks of a prepared one.

    harbor run --env ramet.integrations.harbor:RametEnvironment --ek template=my-task ...

Harbor needs Python 3.12.
"""

from __future__ import annotations

import asyncio
import copy
import math
from contextlib import suppress
from pathlib import Path
from typing import Any, Sequence

from ramet import AsyncClient, AsyncProcess, AsyncSandbox, Client, RametError
from ramet._cleanup import finish
from ramet._output import Output
from ramet._text import plain
from ramet.integrations._results import listed

try:
    from harbor.environments.base import BaseEnvironment, ExecResult
    from harbor.environments.capabilities import (
        EnvironmentCapabilities,
        EnvironmentResourceCapabilities,
    )
    from harbor.environments.definition import require_agent_environment_definition
    from harbor.environments.options import EnvironmentOptions
    from harbor.models.trial.config import ResourceMode
    from harbor.models.trial.paths import TrialPaths
    from pydantic import Field
except ImportError as missing:
    raise ImportError(
        "ramet.integrations.harbor needs the package harbor, and Python 3.12: "
        "pip install './sdk/python[harbor]' in a checkout of Ramet"
    ) from missing

_KILL_TIMEOUT_S = 10
_OUTPUT_MAX = 64 << 20  # bytes of each stream of a command that are read into memory
_DOWNLOAD_MAX = 8 << 30  # bytes of a file or folder that is copied to this machine


class RametOptions(EnvironmentOptions):
    """Options of the environment, as given with `--ek NAME=VALUE`."""

    template: str | None = Field(
        default=None,
        description="Template of the sandboxes, made from the task's image. A task with an image "
        "or a Dockerfile needs it, unless fork_of is set.",
    )
    fork_of: str | None = Field(
        default=None,
        description="Id of a running sandbox in which the task is prepared, or of a checkpoint of "
        "one. Each trial runs in a fork of it, with its processes, files, size and network.",
    )
    host: str | None = Field(
        default=None, description="URL of the service. Default: RAMET_HOST, or this machine."
    )
    region: str | None = Field(default=None, description="Region of the service.")
    sandbox_timeout_sec: int | None = Field(
        default=None, ge=1, description="Lifetime of a sandbox. Default: that of the service."
    )


class RametEnvironment(BaseEnvironment):
    """Runs a trial in a sandbox of its own.

    The service builds no images: make a template from the task's image once, and name it with the
    option `template`. Commands are run by bash. The API key is read from RAMET_API_KEY.

    `stop(delete=False)` freezes the sandbox into a Space, whose id is logged.
    """

    options_model = RametOptions
    options: RametOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sandbox: AsyncSandbox | None = None

    @classmethod
    def preflight(cls, kwargs: dict[str, Any] | None = None) -> None:
        """Checks the options, and that the service answers and accepts the key.

        Raises:
            ValueError: An option is wrong.
            SystemExit: The service cannot be used; the message says why.
        """
        super().preflight(kwargs)
        options = RametOptions.model_validate(kwargs or {})
        try:
            with Client(options.host, region=options.region) as client:
                client.templates()
        except RametError as error:
            raise SystemExit(
                f"Ramet cannot be used: {error}. Set RAMET_HOST and RAMET_API_KEY, or the option"
                " host."
            ) from error

    @staticmethod
    def type() -> str:
        """Returns the name of this kind of environment."""
        return "ramet"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """The network can be turned off. Lists of allowed hosts and GPUs are not supported."""
        return EnvironmentCapabilities(disable_internet=True)

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        """CPUs and memory are limits: a VM has that many."""
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True)

    def _validate_definition(self) -> None:
        require_agent_environment_definition(
            self.environment_dir, docker_image=self.task_env_config.docker_image
        )
        if self.options.template is None and self.options.fork_of is None:
            image = self.task_env_config.docker_image or self.environment_dir / "Dockerfile"
            raise ValueError(
                f"Ramet builds no images, and the task needs {image}: make a template from it (see"
                " docs/templates.md) and pass --ek template=NAME, or prepare a sandbox and pass"
                " --ek fork_of=ID"
            )

    @property
    def sandbox(self) -> AsyncSandbox:
        """The sandbox of the trial.

        Raises:
            RuntimeError: The environment is not started.
        """
        if self._sandbox is None:
            raise RuntimeError("the environment is not started: call start() first")
        return self._sandbox

    async def start(self, force_build: bool) -> None:
        """Creates the sandbox, or forks it, with the folders and files of the task.

        Args:
            force_build: Has no effect.

        Raises:
            RametError: The service refused; nothing is left behind.
        """
        if self._sandbox is not None:
            return
        try:
            # Not cancelled, since a sandbox that was just created would be lost.
            await finish(self._create())
            if workdir := self.task_env_config.workdir:
                await self.sandbox.files.mkdir(workdir, parents=True)
            await self.ensure_dirs(self._mount_targets(writable_only=True))
            await self._upload_environment_dir_after_start()
        except BaseException:
            await finish(self._end(delete=True))
            raise

    async def _create(self) -> None:
        options = self.options
        prepared = options.fork_of
        if prepared is not None and not prepared.startswith("chk_"):
            self._sandbox = await self._fork_of(prepared)
            if options.sandbox_timeout_sec is not None:
                await self._sandbox.update(timeout_seconds=options.sandbox_timeout_sec)
            return
        self._sandbox = await AsyncSandbox.create(
            host=options.host,
            region=options.region,
            **(self._new_machine() if prepared is None else {"checkpoint": prepared}),
            timeout_seconds=options.sandbox_timeout_sec,
            egress=False if self._network_disabled else None,
            metadata={"harbor": self.session_id},
        )

    def _new_machine(self) -> dict[str, Any]:
        cpus = self._resource_limit_value("cpu", auto_mode=ResourceMode.LIMIT)
        return {
            "template": self.options.template,
            "vcpus": None if cpus is None else math.ceil(cpus),
            "ram_mib": self._resource_limit_value("memory", auto_mode=ResourceMode.LIMIT),
            "rootfs_gb": _gib(self._effective_storage_mb),
        }

    async def _fork_of(self, prepared_id: str) -> AsyncSandbox:
        host, region = self.options.host, self.options.region
        async with AsyncClient(host, region=region) as client:
            prepared = await AsyncSandbox.connect(prepared_id, client=client)
            (child,) = await prepared.fork(1, reseed=True)
            try:
                return await AsyncSandbox.connect(child.id, host=host, region=region)
            except BaseException:
                await child.close()
                raise

    async def stop(self, delete: bool) -> None:
        """Ends the sandbox. A second call does nothing.

        Args:
            delete: False: freeze it into a Space, and log how to resume it.
        """
        await finish(self._end(delete))

    async def _end(self, delete: bool) -> None:
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is None:
            return
        try:
            if not delete:
                space = await sandbox.freeze()
                self.logger.info(f"the sandbox is kept as {space.id}; Sandbox.resume continues it")
        except RametError as error:
            self.logger.error(f"sandbox {sandbox.id} is not frozen, but deleted: {plain(str(error))}")
        finally:
            await sandbox.close()

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Runs a command with bash; output is passed to Harbor's callbacks as it arrives.

        Args:
            command: The command.
            cwd: Folder to run it in. None: the task's working directory.
            env: Environment variables in addition to those of the trial.
            timeout_sec: Time limit in seconds. None: no limit.
            user: Name or uid. None: the trial's user, or root.

        Raises:
            RuntimeError: The time limit was reached.
            RametError: The command cannot be started. If the caller is cancelled, the command is
                killed.
        """
        started: list[AsyncProcess] = []

        async def start() -> None:
            started.append(
                await self.sandbox.processes.start(
                    ["/bin/bash", "-c", command],
                    cwd=cwd or self.task_env_config.workdir,
                    env=self._merge_env(env),
                    user=self._resolve_user(user),
                    timeout_seconds=timeout_sec,
                )
            )

        try:
            await finish(start())
            return await self._finish(started[0], timeout_sec)
        except BaseException:
            for process in started:
                await finish(_kill(process))
            raise

    async def _finish(self, process: AsyncProcess, timeout_sec: int | None) -> ExecResult:
        emit = self._output_callback()
        output = {"stdout": Output(_OUTPUT_MAX), "stderr": Output(_OUTPUT_MAX)}
        timed_out = False
        async for event in process:
            if event.type == "exit":
                timed_out = event.timed_out
                continue
            output[event.type].add(event.raw)
            if emit is not None:
                await emit(event.data, "stdout" if event.type == "stdout" else "stderr")
        if timed_out:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds")
        if any(one.truncated for one in output.values()):
            self.logger.warning(f"output beyond {_OUTPUT_MAX >> 20} MiB was discarded")
        return ExecResult(
            stdout=output["stdout"].kept.decode(errors="replace"),
            stderr=output["stderr"].kept.decode(errors="replace"),
            return_code=process.exit_code or 0,
        )

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copies a local file into the sandbox; missing folders are created."""
        mode = Path(source_path).stat().st_mode & 0o777
        await self.sandbox.files.upload_file(source_path, target_path, mode=mode)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copies what is in a local folder into a folder of the sandbox."""
        await self.sandbox.files.upload_folder(source_dir, target_dir)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copies a file of the sandbox, up to 8 GiB, to a local one; missing folders are created."""
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        await self.sandbox.files.download_to(source_path, target_path, max_bytes=_DOWNLOAD_MAX)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copies what is in a folder of the sandbox, up to 8 GiB, to a local folder.

        Devices, and links that lead out of the folder, are left out and logged.
        """
        left_out = await self.sandbox.files.download_folder(
            source_dir, target_dir, max_bytes=_DOWNLOAD_MAX
        )
        if left_out:
            self.logger.warning(f"not downloaded from {plain(source_dir)}: {listed(left_out)}")

    async def fork(
        self, n: int = 1, *, reseed: bool = True, trial_paths: Sequence[TrialPaths] | None = None
    ) -> list["RametEnvironment"]:
        """Returns started environments in `n` forks of this one's sandbox.

        For groups of trials of one task: prepare the task and install the agent once, then fork.

        Args:
            n: Number of forks.
            reseed: As for `Sandbox.fork`.
            trial_paths: Local folders of each fork. None: those of this environment.

        Returns:
            The environments, whose `session_id` ends with their number. The caller must `stop`
            each.

        Raises:
            ValueError: `trial_paths` has not `n` elements.
            As `Sandbox.fork`.
        """
        paths = [self.trial_paths] * n if trial_paths is None else list(trial_paths)
        if len(paths) != n:
            raise ValueError(f"trial_paths must have {n} elements, not {len(paths)}")
        children = await finish(self.sandbox.fork(n, reseed=reseed))
        return [self._of_child(i, child, paths[i]) for i, child in enumerate(children)]

    def _of_child(self, number: int, child: AsyncSandbox, paths: TrialPaths) -> "RametEnvironment":
        twin = copy.copy(self)
        twin.session_id = f"{self.session_id}-{number}"
        twin.trial_paths = paths
        twin._sandbox = child
        return twin


async def _kill(process: AsyncProcess) -> None:
    with suppress(RametError, asyncio.TimeoutError):  # it has ended, or its sandbox has
        await asyncio.wait_for(process.kill(), _KILL_TIMEOUT_S)


def _gib(mib: int | None) -> int | None:
    return None if mib is None else math.ceil(mib / 1024)
