# SPDX-License-Identifier: Apache-2.0
"""A first program: runs code in one sandbox that keeps its state. Each step prints its time."""

from __future__ import annotations

import time
from typing import Any, Callable

from ramet import ExecResult, RametError, Sandbox


def step(title: str, work: Callable[[], Any]) -> Any:
    """Runs one step and prints how long it took, in milliseconds."""
    began = time.perf_counter()
    result = work()
    print(f"{(time.perf_counter() - began) * 1000:8.1f} ms  {title}")
    if isinstance(result, ExecResult):
        for line in (result.stdout + result.stderr).splitlines():
            print(f"             | {line}")
    return result


def stream(sbx: Sandbox) -> None:
    """Shows that output arrives while the call still runs."""
    began = time.perf_counter()
    code = "import time\nfor i in range(3):\n    print('tick', i)\n    time.sleep(0.3)"
    for event in sbx.run_code_stream(code):
        if event.type == "stdout":
            at = (time.perf_counter() - began) * 1000
            print(f"             | {event.data!r} after {at:.0f} ms")


def main() -> None:
    sbx: Sandbox = step("create a sandbox", Sandbox)
    with sbx:
        step("python: set a variable", lambda: sbx.run_code("numbers = list(range(1000))"))
        step("python: use it in a later call", lambda: sbx.run_code("print(sum(numbers))"))
        step("bash in the same machine", lambda: sbx.run_code("uname -sr; nproc; pwd", "bash"))
        step("an exception is part of the output", lambda: sbx.run_code("1 / 0"))
        step("and the state survives it", lambda: sbx.run_code("print('still alive', len(numbers))"))
        step("output is streamed", lambda: stream(sbx))
    print("done: the sandbox is closed")


if __name__ == "__main__":
    try:
        main()
    except RametError as error:
        raise SystemExit(f"quickstart: {error}") from None
