# SPDX-License-Identifier: Apache-2.0
"""test/words.py finds retired words in the rooms it checks, in a tree of a few files."""

from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[2]))

import words  # noqa: E402

ALLOWED = {"done/tools": {"shells?"}}
SKIPPED = ("open/",)
PATCHED = mock.patch.multiple(words, ALLOWED=ALLOWED, SKIPPED=SKIPPED)

# A tree that keeps the rules: words that only contain a retired one, and an unchecked room.
GOOD = {
    "done/map.c": "/* A shellfish, untold. */\nint pool_shells, shifted;\n",
    "done/tools/run.sh": "# Starts a shell.\n",
    "open/old.c": "struct overlay; /* All shells are told of it. */\n",
}


class Words(unittest.TestCase):
    def wrong(self, changed: dict[str, str]) -> list[str]:
        """Returns the sentences of the check for GOOD with some files changed."""
        with tempfile.TemporaryDirectory() as folder, PATCHED:
            files = {**GOOD, **changed}
            for name, text in files.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return words.check(Path(folder), set(files))

    def test_good_tree_passes(self) -> None:
        self.assertEqual(self.wrong({}), [])

    def test_comment_is_checked(self) -> None:
        self.assertEqual(
            self.wrong({"done/map.c": "\n/* Fills a Shell. */\n"}),
            ['done/map.c:2: "Shell": say "blank VM"'],
        )

    def test_parts_of_identifiers_are_checked(self) -> None:
        self.assertEqual(
            self.wrong({"done/map.c": "int vq_rearm_at, newShell, NEW_OVERLAY;\n"}),
            [
                'done/map.c:1: "Shell": say "blank VM"',
                'done/map.c:1: "OVERLAY": say "extent map"',
                'done/map.c:1: "rearm": say "enable_notification"',
            ],
        )

    def test_message_is_checked(self) -> None:
        found = self.wrong({"done/map.c": 'die("the page is of no more use");\n'})
        self.assertEqual(found, ['done/map.c:1: "of no more use": say "unusable, useless"'])

    def test_phrase_may_continue_on_the_next_line(self) -> None:
        found = self.wrong({"done/map.c": "/* The vCPUs stand\n * still here. */\n"})
        self.assertEqual(
            found, ['done/map.c:1: "stand * still": say "paused, parked, quiesced"']
        )

    def test_name_of_a_file_is_checked(self) -> None:
        self.assertEqual(
            self.wrong({"done/legacy-ports.c": ""}),
            [
                'done/legacy-ports.c: rename the file: '
                '"i8042, cmos, or the version that is meant" replaces "legacy"'
            ],
        )

    def test_innermost_folder_decides_what_is_allowed(self) -> None:
        self.assertEqual(
            self.wrong({"done/tools/run.sh": "# A shell starves.\n"}),
            ['done/tools/run.sh:1: "starves": say "enospc"'],
        )

    def test_binary_file_is_skipped(self) -> None:
        with tempfile.TemporaryDirectory() as folder, PATCHED:
            Path(folder, "done").mkdir()
            Path(folder, "done/seed").write_bytes(b"\xff\xfe shell")
            self.assertEqual(words.check(Path(folder), {"done/seed"}), [])


if __name__ == "__main__":
    unittest.main()
