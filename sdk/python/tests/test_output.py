# SPDX-License-Identifier: Apache-2.0
"""The limit of a call's output: one for streams, results and the exception together."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from ramet import Client, ExecResult, Sandbox
from ramet._output import shares, size_of_error, size_of_result

SBX = "sbx_" + "0" * 32


def stream(name: str, size: int) -> dict[str, Any]:
    return {"type": name, "data": "x" * size}


def value(size: int) -> dict[str, Any]:
    return {"type": "result", "mime": {"text/plain": "r" * size}, "main": False}


def exception(size: int) -> dict[str, Any]:
    return {"type": "error", "name": "ValueError", "value": "v", "traceback": "t" * size}


def run(limit: int | None, *events: dict[str, Any], seen: list[Any] | None = None) -> ExecResult:
    lines = [*events, {"type": "exit", "data": 1}]
    text = "".join(json.dumps({**one, "seq": n, "ts": 1}) + "\n" for n, one in enumerate(lines))

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/exec"):
            return httpx.Response(200, text=text)
        return httpx.Response(200, json={"id": SBX, "state": "ready"})

    sandbox = Sandbox(client=Client(transport=httpx.MockTransport(handle)))
    note = seen.append if seen is not None else None
    return sandbox.run_code("x", max_output_bytes=limit, on_result=note, on_error=note)


def size_of(result: ExecResult) -> int:
    error = size_of_error(result.error) if result.error else 0
    results = sum(size_of_result(one) for one in result.results)
    return len(result.stdout) + len(result.stderr) + results + error


def test_results_count() -> None:
    seen: list[Any] = []
    result = run(1000, *(value(300) for _ in range(4000)), seen=seen)
    assert result.truncated and 600 < size_of(result) <= 1000
    assert [len(one.text or "") for one in result.results] == [300] * 3
    assert len(seen) == 4000


def test_exception_counts() -> None:
    seen: list[Any] = []
    result = run(1000, exception(1_200_000), seen=seen)
    assert result.truncated and size_of(result) == 1000
    assert result.error and result.error.name == "ValueError" and result.error.value == "v"
    assert len(seen[0].traceback) == 1_200_000


def test_endless_output_hides_nothing_else() -> None:
    events = [stream("stdout", 1000)] * 50 + [stream("stderr", 100), value(50), exception(60)]
    result = run(1000, *events)
    assert result.truncated and size_of(result) == 1000
    assert len(result.stderr) == 100 and len(result.results) == 1
    assert result.error and len(result.error.traceback) == 60


def test_parts_that_are_all_too_long_share_the_limit() -> None:
    events = [stream("stdout", 5000), stream("stderr", 5000), value(200), value(200), exception(5000)]
    result = run(1000, *events)
    assert result.truncated and size_of(result) <= 1000
    assert len(result.stdout) == len(result.stderr) == 250 and len(result.results) == 1
    assert result.error and size_of_error(result.error) == 250


@pytest.mark.parametrize("limit", [None, 2000])
def test_output_within_the_limit_is_whole(limit: int | None) -> None:
    result = run(limit, stream("stdout", 500), stream("stderr", 500), value(300), exception(300))
    assert not result.truncated
    assert (len(result.stdout), len(result.stderr)) == (500, 500)
    assert len(result.results) == 1 and result.error and len(result.error.traceback) == 300


def test_one_stream_may_use_the_whole_limit() -> None:
    assert len(run(1000, stream("stdout", 2000)).stdout) == 1000
    assert len(run(0, stream("stdout", 2000), value(10), exception(10)).stdout) == 0


def test_text_of_an_exception_is_not_cut_within_a_character() -> None:
    error = {"type": "error", "name": "E", "value": "\u20ac" * 100, "traceback": ""}
    shown = run(100, error).error
    assert shown and shown.value == "\u20ac" * 33


def test_shares() -> None:
    assert shares([5, 100, 20], 60) == [5, 35, 20]
    assert shares([100, 100, 100], 100) == [33, 33, 34]
    assert shares([1, 2], None) == [1, 2] and shares([], 5) == [] and shares([3], 0) == [0]
