# SPDX-License-Identifier: Apache-2.0
"""Servers in real guests: reached through the service, and in a fork's children."""

from __future__ import annotations

import socket
import urllib.request

from conftest import run_example
from ramet import Sandbox

SERVER = """
import http.server, threading
name = "parent"
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = name.encode() + b"x" * (int(self.path[1:] or 0))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        left, size = int(self.headers["Content-Length"]), 0
        while left:
            part = self.rfile.read(min(left, 65536)); left -= len(part); size += len(part)
        self.send_response(200); self.end_headers(); self.wfile.write(str(size).encode())
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Page)
threading.Thread(target=server.serve_forever, daemon=True).start()
"""


def get(url: str, path: str = "", data: bytes | None = None) -> bytes:
    base, _, query = url.partition("?")
    with urllib.request.urlopen(f"{base}{path}?{query}", data, timeout=120) as answer:
        return bytes(answer.read())


def test_a_server_is_reached_in_parent_and_children(sbx: Sandbox) -> None:
    assert sbx.run_code(SERVER).exit_code == 0
    assert get(sbx.url(8000)) == b"parent"
    (child,) = sbx.fork(1)
    with child:
        child.run_code("name = 'child'")
        assert child.ports() == []  # access to the parent is none to the child
        assert get(child.url(8000)) == b"child"
        assert get(sbx.url(8000)) == b"parent"


def test_large_bodies_and_other_protocols(sbx: Sandbox) -> None:
    assert sbx.run_code(SERVER).exit_code == 0
    assert len(get(sbx.url(8000), str(8 << 20))) == (8 << 20) + len("parent")
    assert get(sbx.url(8000), data=bytes(8 << 20)) == str(8 << 20).encode()
    with sbx.forward(8000) as local, socket.create_connection((local.host, local.port)) as raw:
        raw.sendall(b"GET /3 HTTP/1.0\r\n\r\n")
        raw.shutdown(socket.SHUT_WR)
        answer = b""
        while part := raw.recv(65536):
            answer += part
    assert answer.endswith(b"\r\n\r\nparentxxx")


def test_the_example_program() -> None:
    out = run_example("web_app.py")
    assert out.count("Only ") == 5 and out.rstrip().endswith("Only 12 euros</p>")
