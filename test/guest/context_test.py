# SPDX-License-Identifier: Apache-2.0
"""Contexts: interpreters beside the default one, served by the real agent."""

import errno
import os
import select
import shutil
import struct
import unittest

from harness import (BASH, CONTEXT, CONTEXT_END, CONTEXT_LIST, CONTEXT_RESTART, CONTEXT_START, DONE,
                     ERROR, EXEC, INTERRUPT, IN_CONTEXT, JAVASCRIPT, PREPARES, PYTHON, RESEED, RICH,
                     Agent, AgentTest, ContextClient, exec_payload, text)

LANGUAGES = (PYTHON, BASH) + ((JAVASCRIPT,) if shutil.which("node") else ())


def context_id(number):
    return "ctx_%032x" % number


class Contexts(AgentTest):
    number = 0

    def setUp(self):
        super().setUp()
        self.contexts = []

    def tearDown(self):
        for one in self.contexts:
            self.client.ask(CONTEXT_END, text(one))

    def begin(self, language, cwd="", env=()):
        """Starts a context; returns the answer and the id."""
        Contexts.number += 1
        one = context_id(Contexts.number)
        variables = b"".join(text(name) + text(value) for name, value in env)
        answer = self.client.ask(CONTEXT_START, text(one) + bytes([language]) + text(cwd) +
                                 struct.pack("<I", len(env)) + variables)
        self.contexts.append(one)
        return answer, one

    def connect_to(self, one):
        client = ContextClient(self.agent.path, one)
        self.addCleanup(client.close)
        return client

    def open(self, language, **options):
        answer, one = self.begin(language, **options)
        self.assertEqual(answer[0], DONE, answer[1])
        return self.connect_to(one)

    def interrupt(self, client, result):
        """Interrupts the call until it ends. An interrupt can be lost while bash starts a program, whose process
        handles signals as bash does at first, or while Node changes its handlers."""
        side = self.connect_to(client.context)
        while True:
            self.assertEqual(side.interrupt()[0], DONE)
            if select.select([client.sock], [], [], 5)[0]:
                return client.finish(result)

    def listed(self):
        self.client.send(CONTEXT_LIST)
        found = []
        while True:
            kind, payload = self.client.recv()
            if kind == DONE:
                return found
            self.assertEqual(kind, CONTEXT)
            size = struct.unpack_from("<I", payload)[0]
            language, busy, started = struct.unpack_from("<BBq", payload, 4 + size)
            cwd = payload[4 + size + 10 + 4:].decode()
            found.append((payload[4:4 + size].decode(), language, busy, cwd))

    def assert_error(self, answer, number):
        self.assertEqual(answer[0], ERROR)
        self.assertEqual(struct.unpack_from("<I", answer[1])[0], number, answer[1])


class ContextTest(Contexts):
    options = ("--grace-ms", "300")

    # ---- state

    def test_python_contexts_have_separate_state(self):
        a, b = self.open(PYTHON), self.open(PYTHON)
        self.assert_ends(a.run("x = 1"))
        self.assert_ends(b.run("x = 2"))
        self.run_python("x = 3")
        self.assert_ends(a.run("print(x)"), out="1\n")
        self.assert_ends(b.run("print(x)"), out="2\n")
        self.assert_ends(self.run_python("print(x)"), out="3\n")

    def test_bash_keeps_variables_folder_functions_and_arrays(self):
        bash = self.open(BASH)
        self.assert_ends(bash.run("x=5; f() { echo f $x; }; declare -A m=([a]=b); cd /tmp"))
        self.assert_ends(bash.run("f; echo ${m[a]}; pwd"), out="f 5\nb\n/tmp\n")

    def test_bash_exit_codes_and_errors(self):
        bash = self.open(BASH)
        self.assertEqual(bash.run("false").code, 1)
        self.assertEqual(bash.run("(exit 77)").code, 77)
        self.assertEqual(bash.run("return 9").code, 9)
        missing = bash.run("nosuchprogram")
        self.assertEqual(missing.code, 127)
        self.assertIn("line 1: nosuchprogram: command not found", missing.err)
        broken = bash.run("echo one\nif; then")
        self.assertEqual((broken.code, broken.out), (2, "one\n"))
        self.assertIn("line 2: syntax error", broken.err)
        self.assertNotIn("__ramet", broken.err)
        result = bash.run("break; echo here")
        self.assertEqual((result.out, result.code), ("here\n", 0))

    def test_bash_output_without_newline_and_large_output(self):
        bash = self.open(BASH)
        self.assert_ends(bash.run("printf a; printf b >&2; printf ''"), out="a", err="b")
        self.assertEqual(len(bash.run("head -c 3000000 /dev/zero | tr '\\0' x").out), 3000000)

    def test_bash_code_of_many_frames(self):
        bash = self.open(BASH)
        self.assert_ends(bash.run("x='" + "y" * 300000 + "'; echo ${#x}"), out="300000\n")
        self.assert_ends(bash.run(""))

    def test_bash_variables_and_folder_of_a_call(self):
        bash = self.open(BASH, env=[("HERE", "of the context")])
        bash.run("plain=1; export sent=2; cd /usr")
        env = [("plain", "it's"), ("sent", "a\nb"), ("fresh", "$x")]
        result = bash.run('echo "$HERE,$plain,$sent,$fresh"; pwd; printenv plain', env=env, cwd="/tmp")
        self.assert_ends(result, out="of the context,it's,a\nb,$x\n/tmp\nit's\n")
        result = bash.run('echo "$plain,$sent,${fresh-none}"; pwd; printenv plain || printenv sent')
        self.assert_ends(result, out="1,2,none\n/usr\n2\n")
        result = bash.run("echo no", cwd="/nosuch")
        self.assertEqual((result.code, result.out), (1, ""))
        self.assertIn("enter the folder /nosuch", result.err)
        result = bash.run("echo no", env=[("a-b", "c")])
        self.assertEqual((result.code, result.out), (1, ""))
        self.assertIn("set the variable a-b", result.err)

    def test_bash_variables_of_a_call_may_have_any_name(self):
        bash = self.open(BASH)
        names = ("a", "i", "code", "flags", "hex", "z")
        result = bash.run("echo $a$i$code$flags$hex$z; (exit 3)", env=[(name, "7") for name in names])
        self.assertEqual((result.out, result.code), ("777777\n", 3))
        self.assert_ends(bash.run("echo ${a-.}${i-.}${code-.}${flags-.}${hex-.}${z-.}"), out="......\n")

    def test_bash_relative_folder_of_a_call(self):
        bash = self.open(BASH, cwd="/usr")
        self.assert_ends(bash.run("OLDPWD=/tmp CDPATH=/var"))
        self.assertEqual(bash.run("pwd", cwd="-").code, 1)
        self.assert_ends(bash.run("pwd", cwd="lib"), out="/usr/lib\n")

    def test_bash_that_cannot_report_the_end_of_a_call_is_replaced(self):
        bash = self.open(BASH)
        for code in ("ulimit -Sn 20; (exit 7)", "unset -f __ramet_end; (exit 7)",
                     "for f in /proc/self/fd/*; do f=${f##*/}; ((f < 3)) || eval \"exec $f>&-\"; done; (exit 7)"):
            result = bash.run(code)
            self.assertEqual(result.lost, 1)
            self.assertIn("the bash process ended with exit code", result.err)
            self.assert_ends(bash.run("echo a"), out="a\n")

    def test_bash_interrupt_while_a_call_ends(self):
        bash = self.open(BASH)
        # The driver calls this function when the code has ended.
        result = bash.run("__ramet_leave() { kill -INT $$; :; }; echo a")
        self.assertEqual((result.out, result.code, result.lost), ("a\n", 130, 0))
        bash.run("__ramet_leave() { :; }")
        self.assert_ends(bash.run("f() { echo f; }; f"), out="f\n")

    def test_bash_options_stay_but_do_not_disturb_the_driver(self):
        bash = self.open(BASH)
        self.assert_ends(bash.run("set -u"))
        result = bash.run("set -x; echo a")
        self.assertNotIn("__ramet", result.err)
        result = bash.run("echo b; set +x")
        self.assertIn("echo b", result.err)
        self.assertNotIn("__ramet", result.err)
        self.assert_ends(bash.run("echo c; set -v"), out="c\n")
        self.assert_ends(bash.run("echo d"), out="d\n", err="echo d\n")

    def test_bash_programs_get_no_descriptors_of_the_driver(self):
        bash = self.open(BASH)
        bash.run("true")
        listed = bash.run("ls -l /proc/self/fd | tail -n +2 | wc -l; :")
        self.assertEqual(listed.out, "4\n")  # three streams, and the folder that ls reads

    def test_background_job_of_bash_goes_on(self):
        bash = self.open(BASH)
        self.assert_ends(bash.run("sleep 1000 & job=$!"))
        self.assert_ends(bash.run("kill -0 $job && kill $job; wait $job 2>/dev/null; echo $?"), out="143\n")

    # ---- end of an interpreter

    def test_exit_replaces_the_interpreter(self):
        for language, code in ((BASH, "x=1; exit 3"), (PYTHON, "import os; os._exit(3)"),
                               (JAVASCRIPT, "process.exit(3)")):
            if language not in LANGUAGES:
                continue
            client = self.open(language)
            result = client.run(code)
            self.assertEqual((result.code, result.lost), (3, 1), result.err)
            self.assertIn("process ended with exit code 3; its state is lost", result.err)
            self.assertEqual(client.run("").lost, 0)

    def test_loss_between_calls_is_reported(self):
        bash = self.open(BASH)
        pid = bash.run("echo $$").out.strip()
        self.run_bash(f"kill -9 {pid}; while [ -d /proc/{pid} ]; do :; done")
        result = bash.run("echo a")
        self.assertEqual((result.out, result.code, result.lost), ("a\n", 0, 1))
        self.assertIn("the bash process was killed by signal 9", result.err)

    # ---- interrupts and time limits

    def test_interrupt_of_an_ended_call_leaves_the_next_one_alone(self):
        gate = os.path.join(self.agent.home, "gate")
        os.mkfifo(gate)
        self.addCleanup(os.unlink, gate)
        bash = self.open(BASH)
        bash.run("", call=7)
        bash.start(f"echo ready; cat {gate}; echo on", call=8)
        result = bash.wait_for_output("ready\n")
        self.assertEqual(self.connect_to(bash.context).interrupt(7), (DONE, b""))
        with open(gate, "w"):
            pass
        self.assert_ends(bash.finish(result), out="ready\non\n")

    def test_interrupts(self):
        cases = {BASH: ("echo up; while :; do sleep 100; done; echo after", "x"),
                 PYTHON: ("import time\nprint('up')\ntime.sleep(100)", "KeyboardInterrupt"),
                 JAVASCRIPT: ("console.log('up'); while (true);", "interrupted")}
        for language in LANGUAGES:
            client = self.open(language)
            client.run("kept = 1" if language == PYTHON else "kept=1")
            client.start(cases[language][0])
            result = client.wait_for_output("up")
            result = self.interrupt(client, result)
            self.assertEqual((result.code, result.lost, result.out), (130, 0, "up\n"), result.err)
            code = {BASH: "echo $kept", PYTHON: "print(kept)", JAVASCRIPT: "console.log(kept)"}[language]
            self.assert_ends(client.run(code), out="1\n")

    def test_bash_interrupt_leaves_functions_and_pipelines(self):
        bash = self.open(BASH)
        bash.run("g() { h; echo no; }; h() { echo up; while :; do :; done; echo no; }")
        for code in ("g; echo no", "echo up; sleep 1000 | cat; echo no", "echo up; (while :; do :; done); echo no",
                     "echo up; read line < <(sleep 1000); echo no", "echo up; sleep 1000 & wait; echo no"):
            bash.start(code)
            result = bash.wait_for_output("up")
            result = self.interrupt(bash, result)
            self.assertEqual((result.out, result.code, result.lost), ("up\n", 130, 0), code)
        self.assert_ends(bash.run("echo still; f() { echo f; }; f"), out="still\nf\n")

    def test_time_limit_of_bash_keeps_its_state(self):
        bash = self.open(BASH)
        bash.run("x=1")
        result = bash.run("sleep 100", timeout_ms=200)
        self.assertEqual((result.code, result.lost), (124, 0))
        self.assertIn("stopped at the time limit of 0.200 s", result.err)
        # It ignores SIGINT: its processes are killed, and bash goes on.
        result = bash.run("bash -c 'trap : INT; while :; do sleep 100; done'", timeout_ms=200)
        self.assertEqual((result.code, result.lost), (124, 0), result.err)
        self.assert_ends(bash.run("echo $x"), out="1\n")

    def test_time_limit_kills_an_interpreter_that_ignores_it(self):
        for language, code in ((BASH, "trap '' INT; while :; do :; done"),
                               (PYTHON, "import signal\nsignal.signal(2, signal.SIG_IGN)\nwhile 1: pass")):
            client = self.open(language)
            result = client.run(code, timeout_ms=200)
            self.assertEqual((result.code, result.lost), (124, 1))
            self.assert_ends(client.run(""))

    # ---- side by side

    def test_contexts_and_the_default_run_side_by_side(self):
        clients = [self.open(language) for language in LANGUAGES]
        wait = {BASH: "echo up; read line < {0}; echo down", PYTHON: "print('up'); open('{0}').read(); print('down')",
                JAVASCRIPT: "console.log('up'); await require('fs').promises.readFile('{0}'); console.log('down')"}
        results, fifos = [], []
        for language, client in zip(LANGUAGES, clients):
            fifos.append(os.path.join(self.agent.home, f"fifo{language}"))
            os.mkfifo(fifos[-1])
            client.start(wait[language].format(fifos[-1]))
        for client in clients:
            results.append(client.wait_for_output("up"))
        self.assertEqual([one[2] for one in self.listed()], [1] * len(clients))
        self.assert_ends(self.run_python("print(1)"), out="1\n")
        for fifo in fifos:
            with open(fifo, "w") as end:
                end.write("line\n")
        for client, result in zip(clients, results):
            self.assert_ends(client.finish(result), out="up\ndown\n")
        self.assertEqual([one[2] for one in self.listed()], [0] * len(clients))

    def test_calls_of_one_context_run_in_order(self):
        bash = self.open(BASH)
        other = self.connect_to(bash.context)
        bash.start("echo up; sleep 0.3; x=done")
        bash.wait_for_output("up")
        other.start("echo $x")
        self.assert_ends(other.finish(), out="done\n")
        bash.finish()

    # ---- attach

    def test_call_continues_without_its_client(self):
        for language, code in ((BASH, "echo up; sleep 0.2; echo down"),
                               (PYTHON, "import time\nprint('up')\ntime.sleep(.2)\nprint('down')")):
            client = self.open(language)
            client.start(code, call=77)
            client.wait_for_output("up")
            client.close()
            again = self.connect_to(client.context)
            again.attach(77, 3)
            self.assert_ends(again.finish(), out="down\n")
            again.attach(78, 0)
            self.assert_error(again.recv(), errno.ENOENT)
            self.client.attach(77, 0)  # not a call of the default interpreter
            self.assert_error(self.client.recv(), errno.ENOENT)

    # ---- requests

    def test_restart(self):
        for language in LANGUAGES:
            client = self.open(language)
            client.run("x = 1" if language == PYTHON else "x=1")
            self.assertEqual(self.client.ask(CONTEXT_RESTART, text(client.context))[0], DONE)
            code = {BASH: "echo ${x-none}", PYTHON: "print(globals().get('x', 'none'))",
                    JAVASCRIPT: "console.log(globalThis.x ?? 'none')"}[language]
            self.assert_ends(client.run(code), out="none\n")

    def test_restart_ends_the_running_call_and_runs_the_next(self):
        bash = self.open(BASH, cwd="/tmp")
        bash.start("echo up; sleep 1000")
        result = bash.wait_for_output("up")
        other = self.connect_to(bash.context)
        other.start("pwd")
        self.assertEqual(self.client.ask(CONTEXT_RESTART, text(bash.context))[0], DONE)
        result = bash.finish(result)
        self.assertEqual((result.code, result.lost), (137, 1))
        self.assert_ends(other.finish(), out="/tmp\n")

    def test_end_kills_all_processes_and_refuses_calls(self):
        bash = self.open(BASH)
        pid = bash.run("sleep 1000 & echo $!").out.strip()
        bash.start("echo up; sleep 1000")
        result = bash.wait_for_output("up")
        queued = self.connect_to(bash.context)
        queued.start("echo no")
        self.assertEqual(self.client.ask(CONTEXT_END, text(bash.context))[0], DONE)
        self.assertEqual(bash.finish(result).code, 137)
        self.assertRaises(RuntimeError, queued.finish)
        self.run_bash(f"while [ -d /proc/{pid} ] && ! grep -q Z /proc/{pid}/stat; do sleep 0.01; done")
        self.assertEqual(self.listed(), [])
        self.assert_error(self.client.ask(CONTEXT_END, text(bash.context)), errno.ENOENT)
        late = self.connect_to(bash.context)
        late.send(EXEC, exec_payload(0))
        self.assert_error(late.recv(), errno.ENOENT)
        self.assertFalse(os.path.exists(os.path.join(self.agent.home, "run", bash.context)))

    def test_list(self):
        a = self.open(BASH, cwd="/tmp")
        b = self.open(PYTHON)
        self.assertEqual(self.listed(), [(a.context, BASH, 0, "/tmp"), (b.context, PYTHON, 0, "")])

    def test_start_errors(self):
        self.assert_error(self.begin(BASH, cwd="/nosuch")[0], errno.ENOTDIR)
        self.assert_error(self.begin(BASH, env=[("a=b", "c")])[0], errno.EINVAL)
        self.assert_error(self.begin(BASH, env=[("", "c")])[0], errno.EINVAL)
        one = self.open(BASH)
        answer = self.client.ask(CONTEXT_START, text(one.context) + bytes([BASH]) + text("") + bytes(4))
        self.assert_error(answer, errno.EEXIST)
        self.assertEqual(len(self.listed()), 1)

    def test_limit_of_contexts(self):
        for _ in range(16):
            self.open(BASH)
        self.assert_error(self.begin(BASH)[0], errno.EAGAIN)
        self.client.ask(CONTEXT_END, text(self.contexts[0]))
        self.open(BASH)  # although the process of the ended one may not be gone

    def test_malformed_requests_close_the_connection(self):
        one = self.open(BASH).context
        for kind, payload in ((CONTEXT_START, text("short") + bytes(9)), (CONTEXT_LIST, b"x"),
                              (CONTEXT_END, text(one) + b"x"), (CONTEXT_START, text(one) + b"\3" + bytes(8)),
                              (IN_CONTEXT, text(one) + b"\5"), (IN_CONTEXT, text(one) + bytes([INTERRUPT]) + b"x"),
                              (IN_CONTEXT, text(one) + bytes([EXEC]) + b"x"), (IN_CONTEXT, text(one))):
            client = self.connect()
            client.send(kind, payload)
            self.assertRaises(EOFError, client.recv)

    def test_client_that_leaves_before_all_of_its_code(self):
        for language in LANGUAGES:
            context = self.open(language)
            partial = self.connect_to(context.context)
            partial.send(EXEC, exec_payload(100))
            self.assertEqual(partial.recv()[0], DONE)
            partial.close()
            self.assert_ends(context.run(""))

    def test_reseed_reaches_contexts(self):
        bash = self.open(BASH)
        python = self.open(PYTHON)
        python.run("import random")
        seen = set()
        for _ in range(3):
            bash.run("RANDOM=1")
            python.run("random.seed(1)")
            request = bytes(64) + struct.pack("<qB", 10**18, 1) + text("")
            self.assertEqual(self.client.ask(RESEED, request)[0], DONE)
            seen.add((bash.run("echo $RANDOM $RANDOM").out, python.run("print(random.random())").out))
        self.assertEqual(len(seen), 3, seen)

    # ---- JavaScript

    @unittest.skipUnless(JAVASCRIPT in LANGUAGES, "node is not installed")
    def test_javascript(self):
        js = self.open(JAVASCRIPT)
        self.assert_ends(js.run("const a = 1; let b = 2; function f() { return a + b } class C {}"))
        self.assert_ends(js.run("console.log(f(), typeof C)"), out="3 function\n")
        self.assert_ends(js.run("const c = await Promise.resolve(5); console.log(c)"), out="5\n")
        self.assert_ends(js.run("console.log(c); console.error('e'); process.stdout.write('x')"), out="5\nx", err="e\n")
        result = js.run("function bad() { throw new Error('oops') }\nbad()")
        self.assertEqual(result.code, 1)
        self.assertIn("Error: oops\n    at bad (<call ", result.err)
        self.assertNotIn("driver.js", result.err)
        result = js.run("let = ;")
        self.assertEqual((result.code, "SyntaxError" in result.err), (1, True))
        result = js.run("if (true) {")
        self.assertEqual((result.code, "SyntaxError" in result.err), (1, True))
        self.assertEqual(js.run("throw 5").err, "Uncaught 5\n")
        result = js.run("console.log(process.cwd(), process.env.V)", cwd="/tmp", env=[("V", "w")])
        self.assert_ends(result, out="/tmp w\n")
        self.assert_ends(js.run("console.log(process.env.V)"), out="undefined\n")
        result = js.run("1", cwd="/nosuch")
        self.assertEqual(result.code, 1)
        self.assertEqual(len(js.run("process.stdout.write('x'.repeat(3000000))").out), 3000000)

    @unittest.skipUnless(JAVASCRIPT in LANGUAGES, "node is not installed")
    def test_javascript_timers_run_between_calls_and_errors_do_not_end_it(self):
        js = self.open(JAVASCRIPT)
        # It may throw while the call ends.
        self.assertEqual(js.run("let n = 0; setTimeout(() => { n = 1; throw new Error('late') }, 1)").code, 0)
        result = js.run("while (!n) await new Promise((r) => setTimeout(r, 5)); console.log(n)")
        self.assertEqual((result.out, result.code, result.lost), ("1\n", 0, 0))
        js.run("Promise.reject(new Error('nobody')); undefined")
        result = js.run("await new Promise((r) => setTimeout(r, 5)); console.log(n)")
        self.assertEqual((result.out, result.code, result.lost), ("1\n", 0, 0))

    @unittest.skipUnless(JAVASCRIPT in LANGUAGES, "node is not installed")
    def test_javascript_errors_that_cannot_be_shown_end_the_call(self):
        js = self.open(JAVASCRIPT)
        for error in ("{get stack() { throw 1 }}", "new Proxy({}, {get() { throw 2 }})",
                      "{[require('util').inspect.custom]() { throw 3 }}"):
            result = js.run("throw " + error, timeout_ms=30000)
            self.assertEqual((result.code, result.lost, result.err), (1, 0, "Uncaught an error that cannot be shown\n"))
            result = js.run(f"setTimeout(() => {{ throw {error} }}, 1); await new Promise((r) => setTimeout(r, 20))")
            self.assertEqual((result.code, result.lost), (0, 0))

    @unittest.skipUnless(JAVASCRIPT in LANGUAGES, "node is not installed")
    def test_javascript_programs_get_no_descriptors_of_the_driver(self):
        js = self.open(JAVASCRIPT)
        code = "require('child_process').spawnSync('ls', ['/proc/self/fd'], {stdio: 'inherit'}); undefined"
        self.assert_ends(js.run(code), out="0\n1\n2\n3\n")  # ls reads a folder

    @unittest.skipUnless(JAVASCRIPT in LANGUAGES, "node is not installed")
    def test_javascript_import_and_a_folder_that_was_removed(self):
        js = self.open(JAVASCRIPT)
        self.assert_ends(js.run("console.log(typeof (await import('fs')).readFileSync)"), out="function\n")
        gone = os.path.join(self.agent.home, "gone")
        self.assert_ends(js.run(f"const fs = require('fs'); fs.mkdirSync('{gone}'); process.chdir('{gone}'); "
                                f"fs.rmdirSync('{gone}')"))
        self.assert_ends(js.run("console.log(process.cwd())", cwd="/tmp"), out="/tmp\n")

    @unittest.skipUnless(JAVASCRIPT in LANGUAGES, "node is not installed")
    def test_javascript_interrupt_ends_an_await(self):
        js = self.open(JAVASCRIPT)
        js.start("console.log('up'); await new Promise(() => {})")
        result = js.wait_for_output("up")
        self.assertEqual(self.interrupt(js, result).code, 130)
        self.assert_ends(js.run("console.log(2)"), out="2\n")

    @unittest.skipUnless(JAVASCRIPT in LANGUAGES, "node is not installed")
    def test_javascript_interrupt_at_the_start_ends_one_call(self):
        js = self.open(JAVASCRIPT)
        side = self.connect_to(js.context)
        for _ in range(50):
            js.start("await new Promise(() => {})")
            self.assertEqual(side.interrupt()[0], DONE)
            self.assert_ends(js.finish(), err="interrupted\n", code=130)
            self.assert_ends(js.run("console.log(2)"), out="2\n")


class LongGraceTest(Contexts):
    """The grace period is long enough for a busy machine to end a call before it is killed."""

    options = ("--grace-ms", "20000")

    @unittest.skipUnless(JAVASCRIPT in LANGUAGES, "node is not installed")
    def test_javascript_output_after_an_interrupt_within_a_write(self):
        js = self.open(JAVASCRIPT)
        for _ in range(5):
            result = js.run("while (true) { console.log('a'.repeat(100)); console.error('b') }", timeout_ms=150)
            self.assertEqual((result.code, result.lost), (124, 0))
            self.assert_ends(js.run("console.log('c'); console.error('d')"), out="c\n", err="d\n")
        code = ("process.stdout.write(new Uint8Array([101, 10])); process.stdout.write('66', 'hex', () => {}); "
                "await new Promise((r) => process.stdout.write('g', r)); "
                "await require('stream/promises').pipeline(['h'], process.stdout, {end: false})")
        self.assert_ends(js.run(code), out="e\nfgh")


class PreloadTest(Contexts):
    """What a template's warm-up imports, in interpreters that start after it."""

    WARM_UP = """from __future__ import annotations
import colorsys, xml.dom as dom
import xml.sax
from json import dumps, loads as load
from math import *
import wave, gone
def f():
    import sched
f()
number = 5
"""
    LOADED = "import sys\nprint([m for m in ('colorsys', 'xml.sax', 'wave') if m in sys.modules])"

    def setUp(self):
        self.agent = Agent()
        self.addCleanup(self.agent.stop)
        super().setUp()
        gone = os.path.join(self.agent.home, "gone.py")
        with open(gone, "w"):
            pass
        self.assert_ends(self.run_python(self.WARM_UP, flags=PREPARES))
        self.assert_ends(self.run_python("1", flags=PREPARES))
        os.unlink(gone)

    def assert_preloaded(self, client):
        self.assert_ends(client.run(self.LOADED), out="[]\n")
        self.assert_ends(client.run("print(colorsys.__name__, dom.__name__)"),
                         out="colorsys xml.dom\n")
        self.assert_ends(client.run(self.LOADED), out="['colorsys']\n")
        self.assert_ends(client.run("def f(): return dumps(load('[1]')), xml.sax.__name__"))
        self.assert_ends(client.run("f()", flags=RICH).bundles and client.run("print(f())"),
                         out="('[1]', 'xml.sax')\n")

    def test_contexts_import_what_their_code_names(self):
        self.assert_preloaded(self.open(PYTHON))
        self.assert_preloaded(self.open(PYTHON))

    def test_interpreters_import_it_after_a_restart(self):
        client = self.open(PYTHON)
        self.assert_preloaded(client)
        self.assertEqual(self.client.ask(CONTEXT_RESTART, text(client.context))[0], DONE)
        self.assert_preloaded(client)
        self.assertEqual(self.run_python("import os; os._exit(0)").lost, 1)
        self.assert_preloaded(self.client)

    def test_results_of_the_first_call_may_need_it(self):
        client = self.open(PYTHON)
        self.assertEqual(client.run("dumps('a')", flags=RICH).bundles[0][1]["text/plain"], "'\"a\"'")

    def test_variables_of_the_code_are_kept(self):
        client = self.open(PYTHON)
        self.assert_ends(client.run("wave = 1"))
        self.assert_ends(client.run("print(wave)"), out="1\n")
        self.assert_ends(client.run("del wave"))
        self.assertIn("NameError: name 'wave'", client.run("wave").err)

    def test_everything_else_of_the_warm_up_is_not_there(self):
        client = self.open(PYTHON)
        for name in ("number", "f", "sched", "sin", "annotations", "gone"):
            self.assertIn(f"NameError: name '{name}'", client.run(name).err)
        self.assert_ends(client.run("print(colorsys.__name__)"), out="colorsys\n")


class NoNodeTest(AgentTest):
    def test_missing_program_is_reported(self):
        import harness

        empty = harness.tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, empty)
        for name in ("bash", "python3"):
            os.symlink(shutil.which(name), os.path.join(empty, name))
        agent = harness.Agent(env={"PATH": empty})
        self.addCleanup(agent.stop)
        agent.wait_until_logged("agent ready")
        client = agent.client()
        self.addCleanup(client.close)
        answer = client.ask(CONTEXT_START, text(context_id(1)) + bytes([JAVASCRIPT]) + text("") + bytes(4))
        self.assertEqual(answer[0], ERROR)
        self.assertEqual(struct.unpack_from("<I", answer[1])[0], errno.ENOPKG)
        self.assertIn(b"JavaScript is not installed in this sandbox: there is no program node", answer[1])


if __name__ == "__main__":
    unittest.main()
