# SPDX-License-Identifier: Apache-2.0
"""AGENT_PTY_START to AGENT_PTY_LIST: programs on terminals, their output and their input."""

import errno
import hashlib
import os
import select
import signal
import struct
import unittest

from harness import (DONE, ERROR, EXIT, PING, PONG, PTY, PTY_ATTACH, PTY_BYTES, PTY_INPUT,
                     PTY_KILL, PTY_LIST, PTY_RESIZE, PTY_START, AgentTest, text)

RING = 1 << 20


def start_payload(name, argv, cols=80, rows=24, cwd="", label="label", env=()):
    return (text(name) + struct.pack("<HH", cols, rows) + text(cwd) + text(label) +
            struct.pack("<I", len(argv)) + b"".join(text(word) for word in argv) +
            struct.pack("<I", len(env)) + b"".join(text(k) + text(v) for k, v in env))


class Failed(Exception):
    def __init__(self, payload):
        (self.errno,) = struct.unpack_from("<I", payload)
        self.text = payload[8:].decode()
        super().__init__(self.text)


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Listener:
    """A connection that is attached to a terminal; `data` is what it received, `first` its offset."""

    def __init__(self, client, name, offset=0):
        self.client = client
        self.first = None
        self.offset = offset
        self.gaps = 0
        self.data = b""
        client.send(PTY_ATTACH, text(name) + struct.pack("<Q", offset))

    def take(self):
        """Reads a frame; returns the exit code if it was the last one, otherwise None."""
        kind, payload = self.client.recv()
        if kind == EXIT:
            code, lost = struct.unpack("<iB", payload)
            assert lost == 0
            return code
        if kind == ERROR:
            raise Failed(payload)
        assert kind == PTY_BYTES, kind
        (offset,) = struct.unpack_from("<Q", payload)
        assert offset >= self.offset and (len(payload) > 8 or self.first is None)
        if self.first is None:
            self.first = offset
        elif offset > self.offset:
            self.gaps += 1
        self.offset = offset + len(payload) - 8
        self.data += payload[8:]
        return None

    def until(self, what):
        while what not in self.data:
            code = self.take()
            assert code is None, (code, self.data[-200:])
        return self

    def finish(self):
        while (code := self.take()) is None:
            pass
        return code


class PtyTest(AgentTest):
    number = 0

    def start(self, argv, client=None, **options):
        """Starts a program (a list, or a script for bash); returns the session's name."""
        PtyTest.number += 1
        name = "pty_%032x" % PtyTest.number
        words = ["bash", "-c", argv] if isinstance(argv, str) else argv
        kind, payload = (client or self.client).ask(PTY_START, start_payload(name, words, **options))
        if kind == ERROR:
            raise Failed(payload)
        self.assertEqual((kind, payload), (DONE, b""))
        self.addCleanup(lambda: self.connect().ask(PTY_KILL, text(name)))
        return name

    def attach(self, name, offset=0):
        return Listener(self.connect(), name, offset)

    def ask(self, kind, name, payload=b"", client=None):
        kind, payload = (client or self.client).ask(kind, text(name) + payload)
        if kind == ERROR:
            raise Failed(payload)
        self.assertEqual((kind, payload), (DONE, b""))

    def type(self, name, data, client=None):
        self.ask(PTY_INPUT, name, data, client)

    def run_on_pty(self, argv, **options):
        listener = self.attach(self.start(argv, **options))
        code = listener.finish()
        return listener.data.decode(), code

    def fails(self, number, function, *args, says="", **options):
        with self.assertRaises(Failed) as caught:
            function(*args, **options)
        self.assertEqual(caught.exception.errno, number, caught.exception.text)
        self.assertIn(says, caught.exception.text)

    def list(self):
        self.client.send(PTY_LIST)
        found = []
        while (answer := self.client.recv())[0] == PTY:
            payload = answer[1]
            self.assertEqual(struct.unpack_from("<I", payload), (36,))
            (size,) = struct.unpack_from("<I", payload, 40)
            label = payload[44 : 44 + size].decode()
            started, ended, code = struct.unpack("<qBi", payload[44 + size :])
            found.append((payload[4:40].decode(), label, started, ended, code))
        self.assertEqual(answer, (DONE, b""))
        return found


class Programs(PtyTest):
    def test_output_and_exit_code(self):
        self.assertEqual(self.run_on_pty(["echo", "a b"]), ("a b\r\n", 0))
        self.assertEqual(self.run_on_pty("echo out; echo err >&2; exit 7"), ("out\r\nerr\r\n", 7))
        self.assertEqual(self.run_on_pty("kill -9 $$"), ("", 137))
        self.assertEqual(self.run_on_pty("kill -TERM $$"), ("", 143))
        self.assertEqual(self.run_on_pty(["true"]), ("", 0))

    def test_program_controls_its_terminal(self):
        script = ("test -t 0 -a -t 1 -a -t 2 && echo all three; echo tty >/dev/tty;"
                  "ps -o sid=,tpgid= -p $$ | tr -s ' ' '\\n' | grep -cx $$; ls /proc/self/fd | wc -w")
        self.assertEqual(self.run_on_pty(script)[0], "all three\r\ntty\r\n2\r\n4\r\n")

    def test_program_has_the_usual_environment(self):
        show = 'echo "$PWD" "$TERM" "$HOME" "$A" "$B"'
        home = self.agent.home
        self.assertEqual(self.run_on_pty(show)[0], f"{home} xterm-256color {home}  \r\n")
        env = [("TERM", "dumb"), ("A", "1"), ("A", "x y"), ("B", "")]
        self.assertEqual(self.run_on_pty(show, cwd="/usr", env=env)[0],
                         f"/usr dumb {home} x y \r\n")

    def test_default_folder_is_that_of_python(self):
        self.run_python("import os; os.mkdir('here'); os.chdir('here'); os.mkdir('below')")
        self.assertEqual(self.run_on_pty(["pwd"])[0], f"{self.agent.home}/here\r\n")
        self.assertEqual(self.run_on_pty(["pwd"], cwd="below")[0], f"{self.agent.home}/here/below\r\n")
        self.run_python("os.chdir('..')")

    def test_start_works_while_python_is_busy_or_dead(self):
        self.client.start("while True: pass")
        self.assertEqual(self.run_on_pty_with(self.connect()), "still here\r\n")
        os.kill(self.agent.driver_pid(), signal.SIGKILL)
        self.assertEqual(self.client.finish().code, 137)
        self.assertEqual(self.run_on_pty_with(self.connect()), "still here\r\n")

    def run_on_pty_with(self, client):
        listener = self.attach(self.start(["echo", "still here"], client=client))
        listener.finish()
        return listener.data.decode()

    def test_sizes(self):
        name = self.start("trap 'stty size' WINCH; stty size; while :; do sleep 0.01; done",
                          cols=100, rows=50)
        listener = self.attach(name).until(b"50 100\r\n")
        self.ask(PTY_RESIZE, name, struct.pack("<HH", 65535, 1))
        listener.until(b"1 65535\r\n")

    def test_keys(self):
        name = self.start(["cat"])
        listener = self.attach(name)
        self.type(name, b"one\r")
        listener.until(b"one\r\none\r\n")
        self.type(name, b"two\n")
        listener.until(b"two\r\ntwo\r\n")
        self.type(name, b"\x03")
        self.assertEqual(listener.finish(), 130)
        self.assertEqual(listener.data, b"one\r\none\r\ntwo\r\ntwo\r\n^C")

    def test_interactive_bash_works(self):
        name = self.start(["bash", "--norc", "-i"], env=[("PS1", "$ ")])
        listener = self.attach(name).until(b"$ ")
        self.type(name, b"sh -c 'echo sta\"r\"ted; exec sleep 1000'\r")
        listener.until(b"started\r\n")
        self.type(name, b"\x1a")
        listener.until(b"Stopped")
        self.type(name, b"kill -9 %1; exec sh -c 'exit 5'\r")
        self.assertEqual(listener.finish(), 5)

    def test_program_may_close_and_reopen_its_terminal(self):
        name = self.start("exec </dev/null >/dev/null 2>&1; sleep 0.1;"
                          "echo back >/dev/tty; sleep 0.1; echo again >/dev/tty; exit 3")
        listener = self.attach(name)
        self.assertEqual((listener.finish(), listener.data), (3, b"back\r\nagain\r\n"))

    def test_program_that_cannot_start_is_an_error(self):
        before = [entry[0] for entry in self.list()]
        self.fails(errno.ENOENT, self.start, ["nosuchprogram"], says="start nosuchprogram: No such")
        self.fails(errno.EACCES, self.start, ["/etc/passwd"], says="/etc/passwd")
        self.fails(errno.ENOENT, self.start, ["true"], cwd="/no/such", says="folder /no/such: No such")
        self.fails(errno.ENOTDIR, self.start, ["true"], cwd="/etc/passwd")
        self.fails(errno.EINVAL, self.start, ["true"], env=[("A=B", "1")], says='variable "A=B"')
        self.assertEqual([entry[0] for entry in self.list()], before)

    def test_unknown_terminal_is_an_error(self):
        name = "pty_%032x" % 12345678
        self.fails(errno.ENOENT, self.attach(name).finish)
        self.fails(errno.ENOENT, self.type, name, b"x")
        self.fails(errno.ENOENT, self.ask, PTY_RESIZE, name, struct.pack("<HH", 1, 1))
        self.fails(errno.ENOENT, self.ask, PTY_KILL, name)

    def test_id_can_be_used_only_once(self):
        name = self.start(["sleep", "1000"])
        self.assertEqual(self.client.ask(PTY_START, start_payload(name, ["true"]))[1][:4],
                         struct.pack("<I", errno.EEXIST))

    def test_program_survives_the_connection_that_started_it(self):
        client = self.connect()
        name = "pty_%032x" % 987
        self.assertEqual(client.ask(
            PTY_START, start_payload(name, ["sh", "-c", "echo on; exec sleep 1000"]))[0], DONE)
        client.close()
        self.attach(name).until(b"on\r\n")
        self.ask(PTY_KILL, name)

    MALFORMED = (
        (PTY_START, b""), (PTY_START, start_payload("short", ["true"])),
        (PTY_START, start_payload("x" * 36, [])), (PTY_START, start_payload("x" * 36, ["a"], cols=0)),
        (PTY_START, start_payload("x" * 36, ["a"], rows=0)),
        (PTY_START, start_payload("x" * 36, ["a"]) + b"x"),
        (PTY_START, start_payload("x" * 36, ["a\0b"])),
        (PTY_START, start_payload("x" * 36, ["a"], cwd="/\0")),
        (PTY_START, start_payload("x" * 36, ["a"], cwd="x" * 4097)),
        (PTY_START, start_payload("x" * 36, ["a"], label="x" * 513)),
        (PTY_START, start_payload("x" * 36, ["a"], env=[("A", "\0")])),
        (PTY_ATTACH, text("x" * 36)), (PTY_ATTACH, text("x" * 36) + b"x" * 9), (PTY_INPUT, b""),
        (PTY_RESIZE, text("x" * 36) + struct.pack("<HH", 0, 1)), (PTY_RESIZE, text("x" * 36)),
        (PTY_KILL, text("x" * 36) + b"x"), (PTY_LIST, b"x"),
    )

    def test_malformed_requests_end_the_connection(self):
        for kind, payload in self.MALFORMED:
            with self.subTest(kind=kind, payload=payload[:60]):
                client = self.connect()
                client.send(kind, payload)
                with self.assertRaises((EOFError, ConnectionError)):
                    client.recv()


class Listeners(PtyTest):
    def test_all_listeners_get_all_output(self):
        name = self.start("read; seq 1 1000")
        listeners = [self.attach(name) for _ in range(5)]
        self.type(name, b"\n")
        want = b"\r\n" + b"".join(b"%d\r\n" % i for i in range(1, 1001))
        for listener in listeners + [self.attach(name)]:
            self.assertEqual((listener.finish(), listener.data, listener.gaps), (0, want, 0))

    def test_first_answer_is_sent_at_once(self):
        name = self.start("read; echo on; read")
        listener = self.attach(name)
        self.assertIsNone(listener.take())  # nothing has been written
        self.assertEqual((listener.first, listener.data), (0, b""))
        self.type(name, b"\n")
        listener.until(b"on\r\n")
        late = self.attach(name, listener.offset)
        self.assertIsNone(late.take())
        self.assertEqual((late.first, late.data), (listener.offset, b""))

    def test_attach_starts_at_an_offset(self):
        name = self.start("printf 0123456789; read")
        self.attach(name).until(b"0123456789")
        self.assertEqual(self.attach(name, 4).until(b"456789").data, b"456789")
        end = self.attach(name, 10)
        self.fails(errno.ERANGE, self.attach(name, 11).finish, says="10 bytes, not 11")
        self.type(name, b"\n")
        self.assertEqual((end.finish(), end.data, end.first), (0, b"\r\n", 10))
        self.assertEqual(self.attach(name, 12).finish(), 0)

    def test_connection_can_be_used_after_the_end(self):
        listener = self.attach(self.start(["echo", "a"]))
        listener.finish()
        self.assertEqual(listener.client.ask(PING)[0], PONG)

    def test_last_mib_of_output_is_kept(self):
        name = self.start("stty -opost; head -c 3000000 /dev/zero; printf end; read")
        self.attach(name, 0).until(b"end")
        late = self.attach(name).until(b"end")
        self.assertEqual((late.first, len(late.data)), (3_000_003 - RING, RING))

    def test_slow_listener_blocks_nobody(self):
        name = self.start("stty -opost; seq 1 1000000; printf end")
        slow, fast = self.attach(name), self.attach(name)
        self.assertEqual(fast.finish(), 0)
        self.assertEqual(slow.finish(), 0)
        self.assertTrue(fast.data.endswith(b"1000000\nend"))
        self.assertTrue(slow.data.endswith(b"1000000\nend"))
        self.assertEqual(slow.offset, 6_888_896 + 3)
        self.assertGreater(slow.offset, len(slow.data))

    def test_listener_may_disconnect(self):
        name = self.start("echo on; read; echo off")
        gone, here = self.attach(name).until(b"on"), self.attach(name).until(b"on")
        gone.client.close()
        self.type(name, b"\n")
        self.assertEqual(here.finish(), 0)
        self.assertEqual(self.attach(name).until(b"off").finish(), 0)

    def test_process_that_holds_the_terminal_open_does_not_delay_the_end(self):
        for left in ("sleep 1000", "setsid sleep 1000", "setsid yes"):
            name = self.start(f"trap '' HUP; {left} & echo $!; sleep 0.1; exit 3")
            listener = self.attach(name)
            self.assertEqual(listener.finish(), 3)
            try:
                os.kill(int(listener.data.split()[0]), signal.SIGKILL)
            except (ProcessLookupError, ValueError):
                pass

    def test_all_output_before_the_end_arrives(self):
        for _ in range(20):
            listener = self.attach(self.start("stty -opost; head -c 100000 /dev/zero; printf e"))
            self.assertEqual((listener.finish(), len(listener.data)), (0, 100_001))


class Typists(PtyTest):
    def raw(self, script):
        """Runs a script on a raw terminal and waits until it is ready."""
        name = self.start("stty raw -echo; echo ready; " + script)
        return name, self.attach(name).until(b"ready\n")

    def test_large_input_arrives_completely_and_in_order(self):
        name, listener = self.raw("head -c 3000000 | sha256sum; cat")
        data = b"".join(b"%07d\n" % i for i in range(3_000_000 // 8))
        for at in range(0, len(data), 50_000):
            self.type(name, data[at : at + 50_000])
        listener.until(hashlib.sha256(data).hexdigest().encode())

    def test_waiting_inputs_are_written_in_order(self):
        name, listener = self.raw("read -rsn 1 <>/dev/tty; head -c 650000 | tr -d '\\n'"
                                  " | tr -s a-z")
        clients = [self.connect() for _ in range(13)]
        self.type(name, b"!")
        for i, client in enumerate(clients):
            client.send(PTY_INPUT, text(name) + bytes([97 + i]) * 50_000)
        for client in clients:
            self.assertEqual(client.recv(), (DONE, b""))
        self.assertEqual(listener.until(b"abcdefghijklm").data, b"ready\nabcdefghijklm")

    def test_input_waits_for_a_program_that_does_not_read(self):
        name, listener = self.raw("exec sleep 1000")
        clients = [self.connect() for _ in range(5)]
        for client in clients:
            for _ in range(2):
                client.send(PTY_INPUT, text(name) + b"x" * 65000)
                if not select.select([client.sock], [], [], 0)[0]:
                    break
        clients.pop(1).close()
        self.assertEqual(self.client.ask(PING)[0], PONG)
        self.ask(PTY_KILL, name)
        self.assertEqual(listener.finish(), 137)
        answers = [client.recv() for client in clients]
        self.assertEqual(answers[-1][1][:4], struct.pack("<I", errno.EPIPE))
        self.fails(errno.EPIPE, self.type, name, b"x")

    def test_input_while_the_terminal_is_closed(self):
        name = self.start("stty raw -echo; echo on; exec </dev/null >/dev/null 2>&1; sleep 0.2;"
                          "exec </dev/tty >/dev/tty; head -c 200000 | wc -c")
        listener = self.attach(name).until(b"on")
        for _ in range(4):
            self.type(name, b"x" * 50_000)
        listener.until(b"200000")


class Ends(PtyTest):
    def test_kill_reaches_every_process_of_the_session(self):
        name = self.start("set -m; trap '' HUP INT TERM;"
                          "sleep 1000 & (sleep 1000 & sleep 1000) & (trap '' HUP; sleep 1000) &"
                          "echo $$ $(ps -o pid= -s $$); echo end; wait")
        listener = self.attach(name).until(b"end")
        pids = [int(word) for word in listener.data.split(b"end")[0].split()]
        self.assertGreater(len(pids), 5)
        self.ask(PTY_KILL, name)
        self.assertEqual(listener.finish(), 137)
        while any(is_alive(pid) for pid in pids):
            self.assertEqual(self.client.ask(PING)[0], PONG)
        self.ask(PTY_KILL, name)

    def test_list(self):
        before = len(self.list())
        running = self.start(["sleep", "1000"], label="sleep a while")
        ended = self.start("exit 9", label="")
        self.attach(ended).finish()
        entries = self.list()[before:]
        self.assertEqual([(e[0], e[1], e[3], e[4]) for e in entries],
                         [(running, "sleep a while", 0, 0), (ended, "", 1, 9)])
        self.assertLessEqual(entries[0][2], entries[1][2])


class Limits(PtyTest):
    def test_oldest_ended_terminals_are_dropped(self):
        first = self.start(["sleep", "1000"])
        ended = [self.start("exit 1") for _ in range(255)]
        for name in ended:
            self.attach(name).finish()
        self.assertEqual([entry[0] for entry in self.list()], [first] + ended)
        new = self.start(["sleep", "1000"], label="x" * 512)
        self.assertEqual([entry[0] for entry in self.list()], [first] + ended[1:] + [new])
        live = [self.start(["sleep", "1000"], label="x" * 512) for _ in range(254)]
        self.fails(errno.EAGAIN, self.start, ["true"], says="256 processes and terminals are running, the maximum")
        self.assertEqual([entry[0] for entry in self.list()], [first, new] + live)
        self.ask(PTY_KILL, live[5])
        self.attach(live[5]).finish()
        self.start(["true"])


if __name__ == "__main__":
    unittest.main()
