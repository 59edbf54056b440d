# SPDX-License-Identifier: Apache-2.0
"""`ramet logs`: output that a sandbox keeps."""

from __future__ import annotations

import time

from ramet import NotFound, Sandbox
from ramet.cli import programs
from ramet.cli.service import process_id

_PAUSE_S = 1.0  # between two looks for a new call


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
