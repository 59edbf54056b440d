# SPDX-License-Identifier: Apache-2.0
# Generated from _async/process.py by make_sync.py: change that file.
"""Processes: run programs beside the sandbox's Python process."""

from __future__ import annotations

import codecs
from contextlib import suppress
from typing import Callable, Iterator, List, Mapping, Sequence

from ramet._io import Cancelled, beside, finish
from ramet.client import Client
from ramet._output import Output, shares
from ramet._text import plain
from ramet._wire import utf8
from ramet.errors import ProcessFailed, RametError
from ramet.types import ProcessEvent, ProcessInfo, ProcessResult

_WRITE_MAX = 1 << 20  # bytes of input in one request


class Process:
    """A program that runs in a sandbox.

    The process belongs to the sandbox and not to this object: it continues when yours ends, and
    every child of a fork has its own copy. The last 1 MiB of each of its streams is kept for later
    readers.

    Iterate over it to get its events: output as it arrives, and at last the exit event. The object
    from `Processes.start` reads the stream that started the process: a program that prints faster
    than you read has to wait for you, and no output is lost. Other objects may lose the oldest
    output. Any method may be called while another thread iterates.

    Attributes:
        id: For `Processes.attach`.
        pid: Process id in the sandbox.
        place: Offset in the output of the next byte to read, in bytes of both streams together.
        exit_code: Exit code, 128 + signal if it was killed; None until an iteration or `wait` has
            reached the end.
    """

    def __init__(
        self,
        sandbox_id: str,
        client: Callable[[], Client],
        process_id: str,
        pid: int,
        place: int = 0,
        events: Iterator[ProcessEvent] | None = None,
        hangup: bool = False,
    ) -> None:
        self.id = process_id
        self.pid = pid
        self.place = place
        self.exit_code: int | None = None
        self._sandbox = sandbox_id
        self._client = client
        self._events = events
        self._hangup = hangup

    def __iter__(self) -> Iterator[ProcessEvent]:
        """Yields the events that were not read yet, up to the exit event.

        A loop that is left early can be continued by another one, or by `wait`.

        Raises:
            NotFound: The process or its sandbox is gone.
            VmDied: The sandbox's VM died.
            ConnectionFailed: The stream broke off; the next iteration continues at `place`.
        """
        if self._events is None:
            self._events = self._client().process_output(
                self._sandbox, self.id, since=self.place, hangup=self._hangup
            )
        try:
            for event in self._events:
                if event.type == "started":
                    continue
                if event.type == "exit":
                    self.exit_code = event.exit_code
                    self._events = None
                else:
                    self.place = event.place + len(event.raw)
                yield event
        except GeneratorExit:
            raise  # the loop was left early
        except BaseException:
            self._events = None
            raise

    def wait(self, *, max_output_bytes: int | None = None) -> ProcessResult:
        """Reads all output that was not read yet, up to the end of the process.

        Args:
            max_output_bytes: Return at most so many bytes of both streams together, the first
                ones of each; `truncated` is True then. A stream that needs less than half of them
                is returned whole. None: all, however much a program prints, which must fit into
                this program's memory.

        Raises:
            NotFound: The process or its sandbox is gone.
            VmDied: The sandbox's VM died.
            ConnectionFailed: The stream broke off; a second call returns the rest.
        """
        out, err = Output(max_output_bytes), Output(max_output_bytes)
        for event in self:
            if event.type == "stdout":
                out.add(event.raw)
            elif event.type == "stderr":
                err.add(event.raw)
            else:
                kept = shares([len(out.kept), len(err.kept)], max_output_bytes)
                out.cut(kept[0])
                err.cut(kept[1])
                return ProcessResult(
                    stdout_bytes=bytes(out.kept),
                    stderr_bytes=bytes(err.kept),
                    exit_code=event.exit_code or 0,
                    signal=event.signal,
                    timed_out=event.timed_out,
                    truncated=out.truncated or err.truncated,
                )
        raise AssertionError("a stream without an exit event raises")

    def text(self) -> Iterator[str]:
        """Yields what it prints on standard output, as text, up to its end."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for event in self:
            if event.type == "stdout" and (text := decoder.decode(event.raw)):
                yield text
        if rest := decoder.decode(b"", final=True):
            yield rest

    def write(self, data: bytes | str) -> None:
        """Writes to its standard input. Text is sent as UTF-8.

        It returns once the program's pipe has accepted all of the input.

        Raises:
            Conflict: The program has ended, its standard input is closed (code ``stdin_closed``),
                or it did not make room for the next 64 KiB within 30 s (``stdin_full``); part of
                the input may have arrived.
            BadRequest: The text has no UTF-8 form.
            NotFound: The process or its sandbox is gone.
        """
        raw = utf8(data, "the input") if isinstance(data, str) else bytes(data)
        for at in range(0, len(raw), _WRITE_MAX):
            self._client().process_write(self._sandbox, self.id, raw[at : at + _WRITE_MAX])

    def close_stdin(self) -> None:
        """Closes its standard input: the program reads the end of the file.

        Raises:
            NotFound: The process or its sandbox is gone.
        """
        self._client().process_close_stdin(self._sandbox, self.id)

    def signal(self, signal: str | int) -> None:
        """Sends a signal, such as "TERM" or 15, to the program's process group.

        Raises:
            BadRequest: There is no such signal.
            Conflict: The program has ended.
            NotFound: The process or its sandbox is gone.
        """
        self._client().process_signal(self._sandbox, self.id, signal)

    def kill(self) -> None:
        """Sends SIGKILL to all processes of its session. Its output can still be read.

        Raises:
            NotFound: The process or its sandbox is gone.
        """
        self._client().process_kill(self._sandbox, self.id)

    def _kill_quietly(self) -> None:
        """Kills it during a clean-up, which must not take long."""
        with suppress(RametError):
            self._client()._kill_process_briefly(self._sandbox, self.id)

    def _feed(self, data: bytes | str, error: List[RametError]) -> None:
        """Writes all input while another thread reads the output.

        A program may end, or close its standard input, before it has read everything: that is no
        error. After any other failure, the program is killed: it would wait for the rest of its
        input forever.
        """
        try:
            self.write(data)
            self.close_stdin()
        except RametError as failed:
            if failed.code != "stdin_closed":
                error.append(failed)
                self._kill_quietly()

    def info(self) -> ProcessInfo:
        """Returns its present state.

        Raises:
            NotFound: The process or its sandbox is gone.
        """
        return self._client().get_process(self._sandbox, self.id)

    def __repr__(self) -> str:
        return f"<Process {self.id} of {self._sandbox}>"


class Processes:
    """The processes of one sandbox, as returned by `Sandbox.processes`."""

    def __init__(self, sandbox_id: str, client: Callable[[], Client]) -> None:
        self._id = sandbox_id
        self._client = client

    def start(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        stdin: bool = False,
        timeout_seconds: float | None = None,
        detach: bool = False,
        tty: tuple[int, int] | None = None,
        hangup: bool = False,
    ) -> Process:
        """Starts a program and returns once it runs.

        A program that does not exist ends with exit code 127, and a message on standard error.

        Args:
            command: A list is the program and its arguments, which no shell interprets; a string
                is run by `bash -c`.
            cwd: Working directory. None: the user's home directory; without `user`, the working
                directory of the sandbox's Python process.
            env: Environment variables in addition to the usual ones.
            user: Name or uid of a user of the sandbox. None: root.
            stdin: True: `Process.write` reaches the program. False: it reads an empty file.
            timeout_seconds: Time limit; at the limit its processes get SIGTERM, and SIGKILL 2 s
                later.
            detach: True: the program does not wait for a slow reader, and the sandbox does not
                count as active because of it.
            tty: Columns and rows of a terminal to run it on, each 1 to 65535; its output is then
                on standard output only. None: no terminal.
            hangup: True: all processes of its session are killed when this program ends, however
                that happens, or its connection breaks. Not together with `detach`.

        Raises:
            BadRequest: A value is wrong, the user does not exist, or the folder cannot be entered.
            CapReached: Too many processes run.
            NotFound: The sandbox is gone.
        """
        options: dict[str, object] = {
            "command" if isinstance(command, str) else "argv": (
                command if isinstance(command, str) else list(command)
            ),
            "cwd": cwd,
            "env": env,
            "user": user,
            "stdin": stdin,
            "timeout_seconds": timeout_seconds,
            "tty": {"cols": tty[0], "rows": tty[1]} if tty is not None else None,
            "hangup": hangup or None,
        }
        if detach:
            info = self._client().process_start(self._id, options)
            return Process(self._id, self._client, info.id, info.pid)
        events = self._client().process_run(self._id, options)
        started = next(events)
        return Process(
            self._id, self._client, started.id, started.pid, events=events, hangup=hangup
        )

    def run(
        self,
        command: str | Sequence[str],
        *,
        input: bytes | str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        timeout_seconds: float | None = None,
        max_output_bytes: int | None = None,
        check: bool = False,
    ) -> ProcessResult:
        """Runs a program to its end and returns its output.

        KeyboardInterrupt or SystemExit kills the program.

        Args:
            command: As for `start`.
            input: What the program reads from its standard input. None: nothing. If it cannot be
                written, the program is killed.
            cwd: As for `start`.
            env: As for `start`.
            user: As for `start`.
            timeout_seconds: As for `start`.
            max_output_bytes: As for `Process.wait`.
            check: Raise ProcessFailed unless the exit code is 0.

        Raises:
            ProcessFailed: With `check`, the program failed; `result` has its output.
            BadRequest, CapReached, NotFound: As for `start`.
            Conflict: The program did not make room for 64 KiB of its input within 30 s.
            VmDied: The sandbox's VM died.
            ConnectionFailed: The stream broke off. The program is killed, unless it was the service
                that ended: then it continues in the sandbox.
        """
        process = self.start(
            command,
            cwd=cwd,
            env=env,
            user=user,
            stdin=input is not None,
            timeout_seconds=timeout_seconds,
            hangup=True,  # kills it if this task is cancelled before it knows the program's id
        )
        try:
            if input is None:
                result = process.wait(max_output_bytes=max_output_bytes)
                return _checked(command, result) if check else result
            error: List[RametError] = []
            result = beside(
                lambda: process.wait(max_output_bytes=max_output_bytes),
                lambda: process._feed(input, error),
            )
        except Cancelled:
            finish(process._kill_quietly)
            raise
        if error:
            raise error[0]
        return _checked(command, result) if check else result

    def list(self) -> List[ProcessInfo]:
        """Returns all processes and terminals, running and ended ones, oldest first.

        Raises:
            NotFound: The sandbox is gone.
        """
        return self._client().list_processes(self._id)

    def get(self, process_id: str) -> ProcessInfo:
        """Returns the present state of a process.

        Raises:
            NotFound: There is none with this id.
        """
        return self._client().get_process(self._id, process_id)

    def attach(self, process_id: str, *, place: int = 0) -> Process:
        """Returns an object for an existing process.

        A process that has ended can be read until newer ones replace it.

        Args:
            process_id: `Process.id`, or the id of a terminal.
            place: Offset in bytes to read from, such as `Process.place` of a previous reader. 0:
                the oldest output that is kept.

        Raises:
            NotFound: There is none with this id.
        """
        info = self.get(process_id)
        return Process(self._id, self._client, info.id, info.pid, place)


def _checked(command: str | Sequence[str], result: ProcessResult) -> ProcessResult:
    if result.ok and not result.timed_out:
        return result
    name = command if isinstance(command, str) else " ".join(command)
    end = f"ended with exit code {result.exit_code}"
    if result.timed_out:
        end = "was ended at its time limit"
    elif result.signal:
        end = f"was killed by {result.signal}"
    said = result.stderr.strip().rpartition("\n")[2]
    message = f"{plain(name, 200)}: {end}" + (f": {plain(said, 200)}" if said else "")
    raise ProcessFailed(message, result)
