# SPDX-License-Identifier: Apache-2.0
"""What a model gets to see of a call: bounded text and pictures."""

from __future__ import annotations

from typing import NamedTuple, Sequence

from ramet._text import plain
from ramet.types import ExecResult

MAX_CHARACTERS = 30_000  # of one tool result
MAX_OUTPUT_BYTES = 8 << 20  # of a call that are read into memory; a program may print forever
MAX_FILE_BYTES = 20 << 20  # of a file that is shown or edited; one with holes may be of any size
MAX_READ_BYTES = 256 << 20  # of files that a program of the framework reads into memory
MAX_CHECK_BYTES = 64 << 10  # of the output of an adapter's own commands
MAX_ENTRIES = 100_000  # of a folder that is listed
_IMAGES_MAX = 8
_LISTED_MAX = 20
TRUNCATED = f"[output beyond {MAX_OUTPUT_BYTES >> 20} MiB was discarded]"
_IMAGE_BYTES_MAX = 3_700_000  # base64 makes it 4/3 as long; models take up to 5 MB


class Picture(NamedTuple):
    """A picture of a call's results."""

    media_type: str
    data: bytes


def shorten(text: str, limit: int | None = MAX_CHARACTERS) -> str:
    """Returns the text, without its middle if it is longer than `limit` characters."""
    if limit is None or len(text) <= limit:
        return text
    head = limit // 2
    tail = limit - head
    left_out = len(text) - limit
    return f"{text[:head]}\n[... {left_out} characters left out ...]\n{text[len(text) - tail:]}"


def text_of(result: ExecResult, limit: int | None = MAX_CHARACTERS) -> str:
    """Returns what a call printed, the value of its last expression, and a failure's exit code."""
    parts = [result.stdout, result.stderr]
    parts += [one.text for one in result.results if one.text and not (one.png or one.jpeg)]
    parts += [f"[exit code {result.exit_code}]"] if result.exit_code else []
    parts += [TRUNCATED] if result.truncated else []
    text = "\n".join(part.rstrip("\n") for part in parts if part)
    return shorten(text, limit) or "(no output)"


def pictures_of(result: ExecResult) -> list[Picture]:
    """Returns the pictures that a call has shown, without those that are too large for a model."""
    pictures: list[Picture] = []
    for one in result.results:
        if one.png:
            pictures.append(Picture("image/png", one.png))
        elif one.jpeg:
            pictures.append(Picture("image/jpeg", one.jpeg))
    return [one for one in pictures if len(one.data) <= _IMAGE_BYTES_MAX][:_IMAGES_MAX]


def listed(names: Sequence[str]) -> str:
    """Returns names of a sandbox's files for a line of a log: the first ones, and how many more."""
    shown = ", ".join(plain(name) for name in names[:_LISTED_MAX])
    more = len(names) - _LISTED_MAX
    return f"{shown} and {more} more" if more > 0 else shown
