# SPDX-License-Identifier: Apache-2.0
"""Submits one no-op to io_uring with plain system calls (see include/uapi/linux/io_uring.h)."""

import ctypes
import mmap
import os
import struct

SETUP, ENTER = 425, 426
SQ_RING, CQ_RING, SQES = 0, 0x8000000, 0x10000000
GETEVENTS = 1

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
params = ctypes.create_string_buffer(120)
fd = libc.syscall(SETUP, 4, params)
if fd < 0:
    raise OSError(ctypes.get_errno(), "io_uring_setup")

entries, cq_entries = struct.unpack_from("<II", params)
_, sq_tail, _, _, _, _, sq_array = struct.unpack_from("<7I", params, 40)
cq_head, cq_tail, _, _, _, cqes = struct.unpack_from("<6I", params, 80)
sq = mmap.mmap(fd, sq_array + 4 * entries, offset=SQ_RING)
cq = mmap.mmap(fd, cqes + 16 * cq_entries, offset=CQ_RING)
sqes = mmap.mmap(fd, 64 * entries, offset=SQES)

struct.pack_into("<BBHi", sqes, 0, 0, 0, 0, -1)  # IORING_OP_NOP
struct.pack_into("<Q", sqes, 32, 1234)  # user_data
struct.pack_into("<I", sq, sq_array, 0)
struct.pack_into("<I", sq, sq_tail, 1)
if libc.syscall(ENTER, fd, 1, 1, GETEVENTS, None, 0) != 1:
    raise OSError(ctypes.get_errno(), "io_uring_enter")
assert struct.unpack_from("<I", cq, cq_tail)[0] - struct.unpack_from("<I", cq, cq_head)[0] == 1
user_data, result = struct.unpack_from("<Qi", cq, cqes)
print(f"completed {user_data} with {result}")
os.close(fd)
