# SPDX-License-Identifier: Apache-2.0
"""Bodies from local files and folders, and archives into them. Twin of ramet/_async/_local.py."""

from __future__ import annotations

import io
from pathlib import Path
from typing import BinaryIO, Callable, Iterator, List

from ramet._bodies import Body, body_of, body_of_file
from ramet._folders import Chunks, Packer, Unpacker

Progress = Callable[[int, int | None], None]

Sending = Body
to_send = body_of


def file_to_send(source: BinaryIO, progress: Progress | None) -> Sending:
    """Returns the body of a file object from its position to its end."""
    return body_of_file(source, progress)


def folder_to_send(folder: Path, progress: Progress | None) -> Sending:
    """Returns a tar archive of all that is in a folder."""
    return Body(Packer(folder, progress), None, True)


def store(file: BinaryIO, chunk: bytes) -> None:
    """Writes to a file."""
    file.write(chunk)


def unpack(chunks: Iterator[bytes], folder: Path, progress: Progress | None) -> List[str]:
    """Unpacks a tar archive into a folder. Returns the names of what was left out."""
    done = 0

    def count(size: int) -> None:
        nonlocal done
        done += size
        if progress:
            progress(done, None)

    unpacker = Unpacker(folder, count)
    unpacker.run(io.BufferedReader(Chunks(chunks), 1 << 16))
    for _ in chunks:  # to the end, where an answer that broke off is noticed
        pass
    return unpacker.left_out
