# SPDX-License-Identifier: Apache-2.0
"""Three-way merges of files of real guests: with forks that copy, git, and the guest's own disk."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import Iterator

import pytest

import ramet
from conftest import bash, output, run_example
from ramet import Sandbox

LINES = "".join(f"line {i}\n" for i in range(1, 11))


@contextmanager
def family(parent: Sandbox, n: int) -> Iterator[list[Sandbox]]:
    """Yields children of one fork, the first of which is the base, and closes them."""
    with ExitStack() as stack:
        yield [stack.enter_context(child) for child in parent.fork(n)]


@pytest.mark.smoke
def test_work_of_branches_comes_into_the_parent_which_goes_on() -> None:
    with Sandbox() as parent:
        parent.files.write("/root/text", LINES)
        bash(parent, "mkdir /root/old && echo x > /root/old/file && ln -s text /root/link")
        output(parent, "kept = object(); at = id(kept)")
        with family(parent, 4) as (base, a, b, c):
            bash(a, "sed -i 's/line 2/a/' /root/text; rm -r /root/old; chmod 600 /root/text")
            bash(b, "sed -i 's/line 9/b/' /root/text; mkdir /root/new; head -c 5000000 /dev/urandom > /root/new/big")
            bash(c, "mv /root/link /root/moved")
            bash(parent, "sed -i 's/line 5/parent/' /root/text; echo mine > /root/mine")
            big = b.run_code("sha256sum < /root/new/big", "bash").stdout
            merged = parent.merge_files([a, b, c], base=base, paths=["/root"])
            assert (merged.applied, merged.conflicts) == (True, [])
            changes = {one.path: (one.change, len(one.branches)) for one in merged.taken}
            assert changes == {
                "/root/link": ("removed", 1),
                "/root/moved": ("added", 1),
                "/root/new": ("added", 1),
                "/root/new/big": ("added", 1),
                "/root/old": ("removed", 1),
                "/root/old/file": ("removed", 1),
                "/root/text": ("merged", 2),
            }
        text = LINES.replace("line 2", "a").replace("line 5", "parent").replace("line 9", "b")
        assert parent.files.read_text("/root/text") == text
        assert bash(parent, "stat -c %a /root/text; cat /root/mine; readlink /root/moved") == "600\nmine\ntext\n"
        assert bash(parent, "sha256sum < /root/new/big") == big
        assert bash(parent, "ls -A /root /var/tmp | grep -c ramet- || true") == "0\n"
        assert output(parent, "print(id(kept) == at)") == "True\n"


def test_conflicts_are_reported_and_then_decided() -> None:
    with Sandbox() as parent:
        parent.files.write("/root/text", LINES)
        with family(parent, 3) as (base, a, b):
            for one, word in ((a, "a"), (b, "b")):
                bash(one, f"sed -i 's/line 5/{word}/' /root/text; echo {word} > /root/{word}")
            merged = parent.merge_files([a, b], base=base, paths=["/root"])
            assert [(one.path, one.reason) for one in merged.conflicts] == [("/root/text", "content")]
            assert not merged.applied and parent.files.read_text("/root/text") == LINES
            assert parent.merge_files([a, b], base=base, paths=["/root"], conflicts="theirs").applied
            assert parent.files.read_text("/root/text") == LINES.replace("line 5", "b")
            assert bash(parent, "cat /root/a /root/b") == "a\nb\n"
            assert "\n-b\n+a\n" in parent.diff_text(a, "/root/text")


def test_base_of_a_later_fork_is_refused() -> None:
    with Sandbox() as parent, family(parent, 1) as (early,), family(parent, 1) as (late,):
        with pytest.raises(ramet.Conflict, match="was forked later than") as refused:
            parent.merge_files([early], base=late, paths=["/root"])
        assert refused.value.code == "not_a_descendant"
        assert parent.merge_files([late], base=early, paths=["/root"]).applied


def test_full_disk_leaves_the_parent_as_it_was() -> None:
    with Sandbox() as parent:
        bash(parent, "mkdir /root/small && mount -t tmpfs -o size=1M none /root/small && echo old > /root/small/file")
        with family(parent, 2) as (base, a):
            bash(a, "mount -o remount,size=9M /root/small && head -c 4000000 /dev/zero > /root/small/big; "
                    "echo new > /root/small/file")  # fmt: skip
            with pytest.raises(ramet.DiskFull):
                parent.merge_files([a], base=base, paths=["/root/small"])
        assert bash(parent, "ls -A /root/small; cat /root/small/file") == "file\nold\n"


def test_example_merges_three_branches() -> None:
    out = run_example("best_of_merge.py")
    assert "merged    /root/work/shapes.py   area and perimeter" in out
    assert out.splitlines()[0].startswith("before: FAILED") and out.splitlines()[-1] == "after: OK"
