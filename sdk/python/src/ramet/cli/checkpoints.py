# SPDX-License-Identifier: Apache-2.0
"""`ramet checkpoint` and `ramet checkpoints`: kept states of sandboxes."""

from __future__ import annotations

from typing import Mapping

from ramet import Client
from ramet.cli import listing
from ramet.cli.output import print_json
from ramet.cli.service import CHECKPOINT, checkpoint_id, sandbox_id


def keep(
    client: Client,
    what: str,
    *,
    name: str | None,
    labels: Mapping[str, str] | None,
    ttl: int | None,
    pin: bool | None,
    as_json: bool = False,
) -> None:
    """Takes a checkpoint of a sandbox, or changes one, and prints its id.

    Args:
        client: The service.
        what: A sandbox, or a checkpoint to change.
        name: Its name.
        labels: Its labels.
        ttl: Seconds after which the service deletes it.
        pin: Whether it is pinned. None: unchanged; a new one is not.
        as_json: Print JSON.
    """
    if what.startswith(CHECKPOINT):
        one = client.update_checkpoint(
            checkpoint_id(client, what), name=name, labels=labels, ttl_seconds=ttl, pin=pin
        )
    else:
        one = client.take_checkpoint(
            sandbox_id(client, what), name=name, labels=labels, ttl_seconds=ttl, pin=bool(pin)
        )
    if as_json:
        print_json(dict(one.raw))
    else:
        print(one.id)


def show(
    client: Client,
    sandbox: str | None,
    *,
    name: str | None,
    labels: Mapping[str, str] | None,
    as_json: bool = False,
    quiet: bool = False,
) -> None:
    """Prints the checkpoints, or those of one sandbox, which may have ended if its id is whole."""
    of = sandbox_id(client, sandbox) if sandbox else None
    found = list(client.iter_checkpoints(name=name, labels=labels, sandbox=of))
    listing.checkpoints(found, as_json=as_json, quiet=quiet)


def prune(
    client: Client,
    sandbox: str | None,
    *,
    keep: int | None,
    older_than: int | None,
    dry_run: bool,
    as_json: bool = False,
) -> None:
    """Deletes old checkpoints, and prints their ids."""
    pruned = client.prune_checkpoints(
        keep=keep,
        older_than_seconds=older_than,
        sandbox=sandbox_id(client, sandbox) if sandbox else None,
        dry_run=dry_run,
    )
    if as_json:
        print_json({"checkpoints": pruned.checkpoints, "bytes": pruned.size_bytes})
    else:
        for one in pruned.checkpoints:
            print(one)
