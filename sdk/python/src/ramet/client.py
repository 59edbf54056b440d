# SPDX-License-Identifier: Apache-2.0
# Generated from _async/client.py by make_sync.py: change that file.
"""The class `Client`: one method for each request of the service's API (docs/api.md)."""

from __future__ import annotations

import base64
import json
import os
import socket
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from types import TracebackType
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence, TYPE_CHECKING

import httpx

from ramet._io import Cancelled, finish
from ramet._transport import (
    DEFAULT_HOST,
    Transport,
    json_bytes,
    new_key,
    query,
    segment,
    to_json,
)
from ramet.errors import BadRequest, ConnectionFailed, RametError, stream_error
from ramet.types import (
    AuditEvent,
    CheckpointInfo,
    Conflicts,
    ContextInfo,
    ContextLanguage,
    Diff,
    Event,
    FileEvent,
    FileInfo,
    FileMerge,
    HistoryEntry,
    Language,
    Metrics,
    PortShare,
    ProcessEvent,
    ProcessInfo,
    Pruned,
    PtyInfo,
    Region,
    SandboxInfo,
    SpaceInfo,
    Started,
    TemplateInfo,
    TreeInfo,
)

if TYPE_CHECKING:
    from ramet.checkpoint import Checkpoint

# Minimum timeouts of slow requests, in seconds. A create boots a guest first if the size is new to
# the host. A diff reads whole files.
_CREATE_S = 360.0
_DIFF_S = 3660.0
_FREEZE_S = 3660.0  # the service writes to disk whatever differs from the template
_REMOVE_S = 660.0
_CONTEXT_START_S = 90.0  # an interpreter starts
_INPUT_S = 60.0  # the service waits up to 30 s for room for the next part of a program's input
_INPUT_PART = 65_000  # bytes; the parts are slightly larger
_PTY_WAIT_S = 30.0  # for the answer, in addition to the time that the service waits for output

_Request = tuple[str, str, Any]  # method, path and body


class Client:
    """A connection pool to one Ramet service. Safe to share between threads.

    Args:
        host: Base URL. Default: the environment's `RAMET_HOST`, then `http://127.0.0.1:7070`.
        api_key: Bearer key. Default: the environment's `RAMET_API_KEY`, then none.
        region: Region whose service must answer; the service of another region answers NotFound
            (code ``unknown_region``). Default: any region. "nearest": of the regions that `host`
            lists, the one that answers first, found before the first request and then kept for ten
            minutes by all clients of the process.
        timeout: Seconds that one answer may take. Slow requests, such as create and diff, have a
            higher minimum; a stream of events has no limit while the service lives.
        ca_file: PEM file of the certificates to trust, for an https `host` with your own
            certificate. Default: the environment's `RAMET_CA_FILE`, then the public authorities.
        retry_seconds: Total time that one request may wait for retries; 0: never retry. A request
            is retried if the service names a time (`Retry-After`: 429, 503) or the connection
            broke, and only if a repetition is harmless: reading, writing a file, and create, fork
            and resume (which carry an `Idempotency-Key`). After that the error is raised, with
            its `retry_after`.
        allow_plain_http: Suppress `PlainHttpWarning` for a key that is sent over plain http to
            another machine, because the network in between is private.
        traceparent: The W3C Trace Context of all requests: a `traceparent` header's value, or a
            function that returns one, or None, for each request. Default: the current span of
            OpenTelemetry, if the program uses it.
        transport: An httpx transport to use instead of the network (for tests).

    Every method that sends a request may also raise these, in addition to the errors it lists:
    `ConnectionFailed` if there is no answer, `Unauthorized` if the key is not accepted,
    `CapReached` and `Unavailable` if the service refuses the request for now, and `ServerError`.

    Raises:
        ConnectionFailed: `host` is not a URL, or `ca_file` cannot be read.
        Unauthorized: `api_key` has a character that no key has.
    """

    def __init__(
        self,
        host: str | None = None,
        api_key: str | None = None,
        *,
        region: str | None = None,
        timeout: float = 60.0,
        ca_file: str | os.PathLike[str] | None = None,
        retry_seconds: float = 10.0,
        allow_plain_http: bool = False,
        traceparent: str | Callable[[], str | None] | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        host = (host or os.environ.get("RAMET_HOST") or DEFAULT_HOST).rstrip("/")
        if region is not None and region != "nearest":
            host += "/r/" + segment(region)
        key = api_key or os.environ.get("RAMET_API_KEY")
        self._http = Transport(
            host,
            key,
            timeout,
            transport,
            ca_file=ca_file or os.environ.get("RAMET_CA_FILE"),
            retry_seconds=retry_seconds,
            allow_plain_http=allow_plain_http,
            traceparent=traceparent,
            find_nearest=region == "nearest",
        )

    @property
    def host(self) -> str:
        """The base URL of requests."""
        return self._http.host

    def close(self) -> None:
        """Closes the connections. Sandboxes continue to run."""
        self._http.close()

    @property
    def closed(self) -> bool:
        """True after `close`: no more requests are possible."""
        return self._http.closed

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
        """Returns True if the service answers and can create sandboxes. Raises nothing."""
        try:
            answer = self._http.request("GET", "/v1/healthz", retry=False)
            return answer.text.strip() == "ok"
        except RametError:
            return False

    def events(
        self,
        *,
        since: int | None = None,
        follow: bool = False,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[AuditEvent]:
        """Yields the events of the tenant's sandboxes and keys; with an operator's key, those of all.

        In a fleet, without `since` and `follow`: the events of all hosts, in the order of time. With
        them: those of the host that is asked.

        Args:
            since: Only events with a higher `n`. None: all that the service keeps, or with `follow`
                only new ones.
            follow: Go on with new events. The iteration ends when the service stops; continue
                with the `n` of the last event.
            limit: End after so many events.
            newest_first: Begin with the newest event and go back. Not with `follow`.

        Raises:
            BadRequest: A number is out of range, or `follow` and `newest_first` are combined.
            ConnectionFailed: The stream broke off.
        """
        path = "/v1/events" + query(
            since=since, follow=follow or None, limit=limit, newest_first=newest_first or None
        )
        with self._http.lines("GET", path, None) as lines:
            for line in lines:
                yield AuditEvent.from_json(json.loads(line))

    def version(self) -> str:
        """Returns the version of the service, such as "0.1.0"."""
        return str((self._http.json("GET", "/v1/openapi.json"))["info"]["version"])

    def regions(self) -> list[Region]:
        """Returns the regions that the service knows, its own first."""
        return [Region.from_json(one) for one in self._http.json("GET", "/v1/regions")]

    def templates(self) -> list[TemplateInfo]:
        """Returns the templates of the service."""
        return [TemplateInfo.from_json(one) for one in self._http.pages("/v1/templates")]

    def create_sandbox(
        self,
        *,
        template: str | None = None,
        vcpus: int | None = None,
        ram_mib: int | None = None,
        rootfs_gb: int | None = None,
        lifetime_seconds: int | None = None,
        idle_timeout_seconds: int | None = None,
        persistent: bool | None = None,
        egress: bool | None = None,
        env: Mapping[str, str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
        checkpoint: str | None = None,
        checkpoint_each_call: Mapping[str, int] | None = None,
        tree: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        timeout_seconds: int | None = None,
    ) -> SandboxInfo:
        """Creates a sandbox; an argument that is None takes the service's default.

        Args:
            template: Name of the template to start from.
            vcpus: Virtual CPUs, 1 to 32.
            ram_mib: Memory in MiB.
            rootfs_gb: Root disk in GiB.
            lifetime_seconds: Seconds until it ends, whatever happens in it.
            idle_timeout_seconds: Seconds without activity after which the sandbox ends.
            persistent: Freeze it into a Space at its timeouts, instead of ending it.
            egress: False: neither it nor its forks can ever send to the network.
            env: Environment variables of every call.
            metadata: JSON object that is stored with the sandbox.
            labels: Up to 64 strings by name, by which lists can be filtered.
            checkpoint: Id of a checkpoint to start from, with its template and sizes. Other
                arguments that are None are as in its sandbox.
            checkpoint_each_call: ``{"keep": n}``: keep the state after each of the last n calls, for
                `undo_calls`; 0: do not.
            tree: Limits of this sandbox and all its forks together: "live", "ram_mib",
                "cpu_seconds", "wall_seconds", "depth" and "at_limit" (docs/trees.md).
            idempotency_key: If a call with the same key and arguments was made within the last
                hour, returns the sandbox that it created instead of a new one. None: a new key.
            timeout_seconds: The former name of `lifetime_seconds`.

        Raises:
            BadRequest: A value is wrong; the message names it.
            Unavailable: The host has no room.
        """
        body = to_json(
            {
                "template": template,
                "vcpus": vcpus,
                "ram_mib": ram_mib,
                "rootfs_gb": rootfs_gb,
                "lifetime_seconds": _lifetime(lifetime_seconds, timeout_seconds),
                "idle_timeout_seconds": idle_timeout_seconds,
                "persistent": persistent,
                "egress": egress,
                "env": env,
                "metadata": metadata,
                "labels": labels,
                "checkpoint": checkpoint,
                "checkpoint_each_call": checkpoint_each_call,
                "tree": tree,
            }
        )
        answer = self._make("/v1/sandboxes", body, _delete, _CREATE_S, idempotency_key)
        return SandboxInfo.from_json(answer)

    def _make(
        self,
        path: str,
        body: Any,
        undo: Callable[[Any], list[_Request]],
        at_least_s: float,
        key: str | None,
    ) -> Any:
        """Sends a request that makes sandboxes, and returns the answer.

        If the caller is cancelled, or the answer does not come, nothing is left: the service undoes
        a request whose client leaves before the answer, and the requests that `undo` returns for an
        answer do so after it. With a `key` of the caller, who can ask again, the sandboxes stay.
        """
        used = key or new_key()
        try:
            return self._http.json("POST", path, body, at_least_s, key=used, new=key is None)
        except (*Cancelled, ConnectionFailed):
            if key is None:
                finish(lambda: self._undo(path, body, undo, used))
            raise

    def _undo(
        self, path: str, body: Any, undo: Callable[[Any], list[_Request]], key: str
    ) -> None:
        """Undoes a request if it was answered and the service can be reached."""
        try:
            answer = self._http.answer(path, body, key)
            for method, target, sent in undo(answer) if answer is not None else []:
                self._http.brief(method, target, sent)
        except RametError:
            pass

    def list_sandboxes(
        self,
        *,
        state: str | None = None,
        template: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        root: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> list[SandboxInfo]:
        """Returns the sandboxes of this key, oldest first, from as many pages as needed.

        Arguments and errors are those of `iter_sandboxes`.
        """
        found = self.iter_sandboxes(
            state=state,
            template=template,
            metadata=metadata,
            created_after=created_after,
            created_before=created_before,
            root=root,
            labels=labels,
        )
        return [one for one in found]

    def iter_sandboxes(
        self,
        *,
        state: str | None = None,
        template: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        root: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Iterator[SandboxInfo]:
        """Yields the sandboxes of this key, oldest first, and requests pages only as needed.

        Sandboxes created or deleted meanwhile may be missing; all others appear exactly once. In
        a fleet, those of one host come after those of another one, as in all lists.

        Args:
            state: Only those in this state: "ready", "running" or "freezing".
            template: Only those made from the template of this name.
            metadata: Only those whose metadata has these members, with equal values: strings,
                numbers, bools or None.
            created_after: Only those created later. A time without a zone is local.
            created_before: Only those created earlier.
            root: Only those of the tree with this root.
            labels: Only those that have these labels.

        Raises:
            BadRequest: A value is wrong; the message names it.
        """
        for one in self._http.pages(
            "/v1/sandboxes",
            state=state,
            template=template,
            metadata=_query_object(metadata),
            created_after=_utc(created_after),
            created_before=_utc(created_before),
            root=root,
            labels=_query_object(labels),
        ):
            yield SandboxInfo.from_json(one)

    def list_children(self, sandbox_id: str) -> list[SandboxInfo]:
        """Returns all living children of a sandbox, oldest first, from as many pages as needed.

        Raises:
            NotFound: There is no such sandbox.
        """
        path = _sandbox(sandbox_id) + "/children"
        return [SandboxInfo.from_json(one) for one in self._http.pages(path)]

    def get_sandbox(self, sandbox_id: str) -> SandboxInfo:
        """Returns what the service knows about a sandbox.

        Raises:
            NotFound: There is none with this id.
        """
        return SandboxInfo.from_json(self._http.json("GET", _sandbox(sandbox_id)))

    def get_metrics(
        self,
        sandbox_id: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> list[Metrics]:
        """Returns what a sandbox uses of the host: samples of the last hour, one every 10 seconds.

        The last one is of this moment, unless `until` is given. A young sandbox has fewer, and
        samples from before a restart of the service are lost. The request does not count as
        activity in the sandbox.

        Args:
            sandbox_id: The sandbox.
            since: Only samples from this time on. A time without a zone is local.
            until: Only samples up to this time.
            limit: Only the newest samples, at most so many beside that of this moment.

        Returns:
            The samples, oldest first.

        Raises:
            BadRequest: `since` is later than `until`, or `limit` is less than 1.
            NotFound: There is no such sandbox.
        """
        fields = query(since=_utc(since), until=_utc(until), limit=limit)
        answer = self._http.json("GET", _sandbox(sandbox_id) + "/metrics" + fields)
        samples = answer["samples"] + ([answer["now"]] if until is None else [])
        return [Metrics.from_json(answer, one) for one in samples]

    def update_sandbox(
        self,
        sandbox_id: str,
        *,
        lifetime_seconds: int | None = None,
        idle_timeout_seconds: int | None = None,
        persistent: bool | None = None,
        egress: bool | None = None,
        metadata: Mapping[str, Any] | None = None,
        score: float | None = None,
        labels: Mapping[str, str] | None = None,
        checkpoint_each_call: Mapping[str, int] | None = None,
        timeout_seconds: int | None = None,
    ) -> SandboxInfo:
        """Changes settings of a sandbox, all of them or none; None leaves a setting as it is.

        Args:
            sandbox_id: The sandbox. The change counts as activity in it.
            lifetime_seconds: It ends so many seconds from now. A key's longest lifetime counts
                from the creation of the sandbox.
            idle_timeout_seconds: Seconds without activity after which it ends.
            persistent: True: freeze it into a Space at its timeouts, instead of ending it.
            egress: False: nothing that it sends leaves the host from now on. It cannot be opened
                again.
            metadata: JSON object that replaces the old one.
            score: How good it is; higher is better. A tree can end those with the lowest score.
            labels: They replace the old ones.
            checkpoint_each_call: As for `create_sandbox`; ``{"keep": 0}`` ends it, and what was kept
                stays.
            timeout_seconds: The former name of `lifetime_seconds`.

        Returns:
            The sandbox after the change.

        Raises:
            NotFound: There is none with this id.
            Conflict: It is being frozen, or `egress` is True and it is closed.
        """
        body = to_json(
            {
                "lifetime_seconds": _lifetime(lifetime_seconds, timeout_seconds),
                "idle_timeout_seconds": idle_timeout_seconds,
                "persistent": persistent,
                "egress": egress,
                "metadata": metadata,
                "score": score,
                "labels": labels,
                "checkpoint_each_call": checkpoint_each_call,
            }
        )
        return SandboxInfo.from_json(self._http.json("PATCH", _sandbox(sandbox_id), body))

    def delete_sandbox(self, sandbox_id: str) -> None:
        """Ends a sandbox and discards its memory and disk.

        Raises:
            NotFound: There is none with this id.
        """
        self._http.request("DELETE", _sandbox(sandbox_id))

    def freeze_sandbox(
        self, sandbox_id: str, *, idempotency_key: str | None = None
    ) -> SpaceInfo:
        """Writes a sandbox, memory included, to disk as a Space, and removes the sandbox's id.

        Args:
            sandbox_id: The sandbox. It continues if the freeze fails.
            idempotency_key: As for `create_sandbox`.

        Raises:
            NotFound: There is no such sandbox.
            CapReached: The Spaces of this key may not use more of the disk.
            Unavailable: The Space could not be written; the sandbox continues.
        """
        key = idempotency_key or new_key()
        path = _sandbox(sandbox_id) + "/freeze"
        answer = self._http.json("POST", path, None, _FREEZE_S, key=key)
        return self.get_space(str(answer["space_id"]))

    def list_spaces(self) -> list[SpaceInfo]:
        """Returns all Spaces of this key, oldest first, from as many pages as needed."""
        return [one for one in self.iter_spaces()]

    def iter_spaces(self) -> Iterator[SpaceInfo]:
        """Yields all Spaces of this key, oldest first, and requests pages only as needed."""
        for one in self._http.pages("/v1/spaces"):
            yield SpaceInfo.from_json(one)

    def get_space(self, space_id: str) -> SpaceInfo:
        """Returns what the service knows about a Space.

        Raises:
            NotFound: There is none with this id.
        """
        return SpaceInfo.from_json(self._http.json("GET", _space(space_id)))

    def delete_space(self, space_id: str) -> None:
        """Removes a Space.

        Raises:
            NotFound: There is none with this id.
        """
        self._http.request("DELETE", _space(space_id))

    def resume_space(
        self,
        space_id: str,
        *,
        lifetime_seconds: int | None = None,
        idle_timeout_seconds: int | None = None,
        persistent: bool | None = None,
        egress: bool | None = None,
        idempotency_key: str | None = None,
        timeout_seconds: int | None = None,
    ) -> SandboxInfo:
        """Resumes a Space as a sandbox with a new id, and removes the Space.

        Args:
            space_id: The Space. It remains if the resume fails.
            lifetime_seconds: Seconds until it ends. None: as before.
            idle_timeout_seconds: Seconds without activity after which the sandbox ends. None: as
                before.
            persistent: Freeze it again at its timeouts. None: end it.
            egress: None: as before. A sandbox without egress cannot get it back.
            idempotency_key: As for `create_sandbox`.
            timeout_seconds: The former name of `lifetime_seconds`.

        Raises:
            NotFound: There is no such Space.
            Conflict: It is already being resumed, or `egress` was requested for a Space without it.
            SpaceDamaged: The files on disk differ from what was written.
        """
        body = to_json(
            {
                "lifetime_seconds": _lifetime(lifetime_seconds, timeout_seconds),
                "idle_timeout_seconds": idle_timeout_seconds,
                "persistent": persistent,
                "egress": egress,
            }
        )
        path = _space(space_id) + "/resume"
        answer = self._make(path, body, _freeze, _CREATE_S, idempotency_key)
        return SandboxInfo.from_json(answer)

    def fork_space(
        self, space_id: str, n: int = 1, *, reseed: bool = False, idempotency_key: str | None = None
    ) -> Started:
        """Starts sandboxes from a Space, which stays.

        Args:
            space_id: The Space.
            n: Number of sandboxes: 1 to the service's limit (32 unless configured).
            reseed: As for `fork_sandbox`.
            idempotency_key: As for `create_sandbox`.

        Returns:
            Those that were started, and why the others could not be.

        Raises:
            BadRequest: `n` is out of range.
            NotFound: There is no such Space.
            Conflict: It is being resumed or deleted.
            SpaceDamaged: The files on disk differ from what was written.
            CapReached: The key or the tree (code ``tree_limit``) may not have so many sandboxes.
            Unavailable: None could be started.
        """
        return self._fork_from(_space(space_id), n, reseed, idempotency_key)

    def _fork_from(self, source: str, n: int, reseed: bool, key: str | None) -> Started:
        body: dict[str, Any] = {"n": n, "reseed": True} if reseed else {"n": n}
        answer = self._make(source + "/fork", body, _delete_started, _CREATE_S, key)
        return Started.from_json(answer)

    # Checkpoints, see `Checkpoint`.

    def take_checkpoint(
        self,
        sandbox_id: str,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        ttl_seconds: int | None = None,
        pin: bool = False,
        idempotency_key: str | None = None,
    ) -> CheckpointInfo:
        """Keeps the present state of a sandbox; see `Sandbox.checkpoint`.

        Args:
            sandbox_id: The sandbox. It continues undisturbed.
            name: A name, which need not be unique.
            labels: Up to 64 strings by name, by which lists can be filtered.
            ttl_seconds: Seconds after which the service deletes it. None: it stays.
            pin: True: nothing deletes it until it is unpinned.
            idempotency_key: As for `create_sandbox`.

        Raises:
            BadRequest: A value is wrong; the message names it.
            NotFound: There is no such sandbox.
            CapReached: The key may not have more checkpoints, or use more of the disk.
            Unavailable: The host has no room.
        """
        body = to_json(
            {
                "name": name,
                "labels": labels,
                "ttl_seconds": ttl_seconds,
                "pin": pin or None,
            }
        )
        path = _sandbox(sandbox_id) + "/checkpoints"
        answer = self._make(path, body, _delete_checkpoint, 0, idempotency_key)
        return CheckpointInfo.from_json(answer)

    def rollback_sandbox(
        self, sandbox_id: str, checkpoint_id: str, *, keep: str | None = None
    ) -> str | None:
        """Gives a sandbox the state of a checkpoint; see `Sandbox.rollback`.

        Args:
            sandbox_id: The sandbox, which keeps its id.
            checkpoint_id: A checkpoint of the sandbox's size and template, usually of its own.
            keep: Name of a checkpoint that keeps the present state. None: it is lost.

        Returns:
            The id of that checkpoint, or None.

        Raises:
            BadRequest: The sandbox has another size or template (code ``out_of_range``).
            NotFound: One of them does not exist.
            Conflict: The checkpoint is being deleted (code ``busy``), or is damaged (code
                ``checkpoint_damaged``); the sandbox is being frozen (code ``freezing``).
            CapReached: The state cannot be kept: the key may not have more checkpoints.
            Unavailable: The state could not be restored; the sandbox is as before.
        """
        body = to_json({"checkpoint": checkpoint_id, "keep": keep})
        path = _sandbox(sandbox_id) + "/rollback"
        kept = (self._http.json("POST", path, body, _CREATE_S))["kept"]
        return None if kept is None else str(kept)

    def undo_calls(self, sandbox_id: str, n: int = 1, *, keep: str | None = None) -> str:
        """Gives a sandbox the state before its last `n` calls; see `Sandbox.undo`.

        Args:
            sandbox_id: The sandbox, which keeps its id.
            n: Number of calls, from 1 to 1,000.
            keep: Name of a checkpoint that keeps the present state. None: it is lost.

        Returns:
            The id of the checkpoint whose state it has now.

        Raises:
            BadRequest: `n` is out of range.
            NotFound: There is no such sandbox.
            Conflict: No state that old is kept (code ``no_undo``); its checkpoint is damaged (code
                ``checkpoint_damaged``); the sandbox is being frozen (code ``freezing``).
            CapReached: The state cannot be kept: the key may not have more checkpoints.
            Unavailable: The state could not be restored; the sandbox is as before.
        """
        body = to_json({"n": n, "keep": keep})
        path = _sandbox(sandbox_id) + "/undo"
        return str((self._http.json("POST", path, body, _CREATE_S))["checkpoint"])

    def get_history(self, sandbox_id: str) -> list[HistoryEntry]:
        """Returns the last calls, checkpoints, forks, merges and rollbacks of a sandbox.

        They are sorted from the oldest to the newest. The first one says how the sandbox began.

        Raises:
            NotFound: There is no such sandbox.
        """
        path = _sandbox(sandbox_id) + "/history"
        return [HistoryEntry.from_json(one) for one in self._http.pages(path)]

    def checkpoints(
        self,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        sandbox: str | None = None,
        ancestor: str | None = None,
    ) -> list["Checkpoint"]:
        """Returns the checkpoints of this key, oldest first, from as many pages as needed.

        Arguments and errors are those of `iter_checkpoints`.
        """
        from ramet.checkpoint import Checkpoint

        return Checkpoint.list(
            name=name, labels=labels, sandbox=sandbox, ancestor=ancestor, client=self
        )

    def iter_checkpoints(
        self,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        sandbox: str | None = None,
        ancestor: str | None = None,
    ) -> Iterator[CheckpointInfo]:
        """Yields the checkpoints of this key, oldest first, and requests pages only as needed.

        Args:
            name: Only those with this name.
            labels: Only those that have these labels.
            sandbox: Only those of the sandbox with this id, which may have ended.
            ancestor: Only those of the sandbox with this id and of all that descend from it.

        Raises:
            BadRequest: A value is wrong; the message names it.
        """
        for one in self._http.pages(
            "/v1/checkpoints",
            name=name,
            labels=_query_object(labels),
            sandbox=sandbox,
            ancestor=ancestor,
        ):
            yield CheckpointInfo.from_json(one)

    def get_checkpoint(self, checkpoint_id: str) -> CheckpointInfo:
        """Returns what the service knows about a checkpoint.

        Raises:
            NotFound: There is none with this id.
        """
        return CheckpointInfo.from_json(self._http.json("GET", _checkpoint(checkpoint_id)))

    def update_checkpoint(
        self,
        checkpoint_id: str,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        ttl_seconds: int | None = None,
        pin: bool | None = None,
        score: float | None = None,
    ) -> CheckpointInfo:
        """Changes name, labels, score, pin or time limit of a checkpoint; None leaves one as it is.

        Args:
            checkpoint_id: The checkpoint, whose state never changes.
            name: The new name. "": none.
            labels: They replace the old ones.
            ttl_seconds: Seconds from now after which the service deletes it.
            pin: True: nothing deletes it until it is unpinned.
            score: How good the state is, by your own measure.

        Returns:
            The checkpoint after the change.

        Raises:
            BadRequest: A value is wrong; the message names it.
            NotFound: There is none with this id.
        """
        body = to_json(
            {
                "name": name,
                "labels": labels,
                "ttl_seconds": ttl_seconds,
                "pin": pin,
                "score": score,
            }
        )
        answer = self._http.json("PATCH", _checkpoint(checkpoint_id), body)
        return CheckpointInfo.from_json(answer)

    def delete_checkpoint(self, checkpoint_id: str) -> None:
        """Deletes a checkpoint. Sandboxes that were started from it stay.

        Raises:
            NotFound: There is none with this id.
            Conflict: It is pinned (code ``pinned``), or a sandbox is being started from it
                (code ``busy``).
        """
        self._http.request("DELETE", _checkpoint(checkpoint_id))

    def prune_checkpoints(
        self,
        *,
        keep: int | None = None,
        older_than_seconds: int | None = None,
        sandbox: str | None = None,
        dry_run: bool = False,
    ) -> Pruned:
        """Deletes old checkpoints. Pinned ones stay.

        With both `keep` and `older_than_seconds`, only checkpoints that fit both are deleted.

        Args:
            keep: Delete all but so many of the newest.
            older_than_seconds: Delete those that are older.
            sandbox: Only checkpoints of the sandbox with this id.
            dry_run: Delete nothing, only return what would be deleted.

        Returns:
            The checkpoints that were deleted, at most 1,000.

        Raises:
            BadRequest: Neither `keep` nor `older_than_seconds` is given, or a value is wrong.
        """
        body = to_json(
            {
                "keep": keep,
                "older_than_seconds": older_than_seconds,
                "sandbox": sandbox,
                "dry_run": dry_run or None,
            }
        )
        answer = self._http.json("POST", "/v1/checkpoints/prune", body, _REMOVE_S)
        return Pruned.from_json(answer)

    def fork_checkpoint(
        self,
        checkpoint_id: str,
        n: int = 1,
        *,
        reseed: bool = False,
        idempotency_key: str | None = None,
    ) -> Started:
        """Starts sandboxes from a checkpoint, which stays.

        Args:
            checkpoint_id: The checkpoint.
            n: Number of sandboxes: 1 to the service's limit (32 unless configured).
            reseed: As for `fork_sandbox`.
            idempotency_key: As for `create_sandbox`.

        Returns:
            Those that were started, and why the others could not be.

        Raises:
            BadRequest: `n` is out of range.
            NotFound: There is no such checkpoint.
            Conflict: It is being deleted (code ``busy``), or its files on disk differ from what was
                written (code ``checkpoint_damaged``).
            CapReached: The key or the tree (code ``tree_limit``) may not have so many sandboxes.
            Unavailable: None could be started.
        """
        return self._fork_from(_checkpoint(checkpoint_id), n, reseed, idempotency_key)

    def exec_stream(
        self,
        sandbox_id: str,
        code: str,
        language: Language | None = "python",
        *,
        timeout_seconds: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        results: bool = True,
        context: str | None = None,
        hangup: bool = False,
    ) -> Iterator[Event]:
        """Runs code and yields its events as they arrive; the last one is the exit event.

        Args:
            sandbox_id: The sandbox to run it in.
            code: Source text.
            language: "python" (the sandbox's one process) or "bash" (a new process).
            timeout_seconds: Time limit of the call in seconds; at the limit it is interrupted, and
                killed if it does not end.
            env: Environment variables of this call.
            cwd: Working directory of this call.
            results: Yield "result" and "error" events of Python calls too.
            context: Id of a context to run it in, whose language it then has: `language` must be
                None. None: the sandbox's default interpreter.
            hangup: Interrupt the call if this program leaves the stream or ends.

        Raises:
            NotFound: There is no such sandbox or context.
            VmDied: The sandbox's VM died during the call.
            ConnectionFailed: The stream broke off; the call itself continues in the sandbox.
        """
        body = to_json(
            {
                "code": code,
                "language": language,
                "context": context,
                "output": "chunks",
                "timeout_seconds": timeout_seconds,
                "env": env,
                "cwd": cwd,
                "results": True if results and language != "bash" else None,
                "hangup": hangup or None,
            }
        )
        ended = False
        with self._http.lines("POST", _sandbox(sandbox_id) + "/exec", body) as lines:
            for line in lines:
                obj = json.loads(line)
                if obj.get("type") == "error" and "name" not in obj:
                    raise stream_error(str(obj.get("code", "")), str(obj.get("data", "")))
                event = Event.from_json(obj)
                ended = event.type == "exit"
                yield event
        if not ended:
            raise ConnectionFailed("the stream of events ended before the call's exit event")

    def interrupt(self, sandbox_id: str, *, context_id: str | None = None) -> None:
        """Raises KeyboardInterrupt in the running call (SIGINT in bash), if there is one.

        Args:
            sandbox_id: The sandbox.
            context_id: The context whose call it is. None: the default interpreter's.

        Raises:
            NotFound: There is no such sandbox or context.
        """
        path = _sandbox(sandbox_id) if context_id is None else _context(sandbox_id, context_id)
        self._http.request("POST", path + "/interrupt")

    # Contexts, see `Context`.

    def context_create(
        self,
        sandbox_id: str,
        language: ContextLanguage,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> ContextInfo:
        """Starts a context; see `Contexts.create`.

        Raises:
            BadRequest: A value is wrong, or the folder cannot be entered.
            Conflict: The language is not installed in the sandbox.
            CapReached: The sandbox has 16 contexts already.
            NotFound: There is no such sandbox.
        """
        body = to_json({"language": language, "cwd": cwd, "env": env})
        answer = self._http.json(
            "POST", _sandbox(sandbox_id) + "/contexts", body, _CONTEXT_START_S
        )
        return ContextInfo.from_json(answer)

    def context_list(self, sandbox_id: str) -> list[ContextInfo]:
        """Returns all contexts of a sandbox, oldest first.

        Raises:
            NotFound: There is no such sandbox.
        """
        answer = self._http.json("GET", _sandbox(sandbox_id) + "/contexts")
        return [ContextInfo.from_json(one) for one in answer]

    def context_get(self, sandbox_id: str, context_id: str) -> ContextInfo:
        """Describes a context.

        Raises:
            NotFound: There is no such sandbox or context.
        """
        return ContextInfo.from_json(self._http.json("GET", _context(sandbox_id, context_id)))

    def context_restart(self, sandbox_id: str, context_id: str) -> None:
        """Starts a context's interpreter again, without its state.

        Raises:
            NotFound: There is no such sandbox or context.
        """
        path = _context(sandbox_id, context_id) + "/restart"
        self._http.request("POST", path, at_least_s=_CONTEXT_START_S)

    def context_delete(self, sandbox_id: str, context_id: str) -> None:
        """Ends a context with all its processes.

        Raises:
            NotFound: There is no such sandbox or context.
        """
        self._http.request("DELETE", _context(sandbox_id, context_id))

    def fork_sandbox(
        self,
        sandbox_id: str,
        n: int = 1,
        *,
        reseed: bool = False,
        labels: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> list[str]:
        """Clones a running sandbox, even during a call; returns the children's ids.

        Args:
            sandbox_id: The parent. It continues undisturbed.
            n: Number of children, all or none: 1 to the service's limit (32 unless configured).
            reseed: Seed Python's `random` and numpy's generator differently in each child. By
                default they are part of the cloned state.
            labels: Labels of the children.
            idempotency_key: As for `create_sandbox`.

        Raises:
            BadRequest: `n` is out of range.
            NotFound: There is no such sandbox.
            CapReached: The key or the tree (code ``tree_limit``) may not have so many sandboxes.
            Unavailable: The host has no room for so many.
        """
        body: dict[str, Any] = {"n": n}
        if reseed:
            body["reseed"] = True
        if labels is not None:
            body["labels"] = dict(labels)
        path = _sandbox(sandbox_id) + "/fork"
        answer = self._make(path, body, _delete, 0, idempotency_key)
        return [str(child) for child in answer["children"]]

    def get_tree(self, sandbox_id: str) -> TreeInfo:
        """Describes a tree of sandboxes: its budget, what is used, and what each sandbox costs.

        Args:
            sandbox_id: The root of the tree, also after its end, or any living sandbox in it.

        Raises:
            NotFound: There is no such tree.
        """
        return TreeInfo.from_json(self._http.json("GET", _tree(sandbox_id)))

    def delete_tree(self, sandbox_id: str) -> None:
        """Ends all sandboxes of a tree, or a sandbox and all that descend from it. Spaces stay.

        Args:
            sandbox_id: The root of the tree, or the sandbox.

        Raises:
            NotFound: There is no such tree.
        """
        self._http.request("DELETE", _tree(sandbox_id))

    def merge_sandbox(self, parent_id: str, winner_id: str) -> None:
        """Replaces the parent's VM by the winner's. The parent keeps its id; the winner's id ends.

        Raises:
            BadRequest: Parent and winner are the same.
            Conflict: The winner does not descend from the parent.
            NotFound: One of them does not exist.
        """
        path = f"{_sandbox(parent_id)}/merge_into/{segment(winner_id)}"
        self._http.request("POST", path)

    def diff_sandboxes(
        self, sandbox_id: str, other_id: str, paths: Sequence[str] | None = None
    ) -> Diff:
        """Compares the files of two sandboxes.

        Args:
            sandbox_id: One sandbox.
            other_id: The other, or a checkpoint. `added` exists only in it.
            paths: Absolute paths to compare, with everything below. Default: /root and /tmp.

        Raises:
            BadRequest: A path is wrong, or there are too many differences (code ``too_large``).
            NotFound: One of them does not exist.
        """
        if isinstance(paths, str):
            raise TypeError("paths must be a list of strings, not one string")
        body: dict[str, Any] = {} if paths is None else {"paths": list(paths)}
        path = f"{_sandbox(sandbox_id)}/diff/{segment(other_id)}"
        return Diff.from_json(self._http.json("POST", path, body, _DIFF_S))

    def diff_text(self, sandbox_id: str, other_id: str, path: str) -> str:
        """Compares a text file of two sandboxes by lines.

        Args:
            sandbox_id: One sandbox.
            other_id: The other, or a checkpoint.
            path: The file, up to 1 MiB. A sandbox that does not have it counts as having an empty
                one.

        Returns:
            A unified diff from the file of `sandbox_id` to that of `other_id`; empty if they are
            equal. Bytes that are not UTF-8 are U+FFFD.

        Raises:
            Conflict: The file is not a text, or too large (code ``not_a_file``).
            NoSuchFile: Neither has the file.
            NotFound: One of them does not exist.
        """
        where = f"{_sandbox(sandbox_id)}/diff/{segment(other_id)}{query(path=path)}"
        answer = self._http.request("GET", where, at_least_s=_DIFF_S)
        return answer.content.decode(errors="replace")

    def merge_files(
        self,
        parent_id: str,
        branch_ids: Sequence[str],
        *,
        base_id: str,
        paths: Sequence[str] | None = None,
        conflicts: Conflicts = "report",
    ) -> FileMerge:
        """Brings the files that branches changed since the fork into their parent, which goes on
        with its own processes. Either all changes are written or none.

        Args:
            parent_id: The parent.
            branch_ids: Descendants of it, up to 16.
            base_id: The state at the fork: a child of the same fork, or of an earlier one, that
                nobody changed.
            paths: Absolute paths to merge, with everything below. Default: /root and /tmp.
            conflicts: "report": if there is a conflict, nothing is written. "ours": what the
                parent, or else an earlier branch, did wins. "theirs": a later branch wins.
                "markers": texts get conflict markers, and other files stay as the parent has them.

        Raises:
            BadRequest: A path is wrong, or there are too many changes (code ``too_large``).
            Conflict: A sandbox does not descend from the parent, or the base is of a later fork
                (code ``not_a_descendant``); a file changed meanwhile (code ``file_changed``).
            NotFound: One of them does not exist.
        """
        if isinstance(branch_ids, str) or isinstance(paths, str):
            raise TypeError("branch_ids and paths must be lists of strings, not one string")
        body: dict[str, Any] = {"branches": list(branch_ids), "base": base_id}
        body["conflicts"] = conflicts
        if paths is not None:
            body["paths"] = list(paths)
        path = _sandbox(parent_id) + "/merge-files"
        return FileMerge.from_json(self._http.json("POST", path, body, _DIFF_S))

    def replay(self, sandbox_id: str, *, since: int = 0) -> list[Event]:
        """Returns the last events (up to 1,000) with a higher `seq` than `since`, oldest first.

        Raises:
            NotFound: There is no such sandbox.
        """
        path = _sandbox(sandbox_id) + "/replay" + query(since=since or None)
        with self._http.lines("GET", path, None) as lines:
            return [Event.from_json(json.loads(line)) for line in lines]

    def follow(self, sandbox_id: str, *, since: int = 0) -> Iterator[Event]:
        """Yields the events of `replay`, then new ones until no call runs or waits.

        Raises:
            NotFound: There is no such sandbox.
            ConnectionFailed: The stream broke off; continue with the `seq` of the last event.
        """
        path = _sandbox(sandbox_id) + "/replay" + query(since=since or None, follow=True)
        with self._http.lines("GET", path, None) as lines:
            for line in lines:
                yield Event.from_json(json.loads(line))

    # Files. `path` is absolute; bytes that are not UTF-8 are encoded as by `os.fsdecode`.

    def write_file(
        self,
        sandbox_id: str,
        path: str,
        data: bytes | str | Iterable[bytes],
        *,
        mode: int | None = None,
    ) -> None:
        """Writes a file of any size in one request.

        `data` is the content, or its chunks, which are sent as they come; a request with chunks
        is not retried.

        Raises:
            IsADirectory, NotADirectory, PermissionDenied, DiskFull: See their classes.
            NotFound: There is no such sandbox.
        """
        where = _sandbox(sandbox_id) + "/files" + query(path=path, mode=_octal(mode))
        self._http.send_bytes("PUT", where, data)

    def write_in_place(
        self,
        sandbox_id: str,
        path: str,
        data: bytes | str | Iterable[bytes],
        *,
        offset: int | None = None,
        append: bool = False,
        mode: int | None = None,
    ) -> None:
        """Writes to a file in place, in one request of any size.

        Args:
            data: As in `write_file`.
            offset: Keep the rest of the file, and write from this byte on. None: empty the file
                first.
            append: Write at the end. Such a request is never retried, as it might be performed
                twice.
            mode: Permission bits of a file that is created.

        Raises:
            IsADirectory, NotADirectory, PermissionDenied, DiskFull: See their classes.
            NotFound: There is no such sandbox.
        """
        how: dict[str, int | bool] = {"append": True} if append else {"in_place": True}
        if offset is not None:
            how = {"offset": offset}
        where = _sandbox(sandbox_id) + "/files" + query(path=path, mode=_octal(mode), **how)
        self._http.send_bytes("PUT", where, data, retry=not append)

    def pack_folder(
        self, sandbox_id: str, path: str
    ) -> AbstractContextManager[tuple[int | None, Iterator[bytes]]]:
        """Opens a folder as a tar archive for a `with` block: it gets None and the chunks.

        Raises:
            NoSuchFile, NotADirectory, PermissionDenied: See their classes.
            NotFound: There is no such sandbox.
            ConnectionFailed: The answer broke off: the archive is not complete.
        """
        return self._http.download(_sandbox(sandbox_id) + "/files/archive" + query(path=path))

    def unpack_folder(
        self, sandbox_id: str, path: str, archive: bytes | Iterable[bytes]
    ) -> None:
        """Unpacks a tar archive of any size into a folder, which is created when missing.

        `archive` is as `data` in `write_file`.

        Raises:
            BadRequest: The archive is broken or refused (code ``bad_archive``).
            NotADirectory, FileExists, PermissionDenied, DiskFull: See their classes.
            NotFound: There is no such sandbox.
        """
        where = _sandbox(sandbox_id) + "/files/archive" + query(path=path)
        self._http.send_bytes("PUT", where, archive, _REMOVE_S)

    def watch_files(
        self, sandbox_id: str, path: str, *, recursive: bool = False
    ) -> Iterator[FileEvent]:
        """Yields changes of a file or folder as they happen, the first one of type "watching".

        Raises:
            NoSuchFile, PermissionDenied: See their classes.
            NotFound: There is no such sandbox, or it has ended.
        """
        asked = query(path=path, recursive=recursive or None)
        path = _sandbox(sandbox_id) + "/files/watch" + asked
        with self._http.lines("GET", path, None) as lines:
            for line in lines:
                obj = json.loads(line)
                if obj["type"] == "error":
                    raise stream_error(str(obj.get("code", "")), str(obj.get("message", "")))
                yield FileEvent.from_json(obj)

    def read_file(
        self, sandbox_id: str, path: str, *, offset: int = 0, length: int | None = None
    ) -> AbstractContextManager[tuple[int | None, Iterator[bytes]]]:
        """Opens a file for a `with` block: it gets the size (None if unknown), and chunks.

        Args:
            sandbox_id: The sandbox.
            path: The file.
            offset: Read from this byte on. The size is then that of the part that is read.
            length: Read at most so many bytes, 1 or more. None: to the end.

        Raises:
            ValueError: `offset` or `length` is out of range.
            BadRequest: The file has no byte at `offset` (code ``bad_range``).
            NoSuchFile, IsADirectory, NotADirectory, PermissionDenied: See their classes.
            NotFound: There is no such sandbox.
            ConnectionFailed: The answer broke off.
        """
        where = _sandbox(sandbox_id) + "/files" + query(path=path)
        return self._http.download(where, _range(offset, length))

    def list_files(
        self,
        sandbox_id: str,
        path: str,
        *,
        depth: int = 1,
        limit: int | None = None,
        after: str | None = None,
    ) -> list[FileInfo]:
        """Returns the entries of a folder; with a depth above 1 also what is in its folders.

        Args:
            sandbox_id: The sandbox.
            path: The folder.
            depth: As for `Files.list`.
            limit: Return at most so many entries. None: all, from as many requests as needed.
            after: Return only entries after this name, such as that of the last entry of a list
                with a `limit`. None: from the first one.

        Raises:
            BadRequest: `limit` is less than 1.
            NoSuchFile, NotADirectory, PermissionDenied: See their classes.
            NotFound: There is no such sandbox.
        """
        found: list[FileInfo] = []
        where = _sandbox(sandbox_id) + "/files/list"
        while True:
            after = found[-1].name if found else after
            asked = query(
                path=path, depth=depth if depth != 1 else None, limit=limit, after=after
            )
            answer = self._http.json("GET", where + asked)
            found += (FileInfo.from_json(one) for one in answer["entries"])
            if limit is not None or not answer.get("truncated") or not answer["entries"]:
                return found

    def stat_file(self, sandbox_id: str, path: str, *, follow: bool = True) -> FileInfo:
        """Returns what is known about one file.

        Raises:
            NoSuchFile, NotADirectory, PermissionDenied: See their classes.
            NotFound: There is no such sandbox.
        """
        asked = query(path=path, follow=None if follow else False)
        return FileInfo.from_json(
            self._http.json("GET", _sandbox(sandbox_id) + "/files/stat" + asked)
        )

    def remove_file(self, sandbox_id: str, path: str, *, recursive: bool = False) -> None:
        """Removes a file, a link or a folder.

        Raises:
            NoSuchFile, NotADirectory, DirectoryNotEmpty, PermissionDenied: See their classes.
            NotFound: There is no such sandbox.
        """
        asked = query(path=path, recursive=recursive or None)
        self._http.request(
            "DELETE", _sandbox(sandbox_id) + "/files" + asked, at_least_s=_REMOVE_S
        )

    def make_folder(
        self, sandbox_id: str, path: str, *, mode: int | None = None, parents: bool = False
    ) -> None:
        """Creates a folder.

        Raises:
            FileExists, NoSuchFile, NotADirectory, PermissionDenied, DiskFull: See their classes.
            NotFound: There is no such sandbox.
        """
        asked = query(path=path, mode=_octal(mode), parents=parents or None)
        self._http.request("POST", _sandbox(sandbox_id) + "/files/mkdir" + asked)

    def move_file(
        self, sandbox_id: str, path: str, to: str, *, replace: bool = False
    ) -> None:
        """Moves a file, a link or a folder; see `Files.move`.

        Raises:
            NoSuchFile, FileExists, IsADirectory, NotADirectory, DirectoryNotEmpty,
            PermissionDenied, DiskFull: See their classes.
            NotFound: There is no such sandbox.
        """
        asked = query(path=path, to=to, replace=replace or None)
        self._http.request("POST", _sandbox(sandbox_id) + "/files/move" + asked)

    def change_file(
        self,
        sandbox_id: str,
        path: str,
        *,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
        recursive: bool = False,
    ) -> None:
        """Changes permissions and owner; see `Files.chmod` and `Files.chown`.

        Raises:
            NoSuchFile, PermissionDenied: See their classes.
            NotFound: There is no such sandbox.
        """
        asked = query(path=path, mode=_octal(mode), uid=uid, gid=gid, recursive=recursive or None)
        self._http.request(
            "PATCH", _sandbox(sandbox_id) + "/files" + asked, at_least_s=_REMOVE_S
        )

    # Terminals, see `Pty`.

    def process_run(
        self, sandbox_id: str, options: Mapping[str, Any]
    ) -> Iterator[ProcessEvent]:
        """Starts a process and yields its events as they arrive, from "started" to "exit".

        Args:
            sandbox_id: The sandbox.
            options: The fields of the request as in docs/api.md; those that are None are left out.

        Raises:
            BadRequest: A value is wrong, or the process cannot be started.
            NotFound: There is no such sandbox.
            VmDied: The sandbox's VM died.
            ConnectionFailed: The stream broke off; the process itself continues in the sandbox,
                unless `options` has `hangup`.
        """
        return self._process_events("POST", _sandbox(sandbox_id) + "/processes", to_json(options))

    def process_output(
        self, sandbox_id: str, process_id: str, *, since: int = 0, hangup: bool = False
    ) -> Iterator[ProcessEvent]:
        """Yields the kept events of a process, then new ones, from "started" to "exit".

        Args:
            sandbox_id: The sandbox.
            process_id: The process.
            since: Offset in the output of both streams, in bytes. Output that is no longer kept is
                skipped.
            hangup: Kill the process if this program leaves the stream or ends.

        Raises:
            BadRequest: There are fewer bytes of output than `since`.
            NotFound: There is no such sandbox or process.
            VmDied: The sandbox's VM died.
            ConnectionFailed: The stream broke off.
        """
        asked = query(since=since, hangup=hangup or None)
        path = _process(sandbox_id, process_id) + "/output" + asked
        return self._process_events("GET", path, None)

    def _process_events(
        self, method: str, path: str, body: Any
    ) -> Iterator[ProcessEvent]:
        with self._http.lines(method, path, body) as lines:
            for line in lines:
                obj = json.loads(line)
                if obj["type"] == "error":
                    raise stream_error(str(obj.get("code", "")), str(obj.get("data", "")))
                if obj["type"] not in ("started", "stdout", "stderr", "exit"):
                    continue
                event = ProcessEvent.from_json(obj)
                yield event
                if event.type == "exit":
                    return
        raise ConnectionFailed(f"{method} {path}: the stream ended before the process's exit event")

    def process_start(self, sandbox_id: str, options: Mapping[str, Any]) -> ProcessInfo:
        """Starts a process without reading its output.

        Args:
            sandbox_id: The sandbox.
            options: The fields of the request as in docs/api.md; those that are None are left out.

        Raises:
            BadRequest: A value is wrong, or the process cannot be started.
            NotFound: There is no such sandbox.
        """
        body = {**to_json(options), "detach": True}
        answer = self._http.json("POST", _sandbox(sandbox_id) + "/processes", body)
        return ProcessInfo.from_json(answer)

    def list_processes(self, sandbox_id: str) -> list[ProcessInfo]:
        """Returns all processes and terminals of a sandbox, ended ones included, oldest first.

        Raises:
            NotFound: There is no such sandbox.
        """
        answer = self._http.json("GET", _sandbox(sandbox_id) + "/processes")
        return [ProcessInfo.from_json(one) for one in answer]

    def get_process(self, sandbox_id: str, process_id: str) -> ProcessInfo:
        """Returns the present state of a process.

        Raises:
            NotFound: There is no such sandbox or process.
        """
        return ProcessInfo.from_json(self._http.json("GET", _process(sandbox_id, process_id)))

    def process_write(self, sandbox_id: str, process_id: str, data: bytes) -> None:
        """Writes to the standard input of a process.

        Raises:
            Conflict: The program has ended, its standard input is closed, or it did not make room
                for the next 64 KiB within 30 s.
            NotFound: There is no such sandbox or process.
        """
        path = _process(sandbox_id, process_id) + "/stdin"
        self._http.send_bytes("POST", path, data, _INPUT_S * (1 + len(data) // _INPUT_PART))

    def process_close_stdin(self, sandbox_id: str, process_id: str) -> None:
        """Closes the standard input of a process.

        Raises:
            NotFound: There is no such sandbox or process.
        """
        path = _process(sandbox_id, process_id) + "/stdin"
        self._http.request("DELETE", path, None, _INPUT_S)

    def process_signal(self, sandbox_id: str, process_id: str, signal: str | int) -> None:
        """Sends a signal, such as "TERM" or 15, to a program's process group.

        Raises:
            BadRequest: There is no such signal.
            Conflict: The program has ended.
            NotFound: There is no such sandbox or process.
        """
        path = _process(sandbox_id, process_id) + "/signal"
        self._http.request("POST", path, {"signal": signal})

    def process_kill(self, sandbox_id: str, process_id: str) -> None:
        """Sends SIGKILL to all processes of a process's session.

        Raises:
            NotFound: There is no such sandbox or process.
        """
        self._http.request("DELETE", _process(sandbox_id, process_id))

    def _kill_process_briefly(self, sandbox_id: str, process_id: str) -> None:
        """Does the same during a clean-up: gives up after the client's timeout."""
        self._http.brief("DELETE", _process(sandbox_id, process_id))

    def pty_create(
        self,
        sandbox_id: str,
        cmd: str | list[str],
        cols: int,
        rows: int,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> str:
        """Starts a program on a terminal and returns its id; see `Ptys.create`.

        Raises:
            BadRequest: A value is wrong, or the program cannot be started.
            NotFound: There is no such sandbox.
        """
        body = to_json(
            {
                "shellCmd" if isinstance(cmd, str) else "argv": cmd,
                "cols": cols,
                "rows": rows,
                "env": [list(pair) for pair in env.items()] if env is not None else None,
                "cwd": cwd,
            }
        )
        path = _sandbox(sandbox_id) + "/pty"
        # Output is read with pty_read; leaving the block closes this stream.
        with self._http.lines("POST", path, body) as lines:
            for line in lines:
                event = json.loads(line)
                if event["type"] == "pty_ready":
                    return str(event["session_id"])
                if event["type"] == "pty_error":
                    raise BadRequest(str(event["message"]), code=str(event.get("code", "")))
        raise ConnectionFailed(f"POST {path}: the stream ended before the terminal was ready")

    def pty_read(
        self, sandbox_id: str, pty_id: str, place: int, *, max_bytes: int, timeout_ms: int
    ) -> tuple[bytes, int, int | None]:
        """Returns output from `place` on, the offset after it, and the exit code if it has ended.

        Args:
            sandbox_id: The sandbox.
            pty_id: The id from `pty_create`.
            place: Offset in the output, in bytes. Output that is no longer kept is skipped.
            max_bytes: Maximum number of bytes to return.
            timeout_ms: Milliseconds to wait for output, up to 30,000.

        Raises:
            NotFound: There is no such sandbox or terminal.
        """
        body = {"since_seq": place, "max_bytes": max_bytes, "timeout_ms": timeout_ms}
        answer = self._http.json(
            "POST", _pty(sandbox_id, pty_id) + "/read", body, _PTY_WAIT_S + timeout_ms / 1000
        )
        code = answer.get("exit_code")
        data = base64.b64decode(answer["data_b64"])
        return data, int(answer["next_seq"]), None if code is None else int(code)

    def pty_input(self, sandbox_id: str, pty_id: str, data: bytes) -> None:
        """Sends input to a terminal.

        Raises:
            Conflict: The program has ended, or has read no input for 30 s.
            NotFound: There is no such sandbox or terminal.
        """
        body = {"data_b64": base64.b64encode(data).decode()}
        self._http.request("POST", _pty(sandbox_id, pty_id) + "/input", body)

    def pty_resize(self, sandbox_id: str, pty_id: str, cols: int, rows: int) -> None:
        """Resizes a terminal.

        Raises:
            BadRequest: A size is not 1 to 65535.
            NotFound: There is no such sandbox or terminal.
        """
        self._http.request(
            "POST", _pty(sandbox_id, pty_id) + "/resize", {"cols": cols, "rows": rows}
        )

    def pty_kill(self, sandbox_id: str, pty_id: str) -> None:
        """Sends SIGKILL to all processes of a terminal.

        Raises:
            NotFound: There is no such sandbox or terminal.
        """
        self._http.request("POST", _pty(sandbox_id, pty_id) + "/kill")

    def pty_list(self, sandbox_id: str) -> list[PtyInfo]:
        """Returns all terminals of a sandbox, ended ones included, oldest first.

        Raises:
            NotFound: There is no such sandbox.
        """
        answer = self._http.json("GET", _sandbox(sandbox_id) + "/pty")
        return [PtyInfo.from_json(one) for one in answer]


    def share_port(
        self, sandbox_id: str, port: int, *, public: bool | None = None
    ) -> PortShare:
        """Shares a port of a sandbox, or changes who may reach a shared one.

        Args:
            sandbox_id: The sandbox.
            port: A TCP port, 1 to 65535; a server may begin to listen later.
            public: Whether everybody may reach it. None: unchanged; a new share is not public.

        Raises:
            NotFound: There is no such sandbox.
            CapReached: The sandbox shares 64 ports already.
        """
        body = {} if public is None else {"public": public}
        return PortShare.from_json(self._http.json("POST", _port(sandbox_id, port), body))

    def list_ports(self, sandbox_id: str) -> list[PortShare]:
        """Returns the shared ports of a sandbox, by port.

        Raises:
            NotFound: There is no such sandbox.
        """
        answer = self._http.json("GET", _sandbox(sandbox_id) + "/ports")
        return [PortShare.from_json(one) for one in answer]

    def unshare_port(self, sandbox_id: str, port: int) -> None:
        """Ends the share of a port; connections by its means end.

        Raises:
            NotFound: There is no such sandbox, or the port is not shared.
        """
        self._http.request("DELETE", _port(sandbox_id, port))

    def connect_port(
        self, sandbox_id: str, port: int
    ) -> socket.socket:
        """Connects to a TCP port in a sandbox.

        Returns:
            A connected socket without a timeout, which the caller closes. With TLS, ending one
            direction ends both.

        Raises:
            NotFound: There is no such sandbox.
            ServerError: Nothing listens on the port (code ``port_closed``), or it is unreachable.
        """
        return self._http.upgrade(f"{_sandbox(sandbox_id)}/tcp/{port}", "tcp")


def _port(sandbox_id: str, port: int) -> str:
    return f"{_sandbox(sandbox_id)}/ports/{port}"


def _space(space_id: str) -> str:
    return "/v1/spaces/" + segment(space_id)


def _lifetime(seconds: int | None, former: int | None) -> int | None:
    """Returns the lifetime that was passed by its name or by its former one."""
    if seconds is not None and former is not None:
        raise BadRequest("pass lifetime_seconds, or timeout_seconds, its former name, not both")
    return former if seconds is None else seconds


def _query_object(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else json_bytes(value).decode()


def _utc(time: datetime | None) -> str | None:
    """Returns a time in the form of the API."""
    if time is None:
        return None
    return time.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _sandbox(sandbox_id: str) -> str:
    return "/v1/sandboxes/" + segment(sandbox_id)


def _tree(sandbox_id: str) -> str:
    return "/v1/trees/" + segment(sandbox_id)


def _checkpoint(checkpoint_id: str) -> str:
    return "/v1/checkpoints/" + segment(checkpoint_id)


def _delete(made: Any) -> list[_Request]:
    """Returns the requests that undo a create or a fork, for its answer."""
    ids = made["children"] if "children" in made else [made["id"]]
    return [("DELETE", _sandbox(str(one)), None) for one in ids]


def _delete_started(made: Any) -> list[_Request]:
    """Returns the requests that undo a fork of a checkpoint or Space, for its answer."""
    return [("DELETE", _sandbox(one), None) for one in Started.from_json(made).children]


def _delete_checkpoint(made: Any) -> list[_Request]:
    """Returns the requests that undo a checkpoint, for its answer."""
    path = _checkpoint(str(made["id"]))
    return [("PATCH", path, {"pin": False}), ("DELETE", path, None)]


def _freeze(made: Any) -> list[_Request]:
    """Returns the request that undoes a resume, for its answer."""
    return [("POST", _sandbox(str(made["id"])) + "/freeze", None)]


def _process(sandbox_id: str, process_id: str) -> str:
    return f"{_sandbox(sandbox_id)}/processes/{segment(process_id)}"


def _context(sandbox_id: str, context_id: str) -> str:
    return f"{_sandbox(sandbox_id)}/contexts/{segment(context_id)}"


def _pty(sandbox_id: str, pty_id: str) -> str:
    return f"{_sandbox(sandbox_id)}/pty/{segment(pty_id)}"


def _range(offset: int, length: int | None) -> dict[str, str]:
    """Returns the header that asks for a part of a file."""
    if offset < 0 or (length is not None and length < 1):
        raise ValueError(f"no part of a file has offset {offset} and length {length}")
    if not offset and length is None:
        return {}
    return {"range": f"bytes={offset}-{'' if length is None else offset + length - 1}"}


def _octal(mode: int | None) -> str | None:
    return None if mode is None else f"{mode:04o}"
