# SPDX-License-Identifier: Apache-2.0
"""http-latency leaves no sandbox open, whichever of its requests fails."""

from __future__ import annotations

import subprocess
import sys
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PROGRAM = sys.argv.pop(1)
EVENTS = b'{"type":"stdout","data":"1"}\n{"type":"exit","data":0}\n'


class Service(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, failing: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.failing = failing
        self.asked = self.made = 0
        self.open: set[str] = set()


class Handler(BaseHTTPRequestHandler):
    server: Service
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.asked += 1
        if self.server.asked == self.server.failing:
            status, body = 500, b'{"error":"it fails"}'
        elif self.path == "/v1/sandboxes":
            self.server.made += 1
            name = f"sbx_{self.server.made:032x}"
            self.server.open.add(name)
            status, body = 201, f'{{"id":"{name}"}}'.encode()
        elif self.command == "DELETE":
            self.server.open.remove(self.path.rsplit("/", 1)[1])
            status, body = 204, b""
        elif self.path == "/metrics":
            status, body = 200, b"\nramet_warm_default_ready 1\n"
        else:
            status, body = 200, EVENTS if self.path.endswith("/exec") else b"ok"
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = answer

    def log_message(self, form: str, *args: object) -> None:
        pass


class Leftovers(unittest.TestCase):
    def one(self, failing: int) -> tuple[int, Service]:
        with Service(failing) as service:
            threading.Thread(target=service.serve_forever, daemon=True).start()
            done = subprocess.run(
                [PROGRAM, "--port", str(service.server_port), "--runs", "1", "--creates", "2"],
                capture_output=True,
                timeout=60,
            )
            service.shutdown()
        return done.returncode, service

    def test_no_sandbox_is_left_open(self) -> None:
        status, whole = self.one(0)
        self.assertEqual((status, whole.open), (0, set()))
        self.assertGreater(whole.asked, 10)
        for failing in range(1, whole.asked + 1):
            status, service = self.one(failing)
            self.assertEqual(status, 1, f"request {failing}")
            self.assertFalse(service.open, f"request {failing}")


unittest.main()
