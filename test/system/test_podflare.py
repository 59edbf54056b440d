# SPDX-License-Identifier: Apache-2.0
"""The published podflare client, unmodified, against this service."""

from __future__ import annotations

import base64
from typing import Any, Iterator

import httpx
import pytest

from conftest import HOST, until


@pytest.fixture
def sbx(podflare: Any) -> Iterator[Any]:
    with podflare.Sandbox(client=podflare.Client(timeout=300.0)) as sandbox:
        yield sandbox


def test_health(podflare: Any) -> None:
    assert podflare.Client().healthz() is True


def test_state_output_and_exit_codes(sbx: Any) -> None:
    sbx.run_code("x = 5")
    result = sbx.run_code("print(x)\nprint('second')")
    assert (result.stdout, result.stderr, result.exit_code) == ("5\nsecond", "", 0)
    assert sbx.run_code("exit 4", language="bash").exit_code == 4
    assert "ZeroDivisionError" in sbx.run_code("1/0").stderr


def test_lines_with_unicode_separators_are_not_split(sbx: Any) -> None:
    result = sbx.run_code("print('a\\u2028b\\u2029c\\x85d')")
    assert result.stdout == "a\u2028b\u2029c\x85d"


def test_every_create_option_is_accepted(podflare: Any) -> None:
    with podflare.Sandbox(
        client=podflare.Client(timeout=120.0),
        timeout_seconds=600,
        idle_timeout_seconds=300,
        persistent=False,
        egress=True,
    ) as sandbox:
        assert sandbox.run_code("print('in')").stdout == "in"


def test_upload_download_and_replay(sbx: Any) -> None:
    data = bytes(range(256)) * 400
    sbx.upload(data, "/root/deep/file.bin")
    assert sbx.download("/root/deep/file.bin") == data
    assert sbx.replay()[-1].type == "exit"


def test_terminal_can_be_used_resized_and_attached(sbx: Any) -> None:
    shown = bytearray()
    codes: list[int] = []
    pty = sbx.pty.create(
        cmd=["bash", "--norc", "-i"],
        cols=100,
        rows=30,
        on_data=shown.extend,
        on_exit=codes.append,
        env={"PS1": "$ "},
        cwd="/tmp",
    )
    pty.send_input("stty size; pwd\r")
    until(lambda: b"30 100\r\n/tmp\r\n" in shown)
    pty.resize(90, 20)
    pty.send_input(b"stty size\r")
    until(lambda: b"20 90" in shown)
    again = bytearray()
    other = sbx.pty.attach(pty.id, on_data=again.extend)
    until(lambda: again[:] == shown[:])
    (listed,) = sbx.pty.list()
    assert (listed.pty_id, listed.exit_code) == (pty.id, None)
    got = sbx._client.pty_read(sbx.id, pty.id, since_seq=0)
    assert base64.b64decode(got["data_b64"]) == shown[: got["next_seq"]]
    pty.send_input("exit 3\r")
    assert pty.wait(300) == other.wait(300) == 3
    assert codes == [3] and again == shown


def test_terminal_can_be_killed(sbx: Any) -> None:
    pty = sbx.pty.create(cmd="sleep 1000")
    with pytest.raises(TimeoutError):
        pty.wait(0.1)
    pty.kill()
    assert pty.wait(300) == 137


@pytest.mark.alone
def test_silent_call_outlives_the_read_timeout_of_the_client(podflare: Any) -> None:
    """The service's empty lines keep a call alive that prints nothing for 12 s; the timeout is 11 s."""
    with podflare.Sandbox(client=podflare.Client(timeout=11.0)) as sandbox:
        result = sandbox.run_code("import time\ntime.sleep(12)\nprint('awake')")
        assert result.stdout == "awake"


def test_fork_merge_and_diff(sbx: Any) -> None:
    sbx.run_code("x = 1\nopen('/root/kept', 'w').write('same')")
    children = sbx.fork(n=3)
    try:
        for i, child in enumerate(children):
            child.run_code(f"x += {i}\nopen('/root/{i}', 'w').write('{i}')")
        assert [child.run_code("print(x)").stdout for child in children] == ["1", "2", "3"]
        assert sbx.run_code("print(x)").stdout == "1"
        assert sbx.diff(children[1], paths=["/root"]) == {
            "added": ["/root/1"],
            "removed": [],
            "modified": [],
        }
        sbx.merge_into(children[2])
        assert sbx.run_code("print(x)").stdout == "3"
        children[2].close()
        assert sbx.run_code("print(open('/root/2').read())").stdout == "2"
    finally:
        for child in children:
            child.close()


def test_invalid_forks_are_refused(sbx: Any) -> None:
    with pytest.raises(httpx.HTTPStatusError, match="400"):
        sbx.fork(n=1001)
    with pytest.raises(httpx.HTTPStatusError, match="409"):
        (child,) = sbx.fork()
        try:
            child.merge_into(sbx)
        finally:
            child.close()
