# SPDX-License-Identifier: Apache-2.0
"""Programs that cancel or interrupt a request of the SDK leave nothing behind and lose nothing."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from types import FrameType
from typing import Any, Awaitable, Callable

import pytest

from abandoning import POINTS, Host, frozen_as, host
from ramet import AsyncClient, Client

Asking = Callable[[AsyncClient, str], Awaitable[Any]]
ASKING: dict[str, Asking] = {
    "create": lambda client, _: client.create_sandbox(metadata={"sdk": "1"}),
    "fork": lambda client, sandbox: client.fork_sandbox(sandbox, 2),
    "freeze": lambda client, sandbox: client.freeze_sandbox(sandbox),
    "resume": lambda client, space: client.resume_space(space),
}


class Own:
    """What a cancelled request of the SDK is about, and what may be left of it."""

    def __init__(self, host: Host, name: str) -> None:
        self.host, self.name = host, name
        self.before = host.ids("/v1/sandboxes"), host.ids("/v1/spaces")
        self.subject = ""
        if name in ("fork", "freeze"):
            self.subject = host.make().rpartition("/")[2]
        elif name == "resume":
            self.subject = frozen_as(host, {"sdk": "1"})

    def new(self) -> tuple[set[str], set[str]]:
        now = self.host.ids("/v1/sandboxes"), self.host.ids("/v1/spaces")
        return now[0] - self.before[0], now[1] - self.before[1]

    def is_right(self, answered: bool) -> bool:
        """Returns whether exactly what must exist does."""
        sandboxes, spaces = self.new()
        if self.name == "create":
            return len(sandboxes) == answered and not spaces
        if self.name == "fork":
            return len(sandboxes) == 1 + 2 * answered and not spaces
        if self.name == "resume" and answered:
            return len(sandboxes) == 1 and not spaces
        if self.name == "freeze":
            # Joins the freeze that continues, if it was sent.
            again = self.host.http.post(f"/v1/sandboxes/{self.subject}/freeze")
            assert again.status_code == 200 or again.json()["code"] == "frozen"
            sandboxes, spaces = self.new()
        return len(spaces) == 1 and not sandboxes

    def clear(self) -> None:
        sandboxes, spaces = self.new()
        self.host.drop("/v1/sandboxes", sandboxes)
        self.host.drop("/v1/spaces", spaces)


async def cancel_after(client: AsyncClient, own: Own, seconds: float) -> bool:
    """Returns whether the request was answered before it was cancelled."""
    task = asyncio.ensure_future(ASKING[own.name](client, own.subject))
    await asyncio.sleep(seconds)
    task.cancel()
    try:
        await task
        return True
    except asyncio.CancelledError:
        return False


@pytest.mark.parametrize("name", ASKING)
def test_cancelled_task_leaves_nothing_and_loses_nothing(host: Host, name: str) -> None:
    async def seconds_of_one(client: AsyncClient) -> float:
        own = Own(host, name)
        began = time.monotonic()
        await ASKING[name](client, own.subject)
        took = time.monotonic() - began
        own.clear()
        return took

    async def test() -> None:
        async with AsyncClient(host.service.base) as client:
            took = await seconds_of_one(client)
            for i in range(POINTS):
                own = Own(host, name)
                answered = await cancel_after(client, own, i * 1.2 * took / (POINTS - 1))
                # A resume that was answered is frozen again.
                host.until(lambda: own.is_right(answered))
                own.clear()

    asyncio.run(test())


def waits_for_the_service(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_name != "_send_once":
        frame = frame.f_back
    return frame is not None


@pytest.mark.parametrize("name", ["create", "resume"])
def test_interrupted_program_leaves_nothing_and_loses_nothing(host: Host, name: str) -> None:
    def on_signal(_: int, frame: FrameType | None) -> None:
        if waits_for_the_service(frame):
            raise KeyboardInterrupt

    def ask(client: Client, own: Own) -> bool:
        try:
            if name == "create":
                client.create_sandbox(metadata={"sdk": "1"})
            else:
                client.resume_space(own.subject)
            return True
        except KeyboardInterrupt:
            return False

    former = signal.signal(signal.SIGUSR1, on_signal)
    with Client(host.service.base) as client:
        began = time.monotonic()
        one = Own(host, name)
        assert ask(client, one)
        took = time.monotonic() - began
        one.clear()
        for i in range(POINTS):
            own = Own(host, name)
            main = threading.get_ident()
            seconds = i * took / (POINTS - 1)
            timer = threading.Timer(seconds, signal.pthread_kill, (main, signal.SIGUSR1))
            timer.start()
            answered = ask(client, own)
            timer.join()
            host.until(lambda: own.is_right(answered))
            own.clear()
    signal.signal(signal.SIGUSR1, former)
