# SPDX-License-Identifier: Apache-2.0
"""`ramet python`: a prompt for the persistent Python process of a sandbox."""

from __future__ import annotations

import codeop
import os
import sys
import warnings
from pathlib import Path

from ramet import Sandbox
from ramet.cli import terminal
from ramet.cli.programs import run_code

_HISTORY_LINES = 10_000
_LEAVE = ("exit", "exit()", "quit", "quit()")  # in the sandbox, they would end nothing


def run(sandbox: Sandbox) -> int:
    """Reads and runs code up to the end of standard input; returns the exit code.

    With a terminal, it prompts for one statement after the other. Otherwise all of the input is one
    program, whose exit code is returned.
    """
    if not terminal.is_terminal():
        return run_code(sandbox, sys.stdin.read(), results=True)
    print(f"Python in {sandbox.id}. Its variables stay when you leave with Ctrl-D.")
    history = _history()
    try:
        _prompt(sandbox)
    finally:
        _save(history)
    return 0


def is_complete(code: str) -> bool:
    """Returns False if more lines must follow, as Python's own prompt decides it.

    Code that this machine's Python does not accept is complete: the sandbox's Python may be newer,
    and it knows `!command`, `%pip` and `await` too.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return codeop.compile_command(code, "<stdin>", "single") is not None
    except (SyntaxError, ValueError, OverflowError):
        return True


def _prompt(sandbox: Sandbox) -> None:
    lines: list[str] = []
    while True:
        try:
            lines.append(input("... " if lines else ">>> "))
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print("\nKeyboardInterrupt")
            lines = []
            continue
        code = "\n".join(lines)
        if code.strip() in _LEAVE:
            return
        if not code.strip():
            lines = []
        elif is_complete(code):
            run_code(sandbox, code, results=True)
            lines = []


def _history() -> Path:
    """Loads the history of earlier sessions, and returns its path."""
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    at = Path(home) / "ramet" / "python_history"
    try:
        import readline

        readline.read_history_file(at)
    except (ImportError, OSError):  # no readline here, or no history yet
        pass
    return at


def _save(at: Path) -> None:
    try:
        import readline

        at.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        readline.set_history_length(_HISTORY_LINES)
        readline.write_history_file(at)
        at.chmod(0o600)
    except (ImportError, OSError) as failed:
        print(f"ramet: warning: the history was not saved: {failed}", file=sys.stderr)
