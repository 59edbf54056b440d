# SPDX-License-Identifier: Apache-2.0
"""`ramet logs`: output that a sandbox keeps; `ramet events`: what happened to sandboxes."""

from __future__ import annotations

import json
import time

from ramet import Client, NotFound, Sandbox
from ramet.cli import programs
from ramet.cli.output import plain
from ramet.cli.service import process_id

_PAUSE_S = 1.0  # between two checks for a new call


def of_calls(sandbox: Sandbox, *, follow: bool = False) -> None:
    """Prints the output of the latest calls, up to the last 1,000 events.

    Args:
        sandbox: The sandbox.
        follow: Go on with new output until the sandbox ends.
    """
    seen = 0
    for event in sandbox.replay():
        programs.show([event])
        seen = event.seq
    while follow:
        try:
            for event in sandbox.follow(since=seen):
                programs.show([event])
                seen = event.seq
        except NotFound:  # the sandbox has ended
            return
        time.sleep(_PAUSE_S)


def of_process(sandbox: Sandbox, name: str, *, follow: bool = False) -> int:
    """Prints the kept output of a process; with `follow`, also new output up to its end.

    Returns:
        Its exit code if it has ended, otherwise 0.
    """
    info = sandbox.processes.get(process_id(sandbox, name))
    process = sandbox.processes.attach(info.id)
    if follow or not info.running:
        return programs.copy_output(process)
    if info.output_bytes:
        programs.copy_output(process, until=info.output_bytes)
    return 0


def of_host(
    client: Client,
    *,
    since: int | None = None,
    follow: bool = False,
    newest: int | None = None,
    as_json: bool = False,
) -> None:
    """Prints a line for each event of sandboxes and keys, oldest first.

    Arguments as for `Client.events`; `newest` prints only the last ones.
    """
    all_of_them = client.events(since=since, follow=follow, limit=newest, newest_first=newest is not None)
    for event in reversed(list(all_of_them)) if newest else all_of_them:
        known = {name: value for name, value in vars(event).items() if value is not None}
        words = [event.time, event.event, event.sandbox or event.key or "-"]
        further = ("parent", "winner", "space", "checkpoint", "previous")
        words += [f"{name} {known[name]}" for name in further if name in known]
        words += [event.text] if event.text else []
        print(json.dumps(known) if as_json else plain("  ".join(words)), flush=True)
