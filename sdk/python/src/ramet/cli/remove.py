# SPDX-License-Identifier: Apache-2.0
"""`ramet rm` removes sandboxes, Spaces and checkpoints, `ramet kill` ends processes."""

from __future__ import annotations

from typing import Callable, Sequence

from ramet import Client, NotFound, RametError, Sandbox
from ramet.cli import service
from ramet.cli.failure import FAILED, Failure, complain


def run(client: Client, names: Sequence[str], *, force: bool = False) -> int:
    """Removes each of the sandboxes, Spaces and checkpoints, and prints its id.

    A failure does not keep it from the others.

    Args:
        client: The service.
        names: Ids, perhaps abbreviated.
        force: Ignore those that do not exist.

    Returns:
        The exit code of the command.
    """
    ignored = (NotFound, service.Unknown) if force else ()
    return _each(names, lambda name: _remove(client, name), ignored)


def kill(sandbox: Sandbox, names: Sequence[str], signal: str | None) -> int:
    """Ends each of the processes of a sandbox, and prints its id.

    Args:
        sandbox: The sandbox.
        names: Ids, perhaps abbreviated.
        signal: The signal for the program. None: kill it with all processes of its session.

    Returns:
        The exit code of the command.
    """

    def end(name: str) -> str:
        process = sandbox.processes.attach(service.process_id(sandbox, name))
        if signal is None:
            process.kill()
        else:
            process.signal(int(signal) if signal.isdecimal() else signal)
        return process.id

    return _each(names, end)


def _each(
    names: Sequence[str],
    work: Callable[[str], str],
    ignored: tuple[type[Exception], ...] = (),
) -> int:
    """Does the work for each name, and prints what it returns. Returns an exit code."""
    code = 0
    for name in names:
        try:
            print(work(name))
        except (RametError, Failure) as failed:
            if not isinstance(failed, ignored):
                complain(failed)
                code = FAILED
    return code


def _remove(client: Client, name: str) -> str:
    if name.startswith(service.SPACE):
        full = service.space_id(client, name)
        client.delete_space(full)
    elif name.startswith(service.CHECKPOINT):
        full = service.checkpoint_id(client, name)
        client.delete_checkpoint(full)
    else:
        full = service.sandbox_id(client, name)
        client.delete_sandbox(full)
    return full
