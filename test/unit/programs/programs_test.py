# SPDX-License-Identifier: Apache-2.0
"""Checks every installed program, and the guest's, for hardening: its ELF headers must show that it
is position-independent, that its relocations are read-only and that its stack is not executable.
Two runs of each must be loaded at different addresses."""

import ctypes
import os
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CMAKE, BUILD, GUEST_INIT = sys.argv[1:4]

ET_DYN = 3
PT_DYNAMIC, PT_GNU_STACK, PT_GNU_RELRO = 2, 0x6474E551, 0x6474E552
PF_X, PF_W = 1, 2
DT_FLAGS, DT_FLAGS_1 = 30, 0x6FFFFFFB
DF_BIND_NOW, DF_1_NOW, DF_1_PIE = 8, 1, 0x08000000
PTRACE_TRACEME = 0
ADDR_NO_RANDOMIZE = 0x0040000

libc = ctypes.CDLL(None, use_errno=True)


class Elf:
    """The headers of a 64-bit little-endian ELF file."""

    def __init__(self, path: Path) -> None:
        self.bytes = path.read_bytes()
        self.type = struct.unpack_from("<H", self.bytes, 16)[0]
        start = struct.unpack_from("<Q", self.bytes, 32)[0]
        size, count = struct.unpack_from("<HH", self.bytes, 54)
        self.segments = [
            struct.unpack_from("<IIQQQQQQ", self.bytes, start + i * size) for i in range(count)
        ]

    def flags_of(self, kind: int) -> list[int]:
        return [segment[1] for segment in self.segments if segment[0] == kind]

    def dynamic(self) -> dict[int, int]:
        for kind, _, offset, _, _, size, _, _ in self.segments:
            if kind == PT_DYNAMIC:
                return dict(struct.iter_unpack("<QQ", self.bytes[offset : offset + size]))
        return {}


def is_elf(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def load_address(path: Path) -> int:
    """Returns where the kernel loads the program, which is stopped before its first instruction."""
    pid = os.fork()
    if pid == 0:
        libc.ptrace(PTRACE_TRACEME, 0, None, None)
        os.execv(path, [str(path)])
    try:
        _, status = os.waitpid(pid, 0)
        assert os.WIFSTOPPED(status), f"{path} does not start: status {status}"
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if line.endswith(str(path)):
                return int(line.split("-")[0], 16)
        raise AssertionError(f"{path} is not mapped in its own process")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


class Programs(unittest.TestCase):
    programs: list[Path]

    @classmethod
    def setUpClass(cls) -> None:
        cls.tree = tempfile.TemporaryDirectory()
        subprocess.run(
            [CMAKE, "--install", BUILD],
            check=True,
            env={**os.environ, "DESTDIR": cls.tree.name},
            stdout=subprocess.DEVNULL,
        )
        installed = Path(cls.tree.name).resolve()
        cls.programs = [p for p in sorted(installed.rglob("*")) if is_elf(p)] + [Path(GUEST_INIT)]

    @classmethod
    def tearDownClass(cls) -> None:
        cls.tree.cleanup()

    def test_known_programs_are_installed(self) -> None:
        names = {program.name for program in self.programs}
        self.assertLessEqual({"rametd", "rametctl", "ramet-notify", "ramet-vmm", "ramet-init"}, names)

    def test_can_be_loaded_anywhere(self) -> None:
        for program in self.programs:
            with self.subTest(program=program.name):
                elf = Elf(program)
                self.assertEqual(elf.type, ET_DYN, "not position-independent")
                self.assertTrue(elf.dynamic().get(DT_FLAGS_1, 0) & DF_1_PIE, "not an executable")

    def test_relocations_are_read_only(self) -> None:
        for program in self.programs:
            with self.subTest(program=program.name):
                elf = Elf(program)
                dynamic = elf.dynamic()
                self.assertEqual(len(elf.flags_of(PT_GNU_RELRO)), 1, "no RELRO")
                now = dynamic.get(DT_FLAGS, 0) & DF_BIND_NOW or dynamic.get(DT_FLAGS_1, 0) & DF_1_NOW
                self.assertTrue(now, "bound lazily: the table of its symbols stays writable")

    def test_no_memory_is_writable_and_executable(self) -> None:
        for program in self.programs:
            with self.subTest(program=program.name):
                elf = Elf(program)
                stack = elf.flags_of(PT_GNU_STACK)
                self.assertEqual(len(stack), 1, "no header for its stack")
                self.assertFalse(stack[0] & PF_X, "an executable stack")
                for segment in elf.segments:
                    self.assertNotEqual(segment[1] & (PF_W | PF_X), PF_W | PF_X)

    def test_two_runs_have_different_addresses(self) -> None:
        if libc.personality(0xFFFFFFFF) & ADDR_NO_RANDOMIZE:
            self.skipTest("addresses are not randomised for this process")
        if Path("/proc/sys/kernel/randomize_va_space").read_text().strip() == "0":
            self.skipTest("addresses are not randomised on this machine")
        for program in self.programs:
            with self.subTest(program=program.name):
                # With 28 random bits, three runs do not agree by chance.
                self.assertGreater(len({load_address(program) for _ in range(3)}), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
