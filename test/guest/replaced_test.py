# SPDX-License-Identifier: Apache-2.0
"""An agent that was killed, and the one that init starts in its place: no loss of state is hidden."""

import os
import unittest

from harness import (BASH, CONTEXT_END, DONE, ERROR, PROC_STAT, PYTHON, text)
from context_test import LANGUAGES, Contexts

NAMES = {PYTHON: "Python", BASH: "bash"}
DIED = "the sandbox's agent was killed by signal 9 (Killed)"


def loss(language=PYTHON):
    name = NAMES.get(language, "JavaScript")
    return f"ramet: {DIED}, and the {name} process with it; its state is lost\n"


class Replaced(Contexts):
    """The connections end with the agent; hosts make new ones."""

    def replace(self):
        self.agent.replace()
        self.client = self.connect()

    def test_the_next_call_reports_the_loss_once(self):
        self.run_python("x = 1")
        self.replace()
        result = self.run_python("print('x' in globals())")
        self.assertEqual((result.out, result.err, result.code, result.lost), ("False\n", loss(), 0, 1))
        self.assert_ends(self.run_python("x = 2"))
        self.replace()
        self.assertEqual(self.run_bash("echo on").err, loss())

    def test_contexts_are_started_again_where_they_were(self):
        for language in LANGUAGES:
            self.open(language, cwd="/tmp", env=[("MINE", "a\nb")])
        before = self.listed()
        self.replace()
        self.assertEqual(self.listed(), before)
        for one, language in zip(list(self.contexts), LANGUAGES):
            context = self.connect_to(one)
            code = {PYTHON: "import os; print(os.getcwd(), os.environ['MINE'])",
                    BASH: 'echo "$PWD $MINE"'}.get(language, "console.log(process.cwd(), process.env.MINE)")
            result = context.run(code)
            self.assertEqual((result.out, result.err, result.lost), ("/tmp a\nb\n", loss(language), 1))
            self.assert_ends(context.run(code), out="/tmp a\nb\n")
        self.replace()
        self.assertEqual(self.listed(), before)

    def test_deleted_contexts_are_not_started_again(self):
        self.open(BASH)
        self.assertEqual(self.client.ask(CONTEXT_END, text(self.contexts[0])), (DONE, b""))
        self.replace()
        self.assertEqual(self.listed(), [])

    def test_files_that_are_no_contexts_are_ignored(self):
        self.open(BASH)
        run = os.path.join(self.agent.home, "run")
        path = os.path.join(run, self.contexts[0] + ".context")
        with open(path, "rb") as file:
            whole = file.read()
        for at, content in enumerate((b"", b"short", whole[:-1], whole + b"x", bytes(80_000), whole)):
            with open(os.path.join(run, f"odd{at}.context"), "wb") as file:
                file.write(content)
        os.symlink("/dev/zero", os.path.join(run, "link.context"))
        os.mkfifo(os.path.join(run, "fifo.context"))
        self.replace()
        self.assertEqual(len(self.listed()), 1)
        self.assertEqual(self.connect_to(self.contexts[0]).run("echo on").out, "on\n")
        for name in os.listdir(run):
            if name.startswith(("odd", "link", "fifo")):
                os.unlink(os.path.join(run, name))

    def test_a_running_call_ends_with_the_reason(self):
        context = self.open(BASH)
        for client in (self.client, context):
            client.start("import time; print('ready', flush=True); time.sleep(1000)"
                         if client is self.client else "echo ready; sleep 1000", call=7)
            client.wait_for_output("ready\n")
        self.replace()
        again = self.connect_to(context.context)
        for client, err in ((self.client, loss()), (again, loss(BASH))):
            client.attach(7, len("ready\n"))
            result = client.finish()
            self.assertEqual((result.out, result.err, result.code, result.lost), ("", err, 137, 1))
        # The host may lose this connection too.
        last = self.connect()
        last.attach(7, len("ready\n"))
        self.assertEqual(last.finish().err, loss())
        self.assert_ends(self.run_python("print('on')"), out="on\n")
        last.attach(7, 0)
        self.assertRaisesRegex(RuntimeError, "not the last one", last.finish)

    def test_processes_are_gone_with_the_reason(self):
        self.replace()
        for prefix, what in (("prc_", "process"), ("pty_", "terminal")):
            answer, payload = self.client.ask(PROC_STAT, text(prefix + "0" * 32))
            self.assertEqual((answer, payload[8:].decode()),
                             (ERROR, f"there is no such {what}: {DIED}, and all processes with it"))


if __name__ == "__main__":
    unittest.main()
