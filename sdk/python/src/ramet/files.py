# SPDX-License-Identifier: Apache-2.0
"""The files of a sandbox: to it, from it, and what is there."""

from __future__ import annotations

import hashlib
import io
import os
import uuid
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Callable, List

from ramet.client import Client
from ramet.errors import RametError
from ramet.types import FileInfo

Source = bytes | bytearray | memoryview | str | os.PathLike[str] | BinaryIO
"""What can be uploaded: the bytes themselves, the path of a local file, or a binary file object."""

RemotePath = str | os.PathLike[str]
"""An absolute path in a sandbox. Names that are not UTF-8 are written as `os.fsdecode` does."""

Progress = Callable[[int, int | None], None]
"""Called as progress(bytes done, bytes in all); None in all: it is not known."""

PART = 8 << 20
"""Bytes of a part of a file that is uploaded in parts."""

_AT_ONCE = 3  # parts under way: one is read while others travel and are written


class Files:
    """The files of one sandbox; `Sandbox.files` is one.

    All calls raise `NoSuchFile` (also for a folder on the way), `NotADirectory`,
    `PermissionDenied` and `DiskFull` where these apply; `BadRequest` for a path that is not
    absolute or too long; `NotFound` when the sandbox is gone.
    """

    def __init__(self, sandbox_id: str, client: Callable[[], Client]) -> None:
        self._id = sandbox_id
        self._client = client

    def upload(
        self,
        source: Source,
        remote: RemotePath,
        *,
        mode: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Writes a file, in place of what is there: its readers see the old file or the new one,
        never a part of it, and nothing is left of an upload that fails. Missing folders are made.

        Memory use does not grow with the file: what is over 8 MiB goes in parts.

        Args:
            source: The bytes, the path of a local file, or a file object open for reading bytes,
                which is read from where it stands to its end.
            remote: Absolute path of the file in the sandbox.
            mode: Permission bits, such as 0o755. None: those of the file it replaces, else 0o644.
            progress: Called after each part with the bytes written so far and the size, which
                is None for a file object that can't tell.

        Raises:
            IsADirectory: `remote` is a folder.
            DiskFull: It does not fit; the file that was there is as it was.
            OSError: The local file can't be read.
        """
        if isinstance(source, (bytes, bytearray, memoryview)):
            self._upload(io.BytesIO(source), remote, mode, progress)
        elif isinstance(source, (str, os.PathLike)):
            with open(source, "rb") as file:
                self._upload(file, remote, mode, progress)
        else:
            self._upload(source, remote, mode, progress)

    def download(self, remote: RemotePath) -> bytes:
        """The content of a file.

        Raises:
            IsADirectory: `remote` is a folder.
            ConnectionFailed: The answer broke off.
        """
        with self._client().read_file(self._id, os.fspath(remote)) as (_, pieces):
            return b"".join(pieces)

    def download_to(
        self,
        remote: RemotePath,
        local: str | os.PathLike[str],
        *,
        progress: Progress | None = None,
    ) -> None:
        """Writes the content of a file to a local one, as it comes, under another name that is
        renamed at the end: `local` is whole, or as it was.

        Args:
            remote: Absolute path of the file in the sandbox.
            local: Path of the local file; its folder must be there.
            progress: Called for each piece with the bytes written so far and the size.

        Raises:
            IsADirectory: `remote` is a folder.
            ConnectionFailed: The answer broke off.
            OSError: The local file can't be written.
        """
        target = Path(local)
        part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
        try:
            with open(part, "xb") as file:
                self._download(os.fspath(remote), file, progress)
            os.replace(part, target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    def list(self, remote: RemotePath) -> List[FileInfo]:
        """What is in a folder, in the order of the bytes of the names; links are not followed.

        Raises:
            NotADirectory: `remote` is no folder.
        """
        return self._client().list_files(self._id, os.fspath(remote))

    def stat(self, remote: RemotePath, *, follow: bool = True) -> FileInfo:
        """What kind of file it is, its size, its mode.

        Args:
            remote: Absolute path.
            follow: False: of a symbolic link itself, not of what it points to.
        """
        return self._client().stat_file(self._id, os.fspath(remote), follow=follow)

    def remove(self, remote: RemotePath, *, recursive: bool = False) -> None:
        """Removes a file, a symbolic link, or a folder.

        Args:
            remote: Absolute path.
            recursive: A folder goes with all that is in it. Without it, it must be empty.

        Raises:
            DirectoryNotEmpty: It is a folder with something in it.
        """
        self._client().remove_file(self._id, os.fspath(remote), recursive=recursive)

    def mkdir(
        self, remote: RemotePath, *, mode: int | None = None, parents: bool = False
    ) -> None:
        """Makes a folder.

        Args:
            remote: Absolute path.
            mode: Permission bits. None: 0o755.
            parents: Make missing folders above it too, and do not mind when it is there.

        Raises:
            FileExists: Something has that name.
        """
        self._client().make_folder(self._id, os.fspath(remote), mode=mode, parents=parents)

    def _upload(
        self, source: BinaryIO, remote: RemotePath, mode: int | None, progress: Progress | None
    ) -> None:
        total = _bytes_left(source)
        first = _read_part(source)
        if len(first) == PART:
            upload = _Upload(self._client(), self._id, os.fspath(remote), mode, total, progress)
            upload.run(first, source)
            return
        self._client().write_file(self._id, os.fspath(remote), first, mode=mode)
        if progress:
            progress(len(first), len(first))

    def _download(self, remote: str, file: BinaryIO, progress: Progress | None) -> None:
        done = 0
        with self._client().read_file(self._id, remote) as (size, pieces):
            for piece in pieces:
                file.write(piece)
                done += len(piece)
                if progress:
                    progress(done, size)


class _Upload:
    """One upload in parts: they are read in order and sent a few at a time."""

    def __init__(
        self,
        client: Client,
        sandbox_id: str,
        remote: str,
        mode: int | None,
        total: int | None,
        progress: Progress | None,
    ) -> None:
        self._client = client
        self._sandbox = sandbox_id
        self._id = client.open_upload(sandbox_id, remote, mode=mode)
        self._total = total
        self._progress = progress
        self._under_way: deque[Future[int]] = deque()
        self._done = 0

    def run(self, first: bytes, source: BinaryIO) -> None:
        """Sends `first` and what `source` has after it; aborted when anything fails."""
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="ramet-upload") as threads:
            try:
                size, digest = self._send_all(threads, first, source)
            except BaseException:
                threads.shutdown(cancel_futures=True)
                self._abort()
                raise
        try:
            self._client.commit_upload(self._sandbox, self._id, size, digest)
        except BaseException:
            self._abort()
            raise

    def _send_all(
        self, threads: ThreadPoolExecutor, part: bytes, source: BinaryIO
    ) -> tuple[int, str]:
        offset, digest = 0, hashlib.sha256()
        while part:
            if len(self._under_way) == _AT_ONCE:
                self._take_oldest()
            self._under_way.append(threads.submit(self._send, offset, part))
            offset += len(part)
            digest.update(part)
            part = _read_part(source)
        while self._under_way:
            self._take_oldest()
        return offset, digest.hexdigest()

    def _send(self, offset: int, part: bytes) -> int:
        self._client.write_part(self._sandbox, self._id, offset, part)
        return len(part)

    def _take_oldest(self) -> None:
        self._done += self._under_way.popleft().result()
        if self._progress:
            self._progress(self._done, self._total)

    def _abort(self) -> None:
        try:
            self._client.abort_upload(self._sandbox, self._id)
        except RametError:
            pass  # what made the upload fail is the error to tell; the service forgets it in time


def _read_part(source: BinaryIO) -> bytes:
    """PART bytes, or less at the end; a pipe gives them in pieces."""
    pieces: list[bytes] = []
    missing = PART
    while missing:
        piece = source.read(missing)
        if not isinstance(piece, bytes):
            raise TypeError(f"the file object must give bytes, not {type(piece).__name__}")
        if not piece:
            break
        pieces.append(piece)
        missing -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _bytes_left(source: BinaryIO) -> int | None:
    try:
        here = source.tell()
        end = source.seek(0, os.SEEK_END)
        source.seek(here)
    except (AttributeError, OSError):
        return None  # a pipe, a socket
    return max(end - here, 0)
