# SPDX-License-Identifier: Apache-2.0
"""AGENT_PROC_START to AGENT_PROC_STAT: programs on pipes, their output, input, signals and ends."""

import collections
import errno
import hashlib
import os
import pwd
import select
import signal
import struct
import subprocess
import time
import unittest

from harness import (DONE, ERROR, PING, PONG, PROC, PROC_ATTACH, PROC_BYTES, PROC_CLOSE, PROC_EXIT,
                     PROC_INPUT, PROC_KILL, PROC_LIST, PROC_RESIZE, PROC_SIGNAL, PROC_START,
                     PROC_STAT, AgentTest, text)

MIB = 1 << 20
AHEAD = 256 << 10
TTY, STDIN, FOLLOW, TIMED_OUT, MUST_RUN = 1, 2, 4, 8, 16
Process = collections.namedtuple(
    "Process", "id label user pid started ended total flags code signal")


def start_payload(name, argv, flags=0, cols=0, rows=0, timeout_ms=0, cwd="", user="", label="label",
                  env=()):
    return (text(name) + struct.pack("<BHHI", flags, cols, rows, timeout_ms) + text(cwd) +
            text(user) + text(label) + struct.pack("<I", len(argv)) +
            b"".join(text(word) for word in argv) + struct.pack("<I", len(env)) +
            b"".join(text(k) + text(v) for k, v in env))


def parse_process(payload):
    words, at = [], 0
    for _ in range(3):
        (size,) = struct.unpack_from("<I", payload, at)
        words.append(payload[at + 4 : at + 4 + size].decode())
        at += 4 + size
    return Process(*words, *struct.unpack("<IqqQBiB", payload[at:]))


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


class Reader:
    """A connection that receives the output of a process; `parts` are (stream, bytes)."""

    def __init__(self, client):
        self.client = client
        self.process = None
        self.parts = []
        self.first = None
        self.offset = 0
        self.gaps = 0
        self.code = self.signal = self.timed_out = None

    def joined(self, stream):
        return b"".join(data for which, data in self.parts if which == stream)

    @property
    def out(self):
        return self.joined(1)

    @property
    def err(self):
        return self.joined(2)

    def take(self):
        kind, payload = self.client.recv()
        if kind == ERROR:
            raise Failed(payload)
        if kind == PROC:
            assert self.process is None
            self.process = parse_process(payload)
        elif kind == PROC_EXIT:
            self.code, self.signal, self.timed_out, _, self.total = struct.unpack("<iBBqQ", payload)
            return False
        else:
            assert kind == PROC_BYTES, kind
            offset, stream = struct.unpack_from("<QB", payload)
            assert offset >= self.offset and len(payload) > 9 and stream in (1, 2)
            if self.first is None:
                self.first = offset
            elif offset > self.offset:
                self.gaps += 1
            self.offset = offset + len(payload) - 9
            self.parts.append((stream, payload[9:]))
        return True

    def until(self, what):
        while what not in self.out + self.err:
            assert self.take(), (self.code, self.parts[-3:])
        return self

    def finish(self):
        while self.take():
            pass
        assert self.total == self.offset or self.first is None, (self.total, self.offset)
        return self


class ProcessTest(AgentTest):
    number = 0

    def new_name(self, prefix="prc_"):
        ProcessTest.number += 1
        return "%s%032x" % (prefix, ProcessTest.number)

    def start(self, argv, client=None, flags=0, **options):
        """Starts a program (a list, or a script for bash); returns the process."""
        words = ["bash", "-c", argv] if isinstance(argv, str) else argv
        client = client or self.client
        client.send(PROC_START, start_payload(self.new_name(), words, flags, **options))
        kind, payload = client.recv()
        if kind == ERROR:
            raise Failed(payload)
        self.assertEqual(kind, PROC)
        self.assertEqual(client.recv(), (DONE, b""))
        process = parse_process(payload)
        self.addCleanup(lambda: self.connect().ask(PROC_KILL, text(process.id)))
        return process

    def follow(self, argv, flags=0, **options):
        """Starts a program and returns the reader of its output."""
        words = ["bash", "-c", argv] if isinstance(argv, str) else argv
        client, name = self.connect(), self.new_name()
        client.send(PROC_START, start_payload(name, words, flags | FOLLOW, **options))
        reader = Reader(client)
        reader.take()
        self.addCleanup(lambda: self.connect().ask(PROC_KILL, text(name)))
        return reader

    def run_process(self, argv, **options):
        reader = self.follow(argv, **options).finish()
        return reader.out, reader.err, reader.code

    def attach(self, process, offset=0, hold=0):
        client = self.connect()
        client.send(PROC_ATTACH, text(process.id) + struct.pack("<QB", offset, hold))
        return Reader(client)

    def ask(self, kind, process, payload=b"", client=None):
        kind, payload = (client or self.client).ask(kind, text(process.id) + payload)
        if kind == ERROR:
            raise Failed(payload)
        self.assertEqual((kind, payload), (DONE, b""))

    def fails(self, number, function, *args, says="", **options):
        with self.assertRaises(Failed) as caught:
            function(*args, **options)
        self.assertEqual(caught.exception.errno, number, caught.exception.text)
        self.assertIn(says, caught.exception.text)

    def stat(self, process):
        kind, payload = self.client.ask(PROC_STAT, text(process.id))
        self.assertEqual(kind, PROC)
        self.assertEqual(self.client.recv(), (DONE, b""))
        return parse_process(payload)

    def list(self, client=None):
        client = client or self.client
        client.send(PROC_LIST)
        found = []
        while (answer := client.recv())[0] == PROC:
            found.append(parse_process(answer[1]))
        self.assertEqual(answer, (DONE, b""))
        return found


class Programs(ProcessTest):
    def test_output_and_exit_code(self):
        self.assertEqual(self.run_process(["echo", "a $b", "*"]), (b"a $b *\n", b"", 0))
        self.assertEqual(self.run_process("echo out; echo err >&2; exit 7"),
                         (b"out\n", b"err\n", 7))
        self.assertEqual(self.run_process(["true"]), (b"", b"", 0))
        self.assertEqual(self.run_process(["printf", r"\xff\x00\xc3"]), (b"\xff\0\xc3", b"", 0))

    def test_death_by_signal(self):
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV):
            reader = self.follow(f"ulimit -c 0; kill -{number} $$").finish()
            self.assertEqual((reader.code, reader.signal, reader.timed_out), (128 + number, number, 0))

    def test_program_that_cannot_run_ends_as_in_a_shell(self):
        self.assertEqual(self.run_process(["nosuchprogram", "x"]),
                         (b"", b"nosuchprogram: No such file or directory\n", 127))
        self.assertEqual(self.run_process(["/etc/passwd"]),
                         (b"", b"/etc/passwd: Permission denied\n", 126))
        self.assertEqual(self.run_process(["/"])[2], 126)
        self.assertEqual(self.run_process(["nosuch"], flags=TTY, cols=80, rows=24),
                         (b"nosuch: No such file or directory\r\n", b"", 127))

    def test_start_that_fails_is_an_error(self):
        before = self.list()
        self.fails(errno.ENOENT, self.start, ["true"], cwd="/no/such", says="folder /no/such: No such")
        self.fails(errno.ENOTDIR, self.start, ["true"], cwd="/etc/passwd")
        self.fails(errno.EINVAL, self.start, ["true"], env=[("A=B", "1")], says='variable "A=B"')
        for user in ("nosuchuser", "4000000000", "0x0", "-1"):
            self.fails(errno.ENOENT, self.start, ["true"], user=user,
                       says=f'there is no user "{user}" in the sandbox')
        self.assertEqual(self.list(), before)

    def test_streams_keep_their_order(self):
        reader = self.follow("for i in 1 2 3; do echo o$i; sleep 0.05; echo e$i >&2; sleep 0.05; done")
        self.assertEqual([data for _, data in reader.finish().parts],
                         [b"o1\n", b"e1\n", b"o2\n", b"e2\n", b"o3\n", b"e3\n"])

    def test_environment_and_folder(self):
        show = 'echo "$PWD" "$TERM" "$A" "$B"'
        term = os.environ.get("TERM", "dumb")  # bash sets one
        self.assertEqual(self.run_process(show)[0].decode(), f"{self.agent.home} {term}  \n")
        env = [("TERM", "x"), ("A", "1"), ("A", "x y"), ("B", "")]
        self.assertEqual(self.run_process(show, cwd="/usr", env=env)[0], b"/usr x x y \n")
        self.run_python("import os; os.mkdir('below'); os.chdir('below')")
        self.assertEqual(self.run_process(["pwd"])[0].decode(), f"{self.agent.home}/below\n")
        self.run_python("os.chdir('..')")
        self.assertEqual(self.run_process(["printenv", "PATH"], env=[("PATH", "/usr/bin")])[0],
                         b"/usr/bin\n")

    def test_program_inherits_nothing_of_the_agent(self):
        script = ("ls /proc/self/fd | wc -w; readlink /proc/self/fd/0; grep -c . /proc/self/fdinfo/1 >&2;"
                  "ps -o sid= -p $$ | tr -d ' ' | grep -cx $$; grep SigIgn /proc/self/status")
        out = self.run_process(script)[0].split()
        self.assertEqual(out[:3], [b"4", b"/dev/null", b"1"])
        self.assertEqual(int(out[-1], 16) & 1 << signal.SIGPIPE - 1, 0)

    def test_streams_can_be_opened_again(self):
        self.assertEqual(self.run_process("echo one >/dev/stdout; echo two >/dev/stderr"),
                         (b"one\n", b"two\n", 0))

    def test_twenty_at_once_beside_python(self):
        self.client.start("while True: pass")
        readers = [self.follow(["cat"], flags=STDIN) for _ in range(20)]
        for i, reader in enumerate(readers):
            self.ask(PROC_INPUT, reader.process, b"line %d\n" % i, self.connect())
        for i, reader in enumerate(readers):
            reader.until(b"line %d\n" % i)
        for reader in readers:
            self.ask(PROC_CLOSE, reader.process, client=self.connect())
        self.assertEqual([reader.finish().code for reader in readers], [0] * 20)

    def test_process_is_described(self):
        process = self.start(["sleep", "1000"], label="sleep a while", flags=STDIN)
        self.assertEqual((process.label, process.user, process.ended, process.total, process.flags),
                         ("sleep a while", "", 0, 0, STDIN))
        self.assertTrue(is_alive(process.pid))
        self.assertLess(abs(process.started / 1000 - time.time()), 100)
        self.ask(PROC_KILL, process)
        self.attach(process).finish()
        now = self.stat(process)
        self.assertEqual((now.id, now.pid, now.code, now.signal, now.flags),
                         (process.id, process.pid, 137, 9, 0))
        self.assertGreaterEqual(now.ended, now.started)

    def test_unknown_process_is_an_error(self):
        nobody = Process(self.new_name(), *[None] * 9)
        for kind, rest in ((PROC_ATTACH, b"\0" * 9), (PROC_INPUT, b"x"), (PROC_CLOSE, b""),
                           (PROC_SIGNAL, b"\1"), (PROC_KILL, b""), (PROC_STAT, b""),
                           (PROC_RESIZE, struct.pack("<HH", 1, 1))):
            self.fails(errno.ENOENT, self.ask, kind, nobody, rest, says="no such process")

    def test_id_can_be_used_only_once(self):
        process = self.start(["sleep", "1000"])
        payload = self.client.ask(PROC_START, start_payload(process.id, ["true"]))[1]
        self.assertEqual(payload[:4], struct.pack("<I", errno.EEXIST))

    def test_malformed_requests_end_the_connection(self):
        name = "x" * 36
        for kind, payload in (
                (PROC_START, b""), (PROC_START, start_payload("short", ["true"])),
                (PROC_START, start_payload(name, [])), (PROC_START, start_payload(name, ["a"], 8)),
                (PROC_START, start_payload(name, ["a"], TTY)), (PROC_START, start_payload(name, ["a"], 0, 1, 1)),
                (PROC_START, start_payload(name, ["a"], user="x" * 65)), (PROC_ATTACH, text(name)),
                (PROC_SIGNAL, text(name) + b"\0"), (PROC_SIGNAL, text(name) + b"A"), (PROC_INPUT, b""),
                (PROC_LIST, b"x"), (PROC_STAT, text(name) + b"x"), (PROC_CLOSE, text("y")),
                (PROC_RESIZE, text(name) + struct.pack("<HH", 0, 1)), (PROC_RESIZE, text(name))):
            with self.subTest(kind=kind, payload=payload[:60]):
                client = self.connect()
                client.send(kind, payload)
                with self.assertRaises((EOFError, ConnectionError)):
                    client.recv()


@unittest.skipIf(os.geteuid(), "only root may become another user")
class Users(ProcessTest):
    SHOW = 'id -u; id -g; id -G; echo "$HOME $USER $LOGNAME"'

    def test_user_by_name_and_by_uid(self):
        entry = pwd.getpwnam("daemon")
        groups = subprocess.run(["id", "-G", "daemon"], capture_output=True, check=True, text=True)
        want = (f"{entry.pw_uid}\n{entry.pw_gid}\n{groups.stdout}{entry.pw_dir} daemon daemon\n")
        for user in ("daemon", str(entry.pw_uid)):
            self.assertEqual(self.run_process(self.SHOW, user=user, cwd="/"), (want.encode(), b"", 0))
        self.assertEqual(self.start(["true"], user="daemon", cwd="/").user, "daemon")

    def test_folder_is_the_users_home(self):
        self.assertEqual(self.run_process(["pwd"], user="daemon")[0].decode().strip(),
                         os.path.realpath(pwd.getpwnam("daemon").pw_dir))

    def test_user_has_no_rights_of_root(self):
        self.assertEqual(self.run_process(["cat", "/etc/shadow"], user="daemon", cwd="/")[2], 1)
        self.fails(errno.EACCES, self.start, ["true"], user="daemon", cwd=self.agent.home)

    def test_variables_override_those_of_the_user(self):
        self.assertEqual(self.run_process('echo "$HOME $USER"', user="daemon", cwd="/",
                                          env=[("HOME", "/tmp")])[0], b"/tmp daemon\n")

    def test_user_may_open_its_streams_again(self):
        for flags, size in ((0, 0), (STDIN, 0), (TTY, 80)):
            reader = self.follow("echo one >/dev/stdout; echo two >/dev/stderr", user="daemon",
                                 cwd="/", flags=flags, cols=size, rows=size).finish()
            self.assertEqual((reader.out + reader.err).split(), [b"one", b"two"])
        self.assertEqual(os.stat("/dev/null").st_uid, 0)

    def test_process_of_a_user_dies_with_the_agent(self):
        agent = type(self.agent)()
        client = agent.client()
        client.send(PROC_START, start_payload(self.new_name(), ["sleep", "1000"], user="daemon", cwd="/"))
        pid = parse_process(client.recv()[1]).pid
        agent.stop()
        client.close()
        while is_alive(pid):
            time.sleep(0.01)


class Input(ProcessTest):
    def test_without_stdin_a_program_reads_the_end(self):
        reader = self.follow(["cat"])
        self.assertEqual(reader.finish().code, 0)
        self.fails(errno.EPIPE, self.ask, PROC_INPUT, reader.process, b"x", says="stdin=True")
        self.ask(PROC_CLOSE, reader.process)

    def test_large_input_arrives_completely_and_in_order(self):
        reader = self.follow(["sha256sum"], flags=STDIN)
        data = os.urandom(3_000_000)
        for at in range(0, len(data), 65000):
            self.ask(PROC_INPUT, reader.process, data[at : at + 65000])
        self.ask(PROC_CLOSE, reader.process)
        self.assertEqual(reader.finish().out.split()[0].decode(), hashlib.sha256(data).hexdigest())

    def test_close_follows_the_input_that_waits(self):
        reader = self.follow("read -u 3 line 3</dev/tty 2>/dev/null; sleep 0.3; wc -c", flags=STDIN)
        clients = [self.connect() for _ in range(20)]
        for client in clients:
            client.send(PROC_INPUT, text(reader.process.id) + b"x" * 60_000)
            self.assertEqual(self.client.ask(PING)[0], PONG)
        self.ask(PROC_CLOSE, reader.process, client=self.connect())
        self.assertEqual([client.recv() for client in clients], [(DONE, b"")] * 20)
        self.assertEqual(reader.finish().out, b"1200000\n")
        self.assertEqual(self.stat(reader.process).flags, 0)

    def test_program_that_closes_its_stdin_refuses_input(self):
        reader = self.follow("exec <&-; echo closed; sleep 1000", flags=STDIN).until(b"closed")
        while True:
            kind, payload = self.client.ask(PROC_INPUT, text(reader.process.id) + b"x")
            if kind == ERROR:
                break
        self.assertEqual(payload[:4], struct.pack("<I", errno.EPIPE))
        self.ask(PROC_CLOSE, reader.process)

    def test_input_that_nobody_reads_waits_until_the_end(self):
        reader = self.follow(["sleep", "1000"], flags=STDIN)
        clients = [self.connect() for _ in range(8)]
        for client in clients:
            client.send(PROC_INPUT, text(reader.process.id) + b"x" * 65000)
            self.assertEqual(self.client.ask(PING)[0], PONG)
        clients.pop().close()
        self.ask(PROC_KILL, reader.process)
        self.assertEqual(clients[-1].recv()[1][:4], struct.pack("<I", errno.EPIPE))
        self.assertEqual(reader.finish().signal, 9)

    def test_close_of_a_terminal_types_end_of_file(self):
        reader = self.follow(["cat"], flags=TTY, cols=80, rows=24)
        self.ask(PROC_INPUT, reader.process, b"a\n")
        reader.until(b"a\r\na\r\n")
        self.ask(PROC_CLOSE, reader.process)
        self.assertEqual(reader.finish().code, 0)


class Output(ProcessTest):
    def test_last_mib_of_each_stream_is_kept(self):
        process = self.start("echo first >&2; head -c 3000000 /dev/zero; printf end; exit 3")
        self.attach(process).finish()
        late = self.attach(process).finish()
        self.assertEqual((late.err, len(late.out), late.out[-3:], late.code), (b"first\n", MIB, b"end", 3))
        # The first part that is kept is that of stderr, which the agent may read after some of stdout.
        self.assertLess(late.first, 3_000_009 - MIB)
        self.assertEqual(late.offset, 3_000_009)

    def test_attach_starts_at_an_offset(self):
        process = self.start("printf 0123456789; printf abc >&2; read", flags=STDIN)
        self.attach(process).until(b"9").until(b"abc")
        self.assertEqual(self.attach(process, 4).until(b"abc").out, b"456789")
        self.assertEqual(self.attach(process, 11).until(b"bc").parts, [(2, b"bc")])
        self.fails(errno.ERANGE, self.attach(process, 14).finish, says="13 bytes, not 14")
        end = self.attach(process, 13)
        self.ask(PROC_INPUT, process, b"\n")
        self.assertEqual((end.finish().code, end.parts), (0, []))

    def test_follower_gets_everything_however_slow(self):
        reader = self.follow("seq 1 1000000; echo done >&2")
        while not self.is_blocked(reader.process.pid):
            self.assertEqual(self.client.ask(PING)[0], PONG)
        reader.finish()
        self.assertEqual((len(reader.out), reader.err, reader.gaps), (6_888_896, b"done\n", 0))
        self.assertEqual(hashlib.sha256(reader.out).hexdigest(), hashlib.sha256(
            b"".join(b"%d\n" % i for i in range(1, 1_000_001))).hexdigest())

    def test_follower_gets_everything_from_a_program_that_switches_streams(self):
        # The agent reads most of the bytes one by one, and remembers 65536 changes of the stream.
        script = ("import os, time\nfor i in range(40000):\n"
                  " os.write(1, b'a'); time.sleep(0); os.write(2, b'b'); time.sleep(0)")
        reader = self.follow(["python3", "-c", script])
        before = None
        while before != (now := self.stat(reader.process)) and not now.ended:
            before = now
            time.sleep(1)
        reader.finish()
        self.assertEqual((len(reader.out), len(reader.err), reader.gaps), (40000, 40000, 0))

    def is_blocked(self, pid):
        """Returns whether the only child of a bash waits for room in its pipe."""
        try:
            with open(f"/proc/{pid}/task/{pid}/children") as file:
                child = file.read().split()[0]
            with open(f"/proc/{child}/wchan") as file:
                return "pipe" in file.read()
        except (IndexError, FileNotFoundError):
            return False

    def test_follower_that_leaves_lets_the_program_run(self):
        reader = self.follow("head -c 20000000 /dev/zero; echo done >&2; read", flags=STDIN)
        reader.client.close()
        self.attach(reader.process).until(b"done")
        process = self.stat(reader.process)
        self.assertEqual((process.total, process.ended), (20_000_005, 0))

    def test_follower_loses_nothing_beside_a_listener(self):
        reader = self.follow("read; seq 1 300000", flags=STDIN)
        fast = self.attach(reader.process)
        fast.take()
        self.ask(PROC_INPUT, reader.process, b"\n")
        while fast.offset < AHEAD:
            fast.take()
        reader.finish()
        fast.finish()
        self.assertEqual((len(reader.out), reader.gaps), (1_988_895, 0))
        self.assertEqual(fast.out[-7:], b"300000\n")

    def test_slow_listener_blocks_nobody(self):
        process = self.start("seq 1 1000000; printf end")
        slow, fast = self.attach(process), self.attach(process)
        self.assertEqual(fast.finish().out[-11:], b"1000000\nend")
        self.assertEqual(slow.finish().out[-11:], b"1000000\nend")
        self.assertGreater(slow.gaps, 0)

    def test_all_output_before_the_end_arrives(self):
        for _ in range(20):
            out, err, code = self.run_process("head -c 200000 /dev/zero; head -c 200000 /dev/zero >&2")
            self.assertEqual((len(out), len(err), code), (200_000, 200_000, 0))

    def test_process_that_is_left_behind_does_not_delay_the_end(self):
        reader = self.follow("(trap '' HUP; while sleep 0.01; do echo x; done) & echo $!; exit 3")
        reader.finish()
        self.assertEqual(reader.code, 3)
        pid = int(reader.out.split()[0])
        # It may go on printing: nobody reads that, but it does not get SIGPIPE.
        time.sleep(0.1)
        self.assertTrue(is_alive(pid))
        late = self.attach(reader.process).finish()
        self.assertEqual(late.offset, reader.offset)
        os.kill(pid, signal.SIGKILL)

    def test_connection_can_be_used_after_the_end(self):
        reader = self.follow(["echo", "a"]).finish()
        self.assertEqual(reader.client.ask(PING)[0], PONG)


class Ends(ProcessTest):
    def test_signal_reaches_the_group_of_the_program(self):
        reader = self.follow("trap 'echo got it' USR1; echo on; while :; do sleep 0.01; done").until(b"on")
        self.ask(PROC_SIGNAL, reader.process, bytes([signal.SIGUSR1]))
        # The sleep dies of it; bash runs its trap.
        reader.until(b"got it")
        self.ask(PROC_SIGNAL, reader.process, bytes([signal.SIGTERM]))
        reader.finish()
        self.assertEqual((reader.code, reader.signal), (143, 15))
        self.fails(errno.ESRCH, self.ask, PROC_SIGNAL, reader.process, b"\x0f", says="has ended")

    def test_kill_reaches_every_process_of_the_session(self):
        reader = self.follow("set -m; trap '' HUP INT TERM; sleep 1000 & (sleep 1000 & sleep 1000) &"
                             "echo $$ $(ps -o pid= -s $$); echo end; wait").until(b"end")
        pids = [int(word) for word in reader.out.split(b"end")[0].split()]
        self.assertGreater(len(pids), 4)
        self.ask(PROC_KILL, reader.process)
        self.assertEqual(reader.finish().code, 137)
        while any(is_alive(pid) for pid in pids):
            self.assertEqual(self.client.ask(PING)[0], PONG)
        self.ask(PROC_KILL, reader.process)

    def test_process_survives_the_connection_that_started_it(self):
        client, name = self.connect(), self.new_name()
        client.send(PROC_START, start_payload(name, ["sh", "-c", "echo on; exec sleep 1000"], FOLLOW))
        self.assertEqual(client.recv()[0], PROC)
        client.close()
        process = Process(name, *[None] * 9)
        self.attach(process).until(b"on\n")
        self.ask(PROC_KILL, process)


@unittest.skipIf(os.geteuid(), "only root may mount")
class HangingStarts(ProcessTest):
    """Looking up a user hangs, as a folder of a broken file system would."""

    prefix = ("unshare", "-m", "sh", "-c",
              'mkfifo "$HOME/passwd" && mount --bind "$HOME/passwd" /etc/passwd && exec "$@"', "sh")

    def test_start_ends_with_its_connection(self):
        client, name = self.connect(), self.new_name()
        client.send(PROC_START, start_payload(name, ["true"], user="daemon"))
        self.run_python("import time; time.sleep(0.3)")
        self.assertEqual(self.list(), [])
        client.close()
        while not (found := self.list()) or not found[0].signal:
            time.sleep(0.01)
        self.assertEqual([(p.id, p.signal) for p in found], [(name, 9)])


class TimeLimits(ProcessTest):
    options = ("--grace-ms", "300")

    def test_session_gets_sigterm(self):
        reader = self.follow("trap 'echo bye; exit 5' TERM; sleep 1000 & wait", timeout_ms=200).finish()
        self.assertEqual((reader.out, reader.code, reader.signal, reader.timed_out),
                         (b"bye\n", 5, 0, 1))
        self.assertEqual(self.stat(reader.process).flags, TIMED_OUT)

    def test_then_sigkill(self):
        reader = self.follow("trap '' TERM; (setsid sleep 1000 & echo $!); sleep 1000", timeout_ms=200)
        reader.finish()
        self.assertEqual((reader.code, reader.signal, reader.timed_out), (137, 9, 1))
        own_session = int(reader.out)
        self.assertTrue(is_alive(own_session))
        os.kill(own_session, signal.SIGKILL)

    def test_sigkill_reaches_what_the_program_left_behind(self):
        script = "(trap '' TERM; echo $BASHPID; exec sleep 1000) & wait"
        reader = self.follow(script, timeout_ms=200).finish()
        self.assertEqual((reader.code, reader.timed_out), (143, 1))
        self.fails(errno.ESRCH, self.ask, PROC_SIGNAL, reader.process, b"\x0f", says="has ended")
        while is_alive(int(reader.out)):
            time.sleep(0.01)
        # Then the program's zombie is reaped.
        while os.path.exists(f"/proc/{reader.process.pid}"):
            time.sleep(0.01)

    def test_kill_does_not_wait_for_sigkill(self):
        script = "(trap '' TERM; echo $BASHPID; exec sleep 1000) & wait"
        reader = self.follow(script, timeout_ms=200).finish()
        self.ask(PROC_KILL, reader.process)
        self.assertFalse(os.path.exists(f"/proc/{reader.process.pid}"))
        while is_alive(int(reader.out)):
            time.sleep(0.01)

    def test_program_that_ends_in_time_is_not_timed_out(self):
        reader = self.follow(["true"], timeout_ms=100_000).finish()
        self.assertEqual((reader.code, reader.timed_out), (0, 0))

    def test_each_process_has_its_own_limit(self):
        longer = self.follow(["sleep", "1000"], timeout_ms=600)
        shorter = self.follow(["sleep", "1000"], timeout_ms=1)
        for reader in (shorter, longer):
            self.assertEqual((reader.finish().signal, reader.timed_out), (15, 1))


class Terminals(ProcessTest):
    def test_process_with_a_tty(self):
        reader = self.follow("test -t 0 -a -t 1 -a -t 2 && stty size; echo $TERM; echo err >&2; exit 4",
                             flags=TTY, cols=100, rows=50).finish()
        self.assertEqual((reader.out, reader.err, reader.code),
                         (b"50 100\r\nxterm-256color\r\nerr\r\n", b"", 4))
        self.assertEqual(reader.process.flags, TTY)

    def test_held_terminal_loses_nothing(self):
        reader = self.follow("stty -opost; seq 1 300000", flags=TTY, cols=80, rows=24).finish()
        self.assertEqual((len(reader.out), reader.gaps), (1_988_895, 0))

    def test_process_without_a_tty_has_no_size(self):
        plain = self.start(["sleep", "1000"])
        self.fails(errno.EINVAL, self.ask, PROC_RESIZE, plain, struct.pack("<HH", 1, 1))


class Limits(ProcessTest):
    def test_oldest_ended_processes_are_dropped(self):
        first = self.start(["sleep", "1000"])
        ended = [self.start(["true"], label="x" * 512) for _ in range(255)]
        for process in ended:
            self.attach(process).finish()
        self.assertEqual([p.id for p in self.list()], [first.id] + [p.id for p in ended])
        live = [self.start(["sleep", "1000"]) for _ in range(255)]
        self.fails(errno.EAGAIN, self.start, ["true"], says="256 processes and terminals are running")
        self.assertEqual([p.id for p in self.list()], [first.id] + [p.id for p in live])
        self.ask(PROC_KILL, live[5])
        self.attach(live[5]).finish()
        self.start(["true"])

    def test_output_of_the_oldest_ended_processes_is_dropped(self):
        reader = self.follow("head -c 1000000 /dev/zero", label="a reader that waits")
        readers = [self.follow("head -c 1000000 /dev/zero; exit 3").finish() for _ in range(35)]
        first, last = (self.attach(r.process).finish() for r in (readers[0], readers[-1]))
        self.assertEqual((first.code, first.parts, len(last.out)), (3, [], 1_000_000))
        self.assertEqual(self.stat(readers[0].process).total, 1_000_000)
        self.assertEqual(len(reader.finish().out), 1_000_000)

    def test_slow_listener_does_not_keep_output(self):
        slow = self.attach(self.start("head -c 1000000 /dev/zero"))
        slow.take()
        for _ in range(35):
            self.follow("head -c 1000000 /dev/zero").finish()
        self.assertEqual(self.attach(slow.process).finish().parts, [])
        while slow.take():
            pass
        self.assertEqual((slow.code, slow.total), (0, 1_000_000))
        self.assertEqual(slow.client.ask(PING)[0], PONG)

    def test_list_waits_for_a_slow_reader(self):
        for _ in range(200):
            self.start(["true"], label="y" * 512)
        client = self.connect()
        client.send(PROC_LIST)
        select.select([client.sock], [], [])
        self.assertEqual(self.client.ask(PING)[0], PONG)
        found = []
        while (answer := client.recv())[0] == PROC:
            found.append(parse_process(answer[1]))
        self.assertEqual(answer, (DONE, b""))
        self.assertEqual([p.id for p in found], [p.id for p in self.list()])


if __name__ == "__main__":
    unittest.main()
