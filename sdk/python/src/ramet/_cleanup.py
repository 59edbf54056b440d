# SPDX-License-Identifier: Apache-2.0
"""Clean-up in asyncio tasks, which a cancellation must not interrupt."""

from __future__ import annotations

import asyncio
from typing import Coroutine, TypeVar

T = TypeVar("T")


async def finish(work: Coroutine[object, object, T]) -> T:
    """Waits for `work` to end even if the caller is cancelled, which is then raised afterwards.

    For clean-up, so that a cancelled task leaves nothing behind.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
        except Exception:
            break
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # the cancellation matters more
        raise cancelled
    return task.result()
