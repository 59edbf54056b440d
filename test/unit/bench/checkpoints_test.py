# SPDX-License-Identifier: Apache-2.0
"""The benchmark of checkpoints measures all that it names, and leaves no sandbox that it started."""

from __future__ import annotations

import json
import sys
import tempfile
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))

import checkpoints  # noqa: E402
import run  # noqa: E402


class Service:
    """A fake of native_service.Service, whose answers have what the benchmark reads."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.made = self.taken = 0
        self.open: set[str] = set()

    def ask(self, method: str, path: str, body: bytes = b"") -> str:
        asked = json.loads(body)
        _, _, kind, *rest = path.split("/")
        verb = rest[1] if len(rest) > 1 else ""
        if method == "DELETE":
            self.open.discard(path)
            return ""
        if verb == "exec":
            return '{"type":"stdout","data":"1\\n"}\n{"type":"exit","data":0}\n'
        if verb == "fork":
            children = [self.new("sandboxes") for _ in range(asked["n"])]
            of_checkpoint = [{"id": child} for child in children]
            return json.dumps({"children": of_checkpoint if kind == "checkpoints" else children, "pause_us": 1})
        if verb == "checkpoints":
            self.taken += 1
            with self.log.open("a") as log:
                log.write("info service: checkpoint x taken, its VM was paused for 300 us\n")
            return json.dumps({"id": self.new("checkpoints")})
        return json.dumps({"id": self.new("sandboxes") if not rest else rest[0]})

    def new(self, kind: str) -> str:
        self.made += 1
        self.open.add(f"/v1/{kind}/{self.made:036}")
        return f"{self.made:036}"

    def level(self, metric: str) -> int:
        return self.taken if metric == "ramet_checkpoints_taken_total" else 0

    def await_pool(self, blank: int, warm: int) -> None:
        pass


class Checkpoints(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.services: list[Service] = []
        for name, value in (
            ("service", self.service),
            ("held", lambda _: {"vms_private_MiB": 1.0}),
            ("time", mock.Mock(perf_counter=mock.Mock(side_effect=range(10**6)))),
        ):
            patch = mock.patch.object(checkpoints, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    @contextmanager
    def service(self, folder: Path, **_: Any) -> Iterator[Service]:
        self.services.append(Service(folder))
        yield self.services[-1]

    def test_all_is_measured_and_nothing_started_is_left(self) -> None:
        found: dict[str, Any] = {}
        for measure in (checkpoints.taking, checkpoints.starts, checkpoints.going_back, checkpoints.each_call):
            found |= measure(self.folder, 3)
        found |= checkpoints.many(self.folder, 200)
        ratios = run.ratios(found)["ratios"]
        self.assertEqual(len(ratios), 8)
        self.assertEqual(found["each_thinking_ratio"]["n"], 3)
        self.assertEqual(found["checkpoint_pause_16m_ms"]["max"], 0.3)
        self.assertEqual(found["start_memory_n32_ms"]["unit"], "ms")
        sandboxes = [len([path for path in s.open if "sandboxes" in path]) for s in self.services]
        self.assertEqual(sandboxes, [1, 1, 2, 2, 1])  # those of the measurements themselves


if __name__ == "__main__":
    unittest.main()
