# SPDX-License-Identifier: Apache-2.0
"""Files through service and agent: both ends must agree on every frame."""

from __future__ import annotations

import hashlib
import io
import json
import os
import socket
import stat
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

import ramet
from stand_in import pause


def data(n: int) -> bytes:
    return hashlib.shake_128(str(n).encode()).digest(n)


def put(http: httpx.Client, box: str, path: str, body: bytes, **more: Any) -> httpx.Response:
    return http.put(f"{box}/files", params={"path": path, **more}, content=body)


def get(http: httpx.Client, box: str, path: str, **headers: str) -> httpx.Response:
    return http.get(f"{box}/files", params={"path": path}, headers=headers)


def fails(answer: httpx.Response, status: int, code: str) -> str:
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    return str(answer.json()["error"])


@pytest.mark.parametrize("size", [0, 1, 65536, 65537, 10_000_000])
def test_put_and_get(http: httpx.Client, sandbox: str, folder: str, size: int) -> None:
    path = f"{folder}/new/x"
    assert put(http, sandbox, path, data(size), mode="4711").status_code == 204
    assert Path(path).read_bytes() == data(size)
    answer = get(http, sandbox, path)
    assert answer.content == data(size) and answer.headers["ramet-mode"] == "4711"
    assert os.listdir(f"{folder}/new") == ["x"]


@pytest.mark.parametrize(
    "name",
    [
        "with space",
        "new\nline",
        "ünï",
        "not \udcff utf\udc80",
        "'\"$(id)`;&|*?",
        "a%41+b&path=c#d",
        "-rf",
        "x" * 255,
        "\x01\x7f",
    ],
)
def test_names_may_contain_any_bytes(base: str, folder: str, name: str) -> None:
    with ramet.Client(base) as client, ramet.Sandbox(client=client) as box:
        path = f"{folder}/{name}"
        box.upload(b"here", path)
        assert [one.name for one in box.files.list(folder)] == [name] == os.listdir(folder)
        assert box.download(path) == b"here"
        assert box.files.stat(path).name == path
        box.files.remove(path)
        assert os.listdir(folder) == []


def test_ranges(http: httpx.Client, sandbox: str, folder: str) -> None:
    path, whole = f"{folder}/x", data(300_000)
    Path(path).write_bytes(whole)
    for asked, part in (
        ("bytes=0-0", whole[:1]),
        ("bytes=65530-131080", whole[65530:131081]),
        ("bytes=299999-", whole[-1:]),
        ("bytes=-70000", whole[-70000:]),
        ("bytes=-999999", whole),
    ):
        answer = get(http, sandbox, path, range=asked)
        assert answer.status_code == 206 and answer.content == part
    fails(get(http, sandbox, path, range="bytes=300000-"), 416, "bad_range")
    fails(get(http, sandbox, path, range="bytes=300001-"), 416, "bad_range")
    assert get(http, sandbox, path).content == whole


def test_proc_file_is_read(http: httpx.Client, sandbox: str) -> None:
    assert b"MemTotal" in get(http, sandbox, "/proc/meminfo").content


def test_growing_file_is_read_to_its_size_at_open(
    http: httpx.Client, sandbox: str, folder: str
) -> None:
    path = f"{folder}/log"
    Path(path).write_bytes(bytes(8_000_000))
    with http.stream("GET", f"{sandbox}/files", params={"path": path}) as answer:
        with open(path, "ab") as log:
            log.write(b"more")
        assert sum(map(len, answer.iter_bytes())) == 8_000_000


def test_failures_are_reported(http: httpx.Client, sandbox: str, folder: str) -> None:
    Path(f"{folder}/file").write_bytes(b"x")
    os.symlink("loop", f"{folder}/loop")
    os.mkfifo(f"{folder}/fifo")
    fails(get(http, sandbox, f"{folder}/none"), 404, "no_such_file")
    fails(get(http, sandbox, folder), 409, "is_a_directory")
    fails(get(http, sandbox, f"{folder}/fifo"), 409, "not_a_file")
    fails(get(http, sandbox, f"{folder}/file/x"), 409, "not_a_directory")
    fails(get(http, sandbox, f"{folder}/loop"), 400, "bad_path")
    fails(put(http, sandbox, folder, b"x"), 409, "is_a_directory")
    fails(put(http, sandbox, f"{folder}/file/x", b"x"), 409, "not_a_directory")
    fails(put(http, sandbox, "/proc/x", b"x"), 404, "no_such_file")
    fails(put(http, sandbox, f"{folder}/{300 * 'n'}", b"x"), 400, "bad_path")
    fails(http.get(f"{sandbox}/files/list", params={"path": f"{folder}/file"}), 409,
          "not_a_directory")  # fmt: skip
    fails(http.get(f"{sandbox}/files/stat", params={"path": f"{folder}/none"}), 404, "no_such_file")
    # The connection that a failure ended does not delay the next operation.
    assert put(http, sandbox, f"{folder}/file", b"y").status_code == 204


@pytest.mark.parametrize("small_disk", [1], indirect=True)
def test_full_disk_leaves_no_partial_file(
    http: httpx.Client, sandbox: str, small_disk: str
) -> None:
    fails(put(http, sandbox, "/dev/full/x", b"x"), 409, "not_a_directory")
    path = f"{small_disk}/x"
    assert put(http, sandbox, path, b"old").status_code == 204
    fails(put(http, sandbox, path, bytes(10_000_000)), 507, "disk_full")
    assert os.listdir(small_disk) == ["x"] and get(http, sandbox, path).content == b"old"


def test_stat_list_remove_mkdir(http: httpx.Client, sandbox: str, folder: str) -> None:
    make, where = f"{sandbox}/files/mkdir", f"{sandbox}/files"
    fails(http.post(make, params={"path": f"{folder}/a/b"}), 404, "no_such_file")
    assert http.post(make, params={"path": f"{folder}/a/b", "parents": "1"}).status_code == 204
    fails(http.post(make, params={"path": f"{folder}/a"}), 409, "file_exists")
    assert http.post(make, params={"path": f"{folder}/a", "parents": "1"}).status_code == 204
    put(http, sandbox, f"{folder}/a/file", b"12345", mode="640")
    os.symlink("file", f"{folder}/a/link")
    url = f"{where}?path=" + quote(os.fsencode(folder) + b"/a/\xff")
    assert http.put(url, content=b"").status_code == 204
    entries = http.get(f"{where}/list", params={"path": f"{folder}/a"}).json()["entries"]
    assert [(e["name"], e["type"]) for e in entries] == [
        ("b", "directory"), ("file", "file"), ("link", "symlink"), ("\ufffd", "file"),
    ]  # fmt: skip
    assert entries[1]["size"] == 5 and entries[1]["mode"] == "0640"
    assert entries[2]["target"] == "file" and entries[3]["name_b64"] == "/w=="
    assert abs(entries[1]["mtime"] - os.stat(f"{folder}/a/file").st_mtime) < 1e-3
    stat = http.get(f"{where}/stat", params={"path": f"{folder}/a/link"}).json()
    assert stat["name"] == f"{folder}/a/link" and stat["type"] == "file"
    link = {"path": f"{folder}/a/link", "follow": "0"}
    assert http.get(f"{where}/stat", params=link).json()["type"] == "symlink"
    fails(http.delete(where, params={"path": f"{folder}/a"}), 409, "not_empty")
    assert http.delete(where, params={"path": f"{folder}/a/link"}).status_code == 204
    assert http.delete(where, params={"path": f"{folder}/a", "recursive": "1"}).status_code == 204
    fails(http.delete(where, params={"path": f"{folder}/a"}), 404, "no_such_file")
    assert os.listdir(folder) == []


def test_types_of_files_have_names(http: httpx.Client, sandbox: str, folder: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("makes device files")
    os.mkdir(f"{folder}/dir")
    Path(folder, "file").touch()
    os.symlink("no where", f"{folder}/link")
    os.mkfifo(f"{folder}/fifo")
    os.mknod(f"{folder}/char", stat.S_IFCHR, os.makedev(1, 3))
    os.mknod(f"{folder}/block", stat.S_IFBLK, os.makedev(7, 0))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/socket")
    entries = http.get(f"{sandbox}/files/list", params={"path": folder}).json()["entries"]
    assert {e["name"]: e["type"] for e in entries} == {
        "block": "block", "char": "char", "dir": "directory", "fifo": "fifo", "file": "file",
        "link": "symlink", "socket": "socket",
    }  # fmt: skip


def test_long_list_is_complete(http: httpx.Client, sandbox: str, folder: str) -> None:
    names = [f"{i:05d}" for i in range(5000)]
    for name in names:
        Path(folder, name).touch()
    entries = http.get(f"{sandbox}/files/list", params={"path": folder}).json()["entries"]
    assert [e["name"] for e in entries] == names


def test_owners_have_names(http: httpx.Client, sandbox: str, folder: str) -> None:
    Path(folder, "a").touch()
    os.chown(f"{folder}/a", 0, 54321)
    (entry,) = http.get(f"{sandbox}/files/list", params={"path": folder}).json()["entries"]
    assert (entry["user"], entry["group"]) == ("root", "54321")
    stat = http.get(f"{sandbox}/files/stat", params={"path": f"{folder}/a"}).json()
    assert (stat["uid"], stat["user"], stat["group"]) == (0, "root", "54321")


def test_deep_list_continues_where_it_was_truncated(
    http: httpx.Client, sandbox: str, folder: str
) -> None:
    for i in range(20):
        path = Path(folder, f"d{i:02d}", "sub \u00e9")
        path.mkdir(parents=True)
        for j in range(5):
            (path / f"{j}").touch()
    want = sorted(
        (str(path.relative_to(folder)).split("/") for path in Path(folder).rglob("*")),
        key=lambda parts: [os.fsencode(part) for part in parts],
    )
    where, query = f"{sandbox}/files/list", {"path": folder, "depth": "3"}
    whole = http.get(where, params=query).json()
    assert [e["name"].split("/") for e in whole["entries"]] == want and "truncated" not in whole
    names: list[str] = []
    while True:
        more = {"limit": "17", "after": names[-1] if names else ""}
        page = http.get(where, params=query | more).json()
        names += [e["name"] for e in page["entries"]]
        if "truncated" not in page:
            break
        assert len(page["entries"]) == 17
    assert [name.split("/") for name in names] == want


def test_writes_in_place(http: httpx.Client, sandbox: str, folder: str) -> None:
    path = f"{folder}/deep/x"
    assert put(http, sandbox, path, data(1_000_000), in_place="1", mode="640").status_code == 204
    before = os.stat(path)
    assert put(http, sandbox, path, b"abc", offset="500000").status_code == 204
    assert put(http, sandbox, path, b"end", append="1").status_code == 204
    whole = data(1_000_000)
    assert Path(path).read_bytes() == whole[:500000] + b"abc" + whole[500003:] + b"end"
    assert put(http, sandbox, path, b"new", in_place="1").status_code == 204
    assert Path(path).read_bytes() == b"new" and os.stat(path).st_ino == before.st_ino
    assert os.stat(path).st_mode & 0o7777 == 0o640
    fails(put(http, sandbox, folder, b"x", in_place="1"), 409, "is_a_directory")
    fails(put(http, sandbox, "/dev/null", b"x", append="1"), 409, "not_a_file")


def test_folder_is_packed_and_unpacked(http: httpx.Client, sandbox: str, folder: str) -> None:
    source = Path(folder, "from")
    (source / "sub").mkdir(parents=True)
    (source / "big").write_bytes(data(5_000_000))
    (source / "sub" / "link").symlink_to("../big")
    os.utime(source / "big", ns=(1, 1234567890123456789))
    where = f"{sandbox}/files/archive"
    packed = http.get(where, params={"path": str(source)})
    assert packed.status_code == 200
    with tarfile.open(fileobj=io.BytesIO(packed.content)) as tar:
        assert sorted(tar.getnames()) == [".", "./big", "./sub", "./sub/link"]
    to = Path(folder, "deep", "to")
    assert http.put(where, params={"path": str(to)}, content=packed.content).status_code == 204
    assert (to / "sub" / "link").read_bytes() == data(5_000_000)
    assert (to / "big").stat().st_mtime_ns == 1234567890123456789
    said = fails(http.put(where, params={"path": str(to)}, content=packed.content[:9999]), 400, "bad_archive")
    assert "after" in said
    fails(http.get(where, params={"path": str(to / "big")}), 409, "not_a_directory")
    fails(http.get(where, params={"path": str(to / "none")}), 404, "no_such_file")


def test_watch(http: httpx.Client, sandbox: str, folder: str) -> None:
    query = {"path": folder, "recursive": "1"}
    with http.stream("GET", f"{sandbox}/files/watch", params=query) as answer:
        lines = (json.loads(line) for line in answer.iter_lines() if line)
        assert next(lines) == {"type": "watching", "path": folder}
        put(http, sandbox, f"{folder}/x", b"1", in_place="1")
        assert next(lines) == {"type": "create", "path": f"{folder}/x", "directory": False}
        assert next(lines) == {"type": "write", "path": f"{folder}/x", "directory": False}
        http.post(f"{sandbox}/files/move", params={"path": f"{folder}/x", "to": f"{folder}/y"})
        renamed = next(lines)
        assert (renamed["type"], renamed["to"]) == ("rename", f"{folder}/y")
    fails(http.get(f"{sandbox}/files/watch", params={"path": f"{folder}/none"}), 404, "no_such_file")


def test_concurrent_operations_succeed(http: httpx.Client, sandbox: str, folder: str) -> None:
    def both(i: int) -> bool:
        path = f"{folder}/{i}"
        while put(http, sandbox, path, data(i * 1000)).status_code == 429:
            pause()
        return get(http, sandbox, path).content == data(i * 1000)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(both, range(100)))
