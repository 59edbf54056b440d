# SPDX-License-Identifier: Apache-2.0
"""Requests to the service, and its errors as exceptions."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, Mapping
from urllib.parse import quote

import httpx

from ramet.errors import ConnectionFailed, RametError, ServerError, error_for

DEFAULT_HOST = "http://127.0.0.1:7070"

# The service sends an empty line every 10 s of silence, so a longer one means that it is gone.
_STREAM_SILENCE_S = 30.0

_PIECE = 256 << 10  # bytes given to a socket at a time


class Transport:
    """A pool of connections to one service. Safe to share between threads."""

    def __init__(
        self, host: str, key: str | None, timeout: float, transport: httpx.BaseTransport | None
    ) -> None:
        self.host = host
        self._timeout = timeout
        self._http = httpx.Client(
            base_url=_checked_url(host),
            headers={"authorization": f"Bearer {key}"} if key else {},
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=32),
            transport=transport,
            trust_env=False,  # a proxy of the environment is no way to a service on this host
        )

    def close(self) -> None:
        self._http.close()

    @property
    def closed(self) -> bool:
        return self._http.is_closed

    def request(
        self, method: str, path: str, body: Any = None, at_least_s: float = 0
    ) -> httpx.Response:
        """One request with a JSON body, or none; `at_least_s` is the least limit of its answer."""
        return self._send(method, path, at_least_s, json=body)

    def send_bytes(
        self, method: str, path: str, data: bytes, at_least_s: float = 0
    ) -> httpx.Response:
        """One request whose body is `data` as it is."""
        # In pieces, for httpcore copies what is left of a body after each call of send(2).
        view = memoryview(data)
        pieces = (bytes(view[at : at + _PIECE]) for at in range(0, len(data), _PIECE))
        headers = {"content-length": str(len(data)), "content-type": "application/octet-stream"}
        return self._send(method, path, at_least_s, content=pieces, headers=headers)

    def json(self, method: str, path: str, body: Any = None, at_least_s: float = 0) -> Any:
        """As `request`; returns the answer's JSON."""
        response = self.request(method, path, body, at_least_s)
        try:
            return response.json()
        except ValueError as broken:
            raise ServerError(
                f"{method} {path}: the answer is not JSON", status=response.status_code
            ) from broken

    def lines(self, method: str, path: str, body: Any) -> Iterator[str]:
        """Lines of an NDJSON answer, without the empty ones that keep the connection alive."""
        with self._stream(method, path, _STREAM_SILENCE_S, body) as response:
            yield from _lines(response)

    @contextmanager
    def download(self, path: str) -> Iterator[tuple[int | None, Iterator[bytes]]]:
        """The answer's size in bytes, where it is told, and its bytes as they come."""
        with self._stream("GET", path, self._timeout) as response:
            size = response.headers.get("content-length")
            yield int(size) if size else None, response.iter_bytes()

    def _send(
        self, method: str, path: str, at_least_s: float, **what: Any
    ) -> httpx.Response:
        timeout = httpx.Timeout(max(self._timeout, at_least_s), connect=5.0)
        with self._transport_errors(method, path, timeout):
            response = self._http.request(method, path, timeout=timeout, **what)
        if response.status_code >= 400:
            raise _answer_error(response)
        return response

    @contextmanager
    def _stream(
        self, method: str, path: str, silence_s: float, body: Any = None
    ) -> Iterator[httpx.Response]:
        timeout = httpx.Timeout(silence_s, connect=5.0)
        with self._transport_errors(method, path, timeout):
            with self._http.stream(method, path, json=body, timeout=timeout) as response:
                if response.status_code >= 400:
                    response.read()
                    raise _answer_error(response)
                yield response

    @contextmanager
    def _transport_errors(self, method: str, path: str, timeout: httpx.Timeout) -> Iterator[None]:
        if self.closed:
            raise ConnectionFailed(f"{method} {path}: this client was closed")
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as down:
            why = str(down) or "no answer"
            # The cause is in the sentence; its own traceback would hide it.
            raise ConnectionFailed(f"no Ramet service answers at {self.host}: {why}") from None
        except httpx.ReadTimeout as slow:
            raise ConnectionFailed(
                f"{method} {self.host}{path}: nothing came for {timeout.read:g} s"
            ) from slow
        except httpx.TransportError as broken:
            raise ConnectionFailed(f"{method} {self.host}{path}: {broken!r}") from broken


def query(**fields: str | int | bool | None) -> str:
    """The query of a URL, with its question mark; fields that are None are left out.

    Text may hold bytes that are not UTF-8, as `os.fsdecode` gives them.
    """
    pairs = [f"{name}={_value(value)}" for name, value in fields.items() if value is not None]
    return "?" + "&".join(pairs) if pairs else ""


def _value(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return quote(str(value).encode("utf-8", "surrogateescape"), safe="/")


def to_json(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON body of the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def _checked_url(host: str) -> str:
    try:
        url = httpx.URL(host)
        if url.scheme in ("http", "https") and url.host:
            return host
    except httpx.InvalidURL:
        pass
    raise ConnectionFailed(
        f"the service's address is {host!r}, but must be a URL as {DEFAULT_HOST} is "
        "(it comes from `host`, else from RAMET_HOST)"
    )


def _lines(response: httpx.Response) -> Iterator[str]:
    """Splits at newlines only; httpx's own iterator also splits at U+2028 and the like."""
    rest = b""
    for chunk in response.iter_bytes():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line.strip():
                yield line.decode()
    if rest.strip():
        yield rest.decode()


def _answer_error(response: httpx.Response) -> RametError:
    try:
        body = response.json()
        message, code = str(body["error"]), str(body.get("code", ""))
    except (ValueError, KeyError, TypeError):
        message, code = f"HTTP {response.status_code}: {response.text[:200]}", ""
    return error_for(response.status_code, code, message, _retry_after(response))


def _retry_after(response: httpx.Response) -> float | None:
    try:
        return float(response.headers["retry-after"])
    except (KeyError, ValueError):
        return None
