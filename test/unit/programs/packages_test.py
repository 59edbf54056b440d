# SPDX-License-Identifier: Apache-2.0
"""Checks the lists of the Debian packages, and the units, against what CMake installs.

Building the packages takes minutes (./dev test all packages); these checks take a second.
"""

import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CMAKE, BUILD, DEBIAN = sys.argv[1], sys.argv[2], Path(sys.argv[3])
BENCH = "usr/lib/ramet/bench"  # only ./dev uses it; packages are built without


def patterns(name: str) -> list[str]:
    lines = (DEBIAN / name).read_text().splitlines()
    return [line.split()[0].removeprefix("debian/tmp/") for line in lines if line and line[0] != "#"]


def takes(pattern: str, path: str) -> bool:
    """Whether dh_install or dh_missing means this file: a pattern for it, or for a folder above it."""
    parts = path.split("/")
    return any(fnmatch.fnmatch("/".join(parts[: n + 1]), pattern) for n in range(len(parts)))


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.tree = tempfile.TemporaryDirectory()
        environment = {**os.environ, "DESTDIR": cls.tree.name}
        subprocess.run([CMAKE, "--install", BUILD], check=True, env=environment, stdout=subprocess.DEVNULL)
        root = Path(cls.tree.name)
        cls.files = [
            str(p.relative_to(root))
            for p in sorted(root.rglob("*"))
            if not p.is_dir() and BENCH not in str(p)
        ]

    @classmethod
    def tearDownClass(cls) -> None:
        cls.tree.cleanup()

    def test_every_installed_file_has_a_package(self) -> None:
        lists = [n for name in ("ramet.install", "ramet.manpages", "not-installed") for n in patterns(name)]
        for file in self.files:
            with self.subTest(file=file):
                self.assertTrue(any(takes(pattern, file) for pattern in lists), "no list names it")

    def test_every_pattern_of_the_service_takes_a_file(self) -> None:
        for pattern in patterns("ramet.install") + patterns("ramet.manpages"):
            with self.subTest(pattern=pattern):
                self.assertTrue(any(takes(pattern, file) for file in self.files), "it takes no file")

    def test_what_debhelper_installs_itself_is_handed_to_it(self) -> None:
        rules = (DEBIAN / "rules").read_text()
        for file in self.files:
            if file.startswith(("usr/lib/systemd/", "usr/lib/sysusers.d/", "usr/lib/tmpfiles.d/")):
                name = "ramet." + file.split("/")[2].removesuffix(".d") if "." in file.split("/")[2] \
                    else Path(file).name
                self.assertIn(name, rules, file)

    def test_a_release_has_one_version(self) -> None:
        named = {
            "CHANGELOG.md": r"(?m)^## \[(\d\S+)\] - \d{4}-\d\d-\d\d$",
            "packaging/debian/changelog": r"\Aramet \((\S+)-\d+\) ",
            "orchestrator/CMakeLists.txt": r'RAMET_VERSION=\\"(\S+)\\"',
            "orchestrator/api/openapi.json": r'"version": "(\S+)"',
            "sdk/python/pyproject.toml": r'(?m)^version = "(\S+)"$',
        }
        top = DEBIAN.parents[1]
        found = {file: re.search(pattern, (top / file).read_text()) for file, pattern in named.items()}
        versions = {file: match and match[1] for file, match in found.items()}
        self.assertNotIn(None, versions.values())
        self.assertEqual(versions, dict.fromkeys(named, versions["packaging/debian/changelog"]))

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd is not installed")
    def test_units_are_understood(self) -> None:
        units = [file for file in self.files if "/systemd/system/" in file]
        self.assertEqual(len(units), 4)
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for unit in units:
                # The commands are where the package will have them.
                text = (Path(self.tree.name) / unit).read_text()
                text = re.sub(r"(?m)^(Exec\w+=)/usr/lib/ramet/", rf"\1{self.tree.name}/usr/lib/ramet/", text)
                path = Path(folder) / Path(unit).name
                path.write_text(text)
                paths.append(str(path))
            done = subprocess.run(
                ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *paths],
                capture_output=True, text=True, env={**os.environ, "SYSTEMD_UNIT_PATH": f"{folder}:"},
            )
        ours = [line for line in done.stderr.splitlines() if re.match(r"(/\S*/)?(ramet|run-ramet)", line)]
        self.assertEqual((done.returncode, ours), (0, []), done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
