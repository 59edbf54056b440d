# SPDX-License-Identifier: Apache-2.0
"""Tests the errors of `rametctl` while no service runs. The argument is the path of rametctl."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

RAMET = sys.argv.pop(1)


class NoService(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.socket = Path(folder.name) / "admin.sock"

    def rametctl(self, command: str) -> "subprocess.CompletedProcess[str]":
        words = [RAMET, f"--run_dir={self.socket.parent}", command]
        return subprocess.run(words, capture_output=True, text=True, timeout=60)

    def assert_says_so(self) -> None:
        for command in "ls", "checks", "no-such-command":
            done = self.rametctl(command)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(f"no service answers at {self.socket}: start rametd", done.stderr)

    def test_service_that_never_ran(self) -> None:
        self.assert_says_so()

    def test_service_that_was_killed(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as service:
            service.bind(str(self.socket))
        self.assert_says_so()

    def test_help_mentions_further_commands(self) -> None:
        done = self.rametctl("help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("key create", done.stdout)
        self.assertIn("lists them while it runs", done.stdout)


if __name__ == "__main__":
    unittest.main()
