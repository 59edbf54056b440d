# SPDX-License-Identifier: Apache-2.0
"""Completions: the scripts for shells, and the values that are asked from the service."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Callable, Iterable

import click
from click.shell_completion import get_completion_class

from ramet.cli.failure import Failure

if TYPE_CHECKING:
    from ramet import Client

_ANSWER_S = 2.0  # a shell that waits longer than this seems to hang


def script(root: click.Command, shell: str) -> str:
    """Returns the completions for a shell.

    Raises:
        Failure: There are none for it.
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise Failure(f"there are no completions for {shell!r}", "name bash, zsh or fish")
    return kind(root, {}, "ramet", "_RAMET_COMPLETE").source()


def complete_sandbox(incomplete: str) -> list[str]:
    """Returns the ids of sandboxes that begin so; none if the service does not answer."""
    return _ask(incomplete, lambda client: (one.id for one in client.iter_sandboxes()))


def complete_space(incomplete: str) -> list[str]:
    """Returns the ids of Spaces that begin so; likewise."""
    return _ask(incomplete, lambda client: (one.id for one in client.iter_spaces()))


def complete_checkpoint(incomplete: str) -> list[str]:
    """Returns the ids of checkpoints that begin so; likewise."""
    return _ask(incomplete, lambda client: (one.id for one in client.iter_checkpoints()))


def complete_any(incomplete: str) -> list[str]:
    """Returns the ids of sandboxes, Spaces and checkpoints that begin so; likewise."""
    complete = (complete_sandbox, complete_space, complete_checkpoint)
    return [one for some in complete for one in some(incomplete)]


def complete_word(*words: str) -> Callable[[str], list[str]]:
    """Returns a function that completes one of these words."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def complete_template(incomplete: str) -> list[str]:
    """Returns the names of templates that begin so; likewise."""
    return _ask(incomplete, lambda client: (one.name for one in client.templates()))


def _ask(incomplete: str, names: Callable[["Client"], Iterable[str]]) -> list[str]:
    from ramet.cli.service import connect
    from ramet.errors import RametError

    def fits(name: str) -> bool:
        # A shell inserts a completion unquoted, so a service must not be able to send "$(...)".
        return name.startswith(incomplete) and bool(re.fullmatch(r"[\w.-]+", name, re.ASCII))

    try:
        with connect(timeout=_ANSWER_S, retry_seconds=0) as client:
            return [name for name in names(client) if fits(name)]
    except (RametError, Failure):
        return []
