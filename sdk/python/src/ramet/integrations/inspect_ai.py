# SPDX-License-Identifier: Apache-2.0
"""Inspect AI: `sandbox="ramet"` in a task, or `--sandbox ramet`.

An eval prepares one sandbox, and each sample of each epoch gets a fork of it, with the files, the
processes and the memory of the prepared one. A solver forks its sample's sandbox once more with
`sandbox().as_type(RametSandboxEnvironment).fork(n)`.
"""

from __future__ import annotations

import errno
import os
import posixpath
import shlex
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Iterator, Literal, overload

try:
    import anyio
    import yaml
    from inspect_ai.util import (
        ExecResult,
        OutputLimitExceededError,
        SandboxConnection,
        SandboxEnvironment,
        SandboxEnvironmentLimits,
        SandboxUnavailableError,
        sandboxenv,
    )
    from pydantic import AliasChoices, BaseModel, ConfigDict, Field, PositiveInt
except ImportError as missing:
    raise ImportError(
        "ramet.integrations.inspect_ai needs the package inspect-ai: "
        "pip install './sdk/python[inspect]' in a checkout of Ramet"
    ) from missing

from ramet import AsyncClient, AsyncSandbox, BadRequest, NotFound, RametError, VmDied
from ramet.integrations import _commands
from ramet.integrations._files import UserFiles, enter_folder

# Marks the sandboxes of evals, for `inspect sandbox cleanup ramet`.
_METADATA = {"created_by": "inspect_ai"}

_DEFAULT_SANDBOXES = 32  # in use at a time; forks share most of their memory


class RametSandboxConfig(BaseModel):
    """The config of a Ramet sandbox: the fields of a YAML file, or an object in a task.

    `sandbox=("ramet", "ramet.yaml")` reads a file; a file `ramet.yaml` beside the task is found
    without it. `sandbox=SandboxEnvironmentSpec("ramet", RametSandboxConfig(...))` takes an object.
    The service and the key are those of the environment (`RAMET_HOST`, `RAMET_API_KEY`).

    Attributes:
        template: Name of the template. None: the service's default.
        vcpus: Virtual CPUs. None: the template's.
        ram_mib: Memory in MiB. None: the template's.
        rootfs_gb: Root disk in GiB. None: the template's.
        egress: False: the sandboxes cannot send to the network.
        env: Environment variables of every command.
        user: User that commands and file operations act as, unless they name another. None: root.
        working_dir: Folder for relative paths, created when missing. None: the user's home.
        setup: Script for bash that prepares the sandbox, as root, in `working_dir`. With `fork` it
            runs once for the eval, otherwise once for each sample.
        setup_timeout_seconds: Time limit of `setup`.
        fork: True: one sandbox is prepared when the eval starts, and each sample gets a fork of
            it. False: each sample gets a sandbox of its own from the template.
        lifetime_seconds: Lifetime of each sandbox. None: the service's default. Its former name,
            `timeout_seconds`, is accepted too.
        idle_timeout_seconds: Seconds without activity after which a sandbox ends. The prepared one
            is idle between forks.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    template: str | None = None
    vcpus: PositiveInt | None = None
    ram_mib: PositiveInt | None = None
    rootfs_gb: PositiveInt | None = None
    egress: bool | None = None
    env: dict[str, str] = Field(default_factory=dict)
    user: str | None = None
    working_dir: str | None = Field(default=None, pattern="^/")
    setup: str | None = None
    setup_timeout_seconds: PositiveInt = 600
    fork: bool = True
    lifetime_seconds: PositiveInt | None = Field(
        default=None, validation_alias=AliasChoices("lifetime_seconds", "timeout_seconds")
    )
    idle_timeout_seconds: PositiveInt = 86_400

    @classmethod
    def of(cls, config: BaseModel | str | None) -> "RametSandboxConfig":
        """Returns the config that a task gave: an object, the path of a YAML file, or nothing.

        Raises:
            TypeError: It is the config of another provider.
            ValueError: The file is not valid; the message names the field.
            OSError: The file cannot be read.
        """
        if config is None:
            return cls()
        if isinstance(config, cls):
            return config
        if isinstance(config, str):
            return cls.model_validate(yaml.safe_load(Path(config).read_text()) or {})
        raise TypeError(
            "the config of a Ramet sandbox is a RametSandboxConfig or the path of a YAML file,"
            f" not a {type(config).__name__}"
        )

    def __hash__(self) -> int:
        return hash(self.key)  # Inspect keeps configs in sets; a dict has no hash of its own

    @property
    def key(self) -> str:
        """A text that is equal for equal configs."""
        return self.model_dump_json()


class _Prepared:
    """The sandbox that the samples of an eval are forked from.

    Evals that run at the same time with the same config share it.
    """

    def __init__(self) -> None:
        self.lock = anyio.Lock()
        self.users = 0
        self.environment: RametSandboxEnvironment | None = None


# By thread and config: an async client belongs to one event loop.
_prepared: dict[tuple[int, str], _Prepared] = {}


def _key(config: RametSandboxConfig) -> tuple[int, str]:
    return threading.get_ident(), config.key


@sandboxenv(name="ramet")
class RametSandboxEnvironment(SandboxEnvironment):
    """A Ramet sandbox as the sandbox of a sample.

    Attributes:
        sandbox: The sandbox, with all that Inspect has no word for.
        config: Its config.
        working_dir: Absolute path of the folder for relative paths.
    """

    CONFIG_FILES: ClassVar[list[str]] = ["ramet.yaml", "ramet.yml"]

    def __init__(self, sandbox: AsyncSandbox, config: RametSandboxConfig, working_dir: str) -> None:
        super().__init__()
        self.sandbox = sandbox
        self.config = config
        self.working_dir = working_dir
        self._children: list[RametSandboxEnvironment] = []

    # --- what Ramet adds ---

    async def fork(
        self, n: int = 1, *, reseed: bool = False
    ) -> "list[RametSandboxEnvironment]":
        """Clones this sandbox while it runs: files, processes, memory.

        The children end with the sample, unless `close` ended them before. To let tools work in a
        child, use `as_default`.

        Args:
            n: Number of children, all or none.
            reseed: Seed Python's random generators differently in each child.

        Raises:
            BadRequest: `n` is out of range.
            NotFound: This sandbox is gone.
            CapReached, Unavailable: There is no room for so many.
        """
        children = [
            RametSandboxEnvironment(child, self.config, self.working_dir)
            for child in await self.sandbox.fork(n, reseed=reseed)
        ]
        self._children += children
        return children

    @contextmanager
    def as_default(self) -> Iterator[None]:
        """In a `with` block, `sandbox()` is this environment, also for tools and agents.

        Each task of a task group has its own block: branches run side by side.
        """
        from inspect_ai.util._sandbox import context
        from inspect_ai.util._sandbox.events import SandboxEnvironmentProxy

        environments: dict[str, SandboxEnvironment] = {"default": SandboxEnvironmentProxy(self)}
        tokens = (
            context.sandbox_environments_context_var.set(environments),
            context.sandbox_with_environments_context_var.set({}),
            context.sandbox_default_context_var.set("default"),
        )
        try:
            yield
        finally:
            context.sandbox_environments_context_var.reset(tokens[0])
            context.sandbox_with_environments_context_var.reset(tokens[1])
            context.sandbox_default_context_var.reset(tokens[2])

    async def merge_into(self, winner: "RametSandboxEnvironment") -> None:
        """Replaces the state of this sandbox by that of a fork of it, which ends.

        Raises:
            Conflict: The winner is not a fork of this sandbox.
            NotFound: One of them is gone.
        """
        await self.sandbox.merge_into(winner.sandbox)

    async def close(self) -> None:
        """Ends the sandbox and all its forks; raises nothing if they are gone already."""
        try:
            for child in self._children:
                await child.close()
        finally:
            await self.sandbox.close()

    # --- commands and files ---

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Runs a command; see `SandboxEnvironment.exec`.

        A command that reached its time limit is not repeated: the limit is enforced in the
        sandbox, so the command itself was too slow. A user or folder that does not exist is a
        result with exit code 126. Without `cwd`, a user who is neither root nor the config's begins in its own
        home, since it may not be allowed to enter the working folder.

        Raises:
            TimeoutError: The time limit was reached; the command and its children were killed.
            PermissionError: The file must not be executed.
            OutputLimitExceededError: A stream is too long; the command was killed.
            SandboxUnavailableError: The sandbox is gone.
        """
        is_other = user not in (None, "root", self.config.user)
        try:
            result = await _commands.run(
                self.sandbox,
                cmd,
                input=input.encode() if isinstance(input, str) else input,
                cwd=None if is_other and not cwd else self._resolve(cwd or ""),
                env=env,
                user=user or self.config.user,
                timeout_seconds=timeout,
                max_output_bytes=SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE,
            )
        except BadRequest as refused:
            return ExecResult(False, 126, "", f"{refused}\n")
        except _commands.OutputTooLong as long:
            raise OutputLimitExceededError(
                SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR,
                (long.stdout + long.stderr).decode(errors="replace"),
            ) from long
        except (NotFound, VmDied) as gone:
            raise SandboxUnavailableError(str(gone)) from gone
        if result.timed_out:
            words = shlex.join(cmd)[:200]
            raise TimeoutError(f"the command did not end within {timeout} s: {words}")
        if result.exit_code == 126 and result.stderr == f"{cmd[0]}: Permission denied\n":
            raise PermissionError(result.stderr.strip())
        return ExecResult(result.ok, result.exit_code, result.stdout, result.stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Writes a file as the config's user; see `SandboxEnvironment.write_file`."""
        data = contents.encode() if isinstance(contents, str) else contents
        await self._files().write(self._resolve(file), data)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Reads a file as the config's user; see `SandboxEnvironment.read_file`."""
        path = self._resolve(file)
        try:
            data = await self._files().read(
                path, max_bytes=SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
            )
        except OSError as failed:
            if failed.errno != errno.EFBIG:
                raise
            raise OutputLimitExceededError(
                SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None
            ) from failed
        return data.decode() if text else data

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        """Returns the command that opens a shell in this sandbox.

        Raises:
            ConnectionError: The sandbox is gone.
        """
        try:
            info = await self.sandbox.info()
        except (NotFound, VmDied) as gone:
            raise ConnectionError(str(gone)) from gone
        words = ["ramet", "shell", info.id]
        if name := user or self.config.user:
            words[2:2] = ["--user", name]
        host = os.environ.get("RAMET_HOST")
        prefix = f"RAMET_HOST={shlex.quote(host)} " if host else ""
        return SandboxConnection(
            type="ramet", command=prefix + shlex.join(words), container=info.id
        )

    def default_polling_interval(self) -> float:
        """Returns 0.2 s: a request takes milliseconds."""
        return 0.2

    def _files(self) -> UserFiles:
        return UserFiles(self.sandbox, self.config.user)

    def _resolve(self, path: str) -> str:
        return posixpath.join(self.working_dir, path)

    # --- the life of an eval ---

    @classmethod
    def default_concurrency(cls) -> int | None:
        """Returns the default of `--max-sandboxes`."""
        return _DEFAULT_SANDBOXES

    @classmethod
    def config_files(cls) -> list[str]:
        """Returns the names of config files that are found beside a task."""
        return cls.CONFIG_FILES

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """Returns the config from a log."""
        return RametSandboxConfig(**config)

    @classmethod
    async def task_init(cls, task_name: str, config: BaseModel | str | None) -> None:
        """Prepares the sandbox that the samples are forked from.

        Raises:
            OSError: The config's `working_dir` cannot be created or entered.
            RuntimeError: The config's `setup` failed; the message has its output.
        """
        own = RametSandboxConfig.of(config)
        if not own.fork:
            return
        prepared = _prepared.setdefault(_key(own), _Prepared())
        prepared.users += 1
        try:
            async with prepared.lock:
                if prepared.environment is None:
                    prepared.environment = await _create(own)
        except BaseException:
            cls._release(own)
            raise

    @classmethod
    async def task_cleanup(
        cls, task_name: str, config: BaseModel | str | None, cleanup: bool
    ) -> None:
        """Ends the prepared sandbox, unless `--no-sandbox-cleanup` keeps it."""
        prepared = cls._release(RametSandboxConfig.of(config))
        if prepared is None or prepared.environment is None:
            return
        if cleanup:
            await prepared.environment.close()
        else:
            print(
                f"Sandbox {prepared.environment.sandbox.id}, from which the samples were forked,"
                " and those of the samples are kept. End all with: inspect sandbox cleanup ramet"
            )

    @classmethod
    def _release(cls, config: RametSandboxConfig) -> _Prepared | None:
        """Gives up one use of the prepared sandbox; returns it if that was the last use."""
        prepared = _prepared.get(_key(config))
        if prepared is None:
            return None
        prepared.users -= 1
        return _prepared.pop(_key(config)) if prepared.users == 0 else None

    @classmethod
    async def sample_init(
        cls, task_name: str, config: BaseModel | str | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """Forks the prepared sandbox for a sample, or creates one where the config says so."""
        own = RametSandboxConfig.of(config)
        prepared = _prepared.get(_key(own))
        if prepared is None or prepared.environment is None:
            return {"default": await _create(own)}
        base = prepared.environment
        (child,) = await base.sandbox.fork(1, reseed=True)
        return {"default": cls(child, own, base.working_dir)}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: BaseModel | str | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """Ends the sample's sandbox and its forks."""
        for environment in environments.values():
            await environment.as_type(RametSandboxEnvironment).close()

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        """Ends one sandbox, or all that evals with this key have left."""
        async with AsyncClient() as client:
            if id is not None:
                await client.delete_sandbox(id)
                return
            left = await client.list_sandboxes(metadata=_METADATA)
            for one in left:
                with suppress(NotFound, VmDied):
                    await client.delete_sandbox(one.id)
            print(f"{len(left)} sandboxes of evals were ended.")


async def _create(config: RametSandboxConfig) -> RametSandboxEnvironment:
    """Creates a sandbox and prepares it as the config says."""
    sandbox = await AsyncSandbox.create(
        template=config.template,
        vcpus=config.vcpus,
        ram_mib=config.ram_mib,
        rootfs_gb=config.rootfs_gb,
        lifetime_seconds=config.lifetime_seconds,
        idle_timeout_seconds=config.idle_timeout_seconds,
        egress=config.egress,
        env=config.env or None,
        metadata=_METADATA,
    )
    try:
        environment = RametSandboxEnvironment(
            sandbox, config, await enter_folder(sandbox, config.user, config.working_dir)
        )
        if config.setup is not None:
            await _set_up(environment, config.setup)
        return environment
    except BaseException:
        with anyio.CancelScope(shield=True), suppress(RametError):
            await sandbox.close()
        raise


async def _set_up(environment: RametSandboxEnvironment, script: str) -> None:
    try:
        result = await environment.exec(
            ["/bin/bash", "-c", script],
            user="root",
            timeout=environment.config.setup_timeout_seconds,
        )
    except TimeoutError as slow:
        raise RuntimeError(f"the setup of the sandbox is too slow: {slow}") from slow
    if not result.success:
        raise RuntimeError(
            f"the setup of the sandbox failed with exit code {result.returncode}:"
            f" {(result.stderr or result.stdout).strip()[-2000:]}"
        )
