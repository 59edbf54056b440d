# SPDX-License-Identifier: Apache-2.0
"""Values that the SDK returns."""

from __future__ import annotations

import base64
import importlib
import sys
from dataclasses import dataclass, field, fields
from typing import Any, Callable, Iterable, Literal, Mapping

from ramet.errors import RametError, stream_error
from ramet.results import CodeError, Result

Language = Literal["python", "bash"]
"""Languages of `run_code`."""

ContextLanguage = Literal["python", "bash", "javascript"]
"""Languages of contexts."""


@dataclass(frozen=True)
class Event:
    """One event of a running call.

    Attributes:
        type: "stdout", "stderr", "result", "error" or "exit". Newer servers may send types this SDK
            does not know.
        data: The text of an output event, newlines included; the exit code of an exit event.
        seq: Sequence number: grows by one per event of the sandbox, across calls.
        ts: Time in milliseconds since the epoch, by the server's clock.
        raw: The exact bytes of an output event; otherwise empty.
        result: The result of a result event; otherwise None.
        error: The exception of an error event; otherwise None. In `replay` and `follow`, an error
            event without one says that the call could not be completed; `data` says why.
        context: Id of the context that the call runs in; None: the default interpreter.
    """

    type: str
    data: str | int
    seq: int
    ts: int
    raw: bytes = field(default=b"", repr=False)
    result: Result | None = None
    error: CodeError | None = None
    context: str | None = None

    @property
    def code(self) -> int | None:
        """The exit code of an exit event; otherwise None."""
        return self.data if self.type == "exit" and isinstance(self.data, int) else None

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> "Event":
        """Builds the event from one NDJSON line of the service."""
        kind, data = str(obj["type"]), obj.get("data", "")
        raw = b""
        if isinstance(data, str):
            encoded = obj.get("data_b64")
            raw = base64.b64decode(encoded) if encoded else data.encode()
        return cls(
            type=kind,
            data=data,
            seq=int(obj["seq"]),
            ts=int(obj["ts"]),
            raw=raw,
            result=Result.from_json(obj) if kind == "result" else None,
            error=CodeError.from_json(obj) if kind == "error" and "name" in obj else None,
            context=obj.get("context"),
        )


@dataclass(frozen=True)
class ExecResult:
    """The result of one call.

    Attributes:
        stdout: The text written to standard output; bytes that are not UTF-8 are U+FFFD.
        stderr: The text written to standard error, likewise.
        exit_code: 0 for success; 1 for an exception; 124 at the call's time limit; 130 when
            interrupted; 128 + signal when killed.
        results: What a Python call has shown, in order: values, figures, frames, pictures.
        error: The exception that ended a Python call, or None. Its traceback is in `stderr` too.
        truncated: True if output is missing, because of `max_output_bytes`.

    In Jupyter, it shows its output and its results.
    """

    stdout: str
    stderr: str
    exit_code: int
    results: list[Result] = field(default_factory=list)
    error: CodeError | None = None
    truncated: bool = False

    @property
    def text(self) -> str | None:
        """The `repr` of the value of the last expression; None if there is no value."""
        return next((result.text for result in self.results if result.main), None)

    @property
    def png(self) -> bytes | None:
        """The first PNG picture of the results; None if there is none."""
        return next((result.png for result in self.results if result.png), None)

    def _ipython_display_(self) -> None:
        """Shows output and results in Jupyter."""
        display = importlib.import_module("IPython.display").display
        print(self.stdout, end="", flush=True)
        print(self.stderr, end="", file=sys.stderr, flush=True)
        for result in self.results:
            display(result)

    @property
    def ok(self) -> bool:
        """True if the exit code is 0."""
        return self.exit_code == 0

    @classmethod
    def from_events(
        cls,
        events: Iterable[Event],
        *,
        on_stdout: Callable[[str], object] | None = None,
        on_stderr: Callable[[str], object] | None = None,
        on_result: Callable[[Result], object] | None = None,
        on_error: Callable[[CodeError], object] | None = None,
    ) -> "ExecResult":
        """Collects the events of a call, up to its exit event.

        Args:
            events: As from `Sandbox.run_code_stream`.
            on_stdout: Called with the text of each output event, when it arrives.
            on_stderr: Likewise.
            on_result: Called with each result, when it arrives.
            on_error: Called with the exception that ended the call.
        """
        from ramet._collect import collect  # which imports this module

        return collect(
            events, on_stdout=on_stdout, on_stderr=on_stderr, on_result=on_result, on_error=on_error
        )


@dataclass(frozen=True)
class Diff:
    """Differences between the files of two sandboxes, as sorted paths.

    Bytes of a name that are not UTF-8 are encoded as by `os.fsdecode`, so that `os.fsencode`
    returns the exact name.

    Attributes:
        added: Paths that only the other sandbox has.
        removed: Paths that only this sandbox has.
        modified: Paths that both have, but with a different type, mode, owner, size or content.
    """

    added: list[str]
    removed: list[str]
    modified: list[str]

    def __bool__(self) -> bool:
        """True if anything differs."""
        return bool(self.added or self.removed or self.modified)

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> "Diff":
        """Builds the diff from the service's JSON object."""
        return cls(*(_paths(obj, name) for name in ("added", "removed", "modified")))


def _paths(obj: Mapping[str, Any], name: str) -> list[str]:
    paths = [str(path) for path in obj[name]]
    exact = obj.get(name + "_b64") or [None] * len(paths)
    return [_exact(path, raw) for path, raw in zip(paths, exact, strict=True)]


def _exact(text: str, raw: str | None) -> str:
    """Returns the name with bytes that are not UTF-8 encoded as by `os.fsdecode`."""
    return base64.b64decode(raw).decode("utf-8", "surrogateescape") if raw else text


Conflicts = Literal["report", "ours", "theirs", "markers"]
"""What `merge_files` does with conflicts."""


@dataclass(frozen=True)
class TakenFile:
    """A path that a merge of files changed, or would change.

    Attributes:
        path: Absolute, encoded as in a `Diff`.
        branches: Ids of the branches that changed it.
        change: "added", "removed" or "modified"; "merged": by lines, or content and mode from
            different sides.
    """

    path: str
    branches: list[str]
    change: str


@dataclass(frozen=True)
class FileConflict:
    """A path that several sides changed differently.

    Attributes:
        path: Absolute, encoded as in a `Diff`.
        branches: Ids of the branches that changed it.
        reason: "content", "binary", "type", "deleted", "added", "attributes", "no_git",
            "no_folder", "not_empty" or "unreadable".
        resolution: "ours", "theirs" or "markers"; None: the parent's file stays.
    """

    path: str
    branches: list[str]
    reason: str
    resolution: str | None


@dataclass(frozen=True)
class MergedBranch:
    """A branch of a merge of files.

    Attributes:
        id: The sandbox.
        changed: Number of paths that it changed.
        conflicts: Number of these with a conflict.
    """

    id: str
    changed: int
    conflicts: int


@dataclass(frozen=True)
class FileMerge:
    """The result of a merge of files.

    Attributes:
        applied: False if nothing was written, because there are conflicts.
        taken: What the parent got, or would get, sorted by path.
        conflicts: Sorted by path.
        branches: In the order in which they were named.
    """

    applied: bool
    taken: list[TakenFile]
    conflicts: list[FileConflict]
    branches: list[MergedBranch]

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> "FileMerge":
        """Builds the result from the service's JSON object."""
        return cls(
            applied=bool(obj["applied"]),
            taken=[
                TakenFile(_exact(one["path"], one.get("path_b64")), one["branches"], one["change"])
                for one in obj["taken"]
            ],
            conflicts=[
                FileConflict(
                    _exact(one["path"], one.get("path_b64")),
                    one["branches"],
                    one["reason"],
                    one["resolution"],
                )
                for one in obj["conflicts"]
            ],
            branches=[
                MergedBranch(one["id"], one["changed"], one["conflicts"])
                for one in obj["branches"]
            ],
        )


FileType = Literal["file", "directory", "symlink", "block", "char", "fifo", "socket"]
"""Types of files."""


@dataclass(frozen=True)
class FileInfo:
    """A file in a sandbox, or an entry of a folder.

    Attributes:
        name: In a list, the path within the folder; from `stat`, the requested path. Bytes that
            are not UTF-8 are encoded as by `os.fsdecode`.
        type: "file", "directory", "symlink", ...
        mode: Permission bits, such as 0o644.
        uid: User id of the owner.
        gid: Group id.
        size: Size of a regular file in bytes; otherwise 0.
        mtime: Time of the last change of the content, in seconds since the epoch, by the
            sandbox's clock.
        target: Target of a symbolic link; otherwise None.
        user: Name of `uid` in the sandbox, or the number as text.
        group: Name of `gid` in the sandbox, or the number as text.
    """

    name: str
    type: FileType
    mode: int
    uid: int
    gid: int
    size: int
    mtime: float
    target: str | None
    user: str = ""
    group: str = ""

    @property
    def is_dir(self) -> bool:
        """True for a folder."""
        return self.type == "directory"

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> "FileInfo":
        """Builds the info from the service's JSON object."""
        target = obj.get("target")
        return cls(
            name=_exact(str(obj["name"]), obj.get("name_b64")),
            type=obj["type"],
            mode=int(obj["mode"], 8),
            uid=int(obj["uid"]),
            gid=int(obj["gid"]),
            size=int(obj["size"]),
            mtime=float(obj["mtime"]),
            target=None if target is None else _exact(str(target), obj.get("target_b64")),
            user=str(obj.get("user", obj["uid"])),
            group=str(obj.get("group", obj["gid"])),
        )


FileEventType = Literal["create", "write", "remove", "rename", "chmod", "overflow"]
"""Types of changes that `Files.watch` reports."""


@dataclass(frozen=True)
class FileEvent:
    """A change of a file that is watched.

    Attributes:
        type: "create", "write", "remove", "rename", "chmod" (also of owner or times), or
            "overflow": events were lost, so list the folder again. Newer servers may send types
            that this SDK does not know.
        path: Absolute path. Bytes that are not UTF-8 are encoded as by `os.fsdecode`.
        to: The new path of a rename; otherwise None.
        is_dir: True for a folder.
    """

    type: str
    path: str
    to: str | None = None
    is_dir: bool = False

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> "FileEvent":
        """Builds the event from one NDJSON line of the service."""
        to = obj.get("to")
        return cls(
            type=str(obj["type"]),
            path=_exact(str(obj["path"]), obj.get("path_b64")),
            to=None if to is None else _exact(str(to), obj.get("to_b64")),
            is_dir=bool(obj.get("directory", False)),
        )


@dataclass(frozen=True)
class AuditEvent:
    """What happened to a sandbox or key. None: the event has no such field.

    Attributes:
        n: Its number, which grows by one with each event of the host; continue with it as `since`.
        id: Unique for ever.
        time: When it happened, as the service writes times.
        event: "sandbox.created", "key.rotated" and others, as docs/observing.md lists them. Newer
            servers may send names that this SDK does not know.
        tenant: Whose it is.
        sandbox: Id of the sandbox.
        template: Its template.
        parent: Id of the sandbox that was forked.
        winner: Id of the sandbox that was merged.
        space: Id of the Space.
        checkpoint: Id of the checkpoint.
        key: Id of the key.
        previous: Id of the key that it replaces.
        text: A sentence or fact for people.
    """

    n: int
    id: str
    time: str
    event: str
    tenant: str
    sandbox: str | None = None
    template: str | None = None
    parent: str | None = None
    winner: str | None = None
    space: str | None = None
    checkpoint: str | None = None
    key: str | None = None
    previous: str | None = None
    text: str | None = None

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> "AuditEvent":
        """Builds the event from one NDJSON line of the service."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in obj.items() if name in known})


@dataclass(frozen=True)
class ProcessEvent:
    """One event of a process.

    Attributes:
        type: "stdout", "stderr" or "exit".
        data: The text of an output event; bytes that are not UTF-8 are U+FFFD. Empty at the exit.
        raw: The exact bytes of an output event; otherwise empty.
        place: Offset of the first byte in the output of both streams; at the exit its size.
        ts: Time in milliseconds since the epoch.
        exit_code: Exit code at the exit, 128 + signal if it was killed; otherwise None.
        signal: Name of the signal that killed it, such as "SIGKILL"; None: it was not killed.
        timed_out: True if it reached its time limit.
        id: The process's id in a "started" event, which only `Client` yields; otherwise empty.
        pid: Its process id, likewise; otherwise 0.
    """

    type: str
    data: str
    raw: bytes = field(repr=False)
    place: int
    ts: int
    exit_code: int | None = None
    signal: str | None = None
    timed_out: bool = False
    id: str = ""
    pid: int = 0

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> "ProcessEvent":
        """Builds the event from one NDJSON line of the service."""
        data, encoded = obj.get("data", ""), obj.get("data_b64")
        text = data if isinstance(data, str) else ""
        return cls(
            type=str(obj["type"]),
            data=text,
            raw=base64.b64decode(encoded) if encoded else text.encode(),
            place=int(obj.get("seq", 0)),
            ts=int(obj["ts"]),
            exit_code=data if isinstance(data, int) else None,
            signal=obj.get("signal"),
            timed_out=bool(obj.get("timed_out", False)),
            id=str(obj.get("id", "")),
            pid=int(obj.get("pid", 0)),
        )


@dataclass(frozen=True)
class ProcessResult:
    """The output and the end of a process.

    Attributes:
        stdout_bytes: What it wrote to standard output.
        stderr_bytes: What it wrote to standard error.
        exit_code: Its exit code; 127 for a program that does not exist, 126 for a file that is not
            executable, 128 + signal if it was killed.
        signal: Name of the signal that killed it, such as "SIGKILL"; None: it was not killed.
        timed_out: True if it reached its time limit.
        truncated: True if output is missing, because of `max_output_bytes`.
    """

    stdout_bytes: bytes
    stderr_bytes: bytes
    exit_code: int
    signal: str | None = None
    timed_out: bool = False
    truncated: bool = False

    @property
    def stdout(self) -> str:
        """Its standard output as text; bytes that are not UTF-8 are U+FFFD."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """Its standard error as text, likewise."""
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def ok(self) -> bool:
        """True if the exit code is 0."""
        return self.exit_code == 0


@dataclass(frozen=True)
class ContextInfo:
    """A context of a sandbox, as it was at the time of the request.

    Attributes:
        id: The context's id, for `Contexts.attach`.
        language: "python", "bash" or "javascript".
        cwd: The working directory that it was started in; None: the home directory.
        busy: True while a call runs or waits in it.
        started_at: Time of its start in UTC, such as "2026-01-31T23:59:59.123Z".
    """

    id: str
    language: ContextLanguage
    cwd: str | None
    busy: bool
    started_at: str

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> "ContextInfo":
        """Builds the info from the service's JSON object."""
        return cls(
            id=str(obj["id"]),
            language=obj["language"],
            cwd=obj["cwd"],
            busy=bool(obj["busy"]),
            started_at=str(obj["started_at"]),
        )


@dataclass(frozen=True)
class ProcessInfo:
    """A process or terminal of a sandbox, as it was at the time of the request.

    Attributes:
        id: The process's id, for `Processes.attach`.
        pid: Process id in the sandbox.
        command: The words of its command, up to 256 bytes.
        user: The user that was given at its start; None: root.
        tty: True if it runs on a terminal.
        running: False once it has ended.
        started_at: Time of its start in UTC, such as "2026-01-31T23:59:59.123Z".
        ended_at: Time of its end, likewise; None while it runs.
        exit_code: Exit code, 128 + signal if it was killed; None while it runs.
        signal: Name of the signal that killed it, such as "SIGKILL"; otherwise None.
        timed_out: True if it reached its time limit.
        output_bytes: Bytes of output so far, of both streams.
    """

    id: str
    pid: int
    command: str
    user: str | None
    tty: bool
    running: bool
    started_at: str
    ended_at: str | None
    exit_code: int | None
    signal: str | None
    timed_out: bool
    output_bytes: int

    @property
    def state(self) -> Literal["running", "ended"]:
        """ "running", or "ended"."""
        return "running" if self.running else "ended"

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> "ProcessInfo":
        """Builds the info from the service's JSON object."""
        return cls(
            id=str(obj["id"]),
            pid=int(obj["pid"]),
            command=str(obj["command"]),
            user=obj["user"],
            tty=bool(obj["tty"]),
            running=obj["state"] == "running",
            started_at=str(obj["started_at"]),
            ended_at=obj["ended_at"],
            exit_code=obj["exit_code"],
            signal=obj["signal"],
            timed_out=bool(obj["timed_out"]),
            output_bytes=int(obj["output_bytes"]),
        )


@dataclass(frozen=True)
class PtyInfo:
    """A terminal of a sandbox.

    Attributes:
        id: The terminal's id, for `Ptys.attach`.
        label: The command that it was started with.
        created_at: Time of its start in seconds since the epoch, by the sandbox's clock.
        exit_code: Exit code of its program; None while that runs.
    """

    id: str
    label: str
    created_at: float
    exit_code: int | None

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> "PtyInfo":
        """Builds the info from the service's JSON object."""
        code = obj.get("exit_code")
        return cls(
            id=str(obj["pty_id"]),
            label=str(obj["cmd_label"]),
            created_at=int(obj["created_at_ms"]) / 1000,
            exit_code=None if code is None else int(code),
        )


@dataclass(frozen=True)
class Region:
    """A region of the service.

    Attributes:
        name: Its name, for `Client(region=...)`.
        endpoint: The URL that clients use there. None: not known.
        here: The host that answered is in it.
        raw: Everything the service sent, by field name as in docs/api.md.
    """

    name: str
    endpoint: str | None
    here: bool
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> "Region":
        """Builds the region from the service's JSON object."""
        return cls(
            name=str(obj["name"]),
            endpoint=None if obj["endpoint"] is None else str(obj["endpoint"]),
            here=bool(obj["here"]),
            raw=obj,
        )


@dataclass(frozen=True)
class TemplateInfo:
    """A template, from which sandboxes are created.

    Attributes:
        name: Its name, for `Sandbox(template=...)`.
        description: The template's description; may be empty.
        state: "ready", "building", "waiting" (its snapshot is made when the service is idle, or on
            request) or "failed".
        vcpus: Default virtual CPUs of a sandbox.
        ram_mib: Default memory in MiB.
        rootfs_gb: Default root disk in GiB.
        raw: Everything the service sent, by field name as in docs/api.md.
    """

    name: str
    description: str
    state: str
    vcpus: int
    ram_mib: int
    rootfs_gb: int
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> "TemplateInfo":
        """Builds the info from the service's JSON object."""
        return cls(
            name=str(obj["name"]),
            description=str(obj["description"]),
            state=str(obj["state"]),
            vcpus=int(obj["vcpus"]),
            ram_mib=int(obj["ram_mib"]),
            rootfs_gb=int(obj["rootfs_gb"]),
            raw=dict(obj),
        )


@dataclass(frozen=True)
class SpaceInfo:
    """A Space: a sandbox on disk.

    Attributes:
        id: The Space's id, for `Sandbox.resume`.
        state: "frozen", "resuming" or "damaged".
        created_at: Time of the freeze in UTC, such as "2026-01-31T23:59:59.123Z".
        size_bytes: Bytes on disk, without its template's files and the root file system.
        ram_mib: Memory of the sandbox in MiB.
        template: Name of the template that the sandbox was created from.
        metadata: The JSON object that was passed when the sandbox was created.
        raw: Everything the service sent, by field name as in docs/api.md.
    """

    id: str
    state: str
    created_at: str
    size_bytes: int
    ram_mib: int
    template: str
    metadata: Mapping[str, Any]
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> "SpaceInfo":
        """Builds the info from the service's JSON object."""
        return cls(
            id=str(obj["id"]),
            state=str(obj["state"]),
            created_at=str(obj["created_at"]),
            size_bytes=int(obj["size_bytes"]),
            ram_mib=int(obj["ram_mib"]),
            template=str(obj["template"]),
            metadata=dict(obj["metadata"]),
            raw=dict(obj),
        )


def _score(value: Any) -> float | None:
    return None if value is None else float(value)


@dataclass(frozen=True)
class TreeNode:
    """A living sandbox of a tree, and what it costs.

    Attributes:
        id: The sandbox's id.
        state: As in a `SandboxInfo`.
        parent: The id it was forked from, or None.
        depth: Number of forks from the root to it.
        score: Its score; None: none.
        labels: Its labels.
        ram_mib: Its memory in MiB.
        memory_private_bytes: Memory of the host that only it uses; updated every 10 s.
        cpu_seconds: CPU time of its VM.
        wall_seconds: Time since its create or fork.
    """

    id: str
    state: str
    parent: str | None
    depth: int
    score: float | None
    labels: Mapping[str, str]
    ram_mib: int
    memory_private_bytes: int
    cpu_seconds: float
    wall_seconds: float

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> "TreeNode":
        """Builds the node from the service's JSON object."""
        return cls(
            id=str(obj["id"]),
            state=str(obj["state"]),
            parent=obj["parent"],
            depth=int(obj["depth"]),
            score=_score(obj["score"]),
            labels=dict(obj["labels"]),
            ram_mib=int(obj["ram_mib"]),
            memory_private_bytes=int(obj["memory_private_bytes"]),
            cpu_seconds=float(obj["cpu_seconds"]),
            wall_seconds=float(obj["wall_seconds"]),
        )


@dataclass(frozen=True)
class TreeInfo:
    """A tree of sandboxes: a root and all that descend from it.

    Attributes:
        root: Id of the root, also after its end.
        budget: Its limits, as passed to the create of the root; None: none.
        live: Number of living sandboxes.
        waiting: Number of forks that wait for room.
        ram_mib: Memory of the living sandboxes in MiB.
        cpu_seconds: CPU time of all sandboxes, living and ended.
        wall_seconds: Time since the create of the root.
        nodes: The living sandboxes, oldest first, at most 1,000.
        spaces: Ids of its frozen sandboxes.
        raw: Everything the service sent, by field name as in docs/api.md.
    """

    root: str
    budget: Mapping[str, Any] | None
    live: int
    waiting: int
    ram_mib: int
    cpu_seconds: float
    wall_seconds: float
    nodes: list[TreeNode]
    spaces: list[str]
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> "TreeInfo":
        """Builds the info from the service's JSON object."""
        return cls(
            root=str(obj["root"]),
            budget=obj["tree"],
            live=int(obj["live"]),
            waiting=int(obj["waiting"]),
            ram_mib=int(obj["ram_mib"]),
            cpu_seconds=float(obj["cpu_seconds"]),
            wall_seconds=float(obj["wall_seconds"]),
            nodes=[TreeNode.from_json(one) for one in obj["nodes"]],
            spaces=[str(one["id"]) for one in obj["spaces"]],
            raw=dict(obj),
        )


@dataclass(frozen=True)
class CheckpointInfo:
    """A checkpoint: the kept state of a sandbox at one moment.

    Attributes:
        id: The checkpoint's id, for `Sandbox(checkpoint=…)`.
        state: "memory" (not on disk yet: a restart of the service loses it), "stored" or "damaged".
        name: Its name; None: none.
        labels: Its labels.
        score: Its score, as set by `Checkpoint.update`; None: none.
        root: Id of the root of the tree that its sandbox belongs to, and all that start from it.
        depth: Depth of its sandbox in the tree.
        pin: True: nothing deletes it until it is unpinned.
        sandbox: Id of the sandbox whose state it is, which may have ended.
        parent: Id of the checkpoint before it of the same machine, of those that exist; None: none.
        created_at: Time in UTC, such as "2026-01-31T23:59:59.123Z".
        expires_at: Time at which the service deletes it; None: it stays.
        size_bytes: Bytes on disk of its own; while it is in memory, those that it will take.
        shared_bytes: Bytes on disk that it shares with its template and with other checkpoints.
        freed_bytes: Bytes on disk that its deletion would free now; less than `size_bytes` while
            others share its files. None: not counted, as in lists.
        ram_mib: Memory of the sandbox in MiB.
        template: Name of the template that the sandbox was created from.
        metadata: The metadata of the sandbox.
        call: If the service took it after a call: `Event.seq` of the last event in that state,
            0 if there was none. None: it was asked for.
        undone: True if it is of a call that was undone.
        raw: Everything the service sent, by field name as in docs/api.md.
    """

    id: str
    state: str
    name: str | None
    labels: Mapping[str, str]
    score: float | None
    root: str
    depth: int
    pin: bool
    sandbox: str
    parent: str | None
    created_at: str
    expires_at: str | None
    size_bytes: int
    shared_bytes: int
    freed_bytes: int | None
    ram_mib: int
    template: str
    metadata: Mapping[str, Any]
    call: int | None
    undone: bool
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> "CheckpointInfo":
        """Builds the info from the service's JSON object."""
        return cls(
            id=str(obj["id"]),
            state=str(obj["state"]),
            name=obj["name"],
            labels=dict(obj["labels"]),
            score=_score(obj["score"]),
            root=str(obj["root"]),
            depth=int(obj["depth"]),
            pin=bool(obj["pin"]),
            sandbox=str(obj["sandbox"]),
            parent=obj["parent"],
            created_at=str(obj["created_at"]),
            expires_at=obj["expires_at"],
            size_bytes=int(obj["bytes"]),
            shared_bytes=int(obj["bytes_shared"]),
            freed_bytes=obj.get("bytes_freed"),
            ram_mib=int(obj["ram_mib"]),
            template=str(obj["template"]),
            metadata=dict(obj["metadata"]),
            call=obj["call"],
            undone=bool(obj["undone"]),
            raw=dict(obj),
        )


@dataclass(frozen=True)
class HistoryEntry:
    """What happened in a sandbox: a call, a checkpoint, a fork, a merge, a rollback, or its begin.

    Attributes:
        n: Number of the entry, from 1; older ones than the last 49 are left out, but not the first.
        kind: "created", "forked" or "resumed" (how the sandbox began, always the first entry),
            "call", "checkpoint", "fork", "merge" or "rollback" (an undo, too). Newer servers may
            send others.
        time: Time in UTC, such as "2026-01-31T23:59:59.123Z"; of a call, its end.
        undone: True if the present state does not come from it: the sandbox was rolled back to
            before it, or a merge replaced it.
        checkpoint: Id of the checkpoint that was taken of the state after it. None: there is none,
            or it was deleted.
        source: How it began, merge, rollback: id of the sandbox, checkpoint or Space whose state it
            got. None: a template.
        code: Call: the first line of its code, up to 80 bytes. None: not known.
        result: Call: "ok", "error" (its exit code is not 0), "failed" (it could not be completed),
            "rolled_back" or "merged" (which ended it).
        seconds: Call: how long it ran. None: not known.
        seq: Call: `Event.seq` of its last event.
        name: Checkpoint: the name that it was taken with, up to 80 bytes.
        n_children: Fork: how many it made.
        children: Fork: ids of those that live.
        raw: Everything the service sent, by field name as in docs/api.md.
    """

    n: int
    kind: str
    time: str
    undone: bool
    checkpoint: str | None
    source: str | None
    code: str | None
    result: str | None
    seconds: float | None
    seq: int | None
    name: str | None
    n_children: int
    children: list[str]
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> "HistoryEntry":
        """Builds the entry from the service's JSON object."""
        return cls(
            n=int(obj["n"]),
            kind=str(obj["kind"]),
            time=str(obj["time"]),
            undone=bool(obj["undone"]),
            checkpoint=obj["checkpoint"],
            source=obj.get("source"),
            code=obj.get("code"),
            result=obj.get("result"),
            seconds=obj.get("seconds"),
            seq=obj.get("seq"),
            name=obj.get("name"),
            n_children=int(obj.get("n_children", 0)),
            children=list(obj.get("children", [])),
            raw=dict(obj),
        )


@dataclass(frozen=True)
class Pruned:
    """What a prune deleted, or would delete.

    Attributes:
        checkpoints: Ids, newest first.
        size_bytes: Bytes on disk of these checkpoints; what they share with others stays there.
    """

    checkpoints: list[str]
    size_bytes: int

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> "Pruned":
        """Builds the value from the service's JSON object."""
        return cls([str(one) for one in obj["checkpoints"]], int(obj["bytes"]))


@dataclass(frozen=True)
class Started:
    """The sandboxes that were started from a checkpoint or a Space.

    Attributes:
        children: Ids of those that were started.
        errors: Why each of the others could not be.
    """

    children: list[str]
    errors: list[RametError]

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> "Started":
        """Builds the value from the service's JSON object."""
        failed = [one["error"] for one in obj["children"] if "error" in one]
        return cls(
            [str(one["id"]) for one in obj["children"] if "id" in one],
            [stream_error(str(one["code"]), str(one["message"])) for one in failed],
        )


@dataclass(frozen=True, repr=False)
class SandboxInfo:
    """A sandbox, as it was at the time of the request.

    The answers to a create and a resume have `id` and `state` only: any other attribute raises
    AttributeError there. `Sandbox.info` and lists have all of them.

    Attributes:
        id: The sandbox's id.
        state: "ready", "running" (a call runs or waits) or "freezing".
        raw: Everything the service sent, by field name as in docs/api.md.
    """

    id: str
    state: str
    raw: Mapping[str, Any]

    @property
    def template(self) -> str:
        """Name of the template that it was created from."""
        return str(self._field("template"))

    @property
    def vcpus(self) -> int:
        """Number of virtual CPUs."""
        return int(self._field("vcpus"))

    @property
    def ram_mib(self) -> int:
        """Memory in MiB. It is less than requested if the key's tier does not allow more."""
        return int(self._field("ram_mib"))

    @property
    def rootfs_gb(self) -> int:
        """Size of the root disk in GiB."""
        return int(self._field("rootfs_gb"))

    @property
    def persistent(self) -> bool:
        """True if it becomes a Space at its timeouts, instead of ending."""
        return bool(self._field("persistent"))

    @property
    def egress(self) -> bool:
        """False if nothing that it sends leaves the host."""
        return bool(self._field("egress"))

    @property
    def created_at(self) -> str:
        """Time of its creation in UTC, such as "2026-01-31T23:59:59.123Z"."""
        return str(self._field("created_at"))

    @property
    def expires_at(self) -> str | None:
        """End of its lifetime, likewise; None: never."""
        return self._time("expires_at")

    @property
    def idle_expires_at(self) -> str | None:
        """Time at which it ends unless it is used before, likewise; None: never."""
        return self._time("idle_expires_at")

    @property
    def parent(self) -> str | None:
        """The id it was forked from, or None."""
        return self.raw.get("parent")

    @property
    def root(self) -> str:
        """The root of its tree: the sandbox from which it descends and that was not forked."""
        return str(self._field("root"))

    @property
    def depth(self) -> int:
        """Number of forks from the root to it."""
        return int(self._field("depth"))

    @property
    def score(self) -> float | None:
        """Its score, as set by `Sandbox.update`; None: none."""
        return _score(self._field("score"))

    @property
    def checkpoint_each_call(self) -> dict[str, int] | None:
        """``{"keep": n}`` if the states after its last n calls are kept; None: they are not."""
        setting = self._field("checkpoint_each_call")
        return None if setting is None else dict(setting)

    @property
    def labels(self) -> dict[str, str]:
        """Its labels."""
        return dict(self._field("labels"))

    @property
    def children(self) -> list[str]:
        """Ids of its living forks, up to the oldest 1,000; empty in lists.
        `Client.list_children` returns all of them."""
        return list(self.raw.get("children") or [])

    @property
    def children_more(self) -> bool:
        """True if `children` has not all of them."""
        return bool(self.raw.get("children_more"))

    @property
    def memory_private_bytes(self) -> int:
        """Memory of the host that only this sandbox uses."""
        return int(self._field("memory_private_bytes"))

    @property
    def memory_shared_bytes(self) -> int:
        """Memory of the host that it shares with its template and its relatives."""
        return int(self._field("memory_shared_bytes"))

    @property
    def metadata(self) -> dict[str, Any]:
        """The JSON object that is stored with it."""
        return dict(self._field("metadata"))

    @property
    def frozen_bytes(self) -> int | None:
        """Bytes that a freeze has written so far; None: it is not being frozen."""
        return self.raw.get("frozen_bytes")

    @property
    def freeze_bytes(self) -> int | None:
        """Bytes that the freeze has to write, as estimated; None: it is not being frozen."""
        return self.raw.get("freeze_bytes")

    @property
    def region(self) -> str | None:
        """The region of its service; None: the service has none."""
        return self.raw.get("region")

    @property
    def endpoint(self) -> str | None:
        """The address of its service; None: the service does not name one."""
        return self.raw.get("endpoint")

    def _field(self, name: str) -> Any:
        if name in self.raw:
            return self.raw[name]
        raise AttributeError(
            f"{name} of sandbox {self.id} is not known: the answer had {', '.join(self.raw)} "
            "only. `get_sandbox` returns the rest"
        )

    def _time(self, name: str) -> str | None:
        at = self._field(name)
        return None if at is None else str(at)

    def __repr__(self) -> str:
        return f"SandboxInfo({', '.join(f'{name}={value!r}' for name, value in self.raw.items())})"

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> "SandboxInfo":
        """Builds the info from the service's JSON object."""
        return cls(id=str(obj["id"]), state=str(obj["state"]), raw=dict(obj))


@dataclass(frozen=True)
class Metrics:
    """What a sandbox used of the host at one moment, as the host sees its virtual machine.

    Attributes:
        at: UTC time, such as "2026-01-31T23:59:59.123Z".
        cpu_percent: CPU time since the previous sample, in percent of what all its vCPUs could
            use; None: there is no previous sample of this machine.
        cpu_seconds: CPU time since the machine was started, in seconds.
        vcpus: Number of virtual CPUs.
        memory_used_bytes: Memory of the machine that is in RAM, including pages that it shares with
            its template and its relatives.
        memory_limit_bytes: Size of its memory.
        disk_layer_bytes: Bytes in its newest disk layer: what it wrote since it was created,
            resumed or last forked.
        disk_size_bytes: Size of its root disk.
        network_received_bytes: Bytes that it received from the network since the machine was
            started.
        network_sent_bytes: Bytes that it sent since then.
    """

    at: str
    cpu_percent: float | None
    cpu_seconds: float
    vcpus: int
    memory_used_bytes: int
    memory_limit_bytes: int
    disk_layer_bytes: int
    disk_size_bytes: int
    network_received_bytes: int
    network_sent_bytes: int

    @classmethod
    def from_json(cls, obj: Mapping[str, Any], sample: Mapping[str, Any]) -> "Metrics":
        """Builds one of the samples of the service's JSON object."""
        percent = sample["cpu_percent"]
        return cls(
            at=str(sample["at"]),
            cpu_percent=None if percent is None else float(percent),
            cpu_seconds=float(sample["cpu_seconds"]),
            vcpus=int(obj["vcpus"]),
            memory_used_bytes=int(sample["memory_used_bytes"]),
            memory_limit_bytes=int(obj["memory_limit_bytes"]),
            disk_layer_bytes=int(sample["disk_layer_bytes"]),
            disk_size_bytes=int(obj["disk_size_bytes"]),
            network_received_bytes=int(sample["network_received_bytes"]),
            network_sent_bytes=int(sample["network_sent_bytes"]),
        )


@dataclass(frozen=True)
class PortShare:
    """A shared port of a sandbox.

    Attributes:
        port: The port in the sandbox.
        public: Whether everybody may reach it; else the token is needed.
        url: Where the server is reached over HTTP. Contains the token unless the port is public.
        token: The token, for the header ``Ramet-Port-Token``.
    """

    port: int
    public: bool
    url: str
    token: str

    @classmethod
    def from_json(cls, obj: Mapping[str, Any]) -> "PortShare":
        """Builds the share from an answer of the service."""
        return cls(
            port=int(obj["port"]),
            public=bool(obj["public"]),
            url=str(obj["url"]),
            token=str(obj["token"]),
        )
