# SPDX-License-Identifier: Apache-2.0
"""Runs bench/firecracker.py against a program that answers as Firecracker's API does: checks the
requests, their order, and the error text when a request is refused."""

import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parents[3] / "bench" / "firecracker.py"

# A fake Firecracker process: records each request, creates the files of a snapshot, and runs an
# agent behind its vsock once a guest runs. It notes and obeys commands from its serial port.
FAKE = r'''#!@PYTHON@
import json, os, socket, sys, threading
from http.server import BaseHTTPRequestHandler
from socketserver import UnixStreamServer

notes, refused = os.environ["NOTES"], os.environ.get("REFUSE", "")
assert sys.argv[1:3] == ["--api-sock", "api.sock"], sys.argv

# As Firecracker 1.16.1 writes them: no reason phrase after the status.
HEAD = b"Server: Firecracker API\r\nConnection: keep-alive\r\n"
DONE = b"HTTP/1.1 204 \r\n" + HEAD + b"\r\n"
REFUSAL = b"HTTP/1.1 400 \r\n" + HEAD + (
    b'Content-Type: application/json\r\nContent-Length: 27\r\n\r\n{"fault_message":"refused"}'
)


def agent():
    s = socket.socket(socket.AF_UNIX)
    s.bind("v.sock")
    s.listen()
    first = True
    while True:
        c, _ = s.accept()
        line = b""
        while not line.endswith(b"\n"):
            line += c.recv(1)
        assert line == b"CONNECT 5555\n", line
        if not first:  # nobody listens in the guest at first
            c.sendall(b"OK 1073741824\n")
            assert c.recv(8) == b"\0\0\0\0\1\0\0\0"
            c.sendall(b"\4\0\0\0\x40\0\0\0\3\0\0\0")
        first = False
        c.close()


def serial_port():
    for line in sys.stdin:
        note("COMMAND", line.strip(), {})
        if line.strip() == refused:
            os._exit(1)
        print("some output\ndone", flush=True)


def note(*what):
    with open(notes, "a") as f:
        f.write(json.dumps(what) + "\n")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        note(self.command, self.path, body)
        if self.path == refused:
            self.wfile.write(REFUSAL)
            if self.path == "/snapshot/load":
                os._exit(1)
            return
        if self.path == "/snapshot/create":
            open(body["snapshot_path"], "w").close()
            open(body["mem_file_path"], "w").close()
        if self.path == "/snapshot/load":
            assert os.path.exists(body["snapshot_path"])
            assert os.path.exists(body["mem_backend"]["backend_path"])
        if self.path in ("/actions", "/snapshot/load"):
            threading.Thread(target=agent, daemon=True).start()
        if self.path == "/actions":
            threading.Thread(target=serial_port, daemon=True).start()
        self.wfile.write(DONE)

    do_PUT = do_PATCH = answer

    def log_message(self, *_):
        pass


class Server(UnixStreamServer):
    def get_request(self):
        return self.socket.accept()[0], ("client", 0)


Server("api.sock", Handler).serve_forever()
'''


class Load(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.dir = Path(temporary.name)
        self.binary = self.dir / "firecracker"
        self.binary.write_text(FAKE.replace("@PYTHON@", sys.executable))
        self.binary.chmod(self.binary.stat().st_mode | stat.S_IXUSR)
        for name in ("kernel", "initramfs", "rootfs", "notes"):
            (self.dir / name).write_bytes(b"")

    def bench(self, *more: str, **env: str) -> subprocess.CompletedProcess[str]:
        paths = [f"--{name}={self.dir / name}" for name in ("kernel", "initramfs", "rootfs")]
        return subprocess.run(
            [sys.executable, BENCH, self.binary, f"--dir={self.dir}", *paths]
            + ["--runs=3", "--children=1,2", "--vcpus=2", "--ram-mib=512", *more],
            env={**os.environ, "NOTES": str(self.dir / "notes"), **env},
            capture_output=True,
            text=True,
        )

    def asked(self) -> list[tuple[str, str, dict[str, Any]]]:
        return [tuple(json.loads(line)) for line in (self.dir / "notes").read_text().splitlines()]

    def test_figures(self) -> None:
        done = self.bench()
        self.assertEqual(done.returncode, 0, done.stderr)
        figures = json.loads(done.stdout)
        self.assertEqual(
            {name: f["n"] for name, f in figures.items()},
            {
                "firecracker_boot_ms": 1,
                "firecracker_snapshot_ms": 1,
                "firecracker_ready_n1_ms": 3,
                "firecracker_usable_n1_ms": 3,
                "firecracker_ready_n2_ms": 3,
                "firecracker_usable_n2_ms": 3,
            },
        )
        for n in (1, 2):
            ready, usable = figures[f"firecracker_ready_n{n}_ms"], figures[f"firecracker_usable_n{n}_ms"]
            self.assertLess(0, ready["min"])
            self.assertLess(ready["max"], usable["max"])

    def test_requests_and_their_order(self) -> None:
        self.assertEqual(self.bench().returncode, 0)
        asked = self.asked()
        self.assertEqual(
            [f"{method} {path}" for method, path, _ in asked[:7]],
            [
                "PUT /boot-source",
                "PUT /machine-config",
                "PUT /drives/rootfs",
                "PUT /vsock",
                "PUT /actions",
                "PATCH /vm",
                "PUT /snapshot/create",
            ],
        )
        self.assertEqual(
            asked[1][2], {"vcpu_count": 2, "mem_size_mib": 512, "track_dirty_pages": False}
        )
        self.assertEqual(asked[5][2], {"state": "Paused"})
        self.assertEqual({path for _, path, _ in asked[7:]}, {"/snapshot/load"})
        self.assertEqual(len(asked[7:]), 3 * 1 + 3 * 2)
        self.assertTrue(asked[7][2]["resume_vm"])
        self.assertEqual(asked[7][2]["snapshot_path"], asked[6][2]["snapshot_path"])

    def test_tiny_guest_writes_before_each_snapshot(self) -> None:
        done = self.bench("--tiny")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(
            {name: f["n"] for name, f in json.loads(done.stdout).items()},
            {
                "firecracker_full_16m_ms": 3,
                "firecracker_diff_16m_ms": 3,
                "firecracker_ready_n1_ms": 3,
                "firecracker_ready_n2_ms": 3,
            },
        )
        asked = self.asked()
        self.assertEqual(
            [path for _, path, _ in asked[:7]],
            ["/boot-source", "/machine-config", "/actions", "touch half", "/vm", "/snapshot/create", "/vm"],
        )
        self.assertNotIn("initrd_path", asked[0][2])
        self.assertTrue(asked[1][2]["track_dirty_pages"])
        taken = asked[7:]
        for kind in ("Diff", "Full") * 3:
            (_, command, _), (_, _, paused), (_, _, created), (_, _, resumed), *taken = taken
            self.assertEqual(command, "touch 16")
            self.assertEqual((paused["state"], resumed["state"]), ("Paused", "Resumed"))
            self.assertEqual(created["snapshot_type"], kind)
            self.assertNotEqual(created["mem_file_path"], asked[5][2]["mem_file_path"])
        loads = [what["mem_backend"] for _, path, what in taken if path == "/snapshot/load"]
        self.assertEqual({load["backend_path"] for load in loads}, {asked[5][2]["mem_file_path"]})

    def test_disobedience_of_the_tiny_guest_is_reported(self) -> None:
        done = self.bench("--tiny", REFUSE="touch 16")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the guest did not obey `touch 16`", done.stderr)
        self.assertIn("some output", done.stderr)

    def test_no_files_are_left(self) -> None:
        self.bench()
        left = {path.name for path in self.dir.iterdir()}
        self.assertEqual(left, {"firecracker", "kernel", "initramfs", "rootfs", "notes"})

    def test_refused_request_is_reported(self) -> None:
        for path in ("/boot-source", "/snapshot/create", "/snapshot/load"):
            done = self.bench(REFUSE=path)
            self.assertEqual(done.returncode, 1)
            self.assertIn(path, done.stderr)
            self.assertIn('400 {"fault_message":"refused"}', done.stderr)

    def test_early_exit_of_the_process_is_reported(self) -> None:
        self.binary.write_text("#!/bin/sh\necho no KVM here\nexit 3\n")
        done = self.bench()
        self.assertEqual(done.returncode, 1)
        self.assertIn("ended with 3", done.stderr)
        self.assertIn("no KVM here", done.stderr)


if __name__ == "__main__":
    unittest.main()
