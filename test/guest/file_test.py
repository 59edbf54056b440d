# SPDX-License-Identifier: Apache-2.0
"""AGENT_PUT to AGENT_MKDIR and AGENT_GROW: reads, writes, errors and broken connections."""

import errno
import hashlib
import os
import select
import stat
import struct
import subprocess
import tempfile
import time
import unittest

import harness
from harness import (BYTES, CHANGE, DATA, DONE, ERROR, FILE, GET, GROW, MKDIR, MOVE, NODE, PING,
                     PONG, PUT, REMOVE, WALK, AgentTest, frame, text)

ALL = (1 << 64) - 1
UNCHANGED = (1 << 32) - 1


class Info:
    """A parsed AGENT_FILE frame, or the beginning of an AGENT_NODE."""

    def __init__(self, payload):
        (size,) = struct.unpack_from("<I", payload)
        self.name = payload[4 : 4 + size]
        fields = struct.unpack_from("<IIIQqI", payload, 4 + size)
        self.mode, self.uid, self.gid, self.size, self.mtime_ns, length = fields
        self.target = payload[4 + size + 32 :][:length]
        assert len(self.target) == length


class Failed(Exception):
    def __init__(self, payload):
        self.errno, size = struct.unpack_from("<II", payload)
        self.text = payload[8:].decode("utf-8", "replace")
        assert len(payload) == 8 + size
        super().__init__(self.text)


class FileClient:
    """File operations on one connection."""

    def __init__(self, client):
        self.client = client

    def answer(self):
        kind, payload = self.client.recv()
        if kind == ERROR:
            raise Failed(payload)
        assert kind == DONE, (kind, payload[:100])

    def answers(self):
        """Returns the descriptions of files and the bytes that come before DONE."""
        infos, data = [], bytearray()
        while True:
            kind, payload = self.client.recv()
            if kind in (FILE, NODE):
                infos.append(Info(payload))
            elif kind == BYTES:
                data += payload
            elif kind == DONE:
                return infos, bytes(data)
            else:
                assert kind == ERROR, kind
                raise Failed(payload)

    def send_data(self, data, step=65536):
        for at in range(0, len(data), step):
            self.client.send(DATA, data[at : at + step])

    def begin_put(self, path, size, mode=0):
        self.client.send(PUT, struct.pack("<QI", size, mode) + text(path))

    def put(self, path, data, mode=0, step=65536):
        self.begin_put(path, len(data), mode)
        self.send_data(data, step)
        self.answer()

    def get(self, path, offset=0, most=ALL):
        self.client.send(GET, struct.pack("<QQ", offset, most) + text(path))
        (info,), data = self.answers()
        self.info = info
        return data

    def stat(self, path, link=False):
        (info,) = self.walk(path, link)
        return info

    def list(self, path):
        return self.walk(path, depth=1)

    def walk(self, path, link=False, depth=0):
        self.client.send(WALK, struct.pack("<BII", link, depth, 0) + text(path) + text(""))
        return self.answers()[0]

    def remove(self, path, recursive=False):
        self.client.send(REMOVE, struct.pack("<B", recursive) + text(path))
        self.answer()

    def mkdir(self, path, mode=0, parents=False):
        self.client.send(MKDIR, struct.pack("<IB", mode, parents) + text(path))
        self.answer()

    def move(self, path, to, replace=False):
        self.client.send(MOVE, struct.pack("<B", replace) + text(path) + text(to))
        self.answer()

    def change(self, path, mode=UNCHANGED, uid=UNCHANGED, gid=UNCHANGED, recursive=False):
        self.client.send(CHANGE, struct.pack("<IIIB", mode, uid, gid, recursive) + text(path))
        self.answer()


class FileTest(AgentTest):
    def setUp(self):
        super().setUp()
        self.files = FileClient(self.client)
        while self.workers():  # wait for those of the previous test
            self.assertEqual(self.client.ask(PING)[0], PONG)
        self.top = tempfile.mkdtemp(prefix="ramet-file-")
        self.addCleanup(subprocess.run, ["rm", "-rf", self.top])

    def more(self):
        return FileClient(self.connect())

    def path(self, name):
        return os.path.join(self.top, name)

    def write(self, name, data=b""):
        with open(self.path(name), "wb") as file:
            file.write(data)
        return self.path(name)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def fails(self, number, function, *args, says="", **options):
        with self.assertRaises(Failed) as caught:
            function(*args, **options)
        self.assertEqual(caught.exception.errno, number, caught.exception.text)
        self.assertIn(says, caught.exception.text)

    def workers(self):
        """Returns the pids of the file workers: all children of the agent but the first, the driver."""
        with open(f"/proc/{self.agent.process.pid}/task/{self.agent.process.pid}/children") as f:
            return [int(pid) for pid in f.read().split()[1:]]

    def worker(self):
        """Waits for a worker and returns its pid. No other operation may be in flight."""
        while not self.workers():
            self.assertEqual(self.more().client.ask(PING)[0], PONG)
        (worker,) = self.workers()
        return worker

    def wait_for_end(self):
        """Waits until the worker of the last operation has ended."""
        self.assertEqual(self.client.ask(PING)[0], PONG)

    def wait_for_names(self, *names, top=None):
        """Waits until the folder holds just these names: files may be removed in the background."""
        while sorted(os.listdir(top or self.top)) != sorted(names):
            self.assertEqual(self.client.ask(PING)[0], PONG)


class Whole(FileTest):
    def test_downloaded_bytes_equal_uploaded_bytes(self):
        for size in (0, 1, 65535, 65536, 65537, 1_000_003):
            data = os.urandom(size)
            self.files.put(self.path("file"), data)
            self.assertEqual(self.read("file"), data)
            self.assertEqual(self.files.get(self.path("file")), data)
            self.assertEqual(self.files.info.size, size)
        self.assertEqual(os.listdir(self.top), ["file"])

    def test_data_may_come_in_frames_of_any_size(self):
        data = os.urandom(3000)
        for step in (1, 7, 1000):
            self.files.put(self.path("file"), data, step=step)
            self.assertEqual(self.read("file"), data)

    def test_put_sets_or_keeps_the_mode(self):
        self.files.put(self.path("new"), b"")
        self.assertEqual(os.stat(self.path("new")).st_mode, stat.S_IFREG | 0o644)
        self.files.put(self.path("new"), b"1", 0o4751)
        self.assertEqual(os.stat(self.path("new")).st_mode, stat.S_IFREG | 0o4751)
        os.chown(self.path("new"), 1234, 5678)
        os.chmod(self.path("new"), 0o2701)
        self.files.put(self.path("new"), b"2")
        info = self.files.stat(self.path("new"))
        self.assertEqual((info.mode, info.uid, info.gid), (stat.S_IFREG | 0o2701, 1234, 5678))

    def test_missing_folders_are_created(self):
        self.files.put(self.path("a/b//c/file"), b"1")
        self.assertEqual(self.read("a/b/c/file"), b"1")
        self.assertEqual(os.stat(self.path("a/b")).st_mode, stat.S_IFDIR | 0o755)

    def test_names_may_contain_any_bytes(self):
        for name in (b"a b", b"\xff\n", b".hidden", b"x" * 255, "ä€".encode()):
            path = os.path.join(self.top.encode(), name)
            self.files.put(path, name)
            self.assertEqual(self.files.get(path), name)
            self.assertEqual(self.files.info.name, path)

    def test_replaced_file_is_always_complete(self):
        old, new = b"old" * 100_000, b"new" * 200_000
        path = self.write("file", old)
        self.files.begin_put(path, len(new))
        self.files.send_data(new[:-1])
        other = self.more()
        for _ in range(3):
            self.assertEqual(other.get(path), old)
        self.client.send(DATA, new[-1:])
        self.files.answer()
        self.assertEqual(other.get(path), new)

    def test_open_reader_keeps_the_old_file(self):
        path = self.write("file", b"old")
        with open(path, "rb") as file:
            self.files.put(path, b"new")
            self.assertEqual(file.read(), b"old")

    def test_symbolic_links_are_followed_and_kept(self):
        self.write("real", b"old")
        os.mkdir(self.path("dir"))
        os.symlink("real", self.path("one"))
        os.symlink(self.path("one"), self.path("dir/two"))
        os.symlink("new/file", self.path("dangling"))
        os.symlink("loop", self.path("loop"))
        self.files.put(self.path("dir/two"), b"new")
        self.assertEqual(self.read("real"), b"new")
        self.assertEqual(os.readlink(self.path("dir/two")), self.path("one"))
        self.assertEqual(self.files.get(self.path("dir/two")), b"new")
        self.files.put(self.path("dangling"), b"1")
        self.assertEqual(self.read("new/file"), b"1")
        self.fails(errno.ELOOP, self.files.put, self.path("loop"), b"1")

    def test_errors_of_put(self):
        self.write("file")
        os.mkdir(self.path("dir"))
        os.mkfifo(self.path("fifo"))
        for name, number in (("dir", errno.EISDIR), ("new/", errno.EISDIR), ("file/", errno.EISDIR),
                             ("file/x", errno.ENOTDIR), ("file/x/y", errno.ENOTDIR),
                             ("fifo", errno.EINVAL), ("x" * 256, errno.ENAMETOOLONG),
                             ("/x" * 2048, errno.ENAMETOOLONG), ("/dev/null", errno.EINVAL)):
            with self.subTest(name=name[:10]):
                self.fails(number, self.files.put, self.path(name), b"data" * 50_000)
        self.assertEqual(sorted(os.listdir(self.top)), ["dir", "fifo", "file"])
        self.assertEqual(self.client.ask(PING)[0], PONG)

    def test_error_is_sent_before_all_data_has_arrived(self):
        self.files.begin_put(self.top, 10_000_000)
        self.fails(errno.EISDIR, self.files.answer)
        self.files.send_data(b"x" * 10_000_000)
        self.assertEqual(self.client.ask(PING)[0], PONG)

    def test_impossible_size_is_refused(self):
        self.files.begin_put(self.path("file"), 1 << 63)
        self.fails(errno.ENOSPC, self.files.answer, says="9223372036854775808 bytes")
        self.assertEqual(os.listdir(self.top), [])

    def test_broken_connections_leave_no_files(self):
        path = self.write("file", b"old")
        for sent in (0, 1, 100_000):
            client = self.more()
            client.begin_put(path, 1_000_000)
            client.send_data(b"x" * sent)
            while sent and len(os.listdir(self.top)) == 1:
                self.assertEqual(self.client.ask(PING)[0], PONG)
            client.client.close()
            self.wait_for_names("file")
        self.assertEqual(self.read("file"), b"old")

    def test_killed_worker_leaves_no_files(self):
        client = self.more()
        client.begin_put(self.path("file"), 2)
        client.send_data(b"x")
        while not os.listdir(self.top):
            self.assertEqual(self.client.ask(PING)[0], PONG)
        os.kill(self.worker(), 9)
        with self.assertRaises((EOFError, ConnectionError)):
            client.answer()
        self.wait_for_names()

    def test_frames_other_than_data_end_the_connection(self):
        path = self.path("file")
        for bad in (frame(PING), frame(DATA), frame(DATA, b"xxx"), frame(DATA, b"x") + frame(PING),
                    struct.pack("<IBBH", 1 << 31, DATA, 0, 0), struct.pack("<IBBH", 2, DATA, 1, 0)):
            client = self.more()
            client.begin_put(path, 2)
            client.client.sock.sendall(bad)
            with self.assertRaises((EOFError, ConnectionError)):
                client.answer()
        self.wait_for_names()

    def test_concurrent_puts_to_one_path(self):
        clients = [self.more() for _ in range(8)]
        contents = [bytes([i]) * 300_000 for i in range(8)]
        for client, data in zip(clients, contents):
            client.begin_put(self.path("file"), len(data))
            client.send_data(data[:200_000])
        for client, data in zip(clients, contents):
            client.send_data(data[200_000:])
            client.answer()
            self.assertEqual(self.read("file"), data)
        self.assertEqual(os.listdir(self.top), ["file"])

    def test_pipelined_requests_are_answered_in_order(self):
        for i in range(20):
            data = b"%d" % i
            put = struct.pack("<QI", len(data), 0) + text(self.path("file"))
            self.client.sock.sendall(frame(PUT, put) + frame(DATA, data) + frame(PING))
            self.files.answer()
            self.assertEqual(self.client.recv()[0], PONG)
        self.assertEqual(self.read("file"), b"19")

    def test_requests_above_the_number_of_workers_wait(self):
        clients = [self.more() for _ in range(40)]
        for i, client in enumerate(clients):
            client.begin_put(self.path(f"f{i}"), 2)
            client.send_data(b"x")
        self.assertEqual(self.client.ask(PING)[0], PONG)
        self.assertLessEqual(len(self.workers()), 32)
        for client in clients:
            client.send_data(b"y")
        for client in clients:
            client.answer()
        self.assertEqual(len(os.listdir(self.top)), 40)

    def test_large_file_at_constant_memory(self):
        chunk, count = os.urandom(1 << 20), 256
        client = self.more()
        client.begin_put(self.path("big"), count << 20)
        for _ in range(count - 1):
            client.send_data(chunk)
        with open(f"/proc/{self.worker()}/status") as status:
            anon = next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))
        self.assertLess(anon, 8 << 10)  # KiB; sanitizers need a part of it
        client.send_data(chunk)
        client.answer()
        want = hashlib.sha256(chunk * count).digest()
        self.client.send(GET, struct.pack("<QQ", 0, ALL) + text(self.path("big")))
        self.assertEqual(self.client.recv()[0], FILE)
        sha = hashlib.sha256()
        while (answer := self.client.recv())[0] == BYTES:
            sha.update(answer[1])
        self.assertEqual(sha.digest(), want)


class Reading(FileTest):
    def test_ranges_are_read(self):
        data = os.urandom(200_000)
        path = self.write("file", data)
        for offset, most in ((0, 0), (0, 1), (199_999, 5), (200_000, 1), (300_000, 1), (5, 100_000),
                             (65_536, 65_537), (1 << 63, 5), (ALL, ALL), (0, 1 << 63)):
            self.assertEqual(self.files.get(path, offset, most), data[offset : offset + most])
            self.assertEqual(self.files.info.size, len(data))

    def test_proc_files_of_size_zero_have_content(self):
        data = self.files.get("/proc/self/status")
        self.assertTrue(data.startswith(b"Name:"), data[:20])
        self.assertEqual(self.files.info.size, 0)
        self.assertEqual(self.files.get("/proc/self/status", 2, 3), b"me:")
        self.assertEqual(self.files.get("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")[-1:],
                         b"\n")

    def test_special_files_are_refused_without_blocking(self):
        os.mkfifo(self.path("fifo"))
        for path, number in ((self.path("fifo"), errno.EINVAL), ("/dev/zero", errno.EINVAL),
                             ("/dev/tty", errno.EINVAL), (self.top, errno.EISDIR),
                             (self.path("none"), errno.ENOENT), ("/proc/version/x", errno.ENOTDIR)):
            self.fails(number, self.files.get, path, says=path)

    def test_sparse_file_is_read(self):
        path = self.write("sparse")
        os.truncate(path, 1 << 30)
        self.assertEqual(self.files.get(path, (1 << 30) - 3, 10), b"\0\0\0")

    def test_file_that_shrinks_or_grows_while_read(self):
        path = self.write("file", b"x" * 5_000_000)
        slow = self.connect()
        slow.send(GET, struct.pack("<QQ", 0, ALL) + text(path))
        self.assertEqual(slow.recv()[0], FILE)
        os.truncate(path, 0)
        self.assertLess(len(FileClient(slow).answers()[1]), 5_000_000)
        self.write("file", b"y" * 4_000_000)
        slow.send(GET, struct.pack("<QQ", 0, ALL) + text(path))
        self.assertEqual(slow.recv()[0], FILE)
        with open(path, "ab") as file:
            file.write(b"z" * 1_000_000)
        self.assertEqual(FileClient(slow).answers()[1], b"y" * 4_000_000)

    def test_host_that_does_not_read_blocks_nobody(self):
        path = self.write("file", b"x" * 5_000_000)
        slow = self.connect()
        slow.send(GET, struct.pack("<QQ", 0, ALL) + text(path))
        self.assertEqual(slow.recv()[0], FILE)
        self.assertEqual(len(self.files.get(path)), 5_000_000)
        self.wait_for_end()
        life = os.pidfd_open(self.worker())
        self.addCleanup(os.close, life)
        slow.close()
        self.assertTrue(select.select([life], [], [], harness.TIMEOUT)[0])

    def test_stat(self):
        path = self.write("file", b"12345")
        os.symlink("file", self.path("link"))
        os.utime(path, ns=(0, 1_234_567_890_123_456_789))
        for name, link in (("file", False), ("file", True), ("link", False)):
            info = self.files.stat(self.path(name), link)
            self.assertEqual((info.name, info.size), (self.path(name).encode(), 5))
            self.assertEqual(info.mode, os.stat(path).st_mode)
            self.assertEqual(info.mtime_ns, 1_234_567_890_123_456_789)
            self.assertEqual(info.target, b"")
        info = self.files.stat(self.path("link"), True)
        self.assertEqual((info.size, info.target), (0, b"file"))
        self.assertTrue(stat.S_ISLNK(info.mode))
        self.assertEqual(self.files.stat(self.top).size, 0)
        os.utime(path, ns=(0, -5))
        self.assertEqual(self.files.stat(path).mtime_ns, -5)
        self.fails(errno.ENOENT, self.files.stat, self.path("none"))
        self.fails(errno.ENOENT, self.files.stat, self.path("none"), True)

    def test_list(self):
        for name in (b"b", b"a", b"\xff", b"a-", b".hidden"):
            with open(os.path.join(self.top.encode(), name), "wb") as file:
                file.write(name)
        os.symlink("nowhere", self.path("link"))
        os.mkdir(self.path("dir"))
        infos = self.files.list(self.top)
        names = sorted(os.listdir(self.top.encode()))
        self.assertEqual([info.name for info in infos], names)
        for info in infos:
            st = os.lstat(os.path.join(self.top.encode(), info.name))
            self.assertEqual((info.mode, info.mtime_ns), (st.st_mode, st.st_mtime_ns))
            self.assertEqual(info.target, b"nowhere" if info.name == b"link" else b"")
        self.assertEqual(self.files.list(self.path("dir")), [])
        self.fails(errno.ENOTDIR, self.files.list, self.path("a"))
        self.fails(errno.ENOENT, self.files.list, self.path("none"))

    def test_large_folder_is_listed_completely(self):
        os.mkdir(self.path("many"))
        for i in range(5000):
            os.mknod(self.path(f"many/{i}"))
        self.assertEqual(len(self.files.list(self.path("many"))), 5000)
        self.files.remove(self.path("many"), True)
        self.assertEqual(os.listdir(self.top), [])


class Folders(FileTest):
    def test_mkdir(self):
        self.files.mkdir(self.path("a"))
        self.assertEqual(os.stat(self.path("a")).st_mode, stat.S_IFDIR | 0o755)
        self.files.mkdir(self.path("b"), 0o1777)
        self.assertEqual(os.stat(self.path("b")).st_mode, stat.S_IFDIR | 0o1777)
        self.files.mkdir(self.path("x/y/z/"), 0o700, True)
        self.assertEqual(os.stat(self.path("x/y")).st_mode, stat.S_IFDIR | 0o755)
        self.assertEqual(os.stat(self.path("x/y/z")).st_mode, stat.S_IFDIR | 0o700)
        self.files.mkdir(self.path("x/y/z"), 0, True)
        self.assertEqual(os.stat(self.path("x/y/z")).st_mode, stat.S_IFDIR | 0o700)
        self.write("file")
        self.fails(errno.EEXIST, self.files.mkdir, self.path("a"))
        self.fails(errno.EEXIST, self.files.mkdir, self.path("file"), 0, True)
        self.fails(errno.ENOENT, self.files.mkdir, self.path("p/q"))
        self.fails(errno.ENOTDIR, self.files.mkdir, self.path("file/q"), 0, True)

    def test_remove(self):
        self.write("file")
        os.mkdir(self.path("empty"))
        os.makedirs(self.path("full/in"))
        os.symlink("full", self.path("link"))
        for name in ("file", "empty"):
            self.files.remove(self.path(name))
        self.fails(errno.ENOTEMPTY, self.files.remove, self.path("full"))
        self.files.remove(self.path("link"), True)
        self.assertEqual(os.listdir(self.top), ["full"])
        self.files.remove(self.path("full/"), True)
        self.assertEqual(os.listdir(self.top), [])
        self.fails(errno.ENOENT, self.files.remove, self.path("none"))
        self.fails(errno.ENOENT, self.files.remove, self.path("none"), True)
        self.fails(errno.ENOENT, self.files.remove, self.path("none/x"), True)

    def test_recursive_remove_does_not_follow_links(self):
        self.write("outside", b"stays")
        os.makedirs(self.path("tree/a/b/c"))
        os.makedirs(self.path("tree/d"))
        os.mkdir(self.path("kept"))
        self.write("kept/file", b"stays")
        for folder in ("tree", "tree/a", "tree/a/b/c", "tree/d"):
            for i in range(300):
                self.write(f"{folder}/file{i}")
            os.symlink(self.path("kept"), self.path(f"{folder}/link"))
        os.mkfifo(self.path("tree/fifo"))
        self.files.remove(self.path("tree"), True)
        self.assertEqual(sorted(os.listdir(self.top)), ["kept", "outside"])
        self.assertEqual(self.read("kept/file"), b"stays")

    def test_deep_tree_is_removed(self):
        folder = os.open(self.top, os.O_PATH)
        for _ in range(3000):
            os.mkdir("deep", dir_fd=folder)
            below = os.open("deep", os.O_PATH, dir_fd=folder)
            os.close(folder)
            folder = below
        os.close(folder)
        self.files.remove(self.path("deep"), True)
        self.assertEqual(os.listdir(self.top), [])

    def test_root_and_dot_paths_are_never_removed(self):
        for path, number in (("/", errno.EBUSY), ("//", errno.EBUSY),
                             (self.path("."), errno.EINVAL), (self.path("../"), errno.EINVAL)):
            self.fails(number, self.files.remove, path, True)
        self.assertTrue(os.path.isdir(self.top))


class Changes(FileTest):
    def test_file_link_and_folder_are_moved(self):
        self.write("a", b"data")
        self.files.move(self.path("a"), self.path("x/y/b"))
        self.assertEqual(self.read("x/y/b"), b"data")
        self.assertEqual(os.stat(self.path("x/y")).st_mode, stat.S_IFDIR | 0o755)
        os.symlink("nowhere", self.path("link"))
        self.files.move(self.path("link"), self.path("moved"))
        self.assertEqual(os.readlink(self.path("moved")), "nowhere")
        self.files.move(self.path("x"), self.path("z/"))
        self.assertEqual(self.read("z/y/b"), b"data")
        self.assertEqual(sorted(os.listdir(self.top)), ["moved", "z"])

    def test_existing_file_is_replaced_only_on_request(self):
        self.write("a", b"new")
        self.write("b", b"old")
        self.files.mkdir(self.path("empty"))
        self.files.mkdir(self.path("full/x"), 0, True)
        self.fails(errno.EEXIST, self.files.move, self.path("a"), self.path("b"))
        self.fails(errno.EEXIST, self.files.move, self.path("a"), self.path("empty"))
        self.assertEqual(self.read("b"), b"old")
        self.files.move(self.path("a"), self.path("b"), True)
        self.assertEqual(self.read("b"), b"new")
        self.fails(errno.EISDIR, self.files.move, self.path("b"), self.path("empty"), True)
        self.fails(errno.ENOTDIR, self.files.move, self.path("empty"), self.path("b"), True)
        self.fails(errno.ENOTEMPTY, self.files.move, self.path("empty"), self.path("full"), True)
        self.files.move(self.path("full"), self.path("empty"), True)
        self.assertEqual(os.listdir(self.path("empty")), ["x"])

    def test_impossible_move_changes_nothing(self):
        self.files.mkdir(self.path("d"))
        self.fails(errno.ENOENT, self.files.move, self.path("no"), self.path("n/e/w"))
        self.fails(errno.ELOOP, self.files.move, self.path("d"), self.path("d/in"), says="into itself")
        self.write("file")
        self.fails(errno.ENOTDIR, self.files.move, self.path("d"), self.path("file/x"))
        self.fails(errno.EXDEV, self.files.move, self.path("file"), "/dev/shm/ramet-file",
                   says="another file system")
        self.assertEqual(sorted(os.listdir(self.top)), ["d", "file"])

    def mode(self, name):
        return stat.S_IMODE(os.lstat(self.path(name)).st_mode)

    def test_permissions_are_changed(self):
        self.files.mkdir(self.path("d/in"), 0o700, True)
        self.write("d/in/file")
        os.chmod(self.path("d/in/file"), 0o600)
        os.symlink("d/in/file", self.path("link"))
        os.symlink("/etc/passwd", self.path("d/out"))
        before = os.stat("/etc/passwd").st_mode
        self.files.change(self.path("link"), 0o4711)
        self.assertEqual(self.mode("d/in/file"), 0o4711)
        self.files.change(self.path("d"), 0o750)
        self.assertEqual((self.mode("d"), self.mode("d/in")), (0o750, 0o700))
        self.files.change(self.path("d"), 0o770, recursive=True)
        self.assertEqual({self.mode(name) for name in ("d", "d/in", "d/in/file")}, {0o770})
        self.assertEqual(os.stat("/etc/passwd").st_mode, before)
        self.fails(errno.ENOENT, self.files.change, self.path("no"), 0o700)
        self.fails(errno.ENOENT, self.files.change, self.path("no"), 0o700, recursive=True)

    @unittest.skipUnless(os.geteuid() == 0, "only root may change owners")
    def test_owners_are_changed(self):
        def owners(*names):
            return [(os.lstat(self.path(n)).st_uid, os.lstat(self.path(n)).st_gid) for n in names]

        self.files.mkdir(self.path("d"))
        self.write("d/file")
        os.chmod(self.path("d/file"), 0o4755)
        os.symlink("/etc/passwd", self.path("d/out"))
        self.files.change(self.path("d"), uid=12)
        self.assertEqual(owners("d", "d/file"), [(12, 0), (0, 0)])
        self.files.change(self.path("d"), uid=7, gid=34, recursive=True)
        self.assertEqual(owners("d", "d/file", "d/out"), [(7, 34)] * 3)
        self.assertEqual(os.stat("/etc/passwd").st_uid, 0)
        self.assertEqual(self.mode("d/file"), 0o755)  # as after chown(1)
        self.files.change(self.path("d/file"), 0o4755, gid=35)
        self.assertEqual((owners("d/file"), self.mode("d/file")), ([(7, 35)], 0o4755))

    def test_deep_folder_is_changed(self):
        deep = os.path.join(*["d"] * 300)
        self.files.mkdir(self.path(deep), 0, True)
        self.files.change(self.path("d"), 0o711, recursive=True)
        self.assertEqual(self.mode(deep), 0o711)


class Requests(FileTest):
    PATH = text("/tmp/x")
    MALFORMED = (
        (PUT, b""), (PUT, struct.pack("<QI", 1, 0)), (PUT, struct.pack("<QI", 1, 0o10000) + PATH),
        (PUT, struct.pack("<QI", 1, 0) + PATH + b"x"), (PUT, struct.pack("<QI", 1, 0) + text("x")),
        (PUT, struct.pack("<QI", 1, 0) + text("")), (PUT, struct.pack("<QI", 1, 0) + text("/\0")),
        (PUT, struct.pack("<QI", 1, 0) + text("/" * 4097)), (GET, struct.pack("<Q", 0) + PATH),
        (WALK, b"\2" + bytes(8) + PATH + text("")), (WALK, bytes(9) + PATH), (REMOVE, b"\2" + PATH),
        (MKDIR, struct.pack("<IB", 0o10000, 0) + PATH), (MKDIR, struct.pack("<IB", 0, 2) + PATH),
        (MOVE, b"\0" + PATH), (MOVE, b"\2" + PATH + PATH), (MOVE, b"\0" + PATH + text("x")),
        (CHANGE, struct.pack("<IIIB", 0o10000, 0, 0, 0) + PATH),
        (CHANGE, struct.pack("<IIIB", 0, 0, 0, 2) + PATH), (CHANGE, struct.pack("<II", 0, 0) + PATH),
        (DATA, b"x"), (GROW, b""), (GROW, b"x" * 9),
    )

    def test_malformed_requests_end_the_connection(self):
        for kind, payload in self.MALFORMED:
            with self.subTest(kind=kind, payload=payload[:40]):
                client = self.connect()
                client.send(kind, payload)
                with self.assertRaises((EOFError, ConnectionError)):
                    client.recv()

    def test_grow(self):
        self.assertEqual(self.client.ask(GROW, struct.pack("<Q", 5 << 30)), (DONE, b""))
        self.agent.wait_until_logged("dry: grow the root file system to 5368709120 bytes")


UNSHARE = ("unshare", "--mount", "--propagation", "private")
CAN_MOUNT = subprocess.run([*UNSHARE, "mount", "-t", "tmpfs", "x", "/mnt"],
                           stderr=subprocess.DEVNULL, check=False).returncode == 0


@unittest.skipUnless(CAN_MOUNT, "mounts are not permitted here")
class Disks(FileTest):
    """An agent with a small disk on /mnt, in its own mount namespace."""

    prefix = (*UNSHARE, "sh", "-c", """
        set -e
        mount -t tmpfs -o size=1m,nr_inodes=20 x /mnt
        mkdir -p /mnt/d/in /mnt/ro
        mount -t tmpfs x /mnt/d/in
        echo kept >/mnt/d/in/file
        mount -t tmpfs -o ro x /mnt/ro
        exec "$@"
    """, "sh")

    def setUp(self):
        super().setUp()
        self.addCleanup(self.clean)

    def clean(self):
        for name in ("old", "file"):
            try:
                self.more().remove(f"/mnt/{name}")
            except Failed:
                pass

    def names(self):
        return [info.name for info in self.files.list("/mnt")]

    def test_full_disk_keeps_the_old_file(self):
        self.files.put("/mnt/old", b"old" * 1000)
        self.fails(errno.ENOSPC, self.files.put, "/mnt/old", b"x" * 2_000_000, says="2000000 bytes")
        # Each file fits alone, but not both: a check of the free space at the start is not enough.
        first, second = self.more(), self.more()
        for client in (first, second):
            client.begin_put("/mnt/old", 700_000)
            client.send_data(b"1")
        while len(self.names()) < 5:
            time.sleep(0.01)
        first.send_data(b"2" * 699_999)
        second.send_data(b"3" * 699_999)
        codes = []
        for client in (first, second):
            try:
                client.answer()
                codes.append(0)
            except Failed as failed:
                codes.append(failed.errno)
        self.assertIn(sorted(codes), ([0, errno.ENOSPC], [errno.ENOSPC, errno.ENOSPC]))
        self.assertEqual(self.names(), [b"d", b"old", b"ro"])
        self.assertIn(self.files.get("/mnt/old")[:3], (b"old", b"122", b"133"))
        for client in (first, second):
            self.assertEqual(client.client.ask(PING)[0], PONG)

    def test_read_only_disk_is_an_error(self):
        self.fails(errno.EROFS, self.files.put, "/mnt/ro/file", b"x")
        self.fails(errno.EROFS, self.files.mkdir, "/mnt/ro/x")

    def test_mount_points_are_not_removed(self):
        self.fails(errno.EBUSY, self.files.remove, "/mnt/d", True)
        self.fails(errno.EBUSY, self.files.remove, "/mnt/d/in", True)
        self.assertEqual(self.files.get("/mnt/d/in/file"), b"kept\n")


if __name__ == "__main__":
    unittest.main()
