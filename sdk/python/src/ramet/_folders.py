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

ARCHIVE_BYTES = 8 << 20
"""Most bytes of files in one archive; larger files are sent by themselves."""

_NAMES = 4096  # most entries in one archive


class Packer:
    """Packs all that is in a local folder into archives, each complete by itself."""

    def __init__(self, top: Path) -> None:
        self._top = top
        self._out = io.BytesIO()
        self._tar = self._open()
        self._names = 0
        self.bytes = 0  # of files in the archive
        self.large: list[tuple[str, Path, int]] = []  # name, path and mode of files over ARCHIVE_BYTES

    def total(self) -> int:
        """Returns the bytes of all files."""
        sizes = (path.lstat() for _, path in _walk(self._top))
        return sum(info.st_size for info in sizes if stat.S_ISREG(info.st_mode))

    def archives(self) -> Iterator[bytes]:
        """Yields archives; `bytes` then has the size of the files in it."""
        for name, path in _walk(self._top):
            self._add(name, path)
            if self.bytes >= ARCHIVE_BYTES or self._names >= _NAMES:
                yield self._close()
        if self._names:
            yield self._close()

    def _open(self) -> tarfile.TarFile:
        return tarfile.open(fileobj=self._out, mode="w", format=tarfile.PAX_FORMAT)

    def _close(self) -> bytes:
        self._tar.close()
        data = self._out.getvalue()
        self._out = io.BytesIO()
        self._tar = self._open()
        self._names = 0
        return data

    def begin_next(self) -> None:
        """Resets `bytes` for the next archive."""
        self.bytes = 0

    def _add(self, name: str, path: Path) -> None:
        info = path.lstat()
        entry = tarfile.TarInfo(name)
        entry.mode = stat.S_IMODE(info.st_mode)
        entry.mtime = info.st_mtime
        if stat.S_ISREG(info.st_mode):
            if info.st_size > ARCHIVE_BYTES:
                self.large.append((name, path, entry.mode))
                return
            with open(path, "rb") as file:
                data = file.read(ARCHIVE_BYTES)
            entry.size = len(data)
            self.bytes += len(data)
            self._tar.addfile(entry, io.BytesIO(data))
        elif stat.S_ISLNK(info.st_mode):
            entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(path)
            self._tar.addfile(entry)
        else:
            entry.type = tarfile.DIRTYPE
            self._tar.addfile(entry)
        self._names += 1


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


class Unpacker:
    """Unpacks an archive from a sandbox, whose content is not trusted, into a local folder."""

    def __init__(self, top: Path, on_bytes: Callable[[int], None]) -> None:
        self._top = Path(os.path.realpath(top))
        self._on_bytes = on_bytes
        self._folders: list[tuple[Path, tarfile.TarInfo]] = []
        self.left_out: list[str] = []

    def run(self, source: IO[bytes]) -> None:
        """Reads the archive to its end."""
        with tarfile.open(fileobj=source, mode="r|") as tar:
            for entry in tar:
                if not self._place(tar, entry):
                    self.left_out.append(entry.name)
                # The stream's list of its entries would grow with the archive.
                tar.members = []  # type: ignore[attr-defined]
        for path, entry in reversed(self._folders):
            path.chmod(entry.mode & 0o777 | 0o700)
            os.utime(path, (entry.mtime, entry.mtime))

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
            self._folders.append((path, entry))
            return True
        if entry.isfile():
            self._write(tar, entry, path)
            return True
        if entry.issym():
            return self._link(entry, path)
        return entry.islnk() and self._hard_link(entry, path)

    def _inside(self, name: str) -> Path | None:
        """Returns the path of an entry; None if it leads out of the folder."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if name.startswith("/") or ".." in parts:
            return None
        path = self._top.joinpath(*parts)
        return path if self._contains(path.parent if parts else path) else None

    def _contains(self, path: Path) -> bool:
        real = os.path.realpath(path)
        return real == str(self._top) or real.startswith(os.path.join(self._top, ""))

    def _write(self, tar: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> None:
        source = tar.extractfile(entry)
        assert source is not None
        path.unlink(missing_ok=True)
        with open(path, "xb") as file:
            while chunk := source.read(1 << 20):
                file.write(chunk)
                self._on_bytes(len(chunk))
        path.chmod(entry.mode & 0o777)
        os.utime(path, (entry.mtime, entry.mtime))

    def _link(self, entry: tarfile.TarInfo, path: Path) -> bool:
        if entry.linkname.startswith("/") or not self._contains(path.parent / entry.linkname):
            return False
        path.unlink(missing_ok=True)
        path.symlink_to(entry.linkname)
        return True

    def _hard_link(self, entry: tarfile.TarInfo, path: Path) -> bool:
        target = self._inside(entry.linkname)
        if target is None or target.is_symlink() or not target.is_file():
            return False
        path.unlink(missing_ok=True)
        try:
            os.link(target, path)
        except OSError:  # a file system without hard links
            shutil.copy2(target, path)
        return True


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
