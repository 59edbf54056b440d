# SPDX-License-Identifier: Apache-2.0
"""`rametctl inspect` on real guests, and the report on a stalled one that the service logs by itself."""

from __future__ import annotations

import re
import threading
import time

import pytest
from conftest import on_host, vm_of
from ramet import Sandbox

STALL_S = 30  # the service inspects a call that has been silent for so long

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
    "; KVM's clock ",
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
    return on_host(f"rametctl inspect {name}")


@pytest.mark.smoke
def test_report_has_every_section(sbx: Sandbox) -> None:
    sbx.run_code("x = 1")
    text = report(sbx.id)
    for section in SECTIONS:
        assert section in text, f"no {section!r} in:\n{text}"
    assert f"sandbox {sbx.id}: " in report(vm_of(sbx)[0])
    assert sbx.run_code("print(x)").stdout == "1\n"


def test_children_inherit_the_working_set_of_their_parent(sbx: Sandbox) -> None:
    def pages(box: Sandbox) -> list[tuple[int, int]]:
        found = re.findall(r"working set of (\d+) pages, (\d+) of them written", report(box.id))
        return [(int(used), int(written)) for used, written in found]

    def faults(box: Sandbox) -> int:
        """Returns how many pages KVM has mapped at a fault of the guest; retries do not count."""
        debug = "/sys/kernel/debug"
        mount = f"mountpoint -q {debug} || mount -t debugfs none {debug}"
        return int(on_host(f"{mount}; cat {debug}/kvm/{vm_of(box)[1]}-*/pf_fixed"))

    recorded = pages(sbx)
    if not recorded:
        release = [int(part) for part in on_host("uname -r").split(".")[:2]]
        assert release < [6, 11]
        pytest.skip("this kernel cannot map pages ahead")
    ((used, written),) = recorded
    assert used > written > 0
    (child,) = sbx.fork(1)
    with child:
        assert pages(child) == recorded
        assert child.run_code("print(1)").stdout == "1\n"
        assert faults(child) < used // 4
        (grandchild,) = child.fork(1)
        with grandchild:
            assert pages(grandchild) == recorded


def test_unknown_sandbox_is_an_error(sbx: Sandbox) -> None:
    text = on_host("rametctl inspect sbx_0 2>&1 || echo status $?")
    assert "there is no sandbox sbx_0" in text and text.endswith("status 1\n")


class Call(threading.Thread):
    """A call that sleeps in the guest, then prints "awake"; `stdout` is what it printed."""

    def __init__(self, sbx: Sandbox, seconds: int) -> None:
        super().__init__()
        self.sbx, self.seconds, self.stdout = sbx, seconds, ""

    def run(self) -> None:
        code = f"import time; time.sleep({self.seconds}); print('awake')"
        self.stdout = self.sbx.run_code(code).stdout


def logged_report(sbx: Sandbox) -> str:
    """Returns the report on the sandbox in the service's log, or "" if there is none yet."""
    return on_host(
        f"grep -A 200 'call in sandbox {sbx.id} is stalled' /var/log/ramet.log | "
        "sed '/end of the report/q' || true"
    )


def test_sleeping_call_is_not_reported_as_stalled(sbx: Sandbox) -> None:
    call = Call(sbx, 2 * STALL_S)
    call.start()
    time.sleep(STALL_S / 2)
    text = report(sbx.id)
    assert "  1 calls\n" in text and ": at the guest, requested " in text
    assert "its agent answers: " in text
    call.join()
    assert call.stdout == "awake\n"
    assert logged_report(sbx) == ""


def test_stopped_vm_process_is_reported(sbx: Sandbox) -> None:
    call = Call(sbx, STALL_S)
    call.start()
    time.sleep(2)
    pid = vm_of(sbx)[1]
    on_host(f"kill -STOP {pid}")
    try:
        give_up = time.monotonic() + 10 * STALL_S
        while "end of the report" not in (text := logged_report(sbx)) and time.monotonic() < give_up:
            time.sleep(2)
    finally:
        on_host(f"kill -CONT {pid}")
    assert "the VM process does not answer: nothing came for 3 s" in text
    assert "its agent was not asked: the VM process does not answer" in text
    assert f"| threads of process {pid}, by the host:" in text
    assert " (vcpu 0): state T, " in text
    assert ": at the guest, requested " in text
    call.join()
    assert call.stdout == "awake\n"
    assert "its agent answers: " in report(sbx.id)
