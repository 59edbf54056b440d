# SPDX-License-Identifier: Apache-2.0
"""Reads values of options: times, sizes, variables."""

from __future__ import annotations

import os
import re
from typing import Any, Iterable

import click


class _Number(click.ParamType[int]):
    """A whole number with a unit.

    Args:
        name: What it is, for messages, with examples.
        units: The units, by what they are multiplied with.
    """

    def __init__(self, name: str, units: dict[str, int]) -> None:
        self.name = name
        self._units = units

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Returns the number in the smallest unit."""
        found = re.fullmatch(r"(\d{1,12})([a-z]?)", str(value).strip().lower())
        if not found or found[2] not in self._units:
            self.fail(f"{value!r} is not {self.name}", param, ctx)
        return int(found[1]) * self._units[found[2]]


DURATION = _Number(
    "a time, such as 90, 30m, 2h or 1d", {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
)
MEMORY = _Number("a size, such as 512m or 2g", {"": 1, "m": 1, "g": 1024})


def variables(items: Iterable[str] | None) -> dict[str, str] | None:
    """Returns the variables of options such as `-e NAME=VALUE`; `-e NAME` copies one from here."""
    if not items:
        return None
    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not name:
            raise click.BadParameter(f"{item!r} has no name; write NAME=VALUE")
        if equals:
            found[name] = value
        elif name in os.environ:
            found[name] = os.environ[name]
    return found


def pairs(items: Iterable[str] | None) -> dict[str, str] | None:
    """Returns the members of options such as `--metadata NAME=VALUE`."""
    if not items:
        return None
    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{item!r} is not NAME=VALUE")
        found[name] = value
    return found


BUDGET = ("live", "ram_mib", "cpu_seconds", "wall_seconds", "depth", "at_limit")


def budget(items: Iterable[str] | None) -> dict[str, str | int] | None:
    """Returns the members of `--tree` options: numbers, and words."""
    found = pairs(items)
    if found is None:
        return None
    for name in found:
        if name not in BUDGET:  # the service would ignore it, and nothing would be limited
            raise click.BadParameter(f"{name!r} is none of {', '.join(BUDGET)}")
    return {name: int(v) if v.isdecimal() else v for name, v in found.items()}


def each_call(keep: int | None) -> dict[str, int] | None:
    """Returns the value of `--checkpoint-each-call`."""
    return None if keep is None else {"keep": keep}


def metadata(items: Iterable[str] | None, name: str | None) -> dict[str, str] | None:
    """Returns the members of `--metadata` options, and that of `--name`."""
    found = pairs(items)
    return found if name is None else {**(found or {}), "name": name}
