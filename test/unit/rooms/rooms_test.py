# SPDX-License-Identifier: Apache-2.0
"""test/rooms.py finds each kind of undeclared arrow, in a tree of a few files."""

from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import rooms  # noqa: E402

# A tree that keeps the rules: two rooms in one folder, a contract without code, a program.
GOOD = {
    "base/CMakeLists.txt": "ramet_room(base SRCS err.c HEADERS err.h) # a leaf\n",
    "base/err.c": '#include "base/err.h"\n#include <errno.h>\n',
    "base/err.h": "",
    "proto/CMakeLists.txt": "ramet_headers(proto HEADERS wire.h)\n",
    "proto/wire.h": "",
    "vmm/low/CMakeLists.txt": (
        "ramet_room(low SRCS low.c HEADERS low.h\n           USES proto base)\n"
        "ramet_room(low_more SRCS more.c USES low base ${A_LIBRARY} m)\n"
    ),
    "vmm/low/low.c": '#include "vmm/low/internal.h"\n#include "base/err.h"\n',
    "vmm/low/low.h": '#include "proto/wire.h"\n',
    "vmm/low/internal.h": '#include "vmm/low/low.h"\n',
    "vmm/low/more.c": '#include "vmm/low/internal.h"\n',
    "vmm/CMakeLists.txt": (
        "add_executable(program main.c)\ntarget_link_libraries(program PRIVATE low base)\n"
    ),
    "vmm/main.c": '#include "vmm/low/low.h"\n',
    "test/CMakeLists.txt": "add_executable(tests tests.c)\n",
    "test/tests.c": '#include "vmm/low/internal.h"\n',
}


class Rooms(unittest.TestCase):
    def wrong(self, changed: dict[str, str]) -> list[str]:
        """Returns the sentences of the check for GOOD with some files changed."""
        with tempfile.TemporaryDirectory() as folder:
            files = {**GOOD, **changed}
            for name, text in files.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return rooms.check(Path(folder), set(files))

    def test_good_tree_passes(self) -> None:
        self.assertEqual(self.wrong({}), [])

    def test_undeclared_arrow_is_found(self) -> None:
        self.assertEqual(
            self.wrong({"base/err.c": '#include "proto/wire.h"\n'}),
            ['base/err.c: "proto/wire.h" belongs to proto, which USES of base does not name'],
        )

    def test_arrow_is_not_inherited(self) -> None:
        self.assertEqual(
            self.wrong({"vmm/main.c": '#include "proto/wire.h"\n'}),
            ['vmm/main.c: "proto/wire.h" belongs to proto, which USES of program does not name'],
        )

    def test_arrow_of_a_public_header_is_found(self) -> None:
        found = self.wrong({"base/err.h": ' # include "proto/wire.h"\n'})
        self.assertEqual(len(found), 1)
        self.assertIn("base/err.h", found[0])

    def test_arrow_of_a_private_header_counts_for_its_room(self) -> None:
        found = self.wrong(
            {
                "vmm/low/internal.h": '#include "vmm/low/low.h"\n#include "proto/wire.h"\n',
            }
        )
        self.assertEqual(
            found,
            ['vmm/low/internal.h: "proto/wire.h" belongs to proto, which USES of low_more does not name'],
        )

    def test_arrow_between_rooms_of_a_folder_is_found(self) -> None:
        found = self.wrong(
            {
                "vmm/low/CMakeLists.txt": "ramet_room(low SRCS low.c HEADERS low.h USES proto base)\n"
                "ramet_room(low_more SRCS more.c USES base)\n"
            }
        )
        self.assertEqual(
            found,
            ['vmm/low/internal.h: "vmm/low/low.h" belongs to low, which USES of low_more does not name'],
        )

    def test_private_header_of_another_folder_is_found(self) -> None:
        self.assertIn(
            'vmm/main.c: "vmm/low/internal.h" is private to its folder',
            self.wrong({"vmm/main.c": '#include "vmm/low/internal.h"\n'}),
        )

    def test_missing_header_is_found(self) -> None:
        self.assertEqual(
            self.wrong({"vmm/main.c": '#include "vmm/low/gone.h"\n'}),
            ['vmm/main.c: "vmm/low/gone.h" is not in the tree'],
        )

    def test_undeclared_file_is_found(self) -> None:
        self.assertEqual(
            self.wrong({"vmm/stray.c": ""}), ["vmm/stray.c: no room declares it"]
        )

    def test_declared_file_that_is_missing_is_found(self) -> None:
        self.assertEqual(
            self.wrong({"base/CMakeLists.txt": "ramet_room(base SRCS err.c old.c HEADERS err.h)"}),
            ["base/old.c: declared by base, but not in the tree"],
        )

    def test_file_declared_by_two_rooms_is_found(self) -> None:
        self.assertEqual(
            self.wrong(
                {
                    "base/CMakeLists.txt": "ramet_room(base SRCS err.c HEADERS err.h)\n"
                    "ramet_room(twin SRCS err.c USES base)\n"
                }
            ),
            ["base/err.c: declared by base and by twin"],
        )

    def test_rooms_that_use_each_other_are_found(self) -> None:
        found = self.wrong(
            {
                "base/CMakeLists.txt": "ramet_room(base SRCS err.c HEADERS err.h USES low)\n",
                "base/err.c": '#include "vmm/low/low.h"\n',
            }
        )
        self.assertEqual(
            found,
            [
                "folders use each other: base -> vmm/low -> base",
                "rooms use each other: base -> low -> base",
            ],
        )

    def test_folders_that_use_each_other_are_found(self) -> None:
        found = self.wrong(
            {
                "base/CMakeLists.txt": "ramet_room(base SRCS err.c HEADERS err.h)\n"
                "ramet_room(top SRCS top.c USES low)\n",
                "base/top.c": '#include "vmm/low/low.h"\n',
            }
        )
        self.assertEqual(found, ["folders use each other: base -> vmm/low -> base"])

    def test_files_that_use_each_other_are_found(self) -> None:
        found = self.wrong(
            {
                "vmm/low/more.c": '#include "vmm/low/low.h"\n',
                "vmm/low/more.h": "",
                "vmm/low/low.h": '#include "proto/wire.h"\n#include "vmm/low/more.h"\n',
            }
        )
        self.assertEqual(found, ["files use each other: vmm/low/low -> vmm/low/more -> vmm/low/low"])


if __name__ == "__main__":
    unittest.main()
