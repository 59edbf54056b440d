# SPDX-License-Identifier: Apache-2.0
"""Sessions are saved, paused and resumed."""

from __future__ import annotations

import io
import uuid
from pathlib import Path
from typing import Any

import pytest
from agents import RunConfig, Runner
from agents.run_config import SandboxRunConfig
from agents.sandbox import Manifest, SandboxAgent
from agents.sandbox.errors import WorkspaceArchiveReadError, WorkspaceArchiveWriteError
from agents.sandbox.session import SandboxSession, SandboxSessionState
from agents.sandbox.snapshot import LocalSnapshotSpec
from agents.testing import ScriptedModel, assistant_message, function_call
from openai_fixtures import anyio_backend, client, nothing_is_left_behind, root, session

from ramet import AsyncFiles, Client, Sandbox
from ramet.errors import CapReached
from ramet.integrations.openai_agents import (
    RametSandboxClient,
    RametSandboxClientOptions,
    RametSandboxSessionState,
    sandbox_of,
)
from ramet.integrations.openai_agents.options import SNAPSHOT_KEY
from ramet.integrations.openai_agents.snapshots import MAGIC, Reference, decode

__all__ = ["anyio_backend", "client", "nothing_is_left_behind", "root", "session"]
pytestmark = pytest.mark.anyio


def again(client: RametSandboxClient, session: SandboxSession) -> SandboxSessionState:
    """Returns the state of a session as another process gets it."""
    payload = client.serialize_session_state(session.state)
    return SandboxSessionState.parse(client.deserialize_session_state(payload).model_dump())


def ramet_state(session: SandboxSession) -> RametSandboxSessionState:
    assert isinstance(session.state, RametSandboxSessionState)
    return session.state


def snapshot_spaces(key: str) -> list[str]:
    with Client() as client:
        return [one.id for one in client.list_spaces() if one.metadata.get(SNAPSHOT_KEY) == key]


async def put(session: SandboxSession, path: str, text: str) -> None:
    await session.write(Path(path), io.BytesIO(text.encode()))


async def get(session: SandboxSession, path: str) -> str:
    content: bytes = (await session.read(Path(path))).read()
    return content.decode()


async def test_tar_snapshot_fills_a_new_sandbox(
    client: RametSandboxClient, root: str, tmp_path: Path
) -> None:
    snapshot = LocalSnapshotSpec(base_path=tmp_path)
    async with await client.create(manifest=Manifest(root=root), snapshot=snapshot) as first:
        await put(first, "sub/file", "kept")
        await first.exec("ln -s sub/file link")
    assert len(list(tmp_path.glob("*.tar"))) == 1
    resumed = await client.resume(again(client, first))
    assert ramet_state(resumed).sandbox_id != ramet_state(first).sandbox_id
    async with resumed as second:
        assert await get(second, "link") == "kept"


async def test_running_sandbox_is_connected_to(client: RametSandboxClient, root: str) -> None:
    async with await client.create(manifest=Manifest(root=root)) as first:
        await put(first, "file", "kept")
        second = await client.resume(again(client, first))
        await second.start()
        assert ramet_state(second).sandbox_id == ramet_state(first).sandbox_id
        assert await get(second, "file") == "kept"


@pytest.mark.vm
async def test_paused_sandbox_continues_with_its_memory(
    client: RametSandboxClient, root: str
) -> None:
    options = RametSandboxClientOptions(pause_on_exit=True)
    first = await client.create(manifest=Manifest(root=root), options=options)
    async with first:
        await put(first, "file", "kept")
        await sandbox_of(first).run_code("answer = 42")
    assert ramet_state(first).space_id is not None and not await first.running()
    await client.delete(first)  # the runner does this too; the Space stays

    second = await client.resume(again(client, first))
    async with second:
        assert await second.running()
        assert (await sandbox_of(second).run_code("print(answer)")).stdout == "42\n"
        assert await get(second, "file") == "kept"
        ramet_state(second).options = RametSandboxClientOptions()  # end it this time


async def test_sandbox_frozen_by_somebody_else_is_found(
    client: RametSandboxClient, root: str
) -> None:
    first = await client.create(manifest=Manifest(root=root))
    await first.start()
    await put(first, "file", "kept")
    state = again(client, first)  # knows nothing of the Space
    await sandbox_of(first).freeze()
    async with await client.resume(state) as second:
        assert await get(second, "file") == "kept"


async def test_agent_run_is_paused_and_resumed(client: RametSandboxClient, root: str) -> None:
    def agent(command: str) -> tuple[SandboxAgent, ScriptedModel]:
        call = function_call("exec_command", {"cmd": command}, call_id="1")
        model = ScriptedModel([[call], [assistant_message("done")]])
        return SandboxAgent(name="worker", model=model), model

    sandbox = SandboxRunConfig(
        client=client,
        manifest=Manifest(root=root),
        options=RametSandboxClientOptions(pause_on_exit=True),
    )
    first, _ = agent("echo kept >file")
    result = await Runner.run(first, "write", run_config=RunConfig(sandbox=sandbox))
    resume = result.to_state()
    paused = resume._sandbox
    assert paused is not None
    payload: Any = paused["session_state"]
    state = client.deserialize_session_state(payload)
    assert isinstance(state, RametSandboxSessionState) and state.space_id is not None
    state.options = RametSandboxClientOptions()
    second, model = agent("cat file")
    sandbox = SandboxRunConfig(client=client, session_state=state)
    result = await Runner.run(second, "read", run_config=RunConfig(sandbox=sandbox))
    assert "kept" in str(result.to_input_list())
    model.assert_complete()


@pytest.mark.vm
async def test_space_snapshot_is_restored_again_and_again(
    client: RametSandboxClient, root: str, tmp_path: Path
) -> None:
    options = RametSandboxClientOptions(workspace_persistence="space")
    manifest, snapshot = Manifest(root=root), LocalSnapshotSpec(base_path=tmp_path)
    first = await client.create(manifest=manifest, snapshot=snapshot, options=options)
    async with first:
        await put(first, "file", "old")
        await first.stop()  # a snapshot; the session continues
        old = decode(next(tmp_path.iterdir()).read_bytes())
        await put(first, "file", "kept")
        await sandbox_of(first).run_code("answer = 42")
    raw = next(tmp_path.iterdir()).read_bytes()
    reference = decode(raw)
    assert raw.startswith(MAGIC) and reference is not None and old is not None
    assert snapshot_spaces(old.key) == []  # replaced by the second snapshot
    try:
        for _ in range(2):
            resumed = await client.resume(again(client, first))
            await resumed.start()
            try:
                assert await get(resumed, "file") == "kept"
                assert (await sandbox_of(resumed).run_code("print(answer)")).stdout == "42\n"
                metadata = (await sandbox_of(resumed).info()).raw["metadata"]
                assert SNAPSHOT_KEY not in metadata
            finally:
                await resumed.shutdown()
    finally:
        with Client() as service:
            service.delete_space(reference.space_id)


async def test_restored_space_snapshot_stays(client: RametSandboxClient, root: str) -> None:
    options = RametSandboxClientOptions(workspace_persistence="space")
    async with await client.create(manifest=Manifest(root=root), options=options) as session:
        raw = (await session.persist_workspace()).read()
        reference = decode(raw)
        assert reference is not None
        seen = {sandbox_of(session).id}
        for _ in range(2):
            await session.hydrate_workspace(io.BytesIO(raw))
            info = await sandbox_of(session).info()
            assert SNAPSHOT_KEY not in info.metadata
            seen.add(info.id)
            assert snapshot_spaces(reference.key) == [reference.space_id]
        assert len(seen) == 3
        with Client() as service:
            service.delete_space(reference.space_id)


async def test_snapshot_whose_space_is_gone_says_so(
    client: RametSandboxClient, root: str
) -> None:
    gone = Reference("spc_" + "0" * 32, "nothing").encode()
    async with await client.create(manifest=Manifest(root=root)) as session:
        await put(session, "file", "kept")
        with pytest.raises(WorkspaceArchiveWriteError, match="is gone: it was deleted"):
            await session.hydrate_workspace(io.BytesIO(gone))
        with pytest.raises(WorkspaceArchiveWriteError, match="damaged"):
            await session.hydrate_workspace(io.BytesIO(MAGIC + b"{"))
        assert await get(session, "file") == "kept"


async def test_space_that_is_no_snapshot_is_not_used(
    client: RametSandboxClient, root: str
) -> None:
    with Sandbox() as other:
        space = other.freeze()
    try:
        async with await client.create(manifest=Manifest(root=root)) as session:
            forged = Reference(space.id, uuid.uuid4().hex).encode()
            with pytest.raises(WorkspaceArchiveWriteError, match="is gone"):
                await session.hydrate_workspace(io.BytesIO(forged))
        with Client() as service:
            assert service.get_space(space.id).id == space.id
    finally:
        space.delete()


async def test_tar_of_the_sandbox_cannot_name_a_space(
    client: RametSandboxClient, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged = Reference("spc_" + "0" * 32, "key").encode()
    async with await client.create(manifest=Manifest(root=root)) as session:
        # The archive that a replaced tar would write.
        download = AsyncFiles.download

        async def replaced(files: AsyncFiles, path: str, **options: Any) -> bytes:
            await files.upload(forged, path)
            return await download(files, path, **options)

        monkeypatch.setattr(AsyncFiles, "download", replaced)
        with pytest.raises(WorkspaceArchiveReadError) as refused:
            await session.persist_workspace()
        assert "name of a Space" in str(refused.value.context)


async def test_refused_space_falls_back_to_an_archive(
    client: RametSandboxClient, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(n: int = 1, *, reseed: bool = False) -> None:
        raise CapReached("no more Spaces", status=429, code="quota_reached")

    options = RametSandboxClientOptions(workspace_persistence="space")
    async with await client.create(manifest=Manifest(root=root), options=options) as session:
        await put(session, "file", "kept")
        monkeypatch.setattr(sandbox_of(session), "fork", refuse)
        archive = await session.persist_workspace()
        await session.rm("file")
        await session.hydrate_workspace(archive)
        assert await get(session, "file") == "kept"


async def test_failed_store_leaves_no_space(
    client: RametSandboxClient, root: str, tmp_path: Path
) -> None:
    options = RametSandboxClientOptions(workspace_persistence="space")
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    snapshot = LocalSnapshotSpec(base_path=blocked)  # not a folder
    session = await client.create(manifest=Manifest(root=root), snapshot=snapshot, options=options)
    await session.start()
    with pytest.raises(Exception, match="snapshot"):
        await session.stop()
    assert ramet_state(session).snapshot_space_id is None
    await session.shutdown()


async def test_archive_with_a_path_that_leads_out_is_refused(session: SandboxSession) -> None:
    import tarfile

    evil = io.BytesIO()
    with tarfile.open(fileobj=evil, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("../evil"))
    evil.seek(0)
    with pytest.raises(WorkspaceArchiveWriteError, match="evil"):
        await session.hydrate_workspace(evil)
