#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Firecracker takes for what a fork does: a snapshot of a running guest, and new processes
that load it. The guest is the one that Ramet boots: its kernel, its first program, its root file
system. Runs where the VMs run and prints one JSON object:

  firecracker_boot_ms       InstanceStart to the first answer of the guest's agent
  firecracker_snapshot_ms   pause and full snapshot
  firecracker_ready_nN_ms   N processes started, until the last has loaded it and resumed
  firecracker_usable_nN_ms  the same, until the last one's agent has answered

With --tiny the kernel is all of the guest, as the worker of fork-native is: no boot_ms, no
usable_nN_ms, and it runs wherever Firecracker does.
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
# Ramet's, without its console: orchestrator/template/template-build.c, vmm/arch/x86/boot.c
CMDLINE = (
    "quiet root=/dev/vda rw panic=-1 irqaffinity=0"
    " reboot=k no_timer_check tsc=reliable io_delay=none"
)
AGENT_PORT = 5555  # and the frames below: proto/agent.h
PING = b"\0\0\0\0\1\0\0\0"
PONG = 64
BOOT_PATIENCE_S = 180
PATIENCE_S = 60


class Failed(Exception):
    """A sentence that says what went wrong."""


def ms_since(start: float) -> float:
    return (time.monotonic() - start) * 1e3


def request(method: str, path: str, body: dict[str, Any]) -> bytes:
    text = json.dumps(body)
    return (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Accept: application/json\r\nContent-Length: {len(text)}\r\n\r\n{text}"
    ).encode()


class Firecracker:
    """One process of it, in a folder of its own: the path of the vsock's socket is part of a
    snapshot, and relative."""

    def __init__(self, binary: Path, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.log = (folder / "log").open("wb")
        self.process = subprocess.Popen(
            [binary, "--api-sock", "api.sock", "--level", "Error"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()

    def fail(self, what: str) -> Failed:
        log = (self.folder / "log").read_text(errors="replace").strip()
        return Failed(f"{what}; Firecracker's log: {log[-500:] or 'empty'}")

    def connected(self, name: str, timeout_s: float) -> socket.socket:
        """A connection to one of its sockets, which may not be there yet."""
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
                raise self.fail(f"it does not listen on {name}")
            time.sleep(0.0005)

    def call(self, method: str, path: str, body: dict[str, Any]) -> None:
        """By hand: an HTTP library takes as long as a part of what is measured."""
        with self.connected("api.sock", PATIENCE_S) as s, s.makefile("rb") as answer:
            s.sendall(request(method, path, body))
            status = answer.readline().decode(errors="replace").strip()
            if not status.startswith("HTTP/1.1 2"):
                text = answer.read1().decode(errors="replace").rpartition("\r\n")[2]
                raise self.fail(f"{method} {path}: {status or 'no answer'} {text}")

    def _ping(self, timeout_s: float) -> bool:
        """One try to reach the agent; False when nobody listens in the guest yet."""
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

    def wait_for_agent(self, timeout_s: float) -> None:
        give_up = time.monotonic() + timeout_s
        while not self._ping(timeout_s):
            if time.monotonic() > give_up:
                raise self.fail("the guest's agent does not answer")
            time.sleep(0.002)


def configure(vm: Firecracker, args: argparse.Namespace, disk: Path) -> None:
    """As the service boots a template, with the devices that Firecracker has for it."""
    boot = {"kernel_image_path": str(args.kernel), "boot_args": CMDLINE}
    drive = {
        "drive_id": "rootfs",
        "path_on_host": str(disk),
        "is_root_device": False,
        "is_read_only": False,
    }
    machine = {"vcpu_count": args.vcpus, "mem_size_mib": args.ram_mib}
    if not args.tiny:
        boot["initrd_path"] = str(args.initramfs)
    vm.call("PUT", "/boot-source", boot)
    vm.call("PUT", "/machine-config", machine)
    if not args.tiny:
        vm.call("PUT", "/drives/rootfs", drive)
        vm.call("PUT", "/vsock", {"guest_cid": 3, "uds_path": "v.sock"})


def make_snapshot(args: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Boots a guest and leaves a snapshot of it in the folder."""
    disk = folder / "disk.ext4"
    took = {}
    if not args.tiny:
        subprocess.run(["cp", "--sparse=always", str(args.rootfs), str(disk)], check=True)
    vm = Firecracker(args.binary, folder / "parent")
    try:
        configure(vm, args, disk)
        start = time.monotonic()
        vm.call("PUT", "/actions", {"action_type": "InstanceStart"})
        if not args.tiny:
            vm.wait_for_agent(BOOT_PATIENCE_S)
            took["boot"] = ms_since(start)
        start = time.monotonic()
        vm.call("PATCH", "/vm", {"state": "Paused"})
        vm.call(
            "PUT",
            "/snapshot/create",
            {
                "snapshot_type": "Full",
                "snapshot_path": str(folder / "state"),
                "mem_file_path": str(folder / "memory"),
            },
        )
        took["snapshot"] = ms_since(start)
        return took
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
    """`n` children of the snapshot at the same time, as forks are: when the last has resumed, and
    when it has answered. All have the parent's disk: they are gone before they write to it."""
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
            list(threads.map(lambda vm: vm.wait_for_agent(PATIENCE_S), vms))
            took["usable"] = ms_since(start)
        return took


def measure(args: argparse.Namespace, folder: Path) -> Figures:
    made = make_snapshot(args, folder)
    figures = {f"firecracker_{name}_ms": figure([took], "ms") for name, took in made.items()}
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
    parser.add_argument("--ram-mib", type=int, default=512)
    parser.add_argument("--children", default="1,5", help="numbers of children, as in 1,5")
    parser.add_argument("--tiny", action="store_true", help="the kernel is all of the guest")
    parser.add_argument("--kernel", type=Path, default=SHARE / "vmlinux")
    parser.add_argument("--initramfs", type=Path, default=SHARE / "initramfs.cpio")
    parser.add_argument("--rootfs", type=Path, default=SHARE / "rootfs.ext4")
    # On a disk, loads wait while what the snapshot wrote goes there.
    parser.add_argument(
        "--dir", type=Path, default=Path("/dev/shm"), help="has room: the RAM and the root file system"
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
