# SPDX-License-Identifier: Apache-2.0
"""File transfer of the SDK against a fake service, which keeps files in a dict."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path
from typing import Any, BinaryIO, Iterator, cast
from urllib.parse import parse_qsl

import httpx
import pytest

import ramet
from ramet import Client, Sandbox
from ramet._bodies import _CHUNK, _HELD

SBX = "sbx_" + "0" * 32


def error(status: int, code: str) -> httpx.Response:
    return httpx.Response(status, json={"error": f"a sentence of {code}", "code": code})


class Box:
    """The routes of files; `log` has the requests without their bodies."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.modes: dict[str, str | None] = {}
        self.log: list[str] = []
        self.lengths: list[str | None] = []
        self.refusals = 0  # of files, before one is accepted
        self.lock = threading.Lock()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = request.read()
        path = request.url.path.removeprefix(f"/v1/sandboxes/{SBX}")
        raw = request.url.query.decode()
        fields = dict(parse_qsl(raw, encoding="utf-8", errors="surrogateescape"))
        with self.lock:
            self.log.append(f"{request.method} {path}{'?' + raw if raw else ''}")
            if request.method == "POST" and path == "/v1/sandboxes":
                return httpx.Response(201, json={"id": SBX, "state": "ready"})
            self.lengths.append(request.headers.get("content-length"))
            return self.file(request.method, path, fields, body)

    def file(
        self, method: str, path: str, fields: dict[str, str], body: bytes
    ) -> httpx.Response:
        name = fields.get("path", "")
        if method == "PUT" and self.refusals:
            self.refusals -= 1
            refused = error(429, "too_many")
            refused.headers["retry-after"] = "0"
            return refused
        if method == "PUT":
            self.files[name], self.modes[name] = body, fields.get("mode")
        elif method == "GET" and path == "/files":
            if name not in self.files:
                return error(404, "no_such_file")
            return httpx.Response(200, content=self.files[name])
        return httpx.Response(204)

@pytest.fixture
def box() -> Box:
    return Box()


@pytest.fixture
def sbx(box: Box) -> Iterator[Sandbox]:
    with Sandbox(client=Client(transport=httpx.MockTransport(box))) as sandbox:
        box.log.clear()
        yield sandbox


class Pipe(io.RawIOBase):
    """Returns a few bytes at a time, and cannot seek."""

    def __init__(self, data: bytes, step: int) -> None:
        self._data, self._step = io.BytesIO(data), step

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self._data.read(min(len(buffer), self._step))
        buffer[: len(chunk)] = chunk
        return len(chunk)


def test_small_file_is_sent_in_one_request(sbx: Sandbox, box: Box, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_bytes(b"of a file")
    sbx.upload(b"bytes", "/a", mode=0o755)
    sbx.upload(bytearray(b"array"), Path("/b"))
    sbx.upload(memoryview(b"view"), "/c")
    sbx.upload(local, "/d")
    sbx.upload_file(str(local), "/e")
    sbx.upload(io.BytesIO(b"object"), "/f")
    sbx.upload(b"", "/empty")
    assert box.files == {
        "/a": b"bytes",
        "/b": b"array",
        "/c": b"view",
        "/d": b"of a file",
        "/e": b"of a file",
        "/f": b"object",
        "/empty": b"",
    }
    assert box.log[:2] == ["PUT /files?path=/a&mode=0755", "PUT /files?path=/b"]
    assert len(box.log) == 7


@pytest.mark.parametrize("size", [_CHUNK, _CHUNK + 1, 3 * _HELD + 5])
def test_large_file_is_sent_in_one_request(sbx: Sandbox, box: Box, size: int) -> None:
    data = os.urandom(size)
    progress: list[tuple[int, int | None]] = []
    sbx.upload(data, "/big", mode=0o600, progress=lambda *now: progress.append(now))
    assert box.files == {"/big": data}
    assert box.modes == {"/big": "0600"}
    assert box.log == ["PUT /files?path=/big&mode=0600"]
    assert box.lengths == [str(size)]
    assert progress[-1] == (size, size) and progress[0] == (_CHUNK, size)
    assert [done for done, _ in progress] == sorted({done for done, _ in progress})


@pytest.mark.parametrize("more", [-1, 0, 1, _HELD])
def test_pipe_is_read_to_its_end(sbx: Sandbox, box: Box, more: int) -> None:
    data = os.urandom(_HELD + more)
    progress: list[tuple[int, int | None]] = []
    pipe = cast(BinaryIO, Pipe(data, 70_001))
    sbx.upload(pipe, "/piped", progress=lambda *now: progress.append(now))
    assert box.files["/piped"] == data
    size = len(data) if more < 0 else None
    assert box.lengths == [None if size is None else str(size)]
    assert progress[-1] == (len(data), size)


def test_file_object_is_read_from_its_position(sbx: Sandbox, box: Box) -> None:
    file = io.BytesIO(b"skipped, sent")
    file.seek(9)
    progress: list[tuple[int, int | None]] = []
    sbx.upload(file, "/rest", progress=lambda *now: progress.append(now))
    assert (box.files["/rest"], progress) == (b"sent", [(4, 4)])


def test_refused_file_is_sent_again_if_it_can_be_read_again(sbx: Sandbox, box: Box) -> None:
    data = os.urandom(_HELD + 1)
    file = io.BytesIO(b"skipped" + data)
    file.seek(7)
    box.refusals = 1
    sbx.upload(file, "/again")
    assert box.files["/again"] == data and len(box.log) == 2
    box.refusals = 1
    with pytest.raises(ramet.CapReached):
        sbx.upload(cast(BinaryIO, Pipe(data, 70_001)), "/once")
    assert "/once" not in box.files and len(box.log) == 3


def test_failing_source_ends_the_request(sbx: Sandbox, box: Box) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() >= _CHUNK:
                raise OSError("the disk is on fire")
            return super().read(size)

    with pytest.raises(OSError, match="on fire"):
        sbx.upload(Broken(bytes(2 * _CHUNK)), "/big")
    assert box.files == {}


def test_file_that_becomes_shorter_is_an_error(sbx: Sandbox, box: Box, tmp_path: Path) -> None:
    local = tmp_path / "log"
    local.write_bytes(bytes(3 * _CHUNK))
    with pytest.raises(OSError, match=f"shorter.*{2 * _CHUNK} of {3 * _CHUNK} bytes"):
        sbx.upload(local, "/log", progress=lambda *_: os.truncate(local, _CHUNK))
    assert box.files == {}


def test_text_and_missing_files_are_refused_before_anything_is_sent(
    sbx: Sandbox, box: Box, tmp_path: Path
) -> None:
    with pytest.raises(TypeError, match="must return bytes, not str"):
        sbx.upload(cast(BinaryIO, io.StringIO("text")), "/x")
    with pytest.raises(FileNotFoundError):
        sbx.upload(tmp_path / "none", "/x")
    assert box.log == []


def test_download_reports_progress_and_replaces_the_file(sbx: Sandbox, box: Box, tmp_path: Path) -> None:
    box.files["/big"] = os.urandom(3_000_000)
    assert sbx.download("/big") == box.files["/big"]
    progress: list[tuple[int, int | None]] = []
    local = tmp_path / "local"
    local.write_bytes(b"old")
    sbx.download_to("/big", local, progress=lambda *now: progress.append(now))
    assert local.read_bytes() == box.files["/big"]
    assert progress[-1] == (3_000_000, 3_000_000)
    assert os.listdir(tmp_path) == ["local"]


def test_file_larger_than_the_limit_is_refused(sbx: Sandbox, box: Box) -> None:
    box.files["/big"] = bytes(1000)
    with pytest.raises(ramet.RametError, match="the file has more than 999 bytes") as failed:
        sbx.download("/big", max_bytes=999)
    assert failed.value.code == "too_large"
    assert sbx.download("/big", max_bytes=1000) == bytes(1000)


def test_local_file_is_not_written_beyond_the_limit(
    sbx: Sandbox, box: Box, tmp_path: Path
) -> None:
    box.files["/big"] = bytes(1000)
    with pytest.raises(ramet.RametError, match="more than 999 bytes"):
        sbx.download_to("/big", tmp_path / "local", max_bytes=999)
    assert os.listdir(tmp_path) == []
    sbx.download_to("/big", tmp_path / "local", max_bytes=1000)
    assert (tmp_path / "local").read_bytes() == bytes(1000)


def test_text_is_content_and_never_a_path(sbx: Sandbox, box: Box, tmp_path: Path) -> None:
    local = tmp_path / "secret"
    local.write_bytes(b"of this machine")
    sbx.files.write("/text", "caf\u00e9\n")
    sbx.files.write("/named", str(local))
    sbx.files.write("/more", str(local), append=True)
    sbx.upload(str(local), "/uploaded")
    sbx._client.write_file(SBX, "/raw", str(local))
    sbx._client.write_in_place(SBX, "/placed", str(local))
    assert box.files.pop("/text") == "caf\u00e9\n".encode()
    assert set(box.files.values()) == {os.fsencode(local)}
    sbx.files.write("/by-path", local)
    assert box.files["/by-path"] == b"of this machine"
    box.log.clear()
    with pytest.raises(ramet.BadRequest, match=r"'\\ud800' at position 1 is half"):
        sbx.files.write("/half", "a\ud800")
    with pytest.raises(ramet.BadRequest, match="half of a character"):
        sbx.files.write("/\ud800", "a")
    assert box.log == []


def test_broken_download_keeps_the_old_file(tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise httpx.RemoteProtocolError("peer closed connection")

    def handle(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, content=broken(), headers={"content-length": "8"})
        return httpx.Response(201, json={"id": SBX, "state": "ready"})

    sbx = Sandbox(client=Client(transport=httpx.MockTransport(handle)))
    local = tmp_path / "local"
    local.write_bytes(b"old")
    with pytest.raises(ramet.ConnectionFailed, match="closed"):
        sbx.download_to("/x", local)
    assert local.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["local"]


@pytest.mark.parametrize("name", ["/a b", "/a\nb", "/a&path=/c", "/100%41", "/é", "/\udcff+", "/?#"])
def test_names_are_sent_exactly(sbx: Sandbox, box: Box, name: str) -> None:
    sbx.upload(b"x", name)
    assert list(box.files) == [name]
    assert sbx.download(name) == b"x"


def test_requests_and_results_of_list_stat_remove_and_mkdir() -> None:
    entry: dict[str, Any] = {
        "name": "a",
        "type": "file",
        "mode": "0644",
        "uid": 0,
        "gid": 5,
        "user": "root",
        "size": 7,
        "mtime": 1.5,
    }
    odd = entry | {"name": "\ufffd", "name_b64": "/w==", "type": "symlink", "target": "a"}
    sent: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        sent.append(f"{request.method} {request.url.raw_path.decode()}")
        if request.url.path.endswith("/list"):
            return httpx.Response(200, json={"entries": [entry, odd]})
        if request.url.path.endswith("/stat"):
            return httpx.Response(200, json=odd)
        return httpx.Response(201, json={"id": "1", "state": "ready"})

    files = Sandbox(client=Client(transport=httpx.MockTransport(handle))).files
    del sent[:]
    info = ramet.FileInfo("a", "file", 0o644, 0, 5, 7, 1.5, None, "root", "5")
    link = ramet.FileInfo("\udcff", "symlink", 0o644, 0, 5, 7, 1.5, "a", "root", "5")
    assert files.list("/d") == [info, link]
    assert files.stat("/d/l", follow=False) == link
    files.stat("/d/l")
    files.remove("/d")
    files.remove("/d", recursive=True)
    files.mkdir("/d")
    files.mkdir("/d", mode=0o700, parents=True)
    files.move("/a b", "/c")
    files.move("/a", "/c", replace=True)
    files.chmod("/a", 0o4755, recursive=True)
    files.chown("/a", 0)
    files.chown("/a", gid=5)
    assert [line.replace("/v1/sandboxes/1/", "") for line in sent] == [
        "GET files/list?path=/d",
        "GET files/stat?path=/d/l&follow=false",
        "GET files/stat?path=/d/l",
        "DELETE files?path=/d",
        "DELETE files?path=/d&recursive=true",
        "POST files/mkdir?path=/d",
        "POST files/mkdir?path=/d&mode=0700&parents=true",
        "POST files/move?path=/a%20b&to=/c",
        "POST files/move?path=/a&to=/c&replace=true",
        "PATCH files?path=/a&mode=4755&recursive=true",
        "PATCH files?path=/a&uid=0",
        "PATCH files?path=/a&gid=5",
    ]
    assert files.list("/d")[0].is_dir is False


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (404, "no_such_file", ramet.NoSuchFile),
        (404, "not_found", ramet.NotFound),
        (409, "file_exists", ramet.FileExists),
        (409, "is_a_directory", ramet.IsADirectory),
        (409, "not_a_directory", ramet.NotADirectory),
        (409, "not_empty", ramet.DirectoryNotEmpty),
        (403, "not_permitted", ramet.PermissionDenied),
        (507, "disk_full", ramet.DiskFull),
        (409, "anything", ramet.Conflict),
    ],
)
def test_errors_are_typed(status: int, code: str, kind: type[ramet.RametError]) -> None:
    client = Client(transport=httpx.MockTransport(lambda request: error(status, code)))
    with pytest.raises(ramet.RametError, match="a sentence") as caught:
        with client.read_file("1", "/x"):
            pass
    assert type(caught.value) is kind


def test_part_of_a_file_is_read() -> None:
    asked: list[str | None] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers.get("range"))
        return httpx.Response(206, content=b"part")

    client = Client(transport=httpx.MockTransport(handle))
    for offset, length in ((0, None), (5, None), (0, 4), (5, 4)):
        with client.read_file(SBX, "/x", offset=offset, length=length) as (size, chunks):
            assert size == 4 and b"".join(chunks) == b"part"
    assert asked == [None, "bytes=5-", "bytes=0-3", "bytes=5-8"]
    for offset, length in ((-1, None), (0, 0)):
        with pytest.raises(ValueError, match="offset"):
            client.read_file(SBX, "/x", offset=offset, length=length)


def test_list_with_a_limit_is_one_request() -> None:
    asked: list[str] = []
    entry = {"name": "b", "type": "file", "mode": "0644", "uid": 0, "gid": 0, "size": 1, "mtime": 1}

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.query.decode())
        return httpx.Response(200, json={"entries": [entry], "truncated": True})

    client = Client(transport=httpx.MockTransport(handle))
    (found,) = client.list_files(SBX, "/x", limit=1, after="a")
    assert found.name == "b" and asked == ["path=/x&limit=1&after=a"]


def test_files_are_read_as_bytes_and_as_text(sbx: Sandbox, box: Box) -> None:
    box.files |= {"/a": "caf\u00e9\r\n".encode(), "/raw": b"a\xff"}
    assert sbx.files.read("/raw") == b"a\xff"
    assert sbx.files.read_text("/a") == "caf\u00e9\r\n"
    assert sbx.files.read_text("/raw", errors="replace") == "a\ufffd"
    with pytest.raises(ramet.RametError, match="/raw is not UTF-8 at byte 1") as failed:
        sbx.files.read_text("/raw")
    assert failed.value.code == "not_text"
    with pytest.raises(ramet.RametError, match="more than 1 bytes"):
        sbx.files.read("/raw", max_bytes=1)


def test_exists() -> None:
    answers = [error(404, "no_such_file"), error(409, "not_a_directory"), error(404, "deleted")]
    stat = {"name": "a", "type": "file", "mode": "0644", "uid": 0, "gid": 0, "size": 1, "mtime": 1}

    def handle(request: httpx.Request) -> httpx.Response:
        return answers.pop(0) if answers else httpx.Response(200, json=stat)

    files = ramet.Files(SBX, lambda: client)
    client = Client(transport=httpx.MockTransport(handle))
    assert files.exists("/a") is False
    assert files.exists("/a/b") is False
    with pytest.raises(ramet.NotFound):  # the sandbox is gone
        files.exists("/a")
    assert files.exists("/a") is True
