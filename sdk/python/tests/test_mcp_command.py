# SPDX-License-Identifier: Apache-2.0
"""The program `ramet-mcp`, as far as it needs no further package."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ramet.mcp import main
from ramet.mcp.config import CLIENTS, snippets


def test_missing_package_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("mcp", "uvicorn"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("ramet.mcp.http", "ramet.mcp.stdio", "ramet.mcp.server", "ramet.mcp.tools"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert main([]) == 1
    assert "pip install './sdk/python[mcp]'" in capsys.readouterr().err


def test_wrong_argument_ends_with_code_2() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--htp"])
    assert ended.value.code == 2


def test_config_prints_the_snippets_of_all_clients(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("# ") == len(CLIENTS) and "claude mcp add" in printed


@pytest.mark.parametrize("client", ["cursor", "vscode", "zed"])
def test_snippets_of_editors_are_json(client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAMET_HOST", "https://ramet.example")
    monkeypatch.setenv("RAMET_API_KEY", "rmt_secret")
    outer = {"cursor": "mcpServers", "vscode": "servers", "zed": "context_servers"}[client]
    server = json.loads(snippets(client, None))[outer]["ramet"]
    assert server["command"] and server["env"]["RAMET_HOST"] == "https://ramet.example"
    server = json.loads(snippets(client, "https://ramet.example/mcp"))[outer]["ramet"]
    assert server["url"] == "https://ramet.example/mcp"
    assert server["headers"]["Authorization"].startswith("Bearer ")


def test_no_snippet_has_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAMET_API_KEY", "rmt_secret")
    assert "rmt_secret" not in snippets(None, None) + snippets(None, "https://ramet.example/mcp")


def test_command_of_a_snippet_starts_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/nowhere/ramet-mcp"])
    server = json.loads(snippets("cursor", None))["mcpServers"]["ramet"]
    command = [server["command"], *server["args"], "--help"]
    started = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "usage: ramet-mcp" in started.stdout


@pytest.mark.parametrize("name", ["ramet-mcp", "ramet", "link"])
def test_snippet_has_the_program_that_printed_it(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for folder in ("first", "own"):
        (tmp_path / folder).mkdir()
        for program in ("ramet", "ramet-mcp"):
            (tmp_path / folder / program).touch(0o755)
    (tmp_path / "first" / "link").symlink_to(tmp_path / "own" / "ramet")
    monkeypatch.setenv("PATH", str(tmp_path / "first"))
    called = tmp_path / ("first" if name == "link" else "own") / name
    monkeypatch.setattr(sys, "argv", [str(called)])
    server = json.loads(snippets("cursor", None))["mcpServers"]["ramet"]
    assert server["command"] == str(tmp_path / "own" / "ramet-mcp")


def test_command_for_claude_quotes_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAMET_HOST", "http://a b")
    words = shlex.split(snippets("claude", None))
    assert words[:6] == ["claude", "mcp", "add", "--transport", "stdio", "ramet"]
    assert "RAMET_HOST=http://a b" in words and words[-1].endswith(("ramet.mcp", "/ramet-mcp"))
    words = shlex.split(snippets("claude", "http://a/mcp"))
    assert words[-1] == "Authorization: Bearer $RAMET_API_KEY"
