# SPDX-License-Identifier: Apache-2.0
"""Bodies of requests, which are read while they are sent."""

from __future__ import annotations

import io
import os
from typing import BinaryIO, Callable, Iterable, Iterator

from ramet._wire import utf8

_CHUNK = 256 << 10  # bytes passed to a socket at a time
_HELD = 8 << 20  # bytes of a source without a size that are read before it is sent

Report = Callable[[int, int | None], None]


class Body:
    """Bytes to send; `size` is None if it is not known before the end.

    A body that is not `repeatable` can be read once, so its request is not retried.
    """

    def __init__(self, chunks: Iterable[bytes], size: int | None, repeatable: bool) -> None:
        self._chunks = chunks
        self.size = size
        self.repeatable = repeatable

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._chunks)


class _Slices:
    """Chunks of bytes, because httpcore copies the rest of a body after each send(2)."""

    def __init__(self, data: bytes) -> None:
        self._view = memoryview(data)

    def __iter__(self) -> Iterator[bytes]:
        for at in range(0, len(self._view), _CHUNK):
            yield bytes(self._view[at : at + _CHUNK])


class _File:
    """Chunks of a file object from its position on; with a size, that many bytes."""

    def __init__(self, source: BinaryIO, size: int | None, first: bytes, report: Report | None) -> None:
        self._source, self._size, self._first, self._report = source, size, first, report
        self._start = source.tell() if size is not None else None

    def __iter__(self) -> Iterator[bytes]:
        if self._start is not None:
            self._source.seek(self._start)
        done = 0
        for chunk in self._read():
            yield chunk
            done += len(chunk)
            if self._report:
                self._report(done, self._size)
        if self._report and not done:
            self._report(0, self._size)

    def _read(self) -> Iterator[bytes]:
        left = self._size
        yield from _Slices(self._first)
        while left is None or left > 0:
            chunk = self._source.read(_CHUNK if left is None else min(_CHUNK, left))
            if not chunk and left is not None:
                raise OSError(
                    f"the file became shorter while it was sent: {left} of {self._size} bytes are "
                    "missing; send it again once nothing writes to it"
                )
            if not chunk:
                return
            left = None if left is None else left - len(chunk)
            yield chunk


def body_of(data: bytes | bytearray | memoryview | str | Iterable[bytes] | Body) -> Body:
    """Returns the body of some bytes or text, or of chunks, which are sent once."""
    if isinstance(data, Body):
        return data
    if isinstance(data, str):
        data = utf8(data, "the content")
    if isinstance(data, (bytes, bytearray, memoryview)):
        return Body(_Slices(bytes(data)), len(data), True)
    return Body(data, None, False)


def body_of_file(source: BinaryIO, report: Report | None) -> Body:
    """Returns the body of a file object from its position to its end.

    `report` is called with the bytes sent so far and the size.
    """
    empty = source.read(0)
    if not isinstance(empty, bytes):
        raise TypeError(f"the file object must return bytes, not {type(empty).__name__}")
    size, first = _bytes_left(source), b""
    if size is None:
        first = _read_first(source)
        if len(first) < _HELD:  # that is all: it can be sent again
            source, size, first = io.BytesIO(first), len(first), b""
    return Body(_File(source, size, first, report), size, size is not None)


def _read_first(source: BinaryIO) -> bytes:
    """Returns _HELD bytes, or fewer at the end. Reads repeatedly, since a pipe returns less."""
    chunks: list[bytes] = []
    missing = _HELD
    while missing and (chunk := source.read(missing)):
        chunks.append(chunk)
        missing -= len(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _bytes_left(source: BinaryIO) -> int | None:
    try:
        offset = source.tell()
        end = source.seek(0, os.SEEK_END)
        source.seek(offset)
    except (AttributeError, OSError):
        return None  # such as a pipe or a socket
    return max(end - offset, 0)
