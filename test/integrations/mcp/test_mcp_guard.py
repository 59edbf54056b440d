# SPDX-License-Identifier: Apache-2.0
"""Over HTTP: whose requests are read, and how many of them at one time?"""

from __future__ import annotations

from typing import Any, Mapping

import anyio
import pytest
from starlette.types import Message, Receive, Scope, Send

from mcp_clients import anyio_backend
from ramet.errors import CapReached, ConnectionFailed, RametError, Unauthorized
from ramet.mcp import guard
from ramet.mcp.guard import BODY_MAX, Guard, Keys, Limits, Usage

pytestmark = pytest.mark.anyio


class Checks:
    """A service that accepts one key, "good", and raises an error for others."""

    def __init__(self, error: RametError | None = None) -> None:
        self.asked: list[str | None] = []
        self.error = error or Unauthorized("no such key", status=401, code="key_unknown")

    async def __call__(self, key: str | None) -> None:
        self.asked.append(key)
        await anyio.sleep(0)
        if key != "good":
            raise self.error


class App:
    """An application that reads each body, and waits until it may answer."""

    def __init__(self, answer: dict[str, str] | None = None) -> None:
        self.begun = 0
        self.bodies: list[bytes] = []
        self.go = anyio.Event()
        self.answer = answer or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun += 1
        self.bodies.append((await receive())["body"])
        await self.go.wait()
        headers = [(name.encode(), value.encode()) for name, value in self.answer.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


async def send(
    app: Any,
    key: str | None = "good",
    size: int | None = 0,
    method: str = "POST",
    fields: Mapping[str, str] | None = None,
) -> int:
    """Sends a request; returns the answer's status."""
    headers = {"mcp-protocol-version": "2026-07-28", **(fields or {})}
    headers |= {"authorization": f"Bearer {key}"} if key else {}
    headers |= {"transfer-encoding": "chunked"} if size is None else {"content-length": str(size)}
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    answers: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def note(message: Message) -> None:
        answers.append(message)

    await app({"type": "http", "method": method, "headers": raw}, receive, note)
    return int(answers[0]["status"])


@pytest.mark.parametrize("key, answer", [("good", None), ("invented", 401)])
async def test_key_is_checked_once(key: str, answer: int | None) -> None:
    checks = Checks()
    keys = Keys(checks)

    async def check() -> None:
        refusal = await keys.refusal(key, key)
        assert (refusal.status if refusal else None) == answer

    async with anyio.create_task_group() as group:
        for _ in range(100):
            group.start_soon(check)
    assert len(checks.asked) <= guard._CHECKS_MAX
    await check()
    assert len(checks.asked) <= guard._CHECKS_MAX


async def test_key_is_checked_again_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("ramet.mcp.guard.time.monotonic", lambda: now[0])
    checks = Checks()
    keys = Keys(checks)
    for later in (0.0, 59.9, 0.2):
        now[0] += later
        assert await keys.refusal("good", "good") is None
    assert len(checks.asked) == 2


async def test_answers_about_invented_keys_take_bounded_memory() -> None:
    keys = Keys(Checks())
    for number in range(5000):
        assert await keys.refusal("x", str(number))
    assert len(keys._refused) == guard._KNOWN_MAX


@pytest.mark.parametrize(
    "error, status",
    [
        (ConnectionFailed("refused"), 503),
        (CapReached("slow down", status=429, code="rate_limited", retry_after=7), 429),
    ],
)
async def test_nobody_is_let_in_without_an_answer_or_asked_about_too_early(
    error: RametError, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("ramet.mcp.guard.time.monotonic", lambda: now[0])
    checks = Checks(error)
    keys = Keys(checks)
    wait = error.retry_after or 1
    for later, asked in ((0.0, 1), (wait - 0.1, 1), (0.2, 2)):
        now[0] += later
        refusal = await keys.refusal("x", "x")
        assert refusal and refusal.status == status
        assert refusal.headers["Retry-After"] == str(wait) and len(checks.asked) == asked


async def test_key_that_the_client_does_not_send_is_refused() -> None:
    keys = Keys(Checks(Unauthorized("it has a space", code="unauthorized")))
    refusal = await keys.refusal("x y", "x")
    assert refusal and refusal.status == 401


async def test_key_without_this_permission_is_a_key() -> None:
    keys = Keys(Checks(Unauthorized("not yours", status=403, code="operators_only")))
    assert await keys.refusal("x", "x") is None


async def test_body_of_an_invented_key_is_not_read() -> None:
    app = App()
    guarded = Guard(app, Keys(Checks()), Usage(), required=True)
    assert await send(guarded, "invented", 60 << 20) == 401
    assert await send(guarded, None, 60 << 20) == 401
    assert await send(guarded, "good", BODY_MAX + 1) == 413
    assert app.begun == 0


async def busy(usage: Usage, *sizes: int | None) -> list[int]:
    """Sends requests at the same time; returns the status of each, in the order of the answers."""
    app = App()
    guarded = Guard(app, Keys(Checks()), usage, required=True)
    answers: list[int] = []

    async def one(size: int | None) -> None:
        answers.append(await send(guarded, "good", size))

    async with anyio.create_task_group() as group:
        for size in sizes:
            group.start_soon(one, size)
        while app.begun + len(answers) < len(sizes):
            await anyio.sleep(0)
        app.go.set()
    return answers


@pytest.mark.parametrize("of_key, of_all, status", [(2, 9, 429), (9, 2, 503)])
async def test_requests_in_progress_are_limited(of_key: int, of_all: int, status: int) -> None:
    usage = Usage(Limits(of_key, 100, 9), Limits(of_all, 100, 9))
    for _ in range(2):  # what has ended does not count
        assert await busy(usage, 1, 1, 1) == [status, 200, 200]


@pytest.mark.parametrize("of_key, of_all, status", [(100, 999, 429), (999, 100, 503)])
async def test_bodies_are_limited(of_key: int, of_all: int, status: int) -> None:
    usage = Usage(Limits(9, of_key, 9), Limits(9, of_all, 9))
    for _ in range(2):
        assert await busy(usage, 60, 60, 40) == [status, 200, 200]


async def test_body_of_unknown_size_counts_as_the_largest() -> None:
    usage = Usage(Limits(9, BODY_MAX, 9), Limits(9, BODY_MAX, 9))
    assert await busy(usage, None, 1) == [429, 200]


async def test_sessions_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("ramet.mcp.guard.time.monotonic", lambda: now[0])
    app = App({"mcp-session-id": "one"})
    app.go.set()
    usage = Usage(Limits(9, 9, 2), Limits(9, 9, 9))
    guarded = Guard(app, Keys(Checks()), usage, required=True)

    async def begin(session: str) -> int:
        app.answer = {"mcp-session-id": session}
        return await send(guarded, fields={"mcp-protocol-version": "2025-11-25"})

    assert [await begin(name) for name in "abc"] == [200, 200, 429]
    app.answer = {}
    assert await send(guarded) == 200  # the modern protocol has no sessions
    used = {"mcp-protocol-version": "2025-11-25", "mcp-session-id": "a"}
    assert await send(guarded, fields=used) == 200
    assert await send(guarded, method="DELETE", fields=used) == 200
    assert [await begin(name) for name in "de"] == [200, 429]
    now[0] += guard.SESSION_IDLE_S + 1
    assert await begin("f") == 200
