# SPDX-License-Identifier: Apache-2.0
"""Bodies of any size: written as they arrive, whole or not at all, at constant memory."""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import socket
import tarfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Callable, Iterator
from urllib.parse import quote

import h2.connection
import h2.events
import httpx
import pytest
from conftest import Service
from stand_in import until

BIG = 200 << 20
PART = bytes(range(256)) * 256
MORE = 24 << 20  # the memory that a body of any size may cost the service
OLD = b"old content"


@pytest.fixture(params=["h1", "h2"])
def web(base: str, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    versions = {"http1": request.param == "h1", "http2": request.param == "h2"}
    with httpx.Client(base_url=base, timeout=120, trust_env=False, **versions) as client:
        yield client


def parts(size: int) -> Iterator[bytes]:
    for _ in range(size // len(PART)):
        yield PART
    yield PART[: size % len(PART)]


def digest(path: str) -> tuple[int, str]:
    with open(path, "rb") as file:
        return os.stat(path).st_size, hashlib.file_digest(file, "sha256").hexdigest()


def expected(size: int) -> tuple[int, str]:
    sha = hashlib.sha256()
    for part in parts(size):
        sha.update(part)
    return size, sha.hexdigest()


def rss(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def workers(service: Service) -> list[int]:
    """Returns the processes of the agent's requests on files."""
    listed = Path(f"/proc/{service.agent.pid}/task/{service.agent.pid}/children").read_text().split()
    found = []
    for pid in listed:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if b"ramet-init" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(int(pid))
    return found


class Raw:
    """A request whose body is sent by hand."""

    def __init__(self, base: str, target: str, *fields: str) -> None:
        host, port = base.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        lines = [f"PUT {target} HTTP/1.1", f"Host: {host}:{port}", *fields, "", ""]
        self.socket.sendall("\r\n".join(lines).encode())

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.close()

    def head(self) -> bytes:
        got = b""
        while b"\r\n\r\n" not in got:
            more = self.socket.recv(1)
            assert more, got
            got += more
        return got

    def answer(self) -> bytes:
        got = b""
        while more := self.socket.recv(65536):
            got += more
        return got


def target(box: str, path: str, query: str = "", route: str = "files") -> str:
    return f"{box}/{route}?path={quote(path)}{query}"


# --- bodies that are complete -------------------------------------------------------------------


@pytest.mark.parametrize("sized", [True, False])
def test_file_of_any_size_is_written_at_constant_memory(
    web: httpx.Client, service: Service, sandbox: str, folder: str, sized: bool
) -> None:
    path = f"{folder}/new/big"
    headers = {"content-length": str(BIG)} if sized else {}
    assert web.put(target(sandbox, path), content=parts(1 << 20)).status_code == 204
    before = rss(service.server.pid)
    assert web.put(target(sandbox, path), content=parts(BIG), headers=headers).status_code == 204
    assert rss(service.server.pid) - before < MORE
    assert digest(path) == expected(BIG)
    assert os.listdir(f"{folder}/new") == ["big"]


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 1_000_003])
@pytest.mark.parametrize("sized", [True, False])
def test_all_lengths(web: httpx.Client, sandbox: str, folder: str, size: int, sized: bool) -> None:
    path = f"{folder}/x"
    headers = {"content-length": str(size)} if sized else {}
    for query in ("", "&in_place=1", "&offset=0"):
        answer = web.put(target(sandbox, path, query), content=parts(size), headers=headers)
        assert answer.status_code == 204, answer.text
        assert digest(path) == expected(size)
    assert web.put(target(sandbox, path, "&append=1"), content=parts(size), headers=headers).status_code == 204
    assert os.stat(path).st_size == 2 * size


def test_unsized_body_keeps_the_mode_of_the_old_file(
    web: httpx.Client, sandbox: str, folder: str
) -> None:
    path = f"{folder}/x"
    assert web.put(target(sandbox, path, "&mode=4711"), content=parts(5)).status_code == 204
    assert web.put(target(sandbox, path), content=parts(6)).status_code == 204
    assert os.stat(path).st_mode & 0o7777 == 0o4711


def tar_of(name: str, size: int) -> Iterator[bytes]:
    info = tarfile.TarInfo(name)
    info.size = size
    yield info.tobuf(tarfile.PAX_FORMAT)
    yield from parts(size)
    yield bytes(-size % 512 + 1024)


@pytest.mark.parametrize("sized", [True, False])
def test_archive_of_any_size_is_unpacked_at_constant_memory(
    web: httpx.Client, service: Service, sandbox: str, folder: str, sized: bool
) -> None:
    where = target(sandbox, f"{folder}/to", route="files/archive")
    headers = {"content-length": str(512 + BIG + 1024)} if sized else {}
    assert web.put(where, content=tar_of("small", 1 << 20)).status_code == 204
    before = rss(service.server.pid)
    answer = web.put(where, content=tar_of("big", BIG), headers=headers)
    assert answer.status_code == 204, answer.text
    assert rss(service.server.pid) - before < MORE
    assert digest(f"{folder}/to/big") == expected(BIG)
    assert sorted(os.listdir(f"{folder}/to")) == ["big", "small"]


def test_empty_archive_makes_an_empty_folder(web: httpx.Client, sandbox: str, folder: str) -> None:
    where = target(sandbox, f"{folder}/a/b", route="files/archive")
    assert web.put(where, content=iter([bytes(1024)])).status_code == 204
    assert os.listdir(f"{folder}/a/b") == []


def test_client_may_wait_for_100_continue(base: str, sandbox: str, folder: str) -> None:
    with Raw(base, target(sandbox, f"{folder}/x"), "Content-Length: 6", "Expect: 100-continue") as put:
        assert put.head().startswith(b"HTTP/1.1 100 ")
        put.send(b"abc")
        put.send(b"def")
        assert put.head().startswith(b"HTTP/1.1 204 ")
    assert Path(folder, "x").read_bytes() == b"abcdef"


def test_connection_serves_further_requests(base: str, sandbox: str, folder: str) -> None:
    with Raw(base, target(sandbox, f"{folder}/x"), "Transfer-Encoding: chunked") as put:
        put.chunk(PART)
        put.send(b"0\r\nTrailer: 1\r\n\r\n")
        assert put.head().startswith(b"HTTP/1.1 204 ")
        put.send(f"PUT {target(sandbox, folder + '/y')} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                 "Content-Length: 3\r\n\r\nabc".encode())  # fmt: skip
        assert put.head().startswith(b"HTTP/1.1 204 ")
    assert (Path(folder, "x").read_bytes(), Path(folder, "y").read_bytes()) == (PART, b"abc")


# --- bodies that break off ----------------------------------------------------------------------


@pytest.fixture
def old(folder: str) -> str:
    """Returns the path of a file that broken requests must leave as it is."""
    os.mkdir(f"{folder}/in")
    Path(f"{folder}/in/x").write_bytes(OLD)
    return f"{folder}/in/x"


def untouched(service: Service, old: str) -> None:
    until(lambda: os.listdir(os.path.dirname(old)) == ["x"] and not workers(service))
    assert Path(old).read_bytes() == OLD


def staged(old: str) -> None:
    """Waits until the agent writes a new file beside the old one."""
    until(lambda: len(os.listdir(os.path.dirname(old))) == 2)


@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
@pytest.mark.parametrize("sized", [True, False])
def test_body_that_breaks_off_leaves_nothing(
    service: Service, sandbox: str, old: str, how: str, sized: bool
) -> None:
    field = f"Content-Length: {4 * len(PART)}" if sized else "Transfer-Encoding: chunked"
    with Raw(service.base, target(sandbox, old), field) as put:
        for _ in range(3):
            put.send(PART) if sized else put.chunk(PART)
        staged(old)
        if how == "half-close":
            put.socket.shutdown(socket.SHUT_WR)
            assert b" 204 " not in put.answer()
        elif how == "reset":
            put.reset()
    untouched(service, old)


@pytest.mark.parametrize("bad", [b"zz\r\n", b"fffffffffffffffff\r\n", b"5\r\nabcdefgh\r\n0\r\n\r\n"])
def test_broken_chunks_leave_nothing(service: Service, sandbox: str, old: str, bad: bytes) -> None:
    with Raw(service.base, target(sandbox, old), "Transfer-Encoding: chunked") as put:
        put.chunk(PART)
        staged(old)
        put.send(bad)
        assert b" 204 " not in put.answer()
    untouched(service, old)


def test_reset_stream_leaves_nothing(service: Service, sandbox: str, old: str) -> None:
    def body() -> Iterator[bytes]:
        yield from parts(1 << 20)
        staged(old)
        raise InterruptedError

    for headers in ({}, {"content-length": str(2 << 20)}):
        with pytest.raises(InterruptedError):
            with httpx.Client(base_url=service.base, http1=False, http2=True, trust_env=False) as web:
                web.put(target(sandbox, old), content=body(), headers=headers)
        untouched(service, old)


def test_archive_that_breaks_off_leaves_no_part_of_a_file(
    service: Service, sandbox: str, folder: str
) -> None:
    to = f"{folder}/to"
    with Raw(service.base, target(sandbox, to, route="files/archive"), "Transfer-Encoding: chunked") as put:
        for part in list(tar_of("whole", 1 << 20))[:-2]:  # without the marks of an end
            put.chunk(part)
        for part in list(tar_of("part", 1 << 20))[:9]:
            put.chunk(part)
        until(lambda: os.path.isdir(to) and len(os.listdir(to)) == 2)
    until(lambda: os.listdir(to) == ["whole"])
    assert digest(f"{to}/whole") == expected(1 << 20)


def test_part_that_arrived_is_written_in_place(service: Service, sandbox: str, old: str) -> None:
    field = "Content-Length: 1000"
    with Raw(service.base, target(sandbox, old, "&append=1"), field) as put:
        put.send(b"!")
        until(lambda: Path(old).read_bytes() == OLD + b"!")
    until(lambda: not workers(service))
    assert Path(old).read_bytes() == OLD + b"!"


def test_killed_service_leaves_nothing(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    service = Service(tmp_path_factory.mktemp("kill"), "pro")
    try:
        auth = {"authorization": f"Bearer {service.keys[0]}"}
        made = httpx.post(f"{service.base}/v1/sandboxes", json={}, headers=auth, timeout=60)
        box = f"/v1/sandboxes/{made.json()['id']}"
        old = str(tmp_path / "in/x")
        os.mkdir(tmp_path / "in")
        Path(old).write_bytes(OLD)
        fields = [f"Authorization: Bearer {service.keys[0]}", "Transfer-Encoding: chunked"]
        with Raw(service.base, target(box, old), *fields) as put:
            put.chunk(PART)
            staged(old)
            service.kill()
        untouched(service, old)
        service.start()
    finally:
        service.stop()


# --- answers before the end of a body -----------------------------------------------------------


def early_answer(base: str, where: str, length: int | None) -> tuple[int, str]:
    """Returns status and code of the answer to a body that never ends, over HTTP/1."""
    field = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    headers = dict([field.split(": ")])
    with httpx.Client(base_url=base, timeout=120, trust_env=False) as web:
        answer = web.put(where, content=iter(lambda: PART, b""), headers=headers)
    return answer.status_code, str(answer.json()["code"])


def early_answer_2(base: str, where: str, length: int | None) -> tuple[int, str]:
    """The same over HTTP/2. The stream must be reset without an error, to stop the client."""
    host, port = base.removeprefix("http://").split(":")
    conn = h2.connection.H2Connection()
    conn.initiate_connection()
    fields = [(":method", "PUT"), (":path", where), (":scheme", "http"), (":authority", base[7:])]
    conn.send_headers(1, fields + ([("content-length", str(length))] if length is not None else []))
    status, body, ended = 0, b"", False
    with socket.create_connection((host, int(port)), timeout=60) as s:
        while True:
            room = 0 if ended else min(conn.local_flow_control_window(1), conn.max_outbound_frame_size)
            if room:
                conn.send_data(1, bytes(room))
            s.sendall(conn.data_to_send())
            if room and not select.select([s], [], [], 0)[0]:
                continue
            got = s.recv(65536)
            assert got
            for event in conn.receive_data(got):
                if isinstance(event, h2.events.ResponseReceived):
                    status = int(dict(event.headers)[b":status"])
                elif isinstance(event, h2.events.DataReceived):
                    body += event.data
                elif isinstance(event, h2.events.StreamEnded):
                    ended = True
                elif isinstance(event, h2.events.StreamReset):
                    assert ended and event.error_code == 0
                    return status, str(json.loads(body)["code"])


@pytest.mark.parametrize("ask", [early_answer, early_answer_2])
def test_early_refusal_reaches_the_client(
    base: str, sandbox: str, folder: str, http: httpx.Client, ask: Callable[..., tuple[int, str]]
) -> None:
    nowhere = "/v1/sandboxes/sbx_" + 32 * "e"
    for where, length, status, code in (
        (target(nowhere, "/x"), None, 404, "not_found"),
        (f"{sandbox}/files", None, 400, "bad_path"),
        (target(sandbox, folder), None, 409, "is_a_directory"),
        (target(sandbox, f"{folder}/x"), 1 << 60, 507, "disk_full"),
        (target(sandbox, f"{folder}/x", "&in_place=1"), 1 << 60, 507, "disk_full"),
        (target(sandbox, f"{folder}/to", route="files/archive"), None, 400, "bad_archive"),
    ):
        if ask is early_answer_2 and code == "bad_archive":
            where = where.replace("/to", "/x")  # zeros are a good archive, but this is a file
            code, status = "not_a_directory", 409
        assert ask(base, where, length) == (status, code)
    assert set(os.listdir(folder)) <= {"to", "x"}
    assert http.put(target(sandbox, f"{folder}/x"), content=parts(10)).status_code == 204


def test_negative_or_absurd_lengths_are_refused(base: str, sandbox: str, folder: str) -> None:
    for length in ("-1", "18446744073709551615", "18446744073709551616", "9223372036854775808", "x"):
        for query in ("", "&in_place=1", "&offset=9223372036854775807"):
            with Raw(base, target(sandbox, f"{folder}/x", query), f"Content-Length: {length}") as put:
                assert put.head()[9:10] in b"45", length
    assert not os.path.exists(f"{folder}/x") or os.stat(f"{folder}/x").st_size == 0


@pytest.mark.parametrize("small_disk", [4], indirect=True)
@pytest.mark.parametrize("ask", [early_answer, early_answer_2])
def test_full_disk_ends_an_unsized_body(
    base: str, sandbox: str, small_disk: str, ask: Callable[..., tuple[int, str]]
) -> None:
    file = Path(small_disk, "x")
    file.write_bytes(OLD)
    assert ask(base, target(sandbox, str(file)), None) == (507, "disk_full")
    assert os.listdir(small_disk) == ["x"] and file.read_bytes() == OLD


# --- pace ---------------------------------------------------------------------------------------


def test_slow_guest_slows_the_client_down(service: Service, sandbox: str, folder: str) -> None:
    path = f"{folder}/x"
    with Raw(service.base, target(sandbox, path), f"Content-Length: {BIG}") as put:
        put.send(PART)
        until(lambda: len(workers(service)) == 1)
        (worker,) = workers(service)
        before = rss(service.server.pid)
        os.kill(worker, signal.SIGSTOP)
        sent = len(PART)
        put.socket.settimeout(2)
        try:
            while sent < BIG:
                sent += put.socket.send(PART[sent % len(PART) :])
        except TimeoutError:
            pass
        assert sent < BIG, "the service took the whole body"
        assert rss(service.server.pid) - before < MORE
        os.kill(worker, signal.SIGCONT)
        put.socket.settimeout(60)
        while sent < BIG:
            sent += put.socket.send(PART[sent % len(PART) : min(len(PART), sent % len(PART) + BIG - sent)])
        assert put.head().startswith(b"HTTP/1.1 204 ")
    assert digest(path) == expected(BIG)


def fill(s: socket.socket, conn: h2.connection.H2Connection, streams: list[int]) -> int:
    """Sends what the windows of the streams allow, until the service takes no more."""
    sent = 0
    while True:
        for stream in streams:
            while room := min(conn.local_flow_control_window(stream), conn.max_outbound_frame_size):
                conn.send_data(stream, bytes(room))
                sent += room
                s.sendall(conn.data_to_send())
        if not select.select([s], [], [], 2)[0]:
            return sent
        got = s.recv(65536)
        assert got
        conn.receive_data(got)
        s.sendall(conn.data_to_send())


def test_streams_that_wait_hold_little_memory(service: Service, sandbox: str, folder: str) -> None:
    host, port = service.base.removeprefix("http://").split(":")
    conn = h2.connection.H2Connection()
    conn.initiate_connection()
    streams = list(range(1, 17, 2))
    before = rss(service.server.pid)
    with socket.create_connection((host, int(port)), timeout=60) as s:
        for stream in streams:
            conn.send_headers(stream, [
                (":method", "PUT"), (":path", target(sandbox, f"{folder}/{stream}")),
                (":scheme", "http"), (":authority", service.base[7:]),
            ])  # fmt: skip
        s.sendall(conn.data_to_send())
        until(lambda: len(os.listdir(folder)) == len(streams))
        stopped = workers(service)
        try:
            for worker in stopped:
                os.kill(worker, signal.SIGSTOP)
            assert fill(s, conn, streams) < 8 * MORE
            assert rss(service.server.pid) - before < MORE
        finally:
            for worker in stopped:
                os.kill(worker, signal.SIGCONT)
    until(lambda: os.listdir(folder) == [] and not workers(service))


def test_slow_client_gets_all_of_its_body_written(service: Service, sandbox: str, folder: str) -> None:
    path = f"{folder}/x"
    with Raw(service.base, target(sandbox, path), "Transfer-Encoding: chunked") as put:
        for byte in b"abcdefgh":
            put.send(b"1\r\n")
            time.sleep(0.02)
            put.send(bytes([byte]))
            put.send(b"\r\n")
        put.send(b"0\r\n\r\n")
        assert put.head().startswith(b"HTTP/1.1 204 ")
    assert Path(path).read_bytes() == b"abcdefgh"


def test_waiting_bodies_count_as_operations(service: Service, http: httpx.Client, sandbox: str, folder: str) -> None:
    waiting = [
        Raw(service.base, target(sandbox, f"{folder}/{i}"), "Content-Length: 2") for i in range(32)
    ]
    try:
        until(lambda: len(os.listdir(folder)) == 32)
        answer = http.put(target(sandbox, f"{folder}/x"), content=b"x")
        assert (answer.status_code, answer.json()["code"]) == (429, "too_many")
    finally:
        for one in waiting:
            one.socket.close()
    until(lambda: http.put(target(sandbox, f"{folder}/x"), content=b"x").status_code == 204)
    until(lambda: os.listdir(folder) == ["x"])
