# SPDX-License-Identifier: Apache-2.0
"""test/changed.py chooses the tests that a change can break, in a tree of a few files."""

from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import changed  # noqa: E402

ROOM = "ramet_room({0} SRCS {1}.c USES {2})\n"
# snapshot uses exec, service uses it and ports. Tests of base and exec run in a world with the whole service.
TREE = {
    "base/CMakeLists.txt": ROOM.format("base", "err", ""),
    "base/err.c": "",
    "orchestrator/exec/CMakeLists.txt": ROOM.format("orchestrator_exec", "exec", "base")
    + ROOM.format("orchestrator_fox", "fox", "base"),
    "orchestrator/exec/exec.c": "",
    "orchestrator/exec/fox.c": "",
    "orchestrator/snapshot/CMakeLists.txt": ROOM.format("orchestrator_snapshot", "fork", "orchestrator_exec"),
    "orchestrator/snapshot/fork.c": "",
    "orchestrator/ports/CMakeLists.txt": ROOM.format("orchestrator_ports", "ports", "base"),
    "orchestrator/ports/ports.c": "",
    "orchestrator/service/CMakeLists.txt": ROOM.format(
        "orchestrator_service", "service", "orchestrator_snapshot orchestrator_ports"
    ),
    "orchestrator/service/service.c": "",
    "orchestrator/http/CMakeLists.txt": ROOM.format("orchestrator_http", "http", "base"),
    "orchestrator/http/http.c": "",
    "test/world/CMakeLists.txt": "add_library(world world.c)\ntarget_link_libraries(world orchestrator_service)\n",
    "test/world/world.c": "",
    "test/unit/base/CMakeLists.txt": "ramet_test(err SRCS err.c USES world)\n",
    "test/unit/exec/CMakeLists.txt": "ramet_test(exec SRCS exec.c USES world)\n",
    "test/unit/http/CMakeLists.txt": "ramet_test(http SRCS http.c USES orchestrator_http)\n",
    "test/unit/faults/CMakeLists.txt": "ramet_test(faults SRCS faults.c USES world)\n",
    "test/unit/docs/CMakeLists.txt": "add_test(docs)\n",
    "test/unit/docs/docs_test.py": "DOCUMENT = 'docs/api.md'\n",
    "docs/api.md": "",
}  # fmt: skip
SERVICE = ["test/unit/faults", "test/world"]
ROOMS = ["orchestrator_exec", "orchestrator_snapshot", "orchestrator_ports", "orchestrator_http"]


class Changed(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = Path(folder.name)
        for name, text in TREE.items():
            path = self.top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def chosen(self, *names: str) -> list[str]:
        return changed.Change(self.top, set(TREE), set(names)).folders()

    def concerned(self, *names: str) -> list[str]:
        """Returns those of ROOMS whose tests run if these files changed."""
        found = changed.Change(self.top, set(TREE), set(names)).concerned({"unit", *ROOMS})
        return [room for room in ROOMS if room in found]

    def test_rooms_above_the_change_are_tested(self) -> None:
        self.assertEqual(
            self.chosen("base/err.c"),
            ["test/unit/base", "test/unit/exec", *SERVICE[:1], "test/unit/http", *SERVICE[1:]],
        )
        self.assertEqual(self.chosen("orchestrator/http/http.c"), ["test/unit/http"])

    def test_rooms_below_the_change_are_not_though_their_helpers_use_it(self) -> None:
        self.assertEqual(self.chosen("orchestrator/exec/exec.c"), ["test/unit/exec", *SERVICE])
        self.assertEqual(self.chosen("orchestrator/service/service.c"), SERVICE)

    def test_change_of_a_helper_reaches_whoever_uses_it(self) -> None:
        self.assertEqual(
            self.chosen("test/world/world.c"), ["test/unit/base", "test/unit/exec", *SERVICE]
        )

    def test_program_that_names_the_file_is_chosen(self) -> None:
        self.assertEqual(self.chosen("docs/api.md"), ["test/unit/docs"])

    def test_top_of_the_build_chooses_all(self) -> None:
        self.assertEqual(
            self.chosen("CMakeLists.txt"),
            sorted(name.removesuffix("/CMakeLists.txt") for name in TREE if name.startswith("test/") and name.endswith(".txt")),
        )

    def test_tests_about_other_rooms_are_left_out(self) -> None:
        self.assertEqual(self.concerned("orchestrator/exec/exec.c"), ROOMS[:2])
        self.assertEqual(self.concerned("orchestrator/snapshot/fork.c"), ROOMS[1:2])
        self.assertEqual(self.concerned("orchestrator/ports/ports.c"), ROOMS[2:3])

    def test_tests_about_any_room_run_when_all_of_them_use_what_changed(self) -> None:
        self.assertEqual(self.concerned("base/err.c"), ROOMS)
        self.assertEqual(self.concerned("orchestrator/http/http.c"), ROOMS)

    def test_tests_about_any_room_run_when_no_test_is_about_what_changed(self) -> None:
        self.assertEqual(self.concerned("orchestrator/exec/exec.c", "orchestrator/exec/fox.c"), ROOMS)
        self.assertEqual(self.concerned("orchestrator/exec/CMakeLists.txt"), ROOMS)
        self.assertEqual(self.concerned("orchestrator/service/service.c"), ROOMS)
        self.assertEqual(self.concerned("orchestrator/exec/exec.c", "docs/api.md"), ROOMS)


if __name__ == "__main__":
    unittest.main()
