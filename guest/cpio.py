# SPDX-License-Identifier: Apache-2.0
"""cpio.py INIT OUT: write an initramfs (cpio, newc) with /init in it. Needs no root.

The same input gives the same bytes: its hash tells whether a template is still the right one.
Format: Documentation/driver-api/early-userspace/buffer-format.rst of the kernel.
"""

import pathlib
import stat
import sys


def entry(number, name, mode, data=b"", device=(0, 0)):
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    return pad(header + name.encode() + b"\0") + pad(data)


def pad(data):
    return data + b"\0" * (-len(data) % 4)


def archive(init):
    entries = [(name, stat.S_IFDIR | 0o755) for name in ("dev", "proc", "sys", "newroot")]
    # The kernel opens it for init's descriptors 0 to 2 before anything is mounted.
    entries.append(("dev/console", stat.S_IFCHR | 0o600, b"", (5, 1)))
    entries.append(("init", stat.S_IFREG | 0o755, init))
    out = b"".join(entry(number, *fields) for number, fields in enumerate(entries, 1))
    return out + entry(0, "TRAILER!!!", 0)


def main():
    init, out = sys.argv[1:]
    pathlib.Path(out).write_bytes(archive(pathlib.Path(init).read_bytes()))


main()
