# SPDX-License-Identifier: Apache-2.0
"""Calls in real guests: output, state, interrupts, time limits, environment."""

from __future__ import annotations

import hashlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

import ramet
from ramet import Client, Event, Sandbox


def test_output_text_is_exact(shared: Sandbox) -> None:
    assert shared.run_code("print('still alive')").stdout == "still alive\n"
    assert shared.run_code("print('no newline', end='')").stdout == "no newline"
    assert shared.run_code("print('a\\r\\n\\u2028b')").stdout == "a\r\n\u2028b\n"


def test_state_persists_between_calls(sbx: Sandbox) -> None:
    sbx.run_code("import collections\nx = 41\nf = open('/tmp/kept', 'w+')\nf.write('open')")
    result = sbx.run_code("x += 1\nf.seek(0)\nprint(x, f.read(), collections.Counter('aab')['a'])")
    assert result == ramet.ExecResult("42 open 2\n", "", 0)


def test_sandbox_is_a_separate_linux_machine(shared: Sandbox) -> None:
    result = shared.run_code("uname -s; id -u; test -w /etc/hostname && echo writable", "bash")
    assert result.stdout == "Linux\n0\nwritable\n"


def test_exception_is_returned_with_its_source_line(sbx: Sandbox) -> None:
    result = sbx.run_code("kept = 1\ndef broken():\n    return 1 / 0\nbroken()")
    assert result.exit_code == 1
    assert result.stderr.startswith("Traceback (most recent call last):\n")
    assert "return 1 / 0" in result.stderr
    assert result.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert sbx.run_code("print(kept)").stdout == "1\n"


@pytest.mark.parametrize(
    ("code", "exit_code", "stderr"),
    [
        ("raise SystemExit", 0, ""),
        ("import sys; sys.exit(7)", 7, ""),
        ("import sys; sys.exit('so long')", 1, "so long\n"),
    ],
)
def test_system_exit_ends_the_call_only(
    shared: Sandbox, code: str, exit_code: int, stderr: str
) -> None:
    assert shared.run_code(code) == ramet.ExecResult("", stderr, exit_code)


def test_syntax_error_is_returned(shared: Sandbox) -> None:
    result = shared.run_code("def (:")
    assert result.exit_code == 1
    assert "SyntaxError" in result.stderr


def test_indented_code_runs_with_correct_line_numbers(shared: Sandbox) -> None:
    result = shared.run_code("    a = 1\n    b = 0\n    a / b\n")
    assert "line 3" in result.stderr
    assert shared.run_code("    if True:\n        print('in')\n").stdout == "in\n"


def test_bash_shares_folder_and_environment_of_python(sbx: Sandbox) -> None:
    sbx.run_code("import os\nos.chdir('/usr')\nos.environ['COLOUR'] = 'green'")
    assert sbx.run_code("pwd; echo $COLOUR; exit 3", "bash") == ramet.ExecResult(
        "/usr\ngreen\n", "", 3
    )
    assert sbx.run_code("kill -9 $$", "bash").exit_code == 137


def test_output_of_child_processes_arrives_in_order(sbx: Sandbox) -> None:
    code = (
        "import subprocess, sys\n"
        "for i in range(5):\n"
        "    print('parent', i)\n"
        "    subprocess.run(['sh', '-c', f'echo child {i}'])\n"
    )
    wanted = "".join(f"parent {i}\nchild {i}\n" for i in range(5))
    assert sbx.run_code(code).stdout == wanted


def test_stdin_is_empty(shared: Sandbox) -> None:
    result = shared.run_code("input()")
    assert result.exit_code == 1
    assert result.stderr.endswith("EOFError: EOF when reading a line\n")
    assert shared.run_code("cat; echo end", "bash").stdout == "end\n"


def test_output_that_is_not_utf8_arrives_unchanged(shared: Sandbox) -> None:
    raw = b"".join(
        event.raw
        for event in shared.run_code_stream(
            "import sys\nsys.stdout.buffer.write(bytes(range(256)))"
        )
        if event.type == "stdout"
    )
    assert raw == bytes(range(256))


def test_dead_interpreter_is_replaced(sbx: Sandbox) -> None:
    sbx.run_code("lost = 1")
    died = sbx.run_code("import os\nos._exit(9)")
    assert died.exit_code == 9
    assert "state" in died.stderr and "lost" in died.stderr
    killed = sbx.run_code("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    assert killed.exit_code == 128 + 9
    fresh = sbx.run_code("print('lost' in globals())")
    assert fresh == ramet.ExecResult("False\n", "", 0)


def test_interrupt_ends_the_call_and_keeps_the_state(sbx: Sandbox) -> None:
    sbx.run_code("kept = 'yes'")
    events: list[Event] = []
    for event in sbx.run_code_stream("print('on')\nwhile True: pass"):
        events.append(event)
        if event.type == "stdout":
            sbx.interrupt()
    assert events[-1].code == 130
    assert sbx.run_code("print(kept)").stdout == "yes\n"


def test_interrupt_without_a_call_does_nothing(sbx: Sandbox) -> None:
    sbx.interrupt()
    assert sbx.run_code("print(1)").stdout == "1\n"


# Raises KeyboardInterrupt where a late SIGINT does: after the last line, when the driver has just
# blocked signals.
LATE = """
import signal, sys
def late(frame, event, function):
    if event == 'c_return' and function.__name__ == 'pthread_sigmask':
        sys.setprofile(None)
        raise KeyboardInterrupt
sys.setprofile(late)
"""


def test_interrupt_at_the_end_of_a_call_leaves_no_signal_blocked(sbx: Sandbox) -> None:
    mask = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
    before = sbx.run_code(mask).stdout
    assert sbx.run_code(LATE).exit_code == 130
    assert sbx.run_code(mask).stdout == before


def test_output_streams_while_the_call_runs(sbx: Sandbox) -> None:
    """The call never ends by itself, so its first line must have arrived while it ran."""
    stream = sbx.run_code_stream("print('first')\nimport threading\nthreading.Event().wait()")
    assert next(stream).data == "first\n"
    sbx.interrupt()
    assert list(stream)[-1].code == 130


def test_ten_megabytes_of_code_run(sbx: Sandbox) -> None:
    filler = "#" + "x" * (10 << 20)
    assert sbx.run_code(f"{filler}\nprint('ran')").stdout == "ran\n"
    assert sbx.run_code(f"{filler}\necho ran", "bash").stdout == "ran\n"


def test_large_output_is_complete(sbx: Sandbox) -> None:
    """Prints 20 MiB; the tests of the agent in test/guest cover 100 MB."""
    size = 20 << 20
    code = (
        "import hashlib, sys\n"
        f"data = bytes(i * 7 % 251 for i in range(65536)) * {size // 65536}\n"
        "sys.stdout.buffer.write(data)\n"
        "print(hashlib.sha256(data).hexdigest(), file=sys.stderr)"
    )
    got, digest = hashlib.sha256(), ""
    count = 0
    for event in sbx.run_code_stream(code):
        if event.type == "stdout":
            got.update(event.raw)
            count += len(event.raw)
        elif event.type == "stderr":
            digest += str(event.data)
    assert count == size
    assert got.hexdigest() == digest.strip()


def test_calls_queue_in_order_of_arrival(sbx: Sandbox) -> None:
    sbx.run_code("order = []")
    started = threading.Event()

    def long_call() -> None:
        for event in sbx.run_code_stream("print(1)\nimport time\ntime.sleep(1)\norder.append(1)"):
            if event.type == "stdout":
                started.set()

    with ThreadPoolExecutor() as pool:
        first = pool.submit(long_call)
        assert started.wait(300)
        second = pool.submit(sbx.run_code, "order.append(2)\nprint(order)")
        assert second.result().stdout == "[1, 2]\n"
        first.result()


def test_disconnected_client_can_replay_all_output(sbx: Sandbox) -> None:
    stream = sbx.run_code_stream("print('before')\nimport time\ntime.sleep(0.5)\nprint('after')")
    assert next(stream).data == "before\n"
    stream.close()  # type: ignore[attr-defined]
    assert sbx.run_code("print('next')").stdout == "next\n"
    texts = [e.data for e in sbx.replay() if e.type == "stdout"]
    assert texts == ["before\n", "after\n", "next\n"]


def test_seq_grows_by_one_across_calls(sbx: Sandbox) -> None:
    events = [*sbx.run_code_stream("print(1)"), *sbx.run_code_stream("print(2)")]
    first = events[0].seq
    assert [e.seq for e in events] == list(range(first, first + len(events)))


def test_call_takes_time_limit_env_and_cwd(sbx: Sandbox) -> None:
    late = sbx.run_code("while True: pass", timeout_seconds=1)
    assert late.exit_code == 124
    result = sbx.run_code(
        "import os; print(os.environ['A'], os.getcwd())", env={"A": "b"}, cwd="/tmp"
    )
    assert result.stdout == "b /tmp\n"
    after = sbx.run_code("import os; print('A' in os.environ, os.getcwd())")
    assert after.stdout == "False /root\n"


# Runs in C practically forever and, like numpy's loops, never checks for signals.
DEAF = "print('on')\nsum(range(10**15))"


def test_interrupt_stops_a_c_loop_that_checks_signals(sbx: Sandbox) -> None:
    sbx.run_code("kept = 'yes'")
    stream = sbx.run_code_stream("print('on')\nimport re\nre.match('(a+)+$', 'a' * 64 + 'b')")
    assert next(stream).data == "on\n"
    sbx.interrupt()
    assert list(stream)[-1].code == 130
    assert sbx.run_code("print(kept)").stdout == "yes\n"


def test_time_limit_kills_a_c_loop_that_ignores_signals(sbx: Sandbox) -> None:
    sbx.run_code("kept = 'yes'")
    late = sbx.run_code(DEAF, timeout_seconds=5)
    assert (late.stdout, late.exit_code) == ("on\n", 124)
    assert "time limit of 5.000 s" in late.stderr and "state is lost" in late.stderr
    assert sbx.run_code("print('kept' in globals())").stdout == "False\n"


@pytest.mark.alone
@pytest.mark.parametrize("code", ["import time\ntime.sleep(1000)", "while True: pass"])
def test_time_limit_keeps_state_of_interruptible_code(sbx: Sandbox, code: str) -> None:
    """Code that does not stop within 2 s of SIGINT is killed, so a busy machine may need retries."""
    kept = False
    for _ in range(5):
        sbx.run_code("kept = 'yes'")
        late = sbx.run_code(code, timeout_seconds=1)
        assert late.exit_code == 124 and "time limit of 1.000 s" in late.stderr
        kept = "state is lost" not in late.stderr
        assert sbx.run_code("print('kept' in globals())").stdout == f"{kept}\n"
        if kept:
            break
    assert kept


def test_time_limit_ends_all_processes_of_a_bash_call(sbx: Sandbox) -> None:
    sbx.run_code("kept = 'yes'")
    late = sbx.run_code("trap '' INT; sleep 4242 | cat; echo never", "bash", timeout_seconds=1)
    assert (late.stdout, late.exit_code) == ("", 124)
    assert sbx.run_code("pgrep -x sleep", "bash").stdout == ""
    assert sbx.run_code("print(kept)").stdout == "yes\n"


def test_interrupt_ends_a_bash_call(sbx: Sandbox) -> None:
    stream = sbx.run_code_stream("echo on; sleep 1000; echo never", "bash")
    assert next(stream).data == "on\n"
    sbx.interrupt()
    events = list(stream)
    assert [event.code for event in events] == [130]


def test_bash_call_takes_env_and_cwd(sbx: Sandbox) -> None:
    result = sbx.run_code('echo "$A-$B"; pwd', "bash", env={"A": "a  b", "B": "ü\n"}, cwd="/usr")
    assert result.stdout == "a  b-ü\n\n/usr\n"
    assert sbx.run_code("echo $A$B; pwd", "bash").stdout == "\n/root\n"


def test_missing_cwd_is_named_in_the_error(sbx: Sandbox) -> None:
    for language in ("python", "bash"):
        result = sbx.run_code("pwd", language, cwd="/no/such/folder")
        assert result.exit_code == 1
        assert "/no/such/folder" in result.stderr
    assert sbx.run_code("print(1)").stdout == "1\n"


def test_env_of_a_call_overrides_that_of_the_sandbox(client: Client) -> None:
    with Sandbox(client=client, env={"A": "sandbox", "B": "sandbox"}) as sbx:
        show = "import os\nprint(os.environ['A'], os.environ['B'])"
        assert sbx.run_code(show, env={"B": "call"}).stdout == "sandbox call\n"
        assert sbx.run_code(show).stdout == "sandbox sandbox\n"
        assert sbx.run_code("echo $A", "bash").stdout == "sandbox\n"


def test_output_is_split_into_lines_by_default(sbx: Sandbox, http: httpx.Client) -> None:
    answer = http.post(
        f"/v1/sandboxes/{sbx.id}/exec", json={"code": "print('a\\n\\nb', end='')"}
    )
    assert answer.status_code == 200
    events = [Event.from_json(json.loads(line)) for line in answer.text.split("\n") if line]
    assert [(e.type, e.data) for e in events] == [
        ("stdout", "a"),
        ("stdout", ""),
        ("stdout", "b"),
        ("exit", 0),
    ]


def test_concurrent_sandboxes_keep_separate_state(client: Client) -> None:
    def one(i: int) -> str:
        with Sandbox(client=client) as mine:
            mine.run_code(f"x = {i}")
            return mine.run_code("print(x)").stdout

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, range(6))) == [f"{i}\n" for i in range(6)]
