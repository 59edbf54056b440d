# SPDX-License-Identifier: Apache-2.0
"""AGENT_WALK to AGENT_HELLO: deep lists, writes in place, archives and watches."""

import errno
import io
import os
import pwd
import select
import shutil
import signal
import socket
import stat
import struct
import tarfile
import tempfile
import threading
import time
import unittest

from harness import (BYTES, DATA, DONE, ERROR, EVENT, HELLO, NODE, PACK, PONG, UNPACK, VERSION, WALK,
                     WATCH, WRITE, AgentTest, frame, text)

UNSIZED = (1 << 64) - 1
NEW, AT, APPEND = range(3)
EVENTS = ["watching", "create", "write", "remove", "rename", "chmod", "overflow"]


class Node:
    """A parsed AGENT_NODE frame."""

    def __init__(self, payload):
        self.name, rest = split(payload)
        self.mode, self.uid, self.gid, self.size, self.mtime_ns = struct.unpack_from("<IIIQq", rest)
        self.target, rest = split(rest[28:])
        self.user, rest = split(rest)
        self.group, rest = split(rest)
        assert not rest


def split(payload):
    (size,) = struct.unpack_from("<I", payload)
    return payload[4 : 4 + size], payload[4 + size :]


class Failed(Exception):
    def __init__(self, payload):
        self.errno, _ = struct.unpack_from("<II", payload)
        self.text = payload[8:].decode("utf-8", "replace")
        super().__init__(self.text)


class FolderTest(AgentTest):
    def setUp(self):
        super().setUp()
        self.folder = tempfile.mkdtemp(prefix="ramet-folder-")
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def make(self, name, data=b""):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        return path

    def make_deep(self):
        """Makes 70 folders in each other: their path is longer than a path may be. Returns the name of all."""
        part, base = "x" * 100, os.open(self.folder, os.O_RDONLY)
        for _ in range(70):
            os.mkdir(part, dir_fd=base)
            deeper = os.open(part, os.O_RDONLY, dir_fd=base)
            os.close(base)
            base = deeper
        os.close(base)
        return part

    def content(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def answers(self, client=None):
        """Returns all frames before DONE."""
        frames = []
        while True:
            kind, payload = (client or self.client).recv()
            if kind == ERROR:
                raise Failed(payload)
            if kind == DONE:
                return frames
            frames.append((kind, payload))

    def fails(self, number, fn, *args, **options):
        with self.assertRaises(Failed) as failed:
            fn(*args, **options)
        self.assertEqual(failed.exception.errno, number, failed.exception.text)
        return failed.exception.text


class WalkTest(FolderTest):
    def walk(self, path=None, depth=64, limit=0, after="", link=False):
        self.client.send(
            WALK, struct.pack("<BII", link, depth, limit) + text(path or self.folder) + text(after))
        frames = self.answers()
        self.assertEqual({kind for kind, _ in frames} - {NODE}, set())
        return [Node(payload) for _, payload in frames]

    def names(self, **options):
        return [node.name.decode() for node in self.walk(**options)]

    def fill(self):
        for name in ["b/c/d", "b/c.txt", "b/a", "a", "c-", "c/x", "c0"]:
            self.make(name)

    def test_folder_comes_before_its_content_and_names_are_sorted(self):
        self.fill()
        self.assertEqual(self.names(), ["a", "b", "b/a", "b/c", "b/c/d", "b/c.txt", "c", "c/x", "c-", "c0"])

    def test_depth_ends_the_list(self):
        self.fill()
        self.assertEqual(self.names(depth=1), ["a", "b", "c", "c-", "c0"])
        self.assertEqual(self.names(depth=2), ["a", "b", "b/a", "b/c", "b/c.txt", "c", "c/x", "c-", "c0"])

    def test_list_continues_after_every_name(self):
        self.fill()
        names = self.names()
        for i, name in enumerate(names):
            self.assertEqual(self.names(after=name), names[i + 1 :], name)
            self.assertEqual(self.names(after=name, limit=1), names[i + 1 : i + 2], name)
        self.assertEqual(self.names(after="b/c/gone"), names[names.index("b/c.txt") :])
        self.assertEqual(self.names(after="b/zz"), names[names.index("c") :])
        self.assertEqual(self.names(after="a/in-a-file"), names[1:])
        self.assertEqual(self.names(after="zz"), [])

    def test_limit_cuts_the_list(self):
        self.fill()
        self.assertEqual(self.names(limit=3), ["a", "b", "b/a"])

    def test_links_are_listed_and_not_entered(self):
        self.fill()
        os.symlink("b", self.path("link"))
        os.symlink(self.folder, self.path("loop"))
        nodes = {node.name: node for node in self.walk()}
        self.assertEqual(nodes[b"link"].target, b"b")
        self.assertTrue(stat.S_ISLNK(nodes[b"loop"].mode))
        self.assertFalse([name for name in nodes if name.startswith((b"link/", b"loop/"))])

    def test_mounted_file_systems_are_listed_and_not_entered(self):
        nodes = [node.name for node in self.walk("/", depth=2)]
        self.assertIn(b"proc", nodes)
        self.assertFalse([name for name in nodes if name.startswith(b"proc/")])
        self.assertTrue(self.walk("/proc", depth=1))  # unless it is the path itself

    def test_depth_0_describes_the_path(self):
        path = self.make("a", b"12345")
        os.symlink("a", self.path("link"))
        (node,) = self.walk(path, depth=0)
        self.assertEqual((node.name, node.size), (path.encode(), 5))
        (node,) = self.walk(self.path("link"), depth=0)
        self.assertTrue(stat.S_ISREG(node.mode))
        (node,) = self.walk(self.path("link"), depth=0, link=True)
        self.assertEqual((stat.S_ISLNK(node.mode), node.target), (True, b"a"))
        self.fails(errno.ENOENT, self.walk, self.path("none"), depth=0)

    def test_owners_have_names(self):
        self.make("mine")
        (node,) = self.walk()
        self.assertEqual(node.user.decode(), pwd.getpwuid(os.getuid()).pw_name)
        self.assertTrue(node.group)

    @unittest.skipUnless(os.getuid() == 0, "needs root")
    def test_owner_without_a_name_has_an_empty_one(self):
        os.chown(self.make("a"), 54321, 54322)
        (node,) = self.walk()
        self.assertEqual((node.uid, node.gid, node.user, node.group), (54321, 54322, b"", b""))

    def test_deep_folders_are_listed_to_the_limit(self):
        part = self.make_deep()
        names = self.names()
        self.assertEqual(len(names), 64)
        self.assertEqual(names[-1], "/".join([part] * 64))

    def test_errors(self):
        self.fails(errno.ENOENT, self.walk, self.path("none"))
        self.fails(errno.ENOTDIR, self.walk, self.make("file"))

    def test_too_deep_breaks_the_protocol(self):
        with self.assertRaises(EOFError):
            self.walk(depth=65)


class WriteTest(FolderTest):
    def write(self, name, data, how=NEW, offset=0, mode=0, sized=True, step=65536):
        size = len(data) if sized else UNSIZED
        self.client.send(WRITE, struct.pack("<BQQI", how, offset, size, mode) + text(self.path(name)))
        for at in range(0, len(data), step):
            self.client.send(DATA, data[at : at + step])
        if not sized:
            self.client.send(DATA)
        self.assertEqual(self.answers(), [])

    def test_inode_owner_and_mode_stay(self):
        path = self.make("a", b"old and longer")
        os.chmod(path, 0o4711)
        if os.getuid() == 0:
            os.chown(path, 12, 34)
            os.chmod(path, 0o711)
        before = os.stat(path)
        self.write("a", b"new", mode=0o600)
        after = os.stat(path)
        self.assertEqual(self.content("a"), b"new")
        for what in ("st_ino", "st_uid", "st_gid"):
            self.assertEqual(getattr(after, what), getattr(before, what))
        self.assertEqual(after.st_mode & 0o777, 0o711)

    def test_hard_links_and_symbolic_links_see_the_change(self):
        self.make("a", b"old")
        os.link(self.path("a"), self.path("hard"))
        os.symlink("a", self.path("soft"))
        self.write("soft", b"new")
        self.assertEqual(self.content("hard"), b"new")
        self.assertTrue(os.path.islink(self.path("soft")))

    def test_write_at_an_offset_keeps_the_rest(self):
        self.make("a", b"0123456789")
        self.write("a", b"xyz", AT, 4)
        self.assertEqual(self.content("a"), b"0123xyz789")
        self.write("a", b"end", AT, 12)
        self.assertEqual(self.content("a"), b"0123xyz789\0\0end")

    def test_append(self):
        self.write("log", b"one\n", APPEND)
        self.write("log", b"two\n", APPEND, sized=False)
        self.assertEqual(self.content("log"), b"one\ntwo\n")

    def test_missing_file_and_folders_are_created(self):
        self.write("x/y/new", b"1", mode=0o750)
        self.write("x/other", b"2")
        self.assertEqual(os.stat(self.path("x/y/new")).st_mode & 0o7777, 0o750)
        self.assertEqual(os.stat(self.path("x/other")).st_mode & 0o7777, 0o644)

    def test_data_without_a_size_ends_with_an_empty_frame(self):
        data = os.urandom(300000)
        for step in (1, 65536, 1000):
            part = data[: 500 if step == 1 else len(data)]
            self.write("big", part, sized=False, step=step)
            self.assertEqual(self.content("big"), part)
        self.write("big", b"", sized=False)
        self.assertEqual(self.content("big"), b"")
        self.client.send(WALK, bytes(9) + text(self.path("big")) + text(""))  # nothing was read too far
        self.assertEqual(len(self.answers()), 1)

    def test_data_is_discarded_after_an_error(self):
        os.mkdir(self.path("folder"))
        os.mkfifo(self.path("fifo"))
        for sized in (True, False):
            self.fails(errno.EISDIR, self.write, "folder", bytes(300000), sized=sized)
            self.fails(errno.EINVAL, self.write, "fifo", bytes(300000), sized=sized)
        self.fails(errno.EFBIG, self.write, "a", b"x", AT, 1 << 63)
        self.fails(errno.ENOSPC, self.write_announced, 1 << 60)

    def write_announced(self, size):
        self.client.send(WRITE, struct.pack("<BQQI", NEW, 0, size, 0) + text(self.path("huge")))
        kind, payload = self.client.recv()
        self.assertEqual(kind, ERROR)
        raise Failed(payload)

    def test_unknown_way_breaks_the_protocol(self):
        with self.assertRaises(EOFError):
            self.write("a", b"", how=3)


class ArchiveTestBase(FolderTest):
    def pack(self, path):
        self.client.send(PACK, text(path))
        frames = self.answers()
        self.assertEqual({kind for kind, _ in frames} - {BYTES}, set())
        return b"".join(payload for _, payload in frames)

    def unpack(self, path, data, sized=True, step=65536):
        self.client.send(UNPACK, struct.pack("<Q", len(data) if sized else UNSIZED) + text(path))
        for at in range(0, len(data), step):
            self.client.send(DATA, data[at : at + step])
        if not sized:
            self.client.send(DATA)
        self.assertEqual(self.answers(), [])

    def archive(self, *entries, form=tarfile.PAX_FORMAT):
        """Makes an archive of (name, data or type, attributes)."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=form) as tar:
            for name, what, *more in entries:
                info = tarfile.TarInfo(name)
                info.uid, info.gid = os.getuid(), os.getgid()
                for key, value in (more[0] if more else {}).items():
                    setattr(info, key, value)
                if isinstance(what, bytes) and len(what) != 1:
                    info.size = len(what)
                    tar.addfile(info, io.BytesIO(what))
                else:
                    info.type = what
                    tar.addfile(info)
        return out.getvalue()


class ArchiveTest(ArchiveTestBase):
    def test_pack_and_unpack_keep_everything(self):
        long_name = "n" * 200
        self.make("from/a", b"hello")
        self.make(f"from/{long_name}/{long_name}/x", os.urandom(200000))
        self.make("from/name\xe9".encode("latin-1").decode("utf-8", "surrogateescape"), b"1")
        os.mkdir(self.path("from/empty"), 0o700)
        os.symlink("../a", self.path("from/empty/link"))
        os.symlink("t" * 300, self.path("from/long-link"))
        os.link(self.path("from/a"), self.path("from/hard"))
        os.mkfifo(self.path("from/fifo"))
        os.chmod(self.path("from/a"), 0o4751)
        os.utime(self.path("from/a"), ns=(1, 1234567890123456789))
        os.utime(self.path("from/empty"), ns=(1, 987654321000000001))
        data = self.pack(self.path("from"))
        for sized, step in ((True, 65536), (False, 65536), (True, 777)):
            to = self.path(f"to-{sized}-{step}")
            self.unpack(to, data, sized, step)
            self.assertEqual(self.picture(to), self.picture(self.path("from")))
        first = os.stat(self.path("to-True-777/a"))
        self.assertEqual(os.stat(self.path("to-True-777/hard")).st_ino, first.st_ino)

    def picture(self, top):
        """Returns all that is in the folder, with its attributes and content."""
        found = {}
        for folder, folders, files in os.walk(os.fsencode(top)):
            for name in folders + files:
                path = os.path.join(folder, name)
                info = os.lstat(path)
                content = None
                if stat.S_ISLNK(info.st_mode):
                    content = os.readlink(path)
                elif stat.S_ISREG(info.st_mode):
                    with open(path, "rb") as file:
                        content = file.read()
                found[os.path.relpath(path, os.fsencode(top))] = (
                    info.st_mode, info.st_uid, info.st_gid, info.st_mtime_ns, content)
        return found

    def test_all_formats_are_read(self):
        for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
            name = "folder/" * 12 + "x" * 90  # needs ustar's prefix
            data = self.archive((name, b"hello"), ("link", tarfile.SYMTYPE, {"linkname": "x"}), form=form)
            self.unpack(self.path(f"to{form}"), data)
            self.assertEqual(self.content(f"to{form}/{name}"), b"hello")
        name = "long/" * 60 + "y" * 200
        for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
            self.unpack(self.path(f"to{form}"), self.archive((name, b"1!"), form=form))
            self.assertEqual(self.content(f"to{form}/{name}"), b"1!")

    def test_attributes_before_1970_and_huge_ids(self):
        if os.getuid():
            self.skipTest("needs root")
        for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
            data = self.archive(("a", b"12", {"mtime": -5, "uid": 3000000000, "gid": 7}), form=form)
            self.unpack(self.folder, data)
            info = os.stat(self.path("a"))
            self.assertEqual((info.st_mtime, info.st_uid, info.st_gid), (-5, 3000000000, 7))

    def test_existing_files_are_replaced_and_others_stay(self):
        self.make("a", b"old")
        self.make("b", b"stays")
        os.link(self.path("a"), self.path("a-link"))
        self.unpack(self.folder, self.archive(("a", b"new"), ("d/e", b"12")))
        self.assertEqual([self.content(name) for name in ("a", "b", "d/e", "a-link")],
                         [b"new", b"stays", b"12", b"old"])
        self.assertEqual(sorted(os.listdir(self.folder)), ["a", "a-link", "b", "d"])

    def test_attributes_of_an_existing_folder_itself_stay(self):
        os.chmod(self.folder, 0o711)
        data = self.archive(("./", tarfile.DIRTYPE, {"mode": 0o700}), ("./a", b"12"))
        self.unpack(self.folder, data)
        self.assertEqual(os.stat(self.folder).st_mode & 0o777, 0o711)
        self.unpack(self.path("new"), data)
        self.assertEqual(os.stat(self.path("new")).st_mode & 0o777, 0o700)

    def refused(self, *entries):
        return self.fails(errno.EBADMSG, self.unpack, self.path("in"), self.archive(*entries))

    def test_what_lies_outside_is_refused(self):
        self.make("out/x", b"safe")
        for name in ("../out/x", "a/../../out/x", self.path("out/x")):
            self.refused((name, b"evil"))
        link = tarfile.SYMTYPE
        for target in ("../out", self.path("out")):
            self.refused(("link", link, {"linkname": target}), ("link/x", b"evil"))
        self.refused(("hard", tarfile.LNKTYPE, {"linkname": "../out/x"}))
        self.refused(("l", link, {"linkname": "../out"}), ("h", tarfile.LNKTYPE, {"linkname": "l/x"}))
        self.assertEqual(self.content("out/x"), b"safe")
        self.assertEqual(os.listdir(self.path("out")), ["x"])

    def test_links_within_the_folder_are_followed(self):
        self.make("in/real/x", b"old")
        os.symlink("real", self.path("in/link"))
        self.unpack(self.path("in"), self.archive(("link/x", b"new"), ("link", tarfile.DIRTYPE)))
        self.assertEqual(self.content("in/real/x"), b"new")
        self.assertTrue(os.path.islink(self.path("in/link")))

    def test_devices_are_refused(self):
        for kind in (tarfile.CHRTYPE, tarfile.BLKTYPE):
            self.assertIn("device", self.refused(("x", kind)))

    def test_sparse_files_are_refused(self):
        headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9"}
        data = b"1\n4\n5\n".ljust(512, b"\0") + b"hello"
        self.assertIn("sparse", self.refused(("x", data, {"pax_headers": headers})))

    def test_file_in_the_way_of_a_folder_is_an_error(self):
        self.make("in/a", b"file")
        self.fails(errno.EEXIST, self.unpack, self.path("in"), self.archive(("a", tarfile.DIRTYPE)))
        self.fails(errno.ENOTDIR, self.unpack, self.path("in"), self.archive(("a/b", b"12")))
        self.fails(errno.ENOTDIR, self.unpack, self.path("in/a"), self.archive(("b", b"12")))

    def test_broken_archive_leaves_what_was_complete_and_says_so(self):
        data = self.archive(("a", b"1" * 1000), ("b", b"2" * 5000), form=tarfile.USTAR_FORMAT)
        for sized in (True, False):
            said = self.fails(errno.EBADMSG, self.unpack, self.path("in"), data[: 512 + 1024 + 512 + 99], sized)
            self.assertIn("after 1 entries", said)
            self.assertEqual(os.listdir(self.path("in")), ["a"])
        self.fails(errno.EBADMSG, self.unpack, self.path("in"), b"")
        self.fails(errno.EBADMSG, self.unpack, self.path("in"), b"no archive" * 1000)
        self.assertIn("gzip", self.fails(errno.EBADMSG, self.unpack, self.path("in"), b"\x1f\x8b" * 300))

    def test_nothing_is_left_of_a_file_when_the_connection_breaks(self):
        data = self.archive(("a", b"1" * 100000))
        self.client.send(UNPACK, struct.pack("<Q", len(data)) + text(self.path("in")))
        self.client.send(DATA, data[:50000])
        while not os.path.exists(self.path("in")) or not os.listdir(self.path("in")):
            time.sleep(0.01)
        self.client.close()
        while os.listdir(self.path("in")):
            time.sleep(0.01)

    def test_success_is_reported_only_after_all_data(self):
        data = self.archive(("a", b"hello"))
        self.client.send(UNPACK, struct.pack("<Q", UNSIZED) + text(self.path("in")))
        self.client.send(DATA, data)
        while not os.path.exists(self.path("in", "a")):
            time.sleep(0.01)
        self.assertEqual(select.select([self.client.sock], [], [], 0.5)[0], [])
        self.client.send(DATA, bytes(10000))
        self.client.send(DATA)
        self.assertEqual(self.answers(), [])

    def test_packed_entries(self):
        name = "n\xe4me"
        self.make(f"in/{name}", b"hello")
        os.mkdir(self.path("in/folder"))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.path("in/socket"))
            data = self.pack(self.path("in"))
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            entries = {entry.name: entry for entry in tar}
        self.assertEqual(sorted(entries), [".", "./folder", f"./{name}"])
        self.assertEqual(entries["./folder"].uname, pwd.getpwuid(os.getuid()).pw_name)
        self.assertEqual(set(entries[f"./{name}"].pax_headers) - {"path"}, {"mtime"})

    def test_other_file_systems_are_left_out(self):
        if not os.path.ismount("/dev/shm"):
            self.skipTest("nothing is mounted on /dev/shm")
        with tempfile.NamedTemporaryFile(dir="/dev/shm"):
            data = self.pack("/dev")
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            entries = {entry.name: entry for entry in tar}
        self.assertTrue(entries["./shm"].isdir())
        self.assertFalse([name for name in entries if name.startswith("./shm/")])
        null = entries["./null"]
        self.assertEqual((null.type, null.devmajor, null.devminor), (tarfile.CHRTYPE, 1, 3))

    def test_deep_folders_are_packed(self):
        part = self.make_deep()
        with tarfile.open(fileobj=io.BytesIO(self.pack(self.folder))) as tar:
            names = tar.getnames()
        self.assertEqual(names, ["/".join([".", *[part] * depth]) for depth in range(71)])

    def test_changes_while_a_folder_is_packed(self):
        for i in range(100):
            self.make(f"in/{i}/{i}", bytes(20000))
        stop = threading.Event()

        def change():
            while not stop.is_set():
                for i in range(100):
                    shutil.rmtree(self.path(f"in/{i}"), ignore_errors=True)
                    self.make(f"in/{i}/{i}", bytes(i * 50))
                    os.symlink("x", self.path(f"in/{i}/link"))

        changer = threading.Thread(target=change)
        changer.start()
        try:
            for _ in range(3):
                with tarfile.open(fileobj=io.BytesIO(self.pack(self.path("in")))) as tar:
                    self.assertEqual(tar.next().name, ".")
                    tar.getnames()
        finally:
            stop.set()
            changer.join()

    def test_pack_errors(self):
        self.fails(errno.ENOENT, self.pack, self.path("none"))
        self.fails(errno.ENOTDIR, self.pack, self.make("file"))

    def test_host_may_leave_in_the_middle(self):
        self.make("big", os.urandom(8 << 20))
        self.client.send(PACK, text(self.folder))
        self.client.recv()
        self.client.close()
        self.client = self.connect()
        self.assertGreater(len(self.pack(self.folder)), 8 << 20)


class NoTarTest(ArchiveTestBase):
    prefix = ("unshare", "-Urm", "sh", "-ec",
              'mount --bind "$(which false)" "$(which tar)"; exec "$@"', "sh")

    def test_archives_need_no_tar_in_the_guest(self):
        self.make("from/a", b"hello")
        self.unpack(self.path("to"), self.pack(self.path("from")))
        self.assertEqual(self.content("to/a"), b"hello")


class WatchTestBase(FolderTest):
    def watch(self, path=None, recursive=False):
        client = self.connect()
        self.root = path or self.folder
        client.send(WATCH, struct.pack("<B", recursive) + text(self.root))
        self.watching = client
        self.assertEqual(self.event(), ("watching", "", ""))

    def event(self):
        """Returns the next event as (type, path in the folder, new path)."""
        kind, payload = self.watching.recv()
        if kind == ERROR:
            raise Failed(payload)
        if kind == DONE:
            return None
        self.assertEqual(kind, EVENT)
        path, rest = split(payload[2:])
        to, rest = split(rest)
        self.assertEqual(rest, b"")
        self.is_folder = payload[1] == 1
        return (EVENTS[payload[0]], *(os.fsdecode(p)[len(self.root) + 1 :] for p in (path, to)))

    def events(self, count):
        return [self.event() for _ in range(count)]

    def until(self, wanted):
        """Reads events up to the wanted one; returns those before it."""
        before = []
        while (event := self.event()) != wanted:
            before.append(event)
        return before


class WatchTest(WatchTestBase):
    def test_changes_are_reported(self):
        self.watch()
        path = self.make("a")
        self.assertEqual(self.event(), ("create", "a", ""))
        with open(path, "ab", buffering=0) as file:
            file.write(b"x")
        self.assertEqual(self.event(), ("write", "a", ""))
        os.chmod(path, 0o600)
        self.assertEqual(self.event(), ("chmod", "a", ""))
        os.rename(path, self.path("b"))
        self.assertEqual(self.event(), ("rename", "a", "b"))
        os.unlink(self.path("b"))
        self.assertEqual(self.event(), ("remove", "b", ""))
        os.mkdir(self.path("d"))
        self.assertEqual((self.event(), self.is_folder), (("create", "d", ""), True))

    def test_only_with_recursive_folders_are_followed(self):
        os.mkdir(self.path("d"))
        self.watch()
        self.make("d/x")
        self.make("end")
        self.assertNotIn(("create", "d/x", ""), self.until(("create", "end", "")))

    def test_new_folders_are_followed(self):
        os.makedirs(self.path("old/deep"))
        self.watch(recursive=True)
        self.make("old/deep/x")
        self.assertEqual(self.event(), ("create", "old/deep/x", ""))
        os.makedirs(self.path("new/sub"))
        self.until(("create", "new/sub", ""))
        self.make("new/sub/y")
        self.until(("create", "new/sub/y", ""))

    def test_content_of_a_new_folder_is_reported(self):
        outside = tempfile.mkdtemp(prefix="ramet-outside-")
        self.addCleanup(shutil.rmtree, outside, True)
        os.makedirs(f"{outside}/t/u")
        open(f"{outside}/t/u/file", "w").close()
        self.watch(recursive=True)
        os.rename(f"{outside}/t", self.path("t"))
        self.assertEqual(self.events(3), [("create", name, "") for name in ("t", "t/u", "t/u/file")])
        self.make("t/u/more")
        self.assertEqual(self.event(), ("create", "t/u/more", ""))
        os.rename(self.path("t"), f"{outside}/t")  # is no longer followed
        self.assertEqual(self.event(), ("remove", "t", ""))
        open(f"{outside}/t/u/late", "w").close()
        self.make("end")
        self.assertEqual(self.event(), ("create", "end", ""))

    def test_paths_follow_a_renamed_folder(self):
        os.makedirs(self.path("a/b/c"))
        os.mkdir(self.path("to"))
        self.watch(recursive=True)
        os.rename(self.path("a/b"), self.path("to/new"))
        self.assertEqual(self.event(), ("rename", "a/b", "to/new"))
        self.make("to/new/c/x")
        self.assertEqual(self.event(), ("create", "to/new/c/x", ""))
        shutil.rmtree(self.path("to"))
        self.assertEqual(self.events(4), [("remove", name, "") for name in
                                          ("to/new/c/x", "to/new/c", "to/new", "to")])

    def stop_worker(self):
        """Stops the process that reads the events. Returns its id."""
        agent = self.agent.process.pid
        with open(f"/proc/{agent}/task/{agent}/children") as children:
            for pid in map(int, children.read().split()):
                fds = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
                if "anon_inode:inotify" in fds:
                    os.kill(pid, signal.SIGSTOP)
                    return pid
        raise AssertionError("no process reads events")

    def outside(self):
        path = tempfile.mkdtemp(prefix="ramet-outside-")
        self.addCleanup(shutil.rmtree, path, True)
        return path

    def test_events_in_a_folder_that_left_are_dropped(self):
        outside = self.outside()
        os.makedirs(self.path("x/old"))
        self.watch(recursive=True)
        worker = self.stop_worker()
        os.rename(self.path("x"), f"{outside}/x")
        os.mkdir(f"{outside}/x/new")
        os.rename(f"{outside}/x/old", f"{outside}/x/to")
        os.mkdir(f"{outside}/x/to/deep")
        os.kill(worker, signal.SIGCONT)
        self.assertEqual(self.event(), ("remove", "x", ""))
        self.make("end")
        self.assertEqual(self.event(), ("create", "end", ""))

    def test_folders_that_changed_places_twice_are_followed(self):
        outside = self.outside()
        os.mkdir(self.path("a"))
        os.mkdir(self.path("c"))
        self.watch(recursive=True)
        worker = self.stop_worker()
        os.mkdir(self.path("a/b"))
        os.rename(self.path("c"), f"{outside}/c")
        os.mkdir(self.path("x"))
        # When the first event is read, "a" is in "b" and "b" in another folder "a".
        os.rename(self.path("a/b"), self.path("b"))
        os.rename(self.path("a"), self.path("b/a"))
        os.mkdir(self.path("a"))
        os.rename(self.path("b"), self.path("a/b"))
        os.kill(worker, signal.SIGCONT)
        self.make("a/b/a/file")
        self.until(("create", "a/b/a/file", ""))

    def test_links_are_not_followed(self):
        os.mkdir(self.path("d"))
        self.watch(recursive=True)
        os.symlink("d", self.path("link"))
        self.assertEqual(self.event(), ("create", "link", ""))
        self.make("link/x")
        self.assertEqual(self.event(), ("create", "d/x", ""))

    def test_file_can_be_watched(self):
        path = self.make("file")
        self.watch(path)
        with open(path, "ab", buffering=0) as file:
            file.write(b"x")
        self.assertEqual(self.event(), ("write", "", ""))
        os.unlink(path)
        self.until(("remove", "", ""))
        self.assertIsNone(self.event())

    def test_watch_ends_when_its_path_is_gone(self):
        os.makedirs(self.path("d/e"))
        self.watch(self.path("d"), recursive=True)
        shutil.rmtree(self.path("d"))
        self.assertEqual(self.events(3), [("remove", "e", ""), ("remove", "", ""), None])
        self.watching.send(HELLO)  # the connection can be used again
        self.assertEqual(self.watching.recv()[0], PONG)

    def test_slow_reader_gets_an_overflow_and_new_folders_are_still_followed(self):
        with open("/proc/sys/fs/inotify/max_queued_events") as limit:
            most = int(limit.read())
        self.watch(recursive=True)
        for i in range(0, most + 40000, 2):  # socket buffers and the worker hold some, too
            os.close(os.open(self.path("x"), os.O_CREAT))
            os.unlink(self.path("x"))
        os.mkdir(self.path("late"))
        self.until(("overflow", "", ""))
        self.make("late/y")
        self.make("end")
        self.assertIn(("create", "late/y", ""), self.until(("create", "end", "")))

    def test_watches_are_limited_and_end_with_their_connection(self):
        clients = []
        for _ in range(16):
            self.watch()
            clients.append(self.watching)
        with self.assertRaises(Failed) as failed:
            self.watch()
        self.assertEqual(failed.exception.errno, errno.EAGAIN)
        # Other operations have their own workers.
        self.client.send(WALK, bytes(9) + text(self.folder) + text(""))
        self.assertEqual(len(self.answers()), 1)
        clients[0].close()
        while True:
            try:
                self.watch()
                break
            except Failed:
                pass

    def test_errors(self):
        self.fails(errno.ENOENT, self.watch, self.path("none"))


def limited(name, value):
    """The prefix of an agent in a user namespace with another limit of inotify."""
    return ("unshare", "-Ur", "sh", "-ec", f'echo {value} >/proc/sys/user/{name}; exec "$@"', "sh")


class FewWatchesTest(WatchTestBase):
    prefix = limited("max_inotify_watches", 3)

    def test_error_names_the_limit(self):
        for name in "abc":
            os.mkdir(self.path(name))
        said = self.fails(errno.EUSERS, self.watch, recursive=True)
        self.assertIn("fs.inotify.max_user_watches", said)


class FewInstancesTest(WatchTestBase):
    prefix = limited("max_inotify_instances", 2)

    def test_error_names_the_limit(self):
        for _ in range(2):
            self.watch()
        self.assertIn("fs.inotify.max_user_instances", self.fails(errno.EUSERS, self.watch))


class HelloTest(FolderTest):
    def test_hello_is_answered_at_once(self):
        self.assertEqual(self.client.ask(HELLO), (PONG, VERSION))
        self.client.start("import time; time.sleep(1000)")
        other = self.connect()
        self.assertEqual(other.ask(HELLO), (PONG, VERSION))

    def test_request_may_follow_without_waiting(self):
        walk = struct.pack("<BII", 0, 0, 0) + text(self.folder) + text("")
        self.client.sock.sendall(frame(HELLO) + frame(WALK, walk))
        self.assertEqual([self.client.recv()[0] for _ in range(3)], [PONG, NODE, DONE])

    def test_hello_has_no_payload(self):
        self.client.send(HELLO, b"x")
        with self.assertRaises(EOFError):
            self.client.recv()


if __name__ == "__main__":
    unittest.main()
