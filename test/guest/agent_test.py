# SPDX-License-Identifier: Apache-2.0
"""The agent: bash, interrupts, limits, dead interpreters, large output, connections, reseeding."""

import errno
import hashlib
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import textwrap
import unittest

import harness
from harness import ATTACH, BASH, CODE, DONE, ERROR, EXEC, EXIT, INTERRUPT, PING, PONG, PYTHON, RESEED
from harness import STDERR, STDOUT, VERSION, Agent, AgentTest, exec_payload, frame, text

BIG = 100_000_000


def reseed_payload(user=1, hostname="sandbox-1", realtime_ns=1_000_000_000):
    return bytes(range(64)) + struct.pack("<qB", realtime_ns, user) + text(hostname)


class Bash(AgentTest):
    CASES = (
        ("echo out; echo err >&2; exit 3", 3, "out\n", "err\n"),
        ("true", 0, "", ""),
        ("false", 1, "", ""),
        ("kill -9 $$", 137, "", ""),
        ("kill -TERM $$", 143, "", ""),
        ("echo $0", 0, "bash\n", ""),
        ("cat", 0, "", ""),
        ("printf 'no newline'", 0, "no newline", ""),
        ("trap 'echo bye' EXIT; exit 5", 5, "bye\n", ""),
        ("echo a | tr a b; echo ${PIPESTATUS[@]}", 0, "b\n0 0\n", ""),
        ("ps -o sid= -p $$ | tr -d ' ' | grep -qx $$ && echo own session", 0, "own session\n", ""),
        ("yes | head -n 1; echo ${PIPESTATUS[0]}", 0, "y\n141\n", ""),  # SIGPIPE has its default action
        ("ls /proc/self/fd | wc -w", 0, "4\n", ""),
        ("", 0, "", ""),
    )

    def test_exit_codes_and_output(self):
        for code, exit_code, out, err in self.CASES:
            with self.subTest(code=code):
                self.assert_ends(self.run_bash(code), exit_code, out, err)

    def test_streams_in_order_of_arrival(self):
        self.assertEqual(self.run_bash("echo a; echo b >&2").order, "1:a\n2:b\n")
        self.assertEqual(self.run_bash("echo b >&2; echo a").order, "2:b\n1:a\n")

    def test_syntax_error_is_that_of_bash(self):
        result = self.run_bash("if")
        self.assertEqual((result.code, result.lost), (2, 0))
        self.assertIn("syntax error", result.err)

    def test_bash_shares_folder_and_environment_with_python(self):
        self.run_python("import os\n"
                        "os.environ['A'] = 'x y'; os.makedirs('d', exist_ok=True); os.chdir('d')")
        self.assert_ends(self.run_bash('echo "$A"; basename "$PWD"'), out="x y\nd\n")
        self.run_bash("A=changed; cd /")
        self.assert_ends(self.run_bash('echo "$A"; basename "$PWD"'), out="x y\nd\n")
        self.run_python("os.chdir('..')")

    def test_background_children_do_not_delay_the_end(self):
        result = self.run_bash("sleep 1000 & echo $!")
        self.assertEqual(result.code, 0)
        os.kill(int(result.out), signal.SIGKILL)

    def test_code_around_the_limit_of_an_argument(self):
        for size in (131_000, 131_071, 131_072, 10_000_000):
            head, tail = ": '", "'\necho done\nexit 7"
            code = head + "x" * (size - len(head) - len(tail)) + tail
            self.assertEqual(len(code), size)
            self.assert_ends(self.run_bash(code), 7, out="done\n")

    def test_long_code_behaves_like_short_code(self):
        filler = "\n" + "# " + "x" * 200_000
        self.assert_ends(self.run_bash("echo $0; cat; ls /proc/self/fd | wc -w; false" + filler),
                         1, out="bash\n4\n")
        self.assertIn("bash: ", self.run_bash("nosuchcommand" + filler).err)

    def test_zero_byte_in_code_is_an_error(self):
        result = self.run_bash("echo a\0b")
        self.assert_ends(result, 2, err="bash: the code has a zero byte in it\n")

    def test_handlers_of_python_do_not_take_the_exit_code(self):
        for handler in ("signal.SIG_IGN", "lambda *a: os.waitpid(-1, os.WNOHANG)"):
            self.run_python(f"import os, signal\nsignal.signal(signal.SIGCHLD, {handler})")
            self.assert_ends(self.run_bash("exit 4"), 4)
        self.run_python("signal.signal(signal.SIGCHLD, signal.SIG_DFL)")

    def test_descriptors_closed_by_python_are_open_in_bash(self):
        self.run_python("import os; os.close(1); os.dup2(0, 2)")
        self.assert_ends(self.run_bash("echo a; echo b >&2"), out="a\n", err="b\n")
        self.run_python("os.dup2(1002, 2)")


class Interrupts(AgentTest):
    def interrupt(self, code, language=PYTHON, **options):
        """Starts code, interrupts it after it has printed "ready", and returns its result."""
        self.client.start(code, language, **options)
        result = self.client.wait_for_output("ready\n")
        self.assertEqual(self.connect().interrupt(), (DONE, b""))
        return self.client.finish(result)

    ENDLESS = (
        "while True: pass",
        "import time; time.sleep(1000)",
        "import threading; threading.Event().wait()",
        "import subprocess; subprocess.run(['sleep', '1000'])",
        "import os; os.read(os.pipe()[0], 1)",
        "import asyncio; asyncio.run(asyncio.sleep(1000))",
        "import sys\nwhile True:\n  n = sys.stdout.write('')",
        "import re; re.match('(a+)+$', 'a' * 64 + 'b')",  # a C loop that checks signals
    )

    def test_python(self):
        for code in self.ENDLESS:
            with self.subTest(code=code):
                result = self.interrupt("kept = 1\nprint('ready')\n" + code)
                self.assertEqual((result.code, result.lost), (130, 0))
                self.assertTrue(result.err.endswith("KeyboardInterrupt\n"), result.err)
                self.assertNotIn("driver", result.err)
                self.assert_ends(self.run_python("print(kept); del kept"), out="1\n")

    def test_a_child_of_os_system(self):
        result = self.interrupt("import os\nprint('status', os.system('exec yes ready'))")
        self.assertEqual((result.out[-9:], result.err, result.code), ("status 2\n", "", 0))

    # A shell may lose a signal right after it has started a child, but not once it writes output.
    def test_bash(self):
        for code in ("exec yes ready", "yes ready; echo not here", "while :; do echo ready; done"):
            with self.subTest(code=code):
                result = self.interrupt(code, BASH)
                self.assertEqual((result.code, result.err, result.lost), (130, "", 0))
                self.assertNotIn("not here", result.out)

    def test_bash_may_trap_an_interrupt(self):
        code = "trap 'echo trapped; exit 9' INT\nwhile :; do echo ready; done"
        result = self.interrupt(code, BASH)
        self.assertEqual((result.code, result.out[-8:]), (9, "trapped\n"))

    def test_caught_interrupt_does_not_end_the_call(self):
        code = textwrap.dedent("""
            import time
            try:
                print('ready')
                time.sleep(1000)
            except KeyboardInterrupt:
                print('caught')
        """)
        self.assert_ends(self.interrupt(code), out="ready\ncaught\n")

    def test_interrupt_in_a_callback_that_drops_exceptions_is_not_lost(self):
        code = textwrap.dedent("""
            class Slow:
                def __del__(self):
                    print('ready')
                    while True: pass
            slow = Slow()
            del slow
            while True: pass
        """)
        result = self.interrupt(code)
        self.assertEqual((result.code, result.lost), (130, 0))
        self.assertTrue(result.err.endswith("KeyboardInterrupt\n"), result.err)
        self.assertNotIn("ignored", result.err)

    def test_interrupt_that_another_thread_takes_is_not_lost(self):
        code = textwrap.dedent("""
            import signal, threading, time
            threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            try:
                print('ready')
                time.sleep(1000)
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        """)
        self.assertEqual(self.interrupt(code).code, 130)
        self.run_python("signal.signal(signal.SIGURG, signal.SIG_IGN)")
        self.assertEqual(self.interrupt(code).code, 130)

    def test_nudges_are_not_noticed(self):
        code = textwrap.dedent("""
            import time
            try:
                print('ready')
                time.sleep(1000)
            except KeyboardInterrupt:
                began = time.monotonic()
                time.sleep(0.5)  # nudges come 50, 150 and 350 ms after the interrupt
                print(time.monotonic() - began >= 0.5)
        """)
        self.assert_ends(self.interrupt(code), out="ready\nTrue\n")

    def test_other_exceptions_in_such_a_callback_are_shown(self):
        code = "class C:\n  def __del__(self): 1 / 0\nc = C()\ndel c\nprint('on')"
        result = self.run_python(code)
        self.assertEqual((result.code, result.out), (0, "on\n"))
        self.assertIn("Exception ignored in: <function C.__del__", result.err)
        self.assertIn("ZeroDivisionError", result.err)

    def test_signal_handlers_of_previous_calls_have_no_effect(self):
        for code in ("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)",
                     "import signal; signal.signal(signal.SIGINT, lambda *a: None)",
                     "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])"):
            with self.subTest(code=code):
                self.assert_ends(self.run_python(code))
                self.assertEqual(self.interrupt("print('ready')\nwhile True: pass").code, 130)

    def test_interrupt_that_arrives_with_the_code_is_not_lost(self):
        other = self.connect()
        for language, code in ((PYTHON, "while True: pass"), (BASH, "sleep 1000")) * 5:
            self.client.start(code, language)
            while True:  # the agent may not have seen the EXEC yet, so repeat the interrupt
                other.interrupt()
                self.client.sock.settimeout(0.01)
                try:
                    ready = self.client.sock.recv(1, socket.MSG_PEEK)
                except TimeoutError:
                    continue
                self.assertTrue(ready)
                break
            self.client.sock.settimeout(harness.TIMEOUT)
            self.assertEqual(self.client.finish().code, 130)

    def test_interrupt_at_the_end_of_a_call_leaves_no_signal_blocked(self):
        """Raises KeyboardInterrupt where a late SIGINT does: when the driver has blocked signals."""
        late = textwrap.dedent("""
            import signal, sys
            def late(frame, event, function):
                if event == 'c_return' and function.__name__ == 'pthread_sigmask':
                    sys.setprofile(None)
                    raise KeyboardInterrupt
            sys.setprofile(late)
        """)
        mask = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
        before = self.run_python(mask).out
        self.assertEqual(self.run_python(late).code, 130)
        self.assert_ends(self.run_python(mask), out=before)

    def test_interrupt_between_calls_does_nothing(self):
        self.run_python("kept = 2")
        for _ in range(20):
            self.assertEqual(self.client.interrupt(), (DONE, b""))
            os.kill(self.agent.driver_pid(), signal.SIGINT)
            self.assert_ends(self.run_python("print(kept)"), out="2\n")

    def make_gate(self):
        """Returns the path of a pipe on which code waits."""
        gate = os.path.join(self.agent.home, "gate")
        os.mkfifo(gate)
        self.addCleanup(os.unlink, gate)
        return gate

    def test_interrupt_of_an_ended_call_leaves_the_next_one_alone(self):
        gate = self.make_gate()
        for code, language in ((f"print('ready')\nopen('{gate}').read()\nprint('on')", PYTHON),
                               (f"echo ready; cat {gate}; echo on", BASH)):
            self.client.run("", language, call=7)
            self.client.start(code, language, call=8)
            result = self.client.wait_for_output("ready\n")
            self.assertEqual(self.connect().interrupt(7), (DONE, b""))
            with open(gate, "w"):
                pass
            self.assert_ends(self.client.finish(result), out="ready\non\n")

    def test_interrupt_of_a_call_that_waits_takes_effect_when_it_begins(self):
        gate = self.make_gate()
        self.client.start(f"print('ready')\nopen('{gate}').read()\nprint('on')", call=8)
        result = self.client.wait_for_output("ready\n")
        other = self.connect()
        self.assertEqual(other.interrupt(9), (DONE, b""))
        other.start("while True: pass", call=9)
        with open(gate, "w"):
            pass
        self.assert_ends(self.client.finish(result), out="ready\non\n")
        self.assertEqual(other.finish().code, 130)
        self.assert_ends(self.run_python("print('later')"), out="later\n")

    def test_many_interrupts_at_any_time_never_kill_the_driver(self):
        other = self.connect()
        self.run_python("kept = 3")
        for i in range(100):
            self.client.start("for i in range(2000): pass\nprint(1)")
            for _ in range(i % 7):
                other.send(INTERRUPT, bytes(8))
            result = self.client.finish()
            self.assertIn((result.code, result.lost), ((0, 0), (130, 0)))
            for _ in range(i % 7):
                self.assertEqual(other.recv(), (DONE, b""))
        self.assert_ends(self.run_python("print(kept)"), out="3\n")


LIMIT_LINE = "ramet: stopped at the time limit of 0.050 s"
LIMIT_KILLED = ", and had to be killed: the Python state is lost\n"


class LimitsKept(AgentTest):
    """SIGINT ends the call. The grace period is long, so that a busy machine does not cause a kill."""

    options = ("--grace-ms", "20000")

    def test_python_keeps_its_state(self):
        result = self.run_python("kept = 1\nwhile True: pass", timeout_ms=50)
        self.assertEqual((result.code, result.lost), (124, 0))
        self.assertTrue(result.err.endswith("KeyboardInterrupt\n" + LIMIT_LINE + "\n"))
        self.assert_ends(self.run_python("print(kept)", timeout_ms=60_000), out="1\n")

    def test_bash(self):
        result = self.run_bash("exec sleep 1000", timeout_ms=50)
        self.assert_ends(result, 124, err=LIMIT_LINE + "\n")

    def test_processes_left_by_bash_are_killed(self):
        """A background process ignores SIGINT; with job control it has its own process group."""
        script = "(exec sleep 1000) & one=$!; set -m; (exec sleep 1000) & echo $one $!; wait"
        for limit in (200, 2000, 20000):  # a busy machine may need a longer limit
            result = self.run_bash(script, timeout_ms=limit)
            if result.out:
                break
        self.assertEqual(result.code, 124)
        for pid in map(int, result.out.split()):
            self.assert_goes(pid)

    def assert_goes(self, pid):
        try:
            life = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        self.addCleanup(os.close, life)
        self.assertTrue(select.select([life], [], [], harness.TIMEOUT)[0])

    def test_call_within_its_limit_ends_normally(self):
        self.assert_ends(self.run_bash("echo 1", timeout_ms=60_000), out="1\n")


class LimitsKilled(AgentTest):
    options = ("--grace-ms", "200")

    def test_python_that_ignores_the_interrupt_is_killed(self):
        code = "import time\nwhile True:\n  try: time.sleep(9)\n  except KeyboardInterrupt: pass"
        result = self.run_python(code, timeout_ms=50)
        self.assertEqual((result.code, result.lost), (124, 1))
        self.assertEqual(result.err, LIMIT_LINE + LIMIT_KILLED)
        self.assert_ends(self.run_python("print('fresh')"), out="fresh\n")

    def test_c_loop_that_checks_no_signals_is_killed(self):
        result = self.run_python("kept = 3\nsum(range(10**15))", timeout_ms=50, env=[("A", "b")])
        self.assertEqual((result.code, result.lost), (124, 1))
        self.assertEqual(result.err, LIMIT_LINE + LIMIT_KILLED)
        self.assert_ends(self.run_python("import os; print('kept' in globals(), 'A' in os.environ)"),
                         out="False False\n")

    def test_bash_that_ignores_the_interrupt_is_killed_and_python_survives(self):
        self.run_python("kept = 2")
        result = self.run_bash("trap : INT; while :; do :; done", timeout_ms=50)
        self.assert_ends(result, 124, err=LIMIT_LINE + "\n")
        self.assert_ends(self.run_python("print(kept)"), out="2\n")

    def test_stopped_interpreter_is_killed(self):
        result = self.run_python("import os, signal\n"
                                 "os.kill(os.getpid(), signal.SIGSTOP)", timeout_ms=1000)
        self.assertEqual((result.code, result.lost), (124, 1))


class Deaths(AgentTest):
    ENDS = (
        ("os._exit(0)", 0, "ended with exit code 0"),
        ("os._exit(3)", 3, "ended with exit code 3"),
        ("os.kill(os.getpid(), 9)", 137, "killed by signal 9 (Killed)"),
        ("os.kill(os.getpid(), 15)", 143, "killed by signal 15 (Terminated)"),
        ("import ctypes; ctypes.string_at(0)", 139, "killed by signal 11 (Segmentation fault)"),
        ("os.abort()", 134, "killed by signal 6 (Aborted)"),
        ("os.execvp('true', ['true'])", 0, "ended with exit code 0"),
        ("os.closerange(1000, 1003)", 1, "ended with exit code 1"),
        ("import threading; threading.Thread(target=os._exit, args=(5,)).start()\n"
         "while 1: pass", 5, "code 5"),
    )

    def test_death_is_reported_and_the_next_call_has_a_new_interpreter(self):
        for code, exit_code, words in self.ENDS:
            with self.subTest(code=code):
                self.run_python("kept = 1")
                result = self.run_python("import os\nprint('last')\n" + code)
                self.assertEqual((result.out, result.code, result.lost), ("last\n", exit_code, 1))
                self.assertRegex(result.err, r"ramet: the Python process .*; its state is lost\n\Z")
                self.assertIn(words, result.err)
                self.assert_ends(self.run_python("print('kept' in globals())"), out="False\n")

    def test_output_before_the_death_is_complete(self):
        result = self.run_python("import os\nprint('x' * 1_000_000)\nos.kill(os.getpid(), 9)")
        self.assertEqual((len(result.out), result.code), (1_000_001, 137))

    def test_death_between_calls_is_reported_by_the_next(self):
        self.run_python("kept = 1")
        before = len(self.agent.log)  # previous tests log such lines as well
        os.kill(self.agent.driver_pid(), signal.SIGKILL)
        self.agent.wait_until_logged("killed by signal 9", since=before)
        result = self.run_python("print('fresh')")
        self.assertEqual((result.out, result.code, result.lost), ("fresh\n", 0, 1))
        self.assertEqual(result.err, "ramet: the Python process was killed by signal 9 (Killed); "
                                     "its state is lost\n")
        self.assert_ends(self.run_python("print('on')"), out="on\n")

    def test_bash_does_not_outlive_the_driver_that_waits_for_it(self):
        self.client.start("trap 'echo ready >&2' INT; echo $$; while :; do :; done", BASH)
        result = self.client.wait_for_output("\n")
        # The interrupt succeeds, so the agent knows bash's process.
        self.assertEqual(self.connect().interrupt(), (DONE, b""))
        self.client.wait_for_output("ready\n", result)
        life = os.pidfd_open(int(result.out))
        self.addCleanup(os.close, life)
        os.kill(self.agent.driver_pid(), signal.SIGKILL)
        result = self.client.finish(result)
        self.assertEqual((result.code, result.lost), (137, 1))
        self.assertTrue(select.select([life], [], [], harness.TIMEOUT)[0])

    def test_queued_calls_run_in_the_new_interpreter(self):
        others = [self.connect() for _ in range(3)]
        self.client.start("print('ready')\nwhile True: pass")
        self.client.wait_for_output("ready\n")
        for i, other in enumerate(others):
            other.start(f"print({i})")
        os.kill(self.agent.driver_pid(), signal.SIGKILL)
        self.assertEqual(self.client.finish().code, 137)
        for i, other in enumerate(others):
            self.assert_ends(other.finish(), out=f"{i}\n")

    def test_agent_sleeps_while_a_tracer_holds_the_dead_interpreter(self):
        # The kernel notifies the tracer of the death first, and the agent once the tracer detaches.
        tracer = textwrap.dedent("""
            import ctypes, os, sys, time
            SEIZE = 0x4206
            libc = ctypes.CDLL(None)
            assert libc.ptrace(SEIZE, int(sys.argv[1]), None, None) == 0
            print("traces", flush=True)
            sys.stdin.read()
        """)
        tracer = subprocess.Popen(["python3", "-c", tracer, str(self.agent.driver_pid())],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(tracer.stdout.readline(), b"traces\n")
        self.client.start("import os; os._exit(3)")
        agent = f"/proc/{self.agent.process.pid}"
        driver = f"/proc/{self.agent.driver_pid()}"
        self.wait_for_state(driver, "Z")
        self.wait_for_state(agent, "S", times=100)  # a spinning agent would be seen asleep sometimes
        tracer.communicate()
        result = self.client.finish()
        self.assertEqual((result.code, result.lost), (3, 1))

    def wait_for_state(self, process, state, times=1):
        """Waits until the state was seen `times` times in a row."""
        seen = 0
        while seen < times:
            with open(f"{process}/stat") as stat:
                is_so = stat.read().rpartition(")")[2].split()[0] == state
            seen = seen + 1 if is_so else 0

    def test_driver_that_sends_invalid_data_is_replaced(self):
        for nonsense in (b"\xff" * 8, frame(PONG), frame(DONE, b"x" * 9) + frame(200), frame(EXEC)):
            result = self.run_python(f"import os\nos.write(1000, {nonsense!r})\nwhile True: pass")
            self.assertIn(result.code, (0, 137))
            self.client.run("1")  # receives the message that the state is lost, if there is one
            self.assert_ends(self.run_python("print('on')"), out="on\n")


class Memory(AgentTest):
    """The kernel's counter of processes that were killed for memory is a file of this test."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp(prefix="ramet-oom-")
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.counter = os.path.join(folder, "memory.events")
        cls.count(0)
        cls.options = ("--oom-counter", cls.counter)
        super().setUpClass()

    @classmethod
    def count(cls, kills):
        with open(cls.counter, "w") as file:
            file.write(f"low 0\noom {kills + 5}\noom_kill {kills}\noom_group_kill 9\n")

    def kill(self, kills):
        return (f"import os\nwith open({self.counter!r}, 'w') as f: f.write('oom_kill {kills}\\n')\n"
                "os.kill(os.getpid(), 9)")

    def test_a_call_that_is_killed_for_memory_says_so(self):
        self.count(1)
        result = self.run_python(self.kill(2))
        self.assertEqual((result.code, result.err), (137, (
            "ramet: the Python process was killed by signal 9 (Killed): out of memory; "
            "its state is lost\n")))
        result = self.run_python(self.kill(2))
        self.assertEqual((result.code, result.err), (137, (
            "ramet: the Python process was killed by signal 9 (Killed); its state is lost\n")))

    def test_a_program_that_is_killed_for_memory(self):
        self.count(1)
        code = f"echo oom_kill 2 >{self.counter}; exit %d"
        note = "ramet: out of memory: the kernel killed processes during this call\n"
        self.assert_ends(self.run_bash(code % 137), code=137, err=note)
        self.assert_ends(self.run_bash(code % 137), code=137)
        self.count(1)
        self.assert_ends(self.run_bash(code % 0))

    def test_death_between_calls(self):
        self.count(1)
        self.run_python("kept = 1")
        before = len(self.agent.log)
        self.count(2)
        os.kill(self.agent.driver_pid(), signal.SIGKILL)
        self.agent.wait_until_logged("killed by signal 9", since=before)
        self.assertIn("(Killed): out of memory; its state is lost", self.run_python("1").err)


class Volume(AgentTest):
    def digest(self, result, kind):
        return hashlib.sha256(result.joined(kind)).hexdigest()

    def test_100_mb_from_python(self):
        code = f"import os, sys, hashlib\nd = os.urandom(1000) * {BIG // 1000}\n" \
               "sys.stdout.buffer.write(d)\nprint(hashlib.sha256(d).hexdigest(), file=sys.stderr)"
        result = self.run_python(code)
        self.assertEqual((len(result.joined(STDOUT)), result.code), (BIG, 0))
        self.assertEqual(self.digest(result, STDOUT), result.err.strip())
        self.run_python("del d")

    def test_100_mb_on_both_streams_of_bash(self):
        zeros = f"head -c {BIG} /dev/zero"
        code = f"{zeros} | tr '\\0' 'o' & {zeros} | tr '\\0' 'e' >&2; wait"
        result = self.run_bash(code)
        self.assertEqual(result.code, 0)
        for kind, byte in ((STDOUT, b"o"), (STDERR, b"e")):
            self.assertEqual(self.digest(result, kind), hashlib.sha256(byte * BIG).hexdigest())

    def test_back_pressure_stops_the_writer_at_constant_memory(self):
        before = self.resident_kib()
        self.client.start("echo $$ >&2; exec cat /dev/zero", BASH)
        result = self.client.wait_for_output("\n")
        self.wait_until_it_writes_no_more(int(result.err))
        # All other connections are still served.
        self.assertEqual(self.connect().interrupt(), (DONE, b""))
        self.assertEqual(self.client.finish(result).code, 130)
        self.assertLess(len(result.joined(STDOUT)), 1 << 20)
        self.assertLess(self.resident_kib() - before, 4096)

    def wait_until_it_writes_no_more(self, pid):
        same, last = 0, None
        while same < 2000:
            with open(f"/proc/{pid}/io") as io:
                written = io.read()
            same = same + 1 if written == last else 0
            last = written

    def resident_kib(self):
        with open(f"/proc/{self.agent.process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

    def test_ten_megabytes_of_code_cost_the_agent_no_memory(self):
        before = self.resident_kib()
        self.assert_ends(self.run_python("#" + "x" * 10_000_000 + "\nprint(1)"), out="1\n")
        self.assertLess(self.resident_kib() - before, 4096)


class Connections(AgentTest):
    def test_ping(self):
        self.assertEqual(self.client.ask(PING), (PONG, VERSION))
        self.assertEqual(self.client.ask(PING), (PONG, VERSION))

    def test_ping_waits_for_the_running_call(self):
        self.client.start("print('ready')\nwhile True: pass")
        self.client.wait_for_output("ready\n")
        other = self.connect()
        other.send(PING)
        self.connect().interrupt()
        self.assertEqual(self.client.finish().code, 130)
        self.assertEqual(other.recv()[0], PONG)

    def test_calls_run_in_order_of_arrival(self):
        self.run_python("seen = []")
        self.client.start("print('ready')\nimport time\nwhile True: pass")
        self.client.wait_for_output("ready\n")
        others = [self.connect() for _ in range(20)]
        for i, other in enumerate(others):
            other.start(f"seen.append({i})")
            self.connect().interrupt() if i == 19 else None
        self.client.finish()
        for other in others:
            self.assert_ends(other.finish())
        self.assert_ends(self.run_python("print(seen == list(range(20)))"), out="True\n")

    def test_call_continues_when_its_client_disconnects(self):
        client = self.agent.client()
        client.start("import time\nprint('ready')\n"
                     "for i in range(100): print('x' * 10_000)\nkept = 'done'")
        client.wait_for_output("ready\n")
        client.close()
        # The next call is queued until the first one ends.
        self.assert_ends(self.run_python("print(kept)"), out="done\n")

    def test_client_may_disconnect_with_unread_output(self):
        client = self.agent.client()
        client.start("for i in range(1000): print('x' * 10_000)\nkept = 'all'")
        client.sock.recv(1)
        client.close()
        self.assert_ends(self.run_python("print(kept)"), out="all\n")

    def test_client_may_disconnect_after_its_code(self):
        client = self.agent.client()
        client.start("left = 'ran'")
        client.close()
        result = self.run_python("print(globals().get('left'))")
        self.assertIn(result.out, ("ran\n", "None\n"))  # it is dropped if it was still queued

    def test_client_may_disconnect_within_its_code(self):
        client = self.agent.client()
        client.send(EXEC, exec_payload(100))
        client.send(CODE, b"print('half')")
        client.close()
        self.assert_ends(self.run_python("print('on')"), out="on\n")

    def test_queued_call_of_a_disconnected_client_is_dropped(self):
        self.client.start("print('ready')\nwhile True: pass")
        self.client.wait_for_output("ready\n")
        for _ in range(10):
            client = self.agent.client()
            client.start("forgotten = 1")
            client.close()
        other = self.connect()
        other.interrupt()
        self.client.finish()
        self.assert_ends(self.run_python("print('forgotten' in globals())"), out="False\n")

    def test_interrupt_without_a_call(self):
        self.assertEqual(self.client.interrupt(), (DONE, b""))

    def test_connections_above_the_limit_are_refused(self):
        clients = [self.connect() for _ in range(540)]
        answers = 0
        for client in clients:
            try:
                answers += client.ask(PING)[0] == PONG
            except (EOFError, ConnectionError):
                pass
        self.assertEqual(answers, 511)  # 512 with the connection of setUp
        for client in clients:
            client.close()
        self.agent.wait_until_logged("connection refused: 512 connections are open")

    def test_frame_may_arrive_in_small_parts(self):
        data = frame(EXEC, exec_payload(8)) + frame(CODE, b"prin") + frame(CODE, b"t(1)")
        for at in range(len(data)):
            self.client.sock.sendall(data[at : at + 1])
        self.assert_ends(self.client.finish(), out="1\n")

    good = exec_payload(3)
    MALFORMED = (
        ("length over the limit", struct.pack("<IBBH", 65537, EXEC, 0, 0)),
        ("length of all ones", b"\xff" * 8),
        ("second byte not zero", struct.pack("<IBBH", 0, PING, 1, 0)),
        ("third field not zero", struct.pack("<IBBH", 0, PING, 0, 1)),
        ("ping with a payload", frame(PING, b"x")),
        ("interrupt with a short payload", frame(INTERRUPT, b"x")),
        ("code without exec", frame(CODE, b"x")),
        ("empty exec", frame(EXEC)),
        ("cut exec", frame(EXEC, good[:-1])),
        ("exec with more than its fields", frame(EXEC, good + b"\0")),
        ("unknown language", frame(EXEC, exec_payload(3, 2))),
        ("unknown flags", frame(EXEC, exec_payload(3, flags=4))),
        ("too much code", frame(EXEC, exec_payload((64 << 20) + 1))),
        ("cwd longer than the frame", frame(EXEC, struct.pack("<BBIIQI", 0, 0, 0, 0, 0, 1 << 31))),
        ("cwd over its limit", frame(EXEC, exec_payload(3, cwd="x" * 4097))),
        ("zero byte in cwd", frame(EXEC, exec_payload(3, cwd="a\0b"))),
        ("zero byte in a variable", frame(EXEC, exec_payload(3, env=[("A", "a\0b")]))),
        ("more variables than there are", frame(EXEC, good[:-4] + struct.pack("<I", 1 << 31))),
        ("code of no bytes", frame(EXEC, good) + frame(CODE)),
        ("more code than was said", frame(EXEC, good) + frame(CODE, b"1234")),
        ("another request instead of code", frame(EXEC, good) + frame(PING)),
        ("a request while the call runs",
         frame(EXEC, exec_payload(9, BASH)) + frame(CODE, b"sleep 0.1") + frame(PING)),
        ("empty reseed", frame(RESEED)),
        ("cut reseed", frame(RESEED, reseed_payload()[:-1])),
        ("host name over its limit", frame(RESEED, reseed_payload(hostname="x" * 65))),
        ("host name with a blank", frame(RESEED, reseed_payload(hostname="a b"))),
        ("host name with a zero byte", frame(RESEED, reseed_payload(hostname="a\0"))),
        ("cut attach", frame(ATTACH, b"\0" * 15)),
        ("long attach", frame(ATTACH, b"\0" * 17)),
        ("attach while the call runs",
         frame(EXEC, exec_payload(9, BASH)) + frame(CODE, b"sleep 0.1") + frame(ATTACH, b"\0" * 16)),
        ("time before 1970", frame(RESEED, reseed_payload(realtime_ns=-1))),
    )

    def test_unknown_request_is_refused(self):
        for kind in (0, 99, EXIT):
            with self.subTest(kind):
                client = self.connect()
                client.sock.sendall(frame(kind, b"x"))
                answer, payload = client.recv()
                self.assertEqual((answer, struct.unpack_from("<I", payload)[0]), (ERROR, errno.ENOSYS))
                self.assertIn(f"does not know requests of type {kind}", payload.decode(errors="replace"))
                self.assertRaises(EOFError, client.recv)

    def test_malformed_frames_end_only_their_connection(self):
        before = len(self.agent.log)  # its start logged "dry" lines as well
        for name, data in self.MALFORMED:
            with self.subTest(name):
                client = self.connect()
                client.sock.sendall(data)
                with self.assertRaises((EOFError, ConnectionError)):
                    while True:
                        client.recv()
        self.assert_ends(self.run_python("print('on')"), out="on\n")
        self.assertFalse([line for line in self.agent.log[before:] if "dry" in line])


KEPT = 1 << 20  # AGENT_OUTPUT_RING


class Attach(AgentTest):
    """Calls whose connection breaks, and hosts that attach to read the rest of the output."""

    # Writes to both streams in a known order, which the driver keeps.
    MIXED = "import sys\nfor i in range({n}):\n" \
            "  print('out', i)\n  print('err', i, file=sys.stderr)"

    @staticmethod
    def mixed(n):
        return "".join(f"1:out {i}\n2:err {i}\n" for i in range(n))

    def lose(self, client, result=None):
        """Breaks the connection; returns the number of bytes of output that were read from it."""
        client.close()
        return sum(len(data) for _, data in result.parts) if result else 0

    def attached(self, call, have):
        client = self.connect()
        client.attach(call, have)
        return client

    def assert_refused(self, call, have, errno_name):
        kind, payload = self.attached(call, have).recv()
        self.assertEqual(kind, ERROR)
        self.assertEqual(struct.unpack_from("<I", payload)[0], getattr(errno, errno_name), payload)

    def wait_until_blocked(self, pid):
        """Waits until a process sleeps in a write to its full pipe."""
        while True:
            with open(f"/proc/{pid}/syscall") as syscall:
                if syscall.read().split()[:2] == ["1", "0x1"]:
                    return

    def test_attach_continues_the_output(self):
        self.client.start("print('ready')\n" + self.MIXED.format(n=3000), call=7)
        seen = self.client.wait_for_output("out 100\n")
        have = self.lose(self.client, seen)
        seen = self.attached(7, have).finish(seen)
        self.assertEqual(seen.order, "1:ready\nout 0\n" + self.mixed(3000)[len("1:out 0\n"):])
        self.assertEqual((seen.code, seen.lost), (0, 0))

    def test_attach_from_any_byte_any_number_of_times(self):
        self.client.start("print('ready')\n" + self.MIXED.format(n=200) + "\nraise SystemExit(3)",
                          call=8)
        whole = self.client.finish()
        data = b"".join(part for _, part in whole.parts)
        streams = b"".join(bytes([kind]) * len(part) for kind, part in whole.parts)
        for have in (0, 1, 5, 6, 7, 100, len(data) - 1, len(data)):
            rest = self.attached(8, have).finish()
            self.assertEqual(b"".join(part for _, part in rest.parts), data[have:])
            self.assertEqual(b"".join(bytes([kind]) * len(part) for kind, part in rest.parts),
                             streams[have:])
            self.assertEqual((rest.code, rest.lost), (3, 0))

    def test_output_is_complete_over_many_broken_connections(self):
        self.client.start(self.MIXED.format(n=5000), call=9)
        client, seen, have = self.client, harness.Result(), 0
        for i in range(40):
            kind, payload = client.recv()
            if kind == EXIT:
                break
            seen.parts.append((kind, payload))
            have += len(payload)
            client.close()
            client = self.attached(9, have)
        seen = client.finish(seen)
        self.assertEqual(seen.order, self.mixed(5000))

    def test_output_that_was_sent_but_not_read_is_kept(self):
        self.client.start(self.MIXED.format(n=3000), call=10)
        self.client.recv()  # the rest remains in the socket
        self.lose(self.client)
        seen = self.attached(10, 0).finish()
        self.assertEqual(seen.order, self.mixed(3000))

    def test_attach_to_a_call_that_has_ended(self):
        self.client.start("import os\nprint('ready')\nprint('tail')\nos._exit(4)", call=11)
        seen = self.client.wait_for_output("ready\n")
        have = self.lose(self.client, seen)
        self.agent.wait_until_logged("ended with exit code 4")
        seen = self.attached(11, have).finish(seen)
        self.assertEqual((seen.out, seen.code, seen.lost), ("ready\ntail\n", 4, 1))
        self.assertIn("its state is lost", seen.err)
        # The line that the agent adds counts as output too.
        again = self.attached(11, 0).finish()
        self.assertEqual((again.out, again.err), (seen.out, seen.err))

    def test_back_pressure_without_a_client(self):
        code = "echo $$; exec head -c 10000000 /dev/zero"
        self.client.start(code, BASH, call=12)
        seen = self.client.wait_for_output("\n")
        pid = int(seen.out.split()[0])
        have = self.lose(self.client, seen)
        self.wait_until_blocked(pid)
        seen = self.attached(12, have).finish(seen)
        self.assertEqual((len(seen.joined(STDOUT)), seen.code), (10_000_000 + len(f"{pid}\n"), 0))

    def blocked_call(self, call, **options):
        """Starts a call that writes forever, disconnects, and waits until it is blocked."""
        self.client.start("echo $$; exec yes", BASH, call=call, **options)
        seen = self.client.wait_for_output("\n")
        self.lose(self.client)
        pid = int(seen.out.split()[0])
        self.wait_until_blocked(pid)
        return os.pidfd_open(pid), pid

    def test_queued_exec_drops_back_pressure(self):
        self.client.start("print('ready')\nfor i in range(20_000): print('x' * 99)\n"
                          "kept = 'all'", call=13)
        self.client.wait_for_output("ready\n")
        self.lose(self.client)
        self.assert_ends(self.connect().run("print(kept)", call=14), out="all\n")
        self.assert_refused(13, 0, "ENOENT")

    def test_queued_ping_drops_back_pressure(self):
        self.client.start("for i in range(20_000): print('%099d' % i)", call=15)
        self.client.recv()
        self.lose(self.client)
        self.assertEqual(self.connect().ask(PING)[0], PONG)
        self.assert_refused(15, 0, "ERANGE")
        rest = self.attached(15, 2_000_000 - KEPT).finish()
        whole = "".join(f"{i:099d}\n" for i in range(20_000))
        self.assertEqual((rest.out == whole[-KEPT:], rest.code), (True, 0))

    def test_interrupt_drops_back_pressure(self):
        life, _ = self.blocked_call(16)
        self.assertEqual(self.connect().interrupt(), (DONE, b""))
        self.assertTrue(select.select([life], [], [], harness.TIMEOUT)[0])
        os.close(life)
        self.assertEqual(self.connect().run("print(1)").out, "1\n")

    def test_time_limit_ends_a_blocked_call(self):
        life, _ = self.blocked_call(17, timeout_ms=2000)
        self.assertTrue(select.select([life], [], [], harness.TIMEOUT)[0])
        os.close(life)
        self.assertEqual(self.connect().run("print(1)").out, "1\n")

    def test_call_without_a_client_stays_blocked(self):
        life, pid = self.blocked_call(18)
        # A reseed does not drop the back-pressure.
        self.assertEqual(self.connect().ask(RESEED, reseed_payload()), (DONE, b""))
        self.wait_until_blocked(pid)
        rest = self.attached(18, 0).wait_for_output("y\n" * 400_000)
        self.assertTrue((f"{pid}\n" + "y\n" * 2_000_000).startswith(rest.out))
        signal.pidfd_send_signal(life, signal.SIGKILL)
        os.close(life)

    def test_invalid_attach_is_refused(self):
        for call, have, name in ((99, 0, "ENOENT"), (20, 7, "ERANGE"), (20, 1 << 63, "ERANGE")):
            self.client.run("print('12345')", call=20)
            self.assert_refused(call, have, name)

    def test_attach_without_any_call_is_refused(self):
        agent = Agent()
        self.addCleanup(agent.stop)
        client = agent.client()
        self.addCleanup(client.close)
        client.attach(0, 0)
        self.assertEqual(client.recv()[0], ERROR)
        client.attach(0, 0)  # the connection stays open
        self.assertEqual(client.recv()[0], ERROR)

    def test_attach_to_a_connected_call_is_refused(self):
        self.client.start("print('ready')\nwhile True: pass", call=21)
        self.client.wait_for_output("ready\n")
        self.assert_refused(21, 0, "EBUSY")
        self.connect().interrupt()
        self.assertEqual(self.client.finish().code, 130)

    def test_attach_to_a_call_with_incomplete_code_is_refused(self):
        self.client.send(EXEC, exec_payload(100, call=22))
        self.client.send(CODE, b"print('half')")
        self.lose(self.client)
        client = self.connect()
        while True:  # the agent learns from the driver that the call has ended
            client.attach(22, 0)
            kind, payload = client.recv()
            self.assertEqual((kind, struct.unpack_from("<I", payload)[0]), (ERROR, errno.ENOENT))
            if client.ask(PING)[0] == PONG:
                break
        self.assert_refused(22, 0, "ENOENT")

    def test_attach_to_a_queued_call_is_refused(self):
        self.client.start("print('ready')\nwhile True: pass", call=23)
        self.client.wait_for_output("ready\n")
        other = self.connect()
        other.start("print('other')", call=24)
        self.assert_refused(24, 0, "ENOENT")
        self.connect().interrupt()
        self.client.finish()
        self.assert_ends(other.finish(), out="other\n")
        self.assert_ends(self.attached(24, 0).finish(), out="other\n")

    def test_connection_can_be_used_after_attach(self):
        self.client.run("print('x')", call=25)
        client = self.attached(25, 0)
        self.assert_ends(client.finish(), out="x\n")
        self.assert_ends(client.run("print('y')", call=26), out="y\n")
        client.attach(26, 1)
        self.assert_ends(client.finish(), out="\n")

    def test_output_of_others_after_the_end_is_not_replayed(self):
        agent = Agent()  # a separate one: the background process writes into all later calls
        self.addCleanup(agent.stop)
        client = agent.client()
        self.addCleanup(client.close)
        client.start("(until [ -e go ]; do :; done; exec yes late) & echo $!", BASH, call=27)
        seen = client.finish()
        self.addCleanup(os.kill, int(seen.out), signal.SIGKILL)
        with open(os.path.join(agent.home, "go"), "wb"):
            pass
        for _ in range(20):
            client.attach(27, 0)
            self.assertEqual(client.finish().order, seen.order)


class Reseed(AgentTest):
    def test_reseed_performs_every_step(self):
        self.assertEqual(self.client.ask(RESEED, reseed_payload()), (DONE, b""))
        for line in ("add 64 bytes of entropy", "renew the boot id", "set the clock to 1000000000 ns",
                     "set the host name to sandbox-1"):
            self.agent.wait_until_logged("dry: " + line)

    def test_python_random_is_reseeded_on_request(self):
        draw = "import random\nrandom.seed(1)\nprint(random.random())"
        again = "print(random.random())"
        expected = self.run_python(draw + "\n" + again).out.splitlines()
        for user, same in ((0, True), (1, False)):
            self.run_python(draw)
            self.assertEqual(self.client.ask(RESEED, reseed_payload(user)), (DONE, b""))
            self.assertEqual(self.run_python(again).out.strip() == expected[1], same)

    def test_numpy_is_reseeded_if_imported(self):
        code = "import sys, types\nsys.modules['numpy.random'] = types.SimpleNamespace(seed=None)"
        self.run_python(code)
        self.client.ask(RESEED, reseed_payload(0))
        self.run_python("calls = []\nsys.modules['numpy.random'].seed = lambda: calls.append(1)")
        self.assertEqual(self.client.ask(RESEED, reseed_payload()), (DONE, b""))
        self.assert_ends(self.run_python("print(calls)\n"
                                         "del sys.modules['numpy.random']"), out="[1]\n")

    def test_openssl_is_seeded_in_any_case(self):
        self.run_python("import ssl, sys, types\nadded, real = [], sys.modules['_ssl']\n"
                        "def add(data, entropy):\n"
                        "  added.append((len(data), len(set(data)) > 8, entropy))\n"
                        "  real.RAND_add(data, entropy)\n"
                        "sys.modules['_ssl'] = types.SimpleNamespace(RAND_add=add)")
        for user in (0, 1):
            self.assertEqual(self.client.ask(RESEED, reseed_payload(user)), (DONE, b""))
            self.assert_ends(self.run_python("print(added); added.clear()"),
                             out="[(32, True, 32.0)]\n")
        self.run_python("sys.modules['_ssl'] = real")
        self.assertEqual(self.client.ask(RESEED, reseed_payload()), (DONE, b""))

    def test_user_module_with_the_name_of_a_generator_is_ignored(self):
        self.run_python("import random, sys, types\nkept = random\n"
                        "sys.modules['random'] = types.ModuleType('random')")
        self.assertEqual(self.client.ask(RESEED, reseed_payload()), (DONE, b""))
        self.run_python("sys.modules['random'] = kept")

    def test_failing_generator_is_named(self):
        self.run_python("import random\nkept = random.seed\n"
                        "def bad(): raise OSError('broken')\nrandom.seed = bad")
        kind, payload = self.client.ask(RESEED, reseed_payload())
        self.assertEqual((kind, payload[8:]), (ERROR, b"seed random: broken"))
        self.run_python("random.seed = kept")

    def test_reseed_during_a_call_happens_before_the_next_call(self):
        self.run_python("import random\nrandom.seed(1); random.random()\n"
                        "expected = random.random()")
        self.client.start("random.seed(1); random.random()\nprint('ready')\nwhile True: pass")
        self.client.wait_for_output("ready\n")
        other = self.connect()
        self.assertEqual(other.ask(RESEED, reseed_payload()), (DONE, b""))
        other.interrupt()
        self.client.finish()
        self.assert_ends(self.run_python("print(random.random() == expected)"), out="False\n")


class Lives(unittest.TestCase):
    """How an agent starts and stops. Each test has its own agent."""

    def agent(self, *options, **more):
        agent = Agent(*options, **more)
        self.addCleanup(agent.stop)
        return agent

    def test_driver_dies_with_the_agent(self):
        agent = self.agent()
        life = os.pidfd_open(agent.driver_pid())
        self.addCleanup(os.close, life)
        agent.process.kill()
        agent.process.wait()
        self.assertTrue(select.select([life], [], [], harness.TIMEOUT)[0])

    def test_missing_python_is_reported_and_retried(self):
        agent = self.agent(env={"PATH": "/nonexistent"})
        agent.wait_until_logged("ended with exit code 127")
        for _ in range(2):
            client = agent.client()
            self.addCleanup(client.close)
            kind, payload = client.ask(PING)
            self.assertEqual(kind, ERROR)
            self.assertIn(b"Python did not start: the Python process ended with exit code 127",
                          payload)
            with self.assertRaisesRegex(RuntimeError, "ended with exit code 127"):
                client.run("1")

    def test_bad_options_are_refused(self):
        for options in (["agent", "--nonsense"], [], ["agent", "--unix", "x" * 200]):
            done = subprocess.run([harness.BINARY, *options], stderr=subprocess.PIPE,
                                  timeout=harness.TIMEOUT)
            self.assertIn(done.returncode, (1, 2))
            self.assertTrue(done.stderr)


if __name__ == "__main__":
    unittest.main()
