# SPDX-License-Identifier: Apache-2.0
"""Installs, upgrades and removes the packages on Debian systems with a real systemd.

The units, the maintainers' scripts and systemd are real. VMs are not: a stand-in takes rametd's place in
ramet.service. It makes a cgroup with a process as rametd does, and takes over the one that it finds.
test_service.py has the real service.
"""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path
from typing import Iterator

import pytest

from debs import PACKAGES, RELEASES, VMS, deb, guest_package, host, install, put, with_version
from machine import Machine

STAND_IN = r"""#!/bin/sh
vm=/sys/fs/cgroup$RAMET_CGROUP/ramet/vm-0
mkdir -p "$vm"
if ! grep -q . "$vm/cgroup.procs"; then
	sh -c 'echo $$ >"$1/cgroup.procs"; exec sleep infinity' sh "$vm" &
fi
trap 'exec "$0"' HUP
trap 'echo 1 >"$vm/cgroup.kill"; exit 0' TERM
while :; do sleep 0.1; done
"""
DROP_IN = """[Service]
ExecStart=
ExecStart=/usr/local/bin/stand-in
"""


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def machine(release: str, tmp_path: Path) -> Iterator[Machine]:
    made = Machine(host(release), Path("/var/tmp"))
    try:
        made.wait_for_boot()
        guest = guest_package(tmp_path, {"vmlinux": b"kernel", "rootfs.ext4": b"root file system"})
        put(made, guest, "ramet-guest")
        put(made, deb(release, "ramet"), "ramet")
        for file, text in (
            ("usr/local/bin/stand-in", STAND_IN),
            ("etc/systemd/system/ramet.service.d/stand-in.conf", DROP_IN),
        ):
            (made.root / file).parent.mkdir(parents=True, exist_ok=True)
            (made.root / file).write_text(text)
        (made.root / "usr/local/bin/stand-in").chmod(0o755)
        yield made
    finally:
        made.stop()


def vm_pid(machine: Machine, base: str = VMS) -> str:
    """Returns the process of the stand-in's VM."""
    procs = f"/sys/fs/cgroup{base}/ramet/vm-0/cgroup.procs"
    machine.until(f"grep -q . {procs}")
    return machine.run(f"cat {procs}").stdout.strip()


def reloads(machine: Machine) -> int:
    return machine.run("journalctl -u ramet --no-pager").stdout.count("Reloaded ramet.service")


def put_version(machine: Machine, release: str, version: str, folder: Path) -> None:
    put(machine, with_version(deb(release, "ramet"), version, folder), version)


def test_fresh_host_serves_after_one_command(machine: Machine) -> None:
    said = install(machine, "ramet", "ramet-guest")
    assert "prepares its first sandboxes" in said
    assert reloads(machine) == 0
    assert machine.run("systemctl is-active ramet ramet-vms run-ramet.mount").stdout.split() == ["active"] * 3
    assert machine.run("systemctl is-enabled ramet").stdout.strip() == "enabled"
    assert machine.run("stat -c '%U %a' /var/lib/ramet").stdout.split() == ["ramet", "700"]
    vm_pid(machine)
    # Nothing of Ramet is below the root cgroup, and no process is in an inner node of the delegated one.
    assert machine.run("ls -d /sys/fs/cgroup/ramet", check=False).returncode != 0
    assert machine.run(f"cat /sys/fs/cgroup{VMS}/cgroup.procs").stdout == ""


def test_installed_programs_find_their_libraries(machine: Machine) -> None:
    install(machine, "ramet", "ramet-guest")
    machine.run("rametd --check")
    assert "rametctl" in machine.run("rametctl help").stdout
    for program in ("rametd", "ramet-notify", "ramet-fleet"):
        assert "not found" not in machine.run(f"ldd /usr/lib/ramet/{program}").stdout


@pytest.mark.parametrize("packages", [["ramet"], ["ramet-guest"], ["ramet", "ramet-guest"]], ids="+".join)
def test_upgrade_reloads_once_and_keeps_vms(
    machine: Machine, release: str, tmp_path: Path, packages: list[str]
) -> None:
    install(machine, "ramet", "ramet-guest")
    before, main = vm_pid(machine), machine.run("systemctl show -P MainPID ramet").stdout
    for package in packages:
        new = with_version(machine.root / f"packages/{package}.deb", f"0.1.1-1~deb{release}", tmp_path)
        put(machine, new, f"new-{package}")
    said = install(machine, *(f"new-{package}" for package in packages))
    assert said.count("its sandboxes continue") == 1
    assert reloads(machine) == 1
    assert vm_pid(machine) == before
    assert machine.run("systemctl show -P MainPID ramet").stdout == main
    assert machine.run("systemctl is-active ramet").stdout.strip() == "active"


def test_upgrade_says_when_the_new_version_refuses_the_settings(
    machine: Machine, release: str, tmp_path: Path
) -> None:
    put_version(machine, release, "0.1.1-1", tmp_path)
    install(machine, "ramet", "ramet-guest")
    before, main = vm_pid(machine), machine.run("systemctl show -P MainPID ramet").stdout
    machine.run("echo 'no_such_setting = 1' >>/etc/ramet/ramet.conf")
    said = install(machine, "0.1.1-1")
    assert "did NOT change to version 0.1.1-1" in said and "its sandboxes continue" not in said
    assert "no_such_setting" in machine.run("journalctl -u ramet --no-pager").stdout
    assert vm_pid(machine) == before
    assert machine.run("systemctl show -P MainPID ramet").stdout == main
    assert machine.run("systemctl is-active ramet").stdout.strip() == "active"
    machine.run("sed -i '$d' /etc/ramet/ramet.conf; systemctl reload ramet")
    assert reloads(machine) == 1


def test_vms_survive_a_crash_of_the_daemon(machine: Machine) -> None:
    install(machine, "ramet", "ramet-guest")
    before, main = vm_pid(machine), machine.run("systemctl show -P MainPID ramet").stdout.strip()
    machine.run(f"kill -KILL {main}")
    machine.until(f"p=$(systemctl show -P MainPID ramet); [ $p != {main} ] && [ $p != 0 ]")
    machine.until("systemctl is-active ramet")
    assert vm_pid(machine) == before


def test_vms_of_an_earlier_version_keep_their_cgroup(machine: Machine) -> None:
    former = "/sys/fs/cgroup/ramet/ramet/vm-0"
    machine.run(
        f"mkdir -p {former}; setsid sh -c 'echo $$ >{former}/cgroup.procs; exec sleep infinity' "
        "</dev/null >/dev/null 2>&1 &"
    )
    before = vm_pid(machine, "/ramet")
    install(machine, "ramet", "ramet-guest")
    assert vm_pid(machine, "/ramet") == before
    assert "an earlier version started" in machine.run("journalctl -u ramet --no-pager").stdout
    machine.run("systemctl restart ramet")  # ends VMs, as the real one does
    assert vm_pid(machine) != before


def test_downgrade_is_refused_before_anything_changes(
    machine: Machine, release: str, tmp_path: Path
) -> None:
    put_version(machine, release, "0.0.9-1", tmp_path)
    install(machine, "ramet", "ramet-guest")
    before = vm_pid(machine)
    refused = machine.run("dpkg -i /packages/0.0.9-1.deb", check=False)
    assert refused.returncode != 0
    assert "cannot read the catalogue" in refused.stdout and "Nothing was changed" in refused.stdout
    assert "0.1.0-1" in machine.run("dpkg-query -W -f '${Status} ${Version}' ramet").stdout
    assert vm_pid(machine) == before
    # Also when the newer package was removed, since its data is still there.
    machine.run("apt-get remove -y ramet")
    assert machine.run("dpkg -i /packages/0.0.9-1.deb", check=False).returncode != 0


def test_other_release_of_the_same_version_is_no_downgrade(
    machine: Machine, release: str, tmp_path: Path
) -> None:
    put_version(machine, release, "0.1.0-1~deb11", tmp_path)
    install(machine, "ramet", "ramet-guest")
    install(machine, "0.1.0-1~deb11")


def test_remove_and_purge_leave_the_data(machine: Machine) -> None:
    install(machine, "ramet", "ramet-guest")
    before = vm_pid(machine)
    machine.run("echo data >/var/lib/ramet/catalogue.db")
    machine.run("mkdir /etc/ramet/fleet; echo secret >/etc/ramet/fleet/key.pem")
    assert "remain in /var/lib/ramet" in machine.run("apt-get remove -y ramet ramet-guest").stdout
    assert machine.run(f"kill -0 {before}", check=False).returncode != 0
    assert machine.run("cat /var/lib/ramet/catalogue.db").stdout == "data\n"
    assert machine.run("test -e /etc/ramet/ramet.conf").returncode == 0
    assert "was not removed" in machine.run("apt-get purge -y ramet").stdout
    assert machine.run("cat /var/lib/ramet/catalogue.db").stdout == "data\n"
    for path in ("/etc/ramet/ramet.conf", "/etc/ramet/fleet", "/var/lib/ramet-fleet"):
        assert machine.run(f"test -e {path}", check=False).returncode != 0
    assert machine.run("systemctl list-units --all '*ramet*' --no-legend").stdout.strip() == ""


def test_unsupported_host_is_refused_in_words(machine: Machine) -> None:
    machine.run("rm -f /dev/kvm; printf 'flags : fpu sse\\n' >/tmp/cpu; mount --bind /tmp/cpu /proc/cpuinfo")
    refused = machine.run("dpkg -i /packages/ramet-guest.deb /packages/ramet.deb", check=False)
    assert refused.returncode != 0
    assert "this host has no KVM" in refused.stdout and "Nothing was changed" in refused.stdout
    assert machine.run("test -e /usr/lib/ramet/rametd", check=False).returncode != 0
    machine.run("RAMET_INSTALL_ANYWAY=1 dpkg -i /packages/ramet.deb")


def contents(package: Path, folder: Path) -> dict[str, bytes]:
    """Unpacks a package or wheel; returns its files, and the list of their modes, owners and times."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as archive:
            archive.extractall(folder)
            listed = "\n".join(f"{file!r} {file.date_time}" for file in archive.infolist()).encode()
    else:
        subprocess.run(["dpkg-deb", "-R", package, folder], check=True)
        listed = subprocess.run(["dpkg-deb", "-c", package], check=True, capture_output=True).stdout
    files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return {"the list of files": listed, **files}


def test_two_builds_have_the_same_bytes(tmp_path: Path) -> None:
    again = PACKAGES / ".again"
    built = sorted(again.iterdir())
    assert {".deb", ".whl"} == {file.suffix for file in built}, "there is no second build"
    for file in built:
        first = next(PACKAGES.glob(f"debian-*/{file.name}"))
        if file.read_bytes() == first.read_bytes():
            continue
        one, two = contents(first, tmp_path / "one"), contents(file, tmp_path / "two")
        differ = sorted(name for name in {*one, *two} if one.get(name) != two.get(name))
        pytest.fail(f"{file.name}: the builds differ in {differ or 'the archive alone'}")
