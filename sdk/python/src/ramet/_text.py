# SPDX-License-Identifier: Apache-2.0
"""Text from a sandbox, for messages that people read on a terminal or in a log."""

from __future__ import annotations

import json
import unicodedata

# Control characters, characters that hide or reorder text, lone surrogates, separators of lines.
HARMFUL = ("Cc", "Cf", "Cs", "Zl", "Zp")


def plain(text: str, most: int | None = None) -> str:
    """Returns text as one line that cannot control a terminal, cut to `most` characters before.

    Harmful characters are escaped as in JSON, so that JSON has the same value afterwards.
    """
    if most is not None and len(text) > most:
        text = text[: most - 1] + "\u2026"
    return "".join(
        json.dumps(one)[1:-1] if unicodedata.category(one) in HARMFUL else one for one in text
    )
