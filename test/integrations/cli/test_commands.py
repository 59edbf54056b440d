# SPDX-License-Identifier: Apache-2.0
"""The other commands: files, forks, Spaces, ports, settings, completions, man pages."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cli_command import Cli, cli, code_of, folder  # noqa: F401  two fixtures
from ramet import Client, Sandbox, __version__

COPIED_MB = int(os.environ.get("RAMET_CLI_COPY_MB", "50"))
# `ramet`, with a progress bar for short copies, too.
WITH_EVERY_BAR = """
from ramet.cli import copying, main
copying._BAR_AFTER_S = 0
main()
"""
MAN = Path(__file__).parents[3] / "sdk/python/man"


def files_of(folder: Path) -> dict[str, str]:
    return {
        str(one.relative_to(folder)): one.read_text() for one in folder.rglob("*") if one.is_file()
    }


def test_create_list_remove(cli: Cli, client: Client) -> None:
    made = cli.ok("create", "--lifetime", "10m", "--metadata", "run=7", "-e", "A=1").strip()
    try:
        assert made in cli.ok("ls", "-q", "--metadata", "run=7").split()
        assert made not in cli.ok("ls", "-q", "--metadata", "run=8").split()
        assert cli.ok("exec", made, "sh", "-c", "echo $A") == "1\n"
        (shown,) = (one for one in json.loads(cli.ok("ls", "--json")) if one["id"] == made)
        assert shown["metadata"] == {"run": "7"} and shown["state"] == "ready"
        assert re.search(rf"^{made[:16]} +ready +default ", cli.ok("ls"), re.M)
    finally:
        assert cli.ok("rm", made[:20]) == made + "\n"
    done = cli.run("rm", made)
    assert done.returncode == 125 and made in done.stderr
    assert cli.run("rm", "-f", made).returncode == 0


def test_copy_of_a_large_file_with_a_progress_bar(
    cli: Cli, shared: Sandbox, folder: str, tmp_path: Path
) -> None:
    block, digest = os.urandom(1 << 20), hashlib.sha256()
    with open(tmp_path / "large", "wb") as file:
        for _ in range(COPIED_MB):
            file.write(block)
            digest.update(block)
    words = ("cp", f"{tmp_path}/large", f"{shared.id}:{folder}/")
    copy = cli.terminal(sys.executable, "-c", WITH_EVERY_BAR, *words)
    copy.expect(r"100%.*/s", timeout=600)
    assert code_of(copy) == 0
    (tmp_path / "large").unlink()
    found = shared.processes.run(["sha256sum", f"{folder}/large"]).stdout
    assert found.split()[0] == digest.hexdigest()


def test_copy_of_folders(cli: Cli, shared: Sandbox, folder: str, tmp_path: Path) -> None:
    (tmp_path / "d" / "sub").mkdir(parents=True)
    (tmp_path / "d" / "run").write_text("a")
    (tmp_path / "d" / "run").chmod(0o755)
    (tmp_path / "d" / "sub" / "b").write_text("b")
    remote = f"{shared.id[:20]}:{folder}"
    cli.ok("cp", f"{tmp_path}/d", remote)
    cli.ok("cp", f"{tmp_path}/d/.", remote + "/new")
    cli.ok("cp", f"{tmp_path}/d/run", remote + "/file")
    assert shared.files.stat(f"{folder}/d/run").mode & 0o777 == 0o755
    cli.ok("cp", remote, f"{tmp_path}/back")
    assert files_of(tmp_path / "back") == {
        "d/run": "a", "d/sub/b": "b", "new/run": "a", "new/sub/b": "b", "file": "a"
    }
    cli.ok("cp", remote + "/d", f"{tmp_path}/back/new")
    assert (tmp_path / "back/new/d/sub/b").exists()
    cli.ok("cp", remote + "/file", f"{tmp_path}/back/new")
    assert stat.S_IMODE((tmp_path / "back/new/file").stat().st_mode) == 0o755


def test_copy_from_and_to_pipes(cli: Cli, shared: Sandbox, folder: str) -> None:
    remote = f"{shared.id}:{folder}"
    cli.ok("cp", "-", remote + "/x", input="piped\n")
    assert cli.ok("cp", remote + "/x", "-") == "piped\n"
    archive = cli.ok("cp", remote, "-")
    assert "ustar" in archive and "piped" in archive


@pytest.mark.parametrize(
    "ends, message",
    [
        (("{tmp}/none", "{remote}"), "no such file"),
        (("{remote}/none", "{tmp}"), "No such file"),
        (("{remote}", "{remote}"), "into itself"),
        (("-", "{remote}/"), "has no name"),
        (("{remote}/", "{tmp}/none/none"), "{tmp}/none"),
    ],
)
def test_copies_that_are_refused(
    cli: Cli, shared: Sandbox, folder: str, tmp_path: Path, ends: tuple[str, str], message: str
) -> None:
    names = {"remote": f"{shared.id}:{folder}", "tmp": str(tmp_path)}
    done = cli.run("cp", *(one.format(**names) for one in ends))
    if done.returncode == 0:  # a folder is made with those above it
        assert message == "{tmp}/none"
        return
    assert done.returncode == 125 and message.format(**names) in done.stderr


def test_the_tree_of_three_generations(cli: Cli, client: Client) -> None:
    made: list[str] = []
    try:
        made.append(cli.ok("create").strip())
        made += cli.ok("fork", made[0], "-n", "2").split()
        forked = json.loads(cli.ok("fork", made[1], "--json"))
        made += forked["children"]
        assert forked["parent"] == made[1] and len(made) == 4
        lines = cli.ok("ls", "--tree").splitlines()
        rows = {line.split("sbx_")[1].split()[0]: line for line in lines if "sbx_" in line}
        drawn = [rows[one[4:16]].split("sbx_")[0] for one in made]
        assert drawn[0] == "" and {drawn[1], drawn[2]} == {"├─ ", "└─ "}
        assert drawn[3] == ("│  └─ " if drawn[1] == "├─ " else "   └─ ")
        root = next(o for o in json.loads(cli.ok("ls", "--tree", "--json")) if o["id"] == made[0])
        assert {one["id"] for one in root["children"]} == {made[1], made[2]}
        order = cli.ok("ls", "--tree", "-q").split()
        assert order.index(made[3]) == order.index(made[1]) + 1
    finally:
        cli.run("rm", "-f", *made)


def test_tree_is_limited_shown_and_ended(cli: Cli) -> None:
    root = cli.ok("create", "--tree", "live=3", "--tree", "at_limit=wait").strip()
    child = cli.ok("fork", root).strip()
    shown = cli.ok("tree", child).splitlines()
    assert shown[0] == "live: 2 of 3" and "at_limit: wait, 0 waiting" in shown
    assert shown[-2].split()[0] == root[:16] and shown[-1].split()[:2] == ["└─", child[:16]]
    assert json.loads(cli.ok("tree", root, "--json"))["root"] == root
    cli.ok("tree", "--end", root)
    assert root not in cli.ok("ls", "-q")


@pytest.mark.smoke
@pytest.mark.vm
def test_diff_and_merge(cli: Cli, client: Client, folder: str, shared: Sandbox) -> None:
    child = cli.ok("fork", shared.id).strip()
    try:
        cli.ok("exec", child, "sh", "-c", f"echo new >{folder}/new")
        assert cli.ok("diff", child, "--path", folder) in (f"A {folder}/new\n", "")
        found = json.loads(cli.ok("diff", shared.id, child, "-p", folder, "--json"))
        assert set(found) == {"added", "removed", "modified"}
        assert cli.ok("merge", shared.id, child) == shared.id + "\n"
        assert cli.ok("exec", shared.id, "cat", f"{folder}/new") == "new\n"
    finally:
        cli.run("rm", "-f", child)


@pytest.mark.vm
def test_files_of_forks_are_merged(cli: Cli, folder: str, shared: Sandbox) -> None:
    base, *forks = cli.ok("fork", shared.id, "-n", "3").split()
    try:
        for fork in forks:
            cli.ok("exec", fork, "sh", "-c", f"echo {fork} >{folder}/{fork[:8]}; echo {fork} >{folder}/same")
        words = ("merge", "--files", "--base", base, "-p", folder, shared.id, *forks)
        done = cli.run(*words)
        assert done.returncode == 125 and "nothing was written: 1 conflicts" in done.stderr
        assert f"U {folder}/same (added)" in done.stdout
        got = json.loads(cli.ok(*words, "--conflicts", "theirs", "--json"))
        assert got["applied"] and got["conflicts"][0]["resolution"] == "theirs"
        assert cli.ok("exec", shared.id, "cat", f"{folder}/same") == forks[1] + "\n"
    finally:
        cli.run("rm", "-f", base, *forks)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a", "b", "c"), "add --files"),
        (("--conflicts", "ours", "a", "b"), "add --files"),
        (("--files", "a", "b"), "needs --base"),
    ],
)
def test_options_of_a_merge_are_checked(cli: Cli, words: tuple[str, ...], message: str) -> None:
    done = cli.run("merge", *words)
    assert done.returncode == 125 and message in done.stderr


@pytest.mark.smoke
@pytest.mark.vm
def test_freeze_and_resume(cli: Cli, client: Client) -> None:
    made = cli.ok("create").strip()
    names = [made]
    try:
        space = cli.ok("freeze", made[:16]).strip()
        names = [space]
        assert space in cli.ok("spaces", "-q").split()
        (shown,) = (one for one in json.loads(cli.ok("spaces", "--json")) if one["id"] == space)
        assert shown["sandbox"] == made and shown["state"] == "frozen"
        done = cli.run("exec", made, "true")
        assert done.returncode == 125 and "ramet resume" in done.stderr
        names = [cli.ok("resume", space[:16]).strip()]
        assert cli.ok("exec", names[0], "echo", "back") == "back\n"
    finally:
        cli.run("rm", "-f", *names)


def test_rm_removes_a_space(cli: Cli) -> None:
    space = cli.ok("freeze", cli.ok("create").strip()).strip()
    assert cli.ok("rm", space[:20]) == space + "\n"
    assert space not in cli.ok("spaces", "-q").split()


SERVER = (
    "import http.server, socketserver\n"
    "s = socketserver.TCPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\n"
    "print(s.server_address[1], flush=True)\n"
    "s.serve_forever()\n"
)


def test_ports(cli: Cli, shared: Sandbox) -> None:
    process = shared.processes.start(["python3", "-c", SERVER])
    port = next(iter(process)).data.strip()
    try:
        forward = cli.terminal("ramet", "forward", shared.id, f"0:{port}")
        forward.expect(rf"127\.0\.0\.1:(\d+) -> {shared.id}:{port}")
        connection = http.client.HTTPConnection("127.0.0.1", int(forward.match[1]), timeout=60)
        connection.request("HEAD", "/")
        assert connection.getresponse().status == 200
        connection.close()
        forward.sendcontrol("c")
        assert code_of(forward) == 0
        url = cli.ok("url", shared.id, port).strip()
        assert cli.ok("url", shared.id, port).strip() == url
        (shown,) = json.loads(cli.ok("ports", shared.id, "--json"))
        assert (shown["port"], shown["url"], shown["public"]) == (int(port), url, False)
        assert re.search(rf"^{port} +token +", cli.ok("ports", shared.id), re.M)
        cli.ok("url", shared.id, port, "--public")
        assert re.search(rf"^{port} +public +", cli.ok("ports", shared.id), re.M)
        cli.ok("url", shared.id, port, "--stop")
        assert cli.ok("ports", shared.id, "-q") == ""
    finally:
        process.kill()


def test_doctor_of_a_whole_service(cli: Cli, client: Client) -> None:
    before = {one.id for one in client.list_sandboxes()}
    report = json.loads(cli.ok("doctor", "--json"))
    names = ["settings", "host", "key", "versions", "templates", "service", "sandbox"]
    assert [(one["name"], one["ok"]) for one in report] == [(name, True) for name in names]
    assert {one.id for one in client.list_sandboxes()} == before


@pytest.mark.parametrize(
    "host, name, text",
    [
        ("http://127.0.0.1:1", "host", "port 1"),
        ("nonsense", "host", "is not a URL"),
        ("http://no-such-host.invalid", "host", "no-such-host.invalid is unknown"),
    ],
)
def test_doctor_stops_at_the_fault(cli: Cli, host: str, name: str, text: str) -> None:
    done = cli.run("doctor", env={"RAMET_HOST": host})
    assert done.returncode == 1
    (failed,) = (line for line in done.stdout.splitlines() if line.startswith("FAILED"))
    assert failed.split()[1] == name and text in failed
    assert "RAMET_HOST" in done.stdout.splitlines()[-1]


def test_doctor_finds_a_file_without_certificates(cli: Cli) -> None:
    done = cli.run("doctor", env={"RAMET_CA_FILE": "/dev/null"})
    assert done.returncode == 1
    assert done.stdout.startswith("FAILED settings  the CA certificates in '/dev/null' cannot be used")
    assert "RAMET_CA_FILE names another file" in done.stdout.splitlines()[-1]


def test_version(cli: Cli, client: Client) -> None:
    found = json.loads(cli.ok("version", "--json"))
    assert found["client"] == __version__ and found["host"] == client.host
    assert re.match(r"\d+\.\d+\.\d+", found["service"])
    assert cli.ok("--version") == f"ramet {__version__}\n"


def test_login(cli: Cli, client: Client, tmp_path: Path) -> None:
    saved = tmp_path / "settings.json"
    cli.env["RAMET_CONFIG"] = str(saved)
    try:
        key = os.environ.get("RAMET_API_KEY", "rmt_unused")
        done = cli.run("login", client.host, "--key-stdin", input=key + "\n")
        assert done.returncode == 0 and str(saved) in done.stdout
        assert stat.S_IMODE(saved.stat().st_mode) == 0o600
        done = cli.run("ls", "-q", env={"RAMET_HOST": "", "RAMET_API_KEY": ""})
        assert done.returncode == 0
        done = cli.run("login", "http://127.0.0.1:1", "--key-stdin", input="rmt_other\n")
        assert done.returncode == 125
        assert json.loads(saved.read_text())["host"] == client.host
    finally:
        del cli.env["RAMET_CONFIG"]


def test_completion_in_bash(cli: Cli, shared: Sandbox) -> None:
    shell = cli.terminal("bash", "--norc", "--noprofile")
    shell.sendline("PS1='ready''> '; bind 'set enable-bracketed-paste off'")
    shell.expect("ready> ")
    shell.sendline('eval "$(ramet completion bash)"; echo loa""ded')
    shell.expect("loaded\r\nready> ")
    shell.send("ramet forw\t")
    shell.expect("ramet forward ")
    shell.send(shared.id[:20] + "\t")
    shell.expect(shared.id)
    shell.sendcontrol("u")
    shell.send("ramet run --no-\t")
    shell.expect("--no-egress ")
    shell.sendcontrol("u")
    shell.send("ramet f\t\t")
    shell.expect(r"fork +forward +freeze|fork +freeze +forward|forward +freeze +fork")
    shell.sendcontrol("u")
    shell.sendline("exit")
    assert code_of(shell) == 0


def test_completion_in_zsh(cli: Cli, shared: Sandbox) -> None:
    shell = cli.terminal("zsh", "-f", "-i")
    shell.sendline("PS1='ready''> '; unsetopt zle_bracketed_paste PROMPT_SP")
    shell.expect("ready> ")
    shell.sendline('autoload -U compinit; compinit -u; eval "$(ramet completion zsh)"; echo loa""ded')
    shell.expect("loaded\r\n")
    shell.expect("ready> ")
    shell.send("ramet forw\t")
    shell.expect("ramet forward")
    shell.send(shared.id[:20] + "\t")
    shell.expect(shared.id[20:])
    shell.sendcontrol("u")
    shell.send("ramet run --no-\t")
    shell.expect("--no-egress")
    shell.sendcontrol("u")
    shell.send("ramet f\t")
    shell.expect("fork.*forward.*freeze")
    shell.sendcontrol("u")
    shell.sendline("exit")
    assert code_of(shell) == 0


def test_completion_in_fish(cli: Cli, shared: Sandbox, tmp_path: Path) -> None:
    script = tmp_path / "ramet.fish"
    script.write_text(cli.ok("completion", "fish"))

    def completed(line: str) -> list[str]:
        words = ["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"]
        done = subprocess.run(words, env=cli.env, capture_output=True, text=True, check=True)
        return [one.split("\t")[0].strip() for one in done.stdout.splitlines()]

    assert completed("ramet forw") == ["forward"]
    assert completed(f"ramet forward {shared.id[:20]}") == [shared.id]
    assert completed("ramet run --no-") == ["--no-egress"]
    assert completed("ramet f") == ["fork", "forward", "freeze"]


def test_completion_of_an_unknown_shell(cli: Cli) -> None:
    done = cli.run("completion", "csh")
    assert done.returncode == 125 and "name bash, zsh or fish" in done.stderr


@pytest.mark.smoke
def test_man_pages_are_up_to_date(cli: Cli, tmp_path: Path) -> None:
    cli.ok("man", "--write", str(tmp_path))
    fresh = {one.name: one.read_text() for one in tmp_path.iterdir()}
    kept = {one.name: one.read_text() for one in MAN.iterdir()}
    assert fresh == kept, "`ramet man --write sdk/python/man` makes them"


def test_every_command_has_help_and_a_page(cli: Cli) -> None:
    shown = cli.ok("--help")
    for page in MAN.iterdir():
        name = page.stem.removeprefix("ramet-")
        if name not in ("ramet", "mcp"):  # the help of `mcp` is the server's
            assert re.search(rf"^  {name} ", shown, re.M)
            assert f"Usage: ramet {name}" in cli.ok(name, "--help")
            assert cli.ok("man", name) == page.read_text()


def test_templates(cli: Cli, client: Client) -> None:
    names = [one.name for one in client.templates()]
    assert cli.ok("templates", "-q").split() == names
    assert [one["name"] for one in json.loads(cli.ok("templates", "--json"))] == names
    assert cli.ok("templates").splitlines()[1].startswith(names[0])


@pytest.mark.parametrize(
    "words, shown",
    [
        (("run", "none.py"), "none.py: No such file or directory"),
        (("run", "-i", "-"), "cannot be read from the input"),
        (("ls", "--host", "http://127.0.0.1:9"), "--host goes before the command: ramet --host"),
    ],
)
def test_a_wrong_command_line_needs_no_service(
    cli: Cli, words: tuple[str, ...], shown: str
) -> None:
    done = cli.run(*words, env={"RAMET_HOST": "http://127.0.0.1:9"})
    assert done.returncode == 125 and shown in done.stderr


def test_version_prints_its_own_without_a_service(cli: Cli) -> None:
    done = cli.run("version", env={"RAMET_HOST": "http://127.0.0.1:9"})
    assert done.returncode == 125 and done.stdout == f"ramet {__version__}\n"


def test_help_of_ls_describes_its_filters(cli: Cli) -> None:
    shown = cli.ok("ls", "--help")
    assert "Only those of a template." in shown and "Only those with this metadata." in shown


@pytest.mark.parametrize(
    "words, found", [("completion z", "zsh"), ("man ver", "version"), ("ls --state fr", "freezing")]
)
def test_words_are_completed(cli: Cli, words: str, found: str) -> None:
    count = len(words.split())
    env = {"_RAMET_COMPLETE": "bash_complete", "COMP_WORDS": "ramet " + words,
           "COMP_CWORD": str(count)}
    assert cli.run(env=env).stdout == f"plain,{found}\n"


def test_spaces_are_completed_for_rm(cli: Cli) -> None:
    space = cli.ok("freeze", cli.ok("create").strip()).strip()
    try:
        env = {"_RAMET_COMPLETE": "bash_complete", "COMP_WORDS": f"ramet rm {space[:12]}",
               "COMP_CWORD": "2"}
        assert cli.run(env=env).stdout == f"plain,{space}\n"
    finally:
        cli.ok("rm", space)
