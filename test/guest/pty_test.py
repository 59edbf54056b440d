# SPDX-License-Identifier: Apache-2.0
"""Processes with a tty: programs on terminals, their output and their input."""

import errno
import hashlib
import os
import select
import signal
import struct
import unittest

from harness import DONE, PING, PONG, PROC_INPUT, PROC_KILL, PROC_RESIZE, text
from process_test import MUST_RUN, TTY, Process, ProcessTest, Reader

RING = 1 << 20


class Listener(Reader):
    """A reader of what a terminal shows."""

    @property
    def data(self):
        return self.out

    def finish(self):
        super().finish()
        return self.code


class PtyTest(ProcessTest):
    def start(self, argv, client=None, flags=TTY | MUST_RUN, cols=80, rows=24, **options):
        return super().start(argv, client, flags, cols=cols, rows=rows, **options)

    def attach(self, process, offset=0):
        return Listener(super().attach(process, offset).client)

    def type(self, process, data, client=None):
        self.ask(PROC_INPUT, process, data, client)

    def run_on_pty(self, argv, **options):
        listener = self.attach(self.start(argv, **options))
        code = listener.finish()
        return listener.data.decode(), code


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
        self.ask(PROC_RESIZE, name, struct.pack("<HH", 65535, 1))
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
        before = [p.id for p in self.list()]
        self.fails(errno.ENOENT, self.start, ["nosuchprogram"], says="start nosuchprogram: No such")
        self.fails(errno.EACCES, self.start, ["/etc/passwd"], says="/etc/passwd")
        self.fails(errno.ENOENT, self.start, ["true"], cwd="/no/such", says="folder /no/such: No such")
        self.fails(errno.ENOTDIR, self.start, ["true"], cwd="/etc/passwd")
        self.fails(errno.EINVAL, self.start, ["true"], env=[("A=B", "1")], says='variable "A=B"')
        self.assertEqual([p.id for p in self.list()], before)

    def test_unknown_terminal_is_an_error(self):
        nobody = Process(self.new_name("pty_"), *[None] * 9)
        self.fails(errno.ENOENT, self.ask, PROC_KILL, nobody, says="no such terminal")


class Listeners(PtyTest):
    def test_all_listeners_get_all_output(self):
        name = self.start("read; seq 1 1000")
        listeners = [self.attach(name) for _ in range(5)]
        self.type(name, b"\n")
        want = b"\r\n" + b"".join(b"%d\r\n" % i for i in range(1, 1001))
        for listener in listeners + [self.attach(name)]:
            self.assertEqual((listener.finish(), listener.data, listener.gaps), (0, want, 0))

    def test_attach_starts_at_an_offset(self):
        name = self.start("printf 0123456789; read")
        self.attach(name).until(b"0123456789")
        self.assertEqual(self.attach(name, 4).until(b"456789").data, b"456789")
        end = self.attach(name, 10)
        self.fails(errno.ERANGE, self.attach(name, 11).finish, says="10 bytes, not 11")
        self.type(name, b"\n")
        self.assertEqual((end.finish(), end.data, end.first), (0, b"\r\n", 10))
        self.assertEqual(self.attach(name, 12).finish(), 0)

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
            client.send(PROC_INPUT, text(name.id) + bytes([97 + i]) * 50_000)
        for client in clients:
            self.assertEqual(client.recv(), (DONE, b""))
        self.assertEqual(listener.until(b"abcdefghijklm").data, b"ready\nabcdefghijklm")

    def test_input_waits_for_a_program_that_does_not_read(self):
        name, listener = self.raw("exec sleep 1000")
        clients = [self.connect() for _ in range(5)]
        for client in clients:
            for _ in range(2):
                client.send(PROC_INPUT, text(name.id) + b"x" * 65000)
                if not select.select([client.sock], [], [], 0)[0]:
                    break
        clients.pop(1).close()
        self.assertEqual(self.client.ask(PING)[0], PONG)
        self.ask(PROC_KILL, name)
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


if __name__ == "__main__":
    unittest.main()
