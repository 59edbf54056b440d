# SPDX-License-Identifier: Apache-2.0
# Generated from _async/context.py by make_sync.py: change that file.
"""Contexts: further interpreters beside the sandbox's default Python process."""

from __future__ import annotations

from typing import Callable, Iterator, List, Mapping

from ramet._collect import collect
from ramet.client import Client
from ramet.results import CodeError, Result
from ramet.types import ContextInfo, ContextLanguage, Event, ExecResult


class Context:
    """An interpreter with a process, a state and a queue of its own.

    Calls of one context run one after the other, and contexts run side by side with each other and
    with the default Python process. A bash context keeps its variables, functions and working
    directory from call to call; a JavaScript context is a Node process, in which `await` works
    outside of functions.

    The context belongs to the sandbox and not to this object: it exists until it is deleted, and
    every child of a fork has its own copy. When its process ends, for example by `exit`, a new one
    replaces it, without the state.

    Attributes:
        id: For `Contexts.attach`.
        language: "python", "bash" or "javascript".
        cwd: The working directory that it was started in; None: the home directory.
    """

    def __init__(
        self, sandbox_id: str, client: Callable[[], Client], info: ContextInfo
    ) -> None:
        self.id = info.id
        self.language = info.language
        self.cwd = info.cwd
        self._sandbox = sandbox_id
        self._client = client

    def run_code(
        self,
        code: str,
        *,
        timeout_seconds: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        results: bool = True,
        on_stdout: Callable[[str], object] | None = None,
        on_stderr: Callable[[str], object] | None = None,
        on_result: Callable[[Result], object] | None = None,
        on_error: Callable[[CodeError], object] | None = None,
        max_output_bytes: int | None = None,
    ) -> ExecResult:
        """Runs code in the context and returns all its output.

        An error in the code is not raised here: its message is in `stderr`, and the exit code is
        not 0.

        Args:
            code: Source text in the context's language.
            timeout_seconds: Time limit of the call in seconds; at the limit it is interrupted, and
                killed if it does not end. The exit code is 124 then.
            env: Environment variables of this call.
            cwd: Working directory of this call.
            results: Return results and the exception of Python code too.
            on_stdout: Called with the text of each output event, when it arrives.
            on_stderr: Likewise.
            on_result: Called with each result, when it arrives.
            on_error: Called with the exception that ended the call.
            max_output_bytes: As for `Sandbox.run_code`.

        Raises:
            NotFound: The context or its sandbox is gone.
            VmDied: Its VM died during the call.
            ConnectionFailed: The connection broke; the call continues, see `Sandbox.follow`.
        """
        return collect(
            self.run_code_stream(
                code, timeout_seconds=timeout_seconds, env=env, cwd=cwd, results=results
            ),
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            on_result=on_result,
            on_error=on_error,
            max_output_bytes=max_output_bytes,
        )

    def run_code_stream(
        self,
        code: str,
        *,
        timeout_seconds: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        results: bool = True,
    ) -> Iterator[Event]:
        """Like `run_code`, but yields output as it is produced; the last event is the exit event.

        Raises: As `run_code`, while the events are iterated over.
        """
        return self._client().exec_stream(
            self._sandbox,
            code,
            None,
            timeout_seconds=timeout_seconds,
            env=env,
            cwd=cwd,
            results=results and self.language == "python",
            context=self.id,
        )

    def interrupt(self) -> None:
        """Interrupts the running call, like Ctrl-C: it ends with exit code 130 unless the code
        handles the interrupt. Does nothing if no call runs.

        Raises:
            NotFound: The context or its sandbox is gone.
        """
        self._client().interrupt(self._sandbox, context_id=self.id)

    def restart(self) -> None:
        """Kills the interpreter and the processes that it started, and starts it again without its
        state. The running call ends; waiting calls run afterwards.

        Raises:
            NotFound: The context or its sandbox is gone.
        """
        self._client().context_restart(self._sandbox, self.id)

    def delete(self) -> None:
        """Kills the interpreter and the processes that it started. The running call ends, and
        waiting calls fail.

        Raises:
            NotFound: The context or its sandbox is gone.
        """
        self._client().context_delete(self._sandbox, self.id)

    def info(self) -> ContextInfo:
        """Returns the context's present state.

        Raises:
            NotFound: The context or its sandbox is gone.
        """
        return self._client().context_get(self._sandbox, self.id)

    def __repr__(self) -> str:
        return f"<Context {self.id} ({self.language}) of {self._sandbox}>"


class Contexts:
    """The contexts of one sandbox, as returned by `Sandbox.contexts`."""

    def __init__(self, sandbox_id: str, client: Callable[[], Client]) -> None:
        self._id = sandbox_id
        self._client = client

    def create(
        self,
        language: ContextLanguage = "python",
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Context:
        """Starts a context; a sandbox may have 16.

        Args:
            language: "python", "bash" or "javascript", which needs Node in the template.
            cwd: Working directory. None: the home directory.
            env: Environment variables in addition to the sandbox's own.

        Raises:
            BadRequest: A value is wrong, or the folder cannot be entered.
            Conflict: The language is not installed in the sandbox.
            CapReached: The sandbox has 16 contexts already.
            NotFound: The sandbox is gone.
        """
        info = self._client().context_create(self._id, language, cwd=cwd, env=env)
        return Context(self._id, self._client, info)

    def attach(self, context_id: str) -> Context:
        """Returns an object for an existing context, for example in the child of a fork.

        Raises:
            NotFound: There is none with this id.
        """
        return Context(
            self._id, self._client, self._client().context_get(self._id, context_id)
        )

    def list(self) -> List[Context]:
        """Returns all contexts, oldest first.

        Raises:
            NotFound: The sandbox is gone.
        """
        return [
            Context(self._id, self._client, info)
            for info in self._client().context_list(self._id)
        ]
