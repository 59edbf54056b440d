# SPDX-License-Identifier: Apache-2.0
"""Tests the errors of `rametctl` while no service runs. The argument is the path of rametctl."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

RAMET = sys.argv.pop(1)


class NoService(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.socket = Path(folder.name) / "admin.sock"

    def rametctl(self, *command: str) -> "subprocess.CompletedProcess[str]":
        words = [RAMET, f"--run_dir={self.socket.parent}", *command]
        return subprocess.run(words, capture_output=True, text=True)

    def assert_says_so(self) -> None:
        for command in "ls", "checks":
            done = self.rametctl(command)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(f"no service answers at {self.socket}: start rametd", done.stderr)

    def test_service_that_never_ran(self) -> None:
        self.assert_says_so()

    def test_service_that_was_killed(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as service:
            service.bind(str(self.socket))
        self.assert_says_so()

    @unittest.skipIf(os.geteuid() != 0, "only root can become another account")
    def test_account_that_may_not_send_commands_is_told_who_may(self) -> None:
        folder = self.socket.parent
        program = shutil.copy(RAMET, folder)  # its own folder may be private
        folder.chmod(0o755)
        private = folder / "run"
        private.mkdir(mode=0o700)
        words = [program, f"--run_dir={private}", "ls"]
        done = subprocess.run(words, capture_output=True, text=True, user=64124, group=64124)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn(f"only root may send commands to the service ({private}/admin.sock)", done.stderr)

    def test_wait_for_a_service_that_does_not_start_is_explained(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as service:
            service.bind(str(self.socket))
            service.listen()
            words = [RAMET, f"--run_dir={self.socket.parent}", "ls"]
            with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as done:
                assert done.stderr
                self.assertIn("`journalctl -u ramet -u ramet-vms` says why", done.stderr.readline())
                with service.accept()[0] as client, client.makefile("rb") as request:
                    request.read()
                    client.sendall(b"\0")
            self.assertEqual(done.returncode, 0)

    def test_service_that_does_not_answer_is_an_error(self) -> None:
        for command in ["ls"], ["audit"], ["top", "--once"]:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as service:
                service.bind(str(self.socket))
                service.listen()
                words = [RAMET, f"--run_dir={self.socket.parent}", *command]
                with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as done:
                    request = b""
                    while not request:  # the first connection of `audit` only looks for a service
                        with service.accept()[0] as client, client.makefile("rb") as sent:
                            request = sent.read()
                    out, errors = done.communicate()
            self.assertEqual((done.returncode, out), (1, ""), command)
            self.assertIn("closed the connection before its answer was complete", errors)
            self.socket.unlink()

    def test_audit_asks_for_the_next_part_until_there_is_none(self) -> None:
        asked = []

        def serve() -> None:
            for answer in (b"", b'{"n":8}\n{"n":9,"id"}\n', b'{"n":11,"id"}\n', b""):
                with service.accept()[0] as client, client.makefile("rb") as request:
                    asked.append(request.read())
                    if asked[-1]:  # the first connection only looks whether there is a service
                        client.sendall(b"\0" + answer)

        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as service:
            service.bind(str(self.socket))
            service.listen()
            thread = threading.Thread(target=serve, daemon=True)
            thread.start()
            done = self.rametctl("audit", "--since", "7")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            thread.join()
        self.assertEqual(done.stdout.split(), ['{"n":8}', '{"n":9,"id"}', '{"n":11,"id"}'])
        self.assertEqual(asked, [b"", *(b"audit\0--since=%d\0" % n for n in (7, 9, 11))])

    def test_bad_number_of_an_event_is_refused(self) -> None:
        for words in (["--since", "x"], ["--since=-1"], ["--since"], ["more"]):
            done = self.rametctl("audit", *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn("usage: rametctl audit [--since N] [--follow]", done.stderr)

    def test_unknown_command_is_named(self) -> None:
        done = self.rametctl("no-such-command", "x")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(
            done.stderr, 'rametctl: there is no command "no-such-command": `rametctl help` lists them\n'
        )

    def test_help_needs_neither_service_nor_valid_settings(self) -> None:
        config = self.socket.parent / "ramet.conf"
        config.write_text("no such setting\n")
        for words in (["help"], ["--help"], ["-h"], []):
            done = self.rametctl(f"--config={config}", *words)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            for command in "key create", "audit", "ls", "inspect ID", "fleet init", "host list":
                self.assertIn(f"\n  {command} ", done.stdout.replace("\n        ", " \n"))

    def test_each_command_explains_itself(self) -> None:
        named = [line.split() for line in self.rametctl("help").stdout.splitlines() if line[:3].strip()]
        commands = {" ".join(words[: 1 + (words[0] == "key")]) for words in named[1:]}
        self.assertIn("key rotate", commands)
        self.assertIn("restore", commands)
        for command in sorted(commands):
            for words in ([*command.split(), "--help"], ["help", *command.split()]):
                done = self.rametctl(*words)
                self.assertEqual((done.returncode, done.stderr), (0, ""), words)
                self.assertTrue(done.stdout.startswith(f"usage: rametctl {command}"), done.stdout)
        for command in ("host drain", "fleet join", "key"):
            self.assertIn(f"usage: rametctl {command.split()[0]} ", self.rametctl(*command.split(), "-h").stdout)
        done = self.rametctl("help", "no-such-command")
        self.assertEqual(done.returncode, 2)
        self.assertIn('there is no command "no-such-command"', done.stdout)

    def test_version(self) -> None:
        done = self.rametctl("--version")
        self.assertRegex(done.stdout, r"^rametctl \d+\.\d+\.\d+")
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
