# SPDX-License-Identifier: Apache-2.0
"""Commands of a fleet that need no etcd: what they read, write and refuse."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from conftest import PROGRAM
from cell import RAMETCTL

ETCD = "https://10.0.0.1:2379"


def run(*args: object, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    words = [str(Path(RAMETCTL).resolve()), *map(str, args)]
    return subprocess.run(words, capture_output=True, text=True, cwd=cwd)


def settings(tables: Path, *numbers: int) -> list[str]:
    """Returns the settings of a host whose table is there, with these hosts."""
    tables.mkdir()
    hosts = [{"host": n, "name": f"h{n}", "address": f"10.0.0.{n}:7443"} for n in numbers]
    table = {"format": 1, "fleet": "f00d", "cell": 3, "self": 17, "hosts": hosts}
    (tables / "hosts.json").write_text(json.dumps(table))
    names = ("id_key", "ca", "cert", "key")
    others = [f"--fleet_{name}=/nowhere/{name}" for name in names]
    return [f"--fleet_dir={tables}", "--fleet_listen=10.0.0.17:7443", *others]


@pytest.mark.parametrize("command", [("host", "list"), ("fleet", "status"), ("fleet", "haproxy")])
def test_table_is_the_one_of_the_settings(tmp_path: Path, command: tuple[str, ...]) -> None:
    done = run(*settings(tmp_path / "tables", 17), *command)
    assert done.returncode == 0, done.stderr
    assert "h17" in done.stdout
    # A folder in the command comes first.
    other = run(*settings(tmp_path / "others", 17), *command, tmp_path)
    assert other.returncode == 1 and f"{tmp_path}/hosts.json" in other.stderr


def test_hosts_are_shown_with_their_loads(tmp_path: Path) -> None:
    """What the service says; a host that did not answer it has none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as service:
        service.bind(str(tmp_path / "admin.sock"))
        service.listen()

        def serve(answer: bytes) -> None:
            with service.accept()[0] as client, client.makefile("rb") as request:
                assert request.read() == b"loads\0"
                client.sendall(answer)

        hosts = settings(tmp_path / "tables", 17, 18)
        refused = "rametctl: SANDBOXES and FREE MEMORY are not known: in no fleet\n"
        for answer, shown, said in (
            (b"\0" + b"5 1 1\n17 12 6451\n", ["12", "6.3", "GiB"], ""),
            (b"\1in no fleet", ["-", "-"], refused),
        ):
            thread = threading.Thread(target=serve, args=(answer,), daemon=True)
            thread.start()
            done = run(f"--run_dir={tmp_path}", *hosts, "host", "list")
            thread.join()
            assert (done.returncode, done.stderr) == (0, said)
            first, second = (line.split() for line in done.stdout.splitlines()[2:])
            assert first[-len(shown) - 2 : -2] == shown and second[-4:-2] == ["-", "-"]


@pytest.mark.parametrize(
    "listen_host, reached",
    [
        ("127.0.0.1", False),
        ("::1", False),
        ("10.0.0.18", False),
        ("10.0.0.17", True),
        ("0.0.0.0", True),
        ("::", True),
    ],
)
def test_front_that_cannot_reach_this_host_is_a_warning(tmp_path: Path, listen_host: str, reached: bool) -> None:
    done = run(*settings(tmp_path / "tables", 17, 18), f"--listen_host={listen_host}", "fleet", "haproxy")
    assert done.returncode == 0 and "    server h17 10.0.0.17:7070\n" in done.stdout
    assert "warning" not in done.stdout  # it is a file for HAProxy
    wanted = f"as listen_host is {listen_host}. Set listen_host to 10.0.0.17 or 0.0.0.0; on each host"
    assert done.stderr == "" if reached else wanted in done.stderr


@pytest.mark.parametrize("url", ["http://a:2379", "https://10.0.0.1", "https://a:0", "https://a:x", "https://:2379"])
def test_address_of_etcd_needs_a_port(tmp_path: Path, url: str) -> None:
    done = run("fleet", "init", tmp_path / "fleet", 3, ETCD, url)
    assert done.returncode == 1 and f'"{url}" is not an address of etcd' in done.stderr
    assert not (tmp_path / "fleet").exists()


def test_host_that_joins_elsewhere_is_told_where(tmp_path: Path) -> None:
    """The folder of the command is named, by its whole path."""
    assert run("fleet", "init", tmp_path / "fleet", 3, ETCD).returncode == 0
    for n in (17, 18):
        token = run("fleet", "ca", tmp_path / "fleet", "host", n, f"h{n}", f"10.0.0.{n}:7443")
        (tmp_path / f"token{n}").write_text(token.stdout)
    done = run("fleet", "join", "token17", "here", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"fleet_cert = {tmp_path}/here/cert.pem" in done.stdout
    assert f"Then start /usr/lib/ramet/ramet-fleet {tmp_path}/here" in done.stdout
    done = run("fleet", "join", "token18", "here", cwd=tmp_path)
    assert done.returncode == 1 and "remove here if it is to change" in done.stderr


def test_settings_of_a_host_that_joins_again_are_comments(tmp_path: Path) -> None:
    run("fleet", "init", tmp_path / "fleet", 3, ETCD)
    token = run("fleet", "ca", tmp_path / "fleet", "host", 17, "h17", "10.0.0.17:7443")
    (tmp_path / "token").write_text(token.stdout)
    assert "\nfleet_listen = " in run("fleet", "join", tmp_path / "token", tmp_path / "here").stdout
    again = run(*settings(tmp_path / "tables", 17), "fleet", "join", tmp_path / "token", tmp_path / "here")
    assert again.returncode == 0 and "\n# fleet_listen = 10.0.0.17:7443\n" in again.stdout
    assert all(line.startswith("# ") for line in again.stdout.splitlines())


@pytest.mark.parametrize(
    "words, what",
    [
        ("host", '"host" needs a subcommand'),
        ("host forgett h17", 'there is no command "host forgett"'),
        ("host list --all", 'there is no option "--all"'),
        ("host list a b", "host list has too few arguments, or too many"),
        ("fleet chek", 'there is no command "fleet chek"'),
        ("fleet ca", "fleet ca has too few arguments, or too many"),
        ("fleet join --dir=/here", 'there is no option "--dir=/here"'),
    ],
)
def test_wrong_words_are_named(words: str, what: str) -> None:
    done = run(*words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0] == f"rametctl: {what}"


def test_damaged_token_is_to_be_copied_again(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("{")
    done = run("fleet", "join", tmp_path / "token", tmp_path / "here")
    assert done.returncode == 1
    assert done.stderr == f"rametctl: {tmp_path}/token is no whole token of `rametctl fleet ca DIR host`: copy it again\n"


@pytest.mark.parametrize("time", ["soon", "", "1w", "2x", "2 h", "-1h"])
def test_bad_time_of_a_drain_is_named(tmp_path: Path, time: str) -> None:
    """In one line; `rametctl` refuses it itself, with no usage of a program that the operator did not call."""
    sentence = f'--deadline must be a time like 90s, 30m, 12h or 2d, not "{time}"\n'
    words = [str(PROGRAM), "--drain=h17", f"--deadline={time}", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, f"ramet-fleet: {sentence}")
    for option in ([f"--deadline={time}"], ["--deadline", time]):
        for words in (["h17", *option], [*option, "h17"]):
            done = run("host", "drain", *words)
            assert (done.returncode, done.stdout, done.stderr) == (2, "", f"rametctl: {sentence}")


@pytest.mark.parametrize("command", [["--check"], ["--drain=h17"]])
def test_error_of_a_command_is_no_line_of_a_log(tmp_path: Path, command: list[str]) -> None:
    done = subprocess.run([str(PROGRAM), *command, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith(f"ramet-fleet: {tmp_path}/fleet.json (`rametctl fleet join` writes it): ")


@pytest.mark.parametrize(
    "words, what",
    [
        (["drain"], "an argument is missing"),
        (["drain", "h17", "h18"], 'unexpected argument "h18"'),
        (["drain", "h17", "--deadline"], "--deadline needs a value"),
        (["drain", "h17", "--dead-line=2h"], 'there is no option "--dead-line=2h"'),
        (["undrain", "h17", "--deadline=2h"], 'there is no option "--deadline=2h"'),
        (["forget", "--yes"], 'there is no option "--yes"'),
    ],
)
def test_wrong_order_is_refused_by_rametctl(words: list[str], what: str) -> None:
    done = run("host", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"rametctl: {what}\nusage: rametctl host ")
    assert "usage: ramet-fleet" not in done.stderr
