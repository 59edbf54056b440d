# SPDX-License-Identifier: Apache-2.0
"""LangChain: tools that run code in a sandbox, and try variants in forks of it.

    from langchain.agents import create_agent
    from ramet.integrations.langchain import RametToolkit

    with RametToolkit() as kit:
        agent = create_agent(model, kit.get_tools())
        agent.invoke({"messages": [("user", "Plot sin(x).")]})
"""

from __future__ import annotations

import base64
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Any, Callable, Literal, Sequence, TypeVar

import anyio
import anyio.to_thread

from ramet import BadRequest, CapReached, Conflict, ExecResult, RametError, Sandbox
from ramet.integrations._results import MAX_OUTPUT_BYTES, pictures_of, text_of

try:
    from langchain_core.tools import BaseTool, BaseToolkit, StructuredTool, ToolException
    from pydantic import BaseModel, Field, PrivateAttr
except ImportError as missing:
    raise ImportError(
        "ramet.integrations.langchain needs the package langchain-core: "
        "pip install './sdk/python[langchain]' in a checkout of Ramet"
    ) from missing

T = TypeVar("T")

VARIANTS_MAX = 16

_RUN_CODE = """\
Runs code in a Linux sandbox of your own and returns its output, the value of the last expression,
and its figures. Python calls share one process: variables, imports and files stay. bash calls are
new shells that see the same files."""

_TRY_VARIANTS = """\
Runs several Python scripts side by side, each in a copy of the sandbox as it is now, with
all its variables and files. Returns the output of each. The sandbox itself does not change: call
keep_variant to continue with one of the copies."""

_KEEP_VARIANT = """\
Continues with one of the copies that try_variants made: the sandbox gets all its variables and
files. The other copies end."""


class RunCode(BaseModel):
    """Arguments of the tool `run_code`."""

    code: str = Field(description="The source code.")
    language: Literal["python", "bash"] = Field("python", description="Language of the code.")


class TryVariants(BaseModel):
    """Arguments of the tool `try_variants`."""

    variants: list[str] = Field(
        description="Python code of each variant.", min_length=1, max_length=VARIANTS_MAX
    )


class KeepVariant(BaseModel):
    """Arguments of the tool `keep_variant`."""

    number: int = Field(description="Number of the variant; the first one is 0.", ge=0)


class RametToolkit(BaseToolkit):
    """Tools that share one sandbox: `run_code`, `try_variants` and `keep_variant`.

    A tool message has the output as text, and pictures as image blocks; its artifact is the
    `ramet.ExecResult` (of `try_variants`, a list of them). The tools work with `invoke` and
    `ainvoke`; a cancelled `ainvoke` interrupts its code.

    A request that the service refuses for a reason that the model can do something about is an
    error message to the model. Other failures, such as a sandbox that is gone, are raised.

    Args:
        sandbox: The sandbox to use, which the caller must close. None: one is created at the first
            call, and closed by `close` or at the end of a `with` block.
        timeout_seconds: Time limit of each call of code in seconds. None: no limit.
        fork_tools: False: only the tool `run_code`.
        options: Arguments for `Sandbox`, such as `template` or `host`, if it is to be created.

    Raises:
        ValueError: Both a sandbox and options for a new one are given.
    """

    _session: "_Session" = PrivateAttr()
    _fork_tools: bool = PrivateAttr()

    def __init__(
        self,
        sandbox: Sandbox | None = None,
        *,
        timeout_seconds: float | None = None,
        fork_tools: bool = True,
        **options: Any,
    ) -> None:
        if sandbox is not None and options:
            raise ValueError(f"an existing sandbox takes no options: {', '.join(sorted(options))}")
        super().__init__()
        self._session = _Session(sandbox, timeout_seconds, options)
        self._fork_tools = fork_tools

    def get_tools(self) -> list[BaseTool]:
        """Returns the tools, for an agent or `model.bind_tools`."""
        session = self._session
        tools = [_tool("run_code", _RUN_CODE, RunCode, session, session.run_code)]
        if self._fork_tools:
            tools += [
                _tool("try_variants", _TRY_VARIANTS, TryVariants, session, session.try_variants),
                _tool("keep_variant", _KEEP_VARIANT, KeepVariant, session, session.keep_variant),
            ]
        return tools

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox, which is created if there is none yet."""
        return self._session.sandbox()

    def fork(self, n: int = 1, *, reseed: bool = False) -> list["RametToolkit"]:
        """Returns toolkits for `n` forks of the sandbox: one for each copy of an agent.

        Give each copy the messages so far, and the tools of one of these. `sandbox.merge_into`
        continues with the best one. The caller must close them.

        Raises:
            As `Sandbox.fork`.
        """
        children = self.sandbox.fork(n, reseed=reseed)
        return [self._of_child(child) for child in children]

    def _of_child(self, child: Sandbox) -> "RametToolkit":
        kit = RametToolkit(
            child, timeout_seconds=self._session.timeout_seconds, fork_tools=self._fork_tools
        )
        kit._session.owns_sandbox = True
        return kit

    def close(self) -> None:
        """Ends the copies of `try_variants`, and the sandbox unless the caller gave it."""
        self._session.close()

    def __enter__(self) -> "RametToolkit":
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()


class _Session:
    """The sandbox of a toolkit, and the copies that the model may still choose from."""

    def __init__(
        self, sandbox: Sandbox | None, timeout_seconds: float | None, options: dict[str, Any]
    ) -> None:
        self.timeout_seconds = timeout_seconds
        self.owns_sandbox = sandbox is None
        self._sandbox = sandbox
        self._options = options
        self._variants: list[Sandbox] = []
        self._lock = threading.RLock()

    def sandbox(self) -> Sandbox:
        with self._lock:
            if self._sandbox is None:
                self._sandbox = Sandbox(**self._options)
            return self._sandbox

    def run_code(
        self, code: str, language: Literal["python", "bash"] = "python"
    ) -> tuple[Any, ExecResult]:
        result = self._run(self.sandbox(), code, language)
        return _content([("", result)]), result

    def try_variants(self, variants: Sequence[str]) -> tuple[Any, list[ExecResult]]:
        children = self.sandbox().fork(len(variants), reseed=True)
        self._replace_variants(children)
        with ThreadPoolExecutor(len(children)) as threads:
            results = list(threads.map(self._run, children, variants))
        titled = [(f"--- variant {i} ---\n", result) for i, result in enumerate(results)]
        return _content(titled), results

    def keep_variant(self, number: int) -> tuple[str, int]:
        with self._lock:
            if number >= len(self._variants):
                raise ToolException(
                    f"there is no variant {number}: try_variants made {len(self._variants)} that"
                    " can still be kept"
                )
            self.sandbox().merge_into(self._variants[number])
            self._replace_variants([])
        return f"The sandbox continues as variant {number}.", number

    def interrupt(self) -> None:
        """Interrupts the code that runs in the sandbox and its copies."""
        with self._lock:
            running = [*([self._sandbox] if self._sandbox else []), *self._variants]
        for sandbox in running:
            with suppress(RametError):
                sandbox.interrupt()

    def close(self) -> None:
        self._replace_variants([])
        with self._lock:
            if self._sandbox is not None and self.owns_sandbox:
                self._sandbox.close()
                self._sandbox = None

    def _run(
        self, sandbox: Sandbox, code: str, language: Literal["python", "bash"] = "python"
    ) -> ExecResult:
        return sandbox.run_code(
            code,
            language,
            timeout_seconds=self.timeout_seconds,
            max_output_bytes=MAX_OUTPUT_BYTES,
        )

    def _replace_variants(self, children: list[Sandbox]) -> None:
        with self._lock:
            old, self._variants = self._variants, children
        for child in old:
            child.close()


def _tool(
    name: str,
    description: str,
    arguments: type[BaseModel],
    session: _Session,
    function: Callable[..., tuple[Any, Any]],
) -> BaseTool:
    def run(**given: Any) -> tuple[Any, Any]:
        return _for_the_model(lambda: function(**given))

    async def arun(**given: Any) -> tuple[Any, Any]:
        return await _in_thread(lambda: run(**given), session.interrupt)

    return StructuredTool(
        name=name,
        description=description.replace("\n", " "),
        args_schema=arguments,
        func=run,
        coroutine=arun,
        response_format="content_and_artifact",
        handle_tool_error=True,
    )


def _for_the_model(call: Callable[[], T]) -> T:
    """Raises what the model can do something about as an error message to it."""
    try:
        return call()
    except (BadRequest, CapReached, Conflict) as error:
        raise ToolException(str(error)) from error


async def _in_thread(call: Callable[[], T], interrupt: Callable[[], None]) -> T:
    """Runs a call in a thread; if the task is cancelled, interrupts the call."""
    limiter = anyio.CapacityLimiter(math.inf)
    try:
        return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=limiter)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(interrupt, limiter=limiter)
        raise


def _content(titled: Sequence[tuple[str, ExecResult]]) -> Any:
    """Returns the content of a tool message: text, or blocks if there are pictures."""
    blocks: list[dict[str, Any]] = []
    for title, result in titled:
        blocks.append({"type": "text", "text": title + text_of(result)})
        blocks += [
            {
                "type": "image",
                "base64": base64.b64encode(picture.data).decode(),
                "mime_type": picture.media_type,
            }
            for picture in pictures_of(result)
        ]
    if all(block["type"] == "text" for block in blocks):
        return "\n\n".join(block["text"] for block in blocks)
    return blocks
