# SPDX-License-Identifier: Apache-2.0
"""What becomes of a program in a sandbox when the `ramet` that runs it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

SDK = Path(__file__).resolve().parents[2] / "sdk/python/src"
ENDS = [None, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL]


def leave(base: str, end: signal.Signals | None, code: str, *command: str) -> int:
    """Runs `ramet` with code as its input, up to its first output, and ends it by a signal, or
    (None) by the end of its reader. Returns its exit code."""
    env = {**os.environ, "RAMET_HOST": base, "PYTHONPATH": str(SDK)}
    with subprocess.Popen(
        [sys.executable, "-m", "ramet.cli", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=env,
    ) as ramet:
        assert ramet.stdin is not None and ramet.stdout is not None
        ramet.stdin.write(code.encode())
        ramet.stdin.close()
        assert ramet.stdout.read(1) == b"y"
        if end is None:
            ramet.stdout.close()
        else:
            ramet.send_signal(end)
        return ramet.wait()


def events(http: httpx.Client, path: str) -> list[dict[str, Any]]:
    with http.stream("GET", path) as answer:
        return [json.loads(line) for line in answer.iter_lines() if line]


@pytest.mark.parametrize("end", ENDS)
def test_program_ends_with_exec(
    base: str, http: httpx.Client, sandbox: str, end: signal.Signals | None
) -> None:
    code = leave(base, end, "", "exec", sandbox.rpartition("/")[2], "--", "yes")
    *_, process = http.get(f"{sandbox}/processes").json()
    assert events(http, f"{sandbox}/processes/{process['id']}/output")[-1]["data"] == 137
    assert code == {None: 128 + 13, signal.SIGKILL: -9}.get(end, 128 + (end or 0))


@pytest.mark.parametrize("end", ENDS)
def test_code_is_interrupted_with_python(
    base: str, http: httpx.Client, sandbox: str, end: signal.Signals | None
) -> None:
    leave(base, end, "while True: print('y' * 1000)", "python", sandbox.rpartition("/")[2])
    assert events(http, f"{sandbox}/replay?follow=1")[-1]["data"] == 130


def test_detached_program_continues(base: str, http: httpx.Client, sandbox: str) -> None:
    name, env = sandbox.rpartition("/")[2], {**os.environ, "RAMET_HOST": base}
    command = [sys.executable, "-m", "ramet.cli", "exec", "-d", name, "--", "cat", "/dev/zero"]
    done = subprocess.run(
        command, env=env | {"PYTHONPATH": str(SDK)}, stdout=subprocess.PIPE, check=True
    )
    process = f"{sandbox}/processes/{done.stdout.decode().strip()}"
    assert http.get(process).json()["state"] == "running"
    http.delete(process)


def run(base: str, *words: str, input: str | None = None) -> str:
    """Runs `ramet run` and returns its output. Without an input, that is /dev/null."""
    env = {**os.environ, "RAMET_HOST": base, "PYTHONPATH": str(SDK)}
    done = subprocess.run(
        [sys.executable, "-m", "ramet.cli", "run", *words],
        stdin=subprocess.DEVNULL if input is None else None,
        input=input,
        stdout=subprocess.PIPE,
        env=env,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("input", ["one\ntwo\n", "", None])
def test_run_passes_a_pipe_to_a_python_file(base: str, tmp_path: Path, input: str | None) -> None:
    file = tmp_path / "upper.py"
    file.write_text(
        "import sys\nprint([line.upper() for line in sys.stdin], sys.argv[1:], __file__)"
    )
    lines = [line.upper() + "\n" for line in (input or "").splitlines()]
    assert run(base, str(file), "-x", input=input) == f"{lines} ['-x'] {file}\n"


def test_run_of_a_file_that_leaves_its_input(base: str, tmp_path: Path) -> None:
    file = tmp_path / "first.py"
    file.write_text("print(input())")
    assert run(base, str(file), input="first\n" + "more\n" * 1_000_000) == "first\n"


def test_run_passes_a_pipe_to_a_command(base: str) -> None:
    assert run(base, "--", "tr", "a-z", "A-Z", input="up\n") == "UP\n"


def test_run_of_a_script_by_its_first_line(base: str, tmp_path: Path, folder: str) -> None:
    script = tmp_path / f"script-{os.getpid()}"
    script.write_text("#!/bin/sh\necho $1; cat")
    assert run(base, str(script), "x", input="in\n") == "x\nin\n"
    Path("/tmp", script.name).unlink()


@pytest.mark.parametrize("own", [[], ["-i"]])
def test_run_takes_files_along(base: str, tmp_path: Path, own: list[str]) -> None:
    local, remote = tmp_path / "local", tmp_path / "remote"
    (local / "data").mkdir(parents=True)
    remote.mkdir()
    (local / "helper.py").write_text("def twice(x): return 2 * x")
    (local / "data" / "n").write_text("21")
    file = tmp_path / f"main{os.getpid()}.py"
    file.write_text("import helper\nprint(helper.twice(int(open('data/n').read())))")
    words = ["-w", str(remote), *own, str(file)]
    assert run(base, "--with", f"{local}/.", *words) == "42\n"
    (remote / "helper.py").unlink()
    along = ["--with", f"{local}/helper.py", "--with", f"{local}/data"]
    assert run(base, *along, *words) == "42\n"
    if own:
        Path("/tmp", file.name).unlink()
