# SPDX-License-Identifier: Apache-2.0
"""`ramet diff`: how the files of a fork differ from those of its parent."""

from __future__ import annotations

from typing import Sequence

from ramet import Client
from ramet.cli.failure import Failure
from ramet.cli.output import plain, print_json
from ramet.cli.service import sandbox_id


def diff(
    client: Client,
    name: str,
    other: str | None,
    paths: Sequence[str] | None,
    *,
    as_json: bool = False,
) -> None:
    """Prints the files in which two sandboxes differ.

    Args:
        client: The service.
        name: A sandbox.
        other: The sandbox that has the added files. None: compare the parent of `name` with it.
        paths: Absolute paths to compare; None: /root and /tmp.
        as_json: Print JSON.

    Raises:
        Failure: The sandbox has no parent.
    """
    one = sandbox_id(client, name)
    if other is not None:
        two = sandbox_id(client, other)
    else:
        parent = client.get_sandbox(one).parent
        if parent is None:
            raise Failure(f"{one} is not a fork", "name the sandbox to compare it with")
        one, two = parent, one
    found = client.diff_sandboxes(one, two, paths or None)
    if as_json:
        print_json({"added": found.added, "removed": found.removed, "modified": found.modified})
        return
    kinds = (("A", found.added), ("C", found.modified), ("D", found.removed))
    for path, kind in sorted((path, kind) for kind, changed in kinds for path in changed):
        print(kind, plain(path))
