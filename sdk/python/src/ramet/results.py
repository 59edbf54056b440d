# SPDX-License-Identifier: Apache-2.0
"""Results of a Python call besides its output: values, pictures, data, and exceptions."""

from __future__ import annotations

import base64
import html
from dataclasses import dataclass, field
from typing import Any, Mapping

DATA_MIME = "application/vnd.ramet.data+json"
CHART_MIME = "application/vnd.ramet.chart+json"
NOTE_MIME = "text/vnd.ramet.note"
PLOTLY_MIME = "application/vnd.plotly.v1+json"
# Representations that run nothing in the page of a notebook, beside pictures.
INERT = ("text/plain", "application/json")
# First bytes of pictures. Code in the sandbox can send anything as one, and other parsers of
# pictures are not made for that.
HEADS = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}
# "sandbox" without allow-same-origin: the page's scripts reach neither the notebook nor its server.
FRAME = (
    '<iframe sandbox="allow-scripts" srcdoc="%s" '
    'style="width: 100%%; height: %dpx; border: 0; resize: vertical"></iframe>'
)
PAGE = "<style>body { font: 13px sans-serif } td, th { text-align: right; padding: 2px 8px }</style>"


def in_frame(page: str) -> str:
    """Returns HTML that shows the HTML of a sandbox apart from the page that it is put in."""
    rows = page.count("<tr")
    height = min(60 + 26 * rows, 480) if rows else 480
    return FRAME % (html.escape(PAGE + page), height)


def _is_column(pair: Any) -> bool:
    return isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[1], list)


@dataclass(frozen=True)
class Result:
    """A value that a call has shown: with `display()`, as a figure, or as its last expression.

    One value has several representations, by MIME type; those that it does not have are None. In
    Jupyter, a result shows as the value does there. Its HTML and SVG are shown in a frame of their
    own, since the sandbox's code could control the notebook with scripts otherwise.

    Attributes:
        mime: The representations by MIME type: text, base64 of a binary format, or the value that
            JSON describes.
        main: True for the value of the call's last expression.
    """

    mime: Mapping[str, Any] = field(repr=False)
    main: bool = False

    @property
    def text(self) -> str | None:
        """The value's `repr`."""
        return self._text("text/plain")

    @property
    def html(self) -> str | None:
        """HTML, for example of a pandas frame."""
        return self._text("text/html")

    @property
    def markdown(self) -> str | None:
        """Markdown."""
        return self._text("text/markdown")

    @property
    def latex(self) -> str | None:
        """LaTeX."""
        return self._text("text/latex")

    @property
    def svg(self) -> str | None:
        """An SVG picture."""
        return self._text("image/svg+xml")

    @property
    def javascript(self) -> str | None:
        """JavaScript."""
        return self._text("application/javascript")

    @property
    def png(self) -> bytes | None:
        """A PNG picture, for example of a matplotlib figure; None if the bytes are not of one."""
        return self._picture("image/png")

    @property
    def jpeg(self) -> bytes | None:
        """A JPEG picture; None if the bytes are not of one."""
        return self._picture("image/jpeg")

    @property
    def pdf(self) -> bytes | None:
        """A PDF document."""
        return self._bytes("application/pdf")

    @property
    def json(self) -> Any:
        """A list or dict, or what the value's `_repr_json_` returned."""
        return self.mime.get("application/json")

    @property
    def data(self) -> dict[str, list[Any]] | None:
        """The columns of a pandas frame or series, up to 100,000 cells; times as in ISO 8601.

        An index that is more than row numbers is a column too. If two columns have one name, this is
        None; see `columns`.
        """
        found = self.mime.get(DATA_MIME)
        return found if isinstance(found, dict) else None

    @property
    def columns(self) -> list[tuple[Any, list[Any]]] | None:
        """The same columns as pairs of name and values, also if two of them have one name."""
        found = self.mime.get(DATA_MIME)
        pairs = list(found.items()) if isinstance(found, dict) else found
        if not isinstance(pairs, list) or not all(_is_column(pair) for pair in pairs):
            return None  # code in the sandbox can send anything
        return [(name, values) for name, values in pairs]

    @property
    def note(self) -> str | None:
        """What the result lacks, and why: for example data, if a frame has too many cells."""
        return self._text(NOTE_MIME)

    @property
    def chart(self) -> dict[str, Any] | None:
        """The content of a matplotlib figure: type, title, labels, axes and series.

        `type` is "line", "scatter", "bar", "pie", "box_and_whisker", "superchart" (several charts
        in `elements`) or "unknown"; docs/results.md describes the fields.
        """
        found = self.mime.get(CHART_MIME)
        return found if isinstance(found, dict) else None

    @property
    def plotly(self) -> dict[str, Any] | None:
        """A plotly figure, for `plotly.io.from_json` and plotly.js."""
        found = self.mime.get(PLOTLY_MIME)
        return found if isinstance(found, dict) else None

    def _text(self, mime: str) -> str | None:
        found = self.mime.get(mime)
        return found if isinstance(found, str) else None

    def _bytes(self, mime: str) -> bytes | None:
        found = self.mime.get(mime)
        try:
            return base64.b64decode(found) if isinstance(found, str) else None
        except ValueError:  # code in the sandbox can send anything
            return None

    def _picture(self, mime: str) -> bytes | None:
        found = self._bytes(mime)
        return found if found and found.startswith(HEADS[mime]) else None

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Returns the representations that are safe in Jupyter, and HTML and SVG in a frame."""
        shown = {mime: self.mime[mime] for mime in INERT if mime in self.mime}
        for mime in HEADS:
            if picture := self._picture(mime):
                shown[mime] = base64.b64encode(picture).decode()
        page = self.html or self.svg
        if page:
            shown["text/html"] = in_frame(page)
        elif self.markdown:
            shown["text/plain"] = self.markdown
        return shown

    def __repr__(self) -> str:
        return f"Result({self.text or ''}, {'main, ' if self.main else ''}{sorted(self.mime)})"

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> "Result":
        """Builds the result from an event of the service."""
        return cls(mime=dict(obj["mime"]), main=bool(obj["main"]))


@dataclass(frozen=True)
class CodeError:
    """The exception that ended a call.

    Attributes:
        name: Name of its class, such as "ValueError".
        value: Its text.
        traceback: The traceback, as on stderr. Each text is shortened to 20 KiB.
    """

    name: str
    value: str
    traceback: str = field(repr=False)

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> "CodeError":
        """Builds it from an event of the service."""
        return cls(str(obj["name"]), str(obj["value"]), str(obj["traceback"]))
