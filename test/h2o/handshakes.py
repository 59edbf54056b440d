#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of TLS handshakes for the server's loop.

    handshakes.py SERVER [SECONDS]

SERVER is h2o_server_patched or h2o_server_unpatched. A flood opens 64 connections, sends their
ClientHellos at once, waits for the answers, closes the connections and repeats that. For each kind of
key it prints the handshakes per second of the server's CPU time, and the maximum CPU time of one run
of the loop, for which all other connections wait. CPU time depends little on other load.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time

from defects import Server, ask_by_tls, client_hello

AT_ONCE = 64
KEYS = {
    "ECDSA P-256": ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
    "RSA 2048": ["rsa:2048"],
}


def certificate(folder, kind):
    cert, key = f"{folder}/cert.pem", f"{folder}/key.pem"
    subprocess.run(["openssl", "req", "-x509", "-nodes", "-subj", "/CN=a", "-days", "2",
                    "-keyout", key, "-out", cert, "-newkey", *KEYS[kind]],
                   check=True, capture_output=True)
    return cert, key


def flood(server, seconds):
    """Floods the server; returns the number of handshakes that it began."""
    hello, n, until = client_hello(), 0, time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(server.connect()) for _ in range(AT_ONCE)]
            os.kill(server.pid, signal.SIGSTOP)
            for s in sockets:
                s.sendall(hello)
            os.kill(server.pid, signal.SIGCONT)
            for s in sockets:
                s.recv(1)
        n += AT_ONCE
    return n


def measure(program, kind, seconds):
    with tempfile.TemporaryDirectory() as folder:
        with Server(program, *certificate(folder, kind)) as server:
            ask_by_tls(server, "started")
            before = server.cpu_seconds()
            n = flood(server, seconds)
            rate = n / (server.cpu_seconds() - before)
            longest = ask_by_tls(server, "run_max_us") / 1000
    print(f"| {kind} | {rate:.0f} | {longest:.1f} ms |")


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: handshakes.py SERVER [SECONDS]")
    print("| key | handshakes/s | longest run |\n|---|---|---|")
    for kind in KEYS:
        measure(sys.argv[1], kind, float(sys.argv[2]) if len(sys.argv) == 3 else 10)


if __name__ == "__main__":
    main()
