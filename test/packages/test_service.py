# SPDX-License-Identifier: Apache-2.0
"""The service that the packages install, in its units, with VMs on the real KVM.

The guest is bench/tiny-guest.c (RAMET_TINY_GUEST), since KVM need not be able to run Linux here. Where
cgroup v2 lacks controllers, RAMET_CONTROLLERS (controllers.c) answers for them. All else is real.
RAMET_PACKAGES_BEFORE is a folder with the package of the previous commit, if there is one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from debs import RELEASES, VMS, deb, guest_package, host, install, put, with_version
from machine import Machine, cgroup_of_this_process

CONTROLLERS = ["cpu", "memory", "pids"]
TINY = "RAMET_VCPUS=1 RAMET_RAM_MIB=256 RAMET_ROOTFS_GB=1 RAMET_SIZES="
BEFORE = list(Path(os.environ["RAMET_PACKAGES_BEFORE"]).glob("ramet_*.deb"))

pytestmark = pytest.mark.skipif(not os.access("/dev/kvm", os.W_OK), reason="there is no /dev/kvm to use")


def configure(machine: Machine) -> None:
    """Writes the settings for the tiny guest, and stands in for the controllers that are missing."""
    text = f"[Service]\nEnvironment={TINY}\n"
    have = (cgroup_of_this_process() / "cgroup.controllers").read_text().split()
    if not set(CONTROLLERS) <= set(have):
        shutil.copy(os.environ["RAMET_CONTROLLERS"], machine.root / "usr/local/lib/controllers.so")
        (machine.root / "usr/local/lib/controllers").write_text(" ".join([*have, *CONTROLLERS]))
        text += "Environment=LD_PRELOAD=/usr/local/lib/controllers.so\n"
    drop_in = machine.root / "etc/systemd/system/ramet.service.d/tiny.conf"
    drop_in.parent.mkdir(parents=True)
    drop_in.write_text(text)


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextlib.contextmanager
def machine_of(release: str, folder: Path) -> Iterator[Machine]:
    """Boots a Debian with all that `install` needs; `folder` is for temporary files."""
    made = Machine(host(release), Path("/var/tmp"), kvm=True)
    try:
        made.wait_for_boot()
        configure(made)
        tiny = Path(os.environ["RAMET_TINY_GUEST"]).read_bytes()
        put(made, guest_package(folder, {"vmlinux": tiny, "rootfs.ext4": bytes(1 << 20)}), "ramet-guest")
        put(made, deb(release, "ramet"), "ramet")
        yield made
    finally:
        made.stop()


@pytest.fixture
def machine(release: str, tmp_path: Path) -> Iterator[Machine]:
    with machine_of(release, tmp_path) as made:
        yield made


def wait_until_ready(machine: Machine) -> None:
    machine.until("systemctl is-active ramet")
    give_up = time.monotonic() + 60
    while not machine.answers("/readyz"):
        assert time.monotonic() < give_up, log(machine)
        time.sleep(0.05)


def log(machine: Machine) -> str:
    return machine.run("journalctl -u ramet -u ramet-vms --no-pager -o cat").stdout


def create(machine: Machine) -> str:
    """Creates a sandbox with a word in its memory; returns its path."""
    path = f"/v1/sandboxes/{machine.ask('POST', '/v1/sandboxes', {'persistent': True})['id']}"
    call(machine, path, "touch 1")
    assert call(machine, path, "sum 1") == "256"
    return path


def call(machine: Machine, sandbox: str, code: str) -> str:
    """Runs a command of the tiny guest; returns what it prints."""
    events = machine.lines("POST", f"{sandbox}/exec", {"code": code, "language": "bash"})
    assert events[-1]["type"] == "exit" and events[-1]["data"] == 0, events
    return "".join(event["data"] for event in events[:-1])


def first_sample(machine: Machine, sandbox: str) -> Any:
    """Waits until the service has looked at what a sandbox uses."""
    give_up = time.monotonic() + 120
    while not (samples := machine.ask("GET", f"{sandbox}/metrics")["samples"]):
        assert time.monotonic() < give_up, "there is no sample"
        time.sleep(0.2)
    return samples[0]


def processes(machine: Machine, cgroup: str) -> list[str]:
    return machine.run(f"cat $(find /sys/fs/cgroup{cgroup} -name cgroup.procs)").stdout.split()


def test_fresh_host_answers_the_first_call(
    machine: Machine, release: str, record_property: Callable[[str, object], None]
) -> None:
    began = time.monotonic()
    install(machine, "ramet", "ramet-guest")
    wait_until_ready(machine)
    assert call(machine, create(machine), "echo hello") == "hello"
    seconds = time.monotonic() - began
    record_property("seconds", f"{seconds:.1f}")
    print(f"Debian {release}: {seconds:.1f} s from `apt install` to the first call's answer")


def test_units_permit_all_that_sandboxes_need(machine: Machine) -> None:
    install(machine, "ramet", "ramet-guest")
    wait_until_ready(machine)
    parent = create(machine)
    children = machine.ask("POST", f"{parent}/fork", {"n": 3})["children"]
    assert [call(machine, f"/v1/sandboxes/{child}", "sum 1") for child in children] == ["256"] * 3
    space = machine.ask("POST", f"{parent}/freeze", {})["space_id"]
    resumed = machine.ask("POST", f"/v1/spaces/{space}/resume", {})["id"]
    assert call(machine, f"/v1/sandboxes/{resumed}", "sum 1") == "256"
    sample = first_sample(machine, f"/v1/sandboxes/{resumed}")
    assert sample["memory_used_bytes"] > 0 and sample["cpu_seconds"] > 0
    for child in children:
        machine.ask("DELETE", f"/v1/sandboxes/{child}")
    # The machine itself, not only the unit, may lack the capability to lower the OOM score.
    refused = [line for line in log(machine).splitlines() if "set oom_score_adj" not in line]
    assert not [line for line in refused if "not permitted" in line or "denied" in line]


def test_only_the_supervisor_is_outside_the_delegated_cgroup(machine: Machine) -> None:
    install(machine, "ramet", "ramet-guest")
    wait_until_ready(machine)
    main = machine.run("systemctl show -P MainPID ramet").stdout.strip()
    assert processes(machine, "/system.slice/ramet.service") == [main]
    assert machine.run(f"cat /sys/fs/cgroup{VMS}/cgroup.procs").stdout == ""
    assert machine.run("systemctl show -P Delegate ramet-vms").stdout.strip() == "yes"
    vms = processes(machine, f"{VMS}/ramet")
    machine.run("systemctl restart ramet")
    wait_until_ready(machine)
    assert not set(processes(machine, f"{VMS}/ramet")) & set(vms)  # a restart ends VMs
    create(machine)
    assert machine.run("ls -d /sys/fs/cgroup/ramet", check=False).returncode != 0


def test_sandbox_survives_a_crash_of_the_daemon(machine: Machine) -> None:
    install(machine, "ramet", "ramet-guest")
    wait_until_ready(machine)
    sandbox, main = create(machine), machine.run("systemctl show -P MainPID ramet").stdout.strip()
    machine.run(f"kill -KILL {main}")
    machine.until(f"p=$(systemctl show -P MainPID ramet); [ $p != {main} ] && [ $p != 0 ]")
    wait_until_ready(machine)
    assert call(machine, sandbox, "sum 1") == "256"


@pytest.mark.skipif(not BEFORE, reason="there is no previous commit")
@pytest.mark.parametrize("release", ["12"], indirect=True)
def test_upgrade_from_the_previous_commit_keeps_sandboxes(
    machine: Machine, release: str, tmp_path: Path
) -> None:
    put(machine, with_version(BEFORE[0], f"0.0.9-1~deb{release}", tmp_path), "before")
    install(machine, "before", "ramet-guest")
    wait_until_ready(machine)
    sandbox, main = create(machine), machine.run("systemctl show -P MainPID ramet").stdout
    (other,) = machine.ask("POST", f"{sandbox}/fork", {"n": 1})["children"]
    space = machine.ask("POST", f"/v1/sandboxes/{other}/freeze", {})["space_id"]
    assert "its sandboxes continue" in install(machine, "ramet")
    machine.until("journalctl -u ramet --no-pager | grep -q 'upgrade: .* takes over'")
    wait_until_ready(machine)
    assert machine.run("systemctl show -P MainPID ramet").stdout == main
    assert call(machine, sandbox, "sum 1") == "256"
    resumed = machine.ask("POST", f"/v1/spaces/{space}/resume", {})["id"]
    assert call(machine, f"/v1/sandboxes/{resumed}", "sum 1") == "256"
    create(machine)
    refused = machine.run("dpkg -i /packages/before.deb", check=False)
    assert refused.returncode != 0 and "cannot read the catalogue" in refused.stdout
    assert call(machine, sandbox, "sum 1") == "256"


def test_reload_refuses_a_key_that_the_service_cannot_read(machine: Machine) -> None:
    install(machine, "ramet", "ramet-guest")
    wait_until_ready(machine)
    sandbox = create(machine)
    machine.run("install -m 600 /dev/null /etc/ramet/key.pem")
    for name in ("tls_cert", "tls_key"):
        machine.run(f"echo {name} = /etc/ramet/key.pem >>/etc/ramet/ramet.conf")
    assert machine.run("systemctl reload ramet", check=False).returncode != 0
    assert "which the account ramet must be able to read: Permission denied" in log(machine)
    assert call(machine, sandbox, "sum 1") == "256"


def test_spaces_survive_removal_and_purge(machine: Machine) -> None:
    install(machine, "ramet", "ramet-guest")
    wait_until_ready(machine)
    space = machine.ask("POST", f"{create(machine)}/freeze", {})["space_id"]
    create(machine)
    assert "of 1 spaces, 0 are damaged" in machine.run("rametctl backup /root/backup").stdout
    assert "of 1 spaces, 0 are damaged" in machine.run("rametctl check").stdout
    machine.run("apt-get purge -y ramet")
    assert machine.run(f"test -d /sys/fs/cgroup{VMS}", check=False).returncode != 0
    assert "ramet" not in machine.run("cat /proc/[0-9]*/comm").stdout
    install(machine, "ramet")
    wait_until_ready(machine)
    resumed = machine.ask("POST", f"/v1/spaces/{space}/resume", {})["id"]
    assert call(machine, f"/v1/sandboxes/{resumed}", "sum 1") == "256"
