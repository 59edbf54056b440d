# SPDX-License-Identifier: Apache-2.0
"""`ramet cp`: copies files and folders between this machine and a sandbox."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from ramet import Client, NoSuchFile, Sandbox
from ramet._folders import umask
from ramet.cli.failure import Failure
from ramet.cli.output import STDOUT, plain, put
from ramet.cli.service import open_sandbox

if TYPE_CHECKING:
    from rich.progress import Progress

_HOME = "/root"
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
            path = f"{_HOME}/{path}"
        return cls(found[1], path)


def run(client: Client, source: str, target: str, *, quiet: bool = False) -> None:
    """Copies a file or folder.

    Args:
        client: The service.
        source: `ID:PATH`, a local path, or "-" for standard input.
        target: Likewise; one of the two is in a sandbox.
        quiet: Show no progress.

    Raises:
        Failure: Both or none are in a sandbox, one is empty, or the source does not exist.
    """
    if not source or not target:
        raise Failure("a path is empty", "is a variable unset? `.` is the current folder")
    one, other = Place.parse(source), Place.parse(target)
    if one.sandbox is None and other.sandbox is None:
        raise Failure(f"neither {source} nor {target} is in a sandbox", "write one as ID:PATH")
    if one.sandbox is not None and other.sandbox is not None:
        raise Failure(
            f"both {source} and {target} are in a sandbox",
            "copy to a local file in between; a local path with a colon begins with ./ or /",
        )
    with _Bar(quiet) as bar:
        if other.sandbox is not None:
            _upload(open_sandbox(client, other.sandbox), one.path, other.path, bar)
        else:
            _download(client, open_sandbox(client, one.sandbox or ""), one.path, other.path, bar)


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


def _upload(sandbox: Sandbox, source: str, target: str, bar: _Bar) -> None:
    if source == "-":
        _upload_input(sandbox, target, bar)
        return
    local = Path(source)
    if not local.exists():
        raise Failure(f"{source}: there is no such file or folder")
    inside = target.endswith("/") or _is_folder(sandbox, target)
    if local.is_dir():
        if _is_folder(sandbox, target) and not _means_content(source):
            target = _join(target, local.resolve().name)
        sandbox.files.upload_folder(local, target, progress=bar)
    else:
        at = _join(target, local.name) if inside else target
        sandbox.upload(local, at, mode=local.stat().st_mode & 0o777, progress=bar)


def _upload_input(sandbox: Sandbox, target: str, bar: _Bar) -> None:
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
