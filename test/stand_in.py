# SPDX-License-Identifier: Apache-2.0
"""A service with stand-in VMs: the HTTP API, the core and the real agent, without KVM.

All its sandboxes share one agent, so a fork or a Space copies nothing. With a root file system the
agent sees the files and programs of a real guest, in namespaces of its own; what it writes is gone
when the service stops. Without one, its operations happen on this machine.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

SERVER = os.environ.get("GUEST_API_SERVER", "build/test/guest_api/guest_api_server")
AGENT = os.environ.get("RAMET_INIT", "build/guest/ramet-init")

# The address sanitizer keeps freed memory, up to 256 MiB of it, which tests of the service's memory
# would count.
SANITIZER = ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), "quarantine_size_mb=4"]))

# Arguments: an empty folder, a root file system, the agent, and the folder of its socket.
AS_A_GUEST = """
set -e
mount -t tmpfs none "$1"
cd "$1"
mkdir base upper work root
mount -o loop,ro,noload "$2" base
mount -t overlay -o lowerdir=base,upperdir=upper,workdir=work none root
mount -t proc none root/proc
mount --rbind /sys root/sys
mount --rbind /dev root/dev
mount -t tmpfs none root/dev/shm
mkdir -p root/run/agent
mount --bind "$4" root/run/agent
install "$3" root/run/ramet-init
ip link set lo up
cd root
chroot . env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    /run/ramet-init agent --unix /run/agent/sock --run-dir /run/agent/run --dry-run-system
exit $? # sh stays, and reaps processes that have lost their parent
"""


class Service:
    """The service, and the agent that all its sandboxes share."""

    def __init__(self, home: Path, *tiers: str, rootfs: str = "") -> None:
        self.home = home
        self.log = home / "service.log"
        self.socket = home / "agent" / "sock"
        self.socket.parent.mkdir()
        self._start_agent(self._as_a_guest(rootfs) if rootfs else self._here())
        (home / "service").mkdir()
        self.start(*tiers)
        assert self.server.stdout
        self.keys = [self.server.stdout.readline().decode().strip() for _ in tiers]

    def _start_agent(self, command: list[str]) -> None:
        # A file: what nobody reads from a pipe would fill it, and the agent would wait.
        log = self.home / "agent.log"
        with log.open("wb") as file:
            self.agent = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stderr=file,
                env={**os.environ, "HOME": str(self.home), "LANG": "C.UTF-8"},
            )
        while b"agent ready" not in log.read_bytes():
            assert self.agent.poll() is None, log.read_text()
            time.sleep(0.01)

    def replace_agent(self, died: str) -> None:
        """Kills the agent on this machine and starts another one, as init does."""
        self.agent.kill()
        self.agent.wait()
        self._start_agent([*self._here(), "--died", died])

    def _here(self) -> list[str]:
        run_dir = f"{self.socket.parent}/run"
        return [AGENT, "agent", "--unix", f"{self.socket}", "--run-dir", run_dir, "--dry-run-system"]

    def _as_a_guest(self, rootfs: str) -> list[str]:
        folder = self.home / "guest"
        folder.mkdir()
        apart = ["unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child"]
        words = [folder, rootfs, AGENT, self.socket.parent]
        return [*apart, "sh", "-c", AS_A_GUEST, "sh", *map(str, words)]

    def start(self, *tiers: str) -> None:
        """Starts the service with new keys of these tiers; older ones stay valid."""
        with self.log.open("ab") as log:
            self.server = subprocess.Popen(
                [SERVER, f"{self.home}/service", f"{self.socket}", *tiers],
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "ASAN_OPTIONS": SANITIZER},
            )
        assert self.server.stdout
        port = int(self.server.stdout.readline() or 0)
        assert port, self.log.read_text()
        self.base = f"http://127.0.0.1:{port}"

    def kill(self) -> None:
        """Kills the service, and with it its VMs, but not the agent."""
        self.server.kill()
        self.server.wait()

    def stop(self) -> None:
        self.server.terminate()
        code = self.server.wait(60)
        self.agent.kill()
        self.agent.wait()
        assert code == 0, self.log.read_text()
