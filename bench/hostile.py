# SPDX-License-Identifier: Apache-2.0
"""What others notice of sandboxes that take all they can get: exec in a neighbour, an answer of the
service itself, and an fsync in the neighbour, before and while."""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from urllib.parse import urlsplit

from measure import BenchError, Figures, api, create, figure, opened

# 198.51.100.0/24 is nobody's (RFC 5737).
FLOOD = """
import socket
to_all = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    try:
        to_all.sendto(b"x" * 1400, ("198.51.100.1", 9))
    except OSError:
        pass
"""
# Addresses of others, lengths that are none, and noise.
SPOOF = """
import os, socket
link = next(name for _, name in socket.if_nameindex() if name != "lo")
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
raw.bind((link, 0))
while True:
    try:
        raw.send(os.urandom(12) + b"\\x08\\x00" + os.urandom(14 + os.urandom(1)[0]))
    except OSError:
        pass
"""
SCAN = """
import socket
while True:
    for host in range(1, 255):
        for net in ("10.251.0", "192.168.0", "169.254.169"):
            probe = socket.socket()
            probe.setblocking(False)
            probe.connect_ex((f"{net}.{host}", 7070))
            probe.close()
"""

# Each write is made stable before the next.
SYNC = """
import os
file = os.open("/root/flood", os.O_CREAT | os.O_WRONLY)
while True:
    os.pwrite(file, os.urandom(4096), 0)
    os.fsync(file)
"""
FLOODERS = 8  # sandboxes of one tenant that do this
# With pauses, as a program has them that does something else than wait for the disk.
SYNC_TIMES = """
import os, time
file = os.open("/root/mine", os.O_CREAT | os.O_WRONLY)
for _ in range({runs}):
    began = time.perf_counter()
    os.pwrite(file, os.urandom(4096), 0)
    os.fsync(file)
    print((time.perf_counter() - began) * 1000)
    time.sleep(0.05)
"""


def for_ever(program: str) -> str:
    """Bash code that runs a Python program in the background."""
    return f"python3 -c '{program}' >/dev/null 2>&1 &"


# Each goes on by itself until the sandbox is deleted.
HOSTILE = {
    "network_flooded": for_ever(FLOOD),
    "frames_spoofed": for_ever(SPOOF),
    "ranges_scanned": for_ever(SCAN),
    "vcpus_busy": "for i in $(seq 16); do (while :; do :; done) & done",
    "memory_taken": (
        "while :; do python3 -c 'hog = []\nwhile True: hog.append(b\"x\" * (8 << 20))'; done"
        " >/dev/null 2>&1 &"
    ),
    "disk_filled": (
        "while :; do fallocate -l $(df --output=avail -B1 / | tail -1) /root/most;"
        " head -c 200M /dev/zero >/root/rest; sync; rm -f /root/most /root/rest; done"
        " >/dev/null 2>&1 &"
    ),
    "fork_bomb": "setsid bash -c 'bomb() { bomb | bomb & }; bomb' >/dev/null 2>&1 &",
}


# Goes on as fast as it can, since its client leaves: nothing holds it back then.
OUTPUT_FLOOD = "yes " + "x" * 99


def begin_and_leave(sandbox_id: str, code: str) -> None:
    """Begins a call of bash, which goes on without a client."""
    url = urlsplit(os.environ.get("RAMET_HOST", "http://127.0.0.1:7070"))
    call = json.dumps({"code": code, "language": "bash"})
    with closing(http.client.HTTPConnection(url.netloc, timeout=600)) as line:
        line.request("POST", f"/v1/sandboxes/{sandbox_id}/exec", call)
        line.getresponse()


def run_bash(sandbox_id: str, code: str) -> None:
    """Runs bash code to its end."""
    api("POST", f"/v1/sandboxes/{sandbox_id}/exec", {"code": code, "language": "bash"})


def timed(
    line: http.client.HTTPConnection, method: str, path: str, body: str | None, expected: bytes
) -> float:
    """Milliseconds until the answer, which has the expected bytes in it, was read."""
    began = time.perf_counter()
    line.request(method, path, body)
    text = line.getresponse().read()
    if expected not in text:
        raise BenchError(f"{path} answered {text[:200]!r}")
    return (time.perf_counter() - began) * 1000


def latencies(sandbox_id: str, runs: int) -> tuple[list[float], list[float]]:
    """Milliseconds of so many calls of `print(1)`, each with one of the service itself behind it."""
    url = urlsplit(os.environ.get("RAMET_HOST", "http://127.0.0.1:7070"))
    call = json.dumps({"code": "print(1)"})
    path = f"/v1/sandboxes/{sandbox_id}/exec"
    execs, echoes = [], []
    with closing(http.client.HTTPConnection(url.netloc, timeout=600)) as line:
        for _ in range(runs):
            execs.append(timed(line, "POST", path, call, b'"data":"1"'))
            echoes.append(timed(line, "GET", "/livez", None, b"ok"))
    return execs, echoes


def while_hostile(
    neighbour: str, start: Callable[[str], None], runs: int
) -> tuple[list[float], list[float]]:
    """As `latencies` of the neighbour, while a sandbox does what it was started with."""
    with opened() as places:
        start(create(places))
        return latencies(neighbour, runs)


def sync_times(sandbox_id: str, runs: int) -> list[float]:
    """Milliseconds of so many writes of a page with an fsync."""
    code = SYNC_TIMES.format(runs=runs)
    events = api("POST", f"/v1/sandboxes/{sandbox_id}/exec", {"code": code}, timeout_s=600)
    told = [json.loads(line) for line in events.splitlines()]
    text = "\n".join(event["data"] for event in told if event["type"] == "stdout")
    times = [float(line) for line in text.split()]
    if len(times) != runs:
        raise BenchError(f"{runs} fsyncs were asked for: {events[-300:]}")
    return times


def fsync_flood(quick: bool) -> Figures:
    """An fsync in a sandbox, alone and beside sandboxes that do nothing else."""
    runs = 30 if quick else 200
    with opened() as places:
        neighbour = create(places)
        sync_times(neighbour, 5)
        alone = figure(sync_times(neighbour, runs), "ms")
        for _ in range(FLOODERS):
            run_bash(create(places), for_ever(SYNC))
        beside = figure(sync_times(neighbour, runs), "ms")
    return {
        "fsync_alone": alone,
        "fsync_beside_fsyncs": beside,
        "fsync_p99_slows": figure([beside["p99"] / alone["p99"]], "times"),
    }


def hostile(quick: bool) -> Figures:
    """Exec in a sandbox, alone and beside one that is hostile in several ways."""
    runs = 30 if quick else 200
    starts = {name: partial(run_bash, code=code) for name, code in HOSTILE.items()}
    starts["output_flooded"] = partial(begin_and_leave, code=OUTPUT_FLOOD)
    with opened() as places:
        neighbour = create(places)
        latencies(neighbour, 5)
        figures: Figures = {}
        execs, echoes = latencies(neighbour, runs)
        figures["exec_alone"], figures["host_alone"] = figure(execs, "ms"), figure(echoes, "ms")
        for name, start in starts.items():
            execs, echoes = while_hostile(neighbour, start, runs)
            slowed = figure(execs, "ms")
            figures[f"exec_beside_{name}"] = slowed
            figures[f"host_beside_{name}"] = figure(echoes, "ms")
            ratio = slowed["median"] / figures["exec_alone"]["median"]
            figures[f"{name}_slows"] = figure([ratio], "times")
    return figures
