# SPDX-License-Identifier: Apache-2.0
"""ramet-fleet with a program that answers in etcd's place, and not as etcd does."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
from cell import rametctl, until
from conftest import Host

HEADER = {"cluster_id": "1", "member_id": "2", "revision": "7", "raft_term": "2"}
LEASE = {"header": HEADER, "ID": "5", "TTL": "30"}
DONE = {"header": HEADER, "succeeded": True, "responses": [{"response_put": {"header": HEADER}}]}
BUSY = b'{"code":14,"message":"etcdserver: too many requests"}'
WATCHED = {"result": {"header": HEADER, "created": True}}


class Server:
    """Answers what etcd would, but for the paths in `answers`."""

    def __init__(self, folder: Path) -> None:
        self.answers: dict[str, Any] = {
            "/v3/lease/grant": LEASE,
            "/v3/lease/keepalive": {"result": LEASE},
            "/v3/kv/txn": DONE,
            "/v3/watch": WATCHED,
        }
        self.paths: list[str] = []  # of all requests so far
        self.times: list[float] = []  # of all watches so far
        self.folder, self.ca = folder, folder / "ca"
        self.over = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.paths.append(self.path)
                if self.path == "/v3/watch":
                    server.times.append(time.monotonic())
                answer = server.answers.get(self.path, server.listed)
                answer = answer(body) if callable(answer) else answer
                text = answer if isinstance(answer, bytes) else json.dumps(answer).encode() + b"\n"
                self.send_response(503 if text == BUSY else 200)
                self.send_header("Content-Type", "application/json")
                goes_on = self.path == "/v3/watch" and text != BUSY
                self.send_header("Content-Length", str(len(text) + goes_on))
                self.end_headers()
                self.wfile.write(text)
                if goes_on:
                    self.wfile.flush()
                    server.over.wait()

            def log_message(self, *args: Any) -> None:
                pass

            def handle(self) -> None:
                try:
                    super().handle()
                except OSError:
                    pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        url = f"https://127.0.0.1:{self.http.server_port}"
        rametctl("fleet", "init", self.ca, 3, url)
        rametctl("fleet", "ca", self.ca, "etcd", "m0", "127.0.0.1")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.ca / "etcd-m0.pem", self.ca / "etcd-m0-key.pem")
        context.load_verify_locations(self.ca / "etcd-ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
        # Handshakes belong to the connections' threads.
        self.http.socket = context.wrap_socket(
            self.http.socket, server_side=True, do_handshake_on_connect=False
        )
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()

    def page(self, body: dict[str, Any]) -> dict[str, Any]:
        """Lists one more key, of which there is no end."""
        last = base64.b64decode(body["key"]).decode().rpartition("/")[2]
        number = int(last.rstrip("\x01") or 99) + 1
        key = base64.b64encode(f"/ramet/3/hosts/{number}".encode()).decode()
        pair = {"key": key, "mod_revision": "5", "value": ""}
        return {"header": HEADER, "kvs": [pair], "more": True}

    def listed(self, body: dict[str, Any]) -> dict[str, Any]:
        """Lists no key, not even the host's own card, which its table has anyway."""
        return {"header": HEADER}

    def stop(self) -> None:
        self.over.set()
        self.http.shutdown()
        self.http.server_close()


class Cell:
    cell = 3


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def host(server: Server, tmp_path: Path) -> Iterator[Host]:
    token = rametctl("fleet", "ca", server.ca, "host", 17, "h17", "10.0.0.17:7443")
    host = Host(Cell(), 17, tmp_path / "machine", token)  # type: ignore[arg-type]
    yield host
    host.kill()


def stall(server: Server) -> Callable[[Any], bytes]:
    def answer(body: Any) -> bytes:
        server.over.wait()
        return b""

    return answer


BAD = {
    "wrong TTL": ("/v3/lease/grant", LEASE | {"TTL": "29"}, "gave a lease of 29 s, and 30 s were asked for"),
    "no TTL": ("/v3/lease/grant", {"ID": "5"}, "cannot be used: the lease has no TTL"),
    "number": ("/v3/lease/grant", LEASE | {"ID": "9223372036854775808"}, "which is not a number"),
    "garbage": ("/v3/lease/grant", b"\x00\xff garbage", "etcd's answer to a request for a lease cannot be used"),
    "huge": ("/v3/kv/txn", b" " * (9 << 20), "etcd at https://127.0.0.1:"),
    "no answer of a txn": ("/v3/kv/txn", {"header": HEADER}, "etcd's answer to a transaction cannot be used"),
    "endless list": ("/v3/kv/range", {"header": HEADER, "more": True}, "more keys follow"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_answer_is_refused_with_a_sentence(server: Server, host: Host, case: str) -> None:
    path, answer, sentence = BAD[case]
    server.answers[path] = answer
    host.start().says(sentence, "there is no table of hosts yet")
    assert not host.table()
    assert host.process and host.process.poll() is None


def test_member_that_does_not_answer_is_given_up(server: Server, host: Host) -> None:
    server.answers["/v3/lease/grant"] = stall(server)
    host.start().says("no answer within 5 s", "there is no table of hosts yet")


def test_lease_that_is_shortened_is_not_used(server: Server, host: Host) -> None:
    server.answers["/v3/lease/keepalive"] = {"result": LEASE | {"TTL": "12"}}
    host.start().says("joined cell 3", "gave a lease of 12 s, and 30 s were asked for")
    host.sees()  # the table stays


def test_watch_with_garbage_is_started_again(server: Server, host: Host) -> None:
    server.answers["/v3/watch"] = b'{"result":{"header":{}}}\ngarbage\n'
    host.start().says("etcd's answer to a watch cannot be used", "starting another one")
    server.answers["/v3/watch"] = WATCHED
    host.sees()


@pytest.mark.parametrize("answer", [b"garbage\n", b" " * (9 << 20)], ids=["garbage", "too long"])
def test_watch_that_fails_again_waits_longer(server: Server, host: Host, answer: bytes) -> None:
    """Half of 250 ms at first, and twice as long each time."""
    server.answers["/v3/watch"] = json.dumps(WATCHED).encode() + b"\n" + answer
    host.start()
    until("watches", lambda: len(server.times) >= 6)
    assert server.times[5] - server.times[0] > 1.9  # 3.9, but for how late a busy machine notes the first one


def test_lease_is_kept_alive_while_a_list_is_read(server: Server, host: Host) -> None:
    def page(body: Any) -> dict[str, Any]:
        return server.listed(body) if "/v3/lease/keepalive" in server.paths else server.page(body)

    server.answers["/v3/kv/range"] = page
    host.start().sees()


def test_list_goes_on_after_a_failure(server: Server, host: Host) -> None:
    asked: list[str] = []

    def page(body: Any) -> Any:
        asked.append(body["key"])
        return [server.page, lambda _: BUSY, server.listed][min(len(asked), 3) - 1](body)

    server.answers["/v3/kv/range"] = page
    host.start().says("too many requests", "works again")
    assert asked[0] != asked[1] == asked[2]
    host.sees()


def test_member_is_asked_before_it_is_watched_again(server: Server, host: Host) -> None:
    server.answers["/v3/watch"] = BUSY
    host.start()
    until("watches", lambda: server.paths.count("/v3/watch") >= 5)
    paths = [path for path in server.paths if path in ("/v3/watch", "/v3/lease/keepalive")]
    assert ("/v3/watch", "/v3/watch") not in zip(paths, paths[1:])
