# SPDX-License-Identifier: Apache-2.0
"""Local folders as tar archives of bounded size, and back, with care."""

from __future__ import annotations

import io
import os
import shutil
import stat
import tarfile
from pathlib import Path
from typing import IO, Callable, Iterator

from ramet.errors import RametError

_CHUNK = 256 << 10  # bytes sent at a time
_BLOCK = 512  # of an archive
_EXTENDED_BYTES = 64 << 10  # most bytes of an extended header, which has names
_LEFT_OUT_BYTES = 64 << 20  # most memory for names that were left out
_EXTENDED = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
# RecursionError: for extended headers that follow each other without end.
_TAR_ERRORS = (tarfile.TarError, ValueError, ArithmeticError, LookupError, RecursionError)


class Packer:
    """The chunks of a tar archive of all that is in a local folder, read while they are sent."""

    def __init__(self, top: Path, progress: Callable[[int, int], None] | None) -> None:
        self._top = top
        self._progress = progress
        sizes = (path.lstat() for _, path in _walk(top))
        self._total = sum(info.st_size for info in sizes if stat.S_ISREG(info.st_mode))

    def __iter__(self) -> Iterator[bytes]:
        held, size, self._done, reported = [], 0, 0, -1
        for part in self._parts():
            held.append(part)
            size += len(part)
            if size < _CHUNK:
                continue
            yield b"".join(held)
            held, size = [], 0
            if self._progress and self._done != reported:
                self._progress(self._done, self._total)
                reported = self._done
        yield b"".join([*held, bytes(2 * _BLOCK)])
        if self._progress and self._done != reported:
            self._progress(self._done, self._total)

    def _parts(self) -> Iterator[bytes]:
        for name, path in _walk(self._top):
            info = path.lstat()
            entry = tarfile.TarInfo(name)
            entry.mode = stat.S_IMODE(info.st_mode)
            entry.mtime = info.st_mtime
            if stat.S_ISREG(info.st_mode):
                yield from self._file(entry, path)
                continue
            entry.type = tarfile.DIRTYPE
            if stat.S_ISLNK(info.st_mode):
                entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(path)
            yield _header(entry)

    def _file(self, entry: tarfile.TarInfo, path: Path) -> Iterator[bytes]:
        with open(path, "rb") as file:
            entry.size = left = os.fstat(file.fileno()).st_size
            yield _header(entry)
            while left:
                chunk = file.read(min(left, _CHUNK))
                if not chunk:
                    raise OSError(f"{path} became shorter while it was sent")
                left -= len(chunk)
                self._done += len(chunk)
                yield chunk
        yield bytes(-entry.size % _BLOCK)


def _header(entry: tarfile.TarInfo) -> bytes:
    return entry.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _walk(top: Path) -> Iterator[tuple[str, Path]]:
    """Yields name and path of all files, folders and links, each folder before its content."""

    def failed(error: OSError) -> None:
        raise error

    for folder, folders, files in os.walk(top, onerror=failed):
        folders.sort()
        for name in sorted(folders + files):
            path = Path(folder, name)
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode):
                yield path.relative_to(top).as_posix(), path


class _Entry(tarfile.TarInfo):
    """An entry that needs little memory to read. tarfile calls these methods for each header."""

    @classmethod
    def fromtarfile(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, tar: tarfile.TarFile
    ) -> "_Entry":
        try:
            return super().fromtarfile(tar)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # the mark at the end
            raise
        except tarfile.HeaderError as error:  # tarfile would take it for the end
            raise tarfile.ReadError(str(error)) from error

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in _EXTENDED and self.size > _EXTENDED_BYTES:
            raise tarfile.ReadError(f"an extended header has {self.size} bytes")
        if self.type == tarfile.GNUTYPE_SPARSE:
            self._refuse_sparse()
        entry: tarfile.TarInfo = super()._proc_member(tar)  # type: ignore[misc]
        return entry

    def _proc_gnusparse_10(self, *_: object) -> None:
        self._refuse_sparse()

    # Some bytes of the archive would become any number of zeros on the disk.
    def _refuse_sparse(self, *_: object) -> None:
        raise tarfile.ReadError("it has a sparse file")

    _proc_gnusparse_00 = _proc_gnusparse_01 = _refuse_sparse


def umask() -> int:
    """Returns the permission bits that this process's files must not have."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("\nUmask:")[2].split(maxsplit=1)[0], 8)
    except (OSError, ValueError, IndexError):  # not on Linux: only a change returns it
        mask = os.umask(0o077)
        os.umask(mask)
        return mask


class Unpacker:
    """Unpacks an archive from a sandbox, whose content is not trusted, into a local folder.

    No entry is placed through a symbolic link that leads out of the folder. Folders are never
    removed, so a path without links keeps naming the same place while the archive is read.
    """

    def __init__(self, top: Path, on_bytes: Callable[[int], None]) -> None:
        self._top = Path(os.path.realpath(top))
        self._on_bytes = on_bytes
        self._mask = 0o777 & ~umask()
        self._folders: dict[Path, tarfile.TarInfo] = {}
        self._left_out_bytes = 0
        self.left_out: list[str] = []

    def run(self, source: IO[bytes]) -> None:
        """Reads the archive to its end."""
        for tar, entry in _entries(source):
            if not self._place(tar, entry):
                self._leave_out(entry.name)
        for path, entry in self._folders.items():
            path.chmod(entry.mode & self._mask | 0o700)
            _set_time(path, entry)

    def _leave_out(self, name: str) -> None:
        self.left_out.append(name)
        self._left_out_bytes += len(name) + 100
        if self._left_out_bytes > _LEFT_OUT_BYTES:
            raise _bad_archive(f"{len(self.left_out)} entries have no place in a local folder")

    def _place(self, tar: tarfile.TarFile, entry: tarfile.TarInfo) -> bool:
        """Returns False for an entry that is left out."""
        path = self._inside(entry.name)
        if path is None:
            return False
        if path == self._top:
            return True
        path.parent.mkdir(parents=True, exist_ok=True)
        if entry.isdir():
            if path.is_symlink():
                return False
            path.mkdir(exist_ok=True)
            self._folders[path] = entry
            return True
        if entry.isfile():
            self._write(tar, entry, path)
            return True
        if entry.issym():
            return self._link(entry, path)
        return entry.islnk() and self._hard_link(entry, path)

    def _inside(self, name: str) -> Path | None:
        """Returns the path of an entry, without links; None if it leads out of the folder."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if name.startswith("/") or not all(_is_name(part) for part in parts):
            return None
        if not parts:
            return self._top
        parent = Path(os.path.realpath(self._top.joinpath(*parts[:-1])))
        return parent / parts[-1] if self._contains(parent) else None

    def _contains(self, path: Path) -> bool:
        real = os.path.realpath(path)
        return real == str(self._top) or real.startswith(os.path.join(self._top, ""))

    def _write(self, tar: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> None:
        source = tar.extractfile(entry)
        assert source is not None
        path.unlink(missing_ok=True)
        with open(path, "xb") as file:
            while chunk := _read(source):
                file.write(chunk)
                self._on_bytes(len(chunk))
        path.chmod(entry.mode & self._mask)
        _set_time(path, entry)

    def _link(self, entry: tarfile.TarInfo, path: Path) -> bool:
        if not self._may_link(path.parent, entry.linkname):
            return False
        path.unlink(missing_ok=True)
        path.symlink_to(entry.linkname)
        return True

    def _may_link(self, folder: Path, target: str) -> bool:
        """Returns False for a link in `folder` that leads out, or would with later entries: after
        a name, which may become a link, ".." can lead anywhere."""
        parts = [part for part in target.split("/") if part not in ("", ".")]
        ups = next((i for i, part in enumerate(parts) if part != ".."), len(parts))
        inside = ups <= len(folder.parts) - len(self._top.parts)
        names = all(_is_name(part) for part in parts[ups:])
        return (
            inside
            and names
            and bool(target)
            and not target.startswith("/")
            and self._contains(folder / target)
        )

    def _hard_link(self, entry: tarfile.TarInfo, path: Path) -> bool:
        target = self._inside(entry.linkname)
        if target is None or target == path or target.is_symlink() or not target.is_file():
            return False
        path.unlink(missing_ok=True)
        try:
            os.link(target, path)
        except OSError:  # a file system without hard links
            shutil.copy2(target, path)
        return True


def _is_name(part: str) -> bool:
    """Returns whether this is a plain name, also on systems with other separators and drives."""
    return part != ".." and "\0" not in part and Path(part).name == part


def _set_time(path: Path, entry: tarfile.TarInfo) -> None:
    try:
        os.utime(path, (entry.mtime, entry.mtime))
    except (ValueError, OverflowError):
        pass  # a time that no file can have


def _bad_archive(reason: str) -> RametError:
    return RametError(f"the archive from the sandbox is refused: {reason}", code="bad_archive")


def _entries(source: IO[bytes]) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    tar = None
    while True:
        try:
            tar = tar or tarfile.open(fileobj=source, mode="r|", tarinfo=_Entry)
            entry = tar.next()
        except _TAR_ERRORS as error:
            raise _bad_archive(str(error)) from error
        if entry is None:
            return
        yield tar, entry
        # What tarfile keeps would grow with the archive.
        tar.members = []  # type: ignore[attr-defined]
        tar.pax_headers = {}


def _read(source: IO[bytes]) -> bytes:
    try:
        return source.read(1 << 20)
    except tarfile.TarError as error:
        raise _bad_archive(str(error)) from error


class Chunks(io.RawIOBase):
    """The chunks of an answer as a file object."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size
