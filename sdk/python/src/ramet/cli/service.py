# SPDX-License-Identifier: Apache-2.0
"""Connections to the service, and ids that may be abbreviated."""

from __future__ import annotations

from typing import Callable, Iterable

from ramet import Client, Sandbox
from ramet.cli import settings
from ramet.cli.failure import Failure

SANDBOX = "sbx_"
SPACE = "spc_"
CHECKPOINT = "chk_"
_KINDS = {SANDBOX: "sandbox", SPACE: "Space", CHECKPOINT: "checkpoint"}
_ID_LEN = 36  # prefix and 32 hexadecimal digits


class Unknown(Failure):
    """No sandbox, Space, checkpoint or process has such an id."""


def connect(
    place: settings.Settings | None = None, *, timeout: float = 60.0, retry_seconds: float = 10.0
) -> Client:
    """Returns a client for the service in the settings. Arguments as for `Client`."""
    place = place or settings.load()
    return Client(
        place.host,
        place.api_key,
        ca_file=place.ca_file,
        timeout=timeout,
        retry_seconds=retry_seconds,
    )


def open_sandbox(client: Client, name: str) -> Sandbox:
    """Returns the sandbox with an id that may be abbreviated."""
    return Sandbox.connect(sandbox_id(client, name), client=client)


def sandbox_id(client: Client, name: str) -> str:
    """Returns the full id of a sandbox.

    Args:
        client: The service, which is asked only if the id is abbreviated.
        name: An id, or as much of its beginning as is unambiguous, with or without `sbx_`.

    Raises:
        Failure: No id, or more than one, begins so.
    """
    return _full(
        name, SANDBOX, lambda: (one.id for one in client.iter_sandboxes()), "sandbox", "ramet ls"
    )


def space_id(client: Client, name: str) -> str:
    """Returns the full id of a Space; see `sandbox_id`."""
    return _full(
        name, SPACE, lambda: (one.id for one in client.iter_spaces()), "Space", "ramet spaces"
    )


def checkpoint_id(client: Client, name: str) -> str:
    """Returns the full id of a checkpoint; see `sandbox_id`."""
    return _full(
        name,
        CHECKPOINT,
        lambda: (one.id for one in client.iter_checkpoints()),
        "checkpoint",
        "ramet checkpoints",
    )


def process_id(sandbox: Sandbox, name: str) -> str:
    """Returns the full id of a process or terminal of a sandbox; see `sandbox_id`."""
    if len(name) == _ID_LEN:
        return name
    known = [one.id for one in sandbox.processes.list()]
    fitting = [one for one in known if name and (one.startswith(name) or one[4:].startswith(name))]
    return _only(fitting, name, "process", "`ramet exec -d` prints the id of a process")


def short(full: str | None) -> str:
    """Returns an id as tables show it: its prefix and 12 digits."""
    return full[: len(SANDBOX) + 12] if full else "-"


def _full(
    name: str, prefix: str, known: Callable[[], Iterable[str]], kind: str, command: str
) -> str:
    if name.startswith(prefix) and len(name) == _ID_LEN:
        return name
    remedy = f"`{command}` lists them"
    for other, what in _KINDS.items():
        if other != prefix and name.startswith(other):
            raise Failure(f"{name} is the id of a {what}, not of a {kind}", remedy)
    digits = name.removeprefix(prefix)
    if not digits or not set(digits) <= set("0123456789abcdef"):
        raise Failure(f"{name!r} is not the id of a {kind}", remedy)
    return _only([one for one in known() if one.startswith(prefix + digits)], name, kind, remedy)


def _only(fitting: list[str], name: str, kind: str, remedy: str) -> str:
    if not fitting:
        raise Unknown(f"there is no {kind} {name}", remedy)
    if len(fitting) > 1:
        some = ", ".join(fitting[:3]) + (", …" if len(fitting) > 3 else "")
        raise Failure(f"{name} is ambiguous: {some}", "use more digits of the id")
    return fitting[0]
