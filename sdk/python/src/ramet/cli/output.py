# SPDX-License-Identifier: Apache-2.0
"""Writes output: bytes of programs, JSON, columns."""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime, timezone
from typing import Any, Iterable, Sequence

from ramet._text import plain as plain

STDOUT = 1
STDERR = 2


def put(fd: int, data: bytes) -> None:
    """Writes all of the bytes to a descriptor, after what `print` has buffered."""
    (sys.stdout if fd == STDOUT else sys.stderr).flush()
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def print_json(value: Any) -> None:
    """Prints a JSON value."""
    for line in json.dumps(value, indent=2, ensure_ascii=False).split("\n"):
        print(plain(line))


def columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table. Columns are as wide as their longest entry, also in a narrow terminal, so
    that programs can read them."""
    table = [tuple(header), *(tuple(map(plain, row)) for row in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    for row in table:
        print("  ".join(entry.ljust(width) for entry, width in zip(row, widths)).rstrip())


def size(count: int) -> str:
    """Returns a number of bytes as text, such as "1.5 GiB"."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or value >= 10 else f"{value:.1f} {unit}"


def since(time: str) -> str:
    """Returns how long ago a time of the service was, such as "5m"."""
    return _span((datetime.now(timezone.utc) - _time(time)).total_seconds())


def until(time: str | None) -> str:
    """Returns the time that is left until a time of the service, such as "23h"."""
    if time is None:
        return "never"
    return _span((_time(time) - datetime.now(timezone.utc)).total_seconds())


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _span(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)}{unit}"
    return f"{max(int(seconds), 0)}s"
