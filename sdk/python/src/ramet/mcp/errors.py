# SPDX-License-Identifier: Apache-2.0
"""Errors of tools: the service's code and sentence, and what a model can do about them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator

from mcp.server.mcpserver.exceptions import ToolError

from ramet.errors import (
    CapReached,
    ConnectionFailed,
    NotFound,
    RametError,
    Unauthorized,
    Unavailable,
)
from ramet.mcp.output import clean_output, shortened

_GONE = "its memory and files are lost. Make another one with create_sandbox."
_REMEDIES = {
    "not_found": "Call list to see the ids that exist.",
    "deleted": f"The sandbox was deleted; {_GONE}",
    "expired": f"The sandbox reached its timeout; {_GONE}",
    "stopped": f"The sandbox was stopped; {_GONE}",
    "vm_died": f"The sandbox's machine died; {_GONE}",
    "frozen": "Call resume with the Space's id, and use the new sandbox.",
    "merged": "The sandbox was merged into its parent: use the parent's id.",
    "rolled_back": "The sandbox went back to an earlier state while this ran: run it again.",
    "freezing": "Wait until the freeze is done, then call resume with the Space's id.",
    "not_a_descendant": "Only a fork of a sandbox, or of its forks, can be merged into it.",
    "unknown_template": "Call list with what='templates' to see the templates.",
    "no_such_file": "Call list_files on the folder to see its names.",
    "is_a_directory": "Call list_files to see what is in the folder.",
    "not_a_directory": "Use the path of a folder, or read_file for a file.",
    "bad_path": "Use an absolute path such as /root/file.",
    "disk_full": "Delete files in the sandbox, or create one with a larger rootfs_gb.",
    "too_large": "Name fewer or narrower paths.",
    "not_installed": "Use another language, or a template that has this one.",
    "space_damaged": "The Space cannot be resumed; delete it.",
    "checkpoint_damaged": "No sandbox can be started from it; delete it.",
    "pinned": "The user has pinned it: leave it, or ask the user to unpin it.",
    "egress_closed": "This sandbox can never have a network again; create another one.",
    "quota_reached": "Delete Spaces or checkpoints that are not needed: list shows them with "
    "what='spaces' and what='checkpoints'.",
    "cap_reached": "Delete sandboxes that are not needed: list shows them.",
    "key_missing": "The user must configure an API key: over stdio in RAMET_API_KEY, over HTTP in "
    "the header 'Authorization: Bearer KEY'.",
}
_REMEDIES_BY_CLASS: list[tuple[type[RametError], str]] = [
    (Unauthorized, "The user must configure a valid API key with the permission for this."),
    (CapReached, "Wait and try again, or use fewer sandboxes and calls at a time."),
    (Unavailable, "Wait and try again. If it stays, tell the user that the service is not ready."),
    (ConnectionFailed, "Tell the user that the Ramet service cannot be reached (RAMET_HOST)."),
    (NotFound, _REMEDIES["not_found"]),
]


def explain(error: RametError) -> str:
    """Returns the error's code and sentence, and a remedy if there is one."""
    code = error.code or type(error).__name__
    remedy = _REMEDIES.get(error.code) or next(
        (advice for kind, advice in _REMEDIES_BY_CLASS if isinstance(error, kind)), ""
    )
    wait = f" The service asks to wait {error.retry_after:g} s." if error.retry_after else ""
    said = shortened(clean_output(str(error)), 2000)
    return f"{code}: {said.rstrip('.')}.{wait} {remedy}".strip()


@contextmanager
def explained() -> Iterator[None]:
    """Raises errors of the SDK as errors of a tool."""
    try:
        yield
    except RametError as error:
        raise ToolError(explain(error)) from error
