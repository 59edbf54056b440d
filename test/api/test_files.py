# SPDX-License-Identifier: Apache-2.0
"""Files: contents are preserved, ranges of them too, and invalid requests are refused."""

from __future__ import annotations

import base64
import json
import socket
from typing import Any, Callable
from urllib.parse import quote

import httpx
import pytest
from conftest import Server, until_closed

UPLOAD = "upl_" + 32 * "0"


PERIOD = b"".join(bytes([i]) * 256 for i in range(251))


def pattern(n: int, start: int = 0) -> bytes:
    first = start % len(PERIOD)
    return (PERIOD * ((first + n) // len(PERIOD) + 1))[first : first + n]


def put(http: httpx.Client, box: str, path: str, data: bytes, **more: Any) -> httpx.Response:
    return http.put(f"{box}/files", params={"path": path, **more}, content=data)


def get(http: httpx.Client, box: str, path: str, **headers: str) -> httpx.Response:
    return http.get(f"{box}/files", params={"path": path}, headers=headers)


def fails(answer: httpx.Response, status: int, code: str) -> str:
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    return str(answer.json()["error"])


@pytest.mark.parametrize("size", [0, 1, 65536, 3_000_000])
def test_file_is_read_as_written(http: httpx.Client, sandbox: str, size: int) -> None:
    data = pattern(size)
    assert put(http, sandbox, "/root/a b+c", data, mode="751").status_code == 204
    answer = get(http, sandbox, "/root/a b+c")
    assert answer.status_code == 200 and answer.content == data
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["ramet-mode"] == "0751"
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["last-modified"] == "Tue, 14 Nov 2023 22:13:20 GMT"
    assert answer.headers["content-length"] == str(size)


def test_mode_is_kept_when_none_is_given(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "/x", b"1", mode="600")
    put(http, sandbox, "/x", b"2")
    assert get(http, sandbox, "/x").headers["ramet-mode"] == "0600"


def test_name_may_contain_any_byte(http: httpx.Client, sandbox: str) -> None:
    name = "/" + bytes(range(1, 256)).replace(b"/", b"").decode("latin-1")
    url = f"{sandbox}/files?path=" + quote(name.encode("latin-1"))
    assert http.put(url, content=b"all").status_code == 204
    assert http.get(url).content == b"all"


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
def test_ranges_are_served(http: httpx.Client, sandbox: str, asked: str, first: int, last: int) -> None:
    answer = get(http, sandbox, "/big/100000", range=asked)
    assert answer.status_code == 206
    assert answer.headers["content-range"] == f"bytes {first}-{last}/100000"
    assert answer.content == pattern(last - first + 1, first)


@pytest.mark.parametrize("asked", ["bytes=5-4", "bytes=x", "lines=0-1", "bytes=0-1,3-4", "bytes=-0"])
def test_ignored_range_gets_the_whole_file(
    http: httpx.Client, sandbox: str, asked: str
) -> None:
    answer = get(http, sandbox, "/big/1000", range=asked)
    assert answer.status_code == 200 and len(answer.content) == 1000


def test_conditional_range_gets_the_whole_file(http: httpx.Client, sandbox: str) -> None:
    headers = {"range": "bytes=0-1", "if-range": '"tag"'}
    assert len(get(http, sandbox, "/big/1000", **headers).content) == 1000


def test_range_after_the_end_is_refused(http: httpx.Client, sandbox: str) -> None:
    answer = get(http, sandbox, "/big/1000", range="bytes=1000-")
    assert "1000 bytes" in fails(answer, 416, "bad_range")
    assert answer.headers["content-range"] == "bytes */1000"
    fails(get(http, sandbox, "/proc/hello", range="bytes=0-1"), 416, "bad_range")


def test_file_of_size_zero_may_have_contents(http: httpx.Client, sandbox: str) -> None:
    answer = get(http, sandbox, "/proc/hello")
    assert answer.content == b"hello" and "content-length" not in answer.headers


def test_head_returns_the_headers_of_get(http: httpx.Client, sandbox: str) -> None:
    answer = http.head(f"{sandbox}/files", params={"path": "/big/123456789012"})
    assert answer.status_code == 200 and not answer.content
    assert answer.headers["content-length"] == "123456789012"
    assert http.head(f"{sandbox}/files", params={"path": "/dir"}).status_code == 409
    assert http.head(f"{sandbox}/files", params={"path": "/none"}).status_code == 404
    assert http.head(f"{sandbox}/files/list", params={"path": "/many/100000"}).status_code == 200
    stat = http.head(f"{sandbox}/files/stat", params={"path": "/dir"})
    assert int(stat.headers["content-length"]) > 50 and not stat.content


def test_truncated_file_cuts_the_answer(http: httpx.Client, sandbox: str) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        get(http, sandbox, "/short/1000000")


def test_slow_reader_pauses_the_sandbox(server: Server) -> None:
    with server.client() as http:
        box = "/v1/sandboxes/" + http.post("/v1/sandboxes", json={}).json()["id"]
        before = server.rss()
        with http.stream("GET", f"{box}/files", params={"path": "/big/30000000"}) as answer:
            server.wait(lambda f: f["ramet_pool_hits_total"] > f["ramet_pool_misses_total"])
            assert server.rss() - before < 16 << 20
            read = sum(len(chunk) for chunk in answer.iter_raw())
        assert read == 30_000_000
        assert server.rss() - before < 16 << 20


def test_read_ends_when_its_client_leaves(server: Server) -> None:
    with server.client() as http:
        box = "/v1/sandboxes/" + http.post("/v1/sandboxes", json={}).json()["id"]
    with server.connect() as s:
        s.sendall(f"GET {box}/files?path=/big/4000000000 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
        s.recv(1000)
    server.wait(lambda f: f["ramet_vm_deaths_total"] == 1 and f["ramet_blank_vms_ready"] == 0)


def test_put_is_abandoned_when_its_client_leaves(server: Server) -> None:
    with server.client() as http:
        made = http.post("/v1/sandboxes", json={"template": "slow"}).json()
    box = f"/v1/sandboxes/{made['id']}"
    with server.connect() as s:
        head = f"PUT {box}/files?path=/x HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 3\r\n\r\n"
        s.sendall(head.encode() + b"abc")
        server.wait(lambda f: f["ramet_blank_vms_ready"] == 1)
    server.wait(lambda f: f["ramet_vm_deaths_total"] == 1 and f["ramet_blank_vms_ready"] == 0)


def test_failures_of_the_sandbox_are_reported(http: httpx.Client, sandbox: str) -> None:
    assert "No space" in fails(put(http, sandbox, "/full/x", b"x"), 507, "disk_full")
    fails(put(http, sandbox, "/dir", b"x"), 409, "is_a_directory")
    fails(put(http, sandbox, "/locked/x", b"x"), 403, "not_permitted")
    fails(get(http, sandbox, "/none"), 404, "no_such_file")
    fails(get(http, sandbox, "/dir"), 409, "is_a_directory")
    nowhere = "/v1/sandboxes/sbx_" + 32 * "e"
    fails(put(http, nowhere, "/x", b"x"), 404, "not_found")
    fails(get(http, nowhere, "/x"), 404, "not_found")


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
def test_bad_query_is_refused(http: httpx.Client, sandbox: str, query: str, code: str, word: str) -> None:
    assert word in fails(http.put(f"{sandbox}/files{query}", content=b""), 400, code)


def test_longest_path_is_accepted(http: httpx.Client, sandbox: str) -> None:
    path = "/" + 4095 * "a"
    assert put(http, sandbox, path, b"x").status_code == 204
    assert get(http, sandbox, path).content == b"x"


def test_limit_of_bodies_is_not_for_files(start: Callable[..., Server]) -> None:
    with start("max_body_bytes=10000").client() as http:
        box = "/v1/sandboxes/" + http.post("/v1/sandboxes", json={}).json()["id"]
        assert put(http, box, "/x", pattern(3_000_000)).status_code == 204
        assert get(http, box, "/x").content == pattern(3_000_000)
        archive = http.put(f"{box}/files/archive", params={"path": "/a"}, content=pattern(10001))
        assert archive.status_code == 204
        upload = http.put(f"{box}/uploads/{UPLOAD}", params={"offset": 0}, content=bytes(10001))
        fails(upload, 413, "body_too_large")


def begin_put(s: socket.socket, box: str, length: int) -> None:
    head = f"PUT {box}/files?path=/x HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {length}\r\n\r\n"
    s.sendall(head.encode())


def test_client_that_stops_in_a_body_is_answered(start: Callable[..., Server]) -> None:
    server = start("read_ms=1500")
    with server.client() as http:
        box = "/v1/sandboxes/" + http.post("/v1/sandboxes", json={}).json()["id"]
    with server.connect() as s:
        begin_put(s, box, 3)
        s.sendall(b"ab")
        answer = until_closed(s)
        assert answer.startswith(b"HTTP/1.1 408 ") and b'"request_timeout"' in answer
    server.wait(lambda f: f["ramet_blank_vms_ready"] == 0)


def test_client_that_trickles_a_body_is_answered(start: Callable[..., Server]) -> None:
    server = start("read_ms=1500", "body_rate=1000000")
    with server.client() as http:
        box = "/v1/sandboxes/" + http.post("/v1/sandboxes", json={}).json()["id"]
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
    server.wait(lambda f: f["ramet_blank_vms_ready"] == 0)


def test_time_of_the_sandbox_is_not_the_clients(start: Callable[..., Server]) -> None:
    server = start("read_ms=300")
    with server.client() as http:
        box = "/v1/sandboxes/" + http.post("/v1/sandboxes", json={"template": "slow"}).json()["id"]
    with server.connect() as s:
        begin_put(s, box, 3)
        s.sendall(b"abc")
        s.settimeout(3)
        with pytest.raises(TimeoutError):
            s.recv(1000)


def test_remove_and_mkdir(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "/x", b"x")
    where = f"{sandbox}/files"
    assert http.delete(where, params={"path": "/x"}).status_code == 204
    fails(http.delete(where, params={"path": "/x"}), 404, "no_such_file")
    fails(http.delete(where, params={"path": "/dir"}), 409, "not_empty")
    assert http.delete(where, params={"path": "/dir", "recursive": "1"}).status_code == 204
    fails(http.delete(where, params={"path": "/x", "recursive": "yes"}), 400, "bad_request")
    make = f"{sandbox}/files/mkdir"
    assert http.post(make, params={"path": "/new", "mode": "700"}).status_code == 204
    stat = http.get(f"{sandbox}/files/stat", params={"path": "/new"}).json()
    assert (stat["type"], stat["mode"]) == ("directory", "0700")
    fails(http.post(make, params={"path": "/dir"}), 409, "file_exists")
    assert http.post(make, params={"path": "/dir", "parents": "true"}).status_code == 204
    fails(http.post(make, params={"path": "/dir", "parents": "2"}), 400, "bad_request")


def test_move(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "/x", b"x")
    put(http, sandbox, "/y", b"y")
    move = f"{sandbox}/files/move"
    fails(http.post(move, params={"path": "/x", "to": "/y"}), 409, "file_exists")
    assert http.post(move, params={"path": "/x", "to": "/y", "replace": "1"}).status_code == 204
    assert http.get(f"{sandbox}/files", params={"path": "/y"}).content == b"x"
    fails(http.post(move, params={"path": "/x", "to": "/z"}), 404, "no_such_file")
    for bad in ({"path": "/y"}, {"to": "/y"}, {"path": "/y", "to": "z"}, {"path": "y", "to": "/z"}):
        fails(http.post(move, params=bad), 400, "bad_path")
    bad = {"path": "/y", "to": "/z", "replace": "yes"}
    fails(http.post(move, params=bad), 400, "bad_request")


def test_change(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "/x", b"x", mode="644")
    where = f"{sandbox}/files"
    assert http.patch(where, params={"path": "/x", "mode": "4750"}).status_code == 204
    assert http.get(where + "/stat", params={"path": "/x"}).json()["mode"] == "4750"
    fails(http.patch(where, params={"path": "/y", "mode": "750"}), 404, "no_such_file")
    fails(http.patch(where, params={"path": "/x", "uid": "5"}), 403, "not_permitted")
    for bad in (
        {},
        {"recursive": "1"},
        {"mode": "0"},
        {"uid": "-1"},
        {"gid": "4294967296"},
        {"uid": "root"},
        {"mode": "755", "recursive": "yes"},
    ):
        fails(http.patch(where, params={"path": "/x"} | bad), 400, "bad_request")
    fails(http.patch(where, params={"mode": "755"}), 400, "bad_path")


def test_stat(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "/x", b"12345", mode="4755")
    one = http.get(f"{sandbox}/files/stat", params={"path": "/x"})
    assert one.json() == {
        "name": "/x",
        "type": "file",
        "size": 5,
        "mode": "4755",
        "uid": 0,
        "gid": 100,
        "user": "root",
        "group": "100",
        "mtime": 1700000000.123456789,
    }
    assert '"mtime":1700000000.123456789' in one.text
    link = http.get(f"{sandbox}/files/stat", params={"path": "/x", "follow": "false"}).json()
    assert link["type"] == "symlink" and base64.b64decode(link["target_b64"]) == b"/a\xff"


def test_list(http: httpx.Client, sandbox: str) -> None:
    answer = http.get(f"{sandbox}/files/list", params={"path": "/names"})
    assert answer.headers["content-type"] == "application/json"
    entries = answer.json()["entries"]
    assert [e["type"] for e in entries] == [
        "file", "block", "char", "directory", "fifo", "symlink", "file", "socket",
    ]  # fmt: skip
    assert entries[0]["name"] == "a\ufffd"
    assert base64.b64decode(entries[0]["name_b64"]) == b"a\xff"
    assert '"mtime":-0.000000001' in answer.text
    assert "name_b64" not in entries[1] and "target" not in entries[1]
    assert entries[3]["mode"] == "1777"
    assert entries[5]["target"] == "to/here"
    assert "\\u2028" in answer.text
    empty = http.get(f"{sandbox}/files/list", params={"path": "/many/0"})
    assert empty.json() == {"entries": []}
    fails(http.get(f"{sandbox}/files/list", params={"path": "/file"}), 409, "not_a_directory")


def test_deep_list(http: httpx.Client, sandbox: str) -> None:
    def asked(**query: Any) -> str:
        answer = http.get(f"{sandbox}/files/list", params={"path": "/asked", **query})
        (entry,) = answer.json()["entries"]
        return str(entry["name"])

    assert asked() == "1,0,"
    assert asked(depth=64) == "64,100000,"
    assert asked(depth=2, limit=7, after="a b/\xe9") == "2,7,a b/\xe9"
    assert asked(limit=1 << 40) == "1,100000,"


def test_list_over_its_limit_is_truncated(http: httpx.Client, sandbox: str) -> None:
    where = f"{sandbox}/files/list"
    for limit, path, truncated in ((10, "/many/11", True), (3000, "/many/9000", True), (10, "/many/10", False)):
        answer = http.get(where, params={"path": path, "limit": limit}).json()
        assert [e["name"] for e in answer["entries"]] == [f"{i:08d}" for i in range(limit)]
        assert answer.get("truncated") == (True if truncated else None)


@pytest.mark.parametrize(
    "query,word",
    [
        ("depth=0", "depth"),
        ("depth=65", "64"),
        ("depth=x", "depth"),
        ("limit=0", "limit"),
        ("after=/a", "after"),
        ("after=%zz", "after"),
        (f"after={'a' * 16385}", "after"),
    ],
)
def test_bad_deep_list_is_refused(http: httpx.Client, sandbox: str, query: str, word: str) -> None:
    answer = http.get(f"{sandbox}/files/list?path=/asked&{query}")
    assert word in fails(answer, 400, "bad_request")


def test_writes_in_place(http: httpx.Client, sandbox: str) -> None:
    put(http, sandbox, "/x", b"0123456789")
    assert put(http, sandbox, "/x", b"ab", offset="3").status_code == 204
    assert get(http, sandbox, "/x").content == b"012ab56789"
    assert put(http, sandbox, "/x", b"!", append="1").status_code == 204
    assert get(http, sandbox, "/x").content == b"012ab56789!"
    assert put(http, sandbox, "/x", b"new", in_place="true").status_code == 204
    assert get(http, sandbox, "/x").content == b"new"
    assert put(http, sandbox, "/x", b"N", offset="0", in_place="1").status_code == 204
    assert get(http, sandbox, "/x").content == b"New"


def test_bad_writes_in_place_are_refused(http: httpx.Client, sandbox: str) -> None:
    said = fails(put(http, sandbox, "/x", b"", offset="1", append="1"), 400, "bad_request")
    assert "offset" in said and "append" in said
    for bad in ({"offset": "-1"}, {"append": "yes"}, {"in_place": "2"}):
        assert next(iter(bad)) in fails(put(http, sandbox, "/x", b"", **bad), 400, "bad_request")


def test_folder_is_packed_and_unpacked(http: httpx.Client, sandbox: str) -> None:
    where = f"{sandbox}/files/archive"
    packed = http.get(where, params={"path": "/many/300000"})
    assert packed.headers["content-type"] == "application/x-tar"
    assert packed.content == pattern(300000)
    fails(http.get(where, params={"path": "/file"}), 409, "not_a_directory")
    fails(http.get(where, params={"path": "/worn/0"}), 500, "agent_error")
    with pytest.raises(httpx.RemoteProtocolError):
        http.get(where, params={"path": "/worn/300000"})
    head = http.head(where, params={"path": "/dir"})
    assert head.status_code == 200 and head.headers["content-type"] == "application/x-tar"
    assert http.head(where, params={"path": "/none"}).status_code == 404
    put(http, sandbox, "/file", b"")
    assert http.head(where, params={"path": "/file"}).status_code == 409
    assert http.put(where, params={"path": "/to"}, content=b"tar").status_code == 204
    assert get(http, sandbox, "/to/archive").content == b"tar"
    fails(http.put(where, params={"path": "/to"}, content=b""), 400, "bad_archive")
    fails(http.put(where, content=b"tar"), 400, "bad_path")


def test_slow_reader_of_an_archive_pauses_the_sandbox(server: Server) -> None:
    with server.client() as http:
        box = "/v1/sandboxes/" + http.post("/v1/sandboxes", json={}).json()["id"]
        before = server.rss()
        with http.stream("GET", f"{box}/files/archive", params={"path": "/many/30000000"}) as answer:
            server.wait(lambda f: f["ramet_pool_hits_total"] > f["ramet_pool_misses_total"])
            assert server.rss() - before < 16 << 20
            read = sum(len(chunk) for chunk in answer.iter_raw())
        assert read == 30_000_000


def watch(http: httpx.Client, box: str, path: str) -> list[dict[str, Any]]:
    with http.stream("GET", f"{box}/files/watch", params={"path": path}) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        return [json.loads(line) for line in answer.iter_lines() if line]


def test_watch(http: httpx.Client, sandbox: str) -> None:
    assert watch(http, sandbox, "/w") == [
        {"type": "watching", "path": "/w"},
        {"type": "create", "path": "/w/a\ufffd", "path_b64": "L3cvYf8=", "directory": False},
        {"type": "write", "path": "/w/a", "directory": False},
        {"type": "rename", "path": "/w/a", "to": "/w/b\u2028", "directory": False},
        {"type": "chmod", "path": "/w/b", "directory": False},
        {"type": "overflow", "path": "/w"},
        {"type": "remove", "path": "/w", "directory": True},
    ]


def test_watch_failures(http: httpx.Client, sandbox: str) -> None:
    where = f"{sandbox}/files/watch"
    fails(http.get(where, params={"path": "/none"}), 404, "no_such_file")
    fails(http.get(where, params={"path": "/old"}), 409, "too_old")
    fails(http.get(where, params={"path": "/w", "recursive": "x"}), 400, "bad_request")
    assert http.head(where, params={"path": "/w"}).status_code == 200
    lines = []
    with pytest.raises(httpx.RemoteProtocolError):
        with http.stream("GET", where, params={"path": "/worn"}) as answer:
            for line in answer.iter_lines():
                lines.append(json.loads(line))
    assert lines[-1] == {"type": "error", "message": "the agent is gone", "code": "agent_lost"}


def test_watch_ends_when_its_client_leaves(server: Server) -> None:
    with server.client() as http:
        sandbox = f"/v1/sandboxes/{http.post('/v1/sandboxes', json={}).json()['id']}"
        with http.stream("GET", f"{sandbox}/files/watch", params={"path": "/silent"}) as answer:
            assert '"watching"' in next(answer.iter_lines())
    server.wait(lambda f: f["ramet_vm_deaths_total"] == 1 and f["ramet_blank_vms_ready"] == 0)


def test_long_list_is_complete(http: httpx.Client, sandbox: str) -> None:
    entries = http.get(f"{sandbox}/files/list", params={"path": "/many/8000"}).json()["entries"]
    assert [e["name"] for e in entries] == [f"{i:08d}" for i in range(8000)]


def test_failing_list_is_cut(http: httpx.Client, sandbox: str) -> None:
    where = f"{sandbox}/files/list"
    fails(http.get(where, params={"path": "/worn/10"}), 500, "agent_error")
    with pytest.raises(httpx.RemoteProtocolError):
        http.get(where, params={"path": "/worn/8000"})


def test_uploads(http: httpx.Client, sandbox: str) -> None:
    begun = http.post(f"{sandbox}/uploads", params={"path": "/up", "mode": "640"})
    assert begun.status_code == 201 and begun.json()["part_bytes"] == 8 << 20
    up = f"{sandbox}/uploads/{begun.json()['id']}"
    data = pattern(1_000_000)
    for at in (600_000, 0, 300_000, 300_000):
        part = data[at : at + 400_000]
        assert http.put(up, params={"offset": at}, content=part).status_code == 204
    right, wrong = 64 * "0", 64 * "f"
    commit = up + "/commit"
    fails(http.post(commit, json={"size": 1_000_000, "sha256": wrong}), 409, "checksum_mismatch")
    fails(http.post(commit, json={"size": 999_999}), 409, "checksum_mismatch")
    assert http.post(commit, json={"size": 1_000_000, "sha256": right}).status_code == 204
    assert get(http, sandbox, "/up").content == data
    assert get(http, sandbox, "/up").headers["ramet-mode"] == "0640"
    fails(http.post(commit, json={"size": 1}), 404, "no_such_upload")
    fails(http.put(up, params={"offset": 0}, content=b""), 404, "no_such_upload")


def test_invalid_uploads_are_refused(http: httpx.Client, sandbox: str) -> None:
    fails(http.post(f"{sandbox}/uploads"), 400, "bad_path")
    fails(http.post(f"{sandbox}/uploads", params={"path": "/dir"}), 409, "is_a_directory")
    fails(http.put(f"{sandbox}/uploads/upl_1", content=b""), 404, "no_such_upload")
    up = f"{sandbox}/uploads/{UPLOAD}"
    assert "no offset" in fails(http.put(up, content=b""), 400, "bad_request")
    fails(http.put(up, params={"offset": "-1"}, content=b""), 400, "bad_request")
    fails(http.put(up, params={"offset": str(2**53 + 1)}, content=b""), 400, "bad_request")
    big = bytes((8 << 20) + 1)
    fails(http.put(up, params={"offset": 0}, content=big), 413, "too_large")
    assert "size" in fails(http.post(up + "/commit", json={}), 400, "bad_request")
    fails(http.post(up + "/commit", json={"size": 1.5}), 400, "bad_request")
    fails(http.post(up + "/commit", json={"size": 2**53 + 2}), 400, "bad_request")
    hexes = {"size": 1, "sha256": 64 * "g"}
    assert "64" in fails(http.post(up + "/commit", json=hexes), 400, "bad_request")
    assert http.delete(up).status_code == 204


def test_upload_can_be_dropped(http: httpx.Client, sandbox: str) -> None:
    made = http.post(f"{sandbox}/uploads", params={"path": "/up"}).json()["id"]
    up = f"{sandbox}/uploads/{made}"
    assert http.delete(up).status_code == 204
    fails(http.put(up, params={"offset": 0}, content=b"x"), 404, "no_such_upload")
    assert http.delete(up).status_code == 204


def test_cut_answer_on_the_wire(server: Server) -> None:
    with server.client() as http:
        box = "/v1/sandboxes/" + http.post("/v1/sandboxes", json={}).json()["id"]
    with server.connect() as s:
        s.sendall(f"GET {box}/files?path=/short/1000 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
        head, body = until_closed(s).split(b"\r\n\r\n", 1)
    assert b"content-length: 1000" in head.lower() and len(body) < 1000
