# SPDX-License-Identifier: Apache-2.0
"""The guest's part of merges of files and diffs of a text (staged.h): `python3 -c SCRIPT COMMAND ...`.

pack LIST       Writes a tar archive of the files in LIST, and removes LIST. LIST has a number and a path
                for each file, each followed by a zero byte; the numbers are the names in the archive.
apply STAGE POLICY ID...
                Merges what STAGE holds into this guest. STAGE/plan has for each path, each followed by a
                zero byte: a letter for the base and for each branch, and the path. STAGE/0 has the base's
                files, STAGE/1 those of the first branch and so on, named by the number of the path in
                the plan. The letters: y, it has one in its folder; n, there is none; =, the branch
                did not change it. ID: of the parent, of the base, and of each branch. Writes two bytes for
                each path: what became of it, and how a conflict was resolved (merge-plan.h).
diff STAGE LABEL LABEL
                Writes a unified diff of the file in STAGE/plan of this guest and STAGE/1/0.

apply and diff remove STAGE. The exit codes are in `main`; a sentence on stderr says why. After a failure
everything is as it was before.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import resource
import shutil
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, replace

TEXT_MAX = 4 << 20  # bytes of a file that is merged by lines
DIFF_MAX = 1 << 20  # bytes of a file that is compared by lines
OPEN_MAX = 200  # folders kept open from one path to the next
PART = 1 << 20
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Changed(Exception):
    """A file changed while it was read or merged."""


class NoText(Exception):
    """A file cannot be compared by lines."""


class Gone(Exception):
    """Neither of two guests has the file."""


def reason(error: BaseException) -> str:
    if not isinstance(error, OSError):
        return str(error)
    name = error.filename
    at = name.decode(errors="replace") + ": " if isinstance(name, bytes) else f"{name}: " if name else ""
    return f"{at}{error.strerror}"


def records(path: str) -> list[bytes]:
    with open(path, "rb") as file:
        return file.read().split(b"\0")[:-1]


def open_file(name: bytes | str, folder: int | None = None) -> io.BufferedReader:
    """Opens a file, but neither a link nor anything that blocks."""
    return open(os.open(name, READ, dir_fd=folder), "rb")


def hash_of(file: io.BufferedReader) -> bytes:
    digest = hashlib.sha256()
    while part := file.read(PART):
        digest.update(part)
    return digest.digest()


def is_text(path: str) -> bool:
    with open(path, "rb") as file:
        return b"\0" not in file.read()


# --- pack ------------------------------------------------------------------------------------------


def pack_one(archive: tarfile.TarFile, name: str, path: bytes) -> None:
    st = os.lstat(path)
    member = tarfile.TarInfo(name)
    member.mode, member.uid, member.gid = stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid
    member.mtime = int(st.st_mtime)
    if stat.S_ISDIR(st.st_mode):
        member.type = tarfile.DIRTYPE
        archive.addfile(member)
    elif stat.S_ISLNK(st.st_mode):
        member.type = tarfile.SYMTYPE
        member.linkname = os.fsdecode(os.readlink(path))
        archive.addfile(member)
    elif stat.S_ISREG(st.st_mode):
        with open_file(path) as file:
            now = os.fstat(file.fileno())
            if not stat.S_ISREG(now.st_mode):
                raise Changed(f"{os.fsdecode(path)} changed while it was read")
            member.size = now.st_size
            try:
                archive.addfile(member, file)
            except OSError as error:  # fewer bytes than it had
                raise Changed(f"{os.fsdecode(path)} changed while it was read: {error}") from error


def pack(list_path: str) -> None:
    """What is gone, or is neither a file nor a folder nor a link, is left out."""
    parts = records(list_path)
    os.unlink(list_path)
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for number, path in zip(parts[::2], parts[1::2]):
            try:
                pack_one(archive, number.decode(), path)
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue


# --- versions of a file ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Version:
    """A file, folder or link. Two versions are equal if they are what `diff` calls equal."""

    kind: str  # f, d, l; ?: something else
    attributes: tuple[int, ...]  # mode, uid, gid
    content: bytes  # hash of a file, target of a link
    size: int = 0


NONE = Version("", (), b"")  # there is no such file


def was_sent(letter: str, staged: Version) -> bool:
    """Returns whether the stage has of a path what the plan says: a guest may have sent anything."""
    return staged.kind in ("f", "d", "l") if letter == "y" else not staged.kind


def version(folder: int | None, name: bytes) -> Version:
    try:
        st = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return NONE
    attributes = (stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid)
    if stat.S_ISDIR(st.st_mode):
        return Version("d", attributes, b"")
    if stat.S_ISLNK(st.st_mode):
        return Version("l", attributes, os.readlink(name, dir_fd=folder))
    if not stat.S_ISREG(st.st_mode):
        return Version("?", attributes, str(st.st_rdev).encode())
    with open_file(name, folder) as file:
        return Version("f", attributes, hash_of(file), os.fstat(file.fileno()).st_size)


# --- the parent's files ----------------------------------------------------------------------------


class Tree:
    """The parent's files. Below the merged paths, no symbolic link is followed on the way to one."""

    def __init__(self, roots: list[bytes]) -> None:
        self.roots = roots
        self.open: dict[bytes, int] = {}

    def above(self, path: bytes) -> list[bytes]:
        """Returns the folders on the way to `path` that no link may replace, the highest one first."""
        root = max((r for r in self.roots if is_in(path, r)), key=len)
        parts = path[len(root.rstrip(b"/")) :].split(b"/")[1:-1]
        folders = [root] if path != root else []
        for part in parts:
            folders.append(folders[-1].rstrip(b"/") + b"/" + part)
        return folders

    def folder(self, path: bytes) -> int:
        """Returns a descriptor of the folder that contains `path`."""
        above = self.above(path)
        top = os.path.dirname(above[0] if above else path)
        fd = self._enter(top, None, top, 0)
        for each in above:
            fd = self._enter(each, fd, os.path.basename(each) or b".", os.O_NOFOLLOW)
        return fd

    def _enter(self, path: bytes, parent: int | None, name: bytes, flags: int) -> int:
        """Opens a folder, whose parents are checked, or returns it from the cache."""
        kept = self.open.get(path)
        if kept is not None and parent is not None and not self._is(kept, parent, name):
            os.close(self.open.pop(path))
            kept = None
        if kept is None:
            kept = self.open[path] = os.open(name, FOLDER | flags, dir_fd=parent)
        return kept

    @staticmethod
    def _is(fd: int, parent: int, name: bytes) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), os.stat(name, dir_fd=parent, follow_symlinks=False))
        except OSError:
            return False

    def trim(self) -> None:
        """Closes folders. Descriptors from before become invalid."""
        if len(self.open) > OPEN_MAX:
            for fd in self.open.values():
                os.close(fd)
            self.open.clear()

    def names(self, path: bytes) -> list[bytes]:
        fd = os.open(os.path.basename(path) or b".", FOLDER | os.O_NOFOLLOW, dir_fd=self.folder(path))
        try:
            return [os.fsencode(name) for name in os.listdir(fd)]
        finally:
            os.close(fd)

    def version(self, path: bytes) -> Version:
        try:
            return version(self.folder(path), os.path.basename(path) or b".")
        except (FileNotFoundError, NotADirectoryError):
            return NONE
        except OSError as error:
            if error.errno == errno.ELOOP:  # a link in the place of a folder
                return NONE
            raise

    def is_folder(self, path: bytes) -> bool:
        stamp = self.stamp(path)
        return bool(stamp) and stat.S_ISDIR(stamp[1])

    def stamp(self, path: bytes) -> tuple[int, ...]:
        """Returns numbers that differ after each change of the file itself; () if there is none."""
        try:
            st = os.stat(os.path.basename(path) or b".", dir_fd=self.folder(path), follow_symlinks=False)
        except OSError:
            return ()
        if stat.S_ISDIR(st.st_mode):
            return (st.st_ino, st.st_mode, st.st_uid, st.st_gid)
        return (st.st_ino, st.st_mode, st.st_uid, st.st_gid, st.st_size, st.st_mtime_ns, st.st_ctime_ns)


def is_in(path: bytes, folder: bytes) -> bool:
    return path == folder or path.startswith(folder.rstrip(b"/") + b"/")


# --- three versions become one ---------------------------------------------------------------------


class Conflict(Exception):
    """Its text is the letter of the reason."""


class Merger:
    """Merges versions of one path after the other. `stage` holds their contents."""

    def __init__(self, stage: str, policy: str, ids: list[str]) -> None:
        self.stage, self.policy, self.ids = stage, policy, ids
        self.git = True
        self.made = 0

    def staged(self, branch: int, number: int) -> str:
        return f"{self.stage}/{branch}/{number}"

    def merge_text(self, ours: str, base: str, theirs: str, labels: list[str], option: list[str]) -> tuple[str, bool]:
        """Returns a file with the result, and whether it has no conflicts."""
        self.made += 1
        path = f"{self.stage}/text-{self.made}"
        names = [word for label in labels for word in ("-L", label)]
        clean = {
            "PATH": os.environ.get("PATH", os.defpath),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CEILING_DIRECTORIES": os.path.dirname(self.stage),  # nor the settings of a repository at /
        }
        with open(path, "xb") as out:
            try:
                run = subprocess.run(
                    ["git", "merge-file", "-p", "-q", *option, *names, ours, base, theirs],
                    stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, cwd=self.stage, env=clean,
                )
            except FileNotFoundError:
                self.git = False
                raise Conflict("G") from None
        if run.returncode < 0 or run.returncode > 127:
            raise OSError(0, f"git merge-file failed: {run.stderr.decode(errors='replace').strip()[:100]}")
        return path, run.returncode == 0


@dataclass
class State:
    """What a path is after the branches so far: a version, and where its content is; None: the parent's."""

    version: Version
    source: str | None
    label: str
    merged: bool = False
    reason: str = ""  # the first conflict
    resolution: str = "-"


def one_of(base: object, ours: object, theirs: object) -> object:
    """Returns the one that differs from the base; raises Conflict if both do, differently."""
    if theirs in (base, ours):
        return ours
    if ours == base:
        return theirs
    raise Conflict("M")


class PathMerge:
    """Merges the versions of one path."""

    def __init__(self, m: Merger, number: int, base: Version, own_copy: Callable[[], str]) -> None:
        self.m, self.number, self.base, self.own_copy = m, number, base, own_copy

    def source(self, at: State) -> str:
        return at.source or self.own_copy()

    def content(self, at: State, theirs: Version, path: str, label: str) -> State:
        """Merges the contents of two files that both differ from the base, by lines."""
        m = self.m
        known = self.base.kind == "f"
        base = m.staged(0, self.number) if known else "/dev/null"
        if max(at.version.size, theirs.size, self.base.size) > TEXT_MAX:
            raise Conflict("B")
        ours = self.source(at)
        if not all(is_text(one) for one in (ours, base, path)):
            raise Conflict("B")
        if not known and m.policy != "markers":
            raise Conflict("A")
        labels = [at.label, m.ids[1], label]
        result, clean = m.merge_text(ours, base, path, labels, [])
        if not clean and m.policy in ("ours", "theirs"):
            result, _ = m.merge_text(ours, base, path, labels, [f"--{m.policy}"])
        if not clean and m.policy == "report":
            raise Conflict("C")
        merged = replace(at.version, content=version(None, os.fsencode(result)).content, size=os.stat(result).st_size)
        after = replace(at, version=merged, source=result, label=m.ids[0], merged=True)
        if not clean:
            after.reason = at.reason or ("C" if known else "A")
            after.resolution = m.policy[0]
        return after

    def merge(self, at: State, theirs: Version, path: str, label: str) -> State:
        base, ours = self.base, at.version
        if not ours.kind or not theirs.kind:
            raise Conflict("D")
        if "?" in ours.kind + theirs.kind or ours.kind != theirs.kind:
            raise Conflict("T")
        old = base.attributes if base.kind == ours.kind else (None,) * len(ours.attributes)
        values = [one_of(*three) for three in zip(old, ours.attributes, theirs.attributes)]
        attributes = tuple(value for value in values if isinstance(value, int))
        if theirs.content not in (base.content, ours.content):
            if ours.content == base.content and base.kind == ours.kind:
                at = replace(at, version=theirs, source=path, label=label, merged=True)
            elif ours.kind == "l":
                raise Conflict("A" if base.kind != "l" else "C")
            else:
                at = self.content(at, theirs, path, label)
        return replace(at, version=replace(at.version, attributes=attributes), merged=True)

    def add(self, at: State, theirs: Version, path: str, label: str) -> State:
        """Adds what a branch changed."""
        if theirs == at.version:
            return at
        if at.version == self.base:
            return replace(at, version=theirs, source=path, label=label)
        try:
            return self.merge(at, theirs, path, label)
        except Conflict as conflict:
            at = replace(at, reason=at.reason or str(conflict))
        if self.m.policy == "ours":
            return replace(at, resolution="o")
        if self.m.policy == "theirs" and theirs.kind != "?":
            return replace(at, version=theirs, source=path, label=label, resolution="t")
        return at


# --- the whole merge -------------------------------------------------------------------------------


@dataclass
class Planned:
    number: int
    letters: str
    path: bytes
    own: Version = NONE  # the parent's
    stamp: tuple[int, ...] = ()
    to: State = None  # type: ignore[assignment] # set by decide
    temporary: bytes = b""

    @property
    def writes(self) -> bool:
        return self.to.version != self.own

    @property
    def has_new_content(self) -> bool:
        own, to = self.own, self.to.version
        return to.kind in ("f", "l") and (own.kind, own.content) != (to.kind, to.content)



class Merge:
    def __init__(self, stage: str, policy: str, ids: list[str]) -> None:
        self.stage, self.policy, self.ids = stage, policy, ids
        self.merger = Merger(stage, policy, ids)
        self.roots = records(f"{stage}/roots")
        self.tree = Tree(self.roots)
        parts = records(f"{stage}/plan")
        pairs = zip(parts[::2], parts[1::2])
        self.paths = [Planned(i, letters.decode(), path) for i, (letters, path) in enumerate(pairs)]
        self.by_path = {p.path: p for p in self.paths}
        self.folders: dict[bytes, bool] = {}
        self.undo: list[Callable[[], None]] = []
        self.backups: list[bytes] = []
        self.name = f".ramet-{os.urandom(16).hex()}".encode()

    # decisions

    def own_copy(self, p: Planned) -> str:
        """Copies the parent's file into the stage: nothing there is a link."""
        self.merger.made += 1
        copy = f"{self.stage}/own-{self.merger.made}"
        with open_file(os.path.basename(p.path), self.tree.folder(p.path)) as file:
            content = file.read(TEXT_MAX + 1)
        if hashlib.sha256(content).digest() != p.own.content:
            raise Changed(f"{os.fsdecode(p.path)} changed during the merge")
        with open(copy, "xb") as out:
            out.write(content)
        return copy

    def keep(self, p: Planned, why: str) -> None:
        """Leaves what the parent has."""
        resolution = "o" if self.policy == "ours" else "-"
        p.to = State(p.own, None, "", reason=p.to.reason or why, resolution=resolution)

    def decide(self, p: Planned) -> None:
        self.tree.trim()
        p.stamp = self.tree.stamp(p.path)
        p.own = self.tree.version(p.path)
        p.to = State(p.own, None, self.ids[0])
        base = version(None, os.fsencode(self.merger.staged(0, p.number)))
        if not was_sent(p.letters[0], base):
            self.keep(p, "U")
            return
        work = PathMerge(self.merger, p.number, base, lambda: self.own_copy(p))
        for branch, letter in enumerate(p.letters[1:], 1):
            if letter == "=":
                continue
            path = self.merger.staged(branch, p.number)
            theirs = version(None, os.fsencode(path))
            if not was_sent(letter, theirs):
                self.keep(p, "U")
                return
            if theirs != base:
                p.to = work.add(p.to, theirs, path, self.ids[1 + branch])

    def is_folder_after(self, path: bytes) -> bool:
        planned = self.by_path.get(path)
        if planned:
            return planned.to.version.kind == "d"
        if path not in self.folders:
            self.folders[path] = self.tree.is_folder(path)
        return self.folders[path]

    def check_emptied(self) -> None:
        """Keeps folders that would go although something is left in them."""
        left: dict[bytes, int] = {}
        for p in sorted(self.paths, key=lambda p: p.path, reverse=True):
            folder = os.path.dirname(p.path)
            self.tree.trim()
            if p.own.kind == "d" and p.to.version.kind != "d":
                inside = [p.path.rstrip(b"/") + b"/" + name for name in self.tree.names(p.path)]
                if left.get(p.path) or any(path not in self.by_path for path in inside):
                    self.keep(p, "E")
            if p.to.version.kind:
                left[folder] = left.get(folder, 0) + 1

    def check_folders(self) -> None:
        """Leaves out what would be in a folder that there is not."""
        for p in sorted(self.paths, key=lambda p: p.path):
            if not p.writes or not p.to.version.kind:
                continue
            self.tree.trim()
            above = self.tree.above(p.path)
            there = all(self.is_folder_after(folder) for folder in above)
            if not there or not os.path.isdir(os.path.dirname(above[0] if above else p.path)):
                self.keep(p, "W")

    # writing

    def beside(self, path: bytes, name: bytes) -> bytes:
        """Returns a path for a temporary file, in the nearest folder above `path` that there is before and
        after the merge: it is on the same file system."""
        above = self.tree.above(path)
        while above and not (self.is_folder_after(above[-1]) and self.tree.is_folder(above[-1])):
            path = above.pop()
        return os.path.join(os.path.dirname(path), name)

    def put_beside(self, p: Planned) -> None:
        """Writes a file or link under a temporary name."""
        p.temporary = self.beside(p.path, b"%s-%d" % (self.name, p.number))
        folder, name = self.at(p.temporary)
        self.undo.append(lambda: self.remove(p.temporary))
        to, source = p.to.version, p.to.source
        assert source
        if to.kind == "l":
            os.symlink(to.content, name, dir_fd=folder)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with open(os.open(name, flags, 0o600, dir_fd=folder), "wb") as out, open(source, "rb") as file:
                shutil.copyfileobj(file, out, PART)
        self.set_attributes(p.temporary, to)
        if not p.to.merged:
            st = os.lstat(source)
            os.utime(name, ns=(st.st_atime_ns, st.st_mtime_ns), dir_fd=folder, follow_symlinks=False)

    def at(self, path: bytes) -> tuple[int, bytes]:
        return self.tree.folder(path), os.path.basename(path) or b"."

    def remove(self, path: bytes) -> None:
        folder, name = self.at(path)
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            pass

    def move(self, old: bytes, new: bytes) -> None:
        (folder, name), (to, to_name) = self.at(old), self.at(new)
        os.rename(name, to_name, src_dir_fd=folder, dst_dir_fd=to)

    def set_attributes(self, path: bytes, to: Version) -> None:
        folder, name = self.at(path)
        mode, uid, gid = to.attributes
        os.chown(name, uid, gid, dir_fd=folder, follow_symlinks=False)
        if to.kind != "l":
            fd = os.open(name, READ, dir_fd=folder)
            try:
                os.fchmod(fd, mode)  # after the owner, whose change clears the set-id bits
            finally:
                os.close(fd)

    def backup(self, p: Planned) -> bytes:
        path = self.beside(p.path, b"%s-old-%d" % (self.name, p.number))
        self.backups.append(path)
        self.undo.append(lambda: self.restore(path, p.path))
        return path

    def restore(self, backup: bytes, path: bytes) -> None:
        self.move(backup, path)
        self.remove(backup)  # a rename does nothing if both names are of one file

    def take_away(self, p: Planned) -> None:
        """Renames a file, so that it can come back."""
        self.move(p.path, self.backup(p))

    def remove_folder(self, p: Planned) -> None:
        self.undo.append(lambda: self.make_folder(p.path, p.own))
        self.drop_folder(p.path)

    def drop_folder(self, path: bytes) -> None:
        folder, name = self.at(path)
        os.rmdir(name, dir_fd=folder)

    def make_folder(self, path: bytes, to: Version) -> None:
        folder, name = self.at(path)
        os.mkdir(name, 0o700, dir_fd=folder)
        self.set_attributes(path, to)

    def replace(self, p: Planned) -> None:
        """Replaces a file at once: there is always one of the two."""
        if p.own.kind in ("", "d"):  # a folder is gone by now
            self.undo.append(lambda: self.remove(p.path))
        else:
            (folder, name), (to, to_name) = self.at(p.path), self.at(self.backup(p))
            os.link(name, to_name, src_dir_fd=folder, dst_dir_fd=to, follow_symlinks=False)
        self.move(p.temporary, p.path)

    def prepare(self, writes: list[Planned]) -> None:
        """Writes all new content, then checks that nothing changed since the decision."""
        for p in writes:
            self.tree.trim()
            if p.has_new_content:
                self.put_beside(p)
        for p in writes:
            self.tree.trim()
            if self.tree.stamp(p.path) != p.stamp:
                raise Changed(f"{os.fsdecode(p.path)} changed during the merge")

    def clear(self, p: Planned) -> None:
        """Removes what is to be gone, or to be of another kind."""
        own, to = p.own.kind, p.to.version.kind
        if own == "d" and to != "d":
            self.remove_folder(p)
        elif own not in ("", "d") and to in ("", "d"):
            self.take_away(p)

    def put(self, p: Planned) -> None:
        if p.has_new_content:
            self.replace(p)
        elif p.to.version.kind == "d" and p.own.kind != "d":
            self.undo.append(lambda: self.drop_folder(p.path))
            self.make_folder(p.path, p.to.version)
        elif p.to.version.kind:
            self.undo.append(lambda: self.set_attributes(p.path, p.own))
            self.set_attributes(p.path, p.to.version)

    def write_all(self) -> None:
        writes = sorted((p for p in self.paths if p.writes), key=lambda p: p.path)
        try:
            self.prepare(writes)
            for p in reversed(writes):  # what is in a folder before the folder
                self.tree.trim()
                self.clear(p)
            for p in writes:
                self.tree.trim()
                self.put(p)
        except BaseException:
            self.take_back()
            raise
        for backup in self.backups:
            self.tree.trim()
            self.remove(backup)

    def take_back(self) -> None:
        for step in reversed(self.undo):
            try:
                self.tree.trim()
                step()
            except OSError:  # this step had not been done
                continue

    def letters(self, p: Planned) -> str:
        if p.to.reason:
            return p.to.reason + p.to.resolution
        return ("=" if not p.writes else "m" if p.to.merged else "a") + "."

    def run(self) -> str:
        for p in self.paths:
            self.decide(p)
        self.check_emptied()
        self.check_folders()
        if self.policy != "report" or not any(p.to.reason for p in self.paths):
            self.write_all()
        return "".join(map(self.letters, self.paths))


# --- diff ------------------------------------------------------------------------------------------


def lines_of(path: bytes, stage: str, name: str) -> str:
    """Copies a file into the stage; returns the path of the copy, or /dev/null if there is no file."""
    found = version(None, path)
    if not found.kind:
        return "/dev/null"
    if found.kind != "f":
        raise NoText(f"{os.fsdecode(path)} is not a regular file")
    if found.size > DIFF_MAX:
        raise NoText(f"{os.fsdecode(path)} has {found.size} bytes: a diff of its text may have {DIFF_MAX}")
    copy = f"{stage}/{name}"
    with open_file(path) as file, open(copy, "xb") as out:
        out.write(file.read(DIFF_MAX))
    if not is_text(copy):
        raise NoText(f"{os.fsdecode(path)} is not a text: it has a zero byte")
    return copy


def diff(stage: str, labels: list[str]) -> bytes:
    (path,) = records(f"{stage}/plan")
    own = lines_of(path, stage, "own")
    other = lines_of(os.fsencode(f"{stage}/1/0"), stage, "other")
    if own == other:
        raise Gone(f"neither sandbox has the file {os.fsdecode(path)}")
    names = [word for label in labels for word in ("--label", label)]
    run = subprocess.run(["diff", "-u", "-a", *names, own, other], stdin=subprocess.DEVNULL, capture_output=True)
    if run.returncode not in (0, 1):
        raise OSError(0, f"diff failed: {run.stderr.decode(errors='replace').strip()[:100]}")
    return run.stdout


# --- the command -----------------------------------------------------------------------------------

CODES: list[tuple[type[BaseException], int]] = [(Changed, 4), (NoText, 5), (Gone, 6), (OSError, 1)]


def run(command: str, arguments: list[str]) -> None:
    if command == "pack":
        pack(arguments[0])
        return
    stage, *rest = arguments
    try:
        if command == "diff":
            result = diff(stage, rest)
        else:
            result = Merge(stage, rest[0], rest[1:]).run().encode()
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    sys.stdout.buffer.write(result)
    sys.stdout.flush()


def main() -> int:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.umask(0)
    try:
        run(sys.argv[1], sys.argv[2:])
    except (Changed, NoText, Gone, OSError) as error:
        print(reason(error), file=sys.stderr)
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        return 3 if full else next(code for kind, code in CODES if isinstance(error, kind))
    return 0


sys.exit(main())
