# SPDX-License-Identifier: Apache-2.0
"""The packages that the tests install.

RAMET_PACKAGES is the folder that `./dev package` fills, RAMET_PACKAGE_HOSTS one with an archive of a root
for each release of Debian.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from machine import Machine

PACKAGES = Path(os.environ["RAMET_PACKAGES"])
HOSTS = Path(os.environ["RAMET_PACKAGE_HOSTS"])
RELEASES = ["12", "13"]
VMS = "/system.slice/ramet-vms.service"


def host(release: str) -> Path:
    return HOSTS / release / "root.tar"


def deb(release: str, package: str) -> Path:
    return next((PACKAGES / f"debian-{release}").glob(f"{package}_*.deb"))


def with_version(path: Path, version: str, folder: Path) -> Path:
    """Returns a copy of a package with another version, its scripts included."""
    tree = folder / "tree"
    subprocess.run(["dpkg-deb", "-R", path, tree], check=True)
    old = subprocess.run(
        ["dpkg-deb", "-f", path, "Version"], check=True, capture_output=True, text=True
    ).stdout.strip()
    for file in ("control", "preinst", "postinst"):
        if (tree / "DEBIAN" / file).exists():
            text = (tree / "DEBIAN" / file).read_text()
            (tree / "DEBIAN" / file).write_text(text.replace(old, version))
    made = folder / f"{path.stem}_{version}.deb"
    subprocess.run(["dpkg-deb", "-Znone", "-b", tree, made], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(tree)
    return made


def guest_package(folder: Path, files: dict[str, bytes]) -> Path:
    """Returns ramet-guest with these files instead of Linux and its 4 GiB."""
    tree = folder / "guest"
    (tree / "usr/share/ramet").mkdir(parents=True)
    for name, content in files.items():
        (tree / "usr/share/ramet" / name).write_bytes(content)
    real = next(PACKAGES.glob("debian-*/ramet-guest_*.deb"))
    (tree / "DEBIAN").mkdir()
    subprocess.run(["dpkg-deb", "-e", real, tree / "DEBIAN"], check=True)
    (tree / "DEBIAN/md5sums").unlink()
    made = folder / "ramet-guest.deb"
    subprocess.run(["dpkg-deb", "-Znone", "-b", tree, made], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(tree)
    return made


def put(machine: Machine, package: Path, name: str) -> None:
    """Makes a package available to `install`."""
    (machine.root / "packages").mkdir(exist_ok=True)
    shutil.copy(package, machine.root / f"packages/{name}.deb")


def install(machine: Machine, *names: str) -> str:
    paths = " ".join(f"/packages/{name}.deb" for name in names)
    return machine.run(f"apt-get install -y --no-install-recommends --allow-downgrades {paths}").stdout
