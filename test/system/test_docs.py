# SPDX-License-Identifier: Apache-2.0
"""The snippets of the documentation that need real guests (test/snippets.py)."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from snippets import Snippet, all_snippets, name_of, run

# Sandboxes of a snippet are known as those that were not there before.
pytestmark = [pytest.mark.alone, pytest.mark.usefixtures("none_stay")]


@pytest.mark.parametrize("snippet", all_snippets("system"), ids=name_of)
def test_snippet_runs(http: httpx.Client, tmp_path: Path, snippet: Snippet) -> None:
    run(snippet, tmp_path, http)
