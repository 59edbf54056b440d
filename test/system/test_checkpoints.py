# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of real guests: what they keep, sandboxes that start from them, and rollback."""

from __future__ import annotations

import pytest

import ramet
from conftest import output, run_example, until
from ramet import Checkpoint, Client, Sandbox


def run(sbx: Sandbox, code: str, language: ramet.Language = "python") -> str:
    """Runs code in a sandbox; returns what it prints, without the final newline."""
    return output(sbx, code, language).strip()


SET_UP = """
import subprocess, threading, time
numbers = list(range(1000))
open('/root/kept', 'w').write('on disk')
open('/dev/shm/note', 'w').write('in memory')
sleeper = subprocess.Popen(['sleep', '1000'])
ticks = 0
def tick():
    global ticks
    while True:
        ticks += 1
        time.sleep(.01)
threading.Thread(target=tick, daemon=True).start()
"""
CHANGE = """
numbers = []
open('/root/kept', 'w').write('changed')
open('/dev/shm/note', 'w').write('changed')
sleeper.kill(); sleeper.wait()
"""
STATE = """
print(len(numbers), open('/root/kept').read(), open('/dev/shm/note').read(), sleeper.poll())
"""
KEPT = "1000 on disk in memory None"
BOOT_ID = "print(open('/proc/sys/kernel/random/boot_id').read())"


def check(sbx: Sandbox) -> None:
    """Fails unless the sandbox has the state after SET_UP, and its threads run."""
    assert run(sbx, STATE) == KEPT
    seen = int(run(sbx, "print(ticks)"))
    until(lambda: int(run(sbx, "print(ticks)")) > seen)


@pytest.mark.smoke
def test_sandboxes_begin_where_the_checkpoint_was() -> None:
    with Client() as client:
        with Sandbox(client=client) as sbx:
            run(sbx, SET_UP)
            point = sbx.checkpoint("ready", labels={"test": "system"})
            run(sbx, CHANGE)
            assert "/root/kept" in sbx.diff(point).modified
            assert "+on disk" in sbx.diff_text(point, "/root/kept")
            first, second = point.fork(2)
            with first, second:
                check(first)
                run(first, CHANGE)
                check(second)
                assert run(first, BOOT_ID) != run(second, BOOT_ID)
        until(lambda: Checkpoint.get(point.id, client=client).state == "stored")
        for _ in range(2):  # from the disk, and without its sandbox
            with Sandbox(checkpoint=point, client=client, metadata={"again": True}) as again:
                check(again)
                assert again.info().metadata == {"again": True}
        point.delete()
        with pytest.raises(ramet.NotFound):
            point.fork()


def test_a_rollback_gives_back_the_state_under_the_same_id() -> None:
    with Client() as client, Sandbox(client=client) as sbx:
        run(sbx, SET_UP)
        point = sbx.checkpoint()
        run(sbx, CHANGE)
        sbx.processes.start("sleep 1000")
        broken = sbx.rollback(point, keep="broken")
        check(sbx)
        assert sbx.processes.list() == []
        assert broken is not None and broken.name == "broken"
        sbx.rollback(broken)
        assert run(sbx, STATE).startswith("0 changed changed")
        sbx.rollback(point)
        check(sbx)
        for one in client.checkpoints(sandbox=sbx.id):
            one.delete()


def test_calls_are_undone() -> None:
    with Client() as client:
        with Sandbox(client=client, checkpoint_each_call={"keep": 5}) as sbx:

            def n_kept() -> int:
                return len(client.checkpoints(sandbox=sbx.id))

            until(lambda: n_kept() == 1)
            run(sbx, SET_UP)
            until(lambda: n_kept() == 2)
            run(sbx, CHANGE)
            point = client.checkpoints(sandbox=sbx.id)[1]
            assert sbx.undo() == point.id and point.call
            began, set_up, change, back = sbx.history()
            assert (began.kind, began.source) == ("created", None)
            assert (set_up.code, set_up.result, set_up.undone) == ("import subprocess, threading, time", "ok", False)
            assert (change.code, change.result, change.undone) == ("numbers = []", "ok", True)
            assert set_up.checkpoint == back.source == point.id and set_up.seq == point.call
            assert (back.kind, back.undone) == ("rollback", False)
            check(sbx)
            sbx.update(checkpoint_each_call={"keep": 0})
        for one in client.checkpoints(sandbox=sbx.id):
            one.delete()


def test_a_space_can_be_forked_and_stays() -> None:
    with Client() as client:
        with Sandbox(client=client) as sbx:
            run(sbx, SET_UP)
            space = sbx.freeze()
        for child in space.fork(2):
            with child:
                check(child)
        with Sandbox.resume(space.id, client=client) as again:
            check(again)


def test_example_goes_back_when_the_machine_is_broken() -> None:
    out = run_example("undo.py")
    assert "measure: ok\nclean up: the machine is broken\n" in out
    assert out.endswith("healthy again: True\nthe agent still knows: ['prepared', 'measured'] 42\n")
