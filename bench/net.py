# SPDX-License-Identifier: Apache-2.0
"""The network of a sandbox, compared with the same client on the host of the VMs. There it reaches
the server over a veth pair, with neither VM nor NAT."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from files import run
from measure import BenchError, Figures, create, figure, host, opened

SERVER_ADDRESS, OUR_ADDRESS, PORT = "203.0.113.1", "203.0.113.254", 8099
SPACE = "ramet-bench"  # name of the server's network namespace and of its veth pair

# Each connection begins with a line: `echo`, or `up N` or `down N` for a transfer of N bytes.
SERVER = f"""
import socketserver

class Serve(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self):
        kind, _, size = self.rfile.readline().decode().strip().partition(" ")
        left, chunk = int(size or 0), bytes(65536)
        if kind == "echo":
            while byte := self.rfile.read(1):
                self.connection.sendall(byte)
        elif kind == "down":
            for _ in range(left // len(chunk)):
                self.connection.sendall(chunk)
        else:
            while left > 0:
                left -= len(self.rfile.read1(65536)) or left
            self.connection.sendall(b"k")

class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True

Server(("", {PORT}), Serve).serve_forever()
"""

# Prints JSON: round trips of one byte in us, and MB/s (10^6 bytes) of each transfer.
CLIENT = f"""
import json, socket, time

def dial(line):
    s = socket.create_connection(("{SERVER_ADDRESS}", {PORT}), timeout=300)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.sendall(line.encode())
    return s

def round_trips(count):
    took = []
    with dial("echo\\n") as s:
        for _ in range(count + 10):
            began = time.perf_counter()
            s.sendall(b"x")
            s.recv(1)
            took.append((time.perf_counter() - began) * 1e6)
    return took[10:]

def speed(kind, size):
    chunk, left = bytes(65536), size
    with dial(f"{{kind}} {{size}}\\n") as s:
        began = time.perf_counter()
        if kind == "up":
            for _ in range(size // len(chunk)):
                s.sendall(chunk)
            s.recv(1)
        while kind == "down" and left > 0:
            left -= len(s.recv(65536)) or left
        return size / 1e6 / (time.perf_counter() - began)

def measure(trips, size, runs):
    print(json.dumps({{
        "rtt": round_trips(trips),
        "upload": [speed("up", size) for _ in range(runs + 1)][1:],
        "download": [speed("down", size) for _ in range(runs + 1)][1:],
    }}))
"""

LISTENS = f"until ip netns exec {SPACE} ss -Hltn sport = :{PORT} | grep -q .; do sleep 0.1; done"


@contextmanager
def server() -> Iterator[None]:
    """Runs the server behind a veth pair on the host of the VMs."""
    tidy = f"kill $(ip netns pids {SPACE} 2>/dev/null) 2>/dev/null; ip netns del {SPACE} 2>/dev/null"
    start = f"setsid ip netns exec {SPACE} python3 -c {shlex.quote(SERVER)} </dev/null >/dev/null 2>&1 &"
    host(f"{tidy}; true")
    try:
        host(
            f"ip netns add {SPACE} && ip link add {SPACE} type veth peer name out netns {SPACE} &&"
            f" ip addr add {OUR_ADDRESS}/24 dev {SPACE} && ip link set {SPACE} up &&"
            f" ip -n {SPACE} addr add {SERVER_ADDRESS}/24 dev out && ip -n {SPACE} link set out up"
        )
        host(start)
        host(f"timeout 60 sh -c {shlex.quote(LISTENS)}")
        yield
    finally:
        host(f"{tidy}; ip link del {SPACE} 2>/dev/null; true")


def taken(text: str, prefix: str) -> Figures:
    """Returns the figures from a client's output."""
    try:
        got = json.loads(text)
    except ValueError as broken:
        raise BenchError(f"the client printed no JSON: {text[:200]!r}") from broken
    units = {"upload": "MB/s", "download": "MB/s", "rtt": "us"}
    return {f"{prefix}{name}": figure(got[name], unit) for name, unit in units.items()}


def net(quick: bool) -> Figures:
    """Network round trips and throughput, from a sandbox and from the host."""
    trips, size, runs = (50, 4 << 20, 3) if quick else (1000, 64 << 20, 7)
    code = f"{CLIENT}\nmeasure({trips}, {size}, {runs})"
    with opened() as paths, server():
        create(paths)
        figures = taken(run(paths[0], code), "sandbox_")
        figures |= taken(host(f"python3 -c {shlex.quote(code)}"), "veth_floor_")
    for name in ("upload", "download", "rtt"):
        ratio = figures[f"sandbox_{name}"]["median"] / figures[f"veth_floor_{name}"]["median"]
        figures[f"{name}_to_floor"] = figure([ratio], "times")
    return figures
