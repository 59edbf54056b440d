# SPDX-License-Identifier: Apache-2.0
"""Guests that take all they can get: their owner learns what became of it, others notice nothing."""

from __future__ import annotations

import shlex
import threading
from contextlib import contextmanager
from typing import Iterator

import pytest

import ramet
from ramet import Client, Sandbox


@pytest.fixture(scope="module")
def other(client: Client) -> Iterator[Sandbox]:
    """Somebody else's sandbox on the same host."""
    with Sandbox(client=client) as sandbox:
        yield sandbox


@contextmanager
def served(neighbour: Sandbox) -> Iterator[None]:
    """All calls of a neighbour, one after the other for as long as the block lasts, are right.
    Between them is a pause: it is there to be served, not to load the host too."""
    neighbour.run_code("n = 0")
    stop = threading.Event()
    answers: list[ramet.ExecResult] = []
    failures: list[BaseException] = []

    def call_on() -> None:
        try:
            while not stop.wait(0.2):
                answers.append(neighbour.run_code("n += 1\nprint(n)"))
        except BaseException as failure:
            failures.append(failure)

    caller = threading.Thread(target=call_on)
    caller.start()
    try:
        yield
        answers.append(neighbour.run_code("n += 1\nprint(n)"))  # at the end of it, still
    finally:
        stop.set()
        caller.join()
    assert not failures
    assert all(answer.ok for answer in answers)
    assert sorted(int(a.stdout) for a in answers) == list(range(1, len(answers) + 1))


def is_well(sbx: Sandbox) -> None:
    """It serves calls, files and terminals, and says so."""
    assert sbx.info().state == "ready"
    assert sbx.run_code("print(6 * 7)").stdout == "42\n"
    assert sbx.run_code("echo $((6 * 7))", "bash").stdout == "42\n"
    sbx.upload(b"served", "/tmp/served")
    assert sbx.download("/tmp/served") == b"served"
    assert sbx.pty.create("exit 3").wait(120) == 3


HOG = "hog = []\nwhile True: hog.append(b'x' * (8 << 20))"


def test_python_that_takes_all_memory_is_ended_and_told(sbx: Sandbox, other: Sandbox) -> None:
    with served(other):
        result = sbx.run_code(HOG)
    assert result.exit_code == 137
    assert "killed" in result.stderr and "state is lost" in result.stderr
    is_well(sbx)


def test_a_child_that_takes_all_memory_is_ended_alone(sbx: Sandbox, other: Sandbox) -> None:
    sbx.run_code("kept = 'yes'")
    with served(other):
        result = sbx.run_code(f"python3 -c {shlex.quote(HOG)}; echo it gave $?", "bash")
    assert "it gave 137" in result.stdout
    assert sbx.run_code("print(kept)").stdout == "yes\n"
    is_well(sbx)


def test_memory_that_files_take_is_the_sandboxs_own(sbx: Sandbox, other: Sandbox) -> None:
    """No process that could be ended would give it back: the guest's system may well give up."""
    fill = "mkdir /ram && mount -t tmpfs -o size=2G none /ram && head -c 2G /dev/zero >/ram/x"
    with served(other):
        try:
            assert sbx.run_code(fill, "bash").exit_code != 0
        except ramet.VmDied as told:
            assert len(str(told)) > 10


def test_a_full_disk_is_an_error_in_the_guest(sbx: Sandbox, other: Sandbox) -> None:
    sbx.run_code("kept = 'yes'")
    fill = (
        "fallocate -l $(($(df --output=avail -B1 / | tail -1) - 1000000)) /root/most;"
        " cat /dev/zero >/root/rest; df --output=avail / | tail -1"
    )
    with served(other):
        result = sbx.run_code(fill, "bash")
        assert "No space left on device" in result.stderr
        assert int(result.stdout) < 100
        with pytest.raises(ramet.DiskFull):
            sbx.upload(bytes(1 << 20), "/root/more")
        with pytest.raises(ramet.DiskFull):
            sbx.upload(bytes(9 << 20), "/root/more")
        assert sbx.run_code("print(kept)").stdout == "yes\n"
        with sbx.fork()[0] as child:
            assert child.run_code("print(kept)").stdout == "yes\n"
    sbx.files.remove("/root/most")
    sbx.files.remove("/root/rest")
    is_well(sbx)


# Subshells that start each other, all in the process group of the call.
BOMB = "bomb() { bomb | bomb & }; bomb; sleep 1000"


def test_a_fork_bomb_ends_with_its_call(sbx: Sandbox, other: Sandbox) -> None:
    with served(other):
        result = sbx.run_code(BOMB, "bash", timeout_seconds=5)
    told = {124: "time limit of 5.000 s", 137: "state is lost"}  # 137: memory was out first
    assert told[result.exit_code] in result.stderr
    is_well(sbx)


def test_a_sandbox_under_a_bomb_can_be_closed(client: Client, other: Sandbox) -> None:
    """The call that sets it off is over at once, and the bomb goes on without it."""
    with served(other):
        bombed = Sandbox(client=client)
        bombed.run_code("setsid bash -c 'bomb() { bomb | bomb & }; bomb' &", "bash")
        assert bombed.info().state in ("ready", "running")
        with Sandbox(client=client) as third:
            assert third.run_code("print(1)").stdout == "1\n"
        bombed.close()
    with pytest.raises(ramet.NotFound):
        client.get_sandbox(bombed.id)


def test_busy_vcpus_are_the_sandboxs_own(sbx: Sandbox, other: Sandbox) -> None:
    sbx.run_code("for i in $(seq 16); do (while :; do :; done) & done", "bash")
    with served(other):
        assert sbx.run_code("print(1)").stdout == "1\n"
        with sbx.fork()[0] as child:
            assert child.run_code("print(2)").stdout == "2\n"
