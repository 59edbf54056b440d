# SPDX-License-Identifier: Apache-2.0
"""Output of programs, which may be endless."""

from __future__ import annotations


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
