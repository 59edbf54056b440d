# SPDX-License-Identifier: Apache-2.0
"""A stand-in for Anthropic's API, and sandboxes of the service that `RAMET_HOST` names."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, AsyncIterator, Callable, Iterator

import anthropic
import pytest

from ramet import AsyncSandbox, Sandbox

Reply = tuple[int, Any]


class Api:
    """Answers requests as Anthropic's API does, from a script or a function."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, Any]] = []
        self.script: list[list[dict[str, Any]]] = []
        self.handle: Callable[[str, str, Any], Reply] = self._message
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                size = int(self.headers.get("content-length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                path = self.path.partition("?")[0]
                api.requests.append((self.command, path, body))
                status, content = api.handle(self.command, path, body)
                if isinstance(content, Iterator):
                    self.send_response(status)
                    self.send_header("content-type", "text/event-stream")
                    self.send_header("connection", "close")
                    self.end_headers()
                    for part in content:
                        self.wfile.write(part)
                    self.close_connection = True
                    return
                raw = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            do_GET = do_POST = do_DELETE = answer

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def says(self, *turns: list[dict[str, Any]]) -> None:
        """Sets the content of the model's next turns; the last one has no tool calls."""
        self.script = list(turns)
        self.requests.clear()

    def results(self) -> list[dict[str, Any]]:
        """Returns the tool results that the model got; requests may repeat them."""
        found: dict[str, dict[str, Any]] = {}
        for _, _, body in self.requests:
            for message in body["messages"]:
                for block in message["content"]:
                    if isinstance(block, dict) and block["type"] == "tool_result":
                        found.setdefault(block["tool_use_id"], block)
        return list(found.values())

    def _message(self, method: str, path: str, body: Any) -> Reply:
        assert (method, path) == ("POST", "/v1/messages")
        content = self.script.pop(0)
        calls = any(block["type"] == "tool_use" for block in content)
        return 200, {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": content,
            "stop_reason": "tool_use" if calls else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }


def use(name: str, number: int = 1, **input: Any) -> dict[str, Any]:
    """Returns the model's call of a tool."""
    return {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": input}


def said(text: str = "done") -> list[dict[str, Any]]:
    """Returns a turn without tool calls."""
    return [{"type": "text", "text": text}]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def api() -> Iterator[Api]:
    started = Api()
    yield started
    started.server.shutdown()
    started.server.server_close()


@pytest.fixture
def claude(api: Api) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(api_key="none", base_url=api.url, max_retries=0) as client:
        yield client


@pytest.fixture
async def async_claude(api: Api) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(
        api_key="none", base_url=api.url, max_retries=0
    ) as client:
        yield client


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


@pytest.fixture
async def async_sandbox() -> AsyncIterator[AsyncSandbox]:
    async with await AsyncSandbox.create() as made:
        yield made
