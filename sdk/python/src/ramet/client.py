# SPDX-License-Identifier: Apache-2.0
"""HTTP transport: one method per call of the service's API (docs/api.md)."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Iterator, Mapping, Sequence
from urllib.parse import quote

import httpx

from ramet.errors import ConnectionFailed, RametError, ServerError, error_for, stream_error
from ramet.types import Diff, Event, Language, SandboxInfo

DEFAULT_HOST = "http://127.0.0.1:7070"

# The service sends an empty line every 10 s of silence, so a longer one means that it is gone.
_STREAM_SILENCE_S = 30.0

# Creating boots a guest first when the size is new to the host; a diff reads every file.
_CREATE_S = 360.0
_DIFF_S = 3660.0


class Client:
    """A connection pool to one Ramet service. Safe to share between threads.

    Args:
        host: Base URL. Default: the environment's `RAMET_HOST`, then `http://127.0.0.1:7070`.
        api_key: Bearer key. Default: the environment's `RAMET_API_KEY`, then none.
        timeout: Seconds that one answer may take. Creating and comparing sandboxes have longer
            limits of their own at least, and a stream of events has none while the service lives.
        transport: An httpx transport to use instead of the network (tests).

    Raises:
        ConnectionFailed: `host` is no URL.
    """

    def __init__(
        self,
        host: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 60.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.host = (host or os.environ.get("RAMET_HOST") or DEFAULT_HOST).rstrip("/")
        key = api_key or os.environ.get("RAMET_API_KEY")
        self._timeout = timeout
        self._http = httpx.Client(
            base_url=_checked_url(self.host),
            headers={"authorization": f"Bearer {key}"} if key else {},
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=32),
            transport=transport,
            trust_env=False,  # a proxy of the environment is no way to a service on this host
        )

    def close(self) -> None:
        """Closes the connections; sandboxes stay."""
        self._http.close()

    @property
    def closed(self) -> bool:
        """True after `close`: nothing can be asked any more."""
        return self._http.is_closed

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def healthz(self) -> bool:
        """True when the service answers and can serve sandboxes."""
        try:
            response = self._http.get("/v1/healthz", timeout=self._limit(0))
        except httpx.TransportError:
            return False
        return response.status_code == 200 and response.text.strip() == "ok"

    def create_sandbox(
        self,
        *,
        template: str | None = None,
        vcpus: int | None = None,
        ram_mib: int | None = None,
        rootfs_gb: int | None = None,
        timeout_seconds: int | None = None,
        idle_timeout_seconds: int | None = None,
        env: Mapping[str, str] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> SandboxInfo:
        """Creates a sandbox; what is None is the service's default.

        Args:
            template: Name of the template to start from.
            vcpus: Virtual CPUs, 1 to 32.
            ram_mib: Memory in MiB.
            rootfs_gb: Root disk in GiB.
            timeout_seconds: Lifetime in seconds.
            idle_timeout_seconds: Seconds without activity after which the sandbox ends.
            env: Environment variables of every call.
            metadata: JSON object kept with the sandbox.

        Raises:
            BadRequest: A value is wrong; the message names it.
            Unavailable: The host has no room.
        """
        asked: dict[str, Any] = {
            "template": template,
            "vcpus": vcpus,
            "ram_mib": ram_mib,
            "rootfs_gb": rootfs_gb,
            "timeout_seconds": timeout_seconds,
            "idle_timeout_seconds": idle_timeout_seconds,
            "env": dict(env) if env is not None else None,
            "metadata": dict(metadata) if metadata is not None else None,
        }
        body = {name: value for name, value in asked.items() if value is not None}
        return SandboxInfo.from_json(self._json("POST", "/v1/sandboxes", body, _CREATE_S))

    def list_sandboxes(self) -> list[SandboxInfo]:
        """Every sandbox of this key, oldest first."""
        answer = self._json("GET", "/v1/sandboxes")
        return [SandboxInfo.from_json(one) for one in answer]

    def get_sandbox(self, sandbox_id: str) -> SandboxInfo:
        """What the service knows of a sandbox.

        Raises:
            NotFound: There is none with this id.
        """
        return SandboxInfo.from_json(self._json("GET", _sandbox(sandbox_id)))

    def delete_sandbox(self, sandbox_id: str) -> None:
        """Ends a sandbox; its memory and disk are gone.

        Raises:
            NotFound: There is none with this id.
        """
        self._request("DELETE", _sandbox(sandbox_id))

    def exec_stream(
        self,
        sandbox_id: str,
        code: str,
        language: Language = "python",
        *,
        timeout_seconds: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Iterator[Event]:
        """Runs code and yields its events as they come; the last one is the exit event.

        Args:
            sandbox_id: Where to run it.
            code: Source text.
            language: "python" (the sandbox's one process) or "bash" (a fresh process).
            timeout_seconds: Limit of the call in seconds.
            env: Environment variables of this call.
            cwd: Working directory of this call.

        Raises:
            NotFound: There is no such sandbox.
            VmDied: The sandbox's VM died during the call.
            ConnectionFailed: The stream broke off; the call itself goes on in the sandbox.
        """
        body: dict[str, Any] = {"code": code, "language": language, "output": "chunks"}
        if timeout_seconds is not None:
            body["timeout_seconds"] = timeout_seconds
        if env is not None:
            body["env"] = dict(env)
        if cwd is not None:
            body["cwd"] = cwd
        ended = False
        for line in self._stream("POST", _sandbox(sandbox_id) + "/exec", body):
            obj = json.loads(line)
            if obj.get("type") == "error":
                raise stream_error(str(obj.get("code", "")), str(obj.get("data", "")))
            event = Event.from_json(obj)
            ended = event.type == "exit"
            yield event
        if not ended:
            raise ConnectionFailed("the stream of events ended before the call's exit event")

    def interrupt(self, sandbox_id: str) -> None:
        """Raises KeyboardInterrupt in the running call (SIGINT in bash); without one, nothing.

        Raises:
            NotFound: There is no such sandbox.
        """
        self._request("POST", _sandbox(sandbox_id) + "/interrupt")

    def fork_sandbox(self, sandbox_id: str, n: int = 1, *, reseed: bool = False) -> list[str]:
        """Clones a running sandbox, in the middle of whatever it does; returns the children's ids.

        Args:
            sandbox_id: The parent. It goes on and notices nothing.
            n: Number of children, all or none: 1 to the service's limit (32 unless configured).
            reseed: Python's `random` and numpy's generator draw differently in each child. By
                default they are part of the state that is cloned.

        Raises:
            BadRequest: `n` is out of range.
            NotFound: There is no such sandbox.
            Unavailable: The host has no room for so many.
        """
        body: dict[str, Any] = {"n": n}
        if reseed:
            body["reseed"] = True
        answer = self._json("POST", _sandbox(sandbox_id) + "/fork", body)
        return [str(child) for child in answer["children"]]

    def merge_sandbox(self, parent_id: str, winner_id: str) -> None:
        """Lets the parent's id drive the winner's VM. The parent's old VM and the winner's id go.

        Raises:
            BadRequest: Parent and winner are the same.
            Conflict: The winner does not descend from the parent.
            NotFound: One of them is not there.
        """
        self._request("POST", f"{_sandbox(parent_id)}/merge_into/{quote(winner_id, safe='')}")

    def diff_sandboxes(
        self, sandbox_id: str, other_id: str, paths: Sequence[str] | None = None
    ) -> Diff:
        """Compares the files of two sandboxes.

        Args:
            sandbox_id: One sandbox.
            other_id: The other. `added` is what only the other has.
            paths: Absolute paths to compare, with all that is under them. Default: /root and /tmp.

        Raises:
            BadRequest: A path is wrong, or more differs than can be told (code ``too_large``).
            NotFound: One of them is not there.
        """
        if isinstance(paths, str):
            raise TypeError("paths must be a list of strings, not one string")
        body: dict[str, Any] = {} if paths is None else {"paths": list(paths)}
        path = f"{_sandbox(sandbox_id)}/diff/{quote(other_id, safe='')}"
        return Diff.from_json(self._json("POST", path, body, _DIFF_S))

    def replay(self, sandbox_id: str) -> list[Event]:
        """The sandbox's last events (up to 1,000), oldest first.

        Raises:
            NotFound: There is no such sandbox.
        """
        lines = self._stream("GET", _sandbox(sandbox_id) + "/replay", None)
        return [Event.from_json(json.loads(line)) for line in lines]

    def _json(self, method: str, path: str, body: Any = None, at_least_s: float = 0) -> Any:
        response = self._request(method, path, body, at_least_s)
        try:
            return response.json()
        except ValueError as broken:
            raise ServerError(
                f"{method} {path}: the answer is not JSON", status=response.status_code
            ) from broken

    def _request(
        self, method: str, path: str, body: Any = None, at_least_s: float = 0
    ) -> httpx.Response:
        timeout = self._limit(at_least_s)
        with self._transport_errors(method, path, timeout):
            response = self._http.request(method, path, json=body, timeout=timeout)
        if response.status_code >= 400:
            raise _answer_error(response)
        return response

    def _limit(self, at_least_s: float) -> httpx.Timeout:
        return httpx.Timeout(max(self._timeout, at_least_s), connect=5.0)

    def _stream(self, method: str, path: str, body: Any) -> Iterator[str]:
        """Lines of an NDJSON answer, without the empty ones that keep the connection alive."""
        timeout = httpx.Timeout(_STREAM_SILENCE_S, connect=5.0)
        with self._transport_errors(method, path, timeout):
            with self._http.stream(method, path, json=body, timeout=timeout) as response:
                if response.status_code >= 400:
                    response.read()
                    raise _answer_error(response)
                yield from _lines(response)

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


def _sandbox(sandbox_id: str) -> str:
    return "/v1/sandboxes/" + quote(sandbox_id, safe="")


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
