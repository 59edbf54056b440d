# SPDX-License-Identifier: Apache-2.0
"""The snippets of the documentation that need real guests (test/snippets.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

import httpx
import pytest

from snippets import Snippet, all_snippets, name_of, run

pytestmark = pytest.mark.alone  # a snippet's sandboxes are known as those that were not there before


@pytest.fixture(autouse=True)
def none_stay(http: httpx.Client) -> Iterator[None]:
    """Removes the sandboxes and Spaces that the snippet leaves."""
    kinds = ("sandboxes", "spaces")
    before = {kind: {one["id"] for one in http.get(f"/v1/{kind}").json()} for kind in kinds}
    yield
    for kind in kinds:
        for one in http.get(f"/v1/{kind}").json():
            if one["id"] not in before[kind]:
                http.delete(f"/v1/{kind}/{one['id']}")


@pytest.mark.parametrize("snippet", all_snippets("system"), ids=name_of)
def test_snippet_runs(http: httpx.Client, tmp_path: Path, snippet: Snippet) -> None:
    run(snippet, tmp_path, http)
