# SPDX-License-Identifier: Apache-2.0
"""Installs a seccomp filter that denies mkdir and permits every other system call."""

import ctypes
import os
import struct

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
SYS_MKDIR, ERRNO, ALLOW = 83, 0x00050000, 0x7FFF0000

code = b"".join(
    struct.pack("<HBBI", *line)
    for line in [
        (LOAD, 0, 0, 0),  # the number of the call
        (EQUAL, 0, 1, SYS_MKDIR),
        (RETURN, 0, 0, ERRNO | 1),
        (RETURN, 0, 0, ALLOW),
    ]
)
text = ctypes.create_string_buffer(code)
program = struct.pack("<HxxxxxxQ", len(code) // 8, ctypes.addressof(text))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0) == 0, ctypes.get_errno()
try:
    os.mkdir("/tmp/refused")
except PermissionError as e:
    print(f"mkdir: {e.strerror}")
