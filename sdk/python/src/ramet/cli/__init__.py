# SPDX-License-Identifier: Apache-2.0
"""The command line `ramet`. It needs `pip install './sdk/python[cli]'`; docs/cli.md describes it."""

from __future__ import annotations

import gc
import sys
from typing import NoReturn, Sequence


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and exits.

    Args:
        arguments: The words after the program's name. None: those of this process.
    """
    gc.set_threshold(100_000)  # imports leave no garbage, and looking for it takes 10 ms
    try:
        from ramet.cli.app import run
    except ImportError as missing:
        if missing.name not in ("click", "rich"):
            raise
        print(
            f"ramet: the package {missing.name} is missing\n"
            "  Install the command line: pip install './sdk/python[cli]' in a checkout of Ramet",
            file=sys.stderr,
        )
        raise SystemExit(125) from None
    run(sys.argv[1:] if arguments is None else list(arguments))
