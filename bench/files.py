# SPDX-License-Identifier: Apache-2.0
"""Files in and out of a sandbox, compared with the same bytes in base64 through exec.

The client runs on the host of the VMs in both cases: in the rig, QEMU's user network would be the
bottleneck. This program is called there as `files.py [--quick]`.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import closing
from urllib.parse import urlsplit

from measure import BENCH_DIR, BenchError, Figures, create, figure, host_json, opened


def call(method: str, path: str, body: bytes = b"") -> bytes:
    """Sends one request to the service; takes and returns raw bytes."""
    url = urlsplit(os.environ.get("RAMET_HOST", "http://127.0.0.1:7070"))
    with closing(http.client.HTTPConnection(url.netloc, timeout=600)) as line:
        line.request(method, path, body)
        answer = line.getresponse()
        got = answer.read()
    if answer.status >= 400:
        raise BenchError(f"{method} {path}: {answer.status} {got[:200]!r}")
    return got


def upload(box: str, data: bytes) -> None:
    call("PUT", f"{box}/files?path=/root/bench", data)


def download(box: str, data: bytes) -> None:
    if call("GET", f"{box}/files?path=/root/bench") != data:
        raise BenchError("the downloaded bytes differ from the uploaded ones")


def run(box: str, code: str) -> str:
    """Runs Python code in the sandbox; returns its standard output."""
    text, end = "", -1
    body = json.dumps({"code": code, "output": "chunks"}).encode()
    for line in call("POST", f"{box}/exec", body).split(b"\n"):
        event = json.loads(line or b"{}")
        if event.get("type") == "stdout":
            text += event["data"]
        elif event.get("type") == "exit":
            end = event["data"]
    if end != 0:
        raise BenchError(f"code in the sandbox ended with {end}")
    return text


def upload_by_exec(box: str, data: bytes) -> None:
    """Transfers without the routes for files: as base64 in a program."""
    text = base64.b64encode(data).decode()
    run(box, f"import base64\nopen('/root/bench', 'wb').write(base64.b64decode({text!r}))")


def download_by_exec(box: str, data: bytes) -> None:
    code = "import base64\nprint(base64.b64encode(open('/root/bench', 'rb').read()).decode())"
    if base64.b64decode(run(box, code)) != data:
        raise BenchError("the base64 output differs from the uploaded bytes")


def speeds(work: Callable[[str, bytes], None], box: str, data: bytes, runs: int) -> list[float]:
    """Returns MB/s (10^6 bytes) of each run, after one run that is not counted."""
    got = []
    for _ in range(runs + 1):
        began = time.perf_counter()
        work(box, data)
        got.append(len(data) / 1e6 / (time.perf_counter() - began))
    return got[1:]


def files(quick: bool) -> Figures:
    """Upload and download, through the routes for files and as base64 through exec."""
    return host_json(f"python3 {BENCH_DIR}/files.py{' --quick' if quick else ''}", timeout_s=3600)


def measure_files(quick: bool) -> Figures:
    runs, size = (3, 8 << 20) if quick else (7, 64 << 20)
    large, small = os.urandom(size), os.urandom(4 << 20)
    figures: Figures = {}
    with opened() as paths:
        create(paths)
        for name, work, data in (
            ("upload", upload, large),
            ("download", download, large),
            ("upload_4mib", upload, small),
            ("download_4mib", download, small),
            ("exec_base64_in_4mib", upload_by_exec, small),
            ("exec_base64_out_4mib", download_by_exec, small),
        ):
            figures[name] = figure(speeds(work, paths[0], data, runs), "MB/s")
    for name, peer in (("upload", "exec_base64_in"), ("download", "exec_base64_out")):
        ratio = figures[f"{name}_4mib"]["median"] / figures[f"{peer}_4mib"]["median"]
        figures[f"{name}_over_exec"] = figure([ratio], "times")
    return figures


if __name__ == "__main__":
    print(json.dumps(measure_files("--quick" in sys.argv)))
