# SPDX-License-Identifier: Apache-2.0
"""Sends requests to the service, retries them, and raises its errors as exceptions."""

from __future__ import annotations

import json
import math
import os
import random
import socket
import ssl
import sys
import time
import uuid
import warnings
from contextlib import contextmanager
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import Any, Iterable, Iterator, Mapping
from urllib.parse import quote

import httpx

from ramet._bodies import body_of
from ramet.errors import ConnectionFailed, PlainHttpWarning, RametError, ServerError, error_for

DEFAULT_HOST = "http://127.0.0.1:7070"

# The service sends an empty line per 10 s of silence, so a longer silence means that it is gone.
_STREAM_SILENCE_S = 30.0

_PAGE = 500  # entries per page of a list

_FIRST_WAIT_S = 0.5  # wait before the first retry after a broken connection; doubled each time
_LEAST_WAIT_S = 0.1
_JITTER = 0.25  # maximum random extra wait, as a share: spreads clients that were refused together


class Transport:
    """A pool of connections to one service. Safe to share between threads."""

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
    ) -> None:
        self.host = host
        self._timeout = timeout
        self._retry_s = retry_seconds
        self._ca_file = ca_file
        url = _checked_url(host)
        if key and not allow_plain_http:
            _warn_of_plain_http(url)
        self._http = httpx.Client(
            base_url=url,
            headers={"authorization": f"Bearer {key}"} if key else {},
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=32),
            transport=transport,
            verify=_trusting(ca_file) if ca_file else True,
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
        retry: bool = True,
    ) -> httpx.Response:
        """Sends a request with a JSON body or none; `at_least_s` is the minimum timeout.

        With `key` the service performs the request once, however often it is sent.
        """
        headers = {"idempotency-key": key} if key else {}
        what = {"json": body, "headers": headers}
        return self._send(method, path, self._limits(at_least_s), what, retry=retry)

    def send_bytes(
        self,
        method: str,
        path: str,
        data: bytes | Iterable[bytes],
        at_least_s: float = 0,
        *,
        retry: bool = True,
    ) -> httpx.Response:
        """Sends a request with `data` as its body: bytes, or chunks of any total size."""
        body = body_of(data)
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
    ) -> Any:
        """Sends a request like `request`, and returns the answer's JSON."""
        response = self.request(method, path, body, at_least_s, key=key)
        try:
            return response.json()
        except ValueError as broken:
            raise ServerError(
                f"{method} {path}: the answer is not JSON", status=response.status_code
            ) from broken

    def upgrade(self, path: str, protocol: str) -> socket.socket:
        """Opens a connection and changes its protocol. Returns its socket, without a timeout."""
        url = _checked_url(self.host)
        tls = url.scheme == "https"
        try:
            raw = socket.create_connection((url.host, url.port or (443 if tls else 80)), timeout=5.0)
        except OSError as failed:
            raise ConnectionFailed(f"{self.host}: {failed}") from failed
        try:
            if tls:
                context = _trusting(self._ca_file) if self._ca_file else ssl.create_default_context()
                raw = context.wrap_socket(raw, server_hostname=url.host)
            raw.settimeout(self._timeout)
            key = self._http.headers.get("authorization")
            raw.sendall(
                f"GET {url.path.rstrip('/')}{path} HTTP/1.1\r\nHost: {url.netloc.decode()}\r\n"
                f"Connection: Upgrade\r\nUpgrade: {protocol}\r\n"
                f"{f'Authorization: {key}' + chr(13) + chr(10) if key else ''}\r\n".encode()
            )
            _check_upgraded(raw, path)
            raw.settimeout(None)
        except OSError as failed:
            raw.close()
            raise ConnectionFailed(f"GET {path}: {failed}") from failed
        except BaseException:
            raw.close()
            raise
        return raw

    def pages(self, path: str, **fields: str | None) -> Iterator[Any]:
        """Yields the entries of a list, and requests a page only when it is needed.

        `fields` are more fields of the query. A service that does not support pages returns all entries in the first one.
        """
        cursor: str | None = None
        while True:
            response = self.request("GET", path + query(limit=_PAGE, cursor=cursor, **fields))
            try:
                yield from response.json()
            except ValueError as broken:
                raise ServerError(
                    f"GET {path}: the answer is not JSON", status=response.status_code
                ) from broken
            cursor = response.headers.get("ramet-next-cursor")
            if not cursor:
                return

    def lines(self, method: str, path: str, body: Any) -> Iterator[str]:
        """Yields the lines of an NDJSON answer, without the empty ones that keep it alive."""
        with self._stream(method, path, _STREAM_SILENCE_S, body) as response:
            yield from _lines(response.iter_bytes())

    @contextmanager
    def download(self, path: str) -> Iterator[tuple[int | None, Iterator[bytes]]]:
        """Yields the answer's size in bytes, if it is known, and its bytes as they arrive."""
        with self._stream("GET", path, self._timeout) as response:
            size = response.headers.get("content-length")
            yield int(size) if size else None, response.iter_bytes()

    def _limits(self, at_least_s: float) -> httpx.Timeout:
        return httpx.Timeout(max(self._timeout, at_least_s), connect=5.0)

    @contextmanager
    def _stream(
        self, method: str, path: str, silence_s: float, body: Any = None
    ) -> Iterator[httpx.Response]:
        timeout = httpx.Timeout(silence_s, connect=5.0)
        response = self._send(method, path, timeout, {"json": body}, stream=True)
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
    ) -> httpx.Response:
        """Sends a request, and retries it while that is safe and time is left."""
        keyed = "idempotency-key" in what.get("headers", {})
        left, tries = self._retry_s if retry else 0.0, 0
        while True:
            try:
                return self._send_once(method, path, timeout, what, stream)
            except RametError as failed:
                wait = _wait_before_retry(failed, method, keyed, tries)
                if wait is None or wait > left:
                    raise
            left, tries = left - wait, tries + 1
            time.sleep(wait * random.uniform(1, 1 + _JITTER))

    def _send_once(
        self, method: str, path: str, timeout: httpx.Timeout, what: dict[str, Any], stream: bool
    ) -> httpx.Response:
        with self._transport_errors(method, path, timeout):
            request = self._http.build_request(method, path, timeout=timeout, **what)
            response = self._http.send(request, stream=stream)
            if response.status_code < 400:
                return response
            response.read()
        raise _answer_error(response)

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


def query(**fields: str | int | bool | None) -> str:
    """Returns the query of a URL, with its question mark, without fields that are None.

    Text may contain bytes that are not UTF-8, encoded as by `os.fsdecode`.
    """
    pairs = [f"{name}={_value(value)}" for name, value in fields.items() if value is not None]
    return "?" + "&".join(pairs) if pairs else ""


def _value(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return quote(str(value).encode("utf-8", "surrogateescape"), safe="/")


def to_json(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a JSON body of the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def new_key() -> str:
    """Returns a unique value for an Idempotency-Key."""
    return str(uuid.uuid4())


def _wait_before_retry(failed: RametError, method: str, keyed: bool, tries: int) -> float | None:
    """Returns the seconds until a retry; None if a retry is not safe or would not help.

    A request that the service refused with Retry-After (429, 503) had no effect. But a 503 may
    come from a proxy, in which case the request may have been performed; the same is true after
    a broken connection.
    """
    if failed.status == 0:
        broke = isinstance(failed.__context__, (httpx.NetworkError, httpx.RemoteProtocolError))
        # If the first attempt cannot connect, there is no service. If a later one cannot, the
        # service may be restarting.
        absent = isinstance(failed.__context__, httpx.ConnectError) and not tries
        safe = broke and not absent and (keyed or method in ("GET", "PUT", "PATCH"))
        return float(_FIRST_WAIT_S * 2**tries) if safe else None
    safe = (
        failed.status == 429
        or (failed.status == 503 and (keyed or method != "POST"))
        or (failed.code == "idempotency_key_in_use" and keyed)
    )
    if not safe or failed.retry_after is None:
        return None
    return max(failed.retry_after, _LEAST_WAIT_S)


def _warn_of_plain_http(url: httpx.URL) -> None:
    """Warns if an API key would be sent over a network in plain text."""
    if url.scheme == "https" or _is_loopback(url.host):
        return
    warnings.warn(
        f"the API key is sent to {url.host} over plain http, where others can read it: use an "
        "https:// address, or Client(..., allow_plain_http=True) on a private network",
        PlainHttpWarning,
        stacklevel=_level_of_caller(),
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _level_of_caller() -> int:
    """Returns the `stacklevel`, for its caller, of the first caller outside this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__package__") == __package__:
        level, frame = level + 1, frame.f_back
    return level


def _trusting(ca_file: str | os.PathLike[str]) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as failed:  # ssl.SSLError is one
        raise ConnectionFailed(
            f"the CA certificates in {os.fspath(ca_file)!r} cannot be used: {failed} "
            "(set by `ca_file` or RAMET_CA_FILE)"
        ) from failed


def _checked_url(host: str) -> httpx.URL:
    try:
        url = httpx.URL(host)
        if url.scheme in ("http", "https") and url.host:
            return url
    except httpx.InvalidURL:
        pass
    raise ConnectionFailed(
        f"the service's address is {host!r}, but must be a URL like {DEFAULT_HOST} "
        "(set by `host` or RAMET_HOST)"
    )


def _check_upgraded(raw: socket.socket, path: str) -> None:
    """Reads the head of the answer, and raises the service's error unless it is 101."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = raw.recv(1)  # what follows the head belongs to the new protocol
        if not byte or len(head) > 65536:
            raise ConnectionFailed(f"GET {path}: the service closed the connection")
        head += byte
    status = int(head.split(b" ", 2)[1])
    if status == 101:
        return
    length = [int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    body = b""
    while length and len(body) < min(length[0], 65536):
        more = raw.recv(65536)
        if not more:
            break
        body += more
    try:
        said = json.loads(body)
        raise error_for(status, str(said["code"]), str(said["error"]))
    except (ValueError, KeyError, TypeError) as broken:
        raise ServerError(f"GET {path}: status {status}", status=status) from broken


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


def _answer_error(response: httpx.Response) -> RametError:
    try:
        body = response.json()
        message, code = str(body["error"]), str(body.get("code", ""))
    except (ValueError, KeyError, TypeError):
        message, code = f"HTTP {response.status_code}: {response.text[:200]}", ""
    return error_for(response.status_code, code, message, _retry_after(response))


def _retry_after(response: httpx.Response) -> float | None:
    """Returns the seconds until the time in a Retry-After header, which may also be a date."""
    value: str = response.headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            at = parsedate_to_datetime(value)
        except ValueError:
            return None
        at = at if at.tzinfo else at.replace(tzinfo=timezone.utc)
        return max((at - datetime.now(timezone.utc)).total_seconds(), 0.0)
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
