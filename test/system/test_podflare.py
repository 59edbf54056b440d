# SPDX-License-Identifier: Apache-2.0
"""The published podflare client, unmodified, with real guests; test/service has more of it."""

from __future__ import annotations

from typing import Any, Iterator

import pytest


@pytest.fixture
def sbx(podflare: Any) -> Iterator[Any]:
    with podflare.Sandbox(client=podflare.Client(timeout=300.0)) as sandbox:
        yield sandbox


@pytest.mark.smoke
def test_fork_merge_and_diff(sbx: Any) -> None:
    sbx.run_code("x = 1\nopen('/root/kept', 'w').write('same')")
    children = sbx.fork(n=3)
    try:
        for i, child in enumerate(children):
            child.run_code(f"x += {i}\nopen('/root/{i}', 'w').write('{i}')")
        assert [child.run_code("print(x)").stdout for child in children] == ["1", "2", "3"]
        assert sbx.run_code("print(x)").stdout == "1"
        assert sbx.diff(children[1], paths=["/root"]) == {
            "added": ["/root/1"],
            "removed": [],
            "modified": [],
        }
        sbx.merge_into(children[2])
        assert sbx.run_code("print(x)").stdout == "3"
        children[2].close()
        assert sbx.run_code("print(open('/root/2').read())").stdout == "2"
    finally:
        for child in children:
            child.close()
