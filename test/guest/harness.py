# SPDX-License-Identifier: Apache-2.0
"""Runs the real agent with its real driver on this machine, and talks to it over a Unix socket."""

import json
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import unittest

BINARY = os.environ["RAMET_INIT"]

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"
# PING and so on: every number of proto/agent.h, without its prefix AGENT_.
globals().update({name: int(number) for name, number in
                  re.findall(r"^\tAGENT_(\w+) = (\d+),", (PROTO / "agent.h").read_text(), re.M)})
TEXT, RAW, JSON = 0, 1, 2  # kinds of a bundle's entries
SHOWN, MAIN, DROPPED = 0, 1, 2  # payloads of RESULT
RICH, PREPARES = 1, 2  # flags of a call: it wants results; it prepares a template
VERSION = struct.pack("<I", int(re.search(r"AGENT_VERSION\s+(\d+)", (PROTO / "versions.h").read_text())[1]))  # payload of PONG
TIMEOUT = 100  # seconds after which a test that hangs fails


def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<I", len(data)) + data


def frame(kind, payload=b""):
    return struct.pack("<IBBH", len(payload), kind, 0, 0) + payload


def exec_payload(size, language=PYTHON, timeout_ms=0, cwd="", env=(), call=0, flags=0):
    head = struct.pack("<BBIIQ", language, flags, timeout_ms, size, call) + text(cwd)
    variables = b"".join(text(name) + text(value) for name, value in env)
    return head + struct.pack("<I", len(env)) + variables


def entries(bundle):
    """Returns a bundle as a dict of name to text, bytes, or what JSON describes."""
    found, at = {}, 0

    def field(at):
        (size,) = struct.unpack_from("<I", bundle, at)
        return bundle[at + 4 : at + 4 + size], at + 4 + size

    while at < len(bundle):
        name, at = field(at)
        kind = bundle[at]
        data, at = field(at + 1)
        read = {TEXT: bytes.decode, RAW: bytes, JSON: json.loads}[kind]
        found[name.decode()] = read(data)
    return found


class Result:
    """The output frames of a call in order of arrival, its exit code, and whether state was lost."""

    def __init__(self):
        self.parts = []
        self.code = None
        self.lost = None

    def joined(self, kind):
        return b"".join(data for k, data in self.parts if k == kind)

    @property
    def out(self):
        return self.joined(STDOUT).decode("utf-8", "surrogateescape")

    @property
    def err(self):
        return self.joined(STDERR).decode("utf-8", "surrogateescape")

    @property
    def bundles(self):
        """What ended each bundle (SHOWN, MAIN, DROPPED or FAULT), with its entries."""
        found, held = [], b""
        for kind, data in self.parts:
            if kind == BUNDLE:
                held += data
            elif kind in (RESULT, FAULT):
                end = FAULT if kind == FAULT else data[0]
                found.append((end, {} if end == DROPPED else entries(held)))
                held = b""
        return found

    @property
    def order(self):
        """All output in one string, with "1:" or "2:" at each change of the stream."""
        shown, last = [], None
        for kind, data in self.parts:
            if kind != last:
                shown.append("1:" if kind == STDOUT else "2:")
            last = kind
            shown.append(data.decode())
        return "".join(shown)

    @property
    def events(self):
        """The output in order: texts, joined per stream, and bundles as in `bundles`."""
        found, bundles = [], iter(self.bundles)
        for kind, data in self.parts:
            if kind in (RESULT, FAULT):
                found.append(next(bundles))
            elif kind != BUNDLE and found and isinstance(found[-1], str) and last == kind:
                found[-1] += data.decode()
            elif kind != BUNDLE:
                found.append(data.decode())
            last = kind
        return found


class Client:
    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)  # blocking: waits while the backlog is full
        self.sock.settimeout(TIMEOUT)

    def close(self):
        self.sock.close()

    def send(self, kind, payload=b""):
        self.sock.sendall(frame(kind, payload))

    def interrupt(self, call=0):
        """Interrupts the call with this number; 0: whichever runs."""
        return self.ask(INTERRUPT, struct.pack("<Q", call))

    def read(self, size):
        data = bytearray()
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            if not more:
                raise EOFError("the agent closed the connection")
            data += more
        return bytes(data)

    def recv(self):
        size, kind, zero, zeros = struct.unpack("<IBBH", self.read(8))
        assert (zero, zeros) == (0, 0)
        return kind, self.read(size)

    def ask(self, kind, payload=b""):
        self.send(kind, payload)
        return self.recv()

    def start(self, code, language=PYTHON, **options):
        data = code if isinstance(code, bytes) else code.encode()
        self.send(EXEC, exec_payload(len(data), language, **options))
        for at in range(0, len(data), 65536):
            self.send(CODE, data[at : at + 65536])

    def wait_for_output(self, what, result=None):
        """Reads frames until `what` is in the output."""
        result = result or Result()
        while what not in result.out + result.err:
            kind, payload = self.recv()
            assert kind in (STDOUT, STDERR), (kind, payload[:100])
            result.parts.append((kind, payload))
        return result

    def finish(self, result=None):
        result = result or Result()
        while True:
            kind, payload = self.recv()
            if kind == EXIT:
                result.code, result.lost = struct.unpack("<iB", payload)
                return result
            if kind == ERROR:
                raise RuntimeError(payload[8:].decode())
            result.parts.append((kind, payload))

    def attach(self, call, have):
        self.send(ATTACH, struct.pack("<QQ", call, have))

    def run(self, code, language=PYTHON, **options):
        self.start(code, language, **options)
        return self.finish()

    def bash(self, code, **options):
        return self.run(code, BASH, **options)


class ContextClient(Client):
    """A connection whose calls go to the context `context`."""

    def __init__(self, path, context):
        super().__init__(path)
        self.context = context

    def send(self, kind, payload=b""):
        if kind in (EXEC, ATTACH, INTERRUPT):
            kind, payload = IN_CONTEXT, text(self.context) + bytes([kind]) + payload
        super().send(kind, payload)

    def start(self, code, language=PYTHON, **options):
        super().start(code, language, **options)
        kind, payload = self.recv()
        if kind == ERROR:
            raise RuntimeError(payload[8:].decode())
        assert kind == DONE, kind


class Agent:
    """A running agent with a temporary home directory; `log` has the lines of its log."""

    def __init__(self, *options, env=None, prefix=()):
        self.home = tempfile.mkdtemp(prefix="ramet-agent-")
        self.path = os.path.join(self.home, "sock")
        self.log = []
        self.logged = threading.Condition()
        self.command = [*prefix, BINARY, "agent", "--unix", self.path, "--run-dir",
                        os.path.join(self.home, "run"), "--dry-run-system", *options]
        self.env = {**os.environ, "HOME": self.home, "LANG": "C.UTF-8", **(env or {})}
        self.begin()
        self.wait_until_logged("agent ready" if env is None else "")

    def begin(self, *options):
        self.process = subprocess.Popen([*self.command, *options], stdin=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, env=self.env)
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()

    def end(self):
        self.process.kill()
        self.process.wait()
        self.listener.join()
        self.process.stderr.close()

    def replace(self, died="the sandbox's agent was killed by signal 9 (Killed)"):
        """Kills the agent and starts another one, as init does."""
        self.end()
        before = len(self.log)
        self.begin("--died", died)
        self.wait_until_logged("agent ready", since=before)

    def listen(self):
        for line in self.process.stderr:
            with self.logged:
                self.log.append(line.decode().rstrip())
                self.logged.notify_all()
        with self.logged:
            self.log.append("")  # the end
            self.logged.notify_all()

    def wait_until_logged(self, what, since=0):
        """Waits for a line that contains `what`; the first `since` lines of the log do not count."""
        with self.logged:
            found = self.logged.wait_for(
                lambda: any(what in line for line in self.log[since:]), TIMEOUT)
        assert found, (what, self.log)

    def client(self):
        return Client(self.path)

    def driver_pid(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as children:
            return int(children.read().split()[0])

    def stop(self):
        self.end()
        shutil.rmtree(self.home)


class AgentTest(unittest.TestCase):
    """Base of tests that share one agent per class and have one connection each."""

    maxDiff = 4000
    options = ()
    prefix = ()

    @classmethod
    def setUpClass(cls):
        cls.agent = Agent(*cls.options, prefix=cls.prefix)
        cls.addClassCleanup(cls.agent.stop)

    def setUp(self):
        self.client = self.connect()

    def connect(self):
        client = self.agent.client()
        self.addCleanup(client.close)
        return client

    def run_python(self, code, **options):
        return self.client.run(code, PYTHON, **options)

    def run_rich(self, code, **options):
        """Runs a Python call that wants results."""
        return self.client.run(code, PYTHON, flags=RICH, **options)

    def run_bash(self, code, **options):
        return self.client.run(code, BASH, **options)

    def assert_ends(self, result, code=0, out="", err=""):
        self.assertEqual((result.out, result.err, result.code, result.lost), (out, err, code, 0))
