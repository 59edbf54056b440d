# SPDX-License-Identifier: Apache-2.0
"""A service with stand-in VMs: the HTTP API, the service and an agent, without KVM.

All its sandboxes share the real agent, so a fork or a Space copies nothing; without that, each has one
that runs the scripts of test/unit/service/fakes.h. With a root file system the real agent sees the files
and programs of a real guest, in namespaces of its own; what it writes is gone when the service stops.
Without one, its operations happen on this machine.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, Callable

import httpx

SERVER = os.environ.get("SERVICE_SERVER", "build/test/service/service_server")
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


def pause() -> None:
    """Lets others run before a test looks again; a loop without it would keep a CPU busy."""
    time.sleep(0.02)


def until(holds: Callable[[], Any]) -> None:
    """Waits until it holds; the test's timeout ends it."""
    while not holds():
        pause()


class Service:
    """The service, and the agent that all its sandboxes share, if it is the real one.

    `settings` are those of test/service/server.c; the tier of a key may stand without its `key=`. The server
    inherits the descriptors `fds`.
    """

    def __init__(
        self, home: Path, *settings: str, rootfs: str = "", agent: bool = True, fds: tuple[int, ...] = ()
    ) -> None:
        self.home = home
        self.fds = fds
        self.log = home / "service.log"
        self.socket = home / "agent" / "sock"
        self.has_agent = agent
        if agent:
            self.socket.parent.mkdir()
            self._start_agent(self._as_a_guest(rootfs) if rootfs else self._here())
        (home / "service").mkdir(exist_ok=True)
        self.keys: list[str] = []
        self.start(*settings)

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
            pause()

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

    def start(self, *settings: str) -> None:
        """Starts the service; earlier keys stay valid."""
        named = [one if "=" in one else f"key={one}" for one in settings]
        first = [f"dir={self.home}/service", *([f"agent={self.socket}"] if self.has_agent else [])]
        with self.log.open("ab") as log:
            self.server = subprocess.Popen(
                [SERVER, *first, *named],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=self.fds,
                env={**os.environ, "ASAN_OPTIONS": SANITIZER},
            )
        assert self.server.stdout
        self.port = int(self.server.stdout.readline() or 0)
        assert self.port, self.log.read_text()
        self.keys += [self.server.stdout.readline().decode().strip() for one in named if one.startswith("key=")]
        self.base = f"http://127.0.0.1:{self.port}"
        self.pid = self.server.pid
        self.killed = False

    def restart(self) -> None:
        """Replaces the service as after a crash; its VMs live on."""
        self.port = int(self.tell("restart"))
        self.base = f"http://127.0.0.1:{self.port}"

    def sleep(self) -> None:
        """Stops the service's threads until `wake`; a signal alone stops them some time later."""
        self.server.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def wake(self) -> None:
        self.server.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kills the service, and with it its VMs, but not the agent."""
        self.killed = True
        self.server.kill()
        self.server.wait()

    def stop(self) -> None:
        """Ends the service as an operator would, and the agent.

        Checks that the service ended well, unless a test has killed it.
        """
        self.server.terminate()
        code = self.server.wait(60)
        if self.has_agent:
            self.agent.kill()
            self.agent.wait()
        assert code == 0 or self.killed, self.log.read_text(errors="replace")

    def whole_log(self) -> str:
        """Stops the service; returns all that it has logged."""
        self.stop()
        return self.log.read_text(errors="replace")

    def tell(self, line: str) -> str:
        """Sends a line that test/service/server.c obeys; returns the answer."""
        assert self.server.stdin and self.server.stdout
        self.server.stdin.write(f"{line}\n".encode())
        self.server.stdin.flush()
        return self.server.stdout.readline().decode().strip()

    def until_waiting(self, n: int) -> None:
        """Waits until `n` scripts or faults wait for `go`; the test's timeout ends it."""
        while int(self.tell("waiting")) != n:
            pause()

    def go(self, n: int = 1) -> None:
        """Waits until `n` scripts or faults wait, and releases them."""
        self.until_waiting(n)
        self.tell("go")

    def clear(self, http: httpx.Client) -> None:
        """Deletes all sandboxes, Spaces and checkpoints."""
        for one in http.get("/v1/checkpoints").json():
            http.patch(f"/v1/checkpoints/{one['id']}", json={"pin": False})
            http.delete(f"/v1/checkpoints/{one['id']}")
        for kind in ("sandboxes", "spaces"):
            for one in http.get(f"/v1/{kind}").json():
                http.delete(f"/v1/{kind}/{one['id']}")

    def client(self, http2: bool = False, **more: Any) -> httpx.Client:
        return httpx.Client(**self._how(http2), **more)

    def slow_client(self) -> httpx.Client:
        """Returns a client with a small receive buffer; the usual one grows to 32 MiB."""
        small = [(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)]
        return self.client(transport=httpx.HTTPTransport(socket_options=small))

    def async_client(self, http2: bool = False) -> httpx.AsyncClient:
        return httpx.AsyncClient(**self._how(http2))

    def _how(self, http2: bool) -> dict[str, Any]:
        versions = {"http1": not http2, "http2": http2}
        no_tls = {"verify": False}  # otherwise each client reads the machine's certificates
        return {"base_url": self.base, "timeout": 60, "trust_env": False, **no_tls, **versions}

    def connect(self, slow: bool = False) -> socket.socket:
        """Connects; if `slow`, the buffers of the kernel stay small, on the service's side too."""
        s = socket.socket()
        s.settimeout(60)
        if slow:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1000)
            # With 64 KiB, the service's side would grow to 1 MiB as the connection gets older.
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", self.port))
        return s

    def raw(self, request: bytes) -> bytes:
        """Sends bytes and returns all that is received until the service closes."""
        with self.connect() as s:
            s.sendall(request)
            return until_closed(s)

    def metrics(self) -> dict[str, float]:
        """Returns the values in /metrics by name."""
        with self.client() as http:
            text = http.get("/metrics").text
        pairs = (line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
        return {name: float(value) for name, value in pairs}

    def wait(self, condition: Callable[[dict[str, float]], bool]) -> dict[str, float]:
        """Polls the metrics until `condition` holds; the test's timeout ends it."""
        while True:
            metrics = self.metrics()
            if condition(metrics):
                return metrics
            pause()

    def until_idle(self) -> None:
        """Waits until no request but that for the metrics is in progress."""
        self.wait(lambda f: f["ramet_http_requests_live"] == 1)

    def until_same(self, value: Callable[[], float]) -> None:
        """Waits until a value has grown and then stays the same: the flow has stopped."""
        before, rounds = 0.0, 0
        while rounds < 20:
            now = value()
            rounds = rounds + 1 if now == before and now else 0
            before = now
            pause()

    def rss(self) -> int:
        """Returns the resident bytes."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * resource.getpagesize()


def until_closed(s: socket.socket) -> bytes:
    data = b""
    while True:
        try:
            chunk = s.recv(65536)
        except ConnectionResetError:
            return data
        if not chunk:
            return data
        data += chunk
