# SPDX-License-Identifier: Apache-2.0
"""Serves a file system with one file over /dev/fuse, without a library (see
include/uapi/linux/fuse.h)."""

import ctypes
import os
import struct
import threading

WHERE, NAME, TEXT = "/tmp/fuse.d", b"hello", b"served from user space"
LOOKUP, FORGET, GETATTR, OPEN, READ, INIT, OPENDIR, READDIR = 1, 2, 3, 14, 15, 26, 27, 28
ROOT, FILE = 1, 2

libc = ctypes.CDLL(None, use_errno=True)


def attributes(node: int) -> bytes:
    mode, size = (0o40755, 0) if node == ROOT else (0o100644, len(TEXT))
    return struct.pack("<QQQQQQIIIIIIIIII", node, size, 1, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def entry(node: int, name: bytes, offset: int) -> bytes:
    text = struct.pack("<QQII", node, offset, len(name), 0) + name
    return text + bytes(-len(text) % 8)


def answer(opcode: int, node: int, body: bytes) -> tuple[int, bytes]:
    if opcode == INIT:
        return 0, struct.pack("<IIIIHHIIHHI28x", 7, 31, 65536, 0, 12, 9, 65536, 1, 0, 0, 0)
    if opcode == LOOKUP:
        if body.rstrip(b"\0") != NAME:
            return -2, b""
        return 0, struct.pack("<QQQQII", FILE, 0, 60, 60, 0, 0) + attributes(FILE)
    if opcode == GETATTR:
        return 0, struct.pack("<QII", 60, 0, 0) + attributes(node)
    if opcode in (OPEN, OPENDIR):
        return 0, struct.pack("<QII", 1, 0, 0)
    if opcode in (READ, READDIR):
        offset, size = struct.unpack_from("<8xQI", body)
        if opcode == READDIR:
            return 0, b"" if offset else entry(FILE, NAME, 1)
        return 0, TEXT[offset : offset + size]
    return -38, b""


def serve(fd: int) -> None:
    while True:
        try:
            request = os.read(fd, 1 << 18)
        except OSError:
            return  # unmounted
        _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
        if opcode == FORGET:
            continue
        error, text = answer(opcode, node, request[40:])
        os.write(fd, struct.pack("<IiQ", 16 + len(text), error, unique) + text)


os.makedirs(WHERE, exist_ok=True)
device = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
if libc.mount(b"box", WHERE.encode(), b"fuse", 0, options):
    raise OSError(ctypes.get_errno(), "mount")
threading.Thread(target=serve, args=[device], daemon=True).start()
with open(f"{WHERE}/hello") as file:
    print(os.listdir(WHERE), file.read())
libc.umount2(WHERE.encode(), 2)
