# SPDX-License-Identifier: Apache-2.0
"""Uses a key ring, a POSIX message queue and a tun device."""

import ctypes
import fcntl
import os
import struct

libc = ctypes.CDLL(None, use_errno=True)


def must(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), "call")
    return result


ADD_KEY, KEYCTL, KEYCTL_READ, PROCESS_KEYRING = 248, 250, 11, -2
key = must(libc.syscall(ADD_KEY, b"user", b"box", b"kept", 4, PROCESS_KEYRING))
text = ctypes.create_string_buffer(4)
must(libc.syscall(KEYCTL, KEYCTL_READ, key, text, 4))
print("key", text.raw.decode())

queue = must(libc.mq_open(b"/box", os.O_CREAT | os.O_RDWR, 0o600, None))
must(libc.mq_send(queue, b"message", 7, 1))
room = ctypes.create_string_buffer(8192)
size = must(libc.mq_receive(queue, room, 8192, None))
must(libc.mq_unlink(b"/box"))
print("queue", room.raw[:size].decode())

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000
with open("/dev/net/tun", "r+b", buffering=0) as tunnel:
    name = fcntl.ioctl(tunnel, TUNSETIFF, struct.pack("16sH22x", b"tun7", IFF_TUN | IFF_NO_PI))
    print("tunnel", name[:16].rstrip(b"\0").decode(), flush=True)
    os.stat("/sys/class/net/tun7")
