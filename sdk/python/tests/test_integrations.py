# SPDX-License-Identifier: Apache-2.0
"""The adapters without the packages that they are for."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


@pytest.mark.parametrize(
    "adapter, package",
    [
        ("anthropic", "anthropic"),
        ("deepagents", "deepagents"),
        ("harbor", "harbor"),
        ("inspect_ai", "inspect_ai"),
        ("langchain", "langchain_core"),
        ("mini_swe_agent", "minisweagent"),
        ("openai_agents", "agents"),
        ("pydantic_ai", "pydantic_ai"),
        ("smolagents", "smolagents"),
    ],
)
def test_missing_package_is_named_with_an_extra_that_exists(
    monkeypatch: pytest.MonkeyPatch, adapter: str, package: str
) -> None:
    name = f"ramet.integrations.{adapter}"
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ImportError) as missing:
        importlib.import_module(name)
    wanted = rf"{name} needs the package .*: pip install 'ramet\[(.+)\]'"
    said = re.fullmatch(wanted, str(missing.value))
    assert said and re.search(rf"^{said[1]} = \[", PYPROJECT.read_text(), re.M)
