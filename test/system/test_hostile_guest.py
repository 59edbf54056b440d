# SPDX-License-Identifier: Apache-2.0
"""Guests that exhaust a resource: their owner gets a clear error, other sandboxes are unaffected."""

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
    """Another sandbox on the same host."""
    with Sandbox(client=client) as sandbox:
        yield sandbox


@pytest.fixture
def small(client: Client) -> Iterator[Sandbox]:
    """A sandbox whose memory is soon filled: under emulation, a GiB takes a minute."""
    with Sandbox(client=client, vcpus=1, ram_mib=256) as sandbox:
        yield sandbox


@contextmanager
def served(neighbour: Sandbox) -> Iterator[None]:
    """Makes calls in a neighbour while the block runs, and checks that all of them succeed.

    It pauses between the calls, so that they add little load to the host.
    """
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
        answers.append(neighbour.run_code("n += 1\nprint(n)"))  # one more at the end of the block
    finally:
        stop.set()
        caller.join()
    assert not failures
    assert all(answer.ok for answer in answers)
    assert sorted(int(a.stdout) for a in answers) == list(range(1, len(answers) + 1))


def assert_serves(sbx: Sandbox) -> None:
    """Checks that the sandbox is ready and serves calls, files and terminals."""
    assert sbx.info().state == "ready"
    assert sbx.run_code("print(6 * 7)").stdout == "42\n"
    assert sbx.run_code("echo $((6 * 7))", "bash").stdout == "42\n"
    sbx.upload(b"served", "/tmp/served")
    assert sbx.download("/tmp/served") == b"served"
    assert sbx.pty.create("exit 3").wait(120) == 3


HOG = "hog = []\nwhile True: hog.append(b'x' * (8 << 20))"


def test_interpreter_that_exhausts_memory_is_killed_and_reported(small: Sandbox, other: Sandbox) -> None:
    with served(other):
        result = small.run_code(HOG)
    assert result.exit_code == 137
    assert "killed" in result.stderr and "state is lost" in result.stderr
    assert_serves(small)


@pytest.mark.smoke
def test_child_process_that_exhausts_memory_is_killed_alone(small: Sandbox, other: Sandbox) -> None:
    small.run_code("kept = 'yes'")
    with served(other):
        result = small.run_code(f"python3 -c {shlex.quote(HOG)}; echo it gave $?", "bash")
    assert "it gave 137" in result.stdout
    assert small.run_code("print(kept)").stdout == "yes\n"
    assert_serves(small)


def test_tmpfs_that_exhausts_memory_affects_its_sandbox_only(small: Sandbox, other: Sandbox) -> None:
    """Killing a process frees no tmpfs, so the guest's kernel may panic: VmDied is acceptable."""
    fill = "mkdir /ram && mount -t tmpfs -o size=2G none /ram && head -c 2G /dev/zero >/ram/x"
    with served(other):
        try:
            assert small.run_code(fill, "bash").exit_code != 0
        except ramet.VmDied as died:
            assert len(str(died)) > 10


def test_full_disk_is_an_error_in_the_guest(sbx: Sandbox, other: Sandbox) -> None:
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
    assert_serves(sbx)


# Starts itself recursively in subprocesses, all in the process group of the call.
BOMB = "bomb() { bomb | bomb & }; bomb; sleep 1000"


@pytest.mark.smoke
def test_fork_bomb_ends_with_its_call(sbx: Sandbox, other: Sandbox) -> None:
    with served(other):
        result = sbx.run_code(BOMB, "bash", timeout_seconds=5)
    # 137: the guest ran out of memory before the time limit.
    errors = {124: "time limit of 5.000 s", 137: "state is lost"}
    assert errors[result.exit_code] in result.stderr
    assert_serves(sbx)


def test_sandbox_with_a_fork_bomb_can_be_deleted(client: Client, other: Sandbox) -> None:
    """The call that starts the bomb returns at once; the bomb continues in the background."""
    with served(other):
        bombed = Sandbox(client=client)
        bombed.run_code("setsid bash -c 'bomb() { bomb | bomb & }; bomb' &", "bash")
        assert bombed.info().state in ("ready", "running")
        with Sandbox(client=client) as third:
            assert third.run_code("print(1)").stdout == "1\n"
        bombed.close()
    with pytest.raises(ramet.NotFound):
        client.get_sandbox(bombed.id)


def test_killed_agent_hides_no_loss(sbx: Sandbox) -> None:
    sbx.run_code("x = 1")
    context = sbx.contexts.create("bash", cwd="/tmp")
    context.run_code("x=1")
    result = sbx.run_code("kill -9 -1", "bash")
    died = "the sandbox's agent was killed by signal 9 (Killed), and the %s process with it; its state is lost"
    assert result.exit_code == 137 and died % "Python" in result.stderr
    (child,) = sbx.fork()
    with child:
        for one in (sbx, child):
            assert one.run_code("print(1)").stderr == ""
            assert one.run_code("print('x' in globals())").stdout == "False\n"
            (again,) = one.contexts.list()
            result = again.run_code("echo $PWD $x")
            assert result.stdout == "/tmp\n" and died % "bash" in result.stderr


def test_busy_vcpus_do_not_block_other_sandboxes(sbx: Sandbox, other: Sandbox) -> None:
    sbx.run_code("for i in $(seq 16); do (while :; do :; done) & done", "bash")
    with served(other):
        assert sbx.run_code("print(1)").stdout == "1\n"
        with sbx.fork()[0] as child:
            assert child.run_code("print(2)").stdout == "2\n"
