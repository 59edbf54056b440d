# SPDX-License-Identifier: Apache-2.0
"""Runs programs and code in a sandbox, with this program's input and output."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
import threading
import time
import uuid
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterable, Iterator, Mapping, Sequence

from ramet import ConnectionFailed, Event, Process, ProcessEvent, RametError, Sandbox
from ramet.cli import copying, terminal
from ramet.cli.failure import Failure, complain
from ramet.cli.output import STDERR, STDOUT, plain, put

TIMED_OUT = 124  # the exit code at a time limit, as of timeout(1), and of calls
_RECONNECT_S = 30.0  # how long a broken stream is tried again
_RESTORE_INPUT = "if sys.stdin is not sys.__stdin__: sys.stdin.close(); sys.stdin = sys.__stdin__"
_LOGIN_SHELL = "command -v bash >/dev/null && exec bash -l; exec sh -l"


@dataclass(frozen=True)
class Options:
    """How a program is run.

    Attributes:
        interactive: Pass this program's standard input on.
        tty: Run it on a terminal of the size of this one.
        env: Environment variables in addition to the sandbox's.
        cwd: Working directory; None: the sandbox's default.
        user: Name or uid; None: root.
        timeout_seconds: Time limit; None: no limit.
    """

    interactive: bool = False
    tty: bool = False
    env: Mapping[str, str] | None = None
    cwd: str | None = None
    user: str | None = None
    timeout_seconds: int | None = None

    @property
    def of_its_own(self) -> bool:
        """True if a Python file cannot run in the persistent Python process."""
        return bool(self.interactive or self.tty or self.user)


def shell(sandbox: Sandbox, options: Options) -> int:
    """Runs a login shell on a terminal; returns its exit code."""
    return run(sandbox, ["/bin/sh", "-c", _LOGIN_SHELL], options)


def run(sandbox: Sandbox, command: Sequence[str], options: Options) -> int:
    """Runs a program with this program's output, and input if `interactive`; returns its exit code.

    The program ends with this one: when the reader of its output is gone, and at any signal.

    Raises:
        Failure: A terminal was requested, and standard input is none.
    """
    if options.tty and options.interactive and not terminal.is_terminal():
        raise Failure("standard input is not a terminal", "leave out -t")
    process = start(sandbox, command, options)
    with ExitStack() as scope:
        if options.tty:
            resize = sandbox.pty.attach(process.id).resize
            scope.enter_context(terminal.on_resize(lambda *size: _try(resize, *size)))
        if options.tty and options.interactive:
            scope.enter_context(terminal.raw())
        else:
            scope.enter_context(terminal.on_interrupt(lambda count: _interrupt(process, count)))
        if options.interactive:
            over = threading.Event()
            scope.callback(over.set)
            feeder = threading.Thread(
                target=_feed, args=(process, options.tty, over), daemon=True
            )
            feeder.start()
        return copy_output(process)


def start(
    sandbox: Sandbox, command: Sequence[str], options: Options, *, detach: bool = False
) -> Process:
    """Starts a program in a sandbox. Unless it is detached, it ends with this program."""
    env = dict(options.env or {})
    if options.tty:
        env.setdefault("TERM", os.environ.get("TERM", "xterm"))
    return sandbox.processes.start(
        list(command),
        cwd=options.cwd,
        env=env or None,
        user=options.user,
        stdin=options.interactive and not options.tty,
        timeout_seconds=options.timeout_seconds,
        tty=terminal.size() if options.tty else None,
        detach=detach,
        hangup=not detach,
    )


def copy_output(process: Process, until: int | None = None) -> int:
    """Writes the output of a process to this program's, up to its end, or to an offset in bytes;
    returns its exit code, or 0 before its end."""
    code = 0
    for event in _events(process):
        if event.type == "exit":
            code = event.exit_code or 0
            if event.timed_out:  # whatever it made of the signal
                print("ramet: the program was ended at its time limit", file=sys.stderr)
                code = TIMED_OUT
        else:
            put(STDERR if event.type == "stderr" else STDOUT, event.raw)
            if until is not None and process.place >= until:
                break
    return code


Task = Callable[[Sandbox], int]
"""Does what `ramet run` was asked to, in a sandbox; returns the exit code."""


def task(
    words: Sequence[str], options: Options, *, is_command: bool, along: Sequence[str]
) -> Task:
    """Reads what is to be run in a new sandbox, before the sandbox is made for it.

    Args:
        words: The words of the command line: a local file or a command, and its arguments.
        options: How to run it.
        is_command: The first word is no local file, whatever its name is.
        along: Local files and folders that are copied into the working directory.

    Raises:
        Failure: A local file cannot be read.
    """
    if along:
        options = _with_folder(along, options)
    if not is_command and (words[0] == "-" or words[0].endswith(".py")):
        work = _python_task(words, read_source(words[0], options), bool(along), options)
    elif not is_command and _is_script(words[0]):
        work = _script_task(words, Path(words[0]).read_bytes(), _with_input(options))
    else:
        work = functools.partial(run, command=words, options=_with_input(options))

    def run_task(sandbox: Sandbox) -> int:
        if along:
            assert options.cwd is not None
            sandbox.files.mkdir(options.cwd, parents=True)
        for path in along:
            copying.upload(sandbox, path, f"{options.cwd}/")
        return work(sandbox)

    return run_task


def _with_folder(along: Sequence[str], options: Options) -> Options:
    """Returns the options with a working directory, for the files that are taken along."""
    for path in along:
        if not os.path.exists(path):
            raise Failure(f"{path}: there is no such file or folder")
    if options.user and not options.cwd:
        raise Failure("--with copies into the working directory", "name one that the user can read: -w")
    return dataclasses.replace(options, cwd=options.cwd or copying.HOME)


def _with_input(options: Options) -> Options:
    """Returns the options with this program's standard input, if there is one besides a terminal."""
    given = terminal.has_input() and not options.tty
    return dataclasses.replace(options, interactive=True) if given else options


def _is_script(file: str) -> bool:
    """Returns True for a local file whose first line names the program that runs it."""
    try:
        if not os.path.isfile(file):
            return False
        with open(file, "rb") as script:
            return script.read(2) == b"#!"
    except OSError:
        return False


def _script_task(words: Sequence[str], source: bytes, options: Options) -> Task:
    def work(sandbox: Sandbox) -> int:
        remote = f"/tmp/{Path(words[0]).name}"
        sandbox.upload(source, remote, mode=0o755)
        return run(sandbox, [remote, *words[1:]], options)

    return work


def _python_task(words: Sequence[str], source: bytes, imports: bool, options: Options) -> Task:
    """Returns the task of a Python file; with `imports`, modules are in the working directory."""

    def work(sandbox: Sandbox) -> int:
        if not options.of_its_own:
            return _run_in_process(sandbox, words, source, imports, options)
        own = _with_input(options)
        if imports:
            own = dataclasses.replace(own, env={"PYTHONPATH": own.cwd or "", **(own.env or {})})
        remote = f"/tmp/{Path(words[0]).name}"
        sandbox.upload(source, remote)
        return run(sandbox, ["python3", "-u", remote, *words[1:]], own)

    return work


def _run_in_process(
    sandbox: Sandbox, words: Sequence[str], source: bytes, imports: bool, options: Options
) -> int:
    """Runs a program in the sandbox's persistent Python process; returns its exit code."""
    code = f"import sys; sys.argv[:] = {list(words)!r}"
    if words[0] != "-":
        code += f"; __file__ = {words[0]!r}"
    if imports:
        code += f"; sys.path.insert(0, {options.cwd!r})"
    sandbox.run_code(code, results=False)
    with _input_of(sandbox) if words[0] != "-" and terminal.has_input() else nullcontext():
        return run_code(sandbox, source.decode(), options)


@contextmanager
def _input_of(sandbox: Sandbox) -> Iterator[None]:
    """Lets `sys.stdin` of the persistent Python process, which has none, be this program's input."""
    pipe, over = f"/tmp/.ramet-input-{uuid.uuid4().hex}", threading.Event()
    sandbox.processes.run(["mkfifo", "-m", "600", pipe], check=True)
    writer = sandbox.processes.start(
        ["sh", "-c", 'exec cat >"$0"', pipe], stdin=True, hangup=True
    )
    try:
        opened = f"import os, sys; sys.stdin = open({pipe!r}); os.remove({pipe!r})"
        sandbox.run_code(opened, results=False)
        threading.Thread(target=_feed, args=(writer, False, over), daemon=True).start()
        yield
        sandbox.run_code(_RESTORE_INPUT, results=False)
    finally:
        over.set()
        _try(writer.kill)


def run_code(
    sandbox: Sandbox, code: str, options: Options = Options(), *, results: bool = False
) -> int:
    """Runs code in the sandbox's persistent Python process; returns its exit code.

    The code is interrupted when this program ends, or when the reader of its output is gone.

    Args:
        sandbox: The sandbox.
        code: The code.
        options: Its `env`, `cwd` and `timeout_seconds`.
        results: Print the value of the last expression, and what `display()` shows, as text.
    """
    events = sandbox.run_code_stream(
        code,
        timeout_seconds=options.timeout_seconds,
        env=options.env,
        cwd=options.cwd,
        results=results,
        hangup=True,
    )
    with terminal.on_interrupt(lambda count: _interrupt_call(sandbox, count)):
        return show(events)


def show(events: Iterable[Event]) -> int:
    """Writes the output of calls to this program's; returns the exit code of the last one."""
    code = 0
    for event in events:
        if event.type == "exit":
            code = event.code or 0
        elif event.type in ("stdout", "stderr"):
            put(STDERR if event.type == "stderr" else STDOUT, event.raw)
        elif event.result is not None and event.result.text is not None:
            put(STDOUT, event.result.text.encode(errors="replace") + b"\n")
        elif event.type == "error" and event.error is None:  # as `replay` reports a lost call
            print(f"ramet: {plain(str(event.data))}", file=sys.stderr)
    return code


def read_source(file: str, options: Options) -> bytes:
    """Returns the Python program in a local file, or in standard input.

    Args:
        file: Path of the file, or "-" for standard input.
        options: How it will be run.

    Raises:
        Failure: The program cannot be read, or would be its own input.
    """
    if file == "-" and options.of_its_own:
        message = "the program cannot be read from the input that it is to get"
        raise Failure(message, "write it to a file: `ramet run -i FILE.py`")
    try:
        source = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        source.decode()
        return source
    except OSError as failed:
        remedy = "write `ramet run -- python3 FILE` for a file in the sandbox"
        raise Failure(f"{file}: {failed.strerror}", remedy) from failed
    except UnicodeDecodeError as failed:
        raise Failure(f"{file} is not UTF-8: {failed}", "save it as UTF-8") from failed


def _events(process: Process) -> Iterator[ProcessEvent]:
    """Yields the events of a process, and continues where a stream broke off."""
    broken_at: float | None = None
    while True:
        try:
            for event in process:
                broken_at = None
                yield event
            return
        except ConnectionFailed:
            broken_at = broken_at or time.monotonic()
            if time.monotonic() - broken_at > _RECONNECT_S:
                raise
            time.sleep(0.5)


def _feed(process: Process, tty: bool, over: threading.Event) -> None:
    """Writes standard input to the process, up to the end of either. Once it is `over`, failures
    are those of a sandbox or client that has been closed."""
    try:
        for data in terminal.read_keys():
            process.write(data)
        if not tty:
            process.close_stdin()
    except RametError as failed:
        if over.is_set():
            return
        if failed.code not in ("stdin_closed", "pty_ended", "process_ended", "no_such_process"):
            complain(failed)
            _try(process.kill)


def _interrupt(process: Process, count: int) -> None:
    """Passes Ctrl-C on: first as an interrupt, the third time it kills."""
    if count < 3:
        _try(process.signal, "INT")
    else:
        _try(process.kill)


def _interrupt_call(sandbox: Sandbox, count: int) -> None:
    _try(sandbox.interrupt)
    if count == 3:
        print("ramet: the code ignores Ctrl-C; press it once more to leave", file=sys.stderr)


def _try(request: Callable[..., object], *arguments: object) -> None:
    """Sends a request whose failure the main thread notices in its own stream."""
    with suppress(RametError):
        request(*arguments)
