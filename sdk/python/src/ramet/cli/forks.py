# SPDX-License-Identifier: Apache-2.0
"""`ramet fork`, `ramet diff` and `ramet merge`: how the files of a fork differ, and what becomes of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Sequence

from ramet import Client, RametError
from ramet.cli.failure import FAILED, Failure, complain
from ramet.cli.output import plain, print_json
from ramet.cli.service import CHECKPOINT, SPACE, checkpoint_id, sandbox_id, space_id
from ramet.types import Conflicts


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
        other: The sandbox or checkpoint that has the added files. None: compare the parent of `name`
            with it.
        paths: Absolute paths to compare; None: /root and /tmp.
        as_json: Print JSON.

    Raises:
        Failure: The sandbox has no parent.
    """
    one = sandbox_id(client, name)
    if other is not None:
        two = (checkpoint_id if other.startswith(CHECKPOINT) else sandbox_id)(client, other)
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


def fork(
    client: Client, source: str, n: int, *, reseed: bool, as_json: bool = False
) -> int:
    """Forks a sandbox, or starts sandboxes from a checkpoint or a Space, and prints their ids.

    Args:
        client: The service.
        source: The sandbox, checkpoint or Space.
        n: Number of children.
        reseed: Seed Python's and numpy's generators anew in each.
        as_json: Print JSON.

    Returns:
        The exit code of the command: a failure if some could not be started.
    """
    errors: list[RametError] = []
    if source.startswith((CHECKPOINT, SPACE)):
        frozen = source.startswith(SPACE)
        full = (space_id if frozen else checkpoint_id)(client, source)
        started = (client.fork_space if frozen else client.fork_checkpoint)(full, n, reseed=reseed)
        children, errors = started.children, started.errors
    else:
        full = sandbox_id(client, source)
        children = client.fork_sandbox(full, n, reseed=reseed)
    if as_json:
        print_json({"parent": full, "children": children})
    else:
        print("\n".join(children))
    for one in errors:
        complain(one)
    return FAILED if errors else 0


def merge(client: Client, parent: str, winner: str) -> None:
    """Gives a sandbox the VM of one of its forks, and prints its id."""
    kept = sandbox_id(client, parent)
    client.merge_sandbox(kept, sandbox_id(client, winner))
    print(kept)


def merge_files(
    client: Client,
    parent: str,
    branches: Sequence[str],
    base: str,
    paths: Sequence[str],
    *,
    conflicts: Conflicts,
    as_json: bool = False,
) -> None:
    """Brings the files that forks changed into their parent, and prints what became of them.

    Args:
        client: The service.
        parent: The sandbox that gets the files.
        branches: Forks of it.
        base: An unchanged child of the same fork.
        paths: Absolute paths to merge; empty: /root and /tmp.
        conflicts: What to do with conflicts.
        as_json: Print JSON.

    Raises:
        Failure: There are conflicts that are not resolved.
    """
    merged = client.merge_files(
        sandbox_id(client, parent),
        [sandbox_id(client, branch) for branch in branches],
        base_id=sandbox_id(client, base),
        paths=paths or None,
        conflicts=conflicts,
    )
    if as_json:
        print_json(asdict(merged))
    else:
        letters = {"added": "A", "modified": "C", "removed": "D", "merged": "M"}
        lines = [(one.path, letters.get(one.change, "C"), "") for one in merged.taken]
        lines += [(one.path, "U", f" ({one.reason})") for one in merged.conflicts]
        for path, letter, reason in sorted(lines):
            print(letter, plain(path) + reason)
    left = sum(one.resolution is None for one in merged.conflicts)
    if not merged.applied:
        raise Failure(
            f"nothing was written: {left} conflicts", "choose with --conflicts what becomes of them"
        )
    if left:
        raise Failure(f"{left} conflicts are left", "these files stay as they were")
