# SPDX-License-Identifier: Apache-2.0
"""A service that cannot start prints the reason in one sentence and exits with status 1."""

from __future__ import annotations

import pytest

from conftest import on_host

RAMETD = (
    "/usr/lib/ramet/rametd --config=/dev/null --listen_port=7999 --run_dir=/tmp/fault-run"
    " --state_dir=/tmp/fault-state --vm_uid_base=700000 --cgroup=/fault"
)
# Without a network: only one service on a host can have it, and that is the running one.
ALONE = f"{RAMETD} --network="


def refused(flags: str) -> str:
    """Starts the service, which must fail with status 1; returns its output."""
    out = on_host(f"{ALONE} {flags} 2>&1; echo status $?; rm -rf /tmp/fault-run /tmp/fault-state")
    assert out.rstrip().endswith("status 1"), out
    return out


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ("--kernel=/nowhere/vmlinux", "/nowhere/vmlinux"),
        ("--rootfs=/nowhere/rootfs", "/nowhere/rootfs"),
        ("--initramfs=/nowhere/initramfs", "/nowhere/initramfs"),
        ("--vmm=/nowhere/ramet-vmm", "/nowhere/ramet-vmm"),
        ("--listen_port=7070", "7070"),
        ("--listen_port=0", "listen_port"),
        ("--listen_host=0.0.0.0", "0.0.0.0"),
        ("--ram_mib=lots", "ram_mib"),
        ("--ram_mib=64", "128"),
        ("--no_such_setting=1", "no_such_setting"),
        ("--user=nobody-has-this-name", "nobody-has-this-name"),
    ],
)
def test_invalid_setting_is_named(flags: str, names: str) -> None:
    assert names in refused(flags)


def test_invalid_line_of_the_config_file_is_named() -> None:
    on_host("printf '# fine\\nram_mib = 512\\nvcpus = many\\n' > /tmp/fault.conf")
    out = on_host("/usr/lib/ramet/rametd --config=/tmp/fault.conf 2>&1; echo status $?")
    assert "/tmp/fault.conf:3" in out and "vcpus" in out and "status 1" in out


def test_missing_kvm_permission_is_reported() -> None:
    out = on_host(
        "unshare -m sh -c 'mount --bind /dev/null /dev/kvm && "
        f"{ALONE}' 2>&1; echo status $?; rm -rf /tmp/fault-run /tmp/fault-state"
    )
    assert "/dev/kvm" in out and "status 1" in out


def test_second_service_on_a_host_is_refused() -> None:
    out = on_host(f"{RAMETD} 2>&1; echo status $?; rm -rf /tmp/fault-run /tmp/fault-state")
    assert "another rametd manages VM networks" in out and "status 1" in out
