# SPDX-License-Identifier: Apache-2.0
"""`ramet rm`: removes sandboxes and Spaces."""

from __future__ import annotations

from typing import Sequence

from ramet import Client, NotFound, RametError
from ramet.cli import service
from ramet.cli.failure import FAILED, Failure, complain


def run(client: Client, names: Sequence[str], *, force: bool = False) -> int:
    """Removes each of the sandboxes and Spaces, and prints its id.

    A failure does not keep it from the others.

    Args:
        client: The service.
        names: Ids, perhaps abbreviated.
        force: Ignore those that do not exist.

    Returns:
        The exit code of the command.
    """
    code = 0
    for name in names:
        try:
            print(_remove(client, name))
        except (RametError, Failure) as failed:
            if force and isinstance(failed, (NotFound, service.Unknown)):
                continue
            complain(failed)
            code = FAILED
    return code


def _remove(client: Client, name: str) -> str:
    if name.startswith(service.SPACE):
        full = service.space_id(client, name)
        client.delete_space(full)
    else:
        full = service.sandbox_id(client, name)
        client.delete_sandbox(full)
    return full
