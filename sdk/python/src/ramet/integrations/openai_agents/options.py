# SPDX-License-Identifier: Apache-2.0
"""Options and serializable state of a session."""

from __future__ import annotations

from typing import Any, Literal

from agents.sandbox.session import SandboxSessionState
from agents.sandbox.session.sandbox_client import BaseSandboxClientOptions
from pydantic import AliasChoices, Field

SESSION_KEY = "openai_agents_session"
"""Member of a sandbox's metadata: the id of its session, by which a resume finds it again."""

SNAPSHOT_KEY = "openai_agents_snapshot"
"""Member of a Space's metadata: the snapshot that the Space holds."""


class RametSandboxClientOptions(BaseSandboxClientOptions):
    """How to create the sandbox of a session.

    Attributes:
        template: Name of the template. None: the service's default.
        vcpus: Virtual CPUs. None: the template's.
        ram_mib: Memory in MiB. None: the template's.
        rootfs_gb: Root disk in GiB. None: the template's.
        lifetime_seconds: Lifetime in seconds. None: the service's default. Its former name,
            `timeout_seconds`, is accepted too.
        idle_timeout_seconds: Seconds without activity after which it ends. None: the default.
        egress: False: it can never send to the network.
        env: Environment variables of Python code; commands have those of the manifest.
        metadata: JSON object that is stored with the sandbox, beside the session's id.
        exposed_ports: Ports that `session.resolve_exposed_port` may be called for.
        public_ports: Everybody may reach exposed ports. False: their URL needs its token.
        pause_on_exit: At the end of a run, freeze the sandbox instead of ending it; the session's
            state then resumes it, memory and processes included.
        workspace_persistence: What a snapshot of the session holds. "tar": the workspace's files.
            "space": a Space, with the whole sandbox and its memory; the Space stays on the
            service's disk until the session's next snapshot replaces it, or until it is deleted.
    """

    type: Literal["ramet"] = "ramet"
    template: str | None = None
    vcpus: int | None = None
    ram_mib: int | None = None
    rootfs_gb: int | None = None
    lifetime_seconds: int | None = Field(
        default=None, validation_alias=AliasChoices("lifetime_seconds", "timeout_seconds")
    )
    idle_timeout_seconds: int | None = None
    egress: bool | None = None
    env: dict[str, str] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(default_factory=dict)
    exposed_ports: tuple[int, ...] = ()
    public_ports: bool = False
    pause_on_exit: bool = False
    workspace_persistence: Literal["tar", "space"] = "tar"


class RametSandboxSessionState(SandboxSessionState):
    """What a later process needs to continue a session.

    Attributes:
        sandbox_id: The sandbox.
        space_id: The Space that the sandbox was frozen into; None while it runs.
        snapshot_space_id: The Space that the session's snapshot refers to.
        options: The options of the session.
    """

    type: Literal["ramet"] = "ramet"
    sandbox_id: str
    space_id: str | None = None
    snapshot_space_id: str | None = None
    options: RametSandboxClientOptions = Field(default_factory=RametSandboxClientOptions)

    def sandbox_metadata(self) -> dict[str, Any]:
        """Returns the metadata of the session's sandbox."""
        return {**self.options.metadata, SESSION_KEY: self.session_id.hex}
