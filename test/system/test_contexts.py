# SPDX-License-Identifier: Apache-2.0
"""Contexts in forks and Spaces of real guests."""

from __future__ import annotations

import pytest

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


@pytest.mark.smoke
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


@pytest.mark.smoke
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
