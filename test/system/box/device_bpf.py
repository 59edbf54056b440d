# SPDX-License-Identifier: Apache-2.0
"""Denies all devices to a control group with a BPF program of two instructions."""

import ctypes
import os
import struct

SYS_BPF, PROG_LOAD, PROG_ATTACH = 321, 5, 8
PROG_TYPE_CGROUP_DEVICE, CGROUP_DEVICE = 15, 6
GROUP = "/sys/fs/cgroup/box-devices"

libc = ctypes.CDLL(None, use_errno=True)


def bpf(command: int, attributes: bytes) -> int:
    room = ctypes.create_string_buffer(attributes.ljust(120, b"\0"), 120)
    result: int = libc.syscall(SYS_BPF, command, room, 120)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"bpf command {command}")
    return result


def try_device() -> str:
    try:
        os.close(os.open("/dev/full", os.O_RDONLY))
        return "opened"
    except OSError as e:
        return os.strerror(e.errno or 0)


os.makedirs(GROUP, exist_ok=True)
group = os.open(GROUP, os.O_RDONLY | os.O_DIRECTORY)
code = ctypes.create_string_buffer(
    struct.pack("<BBhi", 0xB7, 0, 0, 0)  # r0 = 0: refuse
    + struct.pack("<BBhi", 0x95, 0, 0, 0)  # exit
)
text = ctypes.create_string_buffer(b"GPL")
program = bpf(
    PROG_LOAD,
    struct.pack(
        "<IIQQ", PROG_TYPE_CGROUP_DEVICE, 2, ctypes.addressof(code), ctypes.addressof(text)
    ),
)
bpf(PROG_ATTACH, struct.pack("<IIII", group, program, CGROUP_DEVICE, 0))

print("before:", try_device(), flush=True)
child = os.fork()
if child == 0:
    with open(f"{GROUP}/cgroup.procs", "w") as procs:
        procs.write("0")
    print("after:", try_device(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
os.rmdir(GROUP)
