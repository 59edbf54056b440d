# SPDX-License-Identifier: Apache-2.0
"""The snippets of the documentation do what the pages say (test/snippets.py)."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Iterator

import httpx
import pytest

import stand_in
from conftest import Service
from snippets import PAGES, RUN, SHOWN, TOP, Snippet, all_snippets, name_of, parse, run

# Named one by one, so that `./dev test changed` finds this file when one of them changes.
NAMED = [
    "README.md",
    "docs/alerts.md",
    "docs/api-reference.md",
    "docs/api.md",
    "docs/benchmarks.md",
    "docs/capacity.md",
    "docs/checkpoints.md",
    "docs/cli.md",
    "docs/fleet.md",
    "docs/fork.md",
    "docs/hardening.md",
    "docs/install.md",
    "docs/integrations.md",
    "docs/integrations/anthropic.md",
    "docs/integrations/claude-agent-sdk.md",
    "docs/integrations/deep-agents.md",
    "docs/integrations/harbor.md",
    "docs/integrations/inspect-ai.md",
    "docs/integrations/langchain.md",
    "docs/integrations/mini-swe-agent.md",
    "docs/integrations/openai-agents.md",
    "docs/integrations/podflare.md",
    "docs/integrations/pydantic-ai.md",
    "docs/integrations/smolagents.md",
    "docs/mcp.md",
    "docs/network.md",
    "docs/observing.md",
    "docs/operating.md",
    "docs/ports.md",
    "docs/quick-start.md",
    "docs/recovery.md",
    "docs/results.md",
    "docs/search.md",
    "docs/sizes.md",
    "docs/spaces.md",
    "docs/templates.md",
    "docs/threats.md",
    "docs/trees.md",
    "docs/troubleshooting.md",
    "docs/ui.md",
    "docs/versioning.md",
    "sdk/python/README.md",
]
ALL = all_snippets()

# The agent, with a network and folders of its own: snippets use fixed ports, and write below /root.
# The agent's file is opened before, since it may be below /root itself.
CONFINED = """#!/bin/sh -e
exec 9<{agent}
exec unshare -mn sh -ec 'ip link set lo up
for folder in /root /srv /var/log; do mount -t tmpfs none $folder; done
exec /proc/self/fd/9 "$@"' sh "$@"
"""


@pytest.fixture(scope="module")
def docs_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    if os.geteuid():
        pytest.skip("confines the agent")
    home = tmp_path_factory.mktemp("docs")
    agent = home / "agent-confined"
    agent.write_text(CONFINED.format(agent=os.path.abspath(stand_in.AGENT)))
    agent.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stand_in, "AGENT", str(agent))
        patch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
        started = Service(home)
    yield started
    started.stop()


def test_every_page_is_named() -> None:
    assert sorted(PAGES) == NAMED


def test_every_snippet_has_a_language_and_a_known_mark() -> None:
    for snippet in ALL:
        assert snippet.language in RUN + SHOWN, f"{name_of(snippet)}: name its language"
        known = re.fullmatch(r"system|no, .+|", snippet.mark)
        assert known, f"{name_of(snippet)}: the mark is {snippet.mark!r}"


LITERAL = r'"(?:[^"\\\n]|\\.)*"'


def texts_of_programs() -> str:
    """Returns all string literals of the programs in C, and the source of the SDK's client."""
    found = [s.read_text() for s in (TOP / "sdk/python/src/ramet").glob("*.py")]
    for folder in ("base", "guest", "orchestrator", "vmm"):
        for source in (TOP / folder).rglob("*.c"):
            for literal in re.findall(rf"{LITERAL}(?:\s*{LITERAL})*", source.read_text()):
                found.append(re.sub(r'"\s*"', "", literal)[1:-1])
    return "\n".join(found)


def test_errors_in_the_page_of_symptoms_exist() -> None:
    page = (TOP / "docs/troubleshooting.md").read_text().partition("## A stalled VM")[0]
    symptoms = re.findall(r"^\| (.*?) \|", page.partition("## The service")[2], re.M)
    quoted = (text for symptom in symptoms for text in re.findall("`([^`]*)`", symptom))
    said = [text for text in quoted if " " in text]
    assert len(said) > 30
    known = texts_of_programs()
    for part in (part.strip(" :,;") for text in said for part in text.split("…")):
        assert len(part) < 5 or part.startswith("rametctl ") or part in known, part


@pytest.mark.parametrize("snippet", [s for s in ALL if s.language in RUN], ids=name_of)
def test_snippet_is_valid(snippet: Snippet) -> None:
    parse(snippet)


@pytest.mark.parametrize("snippet", all_snippets("unit"), ids=name_of)
def test_snippet_runs(docs_service: Service, tmp_path: Path, snippet: Snippet) -> None:
    with httpx.Client(base_url=docs_service.base, timeout=60, trust_env=False) as http:
        try:
            run(snippet, tmp_path, http)
        finally:
            for sandbox in http.get("/v1/sandboxes").json():
                http.delete(f"/v1/sandboxes/{sandbox['id']}")
