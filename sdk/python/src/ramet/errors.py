# SPDX-License-Identifier: Apache-2.0
"""The SDK's exceptions. `str(error)` is the server's message, which may contain text of a sandbox:
characters that control a terminal, or that forge or hide lines of a log, are escaped as in JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ramet._text import plain

if TYPE_CHECKING:
    from ramet.types import ProcessResult


class RametError(Exception):
    """Base of every error the SDK raises.

    Attributes:
        status: HTTP status, or 0 if there was no answer.
        code: The server's short, stable identifier of the failure ("" without an answer).
        retry_after: Seconds after which to retry, if the server named a time; otherwise None.
    """

    def __init__(
        self, message: str, *, status: int = 0, code: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after

    def __str__(self) -> str:
        return plain(super().__str__())


class PlainHttpWarning(UserWarning):
    """An API key is sent over plain http to another machine."""


class IncompleteListWarning(UserWarning):
    """A list lacks what some hosts of a fleet have, since they did not answer."""


class ConnectionFailed(RametError):
    """The service could not be reached, or the connection broke before the end of the answer."""


class BadRequest(RametError):
    """The request is wrong (400, 413, ...); the message names the field and the limit."""


class Unauthorized(RametError):
    """The key is missing, wrong or revoked (401), or may not do this (403)."""


class NotFound(RametError):
    """There is no such sandbox for this key, or no such object in it (404)."""


class Expired(NotFound):
    """The sandbox existed, but its lifetime is over (404, code ``expired``)."""


class Frozen(NotFound):
    """The sandbox is a Space now; the message names it (404, code ``frozen``)."""


class SpaceDamaged(RametError):
    """The Space's files differ from what was written. The Space is kept, but cannot be resumed
    (409, code ``space_damaged``)."""


class VmDied(RametError):
    """The sandbox's VM died; its state is lost (code ``vm_died``)."""


class Conflict(RametError):
    """The state of the sandbox, file or process does not allow the request (409), or the VM in
    which the call was running was replaced, by a merge (code ``merged``) or a rollback
    (``rolled_back``)."""


class NoSuchFile(NotFound):
    """The file, or a folder of its path, does not exist (code ``no_such_file``)."""


class FileExists(Conflict):
    """The name is already taken (code ``file_exists``)."""


class IsADirectory(Conflict):
    """The path is a folder, and a file was expected (code ``is_a_directory``)."""


class NotADirectory(Conflict):
    """The path, or a part of it, is not a folder (code ``not_a_directory``)."""


class DirectoryNotEmpty(Conflict):
    """The folder is not empty, and `recursive` was not set (code ``not_empty``)."""


class PermissionDenied(RametError):
    """The sandbox's operating system does not permit it (code ``not_permitted``)."""


class DiskFull(RametError):
    """The data does not fit on the sandbox's disk; nothing was written (code ``disk_full``)."""


class CapReached(RametError):
    """A limit is reached, for example of sandboxes, disk space or requests per second (429)."""


class Unavailable(RametError):
    """The host has no room or is not ready (503); `retry_after` says when to retry."""


class ServerError(RametError):
    """The service failed (500). If the message contains an id, look for it in the service's log."""


class ProcessFailed(RametError):
    """A program of `processes.run(..., check=True)` did not end with exit code 0.

    Attributes:
        result: Its output and its end.
    """

    def __init__(self, message: str, result: "ProcessResult") -> None:
        super().__init__(message, code="process_failed")
        self.result = result


_BY_CODE: dict[str, type[RametError]] = {
    "expired": Expired,
    "frozen": Frozen,
    "space_damaged": SpaceDamaged,
    "vm_died": VmDied,
    "no_such_file": NoSuchFile,
    "file_exists": FileExists,
    "is_a_directory": IsADirectory,
    "not_a_directory": NotADirectory,
    "not_empty": DirectoryNotEmpty,
    "not_permitted": PermissionDenied,
    "disk_full": DiskFull,
}
_BY_STATUS: dict[int, type[RametError]] = {
    401: Unauthorized,
    403: Unauthorized,
    404: NotFound,
    409: Conflict,
    429: CapReached,
    503: Unavailable,
}


# An error event in a stream has a code, but no HTTP status.
_STATUS_OF_CODE = {
    "expired": 404,
    "frozen": 404,
    "deleted": 404,
    "stopped": 404,
    "tree_limit": 404,
    "merged": 409,
    "rolled_back": 409,
}


def stream_error(code: str, message: str) -> RametError:
    """Returns the exception for an error event in the middle of a stream."""
    return error_for(_STATUS_OF_CODE.get(code, 500), code, message)


def error_for(
    status: int, code: str, message: str, retry_after: float | None = None
) -> RametError:
    """Returns the most specific exception for an answer of the service."""
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status)
    if kind is None:
        kind = ServerError if status >= 500 else BadRequest
    return kind(message, status=status, code=code, retry_after=retry_after)
