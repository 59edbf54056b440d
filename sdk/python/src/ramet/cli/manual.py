# SPDX-License-Identifier: Apache-2.0
"""Man pages, made from the declarations of the commands."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import click

from ramet import __version__
from ramet.cli.declare import first_sentence
from ramet.cli.failure import Failure

_ENVIRONMENT = (
    ("RAMET_HOST", "Address of the service. Default: http://127.0.0.1:7070."),
    ("RAMET_API_KEY", "The API key."),
    ("RAMET_CA_FILE", "PEM file of the certificates to trust for an https address."),
    ("RAMET_CONFIG", "File of `ramet login`. Default: ~/.config/ramet/config.json."),
)
_STATUS = (
    ("0", "Done."),
    ("125", "ramet itself failed; standard error says why, and what to do."),
    ("124", "The program, or the code, was ended at its time limit."),
    ("126, 127", "The program in the sandbox is not executable, or does not exist."),
    ("128 + N", "Signal N ended the program, or ramet."),
    ("others", "That of the program in the sandbox."),
)


def pages(tree: click.Group) -> dict[str, str]:
    """Returns the pages by file name: `ramet.1`, and one for each command.

    Args:
        tree: The tree of commands, as click makes it.
    """
    found = {"ramet.1": _main_page(tree)}
    for name, command in _commands(tree):
        found[f"ramet-{name}.1"] = _command_page(name, command)
    return found


def write(tree: click.Group, folder: str) -> None:
    """Writes all pages to a folder, which is made when missing."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, text in pages(tree).items():
        (Path(folder) / name).write_text(text)


def show(tree: click.Group, name: str | None) -> None:
    """Shows a page with `man`, or prints its source if there is no `man` or no terminal.

    Raises:
        Failure: There is no such command.
    """
    text = pages(tree).get(f"ramet-{name}.1" if name else "ramet.1")
    if text is None:
        raise Failure(f"ramet has no command {name!r}", "`ramet --help` lists the commands")
    viewer = shutil.which("man")
    if viewer and sys.stdout.isatty():
        subprocess.run([viewer, "-l", "-"], input=text.encode(), check=False)
    else:
        print(text, end="")


def _commands(tree: click.Group) -> list[tuple[str, click.Command]]:
    return sorted(tree.commands.items())


def _main_page(tree: click.Group) -> str:
    lines = [
        *_head("ramet", tree.help),
        ".B ramet\n[\\fIOPTION\\fR]... \\fICOMMAND\\fR [\\fIARG\\fR]...",
        ".SH COMMANDS",
    ]
    for name, command in _commands(tree):
        lines += [".TP", f".BR ramet-{_text(name)} (1)", _text(first_sentence(command.help))]
    lines += [".SH OPTIONS", *_options(tree), ".SH EXIT STATUS", *_terms(_STATUS)]
    lines += [".SH ENVIRONMENT", *_terms(_ENVIRONMENT)]
    return "\n".join(lines) + "\n"


def _command_page(name: str, command: click.Command) -> str:
    usage = [f".B ramet {_text(name)}\n[\\fIOPTION\\fR]..."]
    usage += [_text(one) for one in _metavars(command)]
    paragraphs = (command.help or "").split("\n\n")
    lines = [*_head(f"ramet-{name}", command.help), " ".join(usage), ".SH DESCRIPTION"]
    lines.append("\n.PP\n".join(_text(one) for one in paragraphs))
    if arguments := list(_arguments(command)):
        lines += [".SH ARGUMENTS", *arguments]
    lines += [".SH OPTIONS", *_options(command), ".SH SEE ALSO", ".BR ramet (1)"]
    return "\n".join(lines) + "\n"


def _head(name: str, help_text: str | None) -> list[str]:
    return [
        f'.TH {name.upper()} 1 "" "ramet {__version__}" "User Commands"',
        ".SH NAME",
        f"{_text(name)} \\- {_text(first_sentence(help_text).rstrip('.'))}",
        ".SH SYNOPSIS",
    ]


def _metavars(command: click.Command) -> Iterator[str]:
    for one in command.params:
        if isinstance(one, click.Argument):
            yield one.metavar or ""


def _arguments(command: click.Command) -> Iterator[str]:
    for one in command.params:
        if isinstance(one, click.Argument):
            yield from (".TP", f".I {_text(one.metavar or '')}", _text(one.help or ""))


def _options(command: click.Command) -> Iterator[str]:
    for one in command.params:
        if not isinstance(one, click.Option):
            continue
        names = ", ".join(f"\\fB{_text(name)}\\fR" for name in (*one.opts, *one.secondary_opts))
        value = "" if one.is_flag else f" \\fI{_text(one.metavar or '')}\\fR"
        yield from (".TP", names + value, _text(one.help or ""))
    yield from (".TP", "\\fB\\-h\\fR, \\fB\\-\\-help\\fR", "Show help.")


def _terms(terms: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for term, text in terms:
        yield from (".TP", f".B {_text(term)}", _text(text))


def _text(text: str) -> str:
    """Returns text whose characters roff does not interpret."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "")
    return "\\&" + escaped if escaped.startswith((".", "'")) else escaped
