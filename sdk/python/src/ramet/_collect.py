# SPDX-License-Identifier: Apache-2.0
# Generated from _async/_collect.py by make_sync.py: change that file.
"""Collects the events of a call."""

from __future__ import annotations

from typing import Callable, Iterable

from ramet._io import notify
from ramet._output import Output
from ramet.results import CodeError, Result
from ramet.types import Event, ExecResult


def collect(
    events: Iterable[Event],
    *,
    on_stdout: Callable[[str], object] | None = None,
    on_stderr: Callable[[str], object] | None = None,
    on_result: Callable[[Result], object] | None = None,
    on_error: Callable[[CodeError], object] | None = None,
    max_output_bytes: int | None = None,
) -> ExecResult:
    """Returns what the events of a call say, up to its exit event, and calls the callbacks."""
    stdout, stderr = Output(max_output_bytes), Output(max_output_bytes)
    shown: list[Result] = []
    error: CodeError | None = None
    exit_code = -1
    for event in events:
        if event.type == "stdout":
            stdout.add(event.raw)
            notify(on_stdout, str(event.data))
        elif event.type == "stderr":
            stderr.add(event.raw)
            notify(on_stderr, str(event.data))
        elif event.result is not None:
            shown.append(event.result)
            notify(on_result, event.result)
        elif event.error is not None:
            error = event.error
            notify(on_error, error)
        elif event.code is not None:
            exit_code = event.code
    return ExecResult(
        stdout=stdout.kept.decode(errors="replace"),
        stderr=stderr.kept.decode(errors="replace"),
        exit_code=exit_code,
        results=shown,
        error=error,
        truncated=stdout.truncated or stderr.truncated,
    )
