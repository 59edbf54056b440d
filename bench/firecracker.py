#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures with Firecracker what a fork does: a snapshot of a running guest, and new processes that
load it. The guest is the one that Ramet boots: the same kernel, init and root file system. Runs on
the host of the VMs and prints one JSON object:

  firecracker_boot_ms       from InstanceStart to the first answer of the guest's agent
  firecracker_snapshot_ms   pause and full snapshot
  firecracker_ready_nN_ms   from the start of N processes until the last has loaded and resumed it
  firecracker_usable_nN_ms  the same, until the last one's agent has answered

With --tiny the guest consists of a kernel only, tiny-guest.c, which takes commands from the serial
port, and all of it runs wherever Firecracker does. Half of its RAM is written once, and 16 MiB before
each snapshot. Instead of boot_ms, snapshot_ms and usable_nN_ms it prints:

  firecracker_full_16m_ms   pause, full snapshot, and resume
  firecracker_diff_16m_ms   the same with a diff snapshot, in turns, of what was written since the last
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from measure import Figures, figure

SHARE = Path("/usr/share/ramet")
# Ramet's command line without its console: orchestrator/images/template-build.c, vmm/arch/x86/boot.c
CMDLINE = (
    "quiet root=/dev/vda rw panic=-1 irqaffinity=0"
    " reboot=k no_timer_check tsc=reliable io_delay=none"
)
AGENT_PORT = 5555  # this and the frames below are from proto/agent.h
PING = b"\0\0\0\0\1\0\0\0"
PONG = 64
BOOT_TIMEOUT_S = 180
TIMEOUT_S = 60
WRITTEN_MIB = 16  # since the snapshot before


Samples = dict[str, list[float]]  # of each figure, in ms


class Failed(Exception):
    """A measurement failed; the text is a sentence that says why."""


def ms_since(start: float) -> float:
    return (time.monotonic() - start) * 1e3


def request(method: str, path: str, body: dict[str, Any]) -> bytes:
    text = json.dumps(body)
    return (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Accept: application/json\r\nContent-Length: {len(text)}\r\n\r\n{text}"
    ).encode()


class Firecracker:
    """One Firecracker process. Each needs a separate working directory, as a snapshot contains the
    path of the vsock's socket, which is relative."""

    def __init__(self, binary: Path, folder: Path, serial_port: bool = False) -> None:
        folder.mkdir()
        self.folder = folder
        self.log = (folder / "log").open("wb", buffering=0)
        self.process = subprocess.Popen(
            [binary, "--api-sock", "api.sock", "--level", "Error"],
            cwd=folder,
            stdin=subprocess.PIPE if serial_port else subprocess.DEVNULL,
            stdout=subprocess.PIPE if serial_port else self.log,
            stderr=self.log,
        )

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.log.close()

    def fail(self, what: str) -> Failed:
        log = (self.folder / "log").read_text(errors="replace").strip()
        return Failed(f"{what}; Firecracker's log: {log[-500:] or 'empty'}")

    def connected(self, name: str, timeout_s: float) -> socket.socket:
        """Connects to one of its sockets; waits until the socket exists."""
        give_up = time.monotonic() + timeout_s
        while True:
            s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            s.settimeout(timeout_s)
            try:
                s.connect(str(self.folder / name))
                return s
            except (FileNotFoundError, ConnectionRefusedError):
                s.close()
            if self.process.poll() is not None:
                raise self.fail(f"the process ended with {self.process.returncode}")
            if time.monotonic() > give_up:
                raise self.fail(f"the process does not listen on {name}")
            time.sleep(0.0005)

    def call(self, method: str, path: str, body: dict[str, Any]) -> None:
        """Sends a request without an HTTP library, whose cost would be a part of the figures."""
        with self.connected("api.sock", TIMEOUT_S) as s, s.makefile("rb") as answer:
            s.sendall(request(method, path, body))
            status = answer.readline().decode(errors="replace").strip()
            if not status.startswith("HTTP/1.1 2"):
                text = answer.read1().decode(errors="replace").rpartition("\r\n")[2]
                raise self.fail(f"{method} {path}: {status or 'no answer'} {text}")

    def _ping(self, timeout_s: float) -> bool:
        """Tries once to reach the agent; returns False if it does not listen yet."""
        with self.connected("v.sock", timeout_s) as s:
            try:
                s.sendall(f"CONNECT {AGENT_PORT}\n".encode())
                said = b""
                while not said.endswith(b"\n"):
                    got = s.recv(1)
                    if not got:
                        return False
                    said += got
                if not said.startswith(b"OK "):
                    return False
                s.sendall(PING)
                return len(head := s.recv(8)) > 4 and head[4] == PONG
            except (ConnectionError, TimeoutError):
                return False

    def command(self, text: str) -> None:
        """Has the tiny guest obey a command."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{text}\n".encode())
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line == b"done\n":
                return
            self.log.write(line)
        raise self.fail(f"the guest did not obey `{text}`")

    def wait_for_agent(self, timeout_s: float) -> None:
        give_up = time.monotonic() + timeout_s
        while not self._ping(timeout_s):
            if time.monotonic() > give_up:
                raise self.fail("the guest's agent does not answer")
            time.sleep(0.002)


def configure(vm: Firecracker, args: argparse.Namespace, disk: Path) -> None:
    """Configures the VM as the service does for a template, with Firecracker's devices."""
    boot = {"kernel_image_path": str(args.kernel), "boot_args": CMDLINE}
    drive = {
        "drive_id": "rootfs",
        "path_on_host": str(disk),
        "is_root_device": False,
        "is_read_only": False,
    }
    machine = {
        "vcpu_count": args.vcpus,
        "mem_size_mib": args.ram_mib,
        "track_dirty_pages": args.tiny,  # for diff snapshots
    }
    if not args.tiny:
        boot["initrd_path"] = str(args.initramfs)
    vm.call("PUT", "/boot-source", boot)
    vm.call("PUT", "/machine-config", machine)
    if not args.tiny:
        vm.call("PUT", "/drives/rootfs", drive)
        vm.call("PUT", "/vsock", {"guest_cid": 3, "uds_path": "v.sock"})


def snapshot(vm: Firecracker, folder: Path, memory: str, kind: str = "Full") -> None:
    """Pauses the VM and takes a snapshot."""
    vm.call("PATCH", "/vm", {"state": "Paused"})
    files = {"snapshot_path": str(folder / "state"), "mem_file_path": str(folder / memory)}
    vm.call("PUT", "/snapshot/create", {"snapshot_type": kind, **files})


def tiny_snapshots(vm: Firecracker, args: argparse.Namespace, folder: Path) -> Samples:
    """Takes snapshots while the tiny guest goes on; leaves the first, a full one, in the folder."""
    took: Samples = {"full_16m": [], "diff_16m": []}
    vm.command("touch half")
    snapshot(vm, folder, "memory")
    vm.call("PATCH", "/vm", {"state": "Resumed"})
    for kind in ("Diff", "Full") * args.runs:
        vm.command(f"touch {WRITTEN_MIB}")
        start = time.monotonic()
        snapshot(vm, folder, "next", kind)
        vm.call("PATCH", "/vm", {"state": "Resumed"})
        took[f"{kind.lower()}_16m"].append(ms_since(start))
        (folder / "next").unlink()
    return took


def make_snapshot(args: argparse.Namespace, folder: Path) -> Samples:
    """Boots a guest and leaves a snapshot of it in the folder."""
    disk = folder / "disk.ext4"
    if not args.tiny:
        subprocess.run(["cp", "--sparse=always", str(args.rootfs), str(disk)], check=True)
    vm = Firecracker(args.binary, folder / "parent", serial_port=args.tiny)
    try:
        configure(vm, args, disk)
        start = time.monotonic()
        vm.call("PUT", "/actions", {"action_type": "InstanceStart"})
        if args.tiny:
            return tiny_snapshots(vm, args, folder)
        vm.wait_for_agent(BOOT_TIMEOUT_S)
        boot = ms_since(start)
        start = time.monotonic()
        snapshot(vm, folder, "memory")
        return {"boot": [boot], "snapshot": [ms_since(start)]}
    finally:
        vm.end()


def load_one(vm: Firecracker, folder: Path) -> None:
    vm.call(
        "PUT",
        "/snapshot/load",
        {
            "snapshot_path": str(folder / "state"),
            "mem_backend": {"backend_type": "File", "backend_path": str(folder / "memory")},
            "resume_vm": True,
        },
    )


def load(args: argparse.Namespace, folder: Path, n: int) -> dict[str, float]:
    """Starts `n` children of the snapshot at the same time, as a fork does.

    Returns the times until the last has resumed and until it has answered. All share the parent's
    disk, which is safe since they end before they write to it.
    """
    with ExitStack() as ends:
        threads = ends.enter_context(ThreadPoolExecutor(n))
        start = time.monotonic()
        vms = []
        for i in range(n):
            vms.append(Firecracker(args.binary, folder / f"child-{i}"))
            ends.callback(shutil.rmtree, vms[-1].folder)
            ends.callback(vms[-1].end)
        list(threads.map(lambda vm: load_one(vm, folder), vms))
        took = {"ready": ms_since(start)}
        if not args.tiny:
            list(threads.map(lambda vm: vm.wait_for_agent(TIMEOUT_S), vms))
            took["usable"] = ms_since(start)
        return took


def measure(args: argparse.Namespace, folder: Path) -> Figures:
    made = make_snapshot(args, folder)
    figures = {f"firecracker_{name}_ms": figure(took, "ms") for name, took in made.items()}
    for n in args.children:
        runs = [load(args, folder, n) for _ in range(args.runs)]
        for name in runs[0]:
            figures[f"firecracker_{name}_n{n}_ms"] = figure([run[name] for run in runs], "ms")
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=Path)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--vcpus", type=int, default=2)
    parser.add_argument("--ram-mib", type=int, default=1024)
    parser.add_argument("--children", default="1,5", help="numbers of children, as in 1,5")
    parser.add_argument("--tiny", action="store_true", help="the guest consists of a kernel only")
    parser.add_argument("--kernel", type=Path, default=SHARE / "vmlinux")
    parser.add_argument("--initramfs", type=Path, default=SHARE / "initramfs.cpio")
    parser.add_argument("--rootfs", type=Path, default=SHARE / "rootfs.ext4")
    # The default is in memory: on a disk, loads would wait for the write-back of the snapshot.
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path("/dev/shm"),
        help="folder with room for the RAM and the root file system",
    )
    args = parser.parse_args()
    args.children = [int(n) for n in args.children.split(",")]
    try:
        with tempfile.TemporaryDirectory(dir=args.dir, prefix="firecracker-") as folder:
            print(json.dumps(measure(args, Path(folder))))
    except (Failed, OSError, subprocess.CalledProcessError) as failed:
        print(f"firecracker: {failed}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
