# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, as exceptions. `str(error)` is the server's sentence."""

from __future__ import annotations


class RametError(Exception):
    """Base of every error the SDK raises.

    Attributes:
        status: HTTP status, or 0 when there was no answer.
        code: The server's short, stable identifier of the failure ("" without an answer).
        retry_after: Seconds after which a new try makes sense, when the server said so. It is
            None where trying again does not help.
    """

    def __init__(
        self, message: str, *, status: int = 0, code: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after


class PlainHttpWarning(UserWarning):
    """An API key is sent over plain http to another machine."""


class ConnectionFailed(RametError):
    """The service could not be reached, or the connection broke before the answer was whole."""


class BadRequest(RametError):
    """The request is wrong (400, 413, ...); the sentence names the field and the limit."""


class Unauthorized(RametError):
    """The key is missing, wrong or revoked (401), or may not do this (403)."""


class NotFound(RametError):
    """No such sandbox, for this key, or nothing of that name in it (404)."""


class Expired(NotFound):
    """The sandbox existed and its time is over (404, code ``expired``)."""


class Frozen(NotFound):
    """The sandbox is a Space now; the sentence names it (404, code ``frozen``)."""


class SpaceDamaged(RametError):
    """What is on the disk is not what was written: it is kept, and not run (409, code
    ``space_damaged``)."""


class VmDied(RametError):
    """The sandbox's VM died; its state is lost (code ``vm_died``)."""


class Conflict(RametError):
    """The sandbox, file or terminal is not in a state that allows this (409), or left it: a call
    was running in the VM that a merge replaced (code ``merged``)."""


class NoSuchFile(NotFound):
    """No file of that name, or a folder on the way to it is missing (code ``no_such_file``)."""


class FileExists(Conflict):
    """Something has that name already (code ``file_exists``)."""


class IsADirectory(Conflict):
    """It is a folder, and a file was asked for (code ``is_a_directory``)."""


class NotADirectory(Conflict):
    """It, or something on the way to it, is no folder (code ``not_a_directory``)."""


class DirectoryNotEmpty(Conflict):
    """A folder with something in it is removed only when asked for (code ``not_empty``)."""


class PermissionDenied(RametError):
    """The sandbox's system does not allow it (code ``not_permitted``)."""


class DiskFull(RametError):
    """It does not fit on the sandbox's disk; nothing was written (code ``disk_full``)."""


class CapReached(RametError):
    """As many sandboxes, calls, uploads or terminals are there as may be at once (429)."""


class Unavailable(RametError):
    """The host has no room or is not ready (503); `retry_after` says when to try again."""


class ServerError(RametError):
    """The service failed (500); the sentence has the id to look for in its log."""


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


# An error event in a stream has a code, but no status of its own.
_STATUS_OF_CODE = {"expired": 404, "frozen": 404, "deleted": 404, "stopped": 404, "merged": 409}


def stream_error(code: str, message: str) -> RametError:
    """The exception for an error event in the middle of a stream."""
    return error_for(_STATUS_OF_CODE.get(code, 500), code, message)


def error_for(
    status: int, code: str, message: str, retry_after: float | None = None
) -> RametError:
    """The exception that fits an answer of the service best."""
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status)
    if kind is None:
        kind = ServerError if status >= 500 else BadRequest
    return kind(message, status=status, code=code, retry_after=retry_after)
