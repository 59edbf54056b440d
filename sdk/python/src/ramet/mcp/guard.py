# SPDX-License-Identifier: Apache-2.0
"""Decides over HTTP, before a request's body is read, whether its key may send it."""

from __future__ import annotations

import hashlib
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Awaitable, Callable

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ramet.errors import RametError, Unauthorized
from ramet.mcp.output import clean_output
from ramet.mcp.state import Lanes
from ramet.mcp.tools import bearer

BODY_MAX = 64 << 20  # bytes of a request: as of the service
SESSION_IDLE_S = 1800.0  # a session of the older handshake ends after this time without requests

_VALID_S = 60.0  # for which a key that the service accepted is not checked again
_REFUSED_S = 5.0
_KNOWN_MAX = 4096  # accepted keys that are remembered, and as many refused ones
_CHECKS_MAX = 4  # at one time, of keys that were accepted before, and as many of others
_WAITING_MAX = 64  # checks of either kind that wait for their turn
_SESSION_ID = "mcp-session-id"

CheckKey = Callable[[str | None], Awaitable[None]]
"""Asks the service whether it accepts a key; raises RametError if not, or if it does not answer."""


@dataclass(frozen=True)
class Limits:
    """What the requests in progress may use: those of one key, or all."""

    requests: int
    body_bytes: int
    sessions: int


LIMITS_OF_KEY = Limits(requests=512, body_bytes=2 * BODY_MAX, sessions=64)
LIMITS_OF_ALL = Limits(requests=2048, body_bytes=8 * BODY_MAX, sessions=1024)


@dataclass(frozen=True)
class Refusal:
    """An answer that ends a request."""

    status: int
    reason: str
    headers: dict[str, str]

    def __call__(self) -> JSONResponse:
        return JSONResponse({"error": self.reason}, self.status, self.headers)


Answers = OrderedDict[str, tuple[float, Refusal | None]]
"""The time until which the answer about a key holds, and the answer, by the key's digest."""

_BUSY = Refusal(
    503, "too many API keys wait to be checked: wait and try again", {"Retry-After": "1"}
)


class Keys:
    """What the service said about keys, of which only the digests are kept.

    Whoever invents keys does not keep others out: refused keys have a table of their own, and keys
    that were accepted before are checked in a queue of their own.
    """

    def __init__(self, check: CheckKey) -> None:
        self._check = check
        self._accepted: Answers = OrderedDict()
        self._refused: Answers = OrderedDict()
        self._of_accepted = anyio.CapacityLimiter(_CHECKS_MAX)
        self._of_others = anyio.CapacityLimiter(_CHECKS_MAX)
        self._lanes = Lanes()

    async def refusal(self, key: str | None, owner: str) -> Refusal | None:
        """Returns the answer to a request with a key that the service does not accept."""
        if known := self._lookup(owner):
            return known[1]
        async with self._lanes.hold(owner):  # requests with the same key share one check
            if known := self._lookup(owner):
                return known[1]
            turns = self._of_accepted if owner in self._accepted else self._of_others
            if turns.statistics().tasks_waiting >= _WAITING_MAX:
                return _BUSY
            async with turns:
                return await self._ask(key, owner)

    async def _ask(self, key: str | None, owner: str) -> Refusal | None:
        try:
            await self._check(key)
        except Unauthorized as error:
            if error.status != 403:  # which is about a permission of a key that exists
                self._accepted.pop(owner, None)
                return _remember(self._refused, owner, _REFUSED_S, _wrong_key(key, error))
        except RametError as error:
            refusal = _not_checked(error)
            seconds = float(refusal.headers["Retry-After"])
            return _remember(self._refused, owner, seconds, refusal)
        return _remember(self._accepted, owner, _VALID_S, None)

    def _lookup(self, owner: str) -> tuple[float, Refusal | None] | None:
        now = time.monotonic()
        for answers in (self._accepted, self._refused):
            known = answers.get(owner)
            if known and now < known[0]:
                return known
        return None


def _remember(
    answers: Answers, owner: str, seconds: float, refusal: Refusal | None
) -> Refusal | None:
    answers[owner] = time.monotonic() + seconds, refusal
    answers.move_to_end(owner)
    if len(answers) > _KNOWN_MAX:
        answers.popitem(last=False)
    return refusal


def _wrong_key(key: str | None, error: RametError) -> Refusal:
    reason = "send the header 'Authorization: Bearer KEY' with your API key"
    if key is not None:
        reason = f"{error.code}: {clean_output(str(error))[:500]}"
    return Refusal(401, reason, {"WWW-Authenticate": "Bearer"})


def _not_checked(error: RametError) -> Refusal:
    status = 429 if error.status == 429 else 503
    reason = f"the service did not check your API key: {clean_output(str(error))[:500]}"
    return Refusal(status, reason, {"Retry-After": str(max(1, round(error.retry_after or 1)))})


class Usage:
    """Requests in progress and sessions, of each key and in all."""

    def __init__(self, of_key: Limits = LIMITS_OF_KEY, of_all: Limits = LIMITS_OF_ALL) -> None:
        self._of_key, self._of_all = of_key, of_all
        self._requests: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._sessions: OrderedDict[str, tuple[str, float]] = OrderedDict()  # owner, last use

    def begin(self, owner: str, size: int, opens_session: bool) -> Refusal | None:
        """Counts a request with a body of this size, or returns why it is refused."""
        wanted = {"requests": 1, "body_bytes": size, "sessions": int(opens_session)}
        mine, all_ = self._used(owner)
        for what, more in wanted.items():
            if more and mine[what] + more > getattr(self._of_key, what):
                return _too_many(429, "this API key", what)
            if more and all_[what] + more > getattr(self._of_all, what):
                return _too_many(503, "this server", what)
        self._requests[owner] += 1
        self._bytes[owner] += size
        return None

    def end(self, owner: str, size: int) -> None:
        """Ends a request that `begin` has counted."""
        for count, used in ((self._requests, 1), (self._bytes, size)):
            count[owner] -= used
            if not count[owner]:
                del count[owner]

    def use_session(self, session: str, owner: str) -> None:
        """Counts a session from now on, or again."""
        self._sessions[session] = owner, time.monotonic()
        self._sessions.move_to_end(session)

    def end_session(self, session: str) -> None:
        """Counts a session no longer."""
        self._sessions.pop(session, None)

    def _used(self, owner: str) -> tuple[dict[str, int], dict[str, int]]:
        idle_since = time.monotonic() - SESSION_IDLE_S
        while self._sessions and next(iter(self._sessions.values()))[1] < idle_since:
            self._sessions.popitem(last=False)
        mine = sum(one == owner for one, _ in self._sessions.values())
        return (
            {
                "requests": self._requests[owner],
                "body_bytes": self._bytes[owner],
                "sessions": mine,
            },
            {
                "requests": self._requests.total(),
                "body_bytes": self._bytes.total(),
                "sessions": len(self._sessions),
            },
        )


def _too_many(status: int, whose: str, what: str) -> Refusal:
    name = {"requests": "requests in progress", "body_bytes": "large requests in progress"}
    reason = f"{whose} has too many {name.get(what, 'sessions')}: wait and try again"
    return Refusal(status, reason, {"Retry-After": "1"})


class Guard:
    """Passes on requests whose key the service accepts, within the limits.

    It also binds sessions of the older handshake to the key that began them, so that nobody else
    can cancel their calls.

    Args:
        app: The application.
        keys: The keys that the service accepts.
        usage: The limits.
        required: True: a request without a key is refused, even if the service accepts it.
    """

    def __init__(self, app: ASGIApp, keys: Keys, usage: Usage, *, required: bool) -> None:
        self._app = app
        self._keys = keys
        self._usage = usage
        self._required = required

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        key = bearer(headers.get("authorization", ""))
        owner = hashlib.sha256((key or "").encode()).hexdigest()
        size = _size_of_body(headers)
        refusal = await self._refusal(scope, headers, key, owner, size)
        if refusal:
            await refusal()(scope, receive, send)
            return
        token = AccessToken(token=key or "", client_id=owner, scopes=[])
        scope["user"] = AuthenticatedUser(token)
        try:
            await self._app(scope, receive, self._watch_sessions(scope, headers, owner, send))
        finally:
            self._usage.end(owner, size)

    async def _refusal(
        self, scope: Scope, headers: Headers, key: str | None, owner: str, size: int
    ) -> Refusal | None:
        if size > BODY_MAX:
            return Refusal(413, f"a request has at most {BODY_MAX} bytes", {})
        if key is None and self._required:
            return _wrong_key(None, RametError(""))
        version = headers.get("mcp-protocol-version")
        handshake = version is None or version in HANDSHAKE_PROTOCOL_VERSIONS
        opens = scope["method"] == "POST" and handshake and _SESSION_ID not in headers
        return await self._keys.refusal(key, owner) or self._usage.begin(owner, size, opens)

    def _watch_sessions(self, scope: Scope, headers: Headers, owner: str, send: Send) -> Send:
        """Returns `send`, which also notes sessions that begin, are used, and end."""

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                made = Headers(raw=message.get("headers", [])).get(_SESSION_ID)
                session = headers.get(_SESSION_ID) or made
                if session and scope["method"] == "DELETE":
                    self._usage.end_session(session)
                elif session:
                    self._usage.use_session(session, owner)
            await send(message)

        return watched


def _size_of_body(headers: Headers) -> int:
    """Returns the size of a request's body; the most that it may have if it is not known."""
    if "transfer-encoding" in headers:
        return BODY_MAX
    length = headers.get("content-length", "0")
    return int(length) if length.isdecimal() and len(length) < 20 else BODY_MAX
