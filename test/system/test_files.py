# SPDX-License-Identifier: Apache-2.0
"""File transfer with real guests: exact bytes, atomic replacement, clear errors."""

from __future__ import annotations

import hashlib
import io
import os
import resource
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, Callable, cast
from urllib.parse import urlsplit

import httpx
import pytest

import ramet
from conftest import HOST, on_host, output
from ramet import Client, Sandbox

MIB = 1 << 20
PART = 8 * MIB


def run(sbx: Sandbox, code: str, language: ramet.Language = "bash") -> str:
    """Runs code in a sandbox, bash by default; returns what it prints."""
    return output(sbx, code, language)


def sha256_of(sbx: Sandbox, path: str) -> str:
    return run(sbx, f"sha256sum <'{path}'").split()[0]


def names(sbx: Sandbox, folder: str) -> list[str]:
    return [file.name for file in sbx.files.list(folder)]


# --- exact bytes ---


@pytest.mark.parametrize("size", [0, 1, 5 * MIB, PART, PART + 1, 64 * MIB + 3])
def test_downloaded_bytes_equal_uploaded_bytes(shared: Sandbox, size: int) -> None:
    data = os.urandom(size)
    progress: list[tuple[int, int | None]] = []
    shared.upload(data, "/root/sized", progress=lambda *now: progress.append(now))
    assert progress[-1] == (size, size)
    assert shared.files.stat("/root/sized").size == size
    assert shared.download("/root/sized") == data
    assert sha256_of(shared, "/root/sized") == hashlib.sha256(data).hexdigest()
    shared.files.remove("/root/sized")


def test_local_files_are_uploaded_and_downloaded(shared: Sandbox, tmp_path: Path) -> None:
    local, back = tmp_path / "local", tmp_path / "back"
    data = os.urandom(9 * MIB)
    local.write_bytes(data)
    shared.upload(local, "/tmp/by-path")
    with local.open("rb") as file:
        shared.upload(file, "/tmp/by-object")
    for name in ("/tmp/by-path", "/tmp/by-object"):
        progress: list[tuple[int, int | None]] = []
        shared.download_to(name, back, progress=lambda *now: progress.append(now))
        assert back.read_bytes() == data
        assert progress[-1] == (len(data), len(data))


def test_files_are_served_while_a_call_runs(sbx: Sandbox) -> None:
    stream = sbx.run_code_stream("print('on')\nimport threading\nthreading.Event().wait()")
    assert next(stream).data == "on\n"
    sbx.upload(b"in the middle", "/root/x")
    assert sbx.download("/root/x") == b"in the middle"
    sbx.interrupt()
    assert list(stream)[-1].code == 130


def test_proc_files_can_be_downloaded(shared: Sandbox) -> None:
    assert shared.download("/proc/version").startswith(b"Linux version ")
    assert shared.download("/proc/version").decode() == run(shared, "cat /proc/version")


def test_range_requests_are_served(shared: Sandbox, http: httpx.Client) -> None:
    data = bytes(range(256)) * 1000
    shared.upload(data, "/root/ranged")
    url = f"/v1/sandboxes/{shared.id}/files?path=/root/ranged"

    def get(wanted: str) -> httpx.Response:
        return http.get(url, headers={"range": wanted})

    for wanted, begin, end in [
        ("bytes=0-9", 0, 10),
        ("bytes=255999-", 255_999, 256_000),
        ("bytes=200000-999999999", 200_000, 256_000),
        ("bytes=-7", 255_993, 256_000),
        ("bytes=-999999", 0, 256_000),
    ]:
        answer = get(wanted)
        assert answer.status_code == 206, wanted
        assert answer.content == data[begin:end]
        assert answer.headers["content-range"] == f"bytes {begin}-{end - 1}/256000"
    behind = get("bytes=256000-")
    assert behind.status_code == 416
    assert behind.headers["content-range"] == "bytes */256000"
    whole = get("bytes=0-1,5-6")
    assert (whole.status_code, whole.content) == (200, data)
    head = http.head(url)
    assert (head.headers["content-length"], head.content) == ("256000", b"")


# --- names ---


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
def test_file_names_may_contain_any_bytes(shared: Sandbox, name: str) -> None:
    path = f"/root/names/{name}"
    shared.upload(b"here", path)
    assert names(shared, "/root/names") == [name]
    assert shared.download(path) == b"here"
    raw = os.fsencode(path).hex()
    seen = f"import os\nprint(open(bytes.fromhex({raw!r})).read(), len(os.listdir('/root/names')))"
    assert run(shared, seen, "python") == "here 1\n"
    assert shared.files.stat(path).name == path
    shared.files.remove(path)
    assert names(shared, "/root/names") == []


def test_listing_has_type_and_attributes_of_each_entry(sbx: Sandbox) -> None:
    run(
        sbx,
        "mkdir -p /root/zoo/dir && cd /root/zoo && printf 1234567 >file && chown 12:34 file"
        " && chmod 4751 file && touch -d @1500000000.25 file && ln -s 'no where' link"
        " && mkfifo fifo && mknod char c 1 3 && mknod block b 7 0"
        " && python3 -c 'import socket; socket.socket(1).bind(\"socket\")'",
    )
    found = {file.name: file for file in sbx.files.list("/root/zoo")}
    assert list(found) == sorted(found)
    assert {name: file.type for name, file in found.items()} == {
        "block": "block",
        "char": "char",
        "dir": "directory",
        "fifo": "fifo",
        "file": "file",
        "link": "symlink",
        "socket": "socket",
    }
    assert found["file"] == ramet.FileInfo(
        "file", "file", 0o4751, 12, 34, 7, 1_500_000_000.25, None, user="12", group="backup"
    )
    assert found["link"].target == "no where"
    assert found["dir"].is_dir and found["dir"].mode == 0o755
    with pytest.raises(ramet.NoSuchFile):
        sbx.files.stat("/root/zoo/link")
    assert sbx.files.stat("/root/zoo/link", follow=False).target == "no where"


def test_large_folder_is_listed_completely(sbx: Sandbox) -> None:
    run(sbx, "mkdir /root/many && cd /root/many && seq -w 5000 | xargs touch")
    assert names(sbx, "/root/many") == [f"{i:04}" for i in range(1, 5001)]


# --- modes, folders, removal ---


def test_upload_sets_or_keeps_the_mode(sbx: Sandbox) -> None:
    def mode() -> str:
        return run(sbx, "stat -c %a /root/mode").strip()

    sbx.upload(b"1", "/root/mode")
    assert mode() == "644"
    sbx.upload(b"2", "/root/mode", mode=0o4750)
    assert mode() == "4750"
    sbx.upload(b"3", "/root/mode")
    assert mode() == "4750"
    sbx.upload(bytes(PART), "/root/mode")
    assert mode() == "4750"
    sbx.upload(bytes(PART), "/root/mode", mode=0o600)
    assert mode() == "600"
    sbx.upload(b"#!/bin/sh\necho runs\n", "/usr/local/bin/mine", mode=0o755)
    assert run(sbx, "mine") == "runs\n"


def test_missing_folders_are_created(sbx: Sandbox) -> None:
    sbx.upload(b"deep", "/srv/a/b/c/file")
    assert run(sbx, "cat /srv/a/b/c/file; stat -c %a /srv/a/b") == "deep755\n"
    sbx.files.mkdir("/srv/d/e/f", parents=True)
    sbx.files.mkdir("/srv/d/e/f", parents=True)
    sbx.files.mkdir("/srv/g", mode=0o1777)
    assert run(sbx, "stat -c %a /srv/d /srv/d/e/f /srv/g") == "755\n755\n1777\n"


def test_files_are_moved_and_change_owners(sbx: Sandbox) -> None:
    sbx.upload(b"#!/bin/sh\nid -un\n", "/srv/app/run")
    sbx.files.move("/srv/app", "/opt/mine/app")
    sbx.files.chmod("/opt/mine/app/run", 0o755)
    sbx.files.chown("/opt/mine", 33, 33, recursive=True)
    assert run(sbx, "/opt/mine/app/run; stat -c '%a %U:%G' /opt/mine/app/run; ls /srv") == (
        "root\n755 www-data:www-data\n"
    )
    with pytest.raises(ramet.PermissionDenied, match="another file system"):
        sbx.files.move("/opt/mine/app/run", "/dev/shm/run")
    sbx.upload(b"x", "/opt/mine/x")
    with pytest.raises(ramet.FileExists):
        sbx.files.move("/opt/mine/app/run", "/opt/mine/x")
    sbx.files.move("/opt/mine/app/run", "/opt/mine/x", replace=True)
    assert run(sbx, "/opt/mine/x") == "root\n"


# --- folders, writes in place, watches ---


def test_folder_goes_up_and_down(sbx: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "from" / "sub").mkdir(parents=True)
    (tmp_path / "from" / "run").write_text("#!/bin/sh\necho runs\n")
    (tmp_path / "from" / "run").chmod(0o751)
    (tmp_path / "from" / "sub" / "link").symlink_to("../run")
    (tmp_path / "from" / "large").write_bytes(os.urandom(PART + 5))
    os.utime(tmp_path / "from" / "run", (1, 1234567890.5))
    sbx.files.upload_folder(tmp_path / "from", "/srv/to")
    assert run(sbx, "cd /srv/to && sub/link && stat -c '%a %U %.1Y' run") == (
        "runs\n751 root 1234567890.5\n"
    )
    assert [(f.name, f.user) for f in sbx.files.list("/srv", depth=3)] == [
        (name, "root") for name in ("to", "to/large", "to/run", "to/sub", "to/sub/link")
    ]
    run(sbx, "mkfifo /srv/to/fifo; ln -s /etc/passwd /srv/to/out; chown 33:33 /srv/to/run")
    assert sbx.files.stat("/srv/to/run").user == "www-data"
    left = sbx.files.download_folder("/srv/to", tmp_path / "back")
    assert sorted(left) == ["./fifo", "./out"]
    for name in ("large", "run", "sub/link"):
        assert (tmp_path / "back" / name).read_bytes() == (tmp_path / "from" / name).read_bytes()
    assert (tmp_path / "back" / "run").stat().st_mtime == 1234567890.5
    assert os.readlink(tmp_path / "back" / "sub" / "link") == "../run"


def test_open_file_is_written_in_place(sbx: Sandbox) -> None:
    sbx.run_code("log = open('/root/log', 'w+'); log.write('old'); log.flush()")
    sbx.files.write("/root/log", b"new content", in_place=True)
    sbx.files.write("/root/log", b"!", append=True)
    sbx.files.write("/root/log", b"N", offset=0)
    assert sbx.run_code("log.seek(0); print(log.read())").stdout == "New content!\n"


def test_watch_continues_in_the_parent_of_a_fork(sbx: Sandbox) -> None:
    with sbx.files.watch("/root", recursive=True) as changes:
        with sbx.fork()[0] as child:
            run(child, "touch /root/in-the-child")
        run(sbx, "mkdir -p /root/a/b && touch /root/in-the-parent")
        seen: list[str] = []
        while not seen or seen[-1] != "/root/in-the-parent":
            seen.append(next(changes).path)
        assert "/root/a/b" in seen and "/root/in-the-child" not in seen
        sbx.close()
        with pytest.raises(ramet.NotFound):
            list(changes)


def test_remove_deletes_files_links_and_trees(sbx: Sandbox) -> None:
    run(sbx, "mkdir -p /root/a/b/c /root/kept && touch /root/a/b/file /root/kept/file")
    run(sbx, "ln -s /root/kept /root/a/link && ln -s /root/kept /root/link")
    with pytest.raises(ramet.DirectoryNotEmpty):
        sbx.files.remove("/root/a")
    sbx.files.remove("/root/a/b/c")
    sbx.files.remove("/root/link")
    sbx.files.remove("/root/a", recursive=True)
    assert [name for name in names(sbx, "/root") if not name.startswith(".")] == ["kept"]
    assert names(sbx, "/root/kept") == ["file"]


def test_upload_follows_a_symlinked_folder(sbx: Sandbox) -> None:
    run(sbx, "mkdir /root/far && ln -s /root/far /root/near")
    sbx.upload(b"x", "/root/near/file")
    assert run(sbx, "cat /root/far/file") == "x"


# --- atomic replacement ---


def test_open_reader_keeps_the_old_file_when_it_is_replaced(sbx: Sandbox) -> None:
    old, new = b"o" * MIB, b"n" * (9 * MIB)
    sbx.upload(old, "/root/swap")
    run(sbx, "f = open('/root/swap', 'rb')\nhalf = f.read(1 << 19)", "python")
    sbx.upload(new, "/root/swap")
    seen = run(sbx, "rest = half + f.read()\nprint(len(rest), set(rest) == {ord('o')})", "python")
    assert seen == f"{MIB} True\n"
    assert sbx.download("/root/swap") == new


READER = """
import os
mixed, seen = 0, set()
print('reads', flush=True)
while not os.path.exists('/root/stop'):
    data = open('/root/swap', 'rb').read()
    mixed += len(data) != 1 << 18 or len(set(data)) != 1
    seen.update(data[:1])
print(mixed, len(seen))
"""


def test_no_reader_sees_a_partial_file(sbx: Sandbox) -> None:
    sbx.upload(b"a" * (1 << 18), "/root/swap")
    stream = sbx.run_code_stream(READER)
    assert next(stream).data == "reads\n"
    for i in range(40):
        sbx.upload((b"b", b"a")[i % 2] * (1 << 18), "/root/swap")
    sbx.upload(b"", "/root/stop")
    text = "".join(str(event.data) for event in stream if event.type == "stdout")
    assert text.split() == ["0", "2"]


def small_disk(sbx: Sandbox, mib: int) -> bytes:
    """Mounts a disk of that size at /root/small and writes a file; returns the file's content."""
    run(sbx, f"mkdir -p /root/small && mount -t tmpfs -o size={mib}M none /root/small")
    sbx.upload(b"old", "/root/small/file")
    return b"old"


@pytest.mark.parametrize(("size", "disk_mib"), [(7 * MIB, 6), (20 * MIB, 12)])
def test_upload_to_a_full_disk_keeps_the_old_file(sbx: Sandbox, size: int, disk_mib: int) -> None:
    old = small_disk(sbx, disk_mib)
    with pytest.raises(ramet.DiskFull, match="do not fit on the disk|No space"):
        sbx.upload(bytes(size), "/root/small/file")
    with pytest.raises(ramet.DiskFull):
        sbx.upload(bytes(size), "/root/small/new/file")
    assert sbx.download("/root/small/file") == old
    assert run(sbx, "find /root/small -type f") == "/root/small/file\n"
    sbx.upload(bytes(3 * MIB), "/root/small/fits")


def test_interrupted_upload_leaves_no_file(sbx: Sandbox) -> None:
    sbx.upload(b"old", "/root/left/file")
    url = urlsplit(HOST)
    for cut_at in (0, 1000, 3 * MIB):
        with socket.create_connection((url.hostname, url.port or 80)) as line:
            line.sendall(
                f"PUT /v1/sandboxes/{sbx.id}/files?path=/root/left/file HTTP/1.1\r\n"
                f"host: {url.netloc}\r\ncontent-length: {4 * MIB}\r\n\r\n".encode()
                + bytes(cut_at)
            )
    # The guest learns last that the client has gone, and removes then what it had written.
    deadline = time.monotonic() + 120
    while (left := names(sbx, "/root/left")) != ["file"]:
        assert time.monotonic() < deadline, left
        time.sleep(0.5)
    assert sbx.download("/root/left/file") == b"old"


# --- clear errors ---


def setup_for_errors(sbx: Sandbox) -> None:
    run(
        sbx,
        "mkdir -p /root/e/full /root/e/locked && cd /root/e && touch file full/file"
        " && ln -sfn loop loop && { [ -p fifo ] || mkfifo fifo; } && chattr +i locked",
    )


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda s: s.download("/root/e/none"), ramet.NoSuchFile),
        (lambda s: s.download("/root/e/none/none"), ramet.NoSuchFile),
        (lambda s: s.files.stat("/root/e/none"), ramet.NoSuchFile),
        (lambda s: s.files.list("/root/e/none"), ramet.NoSuchFile),
        (lambda s: s.files.remove("/root/e/none"), ramet.NoSuchFile),
        (lambda s: s.files.mkdir("/root/e/none/new"), ramet.NoSuchFile),
        (lambda s: s.download("/root/e/full"), ramet.IsADirectory),
        (lambda s: s.upload(b"x", "/root/e/full"), ramet.IsADirectory),
        (lambda s: s.upload(bytes(PART), "/root/e/full"), ramet.IsADirectory),
        (lambda s: s.upload(b"x", "/root/e/file/x"), ramet.NotADirectory),
        (lambda s: s.upload(bytes(PART), "/root/e/file/x"), ramet.NotADirectory),
        (lambda s: s.download("/root/e/file/x"), ramet.NotADirectory),
        (lambda s: s.files.list("/root/e/file"), ramet.NotADirectory),
        (lambda s: s.files.mkdir("/root/e/file/x"), ramet.NotADirectory),
        (lambda s: s.files.mkdir("/root/e/full"), ramet.FileExists),
        (lambda s: s.files.mkdir("/root/e/file", parents=True), ramet.FileExists),
        (lambda s: s.files.remove("/root/e/full"), ramet.DirectoryNotEmpty),
        (lambda s: s.download("/root/e/fifo"), ramet.Conflict),
        (lambda s: s.download("/root/e/loop"), ramet.BadRequest),
        (lambda s: s.upload(b"x", "/root/e/locked/x"), ramet.PermissionDenied),
        (lambda s: s.files.mkdir("/root/e/locked/x"), ramet.PermissionDenied),
        (lambda s: s.download("relative"), ramet.BadRequest),
        (lambda s: s.download(""), ramet.BadRequest),
        (lambda s: s.upload(b"x", "/root/e/" + "x" * 4096), ramet.BadRequest),
        (lambda s: s.upload(b"x", "/root/e/\0x"), ramet.BadRequest),
    ],
)
def test_file_errors_have_their_class_and_change_nothing(
    shared: Sandbox, call: Callable[[Sandbox], Any], kind: type[ramet.RametError]
) -> None:
    setup_for_errors(shared)
    before = run(shared, "find /root/e")
    with pytest.raises(ramet.RametError) as caught:
        call(shared)
    assert type(caught.value) is kind, repr(caught.value)
    assert len(str(caught.value)) > 10
    assert run(shared, "find /root/e") == before


@pytest.mark.parametrize(
    ("method", "tail", "names"),
    [
        ("GET", "files", "path"),
        ("GET", "files?path=", "path"),
        ("GET", "files?path=/a&path=/b", "path"),
        ("PUT", "files?path=/root/x&mode=rwx", "mode"),
        ("PUT", "files?path=/root/x&mode=10000", "mode"),
        ("DELETE", "files?path=/root/x&recursive=maybe", "recursive"),
        ("POST", "uploads", "path"),
        ("PUT", "uploads/upl_00000000000000000000000000000000", "offset"),
        ("PUT", "uploads/upl_00000000000000000000000000000000?offset=-1", "offset"),
    ],
)
def test_invalid_request_names_the_field(
    shared: Sandbox, http: httpx.Client, method: str, tail: str, names: str
) -> None:
    answer = http.request(method, f"/v1/sandboxes/{shared.id}/{tail}", content=b"x")
    assert answer.status_code == 400, answer.text
    assert names in answer.json()["error"]


def test_file_calls_on_a_deleted_sandbox_fail_with_not_found(client: Client) -> None:
    gone = Sandbox(client=client)
    gone.close()
    calls: list[Callable[[], Any]] = [
        lambda: gone.upload(b"x", "/x"),
        lambda: gone.upload(bytes(PART), "/x"),
        lambda: gone.download("/x"),
        lambda: gone.files.list("/"),
    ]
    for call in calls:
        with pytest.raises(ramet.NotFound) as caught:
            call()
        assert not isinstance(caught.value, ramet.NoSuchFile)


# --- uploads in parts ---


def test_parts_may_arrive_out_of_order_concurrently_and_twice(sbx: Sandbox, client: Client) -> None:
    data = os.urandom(5 * MIB + 7)
    upload = client.open_upload(sbx.id, "/root/parts", mode=0o640)
    step = 300_001
    offsets = [*range(0, len(data), step)][::-1] * 2
    with ThreadPoolExecutor(4) as threads:
        list(
            threads.map(
                lambda at: client.write_part(sbx.id, upload, at, data[at : at + step]), offsets
            )
        )
    assert names(sbx, "/root").count("parts") == 0
    client.commit_upload(sbx.id, upload, len(data), hashlib.sha256(data).hexdigest())
    assert sbx.download("/root/parts") == data
    assert sbx.files.stat("/root/parts").mode == 0o640
    with pytest.raises(ramet.NotFound):
        client.commit_upload(sbx.id, upload, len(data), hashlib.sha256(data).hexdigest())


def test_commit_with_a_wrong_digest_is_refused_and_can_be_repeated(sbx: Sandbox, client: Client) -> None:
    data = b"x" * 1000
    right = hashlib.sha256(data).hexdigest()
    sbx.upload(b"old", "/root/file")
    upload = client.open_upload(sbx.id, "/root/file")
    client.write_part(sbx.id, upload, 0, data)
    for size, digest in [(1000, "0" * 64), (999, right), (1001, right)]:
        with pytest.raises(ramet.Conflict) as caught:
            client.commit_upload(sbx.id, upload, size, digest)
        assert caught.value.code == "checksum_mismatch"
    assert sbx.download("/root/file") == b"old"
    with pytest.raises(ramet.BadRequest, match="sha256"):
        client.commit_upload(sbx.id, upload, 1000, "not hex")
    client.commit_upload(sbx.id, upload, 1000, right)
    assert sbx.download("/root/file") == data


def test_aborted_upload_leaves_no_file(sbx: Sandbox, client: Client) -> None:
    upload = client.open_upload(sbx.id, "/root/up/file")
    client.write_part(sbx.id, upload, 0, bytes(MIB))
    client.abort_upload(sbx.id, upload)
    client.abort_upload(sbx.id, upload)
    with pytest.raises(ramet.NotFound):
        client.write_part(sbx.id, upload, 0, b"x")
    assert run(sbx, "find /root -type f -size +500k") == ""


def test_part_over_8_mib_is_refused(sbx: Sandbox, client: Client) -> None:
    upload = client.open_upload(sbx.id, "/root/file")
    with pytest.raises(ramet.BadRequest, match="8388608|8 MiB"):
        client.write_part(sbx.id, upload, 0, bytes(PART + 1))


def test_fork_during_an_upload_leaves_it_to_the_parent(sbx: Sandbox, client: Client) -> None:
    """The parent can finish the upload; the child has no trace of it."""
    data = os.urandom(2 * MIB)
    upload = client.open_upload(sbx.id, "/root/up/file")
    client.write_part(sbx.id, upload, 0, data[:MIB])
    with sbx.fork()[0] as child:
        client.write_part(sbx.id, upload, MIB, data[MIB:])
        with pytest.raises(ramet.NotFound):
            client.write_part(child.id, upload, MIB, data[MIB:])
        assert run(child, "find /root/up -type f") == ""
        child.upload(b"the child's", "/root/up/file")
        client.commit_upload(sbx.id, upload, len(data), hashlib.sha256(data).hexdigest())
        assert sbx.download("/root/up/file") == data
        assert child.download("/root/up/file") == b"the child's"


def test_concurrent_transfers_are_not_mixed_up(client: Client) -> None:
    """Several clients use several sandboxes while one of these is forked."""

    def one(sbx: Sandbox, i: int) -> None:
        data = os.urandom(2 * MIB + i)
        sbx.upload(data, f"/root/{i}")
        assert sbx.download(f"/root/{i}") == data

    with Sandbox(client=client) as a, Sandbox(client=client) as b, ThreadPoolExecutor(4) as threads:
        work = [threads.submit(one, (a, b)[i % 2], i) for i in range(8)]
        children = a.fork(2)
        for done in work:
            done.result()
        for child in children:
            with child:
                one(child, 99)


# --- any size at constant memory ---


class Noise(io.RawIOBase):
    """A stream of `size` bytes that look random and are cheap to make; `digest` hashes them."""

    def __init__(self, size: int) -> None:
        self.left = size
        self.digest = hashlib.sha256()
        self._block = os.urandom(MIB)
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        n = min(len(buffer), self.left, MIB)
        self._count += 1
        block = (self._count.to_bytes(8, "little") + self._block)[:n]
        self.digest.update(block)
        buffer[:n] = block
        self.left -= n
        return n


def service_kib() -> int:
    """Returns the anonymous memory of all rametd processes in KiB."""
    lines = on_host("for pid in $(pidof rametd); do grep ^RssAnon: /proc/$pid/status; done")
    return sum(int(line.split()[1]) for line in lines.splitlines())


@pytest.mark.timeout(3600)
@pytest.mark.skipif(not os.environ.get("RAMET_SLOW"), reason="transfers 2 GB twice: set RAMET_SLOW=1")
def test_two_gigabytes_transfer_at_constant_memory(sbx: Sandbox, client: Client) -> None:
    """The guest has 1 GiB of RAM; neither it nor the service nor the SDK may buffer the file."""
    size = 2_000_000_000
    most = before = service_kib()
    mine = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    stop = threading.Event()

    def watch() -> None:
        nonlocal most
        while not stop.wait(1):
            most = max(most, service_kib())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        noise = Noise(size)
        sbx.upload(cast(BinaryIO, io.BufferedReader(noise)), "/root/large")
        got = hashlib.sha256()
        with client.read_file(sbx.id, "/root/large") as (reported_size, chunks):
            for chunk in chunks:
                got.update(chunk)
    finally:
        stop.set()
        watcher.join()
    assert reported_size == size
    assert got.hexdigest() == noise.digest.hexdigest() == sha256_of(sbx, "/root/large")
    assert most - before < 128 << 10, f"the service took {(most - before) >> 10} MiB more"
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - mine
    assert grown < 128 << 10, f"the SDK took {grown >> 10} MiB more"
