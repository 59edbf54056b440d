# SPDX-License-Identifier: Apache-2.0
"""A service that cannot start prints the reason in one sentence and exits with status 1.

Invalid settings are refused before anything starts: test/unit/config.
"""

from __future__ import annotations

import shlex

from conftest import on_host

# With a network, only one service on a host can run, and that is the running one.
ALONE = "--network="
CASES = {
    "kernel": (f"{ALONE} --kernel=/nowhere/vmlinux", "/nowhere/vmlinux"),
    "rootfs": (f"{ALONE} --rootfs=/nowhere/rootfs", "/nowhere/rootfs"),
    "initramfs": (f"{ALONE} --initramfs=/nowhere/initramfs", "/nowhere/initramfs"),
    "vmm": (f"{ALONE} --vmm=/nowhere/ramet-vmm", "/nowhere/ramet-vmm"),
    "port": (f"{ALONE} --listen_port=7070", "7070"),
    "user": (f"{ALONE} --user=nobody-has-this-name", "nobody-has-this-name"),
    "kvm": (ALONE, "/dev/kvm"),
    "second": ("", "another rametd manages VM networks"),
}


def start(name: str, flags: str, port: int) -> str:
    """Returns a shell command that starts a service, and prints its output and its status."""
    here = f"/tmp/fault-{name}"
    rametd = (
        f"/usr/lib/ramet/rametd --config=/dev/null --run_dir={here}/run --state_dir={here}/state"
        f" --vm_uid_base=700000 --cgroup=/{here[5:]}"
    )
    port_flag = "" if "--listen_port" in flags else f"--listen_port={port}"
    command = f"mkdir -p {here}; {rametd} {port_flag} {flags} 2>&1; echo status $?; rm -r {here}"
    if name == "kvm":
        command = f"mount --bind /dev/null /dev/kvm && {{ {command}; }}"
    return f"unshare -m sh -c {shlex.quote(command)}"


def test_reason_is_named() -> None:
    starts = [
        f"{start(name, flags, 7900 + i)} >/tmp/fault-{name}.out &"
        for i, (name, (flags, _)) in enumerate(CASES.items())
    ]
    show = "for f in /tmp/fault-*.out; do echo =$f; cat $f; rm $f; done"
    said = on_host("\n".join([*starts, "wait", show]))
    printed = {part.split(".out\n")[0]: part for part in said.split("=/tmp/fault-")[1:]}
    assert set(printed) == set(CASES)
    for name, (_, expected) in CASES.items():
        assert expected in printed[name] and "status 1\n" in printed[name], printed[name]
