# SPDX-License-Identifier: Apache-2.0
"""The MCP server without a service; it needs the package `mcp`, as its users have it."""

from __future__ import annotations

import asyncio
import sys
import unicodedata
from functools import partial
from types import SimpleNamespace
from typing import Any, Iterator

import httpx
import pytest

pytest.importorskip("mcp")
pytest.importorskip("uvicorn")

from mcp.server.mcpserver.exceptions import ToolError

from ramet import AsyncClient
from ramet.errors import CapReached, RametError, Unauthorized
from ramet.mcp import guard
from ramet.mcp.guard import Keys
from ramet.mcp.http import check_key
from ramet.mcp.output import clean, clean_output
from ramet.mcp.server import make_server
from ramet.mcp.state import Clients
from ramet.mcp.tools import Tools

CONTEXT: Any = SimpleNamespace(headers={})
SANDBOX = {
    "id": "sbx_1", "state": "running", "parent": None, "forks": 0, "vm_pid": 0,
    "template": "default", "vcpus": 2, "ram_mib": 1024, "rootfs_gb": 8,
    "created_at": "2026-01-01T00:00:00.000Z", "expires_at": None,
}  # fmt: skip


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The time of the guard."""
    now = [1000.0]
    monkeypatch.setattr(guard, "time", SimpleNamespace(monotonic=lambda: now[0]))
    yield now


class Service:
    """Accepts keys that begin with "good"; `open` lets checks of other keys end."""

    def __init__(self, error: RametError | None = None) -> None:
        self.asked: list[str | None] = []
        self.error = error or Unauthorized("no such key", status=401, code="key_unknown")
        self.open = asyncio.Event()

    async def __call__(self, key: str | None) -> None:
        self.asked.append(key)
        if not (key or "").startswith("good"):
            await self.open.wait()
            raise self.error


async def status(keys: Keys, key: str) -> int | None:
    refusal = await keys.refusal(key, key)
    return refusal.status if refusal else None


async def all_wait() -> None:
    """Lets all tasks run until they wait."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_invented_keys_do_not_keep_out_accepted_ones(clock: list[float]) -> None:
    async def run() -> None:
        service = Service()
        keys = Keys(service)
        assert await status(keys, "good") is None
        clock[0] += 61
        invented = [asyncio.create_task(status(keys, f"bad {number}")) for number in range(200)]
        await all_wait()
        refused_at_once = [one for one in invented if one.done()]
        assert len(refused_at_once) == 200 - guard._CHECKS_MAX - guard._WAITING_MAX
        assert {one.result() for one in refused_at_once} == {503}
        assert await asyncio.wait_for(status(keys, "good"), 30) is None
        service.open.set()
        assert set(await asyncio.gather(*invented)) == {401, 503}

    asyncio.run(run())


def test_refused_keys_do_not_push_out_accepted_ones(clock: list[float]) -> None:
    async def run() -> None:
        service = Service()
        service.open.set()
        keys = Keys(service)
        assert await status(keys, "good") is None
        for number in range(guard._KNOWN_MAX + 10):
            assert await status(keys, str(number)) == 401
        assert await status(keys, "good") is None
        assert service.asked.count("good") == 1
        assert len(keys._refused) == guard._KNOWN_MAX

    asyncio.run(run())


def test_requests_with_one_new_key_share_a_check(clock: list[float]) -> None:
    async def run() -> None:
        service = Service()
        keys = Keys(service)
        many = [asyncio.create_task(status(keys, "bad")) for _ in range(300)]
        await all_wait()
        service.open.set()
        assert set(await asyncio.gather(*many)) == {401}
        assert service.asked == ["bad"]

    asyncio.run(run())


def test_refusal_for_a_time_is_remembered_for_that_time(clock: list[float]) -> None:
    async def run() -> None:
        service = Service(CapReached("slow down", status=429, code="rate_limited", retry_after=7))
        service.open.set()
        keys = Keys(service)
        for later, asked in ((0.0, 1), (6.9, 1), (0.2, 2)):
            clock[0] += later
            assert await status(keys, "x") == 429 and len(service.asked) == asked

    asyncio.run(run())


def test_keys_are_checked_over_one_connection() -> None:
    connections = 0
    sent: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
                sent.extend(line for line in head if line.startswith("authorization:"))
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]")
                await writer.drain()
        except asyncio.IncompleteReadError:
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with AsyncClient(f"http://127.0.0.1:{port}") as client:
            check = partial(check_key, client)
            for key in ("one", "two", None, "three"):
                await check(key)
            with pytest.raises(Unauthorized):
                await check("two words")
        server.close()

    asyncio.run(run())
    assert connections == 1
    assert sent == [f"authorization: bearer {key}" for key in ("one", "two", "three")]


def tools(transport: httpx.MockTransport) -> Tools:
    """The tools over HTTP."""
    return Tools(
        Clients(lambda key: AsyncClient("http://ramet.test", transport=transport)), None
    )


class Folder:
    """A folder of so many files, as the service lists it."""

    def __init__(self, size: int) -> None:
        self.names = [f"{number:06}" for number in range(size)]
        self.limits: list[int] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        limit, after = int(request.url.params["limit"]), request.url.params.get("after", "")
        self.limits.append(limit)
        rest = [name for name in self.names if name > after] if after else self.names
        entry = {"type": "file", "size": 0, "mode": "0644", "uid": 0, "gid": 0, "mtime": 0.0}
        entries = [{"name": name, **entry} for name in rest[:limit]]
        return httpx.Response(200, json={"entries": entries, "truncated": len(rest) > limit})


@pytest.mark.parametrize("size", [0, 3, 200, 201, 2001])
def test_folder_is_read_in_parts(size: int) -> None:
    folder = Folder(size)
    listed = tools(httpx.MockTransport(folder)).list_files
    names: list[str] = []
    after: str | None = ""
    while after is not None:
        answer = asyncio.run(listed(CONTEXT, "/root", "sbx_1", after=after)).structured_content
        assert answer is not None
        names += [one["name"] for one in answer["entries"]]
        after = answer.get("next_after")
        assert after is None or len(answer["entries"]) == 200
    assert names == folder.names
    assert folder.limits == [201] * max(-(-size // 200), 1)  # one request for each part


def test_hidden_characters_are_visible() -> None:
    fillers = [0x3164, *range(0xE0000, 0xE0080), *range(0xE0100, 0xE01F0)]
    hidden = {chr(code) for code in fillers} | {
        one
        for one in map(chr, range(0x80, sys.maxunicode + 1))
        if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    }
    assert set("\u200b\u2060\ufeff\u00ad\u180e\u2028\u2029\u202e") < hidden
    assert {one for one in hidden if clean_output(one) != "\ufffd"} == set()
    assert clean_output("\0\x7f") == "\u2400\u2421"


def test_ordinary_text_stays() -> None:
    text = "a\tb\n\u00e4\u20ac \U0001f600\u2764\ufe0f \u65e5\u672c \ud55c\uae00 e\u0301"
    assert clean(text) == text == clean_output(text)


@pytest.mark.parametrize("name", ["lifetime_seconds", "timeout_seconds"])
@pytest.mark.parametrize("tool", ["create_sandbox", "resume"])
def test_lifetime_has_both_names(tool: str, name: str) -> None:
    bodies: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(request.content)
        return httpx.Response(200, json=SANDBOX)

    made = tools(httpx.MockTransport(answer))
    arguments: dict[str, Any] = {name: 600} | ({"space": "spc_1"} if tool == "resume" else {})
    asyncio.run(getattr(made, tool)(CONTEXT, **arguments))
    assert b'"lifetime_seconds":600' in bodies[0].replace(b" ", b"")
    with pytest.raises(ToolError, match="not both"):
        both = {"lifetime_seconds": 1, "timeout_seconds": 1}
        asyncio.run(getattr(made, tool)(CONTEXT, **arguments | both))


def test_former_name_of_the_lifetime_is_not_offered() -> None:
    server = make_server(Clients(lambda key: AsyncClient()), None)
    offered = {one.name: one.input_schema["properties"] for one in asyncio.run(server.list_tools())}
    for name in ("create_sandbox", "resume"):
        assert "lifetime_seconds" in offered[name] and "timeout_seconds" not in offered[name]
    assert "timeout_seconds" in offered["run_code"]


@pytest.mark.parametrize("name", ["lifetime_seconds", "timeout_seconds"])
def test_lifetime_of_inspect_has_both_names(name: str) -> None:
    pytest.importorskip("inspect_ai")
    from ramet.integrations.inspect_ai import RametSandboxConfig

    config = RametSandboxConfig.model_validate({name: 600})
    assert config.lifetime_seconds == 600
    assert RametSandboxConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize("name", ["lifetime_seconds", "timeout_seconds"])
def test_lifetime_of_openai_agents_has_both_names(name: str) -> None:
    pytest.importorskip("agents")
    from ramet.integrations.openai_agents import RametSandboxClientOptions

    options = RametSandboxClientOptions(**{name: 600})
    assert options.lifetime_seconds == 600
    assert RametSandboxClientOptions.model_validate_json(options.model_dump_json()) == options
