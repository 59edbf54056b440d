# SPDX-License-Identifier: Apache-2.0
"""AGENT_TREE: the entries of a list, their order, and conditions that must not stop a list."""

import errno
import hashlib
import os
import select
import shutil
import socket
import stat
import struct
import subprocess
import tempfile
import threading
import unittest

import harness
from harness import BASH, DONE, ENTRY, ERROR, PING, PONG, TREE, AgentTest, frame, text


def tree_payload(*paths):
    return struct.pack("<I", len(paths)) + b"".join(text(path) for path in paths)


class Entry:
    def __init__(self, payload):
        (size,) = struct.unpack_from("<I", payload)
        self.path = payload[4 : 4 + size]
        fields = struct.unpack_from("<IIIQI", payload, 4 + size)
        self.mode, self.uid, self.gid, self.size, length = fields
        self.content = payload[4 + size + 24 :]
        assert len(self.content) == length

    def __repr__(self):
        return f"<{self.path!r} {self.mode:o} {self.size} {self.content.hex()}>"


def sha(data):
    return hashlib.sha256(data).digest()


def rank(path):
    """Returns a key that sorts a folder's content right after the folder."""
    return [byte + 1 if byte != ord("/") else 0 for byte in path]


class Trees(AgentTest):
    def setUp(self):
        super().setUp()
        self.top = tempfile.mkdtemp(prefix="ramet-tree-").encode()
        self.addCleanup(subprocess.run, ["rm", "-rf", self.top])

    def path(self, name):
        return os.path.join(self.top, name if isinstance(name, bytes) else name.encode())

    def write(self, name, data=b"", mode=0o644):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        os.chmod(path, mode)
        return path

    def ask(self, *paths, client=None):
        (client or self.client).send(TREE, tree_payload(*paths))

    def answer(self, client=None):
        """Returns the entries in order of arrival, and the final error or None."""
        entries = []
        while True:
            kind, payload = (client or self.client).recv()
            if kind == DONE:
                return entries, None
            if kind == ERROR:
                return entries, (struct.unpack_from("<I", payload)[0], payload[8:].decode())
            self.assertEqual(kind, ENTRY)
            entries.append(Entry(payload))

    def list(self, *paths):
        self.ask(*(paths or (self.top,)))
        entries, error = self.answer()
        self.assertIsNone(error)
        names = [entry.path for entry in entries]
        self.assertEqual(names, sorted(names, key=rank))
        self.assertEqual(len(names), len(set(names)))
        return {os.path.relpath(entry.path, self.top): entry for entry in entries}

    def test_every_type_of_file_is_listed(self):
        self.write("file", b"content", 0o4751)
        self.write("empty")
        os.mkdir(self.path("folder"), 0o711)
        os.symlink("no/where\n", self.path("link"))
        os.mkfifo(self.path("fifo"), 0o600)
        os.mknod(self.path("null"), stat.S_IFCHR | 0o666, os.makedev(1, 3))
        server = socket.socket(socket.AF_UNIX)
        self.addCleanup(server.close)
        server.bind(self.path("socket"))
        os.chown(self.path("file"), 1234, 5678)
        os.chmod(self.path("file"), 0o4751)
        seen = self.list()
        self.assertEqual(set(seen), {b".", b"file", b"empty", b"folder", b"link", b"fifo", b"null",
                                     b"socket"})
        for name, entry in seen.items():
            st = os.lstat(self.path(name))
            self.assertEqual((entry.mode, entry.uid, entry.gid), (st.st_mode, st.st_uid, st.st_gid))
        self.assertEqual((seen[b"file"].size, seen[b"file"].content), (7, sha(b"content")))
        self.assertEqual((seen[b"empty"].size, seen[b"empty"].content), (0, sha(b"")))
        self.assertEqual((seen[b"link"].size, seen[b"link"].content), (0, b"no/where\n"))
        self.assertEqual((seen[b"null"].size, seen[b"null"].content), (os.makedev(1, 3), b""))
        for name in (b"folder", b"fifo", b"socket"):
            self.assertEqual((seen[name].size, seen[name].content), (0, b""))

    def test_digests_of_many_sizes(self):
        sizes = (1, 55, 56, 63, 64, 65, 4095, 4096, 262_143, 262_144, 262_145, 1_000_003)
        data = os.urandom(max(sizes))
        for size in sizes:
            self.write(f"s{size}", data[:size])
        seen = self.list()
        for size in sizes:
            entry = seen[b"s%d" % size]
            self.assertEqual((entry.size, entry.content), (size, sha(data[:size])))

    def test_unusual_names_are_sorted(self):
        names = [b"a", b"a b", b"a\nb", b"a.b", b"ab", b"A", b"\xff\xfe", b"\x01", b"-", b"~",
                 "gr\u00fc\u00df".encode(), b"n" * 254, b"\\", b"a\tb", b"..."]
        for name in names:
            self.write(name + b"/in", name)
            self.write(name + b"0", name)
        self.assertEqual(set(self.list()), {b".", *names, *(name + b"/in" for name in names),
                                            *(name + b"0" for name in names)})

    def test_path_longer_than_path_max_is_listed(self):
        depth = 2100
        fd = os.open(self.top, os.O_RDONLY)
        for _ in range(depth):
            os.mkdir(b"d", dir_fd=fd)
            deeper = os.open(b"d", os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = deeper
        file = os.open(b"f", os.O_WRONLY | os.O_CREAT, dir_fd=fd)
        os.write(file, b"deep")
        os.close(file)
        os.close(fd)
        seen = self.list()
        self.assertEqual(len(seen), depth + 2)
        self.assertEqual(seen[b"d/" * depth + b"f"].content, sha(b"deep"))

    def test_paths_too_long_for_an_answer(self):
        fd = os.open(self.top, os.O_RDONLY)
        for _ in range(250):
            os.mkdir(b"d" * 255, dir_fd=fd)
            deeper = os.open(b"d" * 255, os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = deeper
        os.close(fd)
        self.ask(self.top)
        entries, error = self.answer()
        self.assertEqual(error[0], errno.ENAMETOOLONG)
        self.assertGreater(len(entries), 200)
        self.assertEqual(self.client.ask(PING)[0], PONG)

    def test_many_names_in_one_folder(self):
        for i in range(20_000):
            os.symlink(b"x", self.path(b"%d" % i))
        self.assertEqual(len(self.list()), 20_001)

    def test_hard_links_and_sparse_files(self):
        self.write("one", b"same")
        os.link(self.path("one"), self.path("two"))
        with open(self.path("sparse"), "wb") as file:
            file.truncate(50_000_000)
        seen = self.list()
        self.assertEqual(seen[b"one"].content, seen[b"two"].content)
        self.assertEqual((seen[b"sparse"].size, seen[b"sparse"].content),
                         (50_000_000, sha(bytes(50_000_000))))

    def test_several_paths_give_one_sorted_list(self):
        for name in ("b/x", "a/y", "a.z", "a/b/c"):
            self.write(name, b"1")
        self.assertEqual(list(self.list(self.path("b"), self.path("a.z"), self.path("a/b"),
                                        self.path("a"), self.path("a/y"), self.path("missing"),
                                        self.path("a/y/no"), self.path("b"))),
                         [b"a", b"a/b", b"a/b/c", b"a/y", b"a.z", b"b", b"b/x"])

    def test_paths_are_normalized(self):
        self.write("a/b", b"1")
        for path in (self.path("a/"), self.path("a//"), self.path("./a/."), b"//" + self.path("a")):
            self.assertEqual(list(self.list(path)), [b"a", b"a/b"])
        self.ask(self.path("a/../a"))
        self.assertEqual(self.answer()[1][0], errno.EINVAL)

    def test_no_paths(self):
        self.ask()
        self.assertEqual(self.answer(), ([], None))

    def test_links_are_not_followed(self):
        self.write("real/file", b"1")
        os.symlink(b"real", self.path("link"))
        os.symlink(b"loop", self.path("loop"))
        self.assertEqual(set(self.list()), {b".", b"real", b"real/file", b"link", b"loop"})
        self.assertEqual(set(self.list(self.path("link"))), {b"link"})

    def test_virtual_files_are_not_read(self):
        self.ask("/proc/sys/kernel", "/proc/kcore", "/proc/kmsg", "/sys/kernel/mm")
        entries, error = self.answer()
        self.assertIsNone(error)
        self.assertGreater(len(entries), 20)
        for entry in entries:
            if stat.S_ISREG(entry.mode):
                self.assertEqual(entry.content, b"" if entry.size else sha(b""))

    def test_files_may_appear_and_vanish_meanwhile(self):
        stop = threading.Event()

        def churn():
            for i in range(10**9):
                if stop.is_set():
                    return
                name = self.write(f"churn/{i % 50}/file", b"x" * (i % 5000))
                if i % 3 == 0:
                    os.unlink(name)
                    os.mkfifo(name)
                    os.unlink(name)
                    shutil.rmtree(os.path.dirname(name))

        thread = threading.Thread(target=churn)
        thread.start()
        try:
            for _ in range(50):
                self.assertIn(b".", self.list())
        finally:
            stop.set()
            thread.join()

    def test_file_that_grows_does_not_prevent_the_end(self):
        path = self.write("log", b"x")
        writer = subprocess.Popen(["sh", "-c", 'exec yes >>"$0"', path])
        try:
            for _ in range(5):
                entry = self.list()[b"log"]
                with open(path, "rb") as file:
                    self.assertEqual(entry.content, sha(file.read(entry.size)))
                os.truncate(path, 0)
        finally:
            writer.kill()
            writer.wait()

    def test_agent_serves_others_during_a_list(self):
        """A host that does not read a long list blocks nobody; its disconnect ends the list."""
        slow = self.connect()
        self.ask("/usr", client=slow)
        self.assertEqual(slow.recv()[0], ENTRY)
        self.assert_ends(self.client.run("print(1)"), out="1\n")
        life = os.pidfd_open(self.lister())
        self.addCleanup(os.close, life)
        slow.close()
        self.assertTrue(select.select([life], [], [], harness.TIMEOUT)[0])

    def lister(self):
        with open(f"/proc/{self.agent.process.pid}/task/{self.agent.process.pid}/children") as f:
            return int(f.read().split()[-1])

    def test_lists_above_the_limit_wait(self):
        """The 32 running lists do not end, since their folder has more entries than a socket holds."""
        for i in range(4000):
            self.write(f"many/{i:0200}")
        os.mkdir(self.path("one"))
        slow = [self.connect() for _ in range(32)]
        for client in slow:
            self.ask(self.path("many"), client=client)
            self.assertEqual(client.recv()[0], ENTRY)
        self.ask(self.path("one"))
        left = self.connect()
        self.ask(self.path("one"), client=left)
        left.close()
        self.assertEqual(self.connect().ask(PING)[0], PONG)
        self.assertEqual(select.select([self.client.sock], [], [], 0)[0], [])
        for client in slow:
            client.close()
        entries, error = self.answer()
        self.assertEqual((len(entries), error), (1, None))

    def test_killed_lister_ends_the_connection(self):
        slow = self.connect()
        self.ask("/usr", client=slow)
        slow.recv()
        os.kill(self.lister(), 9)
        with self.assertRaises(EOFError):
            while True:
                slow.recv()
        self.assert_ends(self.client.run("print(1)"), out="1\n")

    def test_pipelined_requests_are_answered_in_order(self):
        for _ in range(50):
            self.client.sock.sendall(frame(TREE, tree_payload(self.top)) + frame(PING))
            self.assertEqual(len(self.answer()[0]), 1)
            self.assertEqual(self.client.recv()[0], PONG)

    def test_previous_answers_come_first(self):
        self.client.sock.sendall(b"".join(frame(PING) for _ in range(100)) +
                                 frame(TREE, tree_payload(self.top)))
        for _ in range(100):
            self.assertEqual(self.client.recv()[0], PONG)
        self.assertEqual(len(self.answer()[0]), 1)

    def test_during_a_call(self):
        self.client.start("echo ready; exec sleep 1000", BASH)
        self.client.wait_for_output("ready\n")
        other = self.connect()
        self.ask(self.top, client=other)
        self.assertEqual(len(self.answer(other)[0]), 1)
        other.interrupt()
        self.client.finish()

    MALFORMED = (b"", struct.pack("<I", 65) + text("/") * 65, struct.pack("<I", 2) + text("/"),
                 tree_payload("/") + b"x", tree_payload("relative"), tree_payload(""),
                 tree_payload("/a\0b"), tree_payload("/" * 4097), tree_payload("/")[:-1])

    def test_malformed_requests_end_the_connection(self):
        for payload in self.MALFORMED:
            with self.subTest(payload=payload[:40]):
                client = self.connect()
                client.send(TREE, payload)
                with self.assertRaises((EOFError, ConnectionError)):
                    client.recv()


UNSHARE = ("unshare", "--mount", "--propagation", "private")
CAN_MOUNT = subprocess.run([*UNSHARE, "mount", "-t", "tmpfs", "x", "/mnt"],
                           stderr=subprocess.DEVNULL, check=False).returncode == 0


@unittest.skipUnless(CAN_MOUNT, "mounts are not permitted here")
class Mounts(unittest.TestCase):
    """An agent with mounts below /mnt: /mnt/tmpfs, and /mnt/loop, which is /mnt itself."""

    SCRIPT = """
        set -e
        mount -t tmpfs x /mnt
        mkdir /mnt/tmpfs /mnt/loop /mnt/plain
        echo 1 >/mnt/one
        echo 1 >/mnt/plain/file
        mount -t tmpfs x /mnt/tmpfs
        mkdir /mnt/tmpfs/in
        echo 1 >/mnt/tmpfs/in/file
        mount --bind /mnt /mnt/loop
        mount --bind /etc/passwd /mnt/one
        exec "$@"
    """

    list = Trees.list
    ask = Trees.ask
    answer = Trees.answer

    def setUp(self):
        self.top = b"/mnt"
        self.agent = harness.Agent(prefix=(*UNSHARE, "sh", "-c", self.SCRIPT, "sh"))
        self.addCleanup(self.agent.stop)
        self.client = self.agent.client()
        self.addCleanup(self.client.close)

    def test_mounts_are_entered_only_on_request(self):
        top = [b".", b"loop", b"one", b"plain", b"plain/file", b"tmpfs"]
        inside = [b"tmpfs/in", b"tmpfs/in/file"]
        looped = [b"loop/" + name for name in top[1:]]
        self.assertEqual(list(self.list("/mnt")), top)
        self.assertEqual(list(self.list("/mnt/tmpfs", "/mnt")), top + inside)
        self.assertEqual(list(self.list("/mnt", "/mnt/tmpfs/in/file")), top + inside)
        self.assertEqual(list(self.list("/mnt/tmpfs/in")), inside)
        self.assertEqual(list(self.list("/mnt", "/mnt/loop")), top[:2] + looped + top[2:])
        with open("/etc/passwd", "rb") as file:
            self.assertEqual(self.list("/mnt")[b"one"].content, sha(file.read()))


if __name__ == "__main__":
    unittest.main()
