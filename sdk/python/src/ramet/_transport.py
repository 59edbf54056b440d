# SPDX-License-Identifier: Apache-2.0
# Generated from _async/_transport.py by make_sync.py: change that file.
"""Sends requests to the service, retries them, and raises its errors as exceptions."""

from __future__ import annotations

import os
import random
import time
from contextlib import contextmanager
from typing import Any, Iterable, Iterator, Mapping

import httpx

from ramet._io import sleep
from ramet._local import to_send
from ramet._nearest import nearest
from ramet._upgrade import Connection, connect_upgraded
from ramet._wire import (
    DEFAULT_HOST as DEFAULT_HOST,
    FIRST,
    Traceparent,
    answer_error,
    checked_key,
    checked_url,
    had_no_effect,
    http_context,
    json_bytes as json_bytes,
    new_key as new_key,
    query as query,
    segment as segment,
    to_json as to_json,
    tls_context,
    trace_headers,
    wait_before_retry,
    warn_of_missing,
    warn_of_plain_http,
)
from ramet.errors import BadRequest, ConnectionFailed, NotFound, RametError, ServerError

# The service sends an empty line per 10 s of silence, so a longer silence means that it is gone.
_STREAM_SILENCE_S = 30.0

_BRIEF_S = 2.0  # timeout of a request during a clean-up

_PAGE = 500  # entries per page of a list

_JITTER = 0.25  # maximum random extra wait, as a share: spreads clients that were refused together


class Transport:
    """A pool of connections to one service. Safe for threads."""

    def __init__(
        self,
        host: str,
        key: str | None,
        timeout: float,
        transport: httpx.BaseTransport | None,
        *,
        ca_file: str | os.PathLike[str] | None,
        retry_seconds: float,
        allow_plain_http: bool,
        traceparent: Traceparent,
        find_nearest: bool = False,
    ) -> None:
        self.host = host
        self._find_nearest = find_nearest  # before the first request
        self._timeout = timeout
        self._retry_s = retry_seconds
        self._ca_file = ca_file
        self._traceparent = traceparent
        url = checked_url(host)
        if key and not allow_plain_http:
            warn_of_plain_http(url)
        self._http = httpx.Client(
            base_url=url,
            headers={"authorization": f"Bearer {checked_key(key)}"} if key else {},
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=32),
            transport=transport,
            verify=http_context(url, ca_file),
            trust_env=False,  # a proxy from the environment cannot reach a service on this host
        )

    def close(self) -> None:
        self._http.close()

    @property
    def closed(self) -> bool:
        return self._http.is_closed

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        at_least_s: float = 0,
        *,
        key: str | None = None,
        new: bool = False,
        retry: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Sends a request with a JSON body or none; `at_least_s` is the minimum timeout.

        With `key` the service performs the request once, however often it is sent. `new`: nothing
        was sent with the key before. `headers` replace those of the pool.
        """
        what = _of_json(body)
        what["headers"] |= headers or {}
        if key:
            what["headers"]["idempotency-key"] = key
        if new:
            what["headers"][FIRST] = "first"
        return self._send(method, path, self._limits(at_least_s), what, retry=retry)

    def send_bytes(
        self,
        method: str,
        path: str,
        data: bytes | str | Iterable[bytes],
        at_least_s: float = 0,
        *,
        retry: bool = True,
    ) -> httpx.Response:
        """Sends a request with `data` as its body: bytes, or chunks of any total size."""
        body = to_send(data)
        headers = {"content-type": "application/octet-stream"}
        if body.size is not None:
            headers["content-length"] = str(body.size)
        what = {"content": body, "headers": headers}
        retry = retry and body.repeatable
        return self._send(method, path, self._limits(at_least_s), what, retry=retry)

    def json(
        self,
        method: str,
        path: str,
        body: Any = None,
        at_least_s: float = 0,
        *,
        key: str | None = None,
        new: bool = False,
    ) -> Any:
        """Sends a request like `request`, and returns the answer's JSON."""
        response = self.request(method, path, body, at_least_s, key=key, new=new)
        return _json_of(response, method, path)

    def brief(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response | None:
        """Sends a request during a clean-up, which must not take long; returns None for a 404.

        The service completes what it has begun, although nobody waits for it. Retries begin within
        the timeout of the client.
        """
        what = {"json": body, "headers": dict(headers or {})}
        try:
            return self._send(
                method, path, httpx.Timeout(_BRIEF_S), what, within_s=self._timeout
            )
        except NotFound:
            return None

    def answer(self, path: str, body: Any, key: str) -> Any:
        """Returns the answer to an earlier POST with this key; None if it had no effect.

        The service does not perform the request again.
        """
        headers = {"idempotency-key": key, "idempotent-replay": "only"}
        response = self.brief("POST", path, body, headers)
        return None if response is None else _json_of(response, "POST", path)

    def upgrade(self, path: str, protocol: str) -> Connection:
        """Opens a connection and changes its protocol. The connection has no timeout then."""
        self._settle()
        url = checked_url(self.host)
        headers = trace_headers(self._traceparent)
        if "authorization" in self._http.headers:
            headers["Authorization"] = self._http.headers["authorization"]
        context = tls_context(self._ca_file) if url.scheme == "https" else None
        return connect_upgraded(url, path, protocol, headers, context, self._timeout)

    def pages(self, path: str, **fields: str | None) -> Iterator[Any]:
        """Yields the entries of a list, and requests a page only when it is needed.

        `fields` are more fields of the query. A service that does not support pages returns all
        entries in the first one.
        """
        cursor: str | None = None
        while True:
            asked = query(limit=_PAGE, cursor=cursor, **fields)
            response = self.request("GET", path + asked)
            warn_of_missing(response.headers.get("ramet-missing-hosts"))
            for one in _json_of(response, "GET", path):
                yield one
            cursor = response.headers.get("ramet-next-cursor")
            if not cursor:
                return

    @contextmanager
    def lines(self, method: str, path: str, body: Any) -> Iterator[Iterator[str]]:
        """Yields the lines of an NDJSON answer, without the empty ones that keep it alive."""
        with self._stream(method, path, _STREAM_SILENCE_S, body) as response:
            yield _lines(response.iter_bytes())

    @contextmanager
    def download(
        self, path: str, headers: Mapping[str, str] | None = None
    ) -> Iterator[tuple[int | None, Iterator[bytes]]]:
        """Yields the answer's size in bytes, if it is known, and its bytes as they arrive."""
        with self._stream("GET", path, self._timeout, headers=headers) as response:
            size = response.headers.get("content-length")
            yield int(size) if size else None, response.iter_bytes()

    def _settle(self) -> None:
        if self._find_nearest:
            self.host = nearest(self._http, self.host)
            self._http.base_url = checked_url(self.host)
            self._find_nearest = False

    def _limits(self, at_least_s: float) -> httpx.Timeout:
        return httpx.Timeout(max(self._timeout, at_least_s), connect=5.0)

    @contextmanager
    def _stream(
        self,
        method: str,
        path: str,
        silence_s: float,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[httpx.Response]:
        timeout = httpx.Timeout(silence_s, connect=5.0)
        what = _of_json(body)
        what["headers"] |= headers or {}
        response = self._send(method, path, timeout, what, stream=True)
        try:
            with self._transport_errors(method, path, timeout):
                yield response
        finally:
            response.close()

    def _send(
        self,
        method: str,
        path: str,
        timeout: httpx.Timeout,
        what: dict[str, Any],
        *,
        stream: bool = False,
        retry: bool = True,
        within_s: float = float("inf"),
    ) -> httpx.Response:
        """Sends a request, and retries it while that is safe and time is left.

        No retry begins more than `within_s` after the first attempt.
        """
        self._settle()
        until = time.monotonic() + within_s
        keyed = "idempotency-key" in what["headers"]
        what["headers"] |= trace_headers(self._traceparent)
        left, tries = self._retry_s if retry else 0.0, 0
        while True:
            try:
                return self._send_once(method, path, timeout, what, stream)
            except RametError as failed:
                wait = wait_before_retry(failed, method, keyed, tries)
                if not had_no_effect(failed):
                    what["headers"].pop(FIRST, None)
                if wait is None or wait > left or time.monotonic() + wait > until:
                    raise
            left, tries = left - wait, tries + 1
            sleep(wait * random.uniform(1, 1 + _JITTER))

    def _send_once(
        self, method: str, path: str, timeout: httpx.Timeout, what: dict[str, Any], stream: bool
    ) -> httpx.Response:
        with self._transport_errors(method, path, timeout):
            request = self._request(method, path, timeout=timeout, **what)
            response = self._http.send(request, stream=stream)
            if response.status_code < 400:
                return response
            response.read()
        raise answer_error(response)

    def _request(self, method: str, path: str, **what: Any) -> httpx.Request:
        try:
            return self._http.build_request(method, path, **what)
        except (TypeError, UnicodeError) as wrong:  # such as an idempotency key
            raise BadRequest(f"{method} {path}: a header cannot be sent: {wrong}") from wrong

    @contextmanager
    def _transport_errors(self, method: str, path: str, timeout: httpx.Timeout) -> Iterator[None]:
        if self.closed:
            raise ConnectionFailed(f"{method} {path}: this client was closed")
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as down:
            reason = str(down) or "no answer"
            # The message has the cause; its traceback would hide the message.
            raise ConnectionFailed(f"no Ramet service answers at {self.host}: {reason}") from None
        except httpx.ReadTimeout as slow:
            raise ConnectionFailed(
                f"{method} {self.host}{path}: no data was received for {timeout.read:g} s"
            ) from slow
        except httpx.TransportError as broken:
            raise ConnectionFailed(f"{method} {self.host}{path}: {broken!r}") from broken


def _of_json(body: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the arguments of a request with a JSON body, or without a body."""
    if body is None:
        return {"headers": {}}
    return {"content": json_bytes(body), "headers": {"content-type": "application/json"}}


def _json_of(response: httpx.Response, method: str, path: str) -> Any:
    try:
        return response.json()
    except ValueError as broken:
        raise ServerError(
            f"{method} {path}: the answer is not JSON", status=response.status_code
        ) from broken


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Splits at newlines only; httpx's own iterator also splits at characters like U+2028."""
    held: list[bytes] = []  # parts of an unfinished line
    for chunk in chunks:
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            line = b"".join([*held, end])
            held.clear()
            if line.strip():
                yield line.decode()
        held.append(rest)
    line = b"".join(held)
    if line.strip():
        yield line.decode()
