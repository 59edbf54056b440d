# SPDX-License-Identifier: Apache-2.0
"""The adapters without the packages that they are for."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from pathlib import Path

import pytest

import ramet.integrations
from ramet.integrations._results import listed

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
    wanted = rf"{name} needs the package .*: pip install '\./sdk/python\[(.+)\]' in a checkout.*"
    said = re.fullmatch(wanted, str(missing.value))
    assert said and re.search(rf"^{said[1]} = \[", PYPROJECT.read_text(), re.M)


# Calls that read what a sandbox sends into memory or onto this machine's disk, and the argument
# that limits them.
LIMITED = {
    "files.download": "max_bytes",
    "files.download_to": "max_bytes",
    "files.download_folder": "max_bytes",
    "files.list": "limit",
    "_files.list": "limit",
    "sandbox.download": "max_bytes",
    "sandbox.download_to": "max_bytes",
    "processes.run": "max_output_bytes",
    "process.wait": "max_output_bytes",
    "sandbox.run_code": "max_output_bytes",
    "context.run_code": "max_output_bytes",
}


def calls_without_limit(source: str) -> list[str]:
    """Returns the calls of LIMITED in a program that lack their argument."""
    found = []
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            name = ".".join(ast.unparse(call.func).split(".")[-2:])
            needed = LIMITED.get(name)
            if needed and needed not in [word.arg for word in call.keywords]:
                found.append(ast.unparse(call))
    return found


def test_adapters_limit_whatever_they_read() -> None:
    folder = Path(ramet.integrations.__file__).parent
    found = {path.name: calls_without_limit(path.read_text()) for path in folder.rglob("*.py")}
    assert len(found) > 10 and not {name: calls for name, calls in found.items() if calls}


def test_calls_without_limit_are_found() -> None:
    assert calls_without_limit("await self.sandbox.files.download(path)")
    assert not calls_without_limit("await self.sandbox.files.download(path, max_bytes=5)")


def test_names_in_a_log_are_escaped_and_few() -> None:
    assert listed(["a\nERROR b", "\x1b[2J"]) == "a\\nERROR b, \\u001b[2J"
    assert listed(["\u202ex", "\udcff"]) == "\\u202ex, \\udcff"
    assert listed([str(n) for n in range(1000)]).endswith(", 19 and 980 more")
