# SPDX-License-Identifier: Apache-2.0
"""The effect on others of sandboxes that exhaust a resource: exec and fsync in a neighbour, and an
answer of the service itself, each without and with such sandboxes."""

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

# 198.51.100.0/24 is reserved for documentation (RFC 5737).
FLOOD = """
import socket
to_all = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    try:
        to_all.sendto(b"x" * 1400, ("198.51.100.1", 9))
    except OSError:
        pass
"""
# Sends frames with foreign addresses, invalid lengths and random content.
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

# Makes each write durable before the next.
SYNC = """
import os
file = os.open("/root/flood", os.O_CREAT | os.O_WRONLY)
while True:
    os.pwrite(file, os.urandom(4096), 0)
    os.fsync(file)
"""
FLOODERS = 8  # sandboxes of one tenant that run SYNC
# Pauses between the writes, like a program that does more than wait for the disk.
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


def in_background(program: str) -> str:
    """Returns bash code that runs a Python program in the background."""
    return f"python3 -c '{program}' >/dev/null 2>&1 &"


# Each program runs in the background until the sandbox is deleted.
HOSTILE = {
    "network_flooded": in_background(FLOOD),
    "frames_spoofed": in_background(SPOOF),
    "ranges_scanned": in_background(SCAN),
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


# Runs without back-pressure, since its client disconnects.
OUTPUT_FLOOD = "yes " + "x" * 99


def begin_and_disconnect(sandbox_id: str, code: str) -> None:
    """Begins a bash call, which continues without a client."""
    url = urlsplit(os.environ.get("RAMET_HOST", "http://127.0.0.1:7070"))
    call = json.dumps({"code": code, "language": "bash"})
    with closing(http.client.HTTPConnection(url.netloc, timeout=600)) as line:
        line.request("POST", f"/v1/sandboxes/{sandbox_id}/exec", call)
        line.getresponse()


def run_bash(sandbox_id: str, code: str) -> None:
    """Runs bash code and waits for its end."""
    api("POST", f"/v1/sandboxes/{sandbox_id}/exec", {"code": code, "language": "bash"})


def timed(
    line: http.client.HTTPConnection, method: str, path: str, body: str | None, expected: bytes
) -> float:
    """Returns the milliseconds until the answer was read; it must contain the expected bytes."""
    began = time.perf_counter()
    line.request(method, path, body)
    text = line.getresponse().read()
    if expected not in text:
        raise BenchError(f"{path} answered {text[:200]!r}")
    return (time.perf_counter() - began) * 1000


def latencies(sandbox_id: str, runs: int) -> tuple[list[float], list[float]]:
    """Returns the milliseconds of `runs` calls of `print(1)`, and of as many GET /livez.

    The two alternate.
    """
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
    """Returns `latencies` of the neighbour while another sandbox runs what `start` starts."""
    with opened() as paths:
        start(create(paths))
        return latencies(neighbour, runs)


def sync_times(sandbox_id: str, runs: int) -> list[float]:
    """Returns the milliseconds of `runs` writes of a page with an fsync."""
    code = SYNC_TIMES.format(runs=runs)
    events = api("POST", f"/v1/sandboxes/{sandbox_id}/exec", {"code": code}, timeout_s=600)
    parsed = [json.loads(line) for line in events.splitlines()]
    text = "\n".join(event["data"] for event in parsed if event["type"] == "stdout")
    times = [float(line) for line in text.split()]
    if len(times) != runs:
        raise BenchError(f"expected the times of {runs} fsyncs, not {events[-300:]}")
    return times


def fsync_flood(quick: bool) -> Figures:
    """An fsync in a sandbox, alone and beside sandboxes that call fsync in a loop."""
    runs = 30 if quick else 200
    with opened() as paths:
        neighbour = create(paths)
        sync_times(neighbour, 5)
        alone = figure(sync_times(neighbour, runs), "ms")
        for _ in range(FLOODERS):
            run_bash(create(paths), in_background(SYNC))
        beside = figure(sync_times(neighbour, runs), "ms")
    return {
        "fsync_alone": alone,
        "fsync_beside_fsyncs": beside,
        "fsync_p99_slows": figure([beside["p99"] / alone["p99"]], "times"),
    }


def hostile(quick: bool) -> Figures:
    """Exec in a sandbox, alone and beside a sandbox that is hostile in several ways."""
    runs = 30 if quick else 200
    starts = {name: partial(run_bash, code=code) for name, code in HOSTILE.items()}
    starts["output_flooded"] = partial(begin_and_disconnect, code=OUTPUT_FLOOD)
    with opened() as paths:
        neighbour = create(paths)
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
