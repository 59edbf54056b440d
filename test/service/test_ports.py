# SPDX-License-Identifier: Apache-2.0
"""Servers "in a sandbox" through service and agent: they listen on this machine."""

from __future__ import annotations

import base64
import hashlib
import http.server
import os
import re
import select
import socket
import socketserver
import threading
from pathlib import Path
from typing import Any, Callable, Iterator

import h2.connection
import httpx
import pytest

from conftest import Service

Handler = Callable[[socket.socket], None]
TIMEOUT = 120
SOONER = 12  # than the idle timeout of connections, which is 15 s here
BIG = 64 << 20


class Site(http.server.BaseHTTPRequestHandler):
    """A server with one page for each test."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def body(self) -> Iterator[bytes]:
        if self.headers.get("transfer-encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        left = int(self.headers.get("content-length", 0))
        while left:
            part = self.rfile.read(min(left, 1 << 16))
            left -= len(part)
            yield part

    def say(self, status: int, body: bytes, *fields: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (("Content-Length", str(len(body))), *fields):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/echo":
            self.say(200, f"{self.command} {self.path}\n{self.headers}".encode() + b"".join(self.body()))
        elif path == "/sum":
            digest, size = hashlib.sha256(), 0
            for part in self.body():
                digest.update(part)
                size += len(part)
            self.say(200, f"{size} {digest.hexdigest()}".encode())
        elif path == "/big":
            self.send_response(200)
            self.send_header("Content-Length", str(BIG))
            self.end_headers()
            part = bytes(range(256)) * 256
            for _ in range(BIG // len(part)):
                self.wfile.write(part)
        elif path == "/moved":
            self.say(302, b"", ("Location", "/echo?x=1"), ("Set-Cookie", "a=b; Path=/; Domain=x.test; HttpOnly"))
        elif path == "/teapot":
            self.send_response(418, "Short and stout")
            self.send_header("Transfer-Encoding", "chunked")
            self.send_header("Clear-Site-Data", '"*"')
            self.end_headers()
            self.wfile.write(b"5\r\ntea f\r\n6\r\nor two\r\n0\r\n\r\n")
        elif path == "/until-end":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"all of it")
        else:
            self.say(404, b"no such page")
        self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = answer


class Threads(socketserver.ThreadingMixIn, socketserver.TCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 200

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # clients leave in the middle


@pytest.fixture
def listen() -> Iterator[Callable[[Any], int]]:
    """Starts servers; returns the port of each. A server is a handler class, or a function that gets
    each connection's socket."""
    servers = []

    def start(what: Any) -> int:
        if not isinstance(what, type):
            serve = what

            class Raw(socketserver.BaseRequestHandler):
                def handle(self) -> None:
                    self.request.settimeout(TIMEOUT)
                    serve(self.request)

            what = Raw
        server = Threads(("127.0.0.1", 0), what)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        return int(server.server_address[1])

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def site(listen: Callable[[Any], int], sandbox: str) -> str:
    """Returns the path of the site in a sandbox."""
    return f"{sandbox}/ports/{listen(Site)}"


def read_head(sock: socket.socket) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head:
        more = sock.recv(65536)
        if not more:
            return head
        head += more
    return head


def connect(base: str) -> socket.socket:
    host, port = base.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT)


def until_end(sock: socket.socket) -> bytes:
    data = b""
    while more := sock.recv(65536):
        data += more
    return data


def refused(answer: httpx.Response, status: int, code: str) -> str:
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    return str(answer.json()["error"])


# --- requests -----------------------------------------------------------------------------------


@pytest.fixture(params=["h1", "h2"])
def web(base: str, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    versions = {"http1": request.param == "h1", "http2": request.param == "h2"}
    with httpx.Client(base_url=base, timeout=TIMEOUT, trust_env=False, **versions) as client:
        yield client


def test_a_request_reaches_the_server(web: httpx.Client, site: str) -> None:
    port = site.rpartition("/")[2]
    sent = {"x-mine": "1", "connection": "x-hop", "x-hop": "1",
            "x-forwarded-for": "9.9.9.9", "authorization": "Basic eDp5"}
    if web._transport._pool._http2:  # type: ignore[attr-defined]
        del sent["connection"], sent["x-hop"]  # HTTP/2 has none
    answer = web.put(f"{site}/echo?q=%20&ramet_token=&r", content=b"body", headers=sent)
    first, *lines = answer.text.split("\n")
    got = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    assert first == "PUT /echo?q=%20&r"
    assert got["host"] == f"localhost:{port}" and got["x-mine"] == "1"
    assert got["x-forwarded-for"] == "127.0.0.1" and got["x-forwarded-proto"] == "http"
    assert got["x-forwarded-host"] == web.base_url.netloc.decode() and got["x-forwarded-prefix"] == site
    assert got["authorization"] == "Basic eDp5" and got["content-length"] == "4"
    assert "x-hop" not in got and lines[-1] == "body"


def test_all_methods_and_heads(web: httpx.Client, site: str) -> None:
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        assert web.request(method, f"{site}/echo").text.startswith(f"{method} /echo\n")
    head = web.head(f"{site}/echo")
    assert head.status_code == 200 and head.content == b"" and int(head.headers["content-length"]) > 0
    assert web.get(f"{site}/").text == "no such page"


def test_statuses_and_bodies_of_any_form(web: httpx.Client, site: str) -> None:
    tea = web.get(f"{site}/teapot")
    assert (tea.status_code, tea.text) == (418, "tea for two")
    assert "clear-site-data" not in tea.headers
    assert tea.headers["content-security-policy"].startswith("sandbox ")
    assert web.get(f"{site}/until-end").text == "all of it"


def test_redirects_and_cookies_stay_below_the_prefix(web: httpx.Client, site: str) -> None:
    moved = web.get(f"{site}/moved")
    assert moved.headers["location"] == f"{site}/echo?x=1"
    assert moved.headers["set-cookie"] == f"a=b; HttpOnly; Path={site}/"


def rss(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def parts() -> Iterator[bytes]:
    part = bytes(range(256)) * 256
    for _ in range(BIG // len(part)):
        yield part


def test_large_bodies_pass_both_ways(web: httpx.Client, site: str) -> None:
    digest = hashlib.sha256(b"".join(parts())).hexdigest()
    assert web.post(f"{site}/sum", content=parts()).text == f"{BIG} {digest}"
    sized = {"content-length": str(BIG)}
    assert web.post(f"{site}/sum", content=parts(), headers=sized).text == f"{BIG} {digest}"
    with web.stream("GET", f"{site}/big") as answer:
        got = hashlib.sha256()
        for part in answer.iter_raw():
            got.update(part)
    assert got.hexdigest() == digest


def test_many_requests_on_one_connection(base: str, site: str) -> None:
    with connect(base) as sock:
        for i in range(20):
            sock.sendall(
                f"POST {site}/sum HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
                f"1\r\na\r\n{i + 1:x}\r\n{'b' * (i + 1)}\r\n0\r\n\r\n".encode()
            )
            head = b""
            while not re.search(rb"\r\n\r\n\d+ [0-9a-f]{64}$", head):
                more = sock.recv(65536)
                assert more, head
                head += more
            assert head.rpartition(b"\r\n\r\n")[2].split()[0] == str(i + 2).encode()


def test_expect_continue(base: str, site: str) -> None:
    with connect(base) as sock:
        sock.sendall(f"PUT {site}/sum HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
                     "Content-Length: 3\r\nConnection: close\r\n\r\n".encode())
        assert read_head(sock) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"abc")
        assert until_end(sock).partition(b"\r\n\r\n")[2].startswith(b"3 ")


def test_events_arrive_as_they_are_sent(web: httpx.Client, listen: Callable[[Any], int], sandbox: str) -> None:
    turn = threading.Semaphore(0)

    def serve(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for i in range(3):
            turn.acquire()
            sock.sendall(b"data: %d\n\n" % i)

    with web.stream("GET", f"{sandbox}/ports/{listen(serve)}/events") as answer:
        assert answer.headers["content-type"] == "text/event-stream"  # before any event
        seen = b""
        turn.release()
        for part in answer.iter_raw():
            seen += part
            if seen.endswith(b"\n\n"):
                turn.release()
    assert seen == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"


def test_a_slow_reader_stops_the_server(service: Service, base: str, listen: Callable[[Any], int], sandbox: str) -> None:
    sent = []
    stopped = threading.Event()

    def serve(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        sock.settimeout(2)
        try:
            while True:
                sent.append(sock.send(bytes(1 << 20)))
        except TimeoutError:
            stopped.set()

    with connect(base) as sock:
        sock.sendall(f"GET {sandbox}/ports/{listen(serve)}/ HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert stopped.wait(TIMEOUT)
        assert sum(sent) < 200 << 20


def test_a_slow_server_stops_the_client_at_constant_memory(service: Service, base: str, listen: Callable[[Any], int], sandbox: str) -> None:
    go = threading.Event()

    def serve(sock: socket.socket) -> None:
        read_head(sock)
        go.wait(TIMEOUT)
        sock.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

    before = rss(service.server.pid)
    with connect(base) as sock:
        sock.sendall(f"POST {sandbox}/ports/{listen(serve)}/ HTTP/1.1\r\nHost: localhost\r\n"
                     f"Content-Length: {BIG * 8}\r\n\r\n".encode())
        sock.settimeout(2)
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < BIG * 8:
                sent += sock.send(bytes(1 << 20))
        assert rss(service.server.pid) - before < 48 << 20
        go.set()
        sock.settimeout(TIMEOUT)
        assert until_end(sock).startswith(b"HTTP/1.1 204 No Content\r\n")


def test_bodies_over_http2_wait_where_they_are_counted(
    service: Service, base: str, listen: Callable[[Any], int], sandbox: str
) -> None:
    """A client may send a stream's window ahead. What the service has taken out of it must be little.

    The kernel keeps some of a body, too: on the way to the server, and to another host.
    """
    kept = sum(int(Path(f"/proc/sys/net/ipv4/tcp_{name}mem").read_text().split()[2]) for name in "rw")
    done = threading.Event()
    path = f"{sandbox}/ports/{listen(lambda sock: done.wait(TIMEOUT))}/"
    head = [(":method", "POST"), (":scheme", "http"), (":authority", "localhost"), (":path", path)]
    sent = dict.fromkeys(range(1, 13, 2), 0)
    before = rss(service.server.pid)
    with connect(base) as sock:
        client = h2.connection.H2Connection()
        client.initiate_connection()
        for stream in sent:
            client.send_headers(stream, head)
        sock.sendall(client.data_to_send())
        while select.select([sock], [], [], 3)[0]:
            client.receive_data(sock.recv(65536))
            for stream in sent:
                while room := min(client.local_flow_control_window(stream), 16384):
                    client.send_data(stream, bytes(room))
                    sent[stream] += room
            assert max(sent.values()) < 2 * kept + (4 << 20), (sent, kept)
            sock.sendall(client.data_to_send())
        grown = rss(service.server.pid) - before
    done.set()
    assert grown < len(sent) * (24 << 20)


# --- servers that misbehave ---------------------------------------------------------------------


def test_nothing_listens(web: httpx.Client, sandbox: str) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    answer = web.get(f"{sandbox}/ports/{port}/")
    assert refused(answer, 502, "port_closed") == f"nothing listens on port {port} in the sandbox"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 99 No\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"x%d: y\r\n" % i for i in range(101)) + b"\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000,
        b"HTTP/1.1 200 OK\r\na: b\r\n c\r\n\r\n",
    ],
    ids=range(12),
)
def test_answers_that_are_not_http(web: httpx.Client, listen: Callable[[Any], int], sandbox: str, answer: bytes) -> None:
    def serve(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(answer)

    sentence = refused(web.get(f"{sandbox}/ports/{listen(serve)}/"), 502, "port_answer")
    assert "the server on port" in sentence or "the answer of the server" in sentence


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n",
    ],
    ids=range(3),
)
def test_answers_that_are_cut_off(web: httpx.Client, listen: Callable[[Any], int], sandbox: str, answer: bytes) -> None:
    def serve(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(answer)

    with pytest.raises(httpx.RemoteProtocolError):
        web.get(f"{sandbox}/ports/{listen(serve)}/")
    assert web.get("/livez").text == "ok"


def test_endless_heads_before_the_answer_are_refused(web: httpx.Client, listen: Callable[[Any], int], sandbox: str) -> None:
    def serve(sock: socket.socket, n: int) -> None:
        read_head(sock)
        sock.sendall(b"HTTP/1.1 102 x\r\n\r\n" * n + b"HTTP/1.1 200 x\r\nContent-Length: 2\r\n\r\nok")

    few, many = (f"{sandbox}/ports/{listen(lambda sock, n=n: serve(sock, n))}/" for n in (100, 5000))
    assert web.get(few).text == "ok"
    assert "64 KiB of heads" in refused(web.get(many), 502, "port_answer")


def test_more_than_the_length_is_dropped(web: httpx.Client, listen: Callable[[Any], int], sandbox: str) -> None:
    def serve(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200 Smuggled\r\n\r\n")

    path = f"{sandbox}/ports/{listen(serve)}/"
    assert [web.get(path).text for _ in range(3)] == ["abc"] * 3


def test_a_server_that_never_answers_costs_its_own_request_only(web: httpx.Client, listen: Callable[[Any], int], site: str) -> None:
    done = threading.Event()
    silent = site.rpartition("/")[0] + f"/{listen(lambda sock: done.wait(TIMEOUT))}"
    got: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: got.append(web.get(f"{silent}/")))
    thread.start()
    assert web.get(f"{site}/until-end").text == "all of it"
    thread.join()
    done.set()
    assert "nothing passed through the connection" in refused(got[0], 504, "port_silent")


def test_an_answer_before_the_end_of_the_body(base: str, listen: Callable[[Any], int], sandbox: str) -> None:
    def serve(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")

    with connect(base) as sock:
        sock.sendall(f"POST {sandbox}/ports/{listen(serve)}/ HTTP/1.1\r\nHost: localhost\r\n"
                     f"Content-Length: {1 << 30}\r\n\r\n".encode() + bytes(1 << 16))
        answer = until_end(sock)
    assert answer.startswith(b"HTTP/1.1 413 Too Large\r\n") and answer.endswith(b"\r\n\r\nno")


def test_a_client_that_leaves_ends_its_connection(base: str, listen: Callable[[Any], int], sandbox: str) -> None:
    begun, ended = threading.Event(), threading.Event()

    def serve(sock: socket.socket) -> None:
        read_head(sock)
        begun.set()
        if not until_end(sock):
            ended.set()

    with connect(base) as sock:
        sock.sendall(f"GET {sandbox}/ports/{listen(serve)}/ HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert begun.wait(TIMEOUT)
    assert ended.wait(TIMEOUT)


def test_malformed_chunks_of_a_client_end_its_request(base: str, listen: Callable[[Any], int], sandbox: str) -> None:
    got = []
    done = threading.Event()

    def serve(sock: socket.socket) -> None:
        got.append(until_end(sock))
        done.set()

    with connect(base) as sock:
        sock.sendall(f"POST {sandbox}/ports/{listen(serve)}/ HTTP/1.1\r\nHost: localhost\r\n"
                     "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n".encode())
        sock.sendall(b"zz\r\n")
        assert until_end(sock) == b""
    assert done.wait(TIMEOUT) and not got[0].endswith(b"0\r\n\r\n")


# --- other protocols ----------------------------------------------------------------------------


def echo(sock: socket.socket) -> None:
    while part := sock.recv(65536):
        sock.sendall(part)


def websocket(sock: socket.socket) -> None:
    """Echoes what follows the handshake."""
    head = read_head(sock)
    assert b"\r\nupgrade: websocket\r\n" in head and b"\r\nconnection: upgrade\r\n" in head
    found = re.search(rb"sec-websocket-key: (\S+)", head)
    assert found
    proof = base64.b64encode(hashlib.sha1(found[1] + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                 b"Sec-WebSocket-Accept: " + proof + b"\r\n\r\nhello")
    echo(sock)


def upgrade(base: str, path: str, protocol: str, more: str = "") -> tuple[socket.socket, bytes]:
    sock = connect(base)
    sock.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
                 f"Upgrade: {protocol}\r\n{more}\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = sock.recv(1)
        assert byte, head
        head += byte
    return sock, head


def test_websocket(base: str, listen: Callable[[Any], int], sandbox: str) -> None:
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    sock, head = upgrade(base, f"{sandbox}/ports/{listen(websocket)}/ws", "websocket", key)
    with sock:
        assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
        assert b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in head.lower().replace(
            b"s3pplmbitxaq9kygzzhzrbk+xoo=", b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
        assert sock.recv(5, socket.MSG_WAITALL) == b"hello"
        sock.sendall(b"\x81\x85abcd\x00\x01")
        assert sock.recv(8, socket.MSG_WAITALL) == b"\x81\x85abcd\x00\x01"
        sock.shutdown(socket.SHUT_WR)
        assert until_end(sock) == b""


def test_a_server_may_refuse_an_upgrade(base: str, site: str) -> None:
    sock, head = upgrade(base, f"{site}/teapot", "websocket")
    sock.close()
    assert head.startswith(b"HTTP/1.1 418 ")


def test_a_request_with_a_body_is_not_upgraded(base: str, listen: Callable[[Any], int], sandbox: str) -> None:
    heads = []

    def serve(sock: socket.socket) -> None:
        heads.append(read_head(sock).lower())
        sock.sendall(b"HTTP/1.1 101 x\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")

    path = f"{sandbox}/ports/{listen(serve)}/"
    sock, head = upgrade(base, path, "x", "Content-Length: 5\r\n")
    sock.close()
    assert head.startswith(b"HTTP/1.1 502 ") and b"\r\nupgrade:" not in heads[0]
    sock, head = upgrade(base, path, "x", "Content-Length: 0\r\n")
    sock.close()
    assert head.startswith(b"HTTP/1.1 101 ")


def test_any_tcp_protocol(base: str, listen: Callable[[Any], int], sandbox: str) -> None:
    sock, head = upgrade(base, f"{sandbox}/tcp/{listen(echo)}", "tcp")
    with sock:
        assert head.startswith(b"HTTP/1.1 101 ") and b"\r\nupgrade: tcp\r\n" in head.lower()
        data = os.urandom(16 << 20)

        def send() -> None:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=send)
        thread.start()
        back = until_end(sock)
        thread.join()
    assert hashlib.sha256(back).digest() == hashlib.sha256(data).digest()


def test_a_tcp_server_that_ends_first(base: str, listen: Callable[[Any], int], sandbox: str) -> None:
    def serve(sock: socket.socket) -> None:
        sock.sendall(b"first")
        sock.shutdown(socket.SHUT_WR)
        got.append(until_end(sock))
        done.set()

    got: list[bytes] = []
    done = threading.Event()
    sock, _ = upgrade(base, f"{sandbox}/tcp/{listen(serve)}", "tcp")
    with sock:
        assert until_end(sock) == b"first"
        sock.sendall(b"later")
    assert done.wait(TIMEOUT) and got == [b"later"]


def test_tcp_needs_an_upgrade(web: httpx.Client, sandbox: str) -> None:
    answer = web.get(f"{sandbox}/tcp/22")
    assert "Upgrade: tcp" in refused(answer, 426, "upgrade_required")
    assert answer.headers["upgrade"] == "tcp"


def test_tcp_to_a_closed_port(base: str, sandbox: str) -> None:
    sock, head = upgrade(base, f"{sandbox}/tcp/1", "tcp")
    sock.close()
    assert head.startswith(b"HTTP/1.1 502 ")


def test_the_end_of_the_sandbox_ends_tunnels(http: httpx.Client, base: str, listen: Callable[[Any], int]) -> None:
    path = "/v1/sandboxes/" + http.post("/v1/sandboxes", json={}).json()["id"]
    sock, _ = upgrade(base, f"{path}/tcp/{listen(echo)}", "tcp")
    with sock:
        sock.sendall(b"x")
        assert sock.recv(1) == b"x"
        http.delete(path)
        sock.settimeout(SOONER)
        assert until_end(sock) == b""


# --- access -------------------------------------------------------------------------------------


class Owned:
    """A service with two tenants, and a sandbox of the first."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.own, self.other = (self.client({"authorization": f"Bearer {key}"}) for key in service.keys)
        self.stranger = self.client({})
        self.sandbox = "/v1/sandboxes/" + self.own.post("/v1/sandboxes", json={}).json()["id"]

    def client(self, headers: dict[str, str]) -> httpx.Client:
        return httpx.Client(base_url=self.service.base, headers=headers, timeout=TIMEOUT, trust_env=False)

    def host(self, port: int) -> dict[str, str]:
        return {"host": f"{port}-{self.sandbox[-32:]}.sandboxes.test"}


@pytest.fixture(scope="module")
def owned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owned]:
    service = Service(tmp_path_factory.mktemp("ports"), "pro", "pro")
    yield Owned(service)
    service.stop()


def test_ports_are_private(owned: Owned, listen: Callable[[Any], int]) -> None:
    port = listen(Site)
    path = f"{owned.sandbox}/ports/{port}"
    assert "authorization" not in owned.own.get(f"{path}/echo").text.lower()
    refused(owned.other.get(f"{path}/echo"), 404, "not_found")
    refused(owned.stranger.get(f"{path}/echo"), 401, "key_missing")
    refused(owned.stranger.get("/echo", headers=owned.host(port)), 401, "key_missing")
    refused(owned.other.get("/echo", headers=owned.host(port)), 404, "not_found")
    assert owned.own.get("/echo", headers=owned.host(port)).text.startswith("GET /echo\n")


def test_a_token_gives_access_to_one_port(owned: Owned, listen: Callable[[Any], int]) -> None:
    port, second = listen(Site), listen(Site)
    path = f"{owned.sandbox}/ports/{port}"
    share = owned.own.post(path).json()
    assert share["port"] == port and share["public"] is False and re.fullmatch("[0-9a-f]{32}", share["token"])
    assert share["url"] == f"http://{port}-{owned.sandbox[-32:]}.sandboxes.test/?ramet_token={share['token']}"
    assert owned.own.post(path, json={}).json() == share == owned.own.get(path).json()
    assert share in owned.own.get(f"{owned.sandbox}/ports").json()
    query = {"ramet_token": share["token"]}
    first = owned.stranger.get(f"{path}/echo", params=query)
    assert first.text.startswith("GET /echo\n")
    assert first.headers["set-cookie"] == f"ramet_port_token={share['token']}; Path={path}/; HttpOnly; SameSite=Lax"
    owned.stranger.cookies.clear()
    cookie = {"cookie": f"a=1; ramet_port_token={share['token']}; b=2"}
    assert "cookie: a=1; b=2\n" in owned.stranger.get(f"{path}/echo", headers=cookie).text.lower()
    for cookies in (f"ramet_port_token=x; ramet_port_token={share['token']}", f"ramet_port_token={share['token']};"):
        assert owned.stranger.get(f"{path}/echo", headers={"cookie": cookies}).is_success
    header = {"ramet-port-token": share["token"]}
    assert "ramet-port-token" not in owned.stranger.get(f"{path}/echo", headers=header).text.lower()
    assert owned.stranger.get("/echo", headers=header | owned.host(port)).text.startswith("GET /echo\n")
    # The token is for this port, and for nothing else.
    refused(owned.stranger.get(f"{owned.sandbox}/ports/{second}/echo", headers=header), 401, "token_unknown")
    refused(owned.stranger.get(owned.sandbox, headers=header), 401, "key_missing")
    refused(owned.stranger.get(f"{owned.sandbox}/tcp/{port}", headers=header), 401, "key_missing")
    bad = share["token"][:-1] + ("0" if share["token"][-1] != "0" else "1")
    refused(owned.stranger.get(f"{path}/echo", params={"ramet_token": bad}), 401, "token_unknown")
    assert owned.own.delete(path).status_code == 204
    refused(owned.own.delete(path), 404, "not_shared")
    refused(owned.own.get(path), 404, "not_shared")
    refused(owned.stranger.get(f"{path}/echo", headers=header), 401, "token_unknown")
    assert owned.own.post(path).json()["token"] != share["token"]


def test_public_ports_are_for_everybody(owned: Owned, listen: Callable[[Any], int]) -> None:
    port = listen(Site)
    path = f"{owned.sandbox}/ports/{port}"
    share = owned.own.post(path, json={"public": True}).json()
    assert share["public"] is True and "token" not in share["url"]
    page = {"origin": "http://elsewhere.test", "authorization": "Bearer of.the.server"}
    assert "bearer of.the.server" in owned.stranger.get(f"{path}/echo", headers=page).text.lower()
    assert owned.stranger.get("/echo", headers=owned.host(port)).text.startswith("GET /echo\n")
    assert owned.own.post(path, json={}).json() == share
    assert owned.own.post(path, json={"public": False}).json()["public"] is False
    refused(owned.stranger.get(f"{path}/echo"), 401, "key_missing")
    assert "public" in refused(owned.own.post(path, json={"public": 1}), 400, "bad_request")


def test_only_tokens_become_cookies(owned: Owned, listen: Callable[[Any], int]) -> None:
    port = listen(Site)
    owned.own.post(f"{owned.sandbox}/ports/{port}", json={"public": True})
    for token in ("x;Domain=sandboxes.test", "x", "f" * 33):
        answer = owned.stranger.get(f"/echo?ramet_token={token}", headers=owned.host(port))
        assert answer.is_success and "set-cookie" not in answer.headers


def test_pages_of_other_sandboxes_cannot_use_the_cookie(owned: Owned, listen: Callable[[Any], int]) -> None:
    """They are of the same site, so that a browser adds the cookie to their requests."""
    port = listen(Site)
    token = owned.own.post(f"{owned.sandbox}/ports/{port}").json()["token"]
    here = owned.host(port) | {"cookie": f"ramet_port_token={token}"}
    own, other = here["host"], "8000-" + "0" * 32 + ".sandboxes.test"
    for page in (
        {},
        {"origin": f"http://{own}"},
        {"origin": f"https://1-{owned.sandbox[-32:]}.sandboxes.test"},  # another port of the sandbox
        {"sec-fetch-site": "same-origin", "sec-fetch-mode": "no-cors"},
        {"sec-fetch-site": "none", "sec-fetch-mode": "navigate"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
    ):
        assert owned.stranger.get("/echo", headers=here | page).is_success, page
    for page in (
        {"origin": f"http://{other}"},
        {"origin": "null"},
        {"origin": "http://sandboxes.test", "sec-fetch-mode": "navigate"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},
    ):
        refused(owned.stranger.get("/echo", headers=here | page), 401, "key_missing")
    assert owned.stranger.get("/echo", headers=here | page | {"ramet-port-token": token}).is_success
    path = f"{owned.sandbox}/ports/{port}/echo"
    cookie = {"cookie": here["cookie"]}
    assert owned.stranger.get(path, headers=cookie | {"origin": owned.service.base}).is_success
    refused(owned.stranger.get(path, headers=cookie | {"origin": "null"}), 401, "key_missing")


def test_connections_end_when_a_port_is_no_longer_public(owned: Owned, listen: Callable[[Any], int]) -> None:
    path = f"{owned.sandbox}/ports/{listen(websocket)}"
    owned.own.post(path, json={"public": True})
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    sock, _ = upgrade(owned.service.base, f"{path}/", "websocket", key)
    with sock:
        assert sock.recv(5, socket.MSG_WAITALL) == b"hello"
        owned.own.post(path, json={"public": False})
        sock.settimeout(SOONER)
        assert until_end(sock) == b""


def test_a_browser_gets_rid_of_the_token(owned: Owned, listen: Callable[[Any], int]) -> None:
    port = listen(Site)
    path = f"{owned.sandbox}/ports/{port}"
    token = owned.own.post(path).json()["token"]
    browser = {"sec-fetch-mode": "navigate"}
    for url, headers, to, scope in (
        (path, {}, f"{path}/echo?a=1", f"{path}/"),
        ("", owned.host(port), "/echo?a=1", "/"),
    ):
        answer = owned.stranger.get(f"{url}/echo?a=1&ramet_token={token}", headers=browser | headers)
        assert (answer.status_code, answer.headers["location"]) == (303, to)
        assert f"; Path={scope}; " in answer.headers["set-cookie"]
        owned.stranger.cookies.clear()
    for path in ("//evil.test/", "/\\evil.test/"):
        with connect(owned.service.base) as sock:
            sock.sendall(f"GET {path}?ramet_token={token} HTTP/1.1\r\nHost: {owned.host(port)['host']}\r\n"
                         "Sec-Fetch-Mode: navigate\r\nConnection: close\r\n\r\n".encode())
            assert until_end(sock).startswith(b"HTTP/1.1 404 ")


def test_pages_with_an_own_host_are_not_sandboxed(owned: Owned, listen: Callable[[Any], int]) -> None:
    port = listen(Site)
    answer = owned.own.get("/moved", headers=owned.host(port))
    assert answer.headers["location"] == "/echo?x=1"
    assert answer.headers["set-cookie"] == "a=b; Path=/; HttpOnly"
    assert "content-security-policy" not in answer.headers
    own = {"origin": "http://" + owned.host(port)["host"]}
    assert f"origin: http://localhost:{port}\n" in owned.own.get("/echo", headers=owned.host(port) | own).text.lower()


def test_the_end_of_a_share_ends_its_connections(owned: Owned, listen: Callable[[Any], int]) -> None:
    port = listen(websocket)
    path = f"{owned.sandbox}/ports/{port}"
    token = owned.own.post(path).json()["token"]
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    sock, head = upgrade(owned.service.base, f"{path}/?ramet_token={token}", "websocket", key)
    with sock:
        assert head.startswith(b"HTTP/1.1 101 ") and sock.recv(5, socket.MSG_WAITALL) == b"hello"
        owned.own.delete(path)
        sock.settimeout(SOONER)
        assert until_end(sock) == b""


def test_too_many_shares_are_refused(owned: Owned) -> None:
    path = "/v1/sandboxes/" + owned.own.post("/v1/sandboxes", json={}).json()["id"]
    for port in range(1, 65):
        assert owned.own.post(f"{path}/ports/{port}").status_code == 200
    refused(owned.own.post(f"{path}/ports/65"), 429, "too_many")
    listed = owned.own.get(f"{path}/ports").json()
    assert [share["port"] for share in listed] == list(range(1, 65))
    owned.own.delete(path)


def test_a_web_page_needs_a_token_while_there_are_no_keys(http: httpx.Client, site: str) -> None:
    page = {"origin": "null"}
    refused(http.get(f"{site}/echo", headers=page), 403, "browser_refused")
    share = http.post(site).json()
    assert http.get(f"{site}/echo", headers=page | {"ramet-port-token": share["token"]}).is_success
    host = share["url"].split("/")[2]
    refused(http.get("/echo", headers={"host": host}), 401, "token_missing")
    assert http.get("/echo", params={"ramet_token": share["token"]}, headers={"host": host}).is_success


def test_invalid_ports(http: httpx.Client, sandbox: str) -> None:
    for port in ("0", "65536", "x", "080"):
        refused(http.post(f"{sandbox}/ports/{port}"), 404, "not_found")
        refused(http.get(f"{sandbox}/tcp/{port}"), 404, "not_found")


