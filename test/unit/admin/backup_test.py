# SPDX-License-Identifier: Apache-2.0
"""Tests what `rametctl backup` does with the service's copy. The argument is the path of rametctl."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

RAMET = sys.argv.pop(1)
COPY = b"a catalogue" * 1000


class Backup(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        self.file = self.dir / "ramet.db"
        self.service = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.addCleanup(self.service.close)
        self.service.bind(str(self.dir / "admin.sock"))
        self.service.listen(1)

    def answer(self) -> None:
        client, _ = self.service.accept()
        with client, tempfile.TemporaryFile() as copy:
            while client.recv(4096):
                pass
            copy.write(COPY)
            copy.flush()
            socket.send_fds(client, [b"\0"], [copy.fileno()])

    def backup(self) -> int:
        service = threading.Thread(target=self.answer)
        service.start()
        done = subprocess.run([RAMET, f"--run_dir={self.dir}", "backup", self.file], timeout=60)
        service.join()
        return done.returncode

    def test_copy_is_readable_by_its_owner_only(self) -> None:
        self.assertEqual(self.backup(), 0)
        self.assertEqual(self.file.read_bytes(), COPY)
        self.assertEqual(self.file.stat().st_mode & 0o777, 0o600)

    def test_leftover_temporary_file_is_replaced(self) -> None:
        before = self.dir / "ramet.db.tmp"
        before.touch()
        before.chmod(0o666)
        with before.open("rb") as watched:
            self.assertEqual(self.backup(), 0)
            self.assertEqual(watched.read(), b"")
        self.assertEqual(self.file.read_bytes(), COPY)
        self.assertEqual(self.file.stat().st_mode & 0o777, 0o600)
        self.assertFalse(before.exists())


if __name__ == "__main__":
    unittest.main()
