# SPDX-License-Identifier: Apache-2.0
# Generated from _async/files.py by make_sync.py: change that file.
"""The files of a sandbox: upload, download, list, change."""

from __future__ import annotations

import io
import os
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Callable, Iterator, List

from ramet._io import blocking
from ramet._local import Sending, file_to_send, folder_to_send, store, unpack
from ramet.client import Client
from ramet._text import plain
from ramet._wire import utf8
from ramet.errors import ConnectionFailed, NoSuchFile, NotADirectory, RametError
from ramet.types import FileEvent, FileInfo

Source = bytes | bytearray | memoryview | str | os.PathLike[str] | BinaryIO
"""Sources of an upload: the content as bytes or text, a local file as a `pathlib.Path`, or a binary
file object. A string is always content, never a path: it may come from a language model."""

RemotePath = str | os.PathLike[str]
"""An absolute path in a sandbox. Names that are not UTF-8 are encoded as by `os.fsdecode`."""

Progress = Callable[[int, int | None], None]
"""Called as progress(bytes done, total bytes); the total is None if it is not known."""


class Files:
    """The files of one sandbox, as returned by `Sandbox.files`.

    All calls raise `NoSuchFile` (also if a folder of the path is missing), `NotADirectory`,
    `PermissionDenied` and `DiskFull` as appropriate; `BadRequest` if the path is not absolute or
    too long; `NotFound` if the sandbox is gone.
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
        """Writes a file, and replaces an existing one atomically.

        Readers see either the old file or the complete new one, and a failed upload leaves
        nothing. Missing folders are created. Files of any size are sent in one request, and
        memory use does not grow with the file. If the connection breaks, the file is sent again,
        unless it is a file object without a size and over 8 MiB.

        Args:
            source: The content: bytes, or text, which is sent as UTF-8. A `pathlib.Path` is a
                local file; see also `upload_file`. A file object open for reading bytes is read
                from its current position to its end.
            remote: Absolute path of the file in the sandbox.
            mode: Permission bits, such as 0o755. None: those of the file it replaces, else 0o644.
            progress: Called for each chunk with the bytes sent so far and the size, which is
                None for a file object without a size and over 8 MiB.

        Raises:
            IsADirectory: `remote` is a folder.
            DiskFull: The file does not fit; the old file is unchanged.
            BadRequest: The text has no UTF-8 form.
            OSError: The local file cannot be read.
        """
        with _body(source, progress) as body:
            self._client().write_file(self._id, os.fspath(remote), body, mode=mode)

    def upload_file(
        self,
        local: str | os.PathLike[str],
        remote: RemotePath,
        *,
        mode: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Copies a local file to a file of the sandbox: `upload`, with a path as its source.

        Args:
            local: Path of the local file.
            remote: As for `upload`.
            mode: As for `upload`.
            progress: As for `upload`.

        Raises: As `upload`.
        """
        self.upload(Path(local), remote, mode=mode, progress=progress)

    def write(
        self,
        remote: RemotePath,
        source: Source,
        *,
        in_place: bool = False,
        append: bool = False,
        offset: int | None = None,
        mode: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Writes to a file: like `upload`, or in place with `in_place`, `append` or `offset`.

        A file that is written in place keeps its inode, owner and mode, and programs that have
        it open see the change. Bytes written before a failure stay. Memory use does not grow
        with the file. An append is not retried if its connection breaks.

        Args:
            remote: Absolute path of the file in the sandbox. It and missing folders are created.
            source: As in `upload`.
            in_place: Empty the file, then write to it.
            append: Write at the end of the file.
            offset: Write from this byte on, and keep the rest of the file.
            mode: Permission bits of a file that is created. None: 0o644.
            progress: Called for each chunk with the bytes sent so far and the size, which is
                None for a file object without a size and over 8 MiB.

        Raises:
            ValueError: Both `append` and `offset` are set.
            IsADirectory: `remote` is a folder.
            DiskFull: The data does not fit.
            OSError: The local file cannot be read.
        """
        if append and offset is not None:
            raise ValueError("append and offset cannot be combined")
        if not in_place and not append and offset is None:
            self.upload(source, remote, mode=mode, progress=progress)
            return
        with _body(source, progress) as body:
            self._client().write_in_place(
                self._id, os.fspath(remote), body, offset=offset, append=append, mode=mode
            )

    def download(
        self,
        remote: RemotePath,
        *,
        max_bytes: int | None = None,
        progress: Progress | None = None,
    ) -> bytes:
        """Returns the content of a file.

        Args:
            remote: Absolute path of the file in the sandbox.
            max_bytes: Fail if the file has more bytes than this. None: no limit, although a file
                with holes can be larger than the sandbox's disk and this program's memory.
            progress: As in `download_to`.

        Raises:
            RametError: The file has more than `max_bytes` (code ``too_large``).
            IsADirectory: `remote` is a folder.
            ConnectionFailed: The answer broke off.
        """
        content = io.BytesIO()
        self._download(os.fspath(remote), content, progress, max_bytes)
        return content.getvalue()

    def read(self, remote: RemotePath, *, max_bytes: int | None = None) -> bytes:
        """Returns the content of a file: `download`, under the name that pairs with `write`."""
        return self.download(remote, max_bytes=max_bytes)

    def read_text(
        self, remote: RemotePath, *, errors: str = "strict", max_bytes: int | None = None
    ) -> str:
        """Returns the content of a file as text.

        Args:
            remote: Absolute path of the file in the sandbox.
            errors: What to do with bytes that are not UTF-8, as for `bytes.decode`, such as
                "replace".
            max_bytes: As for `download`.

        Raises:
            RametError: The file is not UTF-8 (code ``not_text``), and as `download`.
        """
        data = self.download(remote, max_bytes=max_bytes)
        try:
            return data.decode(errors=errors)
        except UnicodeDecodeError as failed:
            raise RametError(
                f"{plain(os.fspath(remote))} is not UTF-8 at byte {failed.start}: read it as bytes, "
                'or with errors="replace"',
                code="not_text",
            ) from None

    def download_to(
        self,
        remote: RemotePath,
        local: str | os.PathLike[str],
        *,
        max_bytes: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Copies a file of the sandbox to a local file.

        The data is written under another name and renamed at the end, so `local` is either
        complete or unchanged.

        Args:
            remote: Absolute path of the file in the sandbox.
            local: Path of the local file; its folder must exist.
            max_bytes: As in `download`.
            progress: Called for each chunk with the bytes written so far and the size, which is
                None for a file without a size, such as those of /proc.

        Raises:
            RametError: The file has more than `max_bytes` (code ``too_large``).
            IsADirectory: `remote` is a folder.
            ConnectionFailed: The answer broke off.
            OSError: The local file cannot be written.
        """
        target = Path(local)
        part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
        try:
            with blocking(part.open, "xb") as file:
                self._download(os.fspath(remote), file, progress, max_bytes)
            blocking(os.replace, part, target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    def upload_folder(
        self,
        local: str | os.PathLike[str],
        remote: RemotePath,
        *,
        progress: Progress | None = None,
    ) -> None:
        """Copies what is in a local folder to a folder of the sandbox.

        Files, folders and symbolic links are copied with permissions and times, and belong to
        root. Existing files are replaced; others stay. Sockets and devices are left out. After a
        failure, the files that were complete stay. All is sent in one request, and memory use
        does not grow with the folder. If the connection breaks, the folder is sent again.

        Args:
            local: Path of the local folder.
            remote: Absolute path of the folder in the sandbox, which is created when missing.
            progress: Called with the bytes of files that were sent so far and their total.

        Raises:
            NotADirectory, FileExists: A name in the sandbox is of another type.
            DiskFull: The files do not fit.
            OSError: A local file cannot be read.
        """
        body = folder_to_send(Path(local), progress)
        self._client().unpack_folder(self._id, os.fspath(remote), body)

    def download_folder(
        self,
        remote: RemotePath,
        local: str | os.PathLike[str],
        *,
        max_bytes: int | None = None,
        progress: Progress | None = None,
    ) -> List[str]:
        """Copies what is in a folder of the sandbox to a local folder.

        Files, folders and links are copied with times and with the permissions that your umask
        leaves them, and belong to the user that runs this program. The content of a sandbox is not trusted: nothing outside of
        `local` is written or changed, set-id bits are dropped, and no link leads out of `local`.
        But a program in the sandbox can send more than its disk holds: set `max_bytes` if that
        could fill your disk. After a failure, the files that were complete stay. Memory use does
        not grow with the files.

        Args:
            remote: Absolute path of the folder in the sandbox.
            local: Path of the local folder, which is created when missing. Existing files in it
                are replaced.
            max_bytes: Fail when the files, and half a KiB or more for each name, have more bytes
                than this. None: no limit.
            progress: Called with the bytes of files that were written so far, and None.

        Returns:
            The names of what was left out: devices, FIFOs, and links that lead out of the folder
            or have ".." after a name.

        Raises:
            RametError: The sandbox sent a broken archive, or one with a sparse file (code
                ``bad_archive``), or more than `max_bytes` (code ``too_large``).
            NotADirectory: `remote` is not a folder.
            ConnectionFailed: The answer broke off.
            OSError: A local file cannot be written.
        """
        with self._client().pack_folder(self._id, os.fspath(remote)) as (_, chunks):
            blocking(os.makedirs, local, exist_ok=True)
            return unpack(_limited(chunks, max_bytes, "folder"), Path(local), progress)

    def watch(self, remote: RemotePath, *, recursive: bool = False) -> "Watch":
        """Watches a file or folder: yields each change as it happens.

        All changes after the return are reported. The iteration ends when `remote` is removed.
        Use the result in a `with` block, or close it. A watch does not keep the sandbox from
        being idle; in a fork, the children have none.

        Args:
            remote: Absolute path.
            recursive: Also watch all folders in it, and those that are created later.

        Raises:
            CapReached: 16 watches are open, or there are more than 8,192 folders.

        While iterating: NotFound and its subclasses when the sandbox ends.
        """
        events = self._client().watch_files(self._id, os.fspath(remote), recursive=recursive)
        first = next(events, None)
        if first is None or first.type != "watching":
            raise ConnectionFailed(f"the watch of {os.fspath(remote)} ended before it began: try again")
        return Watch(events)

    def list(
        self, remote: RemotePath, *, depth: int = 1, limit: int | None = None
    ) -> List[FileInfo]:
        """Returns the entries of a folder in byte order of their names. Links are not followed.

        Args:
            remote: Absolute path.
            depth: 1 to 64. With 2, also what is in the folders of the folder, and so on: each
                folder comes before its content. File systems mounted there are not entered.
            limit: Return at most so many entries. None: all.

        Raises:
            NotADirectory: `remote` is not a folder.
        """
        return self._client().list_files(
            self._id, os.fspath(remote), depth=depth, limit=limit
        )

    def stat(self, remote: RemotePath, *, follow: bool = True) -> FileInfo:
        """Returns type, size, mode, owner and modification time of a file.

        Args:
            remote: Absolute path.
            follow: False: describe a symbolic link itself, not its target.
        """
        return self._client().stat_file(self._id, os.fspath(remote), follow=follow)

    def exists(self, remote: RemotePath) -> bool:
        """Returns True if there is a file or folder, or a link that leads to one."""
        try:
            self.stat(remote)
        except (NoSuchFile, NotADirectory):
            return False
        return True

    def remove(self, remote: RemotePath, *, recursive: bool = False) -> None:
        """Removes a file, a symbolic link, or a folder.

        Args:
            remote: Absolute path.
            recursive: Remove a folder with its content. Otherwise a folder must be empty.

        Raises:
            DirectoryNotEmpty: The folder is not empty.
        """
        self._client().remove_file(self._id, os.fspath(remote), recursive=recursive)

    def mkdir(
        self, remote: RemotePath, *, mode: int | None = None, parents: bool = False
    ) -> None:
        """Creates a folder.

        Args:
            remote: Absolute path.
            mode: Permission bits. None: 0o755.
            parents: Also create missing folders above it, and accept an existing folder.

        Raises:
            FileExists: The name is taken.
        """
        self._client().make_folder(self._id, os.fspath(remote), mode=mode, parents=parents)

    def move(self, remote: RemotePath, to: RemotePath, *, replace: bool = False) -> None:
        """Moves a file, a symbolic link or a folder, in one step.

        Args:
            remote: Absolute path.
            to: The new absolute path, in the same file system. Missing folders are created.
            replace: Replace an existing file, or, with a folder, an empty folder.

        Raises:
            FileExists: The name is taken.
            PermissionDenied: `to` is in another file system.
        """
        self._client().move_file(
            self._id, os.fspath(remote), os.fspath(to), replace=replace
        )

    def chmod(self, remote: RemotePath, mode: int, *, recursive: bool = False) -> None:
        """Sets the permission bits of a file or folder, such as 0o755.

        Args:
            remote: Absolute path. A symbolic link is followed.
            mode: Permission bits, 0o1 to 0o7777.
            recursive: Also of all files and folders in it.
        """
        self._client().change_file(
            self._id, os.fspath(remote), mode=mode, recursive=recursive
        )

    def chown(
        self,
        remote: RemotePath,
        uid: int | None = None,
        gid: int | None = None,
        *,
        recursive: bool = False,
    ) -> None:
        """Sets the owner and group of a file or folder.

        Args:
            remote: Absolute path. A symbolic link is followed.
            uid: Number of the user. None: unchanged.
            gid: Number of the group. None: unchanged.
            recursive: Also of all that is in it.
        """
        self._client().change_file(
            self._id, os.fspath(remote), uid=uid, gid=gid, recursive=recursive
        )

    def _download(
        self,
        remote: str,
        file: BinaryIO,
        progress: Progress | None,
        max_bytes: int | None,
    ) -> None:
        done = 0
        with self._client().read_file(self._id, remote) as (size, chunks):
            if max_bytes is not None and size is not None and size > max_bytes:
                raise _too_large("file", max_bytes)
            for chunk in _limited(chunks, max_bytes, "file"):
                store(file, chunk)
                done += len(chunk)
                if progress:
                    progress(done, size)


class Watch:
    """The changes of a file or folder, as `Files.watch` returns them. Not for several threads."""

    def __init__(self, events: Iterator[FileEvent]) -> None:
        self._events = events

    def __iter__(self) -> "Watch":
        return self

    def __next__(self) -> FileEvent:
        return next(self._events)

    def close(self) -> None:
        """Ends the watch."""
        close = getattr(self._events, "close", None)
        if close:
            close()

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _limited(
    chunks: Iterator[bytes], max_bytes: int | None, kind: str
) -> Iterator[bytes]:
    """Yields the chunks; raises RametError when they have more bytes than the maximum."""
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if max_bytes is not None and size > max_bytes:
            raise _too_large(kind, max_bytes)
        yield chunk


def _too_large(kind: str, max_bytes: int) -> RametError:
    return RametError(f"the {kind} has more than {max_bytes} bytes", code="too_large")


@contextmanager
def _body(source: Source, progress: Progress | None) -> Iterator[Sending]:
    """Opens a source as the body of a request."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        yield file_to_send(io.BytesIO(source), progress)
    elif isinstance(source, str):
        yield file_to_send(io.BytesIO(utf8(source, "the content")), progress)
    elif isinstance(source, os.PathLike):
        with blocking(_open, source) as file:
            yield file_to_send(file, progress)
    else:
        yield file_to_send(source, progress)


def _open(path: os.PathLike[str]) -> BinaryIO:
    return open(path, "rb")
