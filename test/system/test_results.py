# SPDX-License-Identifier: Apache-2.0
"""Results of Python calls in forks of real guests; test/rootfs has figures and frames."""

from __future__ import annotations

import pytest

import ramet
from ramet import Sandbox


@pytest.mark.smoke
def test_fork_during_a_call_keeps_its_results(sbx: Sandbox) -> None:
    """The parent and the child both get the rest of a result that is on its way."""
    code = (
        "import os, time\nclass Big:\n  __repr__ = lambda self: 'big'\n"
        "  def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n' + os.urandom(1) * 3_000_000\n"
        "display('first')\nwhile not os.path.exists('/tmp/go'): time.sleep(0.05)\nBig()"
    )
    events = sbx.run_code_stream(code)
    assert next(events).result == ramet.Result({"text/plain": "'first'"})
    (child,) = sbx.fork()
    with child:
        for one in (sbx, child):
            one.files.upload(b"", "/tmp/go")
        for found in (events, child.follow()):
            results = [event.result for event in found if event.result]
            assert results[-1].main and len(results[-1].png or b"") == 3_000_008
        first = [event.result.text for event in child.replay() if event.result]
        assert first == ["'first'", "big"]
