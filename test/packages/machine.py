# SPDX-License-Identifier: Apache-2.0
"""A Debian system with a real systemd, in namespaces of this machine."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

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
: >dev/kvm
mkdir -p mnt
pivot_root . mnt
umount -l /mnt
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --show-status=no
"""


def cgroup_of_this_process() -> Path:
    mounts = Path("/proc/self/mountinfo").read_text()
    mount = re.search(r"^\S+ \S+ \S+ \S+ (\S+) .* - cgroup2 ", mounts, re.MULTILINE)
    own = re.search(r"^0::(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
    assert mount and own, "cgroup v2 is not mounted"
    return Path(mount[1] + own[1])


class Machine:
    """Boots from an archive of a root; `stop` ends it and removes everything."""

    def __init__(self, archive: Path, folder: Path) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="root-", dir=folder))
        subprocess.run(["tar", "-xf", archive, "-C", self.root], check=True)
        self.cgroup = cgroup_of_this_process() / f"ramet-packages-{os.getpid()}"
        self.cgroup.mkdir()
        enter = 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"'
        self.log = self.root / "boot.log"
        with self.log.open("wb") as log:
            self.unshare = subprocess.Popen(
                [
                    *("sh", "-ec", enter, "sh", self.cgroup),
                    *("unshare", "--mount", "--pid", "--cgroup", "--uts", "--ipc", "--net"),
                    *("--fork", "--kill-child", "sh", "-ec", BOOT, "sh", self.root),
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

    def until(self, command: str) -> None:
        """Waits until a shell command succeeds in the machine."""
        give_up = time.monotonic() + 60
        while (done := self.run(command, check=False)).returncode != 0:
            assert time.monotonic() < give_up, f"`{command}` still fails: {done.stdout}"
            time.sleep(0.1)

    def stop(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)  # ends all processes of its PID namespace
        self.unshare.kill()
        self.unshare.wait()
        # This machine's cgroups alone, lowest first.
        groups = sorted(self.cgroup.rglob("*/"), key=lambda p: len(p.parts), reverse=True)
        give_up = time.monotonic() + 30
        for group in [*(g for g in groups if g.is_dir()), self.cgroup]:
            while True:
                try:
                    group.rmdir()
                    break
                except OSError:  # a process is still ending
                    assert time.monotonic() < give_up, f"{group} is still in use"
                    time.sleep(0.05)
        shutil.rmtree(self.root)
