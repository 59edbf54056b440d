# SPDX-License-Identifier: Apache-2.0
"""Throughput of a call's output, up to the HTTP client's socket.

The client runs on the host of the VMs and is called there as `output.py [--quick]`. With
`--stand-in DIR` (the folder of the build) there is no VM: the service and the guest's agent run on
this machine and use a Unix socket. This shows the cost of the software without emulation.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

from measure import (
    BENCH_DIR,
    BenchError,
    Figure,
    Figures,
    create,
    figure,
    host_json,
    opened,
)

LINES = 100_000
LINE = 100  # bytes, with the newline
READ = 1 << 20
BY_LINES = f"line = 'x' * {LINE - 1}\nfor _ in range({LINES}): print(line)"
BY_TURNS = (
    "import sys\nfor _ in range({}): print('x' * 99); print('x' * 99, file=sys.stderr)"
)
IN_BULK = (
    f"import sys\nmany = ('x' * {LINE - 1} + '\\n') * 10_000\n"
    "for _ in range({}): sys.stdout.write(many)"
)
SLOW = "import time\nprint('first')\ntime.sleep(0.2)"


def call(sandbox_id: str, code: str, output: str = "lines") -> tuple[float, float]:
    """Returns the seconds until the first event of a call and until its end."""
    url = urlsplit(os.environ.get("RAMET_HOST", "http://127.0.0.1:7070"))
    began = time.perf_counter()
    first = 0.0
    end = b""
    with closing(http.client.HTTPConnection(url.netloc, timeout=600)) as line:
        body = json.dumps({"code": code, "output": output})
        line.request("POST", f"/v1/sandboxes/{sandbox_id}/exec", body)
        answer = line.getresponse()
        while more := answer.read1(READ):
            first = first or time.perf_counter() - began
            end = (end + more)[-200:]
    if b'"type":"exit","data":0,' not in end:
        raise BenchError(f"the call ended with {end!r}")
    return first, time.perf_counter() - began


def rate(sandbox_id: str, code: str, units: float, runs: int, unit: str, output: str) -> Figure:
    """Returns units per second of a call that prints `units` of them."""
    took = [call(sandbox_id, code, output)[1] for _ in range(runs)]
    return figure([units / seconds for seconds in took], unit)


def measure(quick: bool, bulk: int) -> Figures:
    """Returns all figures; `bulk` is the number of MB to print in large chunks."""
    runs = 3 if quick else 10
    with opened() as paths:
        box = create(paths)
        call(box, "pass")
        turns = LINES // 20
        lines = IN_BULK.format(bulk)
        return {
            "print_lines": rate(box, BY_LINES, LINES, runs, "lines/s", "lines"),
            "print_by_turns": rate(box, BY_TURNS.format(turns), 2 * turns, runs, "lines/s", "lines"),
            "bulk_lines": rate(box, lines, bulk * 10_000, runs, "lines/s", "lines"),
            "bulk_chunks": rate(box, lines, bulk, runs, "MB/s", "chunks"),
            "first_byte": figure(
                [call(box, SLOW)[0] * 1000 for _ in range(20 if quick else 200)], "ms"
            ),
        }


@contextmanager
def stand_in(build: str) -> Iterator[None]:
    """Runs the service with stand-in VMs and the real agent, on this machine."""
    # In memory, like /run, since the service keeps its journals there.
    home = tempfile.mkdtemp(prefix="ramet-bench-", dir="/dev/shm")
    os.mkdir(f"{home}/service")
    started = []
    try:
        agent = [f"{build}/guest/ramet-init", "agent", "--unix", f"{home}/sock"]
        started.append(
            subprocess.Popen(
                [*agent, "--run-dir", f"{home}/agent", "--dry-run-system"],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "HOME": home, "LANG": "C.UTF-8"},
            )
        )
        server = f"{build}/test/service/service_server"
        started.append(
            subprocess.Popen(
                [server, f"dir={home}/service", f"agent={home}/sock"],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        )
        assert started[1].stdout
        os.environ["RAMET_HOST"] = f"http://127.0.0.1:{int(started[1].stdout.readline())}"
        wait_until_ready()
        yield
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()
        shutil.rmtree(home)


def wait_until_ready() -> None:
    """Waits until a sandbox can be created."""
    for _ in range(100):
        try:
            with opened() as paths:
                create(paths)
            return
        except BenchError:
            time.sleep(0.1)
    raise BenchError("the service with stand-in VMs created no sandbox within 10 s")


def output(quick: bool) -> Figures:
    """Output of a call in lines and in bulk, and the first byte of slow output."""
    short = " --quick" if quick else ""
    figures = host_json(f"python3 -B {BENCH_DIR}/output.py{short}", timeout_s=3600)
    build = os.path.join(os.path.dirname(os.environ.get("RAMET_DEV", "./dev")), "build/release")
    with stand_in(build):
        native = measure(quick, 200)
    return {**figures, **{f"native_{name}": value for name, value in native.items()}}


def main() -> int:
    """Runs on the host of the VMs, or with --stand-in on this machine."""
    quick = "--quick" in sys.argv
    try:
        if "--stand-in" in sys.argv:
            with stand_in(sys.argv[sys.argv.index("--stand-in") + 1]):
                figures = measure(quick, 200)
        else:
            figures = measure(quick, 20)
    except BenchError as failed:
        print(failed, file=sys.stderr)
        return 1
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
