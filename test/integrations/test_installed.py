# SPDX-License-Identifier: Apache-2.0
"""The installed SDK: what other projects find of it without importing it."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest


def test_every_entry_point_can_be_loaded(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(installed)
    (dist,) = importlib.metadata.distributions(name="ramet", path=[str(installed)])
    for entry in dist.entry_points:
        assert entry.load() is not None


def test_the_sdk_alone_imports_no_package_of_an_extra(installed: Path) -> None:
    code = "import sys, ramet; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    extras = {"agents", "anthropic", "deepagents", "inspect_ai", "langchain_core", "mcp"}
    extras |= {"minisweagent", "pydantic", "pydantic_ai", "smolagents", "typer"}
    assert not extras & set(done.stdout.split())
