# SPDX-License-Identifier: Apache-2.0
"""The provider: creates, resumes and deletes sessions."""

from __future__ import annotations

import uuid
from types import TracebackType

from agents.sandbox.manifest import Manifest
from agents.sandbox.session import SandboxSession, SandboxSessionState
from agents.sandbox.session.dependencies import Dependencies
from agents.sandbox.session.manager import Instrumentation
from agents.sandbox.session.sandbox_client import BaseSandboxClient
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot

from ramet import AsyncClient, AsyncSandbox
from ramet.errors import NotFound, VmDied
from ramet.integrations.openai_agents.options import (
    SESSION_KEY,
    SNAPSHOT_KEY,
    RametSandboxClientOptions,
    RametSandboxSessionState,
)
from ramet.integrations.openai_agents.session import RametSandboxSession, inner_of


class RametSandboxClient(BaseSandboxClient[RametSandboxClientOptions | None]):
    """Ramet as sandbox provider of the OpenAI Agents SDK.

    It goes into `SandboxRunConfig(client=..., options=RametSandboxClientOptions(...))`. Close it,
    or use it in an `async with` block; sandboxes continue to run then.

    Args:
        host: The service's URL. None: from the environment, as for `ramet.AsyncClient`.
        api_key: The key. None: from the environment.
        region: The service's region. None: any.
        client: The service to use, instead of `host`, `api_key` and `region`.
        instrumentation: Receives an event for each operation of the sessions.
        dependencies: The SDK's dependencies, such as the client of remote snapshots.
    """

    backend_id = "ramet"
    supports_default_options = True

    def __init__(
        self,
        host: str | None = None,
        api_key: str | None = None,
        *,
        region: str | None = None,
        client: AsyncClient | None = None,
        instrumentation: Instrumentation | None = None,
        dependencies: Dependencies | None = None,
    ) -> None:
        self._owns_client = client is None
        self._client = client or AsyncClient(host, api_key, region=region)
        self._instrumentation = instrumentation or Instrumentation()
        self._dependencies = dependencies

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: RametSandboxClientOptions | None = None,
    ) -> SandboxSession:
        """Creates a sandbox; the session has yet to be started.

        Raises:
            ValueError: The manifest has mounts, which Ramet does not support.
            RametError: The service refuses it.
        """
        manifest = manifest or Manifest()
        _refuse_mounts(manifest)
        options = options or RametSandboxClientOptions()
        session_id = uuid.uuid4()
        state = RametSandboxSessionState(
            session_id=session_id,
            manifest=manifest,
            snapshot=resolve_snapshot(snapshot, str(session_id)),
            exposed_ports=options.exposed_ports,
            sandbox_id="",
            options=options,
        )
        sandbox = await self._new_sandbox(state)
        return self._wrap(RametSandboxSession(state, sandbox, self._client))

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Continues a session: its running sandbox, or the Space that it was frozen into.

        If neither exists any more, the session gets a new sandbox, which is filled from the
        session's snapshot when it is started.

        Raises:
            TypeError: It is the state of a session of another provider.
            RametError: The service refuses it.
        """
        if not isinstance(state, RametSandboxSessionState):
            raise TypeError(f"{type(state).__name__} is not the state of a Ramet session")
        state.assert_path_grants_rebound()
        _refuse_mounts(state.manifest)
        sandbox = await self._find_sandbox(state)
        found = sandbox is not None
        if sandbox is None:
            sandbox = await self._new_sandbox(state)
            state.workspace_root_ready = False
        inner = RametSandboxSession(state, sandbox, self._client)
        inner._set_start_state_preserved(found, system=found)
        return self._wrap(inner)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Ends the session's sandbox. One that was paused stays, so that it can be resumed.

        `RametSandboxSession.discard` also deletes a paused one.
        """
        inner = inner_of(session)
        if inner.state.space_id is None:
            await inner.shutdown()
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        """Returns the state for what `serialize_session_state` returned."""
        return self._deserialize_session_state_payload(payload, RametSandboxSessionState)

    async def close(self) -> None:
        """Closes the connections to the service. Sandboxes continue to run."""
        if self._owns_client:
            await self._client.close()

    async def __aenter__(self) -> "RametSandboxClient":
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.close()

    def _wrap(self, inner: RametSandboxSession) -> SandboxSession:
        return self._wrap_session(inner, instrumentation=self._instrumentation)

    async def _new_sandbox(self, state: RametSandboxSessionState) -> AsyncSandbox:
        options = state.options
        sandbox = await AsyncSandbox.create(
            template=options.template,
            vcpus=options.vcpus,
            ram_mib=options.ram_mib,
            rootfs_gb=options.rootfs_gb,
            lifetime_seconds=options.lifetime_seconds,
            idle_timeout_seconds=options.idle_timeout_seconds,
            persistent=options.pause_on_exit or None,
            egress=options.egress,
            env=options.env or None,
            metadata=state.sandbox_metadata(),
            client=self._client,
        )
        state.sandbox_id, state.space_id = sandbox.id, None
        return sandbox

    async def _find_sandbox(self, state: RametSandboxSessionState) -> AsyncSandbox | None:
        """Returns the running or frozen sandbox of a session; None if it has neither."""
        if state.space_id is None:
            try:
                return await AsyncSandbox.connect(state.sandbox_id, client=self._client)
            except (NotFound, VmDied):
                pass
        space_id = state.space_id or await self._space_of(state)
        if space_id is None:
            return None
        try:
            sandbox = await AsyncSandbox.resume(space_id, client=self._client)
        except NotFound:
            return None
        state.sandbox_id, state.space_id = sandbox.id, None
        return sandbox

    async def _space_of(self, state: RametSandboxSessionState) -> str | None:
        """Finds the Space of a sandbox that the service froze at a timeout."""
        found = None
        async for space in self._client.iter_spaces():
            ours = space.metadata.get(SESSION_KEY) == state.session_id.hex
            if ours and SNAPSHOT_KEY not in space.metadata:
                found = space.id
        return found


def _refuse_mounts(manifest: Manifest) -> None:
    mounts = [path.as_posix() for _, path in manifest.mount_targets()]
    if mounts:
        raise ValueError(f"Ramet sandboxes have no mounts: remove {', '.join(mounts)}")
