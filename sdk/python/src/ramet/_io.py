# SPDX-License-Identifier: Apache-2.0
"""Waiting and concurrency, with threads. Twin of ramet/_async/_io.py."""

from __future__ import annotations

import threading
import time
from typing import Callable, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

# Raised when the caller shall not wait any longer; SystemExit by a signal's handler.
Cancelled = (KeyboardInterrupt, SystemExit)


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def blocking(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Calls a function that may wait for a local disk."""
    return function(*args, **kwargs)


def notify(callback: Callable[[_T], object] | None, value: _T) -> None:
    """Calls a callback."""
    if callback is not None:
        callback(value)


def beside(work: Callable[[], _T], side: Callable[[], object]) -> _T:
    """Does `work` while `side` is done in another thread, which must not raise.

    Returns when both are done. If `work` fails, it does not wait for `side`.
    """
    thread = threading.Thread(target=side, daemon=True)
    thread.start()
    result = work()
    thread.join()
    return result


def finish(work: Callable[[], _T]) -> _T:
    """Does `work`."""
    return work()
