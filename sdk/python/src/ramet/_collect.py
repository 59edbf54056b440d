# SPDX-License-Identifier: Apache-2.0
# Generated from _async/_collect.py by make_sync.py: change that file.
"""Collects the events of a call."""

from __future__ import annotations

from typing import Callable, Iterable

from ramet._io import notify
from ramet._output import Output, Results, shares, shortened_error, size_of_error
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
    """Returns what the events of a call say, up to its exit event, and calls the callbacks.

    `max_output_bytes` is one limit for both streams, the results and the exception.
    """
    stdout, stderr = Output(max_output_bytes), Output(max_output_bytes)
    shown = Results(max_output_bytes)
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
            shown.add(event.result)
            notify(on_result, event.result)
        elif event.error is not None:
            error = event.error
            notify(on_error, error)
        elif event.code is not None:
            exit_code = event.code
    error_size = size_of_error(error) if error else 0
    kept = shares([len(stdout.kept), len(stderr.kept), shown.size, error_size], max_output_bytes)
    stdout.cut(kept[0])
    stderr.cut(kept[1])
    shown.cut(kept[2])
    cut = kept[3] < error_size
    return ExecResult(
        stdout=stdout.kept.decode(errors="replace"),
        stderr=stderr.kept.decode(errors="replace"),
        exit_code=exit_code,
        results=shown.kept,
        error=shortened_error(error, kept[3]) if error and cut else error,
        truncated=stdout.truncated or stderr.truncated or shown.truncated or cut,
    )
