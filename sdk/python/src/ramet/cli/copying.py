# SPDX-License-Identifier: Apache-2.0
"""`ramet cp`: copies files and folders between this machine and sandboxes."""

from __future__ import annotations

import os
import posixpath
import re
import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Callable, Iterator, Sequence

from ramet import Client, NoSuchFile, Sandbox
from ramet._folders import umask
from ramet.cli.failure import Failure
from ramet.cli.output import STDOUT, plain, put
from ramet.cli.service import open_sandbox

if TYPE_CHECKING:
    from rich.progress import Progress

HOME = "/root"
_BAR_AFTER_S = 0.3  # shorter copies draw no progress bar


@dataclass(frozen=True)
class Place:
    """One end of a copy.

    Attributes:
        sandbox: Id of a sandbox, perhaps abbreviated; None: this machine.
        path: A path there; "-": standard input or output.
    """

    sandbox: str | None
    path: str

    @classmethod
    def parse(cls, text: str) -> "Place":
        """Reads `ID:PATH` or a local path. A local path with a colon begins with `./` or `/`."""
        found = re.fullmatch(r"([A-Za-z0-9_]+):(.*)", text, re.DOTALL)
        if not found:
            return cls(None, text)
        path = found[2]
        if not path.startswith("/"):
            path = f"{HOME}/{path}"
        return cls(found[1], path)


def run(client: Client, sources: Sequence[str], target: str, *, quiet: bool = False) -> None:
    """Copies files and folders.

    Args:
        client: The service.
        sources: `ID:PATH`, a local path, or "-" for standard input. Several are copied into the
            target, which must be a folder.
        target: Likewise. It, or each source, is in a sandbox.
        quiet: Show no progress.

    Raises:
        Failure: No end is in a sandbox, a path is empty, a source does not exist, or several have
            no folder as their target.
    """
    if not all(sources) or not target:
        raise Failure("a path is empty", "is a variable unset? `.` is the current folder")
    to = Place.parse(target)
    places = [Place.parse(source) for source in sources]
    for place, source in zip(places, sources):
        if place.sandbox is None and to.sandbox is None:
            raise Failure(f"neither {source} nor {target} is in a sandbox", "write one as ID:PATH")
    there = open_sandbox(client, to.sandbox) if to.sandbox is not None else None
    if len(places) > 1:
        to = _folder_for_several(there, to)
    with _Bar(quiet) as bar:
        for place in places:
            if place.sandbox is None:
                assert there is not None
                upload(there, place.path, to.path, bar)
                continue
            here = open_sandbox(client, place.sandbox)
            if there is None:
                _download(client, here, place.path, to.path, bar)
            else:
                _between(client, (here, place.path), (there, to.path), bar)


def _folder_for_several(there: Sandbox | None, to: Place) -> Place:
    """Returns the target of several sources, as a folder that exists."""
    found = os.path.isdir(to.path) if there is None else _is_folder(there, to.path)
    if not found:
        raise Failure(
            f"{to.path} is not a folder, and several files are to be copied into it",
            "make it first: mkdir",
        )
    return Place(to.sandbox, to.path.rstrip("/") + "/")


class _Bar:
    """The progress of a copy, as a bar on a terminal. Nothing is drawn, and rich is not imported,
    if the copy is short."""

    def __init__(self, quiet: bool) -> None:
        self._shown = not quiet and sys.stderr.isatty()
        self._begin = time.monotonic()
        self._progress: Progress | None = None

    def __call__(self, done: int, total: int | None) -> None:
        """Shows that `done` of `total` bytes are copied; the total may be unknown."""
        if not self._shown:
            return
        if self._progress is None:
            if time.monotonic() - self._begin < _BAR_AFTER_S:
                return
            self._progress = _new_bar()
            self._progress.start()
        self._progress.update(self._progress.task_ids[0], completed=done, total=total)

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.stop()


def _new_bar() -> "Progress":
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TaskProgressColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    progress = Progress(
        BarColumn(),
        TaskProgressColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    progress.add_task("copy", total=None)
    return progress


def upload(
    sandbox: Sandbox, source: str, target: str, bar: Callable[[int, int | None], None] | None = None
) -> None:
    """Copies a local file or folder, or standard input, to a path in a sandbox."""
    if source == "-":
        _upload_input(sandbox, target, bar)
        return
    local = Path(source)
    if not local.exists():
        raise Failure(f"{source}: there is no such file or folder")
    if local.is_dir():
        target = _target_of_folder(sandbox, source, local.resolve().name, target)
        sandbox.files.upload_folder(local, target, progress=bar)
    else:
        at = _target_of_file(sandbox, local.name, target)
        sandbox.upload(local, at, mode=local.stat().st_mode & 0o777, progress=bar)


def _target_of_folder(sandbox: Sandbox, source: str, name: str, target: str) -> str:
    """Returns where a folder is copied to: into an existing folder, unless its content is meant."""
    inside = name and not _means_content(source) and _is_folder(sandbox, target)
    return _join(target, name) if inside else target


def _target_of_file(sandbox: Sandbox, name: str, target: str) -> str:
    inside = target.endswith("/") or _is_folder(sandbox, target)
    return _join(target, name) if inside else target


def _between(
    client: Client, source: tuple[Sandbox, str], target: tuple[Sandbox, str], bar: "_Bar"
) -> None:
    """Copies a file or folder from one sandbox to another, or to another place in the same one."""
    (here, path), (there, to) = source, target
    info, name = here.files.stat(path.rstrip("/") or "/"), os.path.basename(path.rstrip("/"))
    if info.is_dir:
        at = _target_of_folder(there, path, name, to)
        if here.id == there.id and _is_inside(at, path):
            raise Failure(f"{path} cannot be copied into itself, to {at}", "name another target")
        with client.pack_folder(here.id, path) as (_, chunks):
            client.unpack_folder(there.id, at, _counted(chunks, None, bar))
        return
    with client.read_file(here.id, path) as (size, chunks):
        at = _target_of_file(there, name, to)
        client.write_file(there.id, at, _counted(chunks, size, bar), mode=info.mode & 0o777 or None)


def _is_inside(path: str, folder: str) -> bool:
    folder = posixpath.normpath(folder).rstrip("/")
    return (posixpath.normpath(path) + "/").startswith(folder + "/")


def _counted(chunks: Iterator[bytes], size: int | None, bar: "_Bar") -> Iterator[bytes]:
    done = 0
    for chunk in chunks:
        yield chunk
        done += len(chunk)
        bar(done, size)


def _upload_input(
    sandbox: Sandbox, target: str, bar: Callable[[int, int | None], None] | None
) -> None:
    if target.endswith("/"):
        message = f"standard input has no name, and {target} is a folder"
        raise Failure(message, "name a file: `ramet cp - ID:/FOLDER/FILE`")
    sandbox.upload(sys.stdin.buffer, target, progress=bar)


def _download(client: Client, sandbox: Sandbox, source: str, target: str, bar: _Bar) -> None:
    info = sandbox.files.stat(source.rstrip("/") or "/")
    if target == "-":
        _to_output(client, sandbox, source, info.is_dir)
        return
    name = os.path.basename(source.rstrip("/"))
    if info.is_dir:
        if os.path.isdir(target) and name and not _means_content(source):
            target = os.path.join(target, name)
        for left in sandbox.files.download_folder(source, target, progress=bar):
            print(f"ramet: left out: {plain(left)} (a device, or a link out of the folder)",
                  file=sys.stderr)
        return
    if os.path.isdir(target):
        target = os.path.join(target, name)
    else:
        folder = target if target.endswith("/") else os.path.dirname(target) or "."
        if not os.path.isdir(folder):
            remedy = f"make it: mkdir -p {shlex.quote(folder)}"
            raise Failure(f"{folder}: there is no such folder", remedy)
    sandbox.download_to(source, target, progress=bar)
    os.chmod(target, info.mode & 0o777 & ~umask())


def _to_output(client: Client, sandbox: Sandbox, source: str, is_folder: bool) -> None:
    """Writes a file to standard output, or a folder as a tar archive."""
    if is_folder and sys.stdout.isatty():
        message = f"{source} is a folder, and a tar archive is not written to a terminal"
        raise Failure(message, "`ramet cp ID:FOLDER - | tar -x` unpacks it")
    read = client.pack_folder if is_folder else client.read_file
    with read(sandbox.id, source) as (_, chunks):
        for chunk in chunks:
            put(STDOUT, chunk)


def _means_content(path: str) -> bool:
    """Returns True for `FOLDER/.`: what is in the folder, and not the folder itself."""
    return os.path.basename(path) == "."


def _join(folder: str, name: str) -> str:
    return folder.rstrip("/") + "/" + name


def _is_folder(sandbox: Sandbox, path: str) -> bool:
    try:
        return sandbox.files.stat(path.rstrip("/") or "/").is_dir
    except NoSuchFile:
        return False
