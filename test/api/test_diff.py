# SPDX-License-Identifier: Apache-2.0
"""Diff: what the core is asked to do, and how names that are not UTF-8 are returned."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import pytest

from test_routes import made, refused


def test_diff_returns_exact_names(http: httpx.Client, sandbox: str) -> None:
    other = made(http)[-36:]
    answer = http.post(f"{sandbox}/diff/{other}", json={"paths": ["/srv", "/tmp/é", "/a..b/.../..c"]})
    assert answer.status_code == 200
    assert answer.json() == {
        "added": ["/srv", "/tmp/é", "/a..b/.../..c"],
        "removed": [],
        "modified": ["/a\ufffd", "/b\n\ufffd"],
        "modified_b64": [base64.b64encode(b"/a\xff").decode(), None],
    }
    for body in ({}, {"paths": None}, None):
        defaults = http.post(f"{sandbox}/diff/{other}", json=body).json()
        assert defaults["added"] == ["/root", "/tmp"]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        ([], "paths must have 1 to 64 strings, not 0"),
        (["/x"] * 65, "paths must have at most 64 strings"),
        (["/x", "tmp"], 'each path must be absolute, "tmp" is not'),
        ([""], 'each path must be absolute, "" is not'),
        (["/x", "/a/../b"], 'each path must be without .., "/a/../b" is not'),
        (["/.."], 'each path must be without .., "/.." is not'),
        (["/" * 4097], "each path must be at most 4096 bytes long, not 4097"),
        ("/tmp", "paths must be an array of strings, not a string"),
        (["/tmp", 1], "paths must be an array of strings; one item is a number"),
    ],
)
def test_invalid_paths_are_refused(http: httpx.Client, sandbox: str, paths: Any, names: str) -> None:
    answer = http.post(f"{sandbox}/diff/{sandbox[-36:]}", json={"paths": paths})
    assert names in refused(answer, 400, "bad_request")


def test_nul_in_a_path_is_refused(http: httpx.Client, sandbox: str) -> None:
    body = json.dumps({"paths": ["/a\0b"]})
    answer = http.post(f"{sandbox}/diff/{sandbox[-36:]}", content=body)
    assert "NUL" in refused(answer, 400, "bad_request")
