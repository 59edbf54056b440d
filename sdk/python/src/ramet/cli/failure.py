# SPDX-License-Identifier: Apache-2.0
"""How a command ends: exit codes, and messages that say what to do."""

from __future__ import annotations

import sys
from typing import NoReturn

from ramet.cli.output import plain
from ramet.errors import (
    BadRequest,
    CapReached,
    ConnectionFailed,
    Frozen,
    NoSuchFile,
    NotFound,
    PermissionDenied,
    RametError,
    ServerError,
    SpaceDamaged,
    Unauthorized,
    Unavailable,
    VmDied,
)

FAILED = 125  # `ramet` itself failed, as opposed to the command that it runs in a sandbox

# The first class that fits is used.
_REMEDIES: tuple[tuple[type[RametError], str], ...] = (
    (ConnectionFailed, "`ramet doctor` finds the reason; `ramet login` saves another address"),
    (Unauthorized, "`ramet login` saves a key; the environment's RAMET_API_KEY takes precedence"),
    (Frozen, "`ramet resume SPACE` continues it"),
    (NoSuchFile, "`ramet exec ID -- ls -la FOLDER` shows which files there are"),
    (NotFound, "`ramet ls` lists sandboxes, `ramet spaces` Spaces, `ramet checkpoints` checkpoints"),
    (VmDied, "its state is lost; `ramet create` makes a new sandbox"),
    (SpaceDamaged, "`ramet rm SPACE` removes it; ask the operator about the disk"),
    (CapReached, "`ramet rm ID` ends or deletes one, or ask the operator for a higher limit"),
    (PermissionDenied, "programs in a sandbox run as root: is the file system read-only?"),
    (ServerError, "tell the operator of the service, with this message"),
)


class Ended(SystemExit):
    """The end of a command with an exit code, as opposed to that of the parser's own errors."""


class Failure(Exception):
    """A command cannot do what it was asked to.

    Args:
        message: What failed, with which value.
        remedy: What the user can do; may be empty.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy


def remedy_of(error: BaseException) -> str:
    """Returns a sentence that says what the user can do, or an empty string."""
    if isinstance(error, Failure):
        return error.remedy
    if isinstance(error, RametError) and error.retry_after is not None:
        return f"try again in {error.retry_after:g} s"
    if type(error) in (BadRequest, NotFound, ServerError) and not getattr(error, "code", ""):
        return "is the address right? `ramet login URL` saves another one; or a proxy has answered"
    if isinstance(error, Unavailable):
        return "ask the operator: waiting does not help"
    for kind, remedy in _REMEDIES:
        if isinstance(error, kind):
            return remedy
    return ""


def complain(error: BaseException) -> None:
    """Prints an error and its remedy on standard error."""
    print(f"ramet: {plain(str(error))}", file=sys.stderr)
    if remedy := remedy_of(error):
        print(f"  {remedy}", file=sys.stderr)


def end(code: int) -> NoReturn:
    """Ends the command with an exit code."""
    raise Ended(code)
