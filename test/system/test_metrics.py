# SPDX-License-Identifier: Apache-2.0
"""What a sandbox uses, as the host sees it."""

from __future__ import annotations

import pytest

from conftest import until
from ramet import Sandbox


@pytest.mark.smoke
def test_work_in_a_sandbox_shows_in_its_metrics() -> None:
    with Sandbox() as sbx:
        before = sbx.metrics()[-1]
        assert 0 < before.memory_used_bytes < 2 * before.memory_limit_bytes
        assert 0 <= before.disk_layer_bytes < before.disk_size_bytes
        code = (
            "import os, time\nkept = os.urandom(32 << 20)\n"
            "with open('/root/file', 'wb') as f:\n"
            "    f.write(os.urandom(8 << 20)); f.flush(); os.fsync(f.fileno())\n"
            "end = time.process_time() + 1\nwhile time.process_time() < end: pass\n"
        )
        assert sbx.run_code(code).ok
        after = sbx.metrics()[-1]
        assert after.cpu_seconds >= before.cpu_seconds + 0.9
        assert after.memory_used_bytes >= before.memory_used_bytes + (16 << 20)
        assert after.disk_layer_bytes >= before.disk_layer_bytes + (8 << 20)
        until(lambda: len(sbx.metrics()) > 2)
        assert sbx.metrics()[1].cpu_percent is not None
        assert len(sbx.metrics(limit=1)) == 2
