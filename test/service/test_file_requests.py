# SPDX-License-Identifier: Apache-2.0
"""Files: how requests are read and answers are written, refusals, and clients that leave or stall."""

from __future__ import annotations

import base64
import errno
import json
import os
import socket
import stat
from pathlib import Path
from typing import Any, Callable, Iterator
from urllib.parse import quote

import httpx
import pytest
from conftest import NOBODY, Service, made, refused, until_closed


def pattern(n: int, start: int = 0) -> bytes:
    """Returns what the scripts' files /size/N contain."""
    period = bytes(range(251))
    first = start % 251
    return (period * ((first + n) // 251 + 1))[first : first + n]


def put(client: httpx.Client, box: str, path: str, data: bytes, **more: Any) -> httpx.Response:
    return client.put(f"{box}/files", params={"path": path, **more}, content=data)


def get(client: httpx.Client, box: str, path: str, **headers: str) -> httpx.Response:
    return client.get(f"{box}/files", params={"path": path}, headers=headers)


def test_headers_of_a_file(http: httpx.Client, sandbox: str, folder: str) -> None:
    path = f"{folder}/a b+c"
    assert put(http, sandbox, path, b"12345", mode="751").status_code == 204
    os.utime(path, (1700000000, 1700000000))
    answer = get(http, sandbox, path)
    assert answer.content == b"12345"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["ramet-mode"] == "0751"
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["last-modified"] == "Tue, 14 Nov 2023 22:13:20 GMT"
    assert answer.headers["content-length"] == "5"
    put(http, sandbox, path, b"2")
    assert get(http, sandbox, path).headers["ramet-mode"] == "0751"


def test_name_may_contain_any_byte(http: httpx.Client, sandbox: str, folder: str) -> None:
    names = bytes(range(1, 256)).replace(b"/", b"")
    for name in (names[:127], names[127:]):
        url = f"{sandbox}/files?path=" + quote(f"{folder}/".encode() + name)
        assert http.put(url, content=b"all").status_code == 204
        assert http.get(url).content == b"all"
    assert sorted(os.listdir(folder.encode())) == sorted([names[:127], names[127:]])


@pytest.mark.parametrize(
    "asked, first, last",
    [
        ("bytes=0-0", 0, 0),
        ("bytes=10-19", 10, 19),
        ("bytes=99990-", 99990, 99999),
        ("bytes=99990-200000", 99990, 99999),
        ("bytes=-5", 99995, 99999),
        ("bytes=-200000", 0, 99999),
    ],
)
def test_ranges_are_served(client: httpx.Client, box: str, asked: str, first: int, last: int) -> None:
    answer = get(client, box, "/size/100000", range=asked)
    assert answer.status_code == 206
    assert answer.headers["content-range"] == f"bytes {first}-{last}/100000"
    assert answer.content == pattern(last - first + 1, first)


@pytest.mark.parametrize("asked", ["bytes=5-4", "bytes=x", "lines=0-1", "bytes=0-1,3-4", "bytes=-0"])
def test_ignored_range_gets_the_whole_file(
    client: httpx.Client, box: str, asked: str
) -> None:
    answer = get(client, box, "/size/1000", range=asked)
    assert answer.status_code == 200 and len(answer.content) == 1000


def test_conditional_range_gets_the_whole_file(client: httpx.Client, box: str) -> None:
    headers = {"range": "bytes=0-1", "if-range": '"tag"'}
    assert len(get(client, box, "/size/1000", **headers).content) == 1000


def test_range_after_the_end_is_refused(client: httpx.Client, box: str) -> None:
    answer = get(client, box, "/size/1000", range="bytes=1000-")
    assert "1000 bytes" in refused(answer, 416, "bad_range")
    assert answer.headers["content-range"] == "bytes */1000"
    refused(get(client, box, "/zero/5", range="bytes=0-1"), 416, "bad_range")


def test_file_of_size_zero_may_have_contents(client: httpx.Client, box: str) -> None:
    answer = get(client, box, "/zero/5")
    assert answer.content == pattern(5) and "content-length" not in answer.headers


def test_head_returns_the_headers_of_get(http: httpx.Client, sandbox: str, folder: str) -> None:
    with open(f"{folder}/big", "wb") as file:
        file.truncate(123456789012)
    where = f"{sandbox}/files"
    answer = http.head(where, params={"path": f"{folder}/big"})
    assert answer.status_code == 200 and not answer.content
    assert answer.headers["content-length"] == "123456789012"
    assert http.head(where, params={"path": folder}).status_code == 409
    assert http.head(where, params={"path": f"{folder}/none"}).status_code == 404
    assert http.head(where + "/list", params={"path": folder}).status_code == 200
    stat = http.head(where + "/stat", params={"path": folder})
    assert int(stat.headers["content-length"]) > 50 and not stat.content
    archive = http.head(where + "/archive", params={"path": folder})
    assert archive.status_code == 200 and archive.headers["content-type"] == "application/x-tar"
    for name, status in (("none", 404), ("big", 409)):
        assert http.head(where + "/archive", params={"path": f"{folder}/{name}"}).status_code == status
    assert http.head(where + "/watch", params={"path": folder}).status_code == 200


@pytest.mark.parametrize("http2", [False, True])
def test_truncated_file_cuts_the_answer(server: Service, box: str, http2: bool) -> None:
    with server.client(http2=http2) as http, pytest.raises(httpx.RemoteProtocolError):
        get(http, box, "/less/1000000")


def test_cut_answer_on_the_wire(server: Service, box: str) -> None:
    with server.connect() as s:
        s.sendall(f"GET {box}/files?path=/less/1000 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
        head, body = until_closed(s).split(b"\r\n\r\n", 1)
    assert b"content-length: 1000" in head.lower() and len(body) < 1000


@pytest.mark.parametrize("http2", [False, True])
@pytest.mark.parametrize("route", ["files", "files/archive"])
def test_slow_reader_pauses_the_sandbox(server: Service, box: str, route: str, http2: bool) -> None:
    counted = "ramet_file_bytes_out_total"
    before, sent = server.rss(), server.metrics()[counted]
    http = server.client(http2=True) if http2 else server.slow_client()
    with http, http.stream("GET", f"{box}/{route}", params={"path": "/size/40000000"}) as answer:
        server.until_same(lambda: server.metrics()[counted] - sent)
        assert server.metrics()[counted] - sent < 20_000_000
        assert server.rss() - before < 16 << 20
        assert sum(len(chunk) for chunk in answer.iter_raw()) == 40_000_000
    assert server.rss() - before < 16 << 20


@pytest.mark.parametrize("route", ["files", "files/watch"])
def test_read_ends_when_its_client_leaves(client: httpx.Client, server: Service, box: str, route: str) -> None:
    path = "/size/4000000000" if route == "files" else "/w"
    with server.connect() as s:
        s.sendall(f"GET {box}/{route}?path={path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
        assert s.recv(1000).startswith(b"HTTP/1.1 200 ")
        assert server.metrics()["ramet_operations"] + server.metrics()["ramet_listeners"] >= 1
    server.wait(lambda f: f["ramet_operations"] == f["ramet_listeners"] == 0)


def test_put_is_abandoned_when_its_client_leaves(client: httpx.Client, server: Service, box: str) -> None:
    with server.connect() as s:
        head = f"PUT {box}/files?path=/wait HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 3\r\n\r\n"
        s.sendall(head.encode() + b"abc")
        server.until_waiting(1)
    server.until_idle()
    assert server.metrics()["ramet_operations"] == 0


def test_unknown_sandbox_is_refused(client: httpx.Client) -> None:
    refused(put(client, NOBODY, "/x", b"x"), 404, "not_found")
    refused(get(client, NOBODY, "/x"), 404, "not_found")


@pytest.mark.parametrize(
    "errnum, status, code",
    [(errno.EPERM, 403, "not_permitted"), (errno.ENOSPC, 507, "disk_full"), (errno.EIO, 500, "agent_error")],
)
def test_failures_of_the_guest_have_their_status(
    client: httpx.Client, box: str, errnum: int, status: int, code: str
) -> None:
    assert "as requested" in refused(put(client, box, f"/errno/{errnum}", b"x"), status, code)


@pytest.mark.parametrize(
    "query, code, word",
    [
        ("", "bad_path", "no path"),
        ("?path=", "bad_path", "absolute"),
        ("?path=a/b", "bad_path", '"a/b"'),
        ("?path=/%zz", "bad_path", "hexadecimal"),
        ("?path=/%00", "bad_path", "NUL"),
        ("?path=/a&path=/b", "bad_path", "twice"),
        ("?path=/" + 4096 * "a", "bad_path", "4096"),
        ("?path=/a&mode=8", "bad_request", "octal"),
        ("?path=/a&mode=", "bad_request", "octal"),
        ("?path=/a&mode=17777", "bad_request", "7777"),
    ],
)
def test_bad_query_is_refused(client: httpx.Client, box: str, query: str, code: str, word: str) -> None:
    assert word in refused(client.put(f"{box}/files{query}", content=b""), 400, code)


def test_longest_path_is_accepted(client: httpx.Client, box: str) -> None:
    assert put(client, box, "/" + 4095 * "a", b"x").status_code == 204


def test_limit_of_bodies_is_not_for_files(start: Callable[..., Service]) -> None:
    with start("max_body_bytes=10000").client() as http:
        box = made(http)
        assert put(http, box, "/x", bytes(3_000_000)).status_code == 204
        archive = http.put(f"{box}/files/archive", params={"path": "/a"}, content=bytes(10001))
        assert archive.status_code == 204


def begin_put(s: socket.socket, box: str, length: int, path: str = "/x") -> None:
    head = f"PUT {box}/files?path={path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {length}\r\n\r\n"
    s.sendall(head.encode())


def test_client_that_stops_in_a_body_is_answered(start: Callable[..., Service]) -> None:
    server = start("read_ms=1500")
    with server.client() as http:
        box = made(http)
    with server.connect() as s:
        begin_put(s, box, 3)
        s.sendall(b"ab")
        answer = until_closed(s)
        assert answer.startswith(b"HTTP/1.1 408 ") and b'"request_timeout"' in answer
    server.wait(lambda f: f["ramet_operations"] == 0)


def test_client_that_trickles_a_body_is_answered(start: Callable[..., Service]) -> None:
    server = start("read_ms=1500", "body_rate=1000000")
    with server.client() as http:
        box = made(http)
    with server.connect() as s:
        begin_put(s, box, 1000)
        s.settimeout(0.05)
        answer, sent = b"", 0
        while not answer:
            s.sendall(b"a")
            sent += 1
            assert sent < 1000
            try:
                answer = s.recv(1000)
            except TimeoutError:
                pass
        assert answer.startswith(b"HTTP/1.1 408 ")
    server.wait(lambda f: f["ramet_operations"] == 0)


def test_time_of_the_sandbox_is_not_the_clients(start: Callable[..., Service]) -> None:
    server = start("read_ms=300")
    with server.client() as http:
        box = made(http)
    with server.connect() as s:
        begin_put(s, box, 3, "/wait")
        s.sendall(b"abc")
        s.settimeout(3)
        with pytest.raises(TimeoutError):
            s.recv(1000)
        server.go()
        s.settimeout(60)
        assert s.recv(1000).startswith(b"HTTP/1.1 204 ")


@pytest.mark.parametrize(
    "method, route, query, code",
    [
        ("DELETE", "files", {"path": "/x", "recursive": "yes"}, "bad_request"),
        ("POST", "files/mkdir", {"path": "/x", "parents": "2"}, "bad_request"),
        ("POST", "files/move", {"path": "/y"}, "bad_path"),
        ("POST", "files/move", {"to": "/y"}, "bad_path"),
        ("POST", "files/move", {"path": "/y", "to": "z"}, "bad_path"),
        ("POST", "files/move", {"path": "y", "to": "/z"}, "bad_path"),
        ("POST", "files/move", {"path": "/y", "to": "/z", "replace": "yes"}, "bad_request"),
        ("PATCH", "files", {"path": "/x"}, "bad_request"),
        ("PATCH", "files", {"path": "/x", "recursive": "1"}, "bad_request"),
        ("PATCH", "files", {"path": "/x", "mode": "0"}, "bad_request"),
        ("PATCH", "files", {"path": "/x", "uid": "-1"}, "bad_request"),
        ("PATCH", "files", {"path": "/x", "gid": "4294967296"}, "bad_request"),
        ("PATCH", "files", {"path": "/x", "uid": "root"}, "bad_request"),
        ("PATCH", "files", {"path": "/x", "mode": "755", "recursive": "yes"}, "bad_request"),
        ("PATCH", "files", {"mode": "755"}, "bad_path"),
        ("PUT", "files", {"path": "/x", "offset": "-1"}, "bad_request"),
        ("PUT", "files", {"path": "/x", "append": "yes"}, "bad_request"),
        ("PUT", "files", {"path": "/x", "in_place": "2"}, "bad_request"),
        ("PUT", "files", {"path": "/x", "offset": "1", "append": "1"}, "bad_request"),
        ("PUT", "files/archive", {}, "bad_path"),
        ("GET", "files/watch", {"path": "/x", "recursive": "x"}, "bad_request"),
        ("GET", "files/list", {"path": "/x", "depth": "0"}, "bad_request"),
        ("GET", "files/list", {"path": "/x", "depth": "65"}, "bad_request"),
        ("GET", "files/list", {"path": "/x", "depth": "x"}, "bad_request"),
        ("GET", "files/list", {"path": "/x", "limit": "0"}, "bad_request"),
        ("GET", "files/list", {"path": "/x", "after": "/a"}, "bad_request"),
        ("GET", "files/list", {"path": "/x", "after": "a" * 16385}, "bad_request"),
    ],
)
def test_invalid_parameter_is_named(
    client: httpx.Client, box: str, method: str, route: str, query: dict[str, str], code: str
) -> None:
    sentence = refused(client.request(method, f"{box}/{route}", params=query), 400, code)
    if code == "bad_request" and len(query) > 1:
        assert any(name in sentence for name in [*query, "add mode"] if name != "path"), sentence
    assert "after" in refused(client.get(f"{box}/files/list?path=/x&after=%zz"), 400, "bad_request")


def test_remove_mkdir_move_and_change(http: httpx.Client, sandbox: str, folder: str) -> None:
    where, x, y = f"{sandbox}/files", f"{folder}/x", f"{folder}/y"
    assert http.post(f"{where}/mkdir", params={"path": f"{folder}/new", "mode": "700"}).status_code == 204
    stat = http.get(f"{where}/stat", params={"path": f"{folder}/new"}).json()
    assert (stat["type"], stat["mode"]) == ("directory", "0700")
    put(http, sandbox, x, b"x", mode="644")
    put(http, sandbox, y, b"y")
    move = f"{where}/move"
    refused(http.post(move, params={"path": x, "to": y}), 409, "file_exists")
    assert http.post(move, params={"path": x, "to": y, "replace": "1"}).status_code == 204
    assert get(http, sandbox, y).content == b"x"
    refused(http.post(move, params={"path": x, "to": f"{folder}/z"}), 404, "no_such_file")
    assert http.patch(where, params={"path": y, "mode": "4750"}).status_code == 204
    assert http.get(f"{where}/stat", params={"path": y}).json()["mode"] == "4750"
    if os.geteuid() == 0:
        assert http.patch(where, params={"path": y, "uid": "5", "gid": "6"}).status_code == 204
        assert (os.stat(y).st_uid, os.stat(y).st_gid) == (5, 6)
    refused(http.patch(where, params={"path": x, "mode": "750"}), 404, "no_such_file")


def test_list_has_all_types_and_exact_names(http: httpx.Client, sandbox: str, folder: str) -> None:
    os.mkdir(f"{folder}/d")
    os.chmod(f"{folder}/d", 0o1777)
    os.mkfifo(f"{folder}/e")
    os.symlink("to/here", f"{folder}/f")
    os.symlink(b"/a\xff", f"{folder}/f2")
    Path(folder, "g\u2028").touch()
    os.utime(f"{folder}/g\u2028", ns=(-1, -1))
    Path(os.fsdecode(folder.encode() + b"/h\xff")).touch()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/i")
    if os.geteuid() == 0:
        os.mknod(f"{folder}/b", stat.S_IFBLK | 0o600, os.makedev(7, 0))
        os.mknod(f"{folder}/c", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    answer = http.get(f"{sandbox}/files/list", params={"path": folder})
    assert answer.headers["content-type"] == "application/json"
    entries = {entry["name"]: entry for entry in answer.json()["entries"]}
    types = {name: entry["type"] for name, entry in entries.items()}
    want = {"d": "directory", "e": "fifo", "f": "symlink", "f2": "symlink", "g\u2028": "file",
            "h\ufffd": "file", "i": "socket"}  # fmt: skip
    assert types == want | ({"b": "block", "c": "char"} if os.geteuid() == 0 else {})
    assert base64.b64decode(entries["h\ufffd"]["name_b64"]) == b"h\xff"
    assert base64.b64decode(entries["f2"]["target_b64"]) == b"/a\xff"
    assert '"mtime":-0.000000001' in answer.text and "\\u2028" in answer.text
    assert "name_b64" not in entries["e"] and "target" not in entries["e"]
    assert entries["d"]["mode"] == "1777" and entries["f"]["target"] == "to/here"
    one = http.get(f"{sandbox}/files/stat", params={"path": f"{folder}/f2", "follow": "false"}).json()
    assert one["type"] == "symlink" and base64.b64decode(one["target_b64"]) == b"/a\xff"


def test_stat_has_exact_times(http: httpx.Client, sandbox: str, folder: str) -> None:
    put(http, sandbox, f"{folder}/x", b"12345", mode="4755")
    os.utime(f"{folder}/x", ns=(1, 1700000000123456789))
    answer = http.get(f"{sandbox}/files/stat", params={"path": f"{folder}/x"})
    assert '"mtime":1700000000.123456789' in answer.text
    one = answer.json()
    assert set(one) == {"name", "type", "size", "mode", "uid", "gid", "user", "group", "mtime"}
    assert (one["name"], one["type"], one["size"], one["mode"]) == (f"{folder}/x", "file", 5, "4755")


def test_list_over_its_limit_is_truncated(client: httpx.Client, box: str) -> None:
    where = f"{box}/files/list"
    for limit, path, truncated in ((10, "/many/11", True), (3000, "/many/9000", True), (10, "/many/10", False)):
        answer = client.get(where, params={"path": path, "limit": limit}).json()
        assert [e["name"] for e in answer["entries"]] == [f"{i:08d}" for i in range(limit)]
        assert answer.get("truncated") == (True if truncated else None)
    assert client.get(where, params={"path": "/many/0"}).json() == {"entries": []}


@pytest.mark.parametrize("http2", [False, True])
def test_long_list_is_complete_or_cut(server: Service, box: str, http2: bool) -> None:
    where = f"{box}/files/list"
    with server.client(http2=http2) as http:
        entries = http.get(where, params={"path": "/many/8000"}).json()["entries"]
        assert [e["name"] for e in entries] == [f"{i:08d}" for i in range(8000)]
        refused(http.get(where, params={"path": "/worn/10"}), 500, "agent_error")
        with pytest.raises(httpx.RemoteProtocolError):
            http.get(where, params={"path": "/worn/8000"})


@pytest.mark.parametrize("http2", [False, True])
def test_failing_archive_is_cut(server: Service, box: str, http2: bool) -> None:
    where = f"{box}/files/archive"
    with server.client(http2=http2) as http:
        packed = http.get(where, params={"path": "/size/300000"})
        assert packed.headers["content-type"] == "application/x-tar"
        assert packed.content == pattern(300000)
        refused(http.get(where, params={"path": "/worn/0"}), 500, "agent_error")
        with pytest.raises(httpx.RemoteProtocolError):
            http.get(where, params={"path": "/worn/300000"})


def lines_of(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in answer.iter_lines() if line)


def test_watch_reports_every_kind_of_change(client: httpx.Client, box: str) -> None:
    with client.stream("GET", f"{box}/files/watch", params={"path": "/changes"}) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        assert list(lines_of(answer)) == [
            {"type": "watching", "path": "/changes"},
            {"type": "create", "path": "/w/a\ufffd", "path_b64": "L3cvYf8=", "directory": False},
            {"type": "write", "path": "/w/a", "directory": False},
            {"type": "rename", "path": "/w/a", "to": "/w/b\u2028", "directory": False},
            {"type": "chmod", "path": "/w/b", "directory": False},
            {"type": "overflow", "path": "/changes"},
            {"type": "remove", "path": "/changes", "directory": True},
        ]


def test_lost_agent_ends_a_watch(client: httpx.Client, box: str) -> None:
    with client.stream("GET", f"{box}/files/watch", params={"path": "/unready"}) as answer:
        assert answer.status_code == 500
    seen = []
    with pytest.raises(httpx.RemoteProtocolError):
        with client.stream("GET", f"{box}/files/watch", params={"path": "/w"}) as answer:
            for line in lines_of(answer):
                seen.append(line)
                if line["type"] == "rename":
                    client.delete(box)
    assert seen[-1]["type"] == "error" and set(seen[-1]) == {"type", "message", "code"}
