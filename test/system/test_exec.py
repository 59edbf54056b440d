# SPDX-License-Identifier: Apache-2.0
"""Calls in real guests.

Output, errors, interrupts and limits of calls are tested with the agent itself in test/guest, and
with the service in test/service. Here is what needs a kernel, a VM, or several of them.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from conftest import output
from ramet import Client, Event, ExecResult, Language, Sandbox


@pytest.mark.smoke
def test_sandbox_is_a_separate_linux_machine(shared: Sandbox) -> None:
    shared.run_code("import os\nx = 41\nos.chdir('/usr')\nos.environ['COLOUR'] = 'green'")
    assert shared.run_code("x += 1\nprint(x)") == ExecResult("42\n", "", 0)
    script = "pwd; echo $COLOUR; uname -s; id -u; test -w /etc/hostname && echo writable; exit 3"
    found = shared.run_code(script, "bash")
    assert found == ExecResult("/usr\ngreen\nLinux\n0\nwritable\n", "", 3)
    assert "1 / 0" in shared.run_code("1 / 0").stderr


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("code", "language"),
    [
        ("print('on')\nwhile True: pass", "python"),
        ("print('on')\nimport re\nre.match('(a+)+$', 'a' * 64 + 'b')", "python"),
        ("echo on; sleep 1000; echo never", "bash"),
    ],
    ids=["loop", "c-loop", "bash"],
)
def test_interrupt_ends_a_stream_and_keeps_the_state(
    shared: Sandbox, code: str, language: Language
) -> None:
    """The call never ends by itself, so its first line must have arrived while it ran."""
    shared.run_code("kept = 'yes'")
    events: list[Event] = []
    for event in shared.run_code_stream(code, language):
        events.append(event)
        if event.type == "stdout":
            assert event.data == "on\n"
            shared.interrupt()
    assert events[-1].code == 130
    assert shared.run_code("print(kept)").stdout == "yes\n"


@pytest.mark.smoke
def test_large_output_is_complete(shared: Sandbox) -> None:
    """Prints 8 MiB, many times what virtio-vsock lets wait."""
    size = 8 << 20
    code = (
        "import hashlib, sys\n"
        f"data = bytes(i * 7 % 251 for i in range(65536)) * {size // 65536}\n"
        "sys.stdout.buffer.write(data)\n"
        "print(hashlib.sha256(data).hexdigest(), file=sys.stderr)"
    )
    got, digest = hashlib.sha256(), ""
    count = 0
    for event in shared.run_code_stream(code):
        if event.type == "stdout":
            got.update(event.raw)
            count += len(event.raw)
        elif event.type == "stderr":
            digest += str(event.data)
    assert count == size
    assert got.hexdigest() == digest.strip()


@pytest.mark.smoke
def test_time_limit_kills_an_interpreter_that_ignores_it(client: Client) -> None:
    """Like numpy's loops, this one runs in C and never checks for signals."""
    with Sandbox(client=client) as sbx:
        sbx.run_code("kept = 'yes'")
        late = sbx.run_code("print('on')\nsum(range(10**15))", timeout_seconds=1)
        assert (late.stdout, late.exit_code) == ("on\n", 124)
        assert "time limit of 1.000 s" in late.stderr and "state is lost" in late.stderr
        assert sbx.run_code("print('kept' in globals())").stdout == "False\n"


@pytest.mark.smoke
def test_concurrent_sandboxes_share_nothing(client: Client) -> None:
    def one(i: int) -> str:
        with Sandbox(client=client) as mine:
            output(mine, f"x = {i}\nopen('/root/{i}', 'w').write('x')\nimport os; os.sync()")
            return output(mine, "print(x, [n for n in os.listdir('/root') if n[0] != '.'])")

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(one, range(4))) == [f"{i} ['{i}']\n" for i in range(4)]
