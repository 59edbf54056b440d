# SPDX-License-Identifier: Apache-2.0
"""The snippets of the documentation, as the pages print them.

A snippet is a fenced block, whose first line names its language, or an indented one that begins with a
prompt. Snippets in `python`, `sh` and `console` run in the tests: with the real agent, but without VMs,
in test/service/test_docs.py. A comment in the line above, which readers do not see, changes that:

    <!-- test: system -->       runs in test/system/test_docs.py, since it needs real guests
    <!-- test: no, REASON -->   is only parsed
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator

import httpx

TOP = Path(__file__).resolve().parents[1]
PAGES = [
    "README.md",
    "sdk/python/README.md",
    *(str(page.relative_to(TOP)) for page in TOP.glob("docs/*.md")),
    *(str(page.relative_to(TOP)) for page in TOP.glob("docs/integrations/*.md")),
]
RUN = ("python", "sh", "console")
SHOWN = ("json", "yaml", "ini", "text")

MARK = r"(?:^ *<!-- test: (?P<mark>[^\n]+) -->\n)?"
FENCED = re.compile(
    MARK + r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```$", re.M | re.S
)
INDENTED = re.compile(MARK + r"(?:(?<=\n\n)|(?<=-->\n))(?P<text>    \$ .*\n(?:    .*\n)*)", re.M)


@dataclass(frozen=True)
class Snippet:
    page: str
    line: int
    language: str
    text: str
    mark: str

    @property
    def runs(self) -> str:
        """Where it runs: "unit", "system" or "no"."""
        if self.language not in RUN:
            return "no"
        return self.mark.partition(",")[0] or "unit"

    @property
    def script(self) -> str:
        """The commands of a session, or the text itself."""
        if self.language != "console":
            return self.text
        commands, goes_on = [], False
        for line in self.text.splitlines():
            if goes_on or line.startswith(("$ ", "# ")):
                commands.append(line if goes_on else line[2:])
                goes_on = line.endswith("\\")
        return "\n".join(commands) + "\n"

    @property
    def promised(self) -> list[str]:
        """What the comments beside print() say that is printed: a number, or another value."""
        said = re.findall(r"print\(.*\) +# ([\d\[({'][^:\n]*)", self.text)
        return [value.split("...")[0].strip() for value in said]


def _without_indent(text: str, indent: int) -> str:
    return "".join(line[indent:] or "\n" for line in text.splitlines(keepends=True))


def snippets(page: str) -> Iterator[Snippet]:
    text = (TOP / page).read_text()

    def found(match: re.Match[str], language: str, indent: int) -> Snippet:
        line = text.count("\n", 0, match.start("text"))
        body = _without_indent(match["text"], indent)
        return Snippet(page, line, language, body, match["mark"] or "")

    for match in FENCED.finditer(text):
        yield found(match, match["language"], len(match["indent"]))
    # Without the fenced ones, and as long as before.
    bare = FENCED.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    for match in INDENTED.finditer(bare):
        yield found(match, "console", 4)


def all_snippets(runs: str | None = None) -> list[Snippet]:
    return [s for page in PAGES for s in snippets(page) if runs in (None, s.runs)]


def name_of(snippet: Snippet) -> str:
    return f"{snippet.page}:{snippet.line}"


def parse(snippet: Snippet) -> None:
    """Fails if it is not a program of its language."""
    if snippet.language == "python":
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
        compile(snippet.text, name_of(snippet), "exec", flags)
    else:
        done = subprocess.run(["bash", "-n"], input=snippet.script, capture_output=True, text=True)
        assert not done.stderr, done.stderr


def make_files(folder: Path) -> dict[str, str]:
    """Makes the files that snippets use, and the command `ramet`; returns the environment."""
    for name in ("data.csv", "more.log", "model.bin", "project/notes", "src/a.py"):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("3\n1\n2\n")
    (folder / "hello.py").write_text(
        'import sys\nprint("hello from", sys.argv[0])\nanswer = 6 * 7\n'
    )
    subprocess.run("xz <data.csv >big.bin.xz", shell=True, cwd=folder, check=True)
    program = folder / "bin/ramet"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ramet.cli "$@"\n')
    program.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(TOP / "sdk/python/src"),
        "XDG_CONFIG_HOME": str(folder / "config"),
    }


def placed(script: str, http: httpx.Client) -> str:
    """Replaces the address and the ids in shell commands with those of sandboxes that exist."""

    def post(path: str, **body: object) -> Any:
        return http.post(f"/v1/{path}", json=body).raise_for_status().json()

    one = post("sandboxes", metadata={"run": "7"})["id"]
    for path in ("model.bin", "project/a.py", "score.sh"):
        target = f"/v1/sandboxes/{one}/files?path=/root/{path}&mode=0755"
        http.put(target, content=b"#!/bin/sh\n").raise_for_status()
    names = {r"localhost:7070": str(http.base_url).removeprefix("http://").rstrip("/")}
    if re.search(r"CHILD|a07c", script):
        (child,) = post(f"sandboxes/{one}/fork", n=1)["children"]
        names[r"\bCHILD\b|a07c"] = child
    if "95d8" in script:
        names["95d8"] = post(f"sandboxes/{post('sandboxes')['id']}/freeze")["space_id"]
    if "chk_6e1c" in script:
        names[r"chk_6e1c\w*"] = post(f"sandboxes/{one}/checkpoints")["id"]
    if "ctx_6e1c" in script:
        names[r"ctx_6e1c\w+"] = post(f"sandboxes/{one}/contexts", language="bash")["id"]
    names[r"\$ID|\bID\b|\bPARENT\b|f68f|sbx_…"] = one
    for pattern, value in names.items():
        script = re.sub(pattern, value, script)
    return script


def run(snippet: Snippet, folder: Path, http: httpx.Client) -> None:
    """Runs it in a folder with the files; fails if it fails, or prints other than it says."""
    script = snippet.script if snippet.language == "python" else placed(snippet.script, http)
    command = [sys.executable] if snippet.language == "python" else ["bash"]
    done = subprocess.run(
        [*command, "-c", script],
        cwd=folder,
        env={**make_files(folder), "RAMET_HOST": str(http.base_url)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    shown = f"{script}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, shown
    failure = r'^ramet: |^Error: |"error":|not found'
    assert not re.search(failure, done.stdout + done.stderr, re.M), shown
    for value in snippet.promised:
        assert value in done.stdout, f"no {value!r} in:\n{shown}"
