# SPDX-License-Identifier: Apache-2.0
"""Three branches work on one repository at the same time, and their work is merged.

The parent has a small package with failing tests. It is forked into three branches, each of which mends one
function, as three agents would; a fourth child stays as it was: the base of the merge. Two branches change
the same file in different places, which is merged by lines. Then the parent, which was never restarted, runs
the tests.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from ramet import Sandbox

REPOSITORY = {
    "shapes.py": """\
def area(width, height):
    return width + height


def perimeter(width, height):
    return width * height
""",
    "words.py": """\
def count(text):
    return len(text)
""",
    "test_all.py": """\
import unittest
from shapes import area, perimeter
from words import count

class All(unittest.TestCase):
    def test_area(self):
        self.assertEqual(area(2, 3), 6)

    def test_perimeter(self):
        self.assertEqual(perimeter(2, 3), 10)

    def test_count(self):
        self.assertEqual(count("one two"), 2)
""",
}

MENDED = {
    "area": "sed -i 's/width + height/width * height/' shapes.py",
    "perimeter": "sed -i '/def perimeter/,$ s/width \\* height/2 * (width + height)/' shapes.py",
    "count": "sed -i 's/len(text)/len(text.split())/' words.py; echo 'Counts words.' > README",
}
TESTS = "cd /root/work && python3 -B -m unittest -q 2>&1 | tail -n 1"


def run(sbx: Sandbox, script: str) -> str:
    result = sbx.run_code(script, "bash")
    if not result.ok:
        raise SystemExit(result.stderr)
    return result.stdout


def main() -> None:
    with Sandbox() as parent, ExitStack() as stack:
        for name, text in REPOSITORY.items():
            parent.files.write(f"/root/work/{name}", text)
        print("before:", run(parent, TESTS).strip())
        base, *branches = (stack.enter_context(child) for child in parent.fork(1 + len(MENDED)))
        with ThreadPoolExecutor() as pool:
            scripts = [f"cd /root/work && {script}" for script in MENDED.values()]
            list(pool.map(run, branches, scripts))
        print(parent.diff_text(branches[0], "/root/work/shapes.py").split("@@")[-1].strip("\n"))
        merged = parent.merge_files(branches, base=base, paths=["/root/work"])
        for one in merged.taken:
            names = [list(MENDED)[i] for i, branch in enumerate(branches) if branch.id in one.branches]
            print(f"{one.change:9} {one.path:22} {' and '.join(names)}")
        for conflict in merged.conflicts:
            print(f"conflict  {conflict.path}: {conflict.reason}")
        print("after:", run(parent, TESTS).strip())


if __name__ == "__main__":
    main()
