# SPDX-License-Identifier: Apache-2.0
"""Folders, writes in place and watches of the SDK against a fake service."""

from __future__ import annotations

import base64
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any, Iterator
from urllib.parse import parse_qsl

import httpx
import pytest

import ramet
from ramet import Client, FileEvent, Sandbox
from ramet._bodies import _CHUNK

SBX = "sbx_" + "0" * 32


class Box:
    """Unpacks archives into a local folder, packs it, and writes to files in it."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.log: list[str] = []
        self.archive: bytes | None = None  # instead of that of the folder
        self.broken = False
        self.events: list[dict[str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = request.read()
        path = request.url.path.removeprefix(f"/v1/sandboxes/{SBX}")
        fields = dict(parse_qsl(request.url.query.decode()))
        self.log.append(f"{request.method} {path}?{request.url.query.decode()}")
        if path == "/files/archive" and request.method == "PUT":
            self.at(fields["path"]).mkdir(parents=True, exist_ok=True)
            with tarfile.open(fileobj=io.BytesIO(body)) as tar:
                tar.extractall(self.at(fields["path"]))
            return httpx.Response(204)
        if path == "/files/archive":
            return httpx.Response(200, content=self.pack(fields["path"]))
        if path == "/files/watch":
            lines = "\n".join(json.dumps(event) for event in self.events)
            return httpx.Response(200, content=lines.encode())
        if path == "/files" and request.method == "PUT":
            self.write(self.at(fields["path"]), fields, body)
            return httpx.Response(204)
        if request.method == "POST" and path.endswith("/sandboxes"):
            return httpx.Response(201, json={"id": SBX, "state": "ready"})
        return httpx.Response(204)

    def at(self, path: str) -> Path:
        return self.top / path.lstrip("/")

    def write(self, path: Path, fields: dict[str, str], body: bytes) -> None:
        old = path.read_bytes() if path.exists() else b""
        if fields.get("in_place") == "true":
            old = b""
        at = len(old) if fields.get("append") == "true" else int(fields.get("offset", 0))
        path.write_bytes(old[:at].ljust(at, b"\0") + body + old[at + len(body) :])

    def pack(self, path: str) -> Iterator[bytes]:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
            tar.add(self.at(path), ".")
        data = self.archive or out.getvalue()
        for at in range(0, len(data), 10_000):
            yield data[at : at + 10_000]
            if self.broken:
                raise httpx.RemoteProtocolError("peer closed connection")


@pytest.fixture
def box(tmp_path: Path) -> Box:
    (tmp_path / "box").mkdir()
    return Box(tmp_path / "box")


@pytest.fixture
def sbx(box: Box) -> Iterator[Sandbox]:
    with Sandbox(client=Client(transport=httpx.MockTransport(box))) as sandbox:
        box.log.clear()
        yield sandbox


def fill(top: Path) -> None:
    (top / "sub" / "empty").mkdir(parents=True)
    (top / "a").write_bytes(b"hello")
    (top / "sub" / "b\udcff").write_bytes(os.urandom(30_000))
    (top / "sub" / "run").write_text("#!/bin/sh")
    (top / "sub" / "run").chmod(0o751)
    (top / "link").symlink_to("sub/run")
    os.utime(top / "a", (1, 1234567890.5))
    os.utime(top / "sub" / "empty", (1, 1234567890.25))


def picture(top: Path) -> dict[str, Any]:
    found = {}
    for path in sorted(top.rglob("*")):
        info = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.is_file() and path.read_bytes()
        mtime = None if path.is_symlink() else info.st_mtime
        found[str(path.relative_to(top))] = (info.st_mode, mtime, content)
    return found


def test_folder_survives_the_way_there_and_back(sbx: Sandbox, box: Box, tmp_path: Path) -> None:
    fill(tmp_path / "from")
    progress: list[tuple[int, int | None]] = []
    sbx.files.upload_folder(tmp_path / "from", "/to", progress=lambda *now: progress.append(now))
    assert picture(box.at("/to")) == picture(tmp_path / "from")
    assert progress == [(30_014, 30_014)]
    progress.clear()
    left = sbx.files.download_folder("/to", tmp_path / "x" / "back", progress=lambda *now: progress.append(now))
    assert picture(tmp_path / "x" / "back") == picture(tmp_path / "from")
    assert left == [] and progress[-1] == (30_014, None)


def test_large_folder_is_sent_in_one_archive(sbx: Sandbox, box: Box, tmp_path: Path) -> None:
    top = tmp_path / "from"
    top.mkdir()
    for i in range(7):
        (top / f"{i}").write_bytes(os.urandom(_CHUNK // 2))
    (top / "large").write_bytes(os.urandom(9 * _CHUNK + 1))
    os.utime(top / "large", (1, 1234567890.5))
    progress: list[tuple[int, int | None]] = []
    sbx.files.upload_folder(top, "/to", progress=lambda *now: progress.append(now))
    assert picture(box.at("/to")) == picture(top)
    total = 7 * (_CHUNK // 2) + 9 * _CHUNK + 1
    assert progress[-1] == (total, total) and len(progress) > 9
    assert [done for done, _ in progress] == sorted({done for done, _ in progress})
    assert box.log == ["PUT /files/archive?path=/to"]


def test_empty_folder_is_created(sbx: Sandbox, box: Box, tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    sbx.files.upload_folder(tmp_path / "from", "/to/sub")
    assert picture(box.at("/to")) == {"sub": (0o40755, box.at("/to/sub").stat().st_mtime, False)}


def test_file_that_becomes_shorter_ends_the_upload(sbx: Sandbox, box: Box, tmp_path: Path) -> None:
    top = tmp_path / "from"
    top.mkdir()
    (top / "log").write_bytes(bytes(5 * _CHUNK))
    with pytest.raises(OSError, match="log became shorter"):
        sbx.files.upload_folder(top, "/to", progress=lambda *_: os.truncate(top / "log", 0))
    assert not box.at("/to").exists()


def test_missing_local_folder_is_an_error(sbx: Sandbox, box: Box, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sbx.files.upload_folder(tmp_path / "none", "/to")
    assert box.log == []


def archive(*entries: tuple[str, bytes, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind, target in entries:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            data = b"evil" if kind == tarfile.REGTYPE else b""
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


FILE, LINK, HARD = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


@pytest.mark.parametrize(
    "entries",
    [
        [("../x", FILE, "")],
        [("a/../../x", FILE, "")],
        [("/x", FILE, "")],
        [("l", LINK, ".."), ("l/x", FILE, "")],
        [("l", LINK, "/"), ("l/x", FILE, "")],
        [("s/l", LINK, "../../x")],
        [("h", HARD, "../secret")],
        [("d", tarfile.CHRTYPE, "")],
        [("f", tarfile.FIFOTYPE, "")],
    ],
)
def test_nothing_is_written_outside(
    sbx: Sandbox, box: Box, tmp_path: Path, entries: list[tuple[str, bytes, str]]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "secret").write_text("safe")
    box.archive = archive(*entries, ("good", FILE, ""))
    left = sbx.files.download_folder("/", tmp_path / "in" / "top")
    assert left[0] == entries[0][0]
    assert (tmp_path / "in" / "top" / "good").read_bytes() == b"evil"
    assert sorted(os.listdir(tmp_path)) == ["box", "in", "secret"]
    assert os.listdir(tmp_path / "in") == ["top"]
    for path in (tmp_path / "in" / "top").rglob("*"):
        assert not path.is_symlink() and os.stat(path).st_nlink <= 1 + 2 * path.is_dir()


def test_links_that_were_there_before_are_not_followed_outside(
    sbx: Sandbox, box: Box, tmp_path: Path
) -> None:
    (tmp_path / "top").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "top" / "l").symlink_to(tmp_path / "out")
    box.archive = archive(("l/x", FILE, ""), ("l", tarfile.DIRTYPE, ""))
    assert sbx.files.download_folder("/", tmp_path / "top") == ["l/x", "l"]
    assert os.listdir(tmp_path / "out") == []


def test_links_that_change_later_lead_nowhere(sbx: Sandbox, box: Box, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir(mode=0o700)
    before = os.stat(tmp_path / "out")
    folder = tarfile.DIRTYPE
    box.archive = archive(
        ("x", folder, ""), ("real", folder, ""), ("l", LINK, "real"), ("l/out", folder, ""),
        ("l", LINK, "x/y/.."), ("x/y", LINK, ".."), ("m", LINK, "./real/../../out"),
    )  # fmt: skip
    assert sbx.files.download_folder("/", tmp_path / "top") == ["l", "m"]
    after = os.stat(tmp_path / "out")
    assert (after.st_mode, after.st_mtime) == (before.st_mode, before.st_mtime)
    for path in (tmp_path / "top").rglob("*"):
        assert path.resolve().is_relative_to(tmp_path / "top")


def header(name: str, kind: bytes, size: int, **fields: Any) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    for key, value in fields.items():
        setattr(info, key, value)
    return info.tobuf(tarfile.GNU_FORMAT)


def pax(**fields: str) -> bytes:
    data = b""
    for key, value in fields.items():
        record = f" {key.replace('__', '.')}={value}\n"
        data += f"{len(record) + 2}{record}".encode()
    return header("x", tarfile.XHDTYPE, len(data)) + data.ljust(512, b"\0")


SPARSE = bytearray(header("s", FILE, 0))  # 0 bytes that become 8 GiB of zeros
SPARSE[156:157] = tarfile.GNUTYPE_SPARSE
SPARSE[386:410] = b"%011o\0" % (8 << 30) + b"%011o\0" % 0
SPARSE[483:495] = b"%011o\0" % (8 << 30)
SPARSE[148:156] = b"%06o\0 " % (sum(SPARSE) - sum(SPARSE[148:156]) + 8 * 32)


@pytest.mark.parametrize(
    "data",
    [
        bytes(SPARSE),
        pax(GNU__sparse__map="0,0") + header("s", FILE, 0),
        pax(GNU__sparse__major="1", GNU__sparse__minor="0") + header("s", FILE, 0),
        header("x", tarfile.XHDTYPE, 1 << 40),
        header("x", tarfile.GNUTYPE_LONGNAME, 65537),
        pax(comment="x") * 5000,
        header("f", FILE, 513) + b"x" * 512,
        b"x" * 1024,
        header("f", FILE, 0) + b"x" * 512 + bytes(1024),
        header("f", FILE, 0),
        header("f", FILE, 0) + bytes(100),
    ],
    ids=[
        "sparse", "sparse-0.1", "sparse-1.0", "long-pax", "long-name", "chain", "cut", "no-tar",
        "noise", "no-end", "half-end",
    ],  # fmt: skip
)
def test_bad_archive_is_refused(sbx: Sandbox, box: Box, tmp_path: Path, data: bytes) -> None:
    box.archive = data
    with pytest.raises(ramet.RametError, match="the archive from the sandbox is refused") as failed:
        sbx.files.download_folder("/", tmp_path / "top")
    assert failed.value.code == "bad_archive"


def test_strange_names_and_times_do_no_harm(sbx: Sandbox, box: Box, tmp_path: Path) -> None:
    box.archive = (
        pax(path="a\0b") + header("x", FILE, 0)
        + pax(mtime="nan") + header("nan", FILE, 0, mode=0o6755)
        + header("late", FILE, 0, mtime=1 << 80)
        + header("link", LINK, 0, linkname="late")
        + header("empty", LINK, 0)
        + header("link", HARD, 0, linkname="link")
        + header("late", HARD, 0, linkname="late")
        + bytes(1024)
    )  # fmt: skip
    left = sbx.files.download_folder("/", tmp_path / "top")
    assert left == ["a\0b", "empty", "link", "late"]
    assert sorted(os.listdir(tmp_path / "top")) == ["late", "link", "nan"]
    assert (tmp_path / "top" / "nan").stat().st_mode & 0o7777 == 0o755


def test_names_that_were_left_out_are_limited(
    sbx: Sandbox, box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ramet._folders._LEFT_OUT_BYTES", 10_000)
    box.archive = archive(*[("fifo", tarfile.FIFOTYPE, "")] * 100)
    with pytest.raises(ramet.RametError, match="97 entries have no place"):
        sbx.files.download_folder("/", tmp_path / "top")


def test_folder_larger_than_the_limit_is_refused(sbx: Sandbox, box: Box, tmp_path: Path) -> None:
    fill(box.at("/from"))
    with pytest.raises(ramet.RametError, match="more than 20000 bytes") as failed:
        sbx.files.download_folder("/from", tmp_path / "to", max_bytes=20_000)
    assert failed.value.code == "too_large"
    sbx.files.download_folder("/from", tmp_path / "to", max_bytes=60_000)
    assert picture(tmp_path / "to") == picture(box.at("/from"))


def test_umask_is_respected(sbx: Sandbox, box: Box, tmp_path: Path) -> None:
    (box.at("/from") / "sub").mkdir(parents=True)
    for path, mode in (("sub/run", 0o777), ("sub", 0o777), ("locked", 0o400)):
        one = box.at("/from") / path
        if path != "sub":
            one.write_bytes(b"x")
        one.chmod(mode)
    before = os.umask(0o027)
    try:
        sbx.files.download_folder("/from", tmp_path / "to")
    finally:
        os.umask(before)
    modes = {one.name: one.stat().st_mode & 0o777 for one in (tmp_path / "to").rglob("*")}
    assert modes == {"sub": 0o750, "run": 0o750, "locked": 0o400}


def test_broken_answer_is_noticed(sbx: Sandbox, box: Box, tmp_path: Path) -> None:
    fill(box.at("/from"))
    box.broken = True
    with pytest.raises(ramet.ConnectionFailed):
        sbx.files.download_folder("/from", tmp_path / "to")


def test_writes_in_place(sbx: Sandbox, box: Box) -> None:
    sbx.files.write("/a", b"0123456789", in_place=True, mode=0o600)
    sbx.files.write("/a", b"xy", offset=4)
    sbx.files.write("/a", io.BytesIO(b"!"), append=True)
    assert box.at("/a").read_bytes() == b"0123xy6789!"
    sbx.files.write("/a", b"", in_place=True)
    assert box.at("/a").read_bytes() == b""
    sbx.files.write("/b", b"whole")
    assert box.log == [
        "PUT /files?path=/a&mode=0600&in_place=true",
        "PUT /files?path=/a&offset=4",
        "PUT /files?path=/a&append=true",
        "PUT /files?path=/a&in_place=true",
        "PUT /files?path=/b",
    ]
    with pytest.raises(ValueError, match="append and offset"):
        sbx.files.write("/a", b"", append=True, offset=0)


@pytest.mark.parametrize("how", [{"in_place": True}, {"append": True}, {"offset": 100}])
@pytest.mark.parametrize("more", [0, 1])
def test_large_file_is_written_in_place_in_one_request(
    sbx: Sandbox, box: Box, how: dict[str, Any], more: int
) -> None:
    data = os.urandom(2 * _CHUNK + more)
    box.at("/a").write_bytes(b"o" * 100)
    progress: list[tuple[int, int | None]] = []
    sbx.files.write("/a", data, progress=lambda *now: progress.append(now), **how)
    assert box.at("/a").read_bytes() == (b"" if "in_place" in how else b"o" * 100) + data
    assert progress[-1] == (len(data), len(data)) and progress[0] == (_CHUNK, len(data))
    assert len(box.log) == 1


def test_append_is_not_retried() -> None:
    tries: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        if request.method != "PUT":
            return httpx.Response(201, json={"id": SBX, "state": "ready"})
        tries.append(request.url.query.decode())
        raise httpx.ReadError("reset")

    files = Sandbox(client=Client(transport=httpx.MockTransport(handle))).files
    with pytest.raises(ramet.ConnectionFailed):
        files.write("/a", b"x", append=True)
    assert len(tries) == 1


def test_truncated_list_is_continued() -> None:
    names = ["a", "a/b\udcff", "c"]
    sent: list[str] = []

    def entry(name: str) -> dict[str, Any]:
        raw = os.fsencode(name)
        return {
            "name": raw.decode(errors="replace"), "name_b64": base64.b64encode(raw).decode(),
            "type": "file", "mode": "0644", "uid": 0, "gid": 0, "size": 0, "mtime": 0,
        }  # fmt: skip

    def handle(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return httpx.Response(201, json={"id": SBX, "state": "ready"})
        sent.append(request.url.query.decode())
        at = len(sent) - 1
        more = {"truncated": True} if at < 2 else {}
        return httpx.Response(200, json={"entries": [entry(names[at])], **more})

    files = Sandbox(client=Client(transport=httpx.MockTransport(handle))).files
    assert [one.name for one in files.list("/d", depth=3)] == names
    assert sent == ["path=/d&depth=3", "path=/d&depth=3&after=a", "path=/d&depth=3&after=a/b%FF"]


def test_watch(sbx: Sandbox, box: Box) -> None:
    box.events = [
        {"type": "watching", "path": "/w"},
        {"type": "create", "path": "/w/\ufffd", "path_b64": "L3cv/w==", "directory": True},
        {"type": "rename", "path": "/w/a", "to": "/w/b", "directory": False},
        {"type": "overflow", "path": "/w"},
    ]
    with sbx.files.watch("/w", recursive=True) as watch:
        assert list(watch) == [
            FileEvent("create", "/w/\udcff", None, True),
            FileEvent("rename", "/w/a", "/w/b"),
            FileEvent("overflow", "/w"),
        ]
    assert box.log == ["GET /files/watch?path=/w&recursive=true"]


def test_end_of_the_sandbox_ends_a_watch(sbx: Sandbox, box: Box) -> None:
    box.events = [
        {"type": "watching", "path": "/w"},
        {"type": "error", "message": "it expired", "code": "expired"},
    ]
    watch = sbx.files.watch("/w")
    with pytest.raises(ramet.Expired, match="it expired"):
        next(watch)
    box.events = []
    with pytest.raises(ramet.ConnectionFailed):
        sbx.files.watch("/w")
