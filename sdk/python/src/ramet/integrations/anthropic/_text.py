# SPDX-License-Identifier: Apache-2.0
"""Texts as the editing tools show and change them."""

from __future__ import annotations

import base64
import posixpath
from typing import Any, Sequence, cast

from anthropic.lib.tools import ToolError
from anthropic.types.beta.beta_tool_result_block_param import Content

MEDIA_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".pdf": "application/pdf",
}
_AROUND = 4  # lines shown before and after a change


def block_of(media_type: str, data: bytes) -> Content:
    """Returns a content block with a picture or a PDF document."""
    source = {
        "type": "base64",
        "media_type": media_type,
        "data": base64.b64encode(data).decode(),
    }
    kind = "document" if media_type == "application/pdf" else "image"
    return cast(Content, {"type": kind, "source": source})


def media_type_of(path: str) -> str | None:
    """Returns the media type of a file that is shown as a block; None for text."""
    return MEDIA_TYPES.get(posixpath.splitext(path)[1].lower())


def decoded(path: str, data: bytes) -> str:
    """Returns the text of a file.

    Raises:
        ToolError: It is not UTF-8.
    """
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ToolError(f"{path} is not a text file") from None


def part_of(text: str, view_range: Any) -> tuple[list[str], int]:
    """Returns the lines of a range, such as [10, 20] or [10, -1], and the first one's number.

    Raises:
        ToolError: The range is wrong.
    """
    lines = text.split("\n")
    if view_range is None:
        return lines, 1
    if not (
        isinstance(view_range, Sequence)
        and len(view_range) == 2
        and all(isinstance(one, int) for one in view_range)
    ):
        raise ToolError(f"view_range must be a pair of line numbers, not {view_range!r}")
    first, last = view_range
    if last == -1:
        last = len(lines)
    if not 1 <= first <= len(lines) or last < first:
        raise ToolError(f"view_range {list(view_range)} is not within lines 1 to {len(lines)}")
    return lines[first - 1 : last], first


def numbered(lines: Sequence[str], first: int = 1) -> str:
    """Returns lines with their numbers."""
    return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines, first))


def replaced(path: str, text: str, old: str, new: str, *, everywhere: bool = False) -> str:
    """Replaces a text that occurs once, or everywhere.

    Raises:
        ToolError: It does not occur, or more than once.
    """
    count = text.count(old) if old else 0
    if not old:
        raise ToolError("the text to replace is empty: give the text that is in the file")
    if not count:
        raise ToolError(
            f"the text to replace does not occur in {path}: view the file, and copy the text exactly"
        )
    if count > 1 and not everywhere:
        lines = [text.count("\n", 0, at) + 1 for at in _places(text, old)]
        raise ToolError(
            f"the text to replace occurs {count} times in {path}, in lines "
            f"{', '.join(map(str, lines))}: make it unique"
        )
    return text.replace(old, new)


def inserted(path: str, text: str, line: int, new: str) -> str:
    """Inserts a text after a line; 0 is the beginning.

    Raises:
        ToolError: There is no such line.
    """
    lines = text.splitlines(keepends=True)
    if not 0 <= line <= len(lines):
        raise ToolError(f"insert_line {line} is not within 0 to {len(lines)} of {path}")
    if new and not new.endswith("\n"):
        new += "\n"
    if line and line == len(lines) and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return "".join([*lines[:line], new, *lines[line:]])


def around(before: str, after: str) -> str:
    """Returns the numbered lines of the new text around the first change."""
    old, new = before.split("\n"), after.split("\n")
    same = next((i for i, (a, b) in enumerate(zip(old, new)) if a != b), min(len(old), len(new)))
    last = same + max(len(new) - len(old), 0)
    first = max(same - _AROUND, 0)
    return numbered(new[first : last + _AROUND + 1], first + 1)


def _places(text: str, part: str) -> list[int]:
    places, at = [], text.find(part)
    while at >= 0:
        places.append(at)
        at = text.find(part, at + len(part))
    return places
