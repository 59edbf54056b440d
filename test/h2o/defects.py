#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reproduces the defects that third_party/h2o/patches fix.

    defects.py PATCHED_SERVER UNPATCHED_SERVER CASE

A case attacks a new server and reports what it observed and whether that is the defect. The test
passes if the server with the unpatched library shows the defect and the one with the patched library
does not.
"""

import array
import contextlib
import os
import resource
import select
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    0, 1, 2, 3, 4, 6, 7, 8, 9)
END_STREAM, END_HEADERS, PADDED = 1, 4, 8
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
ENHANCE_YOUR_CALM = 11
TIMEOUT = 60  # seconds without an answer that count as no answer


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def integer(value, bits, first):
    limit = (1 << bits) - 1
    if value < limit:
        return bytes([first | value])
    out, value = bytes([first | limit]), value - limit
    while value >= 128:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def field(name, value):
    """Returns a literal header field that is added to the dynamic table (whose first index is 62)."""
    return b"\x40" + integer(len(name), 7, 0) + name + integer(len(value), 7, 0) + value


def head(path, method=b"\x82"):
    return method + b"\x86" + b"\x04" + integer(len(path), 7, 0) + path + b"\x01\x01a"


def get(stream, path):
    return frame(HEADERS, END_STREAM | END_HEADERS, stream, head(path))


def window(stream, increment):
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", increment))


def header_block(stream, block):
    """Returns the frames of a request, with CONTINUATION frames if its header block needs them."""
    parts = [block[i:i + 16384] for i in range(0, len(block), 16384)]
    out = frame(HEADERS, END_STREAM | (END_HEADERS if len(parts) == 1 else 0), stream, parts[0])
    for i, part in enumerate(parts[1:], 2):
        out += frame(CONTINUATION, END_HEADERS if i == len(parts) else 0, stream, part)
    return out


class Server:
    def __init__(self, program, *args, **env):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([program, *args], stdout=subprocess.PIPE, stderr=self.log,
                                        env=dict(os.environ, **env))
        self.http, self.raw = map(int, self.process.stdout.readline().split())

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()

    @property
    def pid(self):
        return self.process.pid

    def rss_mib(self):
        with open(f"/proc/{self.pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024

    def cpu_seconds(self):
        with open(f"/proc/{self.pid}/stat") as f:
            times = f.read().rsplit(")", 1)[1].split()[11:13]
        return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")

    def log_bytes(self):
        return os.fstat(self.log.fileno()).st_size

    def connect(self, rcvbuf=None, port=None):
        s = socket.socket()
        if rcvbuf:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        s.settimeout(TIMEOUT)
        s.connect(("127.0.0.1", port or self.http))
        return s

    def ask(self, path="/counters", sock=None, timeout=TIMEOUT):
        """Sends one HTTP/1 request; returns the body of the answer as text."""
        with contextlib.ExitStack() as stack:
            s = sock or stack.enter_context(self.connect())
            s.settimeout(timeout)
            s.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += receive(s)
            headers, body = answer.split(b"\r\n\r\n", 1)
            length = next(int(line.split(b":")[1]) for line in headers.split(b"\r\n")
                          if line.lower().startswith(b"content-length"))
            while len(body) < length:
                body += receive(s)
            return body.decode()

    def count(self, name, sock=None):
        return int(dict(line.split() for line in self.ask(sock=sock).splitlines())[name])

    def fate(self):
        """Returns how the server ended, or None if it still answers."""
        try:
            self.ask()
            return None
        except (OSError, EOFError):
            pass
        try:
            return f"the server ended with status {self.process.wait(TIMEOUT)}"
        except subprocess.TimeoutExpired:
            return "the server does not answer"


def receive(s):
    data = s.recv(65536)
    if not data:
        raise EOFError("connection closed")
    return data


class Http2:
    """An HTTP/2 connection with prior knowledge; frames are read one by one."""

    def __init__(self, server, rcvbuf=None, settings=b""):
        self.s = server.connect(rcvbuf)
        self.buffer = b""
        self.s.sendall(PREFACE + frame(SETTINGS, 0, 0, settings))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.s.close()

    def send(self, data):
        """Sends data. It is no error if the server closes the connection meanwhile."""
        try:
            self.s.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def read(self):
        """Reads a frame; returns (type, flags, stream, payload), or None at the end."""
        try:
            while len(self.buffer) < 9 or len(self.buffer) < 9 + self.length():
                data = self.s.recv(65536)
                if not data:
                    return None
                self.buffer += data
        except ConnectionResetError:
            return None
        kind, flags, stream = struct.unpack(">BBI", self.buffer[3:9])
        end = 9 + self.length()
        payload, self.buffer = self.buffer[9:end], self.buffer[end:]
        return kind, flags, stream, payload

    def length(self):
        return struct.unpack(">I", b"\0" + self.buffer[:3])[0]

    def wait(self, *wanted):
        """Returns the next frame of one of the (type, stream) wanted or GOAWAY; None at the end."""
        while (f := self.read()) is not None:
            if (f[0], f[2]) in wanted or f[0] == GOAWAY:
                return f
        return None

    def body(self, stream):
        """Returns the body of an answer as text, or the outcome of a request without one."""
        first = self.outcome(stream)
        text = b""
        while first == "answered" and (f := self.wait((DATA, stream))) and f[0] == DATA:
            text += f[3]
            if f[1] & END_STREAM:
                return text.decode()
        return first

    def outcome(self, stream):
        """Returns how a request ended: "answered", "reset N" or "connection ended (N)"."""
        f = self.wait((HEADERS, stream), (RST_STREAM, stream))
        if f is None:
            return "connection ended"
        if f[0] == HEADERS:
            return "answered"
        if f[0] == RST_STREAM:
            return f"reset {struct.unpack('>I', f[3])[0]}"
        return f"connection ended ({struct.unpack('>I', f[3][4:8])[0]})"


CASES = {}


def case(expected):
    """Registers a case, which returns (what was observed, whether that is the defect)."""
    def register(function):
        CASES[function.__name__] = (function, expected)
        return function
    return register


@case("the server still answers")
def window_update_abort(program):
    body = 16384
    with Server(program) as server:
        initial = struct.pack(">HI", 4, body)
        with Http2(server, rcvbuf=4096, settings=initial) as c:
            streams = range(1, 41, 2)
            c.send(window(0, 1 << 24) + b"".join(get(i, b"/16384") for i in streams))
            server.ask()  # when this is answered, the requests are served and the socket is full
            c.send(b"".join(window(i, 1) for i in streams))
            fate = server.fate()
    return fate or "the server answers", fate is not None


def floods_of_resets(program, reset):
    """Counts the requests that the server starts although their streams are reset at once."""
    requests = 3000
    with Server(program) as server, Http2(server) as c:
        for first in range(1, 2 * requests, 200):
            c.send(b"".join(get(i, b"/hold") + reset(i)
                            for i in range(first, min(first + 200, 2 * requests), 2)))
        # Served only once a request has ended, so this also checks that ended requests are counted.
        c.send(get(2 * requests + 1, b"/16384"))
        after = c.outcome(2 * requests + 1)
        started = server.count("started")
    seen = f"{started} of {requests} requests started, a later one: {after}"
    return seen, started > requests / 2 or after != "answered"


@case("few requests started, a later one answered")
def rapid_reset(program):
    return floods_of_resets(program, lambda i: frame(RST_STREAM, 0, i, struct.pack(">I", 8)))


@case("few requests started, a later one answered")
def reset_by_window_update(program):
    return floods_of_resets(program, lambda i: window(i, 0))


@case("few requests started, a later one answered")
def reset_by_window_overflow(program):
    return floods_of_resets(program, lambda i: window(i, (1 << 31) - 1))


@case("few requests started, a later one answered")
def reset_by_data(program):
    return floods_of_resets(program, lambda i: frame(DATA, 0, i, b"x"))


def flood(program, prologue, frames, epilogue):
    with Server(program) as server, Http2(server) as c:
        c.send(prologue + frames + epilogue)
        after = c.outcome(1)
    return f"after the flood the request is: {after}", after == "answered"


@case(f"connection ended ({ENHANCE_YOUR_CALM})")
def continuation_flood(program):
    return flood(program, frame(HEADERS, END_STREAM, 1, head(b"/16384")),
                 frame(CONTINUATION, 0, 1) * 50000, frame(CONTINUATION, END_HEADERS, 1))


@case(f"connection ended ({ENHANCE_YOUR_CALM})")
def priority_flood(program):
    exclusive = b"".join(frame(PRIORITY, 0, i, struct.pack(">IB", 1 << 31, 1)) for i in (3, 5))
    return flood(program, b"", exclusive * 25000, get(1, b"/16384"))


@case(f"connection ended ({ENHANCE_YOUR_CALM})")
def empty_data_flood(program):
    return flood(program, frame(HEADERS, END_HEADERS, 1, head(b"/check", b"\x83")),
                 frame(DATA, 0, 1) * 50000, frame(DATA, END_STREAM, 1))


@case(f"connection ended ({ENHANCE_YOUR_CALM})")
def ping_flood(program):
    return flood(program, b"", frame(PING, 0, 0, b"12345678") * 50000, get(1, b"/16384"))


@case(f"connection ended ({ENHANCE_YOUR_CALM})")
def settings_flood(program):
    return flood(program, b"", frame(SETTINGS, 0, 0) * 50000, get(1, b"/16384"))


@case(f"connection ended ({ENHANCE_YOUR_CALM})")
def window_update_flood(program):
    return flood(program, b"", window(0, 1) * 50000, get(1, b"/16384"))


@case(f"connection ended ({ENHANCE_YOUR_CALM})")
def small_data_flood(program):
    return flood(program, frame(HEADERS, END_HEADERS, 1, head(b"/check", b"\x83")),
                 frame(DATA, 0, 1, b"x") * 50000, frame(DATA, END_STREAM, 1))


@case(f"connection ended ({ENHANCE_YOUR_CALM})")
def padded_data_flood(program):
    padded = frame(DATA, PADDED, 1, b"\3\0\0\0")
    return flood(program, frame(HEADERS, END_HEADERS, 1, head(b"/check", b"\x83")),
                 padded * 50000, frame(DATA, END_STREAM, 1))


@case("each request is answered")
def updates_for_data(program):
    """Patched library only: a client may open the window for sent data in small steps."""
    updates, seen = 20, set()
    with Server(program) as server, Http2(server) as c:
        c.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(1, 4001, 2):
            c.send(get(i, b"/16384"))
            seen.add(len(c.body(i)))
            c.send(window(0, 16384 - updates + 1) + window(0, 1) * (updates - 1))
    return f"{updates} updates after each of 2000 answers of {seen} bytes", seen != {16384}


def still_open(s):
    """Returns whether the server has left the connection open; does not consume data."""
    try:
        return not select.select([s], [], [], 0)[0] or bool(s.recv(1, socket.MSG_PEEK))
    except ConnectionResetError:
        return False


def turns(server):
    """Lets the server's loop run several times, timers included."""
    for _ in range(10):
        server.ask()


def half_sent(server, stack):
    s = stack.enter_context(server.connect())
    s.sendall(b"GET /1 HTTP/1.1\r\n")
    return s


def idle(server, stack):
    s = stack.enter_context(server.connect())
    server.ask(sock=s)
    return s


@case("connections, requests and streams survive the step")
def clock_forwards(program):
    with Server(program) as server, contextlib.ExitStack() as stack:
        sockets = [idle(server, stack), half_sent(server, stack)]
        c = stack.enter_context(Http2(server))
        c.send(get(1, b"/1"))
        c.outcome(1)
        server.ask("/step/200000/0")
        turns(server)
        seen = [still_open(s) for s in (*sockets, c.s)]
    return f"idle, half sent and HTTP/2 are open: {seen}", not all(seen)


@case("time limits hold after the clock was set back")
def clock_backwards(program):
    with Server(program) as server, contextlib.ExitStack() as stack:
        sockets = [idle(server, stack), half_sent(server, stack)]
        server.ask("/step/-3600000/0")
        sockets += [idle(server, stack), half_sent(server, stack)]
        server.ask("/step/0/11000")  # the limit is 10 s
        turns(server)
        seen = [still_open(s) for s in sockets]
    return f"idle and half sent, from before and after, are open 11 s later: {seen}", any(seen)


@case("the answer that is being written arrives")
def clock_backwards_in_a_write(program):
    with Server(program) as server, Http2(server) as c:
        c.send(get(1, b"/1"))
        c.outcome(1)
        c.send(get(3, b"/step/-3600000/0"))
        turns(server)
        arrived = False
        while not arrived and select.select([c.s], [], [], 0)[0]:
            f = c.read()
            arrived = f is None or (f[0], f[2]) == (HEADERS, 3)
    return f"the answer on HTTP/2 arrived: {arrived}", not arrived


@case("time limits hold, and nothing ends early")
def clock_began_just_now(program):
    """Patched library only: the monotonic clock's value is smaller than the time limits."""
    with tempfile.NamedTemporaryFile() as clock:
        clock.write(struct.pack("qq", 0, 1000 - time.monotonic_ns() // 1000000))
        clock.flush()
        with Server(program, TEST_CLOCK=clock.name) as server, contextlib.ExitStack() as stack:
            sockets = [idle(server, stack), half_sent(server, stack)]
            turns(server)
            seen = [still_open(s) for s in sockets]
    return f"idle and half sent are open: {seen}", not all(seen)


@case("nothing written to the log")
def unknown_frames(program):
    with Server(program) as server, Http2(server) as c:
        c.send(frame(0x77, 0, 0, b"x") * 1000 + get(1, b"/16384"))
        after = c.outcome(1)
        written = server.log_bytes()
    return f"{written} bytes of log, request {after}", written > 0 or after != "answered"


@case("the request is answered")
def continuation_after_goaway(program):
    with Server(program) as server, Http2(server) as c:
        # The request to /hold keeps the connection open after GOAWAY.
        c.send(get(1, b"/hold") + frame(HEADERS, END_STREAM, 3, head(b"/16384")))
        server.ask("/shutdown")
        while (f := c.wait()) and struct.unpack(">I", f[3][:4])[0] > 3:
            pass
        c.send(frame(CONTINUATION, END_HEADERS, 3))
        # An endless loop shows in the CPU time, also on slow machines.
        start = server.cpu_seconds()
        while not select.select([c.s], [], [], 0.05)[0] and server.cpu_seconds() < start + 0.5:
            pass
        hangs = server.cpu_seconds() >= start + 0.5
        after = "never answered, the server loops" if hangs else c.outcome(3)
    return f"the request is {after}", after != "answered"


def growth(program, requests):
    with Server(program) as server, Http2(server) as c:
        server.ask()
        before = server.rss_mib()
        c.send(requests + frame(PING, 0, 0, b"12345678"))
        f = c.wait((PING, 0))
        grown = server.rss_mib() - before
    end = "" if f and f[0] == PING else ", connection ended"
    return f"memory grew by {grown:.0f} MiB after {len(requests) / 1e6:.1f} MB sent{end}", grown


@case("less than 30 MiB")
def header_bomb(program):
    big = head(b"/hold") + field(b"x-bomb", b"v" * 3000)
    table = header_block(1, big)
    bombs = b"".join(header_block(i, head(b"/hold") + b"\xbe" * 30000) for i in range(3, 81, 2))
    seen, grown = growth(program, table + bombs)
    return seen, grown > 30


@case("reset 7 on HTTP/2, HTTP/1.1 400")
def header_size(program):
    value = b"v" * 60000
    with Server(program) as server, server.connect() as h1, Http2(server) as c:
        c.send(header_block(1, head(b"/100") + field(b"x", value)))
        on_h2 = c.outcome(1)
        h1.sendall(b"GET /100 HTTP/1.1\r\nHost: a\r\nX: " + value + b"\r\n\r\n")
        try:
            on_h1 = h1.recv(12).decode()
        except ConnectionResetError:  # the server closed it before it had read all
            on_h1 = "reset"
    defect = on_h2 != "reset 7" or on_h1 == "HTTP/1.1 200"
    return f"60 KB of header: {on_h2} on HTTP/2, {on_h1}", defect


@case("less than 30 MiB")
def cache_digest_bomb(program):
    # 5 one bits allow 2^31 keys, 5 zero bits leave keys no remainder, and each further one bit is
    # a key.
    digest = b"-D" + b"_" * 3000
    table = header_block(1, head(b"/hold") + field(b"cache-digest", digest))
    bombs = b"".join(header_block(i, head(b"/hold") + b"\xbe" * 90) for i in range(3, 13, 2))
    seen, grown = growth(program, table + bombs)
    return seen, grown > 30


@case("no file")
def body_in_file(program):
    size = 20 << 20
    with Server(program) as server, server.connect() as s:
        s.sendall(f"POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n".encode()
                  + b"b" * size)
        while server.count("started") == 0:
            time.sleep(0.01)
        fds = f"/proc/{server.pid}/fd"
        files = [os.readlink(f"{fds}/{fd}") for fd in os.listdir(fds)]
    files = [f for f in files if "h2o.b." in f]
    return f"files of the server with the body: {files}", bool(files)


def certificate(folder):
    cert, key = f"{folder}/cert.pem", f"{folder}/key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=a", "-days", "2",
                    "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


def tls_client():
    """The client's side of TLS, and the bytes from and to the server."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    tls.set_alpn_protocols(["h2"])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    return tls.wrap_bio(incoming, outgoing), incoming, outgoing


def client_hello():
    t, _, outgoing = tls_client()
    with contextlib.suppress(ssl.SSLWantReadError):
        t.do_handshake()
    return outgoing.read()


def tls_close_notify_bytes(s):
    """Performs a handshake and begins HTTP/2; returns the bytes of a close_notify."""
    t, incoming, outgoing = tls_client()
    while True:
        try:
            t.do_handshake()
            break
        except ssl.SSLWantReadError:
            s.sendall(outgoing.read())
            incoming.write(receive(s))
    t.write(PREFACE + frame(SETTINGS, 0, 0))
    s.sendall(outgoing.read())
    with contextlib.suppress(ssl.SSLWantReadError):
        t.unwrap()
    return outgoing.read()


@case("the connection ends")
def tls_after_close_notify(program):
    junk = 32 << 20
    with tempfile.TemporaryDirectory() as folder:
        with Server(program, *certificate(folder)) as server, server.connect() as s:
            close_notify = tls_close_notify_bytes(s)
            sent = 0
            try:
                s.sendall(close_notify)
                while sent < junk:
                    s.sendall(b"\0" * 65536)
                    sent += 65536
            except (BrokenPipeError, ConnectionResetError):
                pass
    return f"after close_notify {sent >> 20} MiB more were taken", sent == junk


def ask_by_tls(server, name):
    """Returns a counter of a server that speaks only TLS."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    with tls.wrap_socket(server.connect()) as s:
        return server.count(name, s)


@case("at most 4 in one run of the loop, and all are answered")
def handshakes_at_once(program):
    n = 64
    with tempfile.TemporaryDirectory() as folder:
        with Server(program, *certificate(folder)) as server, contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(server.connect()) for _ in range(n)]
            ask_by_tls(server, "handshakes_max")  # when this is answered, all were accepted
            hello = client_hello()
            os.kill(server.pid, signal.SIGSTOP)
            for s in sockets:
                s.sendall(hello)
            os.kill(server.pid, signal.SIGCONT)
            answered = sum(bool(s.recv(1)) for s in sockets)
            most = ask_by_tls(server, "handshakes_max")
    return f"{most} of {n} in one run, {answered} answered", most > 4 or answered != n


@case("at most 128 KiB")
def read_at_once(program):
    with Server(program) as server, server.connect(port=server.raw) as s:
        s.setblocking(False)
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                sent += s.send(b"r" * 65536)
        server.ask("/raw")
        while server.count("raw_total") < sent:
            server.ask("/raw")
        most = server.count("raw_max")
    return f"{most >> 10} KiB of {sent >> 10} read at once", most > 128 << 10


@case("the listener pauses, and waiting connections are served later")
def accept_without_descriptors(program):
    with Server(program) as server, contextlib.ExitStack() as stack:
        control = stack.enter_context(server.connect())
        server.ask(sock=control)
        open_now = len(os.listdir(f"/proc/{server.pid}/fd"))
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (open_now + 1, open_now + 1))
        held = stack.enter_context(server.connect())
        server.ask(sock=held)
        waiting = stack.enter_context(server.connect())
        before = server.count("accept_calls", control)
        for _ in range(200):
            server.ask(sock=control)
        calls = server.count("accept_calls", control) - before
        held.close()
        served = bool(server.ask(sock=waiting))
    seen = f"{calls} calls to accept in 200 requests, what waited was served: {served}"
    return seen, calls > 100 or not served


@case("the server still answers")
def shutdown_during_upgrade(program):
    upgrade = (b"GET /16384 HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\n"
               b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n")
    with Server(program) as server:
        with contextlib.ExitStack() as stack:
            # The 101 response must be written when the socket is just full. When that happens
            # depends on the kernel, so this tries many sizes of the preceding answer.
            for size in range(40000, 60000, 100):
                s = stack.enter_context(server.connect(rcvbuf=4096))
                s.sendall(b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % size + upgrade)
            server.ask()
            with contextlib.suppress(OSError, EOFError):
                server.ask("/shutdown")
            fate = server.fate()
        fate = fate or server.fate()  # after the clients have disconnected
    return fate or "the server answers", fate is not None


def numbers(size):
    return array.array("Q", range(size // 8)).tobytes()


def post(stream, path, body):
    """Returns the frames of a request with a body, without the last frame."""
    return frame(HEADERS, END_HEADERS, stream, head(path, b"\x83")) + b"".join(
        frame(DATA, 0, stream, body[i:i + 16384]) for i in range(0, len(body), 16384))


@case("at most 32 MiB of bodies are held at a time")
def bodies_of_many(program):
    size, n = 4 << 20, 12
    with Server(program) as server, server.connect() as h1, Http2(server) as c:
        refused = 0
        for i in range(1, 2 * n, 2):
            c.send(post(i, b"/check", numbers(size)) + frame(PING, 0, 0, b"12345678"))
            first = c.wait((RST_STREAM, i), (PING, 0))
            refused += first[0] == RST_STREAM
            while first[0] == RST_STREAM:
                first = c.wait((RST_STREAM, i), (PING, 0))
        h1.sendall(f"POST /check HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\nb".encode())
        server.ask()
        on_h1 = h1.recv(12).decode() if select.select([h1], [], [], 0)[0] else "taken"
        c.send(frame(RST_STREAM, 0, 1, struct.pack(">I", 8)))
        c.send(post(2 * n + 1, b"/check", numbers(size)) + frame(DATA, END_STREAM, 2 * n + 1))
        later = c.body(2 * n + 1)
    seen = (f"{n - refused} of {n} bodies of 4 MiB taken, then on HTTP/1: {on_h1}; "
            f"after one was released: {later}")
    return seen, refused != 4 or not on_h1.endswith("503") or later != f"{size} good"


@case("the bodies arrive completely")
def bodies_arrive(program):
    """Patched library only: bodies, whose handling the patches change, still arrive."""
    size = 20 << 20
    body = numbers(size)
    with Server(program) as server, server.connect() as h1, Http2(server) as c:
        h1.sendall(f"POST /check HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n".encode()
                   + body)
        answer = b""
        while not answer.endswith((b"good", b"bad")):
            answer += receive(h1)
        on_h1 = answer.split(b"\r\n\r\n")[1].decode()
        c.send(post(1, b"/check", body) + frame(DATA, END_STREAM, 1))
        on_h2 = c.body(1)
    return f"HTTP/1: {on_h1}, HTTP/2: {on_h2}", {on_h1, on_h2} != {f"{size} good"}


def ambiguous(fields):
    """Returns an HTTP/1 request with ambiguous headers: one reading of them makes the end of its body
    a second request."""
    return (b"POST /check HTTP/1.1\r\n" + b"".join(f + b"\r\n" for f in fields) + b"\r\n"
            + b"0\r\n\r\nGET /counters HTTP/1.1\r\nHost: a\r\n\r\n")


def status_of(program, request):
    with Server(program) as server, server.connect() as s:
        s.sendall(request)
        answer = b""
        while len(answer) < 12:
            answer += receive(s)
    return answer[9:12].decode()


@case("each is answered with 400 on HTTP/1, with none on HTTP/2")
def ambiguous_headers(program):
    host, length, longer, chunked = (b"Host: a", b"Content-Length: 5", b"Content-Length: 7",
                                     b"Transfer-Encoding: chunked")
    seen = [status_of(program, ambiguous(fields)) for fields in (
        [host, length, longer], [host, length, chunked], [host, chunked, length],
        [host, chunked, chunked], [host, b"Host: b", length])]
    with Server(program) as server, Http2(server) as c:
        block = head(b"/check", b"\x83") + field(b"content-length", b"2") + field(
            b"content-length", b"0")
        c.send(frame(HEADERS, END_STREAM | END_HEADERS, 1, block))
        on_h2 = c.outcome(1)
    return f"{' '.join(seen)}, on HTTP/2: {on_h2}", seen != ["400"] * 5 or on_h2 == "answered"


@case("whole chunks, then one that is not")
def broken_chunk(program):
    with Server(program) as server, server.connect() as s:
        s.sendall(b"GET /broken HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = b""
        with contextlib.suppress(EOFError):
            while True:
                answer += receive(s)
    chunks = answer.split(b"\r\n\r\n", 1)[1].replace(b"s" * 1024, b"DATA")
    return f"the body is {chunks}", chunks != b"400\r\nDATA\r\n" * 2 + b"1\r\n"


# These cases only check that the patched library works.
NO_DEFECT = {"bodies_arrive", "clock_began_just_now", "updates_for_data"}


def run(programs, name):
    function, expected = CASES[name]
    print(f"expected of the patched library: {expected}")
    good, good_is_defect = function(programs[0])
    print(f"patched:   {good}")
    bad, bad_is_defect = ("not asked", True) if name in NO_DEFECT else function(programs[1])
    print(f"unpatched: {bad}")
    if good_is_defect:
        print("FAILED: the patched library has the defect")
    if not bad_is_defect:
        print("FAILED: the unpatched library does not show the defect, so the test shows nothing")
    return 1 if good_is_defect or not bad_is_defect else 0


def main():
    if len(sys.argv) != 4 or sys.argv[3] not in CASES:
        sys.exit(f"usage: defects.py PATCHED_SERVER UNPATCHED_SERVER CASE\n{', '.join(CASES)}")
    sys.exit(run(sys.argv[1:3], sys.argv[3]))


if __name__ == "__main__":
    main()
