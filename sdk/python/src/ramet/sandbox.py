# SPDX-License-Identifier: Apache-2.0
# Generated from _async/sandbox.py by make_sync.py: change that file.
"""The class `Sandbox`: a running sandbox."""

from __future__ import annotations

import os
import threading
import time
from datetime import datetime
from types import TracebackType
from typing import Any, Callable, Iterator, Mapping, Sequence, TYPE_CHECKING

from ramet._collect import collect
from ramet._io import finish, sleep
from ramet.client import Client
from ramet.context import Contexts
from ramet.errors import NotFound, ServerError, VmDied
from ramet.files import Files, Progress, RemotePath, Source
from ramet.process import Processes
from ramet.ports import Forward, open_forward, reach
from ramet.pty import Ptys
from ramet.results import CodeError, Result
from ramet.space import Space, Place
from ramet.types import (
    Conflicts,
    Diff,
    Event,
    ExecResult,
    FileMerge,
    HistoryEntry,
    Language,
    Metrics,
    PortShare,
    SandboxInfo,
    Started,
    TreeInfo,
)

if TYPE_CHECKING:
    from ramet.checkpoint import Checkpoint

_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.05, 0.5  # between two checks whether a server listens


class _OwnClient:
    """A client that the SDK created; it is closed with the last sandbox that uses it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._users = 1
        self._lock = threading.Lock()

    def share(self, users: int) -> None:
        with self._lock:
            self._users += users

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            last = self._users == 0
        if last:
            self.client.close()


class Sandbox:
    """A running sandbox: a Linux microVM with a persistent Python process.

    Creating the object creates the sandbox; `close`, or the end of a `with` block, ends it.
    One from `connect` belongs to somebody else: the end of the block leaves it running.

    Args:
        template: Name of the template to start from. None: the service's default.
        vcpus: Virtual CPUs, 1 to 32. None: the template's.
        ram_mib: Memory in MiB. None: the template's.
        rootfs_gb: Root disk in GiB. None: the template's.
        lifetime_seconds: Seconds until it ends, whatever happens in it. None: the service's default.
        idle_timeout_seconds: Seconds without activity after which it ends. None: the default.
        persistent: Freeze it into a Space at its timeouts, instead of ending it.
        egress: False: neither it nor its forks can ever send to the network. None: they can.
        env: Environment variables of every call.
        metadata: JSON object that is stored with the sandbox.
        labels: Up to 64 strings by name, by which lists can be filtered.
        checkpoint: A checkpoint, or its id, to start from, with its template and sizes. Other
            arguments that are None are as in its sandbox.
        checkpoint_each_call: ``{"keep": n}``: keep the state after each of the last n calls, for
            `undo`; 0: do not.
        tree: Limits of this sandbox and all its forks together: "live", "ram_mib", "cpu_seconds",
            "wall_seconds", "depth" and "at_limit" (docs/trees.md).
        host: The service's URL, as for `Client`. None: from the environment.
        api_key: The key, as for `Client`. None: from the environment.
        region: The service's region, as for `Client`. None: any.
        client: The service to use, instead of `host`, `api_key` and `region`.
        timeout_seconds: The former name of `lifetime_seconds`.

    Raises:
        BadRequest: A value is wrong; the message names it.
        ConnectionFailed: No service answers.
        Unavailable: The host has no room.
    """

    id: str
    _client: Client
    _own: _OwnClient | None  # None: the client belongs to the caller
    _place: Place
    _closed: bool
    _lock: threading.Lock  # guards `_closed`
    _ends: bool = True  # whether the end of a `with` block ends the sandbox

    def __init__(
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
        checkpoint: "Checkpoint | str | None" = None,
        checkpoint_each_call: Mapping[str, int] | None = None,
        tree: Mapping[str, Any] | None = None,
        host: str | None = None,
        api_key: str | None = None,
        region: str | None = None,
        client: Client | None = None,
        timeout_seconds: int | None = None,
    ) -> None:
        self._start(
            Place(host, api_key, region, client),
            lambda service: service.create_sandbox(
                template=template,
                vcpus=vcpus,
                ram_mib=ram_mib,
                rootfs_gb=rootfs_gb,
                lifetime_seconds=lifetime_seconds,
                timeout_seconds=timeout_seconds,
                idle_timeout_seconds=idle_timeout_seconds,
                persistent=persistent,
                egress=egress,
                env=env,
                metadata=metadata,
                labels=labels,
                checkpoint=_id_of(checkpoint),
                checkpoint_each_call=checkpoint_each_call,
                tree=tree,
            ),
        )

    @classmethod
    def connect(
        cls,
        sandbox_id: str,
        *,
        host: str | None = None,
        api_key: str | None = None,
        region: str | None = None,
        client: Client | None = None,
        kill: bool = False,
    ) -> "Sandbox":
        """Returns an object for an existing sandbox.

        The end of a `with` block leaves that sandbox running, unless `kill` is set; `close`
        ends it.

        Args:
            sandbox_id: The sandbox.
            host: As for `Sandbox`.
            api_key: As for `Sandbox`.
            region: As for `Sandbox`.
            client: As for `Sandbox`.
            kill: True: the end of a `with` block ends the sandbox.

        Raises:
            NotFound: There is none with this id.
        """
        sandbox = cls.__new__(cls)
        sandbox._ends = kill
        sandbox._start(
            Place(host, api_key, region, client),
            lambda service: service.get_sandbox(sandbox_id),
        )
        return sandbox

    @classmethod
    def resume(
        cls,
        space_id: str,
        *,
        lifetime_seconds: int | None = None,
        idle_timeout_seconds: int | None = None,
        persistent: bool | None = None,
        egress: bool | None = None,
        host: str | None = None,
        api_key: str | None = None,
        region: str | None = None,
        client: Client | None = None,
        timeout_seconds: int | None = None,
    ) -> "Sandbox":
        """Resumes a Space: the frozen sandbox continues, memory included, under a new id.

        The Space no longer exists afterwards. `region` must be the one that froze it. Arguments
        and errors are those of `Client.resume_space`.
        """
        sandbox = cls.__new__(cls)
        sandbox._start(
            Place(host, api_key, region, client),
            lambda service: service.resume_space(
                space_id,
                lifetime_seconds=lifetime_seconds,
                timeout_seconds=timeout_seconds,
                idle_timeout_seconds=idle_timeout_seconds,
                persistent=persistent,
                egress=egress,
            ),
        )
        return sandbox

    def freeze(self) -> Space:
        """Writes this sandbox, memory included, to disk as a Space.

        `Sandbox.resume` with the Space's id continues it. Afterwards this object can only be
        closed.

        Raises:
            NotFound: The sandbox is gone.
            CapReached: The Spaces of this key may not use more of the disk.
            Unavailable: The Space could not be written; the sandbox continues.
        """
        return Space.of(self._live().freeze_sandbox(self.id), self._place)

    def checkpoint(
        self,
        name: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        ttl_seconds: int | None = None,
        pin: bool = False,
    ) -> "Checkpoint":
        """Keeps the present state of this sandbox, memory and processes included.

        This sandbox continues undisturbed. The checkpoint stays when it ends.

        Args:
            name: A name, which need not be unique.
            labels: Up to 64 strings by name, by which lists can be filtered.
            ttl_seconds: Seconds after which the service deletes it. None: it stays.
            pin: True: nothing deletes it until it is unpinned.

        Raises: As `Client.take_checkpoint`.
        """
        from ramet.checkpoint import Checkpoint

        info = self._live().take_checkpoint(
            self.id, name=name, labels=labels, ttl_seconds=ttl_seconds, pin=pin
        )
        return Checkpoint.of(info, self._place)

    def rollback(
        self, checkpoint: "Checkpoint | str", *, keep: str | None = None
    ) -> "Checkpoint | None":
        """Gives this sandbox the state of a checkpoint, memory and processes included.

        It keeps its id, limits and shared ports. Calls, processes and terminals that are in
        progress fail with Conflict (code ``rolled_back``).

        Args:
            checkpoint: A checkpoint of this size and template, or its id; usually one of its own.
            keep: Name of a checkpoint that keeps the present state. None: it is lost.

        Returns:
            That checkpoint, or None.

        Raises: As `Client.rollback_sandbox`.
        """
        from ramet.checkpoint import Checkpoint

        client = self._live()
        wanted = checkpoint if isinstance(checkpoint, str) else checkpoint.id
        kept = client.rollback_sandbox(self.id, wanted, keep=keep)
        if kept is None:
            return None
        return Checkpoint.of(client.get_checkpoint(kept), self._place)

    def undo(self, n: int = 1, *, keep: str | None = None) -> str:
        """Gives this sandbox the state before its last `n` calls, as `rollback` does.

        A call that comes at once after another can overtake its checkpoint: then both are undone
        together.

        Args:
            n: Number of calls, less than `keep` of `checkpoint_each_call`.
            keep: Name of a checkpoint that keeps the present state. None: it is lost.

        Returns:
            The id of the checkpoint whose state it has now; the one that `keep` made has its name.

        Raises: As `Client.undo_calls`.
        """
        return self._live().undo_calls(self.id, n, keep=keep)

    def history(self) -> list[HistoryEntry]:
        """Returns the last calls, checkpoints, forks, merges and rollbacks of this sandbox.

        They are sorted from the oldest to the newest; the first one says how it began. Those that
        a rollback or an undo took back are marked as undone.

        Raises:
            NotFound: The sandbox is gone.
        """
        return self._live().get_history(self.id)

    def run_code(
        self,
        code: str,
        language: Language = "python",
        *,
        timeout_seconds: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        results: bool = True,
        on_stdout: Callable[[str], object] | None = None,
        on_stderr: Callable[[str], object] | None = None,
        on_result: Callable[[Result], object] | None = None,
        on_error: Callable[[CodeError], object] | None = None,
        max_output_bytes: int | None = None,
    ) -> ExecResult:
        """Runs code and returns all its output and results.

        An exception in the code is not raised here: it is in `error`, its traceback in `stderr`,
        and the exit code is 1.

        Args:
            code: Source text, taken verbatim; it may be indented as a whole.
            language: "python" (keeps its state between calls) or "bash" (a new process).
            timeout_seconds: Time limit of the call in seconds; at the limit it is interrupted, and
                killed if it does not end. The exit code is 124 then.
            env: Environment variables of this call.
            cwd: Working directory of this call.
            results: Return the results and the exception of a Python call too. They cost the `repr`
                of the last expression's value.
            on_stdout: Called with each part of standard output as it arrives.
            on_stderr: Called with each part of standard error.
            on_result: Called with each result.
            on_error: Called with the exception that ended the call.
            max_output_bytes: Return at most so many bytes of standard output, standard error,
                results and the exception together; `truncated` is True then. Of each stream the
                first bytes are kept, and the first results. One of the four that needs less than
                a quarter of them is returned whole. None: all, however much a program prints,
                which must fit into this program's memory.

        Raises:
            NotFound: The sandbox is gone.
            VmDied: Its VM died during the call.
            ConnectionFailed: The connection broke; the call continues, see `follow`.
        """
        return collect(
            self.run_code_stream(
                code, language, timeout_seconds=timeout_seconds, env=env, cwd=cwd, results=results
            ),
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            on_result=on_result,
            on_error=on_error,
            max_output_bytes=max_output_bytes,
        )

    def run_code_stream(
        self,
        code: str,
        language: Language = "python",
        *,
        timeout_seconds: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        results: bool = True,
        hangup: bool = False,
    ) -> Iterator[Event]:
        """Like `run_code`, but yields output as it is produced; the last event is the exit event.

        With `hangup`, the call is interrupted if this program ends, or leaves the loop, before
        that event. Without it, the call continues.

        Raises: As `run_code`, while the events are iterated over.
        """
        return self._live().exec_stream(
            self.id,
            code,
            language,
            timeout_seconds=timeout_seconds,
            env=env,
            cwd=cwd,
            results=results,
            hangup=hangup,
        )

    def interrupt(self) -> None:
        """Interrupts the running call, like Ctrl-C: it ends with exit code 130 unless the code
        handles the interrupt. Does nothing if no call runs.

        Raises:
            NotFound: The sandbox is gone.
        """
        self._live().interrupt(self.id)

    def fork(
        self, n: int = 1, *, reseed: bool = False, labels: Mapping[str, str] | None = None
    ) -> list["Sandbox"]:
        """Clones this sandbox while it runs: variables, threads, processes, open files.

        This sandbox continues undisturbed. Parent and children are independent of each other.

        Args:
            n: Number of children, all or none: 1 to the service's limit (32 unless configured).
            reseed: Seed Python's `random` and numpy's generator differently in each child. By
                default they are part of the cloned state.
            labels: Labels of the children.

        Returns:
            The children. Each can be used at once, and the caller must close it.

        Raises:
            BadRequest: `n` is out of range.
            NotFound: This sandbox is gone.
            CapReached: The key or the tree (code ``tree_limit``) may not have so many sandboxes.
            Unavailable: The host has no room for so many.
        """
        ids = self._live().fork_sandbox(self.id, n, reseed=reseed, labels=labels)
        if self._own:
            self._own.share(len(ids))
        return [self._child(child_id) for child_id in ids]

    def tree(self) -> TreeInfo:
        """Describes the tree that this sandbox belongs to; see `Client.get_tree`."""
        return self._live().get_tree(self.id)

    def merge_into(self, winner: "Sandbox") -> None:
        """Replaces the state of this sandbox by that of `winner`, a fork of it or of its forks.

        This sandbox keeps its id and gets the winner's VM; its old VM ends. The winner's id ends
        too: closing the winner does nothing, and all its other methods raise NotFound.

        Raises:
            BadRequest: The winner is this sandbox.
            Conflict: The winner does not descend from this sandbox.
            NotFound: One of them is gone.
        """
        self._live().merge_sandbox(self.id, winner.id)
        if winner._closes_now():
            winner._release_client()

    def diff(
        self, other: "Sandbox | Checkpoint", paths: Sequence[str] | None = None
    ) -> Diff:
        """Compares the files of this sandbox with those of another, or of a checkpoint.

        Args:
            other: Any sandbox, or a checkpoint: the service then starts a sandbox from it, and
                deletes it. `added` exists only in the other.
            paths: Absolute paths to compare, with everything below. Default: /root and /tmp.

        Raises:
            BadRequest: A path is wrong, or there are too many differences (code ``too_large``).
            NotFound: One of them is gone.
        """
        return self._live().diff_sandboxes(self.id, other.id, paths)

    def diff_text(self, other: "Sandbox | Checkpoint", path: str) -> str:
        """Compares a text file of this sandbox with that of another: a unified diff, empty if they
        are equal.

        Args:
            other: Any sandbox, or a checkpoint.
            path: The file, up to 1 MiB. A sandbox that does not have it counts as having an empty
                one.

        Raises:
            Conflict: The file is not a text, or too large (code ``not_a_file``).
            NoSuchFile: Neither has the file.
            NotFound: One of them is gone.
        """
        return self._live().diff_text(self.id, other.id, path)

    def merge_files(
        self,
        branches: "Sequence[Sandbox]",
        *,
        base: "Sandbox",
        paths: Sequence[str] | None = None,
        conflicts: Conflicts = "report",
    ) -> FileMerge:
        """Brings the files that branches changed since the fork into this sandbox, which goes on
        with its own processes. Either all changes are written or none.

        Args:
            branches: Forks of this sandbox, or of its forks, up to 16.
            base: The state at the fork: a child of the same fork, or of an earlier one, that
                nobody changed, as in ``base, *branches = parent.fork(4)``.
            paths: Absolute paths to merge, with everything below. Default: /root and /tmp.
            conflicts: "report": if there is a conflict, nothing is written. "ours": what this
                sandbox, or else an earlier branch, did wins. "theirs": a later branch wins.
                "markers": texts get conflict markers, and other files stay as they are here.

        Raises:
            BadRequest: A path is wrong, or there are too many changes (code ``too_large``).
            Conflict: A sandbox does not descend from this one, or the base is of a later fork
                (code ``not_a_descendant``); a file changed meanwhile (code ``file_changed``).
            NotFound: One of them is gone.
        """
        return self._live().merge_files(
            self.id,
            [branch.id for branch in branches],
            base_id=base.id,
            paths=paths,
            conflicts=conflicts,
        )

    @property
    def files(self) -> Files:
        """The files of the sandbox."""
        return Files(self.id, self._live)

    @property
    def contexts(self) -> Contexts:
        """The interpreters beside the sandbox's default Python process."""
        return Contexts(self.id, self._live)

    @property
    def processes(self) -> Processes:
        """The processes that run beside the sandbox's Python process."""
        return Processes(self.id, self._live)

    @property
    def pty(self) -> Ptys:
        """The terminals of the sandbox."""
        return Ptys(self.id, self._live)

    def url(
        self, port: int, *, public: bool | None = None, wait: float | None = None
    ) -> str:
        """Shares a port and returns the URL at which its server is reached over HTTP.

        The URL contains a token, unless the port is public; who has the URL can reach the server,
        and nothing else in the sandbox. It stays valid until `unshare`, or the sandbox's end.

        Args:
            port: A TCP port in the sandbox, 1 to 65535. A server may begin to listen later.
            public: True: everybody may reach it, without a token. False: not any more. None:
                unchanged; a new share is not public.
            wait: Seconds to wait for a server that listens on the port. None: do not wait.

        Raises:
            NotFound: The sandbox is gone.
            CapReached: 64 ports are shared already.
            ServerError: Nothing listens on the port after `wait` (code ``port_closed``).
        """
        share = self._live().share_port(self.id, port, public=public)
        if wait is not None:
            self.wait_for_port(port, wait)
        return share.url

    def wait_for_port(self, port: int, timeout_seconds: float = 30.0) -> None:
        """Waits until a server listens on a TCP port, for example one that was just started.

        Args:
            port: The port in the sandbox, 1 to 65535.
            timeout_seconds: Seconds to wait.

        Raises:
            ServerError: Nothing listens on it after that time (code ``port_closed``).
            NotFound: The sandbox is gone.
        """
        until, pause = time.monotonic() + timeout_seconds, _FIRST_PAUSE_S
        client = self._live()
        while True:
            try:
                reach(lambda: client.connect_port(self.id, port))
                return
            except ServerError as failed:
                if failed.code != "port_closed" or time.monotonic() + pause > until:
                    raise
            sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE_S)

    def unshare(self, port: int) -> None:
        """Ends the share of a port: its URL becomes invalid.

        Raises:
            NotFound: The sandbox is gone, or the port is not shared.
        """
        self._live().unshare_port(self.id, port)

    def ports(self) -> list[PortShare]:
        """Returns the shared ports, by port.

        Raises:
            NotFound: The sandbox is gone.
        """
        return self._live().list_ports(self.id)

    def forward(self, port: int, local_port: int = 0) -> Forward:
        """Opens a port at 127.0.0.1 of this machine whose connections lead into the sandbox.

        For any TCP protocol. A local connection is closed at once while nothing listens on the
        port in the sandbox.

        Args:
            port: A TCP port in the sandbox, 1 to 65535.
            local_port: The local port. 0: a free one; see `Forward.port`.

        Returns:
            The local port; use it in a `with` block.

        Raises:
            OSError: The local port is in use.
        """
        client = self._live()
        return open_forward(lambda: client.connect_port(self.id, port), local_port)

    def upload(
        self,
        source: Source,
        remote: RemotePath,
        *,
        mode: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Writes a file in the sandbox; see `Files.upload`."""
        self.files.upload(source, remote, mode=mode, progress=progress)

    def upload_file(
        self,
        local: str | os.PathLike[str],
        remote: RemotePath,
        *,
        mode: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Copies a local file to a file of the sandbox; see `Files.upload_file`."""
        self.files.upload_file(local, remote, mode=mode, progress=progress)

    def download(
        self,
        remote: RemotePath,
        *,
        max_bytes: int | None = None,
        progress: Progress | None = None,
    ) -> bytes:
        """Returns the content of a file in the sandbox; see `Files.download`."""
        return self.files.download(remote, max_bytes=max_bytes, progress=progress)

    def download_to(
        self,
        remote: RemotePath,
        local: str | os.PathLike[str],
        *,
        max_bytes: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Copies a file of the sandbox to a local file; see `Files.download_to`."""
        self.files.download_to(remote, local, max_bytes=max_bytes, progress=progress)

    def info(self) -> SandboxInfo:
        """Returns the current state of this sandbox.

        Raises:
            NotFound: The sandbox is gone.
        """
        return self._live().get_sandbox(self.id)

    def metrics(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> list[Metrics]:
        """Returns what this sandbox uses of the host, now and in the last hour.

        The last sample is of this moment: `sbx.metrics()[-1].memory_used_bytes`.

        Arguments, result and errors are those of `Client.get_metrics`.
        """
        return self._live().get_metrics(self.id, since=since, until=until, limit=limit)

    def update(
        self,
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
        """Changes settings of this sandbox; None leaves a setting as it is.

        Arguments, result and errors are those of `Client.update_sandbox`.
        """
        return self._live().update_sandbox(
            self.id,
            lifetime_seconds=lifetime_seconds,
            timeout_seconds=timeout_seconds,
            idle_timeout_seconds=idle_timeout_seconds,
            persistent=persistent,
            egress=egress,
            metadata=metadata,
            score=score,
            labels=labels,
            checkpoint_each_call=checkpoint_each_call,
        )

    def replay(self, *, since: int = 0) -> list[Event]:
        """Returns the last events (up to 1,000) with a higher `seq` than `since`, oldest first.

        Raises:
            NotFound: The sandbox is gone.
        """
        return self._live().replay(self.id, since=since)

    def follow(self, *, since: int = 0) -> Iterator[Event]:
        """Yields the events of `replay`, then new ones until no call runs or waits.

        Use it to continue after a stream broke off, or with a call that outlived a restart of the
        service.

        Raises:
            NotFound: The sandbox is gone.
            ConnectionFailed: The stream broke off; continue with the `seq` of the last event.
        """
        return self._live().follow(self.id, since=since)

    def close(self) -> None:
        """Ends the sandbox and discards its memory and disk.

        It is idempotent and safe to call from several threads. It raises nothing if the sandbox
        is gone already.
        """
        if self._closes_now():
            finish(self._delete)

    def _delete(self) -> None:
        try:
            self._client.delete_sandbox(self.id)
        except (NotFound, VmDied):
            pass
        finally:
            self._release_client()

    def _closes_now(self) -> bool:
        """Returns True for the first caller only."""
        with self._lock:
            first, self._closed = not self._closed, True
        return first

    def _live(self) -> Client:
        if self._closed and self._client.closed:
            happened = "is gone: it was closed" if self._ends else "was left: connect to it again"
            raise NotFound(f"sandbox {self.id} {happened}", status=404, code="deleted")
        return self._client

    def _start(
        self, place: Place, ask: Callable[[Client], SandboxInfo]
    ) -> None:
        """Initializes this object for the sandbox that `ask` returns."""
        self._begin(place)
        try:
            info = ask(self._client)
            self.id = info.id
        except BaseException:
            self._release_client()
            raise

    def _begin(self, place: Place) -> None:
        self._place = place
        self._client = place.client or place.new_client()
        self._own = None if place.client else _OwnClient(self._client)
        self._closed, self._lock = False, threading.Lock()

    def _child(self, child_id: str) -> "Sandbox":
        child = Sandbox.__new__(Sandbox)
        child._own, child._client, child._place = self._own, self._client, self._place
        child._closed, child._lock = False, threading.Lock()
        child.id = child_id
        return child

    @classmethod
    def of_started(
        cls,
        place: Place,
        ask: Callable[[Client], Started],
        *,
        partial: bool,
    ) -> list["Sandbox"]:
        """Returns objects for the sandboxes that `ask` starts; without `partial`, all or none."""
        first = cls.__new__(cls)
        first._begin(place)
        try:
            started = ask(first._client)
            children = [first._child(child_id) for child_id in started.children]
            if first._own:
                first._own.share(len(children))
            if started.errors and not partial:
                finish(lambda: _close_all(children))
                raise started.errors[0]
            return children
        finally:
            first._release_client()

    def _release_client(self) -> None:
        if self._own:
            self._own.release()

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self._ends:
            self.close()
        elif self._closes_now():
            self._release_client()

    def __repr__(self) -> str:
        return f"<Sandbox {self.id} at {self._client.host}>"


def _close_all(sandboxes: Sequence[Sandbox]) -> None:
    for one in sandboxes:
        one.close()


def _id_of(checkpoint: "Checkpoint | str | None") -> str | None:
    if checkpoint is None or isinstance(checkpoint, str):
        return checkpoint
    return checkpoint.id
