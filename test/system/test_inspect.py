# SPDX-License-Identifier: Apache-2.0
"""ramet inspect on real guests, and the report on one that stands still, which comes by itself."""

from __future__ import annotations

import threading
import time

from conftest import on_host, vm_of
from ramet import Sandbox

STALL_S = 30  # then the service looks at a call of which nothing is heard

SECTIONS = [
    "service: ",
    ": ready, tenant ",
    "  0 calls",
    "  connection to its agent: open",
    "VM in slot ",
    "the VM process says:",
    "VM: running, ",
    "vCPU 0: ",
    "  rip ",
    "  mp_state ",
    "  LAPIC: IRR",
    "  LAPIC timer: LVTT ",
    "  TSC ",
    "  steal time: ",
    "I/O APIC: ",
    "device blk: status 0xf, active",
    "device vsock: status 0xf, active",
    "device rng: status 0xf, active",
    "device console: status 0xf, active",
    "device net: status 0xf, active",
    "device balloon: status 0xf, active",
    "  queue 0",
    " to guest port ",
    "to the guest: its buf_alloc ",
    "from the guest: our buf_alloc ",
    "threads of process ",
    " (vcpu 0): state ",
    "waited for a CPU ",
    "host's pressure, cpu: ",
    "its agent answers: connected after ",
]


def report(name: str) -> str:
    return on_host(f"ramet inspect {name}")


def test_a_report_has_every_section(sbx: Sandbox) -> None:
    sbx.run_code("x = 1")
    text = report(sbx.id)
    for section in SECTIONS:
        assert section in text, f"no {section!r} in:\n{text}"
    assert f"sandbox {sbx.id}: " in report(vm_of(sbx)[0])
    assert sbx.run_code("print(x)").stdout == "1\n"


def test_what_is_not_there(sbx: Sandbox) -> None:
    said = on_host("ramet inspect sbx_0 2>&1 || echo status $?")
    assert "there is no sandbox sbx_0" in said and said.endswith("status 1\n")


class Call(threading.Thread):
    """A call that sleeps in the guest, and says so at its end."""

    def __init__(self, sbx: Sandbox, seconds: int) -> None:
        super().__init__()
        self.sbx, self.seconds, self.said = sbx, seconds, ""

    def run(self) -> None:
        code = f"import time; time.sleep({self.seconds}); print('awake')"
        self.said = self.sbx.run_code(code).stdout


def told_of(sbx: Sandbox) -> str:
    """The report on it in the service's log, if there is one by now."""
    return on_host(
        f"grep -A 200 'call in sandbox {sbx.id} stands still' /var/log/ramet.log | "
        "sed '/end of the report/q' || true"
    )


def test_a_call_that_waits_is_no_stall(sbx: Sandbox) -> None:
    call = Call(sbx, 2 * STALL_S)
    call.start()
    time.sleep(STALL_S / 2)
    text = report(sbx.id)
    assert "  1 calls\n" in text and ": at the guest, asked for " in text
    assert "its agent answers: " in text
    call.join()
    assert call.said == "awake\n"
    assert told_of(sbx) == ""


def test_a_vm_process_that_stands_still_is_reported(sbx: Sandbox) -> None:
    call = Call(sbx, STALL_S)
    call.start()
    time.sleep(2)
    pid = vm_of(sbx)[1]
    on_host(f"kill -STOP {pid}")
    try:
        give_up = time.monotonic() + 10 * STALL_S
        while "end of the report" not in (told := told_of(sbx)) and time.monotonic() < give_up:
            time.sleep(2)
    finally:
        on_host(f"kill -CONT {pid}")
    assert "the VM process does not answer: nothing came for 3 s" in told
    assert "its agent was not asked: the VM process does not answer" in told
    assert f"| threads of process {pid}, by the host:" in told
    assert " (vcpu 0): state T, " in told
    assert ": at the guest, asked for " in told
    call.join()
    assert call.said == "awake\n"
    assert "its agent answers: " in report(sbx.id)
