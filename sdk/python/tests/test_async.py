# SPDX-License-Identifier: Apache-2.0
"""What the asynchronous client does in its own way: cancellation, threads, local ports.

The rest is generated from the same source as the synchronous client, whose tests cover it.
"""

from __future__ import annotations

import asyncio
import gc
import io
import json
import os
import ssl
import subprocess
import tarfile
import threading
from pathlib import Path
from typing import Any, AsyncIterator, Awaitable, Callable, Coroutine

import anyio
import httpx
import pytest

import ramet
from ramet import AsyncClient, AsyncSandbox
from ramet._bodies import _CHUNK

SBX, PRC = "sbx_" + "0" * 32, "prc_" + "1" * 32
DEAD = {"type": "exit", "data": 137, "signal": "SIGKILL", "seq": 0, "ts": 1}

Handler = Callable[[httpx.Request], Awaitable[httpx.Response]]


def run(work: Coroutine[Any, Any, None]) -> None:
    """Runs a test; whatever would only be logged at its end is an error."""
    logged: list[str] = []

    async def watched() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: logged.append(str(context)))
        await work
        gc.collect()
        # Connections of the test's servers may need a moment to end.
        for _ in range(1000):
            if len(asyncio.all_tasks()) == 1:
                return
            await asyncio.sleep(0.005)
        raise AssertionError(asyncio.all_tasks())

    asyncio.run(watched())
    assert not logged


class Service:
    """A fake service. Requests that `holds` names are answered only after `released` is set.

    A client that was cancelled learns that its request had no effect.
    """

    def __init__(self, holds: str = "-", slow: float = 0) -> None:
        self.log: list[str] = []
        self.bodies: list[bytes] = []
        self.done: list[str] = []
        self.holds = holds
        self.slow = slow  # seconds that a deletion takes
        self.held, self.released = asyncio.Event(), asyncio.Event()
        self.cancelled: list[str] = []
        self.answers: dict[str, httpx.Response | Exception] = {}

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if "idempotent-replay" in request.headers:
            return httpx.Response(404, json={"error": "unknown", "code": "no_such_answer"})
        path = request.url.path.removeprefix("/v1/sandboxes").removeprefix(f"/{SBX}")
        name = f"{request.method} {path}".strip()
        self.log.append(name)
        self.bodies.append(await request.aread())
        if name == self.holds:
            self.held.set()
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.cancelled.append(name)
                raise
        answer = self.answers.get(name)
        if isinstance(answer, Exception):
            raise answer
        if answer:
            return answer
        if request.method == "DELETE":
            await asyncio.sleep(self.slow)
            self.done.append(name)
            return httpx.Response(204)
        return httpx.Response(200, json={"id": SBX, "state": "ready"})

    def client(self, **more: Any) -> AsyncClient:
        return AsyncClient(transport=httpx.MockTransport(self), **more)

    async def sandbox(self) -> AsyncSandbox:
        sandbox = await AsyncSandbox.create(client=self.client())
        self.log.clear()
        self.bodies.clear()
        return sandbox


async def cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# --- cancellation ---


async def head_of(reader: asyncio.StreamReader) -> bytes:
    """Returns the head of the next request, or nothing at the end of the connection."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


class Wire:
    """A service on a real socket: answers GET, and lets the client of a POST wait for ever."""

    def __init__(self) -> None:
        self.left = asyncio.Event()  # a client closed its connection during a POST
        self.reached = asyncio.Event()

    async def __aenter__(self) -> "Wire":
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.host = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await head_of(reader):
            if head.startswith(b"POST"):
                self.reached.set()
                while await reader.read(1000):
                    pass
                self.left.set()
                break
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")
            if b"stream" in head:
                break
        writer.close()


def test_cancelled_task_closes_its_request_and_leaves_the_client_usable() -> None:
    async def test() -> None:
        async with Wire() as wire, AsyncClient(wire.host) as client:
            for work in (client.create_sandbox, lambda: client.fork_sandbox(SBX)):
                wire.left.clear()
                wire.reached.clear()
                task = asyncio.ensure_future(work())
                await wire.reached.wait()
                await cancel(task)
                await asyncio.wait_for(wire.left.wait(), 60)
            assert await client.list_sandboxes() == []

    run(test())


def test_cancelled_stream_closes_its_request() -> None:
    async def test() -> None:
        async with Wire() as wire, AsyncClient(wire.host) as client:

            async def read() -> None:
                async for _ in client.exec_stream(SBX, "x"):
                    pass

            task = asyncio.ensure_future(read())
            await wire.reached.wait()
            await cancel(task)
            await asyncio.wait_for(wire.left.wait(), 60)
            assert await client.list_sandboxes() == []

    run(test())


def test_cancelled_block_closes_its_sandbox() -> None:
    async def test() -> None:
        service = Service(holds="POST /exec", slow=0.05)

        async def work() -> None:
            async with await AsyncSandbox.create(client=service.client()) as sbx:
                await sbx.run_code("x")

        task = asyncio.ensure_future(work())
        await service.held.wait()
        await cancel(task)
        assert service.done == ["DELETE"]
        assert service.log == ["POST", "POST /exec", "DELETE"]

    run(test())


def test_cancelled_scope_of_a_task_group_closes_its_sandbox() -> None:
    """A scope of anyio cancels every later wait, too."""

    async def test() -> None:
        service = Service(holds="POST /exec", slow=0.05)

        async def cancel_when_held() -> None:
            await service.held.wait()
            scope.cancel()

        task = asyncio.ensure_future(cancel_when_held())
        with anyio.CancelScope() as scope:
            async with await AsyncSandbox.create(client=service.client()) as sbx:
                await sbx.run_code("x")
        assert service.done == ["DELETE"]
        await task
        assert service.log == ["POST", "POST /exec", "DELETE"]
        assert service.cancelled == ["POST /exec"]

    run(test())


def test_close_ends_although_it_is_cancelled() -> None:
    async def test() -> None:
        service = Service(holds="DELETE")
        sbx = await service.sandbox()
        task = asyncio.ensure_future(sbx.close())
        await service.held.wait()
        asyncio.get_running_loop().call_soon(task.cancel)
        asyncio.get_running_loop().call_later(0.05, service.released.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert service.log == ["DELETE"] and service.cancelled == []

    run(test())


def test_close_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ramet._async._io._GRACE_S", 0.05)

    async def test() -> None:
        service = Service(holds="DELETE")
        sbx = await service.sandbox()
        task = asyncio.ensure_future(sbx.close())
        await service.held.wait()
        await cancel(task)
        await asyncio.sleep(0)
        assert service.cancelled == ["DELETE"]

    run(test())


def test_failure_of_a_close_after_its_cancellation_is_not_logged() -> None:
    async def test() -> None:
        service = Service(holds="DELETE")
        service.answers["DELETE"] = httpx.ReadTimeout("slow")
        sbx = await service.sandbox()
        task = asyncio.ensure_future(sbx.close())
        await service.held.wait()
        asyncio.get_running_loop().call_later(0.05, service.released.set)
        await cancel(task)

    run(test())


def test_own_client_is_closed_when_the_create_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        service = Service(holds="POST")
        client = service.client()
        monkeypatch.setattr("ramet._async.space.AsyncClient", lambda *_, **__: client)
        task = asyncio.ensure_future(AsyncSandbox.create())
        await service.held.wait()
        await cancel(task)
        assert client.closed and service.cancelled == ["POST"]

    run(test())


def test_concurrent_closes_delete_once() -> None:
    async def test() -> None:
        service = Service()
        sbx = await service.sandbox()
        await asyncio.gather(*(sbx.close() for _ in range(10)))
        assert service.log == ["DELETE"]

    run(test())


# --- requests that were given up ---


class Forgetful:
    """A fake service that performs requests, but whose answers to them do not arrive in time."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure  # None: the answer is never sent
        self.made: dict[str, Any] = {}  # the answer by key
        self.log: list[str] = []
        self.reached = asyncio.Event()

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        key = request.headers.get("idempotency-key", "")
        if request.headers.get("idempotent-replay") == "only":
            return httpx.Response(201, json=self.made[key])
        self.log.append(f"{request.method} {request.url.path}")
        if not request.url.path.endswith(("/v1/sandboxes", "/fork", "/resume")):
            return httpx.Response(204)
        self.made[key] = {"id": SBX, "state": "ready", "children": ["a", "b"]}
        if request.url.path.endswith("/fork"):
            del self.made[key]["id"]
        else:
            del self.made[key]["children"]
        self.reached.set()
        if self.failure:
            raise self.failure
        await asyncio.Event().wait()
        raise AssertionError

    def client(self) -> AsyncClient:
        return AsyncClient(transport=httpx.MockTransport(self))


GIVEN_UP: dict[str, tuple[Callable[[AsyncClient, str | None], Awaitable[Any]], list[str]]] = {
    "create": (
        lambda c, key: c.create_sandbox(idempotency_key=key),
        [f"DELETE /v1/sandboxes/{SBX}"],
    ),
    "fork": (
        lambda c, key: c.fork_sandbox(SBX, 2, idempotency_key=key),
        ["DELETE /v1/sandboxes/a", "DELETE /v1/sandboxes/b"],
    ),
    "resume": (
        lambda c, key: c.resume_space("spc_1", idempotency_key=key),
        [f"POST /v1/sandboxes/{SBX}/freeze"],
    ),
}


@pytest.mark.parametrize("name", GIVEN_UP)
def test_answer_that_a_cancelled_task_did_not_get_is_undone(name: str) -> None:
    async def test() -> None:
        ask, undone = GIVEN_UP[name]
        service = Forgetful()
        async with service.client() as client:
            task = asyncio.ensure_future(ask(client, None))
            await service.reached.wait()
            await cancel(task)
        assert service.log[1:] == undone

    run(test())


@pytest.mark.parametrize("name", GIVEN_UP)
def test_answer_that_did_not_come_is_undone(name: str) -> None:
    async def test() -> None:
        ask, undone = GIVEN_UP[name]
        service = Forgetful(httpx.ReadTimeout("too slow"))
        async with service.client() as client:
            with pytest.raises(ramet.ConnectionFailed):
                await ask(client, None)
        assert service.log[1:] == undone

    run(test())


@pytest.mark.parametrize("name", GIVEN_UP)
def test_request_with_the_callers_own_key_is_left_for_its_repetition(name: str) -> None:
    async def test() -> None:
        service = Forgetful()
        async with service.client() as client:
            task = asyncio.ensure_future(GIVEN_UP[name][0](client, "mine"))
            await service.reached.wait()
            await cancel(task)
        assert len(service.log) == 1 and list(service.made) == ["mine"]

    run(test())


# --- processes ---


def process_stream(*events: dict[str, Any]) -> httpx.Response:
    started = {"type": "started", "id": PRC, "pid": 7, "seq": 0, "ts": 1}
    return httpx.Response(200, text="".join(json.dumps(one) + "\n" for one in (started, *events)))


class Endless(httpx.AsyncByteStream):
    """A process's stream that ends when the process is killed."""

    def __init__(self, killed: asyncio.Event) -> None:
        self.killed = killed
        self.waits = asyncio.Event()
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield process_stream().content
        self.waits.set()
        await self.killed.wait()
        yield json.dumps(DEAD).encode()

    async def aclose(self) -> None:
        self.closed = True


@pytest.mark.parametrize("text", [None, "text"])
def test_cancelled_run_kills_its_program(text: str | None) -> None:
    async def test() -> None:
        service = Service()
        stream = Endless(asyncio.Event())
        service.answers["POST /processes"] = httpx.Response(200, stream=stream)
        sbx = await service.sandbox()
        task = asyncio.ensure_future(sbx.processes.run("x", input=text))
        last = f"DELETE /processes/{PRC}/stdin" if text else "POST /processes"
        while last not in service.log:
            await asyncio.sleep(0.001)
        await stream.waits.wait()
        await cancel(task)
        assert service.log[-1] == f"DELETE /processes/{PRC}" and stream.closed

    run(test())


def test_input_that_cannot_be_written_kills_the_program() -> None:
    async def test() -> None:
        service = Service()
        killed = asyncio.Event()
        service.answers["POST /processes"] = httpx.Response(200, stream=Endless(killed))
        full = {"error": "no room", "code": "stdin_full"}
        service.answers[f"POST /processes/{PRC}/stdin"] = httpx.Response(409, json=full)
        sbx = await service.sandbox()
        task = asyncio.ensure_future(sbx.processes.run("x", input="text"))
        while f"DELETE /processes/{PRC}" not in service.log:
            await asyncio.sleep(0.001)
        killed.set()
        with pytest.raises(ramet.Conflict, match="no room"):
            await task

    run(test())


def test_failure_of_the_output_ends_the_input() -> None:
    async def test() -> None:
        service = Service(holds=f"POST /processes/{PRC}/stdin")
        dead = {"type": "error", "data": "it died", "code": "vm_died"}
        service.answers["POST /processes"] = process_stream(dead)
        sbx = await service.sandbox()
        with pytest.raises(ramet.VmDied):
            await sbx.processes.run("x", input="text")

    run(test())


def test_iteration_continues_after_a_cancelled_one() -> None:
    async def test() -> None:
        service = Service()
        stream = Endless(asyncio.Event())
        service.answers["POST /processes"] = httpx.Response(200, stream=stream)
        service.answers[f"GET /processes/{PRC}/output"] = process_stream(DEAD)
        sbx = await service.sandbox()
        process = await sbx.processes.start("x")
        task = asyncio.ensure_future(process.wait())
        await stream.waits.wait()
        await cancel(task)
        assert (await process.wait()).exit_code == 137

    run(test())


# --- callbacks ---


def test_callbacks_may_be_coroutine_functions() -> None:
    async def test() -> None:
        lines = [
            {"type": "stdout", "data": "a", "seq": 1, "ts": 1},
            {"type": "exit", "data": 0, "seq": 2, "ts": 1},
        ]
        service = Service()
        text = "\n".join(map(json.dumps, lines))
        service.answers["POST /exec"] = httpx.Response(200, text=text)
        seen: list[str] = []

        async def note(data: str) -> None:
            await asyncio.sleep(0)
            seen.append(data)

        sbx = await service.sandbox()
        assert (await sbx.run_code("x", on_stdout=note)).stdout == "a"
        assert seen == ["a"]

    run(test())


# --- files and folders ---


class Pipe(io.RawIOBase):
    """A file object without a size, which notes the threads that read it."""

    def __init__(self, size: int) -> None:
        self.left = size
        self.threads: set[int] = set()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.threads.add(threading.get_ident())
        size = min(len(buffer), self.left)
        buffer[:size] = b"x" * size
        self.left -= size
        return size


class Memory(io.BytesIO):
    """A file object with a size, which notes the threads that read it."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.threads: set[int] = set()

    def read(self, size: int | None = -1, /) -> bytes:
        self.threads.add(threading.get_ident())
        return super().read(size)


def test_files_are_read_in_other_threads_and_progress_is_reported_in_the_loop() -> None:
    async def test() -> None:
        service = Service()
        sbx = await service.sandbox()
        here = threading.get_ident()
        reports: list[tuple[int, int, int | None]] = []
        for source in (Pipe(3 * _CHUNK), Memory(b"x" * 3 * _CHUNK)):
            reports.clear()
            await sbx.upload(
                source,  # type: ignore[arg-type]
                "/x",
                progress=lambda *now: reports.append((threading.get_ident(), *now)),
            )
            assert source.threads and here not in source.threads
            assert reports == [(here, n * _CHUNK, 3 * _CHUNK) for n in (1, 2, 3)]
            assert service.bodies.pop() == b"x" * 3 * _CHUNK

    run(test())


def test_exception_of_a_progress_function_ends_the_upload(tmp_path: Path) -> None:
    def fail(*_: object) -> None:
        raise KeyError("no more")

    async def test() -> None:
        service = Service()
        sbx = await service.sandbox()
        with pytest.raises(KeyError, match="no more"):
            await sbx.upload(b"x" * 3 * _CHUNK, "/x", progress=fail)
        (tmp_path / "file").write_bytes(b"x")
        with pytest.raises(KeyError, match="no more"):
            await sbx.files.upload_folder(tmp_path, "/x", progress=fail)

    run(test())


def test_bodies_of_each_kind_are_sent() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"a"
        await asyncio.sleep(0)
        yield b"b"

    async def test() -> None:
        service = Service()
        client = service.client()
        await client.write_file(SBX, "/x", b"bytes")
        await client.write_file(SBX, "/x", iter([b"1", b"2"]))
        await client.write_file(SBX, "/x", chunks())
        assert service.bodies == [b"bytes", b"12", b"ab"]

    run(test())


def test_upload_is_sent_again_when_its_connection_breaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def test() -> None:
        tries: list[bytes] = []

        async def handle(request: httpx.Request) -> httpx.Response:
            tries.append(await request.aread())
            if len(tries) < 3:
                raise httpx.ReadError("reset")
            return httpx.Response(204)

        client = AsyncClient(transport=httpx.MockTransport(handle))
        (tmp_path / "file").write_bytes(b"whole" * 100_000)
        await ramet.AsyncFiles(SBX, lambda: client).upload(tmp_path / "file", "/x")
        assert tries == [b"whole" * 100_000] * 3 and len(waits) == 2

    monkeypatch.setattr("ramet._async._transport.sleep", sleep)
    run(test())


def test_retry_after_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def test() -> None:
        keys: list[str | None] = []

        async def handle(request: httpx.Request) -> httpx.Response:
            keys.append(request.headers.get("idempotency-key"))
            if len(keys) == 1:
                busy = {"error": "not now", "code": "busy"}
                return httpx.Response(503, json=busy, headers={"retry-after": "3"})
            return httpx.Response(201, json={"id": SBX, "state": "ready"})

        client = AsyncClient(transport=httpx.MockTransport(handle))
        await AsyncSandbox.create(client=client)
        assert len(set(keys)) == 1 and keys[0] is not None
        assert 3 <= waits[0] < 4

    monkeypatch.setattr("ramet._async._transport.sleep", sleep)
    run(test())


class Archive(httpx.AsyncByteStream):
    """An archive of a large file that stops in the middle."""

    def __init__(self) -> None:
        self.sent = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        entry = tarfile.TarInfo("large")
        entry.size = 100 << 20
        yield entry.tobuf()
        yield b"x" * (2 << 20)
        self.sent.set()
        await asyncio.sleep(1000)

    async def aclose(self) -> None:
        pass


def test_cancelled_download_of_a_folder_ends_its_thread(tmp_path: Path) -> None:
    async def test() -> None:
        service = Service()
        archive = Archive()
        service.answers["GET /files/archive"] = httpx.Response(200, stream=archive)
        sbx = await service.sandbox()
        task = asyncio.ensure_future(sbx.files.download_folder("/x", tmp_path / "to"))
        await archive.sent.wait()
        await cancel(task)
        assert (tmp_path / "to" / "large").exists()

    threads = threading.active_count()
    run(test())
    assert threading.active_count() <= threads


def test_progress_of_a_folder_is_reported_in_the_loop(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in ("a", "b"):
            entry = tarfile.TarInfo(name)
            entry.size = 100_000
            tar.addfile(entry, io.BytesIO(bytes(100_000)))

    async def test() -> None:
        service = Service()
        service.answers["GET /files/archive"] = httpx.Response(200, content=out.getvalue())
        sbx = await service.sandbox()
        reports: list[tuple[int, int, int | None]] = []

        def note(*now: Any) -> None:
            reports.append((threading.get_ident(), *now))

        left = await sbx.files.download_folder("/x", tmp_path / "to", progress=note)
        here = threading.get_ident()
        assert left == [] and reports == [(here, 100_000, None), (here, 200_000, None)]

    run(test())


# --- ports ---


class Ports:
    """Answers upgrades: of port 8000 with an echo, of others with 502; 8001 never answers."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.heads: list[bytes] = []
        self.context = context

    async def __aenter__(self) -> "Ports":
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0, ssl=self.context)
        port = self.server.sockets[0].getsockname()[1]
        self.host = f"http{'s' if self.context else ''}://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        if b"/tcp/8000 " in head:
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: tcp\r\n\r\nfirst ")
            while part := await reader.read(65536):
                writer.write(part)
                await writer.drain()
        elif b"/tcp/8001 " in head:
            await reader.read()
        else:
            body = b'{"error":"nothing listens","code":"port_closed"}'
            writer.write(b"HTTP/1.1 502 No\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        writer.close()


def test_connections_to_ports() -> None:
    async def test() -> None:
        async with Ports() as service:
            client = AsyncClient(service.host, "rmt_key", traceparent="00-1-2-01")
            reader, writer = await client.connect_port(SBX, 8000)
            writer.write(b"hello")
            assert await reader.readexactly(11) == b"first hello"
            writer.close()
            assert b"\r\nAuthorization: Bearer rmt_key\r\n" in service.heads[0]
            assert b"\r\ntraceparent: 00-1-2-01\r\n" in service.heads[0]
            assert f"GET /v1/sandboxes/{SBX}/tcp/8000 HTTP/1.1".encode() in service.heads[0]
            with pytest.raises(ramet.ServerError, match="nothing listens") as refused:
                await client.connect_port(SBX, 8002)
            assert refused.value.code == "port_closed"
            impatient = AsyncClient(service.host, timeout=0.05)
            with pytest.raises(ramet.ConnectionFailed, match="no answer"):
                await impatient.connect_port(SBX, 8001)
        with pytest.raises(ramet.ConnectionFailed):
            await client.connect_port(SBX, 8000)

    run(test())


async def send(port: int, data: bytes) -> bytes:
    """Returns what comes back, to its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


def test_a_local_port_leads_to_the_sandbox() -> None:
    async def test() -> None:
        async with Ports() as service, AsyncClient(service.host) as client:
            sbx = AsyncSandbox.__new__(AsyncSandbox)
            sbx.id, sbx._client, sbx._closed = SBX, client, False
            async with await sbx.forward(8000) as local:
                data = os.urandom(1_000_000)
                for answer in await asyncio.gather(*(send(local.port, data) for _ in range(3))):
                    assert answer == b"first " + data
                left, writer = await asyncio.open_connection(local.host, local.port)
                writer.write(b"x")
                assert await left.readexactly(7) == b"first x"
            with pytest.raises(OSError):
                if not await left.read():
                    raise OSError("it ended")
            writer.close()
            with pytest.raises(OSError):
                await asyncio.open_connection(local.host, local.port)
            await local.close()
            async with await sbx.forward(1) as local:
                assert await send(local.port, b"") == b""
            other = await sbx.forward(8000)
            with pytest.raises(OSError):
                await sbx.forward(8000, other.port)
            await other.close()

    run(test())


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """A self-signed certificate for 127.0.0.1; its key is in key.pem beside it."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        + ["-nodes", "-days", "2", "-subj", "/CN=test", "-keyout", str(key), "-out", str(cert)]
        + ["-addext", "subjectAltName=IP:127.0.0.1"],
        check=True,
        capture_output=True,
    )
    return cert


def test_a_local_port_over_tls(authority: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority, authority.with_name("key.pem"))

    async def test() -> None:
        async with Ports(context) as service:
            client = AsyncClient(service.host, ca_file=authority)
            forward = ramet.AsyncForward(lambda: client.connect_port(SBX, 8000))
            await forward._listen(0)
            reader, writer = await asyncio.open_connection(forward.host, forward.port)
            writer.write(b"x")
            assert await reader.readexactly(7) == b"first x"
            writer.close()
            await forward.close()
            stranger = AsyncClient(service.host)
            with pytest.raises(ramet.ConnectionFailed, match="CERTIFICATE_VERIFY"):
                await stranger.connect_port(SBX, 8000)

    run(test())


def test_warning_about_plain_http_points_at_the_caller() -> None:
    async def test() -> None:
        with pytest.warns(ramet.PlainHttpWarning) as caught, pytest.raises(ramet.ConnectionFailed):
            await AsyncSandbox.create(host="http://ramet.invalid:9", api_key="secret")
        assert caught[0].filename == __file__

    run(test())


def test_a_closed_client_is_reported() -> None:
    async def test() -> None:
        async with Service().client() as client:
            pass
        await client.close()
        with pytest.raises(ramet.ConnectionFailed, match="client was closed"):
            await client.list_sandboxes()

    run(test())
