# SPDX-License-Identifier: Apache-2.0
"""Servers in real guests: reached through the service, and in a fork's children."""

from __future__ import annotations

import urllib.request

import pytest

from conftest import run_example
from ramet import Sandbox

SERVER = """
import http.server, threading
name = "parent"
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = name.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Page)
threading.Thread(target=server.serve_forever, daemon=True).start()
"""


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=120) as answer:
        return bytes(answer.read())


@pytest.mark.smoke
def test_a_server_is_reached_in_parent_and_children(sbx: Sandbox) -> None:
    assert sbx.run_code(SERVER).exit_code == 0
    assert get(sbx.url(8000)) == b"parent"
    (child,) = sbx.fork(1)
    with child:
        child.run_code("name = 'child'")
        assert child.ports() == []  # access to the parent is none to the child
        assert get(child.url(8000)) == b"child"
        assert get(sbx.url(8000)) == b"parent"


def test_the_example_program() -> None:
    out = run_example("web_app.py")
    assert out.count("Only ") == 5 and out.rstrip().endswith("Only 12 euros</p>")
