# SPDX-License-Identifier: Apache-2.0
"""Files of a sandbox with the permissions of one of its users, and Python's own errors.

The file requests of the service act as root. For another user, a program first checks, as that
user, what the request is about to do. A program of that user which exchanges links at that very
moment can make the request act on a file of root: a sandbox protects its host, but whatever must
be hidden from the agent does not belong in the agent's sandbox.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import Iterator, Literal

from ramet import AsyncSandbox, FileInfo, RametError
from ramet.integrations._results import MAX_CHECK_BYTES, MAX_ENTRIES

Operation = Literal["read", "write", "list", "stat", "mkdir", "remove"]

_BASE = 100  # a script exits with this plus the errno

# `fail PATH` ends a script: a folder of the path is a file, cannot be searched, or is missing.
_FAIL = """
fail() {
  d=$1
  while d=${d%/*}; [ "$d" ]; do
    if [ -d "$d" ]; then [ -x "$d" ] || exit 113; exit "$2"; fi
    [ ! -e "$d" ] || exit 120
  done
  exit "$2"
}
f=$1
"""

# `:` would end a shell whose redirection fails, `true` does not.
_SCRIPTS: dict[Operation, str] = {
    "read": """
[ ! -d "$f" ] || exit 121
[ -e "$f" ] || fail "$f" 102
[ -f "$f" ] || exit 122
[ -r "$f" ] || exit 113
""",
    "write": """
[ ! -d "$f" ] || exit 121
mkdir -p -- "${f%/*}/" 2>/dev/null || fail "$f" 113
[ ! -e "$f" ] || [ -f "$f" ] || exit 122
{ true >>"$f"; } 2>/dev/null || fail "$f" 113
""",
    "list": """
[ -e "$f" ] || fail "$f" 102
[ -d "$f" ] || exit 120
[ -r "$f" ] && [ -x "$f" ] || exit 113
""",
    "stat": """
[ -e "$f" ] || [ -L "$f" ] || fail "$f" 102
""",
    "mkdir": """
[ ! -e "$f" ] || [ -d "$f" ] || exit 117
mkdir -p -- "$f" 2>/dev/null || fail "$f" 113
""",
    "remove": """
[ -e "$f" ] || [ -L "$f" ] || fail "$f" 102
rm -rf -- "$f" 2>/dev/null || exit 113
""",
}

_MAKE = '[ -e "$1" ] || { mkdir -p -- "$1" && chown -- "$2" "$1"; }'
_ENTER = 'cd -- "${1:-$HOME}" && pwd -P'

_ERRNO = {
    "no_such_file": errno.ENOENT,
    "is_a_directory": errno.EISDIR,
    "not_a_directory": errno.ENOTDIR,
    "not_a_file": errno.EINVAL,
    "not_permitted": errno.EACCES,
    "file_exists": errno.EEXIST,
    "not_empty": errno.ENOTEMPTY,
    "disk_full": errno.ENOSPC,
    "file_busy": errno.EBUSY,
    "too_large": errno.EFBIG,
    "bad_path": errno.EINVAL,
}


def file_error(number: int, path: str) -> OSError:
    """Returns Python's exception for a number of `errno`, such as FileNotFoundError."""
    return OSError(number, os.strerror(number), path)


@contextmanager
def file_errors(path: str) -> Iterator[None]:
    """Raises the service's errors about a file as Python's; other errors pass."""
    try:
        yield
    except RametError as failed:
        number = _ERRNO.get(failed.code)
        if number is None:
            raise
        raise file_error(number, path) from failed


def check_of(operation: Operation, path: str) -> list[str]:
    """Returns the program that checks, as the user that runs it, whether an operation may go on.

    "mkdir" and "remove" do all of it, and "write" creates the file.
    """
    return ["/bin/sh", "-c", _FAIL + _SCRIPTS[operation], "sh", path]


def raise_for_check(exit_code: int, path: str, stderr: str) -> None:
    """Raises what the check's exit code stands for; returns if the operation may go on.

    Raises:
        OSError: Or a subclass, such as PermissionError.
    """
    if exit_code > _BASE:
        raise file_error(exit_code - _BASE, path)
    if exit_code:
        raise OSError(errno.EIO, f"cannot check the file: {stderr.strip()}", path)


async def enter_folder(sandbox: AsyncSandbox, user: str | None, folder: str | None) -> str:
    """Returns the absolute path, without links, of the folder that an agent works in.

    Args:
        sandbox: Where the folder is.
        user: The agent's user. None: root.
        folder: Absolute path; a missing folder is created, and belongs to the user. None: the
            user's home.

    Raises:
        OSError: The folder cannot be created, or the user may not enter it.
    """
    if folder is not None:
        await _run(sandbox, None, _MAKE, folder, user or "root")
    return (await _run(sandbox, user, _ENTER, folder or "")).removesuffix("\n")


async def _run(sandbox: AsyncSandbox, user: str | None, script: str, *words: str) -> str:
    """Returns what a script for the working folder prints."""
    result = await sandbox.processes.run(
        ["/bin/sh", "-c", script, "sh", *words], user=user, max_output_bytes=MAX_CHECK_BYTES
    )
    if not result.ok:
        raise OSError(f"the working directory cannot be entered: {result.stderr.strip()}")
    return result.stdout


class UserFiles:
    """Files of a sandbox as one of its users sees them.

    All methods raise Python's errors (FileNotFoundError, IsADirectoryError, NotADirectoryError,
    PermissionError and other OSErrors), and NotFound or VmDied if the sandbox is gone. Paths are
    absolute.

    Args:
        sandbox: Whose files.
        user: Name or number of the user. None: root.
    """

    def __init__(self, sandbox: AsyncSandbox, user: str | None) -> None:
        self._sandbox = sandbox
        self._user = user

    async def read(self, path: str, *, max_bytes: int) -> bytes:
        """Returns the content of a file. One with more than `max_bytes` is an OSError (EFBIG)."""
        await self._check("read", path)
        with file_errors(path):
            return await self._sandbox.files.download(path, max_bytes=max_bytes)

    async def write(self, path: str, data: bytes) -> None:
        """Writes a file, and creates missing folders. An existing file keeps owner and mode."""
        await self._check("write", path)
        with file_errors(path):
            # The check has created the file, which must stay the user's.
            await self._sandbox.files.write(path, data, in_place=True)

    async def stat(self, path: str) -> FileInfo:
        """Describes a file; a symbolic link is followed."""
        await self._check("stat", path)
        with file_errors(path):
            return await self._sandbox.files.stat(path)

    async def list(self, path: str) -> list[FileInfo]:
        """Returns the first 100,000 entries of a folder; symbolic links are not followed."""
        await self._check("list", path)
        with file_errors(path):
            return await self._sandbox.files.list(path, limit=MAX_ENTRIES)

    async def mkdir(self, path: str) -> None:
        """Creates a folder and those above it. An existing folder is no error."""
        await self._check("mkdir", path)
        with file_errors(path):
            await self._sandbox.files.mkdir(path, parents=True)

    async def remove(self, path: str) -> None:
        """Removes a file, a symbolic link, or a folder with its content."""
        if self._user is not None:
            await self._check("remove", path)
            return
        with file_errors(path):
            await self._sandbox.files.remove(path, recursive=True)

    async def _check(self, operation: Operation, path: str) -> None:
        if self._user is None:
            return
        result = await self._sandbox.processes.run(
            check_of(operation, path), user=self._user, max_output_bytes=MAX_CHECK_BYTES
        )
        raise_for_check(result.exit_code, path, result.stderr)
