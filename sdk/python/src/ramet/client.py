# SPDX-License-Identifier: Apache-2.0
"""HTTP transport: one method per call of the service's API (docs/api.md)."""

from __future__ import annotations

import base64
import json
import os
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Iterator, Mapping, Sequence
from urllib.parse import quote

import httpx

from ramet._transport import DEFAULT_HOST, Transport, new_key, query, to_json
from ramet.errors import BadRequest, ConnectionFailed, RametError, stream_error
from ramet.types import Diff, Event, FileInfo, Language, PtyInfo, SandboxInfo, SpaceInfo, TemplateInfo

# Creating boots a guest first when the size is new to the host; a diff reads every file, and so
# does the commit of an upload.
_CREATE_S = 360.0
_DIFF_S = 3660.0
_COMMIT_S = 3660.0
_FREEZE_S = 3660.0  # what differs from the template is written to disk
_REMOVE_S = 660.0
_PTY_WAIT_S = 30.0  # the longest that the service waits for output


class Client:
    """A connection pool to one Ramet service. Safe to share between threads.

    Args:
        host: Base URL. Default: the environment's `RAMET_HOST`, then `http://127.0.0.1:7070`.
        api_key: Bearer key. Default: the environment's `RAMET_API_KEY`, then none.
        region: Everything is asked of the service of that region; another one answers NotFound
            (code ``unknown_region``). Default: whichever is at `host`.
        timeout: Seconds that one answer may take. Creating and comparing sandboxes have longer
            limits of their own at least, and a stream of events has none while the service lives.
        ca_file: PEM file of the certificates to trust, for an https `host` with one of your own.
            Default: the environment's `RAMET_CA_FILE`, then the public authorities.
        retry_seconds: How long one request may wait, in all, to be sent again; 0: never. It is
            sent again when the service said when to try again (`Retry-After`: 429, 503), or when
            the connection broke, and only where that can't do twice what was asked: to read,
            to write a file, to create, fork and resume (which have an `Idempotency-Key`). Past
            it the error is raised at once, with its `retry_after`.
        allow_plain_http: No `PlainHttpWarning` for a key that is sent over plain http to
            another machine: the way there is private.
        transport: An httpx transport to use instead of the network (tests).

    Raises:
        ConnectionFailed: `host` is no URL, or `ca_file` can't be read.
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
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.host = (host or os.environ.get("RAMET_HOST") or DEFAULT_HOST).rstrip("/")
        if region is not None:
            self.host += "/r/" + quote(region, safe="")
        key = api_key or os.environ.get("RAMET_API_KEY")
        self._http = Transport(
            self.host,
            key,
            timeout,
            transport,
            ca_file=ca_file or os.environ.get("RAMET_CA_FILE"),
            retry_seconds=retry_seconds,
            allow_plain_http=allow_plain_http,
        )

    def close(self) -> None:
        """Closes the connections; sandboxes stay."""
        self._http.close()

    @property
    def closed(self) -> bool:
        """True after `close`: nothing can be asked any more."""
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
        """True when the service answers and can serve sandboxes."""
        try:
            answer = self._http.request("GET", "/v1/healthz", retry=False)
            return answer.text.strip() == "ok"
        except RametError:
            return False

    def templates(self) -> list[TemplateInfo]:
        """What sandboxes can be made from."""
        return [TemplateInfo.from_json(one) for one in self._http.pages("/v1/templates")]

    def create_sandbox(
        self,
        *,
        template: str | None = None,
        vcpus: int | None = None,
        ram_mib: int | None = None,
        rootfs_gb: int | None = None,
        timeout_seconds: int | None = None,
        idle_timeout_seconds: int | None = None,
        persistent: bool | None = None,
        egress: bool | None = None,
        env: Mapping[str, str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> SandboxInfo:
        """Creates a sandbox; what is None is the service's default.

        Args:
            template: Name of the template to start from.
            vcpus: Virtual CPUs, 1 to 32.
            ram_mib: Memory in MiB.
            rootfs_gb: Root disk in GiB.
            timeout_seconds: Lifetime in seconds.
            idle_timeout_seconds: Seconds without activity after which the sandbox ends.
            persistent: Freeze it into a Space at its timeouts, instead of ending it.
            egress: False: nothing that it sends gets out, for good, also of its forks.
            env: Environment variables of every call.
            metadata: JSON object kept with the sandbox.
            idempotency_key: With the key of an earlier call that had the same arguments, this one
                makes nothing and returns what that one made, for an hour. None: a new key.

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
                "timeout_seconds": timeout_seconds,
                "idle_timeout_seconds": idle_timeout_seconds,
                "persistent": persistent,
                "egress": egress,
                "env": dict(env) if env is not None else None,
                "metadata": dict(metadata) if metadata is not None else None,
            }
        )
        key = idempotency_key or new_key()
        answer = self._http.json("POST", "/v1/sandboxes", body, _CREATE_S, key=key)
        return SandboxInfo.from_json(answer)

    def list_sandboxes(self) -> list[SandboxInfo]:
        """Every sandbox of this key, oldest first, however many pages that takes."""
        return list(self.iter_sandboxes())

    def iter_sandboxes(self) -> Iterator[SandboxInfo]:
        """As `list_sandboxes`, a page at a time while they are taken.

        Sandboxes created or deleted meanwhile may come or not; all others come once each.
        """
        for one in self._http.pages("/v1/sandboxes"):
            yield SandboxInfo.from_json(one)

    def list_children(self, sandbox_id: str) -> list[SandboxInfo]:
        """Every living child of a sandbox, oldest first, also of one that has very many.

        Raises:
            NotFound: There is no such sandbox.
        """
        path = _sandbox(sandbox_id) + "/children"
        return [SandboxInfo.from_json(one) for one in self._http.pages(path)]

    def get_sandbox(self, sandbox_id: str) -> SandboxInfo:
        """What the service knows of a sandbox.

        Raises:
            NotFound: There is none with this id.
        """
        return SandboxInfo.from_json(self._http.json("GET", _sandbox(sandbox_id)))

    def delete_sandbox(self, sandbox_id: str) -> None:
        """Ends a sandbox; its memory and disk are gone.

        Raises:
            NotFound: There is none with this id.
        """
        self._http.request("DELETE", _sandbox(sandbox_id))

    def freeze_sandbox(self, sandbox_id: str) -> SpaceInfo:
        """Writes a sandbox to disk as a Space, with everything in memory; its id is gone then.

        Raises:
            NotFound: There is no such sandbox.
            CapReached: The Spaces of this key may not take more of the disk.
            Unavailable: It could not be written; the sandbox runs on.
        """
        answer = self._http.json("POST", _sandbox(sandbox_id) + "/freeze", None, _FREEZE_S)
        return self.get_space(str(answer["space_id"]))

    def list_spaces(self) -> list[SpaceInfo]:
        """Every Space of this key, oldest first, however many pages that takes."""
        return list(self.iter_spaces())

    def iter_spaces(self) -> Iterator[SpaceInfo]:
        """As `list_spaces`, a page at a time while they are taken."""
        for one in self._http.pages("/v1/spaces"):
            yield SpaceInfo.from_json(one)

    def get_space(self, space_id: str) -> SpaceInfo:
        """What the service knows of a Space.

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
        timeout_seconds: int | None = None,
        idle_timeout_seconds: int | None = None,
        persistent: bool | None = None,
        egress: bool | None = None,
        idempotency_key: str | None = None,
    ) -> SandboxInfo:
        """Makes a Space a sandbox again, with a new id; the Space is gone with that.

        Args:
            space_id: The Space. A resume that fails leaves it.
            timeout_seconds: Lifetime in seconds; None: as it had.
            idle_timeout_seconds: Seconds without activity; None: as it had.
            persistent: Freeze it again at its timeouts.
            egress: None: as it had. What was closed can't be opened.
            idempotency_key: As for `create_sandbox`.

        Raises:
            NotFound: There is no such Space.
            Conflict: It is being resumed, or `egress` can't be given to it.
            SpaceDamaged: What is on the disk is not what was written.
        """
        body = to_json(
            {
                "timeout_seconds": timeout_seconds,
                "idle_timeout_seconds": idle_timeout_seconds,
                "persistent": persistent,
                "egress": egress,
            }
        )
        key = idempotency_key or new_key()
        answer = self._http.json("POST", _space(space_id) + "/resume", body, _CREATE_S, key=key)
        return SandboxInfo.from_json(answer)

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
        body = to_json(
            {
                "code": code,
                "language": language,
                "output": "chunks",
                "timeout_seconds": timeout_seconds,
                "env": dict(env) if env is not None else None,
                "cwd": cwd,
            }
        )
        ended = False
        for line in self._http.lines("POST", _sandbox(sandbox_id) + "/exec", body):
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
        self._http.request("POST", _sandbox(sandbox_id) + "/interrupt")

    def fork_sandbox(
        self,
        sandbox_id: str,
        n: int = 1,
        *,
        reseed: bool = False,
        idempotency_key: str | None = None,
    ) -> list[str]:
        """Clones a running sandbox, in the middle of whatever it does; returns the children's ids.

        Args:
            sandbox_id: The parent. It goes on and notices nothing.
            n: Number of children, all or none: 1 to the service's limit (32 unless configured).
            reseed: Python's `random` and numpy's generator draw differently in each child. By
                default they are part of the state that is cloned.
            idempotency_key: As for `create_sandbox`.

        Raises:
            BadRequest: `n` is out of range.
            NotFound: There is no such sandbox.
            Unavailable: The host has no room for so many.
        """
        body: dict[str, Any] = {"n": n}
        if reseed:
            body["reseed"] = True
        key = idempotency_key or new_key()
        answer = self._http.json("POST", _sandbox(sandbox_id) + "/fork", body, key=key)
        return [str(child) for child in answer["children"]]

    def merge_sandbox(self, parent_id: str, winner_id: str) -> None:
        """Lets the parent's id drive the winner's VM. The parent's old VM and the winner's id go.

        Raises:
            BadRequest: Parent and winner are the same.
            Conflict: The winner does not descend from the parent.
            NotFound: One of them is not there.
        """
        self._http.request("POST", f"{_sandbox(parent_id)}/merge_into/{quote(winner_id, safe='')}")

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
        return Diff.from_json(self._http.json("POST", path, body, _DIFF_S))

    def replay(self, sandbox_id: str, *, since: int = 0) -> list[Event]:
        """The sandbox's last events (up to 1,000) with a higher `seq` than `since`, oldest first.

        Raises:
            NotFound: There is no such sandbox.
        """
        path = _sandbox(sandbox_id) + "/replay" + query(since=since or None)
        return [Event.from_json(json.loads(line)) for line in self._http.lines("GET", path, None)]

    def follow(self, sandbox_id: str, *, since: int = 0) -> Iterator[Event]:
        """As `replay`, and then what comes, until nothing runs or waits in the sandbox.

        Raises:
            NotFound: There is no such sandbox.
            ConnectionFailed: The stream broke off; another `since` goes on where it was.
        """
        path = _sandbox(sandbox_id) + "/replay" + query(since=since or None, follow=True)
        for line in self._http.lines("GET", path, None):
            yield Event.from_json(json.loads(line))

    # Files. `path` is absolute; bytes that are not UTF-8 are in it as `os.fsdecode` puts them.

    def write_file(
        self, sandbox_id: str, path: str, data: bytes, *, mode: int | None = None
    ) -> None:
        """Writes a file whole, in one request: to 64 MiB. See `Files.upload` for any size.

        Raises:
            IsADirectory, NotADirectory, PermissionDenied, DiskFull: As they say.
            NotFound: There is no such sandbox.
        """
        where = _sandbox(sandbox_id) + "/files" + query(path=path, mode=_octal(mode))
        self._http.send_bytes("PUT", where, data)

    def read_file(
        self, sandbox_id: str, path: str
    ) -> AbstractContextManager[tuple[int | None, Iterator[bytes]]]:
        """For a `with`: the size of a file in bytes, and its content piece by piece.

        Raises:
            NoSuchFile, IsADirectory, NotADirectory, PermissionDenied: As they say.
            NotFound: There is no such sandbox.
            ConnectionFailed: The answer broke off.
        """
        return self._http.download(_sandbox(sandbox_id) + "/files" + query(path=path))

    def list_files(self, sandbox_id: str, path: str) -> list[FileInfo]:
        """What is in a folder.

        Raises:
            NoSuchFile, NotADirectory, PermissionDenied: As they say.
            NotFound: There is no such sandbox.
        """
        answer = self._http.json("GET", _sandbox(sandbox_id) + "/files/list" + query(path=path))
        return [FileInfo.from_json(one) for one in answer["entries"]]

    def stat_file(self, sandbox_id: str, path: str, *, follow: bool = True) -> FileInfo:
        """What is known of one file.

        Raises:
            NoSuchFile, NotADirectory, PermissionDenied: As they say.
            NotFound: There is no such sandbox.
        """
        asked = query(path=path, follow=None if follow else False)
        return FileInfo.from_json(
            self._http.json("GET", _sandbox(sandbox_id) + "/files/stat" + asked)
        )

    def remove_file(self, sandbox_id: str, path: str, *, recursive: bool = False) -> None:
        """Removes a file, a link or a folder.

        Raises:
            NoSuchFile, NotADirectory, DirectoryNotEmpty, PermissionDenied: As they say.
            NotFound: There is no such sandbox.
        """
        asked = query(path=path, recursive=recursive or None)
        self._http.request(
            "DELETE", _sandbox(sandbox_id) + "/files" + asked, at_least_s=_REMOVE_S
        )

    def make_folder(
        self, sandbox_id: str, path: str, *, mode: int | None = None, parents: bool = False
    ) -> None:
        """Makes a folder.

        Raises:
            FileExists, NoSuchFile, NotADirectory, PermissionDenied, DiskFull: As they say.
            NotFound: There is no such sandbox.
        """
        asked = query(path=path, mode=_octal(mode), parents=parents or None)
        self._http.request("POST", _sandbox(sandbox_id) + "/files/mkdir" + asked)

    # A file in parts, see `Files.upload`.

    def open_upload(self, sandbox_id: str, path: str, *, mode: int | None = None) -> str:
        """Begins an upload and returns its id; an hour untouched, it is forgotten.

        Raises:
            IsADirectory, NotADirectory, PermissionDenied, DiskFull: As they say.
            NotFound: There is no such sandbox.
        """
        asked = query(path=path, mode=_octal(mode))
        answer = self._http.json("POST", _sandbox(sandbox_id) + "/uploads" + asked)
        return str(answer["id"])

    def write_part(self, sandbox_id: str, upload_id: str, offset: int, data: bytes) -> None:
        """Sends up to 8 MiB of the file; in any order, several at once, again if need be.

        Raises:
            DiskFull: It does not fit.
            BadRequest: It is more than 8 MiB.
            NotFound: There is no such sandbox or upload.
        """
        self._http.send_bytes("PUT", _upload(sandbox_id, upload_id) + query(offset=offset), data)

    def commit_upload(self, sandbox_id: str, upload_id: str, size: int, sha256: str) -> None:
        """Puts the file into its place.

        Args:
            sandbox_id: Where it is.
            upload_id: Of `open_upload`.
            size: Bytes of the whole file.
            sha256: Of the whole file, as 64 hex digits.

        Raises:
            Conflict: Size or checksum are not those of what came; the upload stays open.
            NotFound: There is no such sandbox or upload.
        """
        body = {"size": size, "sha256": sha256}
        self._http.request("POST", _upload(sandbox_id, upload_id) + "/commit", body, _COMMIT_S)

    def abort_upload(self, sandbox_id: str, upload_id: str) -> None:
        """Drops an upload and what came of it.

        Raises:
            NotFound: There is no such sandbox.
        """
        self._http.request("DELETE", _upload(sandbox_id, upload_id))

    # Terminals, see `Pty`.

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
            BadRequest: A value is wrong, or the program can't be started.
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
        for line in self._http.lines("POST", path, body):  # left at once: output is read apart
            event = json.loads(line)
            if event["type"] == "pty_ready":
                return str(event["session_id"])
            if event["type"] == "pty_error":
                raise BadRequest(str(event["message"]), code=str(event.get("code", "")))
        raise ConnectionFailed(f"POST {path}: the stream ended before the terminal was ready")

    def pty_read(
        self, sandbox_id: str, pty_id: str, place: int, *, max_bytes: int, timeout_ms: int
    ) -> tuple[bytes, int, int | None]:
        """Output from `place` on: its bytes, the place after them, the exit code once there is one.

        Args:
            sandbox_id: Where it is.
            pty_id: Of `pty_create`.
            place: Bytes of the output that came before. What is not kept any more is left out.
            max_bytes: The most to return.
            timeout_ms: How long to wait for output, to 30,000.

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
        """Types into a terminal.

        Raises:
            Conflict: Its program has ended.
            NotFound: There is no such sandbox or terminal.
        """
        body = {"data_b64": base64.b64encode(data).decode()}
        self._http.request("POST", _pty(sandbox_id, pty_id) + "/input", body)

    def pty_resize(self, sandbox_id: str, pty_id: str, cols: int, rows: int) -> None:
        """Gives a terminal another size, in characters.

        Raises:
            BadRequest: A size is not 1 to 65535.
            NotFound: There is no such sandbox or terminal.
        """
        self._http.request(
            "POST", _pty(sandbox_id, pty_id) + "/resize", {"cols": cols, "rows": rows}
        )

    def pty_kill(self, sandbox_id: str, pty_id: str) -> None:
        """SIGKILL to all processes of a terminal.

        Raises:
            NotFound: There is no such sandbox or terminal.
        """
        self._http.request("POST", _pty(sandbox_id, pty_id) + "/kill")

    def pty_list(self, sandbox_id: str) -> list[PtyInfo]:
        """All terminals of a sandbox, ended ones included, oldest first.

        Raises:
            NotFound: There is no such sandbox.
        """
        answer = self._http.json("GET", _sandbox(sandbox_id) + "/pty")
        return [PtyInfo.from_json(one) for one in answer]


def _space(space_id: str) -> str:
    return "/v1/spaces/" + quote(space_id, safe="")


def _sandbox(sandbox_id: str) -> str:
    return "/v1/sandboxes/" + quote(sandbox_id, safe="")


def _upload(sandbox_id: str, upload_id: str) -> str:
    return f"{_sandbox(sandbox_id)}/uploads/{quote(upload_id, safe='')}"


def _pty(sandbox_id: str, pty_id: str) -> str:
    return f"{_sandbox(sandbox_id)}/pty/{quote(pty_id, safe='')}"


def _octal(mode: int | None) -> str | None:
    return None if mode is None else f"{mode:04o}"
