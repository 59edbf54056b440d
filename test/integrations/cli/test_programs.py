# SPDX-License-Identifier: Apache-2.0
"""Programs in sandboxes: `run`, `exec`, `shell`, `python`, `logs`."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pexpect
import pytest

from cli_command import Cli, cli, code_of, folder  # noqa: F401  two fixtures
from ramet import Client, Sandbox

SCRIPT = """\
import sys
print("out", sys.argv)
print("err", file=sys.stderr)
kept = 41
sys.exit(3)
"""


def marked(client: Client, mark: Path) -> list[str]:
    """Returns the sandboxes that were created with `--metadata mark=MARK`."""
    return [one.id for one in client.list_sandboxes(metadata={"mark": str(mark)})]


def test_run_a_file(cli: Cli, client: Client, tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    words = [str(file), "a", "--flag", "it's"]
    done = cli.run("run", "--metadata", f"mark={tmp_path}", *words)
    assert (done.returncode, done.stdout, done.stderr) == (3, f"out {words}\n", "err\n")
    assert marked(client, tmp_path) == []


def test_a_kept_sandbox_has_the_variables(cli: Cli, client: Client, tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    done = cli.run("run", "--keep", str(file))
    made = done.stderr.split()[0]
    try:
        assert cli.ok("python", made, input="kept + 1") == "42\n"
    finally:
        client.delete_sandbox(made)


def test_run_a_program_from_standard_input(cli: Cli) -> None:
    assert cli.ok("run", "-", input="print(6 * 7)") == "42\n"


def test_a_file_knows_its_name(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "named.py"
    file.write_text("print(__name__, __file__)")
    assert cli.ok("run", str(file)) == f"__main__ {file}\n"


def test_a_file_with_input_is_a_program_of_its_own(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "upper.py"
    file.write_text("import sys; print(__name__, sys.stdin.read().upper(), sys.argv[1])")
    assert cli.ok("run", "-i", str(file), "x", input="ab") == "__main__ AB x\n"


@pytest.mark.parametrize(
    "command, code",
    [
        (["true"], 0),
        (["sh", "-c", "exit 7"], 7),
        (["/no/such/program"], 127),
        (["/etc/passwd"], 126),
        (["sh", "-c", "kill -9 $$"], 137),
    ],
)
def test_exit_codes(cli: Cli, shared: Sandbox, command: list[str], code: int) -> None:
    assert cli.run("exec", shared.id[:16], "--", *command).returncode == code
    assert cli.run("exec", shared.id[4:16], *command).returncode == code


def test_run_a_command(cli: Cli) -> None:
    done = cli.run("run", "-e", "A=b c", "-w", "/tmp", "--", "sh", "-c", 'echo "$A" $PWD; exit 5')
    assert (done.returncode, done.stdout) == (5, "b c /tmp\n")


@pytest.mark.parametrize(
    "words, message",
    [
        (["exec", "nope", "ls"], "is not the id of a sandbox"),
        (["exec", "chk_" + "0" * 32, "ls"], "is the id of a checkpoint, not of a sandbox"),
        (["exec", "sbx_" + "0" * 32, "ls"], "sbx_" + "0" * 32),
        (["run", "/no/such.py"], "No such file"),
        (["ls", "--no-such-option"], "--no-such-option"),
        (["no-such-command"], "no-such-command"),
        (["create", "--memory", "x"], "512m"),
        (["-H", "http://127.0.0.1:1", "ls"], "ramet doctor"),
    ],
)
def test_own_failures_have_code_125(cli: Cli, words: list[str], message: str) -> None:
    done = cli.run(*words)
    assert (done.returncode, done.stdout) == (125, "")
    assert message in done.stderr


def test_exec_passes_input_of_any_bytes_on(cli: Cli, shared: Sandbox) -> None:
    data = bytes(range(256)) * 4096
    done = subprocess.run(
        ["ramet", "exec", "-i", shared.id, "cat"], input=data, env=cli.env, capture_output=True
    )
    assert done.stdout == data


def test_without_i_the_input_is_empty(cli: Cli, shared: Sandbox) -> None:
    assert cli.ok("exec", shared.id, "cat", input="lost") == ""


def test_t_needs_a_terminal(cli: Cli, shared: Sandbox) -> None:
    done = cli.run("exec", "-it", shared.id, "cat")
    assert done.returncode == 125 and "leave out -t" in done.stderr


def test_a_shell_follows_the_size_of_the_terminal(cli: Cli, shared: Sandbox) -> None:
    variables = ["COLUMNS=80", "LINES=24"]  # not the size of this terminal
    shell = cli.terminal("env", *variables, "ramet", "shell", shared.id)
    shell.sendline("stty size; echo terminal=$TERM")
    shell.expect("30 100\r\nterminal=xterm")
    shell.setwinsize(40, 120)
    shell.sendline("until [ \"$(stty size)\" = '40 120' ]; do sleep 0.1; done; echo re''sized")
    shell.expect("resized")
    # The program prints "begun": bash can lose a signal between its own echo and starting sleep.
    shell.sendline("sh -c 'echo be''gun; exec sleep 1000'")
    shell.expect("begun")
    shell.sendcontrol("c")
    shell.sendline("echo co''de=$?")
    shell.expect("code=130")
    shell.sendline("exit 5")
    assert code_of(shell) == 5


def test_a_shell_without_an_id_removes_its_sandbox(cli: Cli, client: Client) -> None:
    before = {one.id for one in client.list_sandboxes()}
    shell = cli.terminal("ramet", "shell")
    shell.sendline("echo is$((1 + 1))")
    shell.expect("is2")
    made = {one.id for one in client.list_sandboxes()} - before
    assert made
    shell.sendcontrol("d")
    assert code_of(shell) == 0
    assert not made & {one.id for one in client.list_sandboxes()}


def test_a_program_on_a_terminal(cli: Cli, shared: Sandbox) -> None:
    command = ["sh", "-c", "read x; echo =$x=; exit 9"]
    program = cli.terminal("ramet", "exec", "-it", shared.id, *command)
    program.sendline("typed")
    program.expect("=typed=")
    assert code_of(program) == 9


def interrupt_line(prompt: Any) -> None:
    """Presses Ctrl-C until there is a new prompt. All that was typed before must be on the screen.

    Python notices the signal only while readline waits between two keys. A Ctrl-C right behind a
    key can even discard that key when readline is about to read it: it then waits for another one.
    """
    for _ in range(24):
        prompt.sendcontrol("c")
        if prompt.expect([">>> ", pexpect.TIMEOUT], timeout=5) == 0:
            return
    pytest.fail("Ctrl-C has no effect")


def test_the_python_prompt(cli: Cli, shared: Sandbox) -> None:
    prompt = cli.terminal("ramet", "python", shared.id)
    prompt.expect(">>> ")
    prompt.sendline("def add(n):")
    prompt.expect(r"\.\.\. ")
    prompt.sendline("    return n + 1")
    prompt.expect(r"\.\.\. ")
    prompt.sendline("")
    prompt.expect(">>> ")
    prompt.sendline("add(41)")
    prompt.expect("\n42\r\n>>> ")
    prompt.sendline("print('star' + 'ted', flush=True); import time; time.sleep(1000)")
    prompt.expect("started")
    prompt.sendcontrol("c")
    prompt.expect("KeyboardInterrupt")
    prompt.expect(">>> ")
    prompt.sendline("1 / 0")
    prompt.expect("ZeroDivisionError")
    prompt.expect(">>> ")
    prompt.send("half a line")
    prompt.expect("half a line")
    interrupt_line(prompt)
    prompt.sendcontrol("d")
    assert code_of(prompt) == 0
    again = cli.terminal("ramet", "python", shared.id)
    again.expect(">>> ")
    again.send("\x1b[A")  # the last line of the session before
    again.expect("1 / 0")
    interrupt_line(again)
    again.sendline("add(1)")
    again.expect("\n2\r\n>>> ")
    again.sendcontrol("d")
    assert code_of(again) == 0


def test_code_from_a_pipe_has_an_exit_code(cli: Cli, shared: Sandbox) -> None:
    done = cli.run("python", shared.id, input="print('x')\nraise SystemExit(4)\n")
    assert (done.returncode, done.stdout) == (4, "x\n")


@pytest.mark.parametrize("words", [["--", "sh", "-c", "echo up; sleep 1000"], ["-"]])
def test_ctrl_c_ends_a_run_and_its_sandbox(
    cli: Cli, client: Client, words: list[str], tmp_path: Path
) -> None:
    program = cli.terminal("ramet", "run", "--metadata", f"mark={tmp_path}", *words)
    if words == ["-"]:
        program.sendline("print('u' + 'p', flush=True); import time; time.sleep(1000)")
        program.sendcontrol("d")
    program.expect("up\r\n")
    assert len(marked(client, tmp_path)) == 1
    program.sendcontrol("c")
    assert code_of(program) == 130
    assert marked(client, tmp_path) == []


def test_a_signal_ends_a_run_and_its_sandbox(cli: Cli, client: Client, tmp_path: Path) -> None:
    words = ["--metadata", f"mark={tmp_path}", "--", "sh", "-c", "echo up; sleep 1000"]
    program = cli.start("run", *words)
    assert program.stdout and program.stdout.readline() == "up\n"
    assert len(marked(client, tmp_path)) == 1
    program.send_signal(signal.SIGTERM)
    program.communicate()
    assert program.returncode == 128 + signal.SIGTERM
    assert marked(client, tmp_path) == []


def test_a_reader_that_stops_early(cli: Cli, shared: Sandbox) -> None:
    program = cli.start("exec", shared.id, "yes")
    assert program.stdout and program.stdout.readline() == "y\n"
    program.stdout.close()
    assert program.wait() == 128 + signal.SIGPIPE
    assert program.stderr and program.stderr.read() == ""
    program.stderr.close()


def test_logs_of_a_detached_process(cli: Cli, shared: Sandbox, folder: str) -> None:
    wait = f"echo one; until [ -e {folder}/go ]; do sleep 0.1; done; echo two; exit 6"
    process = cli.ok("exec", "-d", shared.id, "--", "sh", "-c", wait).strip()
    following = cli.start("logs", "-f", shared.id, process[:12])
    assert following.stdout and following.stdout.readline() == "one\n"
    assert cli.ok("logs", shared.id, process) == "one\n"
    shared.upload(b"", f"{folder}/go")
    assert following.communicate()[0] == "two\n"
    assert following.returncode == 6
    done = cli.run("logs", shared.id, process)
    assert (done.returncode, done.stdout) == (6, "one\ntwo\n")


def test_logs_of_calls_follow_until_the_sandbox_ends(cli: Cli, client: Client) -> None:
    with Sandbox(client=client) as made:
        made.run_code("print('first')")
        assert cli.ok("logs", made.id) == "first\n"
        following = cli.start("logs", "-f", made.id)
        assert following.stdout and following.stdout.readline() == "first\n"
        made.run_code("print('second')")
        assert following.stdout.readline() == "second\n"
    assert following.communicate() == ("", "")
    assert following.returncode == 0


def test_a_run_does_not_import_rich(cli: Cli) -> None:
    done = cli.run("run", "--", "true", env={"PYTHONVERBOSE": "1"})
    assert done.returncode == 0
    assert "import 'ramet.cli.app'" in done.stderr
    assert "import 'httpx'" in done.stderr and "import 'rich" not in done.stderr
