# SPDX-License-Identifier: Apache-2.0
"""Rules for requests and answers that need no connection: URLs, retries, errors, warnings."""

from __future__ import annotations

import importlib
import json
import math
import os
import ssl
import sys
import uuid
import warnings
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import Any, Callable, Mapping
from urllib.parse import quote

import httpx

from ramet.errors import (
    BadRequest,
    ConnectionFailed,
    IncompleteListWarning,
    PlainHttpWarning,
    RametError,
    ServerError,
    Unauthorized,
    error_for,
)

DEFAULT_HOST = "http://127.0.0.1:7070"

_FIRST_WAIT_S = 0.5  # wait before the first retry after a broken connection; doubled each time
_LEAST_WAIT_S = 0.1


def query(**fields: str | int | bool | None) -> str:
    """Returns the query of a URL, with its question mark, without fields that are None.

    Text may contain bytes that are not UTF-8, encoded as by `os.fsdecode`.
    """
    pairs = [f"{name}={_value(value)}" for name, value in fields.items() if value is not None]
    return "?" + "&".join(pairs) if pairs else ""


def _value(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        return quote(str(value).encode("utf-8", "surrogateescape"), safe="/")
    except UnicodeEncodeError:
        raise BadRequest(f"{value!a} is not a name: it has half of a character", code="bad_text") from None


def segment(text: str) -> str:
    """Returns text as one part of a URL's path."""
    return quote(utf8(text, f"the name {text!a}"), safe="")


def utf8(text: str, what: str) -> bytes:
    """Returns text as UTF-8.

    Raises:
        BadRequest: It has a lone surrogate; the message begins with `what`.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as failed:
        raise BadRequest(
            f"{what} has no UTF-8 form: {text[failed.start]!a} at position {failed.start} is half "
            "of a character",
            code="bad_text",
        ) from None


def to_json(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a JSON body of the fields that are not None. A mapping becomes an object."""
    return {
        name: dict(value) if isinstance(value, Mapping) else value
        for name, value in fields.items()
        if value is not None
    }


def json_bytes(fields: Mapping[str, Any]) -> bytes:
    """Returns an object as JSON.

    Raises:
        BadRequest: A field has no JSON form; the message names it.
    """
    try:
        return _json(fields)
    except (TypeError, ValueError):
        for name, value in fields.items():
            _check_json(name, value)
        raise


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _check_json(name: str, value: Any) -> None:
    try:
        _json(value)
    except UnicodeEncodeError:
        reason = "it has half of a character, such as '\\ud800'"
    except (TypeError, ValueError) as failed:
        reason = f"{type(value).__name__} is not text" if isinstance(value, bytes) else str(failed)
    else:
        return
    raise BadRequest(f"{name} cannot be sent as JSON: {reason}", code="bad_text") from None


def checked_key(key: str) -> str:
    """Returns an API key that a header can carry.

    Raises:
        Unauthorized: The key has other characters; the message does not contain the key.
    """
    if all("!" <= one <= "~" for one in key):
        return key
    raise Unauthorized(
        "the API key has a space, a line break or a character that is not ASCII, which no key has: "
        "was it copied as a whole? (set by `api_key` or RAMET_API_KEY)",
        code="unauthorized",
    )


# Says that no earlier request with the same Idempotency-Key can have had an effect.
FIRST = "idempotency-attempt"


def new_key() -> str:
    """Returns a unique value for an Idempotency-Key."""
    return str(uuid.uuid4())


def had_no_effect(failed: RametError) -> bool:
    """Returns whether the service says that it did nothing; a proxy's refusal has no code."""
    return failed.status in (429, 503) and failed.retry_after is not None and bool(failed.code)


def wait_before_retry(failed: RametError, method: str, keyed: bool, tries: int) -> float | None:
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


def warn_of_plain_http(url: httpx.URL) -> None:
    """Warns if an API key would be sent over a network in plain text."""
    if url.scheme == "https" or _is_loopback(url.host):
        return
    warnings.warn(
        f"the API key is sent to {url.host} over plain http, where others can read it: use an "
        "https:// address, or Client(..., allow_plain_http=True) on a private network",
        PlainHttpWarning,
        stacklevel=_level_of_caller(),
    )


def warn_of_missing(hosts: str | None) -> None:
    """Warns if a list lacks what these hosts have."""
    if hosts:
        warnings.warn(
            f"the list lacks what these hosts have, since they did not answer: {hosts}",
            IncompleteListWarning,
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
    while frame.f_back and _is_ours(frame.f_globals.get("__package__")):
        level, frame = level + 1, frame.f_back
    return level


def _is_ours(package: str | None) -> bool:
    return (package or "").partition(".")[0] == "ramet"


def trusting(ca_file: str | os.PathLike[str]) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as failed:  # ssl.SSLError is one
        raise ConnectionFailed(
            f"the CA certificates in {os.fspath(ca_file)!r} cannot be used: {failed} "
            "(set by `ca_file` or RAMET_CA_FILE)"
        ) from failed


def http_context(url: httpx.URL, ca_file: str | os.PathLike[str] | None) -> ssl.SSLContext | bool:
    """Returns the `verify` argument of an httpx client for this URL."""
    if ca_file:
        return trusting(ca_file)
    # Trusts nobody, but is not used; httpx would spend 0.1 s on certificates.
    return url.scheme == "https" or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def tls_context(ca_file: str | os.PathLike[str] | None) -> ssl.SSLContext:
    """Returns the context for a connection with TLS, which trusts `ca_file` or public authorities."""
    return trusting(ca_file) if ca_file else ssl.create_default_context()


def checked_url(host: str) -> httpx.URL:
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


def answer_error(response: httpx.Response) -> RametError:
    try:
        body = response.json()
        message, code = str(body["error"]), str(body.get("code", ""))
    except (ValueError, KeyError, TypeError):
        code, text = "", " ".join(response.text[:200].split())
        message = f"{_site(response)} does not answer as a Ramet service does: HTTP "
        message += f"{response.status_code}: {text}".removesuffix(": ")
    return error_for(response.status_code, code, message, _retry_after(response))


def _site(response: httpx.Response) -> str:
    url = response.request.url
    return f"{url.scheme}://{url.netloc.decode()}"


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


Traceparent = str | Callable[[], str | None] | None


def trace_headers(given: Traceparent) -> dict[str, str]:
    """Returns the headers that make a request part of a trace (W3C Trace Context).

    Without a `traceparent` of the caller, they name OpenTelemetry's current span. A program that
    has one has imported `opentelemetry.trace`, so nothing is imported for programs that do not.
    """
    headers: dict[str, str] = {}
    if given is not None:
        value = given() if callable(given) else given
        return {"traceparent": value} if value else headers
    if "opentelemetry.trace" in sys.modules:
        module = importlib.import_module("opentelemetry.trace.propagation.tracecontext")
        module.TraceContextTextMapPropagator().inject(headers)
    return headers


def upgrade_request(url: httpx.URL, path: str, protocol: str, headers: Mapping[str, str]) -> bytes:
    """Returns the head of a request that changes the protocol of its connection."""
    lines = [
        f"GET {url.path.rstrip('/')}{path} HTTP/1.1",
        f"Host: {url.netloc.decode()}",
        "Connection: Upgrade",
        f"Upgrade: {protocol}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def body_length(head: bytes) -> int:
    """Returns the size of the body that follows a refused upgrade's head: at most 64 KiB."""
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return min(int(line.split(b":")[1]), 65536)
    return 0


def upgrade_refused(path: str, head: bytes, body: bytes) -> RametError:
    """Returns the exception for an answer that does not upgrade the connection."""
    status = int(head.split(b" ", 2)[1])
    try:
        answer = json.loads(body)
        return error_for(status, str(answer["code"]), str(answer["error"]))
    except (ValueError, KeyError, TypeError):
        return ServerError(f"GET {path}: status {status}", status=status)
