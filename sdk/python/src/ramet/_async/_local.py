# SPDX-License-Identifier: Apache-2.0
"""Bodies from local files and folders, and archives into them. Twin of ramet/_local.py.

Local files are read and written in other threads. Progress is reported in the event loop.
"""

from __future__ import annotations

import asyncio
import io
import threading
from collections import deque
from concurrent.futures import Future
from pathlib import Path
from typing import AsyncIterable, AsyncIterator, BinaryIO, Callable, Iterable, Iterator, List

from ramet._async._io import blocking, finish
from ramet._bodies import body_of, body_of_file
from ramet._folders import Chunks, Packer, Unpacker

Progress = Callable[[int, int | None], None]


class Sending:
    """Bytes to send, like `Body`."""

    def __init__(self, chunks: AsyncIterable[bytes], size: int | None, repeatable: bool) -> None:
        self._chunks = chunks
        self.size = size
        self.repeatable = repeatable

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks.__aiter__()


def to_send(data: bytes | str | AsyncIterable[bytes] | Iterable[bytes]) -> Sending:
    """Returns the body of some bytes or text, or of chunks, which are sent once."""
    if isinstance(data, Sending):
        return data
    if isinstance(data, AsyncIterable):
        return Sending(data, None, False)
    body = body_of(data)
    in_memory = isinstance(data, (bytes, bytearray, memoryview, str))
    return Sending(_Chunks(body, _Reports(None), in_memory), body.size, body.repeatable)


async def file_to_send(source: BinaryIO, progress: Progress | None) -> Sending:
    """Returns the body of a file object from its position to its end."""
    reports = _Reports(progress)
    if type(source) is io.BytesIO:
        body = body_of_file(source, reports.note)
        return Sending(_Chunks(body, reports, True), body.size, body.repeatable)
    body = await blocking(body_of_file, source, reports.note)
    return Sending(_Chunks(body, reports, False), body.size, body.repeatable)


async def folder_to_send(folder: Path, progress: Progress | None) -> Sending:
    """Returns a tar archive of all that is in a folder."""
    reports = _Reports(progress)
    packer = await blocking(Packer, folder, reports.note)
    return Sending(_Chunks(packer, reports, False), None, True)


async def store(file: BinaryIO, chunk: bytes) -> None:
    """Writes to a file."""
    if type(file) is io.BytesIO:
        file.write(chunk)
    else:
        await blocking(file.write, chunk)


async def unpack(
    chunks: AsyncIterator[bytes], folder: Path, progress: Progress | None
) -> List[str]:
    """Unpacks a tar archive into a folder. Returns the names of what was left out."""
    reports = _Reports(progress)
    source = _Pulled(chunks, reports)
    done = 0

    def count(size: int) -> None:
        nonlocal done
        done += size
        if reports.note:
            reports.note(done, None)

    def run() -> List[str]:
        unpacker = Unpacker(folder, count)
        unpacker.run(io.BufferedReader(Chunks(source), 1 << 16))
        return unpacker.left_out

    left_out = await finish(lambda: blocking(run), source.stop)
    async for _ in chunks:  # to the end, where an answer that broke off is noticed
        pass
    reports.deliver()
    return left_out


class _Reports:
    """Takes reports of progress from another thread, and delivers them in the event loop."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._waiting: deque[tuple[int, int | None]] = deque()
        self.note: Progress | None = self._note if progress else None

    def _note(self, done: int, total: int | None) -> None:
        self._waiting.append((done, total))

    def deliver(self) -> None:
        while self._progress and self._waiting:
            self._progress(*self._waiting.popleft())


class _Chunks:
    """Chunks that another thread makes one at a time, unless they are in memory."""

    def __init__(self, chunks: Iterable[bytes], reports: _Reports, in_memory: bool) -> None:
        self._chunks = chunks
        self._reports = reports
        self._in_memory = in_memory

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = iter(self._chunks)
        while (chunk := await self._next(chunks)) is not None:
            self._reports.deliver()
            yield chunk
        self._reports.deliver()

    async def _next(self, chunks: Iterator[bytes]) -> bytes | None:
        return next(chunks, None) if self._in_memory else await blocking(next, chunks, None)


class _Pulled(Iterator[bytes]):
    """Chunks from the event loop, for another thread."""

    def __init__(self, chunks: AsyncIterator[bytes], reports: _Reports) -> None:
        self._chunks = chunks
        self._reports = reports
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._stopped = False
        self._next: Future[bytes | None] | None = None

    def __next__(self) -> bytes:
        with self._lock:
            if self._stopped:
                raise StopIteration
            self._next = asyncio.run_coroutine_threadsafe(self._pull(), self._loop)
        chunk = self._next.result()
        if chunk is None:
            raise StopIteration
        return chunk

    def stop(self) -> None:
        """Ends the chunks, also for a thread that waits for one."""
        with self._lock:
            self._stopped = True
            if self._next:
                self._next.cancel()

    async def _pull(self) -> bytes | None:
        self._reports.deliver()
        return await anext(self._chunks, None)
