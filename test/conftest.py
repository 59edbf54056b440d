# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests that drive the running service with real guests.

These are in the folders system and fault. Those in integrations and rootfs also run on stand-ins of
its VMs.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import httpx
import pytest

import ramet._async._transport
import ramet._transport
from ramet import Client, Language, Sandbox
from stand_in import Service

REPO = Path(__file__).resolve().parents[1]
HOST = os.environ.get("RAMET_HOST", "http://127.0.0.1:7070")
STALLS_SHOWN = 3
STARTED = pytest.StashKey[str]()  # when a test started, as the service's log writes it
START_TIMEOUT_S = 120  # for a service that was just restarted on a busy machine

_stand_in: Service | None = None


def pytest_configure(config: pytest.Config) -> None:
    """Starts a service with stand-in VMs if RAMET_ROOTFS names a root file system for them.

    Each worker has one of its own, so that no test sees the sandboxes of another worker.
    """
    global HOST, _stand_in
    rootfs = os.environ.get("RAMET_ROOTFS")
    if not rootfs or config.getoption("numprocesses", None):
        return
    folder = tempfile.TemporaryDirectory(prefix="ramet-")
    _stand_in = Service(Path(folder.name), rootfs=rootfs)
    config.add_cleanup(folder.cleanup)
    config.add_cleanup(_stand_in.stop)
    os.environ["RAMET_HOST"] = HOST = _stand_in.base


# Files that take minutes. A worker gets a whole file, so the long ones start first and the short
# ones fill the gaps. test_power comes last: after a power cut the service has no sandboxes.
LONGEST_FIRST = ["test_box", "test_hostile_guest", "test_fork", "test_network"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        name = item.path.stem
        if name in LONGEST_FIRST:
            return LONGEST_FIRST.index(name)
        return len(LONGEST_FIRST) + (name == "test_power")

    items.sort(key=rank)


_service_is_gone = False


def service_is_ready(timeout_s: float) -> bool:
    """Polls the health check; returns false if it does not succeed within the time."""
    give_up = time.monotonic() + timeout_s
    with Client(HOST, timeout=2) as probe:
        while not (ready := probe.healthz()) and time.monotonic() < give_up:
            time.sleep(0.2)
    return ready


def uses_the_service(item: pytest.Item) -> bool:
    top = item.path.relative_to(REPO / "test").parts[0]
    return top in ("system", "fault", "integrations", "rootfs") or bool(item.get_closest_marker("vm"))


def service_log() -> list[str]:
    if _stand_in:
        return _stand_in.log.read_text().splitlines()
    try:
        logs = subprocess.run([REPO / "dev", "logs"], capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return ["(`dev logs` did not return it within a minute)"]
    return (logs.stdout + logs.stderr).splitlines()


def stalls(log: list[str], since: str) -> str:
    """Returns the last STALLS_SHOWN reports on stalled VMs that a service log has since a time."""
    mark = " is stalled; a report on it follows "
    begins = [i for i, line in enumerate(log) if mark in line and line >= since]
    reports = []
    for begin in begins[-STALLS_SHOWN:]:
        ends = (i for i in range(begin + 1, len(log)) if ": | " not in log[i])
        reports += log[begin : next(ends, len(log))]
    return "\n".join(reports)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    report: pytest.TestReport = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed and uses_the_service(item):
        report.sections.append(("Stalled VMs", stalls(service_log(), item.stash[STARTED])))


def end_of_logs() -> str:
    """Returns the last lines of the service's log and, with a rig, of its host's console."""
    lines = ["", "the service's log:", *service_log()[-15:]]
    console = REPO / "build/rig/console.log"
    if console.exists():
        lines += ["the console of the rig's host:"]
        lines += console.read_text(errors="replace").splitlines()[-15:]
    return "\n".join(lines)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fails a test at once if the service is gone.

    Otherwise each test would wait for the service until its own timeout, for hours in all.
    """
    global _service_is_gone
    item.stash[STARTED] = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    if not uses_the_service(item):
        return
    was_gone = _service_is_gone
    _service_is_gone = not service_is_ready(0 if was_gone else START_TIMEOUT_S)
    if _service_is_gone:
        logs = "" if was_gone else end_of_logs()
        pytest.fail(f"no ready service at {HOST}{logs}", pytrace=False)


def on_host(command: str) -> str:
    """Runs a command on the host of the VMs; returns its output, fails the test if it fails."""
    done = subprocess.run(
        [str(REPO / "dev"), "host", "sh", "-c", command],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"`{command}` exited with {done.returncode}: {done.stderr}"
    return done.stdout


def put_on_host(path: str, data: bytes, mode: int = 0o644) -> None:
    """Writes a file on the host of the VMs."""
    command = f"cat >{path} && chmod {mode:o} {path}"
    subprocess.run([str(REPO / "dev"), "host", "sh", "-c", command], input=data, check=True)


def until(
    holds: Callable[[], bool], seconds: float = 300, error: Callable[[], str] | None = None
) -> None:
    """Waits until `holds` returns true; fails the test with `error` after `seconds`."""
    give_up = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > give_up:
            pytest.fail(error() if error else f"the condition did not hold within {seconds} s")
        time.sleep(0.1)


def metrics(http: httpx.Client) -> dict[str, float]:
    """Returns the value of each series in /metrics by its name, labels included."""
    lines = http.get("/metrics").text.splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def run_example(name: str, *arguments: str) -> str:
    """Runs a program of examples/ against the service; returns its output."""
    done = subprocess.run(
        [sys.executable, str(REPO / "examples" / name), *arguments],
        env={**os.environ, "RAMET_HOST": HOST, "PYTHONPATH": str(REPO / "sdk/python/src")},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def output(sbx: Sandbox, code: str, language: Language = "python") -> str:
    """Runs code in a sandbox; returns what it prints, fails the test if it fails."""
    result = sbx.run_code(code, language)
    assert result.exit_code == 0, f"exit {result.exit_code}: {result.stderr}\n{result.stdout}"
    return result.stdout


def bash(sbx: Sandbox, script: str) -> str:
    """Runs a bash script; returns what it prints, fails the test if one of its commands fails."""
    return output(sbx, "set -euo pipefail\n" + script, "bash")


# A command line that prints the pid of the service. Supervisor, warden, service and a VM process
# that is just being created all have the name rametd; only the service runs as the user ramet.
SERVICE_PID = (
    "for p in $(pidof rametd); do"
    " ! grep -q \"^Uid:.$(id -u ramet)[^0-9]\" /proc/$p/status || echo $p; done"
)


def between_services(command: str) -> None:
    """Kills the service, and runs a command on the host before the warden starts it again."""
    # The service's files are closed when its last thread ends. Until then the warden, which would
    # reap and restart the service, is stopped.
    on_host(
        f"s=$({SERVICE_PID}) && warden=$(awk '/^PPid:/ {{print $2}}' /proc/$s/status) || exit\n"
        "trap \"kill -CONT $warden\" EXIT; kill -STOP $warden; kill -9 $s || exit\n"
        "until grep -q '^State:.Z' /proc/$s/status && [ $(ls /proc/$s/task | wc -l) = 1 ]; do\n"
        "  [ -e /proc/$s ] || exit\n"
        "  sleep 0.05\n"
        f"done\n({command}\n)"
    )


def vm_of(sbx: Sandbox) -> tuple[str, str]:
    """Returns the slot and the process id of a running sandbox's VM, from `rametctl inspect`."""
    report = on_host(f"rametctl inspect {sbx.id}")
    found = re.search(r"^VM in slot (\d+): .*?, process (\d+),", report, re.M)
    assert found, f"no VM in the report:\n{report}"
    return found[1], found[2]


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    """A client of the SDK."""
    # A busy machine may send nothing for minutes.
    ramet._transport._STREAM_SILENCE_S = ramet._async._transport._STREAM_SILENCE_S = 300
    with Client(HOST, timeout=300) as c:
        yield c


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the SDK is installed, with its entry points and its commands in bin/.

    Only the Python of the tests of the integrations can make it. PYTHONPATH names the folder for
    another process; `monkeypatch.syspath_prepend` makes its entry points known to this one.
    """
    copy, folder = tmp_path_factory.mktemp("sdk"), tmp_path_factory.mktemp("installed")
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(REPO / "sdk/python" / name, copy)
    shutil.copytree(
        REPO / "sdk/python/src", copy / "src", ignore=shutil.ignore_patterns("*.pyc", "*.egg-info")
    )
    command = [sys.executable, "-m", "uv", "--offline", "--no-cache", "pip", "install", "--quiet"]
    command += ["--no-deps", "--no-build-isolation", "--python", sys.executable]
    done = subprocess.run(
        [*command, "--target", folder, copy], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def http() -> Iterator[httpx.Client]:
    """A plain HTTP client, for requests that the SDK would not send."""
    with httpx.Client(base_url=HOST, timeout=300, trust_env=False) as c:
        yield c


@pytest.fixture
def none_stay(http: httpx.Client) -> Iterator[None]:
    """Removes the sandboxes and Spaces that the test leaves."""
    kinds = ("sandboxes", "spaces")
    before = {kind: {one["id"] for one in http.get(f"/v1/{kind}").json()} for kind in kinds}
    yield
    for kind in kinds:
        for one in http.get(f"/v1/{kind}").json():
            if one["id"] not in before[kind]:
                http.delete(f"/v1/{kind}/{one['id']}")


@pytest.fixture(scope="session")
def crash_service() -> Callable[[], None]:
    """Returns a function that kills the service; the warden starts it again."""

    def crash() -> None:
        on_host(f"kill -9 $({SERVICE_PID})")

    return crash


@pytest.fixture
def sbx(client: Client) -> Iterator[Sandbox]:
    """A new sandbox for one test."""
    with Sandbox(client=client) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def shared(client: Client) -> Iterator[Sandbox]:
    """One sandbox for all tests of a module that leave it unchanged."""
    with Sandbox(client=client) as sandbox:
        yield sandbox


@pytest.fixture
def podflare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The published client, as the module `podflare`, set to this service."""
    monkeypatch.setenv("PODFLARE_HOSTD_URL", HOST)
    monkeypatch.setenv("PODFLARE_HOST", HOST)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    module: Any = importlib.import_module("podflare")
    yield module
    module.close_default_client()
