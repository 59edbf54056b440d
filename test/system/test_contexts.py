# SPDX-License-Identifier: Apache-2.0
"""Contexts in real guests: state, side by side, in forks and in Spaces."""

from __future__ import annotations

import pytest

import ramet
from ramet import Event, Sandbox

# Prints "up", waits for the file /tmp/go, and prints how often it was run.
WAIT = {
    "python": "n = globals().get('n', 0) + 1\nprint('up', flush=True)\nimport os, time\n"
    "while not os.path.exists('/tmp/go'): time.sleep(.05)\nprint('python', n)",
    "bash": "n=$((n + 1)); echo up; until [ -e /tmp/go ]; do sleep .05; done; echo bash $n",
}


def texts(events: list[Event], context: str) -> str:
    """Returns the output of a context's calls from events of a whole sandbox."""
    return "".join(str(e.data) for e in events if e.context == context and e.type == "stdout")


def test_state_errors_and_ends(sbx: Sandbox) -> None:
    shell, python = sbx.contexts.create("bash", cwd="/tmp"), sbx.contexts.create(env={"A": "b"})
    assert shell.run_code("x=5; f() { echo f $x; }; cd /usr").ok
    assert shell.run_code("f; pwd").stdout == "f 5\n/usr\n"
    assert python.run_code("import os; x = 6; print(os.environ['A'])").stdout == "b\n"
    assert python.run_code("print(x)").stdout == "6\n"
    assert "NameError" in sbx.run_code("print(x)").stderr
    late = shell.run_code("sleep 1000", timeout_seconds=1)
    assert late.exit_code == 124 and shell.run_code("echo $x").stdout == "5\n"
    ended = shell.run_code("exit 3")
    assert ended.exit_code == 3 and "its state is lost" in ended.stderr
    assert shell.run_code("echo -$x; pwd").stdout == "-\n/tmp\n"
    python.restart()
    assert "NameError" in python.run_code("x").stderr
    assert [one.id for one in sbx.contexts.list()] == [shell.id, python.id]
    shell.delete()
    with pytest.raises(ramet.NotFound):
        shell.run_code("true")
    try:
        node = sbx.contexts.create("javascript")
    except ramet.Conflict as missing:
        assert missing.code == "not_installed"
    else:
        node.run_code("const one = 1")
        assert node.run_code("console.log(await Promise.resolve(one))").stdout == "1\n"


def test_running_calls_go_on_in_parent_and_children(sbx: Sandbox) -> None:
    contexts = [sbx.contexts.create("python"), sbx.contexts.create("bash")]
    streams = [one.run_code_stream(WAIT[one.language]) for one in contexts]
    assert [next(stream).data for stream in streams] == ["up\n", "up\n"]
    children = sbx.fork(2)
    try:
        for child in children:
            child.upload(b"", "/tmp/go")
            events = list(child.follow())
            for one in contexts:
                assert texts(events, one.id) == f"up\n{one.language} 1\n"
                copy = child.contexts.attach(one.id)
                assert copy.run_code(WAIT[one.language]).stdout == f"up\n{one.language} 2\n"
    finally:
        for child in children:
            child.close()
    sbx.upload(b"", "/tmp/go")
    for one, stream in zip(contexts, streams):
        assert [event.data for event in stream] == [f"{one.language} 1\n", 0]


def test_running_calls_go_on_after_freeze_and_resume() -> None:
    with Sandbox() as sbx:
        contexts = [sbx.contexts.create("python"), sbx.contexts.create("bash")]
        streams = [one.run_code_stream(WAIT[one.language]) for one in contexts]
        assert [next(stream).data for stream in streams] == ["up\n", "up\n"]
        space = sbx.freeze()
    with Sandbox.resume(space.id) as resumed:
        resumed.upload(b"", "/tmp/go")
        events = list(resumed.follow())
        for one in contexts:
            assert texts(events, one.id) == f"{one.language} 1\n"
