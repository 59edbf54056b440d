# SPDX-License-Identifier: Apache-2.0
"""Turns output of a sandbox into bounded, harmless content for a model."""

from __future__ import annotations

import base64
import json
import re
import unicodedata

from mcp.types import ContentBlock, ImageContent, TextContent

from ramet._text import HARMFUL
from ramet.results import PLOTLY_MIME, Result

KEPT_MAX = 4 << 20  # bytes of one stream that are kept for the file with all output
OUTPUT_MAX = 64 << 20  # bytes of output and results after which a call is stopped
_TAIL = 64 << 10  # last bytes of a longer stream that are kept
_TEXT_TYPES = ("text/plain", "text/markdown", "text/latex", "application/json", "text/html")
_PICTURES_MAX = 8  # per call
_PICTURE_MAX = 3 << 20  # bytes; models refuse a picture whose base64 has over 5 MB
_PICTURES_BYTES_MAX = 8 << 20  # of a call together
_PICTURE_HEADS = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}

# Sequences that control a terminal: colours, titles, the cursor.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])")
# Characters that show nothing, although their Unicode category is that of letters or of marks: the
# fillers of Hangul; tags and selectors of variants, which can carry a whole text.
_UNSEEN = [0x115F, 0x1160, 0x3164, 0xFFA0, *range(0xE0000, 0xE1000)]
# The planes of Unicode from 2 on, besides that of _UNSEEN, have no harmful characters.
_HARMFUL = [code for code in range(0x20000) if unicodedata.category(chr(code)) in HARMFUL]
# Control characters become visible ones. Characters that reorder or hide text become U+FFFD: with
# them, a person sees another text than the model. A lone surrogate cannot be sent.
_VISIBLE: dict[int, int] = {
    **dict.fromkeys(_HARMFUL + _UNSEEN, 0xFFFD),
    **{code: 0x2400 + code for code in range(0x20)},
    0x7F: 0x2421,
}
del _VISIBLE[0x09], _VISIBLE[0x0A]


def clean(text: str) -> str:
    """Returns text without characters that control a terminal or hide what is written.

    Newlines and tabs stay, and so do line ends as on Windows.
    """
    return "\r\n".join(part.translate(_VISIBLE) for part in text.split("\r\n"))


def clean_output(text: str) -> str:
    """Returns the output of a program as `clean` does, without colours, with "\\n" at line ends."""
    return clean(_ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n"))


def shortened(text: str, limit: int) -> str:
    """Returns the beginning and the end of a text that has more than `limit` characters."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    left_out = len(text) - head - tail
    return f"{text[:head]}\n[... {left_out} characters left out ...]\n{text[-tail:]}"


class Stream:
    """One stream of output, of any size, in bounded memory.

    Args:
        limit: Characters of `text`.
        kept_max: The most bytes of `kept`.
    """

    def __init__(self, limit: int, kept_max: int = KEPT_MAX) -> None:
        self.size = 0
        self._limit = limit
        self._kept_max = kept_max
        self._kept = bytearray()
        self._tail = bytearray()

    def add(self, raw: bytes) -> None:
        """Adds the next bytes of the stream."""
        self.size += len(raw)
        room = self._kept_max - len(self._kept)
        self._kept += raw[:room]
        if len(raw) > room:
            self._tail += raw[room:]
            del self._tail[:-_TAIL]

    @property
    def cut(self) -> bool:
        """True if `text` is not the whole output."""
        return self.size > 4 * self._limit or len(self._decoded()) > self._limit

    @property
    def kept(self) -> bytes:
        """The first bytes of the stream, all of them up to `kept_max`."""
        return bytes(self._kept)

    def last_line(self) -> str:
        """Returns the end of the last line that is not empty, for a report of progress."""
        end = (self._tail or self._kept)[-400:].decode(errors="replace")
        lines = clean_output(end).split("\n")
        return next((line[-200:] for line in reversed(lines) if line.strip()), "")

    def text(self) -> str:
        """Returns the output as text, shortened to the limit."""
        if self.size <= len(self._kept):
            return shortened(self._decoded(), self._limit)
        head = clean_output(self._kept[: self._limit * 4].decode(errors="replace"))
        tail = clean_output(self._tail.decode(errors="replace"))
        head, tail = head[: self._limit * 2 // 3], tail[-(self._limit // 3) :]
        left_out = self.size - len(head.encode()) - len(tail.encode())
        return f"{head}\n[... about {left_out} bytes left out ...]\n{tail}"

    def _decoded(self) -> str:
        return clean_output(self._kept.decode(errors="replace"))


def is_picture(head: bytes, size: int) -> bool:
    """Returns True if a file of `size` bytes that begins with `head` can be shown as a picture."""
    return size <= _PICTURE_MAX and _mime(head) is not None


def picture(raw: bytes) -> ImageContent | None:
    """Returns the picture as content; None if the bytes are not of a picture, or too many."""
    mime = _mime(raw)
    if mime is None or len(raw) > _PICTURE_MAX:
        return None
    return ImageContent(type="image", data=base64.b64encode(raw).decode(), mime_type=mime)


def _mime(raw: bytes) -> str | None:
    for mime, head in _PICTURE_HEADS.items():
        if raw.startswith(head) and (mime != "image/webp" or raw[8:12] == b"WEBP"):
            return mime
    return None


class Shown:
    """What is shown of a call's results, of which there may be any number, in bounded memory.

    Args:
        limit: Characters of the text, about.

    Attributes:
        pictures: The first pictures, as content.
    """

    def __init__(self, limit: int) -> None:
        self.pictures: list[ContentBlock] = []
        self._text = Stream(limit, 4 * limit)
        self._room = _PICTURES_BYTES_MAX

    def add(self, result: Result) -> None:
        """Adds the next result."""
        raw = result.png or result.jpeg
        line = _as_text(result) if raw is None else self._add_picture(raw)
        self._text.add(f"{line}\n".encode(errors="replace") if line else b"")

    def text(self) -> str:
        """Returns the results that are not pictures as text."""
        return self._text.text()

    def _add_picture(self, raw: bytes) -> str | None:
        """Adds a picture; returns why if it is left out."""
        if len(self.pictures) == _PICTURES_MAX:
            return f"[a picture was left out: a call shows up to {_PICTURES_MAX}]"
        content = picture(raw)
        if content is None:
            return (
                f"[a picture of {len(raw)} bytes was left out: it must be PNG or JPEG of up to "
                f"{_PICTURE_MAX} bytes; use a smaller figure or dpi]"
            )
        if len(raw) > self._room:
            return (
                f"[a picture of {len(raw)} bytes was left out: those of a call have up to "
                f"{_PICTURES_BYTES_MAX} bytes together]"
            )
        self._room -= len(raw)
        self.pictures.append(content)
        return None


def _as_text(result: Result) -> str:
    if PLOTLY_MIME in result.mime:
        return "[a plotly figure, which has no picture: use fig.write_image, or matplotlib]"
    for mime in _TEXT_TYPES:
        if (value := result.mime.get(mime)) is not None:
            return value if isinstance(value, str) else json.dumps(value)
    return f"[a result of type {', '.join(sorted(result.mime))}]"


def text(value: str) -> TextContent:
    """Returns text content."""
    return TextContent(type="text", text=value)
