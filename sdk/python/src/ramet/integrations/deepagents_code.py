# SPDX-License-Identifier: Apache-2.0
"""Deep Agents Code: `dcode --sandbox ramet`.

The package finds the provider by its entry point. The service and the key are those of the
environment: `RAMET_HOST` and `RAMET_API_KEY`.
"""

from __future__ import annotations

from typing import Any

try:
    from deepagents_code.integrations.sandbox_provider import (
        SandboxInstallHint,
        SandboxNotFoundError,
        SandboxProvider,
        SandboxProviderMetadata,
    )
except ImportError as missing:
    raise ImportError(
        "ramet.integrations.deepagents_code needs the package deepagents-code: "
        "pip install deepagents-code"
    ) from missing

from ramet import Checkpoint, Client, NotFound, Sandbox, VmDied
from ramet.integrations.deepagents import RametBackend

_WORKING_DIR = "/root"


class RametProvider(SandboxProvider):
    """Creates, finds and ends the sandboxes of Deep Agents Code."""

    @property
    def metadata(self) -> SandboxProviderMetadata:
        """What `dcode` shows and checks without creating a sandbox."""
        return SandboxProviderMetadata(
            name="ramet",
            working_dir=_WORKING_DIR,
            install=SandboxInstallHint(kind="package", name="ramet[deepagents]"),
            supports_sandbox_id=True,
            supports_snapshot_name=True,
            backend_module="ramet.integrations.deepagents",
        )

    def get_or_create(
        self, *, sandbox_id: str | None = None, snapshot: str | None = None, **kwargs: Any
    ) -> RametBackend:
        """Returns the backend of a running sandbox, or of a new one.

        Args:
            sandbox_id: Id of a running sandbox. None: a new one.
            snapshot: For a new one, the checkpoint to start it from: its id, or a name, of which
                the newest checkpoint is taken.
            kwargs: For a new one, arguments of `RametBackend.create`, such as `template`,
                `ram_mib` and `cwd`.

        Raises:
            SandboxNotFoundError: There is no sandbox with this id, or no such checkpoint.
            RametError: As `ramet.Sandbox`.
        """
        options = {"cwd": _WORKING_DIR, **kwargs}
        if snapshot is not None:
            options["checkpoint"] = _checkpoint(snapshot)
        if sandbox_id is None:
            return RametBackend.create(**options)
        try:
            return RametBackend(Sandbox.connect(sandbox_id), cwd=options["cwd"])
        except (NotFound, VmDied) as gone:
            raise SandboxNotFoundError(str(gone)) from gone

    def delete(self, *, sandbox_id: str, **kwargs: Any) -> None:
        """Ends a sandbox.

        Raises:
            SandboxNotFoundError: There is no sandbox with this id.
        """
        with Client() as client:
            try:
                client.delete_sandbox(sandbox_id)
            except (NotFound, VmDied) as gone:
                raise SandboxNotFoundError(str(gone)) from gone


def _checkpoint(snapshot: str) -> Checkpoint | str:
    if snapshot.startswith("chk_"):
        return snapshot
    named = Checkpoint.list(name=snapshot)
    if not named:
        raise SandboxNotFoundError(f"there is no checkpoint with the name {snapshot!r}")
    # In a fleet, the last one is that of the last host.
    return max(named, key=lambda one: one.created_at)
