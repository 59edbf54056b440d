# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests that drive the running service with real guests (system, fault)."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import Callable, Iterator

import httpx
import pytest

import ramet._transport
from ramet import Client, Language, Sandbox

REPO = Path(__file__).resolve().parents[1]
HOST = os.environ.get("RAMET_HOST", "http://127.0.0.1:7070")
STALLS_SHOWN = 3
PATIENCE_S = 120  # for a service that was just restarted on a busy machine


# Files that take minutes: each is given out whole, so they go first and the short ones fill up.
# After a power cut the service starts with nothing: last.
LONGEST_FIRST = ["test_real_use", "test_box", "test_hostile_guest", "test_pty", "test_fork"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        name = item.path.stem
        if name in LONGEST_FIRST:
            return LONGEST_FIRST.index(name)
        return len(LONGEST_FIRST) + (name == "test_power")

    items.sort(key=place)


_service_is_gone = False


def service_answers(patience_s: float) -> bool:
    give_up = time.monotonic() + patience_s
    with Client(HOST, timeout=2) as asking:
        while not (ready := asking.healthz()) and time.monotonic() < give_up:
            time.sleep(0.2)
    return ready


def service_log() -> list[str]:
    try:
        logs = subprocess.run([REPO / "dev", "logs"], capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return ["(it could not be had within a minute)"]
    return (logs.stdout + logs.stderr).splitlines()


def stalls(log: list[str]) -> str:
    """The last reports on VMs that stood still."""
    begins = [i for i, line in enumerate(log) if " is stalled; a report on it follows " in line]
    told = []
    for begin in begins[-STALLS_SHOWN:]:
        ends = (i for i in range(begin + 1, len(log)) if ": | " not in log[i])
        told += log[begin : next(ends, len(log))]
    return "\n".join(told)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    report: pytest.TestReport = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed and item.path.parent.name in ("system", "fault"):
        report.sections.append(("VMs that stood still", stalls(service_log())))


def last_words() -> str:
    """What the service, and the rig's host where there is one, said last."""
    told = ["", "the service's log:", *service_log()[-15:]]
    console = REPO / "build/rig/console.log"
    if console.exists():
        told += ["the console of the rig's host:"]
        told += console.read_text(errors="replace").splitlines()[-15:]
    return "\n".join(told)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Without the service each test would wait for it in vain, for hours in all."""
    global _service_is_gone
    if item.path.parent.name not in ("system", "fault"):
        return
    was_gone = _service_is_gone
    _service_is_gone = not service_answers(0 if was_gone else PATIENCE_S)
    if _service_is_gone:
        why = "" if was_gone else last_words()
        pytest.fail(f"no ready service at {HOST}{why}", pytrace=False)


def on_host(command: str) -> str:
    """Output of a shell command run where the VMs run."""
    done = subprocess.run(
        [str(REPO / "dev"), "host", "sh", "-c", command],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"`{command}` gave {done.returncode}: {done.stderr}"
    return done.stdout


def put_on_host(path: str, data: bytes, mode: int = 0o644) -> None:
    """Writes a file where the VMs run."""
    command = f"cat >{path} && chmod {mode:o} {path}"
    subprocess.run([str(REPO / "dev"), "host", "sh", "-c", command], input=data, check=True)


def until(holds: Callable[[], bool], seconds: float = 300) -> None:
    """Waits until `holds` returns true; fails the test if it does not within the time."""
    give_up = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < give_up, "what was waited for did not come"
        time.sleep(0.1)


def output(sbx: Sandbox, code: str, language: Language = "python") -> str:
    """Returns what code in a sandbox prints; fails the test if the code fails."""
    result = sbx.run_code(code, language)
    assert result.exit_code == 0, f"exit {result.exit_code}: {result.stderr}\n{result.stdout}"
    return result.stdout


def bash(sbx: Sandbox, script: str) -> str:
    """Returns what a bash script prints; fails the test if any command of it fails."""
    return output(sbx, "set -euo pipefail\n" + script, "bash")


# Supervisor, warden, service and a VM process that is just being made are all rametd: the service
# is the one of the user ramet.
SERVICE_PID = (
    "for p in $(pidof rametd); do"
    " ! grep -q \"^Uid:.$(id -u ramet)[^0-9]\" /proc/$p/status || echo $p; done"
)


def between_services(command: str) -> None:
    """Kills the service, and runs a shell command before the warden starts it again."""
    # The end of its last thread gives its files back; the warden, who would bury it, stands still.
    on_host(
        f"s=$({SERVICE_PID}) && warden=$(awk '/^PPid:/ {{print $2}}' /proc/$s/status) || exit\n"
        "trap \"kill -CONT $warden\" EXIT; kill -STOP $warden; kill -9 $s || exit\n"
        "until grep -q '^State:.Z' /proc/$s/status && [ $(ls /proc/$s/task | wc -l) = 1 ]; do\n"
        "  [ -e /proc/$s ] || exit\n"
        "  sleep 0.05\n"
        f"done\n({command}\n)"
    )


def vm_of(sbx: Sandbox) -> tuple[str, str]:
    """Returns the slot and the process of a running sandbox's VM."""
    report = on_host(f"ramet inspect {sbx.id}")
    found = re.search(r"^VM in slot (\d+): .*?, process (\d+),", report, re.M)
    assert found, f"no VM in the report:\n{report}"
    return found[1], found[2]


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    """The SDK's client, once the service is ready."""
    ramet._transport._STREAM_SILENCE_S = 300  # a machine with much other work may stand still
    with Client(HOST, timeout=300) as c:
        yield c


@pytest.fixture(scope="session")
def http() -> Iterator[httpx.Client]:
    """Plain HTTP, for what the SDK would not send."""
    with httpx.Client(base_url=HOST, timeout=300, trust_env=False) as c:
        yield c


@pytest.fixture
def sbx(client: Client) -> Iterator[Sandbox]:
    """A sandbox of its own for one test."""
    with Sandbox(client=client) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def shared(client: Client) -> Iterator[Sandbox]:
    """One sandbox for the tests of a module that leave nothing behind."""
    with Sandbox(client=client) as sandbox:
        yield sandbox
