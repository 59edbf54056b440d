# SPDX-License-Identifier: Apache-2.0
"""smolagents: a `CodeAgent` whose code runs in a sandbox, and forks of agent and sandbox together.

    from ramet.integrations.smolagents import RametExecutor, fork_agent
    from smolagents import CodeAgent

    with CodeAgent(tools=[], model=model, executor=RametExecutor()) as agent:
        agent.run("Load the data and look at it.")
        for twin in fork_agent(agent, 3):
            with twin:
                twin.run("Fit a model to it.", reset=False)
"""

from __future__ import annotations

import base64
import copy
import io
import json
from typing import Any, Sequence

from ramet import CodeError, ExecResult, NoSuchFile, Sandbox
from ramet.integrations._results import MAX_OUTPUT_BYTES

try:
    import PIL.Image
    from smolagents import CodeAgent
    from smolagents.local_python_executor import CodeOutput
    from smolagents.memory import ActionStep, AgentMemory, CallbackRegistry
    from smolagents.monitoring import AgentLogger, LogLevel, Monitor
    from smolagents.remote_executors import RemotePythonExecutor
    from smolagents.serialization import SafeSerializer
    from smolagents.utils import AgentExecutionError
except ImportError as missing:
    raise ImportError(
        "ramet.integrations.smolagents needs the package smolagents: "
        "pip install './sdk/python[smolagents]' in a checkout of Ramet"
    ) from missing

# The exception of final_answer arrives with a shortened text, so the answer comes in a file.
_ANSWER_PATH = "/tmp/.ramet-final-answer"
_ANSWER_MAX = 256 << 20  # bytes that are read into memory; arrays and pictures are written as JSON
_KEEP_ANSWER = f"""
def _ramet_keep_answer(tool):
    forward = tool.forward

    def keep(self, *args, **kwargs):
        try:
            return forward(self, *args, **kwargs)
        except BaseException as error:
            if type(error).__name__ == "{RemotePythonExecutor.FINAL_ANSWER_EXCEPTION}":
                with open("{_ANSWER_PATH}", "w", encoding="utf-8") as file:
                    file.write(error.value)
            raise

    tool.forward = keep

_ramet_keep_answer(type(final_answer))
"""


class RametExecutor(RemotePythonExecutor):  # type: ignore[misc]
    """Runs the code of a `CodeAgent` in a sandbox, whose variables stay from step to step.

    Everything that the sandbox's Python can import may be used: `additional_authorized_imports` of
    the agent has no effect. Variables and tools are sent as by smolagents' other remote executors,
    so a tool must be self-contained, and runs in the sandbox. The final answer and variables are
    sent as JSON, in which smolagents also writes dates, paths, arrays and pictures.

    Args:
        sandbox: The sandbox to use, which the caller must close. None: one is created now, and
            closed by `cleanup`, which `with agent:` calls.
        additional_imports: Packages to install in the sandbox first.
        logger: The logger to use, for example that of the agent. None: one that prints errors.
        allow_pickle: Accept a pickled final answer if it is no JSON. Code in the sandbox can then
            run anything in this process.
        timeout_seconds: Time limit of each step's code in seconds. None: no limit.
        options: Arguments for `Sandbox`, such as `template` or `host`, if it is to be created.

    Raises:
        ValueError: Both a sandbox and options for a new one are given.
        RametError: The sandbox could not be created.
        AgentExecutionError: A package could not be installed.

    Attributes:
        sandbox: The sandbox.
    """

    def __init__(
        self,
        sandbox: Sandbox | None = None,
        *,
        additional_imports: Sequence[str] = (),
        logger: AgentLogger | None = None,
        allow_pickle: bool = False,
        timeout_seconds: float | None = None,
        **options: Any,
    ) -> None:
        if sandbox is not None and options:
            raise ValueError(f"an existing sandbox takes no options: {', '.join(sorted(options))}")
        super().__init__(
            list(additional_imports), logger or AgentLogger(level=LogLevel.ERROR), allow_pickle
        )
        self.timeout_seconds = timeout_seconds
        self._owns_sandbox = sandbox is None
        self.sandbox = Sandbox(**options) if sandbox is None else sandbox
        try:
            self.installed_packages = self.install_packages(list(additional_imports))
        except BaseException:
            self.cleanup()
            raise

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        """Runs code and returns its output and the value of its last expression.

        Raises:
            AgentExecutionError: The code raised an exception, or reached its time limit.
            RametError: The sandbox is gone, or cannot be reached.
        """
        result = self.sandbox.run_code(
            code, timeout_seconds=self.timeout_seconds, max_output_bytes=MAX_OUTPUT_BYTES
        )
        logs = result.stdout
        if result.error and result.error.name == self.FINAL_ANSWER_EXCEPTION:
            answer = self._answer(self._serialized_answer(result.error))
            return CodeOutput(output=answer, logs=logs, is_final_answer=True)
        if not result.ok:
            raise AgentExecutionError(_failure(result, self.timeout_seconds), self.logger)
        return CodeOutput(output=_value(result), logs=logs, is_final_answer=False)

    def _answer(self, serialized: str) -> Any:
        prefix = SafeSerializer.SAFE_PREFIX
        if not serialized.startswith(prefix):
            return self._deserialize_final_answer(serialized, self.allow_pickle)
        try:
            answer = _with_pictures(json.loads(serialized[len(prefix) :]))
        except ValueError as error:
            raise AgentExecutionError(f"the final answer is damaged: {error}", self.logger) from error
        return SafeSerializer.from_json_safe(answer)

    def _serialized_answer(self, error: CodeError) -> str:
        try:
            answer = self.sandbox.download(_ANSWER_PATH, max_bytes=_ANSWER_MAX).decode()
            self.sandbox.files.remove(_ANSWER_PATH)
            return answer
        except NoSuchFile:  # raised by something else than the tool
            return error.value

    def send_tools(self, tools: dict[str, Any]) -> None:
        """Defines the agent's tools in the sandbox, and installs the packages that they need."""
        super().send_tools(tools)
        if "final_answer" in tools:
            self.run_code_raise_errors(_KEEP_ANSWER)

    def _patch_final_answer_with_exception(self, final_answer_tool: Any) -> None:
        # Once only, as a second patch makes the tool call itself: an agent sends its tools at each
        # run, and forks share them.
        if type(final_answer_tool).__name__ != "_FinalAnswerTool":
            super()._patch_final_answer_with_exception(final_answer_tool)

    def install_packages(self, additional_imports: list[str]) -> list[str]:
        """Installs packages in the sandbox with pip.

        Raises:
            AgentExecutionError: pip failed; the message has its last lines.
        """
        if additional_imports:
            pip = ["python3", "-m", "pip", "install", "--quiet", *additional_imports]
            result = self.sandbox.processes.run(pip, max_output_bytes=MAX_OUTPUT_BYTES)
            if not result.ok:
                last = "\n".join(result.stderr.splitlines()[-10:])
                names = " ".join(additional_imports)
                raise AgentExecutionError(f"cannot install {names}:\n{last}", self.logger)
        return additional_imports

    def fork(self, n: int = 1, *, reseed: bool = False) -> list["RametExecutor"]:
        """Returns executors for `n` forks of the sandbox, with all variables; see `fork_agent`.

        The caller must `cleanup` them. Errors are those of `Sandbox.fork`.
        """
        return [self._of_child(child) for child in self.sandbox.fork(n, reseed=reseed)]

    def _of_child(self, child: Sandbox) -> "RametExecutor":
        executor = copy.copy(self)
        executor.installed_packages = list(self.installed_packages)
        executor.sandbox, executor._owns_sandbox = child, True
        return executor

    def cleanup(self) -> None:
        """Closes the sandbox, unless the caller gave it."""
        if self._owns_sandbox:
            self.sandbox.close()


def fork_agent(agent: CodeAgent, n: int = 1, *, reseed: bool = False) -> list[CodeAgent]:
    """Returns `n` copies of an agent: its memory and, forked, its sandbox.

    `copy.run(task, reset=False)` continues where the agent is now. The agent itself can go on too,
    or continue as the best copy: `agent.python_executor.sandbox.merge_into(
    copy.python_executor.sandbox)` and ``agent.memory.steps = copy.memory.steps``. Model, tools and
    callbacks are shared, so a copy may run in another thread only if they allow it.

    Args:
        agent: An agent with a `RametExecutor`; its managed agents are not copied.
        n: Number of copies.
        reseed: As for `Sandbox.fork`.

    Returns:
        The copies. The caller must `cleanup` each, or use it in a `with` block.

    Raises:
        TypeError: The agent has another executor.
        As `Sandbox.fork`.
    """
    executor = agent.python_executor
    if not isinstance(executor, RametExecutor):
        raise TypeError(f"the agent must have a RametExecutor, not a {type(executor).__name__}")
    return [_copy(agent, child) for child in executor.fork(n, reseed=reseed)]


def _copy(agent: CodeAgent, executor: RametExecutor) -> CodeAgent:
    twin = copy.copy(agent)
    twin.python_executor = executor
    twin.state = dict(agent.state)
    twin.memory = AgentMemory(agent.system_prompt)
    twin.memory.steps = list(agent.memory.steps)
    twin.monitor = Monitor(agent.model, agent.logger)
    twin.step_callbacks = CallbackRegistry()
    for step, callbacks in agent.step_callbacks._callbacks.items():
        for callback in callbacks:
            if callback != agent.monitor.update_metrics:
                twin.step_callbacks.register(step, callback)
    twin.step_callbacks.register(ActionStep, twin.monitor.update_metrics)
    return twin


def _failure(result: ExecResult, limit: float | None) -> str:
    if result.exit_code == 124:
        reason = f"The code was stopped: it ran for longer than {limit} s.\n{result.stderr}"
    elif result.error:
        reason = result.error.traceback
    else:
        reason = f"Python ended with exit code {result.exit_code}.\n{result.stderr}"
    return f"{result.stdout}\n{reason}" if result.stdout else reason


def _value(result: ExecResult) -> Any:
    """Returns the last expression's value: as a picture or JSON if it is, else as text."""
    for one in result.results:
        if one.main:
            try:
                if picture := one.png or one.jpeg:
                    return _picture(picture)
            except ValueError:
                return one.text
            return one.text if one.json is None else one.json
    return None


def _with_pictures(value: Any) -> Any:
    """Returns a serialized answer in which pictures are opened already.

    smolagents would open them with every parser that PIL has.
    """
    if isinstance(value, list):
        return [_with_pictures(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.get("__type__") == "PIL.Image":
        return _picture(base64.b64decode(str(value.get("data"))))
    return {name: _with_pictures(one) for name, one in value.items()}


def _picture(raw: bytes) -> PIL.Image.Image:
    """Opens a picture of the sandbox. Some of PIL's other parsers start programs.

    Raises:
        ValueError: It is neither PNG nor JPEG, or has too many pixels.
    """
    try:
        return PIL.Image.open(io.BytesIO(raw), formats=("PNG", "JPEG"))
    except (OSError, PIL.Image.DecompressionBombError) as error:
        raise ValueError(f"not a picture: {error}") from error
