# SPDX-License-Identifier: Apache-2.0
"""How commands are declared: click, with sections, and functions that complete values."""

from __future__ import annotations

import inspect
import re
from typing import Any, Callable

import click
from click.shell_completion import CompletionItem

Values = Callable[[str], list[str]]
_OF_RAMET = ("--host", "-H", "--version")
# Former names of options.
_RENAMED = {"--time-limit": "--timeout", "--timeout": "--lifetime"}
AFTER_DASHES = "ramet.after_dashes"  # in a context's `meta`: the words after the first `--`
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Command(click.Command):
    """A command.

    Attributes:
        section: The section of the help that it is in.
    """

    section = ""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reads the command line. Options of `ramet` itself must be before the command."""
        if "--" in args:
            ctx.meta[AFTER_DASHES] = args[args.index("--") + 1 :]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as wrong:
            if wrong.option_name in _OF_RAMET:
                message = f"{wrong.option_name} goes before the command: ramet "
                message += f"{wrong.option_name} … {self.name}"
                raise click.UsageError(message, ctx) from None
            new = _RENAMED.get(wrong.option_name)
            if any(new in param.opts for param in self.params):
                raise click.UsageError(f"{wrong.option_name} is now called {new}", ctx) from None
            raise


class Commands(click.Group):
    """All commands, in sections of the help."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands, section by section, in the order of their declarations."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            section = command.section if isinstance(command, Command) else "Commands"
            sections.setdefault(section, []).append((name, first_sentence(command.help)))
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl(rows)


def argument(name: str, metavar: str, help: str, **settings: Any) -> Decorator:
    """Declares an argument.

    Args:
        name: The name of the function's parameter.
        metavar: How help shows it. It is optional if that begins with a bracket.
        help: The help.
        settings: As for `click.argument`; `values` is a function that completes it.
    """
    settings.setdefault("required", not metavar.startswith("["))
    return click.argument(name, metavar=metavar, help=help, **_values(settings))


def option(*names: str, **settings: Any) -> Decorator:
    """Declares an option: as `click.option`; `values` is a function that completes it."""
    return click.option(*names, **_values(settings))


def flag(*names: str, help: str) -> Decorator:
    """Declares an option without a value."""
    return click.option(*names, is_flag=True, help=help)


def help_of(function: Callable[..., Any]) -> str:
    """Returns the help that is a function's docstring, one line for each paragraph."""
    text = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text)


def first_sentence(text: str | None) -> str:
    """Returns the first sentence of a help, which summarizes a command."""
    return re.split(r"(?<=\.)\s", text or "")[0]


def _values(settings: dict[str, Any]) -> dict[str, Any]:
    values: Values | None = settings.pop("values", None)
    if values is not None:
        known = values
        settings["shell_complete"] = lambda ctx, param, begin: [
            CompletionItem(one) for one in known(begin)
        ]
    return settings
