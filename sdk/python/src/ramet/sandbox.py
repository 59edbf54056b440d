# SPDX-License-Identifier: Apache-2.0
"""The sandbox as a program holds it."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Iterator, Mapping

from ramet.client import Client
from ramet.errors import NotFound, VmDied
from ramet.types import Event, ExecResult, Language, SandboxInfo


class Sandbox:
    """A running sandbox: a Linux microVM with a persistent Python process.

    Creating the object creates the sandbox; `close`, or leaving the `with` block, ends it.

    Args:
        template: Name of the template to start from. None: the service's default.
        vcpus: Virtual CPUs, 1 to 32. None: the template's.
        ram_mib: Memory in MiB. None: the template's.
        rootfs_gb: Root disk in GiB. None: the template's.
        timeout_seconds: Lifetime in seconds. None: the service's default.
        idle_timeout_seconds: Seconds without activity after which it ends. None: the default.
        env: Environment variables of every call.
        metadata: JSON object kept with the sandbox.
        client: The service to use. None: a client of its own from the environment.

    Raises:
        BadRequest: A value is wrong; the message names it.
        ConnectionFailed: No service answers.
        Unavailable: The host has no room.
    """

    id: str

    def __init__(
        self,
        *,
        template: str | None = None,
        vcpus: int | None = None,
        ram_mib: int | None = None,
        rootfs_gb: int | None = None,
        timeout_seconds: int | None = None,
        idle_timeout_seconds: int | None = None,
        env: Mapping[str, str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        client: Client | None = None,
    ) -> None:
        self._owns_client = client is None
        self._client = client or Client()
        self._closed = False
        try:
            self.id = self._client.create_sandbox(
                template=template,
                vcpus=vcpus,
                ram_mib=ram_mib,
                rootfs_gb=rootfs_gb,
                timeout_seconds=timeout_seconds,
                idle_timeout_seconds=idle_timeout_seconds,
                env=env,
                metadata=metadata,
            ).id
        except BaseException:
            self._release_client()
            raise

    @classmethod
    def connect(cls, sandbox_id: str, *, client: Client | None = None) -> "Sandbox":
        """Takes hold of a sandbox that exists already.

        Raises:
            NotFound: There is none with this id.
        """
        sandbox = cls.__new__(cls)
        sandbox._owns_client = client is None
        sandbox._client = client or Client()
        sandbox._closed = False
        try:
            sandbox.id = sandbox._client.get_sandbox(sandbox_id).id
        except BaseException:
            sandbox._release_client()
            raise
        return sandbox

    def run_code(
        self,
        code: str,
        language: Language = "python",
        *,
        timeout_seconds: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> ExecResult:
        """Runs code and returns all it produced. An exception in the code is no exception here:
        it is in `stderr`, with exit code 1.

        Args:
            code: Source text, taken verbatim; indented blocks are fine.
            language: "python" (state is kept from call to call) or "bash" (a fresh process).
            timeout_seconds: Limit of the call in seconds; past it the call is interrupted.
            env: Environment variables of this call.
            cwd: Working directory of this call.

        Raises:
            NotFound: The sandbox is gone.
            VmDied: Its VM died during the call.
        """
        stdout, stderr = bytearray(), bytearray()
        exit_code = -1
        for event in self.run_code_stream(
            code, language, timeout_seconds=timeout_seconds, env=env, cwd=cwd
        ):
            if event.type == "stdout":
                stdout += event.raw
            elif event.type == "stderr":
                stderr += event.raw
            elif event.code is not None:
                exit_code = event.code
        return ExecResult(
            stdout=stdout.decode(errors="replace"),
            stderr=stderr.decode(errors="replace"),
            exit_code=exit_code,
        )

    def run_code_stream(
        self,
        code: str,
        language: Language = "python",
        *,
        timeout_seconds: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Iterator[Event]:
        """As `run_code`, but yields output as soon as it is there; the last event is the exit."""
        return self._client.exec_stream(
            self.id, code, language, timeout_seconds=timeout_seconds, env=env, cwd=cwd
        )

    def interrupt(self) -> None:
        """Interrupts the running call, as Ctrl-C would: it ends with exit code 130."""
        self._client.interrupt(self.id)

    def info(self) -> SandboxInfo:
        """What the service says of this sandbox now."""
        return self._client.get_sandbox(self.id)

    def replay(self) -> list[Event]:
        """The sandbox's last events (up to 1,000), oldest first."""
        return self._client.replay(self.id)

    def close(self) -> None:
        """Ends the sandbox. Closing twice, or one that is gone already, is fine."""
        if self._closed:
            return
        self._closed = True
        try:
            self._client.delete_sandbox(self.id)
        except (NotFound, VmDied):
            pass
        finally:
            self._release_client()

    def _release_client(self) -> None:
        if self._owns_client:
            self._client.close()

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Sandbox {self.id} at {self._client.host}>"
