# SPDX-License-Identifier: Apache-2.0
"""Output of programs, which may be endless."""

from __future__ import annotations

import json
from typing import Sequence

from ramet.results import CodeError, Result


def shares(sizes: Sequence[int], limit: int | None) -> list[int]:
    """Returns how much of each of several parts is kept, so that all fit into one limit.

    Small parts are kept whole, and the larger ones get equal shares of the rest: output without
    end on one stream does not hide what the others say.
    """
    kept = list(sizes)
    left = sum(sizes) if limit is None else limit
    by_size = sorted(range(len(kept)), key=lambda part: kept[part])
    for done, part in enumerate(by_size):
        kept[part] = min(kept[part], left // (len(kept) - done))
        left -= kept[part]
    return kept


class Output:
    """The first bytes of a stream.

    Args:
        limit: The most bytes to keep. None: all.

    Attributes:
        kept: The bytes.
        truncated: True if there were more.
    """

    def __init__(self, limit: int | None) -> None:
        if limit is not None and limit < 0:
            raise ValueError(f"max_output_bytes must not be negative: {limit}")
        self.kept = bytearray()
        self.truncated = False
        self._limit = limit

    def add(self, raw: bytes) -> None:
        """Adds the next bytes of the stream."""
        room = len(raw) if self._limit is None else self._limit - len(self.kept)
        self.kept += raw[:room]
        self.truncated = self.truncated or len(raw) > room

    def cut(self, size: int) -> None:
        """Keeps only the first `size` bytes."""
        self.truncated = self.truncated or size < len(self.kept)
        del self.kept[size:]


class Results:
    """The first results of a call, measured as `size_of_result` does.

    Args:
        limit: The most bytes to keep. None: all.

    Attributes:
        kept: The results.
        size: Their size.
        truncated: True if there were more.
    """

    def __init__(self, limit: int | None) -> None:
        self.kept: list[Result] = []
        self.size = 0
        self.truncated = False
        self._limit = limit
        self._sizes: list[int] = []

    def add(self, result: Result) -> None:
        """Adds the next result."""
        if self.truncated:
            return
        size = 0 if self._limit is None else size_of_result(result)
        if self._limit is not None and self.size + size > self._limit:
            self.truncated = True
            return
        self.kept.append(result)
        self._sizes.append(size)
        self.size += size

    def cut(self, size: int) -> None:
        """Keeps only the first results, up to `size` bytes."""
        while self.size > size:
            self.kept.pop()
            self.size -= self._sizes.pop()
            self.truncated = True


def size_of_result(result: Result) -> int:
    """Returns the bytes of a result's representations, as JSON in ASCII."""
    return len(json.dumps(dict(result.mime)))


def size_of_error(error: CodeError) -> int:
    """Returns the bytes of an exception's texts."""
    return sum(len(_encoded(text)) for text in (error.name, error.value, error.traceback))


def shortened_error(error: CodeError, size: int) -> CodeError:
    """Returns the exception with the beginnings of its texts, `size` bytes in all."""
    texts = [_encoded(text) for text in (error.name, error.value, error.traceback)]
    kept = shares([len(text) for text in texts], size)
    return CodeError(*(text[:most].decode(errors="ignore") for text, most in zip(texts, kept)))


def _encoded(text: str) -> bytes:
    return text.encode(errors="replace")
