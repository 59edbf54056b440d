# SPDX-License-Identifier: Apache-2.0
"""What the command line adds to the service: `ramet run`, from its start to its first output.

The SDK is installed into an empty environment first, as a user installs it: how fast Python starts
depends on what is installed beside it. This program is called there as `command.py RUNS`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import BenchError, Figures, figure

PAUSE_S = 2.5  # the pool of warm sandboxes is full again


def installed(folder: str) -> str:
    """Installs the SDK into a new environment; returns the path of its Python."""
    sdk = Path(__file__).resolve().parent.parent / "sdk/python"
    python = f"{folder}/bin/python"
    for command in (
        ["/usr/bin/python3", "-m", "venv", folder],
        [python, "-m", "pip", "install", "--quiet", f"{sdk}[cli]"],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise BenchError(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")
    return python


def by_command() -> float:
    """Returns the milliseconds until the first byte of output of `ramet run`."""
    ramet = str(Path(sys.executable).parent / "ramet")
    began = time.perf_counter()
    with subprocess.Popen([ramet, "run", "--", "echo", "x"], stdout=subprocess.PIPE) as run:
        assert run.stdout
        first = run.stdout.read(1)
        took = time.perf_counter() - began
    if first != b"x" or run.returncode:
        raise BenchError(f"ramet run ended with {run.returncode}")
    return took * 1e3


def by_service() -> float:
    """Does the same with an imported SDK and an open connection; returns milliseconds."""
    from ramet import Client, Sandbox

    with Client() as client:
        client.list_sandboxes()
        began = time.perf_counter()
        with Sandbox(client=client) as sandbox:
            for event in sandbox.processes.start(["echo", "x"]):
                if event.type == "stdout":
                    return (time.perf_counter() - began) * 1e3
    raise BenchError("the program printed nothing")


def measured(runs: int) -> Figures:
    """Returns the figures of both ways, taken in turns, and of their difference."""
    command: list[float] = []
    service: list[float] = []
    for turn in range(runs + 1):  # the first one fills caches
        for way, samples in ((by_command, command), (by_service, service)):
            time.sleep(PAUSE_S)
            took = way()
            if turn:
                samples.append(took)
    return {
        "run_first_output_ms": figure(command, "ms"),
        "service_first_output_ms": figure(service, "ms"),
        "run_over_service_ms": figure([a - b for a, b in zip(command, service)], "ms"),
    }


def command(quick: bool) -> Figures:
    """`ramet run` up to its first output, in turns with the service's own time."""
    with tempfile.TemporaryDirectory() as folder:
        runs = "5" if quick else "30"
        done = subprocess.run(
            [installed(folder), __file__, runs], capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": ""},
        )
        if done.returncode:
            raise BenchError(f"command.py failed: {done.stderr.strip()[-500:]}")
        figures: Figures = json.loads(done.stdout)
    return figures


if __name__ == "__main__":
    print(json.dumps(measured(int(sys.argv[1]))))
