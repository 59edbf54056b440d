# SPDX-License-Identifier: Apache-2.0
"""A Debian system with a real systemd, in namespaces of this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

# Runs in new namespaces: mounts what systemd needs below the root, and starts it there. The root
# cgroup that it sees is the one that this shell was in.
BOOT = r"""
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mountpoint -q sys/fs/cgroup || mount -t tmpfs tmpfs sys/fs/cgroup
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
for node in null zero full random urandom tty; do
	: >dev/$node
	mount --bind /dev/$node dev/$node
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mkdir dev/net
: >dev/kvm
: >dev/net/tun
if [ "$2" = kvm ]; then
	mount --bind /dev/kvm dev/kvm
	mount --bind /dev/net/tun dev/net/tun
fi
mkdir -p mnt
pivot_root . mnt
umount -l /mnt
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --show-status=no
"""


SERVICE = "http://127.0.0.1:7070"  # in the machine's network


def cgroup_of_this_process() -> Path:
    mounts = Path("/proc/self/mountinfo").read_text()
    mount = re.search(r"^\S+ \S+ \S+ \S+ (\S+) .* - cgroup2 ", mounts, re.MULTILINE)
    own = re.search(r"^0::(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
    assert mount and own, "cgroup v2 is not mounted"
    return Path(mount[1] + own[1])


class Machine:
    """Boots from an archive of a root; `stop` ends it and removes everything.

    With `kvm`, its /dev/kvm is the real one, else an empty file.
    """

    def __init__(self, archive: Path, folder: Path, kvm: bool = False) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="root-", dir=folder))
        subprocess.run(["tar", "-xf", archive, "-C", self.root], check=True)
        self.cgroup = cgroup_of_this_process() / f"ramet-packages-{self.root.name}"
        self.cgroup.mkdir()
        # Only the first process enters, which systemd moves: a cgroup that passes controllers on has none.
        enter = 'echo 0 >"$1/cgroup.procs"; shift; exec "$@"'
        self.log = self.root / "boot.log"
        with self.log.open("wb") as log:
            self.unshare = subprocess.Popen(
                [
                    *("unshare", "--mount", "--pid", "--uts", "--ipc", "--net", "--fork", "--kill-child"),
                    *("sh", "-ec", enter, "sh", self.cgroup),
                    *("unshare", "--cgroup", "sh", "-ec", BOOT, "sh", self.root),
                    "kvm" if kvm else "no-kvm",
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )
        self.pid = 0

    def wait_for_boot(self) -> None:
        give_up = time.monotonic() + 120
        while True:
            children = Path(f"/proc/{self.unshare.pid}/task/{self.unshare.pid}/children").read_text()
            if children.strip():
                self.pid = int(children.split()[0])
                state = self.run("systemctl is-system-running", check=False).stdout.strip()
                if state in ("running", "degraded"):
                    return
            assert self.unshare.poll() is None, self.log.read_text()
            assert time.monotonic() < give_up, f"systemd did not come up:\n{self.log.read_text()}"
            time.sleep(0.2)

    def run(self, command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs a shell command in the machine; returns its output, both streams as one."""
        done = subprocess.run(
            [
                *("nsenter", "-t", str(self.pid), "-m", "-p", "-C", "-u", "-i", "-n"),
                *("env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive"),
                *("sh", "-c", command),
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=600,
        )
        assert not check or done.returncode == 0, f"`{command}`: {done.returncode}\n{done.stdout}"
        return done

    def curl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs this machine's curl in the network of the machine."""
        enter = ["nsenter", "-t", str(self.pid), "-n", "curl", "--noproxy", "*", "-sS", "--fail-with-body"]
        return subprocess.run([*enter, "-m", "120", *arguments], capture_output=True, text=True)

    def answers(self, path: str) -> bool:
        return self.curl(SERVICE + path).returncode == 0

    def lines(self, method: str, path: str, body: dict[str, Any] | None = None) -> list[Any]:
        """Sends a request to the service; returns the values of its answer, one of each line."""
        data = () if body is None else ("-H", "Content-Type: application/json", "-d", json.dumps(body))
        done = self.curl("-X", method, *data, SERVICE + path)
        assert done.returncode == 0, f"{method} {path}: {done.stdout}{done.stderr}"
        return [json.loads(line) for line in done.stdout.splitlines()]

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Sends a request to the service; returns its answer, None if that is empty."""
        found = self.lines(method, path, body)
        return found[0] if found else None

    def until(self, command: str) -> None:
        """Waits until a shell command succeeds in the machine."""
        give_up = time.monotonic() + 60
        while (done := self.run(command, check=False)).returncode != 0:
            assert time.monotonic() < give_up, f"`{command}` still fails: {done.stdout}"
            time.sleep(0.1)

    def stop(self) -> None:
        (self.cgroup / "cgroup.kill").write_text("1")
        self.unshare.wait()
        give_up = time.monotonic() + 120
        while "populated 1" in (self.cgroup / "cgroup.events").read_text():
            assert time.monotonic() < give_up, f"processes of {self.cgroup} do not end"
            time.sleep(0.05)
        for folder, _, _ in os.walk(self.cgroup, topdown=False):
            os.rmdir(folder)
        shutil.rmtree(self.root)
