# SPDX-License-Identifier: Apache-2.0
"""The script that merges files in a guest (orchestrator/guestops/merge_files.py), run on this machine."""

import os
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "orchestrator/guestops/merge_files.py"
LINES = "".join(f"line {i}\n" for i in range(1, 21))
SAME, HAS, GONE = "=", "y", "n"


def with_line(n, text):
    lines = LINES.splitlines(keepends=True)
    lines[n - 1] = text + "\n"
    return "".join(lines)


def make(path, what):
    """Makes a file (text or bytes), a folder (None) or a link (a tuple with its target)."""
    if what is None:
        path.mkdir()
    elif isinstance(what, tuple):
        path.symlink_to(what[0])
    else:
        path.write_bytes(what.encode() if isinstance(what, str) else what)


def read(path):
    """Returns what `make` makes; GONE if there is nothing."""
    if path.is_symlink():
        return (os.readlink(path),)
    if path.is_dir():
        return None
    if not path.exists():
        return GONE
    data = path.read_bytes()
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


class Case(unittest.TestCase):
    def setUp(self):
        self.top = Path(tempfile.mkdtemp(prefix="ramet-merge-"))
        self.addCleanup(shutil.rmtree, self.top)
        self.root = self.top / "root"
        self.root.mkdir()
        self.env = dict(os.environ)

    def run_script(self, *words):
        return subprocess.run([sys.executable, "-I", "-S", SCRIPT, *map(str, words)], capture_output=True, env=self.env)

    def tree(self):
        return {str(p.relative_to(self.root)): read(p) for p in self.root.rglob("*")}


class Merge(Case):
    """`paths` has for each path its versions: of the base, and of each branch (SAME: unchanged)."""

    def stage(self, paths):
        self.stage_path = self.top / "stage"
        self.stage_path.mkdir()
        plan = b""
        for number, (path, versions) in enumerate(sorted(paths.items())):
            letters = ""
            for branch, version in enumerate(versions):
                letters += version if version in (SAME, GONE) else HAS
                (self.stage_path / str(branch)).mkdir(exist_ok=True)
                if version not in (SAME, GONE):
                    make(self.stage_path / str(branch) / str(number), version)
            plan += letters.encode() + b"\0" + os.fsencode(self.root / path) + b"\0"
        (self.stage_path / "plan").write_bytes(plan)
        (self.stage_path / "roots").write_bytes(os.fsencode(self.root) + b"\0")

    def apply(self, policy="report"):
        return self.run_script("apply", self.stage_path, policy, "sbx_p", "sbx_o", "sbx_1", "sbx_2", "sbx_3")

    def merge(self, paths, policy="report"):
        self.stage(paths)
        done = self.apply(policy)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertFalse(self.stage_path.exists())
        left = [name for name in self.tree() if ".ramet" in name]
        self.assertEqual(left, [])
        out = done.stdout.decode()
        return [out[i : i + 2] for i in range(0, len(out), 2)]

    def put(self, **files):
        for name, what in files.items():
            make(self.root / name, what)

    def test_what_branches_add_change_and_remove_is_taken(self):
        self.put(changed="old", gone="x", kept="k")
        got = self.merge(
            {
                "added": (GONE, "new", SAME),
                "changed": ("old", SAME, "newer"),
                "gone": ("x", GONE, SAME),
                "link": (GONE, ("added",), SAME),
            }
        )
        self.assertEqual(got, ["a.", "a.", "a.", "a."])
        self.assertEqual(self.tree(), {"added": "new", "changed": "newer", "kept": "k", "link": ("added",)})

    def test_equal_changes_are_no_conflict(self):
        self.put(both="new", one="old")
        got = self.merge({"both": ("old", "new", SAME), "one": ("old", "new", "new")})
        self.assertEqual((got, self.tree()), (["=.", "a."], {"both": "new", "one": "new"}))

    def test_texts_of_parent_and_branches_are_merged_by_lines(self):
        self.put(text=with_line(1, "parent"))
        got = self.merge({"text": (LINES, with_line(8, "a"), with_line(15, "b"))})
        lines = self.tree()["text"].splitlines()
        self.assertEqual((got, lines[0], lines[7], lines[14]), (["m."], "parent", "a", "b"))
        self.assertEqual(len(lines), 20)
        again = self.merge({"text": (LINES, with_line(8, "a"), with_line(15, "b"))})
        self.assertEqual((again, self.tree()["text"].splitlines()), (["=."], lines))

    def test_conflict_leaves_everything_as_it_was(self):
        self.put(text=LINES, other="old")
        paths = {"other": ("old", "new", SAME), "text": (LINES, with_line(5, "a"), with_line(5, "b"))}
        self.assertEqual(self.merge(paths), ["a.", "C-"])
        self.assertEqual(self.tree(), {"text": LINES, "other": "old"})

    def test_ours_and_theirs_decide_single_lines(self):
        for policy, winner in (("ours", "a"), ("theirs", "b")):
            with self.subTest(policy):
                shutil.rmtree(self.root)
                self.root.mkdir()
                self.put(text=LINES)
                theirs = with_line(5, "b").replace("line 15", "also b")
                got = self.merge({"text": (LINES, with_line(5, "a"), theirs)}, policy)
                lines = self.tree()["text"].splitlines()
                self.assertEqual((got, lines[4], lines[14]), (["C" + policy[0]], winner, "also b"))

    def test_markers_name_the_sandboxes(self):
        self.put(text=with_line(5, "own"), added="mine\n")
        got = self.merge({"added": (GONE, "yours\n"), "text": (LINES, with_line(5, "a"))}, "markers")
        self.assertEqual(got, ["Am", "Cm"])
        self.assertIn("<<<<<<< sbx_p\nown\n", self.tree()["text"])
        self.assertIn("a\n>>>>>>> sbx_1\n", self.tree()["text"])
        self.assertEqual(self.tree()["added"], "<<<<<<< sbx_p\nmine\n=======\nyours\n>>>>>>> sbx_1\n")

    def test_reasons_of_conflicts(self):
        self.put(bytes=b"\0own", added="own", type="own", gone="changed", link=("own",))
        got = self.merge(
            {
                "added": (GONE, "other"),
                "bytes": (b"\0old", b"\0new"),
                "gone": ("old", GONE),
                "link": (("old",), ("new",)),
                "type": ("old", ("new",)),
            }
        )
        self.assertEqual(got, ["A-", "B-", "D-", "C-", "T-"])

    def test_policies_decide_what_has_no_lines(self):
        for policy, result in (("ours", b"\0own"), ("theirs", b"\0new"), ("markers", b"\0own")):
            with self.subTest(policy):
                (self.root / "bytes").write_bytes(b"\0own")
                got = self.merge({"bytes": (b"\0old", b"\0new")}, policy)
                self.assertEqual(got, ["B" + {"markers": "-"}.get(policy, policy[0])])
                self.assertEqual((self.root / "bytes").read_bytes(), result)

    def test_modes_are_merged_apart_from_contents(self):
        self.put(file="own")
        (self.root / "file").chmod(0o644)
        self.stage({"file": ("old", "old")})
        (self.stage_path / "0/0").chmod(0o644)
        (self.stage_path / "1/0").chmod(0o755)
        self.assertEqual(self.apply().stdout, b"m.")
        self.assertEqual(stat.S_IMODE((self.root / "file").stat().st_mode), 0o755)
        self.assertEqual(self.tree(), {"file": "own"})

    def test_modes_that_differ_are_a_conflict(self):
        self.put(file="old")
        self.stage({"file": ("old", "old")})
        for path, mode in ((self.root / "file", 0o600), (self.stage_path / "0/0", 0o644), (self.stage_path / "1/0", 0o755)):
            path.chmod(mode)
        self.assertEqual(self.apply().stdout, b"M-")

    def test_folders_come_before_and_go_after_their_content(self):
        self.put(old=None)
        (self.root / "old/in").write_text("x")
        got = self.merge({"new": (GONE, None), "new/in": (GONE, "y"), "old": (None, GONE), "old/in": ("x", GONE)})
        self.assertEqual((got, self.tree()), (["a."] * 4, {"new": None, "new/in": "y"}))

    def test_file_becomes_folder_and_folder_becomes_file(self):
        self.put(file="x", folder=None)
        (self.root / "folder/in").write_text("x")
        paths = {"file": ("x", None), "file/in": (GONE, "y"), "folder": (None, "z"), "folder/in": ("x", GONE)}
        self.assertEqual(self.merge(paths), ["a."] * 4)
        self.assertEqual(self.tree(), {"file": None, "file/in": "y", "folder": "z"})

    def test_folder_with_the_parents_files_stays(self):
        self.put(old=None)
        (self.root / "old/mine").write_text("x")
        self.assertEqual(self.merge({"old": (None, GONE)}), ["E-"])
        self.assertEqual(self.merge({"old": (None, GONE)}, "ours"), ["Eo"])
        self.assertEqual(self.tree(), {"old": None, "old/mine": "x"})

    def test_links_in_the_place_of_folders_are_not_followed(self):
        outside = self.top / "outside"
        outside.mkdir()
        self.put(folder=(str(outside),))
        self.assertEqual(self.merge({"folder/in": (GONE, "x")}, "theirs"), ["W-"])
        self.assertEqual(list(outside.iterdir()), [])

    def test_missing_folder_is_a_conflict(self):
        self.assertEqual(self.merge({"folder/in": ("old", "x")}), ["D-"])
        self.assertEqual(self.merge({"folder/in": ("old", "x")}, "theirs"), ["D-"])
        self.assertEqual(self.tree(), {})

    def test_what_a_branch_did_not_send_is_a_conflict(self):
        self.put(file="x")
        for letters in (b"yy\0", b"ny\0"):
            self.stage({"file": (GONE, GONE)})
            (self.stage_path / "plan").write_bytes(letters + os.fsencode(self.root / "file") + b"\0")
            self.assertEqual(self.apply("theirs").stdout, b"U-")
        self.assertEqual(self.tree(), {"file": "x"})

    def test_fifo_that_a_branch_sent_is_not_read(self):
        self.put(file="x")
        self.stage({"file": ("x", "y")})
        (self.stage_path / "1/0").unlink()
        os.mkfifo(self.stage_path / "1/0")
        self.assertEqual(self.apply("theirs").stdout, b"U-")

    def test_names_are_bytes(self):
        name = os.fsdecode(b"\xff\n name")
        self.put(**{name: "x"})
        self.assertEqual(self.merge({name: ("x", "y")}), ["a."])
        self.assertEqual(self.tree(), {name: "y"})

    def test_without_git_texts_are_conflicts(self):
        self.env["PATH"] = str(self.top)
        self.put(text=with_line(1, "own"))
        self.assertEqual(self.merge({"text": (LINES, with_line(9, "a"))}), ["G-"])
        self.assertEqual(self.merge({"text": (LINES, with_line(9, "a"))}, "theirs"), ["Gt"])
        self.assertEqual(self.tree(), {"text": with_line(9, "a")})

    def test_repository_around_the_stage_is_not_read(self):
        """Its settings would change the markers, and one that git refuses would fail the merge."""
        for settings in ("[merge]\n\tconflictStyle = diff3\n", "[core\n"):
            subprocess.run(["git", "init", "-q", self.top], check=True)
            (self.top / ".git/config").write_text(settings)
            (self.root / "text").write_text(with_line(5, "own"))
            self.assertEqual(self.merge({"text": (LINES, with_line(5, "a"))}, "markers"), ["Cm"])
            self.assertNotIn("|||||||", self.tree()["text"])
            shutil.rmtree(self.top / ".git")

    def test_file_that_changes_during_the_merge_ends_it(self):
        """The parent changes a file that was decided already: while git merges the next one."""
        self.put(a="old", text=with_line(1, "own"))
        git = self.top / "bin/git"
        git.parent.mkdir()
        git.write_text(f'#!/bin/sh\necho mine > {self.root}/a\nPATH={os.environ["PATH"]} exec git "$@"\n')
        git.chmod(0o755)
        self.env["PATH"] = str(git.parent)
        self.stage({"a": ("old", "new"), "new": (GONE, "x"), "text": (LINES, with_line(9, "a"))})
        done = self.apply()
        self.assertEqual(done.returncode, 4)
        self.assertIn(b"a changed during the merge", done.stderr)
        self.assertEqual(self.tree(), {"a": "mine\n", "text": with_line(1, "own")})

    def test_many_folders_do_not_need_as_many_descriptors(self):
        paths = {}
        for i in range(300):
            (self.root / f"{i}").mkdir()
            paths[f"{i}/file"] = (GONE, "x")
        self.stage(paths)
        limited = ["sh", "-c", 'ulimit -n 256 && exec "$@"', "sh", sys.executable, "-I", "-S", SCRIPT]
        done = subprocess.run([*limited, "apply", self.stage_path, "report", "p", "o", "1"], capture_output=True)
        self.assertEqual((done.returncode, done.stdout), (0, b"a." * 300))

    @unittest.skipUnless(os.geteuid() == 0, "mounts")
    def test_failure_takes_everything_back(self):
        """A mount point cannot be removed, which only shows when other files are written already."""
        self.put(a="old", b=None, z="z", link=("a",))
        (self.root / "b/in").write_text("x")
        (self.root / "point").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "none", self.root / "point"], check=True)
        try:
            before = self.tree()
            self.stage(
                {
                    "a": ("old", "new"),
                    "b": (None, GONE),
                    "b/in": ("x", GONE),
                    "link": (("a",), GONE),
                    "point": (None, GONE),
                    "z": ("z", ("a",)),
                    "0new": (GONE, None),
                }
            )
            (self.stage_path / "0/5").chmod(0o1777)
            done = self.apply()
            self.assertEqual((done.returncode, self.tree()), (1, before))
            self.assertIn(b"point", done.stderr)
        finally:
            subprocess.run(["umount", self.root / "point"], check=True)

    @unittest.skipUnless(os.geteuid() == 0, "mounts")
    def test_full_disk_leaves_everything_as_it_was(self):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", self.root], check=True)
        try:
            self.put(a="old")
            self.stage({"a": ("old", "new"), "b": (GONE, b"x" * 400_000)})
            done = self.apply()
            self.assertEqual((done.returncode, self.tree()), (3, {"a": "old"}))
        finally:
            subprocess.run(["umount", self.root], check=True)


class Pack(Case):
    def pack(self, *paths):
        listed = self.top / "list"
        listed.write_bytes(b"".join(b"%d\0%s\0" % (i, os.fsencode(p)) for i, p in enumerate(paths)))
        done = self.run_script("pack", listed)
        self.assertEqual((done.returncode, done.stderr, listed.exists()), (0, b"", False))
        archive = self.top / "archive"
        archive.write_bytes(done.stdout)
        with tarfile.open(archive) as tar:
            return {m.name: (m.type, m.mode, tar.extractfile(m).read() if m.isfile() else m.linkname) for m in tar}

    def test_archive_has_numbers_as_names(self):
        make(self.root / "file", "x")
        make(self.root / "link", ("/nowhere",))
        os.mkfifo(self.root / "fifo")
        (self.root / "file").chmod(0o4711)
        paths = [self.root / name for name in ("file", "link", "fifo", "missing", "")]
        got = self.pack(*paths)
        self.assertEqual(got["0"], (tarfile.REGTYPE, 0o4711, b"x"))
        self.assertEqual(got["1"][::2], (tarfile.SYMTYPE, "/nowhere"))
        self.assertEqual((got["4"][0], set(got)), (tarfile.DIRTYPE, {"0", "1", "4"}))


class Diff(Case):
    def diff(self, own, other):
        stage = self.top / "stage"
        (stage / "1").mkdir(parents=True)
        path = self.root / "file"
        for at, what in ((path, own), (stage / "1/0", other)):
            if what != GONE:
                make(at, what)
        (stage / "plan").write_bytes(os.fsencode(path) + b"\0")
        done = self.run_script("diff", stage, "sbx_p:file", "sbx_1:file")
        self.assertFalse(stage.exists())
        if own != GONE:
            path.unlink()
        return done.returncode, done.stdout.decode()

    def test_diff_is_unified(self):
        head = "--- sbx_p:file\n+++ sbx_1:file\n"
        self.assertEqual(self.diff("a\n", "b\n"), (0, head + "@@ -1 +1 @@\n-a\n+b\n"))
        self.assertEqual(self.diff(GONE, "b\n"), (0, head + "@@ -0,0 +1 @@\n+b\n"))
        self.assertEqual(self.diff("a\n", GONE), (0, head + "@@ -1 +0,0 @@\n-a\n"))
        self.assertEqual(self.diff("a\n", "a\n"), (0, ""))

    def test_what_has_no_lines_is_refused(self):
        self.assertEqual(self.diff("a", b"\0b"), (5, ""))
        self.assertEqual(self.diff(("a",), "b"), (5, ""))
        self.assertEqual(self.diff("x" * ((1 << 20) + 1), "b"), (5, ""))
        self.assertEqual(self.diff(GONE, GONE), (6, ""))


if __name__ == "__main__":
    unittest.main()
