# SPDX-License-Identifier: Apache-2.0
"""mini-swe-agent: an environment whose commands run in a sandbox, and that can be forked.

In the agent's YAML configuration:

    environment:
      environment_class: ramet.integrations.mini_swe_agent.RametEnvironment
      template: python-datasci
      cwd: /root
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

from ramet import RametError, Sandbox
from ramet.integrations._results import MAX_CHECK_BYTES, MAX_OUTPUT_BYTES, TRUNCATED

try:
    from minisweagent.exceptions import Submitted
    from minisweagent.utils.serialize import recursive_merge
    from pydantic import BaseModel, ConfigDict
except ImportError as missing:
    raise ImportError(
        "ramet.integrations.mini_swe_agent needs the package mini-swe-agent: "
        "pip install './sdk/python[mini-swe-agent]' in a checkout of Ramet"
    ) from missing

_SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
_UNAME = ("system", "node", "release", "version", "machine")


class RametEnvironmentConfig(BaseModel):
    """Settings of a `RametEnvironment`.

    Attributes:
        cwd: Folder in which commands run; it is created.
        env: Environment variables of every command.
        forward_env: Names of variables to take from this process, if they are set here; `env`
            has priority.
        timeout: Time limit of a command in seconds.
        interpreter: Program that gets the command as its last argument.
        sandbox_id: An existing sandbox to use, which is not closed. None: create one.
        host, api_key, region: The service, as for `Sandbox`.
        template, vcpus, ram_mib, rootfs_gb, egress: The new sandbox, as for `Sandbox`.
        sandbox_timeout: Lifetime of the new sandbox in seconds. None: the service's default.
        metadata: Stored with the new sandbox.
    """

    model_config = ConfigDict(extra="forbid")

    cwd: str = "/root"
    env: dict[str, str] = {}
    forward_env: list[str] = []
    timeout: int = 30
    interpreter: list[str] = ["bash", "-c"]
    sandbox_id: str | None = None
    host: str | None = None
    api_key: str | None = None
    region: str | None = None
    template: str | None = None
    vcpus: int | None = None
    ram_mib: int | None = None
    rootfs_gb: int | None = None
    egress: bool | None = None
    sandbox_timeout: int | None = None
    metadata: dict[str, Any] | None = None


class RametEnvironment:
    """Runs each command of an agent as a new process of a sandbox.

    Use it in a `with` block, or call `cleanup`. Otherwise the sandbox ends when this object is
    collected, or at its lifetime's end.

    Args:
        config_class: A subclass of `RametEnvironmentConfig` may add settings.
        sandbox: A sandbox to use, which the caller must close. None: that of `sandbox_id`, or a
            new one.
        settings: The attributes of `RametEnvironmentConfig`.

    Raises:
        RametError: The sandbox could not be created, or there is none with `sandbox_id`.

    Attributes:
        config: The settings.
        sandbox: The sandbox.
    """

    def __init__(
        self,
        *,
        config_class: type[RametEnvironmentConfig] = RametEnvironmentConfig,
        sandbox: Sandbox | None = None,
        **settings: Any,
    ) -> None:
        self.config = config_class(**settings)
        self._owns_sandbox = sandbox is None and self.config.sandbox_id is None
        self.sandbox = sandbox or _sandbox_of(self.config)
        try:
            self.sandbox.files.mkdir(self.config.cwd, parents=True)
            uname = self.sandbox.processes.run(
                ["uname", "-snrvm"], max_output_bytes=MAX_CHECK_BYTES
            ).stdout
            self._uname = dict(zip(_UNAME, _split_uname(uname)))
        except BaseException:
            self.cleanup()
            raise

    def execute(
        self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None
    ) -> dict[str, Any]:
        """Runs a command and returns its output, standard error included, and its exit code.

        Args:
            action: The command is ``action["command"]``.
            cwd: Folder to run it in. Empty: that of the settings.
            timeout: Time limit in seconds. None: that of the settings. At the limit, all processes
                of the command are killed; the output until then is returned, with -1.

        Returns:
            ``output``, ``returncode``, and ``exception_info``, which is empty unless the command
            could not be run to its end.

        Raises:
            Submitted: The command succeeded and printed the line that ends the task.
        """
        limit = timeout or self.config.timeout
        try:
            output = self._run(action.get("command", ""), cwd or self.config.cwd, limit)
        except RametError as error:
            output = _failed("", error)
        self._check_finished(output)
        return output

    def _run(self, command: str, cwd: str, limit: int) -> dict[str, Any]:
        # One stream, so that both are in the order in which they were printed.
        argv = ["sh", "-c", 'exec "$@" 2>&1', "sh", *self.config.interpreter, command]
        result = self.sandbox.processes.run(
            argv,
            cwd=cwd,
            env=self._env(),
            timeout_seconds=limit,
            max_output_bytes=MAX_OUTPUT_BYTES,
        )
        if result.timed_out:
            error = TimeoutError(f"the command ran for longer than {limit} s")
            return _failed(result.stdout, error)
        output = result.stdout + (f"\n{TRUNCATED}\n" if result.truncated else "")
        return {"output": output, "returncode": result.exit_code, "exception_info": ""}

    def _env(self) -> dict[str, str]:
        names = [name for name in self.config.forward_env if name in os.environ]
        return {**{name: os.environ[name] for name in names}, **self.config.env}

    def _check_finished(self, output: dict[str, Any]) -> None:
        first, _, rest = output["output"].lstrip().partition("\n")
        if first.strip() == _SUBMIT and output["returncode"] == 0:
            raise Submitted(
                {
                    "role": "exit",
                    "content": rest,
                    "extra": {"exit_status": "Submitted", "submission": rest},
                }
            )

    def get_template_vars(self, **given: Any) -> dict[str, Any]:
        """Returns the variables of prompts: the settings, and `uname` of the sandbox."""
        merged: dict[str, Any] = recursive_merge(self._shown_config(), self._uname, given)
        return merged

    def serialize(self) -> dict[str, Any]:
        """Returns the settings for the trajectory's file, without the API key."""
        kind = type(self)
        return {
            "info": {
                "config": {
                    "environment": self._shown_config(),
                    "environment_type": f"{kind.__module__}.{kind.__name__}",
                }
            }
        }

    def _shown_config(self) -> dict[str, Any]:
        return self.config.model_dump(mode="json", exclude={"api_key"})

    def fork(self, n: int = 1, *, reseed: bool = False) -> list["RametEnvironment"]:
        """Returns environments for `n` forks of the sandbox, which the caller must `cleanup`.

        With a copy of an agent's messages for each, agents continue from here in several ways:

            for env in agent.env.fork(3):
                twin = DefaultAgent(model, env, **settings)
                twin.messages = list(agent.messages)
                twin.step()

        Errors are those of `Sandbox.fork`.
        """
        return [self._of_child(child) for child in self.sandbox.fork(n, reseed=reseed)]

    def _of_child(self, child: Sandbox) -> "RametEnvironment":
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.sandbox, twin._owns_sandbox = child, True
        return twin

    def merge_into(self, winner: "RametEnvironment") -> None:
        """Continues as `winner`, a fork of this environment; see `Sandbox.merge_into`."""
        self.sandbox.merge_into(winner.sandbox)

    def close(self) -> None:
        """Does the same as `cleanup`, for `ramet.search`."""
        self.cleanup()

    def cleanup(self) -> None:
        """Closes the sandbox, unless the caller gave it."""
        if self._owns_sandbox:
            self.sandbox.close()

    def __enter__(self) -> "RametEnvironment":
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.cleanup()

    def __del__(self) -> None:
        """mini-swe-agent's programs close no environment."""
        if getattr(self, "sandbox", None) is not None:
            try:
                self.cleanup()
            except Exception:  # the interpreter may be ending
                pass


def _sandbox_of(config: RametEnvironmentConfig) -> Sandbox:
    service: dict[str, Any] = {
        "host": config.host,
        "api_key": config.api_key,
        "region": config.region,
    }
    if config.sandbox_id is not None:
        return Sandbox.connect(config.sandbox_id, **service)
    return Sandbox(
        template=config.template,
        vcpus=config.vcpus,
        ram_mib=config.ram_mib,
        rootfs_gb=config.rootfs_gb,
        egress=config.egress,
        timeout_seconds=config.sandbox_timeout,
        metadata=config.metadata,
        **service,
    )


def _split_uname(text: str) -> list[str]:
    """Splits `uname -snrvm`, of which only the version may have spaces."""
    system, node, release, rest = text.strip().split(" ", 3)
    version, machine = rest.rsplit(" ", 1)
    return [system, node, release, version, machine]


def _failed(output: str, error: Exception) -> dict[str, Any]:
    return {
        "output": output,
        "returncode": -1,
        "exception_info": f"An error occurred while executing the command: {error}",
        "extra": {"exception_type": type(error).__name__, "exception": str(error)},
    }
