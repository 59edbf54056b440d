# SPDX-License-Identifier: Apache-2.0
"""The whole service, natively, with the tiny guest (tiny-guest.c) as its default template.

`native_service` starts this file again in namespaces of its own: network, mounts, processes. There
it starts the warden and the service with their own port, folders and cgroup, so that they run
beside any other service and leave nothing behind, also after Ctrl-C.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from measure import BenchError, Figures, figure

TOP = Path(__file__).resolve().parent.parent
BUILD = TOP / "build/release"
PORT = 7070  # in a network namespace of its own
ACCOUNT = 64998  # of the service; no account has this number
VM_UID_BASE = 600000
START_S = 60
TINY_RAM_MIB = 256

EXEC = b'{"code":"echo 1","language":"bash","output":"chunks"}'
JSON = {"Content-Type": "application/json"}


# --- outside the namespaces ------------------------------------------------------------------------


def cgroup_mount() -> Path:
    """Returns where cgroup v2 is mounted."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        if right.startswith("cgroup2 "):
            return Path(left.split()[4])
    raise BenchError("cgroup v2 is not mounted; rametd needs it")


def remove_cgroup(path: Path) -> None:
    """Removes a cgroup with those in it, which hold no process any more."""
    for folder, _, _ in os.walk(path, topdown=False):
        os.rmdir(folder)


# The first process of the namespace: it reaps what a killed warden leaves.
INIT = ["sh", "-c", '"$@"; exit $?', "init"]


def in_namespaces(script: str, *args: str) -> Figures:
    """Runs a script in namespaces of its own, with a folder as its first argument.

    Returns the figures that it prints.
    """
    if os.geteuid():
        raise BenchError("rametd needs root: run ./dev bench as root")
    folder = Path(tempfile.mkdtemp(prefix="ramet-native-", dir="/var/tmp"))
    group = cgroup_mount() / folder.name
    namespaces = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command = [*namespaces, *INIT, sys.executable, script, str(folder), *args]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if group.exists():
            remove_cgroup(group)
    if done.returncode:
        raise BenchError(f"the measurement ended with status {done.returncode}; see above")
    figures: Figures = json.loads(done.stdout)
    return figures


def native_service(quick: bool) -> Figures:
    """The service on this machine itself, with a tiny guest instead of Linux."""
    return in_namespaces(__file__, *(["--quick"] if quick else []))


# --- inside ----------------------------------------------------------------------------------------


def run(*command: str | Path) -> str:
    """Runs a command; returns its standard output."""
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise BenchError(f"`{' '.join(map(str, command))}` failed ({done.returncode})")
    return done.stdout


def run_json(*command: str | Path) -> Figures:
    """Runs a program that prints one JSON object; returns it."""
    figures: Figures = json.loads(run(*command))
    return figures


class Service:
    """A running service. Its files are in `folder`, and removed with that."""

    def __init__(self, folder: Path, ram_mib: int = TINY_RAM_MIB, **settings: int) -> None:
        self.group = cgroup_mount() / folder.name
        self.log = folder / "log"
        self.connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
        state = Path(tempfile.mkdtemp(prefix="state-", dir=folder))
        os.chown(state, ACCOUNT, ACCOUNT)
        self.flags = {
            "user": ACCOUNT,
            "vm_uid_base": VM_UID_BASE,
            "cgroup": f"/{folder.name}",
            "state_dir": state,
            "run_dir": folder / "run",
            "vmm": folder / "ramet-vmm",
            "kernel": folder / "tiny-guest",
            "initramfs": folder / "initramfs",
            "rootfs": folder / "rootfs.ext4",
            "templates_dir": "",
            "sizes": "",
            "listen_port": PORT,
            "vcpus": 1,
            "ram_mib": ram_mib,
            "rootfs_gb": 1,
            **settings,
        }
        self.folder = folder
        self.start()

    def start(self) -> None:
        """Starts the warden, which starts the service."""
        flags = [f"--{name}={value}" for name, value in self.flags.items()]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [self.folder / "native-warden", self.folder / "rametd", *flags],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout
        self.missing = self.process.stdout.readline().partition(":")[2].split()

    def ask(self, method: str, path: str, body: bytes = b"") -> str:
        """Sends a request over a connection that stays open; returns the body of the answer."""
        try:
            self.connection.request(method, path, body, JSON)
            answer = self.connection.getresponse()
            text = answer.read().decode()
        except (OSError, http.client.HTTPException):
            self.connection.close()  # the next request opens it again
            raise
        if answer.status >= 300:
            raise BenchError(f"{method} {path}: {answer.status} {text}")
        return text

    def level(self, metric: str) -> int:
        """Returns the value of a metric."""
        for line in self.ask("GET", "/metrics").splitlines():
            if line.startswith(metric + " "):
                return int(float(line.split()[1]))
        raise BenchError(f"there is no metric {metric}")

    def await_pool(self, blank: int, warm: int, within_s: float = START_S) -> None:
        """Waits until the pool has so many VMs."""
        until = time.monotonic() + within_s
        while True:
            try:
                self.ask("GET", "/v1/healthz")  # fails until the template is ready
                have = self.level("ramet_blank_vms_ready"), self.level("ramet_warm_ready")
                if have >= (blank, warm) and have[1] >= warm:
                    return
            except (OSError, http.client.HTTPException, BenchError):
                have = 0, 0
            if self.process.poll() is not None or time.monotonic() > until:
                raise BenchError(f"the service did not start; its log:\n{self.end_of_log()}")
            time.sleep(0.05)

    def end_of_log(self) -> str:
        """Returns the last lines of the log."""
        return "\n".join(self.log.read_text().splitlines()[-20:])

    def create(self) -> str:
        """Creates a sandbox; returns its path."""
        return "/v1/sandboxes/" + str(json.loads(self.ask("POST", "/v1/sandboxes", b"{}"))["id"])

    def stop(self) -> None:
        """Ends the service with all its VMs."""
        self.connection.close()
        self.process.terminate()
        try:
            self.process.wait(60)
        finally:
            self.process.kill()


@contextmanager
def service(
    folder: Path, *, blank: int = 6, warm: int = 2, ram_mib: int = TINY_RAM_MIB, **settings: int
) -> Iterator[Service]:
    """A service whose pool is full. The default is the pool that rametd has by default."""
    running = Service(folder, ram_mib, pool_blank_vms=blank, pool_warm=warm, **settings)
    try:
        running.await_pool(blank, warm, START_S + blank / 10)
        yield running
    except BenchError:
        print(running.end_of_log(), file=sys.stderr)
        raise
    finally:
        running.stop()


def sdk_exec(runs: int) -> Figures:
    """A call through the Python SDK."""
    sys.path.insert(0, str(TOP / "sdk/python/src"))
    from ramet import Sandbox  # needs httpx

    took = []
    with Sandbox(host=f"http://127.0.0.1:{PORT}") as sandbox:
        for _ in range(runs):
            began = time.perf_counter()
            result = sandbox.run_code("echo 1", language="bash")
            took.append((time.perf_counter() - began) * 1e3)
            if result.stdout.strip() != "1":
                raise BenchError(f"a call through the SDK printed {result.stdout!r}")
    return {"exec_sdk_ms": figure(took, "ms")}


def private_kib() -> list[float]:
    """Returns the private memory of each VM process, without the kernel's for it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "comm").read_text().strip() != "ramet-vmm":
                continue
            lines = (process / "smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        found.append(sum(float(line.split()[1]) for line in lines if line.startswith("Private_")))
    return found


def daily(folder: Path, quick: bool) -> Figures:
    """Calls, creates, Spaces, forks in a row and rates, with the default pool."""
    scale = 1 if quick else 10
    client = BUILD / "test/native/native-latency"
    at = ["--port", str(PORT)]
    with service(folder) as running:
        vm = ["--vmm", f"{folder}/ramet-vmm", "--guest", f"{folder}/tiny-guest"]
        figures = run_json(client, *at, *vm, "--calls", str(200 * scale))
        figures |= sdk_exec(50 * scale)
        creates = ["--creates", str(6 * scale), "--runs", "1"]
        figures |= run_json(BUILD / "bench/http-latency", *at, *creates)
        del figures["exec_bash_ms"]
        figures |= run_json(client, *at, "--spaces", str(5 * scale))
        running.await_pool(6, 2)
        figures |= run_json(client, *at, "--forks", "5,20")
        running.await_pool(6, 2)
        figures |= run_json(client, *at, "--forks", f"32,{2 if quick else 5}")
        for rate in ("exec,16", "fork,16", "create,16"):
            running.await_pool(6, 2)
            what = ["--cgroup", str(running.group), "--rate", f"{rate},{2 if quick else 10}"]
            figures |= run_json(client, *at, *what)
    return figures


def empty_pool(folder: Path, quick: bool) -> Figures:
    """Creates without a pool."""
    creates = "5" if quick else "50"
    with service(folder, blank=0, warm=0):
        empty = ["--port", str(PORT), "--empty", "--creates", creates]
        return run_json(BUILD / "bench/http-latency", *empty)


def forks(folder: Path, quick: bool) -> Figures:
    """Forks with a blank VM ready for each child."""
    children = [1, 5] if quick else [1, 5, 10, 32, 100]
    most = max(children)
    with service(folder, blank=most, warm=1, fork_max=most, max_vms=3 * most + 20):
        blank = figure(private_kib(), "KiB")
        what = ["--children", ",".join(map(str, children)), "--runs", "5" if quick else "20"]
        pool = ["--port", str(PORT), "--poll-ms", "50", "--pool", str(most + 1)]
        figures = run_json(BUILD / "bench/fork-latency", *pool, *what)
    return {"private_kib_per_blank_vm": blank, **figures}


def pauses(folder: Path, quick: bool) -> Figures:
    """Forks of a parent, idle and writing, with little and with half of its RAM written."""
    figures: Figures = {}
    little, half = ("", "_little"), ("touch half\\n", "")
    sizes = [(256, "256m", [little, half])]
    if not quick:
        sizes += [(1024, "1g", [little, half]), (4096, "4g", [little, half])]
        sizes += [(16384, "16g", [little])]  # half of it, twice, is more than many machines have
    host_mib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    for ram_mib, size, cases in [one for one in sizes if one[0] <= host_mib]:
        with service(folder, blank=2, warm=1, ram_mib=ram_mib):
            for before, written in cases:
                pool = ["--port", str(PORT), "--poll-ms", "20", "--pool", "3"]
                what = ["--pauses", "20" if quick else "100", "--idle-code", before + "echo"]
                what += ["--writing-code", before + "write 4"]
                found = run_json(BUILD / "bench/fork-latency", *pool, *what)
                for kind in ("idle", "writing"):
                    name = f"pause_{kind}_{size}{written}_ms"
                    figures[name] = found[f"parent_pause_{kind}_ms"]
                if not written:
                    figures[f"fork_answer_half_{size}_ms"] = found["fork_answer_idle_ms"]
    return figures


# --- system calls ----------------------------------------------------------------------------------


@contextmanager
def counter(group: Path, counts: dict[str, float]) -> Iterator[None]:
    """Counts the system calls of the service, the warden, and all of rametd's processes."""
    groups = {name: f"{group.name}{below}" for name, below in GROUPS.items()}
    command = ["perf", "stat", "-a", "-x,", "--no-big-num"]
    for path in groups.values():
        command += ["-e", "raw_syscalls:sys_enter", "-G", path]
    perf = subprocess.Popen(  # it counts until `cat` ends, at the end of its input
        [*command, "cat"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        time.sleep(0.3)  # until it counts
        yield
    finally:
        _, text = perf.communicate()
    seen = {}
    for line in text.splitlines():
        part = line.split(",")
        if len(part) > 3 and part[2].startswith("raw_syscalls"):
            # No process of a cgroup that is "<not counted>" ran meanwhile.
            seen[part[3]] = float(part[0]) if part[0].isdigit() else 0.0
    if len(seen) != len(groups):
        raise BenchError(f"perf stat did not count system calls: {text.strip()[-300:]}")
    counts.update({name: seen[path] for name, path in groups.items()})


GROUPS = {"": "", "_service": "/ramet/service", "_warden": "/ramet/warden"}


def count(name: str, group: Path, n: int, step: Callable[[], object]) -> Figures:
    """Counts the system calls of n steps; returns those of one."""
    counts: dict[str, float] = {}
    with counter(group, counts):
        for _ in range(n):
            step()
        time.sleep(0.1)  # for what follows an answer
    return {
        f"syscalls_{name}{who}": figure([number / n], "calls") for who, number in counts.items()
    }


def system_calls(folder: Path, quick: bool) -> Figures:
    """The system calls of one operation, by all processes, without refilling the pool.

    With as many VMs as max_vms permits, the pool cannot be refilled. The create of the parent takes
    the warm sandbox, and the next one is made of a blank VM: hence one more of those than forks.
    """
    if not shutil.which("perf"):
        print("system calls are not counted: perf is not installed", file=sys.stderr)
        return {}
    figures: Figures = {}
    n = 5
    with service(folder, blank=n + 1, warm=1, max_vms=n + 2) as running:
        parent = running.create()
        running.await_pool(n, 1)
        calls = parent + "/exec"
        running.ask("POST", calls, EXEC)
        figures |= count("exec", running.group, 40, lambda: running.ask("POST", calls, EXEC))
        fork = parent + "/fork"
        figures |= count("fork_n1", running.group, n, lambda: running.ask("POST", fork, b'{"n":1}'))
    with service(folder, blank=0, warm=n, max_vms=n) as running:
        figures |= count("create", running.group, n, running.create)
    with service(folder, blank=0, warm=0) as running:
        made: list[str] = []
        figures |= count(
            "create_empty", running.group, n, lambda: made.append(running.create())
        )
        figures |= count("delete", running.group, n, lambda: running.ask("DELETE", made.pop()))
    return figures


def httpx_version() -> str:
    """Returns the version of the SDK's HTTP library."""
    import httpx

    return httpx.__version__


def machine(folder: Path, load: float) -> Figures:
    """Describes the machine, and how busy others kept it."""
    cpu = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    with service(folder, blank=0, warm=0) as running:
        missing = running.missing
    return {
        "machine": {
            "cpu": cpu[0] if cpu else "",
            "cpus": len(os.sched_getaffinity(0)),
            "kernel": os.uname().release,
            "ramet": run(folder / "rametd", "--version").strip(),
            "guest": "tiny",
            "httpx": httpx_version(),
            "load": [load, os.getloadavg()[0]],  # before and after
            "missing_cgroup_controllers": missing,
        }
    }


def prepare(folder: Path) -> None:
    """Puts the programs where the service's account can read them."""
    run("ip", "link", "set", "lo", "up")
    folder.chmod(0o755)
    (folder / "run").mkdir()
    run("mount", "-t", "tmpfs", "-o", "mode=755", "ramet", folder / "run")
    for program in (
        "test/native/tiny-guest",
        "vmm/ramet-vmm",
        "orchestrator/daemon/rametd",
        "bench/native-warden",
    ):
        shutil.copy(BUILD / program, folder)
    (folder / "initramfs").write_text("none\n")
    with (folder / "rootfs.ext4").open("wb") as disk:
        disk.truncate(1 << 30)


def print_figures(measure: Callable[[], Figures]) -> int:
    """Prints the figures as JSON, or why there are none. Returns the exit status."""
    try:
        print(json.dumps(measure()))
    except BenchError as failed:
        print(f"bench: {failed}", file=sys.stderr)
        return 1
    return 0


def inside(folder: Path, quick: bool) -> Figures:
    """Measures everything, in the namespaces."""
    load = os.getloadavg()[0]
    prepare(folder)
    runs = "30" if quick else "200"
    figures = run_json(
        BUILD / "bench/kvm-floor", "--vcpus", "1", "--ram-mib", str(TINY_RAM_MIB), "--runs", runs
    )
    for measure in (daily, empty_pool, forks, pauses, system_calls):
        print(f"measuring: {(measure.__doc__ or '').splitlines()[0]}", file=sys.stderr)
        figures |= measure(folder, quick)
    return {**figures, **machine(folder, load)}


def main() -> int:
    """Runs in the namespaces. Prints the figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    return print_figures(lambda: inside(args.folder, args.quick))


if __name__ == "__main__":
    sys.exit(main())
